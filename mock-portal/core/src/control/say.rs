//! What is said: the answers of the verbs, as the control API's JSON has them. No secret is among them but the tokens
//! that were just made.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::{
    AgentId, AgentVersion, Arch, ClusterId, EnrollmentToken, Generation, KeyId, NodeName,
    OperationId, ReleaseVersion, ServerId,
};
use protocol::pbx::operation::{OperationEvent, OperationKind, Reason, Step};
use protocol::pbx::sync::SyncReport;
use protocol::problem::ProblemCode;
use protocol::seal::SealingPublicKey;
use protocol::sign::SigningPublicKey;
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clock::ClockSetting;
use crate::enroll::TokenBounds;
use crate::identities::{Agent, KeyPair};
use crate::portal::Shard;
use crate::request::PortalNow;

/// Answer of `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokensMade {
    /// The tokens, in the order of their nodes.
    pub tokens: Vec<TokenLine>,
}

/// A token as whoever enrolls agents reads it; null where any will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenLine {
    /// The token.
    pub token: EnrollmentToken,
    /// The cluster that it is for.
    pub cluster_id: ClusterId,
    /// The node that it is for.
    pub node_name: NodeName,
    /// The server that it is for.
    pub server_id: Option<ServerId>,
    /// The boot image that it is for.
    pub boot_image_sha256: Option<Sha256Hex>,
}

/// Answer of `GET /agents`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AgentsPage {
    /// The agents, in the order of their IDs.
    pub agents: Vec<AgentSummary>,
    /// What to ask for the next page with; none at the end.
    pub next_cursor: Option<AgentId>,
}

/// How an agent stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// With one pair of keys.
    Active,
    /// With two pairs of keys.
    Rotating,
    /// Revoked.
    Revoked,
}

/// An agent in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentSummary {
    /// Its ID.
    pub id: AgentId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Its node.
    pub node_name: NodeName,
    /// Its server.
    pub server_id: ServerId,
    /// How it stands.
    pub state: AgentState,
    /// When it was enrolled.
    pub enrolled_at: Timestamp,
    /// When its last report came.
    pub last_report_at: Option<Timestamp>,
    /// The agent program, as it said last.
    pub agent_version: AgentVersion,
    /// What it runs on.
    pub arch: Arch,
    /// Whether it led, as it said last.
    pub leader: bool,
    /// The document in force, as it said last.
    pub applied_generation: Generation,
    /// How many reports came.
    pub reports: u64,
}

/// Answer of `GET /agents/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AgentDetail {
    /// What the list says.
    #[serde(flatten)]
    pub summary: AgentSummary,
    /// Its keys: the one in force, and the one that replaces it while two are valid.
    pub keys: Vec<AgentKey>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Its last report.
    pub last_report: Option<Arc<SyncReport>>,
}

/// A pair of keys of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentKey {
    /// The signing key's ID.
    pub id: KeyId,
    /// The signing key.
    pub signing_key: SigningPublicKey,
    /// The sealing key.
    pub sealing_key: SealingPublicKey,
    /// When they were registered.
    pub registered_at: Timestamp,
}

/// Answer of `PUT /clusters/{id}/desired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredSet {
    /// The generation that the document got.
    pub generation: Generation,
    /// What was accepted and will not work.
    pub warnings: Vec<String>,
}

/// Answer of `GET /clusters/{id}/desired`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DesiredView {
    /// The document's generation; 0 before the first.
    pub generation: Generation,
    /// When it was set.
    pub set_at: Option<Timestamp>,
    /// The document, its secrets redacted.
    pub desired: Option<Value>,
}

/// Answer of `POST /clusters/{id}/operations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationPosted {
    /// Its ID.
    pub id: OperationId,
    /// What was accepted and will not work.
    pub warnings: Vec<String>,
}

/// How an operation stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OperationStatus {
    /// Waits for those before it, or for its node's next sync.
    Queued,
    /// Handed to an agent, which has not said anything yet.
    HandedOut,
    /// The agent has sent events.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// The agent does not know the kind.
    Unsupported,
    /// The agent would not begin it.
    Refused,
}

impl OperationStatus {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::HandedOut => "handed_out",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
        }
    }

    /// Whether it is over.
    pub fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::HandedOut | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Unsupported | Self::Refused => true,
        }
    }
}

/// Answer of `GET /operations/{id}`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct OperationView {
    /// Its ID.
    pub id: OperationId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Its kind.
    pub kind: OperationKind,
    /// Its node, once there is one (OPS-10).
    pub target: Option<NodeName>,
    /// The agent that it was handed to.
    pub agent: Option<AgentId>,
    /// How it stands.
    pub state: OperationStatus,
    /// The step that was named last.
    pub step: Option<Step>,
    /// Why, of one that failed or was refused.
    pub reason: Option<Reason>,
    /// What came of it.
    pub result: Option<Arc<RawValue>>,
    /// The highest number up to which its events are here.
    pub accepted_sequence: u64,
    /// Its events, as they came.
    pub events: Vec<OperationEvent>,
    /// Events that came again, equal to what was stored (OPS-8).
    pub repeats: u64,
    /// Events that came again and were different; the first content was kept (OPS-8).
    pub different_repeats: u64,
    /// Events that came before others that were missing, and were dropped (OPS-8).
    pub beyond_a_gap: u64,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it was handed out first.
    pub handed_out_at: Option<Timestamp>,
    /// When its final event was stored.
    pub ended_at: Option<Timestamp>,
}

/// Answer of `GET /releases`, one line a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseView {
    /// The release.
    pub version: ReleaseVersion,
    /// The agent program in it.
    pub agent_version: AgentVersion,
    /// Its number that only grows (UPD-6).
    pub floor: u64,
    /// The add-ons in it.
    pub addons: Vec<protocol::id::AddonName>,
    /// Whether it is the one that a 426 names where no document names another.
    pub latest: bool,
}

/// Answer of `POST /releases`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleasePublished {
    /// The release.
    pub version: ReleaseVersion,
    /// The key that signed it.
    pub key_id: KeyId,
    /// What was accepted and may surprise.
    pub warnings: Vec<String>,
}

/// The public half of the key that signs releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseKeyView {
    /// Its ID.
    pub id: KeyId,
    /// The key.
    pub public: SigningPublicKey,
}

/// Answer of `PUT /clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockView {
    /// The portal's time.
    pub portal_time: Timestamp,
    /// Milliseconds by which it was set ahead of the machine's.
    pub offset_ms: i64,
    /// Parts in a million by which it runs faster.
    pub drift_ppm: i64,
}

/// Answer of `GET /counters`: every answer that was given, by endpoint, status and code. An answer is given when it is
/// decided; whether it arrived is not known here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counters {
    /// What was counted; lines of 0 are left out.
    pub answers: Vec<CounterLine>,
}

/// How often an answer was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CounterLine {
    /// The endpoint; none where the request had no route.
    pub endpoint: Option<Endpoint>,
    /// The HTTP status.
    pub status: u16,
    /// The code; none with 200.
    pub code: Option<ProblemCode>,
    /// How often.
    pub count: u64,
}

/// How much of everything there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Clusters.
    pub clusters: u64,
    /// Agents by how they stand.
    pub agents: BTreeMap<AgentState, u64>,
    /// Tokens that were not used yet.
    pub tokens: u64,
    /// Signatures in the replay memory.
    pub replay: u64,
    /// Signatures for which it has room.
    pub replay_capacity: u64,
    /// Boxes that were sealed since the start.
    pub seals: u64,
    /// Operations by kind and by how they stand.
    pub operations: BTreeMap<(OperationKind, OperationStatus), u64>,
    /// Events that came again (OPS-8).
    pub events_repeated: u64,
}

impl Census {
    pub(crate) fn add(&mut self, shard: &Shard) {
        let state = &shard.state;
        self.clusters += state.clusters.len() as u64;
        self.tokens += state
            .tokens
            .values()
            .filter(|token| token.used_by.is_none())
            .count() as u64;
        self.replay += state.replay.len() as u64;
        self.seals += shard.seals.made();
        for agent in state.agents.values() {
            *self.agents.entry(AgentState::of(agent)).or_default() += 1;
        }
        for operation in state.operations.values() {
            let place = (operation.kind.clone(), operation.status());
            *self.operations.entry(place).or_default() += 1;
            let not_stored = operation.not_stored;
            self.events_repeated += not_stored.repeats + not_stored.different_repeats;
        }
    }
}

impl TokenLine {
    pub(crate) fn of(token: &EnrollmentToken, bound: &TokenBounds) -> Self {
        Self {
            token: token.clone(),
            cluster_id: bound.cluster.clone(),
            node_name: bound.node_name.clone(),
            server_id: bound.server_id,
            boot_image_sha256: bound.boot_image_sha256,
        }
    }
}

impl AgentState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Active, Self::Rotating, Self::Revoked];

    fn of(agent: &Agent) -> Self {
        match agent.keys.next() {
            _ if agent.is_revoked() => Self::Revoked,
            Some(_) => Self::Rotating,
            None => Self::Active,
        }
    }

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Rotating => "rotating",
            Self::Revoked => "revoked",
        }
    }
}

impl AgentSummary {
    pub(crate) fn of(id: &AgentId, agent: &Agent) -> Self {
        let last = agent.last_report.as_ref();
        Self {
            id: id.clone(),
            cluster_id: agent.cluster.clone(),
            node_name: agent.node_name.clone(),
            server_id: agent.enrollment.server_id,
            state: AgentState::of(agent),
            enrolled_at: agent.enrollment.at,
            last_report_at: last.map(|received| received.at),
            agent_version: last
                .map_or(&agent.enrollment.agent_version, |received| {
                    &received.report.agent_version
                })
                .clone(),
            arch: agent.enrollment.arch,
            leader: agent.leads(),
            applied_generation: last.map_or(Generation(0), |received| {
                received.report.document.applied_generation
            }),
            reports: agent.reports,
        }
    }
}

impl AgentDetail {
    pub(crate) fn of(id: &AgentId, agent: &Agent) -> Self {
        let key = |pair: &KeyPair| AgentKey {
            id: pair.signing.key_id(),
            signing_key: pair.signing.public(),
            sealing_key: pair.sealing,
            registered_at: pair.registered_at,
        };
        Self {
            summary: AgentSummary::of(id, agent),
            keys: agent.keys.all().map(key).collect(),
            revoked_at: agent.revoked_at,
            last_report: agent
                .last_report
                .as_ref()
                .map(|received| Arc::clone(&received.report)),
        }
    }
}

impl ClockView {
    pub(crate) fn of(setting: ClockSetting, now: PortalNow) -> Self {
        let ClockSetting {
            offset_ms,
            drift_ppm,
            ..
        } = setting;
        Self {
            portal_time: setting.moment(now).time,
            offset_ms,
            drift_ppm,
        }
    }
}

impl Counters {
    /// How often an endpoint gave an answer: a code, or none for 200.
    pub fn count(&self, endpoint: Endpoint, code: Option<ProblemCode>) -> u64 {
        let lines = self
            .answers
            .iter()
            .filter(|line| line.endpoint == Some(endpoint) && line.code == code);
        lines.map(|line| line.count).sum()
    }

    /// How many requests there were.
    pub fn total(&self) -> u64 {
        self.answers.iter().map(|line| line.count).sum()
    }
}
