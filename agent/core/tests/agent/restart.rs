//! The restart of k3s that a drop-in waits for (SYNC-5, SYNC-8).

use std::sync::Arc;

use agent_core::machine::WakeReason;
use agent_core::time::Monotonic;
use protocol::pbx::call::AnswerBody;
use protocol::pbx::sync::{DocumentResult, SyncAnswer};
use protocol::time::Timestamp;
use serde_json::value::RawValue;

use crate::operate::save;
use crate::world::{World, desired, failure};

/// A document whose window opens on Mondays at this time in UTC, for an hour. Every world begins on a Monday at midnight.
fn document(opens: &str) -> Arc<RawValue> {
    let mut desired = desired(1);
    desired.maintenance_window.days = vec![protocol::pbx::sync::Weekday::Monday];
    desired.maintenance_window.start = opens.parse().unwrap();
    desired.maintenance_window.duration_minutes = 60;
    desired.maintenance_window.time_zone = "UTC".into();
    desired.to_raw()
}

/// A world with this document in force, whose drop-in waits for a restart.
fn waiting(opens: &str) -> World {
    let mut world = World::enrolled();
    world.node.shows.restart_pending = true;
    world.take(&document(opens));
    world
}

impl World {
    fn minute(&self) -> i64 {
        (self.now.wall.unix_ms() - crate::world::START_MS) / 60_000
    }

    /// Syncs until this minute of the day; the tasks that were done meanwhile.
    fn sync_until(&mut self, minute: i64) -> Vec<&'static str> {
        while self.minute() < minute {
            self.sync();
            self.answer_sync(None, None);
        }
        self.tasks()
    }
}

// rule SYNC-5: written at once, restarted at the next moment inside the window, and reported until then.
#[test]
fn sync_5_a_drop_in_waits_for_the_window_and_k3s_is_restarted_in_it_once() {
    let mut world = waiting("00:30");
    assert_eq!(
        world.tasks(),
        ["WriteDropIns", "WriteSecrets"],
        "written at once"
    );
    assert!(world.sync().report().restart_pending);
    world.answer_sync(None, None);
    assert!(
        !world.sync_until(29).contains(&"RestartK3s"),
        "not before the window"
    );
    world.node.holds = Some("RestartK3s");
    world.sync_until(31);
    let (_, task, _) = world.node.held.as_ref().expect("a restart");
    assert_eq!(task.record().attempt, 1);
    let opens = Monotonic::from_ms(1_000 + 30 * 60_000);
    assert!(
        world.now.monotonic.since(opens).as_secs() < 95,
        "it was not waited for"
    );
    world.release_well();
    assert!(!world.sync().report().restart_pending);
    world.answer_sync(None, None);
    assert_eq!(
        world
            .sync_until(89)
            .iter()
            .filter(|task| **task == "RestartK3s")
            .count(),
        1
    );
}

// rule SYNC-5: the agent wakes for the window, whatever else it waits for.
#[test]
fn sync_5_the_windows_opening_is_a_wake_of_its_own() {
    let mut world = waiting("00:30");
    world.sync();
    world.unreachable();
    let mut waits = std::iter::from_fn(|| {
        let wake = world.wake()?;
        world.wait_for(wake);
        if world.out_endpoint().is_some() {
            world.unreachable();
        }
        Some((wake, world.minute()))
    });
    let opens = waits.find(|(wake, _)| wake.why == WakeReason::WindowOpens);
    assert_eq!(opens.map(|(_, minute)| minute), Some(30));
    assert_eq!(
        world.tasks().last(),
        Some(&"RestartK3s"),
        "without the portal, too"
    );
}

// rule SYNC-5
#[test]
fn sync_5_k3s_is_not_restarted_while_an_operation_runs() {
    let mut world = waiting("00:10");
    world.sync_until(5);
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    assert_eq!(world.sync_until(20), [""; 0], "an operation runs");
    world.release_well();
    let mut tasks = world.tasks();
    tasks.retain(|task| *task != "WriteSecrets");
    assert_eq!(tasks, ["SaveSnapshot", "ConfirmSnapshot", "RestartK3s"]);
}

// rule SYNC-5: by the portal's time, whatever the node's clock says; and not at all while that is unsure.
#[test]
fn sync_5_the_portals_time_counts_and_not_the_nodes() {
    let mut world = World::enrolled();
    world.node.shows.restart_pending = true;
    // By the node's clock it is 00:00, by the portal's 12:00.
    let answer = |world: &World, desired: Option<&Arc<RawValue>>| {
        let portal_time = Timestamp::from_unix_ms(world.now.wall.unix_ms() + 12 * 3_600_000);
        AnswerBody::Sync(Arc::new(SyncAnswer {
            portal_time,
            desired: desired.cloned(),
            operation: None,
        }))
    };
    let document = document("12:30");
    world.sync();
    world.answer(answer(&world, Some(&document)));
    world.answer_well();
    assert_eq!(world.tasks(), ["WriteDropIns", "WriteSecrets"]);
    // The node's clock is set, and the portal is gone.
    world.set_clock(-5 * 3_600_000);
    let before = world.now.monotonic;
    while world.now.monotonic.since(before).as_secs() < 31 * 60 {
        world.call();
        world.unreachable();
    }
    assert!(world.tasks().contains(&"RestartK3s"));

    let mut world = waiting("00:30");
    world.tasks();
    world.crash();
    // Nothing was heard of the portal in this life.
    for _ in 0..40 {
        world.call();
        world.unreachable();
    }
    assert!(world.minute() > 60, "the window was open meanwhile");
    assert_eq!(
        world
            .tasks()
            .iter()
            .filter(|task| **task == "RestartK3s")
            .count(),
        0
    );
}

#[test]
fn a_restart_that_fails_is_tried_again_inside_the_window_alone() {
    let mut world = waiting("00:30");
    world
        .node
        .failures
        .extend([(); 100].map(|()| ("RestartK3s", failure("the unit failed"))));
    let tried = |tasks: &[&str]| tasks.iter().filter(|task| **task == "RestartK3s").count();
    let inside = world.sync_until(89);
    assert!(tried(&inside) > 5, "{inside:?}");
    world.sync_until(91);
    assert_eq!(tried(&world.sync_until(150)), 0, "the window is closed");
}

// rule SYNC-8: a window that means nothing fails alone, and k3s is never restarted.
#[test]
fn sync_8_an_unknown_zone_fails_its_part_alone() {
    let mut desired = desired(1);
    desired.maintenance_window.time_zone = "Europe/Atlantis".into();
    let mut world = World::enrolled();
    world.node.shows.restart_pending = true;
    world.take(&desired.to_raw());
    assert_eq!(world.tasks(), ["WriteDropIns", "WriteSecrets"]);
    let report = world.sync().report().document.clone();
    assert_eq!(report.result, DocumentResult::Failed);
    assert_eq!(report.applied_generation.0, 1);
    let message = report.message.unwrap();
    assert!(
        message.contains("Europe/Atlantis") && message.contains("not restarted"),
        "{message}"
    );
}
