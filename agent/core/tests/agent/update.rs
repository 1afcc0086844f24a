//! The agent's own update, from a document or a 426 to a program that stays or is put back (UPD-1 to UPD-6, ANS-6).

use std::sync::Arc;

use agent_core::machine::{Machine as _, WakeReason};
use agent_core::note::Note;
use agent_core::pbx::durable::{BanReason, SCHEMA, UpdateStep};
use agent_core::pbx::task::Task;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::Arch;
use protocol::pbx::call::{AnswerBody, Reply};
use protocol::pbx::release::{AgentArtifact, Manifest};
use protocol::pbx::sync::DocumentResult;
use protocol::problem::ProblemCode;
use protocol::sign::SigningKey;
use protocol::verified::ReleaseKeys;
use serde_json::value::RawValue;

use crate::operate::save;
use crate::world::{
    World, desired, enrolled, facts, failure, manifest, refusal, signed, signed_by,
};

/// A release with an agent for this architecture and another one.
fn release(version: &str, floor: u64, agent: &str) -> Manifest {
    let mut manifest = manifest(version, floor, agent);
    manifest.agent.artifacts = [Arch::Arm64, Arch::Amd64]
        .map(|arch| AgentArtifact {
            arch,
            url: format!("https://artifacts.example/{agent}-{arch}"),
            sha256: Sha256Hex::of(format!("{agent} {arch}").as_bytes()),
            size: 9_000_000,
        })
        .into();
    manifest
}

/// A document that names another release with another agent.
fn document(generation: u64, release: &str, agent: &str) -> Arc<RawValue> {
    let mut desired = desired(generation);
    desired.release = release.parse().unwrap();
    desired.agent_version = agent.parse().unwrap();
    desired.to_raw()
}

impl World {
    /// The document names agent 1.5.0 of release 2026.12.1, and its manifest comes.
    fn name_1_5_0(&mut self) {
        self.sync();
        self.answer_sync(Some(&document(2, "2026.12.1", "1.5.0")), None);
        if self.out_endpoint() == Some(Endpoint::Manifest) {
            let signed = signed(&release("2026.12.1", 2, "1.5.0"));
            self.answer(AnswerBody::Manifest(signed));
        }
    }

    /// The program that is in place now starts.
    fn starts_as(&mut self, version: &str) {
        self.facts.agent_version = version.parse().unwrap();
        self.crash();
    }

    /// The rollback timer has put agent 1.4.0 back.
    fn is_rolled_back(&mut self) {
        self.facts.rolled_back_from = Some("1.5.0".parse().unwrap());
        self.starts_as("1.4.0");
    }

    fn updating(&self) -> Option<UpdateStep> {
        self.disk.update.as_deref().map(|update| update.step)
    }

    /// Lives for so many seconds with a portal that wants that document.
    fn live_with(&mut self, raw: &Arc<RawValue>, seconds: u64) {
        let end = self.now.monotonic.plus_ms(seconds * 1_000);
        while self.now.monotonic < end {
            let Some(sent) = self.next_call() else { break };
            match sent.endpoint() {
                Endpoint::Sync => self.answer_sync(Some(raw), None),
                _ => self.answer_well(),
            }
        }
    }
}

const SWAP: [&str; 5] = [
    "FetchProgram",
    "CheckProgram",
    "KeepProgram",
    "ArmRollback",
    "SwapPrograms",
];

// rules UPD-1, SYNC-2: all in this order, before the host's configuration, and then the program ends.
#[test]
fn upd_1_the_program_that_the_document_names_takes_the_running_ones_place() {
    let mut world = World::enrolled();
    world.name_1_5_0();
    assert!(world.has_exited);
    assert!(world.agent.poll_action().is_none() && world.agent.poll_wake().is_none());
    for task in &world.node.performed {
        match &**task {
            Task::FetchProgram(program) => {
                assert_eq!(
                    program.sha256,
                    Sha256Hex::of(b"1.5.0 amd64"),
                    "for its architecture"
                );
            }
            Task::ArmRollback { version, after_ms } => {
                assert_eq!((version.as_str(), *after_ms), ("1.5.0", 600_000));
            }
            _ => {}
        }
    }
    assert_eq!(world.tasks(), SWAP, "before the rest of the document");
    assert_eq!(world.updating(), Some(UpdateStep::Trial));
    assert!(!world.disk.in_force);

    // rules SYNC-10, UPD-2: the first sync is at once, and the first good one commits.
    world.starts_as("1.5.0");
    let starts = world.now.monotonic;
    let first = world.sync();
    assert_eq!(first.at.monotonic, starts);
    assert_eq!(first.report().update.running.as_str(), "1.5.0");
    assert!(
        !world.tasks().contains(&"CommitProgram"),
        "not before the portal has answered"
    );
    world.answer_sync(Some(&document(2, "2026.12.1", "1.5.0")), None);
    assert!(world.tasks().contains(&"CommitProgram"));
    assert_eq!(world.updating(), None);
    assert!(world.disk.in_force);
    let told = world.sync();
    assert_eq!(told.report().document.result, DocumentResult::Applied);
    assert_eq!(told.report().update.rolled_back_from, None);
}

// rules UPD-2, ANS-6: nothing but a good sync commits a program on trial, and a 426 begins nothing.
#[test]
fn upd_2_a_trial_ends_with_a_good_sync_alone() {
    let mut world = World::enrolled();
    world.name_1_5_0();
    world.starts_as("1.5.0");
    for _ in 0..3 {
        let mut too_old = refusal(ProblemCode::ProtocolTooOld);
        too_old.release = Some("2027.1.1".parse().unwrap());
        for reply in [
            Reply::Refused(too_old),
            Reply::Refused(refusal(ProblemCode::Internal)),
            crate::world::broken(),
        ] {
            world.sync();
            world.reply(Ok(reply));
        }
        world.sync();
        world.unreachable();
    }
    assert_eq!(world.updating(), Some(UpdateStep::Trial));
    assert!(!world.tasks().contains(&"CommitProgram"));
    // A crash in the trial is no end of it either.
    world.crash();
    assert_eq!(world.updating(), Some(UpdateStep::Trial));
    world.sync();
    world.answer_sync(None, None);
    assert!(world.tasks().contains(&"CommitProgram"));
}

// rule UPD-3: reported, the rest of the document in force, and that version left alone for six hours.
#[test]
fn upd_3_a_version_that_was_rolled_back_is_left_alone_for_six_hours() {
    let mut world = World::enrolled();
    world.name_1_5_0();
    world.tasks();
    world.starts_as("1.5.0");
    world.settle();
    world.is_rolled_back();
    let raw = document(2, "2026.12.1", "1.5.0");
    let first = world.sync();
    let told = first.report().update.clone();
    assert_eq!(told.running.as_str(), "1.4.0");
    assert_eq!(
        told.rolled_back_from.unwrap().as_str(),
        "1.5.0",
        "in the first report"
    );
    world.answer_sync(Some(&raw), None);
    let told = world.sync().report().document.clone();
    world.answer_sync(Some(&raw), None);
    assert_eq!(
        (told.result, told.applied_generation.0),
        (DocumentResult::Failed, 2)
    );
    assert!(told.message.unwrap().contains("1.5.0: it was rolled back"));
    // Neither starts of the program nor a clock that is set make it shorter.
    for _ in 0..5 {
        world.live_with(&raw, 3_600);
        world.set_clock(86_400_000 * 30);
        world.crash();
        world.set_clock(-86_400_000 * 30);
    }
    world.live_with(&raw, 3_000);
    let tasks = world.tasks();
    assert!(tasks.contains(&"WriteDropIns"), "{tasks:?}");
    assert!(!tasks.contains(&"FetchProgram"), "{tasks:?}");
    for _ in 0..60 {
        if world.has_exited {
            break;
        }
        world.sync();
        world.answer_sync(Some(&raw), None);
    }
    assert!(world.has_exited, "after six hours it is tried again");
    assert_eq!(world.tasks().first(), Some(&"FetchProgram"));
}

// rule UPD-3: another version is not meant.
#[test]
fn upd_3_another_version_is_taken_while_one_is_left_alone() {
    let mut world = World::enrolled();
    world.name_1_5_0();
    world.is_rolled_back();
    world.sync();
    world.answer_sync(Some(&document(3, "2026.12.2", "1.5.1")), None);
    let signed = signed(&release("2026.12.2", 3, "1.5.1"));
    world.answer(AnswerBody::Manifest(signed));
    assert!(world.has_exited);
}

// rules OPS-9, UPD-1: the update waits for an operation, and an operation for the end of a trial.
#[test]
fn ops_9_an_update_and_an_operation_wait_for_each_other() {
    let mut world = World::enrolled();
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    world.name_1_5_0();
    world.live_with(&document(2, "2026.12.1", "1.5.0"), 300);
    assert_eq!(world.tasks(), [""; 0]);
    world.release_well();
    assert!(world.has_exited);
    let mut tasks = world.tasks();
    tasks.retain(|task| !task.starts_with("Write"));
    let expected = ["SaveSnapshot", "ConfirmSnapshot"].into_iter().chain(SWAP);
    assert_eq!(tasks, expected.collect::<Vec<_>>());

    world.starts_as("1.5.0");
    world.offer(&save("op_2"));
    assert!(
        !world.tasks().contains(&"SaveSnapshot"),
        "not while it is on trial"
    );
    world.offer(&save("op_2"));
    assert!(world.tasks().contains(&"SaveSnapshot"));

    // One that comes while the program is fetched goes before the rest of the update.
    let mut world = World::enrolled();
    world.node.holds = Some("FetchProgram");
    world.name_1_5_0();
    world.offer(&save("op_3"));
    world.release_well();
    let mut tasks = world.tasks();
    tasks.retain(|task| !task.starts_with("Write"));
    let expected = ["FetchProgram", "SaveSnapshot", "ConfirmSnapshot"];
    assert_eq!(tasks[..3], expected);

    // And in the last moment before the timer is armed: neither waits for the other.
    let mut world = World::enrolled();
    world.node.holds = Some("KeepProgram");
    world.name_1_5_0();
    world.offer(&save("op_4"));
    world.release_well();
    world.live_with(&document(2, "2026.12.1", "1.5.0"), 120);
    let mut tasks = world.tasks();
    tasks.retain(|task| !task.starts_with("Write"));
    let saved = ["SaveSnapshot", "ConfirmSnapshot"].into_iter();
    let expected = SWAP[..3]
        .iter()
        .copied()
        .chain(saved)
        .chain(SWAP[2..].iter().copied());
    assert_eq!(tasks, expected.collect::<Vec<_>>());
    assert!(world.has_exited);
}

// What fails before the swap is tried again, and holds nothing else up.
#[test]
fn a_program_that_cannot_be_fetched_holds_nothing_up() {
    let mut world = World::enrolled();
    world
        .node
        .failures
        .extend([(); 3].map(|()| ("FetchProgram", failure("404 Not Found"))));
    world.name_1_5_0();
    world.settle();
    assert_eq!(
        world.tasks(),
        ["FetchProgram", "WriteDropIns", "WriteSecrets"]
    );
    let told = world.sync().report().document.clone();
    assert_eq!(told.result, DocumentResult::Failed);
    assert!(told.message.unwrap().contains("1.5.0: 404 Not Found"));
    world.live_with(&document(2, "2026.12.1", "1.5.0"), 1_200);
    assert!(world.has_exited);
}

#[test]
fn a_program_that_does_not_run_never_replaces_one_that_does() {
    let mut world = World::enrolled();
    world
        .node
        .failures
        .push(("CheckProgram", failure("exec format error")));
    world.name_1_5_0();
    world.settle();
    assert_eq!(
        world.tasks(),
        [
            "FetchProgram",
            "CheckProgram",
            "WriteDropIns",
            "WriteSecrets"
        ]
    );
    assert_eq!(world.disk.bans[0].reason, BanReason::DoesNotRun);
    assert_eq!(
        world.sync().report().update.rolled_back_from,
        None,
        "it never ran"
    );
}

// rule UPD-1: no program for this architecture is no update.
#[test]
fn upd_1_a_release_without_a_program_for_this_node_fails_its_part_alone() {
    let mut world = World::enrolled();
    let mut release = release("2026.12.1", 2, "1.5.0");
    release.agent.artifacts.truncate(1);
    world.sync();
    world.answer_sync(Some(&document(2, "2026.12.1", "1.5.0")), None);
    world.answer(AnswerBody::Manifest(signed(&release)));
    assert_eq!(world.tasks(), ["WriteDropIns", "WriteSecrets"]);
    let told = world.sync().report().document.clone();
    assert_eq!(told.result, DocumentResult::Failed);
    assert!(told.message.unwrap().contains("no agent 1.5.0 for amd64"));
}

// rule UPD-5: before the swap is repeated the timer is armed anew; after it the program that runs is what counts.
#[test]
fn upd_5_what_a_start_makes_of_an_update_that_was_under_way() {
    let at = |step: &'static str| {
        let mut world = World::enrolled();
        world.node.holds = Some(step);
        world.name_1_5_0();
        world.tasks();
        world.node.holds = None;
        world
    };
    // Where it fell, the program that starts, and what is done then. The portal is heard first.
    let rows: [(&str, &str, &[&str]); 4] = [
        ("FetchProgram", "1.4.0", &SWAP),
        ("ArmRollback", "1.4.0", &["ArmRollback", "SwapPrograms"]),
        ("SwapPrograms", "1.4.0", &["ArmRollback", "SwapPrograms"]),
        ("SwapPrograms", "1.5.0", &["CommitProgram"]),
    ];
    for (step, starts, expected) in rows {
        let mut world = at(step);
        world.starts_as(starts);
        world.sync();
        world.answer_sync(None, None);
        let mut tasks = world.tasks();
        tasks.retain(|task| !task.starts_with("Write"));
        assert_eq!(tasks, expected, "{step}, {starts} starts");
    }
    // The timer has fired before the swap: the program never came to run, and is left alone all the same.
    let mut world = at("SwapPrograms");
    world.is_rolled_back();
    world.settle();
    assert_eq!(world.disk.bans[0].reason, BanReason::RolledBack);
}

// rule UPD-1: what cannot be swapped is not armed for ever; the timer that runs puts everything in order.
#[test]
fn upd_1_a_swap_that_fails_again_and_again_is_left_to_the_timer() {
    let mut world = World::enrolled();
    let gone = || ("SwapPrograms", failure("there is no pbx-agent.new"));
    world.node.failures.extend([gone(), gone(), gone()]);
    world.name_1_5_0();
    world.live_with(&document(2, "2026.12.1", "1.5.0"), 1_200);
    let mut tasks = world.tasks();
    tasks.retain(|task| matches!(*task, "ArmRollback" | "SwapPrograms"));
    assert_eq!(tasks, ["ArmRollback", "SwapPrograms"].repeat(3));
    let told = world.sync().report().document.clone();
    assert_eq!(
        told.result,
        DocumentResult::Pending,
        "nothing else is begun"
    );
    world.answer_well();
    world.is_rolled_back();
    world.settle();
    assert_eq!(world.disk.bans[0].reason, BanReason::RolledBack);
    assert!(world.disk.update.is_none());
}

// An answer of the portal that is a moment old is wanted before a trial can begin.
#[test]
fn no_program_is_swapped_while_the_portal_is_not_heard() {
    let mut world = World::enrolled();
    world.node.holds = Some("FetchProgram");
    world.name_1_5_0();
    for _ in 0..6 {
        world.call();
        world.unreachable();
    }
    world.release_well();
    assert_eq!(
        world.tasks(),
        ["FetchProgram", "CheckProgram", "KeepProgram"]
    );
    world.call();
    world.unreachable();
    assert_eq!(world.tasks(), [""; 0]);
    world.sync();
    world.refuse(ProblemCode::Internal);
    assert_eq!(world.tasks(), ["ArmRollback", "SwapPrograms"]);
}

// Until its update is committed a program writes what the one before can read.
#[test]
fn a_program_on_trial_writes_the_schema_of_the_one_before() {
    let mut world = World::enrolled();
    world.name_1_5_0();
    let mut durable = agent_core::pbx::durable::Durable::clone(&world.disk);
    durable.schema = SCHEMA - 1;
    world.disk = Arc::new(durable.clone());
    world.starts_as("1.5.0");
    world.sync();
    world.unreachable();
    assert_eq!(world.disk.schema, SCHEMA - 1, "on trial");
    world.sync();
    world.answer_sync(None, None);
    assert_eq!(world.disk.schema, SCHEMA, "committed");

    durable.update = None;
    let mut world = World::with(durable, 1);
    world.settle();
    assert_eq!(world.disk.schema, SCHEMA, "without an update");
}

fn too_old(world: &mut World, release: Option<&str>) {
    world.sync();
    let mut refusal = refusal(ProblemCode::ProtocolTooOld);
    refusal.release = release.map(|release| release.parse().unwrap());
    world.reply(Ok(Reply::Refused(refusal)));
}

// rule ANS-6: to the agent of the release that the portal names, whatever the document says; and not back.
#[test]
fn ans_6_a_426_brings_the_agent_of_the_release_that_it_names() {
    let mut world = World::enrolled();
    world.take(&crate::world::document(1));
    world.tasks();
    too_old(&mut world, Some("2026.12.1"));
    let sent = world.call();
    assert_eq!(sent.endpoint(), Endpoint::Manifest, "before the next sync");
    assert!(matches!(world.wake(), None | Some(_)));
    world.answer(AnswerBody::Manifest(signed(&release(
        "2026.12.1",
        2,
        "1.5.0",
    ))));
    assert!(world.has_exited);
    assert_eq!(world.tasks(), SWAP);
    world.starts_as("1.5.0");
    let raw = crate::world::document(1);
    world.live_with(&raw, 600);
    assert!(
        !world.has_exited,
        "the document's agent is the one that is too old"
    );
    assert_eq!(world.disk.bans[0].reason, BanReason::TooOld);
}

// rules ANS-6, UPD-3, UPD-4, UPD-6: what is not taken is reported, backed off from, and asked for once in six hours.
#[test]
fn ans_6_a_426_that_leads_nowhere_is_backed_off_from_and_tried_once_in_six_hours() {
    let forged = signed_by(
        &SigningKey::from_seed([66; 32]),
        &release("2026.12.1", 9, "1.5.0"),
    );
    let rows = [
        (
            "the running version",
            signed(&release("2026.12.1", 9, "1.4.0")),
            "which runs",
        ),
        (
            "below the floor",
            signed(&release("2026.12.1", 4, "1.5.0")),
            "below 5",
        ),
        ("not verified", forged, "no signature"),
        (
            "banned",
            signed(&release("2026.12.1", 9, "1.4.9")),
            "left alone",
        ),
        (
            "another release",
            signed(&release("2026.11.9", 9, "1.5.0")),
            "names release",
        ),
    ];
    for (case, manifest, says) in rows {
        let mut durable = enrolled();
        durable.floor = 5;
        durable.bans.push(agent_core::pbx::durable::Ban {
            version: "1.4.9".parse().unwrap(),
            reason: BanReason::RolledBack,
            until: None,
        });
        let mut world = World::with(durable, 1);
        world.sync();
        world.answer_sync(None, None);
        too_old(&mut world, Some("2026.12.1"));
        assert_eq!(world.call().endpoint(), Endpoint::Manifest, "{case}");
        world.answer(AnswerBody::Manifest(manifest));
        let refused = world.notes.iter().find_map(|note| match note {
            Note::UpdateRefused { why, .. } => Some(why.clone()),
            _ => None,
        });
        assert!(
            refused.as_deref().is_some_and(|why| why.contains(says)),
            "{case}: {refused:?}"
        );
        assert_eq!(world.tasks(), [""; 0], "{case}");
        for turn in 0..5 {
            if turn == 3 {
                world.crash();
            }
            too_old(&mut world, Some("2026.12.1"));
            let wake = world.wake().unwrap();
            assert!(
                matches!(wake.why, WakeReason::Backoff { .. }),
                "{case}: {wake:?}"
            );
        }
        assert_eq!(world.call().endpoint(), Endpoint::Sync, "{case}");
    }
    // No release at all, and one without keys.
    let mut world = World::enrolled();
    too_old(&mut world, None);
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
    let mut facts = facts();
    facts.release_keys = Arc::new(ReleaseKeys::none());
    let mut world = World::with_facts(enrolled(), facts, 1);
    too_old(&mut world, Some("2026.12.1"));
    assert_eq!(world.call().endpoint(), Endpoint::Sync, "rule UPD-4");
}

// rule ANS-6
#[test]
fn ans_6_after_six_hours_the_release_is_asked_for_again() {
    let mut world = World::enrolled();
    too_old(&mut world, Some("2026.12.1"));
    world.call();
    world.refuse(ProblemCode::NotFound);
    too_old(&mut world, Some("2026.12.1"));
    assert_eq!(world.call().endpoint(), Endpoint::Sync, "once");
    world.answer_sync(None, None);
    world.pass_ms(6 * 3_600_000 + 1_000);
    world.sync();
    world.answer_sync(None, None);
    too_old(&mut world, Some("2026.12.1"));
    assert_eq!(world.call().endpoint(), Endpoint::Manifest);
}
