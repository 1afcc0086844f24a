//! The document lane: taken whole or not at all, then put into force (SYNC-2 to SYNC-7, SEAL-2, SEAL-3, UPD-4, UPD-6).

use std::sync::Arc;

use agent_core::journal::Work;
use agent_core::machine::WakeReason;
use agent_core::pbx::task::{Secrets, Task};
use protocol::endpoint::Endpoint;
use protocol::id::Generation;
use protocol::pbx::call::{AnswerBody, Reply, Request};
use protocol::pbx::operation::{Params, SnapshotSaveParams};
use protocol::pbx::release::Manifest;
use protocol::pbx::sync::{DesiredState, DocumentReport, DocumentResult, IngressMode};
use protocol::problem::ProblemCode;
use protocol::sign::SigningKey;
use protocol::verified::{ReleaseKeys, SignedManifest};
use serde_json::value::RawValue;

use crate::world::{
    Sent, World, api_down, desired, document, enrolled, facts, failure, manifest, offer, refusal,
    secrets, signed, signed_by,
};

fn raw(json: String) -> Arc<RawValue> {
    Arc::from(RawValue::from_string(json).unwrap())
}

fn changed(generation: u64, change: impl FnOnce(&mut DesiredState)) -> Arc<RawValue> {
    let mut desired = desired(generation);
    change(&mut desired);
    desired.to_raw()
}

impl World {
    /// Offers a document, and the manifest if it is asked for.
    fn offer_document(&mut self, raw: &Arc<RawValue>, manifest: &Arc<SignedManifest>) {
        self.sync();
        self.answer_sync(Some(raw), None);
        if let Some(Endpoint::Manifest) = self.out_endpoint() {
            self.answer(AnswerBody::Manifest(Arc::clone(manifest)));
        }
    }

    fn document_report(&mut self) -> DocumentReport {
        self.sync().report().document.clone()
    }
}

fn report(
    applied: u64,
    seen: u64,
    result: DocumentResult,
    message: Option<&str>,
) -> DocumentReport {
    DocumentReport {
        applied_generation: Generation(applied),
        seen_generation: Generation(seen),
        result,
        message: message.map(str::to_owned),
    }
}

// rules SYNC-2, SYNC-4: manifest, secrets, disk, host, cluster; in this order, each once.
#[test]
fn sync_4_a_document_is_taken_whole_and_then_put_into_force() {
    let mut world = World::enrolled();
    let first = document(1);
    world.sync();
    world.answer_sync(Some(&first), None);
    assert_eq!(world.call().endpoint(), Endpoint::Manifest);
    assert!(
        world.disk.document.is_none(),
        "not before the manifest is verified"
    );
    assert_eq!(world.tasks(), [""; 0]);

    world.node.holds = Some("WriteDropIns");
    world.answer_well();
    assert_eq!(world.node.opened, 3);
    let taken = world.disk.document.clone().unwrap();
    assert_eq!(
        (taken.generation, taken.raw.get()),
        (Generation(1), first.get())
    );
    assert!(!world.disk.in_force, "not before the host has it");
    assert_eq!(
        world.document_report(),
        report(0, 1, DocumentResult::Pending, None)
    );
    world.answer_sync(Some(&first), None);
    world.release_well();
    assert_eq!(world.tasks(), ["WriteDropIns", "WriteSecrets"]);
    assert_eq!(
        world.document_report(),
        report(1, 1, DocumentResult::Applied, None)
    );
    world.answer_sync(Some(&first), None);
    assert_eq!(
        world.call().endpoint(),
        Endpoint::Sync,
        "the same again costs nothing"
    );
    assert_eq!(world.node.opened, 3);
}

// A document that came as other bytes of the same text is the same.
#[test]
fn an_unchanged_document_is_known_by_its_bytes() {
    let mut world = World::enrolled();
    world.take(&document(1));
    world.tasks();
    let stores = world.stores;
    world.sync();
    world.answer_sync(Some(&document(1)), None);
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
    assert_eq!((world.tasks(), world.stores), (vec![], stores));
}

fn forged(manifest: &Manifest) -> Arc<SignedManifest> {
    signed_by(&SigningKey::from_seed([66; 32]), manifest)
}

// rules SYNC-4, FAIL-4, UPD-6: refused, reported, nothing changes; and once it is right, it is taken.
#[test]
fn upd_6_a_manifest_that_does_not_count_changes_nothing() {
    let right = manifest("2026.11.1", 5, "1.4.0");
    let rows = [
        ("fail_4: another key", forged(&right), "no signature"),
        (
            "upd_6: another release",
            signed(&manifest("2026.10.1", 5, "1.4.0")),
            "names release 2026.10.1",
        ),
        (
            "upd_6: below the floor",
            signed(&manifest("2026.11.1", 4, "1.4.0")),
            "floor 4 is below 5",
        ),
        (
            "upd_6: another agent",
            signed(&manifest("2026.11.1", 5, "1.5.0")),
            "agent 1.5.0",
        ),
    ];
    for (case, wrong, says) in rows {
        let mut durable = enrolled();
        durable.floor = 5;
        let mut world = World::with(durable, 1);
        world.offer_document(&document(1), &wrong);
        let told = world.document_report();
        assert_eq!(told.result, DocumentResult::ManifestRejected, "{case}");
        assert!(
            told.message.as_deref().unwrap().contains(says),
            "{case}: {told:?}"
        );
        assert_eq!(
            (told.applied_generation.0, told.seen_generation.0),
            (0, 1),
            "{case}"
        );
        assert_eq!(world.tasks(), [""; 0], "{case}");
        assert_eq!(world.node.opened, 0, "{case}");
        assert!(world.disk.document.is_none(), "{case}");

        world.answer_sync(Some(&document(1)), None);
        world.answer(AnswerBody::Manifest(signed(&right)));
        assert_eq!(
            world.document_report().result,
            DocumentResult::Applied,
            "{case}"
        );
    }
}

// rule UPD-6: the floor that was seen is on disk, and only grows.
#[test]
fn upd_6_the_floor_is_remembered() {
    let mut world = World::enrolled();
    world.offer_document(&document(1), &signed(&manifest("2026.11.1", 7, "1.4.0")));
    world.settle();
    assert_eq!(world.disk.floor, 7);
    world.crash();
    let next = changed(2, |desired| desired.release = "2026.11.2".parse().unwrap());
    world.offer_document(&next, &signed(&manifest("2026.11.2", 6, "1.4.0")));
    assert_eq!(
        world.document_report().result,
        DocumentResult::ManifestRejected
    );
}

// rule UPD-4: without release keys every manifest is refused, and none is asked for.
#[test]
fn upd_4_without_release_keys_every_manifest_is_refused() {
    let mut facts = facts();
    facts.release_keys = Arc::new(ReleaseKeys::none());
    let mut world = World::with_facts(enrolled(), facts, 1);
    world.sync();
    world.answer_sync(Some(&document(1)), None);
    let next = world.call();
    assert_eq!(next.endpoint(), Endpoint::Sync);
    assert_eq!(
        next.report().document.result,
        DocumentResult::ManifestRejected
    );
}

// rules SEAL-2, FAIL-5: a secret in clear refuses the whole document; the operation beside it runs.
#[test]
fn seal_2_a_secret_in_clear_refuses_the_whole_document() {
    for clear in [
        "\"AKIA\"",
        r#"{"sealed": "AA==", "x": 1}"#,
        "null",
        r#"["AA=="]"#,
    ] {
        let sealed = serde_json::to_string(&desired(1).secrets.s3.access_key).unwrap();
        let json = document(1).get().replace(&sealed, clear);
        let mut world = World::enrolled();
        let save = Params::SnapshotSave(SnapshotSaveParams {
            name: "nightly".parse().unwrap(),
        });
        world.sync();
        world.answer_sync(Some(&raw(json)), Some(offer("op_1", &save)));
        let sent = world.sync();
        let told = &sent.report().document;
        assert_eq!(told.result, DocumentResult::UnsealedSecret, "{clear}");
        assert_eq!(told.seen_generation, Generation(1));
        let message = told.message.as_deref().unwrap();
        assert!(
            message.contains("secrets.s3.access_key") && !message.contains("AKIA"),
            "{message}"
        );
        assert_eq!(
            world.tasks(),
            ["SaveSnapshot", "ConfirmSnapshot"],
            "only the operation"
        );
        assert!(world.disk.document.is_none());
    }
}

// rule SEAL-3: a secret that does not open refuses the whole document, before anything is done.
#[test]
fn seal_3_a_secret_that_does_not_open_refuses_the_whole_document() {
    let mut world = World::enrolled();
    world.node.unopenable = Some("secrets.hcloud_token");
    world.offer_document(&document(1), &signed(&manifest("2026.11.1", 1, "1.4.0")));
    let told = world.document_report();
    assert_eq!(
        told,
        report(
            0,
            1,
            DocumentResult::UnopenableSecret,
            Some("secrets.hcloud_token does not open")
        )
    );
    assert_eq!(world.tasks(), [""; 0]);
    assert!(world.disk.document.is_none());

    world.node.unopenable = None;
    world.answer_sync(Some(&document(1)), None);
    world.answer_well();
    assert_eq!(world.document_report().result, DocumentResult::Applied);
}

// rule SYNC-7
#[test]
fn sync_7_an_older_document_is_refused() {
    let mut world = World::enrolled();
    world.take(&document(5));
    world.tasks();
    world.sync();
    world.answer_sync(Some(&document(4)), None);
    let told = world.document_report();
    assert_eq!(
        told,
        report(
            5,
            4,
            DocumentResult::StaleDocument,
            Some("generation 5 was taken before")
        )
    );
    assert_eq!(world.tasks(), [""; 0]);
    world.answer_sync(Some(&document(5)), None);
    assert_eq!(
        world.document_report(),
        report(5, 5, DocumentResult::Applied, None)
    );
}

// rule SYNC-7: what was taken counts, be it in force or not: a portal that goes back shows that it has lost something.
#[test]
fn sync_7_a_document_older_than_the_one_being_applied_is_refused() {
    let mut world = World::enrolled();
    world.take(&document(3));
    world.node.shows = api_down();
    world.sync();
    world.answer_sync(Some(&document(5)), None);
    world.settle();
    assert!(!world.disk.in_force, "5 waits for the API");
    world.sync();
    world.answer_sync(Some(&document(4)), None);
    let told = world.document_report();
    assert_eq!(
        (told.applied_generation, told.result),
        (Generation(3), DocumentResult::StaleDocument)
    );
}

#[test]
fn a_document_of_the_wrong_shape_is_refused_and_keeps_its_generation() {
    let mut world = World::enrolled();
    world.sync();
    world.answer_sync(
        Some(&raw(document(3).get().replace(
            "\"snapshot_retention\":14",
            "\"snapshot_retention\":[]",
        ))),
        None,
    );
    let told = world.document_report();
    assert_eq!(
        (told.result, told.seen_generation),
        (DocumentResult::Failed, Generation(3))
    );
    assert!(told.message.unwrap().contains("snapshot_retention"));
}

// rules SYNC-6, FAIL-2: only the leader touches the cluster, and nobody while the API is down.
#[test]
fn sync_6_only_the_leader_touches_the_cluster() {
    let mut world = crate::lead::real();
    world.node.another_leads();
    world.take(&document(1));
    assert_eq!(world.tasks(), ["WriteDropIns"]);
    assert_eq!(world.document_report().result, DocumentResult::Applied);
    world.answer_sync(Some(&document(1)), None);
    world.node.no_other_is_left();
    for _ in 0..2 {
        world.sync();
        world.answer_sync(Some(&document(1)), None);
    }
    assert_eq!(world.tasks(), ["WriteSecrets"], "as soon as it leads");

    let mut world = World::enrolled();
    world.node.shows = api_down();
    world.offer_document(&document(1), &signed(&manifest("2026.11.1", 1, "1.4.0")));
    let told = world.document_report();
    assert_eq!(
        (told.result, told.applied_generation.0),
        (DocumentResult::Pending, 0)
    );
    assert!(told.message.unwrap().contains("API is down"));
    assert_eq!(world.tasks(), ["WriteDropIns"]);
    world.answer_sync(Some(&document(1)), None);
    world.node.shows = crate::world::healthy();
    world.sync();
    assert_eq!(world.tasks(), ["WriteSecrets"]);
    world.answer_sync(Some(&document(1)), None);
    assert_eq!(world.document_report().result, DocumentResult::Applied);
}

// rule SYNC-3: every 10 minutes, though nothing has changed; also while the portal is away (FAIL-1).
#[test]
fn sync_3_the_clusters_configuration_is_applied_again_every_10_minutes() {
    let mut world = World::enrolled();
    world.take(&document(1));
    world.tasks();
    let applied = world.now.monotonic;
    let mut last = applied;
    for _ in 0..3 {
        while world.node.performed.is_empty() {
            world.sync();
            world.unreachable();
            while let Some(wake) = world.wake() {
                if wake.why == WakeReason::Reapply {
                    world.wait_for(wake);
                    break;
                }
                if matches!(wake.why, WakeReason::Backoff { .. }) {
                    break;
                }
            }
        }
        let again = world.node.performed.last().unwrap();
        assert!(
            matches!(&**again, Task::WriteSecrets(Secrets::Document(those)) if **those == secrets("document"))
        );
        assert_eq!(world.tasks(), ["WriteSecrets"]);
        let gap = world.now.monotonic.since(last).as_secs();
        assert!((600..=601).contains(&gap), "{gap}");
        last = world.now.monotonic;
    }
}

// A task that fails is tried again, the document reported as failed meanwhile, and what was done is not done again.
#[test]
fn a_failed_task_fails_the_document_until_it_succeeds() {
    let mut world = World::enrolled();
    world
        .node
        .failures
        .push(("WriteSecrets", failure("the API answered 500")));
    world.offer_document(&document(1), &signed(&manifest("2026.11.1", 1, "1.4.0")));
    assert_eq!(
        world.wake().unwrap().why,
        WakeReason::TaskRetry { failures: 1 }
    );
    assert!(!world.disk.in_force);
    assert_eq!(
        world.document_report().result,
        DocumentResult::Applied,
        "after the second try"
    );
    assert_eq!(
        world.tasks(),
        ["WriteDropIns", "WriteSecrets", "WriteSecrets"]
    );
}

// rules FILE-16, WIRE-5: an unknown mode fails its own part alone.
#[test]
fn wire_5_an_unknown_ingress_mode_fails_its_part_alone() {
    let mut world = World::enrolled();
    let strange = changed(1, |desired| {
        desired.host.ingress_mode = IngressMode::Unknown("mesh".into());
    });
    world.offer_document(&strange, &signed(&manifest("2026.11.1", 1, "1.4.0")));
    world.settle();
    let Task::WriteDropIns(drop_ins) = &*world.node.performed[0] else {
        panic!("the drop-ins first")
    };
    assert_eq!(
        (drop_ins.snapshot_retention, &drop_ins.ingress_mode),
        (14, &None)
    );
    assert_eq!(world.tasks(), ["WriteDropIns", "WriteSecrets"]);
    let told = world.document_report();
    assert_eq!(
        (told.applied_generation.0, told.result),
        (1, DocumentResult::Failed)
    );
    assert!(told.message.unwrap().contains("mesh"));
}

// The same generation in other bytes (sealed anew): opened and kept, its manifest not fetched again.
#[test]
fn a_document_sealed_anew_is_opened_and_kept() {
    let mut world = World::enrolled();
    world.take(&document(1));
    world.tasks();
    let anew = changed(1, |desired| desired.secrets = secrets("anew"));
    world.sync();
    world.answer_sync(Some(&anew), None);
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
    assert_eq!(world.node.opened, 6);
    assert_eq!(world.disk.document.as_ref().unwrap().raw.get(), anew.get());
    assert!(world.disk.in_force);
    let last = world.node.performed.last().unwrap();
    assert!(
        matches!(&**last, Task::WriteSecrets(Secrets::Document(those)) if **those == secrets("anew"))
    );
}

/// A document, and three refusals of its manifest.
fn with_refused_manifest() -> World {
    let mut world = World::enrolled();
    world.sync();
    world.answer_sync(Some(&document(1)), None);
    for _ in 0..3 {
        assert_eq!(world.call().endpoint(), Endpoint::Manifest);
        world.refuse(ProblemCode::InvalidRequest);
    }
    world
}

// rule ANS-2 for a manifest: three times, reported with the code, and not asked for again until another is named.
#[test]
fn ans_2_a_manifest_that_is_refused_is_not_asked_for_again() {
    let mut world = with_refused_manifest();
    for generation in [1, 1, 2] {
        let sent = world.call();
        assert_eq!(sent.endpoint(), Endpoint::Sync);
        let told = &sent.report().document;
        assert_eq!(told.result, DocumentResult::ManifestRejected);
        assert!(told.message.as_deref().unwrap().contains("invalid_request"));
        world.answer_sync(Some(&document(generation)), None);
    }
    world.sync();
    let other = changed(3, |desired| desired.release = "2026.12.1".parse().unwrap());
    world.answer_sync(Some(&other), None);
    assert_eq!(world.call().endpoint(), Endpoint::Manifest);

    world.crash();
    world.sync();
    world.answer_sync(Some(&document(2)), None);
    assert_eq!(
        world.call().endpoint(),
        Endpoint::Manifest,
        "after a restart it is asked for"
    );
}

// rule ANS-2 for a manifest: nor until a 426 has named another one.
#[test]
fn ans_2_a_manifest_that_is_refused_is_asked_for_again_once_a_426_has_named_another() {
    let mut world = with_refused_manifest();
    let asks_again = |world: &mut World, named: &str| {
        world.sync();
        let mut too_old = refusal(ProblemCode::ProtocolTooOld);
        too_old.release = Some(named.parse().unwrap());
        world.reply(Ok(Reply::Refused(too_old)));
        let asks = |sent: &Sent, release: &str| match &sent.call.request {
            Request::Manifest(asked) => asked.as_str() == release,
            _ => false,
        };
        let mut sent = world.call();
        if asks(&sent, "2027.1.1") {
            world.refuse(ProblemCode::NotFound);
            sent = world.call();
        }
        assert_eq!(sent.endpoint(), Endpoint::Sync);
        world.answer_sync(Some(&document(1)), None);
        asks(&world.call(), "2026.11.1")
    };
    assert!(!asks_again(&mut world, "2026.11.1"), "the same one");
    world.answer_sync(Some(&document(1)), None);
    assert!(asks_again(&mut world, "2027.1.1"), "another one");
}

// rule ANS-2 for a manifest: another document that names the same release asks for the same manifest, so its refusals go on
// counting.
#[test]
fn ans_2_refusals_of_a_manifest_count_for_every_document_of_its_release() {
    let mut world = World::enrolled();
    let ask = |world: &mut World, generation| {
        world.sync();
        world.answer_sync(Some(&document(generation)), None);
        assert_eq!(world.call().endpoint(), Endpoint::Manifest);
    };
    ask(&mut world, 1);
    world.refuse(ProblemCode::InvalidRequest);
    assert_eq!(world.call().endpoint(), Endpoint::Manifest);
    world.refuse(ProblemCode::NotFound);
    ask(&mut world, 2);
    world.refuse(ProblemCode::InvalidRequest);
    assert_eq!(world.call().endpoint(), Endpoint::Manifest);
    world.refuse(ProblemCode::InvalidRequest);
    for _ in 0..3 {
        assert_eq!(world.call().endpoint(), Endpoint::Sync);
        world.answer_sync(Some(&document(2)), None);
    }
}

// A portal that does not have the manifest is asked once a sync, not in a loop, and the document is pending.
#[test]
fn a_manifest_that_is_not_there_is_asked_for_once_a_sync() {
    let mut world = World::enrolled();
    world.sync();
    world.answer_sync(Some(&document(1)), None);
    for _ in 0..3 {
        assert_eq!(world.call().endpoint(), Endpoint::Manifest);
        world.refuse(ProblemCode::NotFound);
        let sent = world.call();
        assert_eq!(sent.endpoint(), Endpoint::Sync);
        let told = &sent.report().document;
        assert_eq!(told.result, DocumentResult::Pending);
        assert!(told.message.as_deref().unwrap().contains("not_found"));
        world.answer_sync(Some(&document(1)), None);
    }
    world.answer_well();
    assert_eq!(world.document_report().result, DocumentResult::Applied);
}

// rule SYNC-4: a crash in any write ends with the document in force; half of it never is.
#[test]
fn sync_4_a_crash_in_any_write_ends_with_the_document_in_force() {
    let mut died = 0;
    for (at, is_kept) in (1..=8).flat_map(|at| [(at, true), (at, false)]) {
        let mut world = World::enrolled();
        world.dies_in_store = Some((at, is_kept));
        for _ in 0..4 {
            match world.next_call() {
                Some(sent) if sent.endpoint() == Endpoint::Sync => {
                    world.answer_sync(Some(&document(1)), None);
                }
                Some(_) => world.answer_well(),
                None => break,
            }
        }
        if world.is_dead() {
            died += 1;
            let taken = world.disk.document.is_some();
            assert!(
                taken || world.tasks().is_empty(),
                "the host was touched for a document that is not on disk"
            );
            world.crash();
        }
        world.sync();
        world.answer_sync(Some(&document(1)), None);
        if world.call().endpoint() == Endpoint::Manifest {
            world.answer_well();
        }
        assert_eq!(
            world.document_report(),
            report(1, 1, DocumentResult::Applied, None),
            "write {at}, {is_kept}"
        );
    }
    assert!(died >= 6, "{died}");
}

// A newer document replaces one that is still being taken, and one that is still being put into force.
#[test]
fn the_plan_is_made_again_when_the_target_moves() {
    let mut world = World::enrolled();
    world.node.holds = Some("WriteDropIns");
    world.offer_document(&document(1), &signed(&manifest("2026.11.1", 1, "1.4.0")));
    world.sync();
    world.answer_sync(Some(&document(2)), None);
    assert_eq!(
        world.disk.document.as_ref().unwrap().generation,
        Generation(2)
    );
    world.release_well();
    assert_eq!(
        world.document_report(),
        report(2, 2, DocumentResult::Applied, None)
    );
    let works: Vec<_> = world
        .node
        .performed
        .iter()
        .map(|task| task.record().work.clone())
        .collect();
    assert_eq!(works.len(), 3, "{works:?}");
    assert!(
        matches!(
            works[1],
            Work::Document {
                generation: Generation(2),
                ..
            }
        ),
        "from its first step"
    );
}
