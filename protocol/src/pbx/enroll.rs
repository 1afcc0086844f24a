//! `POST /enroll`: a token and public keys, for an identity and the node's configuration (ENR-1 to ENR-11).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ProtocolVersion;
use crate::hash::Sha256Hex;
use crate::id::{
    AgentId, AgentVersion, Arch, ClusterId, EnrollmentToken, ManifestName, NodeName,
    ReleaseVersion, ServerId,
};
use crate::seal::{Sealed, SealingPublicKey, SecretPlaces};
use crate::sign::SigningPublicKey;
use crate::time::Timestamp;

/// What a node says to be enrolled (ENR-3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct EnrollRequest {
    /// The protocol that the agent speaks.
    pub protocol: ProtocolVersion,
    /// The token from the node's configuration.
    pub token: EnrollmentToken,
    /// The cluster that the node belongs to.
    pub cluster_id: ClusterId,
    /// The node's name.
    pub node_name: NodeName,
    /// The server's number, from the provider's metadata (ENR-2).
    pub server_id: ServerId,
    /// The key that will sign; whether it is a key, and strong, is asked after the shape (KEY-1).
    pub signing_key: SigningPublicKey,
    /// The key that secrets are to be sealed to (KEY-1).
    pub sealing_key: SealingPublicKey,
    /// The hash of the image that was booted in truth.
    pub boot_image_sha256: Sha256Hex,
    /// The version of the agent program.
    pub agent_version: AgentVersion,
    /// What the node runs on.
    pub arch: Arch,
}

/// What an enrolled node gets; asked for again it is the same after opening, but for `portal_time` (ENR-10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnrollAnswer {
    /// The agent's ID from now on.
    pub agent_id: AgentId,
    /// The portal's time.
    pub portal_time: Timestamp,
    /// The release that the node is to run.
    pub release: ReleaseVersion,
    /// k3s's configuration and tokens.
    pub k3s: K3sBootstrap,
    /// What the Secrets in the cluster are made of (ENR-6).
    pub secrets: BootstrapSecrets,
    /// Manifests that k3s applies at its first start (FILE-11).
    pub manifests: Vec<FirstManifest>,
}

impl EnrollAnswer {
    pub(crate) const SECRETS: SecretPlaces = &[
        &["k3s", "token"],
        &["k3s", "agent_token"],
        &["secrets", "hcloud_token"],
        &["secrets", "s3", "access_key"],
        &["secrets", "s3", "secret_key"],
    ];

    /// Every secret with the path of its member, for asking whether all of them open (SEAL-3).
    pub fn sealed_values(&self) -> Vec<(String, &Sealed)> {
        let mut sealed = vec![
            ("k3s.token".to_owned(), &self.k3s.token),
            ("k3s.agent_token".to_owned(), &self.k3s.agent_token),
        ];
        self.secrets.add_to("secrets", &mut sealed);
        sealed
    }
}

/// k3s's configuration and tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct K3sBootstrap {
    /// k3s's configuration file, member for member (FILE-9).
    pub config: Map<String, Value>,
    /// The token of servers.
    pub token: Sealed,
    /// The token of agents of k3s.
    pub agent_token: Sealed,
}

/// The secrets of a cluster: Secret `kube-system/hcloud` and Secret `kube-system/pbx-etcd-s3` (FILE-17). Enrollment and
/// document carry the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapSecrets {
    /// The token of the cloud provider.
    pub hcloud_token: Sealed,
    /// Access to the bucket of snapshots.
    pub s3: S3Access,
}

impl BootstrapSecrets {
    pub(crate) fn add_to<'a>(&'a self, path: &str, sealed: &mut Vec<(String, &'a Sealed)>) {
        sealed.push((format!("{path}.hcloud_token"), &self.hcloud_token));
        sealed.push((format!("{path}.s3.access_key"), &self.s3.access_key));
        sealed.push((format!("{path}.s3.secret_key"), &self.s3.secret_key));
    }
}

/// A bucket and the keys to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct S3Access {
    /// The URL of the service.
    pub endpoint: String,
    /// The region.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// The folder in the bucket.
    pub folder: String,
    /// The key's ID.
    pub access_key: Sealed,
    /// The key.
    pub secret_key: Sealed,
}

/// A file for k3s's manifest directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct FirstManifest {
    /// The file's name; it becomes a path, so its alphabet is checked (FILE-18).
    pub name: ManifestName,
    /// The file's content.
    pub content: String,
}
