//! The delivery of events (OPS-8, ANS-2).

use std::sync::Arc;

use agent_core::machine::Input;
use agent_core::note::Note;
use agent_core::pbx::durable::Undeliverable;
use protocol::endpoint::Endpoint;
use protocol::pbx::call::{AnswerBody, Reply};
use protocol::pbx::operation::{EventState, EventsAnswer, OperationEvent};
use protocol::pbx::sync::SyncAnswer;
use protocol::problem::ProblemCode;

use crate::operate::save;
use crate::world::{World, enrolled, page};

/// A world in which `save` has ended and none of its seven events was sent.
fn with_events() -> World {
    let mut world = World::enrolled();
    world.offer(&save("op_1"));
    assert_eq!(world.call().endpoint(), Endpoint::Events);
    world.crash();
    world.call();
    world.answer_well();
    assert_eq!(numbers(&mut world), [1, 2, 3, 4, 5, 6, 7]);
    world
}

fn numbers(world: &mut World) -> Vec<u64> {
    world
        .call_of(Endpoint::Events)
        .events()
        .iter()
        .map(|event| event.sequence)
        .collect()
}

fn accept(world: &mut World, accepted_sequence: u64) {
    world.answer(AnswerBody::Events(EventsAnswer { accepted_sequence }));
}

// rule OPS-8: an event is on disk, with its number, before it is sent.
#[test]
fn ops_8_events_are_on_disk_before_they_are_sent() {
    let mut world = World::enrolled();
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    let sent = world.call();
    assert_eq!(sent.events().len(), 1);
    assert_eq!(world.disk.outbox[0].events, sent.events());

    let mut world = World::enrolled();
    world.disk_is_full = true;
    world.offer(&save("op_1"));
    assert_eq!(
        world.call().endpoint(),
        Endpoint::Sync,
        "nothing is sent that is not on disk"
    );

    let mut world = World::enrolled();
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    assert_eq!(world.call().events().len(), 1);
    world.disk_is_full = true;
    world.release_well();
    world.answer_well();
    assert_eq!(
        world.call().endpoint(),
        Endpoint::Sync,
        "the first event on disk does not vouch for the second"
    );
}

// rule OPS-8: at least once, in order, from the first that the portal does not have.
#[test]
fn ops_8_what_the_portal_does_not_have_is_sent_again() {
    let mut world = with_events();
    world.unreachable();
    assert_eq!(numbers(&mut world), [1, 2, 3, 4, 5, 6, 7]);
    accept(&mut world, 3);
    assert_eq!(numbers(&mut world), [4, 5, 6, 7]);
    world.crash();
    assert_eq!(numbers(&mut world), [4, 5, 6, 7], "after a restart, too");
    accept(&mut world, 7);
    world.settle();
    assert!(world.disk.outbox.is_empty());
}

// rule OPS-8: the lanes take turns. A portal that takes longer than the interval for every answer, so that a sync is
// always due, hears of an operation all the same; and the syncs go on beside it.
#[test]
fn ops_8_a_slow_portal_is_told_too() {
    let mut world = World::enrolled();
    let mut called = vec![world.sync().endpoint()];
    let slowly = |world: &mut World| {
        world.pass_ms(40_000);
        world.tell(Input::Tick);
    };
    slowly(&mut world);
    world.answer_sync(None, Some(save("op_1")));
    for _ in 0..4 {
        called.push(world.call().endpoint());
        slowly(&mut world);
        world.answer_well();
    }
    let (sync, events) = (Endpoint::Sync, Endpoint::Events);
    assert_eq!(called, [sync, events, sync, events, sync]);
}

// rule OPS-8: a number that was never sent is not acknowledged, whatever the portal says.
#[test]
fn ops_8_an_acknowledgement_covers_only_what_was_sent() {
    let mut world = World::enrolled();
    world.node.holds = Some("ConfirmSnapshot");
    world.offer(&save("op_1"));
    assert_eq!(numbers(&mut world), [1]);
    accept(&mut world, 1_000);
    assert_eq!(numbers(&mut world), [2, 3]);
    world.release_well();
    accept(&mut world, 1_000);
    assert_eq!(numbers(&mut world), [4, 5, 6, 7]);
}

// rules OPS-8, ANS-10: an answer that acknowledges nothing is no success.
#[test]
fn ops_8_an_answer_without_progress_backs_off() {
    let mut world = with_events();
    let before = world.now.monotonic;
    accept(&mut world, 0);
    assert!(world.call().at.monotonic.since(before).as_secs() >= 5);
    assert_eq!(numbers(&mut world), [1, 2, 3, 4, 5, 6, 7]);
}

// rule OPS-8: what comes after a gap that cannot be closed is sent once and dropped.
#[test]
fn ops_8_events_after_a_gap_do_not_go_round_for_ever() {
    let mut world = with_events();
    accept(&mut world, 3);
    world.call();
    accept(&mut world, 1); // the portal has lost what it had acknowledged
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
    assert!(world.disk.outbox.is_empty());
    world.answer_sync(None, Some(save("op_1")));
    let sent = world.call();
    assert_eq!(
        sent.events()
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [7],
        "asked again, answered again"
    );
}

// rules ANS-2, OPS-8: three times as it is, then one by one, and only the event that is refused is given up.
#[test]
fn ans_2_a_call_of_events_is_split_down_to_the_one_that_is_refused() {
    let mut world = with_events();
    for _ in 0..3 {
        assert_eq!(numbers(&mut world), [1, 2, 3, 4, 5, 6, 7]);
        world.refuse(ProblemCode::InvalidRequest);
    }
    for sequence in 1..=3 {
        assert_eq!(numbers(&mut world), [sequence]);
        accept(&mut world, sequence);
    }
    for _ in 0..3 {
        assert_eq!(numbers(&mut world), [4]);
        world.refuse(ProblemCode::InvalidRequest);
    }
    world.settle();
    let given_up = &world.disk.undeliverable[0];
    assert_eq!((given_up.first_sequence, given_up.count), (4, 1));
    assert_eq!(
        given_up.cause,
        Undeliverable::Refused {
            code: "invalid_request".into()
        }
    );
    assert!(
        world
            .notes
            .iter()
            .any(|note| matches!(note, Note::EventUndeliverable { sequence: 4, .. }))
    );
    assert_eq!(numbers(&mut world), [5, 6, 7], "together again");
}

// rules ANS-2, OPS-7: a final event that the portal never takes is not sent again when the operation is offered again.
#[test]
fn ans_2_an_end_that_was_refused_three_times_is_never_sent_again() {
    let mut world = with_events();
    accept(&mut world, 6);
    for _ in 0..3 {
        assert_eq!(numbers(&mut world), [7]);
        world.refuse(ProblemCode::InvalidRequest);
    }
    for _ in 0..3 {
        world.offer(&save("op_1"));
        assert_eq!(world.call().endpoint(), Endpoint::Sync);
    }
}

// rule OPS-8: 404 not_found is recorded and the events are dropped; a proxy's 404 is not the portal's word.
#[test]
fn ops_8_events_of_an_operation_that_the_portal_does_not_know_are_dropped() {
    let mut world = with_events();
    world.reply(Ok(Reply::Refused(page(404))));
    assert_eq!(numbers(&mut world), [1, 2, 3, 4, 5, 6, 7], "a proxy's page");
    world.refuse(ProblemCode::NotFound);
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
    assert!(world.disk.outbox.is_empty());
    let given_up = &world.disk.undeliverable[0];
    assert_eq!(
        (given_up.count, &given_up.cause),
        (7, &Undeliverable::UnknownOperation)
    );
    world.answer_sync(None, Some(save("op_1")));
    assert_eq!(numbers(&mut world), [7], "handed out again, it is answered");
}

// rule SIGN-5: events that were dropped, and are asked for again within the second, are the same request: it is signed with
// the next one.
#[test]
fn ops_8_events_that_are_asked_for_again_at_once_are_signed_with_the_next_second() {
    let mut world = with_events();
    accept(&mut world, 6);
    // The portal is so slow that the next sync is due whenever one ends.
    assert_eq!(numbers(&mut world), [7]);
    world.pass_ms(40_000);
    world.unreachable();
    world.sync();
    world.pass_ms(40_000);
    world.answer_sync(None, None);
    let first = world.call_of(Endpoint::Events);
    accept(&mut world, 0); // it has forgotten those before: there is a gap
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
    world.answer_sync(None, Some(save("op_1")));
    let second = world.call_of(Endpoint::Events);
    assert_eq!(second.body(), first.body());
    assert_eq!(second.at.monotonic, first.at.monotonic);
    assert_eq!(second.stamp(), first.stamp() + 1);
}

// rule OPS-8: at most 100 events and 128 KiB of log a call.
#[test]
fn ops_8_a_call_keeps_its_limits() {
    let mut durable = (*with_events().disk).clone();
    let event = |sequence: u64, lines: usize| {
        let mut event: OperationEvent = durable.outbox[0].events[1].clone();
        event.sequence = sequence;
        event.state = EventState::Failed;
        event.log_tail = Some(vec!["x".repeat(1024); lines]);
        event
    };
    let many: Vec<_> = (1..=150).map(|sequence| event(sequence, 0)).collect();
    let long: Vec<_> = (1..=4).map(|sequence| event(sequence, 60)).collect();
    durable.outbox[0].events = many;
    let mut world = World::with(durable.clone(), 1);
    assert_eq!(numbers(&mut world).len(), 100);
    durable.outbox[0].events = long;
    let mut world = World::with(durable, 1);
    assert_eq!(numbers(&mut world), [1, 2]);
}

// rules OPS-7, OPS-8: kept for 30 days, counted in days on which the agent ran; a clock that jumps ages nothing.
#[test]
fn ops_7_what_has_ended_is_forgotten_after_30_days_of_running() {
    let mut world = World::with(enrolled(), 1);
    world.offer(&save("op_1"));
    world.run_operation();
    assert_eq!(world.disk.finished.len(), 1);

    // However often the node's clock jumps, and the program starts.
    let portal_time = world.time();
    let right = world.now.wall;
    for _ in 0..60 {
        world.set_clock(400 * 86_400_000);
        world.crash();
        world.sync();
        world.answer(AnswerBody::Sync(Arc::new(SyncAnswer {
            portal_time,
            desired: None,
            operation: None,
        })));
    }
    world.settle();
    assert_eq!(world.disk.days.seen, 1);
    assert_eq!(world.disk.finished.len(), 1);
    world.now.wall = right;

    // The portal's clock jumps with the node's.
    world.set_clock(400 * 86_400_000);
    for _ in 0..100 {
        world.sync();
        world.answer_well();
    }
    assert_eq!(
        world.disk.finished.len(),
        1,
        "a jump of 400 days is one day"
    );
    assert_eq!(world.disk.days.seen, 2);

    while world.disk.days.seen < 32 {
        world.pass_ms(86_400_000);
        world.sync();
        world.answer_well();
        world.settle();
        let is_kept = world.disk.finished.len() == 1;
        assert_eq!(
            is_kept,
            world.disk.days.seen <= 31,
            "day {}",
            world.disk.days.seen
        );
    }
    assert!(world.disk.finished.is_empty());
}
