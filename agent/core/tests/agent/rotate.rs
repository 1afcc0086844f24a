//! The rotation of the keys (OP-9): every answer lost in turn ends with keys that both sides know.

use std::sync::Arc;

use agent_core::machine::KeyHandle;
use agent_core::note::Note;
use agent_core::pbx::task::{KeySlot, Task};
use protocol::endpoint::Endpoint;
use protocol::pbx::call::{AnswerBody, Refusal, Reply, Request};
use protocol::pbx::operation::{
    EventState, EventsAnswer, NoParams, OperationEvent, OperationOffer, Params, Step,
};
use protocol::pbx::rotate::RotateKeyAnswer;
use protocol::pbx::sync::DesiredState;
use protocol::problem::ProblemCode;
use protocol::sign::Signature;
use serde_json::value::RawValue;

use crate::world::{
    Sent, World, desired, failure, keys, manifest, offer, refusal, secrets, signed,
};

fn rotation() -> OperationOffer {
    offer("op_1", &Params::AgentRotateKey(NoParams {}))
}

/// A portal as far as a rotation needs one: which keys it knows, and when it forgets the old ones.
struct Portal {
    active: KeyHandle,
    pending: Option<KeyHandle>,
    events: Vec<OperationEvent>,
    calls: usize,
    /// The answers that are lost, after the work was done.
    loses: Vec<usize>,
}

impl Portal {
    fn new(loses: Vec<usize>) -> Self {
        Self {
            active: keys(1),
            pending: None,
            events: Vec::new(),
            calls: 0,
            loses,
        }
    }

    /// The document, sealed to the key of whoever asks.
    fn document(to: KeyHandle) -> Arc<RawValue> {
        let tag = format!("to {}", to.signing.0[0]);
        DesiredState {
            secrets: secrets(&tag),
            ..desired(1)
        }
        .to_raw()
    }

    fn is_over(&self) -> bool {
        self.events.iter().any(OperationEvent::is_final)
    }

    fn answer(&mut self, world: &mut World, sent: &Sent) {
        self.calls += 1;
        let key = sent.key();
        let reply = if Some(key) == self.pending || key == self.active {
            if Some(key) == self.pending {
                self.active = key;
                self.pending = None;
            }
            Reply::Done(self.work(world, sent))
        } else {
            Reply::Refused(refusal(ProblemCode::BadSignature))
        };
        if self.loses.contains(&self.calls) {
            world.unreachable();
        } else {
            world.reply(Ok(reply));
        }
    }

    fn work(&mut self, world: &World, sent: &Sent) -> AnswerBody {
        match &sent.call.request {
            Request::Sync(_) => {
                let operation = if self.is_over() {
                    None
                } else {
                    Some(rotation())
                };
                let desired = Some(Self::document(sent.key()));
                AnswerBody::Sync(Arc::new(protocol::pbx::sync::SyncAnswer {
                    portal_time: world.time(),
                    desired,
                    operation,
                }))
            }
            Request::Events { body, .. } => {
                for event in body.events() {
                    if event.sequence == self.events.len() as u64 + 1 {
                        self.events.push(event.clone());
                    }
                }
                AnswerBody::Events(EventsAnswer {
                    accepted_sequence: self.events.len() as u64,
                })
            }
            Request::RotateKey(request) => {
                let new = KeyHandle {
                    signing: request.signing_key,
                    sealing: request.sealing_key,
                };
                assert_eq!(request.proof, Signature([7; 64]));
                if new != self.active {
                    self.pending = Some(new);
                }
                AnswerBody::RotateKey(RotateKeyAnswer {
                    active_key_id: new.signing.key_id(),
                })
            }
            Request::Manifest(_) => {
                AnswerBody::Manifest(signed(&manifest("2026.11.1", 1, "1.4.0")))
            }
            Request::Enroll(_) => unreachable!("it is enrolled"),
        }
    }

    /// Goes on until the operation is over and two more syncs are answered.
    fn serve(&mut self, world: &mut World) {
        let mut syncs_after = 0;
        for _ in 0..300 {
            let Some(sent) = world.next_call() else {
                assert!(world.is_dead(), "silent before the end");
                world.crash();
                continue;
            };
            if self.is_over() && sent.endpoint() == Endpoint::Sync {
                syncs_after += 1;
            }
            self.answer(world, &sent);
            if syncs_after == 3 {
                return;
            }
        }
        panic!("no end: {:?}", self.events);
    }
}

fn ends_with_new_keys(case: &str, world: &World, portal: &Portal) {
    let identity = world.disk.identity.clone().unwrap();
    assert_eq!(
        portal.events.last().unwrap().state,
        EventState::Succeeded,
        "{case}: {:?}",
        portal.events
    );
    assert_ne!(identity.active.handle, keys(1), "{case}");
    assert_eq!(
        identity.active.handle, portal.active,
        "{case}: both sides know them"
    );
    assert_eq!(identity.other, None, "{case}: the old ones are forgotten");
    assert!(world.disk.idle.is_none(), "{case}");
    let raw = world.disk.document.as_ref().unwrap().raw.clone();
    assert_eq!(
        raw.get(),
        Portal::document(portal.active).get(),
        "{case}: the document is sealed to them"
    );
}

// rule OP-9
#[test]
fn op_9_generate_register_confirm() {
    let mut world = World::enrolled();
    let mut portal = Portal::new(vec![]);
    portal.serve(&mut world);
    ends_with_new_keys("no answer lost", &world, &portal);
    let steps: Vec<_> = portal
        .events
        .iter()
        .map(|event| (event.step, event.state))
        .collect();
    use EventState::{Started, Succeeded};
    assert_eq!(
        steps,
        [
            (Some(Step::Generate), Started),
            (Some(Step::Generate), Succeeded),
            (Some(Step::Register), Started),
            (Some(Step::Register), Succeeded),
            (Some(Step::Confirm), Started),
            (Some(Step::Confirm), Succeeded),
            (None, Succeeded)
        ]
    );
    let made = world
        .node
        .performed
        .iter()
        .find(|task| matches!(***task, Task::MakeKeys(_)))
        .unwrap();
    assert_eq!(
        **made,
        Task::MakeKeys(KeySlot::Next {
            old: keys(1).signing
        })
    );
    let promoted = world
        .node
        .performed
        .iter()
        .any(|task| **task == Task::PromoteKeys(keys(2)));
    assert!(promoted, "the host forgets the old ones");
    assert!(world.notes.contains(&Note::KeysRotated {
        key: keys(2).signing.key_id()
    }));
    let created = world.sync().report().keys_created_at;
    assert!(created > crate::world::key_pairs(1).created_at);
}

// rule OP-9: the document that is sealed to the new keys is at hand before the old ones are forgotten.
#[test]
fn op_9_the_old_keys_are_forgotten_only_after_the_document_is_sealed_anew() {
    let mut world = World::enrolled();
    let mut portal = Portal::new(vec![]);
    world.node.holds = Some("PromoteKeys");
    while world.node.held.is_none() {
        let sent = world.call();
        portal.answer(&mut world, &sent);
    }
    let raw = world.disk.document.as_ref().unwrap().raw.clone();
    assert_eq!(raw.get(), Portal::document(keys(2)).get());
}

// rules OP-9, ANS-4: keys that the host may have forgotten sign nothing, whatever becomes of the task that forgets them.
#[test]
fn op_9_keys_that_the_host_forgets_are_on_no_record_before_it_does() {
    let mut world = World::enrolled();
    let mut portal = Portal::new(vec![]);
    (world.node.failures).push(("PromoteKeys", failure("it was cut off")));
    portal.serve(&mut world);
    assert_eq!(portal.events.last().unwrap().state, EventState::Failed);
    let identity = world.disk.identity.clone().unwrap();
    assert_eq!((identity.active.handle, identity.other), (keys(2), None));
    world.sync();
    world.refuse(ProblemCode::UnknownAgent);
    assert!(
        world.is_silent_for_a_day(),
        "a key is tried that may be gone"
    );
}

// rule OP-9: every answer lost in turn, and every two of them.
#[test]
fn op_9_every_lost_answer_ends_with_keys_that_both_sides_know() {
    for first in 1..=12 {
        for second in first..=14 {
            let mut world = World::enrolled();
            let mut portal = Portal::new(vec![first, second]);
            portal.serve(&mut world);
            ends_with_new_keys(
                &format!("answers {first} and {second} lost"),
                &world,
                &portal,
            );
        }
    }
}

// rules OP-9, OPS-2: a crash in any write, with any answer lost.
#[test]
fn op_9_a_crash_in_any_write_ends_with_keys_that_both_sides_know() {
    let mut died = 0;
    for (at, is_kept) in (1..=24).flat_map(|at| [(at, true), (at, false)]) {
        for lost in 0..=10 {
            let mut world = World::enrolled();
            world.dies_in_store = Some((at, is_kept));
            let mut portal = Portal::new(vec![lost]);
            portal.serve(&mut world);
            died += usize::from(world.stores >= at);
            ends_with_new_keys(
                &format!("write {at}, {is_kept}, answer {lost} lost"),
                &world,
                &portal,
            );
        }
    }
    assert!(died > 200, "{died}");
}

// rules ANS-2, OP-9: three 400s fail the rotation, and both key pairs stay.
#[test]
fn ans_2_three_400s_fail_a_rotation_and_both_keys_stay() {
    let mut world = World::enrolled();
    world.offer(&rotation());
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let sent = world.call_of(Endpoint::RotateKey);
        bodies.push(sent.body());
        world.refuse(ProblemCode::InvalidKey);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    let events = world.run_operation();
    let failed = &events[events.len() - 2];
    assert_eq!(
        (failed.step, failed.state),
        (Some(Step::Register), EventState::Failed)
    );
    assert!(failed.message.as_deref().unwrap().contains("invalid_key"));
    let identity = world.disk.identity.clone().unwrap();
    assert_eq!(
        (identity.active.handle, identity.other.unwrap().handle),
        (keys(1), keys(2))
    );
    assert_eq!(world.sync().key(), keys(1));
}

// rule OP-9: a portal that knows the old keys only, after it had registered the new ones, fails the rotation.
#[test]
fn op_9_new_keys_that_the_portal_does_not_know_any_more_fail_it() {
    let mut world = World::enrolled();
    world.offer(&rotation());
    world.call_of(Endpoint::RotateKey);
    world.answer_well();
    loop {
        let sent = world.call();
        if sent.key() == keys(1) {
            break;
        }
        world.reply(Ok(Reply::Refused(Refusal {
            ..refusal(ProblemCode::BadSignature)
        })));
    }
    world.answer_well();
    let events = world.run_operation();
    assert_eq!(events.last().unwrap().state, EventState::Failed);
    let identity = world.disk.identity.clone().unwrap();
    assert_eq!(
        (identity.active.handle, identity.other.unwrap().handle),
        (keys(1), keys(2))
    );
}
