//! What each step of an operation does, what it finds out, and what an operation comes to (OP-1, OP-2).
//!
//! A new kind is new arms here; the rotation of the keys has a file of its own ([`rotate`]). When a step may begin is not
//! decided here.

use protocol::pbx::call::Request;
use protocol::pbx::operation::{
    ClusterRestoreParams, ClusterRestoreResult, OperationResult, Params, SnapshotSaveResult,
    SnapshotSource, Step,
};
use protocol::pbx::sync::DesiredState;
use protocol::time::Timestamp;

use super::durable::{Durable, RunningOperation, StepData};
use super::rotate;
use super::task::{Bucket, Done, RestoreSource, Task};
use crate::limits::Limits;

/// What a step does.
#[derive(Debug, PartialEq)]
pub(super) enum Doing {
    /// A task of the host.
    Task(Task),
    /// A call of the portal.
    Call(Request),
    /// Nothing by itself: it is over with what other lanes bring.
    Wait,
    /// Nothing: all is known already.
    Nothing,
}

/// The steps of a kind begin with nothing found out; none for a kind that this agent does not perform (OPS-5).
pub(super) fn begin(params: &Params) -> Option<StepData> {
    match params {
        Params::SnapshotSave(_) => Some(StepData::SnapshotSave {
            saved: None,
            confirmed: None,
        }),
        Params::ClusterRestore(_) => Some(StepData::ClusterRestore {
            forgotten_nodes: None,
        }),
        Params::AgentRotateKey(_) => Some(StepData::AgentRotateKey {
            new: None,
            confirmed: false,
        }),
        // Kinds that the protocol has and this agent does not perform yet.
        Params::ClusterUpgrade(_)
        | Params::AccessIssue(_)
        | Params::AccessRevoke(_)
        | Params::S3Verify(_)
        | Params::DiagCollect(_)
        | Params::ServerRejoin(_)
        | Params::NodeDrain(_)
        | Params::NodeForget(_) => None,
    }
}

/// What the step does that the running operation is at. Its parameters were read when it was begun, and at each start.
pub(super) fn doing(durable: &Durable, running: &RunningOperation, limits: &Limits) -> Doing {
    match &running.data {
        StepData::SnapshotSave { saved, .. } => match (running.step, saved, running.offer.params())
        {
            (Step::Save, _, Ok(Params::SnapshotSave(params))) => {
                Doing::Task(Task::SaveSnapshot { name: params.name })
            }
            (Step::ConfirmS3, Some(name), _) => Doing::Task(Task::ConfirmSnapshot {
                name: name.clone(),
                s3: bucket(durable),
            }),
            (Step::Report, ..) => Doing::Nothing,
            _ => Doing::Wait,
        },
        StepData::ClusterRestore { .. } => match running.offer.params() {
            Ok(Params::ClusterRestore(params)) => restoring(durable, running.step, params, limits),
            _ => Doing::Wait,
        },
        StepData::AgentRotateKey { new, confirmed } => {
            rotate::doing(durable, running.step, new.as_ref(), *confirmed)
        }
    }
}

fn restoring(
    durable: &Durable,
    step: Step,
    params: ClusterRestoreParams,
    limits: &Limits,
) -> Doing {
    Doing::Task(match step {
        Step::StopK3s => Task::StopK3s {
            token_hash: params.token_hash,
        },
        Step::ResetRestore => Task::ResetRestore {
            snapshot: params.snapshot,
            source: match params.source {
                SnapshotSource::Local => RestoreSource::Local,
                SnapshotSource::S3 => RestoreSource::S3(bucket(durable)),
            },
        },
        Step::StartK3s => Task::StartK3s,
        Step::WaitApi => Task::WaitApi,
        Step::ForgetStaleNodes => Task::ForgetStaleNodes {
            grace_ms: limits.restore_grace_ms,
        },
        _ => return Doing::Wait,
    })
}

/// Access to the bucket: of the document that was taken last, or of the enrollment before the first.
fn bucket(durable: &Durable) -> Bucket {
    let taken = durable.document.as_ref();
    match taken.and_then(|taken| DesiredState::read(&taken.raw).ok()) {
        Some(desired) => Bucket::Document(Box::new(desired.secrets.s3)),
        None => Bucket::Bootstrap,
    }
}

/// Keeps what the step's task has found out; an answer that is not this task's is told.
pub(super) fn done(durable: &mut Durable, done: Done, time: Timestamp) -> Result<(), String> {
    let Some(running) = durable.operation.as_deref_mut() else {
        return Ok(());
    };
    match (&mut running.data, running.step, done) {
        (StepData::SnapshotSave { saved, .. }, Step::Save, Done::SnapshotSaved { name }) => {
            *saved = Some(name);
        }
        (
            StepData::SnapshotSave {
                saved: Some(name),
                confirmed,
            },
            Step::ConfirmS3,
            Done::SnapshotConfirmed {
                size,
                sha256,
                location,
            },
        ) => {
            *confirmed = Some(SnapshotSaveResult {
                name: name.clone(),
                size,
                sha256,
                location,
            });
        }
        (
            StepData::ClusterRestore { .. },
            Step::StopK3s | Step::ResetRestore | Step::StartK3s | Step::WaitApi,
            Done::Plain,
        ) => {}
        (
            StepData::ClusterRestore { forgotten_nodes },
            Step::ForgetStaleNodes,
            Done::NodesForgotten(nodes),
        ) => {
            *forgotten_nodes = Some(nodes);
        }
        (StepData::AgentRotateKey { new, .. }, step, done) => {
            return rotate::done(&mut durable.identity, step, new, done, time);
        }
        (_, _, done) => return Err(format!("the host answered with {}", done.name())),
    }
    Ok(())
}

/// What an operation comes to whose steps are all over.
pub(super) fn result(running: &RunningOperation) -> Option<OperationResult> {
    match (&running.data, running.offer.params()) {
        (StepData::SnapshotSave { confirmed, .. }, _) => {
            confirmed.clone().map(OperationResult::SnapshotSave)
        }
        (StepData::ClusterRestore { forgotten_nodes }, Ok(Params::ClusterRestore(params))) => {
            Some(OperationResult::ClusterRestore(ClusterRestoreResult {
                snapshot: params.snapshot,
                forgotten_nodes: forgotten_nodes.clone().unwrap_or_default(),
                revoked: Vec::new(),
            }))
        }
        (StepData::ClusterRestore { .. }, _) => None,
        (StepData::AgentRotateKey { new, .. }, _) => new.as_ref().map(rotate::result),
    }
}
