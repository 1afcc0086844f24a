//! Operations of a cluster: one at a time, to its target, until its final event is here (OPS-1, OPS-8, OPS-9, OPS-10).
//!
//! What an operation does on a node is the agent's; here it is a kind, parameters and the events that came back.

use std::fmt;
use std::sync::Arc;

use protocol::id::{AgentId, ClusterId, NodeName, OperationId};
use protocol::pbx::operation::{
    Consent, EventState, EventsAnswer, NoParams, OperationEvent, OperationEvents, OperationKind,
    OperationOffer, Params, ParamsRefusal,
};
use protocol::problem::ProblemCode;
use protocol::seal::{OVERHEAD_BYTES, Sealed, SealingPublicKey};
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::Refused;
use crate::clock::Moment;
use crate::control::{OperationStatus, OperationView};
use crate::identities::Agent;
use crate::seals::Seals;
use crate::secret::ClearOrSealed;
use crate::state::{Change, Cluster, ShardState, Work};

/// An operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) cluster: ClusterId,
    pub(crate) kind: OperationKind,
    pub(crate) target: Option<NodeName>,
    pub(crate) params: ClearParams,
    pub(crate) consent: Option<Consent>,
    pub(crate) made_at: Timestamp,
    /// The agent that has it in hand; only that one's events count.
    pub(crate) handed_to: Option<AgentId>,
    pub(crate) handed_out_at: Option<Timestamp>,
    pub(crate) events: Vec<OperationEvent>,
    pub(crate) not_stored: NotStored,
    pub(crate) ended_at: Option<Timestamp>,
}

/// Events that came and were not stored (OPS-8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotStored {
    /// Equal to what was stored under their number.
    pub repeats: u64,
    /// Different from what was stored under their number.
    pub different_repeats: u64,
    /// Before others that were missing.
    pub beyond_a_gap: u64,
}

/// Parameters as they were given, secrets in clear. `Debug` shows nothing of them.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClearParams(Arc<RawValue>);

impl ClearParams {
    pub(crate) fn new(raw: Arc<RawValue>) -> Self {
        Self(raw)
    }

    /// None: `{}`.
    pub(crate) fn none() -> Self {
        Self(Params::AgentRotateKey(NoParams {}).to_raw())
    }

    /// As they were given, for a kind without secrets.
    pub(crate) fn raw(&self) -> Arc<RawValue> {
        Arc::clone(&self.0)
    }

    /// Whether they are those of the kind, once they are sealed; the members that it does not have, which agents ignore
    /// (WIRE-5).
    pub(crate) fn check(&self, kind: &OperationKind) -> Result<Vec<String>, ParamsRefusal> {
        let any = Sealed::from_bytes([0; OVERHEAD_BYTES]);
        let offer = OperationOffer {
            id: OperationId::new("op_checked").expect("an ID of the alphabet"),
            kind: kind.clone(),
            target: NodeName::new("checked").expect("a name of the alphabet"),
            params: self.seal(kind, &mut |_| any.clone()),
            consent: None,
        };
        let read = offer.params()?.to_raw();
        let read: Value = serde_json::from_str(read.get()).unwrap_or_default();
        let given: Value = serde_json::from_str(self.0.get()).unwrap_or_default();
        let given = given.as_object().into_iter().flatten();
        let unknown = given.filter(|(name, value)| !value.is_null() && read.get(name).is_none());
        Ok(unknown.map(|(name, _)| name.clone()).collect())
    }

    /// With each secret of the kind that is a text replaced by its box.
    pub(crate) fn seal(
        &self,
        kind: &OperationKind,
        seal: &mut impl FnMut(&ClearOrSealed) -> Sealed,
    ) -> Arc<RawValue> {
        let mut params: Value = serde_json::from_str(self.0.get()).unwrap_or_default();
        for place in kind.secrets() {
            let secret = place
                .iter()
                .try_fold(&mut params, |value, name| value.get_mut(*name));
            if let Some(secret) = secret
                && let Value::String(clear) = secret
            {
                let sealed = seal(&ClearOrSealed::from(clear.as_str()));
                *secret = serde_json::to_value(sealed).expect("a box is an object with a text");
            }
        }
        serde_json::value::to_raw_value(&params)
            .map(Arc::from)
            .expect("a JSON value encodes")
    }
}

impl PartialEq for ClearParams {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl fmt::Debug for ClearParams {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClearParams(redacted)")
    }
}

/// The operation that an agent is to have in its sync's answer: the cluster's first unfinished one, if it is this agent's
/// (OPS-9). One without a target gets it here (OPS-10).
pub(crate) fn hand_out(
    work: &mut Work<'_>,
    seals: &mut Seals,
    agent_id: &AgentId,
    recipient: &SealingPublicKey,
    moment: Moment,
) -> Option<OperationOffer> {
    let agent = work.agent(agent_id)?;
    let cluster = work.state().clusters.get(&agent.cluster)?;
    let id = cluster.queue.front()?.clone();
    let target = match &work.state().operations.get(&id)?.target {
        Some(target) => target.clone(),
        None => {
            let chosen = choose_target(work.state(), cluster)?;
            if chosen != agent.node_name {
                return None;
            }
            work.change(Change::OperationTargeted {
                operation: id.clone(),
                target: chosen.clone(),
            });
            chosen
        }
    };
    let agent = work.agent(agent_id)?;
    let cluster = work.state().clusters.get(&agent.cluster)?;
    if agent_of_node(work.state(), cluster, &target) != Some(agent_id) {
        return None;
    }
    if work.state().operations.get(&id)?.handed_to.as_ref() != Some(agent_id) {
        work.change(Change::OperationHandedOut {
            operation: id.clone(),
            agent: agent_id.clone(),
            at: moment.time,
        });
    }
    let operation = work.state().operations.get(&id)?;
    let params = seals.params(agent_id, recipient, &id, operation);
    Some(OperationOffer {
        id,
        kind: operation.kind.clone(),
        target,
        params,
        consent: operation.consent.clone(),
    })
}

/// OPS-10: the node whose last report says that it leads (of two the one that reported last); with none, the one that last
/// did; with none so far, the one enrolled first. A revoked one is no candidate.
fn choose_target(state: &ShardState, cluster: &Cluster) -> Option<NodeName> {
    let agents = || {
        cluster
            .agents
            .iter()
            .filter_map(|id| state.agents.get(id))
            .filter(|agent| !agent.is_revoked())
    };
    let reported = |agent: &&Agent| agent.last_report.as_ref().map(|received| received.order);
    let leads = agents().filter(|agent| agent.leads()).max_by_key(reported);
    let led = || {
        agents()
            .filter(|agent| agent.last_led.is_some())
            .max_by_key(|agent| agent.last_led)
    };
    let chosen = leads.or_else(led).or_else(|| agents().next());
    chosen.map(|agent| agent.node_name.clone())
}

/// The agent of a node: of several the one enrolled last, since a new token means a new server.
fn agent_of_node<'a>(
    state: &ShardState,
    cluster: &'a Cluster,
    node: &NodeName,
) -> Option<&'a AgentId> {
    cluster.agents.iter().rev().find(|id| {
        state
            .agents
            .get(*id)
            .is_some_and(|agent| !agent.is_revoked() && agent.node_name == *node)
    })
}

/// `POST /operations/{id}/events`, from its shape on (OPS-8).
pub(crate) fn take_events(
    work: &mut Work<'_>,
    agent_id: &AgentId,
    id: &OperationId,
    events: &OperationEvents,
    moment: Moment,
) -> Result<EventsAnswer, Box<Refused>> {
    let operation = work
        .state()
        .operations
        .get(id)
        .filter(|operation| operation.handed_to.as_ref() == Some(agent_id));
    let Some(operation) = operation else {
        let expected = "an operation that was handed to this agent";
        return Err(Refused::new(
            ProblemCode::NotFound,
            "SIGN-6",
            expected,
            format!("operation {id}"),
        ));
    };
    let (stored, not_stored) = sort(operation, events.events());
    let accepted_sequence = (operation.events.len() + stored.len()) as u64;
    if !stored.is_empty() || not_stored != NotStored::default() {
        work.change(Change::EventsTaken {
            operation: id.clone(),
            at: moment.time,
            stored,
            not_stored,
        });
    }
    Ok(EventsAnswer { accepted_sequence })
}

/// Which events go on where the stored ones end, and what the others are. Events are stored without a gap from 1, so what
/// is stored is what is acknowledged.
fn sort(operation: &Operation, events: &[OperationEvent]) -> (Vec<OperationEvent>, NotStored) {
    let mut stored: Vec<OperationEvent> = Vec::new();
    let mut not_stored = NotStored::default();
    for event in events {
        let have = (operation.events.len() + stored.len()) as u64;
        if event.sequence > have + 1 {
            not_stored.beyond_a_gap += 1;
        } else if event.sequence == have + 1 {
            stored.push(event.clone());
        } else {
            let at = (event.sequence - 1) as usize;
            let first = operation
                .events
                .get(at)
                .or_else(|| stored.get(at - operation.events.len()));
            match first == Some(event) {
                true => not_stored.repeats += 1,
                false => not_stored.different_repeats += 1,
            }
        }
    }
    (stored, not_stored)
}

impl Operation {
    /// The event that ended it: the first of the whole operation.
    pub(crate) fn final_event(&self) -> Option<&OperationEvent> {
        self.events.iter().find(|event| event.is_final())
    }

    /// How it stands.
    pub(crate) fn status(&self) -> OperationStatus {
        match self.final_event().map(|event| event.state) {
            Some(EventState::Succeeded) => OperationStatus::Succeeded,
            Some(EventState::Unsupported) => OperationStatus::Unsupported,
            Some(EventState::Refused) => OperationStatus::Refused,
            Some(EventState::Failed | EventState::Started) => OperationStatus::Failed,
            None if !self.events.is_empty() => OperationStatus::Running,
            None if self.handed_to.is_some() => OperationStatus::HandedOut,
            None => OperationStatus::Queued,
        }
    }

    /// What the control API shows.
    pub(crate) fn view(&self, id: &OperationId) -> OperationView {
        let last = self.final_event();
        OperationView {
            id: id.clone(),
            cluster_id: self.cluster.clone(),
            kind: self.kind.clone(),
            target: self.target.clone(),
            agent: self.handed_to.clone(),
            state: self.status(),
            step: self.events.iter().rev().find_map(|event| event.step),
            reason: last.and_then(|event| event.reason.clone()),
            result: last.and_then(|event| event.result.clone()),
            accepted_sequence: self.events.len() as u64,
            events: self.events.clone(),
            repeats: self.not_stored.repeats,
            different_repeats: self.not_stored.different_repeats,
            beyond_a_gap: self.not_stored.beyond_a_gap,
            made_at: self.made_at,
            handed_out_at: self.handed_out_at,
            ended_at: self.ended_at,
        }
    }
}
