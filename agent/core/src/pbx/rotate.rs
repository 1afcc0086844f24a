//! The rotation of an agent's own keys: generate, register, confirm (OP-9).
//!
//! At every moment at least one key pair on disk is one that the portal knows, whichever answer is lost:
//!
//! - **generate**: the host makes new keys and the proof; they are recorded beside the old ones.
//! - **register**: the portal is asked, signed with the old keys. Asked again it answers the same, so a lost answer costs
//!   nothing. If the old keys are refused, the pace tries the new ones: the portal may have switched.
//! - **confirm**: calls are signed with the new keys. A 200 makes them the active ones; after a *sync* with them, whose
//!   document is sealed to them, the old ones are taken from the record, and then the host forgets them. If the new ones
//!   are refused before, the pace tries the old ones; if those are accepted, the rotation has failed, and both pairs stay.

use std::sync::Arc;

use protocol::pbx::call::Request;
use protocol::pbx::operation::{AgentRotateKeyResult, OperationResult, Step};
use protocol::pbx::rotate::RotateKeyRequest;
use protocol::time::Timestamp;

use super::durable::{Durable, Identity, KeyPairs, NewKeys, StepData};
use super::steps::{Doing, Failure, Progress};
use super::task::{Done, KeySlot, Task};
use crate::journal::Journal;
use crate::machine::KeyHandle;

/// What each step of a rotation does.
pub(super) fn doing(durable: &Durable, step: Step, data: &StepData) -> Option<Doing> {
    let StepData::AgentRotateKey { new, confirmed } = data else {
        return None;
    };
    let identity = durable.identity.as_ref()?;
    Some(match (step, new) {
        (Step::Generate, _) => Doing::Task(Task::MakeKeys(KeySlot::Next {
            old: identity.active.handle.signing,
        })),
        (Step::Register, Some(new)) => {
            Doing::Call(Request::RotateKey(Arc::new(RotateKeyRequest {
                signing_key: new.handle.signing,
                sealing_key: new.handle.sealing,
                proof: new.proof,
            })))
        }
        (Step::Confirm, Some(new)) if *confirmed => Doing::Task(Task::PromoteKeys(new.handle)),
        _ => return None,
    })
}

/// What a task of a rotation came to.
pub(super) fn done(
    identity: &mut Option<Identity>,
    step: Step,
    new: &mut Option<NewKeys>,
    done: Done,
    time: Timestamp,
) -> Result<Progress, Failure> {
    let identity = identity
        .as_mut()
        .ok_or_else(|| "there is no identity to rotate the keys of".to_owned())?;
    match (step, done) {
        (
            Step::Generate,
            Done::Keys {
                handle,
                proof: Some(proof),
            },
        ) => {
            identity.other = Some(Box::new(KeyPairs {
                handle,
                created_at: time,
            }));
            *new = Some(NewKeys { handle, proof });
            Ok(Progress::Over)
        }
        (Step::Confirm, Done::Plain) => Ok(Progress::Over),
        (_, done) => Err(format!("the host answered with {}", done.name()).into()),
    }
}

/// What a rotation that is over comes to.
pub(super) fn result(new: &NewKeys) -> OperationResult {
    OperationResult::AgentRotateKey(AgentRotateKeyResult {
        active_key_id: new.handle.signing.key_id(),
    })
}

/// The new keys, while they are being registered.
pub(super) fn registering(durable: &Durable) -> Option<NewKeys> {
    let running = durable
        .operation
        .as_deref()
        .filter(|running| running.step == Step::Register)?;
    match &running.data {
        StepData::AgentRotateKey { new, .. } => *new,
        _ => None,
    }
}

/// The new keys, while they are registered and nothing signed with them was answered yet.
fn confirming(durable: &Durable) -> Option<KeyHandle> {
    let running = durable
        .operation
        .as_deref()
        .filter(|running| running.step == Step::Confirm)?;
    match &running.data {
        StepData::AgentRotateKey {
            new: Some(new),
            confirmed: false,
        } => Some(new.handle),
        _ => None,
    }
}

/// The keys to sign with: the new ones as soon as they are registered.
pub(super) fn preferred(durable: &Durable, identity: &Identity) -> KeyHandle {
    confirming(durable).unwrap_or(identity.active.handle)
}

/// What it means that the portal knows a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepted {
    /// Nothing new, or nothing but a change of the active keys.
    Nothing,
    /// The new keys are registered, though the answer that said so was lost.
    Registered,
    /// The new keys are registered no more.
    OldKeysOnly,
}

/// A signed request got a 200. Keys that the portal knows become the active ones.
pub(super) fn key_accepted(
    journal: &mut Journal<Durable>,
    accepted: KeyHandle,
    by_sync: bool,
) -> Accepted {
    let Some(other) = journal
        .identity
        .as_ref()
        .and_then(|identity| identity.other.as_deref().copied())
    else {
        return Accepted::Nothing;
    };
    let confirming = confirming(journal);
    if other.handle == accepted {
        if let Some(identity) = &mut journal.change().identity {
            let before = std::mem::replace(&mut identity.active, other);
            identity.other = Some(Box::new(before));
        }
        if registering(journal).is_some_and(|new| new.handle == accepted) {
            return Accepted::Registered;
        }
        if confirming.is_some_and(|new| new != accepted) {
            return Accepted::OldKeysOnly;
        }
    } else if confirming.is_some_and(|new| new == other.handle) {
        return Accepted::OldKeysOnly;
    }
    if by_sync && confirming == Some(accepted) {
        let durable = journal.change();
        let operation = durable.operation.as_deref_mut();
        if let Some(StepData::AgentRotateKey { confirmed, .. }) = operation.map(|it| &mut it.data) {
            *confirmed = true;
        }
        // The portal has forgotten the old keys, and the host is about to. However its task ends, and whatever ends the
        // operation before it does, they sign nothing any more.
        if let Some(identity) = &mut durable.identity {
            identity.other = None;
        }
    }
    Accepted::Nothing
}
