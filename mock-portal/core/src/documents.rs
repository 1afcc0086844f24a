//! Desired states: given in clear by whoever runs the portal, sealed for each agent (SEAL-1).
//!
//! A document is kept as it was given; what an agent gets is made from it in [`DesiredInput::seal`]. When that happens, and
//! that it happens once a key and generation, is [`crate::seals`]'s.

use std::collections::BTreeMap;

use protocol::id::{AddonName, AgentVersion, Generation, ReleaseVersion};
use protocol::pbx::enroll::{BootstrapSecrets, S3Access};
use protocol::pbx::sync::{AddonSpec, DesiredState, HostConfig, MaintenanceWindow};
use protocol::seal::Sealed;
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::secret::{ClearOrSealed, all_in_clear, in_clear};

/// `PUT /clusters/{id}/desired`: a document with its secrets in clear; the portal seals them for each agent. A secret
/// that is given as `{"sealed": …}` goes through as it is.
///
/// Serializing one writes its secrets in clear: for sending it to the control API, and for the portal's own disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DesiredInput {
    /// The release.
    pub release: ReleaseVersion,
    /// The agent program.
    pub agent_version: AgentVersion,
    /// The host's configuration.
    pub host: HostConfig,
    /// When k3s may be restarted.
    pub maintenance_window: MaintenanceWindow,
    /// The cluster's secrets.
    pub secrets: SecretsInput,
    /// The add-ons.
    #[serde(default)]
    pub addons: Vec<AddonInput>,
}

/// A cluster's secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretsInput {
    /// The token of the cloud provider.
    #[serde(serialize_with = "in_clear")]
    pub hcloud_token: ClearOrSealed,
    /// Access to the bucket of snapshots.
    pub s3: S3Input,
}

/// A bucket and the keys to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct S3Input {
    /// The URL of the service.
    pub endpoint: String,
    /// The region.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// The folder in the bucket.
    pub folder: String,
    /// The key's ID.
    #[serde(serialize_with = "in_clear")]
    pub access_key: ClearOrSealed,
    /// The key.
    #[serde(serialize_with = "in_clear")]
    pub secret_key: ClearOrSealed,
}

/// An add-on of a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddonInput {
    /// Its name.
    pub name: AddonName,
    /// Whether it is on.
    pub enabled: bool,
    /// Its options.
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Its secret options.
    #[serde(default, serialize_with = "all_in_clear")]
    pub secret_options: BTreeMap<String, ClearOrSealed>,
}

/// A document of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// Which one; the cluster's documents count from 1.
    pub generation: Generation,
    /// When it was set.
    pub set_at: Timestamp,
    /// What it says.
    pub input: DesiredInput,
}

impl DesiredInput {
    /// The document as an agent gets it; `seal` makes a box of each secret.
    pub(crate) fn seal(
        &self,
        generation: Generation,
        seal: &mut impl FnMut(&ClearOrSealed) -> Sealed,
    ) -> DesiredState {
        DesiredState {
            generation,
            release: self.release.clone(),
            agent_version: self.agent_version.clone(),
            host: self.host.clone(),
            maintenance_window: self.maintenance_window.clone(),
            secrets: self.secrets.seal(seal),
            addons: self.addons.iter().map(|addon| addon.seal(seal)).collect(),
        }
    }

    /// The document for people, without its secrets.
    pub(crate) fn redacted(&self) -> Value {
        let mut shown = self.clone();
        let secrets = &mut shown.secrets;
        let addons = shown
            .addons
            .iter_mut()
            .flat_map(|addon| addon.secret_options.values_mut());
        for secret in [
            &mut secrets.hcloud_token,
            &mut secrets.s3.access_key,
            &mut secrets.s3.secret_key,
        ]
        .into_iter()
        .chain(addons)
        {
            *secret = REDACTED.into();
        }
        serde_json::to_value(shown).expect("a document is text, numbers and maps by text")
    }
}

/// What stands for a secret where people look.
const REDACTED: &str = "(redacted)";

impl SecretsInput {
    /// The secrets as an agent gets them.
    pub(crate) fn seal(&self, seal: &mut impl FnMut(&ClearOrSealed) -> Sealed) -> BootstrapSecrets {
        BootstrapSecrets {
            hcloud_token: seal(&self.hcloud_token),
            s3: S3Access {
                endpoint: self.s3.endpoint.clone(),
                region: self.s3.region.clone(),
                bucket: self.s3.bucket.clone(),
                folder: self.s3.folder.clone(),
                access_key: seal(&self.s3.access_key),
                secret_key: seal(&self.s3.secret_key),
            },
        }
    }
}

impl AddonInput {
    fn seal(&self, seal: &mut impl FnMut(&ClearOrSealed) -> Sealed) -> AddonSpec {
        AddonSpec {
            name: self.name.clone(),
            enabled: self.enabled,
            options: self.options.clone(),
            secret_options: self
                .secret_options
                .iter()
                .map(|(name, secret)| (name.clone(), seal(secret)))
                .collect(),
        }
    }
}
