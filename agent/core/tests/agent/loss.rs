//! A record that cannot be read any more (FILE-13): what the agent goes on with, and what it does not.

use agent_core::pbx::durable::{Durable, IdleReason};
use protocol::endpoint::Endpoint;
use protocol::pbx::call::AnswerBody;
use protocol::pbx::operation::{EventState, EventsAnswer, OperationEvent, Reason};

use crate::operate::save;
use crate::world::{World, document, enrolled};

fn after_loss() -> World {
    World::with(Durable::after_loss(enrolled().identity), 7)
}

fn is_state_lost(event: &OperationEvent) -> bool {
    (event.step, event.state, &event.reason) == (None, EventState::Failed, &Some(Reason::StateLost))
}

// rule FILE-13: without its identity nothing is sent.
#[test]
fn file_13_a_lost_identity_idles() {
    let mut world = World::with(Durable::after_loss(None), 7);
    assert!(world.is_silent_for_a_day());
    assert_eq!(
        Durable::after_loss(None).idle,
        Some(IdleReason::IdentityLost)
    );
}

// rule FILE-13: the document comes again from the portal, and is put into force.
#[test]
fn file_13_a_lost_state_is_rebuilt_from_the_portal() {
    let mut world = after_loss();
    world.take(&document(3));
    world.settle();
    assert_eq!(world.tasks(), ["WriteDropIns", "WriteSecrets"]);
    assert_eq!(world.disk.applied_generation.0, 3);
}

// rule FILE-13 (R4): what may have been under way is not begun anew, and its end follows what the portal has.
#[test]
fn file_13_an_operation_that_may_have_been_under_way_fails() {
    let mut world = after_loss();
    world.offer(&save("op_1"));
    let sent = world.call_of(Endpoint::Events);
    assert!(sent.events().iter().all(is_state_lost), "{sent:?}");
    assert_eq!(sent.events()[0].sequence, 1);
    // It has the first four events of the program that was.
    world.answer(AnswerBody::Events(EventsAnswer {
        accepted_sequence: 4,
    }));
    let sent = world.call_of(Endpoint::Events);
    assert!(sent.events().iter().all(is_state_lost), "{sent:?}");
    assert_eq!(sent.events()[0].sequence, 5);
    // A number that grows leads nobody on.
    world.answer(AnswerBody::Events(EventsAnswer {
        accepted_sequence: 9,
    }));
    world.settle();
    assert!(world.disk.outbox.is_empty());
    assert_eq!(world.tasks(), [""; 0]);
}

// rule FILE-13: what is handed out later was not under way.
#[test]
fn file_13_a_later_operation_runs() {
    let mut world = after_loss();
    world.sync();
    world.answer_well();
    world.offer(&save("op_1"));
    assert_eq!(
        world.run_operation().last().map(|event| event.state),
        Some(EventState::Succeeded)
    );
}
