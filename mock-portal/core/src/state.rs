//! All that the portal remembers, and the one way in which it changes: [`Change`]s.
//!
//! Decisions read the state and name changes; only `apply` makes them. So the changes of a run, applied in their order to a
//! fresh portal, give the same state again, and a shell can write them down before it sends an answer. Each change is about
//! one shard, or about what all shards share; it carries whatever chance and clock had to say.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, RwLock};

use protocol::hash::Sha256Hex;
use protocol::id::{AgentId, ClusterId, NodeName, OperationId, ServerId};
use protocol::pbx::operation::{Consent, OperationEvent, OperationKind};
use protocol::pbx::sync::SyncReport;
use protocol::sign::{SigningKey, SigningPublicKey};
use protocol::time::{Timestamp, UnixSeconds};
use protocol::verified::SignedManifest;
use serde::{Deserialize, Serialize};

use crate::clock::{ClockSetting, Moment};
use crate::documents::{Document, SecretsInput};
use crate::enroll::{Token, TokenBounds};
use crate::hetzner::{Hetzner, HetznerServer};
use crate::identities::{Agent, Enrollment, KeyPair, Keys, ReceivedReport, Registry};
use crate::operations::{ClearParams, NotStored, Operation};
use crate::releases::Releases;
use crate::replay::{ReplayMemory, Seen};
use crate::secret::{ClearOrSealed, in_clear};
use crate::shard::Shards;

/// What one request, or one verb of the control API, changed, in order.
///
/// Written down, it holds the secrets of documents and operations in clear: it is for the portal's own disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// The place in the order of all changes, from 1; 0 where nothing changed. Changes that touch the same thing are
    /// numbered in the order in which they were made.
    pub sequence: u64,
    /// The changes.
    pub changes: Vec<Change>,
}

/// One change of the portal's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A cluster arose, because a token named it.
    ClusterMade {
        /// The cluster.
        cluster: ClusterId,
        /// Its secrets, until a document brings others.
        secrets: ClusterSecrets,
    },
    /// A token was made.
    TokenMade {
        /// The token's hash.
        token: Sha256Hex,
        /// Whom it is for.
        bound: TokenBounds,
    },
    /// A token was used.
    Enrolled {
        /// The token's hash.
        token: Sha256Hex,
        /// The agent that it made.
        agent: AgentId,
        /// How.
        enrollment: Enrollment,
    },
    /// An agent was revoked.
    Revoked {
        /// The agent.
        agent: AgentId,
        /// When.
        at: Timestamp,
    },
    /// A signature was right and new (SIGN-5).
    SignatureSeen {
        /// The agent.
        agent: AgentId,
        /// What it is recognised by.
        seen: Seen,
        /// Its timestamp.
        at: u64,
        /// The portal's time.
        time: Timestamp,
        /// The monotonic clock.
        monotonic_ms: u64,
    },
    /// An agent registered a second pair of keys, or replaced that one.
    KeysRegistered {
        /// The agent.
        agent: AgentId,
        /// The pair.
        keys: KeyPair,
    },
    /// An agent used its second pair of keys; the first is no longer in force.
    KeysSwitched {
        /// The agent.
        agent: AgentId,
    },
    /// An agent whose keys are old was asked to replace them (OP-9).
    RotationAsked {
        /// The agent.
        agent: AgentId,
        /// The signing key that is old.
        key: SigningPublicKey,
        /// The operation by which it was asked.
        operation: OperationId,
    },
    /// An agent's report came.
    Reported {
        /// The agent.
        agent: AgentId,
        /// When.
        at: Timestamp,
        /// The report.
        report: Arc<SyncReport>,
    },
    /// A cluster got a document.
    DocumentSet {
        /// The cluster.
        cluster: ClusterId,
        /// The document.
        document: Document,
    },
    /// An operation was made; it waits for those before it.
    OperationMade {
        /// The operation.
        operation: OperationId,
        /// The cluster.
        cluster: ClusterId,
        /// Its kind.
        kind: OperationKind,
        /// The node, if it was named (OPS-10).
        target: Option<NodeName>,
        /// Its parameters.
        params: ClearParams,
        /// Somebody's consent.
        consent: Option<Consent>,
        /// When.
        at: Timestamp,
    },
    /// An operation that named no node got one (OPS-10).
    OperationTargeted {
        /// The operation.
        operation: OperationId,
        /// The node.
        target: NodeName,
    },
    /// An operation was handed to an agent for the first time.
    OperationHandedOut {
        /// The operation.
        operation: OperationId,
        /// The agent.
        agent: AgentId,
        /// When.
        at: Timestamp,
    },
    /// Events of an operation came (OPS-8).
    EventsTaken {
        /// The operation.
        operation: OperationId,
        /// When.
        at: Timestamp,
        /// Those that go on where the stored ones end.
        stored: Vec<OperationEvent>,
        /// How many others there were.
        not_stored: NotStored,
    },
    /// A release was published.
    ReleasePublished {
        /// Its manifest, signed.
        signed: Arc<SignedManifest>,
    },
    /// The portal's clock was set.
    ClockSet {
        /// How it differs from the machine's.
        setting: ClockSetting,
    },
    /// Somebody put a server into the simulated Hetzner API (ENR-4).
    HetznerServerPut {
        /// The server.
        server_id: ServerId,
        /// What the API says of it from now on.
        server: HetznerServer,
    },
    /// Every server that was put was forgotten.
    HetznerForgotten,
    /// Clusters, tokens, agents, operations, published releases and seen signatures were forgotten.
    Emptied,
}

/// The secrets of a cluster that no document brings, and those until one does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterSecrets {
    /// k3s's token of servers.
    #[serde(serialize_with = "in_clear")]
    pub k3s_token: ClearOrSealed,
    /// k3s's token of agents.
    #[serde(serialize_with = "in_clear")]
    pub k3s_agent_token: ClearOrSealed,
    /// What enrolled nodes get before the first document.
    pub bootstrap: SecretsInput,
}

/// What is remembered of the clusters of one shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardState {
    pub(crate) clusters: BTreeMap<ClusterId, Cluster>,
    /// By the token's hash: no token is kept.
    pub(crate) tokens: BTreeMap<Sha256Hex, Token>,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) operations: BTreeMap<OperationId, Operation>,
    pub(crate) replay: ReplayMemory,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cluster {
    pub(crate) secrets: ClusterSecrets,
    pub(crate) document: Option<Document>,
    /// Its agents, in the order in which they were enrolled.
    pub(crate) agents: Vec<AgentId>,
    /// Its operations that are not over, in the order in which they were made.
    pub(crate) queue: VecDeque<OperationId>,
    /// How many reports came from all its agents.
    pub(crate) reports: u64,
}

/// What all shards share. Locked after a shard, never before one; `registry` before `releases`
/// before `hetzner` before `clock`.
pub(crate) struct Shared {
    pub(crate) registry: Mutex<Registry>,
    pub(crate) releases: RwLock<Releases>,
    pub(crate) hetzner: RwLock<Hetzner>,
    pub(crate) clock: RwLock<ClockSetting>,
}

impl Shared {
    pub(crate) fn fresh(release_key: &SigningKey) -> Self {
        Self {
            registry: Mutex::default(),
            releases: RwLock::new(Releases::fresh(release_key)),
            hetzner: RwLock::default(),
            clock: RwLock::default(),
        }
    }
}

/// A shard's state while a decision is made: changes are made and noted in one go.
pub(crate) struct Work<'a> {
    state: &'a mut ShardState,
    changes: Vec<Change>,
}

impl<'a> Work<'a> {
    pub(crate) fn new(state: &'a mut ShardState) -> Self {
        Self {
            state,
            changes: Vec::new(),
        }
    }

    pub(crate) fn state(&self) -> &ShardState {
        self.state
    }

    pub(crate) fn agent(&self, agent: &AgentId) -> Option<&Agent> {
        self.state.agents.get(agent)
    }

    /// Makes a change and notes it.
    pub(crate) fn change(&mut self, change: Change) {
        self.state.apply(&change);
        self.changes.push(change);
    }

    /// The same for a change that registers keys. The registry is held from before the decision, so that no two agents
    /// register one key.
    pub(crate) fn change_keys(&mut self, change: Change, registry: &mut Registry) {
        registry.apply(&change);
        self.change(change);
    }

    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}

impl Change {
    /// The shard that it is about; none if it is about what all share, or about all.
    pub(crate) fn shard(&self, shards: Shards) -> Option<usize> {
        match self {
            Self::ClusterMade { cluster, .. } | Self::DocumentSet { cluster, .. } => {
                Some(shards.of_cluster(cluster))
            }
            Self::TokenMade { bound, .. } => Some(shards.of_cluster(&bound.cluster)),
            Self::Enrolled { agent, .. }
            | Self::Revoked { agent, .. }
            | Self::SignatureSeen { agent, .. }
            | Self::KeysRegistered { agent, .. }
            | Self::KeysSwitched { agent }
            | Self::RotationAsked { agent, .. }
            | Self::Reported { agent, .. } => Some(shards.of_agent(agent)),
            Self::OperationMade { operation, .. }
            | Self::OperationTargeted { operation, .. }
            | Self::OperationHandedOut { operation, .. }
            | Self::EventsTaken { operation, .. } => Some(shards.of_operation(operation)),
            Self::ReleasePublished { .. }
            | Self::ClockSet { .. }
            | Self::HetznerServerPut { .. }
            | Self::HetznerForgotten
            | Self::Emptied => None,
        }
    }
}

impl ShardState {
    /// Makes a change. One about something that is not here changes nothing.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::ClusterMade { cluster, secrets } => {
                self.clusters
                    .entry(cluster.clone())
                    .or_insert_with(|| Cluster {
                        secrets: secrets.clone(),
                        document: None,
                        agents: Vec::new(),
                        queue: VecDeque::new(),
                        reports: 0,
                    });
            }
            Change::TokenMade { token, bound } => {
                self.tokens.insert(
                    *token,
                    Token {
                        bound: bound.clone(),
                        used_by: None,
                    },
                );
            }
            Change::Enrolled {
                token,
                agent,
                enrollment,
            } => self.enrolled(token, agent, enrollment),
            Change::Revoked { agent, at } => {
                if let Some(agent) = self.agents.get_mut(agent) {
                    agent.revoked_at.get_or_insert(*at);
                }
            }
            Change::SignatureSeen {
                agent: _,
                seen,
                at,
                time,
                monotonic_ms,
            } => {
                self.replay.remember(
                    *seen,
                    UnixSeconds(*at),
                    Moment {
                        time: *time,
                        monotonic_ms: *monotonic_ms,
                    },
                );
            }
            Change::KeysRegistered { agent, keys } => {
                if let Some(agent) = self.agents.get_mut(agent) {
                    agent.keys.register(keys.clone());
                }
            }
            Change::KeysSwitched { agent } => {
                if let Some(agent) = self.agents.get_mut(agent) {
                    agent.keys.switch();
                }
            }
            Change::RotationAsked {
                agent,
                key,
                operation,
            } => {
                if let Some(agent) = self.agents.get_mut(agent) {
                    agent.rotation_asked_for = Some((*key, operation.clone()));
                }
            }
            Change::Reported { agent, at, report } => self.reported(agent, *at, report),
            Change::DocumentSet { cluster, document } => {
                if let Some(cluster) = self.clusters.get_mut(cluster) {
                    cluster.document = Some(document.clone());
                }
            }
            Change::OperationMade {
                operation,
                cluster,
                kind,
                target,
                params,
                consent,
                at,
            } => {
                let Some(queue) = self
                    .clusters
                    .get_mut(cluster)
                    .map(|cluster| &mut cluster.queue)
                else {
                    return;
                };
                queue.push_back(operation.clone());
                let made = Operation {
                    cluster: cluster.clone(),
                    kind: kind.clone(),
                    target: target.clone(),
                    params: params.clone(),
                    consent: consent.clone(),
                    made_at: *at,
                    handed_to: None,
                    handed_out_at: None,
                    events: Vec::new(),
                    not_stored: NotStored::default(),
                    ended_at: None,
                };
                self.operations.insert(operation.clone(), made);
            }
            Change::OperationTargeted { operation, target } => {
                if let Some(operation) = self.operations.get_mut(operation) {
                    operation.target = Some(target.clone());
                }
            }
            Change::OperationHandedOut {
                operation,
                agent,
                at,
            } => {
                if let Some(operation) = self.operations.get_mut(operation) {
                    // Another server of that node begins from the start.
                    operation.events.clear();
                    operation.handed_to = Some(agent.clone());
                    operation.handed_out_at = Some(*at);
                }
            }
            Change::EventsTaken {
                operation,
                at,
                stored,
                not_stored,
            } => {
                self.events_taken(operation, *at, stored, not_stored);
            }
            Change::Emptied => *self = Self::default(),
            Change::ReleasePublished { .. }
            | Change::ClockSet { .. }
            | Change::HetznerServerPut { .. }
            | Change::HetznerForgotten => {}
        }
    }

    fn enrolled(&mut self, token: &Sha256Hex, id: &AgentId, enrollment: &Enrollment) {
        let Some(token) = self.tokens.get_mut(token) else {
            return;
        };
        token.used_by = Some(id.clone());
        let agent = Agent {
            cluster: token.bound.cluster.clone(),
            node_name: token.bound.node_name.clone(),
            keys: Keys::one(enrollment.keys.clone()),
            enrollment: enrollment.clone(),
            revoked_at: None,
            last_report: None,
            last_led: None,
            reports: 0,
            rotation_asked_for: None,
        };
        if let Some(cluster) = self.clusters.get_mut(&agent.cluster) {
            cluster.agents.push(id.clone());
        }
        self.agents.insert(id.clone(), agent);
    }

    fn reported(&mut self, id: &AgentId, at: Timestamp, report: &Arc<SyncReport>) {
        let Some(agent) = self.agents.get_mut(id) else {
            return;
        };
        let Some(cluster) = self.clusters.get_mut(&agent.cluster) else {
            return;
        };
        cluster.reports += 1;
        agent.reports += 1;
        if report.leader {
            agent.last_led = Some(cluster.reports);
        }
        agent.last_report = Some(ReceivedReport {
            at,
            order: cluster.reports,
            report: Arc::clone(report),
        });
    }

    fn events_taken(
        &mut self,
        id: &OperationId,
        at: Timestamp,
        stored: &[OperationEvent],
        not_stored: &NotStored,
    ) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        operation.events.extend_from_slice(stored);
        operation.not_stored.repeats += not_stored.repeats;
        operation.not_stored.different_repeats += not_stored.different_repeats;
        operation.not_stored.beyond_a_gap += not_stored.beyond_a_gap;
        if operation.ended_at.is_none() && operation.final_event().is_some() {
            operation.ended_at = Some(at);
            if let Some(cluster) = self.clusters.get_mut(&operation.cluster) {
                cluster.queue.retain(|queued| queued != id);
            }
        }
    }
}
