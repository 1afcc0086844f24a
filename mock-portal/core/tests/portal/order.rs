//! The order of the checks: of any two things that are wrong with a request, the earlier one is answered.

use std::sync::Arc;

use crate::lab::*;
use portal_core::{RateLimit, RateLimits};
use protocol::id::{OperationId, ReleaseVersion};
use protocol::pbx::call::Request;
use protocol::pbx::operation::OperationEvents;
use protocol::sign::Signature;
use serde_json::{Value, json};

/// What can be wrong with a signed request, in the order of SIGN-6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Route,
    Method,
    Size,
    ContentType,
    Headers,
    WrongSignature,
    Revoked,
    Skew,
    Replay,
    Rate,
    Query,
    Syntax,
    Protocol,
    Shape,
    NotFound,
}

use Fault::*;

/// In the order of SIGN-6, with the answer and the rule that the explanation names.
const FAULTS: [(Fault, &str, &str); 15] = [
    (Route, "404 not_found", "SIGN-6"),
    (Method, "405 method_not_allowed", "SIGN-6"),
    (Size, "413 body_too_large", "WIRE-2"),
    (ContentType, "415 unsupported_media_type", "SIGN-6"),
    (Headers, "401 bad_signature", "SIGN-3"),
    (WrongSignature, "401 bad_signature", "SIGN-2"),
    (Revoked, "401 revoked", "SIGN-6"),
    (Skew, "409 clock_skew", "SIGN-4"),
    (Replay, "400 replayed", "SIGN-5"),
    (Rate, "429 too_many_requests", "ANS-7"),
    (Query, "400 invalid_request", "SIGN-2"),
    (Syntax, "400 invalid_request", "KEY-2"),
    (Protocol, "426 protocol_too_old", "SIGN-6"),
    (Shape, "400 invalid_request", "SIGN-6"),
    (NotFound, "404 not_found", "SIGN-6"),
];

/// A sync, or events of an operation that is not there, with these faults; the answer and its rule.
fn answer_with(faults: &[Fault]) -> (String, &'static str) {
    let has = |fault: Fault| faults.contains(&fault);
    let mut lab = Lab::with(|settings| {
        if has(Rate) {
            let limit = RateLimit {
                requests: 1,
                seconds: 3600,
            };
            settings.rate_limits = RateLimits {
                per_agent: Some(limit),
                enroll: None,
            };
        }
    });
    let mut agent = lab.agent("clu_a", "node-a", 1);
    if has(Rate) && !has(Replay) {
        lab.synced(&mut agent);
    }

    let request = if has(NotFound) {
        let body = Arc::new(OperationEvents::new(Vec::new()).unwrap());
        Request::Events {
            operation: OperationId::new("op_unknown").unwrap(),
            body,
        }
    } else {
        Request::Sync(Arc::new(agent.report()))
    };
    let mut raw = Raw::unsigned(request);
    let mut body: Value = serde_json::from_slice(&raw.body).unwrap();
    if has(Protocol) {
        body["protocol"] = json!(0);
    }
    if has(Shape) {
        body.as_object_mut()
            .unwrap()
            .retain(|name, _| name == "protocol");
    }
    raw.body = body.to_string().into_bytes();
    if has(Syntax) {
        raw.body = [&raw.body, b" 1".as_slice()].concat();
    }
    if has(Query) {
        raw.target += "?";
    }
    if has(ContentType) {
        raw.set("Content-Type", "text/plain");
    }
    raw.too_large = has(Size);
    if has(Method) {
        raw.method = "PUT".to_owned();
    }
    if has(Route) {
        raw.target = raw.target.replace("/agent/", "/nowhere/");
    }
    raw.sign(&agent, lab.seconds());
    if has(Replay) {
        lab.send(&raw);
    }
    if has(Skew) {
        lab.pass_s(61);
    }
    if has(WrongSignature) {
        raw.set("Pbx-Signature", &Signature([1; 64]).to_string());
    }
    if has(Headers) {
        let at = raw.header("Pbx-Timestamp");
        raw.set("Pbx-Timestamp", &format!("+{at}"));
    }
    if has(Revoked) {
        lab.revoke(&agent);
    }
    let answer = lab.send(&raw);
    (said(&answer), explanation(&answer).rule)
}

/// Whether a request can have both: an array of events has no protocol.
fn go_together(one: Fault, other: Fault) -> bool {
    (one, other) != (Protocol, NotFound)
}

// rule SIGN-6: alone, each fault is answered as the table says.
#[test]
fn sign_6_each_fault_alone() {
    for (fault, says, rule) in FAULTS {
        assert_eq!(answer_with(&[fault]), (says.to_owned(), rule), "{fault:?}");
    }
}

// rule SIGN-6: neighbours and all other pairs.
#[test]
fn sign_6_of_two_faults_the_earlier_wins() {
    for (at, (earlier, says, rule)) in FAULTS.iter().enumerate() {
        for (later, ..) in FAULTS[at + 1..]
            .iter()
            .filter(|(later, ..)| go_together(*earlier, *later))
        {
            assert_eq!(
                answer_with(&[*earlier, *later]),
                (says.to_string(), *rule),
                "{earlier:?} and {later:?}"
            );
        }
    }
}

// rule SIGN-6: everything wrong at once, one thing mended after another.
#[test]
fn sign_6_mended_one_by_one() {
    for at in 0..FAULTS.len() {
        let faults: Vec<Fault> = FAULTS[at..]
            .iter()
            .map(|(fault, ..)| *fault)
            .filter(|fault| *fault != NotFound)
            .collect();
        if let Some(first) = faults.first() {
            let (_, says, rule) = FAULTS[at];
            assert_eq!(
                answer_with(&faults),
                (says.to_owned(), rule),
                "from {first:?} on"
            );
        }
    }
}

// rule SIGN-6: an unknown agent is not asked for its signature.
#[test]
fn sign_6_an_unknown_agent_is_told_apart_from_a_wrong_signature() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let request = Request::Sync(Arc::new(agent.report()));
    for id in ["agt_unknown", "agt_00ZZZZZZZZZZZZZZZZ", "-"] {
        let mut raw = lab.sign(&agent, &request);
        raw.set("Pbx-Agent-Id", id);
        assert_eq!(said(&lab.send(&raw)), "401 unknown_agent", "{id}");
    }
}

// rule SIGN-6: the endpoints that take no `protocol` never answer 426.
#[test]
fn sign_6_the_protocol_is_asked_for_by_enroll_and_sync_alone() {
    let mut lab = Lab::with(|settings| settings.minimum_protocol = 2);
    let token = lab.token("clu_a", "node-a");
    let answer = lab.enroll(&Agent::new(&token, 1).enrollment(&token.token));
    assert_eq!(said(&answer), "426 protocol_too_old");

    // Enrolled while protocol 1 was spoken.
    let mut old = Lab::new();
    let mut agent = old.agent("clu_a", "node-a", 1);
    for changes in &old.changes {
        lab.portal.restore(changes);
    }
    let answer = lab.sync(&mut agent);
    assert_eq!(said(&answer), "426 protocol_too_old");
    let problem = &answer.refused().unwrap().problem;
    assert_eq!(
        problem.release.as_ref().map(ReleaseVersion::as_str),
        Some("2026.11.1")
    );
    assert!(
        problem
            .headers()
            .contains(&("Upgrade", "pbx-agent/2".to_owned()))
    );

    let unknown = OperationId::new("op_unknown").unwrap();
    assert_eq!(said(&lab.events(&agent, &unknown, vec![])), "404 not_found");
    let release = ReleaseVersion::new("2026.11.1").unwrap();
    assert_eq!(said(&lab.call(&agent, &Request::Manifest(release))), "200");
    // A `protocol` of 0 there is a member that nobody knows.
    let rotation = agent.rotation_to(&agent.with_keys(2));
    let mut raw = Raw::unsigned(Request::RotateKey(Arc::new(rotation)));
    raw.body.pop();
    raw.body.extend_from_slice(b",\"protocol\":0}");
    raw.sign(&agent, lab.seconds());
    assert_eq!(said(&lab.send(&raw)), "200");
}

// rule SIGN-6: 426 is a whole number below; everything else about `protocol` is shape.
#[test]
fn sign_6_what_counts_as_a_protocol_that_is_too_old() {
    for (protocol, says) in [
        (json!(0), "426 protocol_too_old"),
        (json!(-7), "426 protocol_too_old"),
        (json!(1), "200"),
        (json!(2), "400 invalid_request"),
        (json!(0.5), "400 invalid_request"),
        (json!("0"), "400 invalid_request"),
        (json!(null), "400 invalid_request"),
        (json!([0]), "400 invalid_request"),
    ] {
        let mut lab = Lab::new();
        let mut agent = lab.agent("clu_a", "node-a", 1);
        let mut report = agent.report_json();
        report["protocol"] = protocol.clone();
        let mut raw = Raw::unsigned(Request::Sync(Arc::new(agent.report())));
        raw.body = report.to_string().into_bytes();
        raw.sign(&agent, lab.seconds());
        assert_eq!(said(&lab.send(&raw)), says, "{protocol}");
    }
}

// rule SIGN-6: which `Content-Type` is JSON.
#[test]
fn sign_6_content_types() {
    for (lines, says) in [
        (&["application/json"][..], "200"),
        (&["application/json; charset=utf-8"], "200"),
        (&["APPLICATION/JSON;charset=UTF-8"], "200"),
        (&["application/json; charset=\"utf-8\""], "200"),
        (&[], "415 unsupported_media_type"),
        (
            &["application/json", "application/json"],
            "415 unsupported_media_type",
        ),
        (
            &["application/json, application/json"],
            "415 unsupported_media_type",
        ),
        (
            &["application/json; charset=latin1"],
            "415 unsupported_media_type",
        ),
        (
            &["application/json; version=1"],
            "415 unsupported_media_type",
        ),
        (&["application/problem+json"], "415 unsupported_media_type"),
        (&["text/json"], "415 unsupported_media_type"),
        (&[""], "415 unsupported_media_type"),
        (&["application/jsonx"], "415 unsupported_media_type"),
    ] {
        let mut lab = Lab::new();
        let mut agent = lab.agent("clu_a", "node-a", 1);
        let mut raw = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
        raw.remove("content-type");
        for line in lines {
            raw.add("Content-Type", line);
        }
        assert_eq!(said(&lab.send(&raw)), says, "{lines:?}");
    }
}

// rule SIGN-6, rule SIGN-2: routes, as the wire has them; nothing is decoded or tidied up.
#[test]
fn sign_6_routes() {
    for (method, target, says) in [
        ("POST", "/agent/v1/sync/", "404 not_found"),
        ("POST", "//agent/v1/sync", "404 not_found"),
        ("POST", "/AGENT/v1/sync", "404 not_found"),
        ("POST", "/agent/v1/%73ync", "404 not_found"),
        ("POST", "http://host/agent/v1/sync", "404 not_found"),
        ("POST", "/agent/v1", "404 not_found"),
        ("POST", "", "404 not_found"),
        ("POST", "*", "404 not_found"),
        ("POST", "/api/v1/agents", "404 not_found"),
        ("GET", "/agent/v1/sync", "405 method_not_allowed"),
        ("post", "/agent/v1/sync", "405 method_not_allowed"),
        (
            "POST",
            "/agent/v1/releases/2026.11.1/manifest",
            "405 method_not_allowed",
        ),
        (
            "HEAD",
            "/agent/v1/releases/2026.11.1/manifest",
            "405 method_not_allowed",
        ),
        ("GET", "/agent/v1/releases/../manifest", "404 not_found"),
        (
            "GET",
            "/agent/v1/releases/2026.11.1/manifest",
            "401 bad_signature",
        ),
        ("POST", "/agent/v1/sync?x=1", "415 unsupported_media_type"),
    ] {
        let mut lab = Lab::new();
        let raw = Raw {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![],
            body: vec![],
            too_large: false,
        };
        let answer = lab.send(&raw);
        assert_eq!(said(&answer), says, "{method} {target}");
        if answer.status() == 405 {
            let headers = answer
                .encode(&protocol::dialect::Dialect::default())
                .headers;
            let due = if target.contains("manifest") {
                "GET"
            } else {
                "POST"
            };
            assert!(headers.contains(&("Allow", due.to_owned())), "{headers:?}");
        }
    }
}

// rule WIRE-2: exactly 256 KiB pass, whoever counts them.
#[test]
fn wire_2_a_body_of_256_kib_passes_and_one_more_byte_does_not() {
    for (length, says) in [(256 * 1024, "200"), (256 * 1024 + 1, "413 body_too_large")] {
        let mut lab = Lab::new();
        let mut agent = lab.agent("clu_a", "node-a", 1);
        let mut raw = Raw::unsigned(Request::Sync(Arc::new(agent.report())));
        raw.body.resize(length, b' ');
        raw.sign(&agent, lab.seconds());
        assert_eq!(said(&lab.send(&raw)), says, "{length}");
    }
}

// rule WIRE-5, rule KEY-2: unknown members are nothing, once the syntax is right; arrays are no objects at any level.
#[test]
fn wire_5_key_2_bodies() {
    let change = |change: fn(&mut Value)| {
        move |body: &[u8]| {
            let mut report: Value = serde_json::from_slice(body).unwrap();
            change(&mut report);
            report.to_string().into_bytes()
        }
    };
    let nested = |depth: usize| {
        move |body: &[u8]| {
            let value = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            [
                &body[..body.len() - 1],
                format!(",\"x\":{value}}}").as_bytes(),
            ]
            .concat()
        }
    };
    type Change = Box<dyn Fn(&[u8]) -> Vec<u8>>;
    let rows: Vec<(&str, Change, &str)> = vec![
        (
            "an unknown member",
            Box::new(change(|report| report["new"] = json!({"a": [1.5e300]}))),
            "200",
        ),
        (
            "an unknown member below",
            Box::new(change(|report| report["k3s"]["new"] = json!(null))),
            "200",
        ),
        (
            "an add-on state nobody knows",
            Box::new(change(|report| {
                report["addons"] = json!([{"name": "x", "state": "levitating"}]);
            })),
            "200",
        ),
        (
            "a member left out that may be null",
            Box::new(change(|report| {
                report.as_object_mut().unwrap().remove("last_error");
            })),
            "200",
        ),
        (
            "a member left out",
            Box::new(change(|report| {
                report.as_object_mut().unwrap().remove("leader");
            })),
            "400 invalid_request",
        ),
        (
            "an array for the report",
            Box::new(|body: &[u8]| [b"[", body, b"]"].concat()),
            "400 invalid_request",
        ),
        (
            "an array for an object below",
            Box::new(change(|report| report["boot"] = json!(["00", "x"]))),
            "400 invalid_request",
        ),
        (
            "a fraction for a whole number",
            Box::new(change(|report| report["sequence"] = json!(1.0))),
            "400 invalid_request",
        ),
        (
            "a member twice",
            Box::new(|body: &[u8]| [&body[..body.len() - 1], b",\"leader\":true}"].concat()),
            "400 invalid_request",
        ),
        (
            "an unknown member twice",
            Box::new(|body: &[u8]| [&body[..body.len() - 1], b",\"x\":1,\"x\":1}"].concat()),
            "400 invalid_request",
        ),
        ("31 levels below the first", Box::new(nested(31)), "200"),
        (
            "32 levels below the first",
            Box::new(nested(32)),
            "400 invalid_request",
        ),
        (
            "a byte order mark",
            Box::new(|body: &[u8]| [b"\xef\xbb\xbf", body].concat()),
            "400 invalid_request",
        ),
        (
            "something behind it",
            Box::new(|body: &[u8]| [body, b"x"].concat()),
            "400 invalid_request",
        ),
        (
            "a newline behind it",
            Box::new(|body: &[u8]| [body, b"\n"].concat()),
            "200",
        ),
        (
            "no UTF-8",
            Box::new(|body: &[u8]| [&body[..body.len() - 1], b",\"x\":\"\xff\"}"].concat()),
            "400 invalid_request",
        ),
        (
            "nothing",
            Box::new(|_: &[u8]| Vec::new()),
            "400 invalid_request",
        ),
    ];
    for (what, change, says) in rows {
        let mut lab = Lab::new();
        let mut agent = lab.agent("clu_a", "node-a", 1);
        let mut raw = Raw::unsigned(Request::Sync(Arc::new(agent.report())));
        raw.body = change(&raw.body);
        raw.sign(&agent, lab.seconds());
        assert_eq!(said(&lab.send(&raw)), says, "{what}");
    }
}
