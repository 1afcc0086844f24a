//! The table of answers (ANS-1 to ANS-11), seen from the sync.

use std::sync::Arc;

use agent_core::machine::{Unreachable, WakeReason};
use agent_core::note::Note;
use agent_core::pbx::durable::IdleReason;
use protocol::endpoint::Endpoint;
use protocol::pbx::call::{AnswerBody, Refusal, Reply, RetryAfter};
use protocol::pbx::operation::{Params, SnapshotSaveParams};
use protocol::pbx::sync::SyncAnswer;
use protocol::problem::ProblemCode;
use protocol::time::Timestamp;

use crate::operate::save;
use crate::world::{
    START_MS, World, broken, document, enroll_answer, enrolled, key_pairs, keys, offer, page,
    refusal, refusal_with,
};

type Answer = Result<Reply, Unreachable>;

fn refused(refusal: Refusal) -> Answer {
    Ok(Reply::Refused(refusal))
}

fn unreachable() -> Answer {
    Err(Unreachable {
        why: "no route to host".into(),
    })
}

fn told_to_wait(status: u16, retry_after: RetryAfter) -> Answer {
    refused(Refusal {
        retry_after,
        ..refusal_with(status, None)
    })
}

/// What an agent does after an answer to a sync.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The same report, byte for byte, after a wait in these bounds.
    Same(u64, u64),
    /// A new report, after a wait in these bounds.
    Anew(u64, u64),
    /// Nothing any more.
    Idle,
}

fn check(case: &str, answer: Answer, then: Then, why: Option<WakeReason>) {
    for seed in 1..=20 {
        let mut world = World::with(enrolled(), seed);
        let first = world.sync();
        let before = world.now.monotonic;
        world.reply(answer.clone());
        if then == Then::Idle {
            assert!(world.is_silent_for_a_day(), "{case}");
            assert!(world.agent.is_idle(), "{case}");
            continue;
        }
        assert_eq!(world.wake().map(|wake| wake.why), why, "{case}");
        let second = world.call();
        let waited = u64::try_from(second.at.monotonic.since(before).as_millis()).unwrap();
        assert_eq!(second.endpoint(), Endpoint::Sync, "{case}");
        let (same, low, high) = match then {
            Then::Same(low, high) => (true, low, high),
            Then::Anew(low, high) => (false, low, high),
            Then::Idle => unreachable!("handled above"),
        };
        assert!(
            (low..=high).contains(&waited),
            "{case}: {waited} ms, seed {seed}"
        );
        assert_eq!(first.body() == second.body(), same, "{case}");
        assert!(second.stamp() > first.stamp(), "{case}");
    }
}

const BACKOFF: Option<WakeReason> = Some(WakeReason::Backoff { failures: 1 });
const SIGN_AGAIN: Option<WakeReason> = Some(WakeReason::SignAgain);

fn word(seconds: u64) -> Option<WakeReason> {
    Some(WakeReason::PortalsWord { seconds })
}

fn portal_time_in(seconds: i64) -> Refusal {
    let portal_time = Some(Timestamp::from_unix_ms(START_MS + seconds * 1_000));
    Refusal {
        portal_time,
        ..refusal(ProblemCode::ClockSkew)
    }
}

// rules ANS-1 to ANS-9: one row an answer.
#[test]
fn ans_every_row_of_the_table() {
    use ProblemCode as Code;
    let code = |code| refused(refusal(code));
    let status = |status| refused(refusal_with(status, None));
    let empty = |status| {
        refused(Refusal {
            is_empty: true,
            is_json: false,
            ..refusal_with(status, None)
        })
    };
    let backs_off = Then::Anew(5_000, 10_000);
    let date = Some(Timestamp::from_unix_ms(START_MS + 3_600_000));
    let dated = |has_age| {
        refused(Refusal {
            date,
            has_age,
            ..refusal(Code::ClockSkew)
        })
    };
    let done = Reply::Done(AnswerBody::Sync(Arc::new(SyncAnswer {
        portal_time: Timestamp::from_unix_ms(START_MS),
        desired: None,
        operation: None,
    })));
    let rows: Vec<(&str, Answer, Then, Option<WakeReason>)> = vec![
        (
            "ans_1: 200",
            Ok(done),
            Then::Anew(25_000, 35_000),
            Some(WakeReason::SyncDue),
        ),
        (
            "ans_2: 400",
            code(Code::InvalidRequest),
            Then::Same(5_000, 10_000),
            BACKOFF,
        ),
        (
            "ans_2: 400 of a proxy",
            refused(page(400)),
            Then::Same(5_000, 10_000),
            BACKOFF,
        ),
        (
            "ans_3: 400 replayed",
            code(Code::Replayed),
            Then::Same(1_000, 1_000),
            SIGN_AGAIN,
        ),
        ("ans_4: 401 revoked", code(Code::Revoked), Then::Idle, None),
        (
            "ans_4: 401 unknown agent",
            code(Code::UnknownAgent),
            Then::Idle,
            None,
        ),
        (
            "ans_4: 401 bad signature",
            code(Code::BadSignature),
            Then::Idle,
            None,
        ),
        (
            "ans_4: 401 with another known code",
            refused(refusal_with(401, Some(Code::Internal))),
            Then::Idle,
            None,
        ),
        ("ans_4: 401 empty", empty(401), Then::Idle, None),
        ("ans_4: 401 page", refused(page(401)), backs_off, BACKOFF),
        (
            "ans_4: 401 json without a known code",
            status(401),
            backs_off,
            BACKOFF,
        ),
        (
            "ans_5: 409 clock skew",
            refused(portal_time_in(3_600)),
            Then::Anew(1_000, 1_000),
            SIGN_AGAIN,
        ),
        (
            "ans_5: 409 with a date",
            dated(false),
            Then::Anew(1_000, 1_000),
            SIGN_AGAIN,
        ),
        (
            "ans_5: 409 with a cached date",
            dated(true),
            backs_off,
            BACKOFF,
        ),
        (
            "ans_5: 409 without a time",
            code(Code::ClockSkew),
            backs_off,
            BACKOFF,
        ),
        ("ans_6: 426", code(Code::ProtocolTooOld), backs_off, BACKOFF),
        (
            "ans_7: 429",
            told_to_wait(429, RetryAfter::Seconds(60)),
            Then::Anew(60_000, 75_000),
            word(60),
        ),
        (
            "ans_7: 429, nothing",
            told_to_wait(429, RetryAfter::Seconds(0)),
            Then::Anew(1_000, 16_000),
            word(1),
        ),
        ("ans_7: 429 without a word", status(429), backs_off, BACKOFF),
        (
            "ans_7: 429, unreadable",
            told_to_wait(429, RetryAfter::Unreadable("1.5".into())),
            backs_off,
            BACKOFF,
        ),
        (
            "ans_7: 503, longer word",
            told_to_wait(503, RetryAfter::Seconds(60)),
            Then::Anew(60_000, 75_000),
            word(60),
        ),
        (
            "ans_7: 503, shorter word",
            told_to_wait(503, RetryAfter::Seconds(1)),
            backs_off,
            BACKOFF,
        ),
        (
            "ans_7: 500 has no word",
            told_to_wait(500, RetryAfter::Seconds(60)),
            backs_off,
            BACKOFF,
        ),
        ("ans_8: 503", code(Code::Internal), backs_off, BACKOFF),
        ("ans_8: 500", status(500), backs_off, BACKOFF),
        ("ans_8: 599", refused(page(599)), backs_off, BACKOFF),
        ("ans_8: no network", unreachable(), backs_off, BACKOFF),
        ("ans_9: 302", refused(page(302)), backs_off, BACKOFF),
        ("ans_9: 204", empty(204), backs_off, BACKOFF),
        ("ans_9: 404", code(Code::NotFound), backs_off, BACKOFF),
        (
            "ans_9: 409 conflict",
            code(Code::Conflict),
            backs_off,
            BACKOFF,
        ),
        ("ans_9: 413", code(Code::BodyTooLarge), backs_off, BACKOFF),
        (
            "ans_9: a 200 that is none",
            Ok(broken()),
            backs_off,
            BACKOFF,
        ),
        (
            "ans_9: a 200 of another endpoint",
            Ok(Reply::Done(AnswerBody::Enroll(Arc::new(enroll_answer())))),
            backs_off,
            BACKOFF,
        ),
    ];
    for (case, answer, then, why) in rows {
        check(case, answer, then, why);
    }
}

// rule ANS-1: what a 200 holds is applied, the document and the operation alike, and each once.
#[test]
fn ans_1_what_a_200_holds_is_applied() {
    let mut world = World::enrolled();
    let save = Params::SnapshotSave(SnapshotSaveParams {
        name: "nightly".parse().unwrap(),
    });
    world.sync();
    world.answer_sync(Some(&document(1)), Some(offer("op_1", &save)));
    let after = world.sync();
    assert_eq!(after.report().document.applied_generation.0, 1);
    let mut tasks = world.tasks();
    tasks.sort_unstable();
    assert_eq!(
        tasks,
        [
            "ConfirmSnapshot",
            "SaveSnapshot",
            "WriteDropIns",
            "WriteSecrets"
        ]
    );
}

// rule ANS-2: three times, then another request that says so.
#[test]
fn ans_2_the_same_request_goes_out_three_times_at_most() {
    let mut world = World::enrolled();
    let first = world.sync();
    for _ in 0..3 {
        assert_eq!(world.sync().body(), first.body());
        world.refuse(ProblemCode::InvalidRequest);
    }
    let other = world.sync();
    assert_ne!(other.body(), first.body());
    let last_error = other.report().last_error.clone().unwrap();
    assert_eq!(
        (last_error.code.as_str(), last_error.count),
        ("invalid_request", 3)
    );

    for _ in 0..3 {
        world.sync();
        world.refuse(ProblemCode::InvalidRequest);
    }
    assert_eq!(world.sync().report().last_error.as_ref().unwrap().count, 6);
    world.answer_well();
    assert_eq!(world.sync().report().last_error, None);
}

// rule ANS-2: a backoff lies between the tries, and grows with them.
#[test]
fn ans_2_tries_back_off() {
    let mut world = World::enrolled();
    for failures in 1..=5 {
        world.sync();
        world.refuse(ProblemCode::InvalidRequest);
        assert_eq!(world.wake().unwrap().why, WakeReason::Backoff { failures });
    }
}

// rules ANS-2, ANS-3: once, with the next second; it is one of the three.
#[test]
fn ans_3_a_replayed_request_is_signed_once_more() {
    let mut world = World::enrolled();
    let first = world.sync();
    world.refuse(ProblemCode::Replayed);
    assert_eq!(world.wake().unwrap().why, WakeReason::SignAgain);

    let second = world.sync();
    assert_eq!(second.body(), first.body());
    assert!(second.stamp() > first.stamp());
    world.refuse(ProblemCode::Replayed);
    assert_eq!(
        world.wake().unwrap().why,
        WakeReason::Backoff { failures: 1 }
    );

    let third = world.sync();
    assert_eq!(third.body(), first.body());
    world.refuse(ProblemCode::Replayed);
    assert_ne!(world.sync().body(), first.body());
}

// rules ANS-2, ANS-3: the third refusal is the last, also when it says replayed for the first time.
#[test]
fn ans_3_a_third_refusal_is_not_signed_once_more() {
    let mut world = World::enrolled();
    let first = world.sync();
    for code in [
        ProblemCode::InvalidRequest,
        ProblemCode::InvalidRequest,
        ProblemCode::Replayed,
    ] {
        assert_eq!(world.sync().body(), first.body());
        world.refuse(code);
    }
    assert_ne!(world.sync().body(), first.body());
}

// rule ANS-3: the next second, even if the node's clock is set back meanwhile.
#[test]
fn ans_3_the_next_second_is_later_whatever_the_clock_says() {
    let mut world = World::enrolled();
    let first = world.sync();
    world.refuse(ProblemCode::Replayed);
    world.set_clock(-20_000);
    let second = world.sync();
    assert_eq!(second.stamp(), first.stamp() + 1);
}

// rules ANS-4, FAIL-6: recorded, keys kept, and asked once again at each start.
#[test]
fn ans_4_a_revoked_agent_asks_once_at_each_start() {
    let mut world = World::enrolled();
    world.sync();
    world.refuse(ProblemCode::Revoked);
    assert!(world.is_silent_for_a_day());
    assert_eq!(
        world.disk.idle,
        Some(IdleReason::Revoked {
            code: Some(ProblemCode::Revoked)
        })
    );
    assert_eq!(world.disk.identity, enrolled().identity);

    let answers = [
        refused(refusal(ProblemCode::Revoked)),
        refused(refusal(ProblemCode::Internal)),
        refused(portal_time_in(3_600)),
        unreachable(),
        Ok(broken()),
    ];
    for answer in answers {
        world.crash();
        assert_eq!(world.call().endpoint(), Endpoint::Sync);
        world.reply(answer.clone());
        assert!(world.is_silent_for_a_day(), "after {answer:?}");
        assert!(world.disk.idle.is_some(), "after {answer:?}");
    }

    world.crash();
    world.call();
    world.answer_well();
    assert!(world.notes.contains(&Note::RevocationLifted));
    assert_eq!(world.sync().endpoint(), Endpoint::Sync);
    assert_eq!(world.disk.idle, None);
}

// rules ANS-4, FAIL-6: nothing is done to the node any more, either.
#[test]
fn fail_6_a_revoked_agent_leaves_the_node_alone() {
    let mut world = World::enrolled();
    world.take(&document(1));
    world.tasks();
    world.sync();
    world.refuse(ProblemCode::Revoked);
    assert!(world.is_silent_for_a_day());
    assert_eq!(
        world.tasks(),
        [""; 0],
        "the cluster's configuration is not applied again"
    );

    world.crash();
    world.call();
    world.refuse(ProblemCode::Revoked);
    assert!(world.is_silent_for_a_day());
    assert_eq!(world.tasks(), [""; 0], "nor after a start that asked");
}

fn with_two_keys() -> World {
    let mut durable = enrolled();
    durable.identity.as_mut().unwrap().other = Some(Box::new(key_pairs(2)));
    World::with(durable, 1)
}

// rule ANS-4: only a 401 to both keys is a revocation.
#[test]
fn ans_4_with_two_keys_on_disk_the_other_one_is_tried_first() {
    let mut world = with_two_keys();
    assert_eq!(world.sync().key(), keys(1));
    world.refuse(ProblemCode::BadSignature);
    assert_eq!(world.wake().unwrap().why, WakeReason::SignAgain);
    assert_eq!(world.sync().key(), keys(2));
    world.refuse(ProblemCode::BadSignature);
    assert!(world.is_silent_for_a_day());

    let mut world = with_two_keys();
    world.sync();
    world.refuse(ProblemCode::BadSignature);
    world.sync();
    world.answer_well();
    assert_eq!(world.sync().key(), keys(2));
    let identity = world.disk.identity.clone().unwrap();
    assert_eq!(
        (identity.active.handle, identity.other.unwrap().handle),
        (keys(2), keys(1))
    );
}

// rule ANS-4: a failure in between is no answer to the question whether the other key counts.
#[test]
fn ans_4_the_other_key_stays_on_trial_through_an_outage() {
    let mut world = with_two_keys();
    world.sync();
    world.refuse(ProblemCode::BadSignature);
    assert_eq!(world.sync().key(), keys(2));
    world.unreachable();
    assert_eq!(world.sync().key(), keys(2));
}

// rule ANS-5: corrected from the raw clock, never summed up; at most two in a row.
#[test]
fn ans_5_the_offset_is_the_portals_time_minus_the_raw_clock() {
    let mut world = World::enrolled();
    world.set_clock(-1_795_996_800_000); // the node thinks that it is 1970
    let wrong = world.sync();
    assert!(wrong.stamp() < 100_000);
    let refuse = |world: &mut World, seconds: i64| {
        let elapsed_ms = i64::try_from(world.now.monotonic.as_ms()).unwrap() - 1_000;
        let portal_time = Some(Timestamp::from_unix_ms(
            START_MS + elapsed_ms + seconds * 1_000,
        ));
        world.reply(refused(Refusal {
            portal_time,
            ..refusal(ProblemCode::ClockSkew)
        }));
    };
    refuse(&mut world, 0);
    let right = world.sync();
    let due = u64::try_from(START_MS / 1_000).unwrap() + right.at.monotonic.as_ms() / 1_000 - 1;
    assert!(right.stamp().abs_diff(due) <= 1, "{} {due}", right.stamp());
    assert_eq!(right.report().clock_offset_ms, START_MS);
    world.answer_well();

    // NTP sets the node's clock: the next refusal heals the offset.
    world.sync();
    world.set_clock(1_795_996_800_000);
    world.answer_well();
    world.sync();
    refuse(&mut world, 0);
    assert_eq!(world.agent.clock_offset_ms(), 0);

    // The first two in a row are tried at once, the third waits; and still it learns.
    assert_eq!(world.wake().unwrap().why, WakeReason::SignAgain);
    world.sync();
    refuse(&mut world, 500);
    assert_eq!(world.wake().unwrap().why, WakeReason::SignAgain);
    world.sync();
    refuse(&mut world, 900);
    assert_eq!(
        world.wake().unwrap().why,
        WakeReason::Backoff { failures: 1 }
    );
    assert_eq!(world.agent.clock_offset_ms(), 900_000);
    world.sync();
    world.answer_well();
    world.sync();
    refuse(&mut world, 0);
    assert_eq!(world.wake().unwrap().why, WakeReason::SignAgain);
}

// rule ANS-5: after a correction a request goes out again under a second that it has not had yet, unless it was signed so
// far ahead that the portal takes nothing later.
#[test]
fn ans_5_a_correction_signs_no_second_twice() {
    // By how much the node's clock is ahead, how much of that the portal takes back, and how many seconds later than before
    // the same events are signed, a second after they were.
    let rows = [
        (0, 187, 1),
        (0, 1_000, 1),
        (0, 59_000, 1),
        (0, -300_000, 301),
        (7_200_000, 7_200_000, -7_199),
    ];
    for (ahead_ms, back_ms, later_seconds) in rows {
        let mut world = World::enrolled();
        world.set_clock(ahead_ms);
        world.offer(&save("op_1"));
        let first = world.call_of(Endpoint::Events);
        let portal_time = Timestamp::from_unix_ms(world.now.wall.unix_ms() - back_ms);
        world.reply(refused(Refusal {
            portal_time: Some(portal_time),
            ..refusal(ProblemCode::ClockSkew)
        }));
        let second = world.call_of(Endpoint::Events);
        assert_eq!(second.body(), first.body());
        let later = second.stamp().cast_signed() - first.stamp().cast_signed();
        assert_eq!(later, later_seconds, "put back by {back_ms} ms");
    }
}

// rule ANS-5: nor after a word that led the clock far away and another one that leads it back.
#[test]
fn ans_5_a_clock_that_was_led_away_comes_back_to_another_second() {
    let mut world = World::enrolled();
    world.offer(&save("op_1"));
    let first = world.call_of(Endpoint::Events);
    // A request goes out again a second after such a word: by the last one in the second of the first time.
    let second = first.stamp().cast_signed();
    for portal_time in [second + 10 * 365 * 86_400, second - 1] {
        let portal_time = Timestamp::from_unix_ms(portal_time * 1_000);
        world.reply(refused(Refusal {
            portal_time: Some(portal_time),
            ..refusal(ProblemCode::ClockSkew)
        }));
        let next = world.call_of(Endpoint::Events);
        assert_eq!(next.body(), first.body());
        assert_ne!(next.stamp(), first.stamp());
    }
}

// rule KEY-2: ten digits, whatever the node's clock says and however often the request goes out.
#[test]
fn key_2_a_timestamp_never_has_eleven_digits() {
    let mut world = World::enrolled();
    world.set_clock(9_999_999_999_000 - START_MS);
    for _ in 0..3 {
        let sent = world.sync();
        assert!(sent.stamp() <= 9_999_999_999, "{}", sent.stamp());
        world.refuse(ProblemCode::InvalidRequest);
    }
}

// rule ANS-5: portal_time counts before a date.
#[test]
fn ans_5_portal_time_counts_before_a_date() {
    let mut world = World::enrolled();
    world.sync();
    let raw_ms = world.now.wall.unix_ms();
    world.reply(refused(Refusal {
        portal_time: Some(Timestamp::from_unix_ms(raw_ms + 70_000)),
        date: Some(Timestamp::from_unix_ms(raw_ms + 999_000)),
        ..refusal(ProblemCode::ClockSkew)
    }));
    assert_eq!(world.agent.clock_offset_ms(), 70_000);
}

// rule ANS-6: reported, with the release that the portal names; what follows is the update lane's.
#[test]
fn ans_6_a_protocol_that_is_too_old_is_reported() {
    let mut world = World::enrolled();
    world.sync();
    let release = Some("2026.12.1".parse().unwrap());
    world.reply(refused(Refusal {
        release: release.clone(),
        ..refusal(ProblemCode::ProtocolTooOld)
    }));
    world.settle();
    assert!(world.notes.contains(&Note::ProtocolTooOld {
        endpoint: Endpoint::Sync,
        release
    }));
}

fn waited_for(seed: u64, refusal: Refusal) -> (u64, World) {
    let mut world = World::with(enrolled(), seed);
    world.sync();
    world.reply(refused(refusal));
    let before = world.now.monotonic;
    let waited = world.sync().at.monotonic.since(before).as_millis();
    (u64::try_from(waited).unwrap(), world)
}

// rule ANS-7: never below the portal's word, a day at most, the raw value in a note, and spread.
#[test]
fn ans_7_the_portals_word_is_kept_up_to_a_day_and_spread() {
    let mut waits = Vec::new();
    for seed in 1..=50 {
        let said = Refusal {
            retry_after: RetryAfter::Seconds(40),
            ..refusal(ProblemCode::TooManyRequests)
        };
        let (waited, _) = waited_for(seed, said);
        assert!((40_000..=55_000).contains(&waited), "{waited}");
        waits.push(waited / 1_000);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 8, "spread over seconds: {waits:?}");

    let said = Refusal {
        retry_after: RetryAfter::Seconds(9_999_999_999),
        ..refusal(ProblemCode::TooManyRequests)
    };
    let (waited, world) = waited_for(1, said);
    assert!((86_400_000..=86_415_000).contains(&waited), "{waited}");
    let has_raw = |note: &Note| {
        matches!(
            note,
            Note::PortalWait {
                raw_seconds: 9_999_999_999,
                ..
            }
        )
    };
    assert!(world.notes.iter().any(has_raw), "{:?}", world.notes);
}

// rule ANS-7: a date is held against the portal's own clock, not against a node's that may be decades off.
#[test]
fn ans_7_a_date_is_held_against_the_portals_clock() {
    for (portal_time, date) in [(Some(0), None), (None, Some(0))] {
        let at = |ms: Option<i64>| ms.map(|ms| Timestamp::from_unix_ms(START_MS + ms));
        let mut world = World::enrolled();
        world.set_clock(-START_MS);
        world.sync();
        world.reply(refused(Refusal {
            retry_after: RetryAfter::At(Timestamp::from_unix_ms(START_MS + 30_000)),
            portal_time: at(portal_time),
            date: at(date),
            ..refusal(ProblemCode::TooManyRequests)
        }));
        let before = world.now.monotonic;
        let waited = world.sync().at.monotonic.since(before).as_millis();
        assert!((30_000..=45_000).contains(&waited), "{waited}");
    }
}

// rules ANS-8, ANS-10, FAIL-1: the base never shrinks while calls fail, and one success ends the row.
#[test]
fn ans_8_the_backoff_grows_to_five_minutes_and_ends_with_a_success() {
    let mut world = World::enrolled();
    let mut bases = [
        10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000,
    ]
    .into_iter();
    for failures in 1..=8 {
        world.sync();
        let before = world.now.monotonic;
        if failures % 2 == 0 {
            world.unreachable();
        } else {
            world.refuse(ProblemCode::Internal);
        }
        let wake = world.wake().unwrap();
        let waited = u64::try_from(wake.at.since(before).as_millis()).unwrap();
        let base: u64 = bases.next().unwrap();
        assert_eq!(wake.why, WakeReason::Backoff { failures });
        assert!(
            (5_000.max(base / 2)..=base).contains(&waited),
            "{waited} after {failures}"
        );
    }
    world.sync();
    world.answer_well();
    world.sync();
    world.unreachable();
    assert_eq!(
        world.wake().unwrap().why,
        WakeReason::Backoff { failures: 1 }
    );
}

// rule ANS-11: agents that lose the portal in the same second come back over seconds, each by its own seed.
#[test]
fn ans_11_agents_that_fail_together_do_not_come_back_together() {
    let mut by_second = [0; 11];
    for seed in 1..=300 {
        let mut world = World::with(enrolled(), seed);
        world.sync();
        world.unreachable();
        let lost = world.now.monotonic;
        let waited = world.sync().at.monotonic.since(lost).as_secs();
        by_second[usize::try_from(waited).unwrap()] += 1;
    }
    assert!(
        by_second.iter().all(|agents| *agents < 100),
        "{by_second:?}"
    );
}

// rule ANS-10: one pace gates every call, whichever lane wants it.
#[test]
fn ans_10_what_one_lane_was_told_holds_for_all() {
    let mut world = World::enrolled();
    let save = Params::SnapshotSave(SnapshotSaveParams {
        name: "nightly".parse().unwrap(),
    });
    world.sync();
    world.answer_sync(Some(&document(1)), Some(offer("op_1", &save)));
    // Manifest and events both want to go out now; the first is told to wait.
    assert_eq!(world.call().endpoint(), Endpoint::Manifest);
    let before = world.now.monotonic;
    world.reply(told_to_wait(429, RetryAfter::Seconds(100)));
    assert_eq!(
        world.wake().unwrap().why,
        WakeReason::PortalsWord { seconds: 100 }
    );
    let next = world.call();
    assert!(next.at.monotonic.since(before).as_secs() >= 100);
    assert_eq!(next.call.intended, next.at.monotonic);
}
