//! What each step of an operation does, what it finds out, and what an operation comes to; a file a family (OP-1 to OP-12).
//!
//! | Module | Kinds |
//! |---|---|
//! | [`snapshot`], [`restore`] | `snapshot.save`, `cluster.restore` |
//! | [`access`] | `access.issue`, `access.revoke`; what stays revoked after a restore |
//! | [`bucket`], [`diagnose`] | `s3.verify`, `diag.collect` |
//! | [`upgrade`] | `cluster.upgrade` |
//! | [`servers`] | `server.rejoin`, `node.drain`, `node.forget` |
//! | [`rotate`] | `agent.rotate_key` |
//!
//! A step is one task of the host after the other, or a call, made again each time from what is on disk: so a crash
//! anywhere in it is the same case as none. When a step may begin is not decided here.

mod access;
mod bucket;
mod diagnose;
mod restore;
mod servers;
mod snapshot;
pub(super) mod upgrade;

use protocol::pbx::call::Request;
use protocol::pbx::operation::{OperationOffer, OperationResult, Params, Reason};
use protocol::pbx::sync::DesiredState;
use protocol::time::Timestamp;

use super::durable::{Durable, RunningOperation, StepData};
use super::events::End;
use super::facts::BootFacts;
use super::rotate;
use super::task::{Bucket, Done, Task};
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

/// How far a step is after one of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is over.
    Over,
    /// It has another task.
    More,
    /// It has another task, after so many milliseconds.
    MoreAfter(u64),
}

/// Why a step has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) why: String,
    pub(super) reason: Option<Reason>,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, reason: None }
    }
}

/// The host has answered with what is no answer to the task.
fn other_answer(done: &Done) -> Failure {
    format!("the host answered with {}", done.name()).into()
}

/// What the steps of a kind begin with, or how the operation is answered instead of being begun.
pub(super) fn begin(
    offer: &OperationOffer,
    params: &Params,
    facts: &BootFacts,
    time: Timestamp,
) -> Result<StepData, End> {
    match params {
        Params::SnapshotSave(_) => Ok(StepData::SnapshotSave {
            saved: None,
            confirmed: None,
        }),
        Params::ClusterRestore(_) => Ok(StepData::ClusterRestore {
            revoked: None,
            forgotten_nodes: None,
        }),
        Params::AgentRotateKey(_) => Ok(StepData::AgentRotateKey {
            new: None,
            confirmed: false,
        }),
        Params::AccessIssue(params) => access::begin(params, time),
        Params::AccessRevoke(_) => Ok(StepData::AccessRevoke { accounts: None }),
        Params::S3Verify(_) => Ok(StepData::S3Verify { objects_seen: None }),
        Params::DiagCollect(_) => diagnose::begin(offer),
        Params::ServerRejoin(_) => Ok(StepData::ServerRejoin),
        Params::NodeDrain(_) => Ok(StepData::NodeDrain {
            pods: None,
            left: None,
        }),
        Params::NodeForget(params) => servers::begin_forgetting(params, facts),
        Params::ClusterUpgrade(_) => upgrade::begin(facts),
    }
}

/// What is written down with the operation, before its first step.
pub(super) fn begun(durable: &mut Durable, params: &Params, time: Timestamp) {
    if let Params::AccessRevoke(params) = params {
        access::remember(durable, params, time);
    }
}

/// What the step does that the running operation is at. Its parameters were read when it was begun, and at each start.
pub(super) fn doing(durable: &Durable, running: &RunningOperation, limits: &Limits) -> Doing {
    let Ok(params) = running.offer.params() else {
        return Doing::Wait;
    };
    let (step, data) = (running.step, &running.data);
    let doing = match params {
        Params::SnapshotSave(params) => snapshot::doing(durable, step, params, data),
        Params::ClusterRestore(params) => restore::doing(durable, step, params, data, limits),
        Params::AccessIssue(params) => access::issuing(durable, step, &params, data),
        Params::AccessRevoke(_) => access::revoking(step, data),
        Params::AgentRotateKey(_) => rotate::doing(durable, step, data),
        Params::S3Verify(s3) => bucket::doing(step, s3),
        Params::DiagCollect(_) => diagnose::doing(step),
        Params::ServerRejoin(params) => servers::rejoining(step, params),
        Params::NodeDrain(params) => servers::draining(step, params),
        Params::NodeForget(params) => servers::forgetting(step, params, data, limits),
        Params::ClusterUpgrade(params) => upgrade::doing(durable, step, params, data, limits),
    };
    doing.unwrap_or(Doing::Wait)
}

/// Keeps what a task of the step has found out; an answer that is not this task's is told.
pub(super) fn done(
    durable: &mut Durable,
    done: Done,
    time: Timestamp,
    limits: &Limits,
) -> Result<Progress, Failure> {
    let Some(mut running) = durable.operation.take() else {
        return Ok(Progress::More);
    };
    let step = running.step;
    let progress = match &mut running.data {
        data @ StepData::SnapshotSave { .. } => snapshot::done(step, data, done),
        data @ StepData::ClusterRestore { .. } => restore::done(durable, step, data, done),
        data @ StepData::AccessIssue { .. } => access::issued(step, data, done, time),
        StepData::AccessRevoke { accounts } => {
            access::revoked(accounts, running.offer.params(), done)
        }
        StepData::AgentRotateKey { new, .. } => {
            rotate::done(&mut durable.identity, step, new, done, time)
        }
        StepData::ClusterUpgrade(data) => upgrade::done(step, data, done, limits),
        StepData::S3Verify { objects_seen } => bucket::done(objects_seen, done),
        StepData::DiagCollect { collected } => diagnose::done(collected, done),
        StepData::ServerRejoin => servers::rejoined(done),
        data @ StepData::NodeDrain { .. } => servers::drained(step, data, done),
        StepData::NodeForget { gone } => servers::forgotten(step, gone, done),
    };
    durable.operation = Some(running);
    progress
}

/// What an operation comes to whose steps are all over.
pub(super) fn result(running: &RunningOperation, facts: &BootFacts) -> Option<OperationResult> {
    match &running.data {
        StepData::SnapshotSave { confirmed, .. } => {
            confirmed.clone().map(OperationResult::SnapshotSave)
        }
        data @ StepData::ClusterRestore { .. } => restore::result(running.offer.params(), data),
        data @ StepData::AccessIssue { .. } => access::result(data),
        StepData::AccessRevoke { accounts } => accounts.as_deref().map(access::revoke_result),
        StepData::AgentRotateKey { new, .. } => new.as_ref().map(rotate::result),
        StepData::ClusterUpgrade(data) => upgrade::result(running.offer.params(), data),
        StepData::S3Verify { objects_seen } => objects_seen.map(bucket::result),
        StepData::DiagCollect { collected } => collected.clone().map(OperationResult::DiagCollect),
        StepData::ServerRejoin => Some(servers::rejoin_result(facts)),
        data @ StepData::NodeDrain { .. } => servers::drain_result(data),
        StepData::NodeForget { gone } => gone.as_ref().map(servers::forget_result),
    }
}

/// Access to the bucket: of the document that was taken last, or of the enrollment before the first.
fn bucket(durable: &Durable) -> Bucket {
    let taken = durable.document.as_ref();
    match taken.and_then(|taken| DesiredState::read(&taken.raw).ok()) {
        Some(desired) => Bucket::Document(Box::new(desired.secrets.s3)),
        None => Bucket::Bootstrap,
    }
}
