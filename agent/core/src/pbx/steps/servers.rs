//! `server.rejoin`, `node.drain` and `node.forget`: clusters of several servers (OP-12).

use protocol::pbx::operation::{
    NodeDrainResult, NodeForgetResult, NodeParams, OperationResult, Reason, ServerRejoinParams,
    ServerRejoinResult, Step,
};

use super::{Doing, Failure, Progress, other_answer};
use crate::limits::Limits;
use crate::pbx::durable::{Gone, StepData};
use crate::pbx::events::End;
use crate::pbx::facts::BootFacts;
use crate::pbx::task::{Done, StopFor, Task};

pub(super) fn rejoining(step: Step, params: ServerRejoinParams) -> Option<Doing> {
    let params = Box::new(params);
    Some(Doing::Task(match step {
        Step::StopK3s => Task::StopK3s(StopFor::Rejoin(params)),
        Step::ClearDatastore => Task::ClearDatastore(params),
        Step::StartK3s => Task::StartK3s,
        Step::WaitApi => Task::WaitApi,
        _ => return None,
    }))
}

pub(super) fn rejoined(done: Done) -> Result<Progress, Failure> {
    match done {
        Done::Plain => Ok(Progress::Over),
        done => Err(other_answer(&done)),
    }
}

pub(super) fn rejoin_result(facts: &BootFacts) -> OperationResult {
    OperationResult::ServerRejoin(ServerRejoinResult {
        node: facts.config.node_name.clone(),
    })
}

pub(super) fn draining(step: Step, params: NodeParams) -> Option<Doing> {
    match step {
        Step::Cordon => Some(Doing::Task(Task::Cordon(params.node))),
        Step::Evict => Some(Doing::Task(Task::Evict(params.node))),
        Step::Report => Some(Doing::Nothing),
        _ => None,
    }
}

pub(super) fn drained(step: Step, data: &mut StepData, done: Done) -> Result<Progress, Failure> {
    let StepData::NodeDrain { pods, left } = data else {
        return Err(other_answer(&done));
    };
    match (step, done) {
        (Step::Cordon, Done::Cordoned { pods: found }) => *pods = Some(found),
        (Step::Evict, Done::Evicted { left: stayed }) => *left = Some(stayed),
        (_, done) => return Err(other_answer(&done)),
    }
    Ok(Progress::Over)
}

pub(super) fn drain_result(data: &StepData) -> Option<OperationResult> {
    let StepData::NodeDrain {
        pods: Some(pods),
        left: Some(left),
    } = data
    else {
        return None;
    };
    let evicted = pods.iter().filter(|pod| !left.contains(pod));
    Some(OperationResult::NodeDrain(NodeDrainResult {
        evicted: evicted.cloned().collect(),
        left: left.clone(),
    }))
}

/// An agent's own Node is never forgotten.
pub(super) fn begin_forgetting(params: &NodeParams, facts: &BootFacts) -> Result<StepData, End> {
    if params.node == facts.config.node_name {
        let why = format!(
            "{} is this agent's own node; ask another server",
            params.node
        );
        return Err(End::refused(why, Reason::OwnNode));
    }
    Ok(StepData::NodeForget { gone: None })
}

pub(super) fn forgetting(
    step: Step,
    params: NodeParams,
    data: &StepData,
    limits: &Limits,
) -> Option<Doing> {
    match (step, data) {
        (Step::ConfirmGone, _) => Some(Doing::Task(Task::ConfirmGone {
            node: params.node,
            silent_ms: limits.restore_grace_ms,
        })),
        (Step::DeleteNode, StepData::NodeForget { gone: Some(gone) }) => {
            Some(gone.uid.as_ref().map_or(Doing::Nothing, |uid| {
                Doing::Task(Task::DeleteNode {
                    node: params.node,
                    uid: uid.clone(),
                })
            }))
        }
        _ => None,
    }
}

pub(super) fn forgotten(
    step: Step,
    gone: &mut Option<Gone>,
    done: Done,
) -> Result<Progress, Failure> {
    match (step, done) {
        (Step::ConfirmGone, Done::Gone { uid }) => *gone = Some(Gone { uid }),
        (Step::DeleteNode, Done::Plain) => {}
        (_, done) => return Err(other_answer(&done)),
    }
    Ok(Progress::Over)
}

pub(super) fn forget_result(gone: &Gone) -> OperationResult {
    OperationResult::NodeForget(NodeForgetResult {
        deleted: gone.uid.is_some(),
    })
}
