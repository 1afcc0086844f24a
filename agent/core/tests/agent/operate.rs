//! The operation lane (OPS-1 to OPS-10, OP-1, OP-2, FAIL-3).

use agent_core::journal::Work;
use agent_core::machine::{Evidence, Input, LogLine, WakeReason};
use agent_core::note::Note;
use agent_core::pbx::task::{Bucket, Done, RestoreSource, StopFor, Task};
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::pbx::enroll::S3Access;
use protocol::pbx::operation::{
    ClusterRestoreParams, EventState, NoParams, OperationEvent, OperationKind, OperationOffer,
    OperationResult, Params, Reason, SnapshotSaveParams, SnapshotSource, Step,
};
use protocol::pbx::sync::OperationState;

use crate::world::{World, api_down, document, failure, healthy, offer, secrets};

pub(crate) fn save(id: &str) -> OperationOffer {
    offer(
        id,
        &Params::SnapshotSave(SnapshotSaveParams {
            name: "nightly".parse().unwrap(),
        }),
    )
}

pub(crate) fn restore(id: &str, source: SnapshotSource) -> OperationOffer {
    let snapshot = "nightly-fsn1-1".parse().unwrap();
    let token_hash = Some("hash".to_owned());
    offer(
        id,
        &Params::ClusterRestore(ClusterRestoreParams {
            snapshot,
            source,
            token_hash,
        }),
    )
}

impl World {
    /// Goes on until an operation's final event is delivered; all of its events, each once.
    pub(crate) fn run_operation(&mut self) -> Vec<OperationEvent> {
        let mut events: Vec<OperationEvent> = Vec::new();
        for _ in 0..200 {
            let sent = self.call();
            if sent.endpoint() == Endpoint::Events {
                let new = sent.events().iter().filter(|event| {
                    events
                        .last()
                        .is_none_or(|last| event.sequence > last.sequence)
                });
                let new: Vec<_> = new.cloned().collect();
                events.extend(new);
            }
            self.answer_well();
            if events.last().is_some_and(OperationEvent::is_final) {
                return events;
            }
        }
        panic!("no end: {events:?}");
    }
}

fn told(events: &[OperationEvent]) -> Vec<(u64, Option<Step>, EventState)> {
    events
        .iter()
        .map(|event| (event.sequence, event.step, event.state))
        .collect()
}

// rules OP-1, OPS-2, OPS-8: each step recorded before it begins, each event numbered.
#[test]
fn op_1_a_snapshot_is_saved_and_confirmed() {
    use EventState::{Started, Succeeded};
    let mut world = World::enrolled();
    world.offer(&save("op_1"));
    let events = world.run_operation();
    assert_eq!(
        told(&events),
        [
            (1, Some(Step::Save), Started),
            (2, Some(Step::Save), Succeeded),
            (3, Some(Step::ConfirmS3), Started),
            (4, Some(Step::ConfirmS3), Succeeded),
            (5, Some(Step::Report), Started),
            (6, Some(Step::Report), Succeeded),
            (7, None, Succeeded),
        ]
    );
    let result = OperationResult::read(
        &OperationKind::SnapshotSave,
        events[6].result.as_ref().unwrap(),
    )
    .unwrap();
    let Some(OperationResult::SnapshotSave(result)) = result else {
        panic!("{result:?}")
    };
    assert_eq!(
        (result.name.as_str(), result.location.as_str()),
        ("nightly-fsn1-1", "s3://b/nightly-fsn1-1")
    );

    let Task::ConfirmSnapshot { name, s3 } = &*world.node.performed[1] else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!(
        (name.as_str(), s3),
        ("nightly-fsn1-1", &Bucket::Bootstrap),
        "the name that it has in truth"
    );
    world.settle();
    assert!(world.disk.operation.is_none() && world.disk.outbox.is_empty());
    assert_eq!(world.sync().report().operation, None);
}

// rule OP-1: the bucket is the document's once there is one.
#[test]
fn op_1_the_bucket_is_the_documents() {
    let mut world = World::enrolled();
    world.take(&document(1));
    world.tasks();
    world.offer(&save("op_1"));
    world.run_operation();
    let Task::ConfirmSnapshot { s3, .. } = &*world.node.performed[1] else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!(
        s3,
        &Bucket::Document(Box::<S3Access>::new(secrets("document").s3))
    );
}

// rule OP-1, R46: an object without content is no snapshot, and it is the object of the name that k3s gave.
#[test]
fn op_1_an_empty_object_confirms_nothing() {
    for (size, expected) in [(0, EventState::Failed), (1, EventState::Succeeded)] {
        let mut world = World::enrolled();
        world.node.holds = Some("ConfirmSnapshot");
        world.offer(&save("op_1"));
        world.settle();
        world.release(Ok(Done::SnapshotConfirmed {
            size,
            sha256: Sha256Hex::of(b"object"),
            location: "s3://b/nightly-fsn1-1".into(),
        }));
        assert_eq!(world.run_operation().last().unwrap().state, expected);
    }
}

// rules OP-2, OPS-6: with the API down, in the order of its steps, with the token hash compared first.
#[test]
fn op_2_a_cluster_is_restored() {
    let mut world = World::enrolled();
    world.node.shows = api_down();
    world.offer(&restore("op_1", SnapshotSource::S3));
    let events = world.run_operation();
    let Task::StopK3s(StopFor::Restore {
        token_hash,
        snapshot,
        ..
    }) = &*world.node.performed[0]
    else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!(
        (snapshot.as_str(), token_hash.as_deref()),
        ("nightly-fsn1-1", Some("hash"))
    );
    let Task::ResetRestore { snapshot, source } = &*world.node.performed[1] else {
        panic!()
    };
    assert_eq!(
        (snapshot.as_str(), source),
        ("nightly-fsn1-1", &RestoreSource::S3(Bucket::Bootstrap))
    );
    assert_eq!(
        world.tasks(),
        [
            "StopK3s",
            "ResetRestore",
            "StartK3s",
            "WaitApi",
            "ForgetStaleNodes"
        ]
    );
    let last = events.last().unwrap();
    let result = OperationResult::read(
        &OperationKind::ClusterRestore,
        last.result.as_ref().unwrap(),
    )
    .unwrap();
    let Some(OperationResult::ClusterRestore(result)) = result else {
        panic!("{result:?}")
    };
    assert_eq!(result.forgotten_nodes[0].as_str(), "fsn1-server-9");
}

// rule OP-4: only what has not reported for two minutes is gone from the cluster.
#[test]
fn op_4_nodes_are_forgotten_after_two_minutes_of_grace() {
    let mut world = World::enrolled();
    world.offer(&restore("op_1", SnapshotSource::Local));
    world.run_operation();
    let last = world.node.performed.last().expect("it has five steps");
    assert!(
        matches!(&**last, Task::ForgetStaleNodes { grace_ms: 120_000 }),
        "{last:?}"
    );
}

// rules OPS-3, FAIL-3: the step's name, its message and the last 200 lines; nothing after it runs.
#[test]
fn ops_3_a_failed_step_reports_its_name_and_the_end_of_its_log() {
    for by_host in [true, false] {
        let mut world = World::enrolled();
        world.node.holds = Some("SaveSnapshot");
        world.offer(&save("op_1"));
        world.settle();
        let ticket = world.node.held.as_ref().unwrap().0;
        for chunk in 0..30 {
            let lines = (0..10)
                .map(|line| LogLine::new(format!("heard {}", chunk * 10 + line)))
                .collect();
            world.tell(Input::Progress(ticket, lines));
        }
        let mut failed = failure("etcd is not healthy");
        failed.log_tail = if by_host {
            (0..300)
                .map(|at| LogLine::new(format!("kept {at}")))
                .collect()
        } else {
            Vec::new()
        };
        world.release(Err(failed));
        let events = world.run_operation();
        assert_eq!(
            told(&events),
            [
                (1, Some(Step::Save), EventState::Started),
                (2, Some(Step::Save), EventState::Failed),
                (3, None, EventState::Failed)
            ]
        );
        let log = events[1].log_tail.as_ref().unwrap();
        let word = if by_host { "kept" } else { "heard" };
        assert_eq!(
            (log.len(), &log[0], &log[199]),
            (200, &format!("{word} 100"), &format!("{word} 299"))
        );
        assert_eq!(events[1].message.as_deref(), Some("etcd is not healthy"));
        assert_eq!(world.tasks(), ["SaveSnapshot"]);
    }
}

/// An operation that is answered without a step: state and reason of its only event.
fn refused(world: &mut World, offer: &OperationOffer) -> (EventState, Option<Reason>) {
    world.tasks();
    world.offer(offer);
    let events = world.run_operation();
    assert_eq!(
        (events.len(), events[0].sequence, events[0].step),
        (1, 1, None),
        "{events:?}"
    );
    assert_eq!(world.tasks(), [""; 0]);
    (events[0].state, events[0].reason.clone())
}

// rule OPS-5
#[test]
fn ops_5_an_unknown_operation_is_unsupported() {
    let mut unknown = save("op_1");
    unknown.kind = OperationKind::Unknown("shell.run".into());
    assert_eq!(
        refused(&mut World::enrolled(), &unknown),
        (EventState::Unsupported, None)
    );
}

// rules OPS-6, FAIL-2
#[test]
fn ops_6_with_the_api_down_only_a_restore_is_begun() {
    let mut world = World::enrolled();
    world.node.shows = api_down();
    let down = (EventState::Refused, Some(Reason::ApiDown));
    assert_eq!(refused(&mut world, &save("op_1")), down);
    assert_eq!(
        refused(
            &mut world,
            &offer("op_2", &Params::AgentRotateKey(NoParams {}))
        ),
        down
    );
    world.offer(&restore("op_3", SnapshotSource::Local));
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Succeeded
    );
}

// rule OPS-10: a secret in clear refuses the operation; another node's is not touched.
#[test]
fn ops_10_a_secret_in_clear_refuses_it_and_another_nodes_is_left_alone() {
    let mut clear = offer("op_1", &Params::S3Verify(secrets("x").s3));
    let json = clear.params.get().replace(
        &serde_json::to_string(&secrets("x").s3.secret_key).unwrap(),
        "\"clear\"",
    );
    clear.params = std::sync::Arc::from(serde_json::value::RawValue::from_string(json).unwrap());
    assert_eq!(
        refused(&mut World::enrolled(), &clear),
        (EventState::Refused, Some(Reason::UnsealedSecret))
    );

    let mut world = World::enrolled();
    let mut others = save("op_2");
    others.target = "fsn1-server-2".parse().unwrap();
    world.offer(&others);
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
    assert!(world.disk.operation.is_none() && world.disk.finished.is_empty());
    assert_eq!(world.tasks(), [""; 0]);

    let mut world = World::enrolled();
    world.node.another_leads();
    world.offer(&save("op_3"));
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Succeeded,
        "the target runs it, leading or not"
    );
}

#[test]
fn parameters_of_the_wrong_shape_fail_it() {
    let mut wrong = save("op_1");
    wrong.params =
        std::sync::Arc::from(serde_json::value::RawValue::from_string("{}".into()).unwrap());
    assert_eq!(
        refused(&mut World::enrolled(), &wrong),
        (EventState::Failed, None)
    );
}

// rule OPS-7: answered with what was recorded, in every later sync and after a restart, and not run again.
#[test]
fn ops_7_a_finished_operation_is_answered_again_and_not_run_again() {
    let mut world = World::enrolled();
    world.offer(&save("op_1"));
    let end = world.run_operation().pop().unwrap();
    world.tasks();
    for again in 0..3 {
        if again == 1 {
            world.crash();
        }
        world.offer(&save("op_1"));
        let sent = world.call();
        assert_eq!(sent.endpoint(), Endpoint::Events);
        assert_eq!(sent.events(), std::slice::from_ref(&end));
        world.answer_well();
    }
    assert_eq!(world.tasks(), [""; 0]);
    assert!(
        world
            .notes
            .iter()
            .any(|note| matches!(note, Note::OperationAnsweredAgain { .. }))
    );
}

// rules OPS-1, OPS-9: one at a time; what was recorded runs to its end, and the same ID with other content changes nothing.
#[test]
fn ops_9_what_was_recorded_counts_whatever_is_offered_later() {
    let mut world = World::enrolled();
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    let mut other_content = save("op_1");
    other_content.kind = OperationKind::ClusterRestore;
    let changed = |world: &mut World| {
        world
            .sync()
            .report()
            .problems
            .contains(&"operation_changed: op_1".to_owned())
    };

    for (offered, is_changed) in [
        (Some(save("op_2")), false),
        (None, false),
        (Some(other_content.clone()), true),
        (Some(save("op_1")), false),
    ] {
        let sent = world.sync();
        let running = sent.report().operation.clone().unwrap();
        assert_eq!(
            (running.id.as_str(), running.step, running.state),
            ("op_1", Some(Step::Save), OperationState::Running)
        );
        world.answer_sync(None, offered.clone());
        assert_eq!(changed(&mut world), is_changed, "{offered:?}");
    }
    world.answer_well();
    world.release_well();
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Succeeded
    );
    assert_eq!(world.tasks(), ["SaveSnapshot", "ConfirmSnapshot"]);

    world.offer(&other_content);
    assert!(changed(&mut world), "of a finished one, too");
    assert_eq!(world.tasks(), [""; 0]);
}

// rule OPS-2: a crash in any write of the record ends with every step done and every event told once, in order.
#[test]
fn ops_2_a_crash_in_any_write_ends_with_the_operation_done() {
    let mut died = 0;
    for (at, is_kept) in (1..=20).flat_map(|at| [(at, true), (at, false)]) {
        let mut world = World::enrolled();
        world.dies_in_store = Some((at, is_kept));
        let mut events: Vec<OperationEvent> = Vec::new();
        for _ in 0..60 {
            let Some(sent) = world.next_call() else {
                died += 1;
                world.crash();
                continue;
            };
            match sent.endpoint() {
                Endpoint::Sync if events.last().is_some_and(OperationEvent::is_final) => break,
                Endpoint::Sync => world.answer_sync(None, Some(save("op_1"))),
                Endpoint::Events => {
                    for event in sent.events() {
                        match events.iter().find(|known| known.sequence == event.sequence) {
                            Some(known) => {
                                assert_eq!(known, event, "a number's content never changes");
                            }
                            None => events.push(event.clone()),
                        }
                    }
                    world.answer_well();
                }
                _ => world.answer_well(),
            }
        }
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7], "write {at}, {is_kept}");
        assert_eq!(events[6].state, EventState::Succeeded);
    }
    assert!(died >= 10, "{died}");
}

/// A restore that died inside its destructive step, and what the node then shows of it.
fn died_inside_reset(evidence: Evidence<Done>) -> World {
    let mut world = World::enrolled();
    world.node.holds = Some("ResetRestore");
    world.offer(&restore("op_1", SnapshotSource::Local));
    world.settle();
    assert!(world.node.held.is_some());
    world.tasks();
    world.node.holds = None;
    world.node.evidence = Some(evidence);
    world.crash();
    world.settle();
    world
}

// rule OPS-4: a destructive step is looked at, and run again only if nothing of it has happened.
#[test]
fn ops_4_a_destructive_step_is_probed_after_a_crash() {
    let rest = ["StartK3s", "WaitApi", "ForgetStaleNodes"];

    let mut world = died_inside_reset(Evidence::NotStarted);
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Succeeded
    );
    assert_eq!(world.tasks(), ["ResetRestore", rest[0], rest[1], rest[2]]);
    assert!(world.node.probed[0].record().work.is_destructive());

    let mut world = died_inside_reset(Evidence::Completed(Done::Plain));
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Succeeded
    );
    assert_eq!(world.tasks(), rest);

    let mut world = died_inside_reset(Evidence::Unclear("half a datastore".into()));
    let events = world.run_operation();
    let failed = &events[events.len() - 2];
    assert_eq!(
        (failed.step, failed.state, failed.reason.clone()),
        (
            Some(Step::ResetRestore),
            EventState::Failed,
            Some(Reason::Unclear)
        )
    );
    assert!(
        failed
            .message
            .as_deref()
            .unwrap()
            .contains("half a datastore")
    );
    assert_eq!(world.tasks(), [""; 0], "never again by itself");
    world.crash();
    world.offer(&restore("op_1", SnapshotSource::Local));
    world.call();
    assert_eq!(world.tasks(), [""; 0], "nor when it is asked for again");
}

// rule OPS-4: a repeatable step is simply run again, without a probe.
#[test]
fn ops_4_a_repeatable_step_is_run_again() {
    let mut world = World::enrolled();
    world.node.holds = Some("StopK3s");
    world.offer(&restore("op_1", SnapshotSource::Local));
    world.settle();
    world.node.holds = None;
    world.crash();
    world.run_operation();
    assert_eq!(world.tasks()[0], "StopK3s");
    assert!(world.node.probed.is_empty());
    let again = world.node.performed.first();
    assert!(again.is_none_or(|task| matches!(task.record().work, Work::Operation { .. })));
}

// rule OPS-2: after a power cut k3s comes up later than the agent; what is resumed waits for it, but not for ever.
#[test]
fn ops_2_a_step_found_begun_waits_for_the_api() {
    let died_in_save = || {
        let mut world = World::enrolled();
        world.node.holds = Some("SaveSnapshot");
        world.offer(&save("op_1"));
        world.settle();
        world.node.holds = None;
        world.node.shows = api_down();
        world.crash();
        for _ in 0..3 {
            world.call();
            world.answer_well();
            assert_eq!(world.tasks(), [""; 0]);
        }
        world
    };
    let mut world = died_in_save();
    world.node.shows = healthy();
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Succeeded
    );

    let mut world = died_in_save();
    world.node.failures = vec![("SaveSnapshot", failure("the API does not answer"))];
    let began = world.now.monotonic;
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Failed
    );
    let waited = world.now.monotonic.since(began).as_secs();
    assert!((1_700..1_900).contains(&waited), "{waited}");
}

// The eleventh start in the middle of an operation fails it.
#[test]
fn ops_2_ten_starts_in_the_middle_are_enough() {
    let mut world = World::enrolled();
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    world.settle();
    for start in 1..=10 {
        world.crash();
        world.sync();
        assert!(world.node.held.is_some(), "start {start}");
        assert_eq!(world.disk.operation.as_ref().unwrap().resumes, start);
    }
    world.tasks();
    world.crash();
    let events = world.run_operation();
    assert_eq!(events.last().unwrap().reason, Some(Reason::ResumeLimit));
    assert_eq!(world.tasks(), [""; 0]);
}

// Sync goes on while a step runs; a task that has not ended by its deadline is told of, and waited for.
#[test]
fn a_task_is_never_cancelled_and_sync_goes_on_beside_it() {
    let mut world = World::enrolled();
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    let started = world.now.monotonic;
    let mut overdue = None;
    while overdue.is_none() {
        let wake = world.wake().unwrap();
        if wake.why == WakeReason::TaskDeadline {
            world.wait_for(wake);
            overdue = Some(world.now.monotonic);
        } else {
            world.call();
            world.answer_well();
        }
    }
    assert_eq!(overdue.unwrap().since(started).as_secs(), 1_800);
    assert!(
        world
            .sync()
            .report()
            .problems
            .contains(&"task_overdue: operation op_1 save".to_owned())
    );
    world.answer_well();
    world.release_well();
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Succeeded
    );
}

// rule SYNC-2: the document before the operation that came with it.
#[test]
fn sync_2_the_document_goes_before_the_operation() {
    let mut world = World::enrolled();
    world.take(&document(1));
    world.tasks();
    world.sync();
    world.answer_sync(Some(&document(2)), Some(save("op_1")));
    world.run_operation();
    assert_eq!(
        world.tasks(),
        [
            "WriteDropIns",
            "WriteSecrets",
            "SaveSnapshot",
            "ConfirmSnapshot"
        ]
    );
}
