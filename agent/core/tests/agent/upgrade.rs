//! `cluster.upgrade` from its offer to its end, and the ways back (OP-5, OP-6, UPD-4, UPD-6).

use std::sync::Arc;

use agent_core::machine::{Evidence, WakeReason};
use agent_core::pbx::boot::{BootId, Booted};
use agent_core::pbx::task::{Done, Task};
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::Arch;
use protocol::pbx::call::{AnswerBody, Request};
use protocol::pbx::operation::{
    ClusterUpgradeParams, EventState, OperationEvent, OperationOffer, Params, Reason, Step,
};
use protocol::pbx::release::{ImageArtifact, Manifest};
use protocol::problem::ProblemCode;
use protocol::sign::SigningKey;
use protocol::verified::ReleaseKeys;

use crate::world::{World, document, enrolled, facts, manifest, offer, signed, signed_by};

const RELEASE: &str = "2026.12.1";

fn upgrade() -> OperationOffer {
    let release = RELEASE.parse().unwrap();
    offer(
        "op_1",
        &Params::ClusterUpgrade(ClusterUpgradeParams { release }),
    )
}

/// A release with an image for this node.
fn release() -> Manifest {
    let mut manifest = manifest(RELEASE, 1, "1.5.0");
    manifest.image.artifacts = vec![ImageArtifact {
        arch: Arch::Amd64,
        url: "https://artifacts.invalid/image".into(),
        sha256: Sha256Hex::of(b"download"),
        size: 1_000,
        entry: format!("pbx-{RELEASE}-amd64.efi").parse().unwrap(),
        image_sha256: Sha256Hex::of(b"booted"),
    }];
    manifest
}

fn booted(number: u32, entry: &str) -> Booted {
    Booted {
        boot_id: BootId(format!("boot-{number}")),
        entry: entry.parse().unwrap(),
    }
}

fn new() -> Booted {
    booted(2, "pbx-2026.12.1-amd64.efi")
}

fn back() -> Booted {
    booted(3, "pbx-2026.11.1-amd64.efi")
}

/// An upgrade was offered, and the portal is asked for its manifest.
fn asked() -> World {
    let mut world = World::enrolled();
    world.offer(&upgrade());
    let sent = world.call_of(Endpoint::Manifest);
    let Request::Manifest(release) = sent.call.request else {
        panic!("{sent:?}")
    };
    assert_eq!(release.as_str(), RELEASE);
    assert_eq!(
        world.tasks(),
        [""; 0],
        "nothing before the manifest was verified"
    );
    world
}

/// Up to the reboot, in which the node goes down; it comes back with this running.
fn rebooted(into: Booted) -> World {
    let mut world = asked();
    world.node.holds = Some("Reboot");
    world.answer(AnswerBody::Manifest(signed(&release())));
    world.settle();
    assert_eq!(
        world.tasks(),
        [
            "InspectNode",
            "SaveSnapshot",
            "ConfirmSnapshot",
            "FetchImage",
            "StageSlot"
        ]
    );
    assert!(world.node.held.is_some());
    world.node.holds = None;
    world.node.booted = into.clone();
    world.node.evidence = Some(Evidence::Completed(Done::Booted(into)));
    world.crash();
    world
}

fn end(events: &[OperationEvent]) -> (EventState, Option<Reason>, Option<Step>) {
    let last = events.last().unwrap();
    let step = events.iter().rev().find_map(|event| event.step);
    (last.state, last.reason.clone(), step)
}

// rules OP-5, OP-6: manifest, snapshot, image, slot, reboot, three looks 10 s apart, and then it is kept.
#[test]
fn op_5_a_node_is_upgraded() {
    let mut world = asked();
    world.node.holds = Some("Reboot");
    world.answer(AnswerBody::Manifest(signed(&release())));
    world.settle();
    let Task::SaveSnapshot { name } = &*world.node.performed[1] else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!(name.as_str(), "pbx-pre-upgrade-2026.12.1");
    let Task::StageSlot { image, keep } = &*world.node.performed[4] else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!(
        (image.entry.as_str(), keep.as_str()),
        ("pbx-2026.12.1-amd64.efi", "pbx-2026.11.1-amd64.efi")
    );
    let Task::Reboot {
        return_after_ms, ..
    } = &*world.node.held.as_ref().unwrap().1
    else {
        panic!("{:?}", world.node.held)
    };
    assert_eq!(*return_after_ms, 1_200_000);

    let mut world = rebooted(new());
    let mut looks = Vec::new();
    loop {
        world.settle();
        looks.extend(
            world
                .tasks()
                .into_iter()
                .map(|task| (task, world.now.monotonic)),
        );
        if world.disk.operation.is_none() {
            break;
        }
        match world.wake() {
            Some(wake) if wake.why == WakeReason::LooksAgain => world.wait_for(wake),
            _ => {
                world.call();
                world.answer_well();
            }
        }
    }
    let names: Vec<&str> = looks.iter().map(|(task, _)| *task).collect();
    assert_eq!(
        names,
        ["CheckHealth", "CheckHealth", "CheckHealth", "Commit"]
    );
    for pair in looks[..3].windows(2) {
        assert!(pair[1].1.since(pair[0].1).as_secs() >= 10, "{looks:?}");
    }
    let events = world.run_operation();
    let result = events.last().unwrap().result.clone().unwrap();
    assert_eq!(
        result.get(),
        r#"{"release":"2026.12.1","entry":"pbx-2026.12.1-amd64.efi","k3s_version":"v1.34.1+k3s1"}"#
    );
}

// rule OP-6: the node goes back by itself; the agent finds it so and fails the upgrade, and does not try again.
#[test]
fn op_6_a_node_that_went_back_fails_the_upgrade_for_good() {
    // The loader never came up with the new entry.
    let mut world = rebooted(back());
    let returned = |step| (EventState::Failed, Some(Reason::Returned), Some(step));
    assert_eq!(end(&world.run_operation()), returned(Step::Reboot));
    assert_eq!(world.tasks(), [""; 0]);

    // It came up and did not get well, and its timer went back.
    let mut world = rebooted(new());
    world.node.is_well = false;
    for _ in 0..5 {
        world.call();
        world.answer_well();
    }
    assert!(world.tasks().iter().all(|task| *task == "CheckHealth"));
    assert!(world.disk.operation.is_some());
    world.node.booted = back();
    world.crash();
    let events = world.run_operation();
    assert_eq!(end(&events), returned(Step::HealthGate));
    let why = events.last().unwrap().message.clone().unwrap();
    assert!(why.contains("API is not ready"), "{why}");
    world.tasks();
    world.crash();
    world.offer(&upgrade());
    world.call();
    assert_eq!(
        world.tasks(),
        [""; 0],
        "asked for again, it is answered and not run"
    );
}

// rules UPD-4, UPD-6, FAIL-4: a manifest that is not to be believed ends it before the node is touched.
#[test]
fn upd_6_an_upgrade_believes_no_other_manifest() {
    let stranger = SigningKey::from_seed([8; 32]);
    let mut other_entry = release();
    other_entry.image.artifacts[0].entry = "pbx-2026.12.2-amd64.efi".parse().unwrap();
    let mut other_arch = release();
    other_arch.image.artifacts[0].arch = Arch::Arm64;
    let manifests = [
        signed_by(&stranger, &release()),
        signed(&manifest("2026.12.2", 1, "1.5.0")),
        signed(&other_entry),
        signed(&other_arch),
    ];
    let expected = (
        EventState::Failed,
        Some(Reason::ManifestRejected),
        Some(Step::Preflight),
    );
    for manifest in manifests {
        let mut world = asked();
        world.answer(AnswerBody::Manifest(Arc::clone(&manifest)));
        assert_eq!(end(&world.run_operation()), expected);
        assert_eq!(world.tasks(), [""; 0]);
    }
    // One whose floor is below what was seen.
    let mut durable = enrolled();
    durable.floor = 2;
    let mut world = World::with(durable, 1);
    world.offer(&upgrade());
    world.call_of(Endpoint::Manifest);
    world.answer(AnswerBody::Manifest(signed(&release())));
    assert_eq!(end(&world.run_operation()), expected);
}

// rule UPD-6: the floor of a manifest that was believed counts from then on.
#[test]
fn upd_6_an_upgrade_raises_the_floor() {
    let mut world = asked();
    let mut high = release();
    high.floor = 7;
    world.answer(AnswerBody::Manifest(signed(&high)));
    world.settle();
    assert_eq!(world.disk.floor, 7);
}

// rule UPD-4: an agent without release keys never upgrades its node.
#[test]
fn upd_4_without_release_keys_no_upgrade_is_begun() {
    let mut facts = facts();
    facts.release_keys = Arc::new(ReleaseKeys::none());
    let mut world = World::with_facts(enrolled(), facts, 1);
    world.offer(&upgrade());
    let events = world.run_operation();
    let expected = (EventState::Refused, Some(Reason::ManifestRejected), None);
    assert_eq!(end(&events), expected);
}

// rule ANS-2: three 400s, or a 404, and the operation has failed; a document that names the release asks no more, either.
#[test]
fn ans_2_a_manifest_that_is_refused_fails_the_upgrade() {
    for code in [ProblemCode::InvalidRequest, ProblemCode::NotFound] {
        let mut world = asked();
        let times = if code == ProblemCode::NotFound { 1 } else { 3 };
        for time in 1..=times {
            world.refuse(code);
            if time < times {
                world.call_of(Endpoint::Manifest);
            }
        }
        let expected = (
            EventState::Failed,
            Some(Reason::ManifestRejected),
            Some(Step::Preflight),
        );
        let events = world.run_operation();
        assert_eq!(end(&events), expected, "{code}");
        let why = events.last().unwrap().message.clone().unwrap();
        assert!(why.ends_with(code.as_str()), "{why}");
        assert_eq!(world.tasks(), [""; 0]);
    }
}

// Anything else that keeps the manifest away is waited out.
#[test]
fn an_upgrade_waits_for_a_portal_that_is_down() {
    let mut world = asked();
    world.unreachable();
    world.call_of(Endpoint::Manifest);
    world.answer(AnswerBody::Manifest(signed(&release())));
    world.settle();
    assert_eq!(world.tasks()[0], "InspectNode");
    world.take(&document(1));
}
