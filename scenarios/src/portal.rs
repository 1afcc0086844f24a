//! The portal that a run starts itself: how strict it is, and the document it gives out.
//!
//! A foreign portal is named on the command line and knows its own documents; then none of this counts.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use protocol::id::{AddonName, AgentVersion, ReleaseVersion};
use protocol::pbx::sync::{HostConfig, MaintenanceWindow, Weekday};

use crate::form::{At, Slot};
use crate::written;

/// The embedded portal.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PortalSpec {
    /// How it treats what a real portal may refuse.
    pub profile: Profile,
    /// The document that every cluster has from the start; none if there is none.
    pub document: Option<DocumentSpec>,
}

/// How a portal treats what a real one may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// It refuses everything that a strict portal may refuse.
    #[default]
    Strict,
    /// It lets pass what a lenient portal may let pass.
    Friendly,
}

/// A document as it is given to a portal: secrets in clear, no generation. Its JSON is the body of the control API's
/// `PUT /clusters/{id}/desired`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DocumentSpec {
    /// The release that the nodes are to run.
    pub release: ReleaseVersion,
    /// The agent's version in that release.
    pub agent_version: AgentVersion,
    /// Settings of the host.
    pub host: HostConfig,
    /// When k3s may be restarted.
    pub maintenance_window: MaintenanceWindow,
    /// Secrets of the cluster, in clear.
    pub secrets: SecretsSpec,
    /// Add-ons.
    pub addons: Vec<AddonSpec>,
}

impl DocumentSpec {
    /// Every secret of the document.
    pub fn secrets_in_clear(&self) -> impl Iterator<Item = &ClearText> {
        let SecretsSpec { hcloud_token, s3 } = &self.secrets;
        let cluster = [hcloud_token, &s3.access_key, &s3.secret_key];
        let addons = self
            .addons
            .iter()
            .flat_map(|addon| addon.secret_options.values());
        cluster.into_iter().chain(addons)
    }
}

/// The secrets of a cluster, in clear.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SecretsSpec {
    /// The Hetzner token.
    pub hcloud_token: ClearText,
    /// The bucket for snapshots.
    pub s3: S3Spec,
}

/// A bucket and its keys, in clear.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct S3Spec {
    /// Its URL.
    pub endpoint: String,
    /// Its region.
    pub region: String,
    /// Its name.
    pub bucket: String,
    /// The folder in it.
    pub folder: String,
    /// The access key.
    pub access_key: ClearText,
    /// The secret key.
    pub secret_key: ClearText,
}

/// An add-on, its secrets in clear.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AddonSpec {
    /// Its name in the release.
    pub name: AddonName,
    /// Whether it is on.
    pub enabled: bool,
    /// What its template is rendered with.
    pub options: Map<String, Value>,
    /// What its chart reads from a Secret, in clear.
    pub secret_options: BTreeMap<String, ClearText>,
}

/// A secret of a scenario, in clear. It is written to the portal's control API and printed nowhere.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ClearText(String);

impl ClearText {
    /// Takes a secret.
    pub fn new(text: String) -> Self {
        ClearText(text)
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClearText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClearText(redacted)")
    }
}

impl PortalSpec {
    pub(crate) fn from_written(written: written::Portal) -> Option<Self> {
        let document = match written.document {
            Slot::Absent => None,
            Slot::Bad => return None,
            Slot::Good(at) => Some(DocumentSpec::from_written(at.value)?),
        };
        Some(PortalSpec {
            profile: written.profile.or(Profile::Strict)?,
            document,
        })
    }
}

impl DocumentSpec {
    pub(crate) fn from_written(written: written::Document) -> Option<Self> {
        let host = written.host.value()?;
        let window = written.maintenance_window.value()?;
        let secrets = written.secrets.value()?;
        let s3 = secrets.s3.value()?;
        let addons = written.addons.optional()?.unwrap_or_default();
        Some(DocumentSpec {
            release: written.release.value()?,
            agent_version: written.agent_version.value()?,
            host: HostConfig {
                snapshot_schedule: host.snapshot_schedule.value()?,
                snapshot_retention: u32::try_from(host.snapshot_retention.value()?.get()).ok()?,
                ingress_mode: host.ingress_mode.value()?,
            },
            maintenance_window: MaintenanceWindow {
                days: values(window.days.value()?),
                start: window.start.value()?,
                duration_minutes: u32::try_from(window.duration_minutes.value()?.get()).ok()?,
                time_zone: window.time_zone.value()?,
            },
            secrets: SecretsSpec {
                hcloud_token: secrets.hcloud_token.value()?,
                s3: S3Spec {
                    endpoint: s3.endpoint.value()?,
                    region: s3.region.value()?,
                    bucket: s3.bucket.value()?,
                    folder: s3.folder.value()?,
                    access_key: s3.access_key.value()?,
                    secret_key: s3.secret_key.value()?,
                },
            },
            addons: addons
                .into_iter()
                .map(|addon| AddonSpec::from_written(addon.value))
                .collect::<Option<Vec<_>>>()?,
        })
    }
}

impl AddonSpec {
    fn from_written(written: written::Addon) -> Option<Self> {
        Some(AddonSpec {
            name: written.name.value()?,
            enabled: written.enabled.or(true)?,
            options: written
                .options
                .optional()?
                .map_or_else(Map::new, |table| table.0),
            secret_options: written
                .secret_options
                .optional()?
                .map_or_else(BTreeMap::new, |m| m.0),
        })
    }
}

fn values(list: Vec<At<Weekday>>) -> Vec<Weekday> {
    list.into_iter().map(|at| at.value).collect()
}
