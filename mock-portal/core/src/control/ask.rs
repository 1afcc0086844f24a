//! What is asked: the arguments of the verbs, as the control API's JSON has them. Members that nobody knows are refused.

use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::{AgentId, ClusterId, NodeName, ServerId};
use protocol::pbx::operation::{Consent, OperationKind};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::control::ControlError;
use crate::enroll::TokenBounds;
use crate::identities::Agent;

/// `POST /tokens`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
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
    #[schemars(range(min = 1, max = 100_000))]
    pub count: Option<u32>,
    /// The number of the first of those nodes; without, 1. Whoever makes tokens in parts goes on where the last part ended.
    #[schemars(range(min = 1))]
    pub first: Option<u32>,
    /// How many nodes share a cluster; their clusters are `<cluster_id>-1`, `-2` … Without, all share `cluster_id` itself.
    #[schemars(range(min = 1))]
    pub servers_per_cluster: Option<u32>,
}

/// `GET /agents`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentsState {
    /// Not revoked, with one pair of keys or two.
    Active,
    /// Not revoked, with two pairs of keys.
    Rotating,
    /// Revoked.
    Revoked,
}

/// `POST /clusters/{id}/operations`: secrets among the parameters in clear; sealed when the operation is handed out.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
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

/// Tokens that one call makes at most.
const TOKENS_MAX: u32 = 100_000;

impl TokensInput {
    /// Whom each token is for.
    pub(crate) fn bounds(&self, now: Timestamp) -> Result<Vec<TokenBounds>, ControlError> {
        let count = self.count.unwrap_or(1);
        if !(1..=TOKENS_MAX).contains(&count) {
            return Err(ControlError::invalid(
                "count",
                format!("{count} is refused; it must be 1 to {TOKENS_MAX}"),
            ));
        }
        if self.servers_per_cluster == Some(0) {
            let why =
                "0 is refused; it must be at least 1, or left out where all share one cluster";
            return Err(ControlError::invalid("servers_per_cluster", why.to_owned()));
        }
        if count > 1 && self.server_id.is_some() {
            let why = format!(
                "one server cannot use {count} tokens; leave it out, or make one token for each server"
            );
            return Err(ControlError::invalid("server_id", why));
        }
        let expires_at = self.expires_in_seconds.map(|seconds| {
            let ms = i64::try_from(seconds)
                .unwrap_or(i64::MAX)
                .saturating_mul(1000);
            Timestamp::from_unix_ms(now.unix_ms().saturating_add(ms))
        });
        let first = self.first.unwrap_or(1);
        let last = first.checked_add(count - 1).filter(|_| first > 0);
        let Some(last) = last else {
            let why = format!(
                "{first} is refused; it must be at least 1, and the last number at most {}",
                u32::MAX
            );
            return Err(ControlError::invalid("first", why));
        };
        if self.first.is_some() && self.count.is_none() {
            let why = "without `count` nothing is numbered; leave it out, or say how many";
            return Err(ControlError::invalid("first", why.to_owned()));
        }
        (first..=last)
            .map(|at| self.bound(at, expires_at))
            .collect()
    }

    fn bound(&self, at: u32, expires_at: Option<Timestamp>) -> Result<TokenBounds, ControlError> {
        let refused = |member: &str, why: protocol::id::IdRefused| {
            ControlError::invalid(member, why.to_string())
        };
        let node_name = match self.count {
            Some(_) => NodeName::new(format!("{}-{at}", self.node_name))
                .map_err(|why| refused("node_name", why))?,
            None => self.node_name.clone(),
        };
        let cluster = match self.servers_per_cluster {
            Some(servers) => {
                ClusterId::new(format!("{}-{}", self.cluster_id, (at - 1) / servers + 1))
                    .map_err(|why| refused("cluster_id", why))?
            }
            None => self.cluster_id.clone(),
        };
        let (server_id, boot_image_sha256) = (self.server_id, self.boot_image_sha256);
        Ok(TokenBounds {
            cluster,
            node_name,
            server_id,
            boot_image_sha256,
            expires_at,
        })
    }
}

impl AgentsQuery {
    pub(crate) fn wants(&self, agent: &Agent) -> bool {
        let state = match self.state {
            None => true,
            Some(AgentsState::Active) => !agent.is_revoked(),
            Some(AgentsState::Rotating) => !agent.is_revoked() && agent.keys.next().is_some(),
            Some(AgentsState::Revoked) => agent.is_revoked(),
        };
        state
            && self
                .cluster
                .as_ref()
                .is_none_or(|cluster| *cluster == agent.cluster)
    }
}

fn no_params() -> Arc<RawValue> {
    RawValue::from_string("{}".to_owned())
        .map(Arc::from)
        .expect("an empty object is JSON")
}

/// `PUT /clock`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockInput {
    /// Milliseconds by which the portal's clock is ahead of the machine's.
    #[serde(default)]
    pub offset_ms: i64,
    /// Parts in a million by which it runs faster, from now on.
    #[serde(default)]
    pub drift_ppm: i64,
}
