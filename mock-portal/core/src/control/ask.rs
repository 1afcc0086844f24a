//! What is asked: the arguments of the verbs, as the control API's JSON has them. Members that nobody knows are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::{AddonName, AgentId, AgentVersion, ClusterId, NodeName, ReleaseVersion, ServerId};
use protocol::pbx::operation::{Consent, OperationKind};
use protocol::pbx::sync::{HostConfig, MaintenanceWindow};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::secret::ClearOrSealed;

/// `POST /tokens`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokensInput {
    /// The cluster; with `servers_per_cluster` the stem of the clusters' IDs.
    pub cluster_id: ClusterId,
    /// The node; with `count` the stem of the nodes' names.
    pub node_name: NodeName,
    /// The server that alone may use the token; without, the first that does.
    pub server_id: Option<ServerId>,
    /// The boot image that alone is accepted; without, any.
    pub boot_image_sha256: Option<Sha256Hex>,
    /// Seconds for which the tokens may be used; without, for ever.
    pub expires_in_seconds: Option<u64>,
    /// How many tokens, 1 to 100,000; their nodes are `<node_name>-1`, `-2` … Without, one for `node_name` itself.
    pub count: Option<u32>,
    /// How many nodes share a cluster; their clusters are `<cluster_id>-1`, `-2` … Without, all share `cluster_id` itself.
    pub servers_per_cluster: Option<u32>,
}

/// `GET /agents`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentsQuery {
    /// Only agents in that state.
    pub state: Option<AgentsState>,
    /// Only agents of that cluster.
    pub cluster: Option<ClusterId>,
    /// At most so many, 1 to 1,000; without, 100.
    pub limit: Option<u32>,
    /// Only agents behind that one; the page before says which.
    pub cursor: Option<AgentId>,
}

/// The states that agents can be asked for by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentsState {
    /// Not revoked, with one pair of keys or two.
    Active,
    /// Not revoked, with two pairs of keys.
    Rotating,
    /// Revoked.
    Revoked,
}

/// `PUT /clusters/{id}/desired`: a document with its secrets in clear; the portal seals them for each agent. A secret
/// that is given as `{"sealed": …}` goes through as it is.
#[derive(Debug, Clone, Deserialize)]
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
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretsInput {
    /// The token of the cloud provider.
    pub hcloud_token: ClearOrSealed,
    /// Access to the bucket of snapshots.
    pub s3: S3Input,
}

/// A bucket and the keys to it.
#[derive(Debug, Clone, Deserialize)]
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
    pub access_key: ClearOrSealed,
    /// The key.
    pub secret_key: ClearOrSealed,
}

/// An add-on of a document.
#[derive(Debug, Clone, Deserialize)]
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
    #[serde(default)]
    pub secret_options: BTreeMap<String, ClearOrSealed>,
}

/// `POST /clusters/{id}/operations`: secrets among the parameters in clear; sealed when the operation is handed out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationInput {
    /// The kind; one that the protocol does not know is handed out all the same (OPS-5).
    pub kind: OperationKind,
    /// The node; without, the portal chooses at the first hand-out (OPS-10).
    pub target: Option<NodeName>,
    /// The parameters.
    #[serde(default = "no_params")]
    pub params: Arc<RawValue>,
    /// Somebody's consent (OP-11).
    pub consent: Option<Consent>,
}

fn no_params() -> Arc<RawValue> {
    RawValue::from_string("{}".to_owned()).map(Arc::from).expect("an empty object is JSON")
}

/// `PUT /clock`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockInput {
    /// Milliseconds by which the portal's clock is ahead of the machine's.
    #[serde(default)]
    pub offset_ms: i64,
    /// Parts in a million by which it runs faster, from now on.
    #[serde(default)]
    pub drift_ppm: i64,
}
