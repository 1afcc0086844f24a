//! The sync lane (SYNC-1, SYNC-9, SYNC-10), and what a report says.

use std::sync::Arc;

use agent_core::limits::Limits;
use agent_core::machine::{Input, WakeReason};
use protocol::endpoint::Endpoint;
use protocol::pbx::operation::{Params, SnapshotSaveParams};
use protocol::pbx::sync::{ApiState, DocumentResult};

use crate::world::{World, api_down, enrolled, facts, offer};

// rule SYNC-1: uniform in 25 to 35 s, measured between the moments at which syncs were due.
#[test]
fn sync_1_a_sync_is_due_25_to_35_s_after_the_last_one_was_due() {
    let mut world = World::enrolled();
    let mut last = world.sync().call.intended;
    let mut gaps = Vec::new();
    for _ in 0..400 {
        world.pass_ms(700); // the portal takes its time
        world.answer_well();
        assert_eq!(world.wake().unwrap().why, WakeReason::SyncDue);
        let next = world.sync().call.intended;
        gaps.push(u64::try_from(next.since(last).as_millis()).unwrap());
        last = next;
    }
    assert!(
        gaps.iter().all(|gap| (25_000..=35_000).contains(gap)),
        "{gaps:?}"
    );
    let share = |low: u64, high: u64| gaps.iter().filter(|gap| (low..high).contains(gap)).count();
    for (low, high) in [
        (25_000, 27_500),
        (27_500, 30_000),
        (30_000, 32_500),
        (32_500, 35_001),
    ] {
        assert!(
            (70..=130).contains(&share(low, high)),
            "{low}: {}",
            share(low, high)
        );
    }
}

// rule SYNC-9: a cycle that takes longer than the interval delays the next one; there is no burst afterwards.
#[test]
fn sync_9_a_long_cycle_delays_the_next_and_never_overlaps_it() {
    let mut world = World::enrolled();
    world.sync();
    world.pass_ms(100_000);
    world.tell(Input::Tick);
    let ended = world.now.monotonic;
    world.answer_well();
    let second = world.sync();
    assert_eq!(second.call.intended, ended, "at once");
    world.answer_well();
    let third = world.sync();
    assert!(
        third.call.intended.since(second.call.intended).as_secs() >= 25,
        "and not twice"
    );
}

// rule SYNC-10: the first sync after a start is spread over 0 to 30 s, and nothing else goes out before it.
#[test]
fn sync_10_the_first_sync_waits_up_to_30_s() {
    let mut durable = enrolled();
    let save = Params::SnapshotSave(SnapshotSaveParams {
        name: "nightly".parse().unwrap(),
    });
    let mut world = World::with(durable.clone(), 1);
    world.offer(&offer("op_1", &save));
    world.settle();
    durable = (*world.disk).clone();
    assert!(!durable.outbox.is_empty());

    let mut waits = Vec::new();
    for seed in 1..=300 {
        let mut world = World::with(durable.clone(), seed);
        let started = world.now.monotonic;
        assert_eq!(
            world.wake().map(|wake| wake.why),
            Some(WakeReason::FirstSync)
        );
        let first = world.call();
        assert_eq!(first.endpoint(), Endpoint::Sync, "the events wait, too");
        waits.push(first.at.monotonic.since(started).as_millis());
    }
    assert!(waits.iter().all(|wait| *wait <= 30_000));
    for third in 0..3 {
        let share = waits
            .iter()
            .filter(|wait| (third * 10_000..(third + 1) * 10_000).contains(*wait))
            .count();
        assert!((60..=140).contains(&share), "{third}: {share}");
    }
}

#[test]
fn a_tempo_makes_an_agent_faster_and_changes_nothing_else() {
    let mut facts = facts();
    facts.limits = Arc::new(Limits::REAL.scaled(0.2));
    let mut world = World::with_facts(enrolled(), facts, 1);
    let first = world.sync();
    world.answer_well();
    let second = world.sync();
    let gap = second.call.intended.since(first.call.intended).as_millis();
    assert!((5_000..=7_000).contains(&gap), "{gap}");
}

// rule FAIL-2: the report says that the API is down, and what the node shows otherwise.
#[test]
fn fail_2_a_report_says_what_the_node_shows() {
    let mut world = World::enrolled();
    let first = world.sync();
    let report = first.report();
    assert_eq!(
        (report.sequence, report.leader, report.k3s.api),
        (1, true, ApiState::Up)
    );
    assert_eq!(
        (
            report.document.applied_generation.0,
            report.document.seen_generation.0
        ),
        (0, 0)
    );
    assert_eq!(report.document.result, DocumentResult::Applied);
    assert_eq!(report.operation, None);
    world.answer_well();

    world.node.shows = api_down();
    world.node.shows.problems = vec!["disk_full: /var".to_owned()];
    let second = world.sync();
    let report = second.report();
    assert_eq!(
        (report.sequence, report.leader, report.k3s.api),
        (2, false, ApiState::Down)
    );
    assert_eq!(report.problems, ["disk_full: /var"]);
}

// rule FAIL-7: a record that cannot be written is reported, stops nothing that needs none, and is tried again.
#[test]
fn fail_7_a_full_disk_is_reported_and_recovers_by_itself() {
    let mut world = World::enrolled();
    world.disk_is_full = true;
    world.offer(&offer(
        "op_1",
        &Params::SnapshotSave(SnapshotSaveParams {
            name: "nightly".parse().unwrap(),
        }),
    ));
    assert!(
        world
            .wake()
            .is_some_and(|wake| matches!(wake.why, WakeReason::StoreRetry { failures: 1 }))
    );
    let next = world.sync();
    assert!(
        next.report().problems[0].starts_with("state_unwritable: state.json"),
        "{:?}",
        next.report().problems
    );
    assert_eq!(world.tasks(), [""; 0], "no step without its record");
    world.answer_well();

    world.disk_is_full = false;
    world.sync();
    world.answer_well();
    while world.node.performed.is_empty() {
        world.call();
        world.answer_well();
    }
    assert!(world.sync().report().problems.is_empty());
}
