//! `cluster.restore`: the cluster as a snapshot has it (OP-2, OP-4), without the access that was revoked since (R60).

use protocol::pbx::operation::{
    ClusterRestoreParams, ClusterRestoreResult, OperationResult, Params, ParamsRefusal,
    SnapshotSource, Step,
};

use super::{Doing, Failure, Progress, access, bucket, other_answer};
use crate::limits::Limits;
use crate::pbx::durable::{Again, Durable, StepData};
use crate::pbx::task::{Done, RestoreSource, StopFor, Task};

pub(super) fn doing(
    durable: &Durable,
    step: Step,
    params: ClusterRestoreParams,
    data: &StepData,
    limits: &Limits,
) -> Option<Doing> {
    let StepData::ClusterRestore { revoked, .. } = data else {
        return None;
    };
    let ClusterRestoreParams {
        snapshot,
        source,
        token_hash,
    } = params;
    let source = || match source {
        SnapshotSource::Local => RestoreSource::Local,
        SnapshotSource::S3 => RestoreSource::S3(bucket(durable)),
    };
    Some(Doing::Task(match step {
        Step::StopK3s => Task::StopK3s(StopFor::Restore {
            snapshot,
            source: source(),
            token_hash,
        }),
        Step::ResetRestore => Task::ResetRestore {
            snapshot,
            source: source(),
        },
        Step::StartK3s => Task::StartK3s,
        Step::WaitApi => Task::WaitApi,
        // What the snapshot has brought back goes first: a token that was revoked works until then.
        Step::ForgetStaleNodes => match revoked {
            None if durable.revocations.is_some() => Task::ListAccounts,
            Some(Again::Found(accounts)) => Task::DeleteAccounts(accounts.clone()),
            None | Some(Again::Deleted(_)) => Task::ForgetStaleNodes {
                grace_ms: limits.restore_grace_ms,
            },
        },
        _ => return None,
    }))
}

pub(super) fn done(
    durable: &Durable,
    step: Step,
    data: &mut StepData,
    done: Done,
) -> Result<Progress, Failure> {
    let StepData::ClusterRestore {
        revoked,
        forgotten_nodes,
    } = data
    else {
        return Err(other_answer(&done));
    };
    match (step, revoked, done) {
        (Step::StopK3s | Step::ResetRestore | Step::StartK3s | Step::WaitApi, _, Done::Plain) => {
            Ok(Progress::Over)
        }
        (Step::ForgetStaleNodes, revoked @ None, Done::Accounts(accounts)) => {
            *revoked = Some(Again::Found(access::still_revoked(durable, accounts)));
            Ok(Progress::More)
        }
        (Step::ForgetStaleNodes, Some(revoked), Done::Plain) => {
            if let Again::Found(accounts) = revoked {
                *revoked = Again::Deleted(std::mem::take(accounts));
            }
            Ok(Progress::More)
        }
        (Step::ForgetStaleNodes, _, Done::NodesForgotten(nodes)) => {
            *forgotten_nodes = Some(nodes);
            Ok(Progress::Over)
        }
        (_, _, done) => Err(other_answer(&done)),
    }
}

pub(super) fn result(
    params: Result<Params, ParamsRefusal>,
    data: &StepData,
) -> Option<OperationResult> {
    let (
        Ok(Params::ClusterRestore(params)),
        StepData::ClusterRestore {
            revoked,
            forgotten_nodes,
        },
    ) = (params, data)
    else {
        return None;
    };
    let revoked = match revoked {
        Some(Again::Found(accounts) | Again::Deleted(accounts)) => access::names(accounts),
        None => Vec::new(),
    };
    Some(OperationResult::ClusterRestore(ClusterRestoreResult {
        snapshot: params.snapshot,
        forgotten_nodes: forgotten_nodes.clone().unwrap_or_default(),
        revoked,
    }))
}
