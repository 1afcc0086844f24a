//! What an agent learns from the bytes that came back (`pbx::call::read_reply`).

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

use std::sync::Arc;

use proptest::prelude::*;
use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::limits::BODY_BYTES_MAX;
use protocol::pbx::call::{AnswerBody, BrokenBody, Refusal, Reply, RetryAfter, read_reply};
use protocol::pbx::operation::EventsAnswer;
use protocol::problem::{Problem, ProblemCode};
use protocol::time::Timestamp;

type Headers<'a> = &'a [(&'a str, &'a [u8])];

const JSON: (&str, &[u8]) = ("Content-Type", b"application/problem+json");

fn refused(status: u16, headers: Headers<'_>, body: &[u8]) -> Refusal {
    match read_reply(&Dialect::default(), Endpoint::Sync, status, headers, body) {
        Reply::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What a portal writes is what an agent learns, for every code, in every dialect; and without bytes the same.
// rule WIRE-4
#[test]
fn a_problem_arrives_as_it_was_meant_wire_4() {
    let other = r#"{"member_code": "err", "member_portal_time": "now", "member_retry_after_seconds": "wait"}"#;
    for dialect in [Dialect::default(), serde_json::from_str(other).unwrap()] {
        for code in ProblemCode::ALL {
            let problem = Problem {
                portal_time: Some(time("2026-11-30T01:02:03Z")),
                release: Some("2026.11.1".parse().unwrap()),
                retry_after_seconds: Some(7),
                ..Problem::new(*code, "the reason")
            };
            let headers = problem.headers();
            let mut headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, value.as_bytes()))
                .collect();
            headers.push(JSON);
            let reply = read_reply(
                &dialect,
                Endpoint::Sync,
                problem.status,
                &headers,
                &problem.encode(&dialect),
            );
            assert_eq!(reply, Reply::Refused(Refusal::from(&problem)));
        }
    }
}

// rule WIRE-4, ANS-4
#[test]
fn a_code_is_read_from_json_only_wire_4_ans_4() {
    let body = br#"{"code": "revoked"}"#;
    let html = b"<html>Please log in</html>";
    for (row, content_type, body, is_json, is_empty, code) in [
        (
            "problem+json",
            Some("application/problem+json"),
            &body[..],
            true,
            false,
            Some(ProblemCode::Revoked),
        ),
        (
            "plain JSON",
            Some("application/json"),
            body,
            true,
            false,
            Some(ProblemCode::Revoked),
        ),
        (
            "a parameter",
            Some("Application/JSON ; charset=utf-8"),
            body,
            true,
            false,
            Some(ProblemCode::Revoked),
        ),
        (
            "no content type",
            None,
            body,
            true,
            false,
            Some(ProblemCode::Revoked),
        ),
        (
            "JSON that says it is HTML",
            Some("text/html"),
            body,
            false,
            false,
            None,
        ),
        (
            "another JSON type",
            Some("application/jsonp"),
            body,
            false,
            false,
            None,
        ),
        ("HTML", Some("text/html"), html, false, false, None),
        (
            "HTML that says it is JSON",
            Some("application/json"),
            html,
            false,
            false,
            None,
        ),
        ("empty", None, b"", false, true, None),
        (
            "empty, JSON",
            Some("application/json"),
            b"",
            false,
            true,
            None,
        ),
        (
            "an array",
            Some("application/json"),
            br#"[{"code": "revoked"}]"#,
            false,
            false,
            None,
        ),
        (
            "a string",
            Some("application/json"),
            br#""revoked""#,
            false,
            false,
            None,
        ),
        (
            "a byte order mark",
            Some("application/json"),
            b"\xef\xbb\xbf{\"code\": \"revoked\"}",
            false,
            false,
            None,
        ),
        (
            "a member twice",
            Some("application/json"),
            br#"{"code": "revoked", "code": "revoked"}"#,
            false,
            false,
            None,
        ),
        (
            "an unknown code",
            Some("application/json"),
            br#"{"code": "tired"}"#,
            true,
            false,
            None,
        ),
        (
            "no code",
            Some("application/json"),
            b"{}",
            true,
            false,
            None,
        ),
        (
            "a code that is a number",
            Some("application/json"),
            br#"{"code": 401}"#,
            true,
            false,
            None,
        ),
    ] {
        let headers: Vec<_> = content_type
            .iter()
            .map(|value| ("content-type", value.as_bytes()))
            .collect();
        let refusal = refused(401, &headers, body);
        assert_eq!(
            (refusal.is_json, refusal.is_empty, refusal.code),
            (is_json, is_empty, code),
            "{row}"
        );
    }
    let two = [
        ("Content-Type", &b"application/json"[..]),
        ("Content-Type", b"text/html"),
    ];
    assert!(
        !refused(401, &two, body).is_json,
        "two content types that disagree"
    );
    assert_eq!(
        refused(401, &[], br#"{"code": "tired"}"#)
            .raw_code
            .as_deref(),
        Some("tired")
    );
    let large = format!(
        r#"{{"code": "revoked", "x": "{}"}}"#,
        "x".repeat(BODY_BYTES_MAX)
    );
    assert!(
        !refused(401, &[], large.as_bytes()).is_json,
        "larger than a body may be"
    );
}

#[test]
fn a_malformed_member_hides_no_other() {
    let body = br#"{"code": ["x"], "portal_time": "yesterday", "release": "../x", "retry_after_seconds": "7", "detail": "d"}"#;
    let refusal = refused(409, &[JSON], body);
    assert_eq!(
        (refusal.code, refusal.portal_time, &refusal.release),
        (None, None, &None)
    );
    assert_eq!(refusal.retry_after, RetryAfter::Unreadable("\"7\"".into()));
    assert_eq!(refusal.detail.as_deref(), Some("d"));
    let body = br#"{"code": "clock_skew", "portal_time": "2026-11-30T01:02:03Z", "release": 7}"#;
    let refusal = refused(409, &[JSON], body);
    assert_eq!(refusal.code, Some(ProblemCode::ClockSkew));
    assert_eq!(refusal.portal_time, Some(time("2026-11-30T01:02:03Z")));
}

// rule ANS-7
#[test]
fn the_portals_word_is_read_and_merged_ans_7() {
    const DATE: &str = "Mon, 30 Nov 2026 01:02:03 GMT";
    let date = time("2026-11-30T01:02:03Z");
    let seconds = RetryAfter::Seconds;
    let unreadable = |raw: &str| RetryAfter::Unreadable(raw.into());
    for (lines, member, expected) in [
        (&[][..], None, RetryAfter::Absent),
        (&["120"], None, seconds(120)),
        (&[" 120 "], None, seconds(120)),
        (&["0"], None, seconds(0)),
        (&["99999999999999999999999999"], None, seconds(u64::MAX)),
        (&[DATE], None, RetryAfter::At(date)),
        (
            &["Monday, 30-Nov-26 01:02:03 GMT"],
            None,
            RetryAfter::At(date),
        ),
        (&["Mon Nov 30 01:02:03 2026"], None, RetryAfter::At(date)),
        (&["1.5"], None, unreadable("1.5")),
        (&["+5"], None, unreadable("+5")),
        (&["-5"], None, unreadable("-5")),
        (&["5s"], None, unreadable("5s")),
        (&["soon"], None, unreadable("soon")),
        (&[""], None, unreadable("")),
        (&["1, 2"], None, unreadable("1, 2")),
        (
            &["2026-11-30T01:02:03Z"],
            None,
            unreadable("2026-11-30T01:02:03Z"),
        ),
        // Two lines, or header and member: the larger.
        (&["5", "9"], None, seconds(9)),
        (&["9", "5"], None, seconds(9)),
        (&["5"], Some("9"), seconds(9)),
        (&["9"], Some("5"), seconds(9)),
        (&["soon", "5"], None, seconds(5)),
        (&["soon"], Some("5"), seconds(5)),
        (&["5"], Some("-1"), seconds(5)),
        (
            &[DATE, "Mon, 30 Nov 2026 01:02:02 GMT"],
            None,
            RetryAfter::At(date),
        ),
        (
            &[DATE],
            Some("5"),
            RetryAfter::Longer {
                seconds: 5,
                until: date,
            },
        ),
        // The member alone: a fraction rounds up.
        (&[], Some("5"), seconds(5)),
        (&[], Some("1.5"), seconds(2)),
        (&[], Some("0.0001"), seconds(1)),
        (&[], Some("2e1"), seconds(20)),
        (&[], Some("1e400"), seconds(u64::MAX)),
        (&[], Some("-5"), unreadable("-5")),
        (&[], Some("-0"), unreadable("-0")),
        (&[], Some("null"), unreadable("null")),
        (&[], Some("\"5\""), unreadable("\"5\"")),
        (&[], Some("[5]"), unreadable("[5]")),
    ] {
        let mut headers: Vec<_> = lines
            .iter()
            .map(|line| ("Retry-After", line.as_bytes()))
            .collect();
        headers.push(JSON);
        let member = member.map_or(String::new(), |raw| {
            format!(r#", "retry_after_seconds": {raw}"#)
        });
        let body = format!(r#"{{"code": "too_many_requests"{member}}}"#);
        assert_eq!(
            refused(429, &headers, body.as_bytes()).retry_after,
            expected,
            "{lines:?} {member}"
        );
    }
    let not_text = [("retry-after", &b"\xff5"[..])];
    assert!(matches!(
        refused(429, &not_text, b"").retry_after,
        RetryAfter::Unreadable(_)
    ));
}

// rule ANS-7
#[test]
fn the_wait_is_at_least_a_second_and_bounded_elsewhere_ans_7() {
    let now = time("2026-11-30T01:02:03Z");
    let until = |text: &str| RetryAfter::At(time(text));
    for (word, wait) in [
        (RetryAfter::Absent, None),
        (RetryAfter::Unreadable("soon".into()), None),
        (RetryAfter::Seconds(0), Some(1)),
        (RetryAfter::Seconds(7), Some(7)),
        (RetryAfter::Seconds(u64::MAX), Some(u64::MAX)),
        (until("2026-11-30T01:02:10Z"), Some(7)),
        (until("2026-11-30T01:02:03.001Z"), Some(1)),
        (until("2026-11-30T01:02:04.001Z"), Some(2)),
        (until("2020-01-01T00:00:00Z"), Some(1)),
        (
            RetryAfter::Longer {
                seconds: 5,
                until: time("2026-11-30T01:02:10Z"),
            },
            Some(7),
        ),
        (
            RetryAfter::Longer {
                seconds: 9,
                until: time("2026-11-30T01:02:10Z"),
            },
            Some(9),
        ),
    ] {
        assert_eq!(word.wait_seconds(now), wait, "{word:?}");
    }
}

// rule ANS-5
#[test]
fn a_date_is_read_and_an_age_noticed_ans_5() {
    let headers = [("date", &b"Mon, 30 Nov 2026 01:02:03 GMT"[..])];
    let refusal = refused(409, &headers, b"");
    assert_eq!(
        (refusal.date, refusal.has_age),
        (Some(time("2026-11-30T01:02:03Z")), false)
    );
    let headers = [("Date", &b"yesterday"[..]), ("AGE", b"0")];
    let refusal = refused(409, &headers, b"");
    assert_eq!((refusal.date, refusal.has_age), (None, true));
}

// rule ANS-9
#[test]
fn only_a_whole_200_of_the_right_shape_is_done_ans_9() {
    let read = |status: u16, endpoint: Endpoint, body: &[u8]| {
        read_reply(&Dialect::default(), endpoint, status, &[], body)
    };
    let right = br#"{"accepted_sequence": 7}"#;
    let done = Reply::Done(AnswerBody::Events(EventsAnswer {
        accepted_sequence: 7,
    }));
    assert_eq!(read(200, Endpoint::Events, right), done);
    for status in [
        100,
        101,
        201,
        202,
        204,
        206,
        301,
        302,
        304,
        307,
        308,
        400,
        418,
        500,
        599,
        0,
        u16::MAX,
    ] {
        assert!(
            matches!(read(status, Endpoint::Events, right), Reply::Refused(_)),
            "{status}"
        );
    }
    for body in [
        &b""[..],
        b"<html></html>",
        b"{\"accepted_sequence\": 7",
        b"{\"accepted_sequence\": 7}{}",
        b"[7]",
        b"{\"accepted_sequence\": 7, \"accepted_sequence\": 8}",
        b"\xef\xbb\xbf{\"accepted_sequence\": 7}",
        b"{\"accepted_sequence\": -7}",
        b"{}",
        b"null",
    ] {
        let reply = read(200, Endpoint::Events, body);
        assert!(
            matches!(reply, Reply::Broken { status: 200, .. }),
            "{reply:?}"
        );
    }
    // Exactly 256 KiB pass, one byte more does not (WIRE-2).
    let padded = |length: usize| {
        let mut body = right.to_vec();
        body.resize(length, b' ');
        body
    };
    assert_eq!(read(200, Endpoint::Events, &padded(BODY_BYTES_MAX)), done);
    let why = BrokenBody::TooLarge(BODY_BYTES_MAX + 1);
    assert_eq!(
        read(200, Endpoint::Events, &padded(BODY_BYTES_MAX + 1)),
        Reply::Broken { status: 200, why }
    );
    // Right JSON, but another endpoint's.
    for endpoint in Endpoint::ALL
        .iter()
        .filter(|endpoint| **endpoint != Endpoint::Events)
    {
        assert!(
            matches!(read(200, *endpoint, right), Reply::Broken { .. }),
            "{endpoint}"
        );
    }
}

#[test]
fn a_document_in_an_answer_stays_raw_and_may_be_wrong() {
    let body = br#"{"portal_time": "2026-11-30T01:02:03Z", "desired": { "generation" : 19, "secrets": "in clear" }}"#;
    let Reply::Done(AnswerBody::Sync(answer)) =
        read_reply(&Dialect::default(), Endpoint::Sync, 200, &[], body)
    else {
        panic!("a document that is refused does not refuse the answer");
    };
    assert_eq!(
        answer.desired.as_ref().unwrap().get(),
        r#"{ "generation" : 19, "secrets": "in clear" }"#
    );
    assert!(answer.operation.is_none());
    // What is written again is read the same.
    let again = AnswerBody::Sync(Arc::clone(&answer)).to_json();
    let reply = read_reply(&Dialect::default(), Endpoint::Sync, 200, &[], &again);
    assert_eq!(reply, Reply::Done(AnswerBody::Sync(answer)));
    // But the syntax step looks into it.
    let doubled = br#"{"portal_time": "2026-11-30T01:02:03Z", "desired": {"a": {"b": 1, "b": 2}}}"#;
    let reply = read_reply(&Dialect::default(), Endpoint::Sync, 200, &[], doubled);
    assert!(matches!(reply, Reply::Broken { .. }), "{reply:?}");
}

// rule FILE-8
#[test]
fn an_operation_whose_id_is_a_path_breaks_the_answer_file_8() {
    let body = |id: &str| {
        format!(
            r#"{{"portal_time": "2026-11-30T01:02:03Z", "operation": {{"id": "{id}", "kind": "diag.collect",
                "target": "n1", "params": {{}}}}}}"#
        )
    };
    let read = |id: &str| {
        read_reply(
            &Dialect::default(),
            Endpoint::Sync,
            200,
            &[],
            body(id).as_bytes(),
        )
    };
    assert!(matches!(read("op_1"), Reply::Done(_)));
    assert!(matches!(read("../../etc/x"), Reply::Broken { .. }));
}

// rule SEAL-2
#[test]
fn an_enrollment_with_a_secret_in_clear_is_broken_by_name_seal_2() {
    let sealed = r#"{"sealed":"AAAA"}"#;
    let body = |agent_token: &str, release: &str| {
        format!(
            r#"{{"agent_id":"agt_1","portal_time":"2026-11-30T01:02:03Z","release":"{release}",
                "k3s":{{"config":{{}},"token":{sealed},"agent_token":{agent_token}}},
                "secrets":{{"hcloud_token":{sealed},"s3":{{"endpoint":"e","region":"r","bucket":"b","folder":"f",
                "access_key":{sealed},"secret_key":{sealed}}}}},"manifests":[]}}"#
        )
    };
    let read = |body: String| {
        read_reply(
            &Dialect::default(),
            Endpoint::Enroll,
            200,
            &[],
            body.as_bytes(),
        )
    };
    let Reply::Done(AnswerBody::Enroll(answer)) = read(body(sealed, "1")) else {
        panic!("all sealed")
    };
    assert_eq!(answer.sealed_values().len(), 5);
    for release in ["1", "../1"] {
        let why = BrokenBody::UnsealedSecret {
            field: "k3s.agent_token".into(),
        };
        assert_eq!(
            read(body("\"canary\"", release)),
            Reply::Broken { status: 200, why }
        );
    }
}

/// Something like an answer: bytes of all kinds, and pieces of what is expected.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\"code\"",
        b"\"retry_after_seconds\"",
        b"\"revoked\"",
        b"\\u00",
        b"1e9",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\"desired\"",
        b"\"portal_time\"",
        b"\"2026-11-30T01:02:03Z\"",
        b"null",
        b" ",
        b"<html>",
    ];
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..256),
        proptest::collection::vec(proptest::sample::select(pieces), 0..40)
            .prop_map(|pieces| pieces.concat()),
    ]
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic(
        status in prop_oneof![Just(200), any::<u16>()],
        endpoint in proptest::sample::select(Endpoint::ALL),
        headers in proptest::collection::vec(
            (
                proptest::sample::select(&["Retry-After", "content-type", "Date", "Age", "x"][..]),
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..24),
                    Just(b"application/json".to_vec()),
                    Just(b"99999999999999999999".to_vec()),
                    Just(b"Fri, 31 Dec 9999 23:59:59 GMT".to_vec()),
                ],
            ),
            0..4,
        ),
        body in any_body(),
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let reply = read_reply(&Dialect::default(), endpoint, status, &headers, &body);
        prop_assert_eq!(matches!(reply, Reply::Refused(_)), status != 200);
        if let Reply::Refused(refusal) = reply {
            prop_assert_eq!(refusal.is_empty, body.is_empty());
            let _ = refusal.retry_after.wait_seconds(Timestamp::MAX);
            let _ = refusal.retry_after.wait_seconds(Timestamp::MIN);
        }
    }
}

#[test]
fn depth_without_end_is_no_stack_without_end() {
    for piece in ["[", "{\"a\":", "[{\"a\":"] {
        let body = piece.repeat(BODY_BYTES_MAX / piece.len());
        for status in [200, 400] {
            let reply = read_reply(
                &Dialect::default(),
                Endpoint::Sync,
                status,
                &[],
                body.as_bytes(),
            );
            assert!(!matches!(reply, Reply::Done(_)));
        }
    }
}
