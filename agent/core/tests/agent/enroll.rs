//! The enrollment lane (ENR-1 to ENR-11).

use std::sync::Arc;

use agent_core::machine::WakeReason;
use agent_core::note::Note;
use agent_core::pbx::durable::{Durable, EnrollStep, IdleReason};
use protocol::endpoint::Endpoint;
use protocol::id::{Arch, ServerId};
use protocol::pbx::ProtocolVersion;
use protocol::pbx::call::{AnswerBody, Refusal, Reply, Request, RetryAfter};
use protocol::pbx::enroll::EnrollRequest;
use protocol::problem::ProblemCode;

use crate::world::{
    Sent, World, broken, enroll_answer, facts, failure, healthy, keys, page, refusal, refusal_with,
};

const STEPS: [&str; 8] = [
    "MakeKeys",
    "ReadServerId",
    "StoreBootstrap",
    "DropToken",
    "WriteK3sConfig",
    "StartK3s",
    "WaitApi",
    "WriteSecrets",
];

fn request(sent: &Sent) -> &EnrollRequest {
    match &sent.call.request {
        Request::Enroll(request) => request,
        other => panic!("an enrollment was expected, not {other:?}"),
    }
}

// rules ENR-1, ENR-2, ENR-3, ENR-5, ENR-6, SYNC-10
#[test]
fn enr_6_from_a_token_to_a_node_that_runs_and_syncs_at_once() {
    let mut world = World::fresh();
    let sent = world.call();
    assert_eq!(
        world.tasks(),
        STEPS[..2],
        "the keys are made and kept, the server's number is read"
    );
    assert_eq!(
        world.disk.enrollment.as_ref().unwrap().keys.unwrap().handle,
        keys(1),
        "before they are used"
    );
    let asked = request(&sent);
    assert_eq!(asked.token, facts().config.token.unwrap());
    assert_eq!(
        (asked.signing_key, asked.sealing_key),
        (keys(1).signing, keys(1).sealing)
    );
    assert_eq!(asked.server_id, ServerId(42));
    assert_eq!(asked.boot_image_sha256, healthy().boot.image_sha256);
    assert_eq!(
        (asked.cluster_id.as_str(), asked.node_name.as_str()),
        ("clu_1", "fsn1-server-1")
    );
    assert_eq!(
        (asked.protocol, asked.agent_version.as_str(), asked.arch),
        (ProtocolVersion::CURRENT, "1.4.0", Arch::Amd64)
    );
    assert_eq!(sent.call.stamp, None, "the token proves it");

    world.answer_well();
    let at = world.now.monotonic;
    let first_sync = world.call();
    assert_eq!(first_sync.endpoint(), Endpoint::Sync);
    assert_eq!(first_sync.at.monotonic, at, "at once");
    assert_eq!(world.tasks(), STEPS[2..]);
    assert_eq!(
        world.node.opened, 5,
        "all secrets of the answer were found to open"
    );
    let identity = world.disk.identity.clone().unwrap();
    assert_eq!(
        (identity.agent_id.as_str(), identity.active.handle),
        ("agt_1", keys(1))
    );
    world.settle();
    assert!(world.disk.enrollment.is_none());
    assert!(
        world
            .notes
            .iter()
            .any(|note| matches!(note, Note::Enrolled { .. }))
    );
}

// rule ENR-5: the token goes only after the answer is kept, and nothing of the node is touched before it is gone.
#[test]
fn enr_5_the_token_is_dropped_only_after_the_answer_is_kept() {
    let mut world = World::fresh();
    world.call();
    world.tasks();
    world.node.holds = Some("StoreBootstrap");
    world.answer_well();
    world.settle();
    assert_eq!(world.tasks(), [""; 0]);
    assert!(world.disk.identity.is_none(), "it does not count yet");

    let read_only = failure("config.yaml: read-only file system");
    world.node.failures.push(("DropToken", read_only));
    world.release_well();
    assert_eq!(world.tasks(), STEPS[2..4]);
    assert!(world.disk.identity.is_some());

    let wake = world.wake().unwrap();
    assert_eq!(wake.why, WakeReason::TaskRetry { failures: 1 });
    world.wait_for(wake);
    assert_eq!(world.tasks(), STEPS[3..]);
}

// rules ENR-10, ENR-11: an answer that is lost is asked for again, with the very same request.
#[test]
fn enr_10_a_lost_answer_is_asked_for_again_with_the_same_request() {
    let mut world = World::fresh();
    let first = world.call();
    world.unreachable();
    assert_eq!(
        world.wake().unwrap().why,
        WakeReason::Backoff { failures: 1 }
    );
    let second = world.call();
    assert_eq!(second.body(), first.body());
    world.crash();
    assert_eq!(world.call().body(), first.body());
}

// rule ENR-11: a crash in any write of the record, done or not, ends enrolled, once, with the keys that were kept first.
#[test]
fn enr_11_a_crash_between_any_two_steps_ends_enrolled_with_the_first_keys() {
    let mut died = 0;
    for (at, is_kept) in (1..=20).flat_map(|at| [(at, true), (at, false)]) {
        let mut world = World::fresh();
        world.dies_in_store = Some((at, is_kept));
        while world
            .next_call()
            .is_some_and(|sent| sent.endpoint() == Endpoint::Enroll)
        {
            world.answer_well();
        }
        if world.is_dead() {
            died += 1;
            world.crash();
        }
        while world.call().endpoint() == Endpoint::Enroll {
            world.answer_well();
        }
        let identity = world.disk.identity.clone().unwrap();
        assert_eq!(
            identity.active.handle,
            keys(1),
            "crash in write {at}, {is_kept}"
        );
        assert!(world.disk.enrollment.is_none());
    }
    assert_eq!(died, 20, "ten writes, each done and not done");
}

/// The program dies right after a step's record is on disk, before its task has ended.
fn crashed_in(task: &'static str) -> World {
    let mut world = World::fresh();
    world.node.holds = Some(task);
    while world.node.held.is_none() {
        world.call();
        world.answer_well();
    }
    world.tasks();
    world.node.holds = None;
    world.crash();
    world
}

// rule ENR-11: each step that was found begun is done again; the answer that went with the crash is asked for again.
#[test]
fn enr_11_a_step_that_was_found_begun_is_done_again() {
    for (at, task) in STEPS.iter().enumerate() {
        if at < 2 {
            continue;
        }
        let mut world = crashed_in(task);
        while world.call().endpoint() == Endpoint::Enroll {
            world.answer_well();
        }
        assert_eq!(world.tasks(), STEPS[at..], "after a crash in {task}");
    }
}

// rule ENR-7: at most three tries, durably, then idle; at later starts, too.
#[test]
fn enr_7_three_refusals_of_the_token_idle_for_good() {
    for code in [
        ProblemCode::InvalidToken,
        ProblemCode::TokenUsed,
        ProblemCode::TokenExpired,
        ProblemCode::ServerMismatch,
    ] {
        let mut world = World::fresh();
        for _ in 0..2 {
            assert_eq!(world.call().endpoint(), Endpoint::Enroll);
            world.refuse(code);
            assert!(matches!(
                world.wake().unwrap().why,
                WakeReason::Backoff { .. }
            ));
            world.crash(); // counted on disk
        }
        world.call();
        world.refuse(code);
        assert!(world.is_silent_for_a_day(), "{code}");
        assert_eq!(
            world.disk.idle,
            Some(IdleReason::TokenRefused { code: Some(code) })
        );
        world.crash();
        assert!(world.is_silent_for_a_day(), "{code}");
    }
}

// rule ENR-7: a crash that swallows the third refusal does not make it four tries.
#[test]
fn enr_7_the_last_try_counts_before_it_is_out() {
    let mut world = World::fresh();
    for _ in 0..2 {
        world.call();
        world.refuse(ProblemCode::InvalidToken);
    }
    world.call();
    world.crash();
    assert!(world.is_silent_for_a_day());
    assert!(matches!(
        world.disk.idle,
        Some(IdleReason::TokenRefused { code: None })
    ));
}

// rules ENR-7, ENR-9, ANS-4: what is no refusal of the token backs off, or waits as told, and is not counted.
#[test]
fn enr_9_everything_else_is_tried_again_and_not_counted() {
    let empty = Refusal {
        is_empty: true,
        is_json: false,
        ..refusal_with(401, None)
    };
    let wait = Refusal {
        retry_after: RetryAfter::Seconds(60),
        ..refusal(ProblemCode::TooManyRequests)
    };
    let rows = [
        (
            "409 conflict",
            Ok(Reply::Refused(refusal(ProblemCode::Conflict))),
        ),
        (
            "503 internal",
            Ok(Reply::Refused(refusal(ProblemCode::Internal))),
        ),
        (
            "426",
            Ok(Reply::Refused(refusal(ProblemCode::ProtocolTooOld))),
        ),
        ("429", Ok(Reply::Refused(wait))),
        ("401 empty", Ok(Reply::Refused(empty))),
        ("401 page", Ok(Reply::Refused(page(401)))),
        (
            "401 revoked",
            Ok(Reply::Refused(refusal(ProblemCode::Revoked))),
        ),
        ("broken", Ok(broken())),
    ];
    for (case, answer) in rows {
        let mut world = World::fresh();
        for _ in 0..2 {
            world.call();
            world.refuse(ProblemCode::InvalidToken);
        }
        for _ in 0..4 {
            world.call();
            let before = world.now.monotonic;
            world.reply(answer.clone());
            let wake = world.wake().unwrap();
            let waited = wake.at.since(before).as_secs();
            assert!(
                waited >= if case == "429" { 60 } else { 5 },
                "{case}: {waited}"
            );
        }
        assert_eq!(
            world.disk.enrollment.as_ref().unwrap().refusals,
            2,
            "{case}"
        );
        world.call();
        world.answer_well();
        assert_eq!(world.call().endpoint(), Endpoint::Sync, "{case}");
    }
}

// rule ENR-8
#[test]
fn enr_8_another_image_idles_for_good() {
    let mut world = World::fresh();
    world.call();
    world.refuse(ProblemCode::ImageMismatch);
    assert!(world.is_silent_for_a_day());
    assert_eq!(world.disk.idle, Some(IdleReason::ImageMismatch));
    world.crash();
    assert!(world.is_silent_for_a_day());
}

// rule ANS-2 at the enrollment: the same request three times, then idle as in ENR-7.
#[test]
fn ans_2_three_400s_idle_an_enrollment() {
    let mut world = World::fresh();
    let first = world.call();
    world.refuse(ProblemCode::InvalidRequest);
    assert_eq!(world.call().body(), first.body());
    world.refuse(ProblemCode::InvalidRequest);
    world.crash();
    world.call();
    world.refuse(ProblemCode::InvalidRequest);
    assert!(world.is_silent_for_a_day());
    assert_eq!(
        world.disk.idle,
        Some(IdleReason::EnrollmentRefused {
            code: "invalid_request".into()
        })
    );
    world.crash();
    assert!(world.is_silent_for_a_day());
}

#[test]
fn without_a_token_nothing_is_asked() {
    let mut facts = facts();
    facts.config.token = None;
    let mut world = World::with_facts(Durable::default(), facts, 1);
    assert!(world.is_silent_for_a_day());
    assert!(world.notes.contains(&Note::NoToken));
}

// rule ENR-6: a task of the host that fails is tried again, for as long as it takes.
#[test]
fn enr_6_a_task_that_fails_is_tried_again() {
    let mut world = World::fresh();
    for _ in 0..3 {
        world
            .node
            .failures
            .push(("ReadServerId", failure("no route to 169.254.169.254")));
    }
    world.settle();
    for failures in 1..=3 {
        let wake = world.wake().unwrap();
        assert_eq!(wake.why, WakeReason::TaskRetry { failures });
        world.wait_for(wake);
    }
    assert_eq!(world.call().endpoint(), Endpoint::Enroll);
}

// An answer whose secrets do not open counts for nothing: nothing is kept, and the portal is asked again.
#[test]
fn seal_3_an_answer_that_does_not_open_is_asked_for_again() {
    let mut world = World::fresh();
    world.node.unopenable = Some("secrets.s3.secret_key");
    world.call();
    world.tasks();
    world.answer_well();
    assert_eq!(
        world.wake().unwrap().why,
        WakeReason::Backoff { failures: 1 }
    );
    assert_eq!(world.tasks(), [""; 0]);
    assert_eq!(
        world.disk.enrollment.as_ref().unwrap().step,
        EnrollStep::Ask
    );
    world.node.unopenable = None;
    world.call();
    world.answer(AnswerBody::Enroll(Arc::new(enroll_answer())));
    assert_eq!(world.call().endpoint(), Endpoint::Sync);
}
