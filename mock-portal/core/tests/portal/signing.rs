//! Signatures: who is believed, how far a clock may be off, what is a replay, and how a wrong one explains itself.

use std::sync::Arc;

use portal_core::{Answer, NearMiss, TypedCall};
use protocol::dialect::Dialect;
use protocol::hash::Sha256Hex;
use protocol::id::{OperationId, ReleaseVersion};
use protocol::pbx::call::Request;
use protocol::pbx::operation::OperationEvents;
use protocol::pbx::sync::SyncReport;
use protocol::problem::ProblemCode;
use protocol::sign::{Signature, canonical};
use protocol::time::UnixSeconds;
use serde_json::json;

use crate::lab::*;

fn manifest() -> Request {
    Request::Manifest(ReleaseVersion::new("2026.11.1").unwrap())
}

fn one_agent() -> (Lab, Agent) {
    let mut lab = Lab::new();
    let agent = lab.agent("clu_a", "node-a", 1);
    (lab, agent)
}

// rule SIGN-1: every endpoint but /enroll wants a signature, and one that is the agent's.
#[test]
fn sign_1_nothing_but_enroll_goes_without_a_signature() {
    let (mut lab, mut agent) = one_agent();
    let rotation = agent.rotation_to(&agent.with_keys(2));
    let events = Request::Events {
        operation: OperationId::new("op_unknown").unwrap(),
        body: Arc::new(OperationEvents::new(Vec::new()).unwrap()),
    };
    for (request, says) in [
        (Request::Sync(Arc::new(agent.report())), "200"),
        (events, "404 not_found"),
        (manifest(), "200"),
        (Request::RotateKey(Arc::new(rotation)), "200"),
    ] {
        let mut forged = lab.sign(&agent, &request);
        forged.set("Pbx-Signature", &Signature([1; 64]).to_string());
        for unproven in [Raw::unsigned(request.clone()), forged] {
            assert_eq!(
                said(&lab.send(&unproven)),
                "401 bad_signature",
                "{request:?}"
            );
        }
        assert_eq!(said(&lab.call(&agent, &request)), says, "{request:?}");
        lab.pass_s(1);
    }
}

// rule SIGN-2: each part is signed; a change on the way is seen.
#[test]
fn sign_2_every_part_is_covered() {
    type Damage = fn(&mut Raw);
    let rows: [(&str, Damage, &str); 6] = [
        ("nothing", |_| {}, "200"),
        (
            "the path",
            |raw| raw.target = "/agent/v1/rotate-key".to_owned(),
            "401 bad_signature",
        ),
        (
            "the timestamp",
            |raw| {
                let at: u64 = raw.header("Pbx-Timestamp").parse().unwrap();
                raw.set("Pbx-Timestamp", &(at + 1).to_string());
            },
            "401 bad_signature",
        ),
        ("the body", |raw| raw.body.push(b'\n'), "401 bad_signature"),
        (
            "the signature",
            |raw| {
                let flipped = if raw.header("Pbx-Signature").starts_with('A') {
                    "B"
                } else {
                    "A"
                };
                let signature = flipped.to_owned() + &raw.header("Pbx-Signature")[1..];
                raw.set("Pbx-Signature", &signature);
            },
            "401 bad_signature",
        ),
        ("another header", |raw| raw.set("User-Agent", "x"), "200"),
    ];
    for (what, damage, says) in rows {
        let (mut lab, mut agent) = one_agent();
        let mut raw = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
        damage(&mut raw);
        assert_eq!(said(&lab.send(&raw)), says, "{what}");
    }
}

// rule SIGN-2: the bytes themselves, spelled out, and not by the function that the portal uses.
#[test]
fn sign_2_the_signed_bytes() {
    let (mut lab, agent) = one_agent();
    let at = lab.seconds();
    let mut raw = Raw::unsigned(manifest());
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let bytes = format!("GET\n/agent/v1/releases/2026.11.1/manifest\n{at}\n{empty}");
    raw.sign_bytes(&agent, at, bytes.as_bytes());
    assert_eq!(said(&lab.send(&raw)), "200");
}

// rule SIGN-2: a query is part of what is signed, and this protocol has none; even a bare `?` is one.
#[test]
fn sign_2_a_query_is_refused_though_it_is_signed() {
    for (query, says) in [
        ("", "200"),
        ("?", "400 invalid_request"),
        ("?a=1", "400 invalid_request"),
    ] {
        let (mut lab, mut agent) = one_agent();
        let mut raw = Raw::unsigned(Request::Sync(Arc::new(agent.report())));
        raw.target += query;
        raw.sign(&agent, lab.seconds());
        assert_eq!(said(&lab.send(&raw)), says, "{query:?}");
    }
}

// rule SIGN-3, rule KEY-2: each header exactly once and well-formed.
#[test]
fn sign_3_key_2_headers() {
    type Damage = fn(&mut Raw);
    fn twice(raw: &mut Raw, name: &str) {
        let value = raw.header(name);
        raw.add(&name.to_lowercase(), &value);
    }
    let rows: Vec<(&str, Damage)> = vec![
        ("no agent ID", |raw| raw.remove("Pbx-Agent-Id")),
        ("no timestamp", |raw| raw.remove("Pbx-Timestamp")),
        ("no signature", |raw| raw.remove("Pbx-Signature")),
        ("the agent ID twice", |raw| twice(raw, "Pbx-Agent-Id")),
        ("the timestamp twice", |raw| twice(raw, "Pbx-Timestamp")),
        ("the signature twice", |raw| twice(raw, "Pbx-Signature")),
        ("an empty agent ID", |raw| raw.set("Pbx-Agent-Id", "")),
        ("an agent ID of 65", |raw| {
            raw.set("Pbx-Agent-Id", &"a".repeat(65));
        }),
        ("an agent ID with a slash", |raw| {
            raw.set("Pbx-Agent-Id", "agt/../x");
        }),
        ("an agent ID that is no text", |raw| {
            raw.remove("Pbx-Agent-Id");
            raw.headers.push(("Pbx-Agent-Id".to_owned(), vec![0xff]));
        }),
        ("a timestamp with a sign", |raw| {
            let at = format!("+{}", raw.header("Pbx-Timestamp"));
            raw.set("Pbx-Timestamp", &at);
        }),
        ("a timestamp with a leading zero", |raw| {
            let at = format!("0{}", &raw.header("Pbx-Timestamp")[1..]);
            raw.set("Pbx-Timestamp", &at);
        }),
        ("a timestamp with a fraction", |raw| {
            let at = format!("{}.0", raw.header("Pbx-Timestamp"));
            raw.set("Pbx-Timestamp", &at);
        }),
        ("a timestamp of 11 digits", |raw| {
            raw.set("Pbx-Timestamp", "17960005230");
        }),
        ("an empty timestamp", |raw| raw.set("Pbx-Timestamp", "")),
        ("a timestamp with blanks inside", |raw| {
            raw.set("Pbx-Timestamp", "17960 00523");
        }),
        ("a signature without padding", |raw| {
            let signature = raw.header("Pbx-Signature").trim_end_matches('=').to_owned();
            raw.set("Pbx-Signature", &signature);
        }),
        ("a signature that is not canonical", |raw| {
            // The last character before the padding carries 4 unused bits.
            let signature = raw.header("Pbx-Signature");
            let spelled = match signature.as_bytes()[85] {
                b'A' => signature[..85].to_owned() + "B==",
                b'Q' => signature[..85].to_owned() + "R==",
                b'g' => signature[..85].to_owned() + "h==",
                _ => signature[..85].to_owned() + "x==",
            };
            raw.set("Pbx-Signature", &spelled);
        }),
        ("a signature in hex", |raw| {
            raw.set("Pbx-Signature", &"ab".repeat(64));
        }),
        ("a signature of 63 bytes", |raw| {
            raw.set("Pbx-Signature", &"AAAA".repeat(21));
        }),
    ];
    for (what, damage) in rows {
        let (mut lab, mut agent) = one_agent();
        let mut raw = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
        damage(&mut raw);
        let answer = lab.send(&raw);
        assert_eq!(
            (said(&answer).as_str(), explanation(&answer).rule),
            ("401 bad_signature", "SIGN-3"),
            "{what}"
        );
        assert!(
            answer
                .encode(&Dialect::default())
                .headers
                .contains(&("WWW-Authenticate", "Pbx".to_owned()))
        );
    }
}

// rule SIGN-3: milliseconds are named as such.
#[test]
fn sign_3_a_timestamp_in_milliseconds_is_named() {
    let (mut lab, mut agent) = one_agent();
    let mut raw = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
    raw.set("Pbx-Timestamp", &START_MS.to_string());
    let answer = lab.send(&raw);
    assert!(
        explanation(&answer)
            .came
            .contains("looks like milliseconds"),
        "{:?}",
        explanation(&answer)
    );
}

// rule SIGN-4: whole seconds on both sides; exactly 60 pass.
#[test]
fn sign_4_skew() {
    for (ahead_s, portals_ms, says) in [
        (0, 0, "200"),
        (60, 0, "200"),
        (60, 999, "200"),
        (61, 0, "409 clock_skew"),
        (61, 999, "409 clock_skew"),
        (-60, 0, "200"),
        (-60, 999, "200"),
        (-61, 0, "409 clock_skew"),
        (-1_796_000_523, 0, "409 clock_skew"), // a node that thinks it is 1970
        (8_000_000_000, 0, "409 clock_skew"),
    ] {
        let (mut lab, mut agent) = one_agent();
        lab.now.wall = protocol::time::Timestamp::from_unix_ms(START_MS + portals_ms);
        let at = UnixSeconds((START_MS / 1000 + ahead_s) as u64);
        let raw = Raw::signed(&agent.clone(), &Request::Sync(Arc::new(agent.report())), at);
        let answer = lab.send(&raw);
        assert_eq!(said(&answer), says, "{ahead_s} s, {portals_ms} ms");
        if let Some(refused) = answer.refused() {
            assert_eq!(
                refused.problem.portal_time,
                Some(lab.now.wall),
                "the portal's time helps"
            );
        }
    }
}

// rule SIGN-4: the portal's clock is the one that was set.
#[test]
fn sign_4_the_portals_clock_counts() {
    let (mut lab, mut agent) = one_agent();
    let input = serde_json::from_value(json!({"offset_ms": 3_600_000})).unwrap();
    lab.portal.control(lab.now).set_clock(input);
    let at = UnixSeconds((START_MS / 1000) as u64);
    let raw = Raw::signed(&agent.clone(), &Request::Sync(Arc::new(agent.report())), at);
    let answer = lab.send(&raw);
    assert_eq!(said(&answer), "409 clock_skew");
    let told = answer.refused().unwrap().problem.portal_time.unwrap();
    assert_eq!(told.unix_ms(), START_MS + 3_600_000);
    assert_eq!(said(&lab.sync(&mut agent)), "200");
}

// rule SIGN-5: seen once, refused for as long as its timestamp could pass; the next second is another signature.
#[test]
fn sign_5_a_replay_is_refused_until_the_skew_refuses_it() {
    let (mut lab, mut agent) = one_agent();
    let report = Request::Sync(Arc::new(agent.report()));
    let ahead = UnixSeconds(lab.seconds().0 + 60);
    let raw = Raw::signed(&agent, &report, ahead);
    assert_eq!(said(&lab.send(&raw)), "200");
    for passed in 1..=121 {
        lab.pass_s(1);
        let says = if passed <= 120 {
            "400 replayed"
        } else {
            "409 clock_skew"
        };
        assert_eq!(said(&lab.send(&raw)), says, "after {passed} s");
        let other = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
        assert_eq!(said(&lab.send(&other)), "200", "the memory goes on");
    }
    for (passed, says) in [(0, "200"), (0, "400 replayed"), (1, "200")] {
        lab.pass_s(passed);
        let next = lab.sign(&agent, &report);
        assert_eq!(
            said(&lab.send(&next)),
            says,
            "the same report, signed anew (ANS-3)"
        );
    }
}

// rule SIGN-5: the portal's clock is set back by an hour, and forward again; what was seen is still known.
#[test]
fn sign_5_a_clock_that_is_set_back_brings_no_replay_in() {
    let (mut lab, mut agent) = one_agent();
    let set = |lab: &mut Lab, offset_ms: i64| {
        let input = serde_json::from_value(json!({"offset_ms": offset_ms})).unwrap();
        lab.portal.control(lab.now).set_clock(input);
    };
    let raw = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
    assert_eq!(said(&lab.send(&raw)), "200");
    set(&mut lab, -3_600_000);
    for _ in 0..5 {
        lab.pass_s(200);
        lab.synced(&mut agent); // the memory goes on, and forgets what it may
    }
    set(&mut lab, -1_000_000);
    assert_eq!(lab.seconds().0, (START_MS / 1000) as u64 + 5);
    assert_eq!(said(&lab.send(&raw)), "400 replayed");
}

// rule SIGN-5: what is refused after this step stays remembered; what is refused before is not.
#[test]
fn sign_5_what_is_remembered() {
    let (mut lab, mut agent) = one_agent();
    // Refused later: bad JSON under a right signature.
    let mut raw = Raw::unsigned(Request::Sync(Arc::new(agent.report())));
    raw.body = b"nonsense".to_vec();
    raw.sign(&agent, lab.seconds());
    assert_eq!(said(&lab.send(&raw)), "400 invalid_request");
    assert_eq!(said(&lab.send(&raw)), "400 replayed");

    // Refused earlier: the skew; healed by the portal's clock, it passes.
    lab.pass_s(1);
    let at = UnixSeconds(lab.seconds().0 + 61);
    let raw = Raw::signed(&agent.clone(), &Request::Sync(Arc::new(agent.report())), at);
    assert_eq!(said(&lab.send(&raw)), "409 clock_skew");
    lab.pass_s(1);
    assert_eq!(said(&lab.send(&raw)), "200");

    // A wrong signature: somebody else's, over the same bytes.
    lab.pass_s(1);
    let right = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
    let mut wrong = right.clone();
    wrong.sign_bytes(
        &Agent {
            enrolled: agent.enrolled.clone(),
            ..agent.with_keys(7)
        },
        lab.seconds(),
        &right.due(lab.seconds()),
    );
    assert_eq!(said(&lab.send(&wrong)), "401 bad_signature");
    assert_eq!(
        said(&lab.send(&right)),
        "200",
        "a wrong signature never enters the memory"
    );
}

// rule SIGN-5, rule KEY-4: a full memory is 503, never 401, and forgets nothing.
#[test]
fn sign_5_key_4_a_full_memory_answers_503() {
    let mut lab = Lab::with(|settings| {
        settings.replay_capacity = 3;
        settings.shards = portal_core::Shards::new(1);
    });
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let mut seen = Vec::new();
    for _ in 0..3 {
        lab.pass_s(1);
        let raw = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
        assert_eq!(said(&lab.send(&raw)), "200");
        seen.push(raw);
    }
    let answer = lab.sync(&mut agent);
    assert_eq!(said(&answer), "503 internal");
    assert_eq!(explanation(&answer).rule, "SIGN-5");
    for raw in &seen {
        assert_eq!(said(&lab.send(raw)), "400 replayed");
    }
    lab.pass_s(121);
    assert_eq!(
        said(&lab.sync(&mut agent)),
        "200",
        "what is too old made room"
    );
}

// rule KEY-3: two agents that ask for the same manifest in the same second sign the same bytes, and both get it.
#[test]
fn key_3_a_thousand_agents_fetch_one_manifest_in_one_second() {
    let mut lab = Lab::new();
    let tokens = lab.tokens(
        json!({"cluster_id": "clu_many", "node_name": "n", "count": 50, "servers_per_cluster": 5}),
    );
    let mut agents = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let mut agent = Agent::new(token, at as u8);
        agent.enrolled = Some(expect_enrolled(
            &lab.enroll(&agent.enrollment(&token.token)),
        ));
        agents.push(agent);
    }
    let due = Raw::unsigned(manifest()).due(lab.seconds());
    for agent in &agents {
        let raw = lab.sign(agent, &manifest());
        assert_eq!(raw.due(lab.seconds()), due, "all sign the same bytes");
        assert_eq!(said(&lab.send(&raw)), "200");
        assert_eq!(said(&lab.send(&raw)), "400 replayed", "each once");
    }
}

// rule KEY-3: another signature of the same key over the same bytes is a replay all the same. Typed, since only whoever
// holds the key can make one.
#[test]
fn key_3_the_memory_knows_key_and_bytes_not_signatures() {
    let mut lab = Lab::new();
    let one = lab.agent("clu_a", "node-a", 1);
    let other = lab.agent("clu_a", "node-b", 2);
    let call = |agent: &Agent, fingerprint: u8| TypedCall {
        agent: Some(agent.id().clone()),
        key: agent.signing.public(),
        at: UnixSeconds((START_MS / 1000) as u64),
        fingerprint: [fingerprint; 16],
        request: manifest(),
    };
    for (agent, fingerprint, says) in [
        (&one, 1, "200"),
        (&one, 1, "400 replayed"),
        (&other, 1, "200"),
        (&one, 2, "200"),
        (&other, 1, "400 replayed"),
    ] {
        assert_eq!(
            said(&lab.send_typed(call(agent, fingerprint))),
            says,
            "{} {fingerprint}",
            agent.node
        );
    }
}

// rule SIGN-6: a wrong signature learns nothing about revocation.
#[test]
fn sign_6_a_wrong_signature_of_a_revoked_agent_learns_nothing() {
    let (mut lab, mut agent) = one_agent();
    lab.revoke(&agent);
    assert_eq!(said(&lab.sync(&mut agent)), "401 revoked");
    let stranger = Agent {
        enrolled: agent.enrolled.clone(),
        ..agent.with_keys(7)
    };
    let answer = lab.call(&stranger, &manifest());
    assert_eq!(said(&answer), "401 bad_signature");
    let told = &answer.refused().unwrap().problem.detail;
    assert!(!told.contains("revoked"), "{told}");
    assert_eq!(answer.agent, None, "nobody is proven");
}

// rule SIGN-7: the portal verifies strictly; `s` plus the group's order verifies without that.
#[test]
fn sign_7_a_signature_with_a_large_s_is_wrong() {
    const L: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let (mut lab, agent) = one_agent();
    let mut raw = lab.sign(&agent, &manifest());
    let mut signature: Signature = raw.header("Pbx-Signature").parse().unwrap();
    let mut carry = 0;
    for (byte, l) in signature.0[32..].iter_mut().zip(L) {
        let sum = u16::from(*byte) + u16::from(l) + carry;
        *byte = (sum & 0xff) as u8;
        carry = sum >> 8;
    }
    assert_eq!(carry, 0, "s + L fits into 32 bytes");
    raw.set("Pbx-Signature", &signature.to_string());
    assert_eq!(said(&lab.send(&raw)), "401 bad_signature");
}

// A dialect moves headers, base path and prefix, and the portal follows.
#[test]
fn sign_2_a_dialect_renames_what_it_may() {
    let dialect: Dialect = serde_json::from_value(json!({
        "base_path": "/api/agents", "header_agent_id": "X-Agent", "header_timestamp": "X-At", "header_signature": "X-Sig",
        "signed_prefix": "pbx1\n", "member_code": "error", "member_portal_time": "now",
        "member_retry_after_seconds": "wait"}))
    .unwrap();
    let mut lab = Lab::with(|settings| settings.dialect = dialect.clone());
    let token = lab.token("clu_a", "node-a");
    let mut agent = Agent::new(&token, 1);
    let mut raw = Raw::unsigned(Request::Enroll(Arc::new(agent.enrollment(&token.token))));
    assert_eq!(said(&lab.send(&raw)), "404 not_found");
    raw.target = "/api/agents/enroll".to_owned();
    agent.enrolled = Some(expect_enrolled(&lab.send(&raw)));

    let report = Request::Sync(Arc::new(agent.report()));
    let mut raw = Raw::unsigned(report.clone());
    raw.target = report.path(&dialect);
    let send = |lab: &mut Lab, raw: &Raw, at: UnixSeconds| -> Answer {
        let mut raw = raw.clone();
        let bytes = canonical(
            &dialect,
            &raw.method,
            &raw.target,
            at,
            &Sha256Hex::of(&raw.body),
        );
        raw.add("x-agent", agent.id().as_str());
        raw.add("x-at", &at.to_string());
        raw.add("x-sig", &agent.signing.sign(&bytes).to_string());
        lab.send(&raw)
    };
    let at = lab.seconds();
    assert_eq!(said(&send(&mut lab, &raw, at)), "200");
    let late = send(&mut lab, &raw, UnixSeconds(at.0 + 100));
    let body: serde_json::Value = serde_json::from_slice(&late.encode(&dialect).body).unwrap();
    assert_eq!(
        (&body["error"], &body["now"]),
        (&json!("clock_skew"), &json!("2026-11-30T01:02:03Z"))
    );
}

/// The near-miss search after signing something else than was due.
fn near_miss(signed: impl FnOnce(&Lab, &Agent, &Raw) -> Vec<u8>, body: Option<&[u8]>) -> NearMiss {
    let (mut lab, mut agent) = one_agent();
    let mut raw = Raw::unsigned(Request::Sync(Arc::new(agent.report())));
    if let Some(body) = body {
        raw.body = body.to_vec();
    }
    raw.add("Host", "agents.example.org");
    let at = lab.seconds();
    let bytes = signed(&lab, &agent, &raw);
    raw.sign_bytes(&agent, at, &bytes);
    let answer = lab.send(&raw);
    assert_eq!(said(&answer), "401 bad_signature");
    let explanation = explanation(&answer)
        .signature
        .clone()
        .expect("an explanation of the signature");
    assert_eq!(explanation.canonical.as_bytes(), raw.due(at));
    explanation.near_miss
}

// rule SIGN-2: a refusal names the mistake and the first byte that differs.
#[test]
fn sign_2_a_wrong_signature_is_explained_down_to_the_first_differing_byte() {
    let due = |lab: &Lab, raw: &Raw| raw.due(lab.seconds());
    let text = |lab: &Lab, raw: &Raw| String::from_utf8(raw.due(lab.seconds())).unwrap();
    let other_body = |lab: &Lab, raw: &Raw, body: &str| {
        canonical(
            &Dialect::default(),
            &raw.method,
            &raw.target,
            lab.seconds(),
            &Sha256Hex::of(body.as_bytes()),
        )
    };
    type Sign<'a> = Box<dyn FnOnce(&Lab, &Agent, &Raw) -> Vec<u8> + 'a>;
    let hash_at = "POST\n/agent/v1/sync\n1796000523\n".len();
    let rows: Vec<(&str, Sign, Option<&[u8]>, usize)> = vec![
        (
            "a newline at the end",
            Box::new(move |lab, _, raw| [due(lab, raw), b"\n".to_vec()].concat()),
            None,
            hash_at + 64,
        ),
        (
            "CR LF between the parts",
            Box::new(move |lab, _, raw| text(lab, raw).replace('\n', "\r\n").into()),
            None,
            4,
        ),
        (
            "nothing between the parts",
            Box::new(move |lab, _, raw| text(lab, raw).replace('\n', "").into()),
            None,
            4,
        ),
        (
            "a path without the base path",
            Box::new(move |lab, _, raw| text(lab, raw).replace("/agent/v1", "").into()),
            None,
            6,
        ),
        (
            "a whole URL instead of the path",
            Box::new(move |lab, _, raw| {
                text(lab, raw)
                    .replace("/agent", "https://agents.example.org/agent")
                    .into()
            }),
            None,
            5,
        ),
        (
            "a path with a slash at the end",
            Box::new(move |lab, _, raw| text(lab, raw).replace("sync", "sync/").into()),
            None,
            19,
        ),
        (
            "the method in lower case",
            Box::new(move |lab, _, raw| text(lab, raw).replace("POST", "post").into()),
            None,
            0,
        ),
        (
            "the timestamp in milliseconds",
            Box::new(move |lab, _, raw| {
                text(lab, raw).replace("1796000523", "1796000523000").into()
            }),
            None,
            hash_at - 1,
        ),
        (
            "the hash in upper case",
            Box::new(move |lab, _, raw| {
                let text = text(lab, raw);
                (text[..hash_at].to_owned() + &text[hash_at..].to_uppercase()).into()
            }),
            None,
            usize::MAX,
        ),
        (
            "the hash of an empty body",
            Box::new(move |lab, _, raw| other_body(lab, raw, "")),
            None,
            usize::MAX,
        ),
        (
            "the hash of the body and a newline",
            Box::new(move |lab, _, raw| {
                other_body(
                    lab,
                    raw,
                    &(String::from_utf8(raw.body.clone()).unwrap() + "\n"),
                )
            }),
            None,
            usize::MAX,
        ),
        (
            "the hash of the body without blanks",
            Box::new(move |lab, _, raw| {
                other_body(lab, raw, r#"{"b":[1,{"c":"a, \" :"}],"a":{}}"#)
            }),
            Some(b"{ \"b\": [1, {\"c\": \"a, \\\" :\"} ],\n \"a\" : { } }"),
            usize::MAX,
        ),
        (
            "the hash of the body indented by 2",
            Box::new(move |lab, _, raw| {
                other_body(
                    lab,
                    raw,
                    "{\n  \"b\": [\n    1,\n    {\n      \"c\": \"x\"\n    }\n  ],\n  \"a\": {}\n}",
                )
            }),
            Some(br#"{"b":[1,{"c":"x"}],"a":{}}"#),
            usize::MAX,
        ),
        (
            "the hash of the body with a blank behind each comma and colon",
            Box::new(move |lab, _, raw| other_body(lab, raw, r#"{"b": [1, {"c": "x"}], "a": {}}"#)),
            Some(br#"{"b":[1,{"c":"x"}],"a":{}}"#),
            usize::MAX,
        ),
        (
            "the hash of the body with its members sorted",
            Box::new(move |lab, _, raw| other_body(lab, raw, r#"{"a":{},"b":[1,{"c":"x"}]}"#)),
            Some(br#"{"b":[1,{"c":"x"}],"a":{}}"#),
            usize::MAX,
        ),
        (
            "the body itself instead of its hash",
            Box::new(move |lab, _, raw| {
                [&text(lab, raw).as_bytes()[..hash_at], &raw.body].concat()
            }),
            None,
            usize::MAX,
        ),
        (
            "the timestamp before the method",
            Box::new(move |lab, _, raw| {
                let text = text(lab, raw);
                let parts: Vec<&str> = text.split('\n').collect();
                [parts[2], parts[0], parts[1], parts[3]].join("\n").into()
            }),
            None,
            0,
        ),
        (
            "the agent's ID before the method",
            Box::new(move |lab, agent, raw| format!("{}\n{}", agent.id(), text(lab, raw)).into()),
            None,
            0,
        ),
        (
            "the SHA-256 of the bytes, in hex",
            Box::new(move |lab, _, raw| Sha256Hex::of(&due(lab, raw)).to_string().into()),
            None,
            usize::MAX,
        ),
    ];
    for (name, signed, body, at) in rows {
        match near_miss(signed, body) {
            NearMiss::Found {
                mistake,
                offset,
                expected,
                came,
                signed,
            } => {
                assert_eq!(mistake, name);
                assert_ne!(expected, came, "{name}");
                assert!(at == usize::MAX || offset == at, "{name}: offset {offset}");
                assert_eq!(signed.as_bytes().get(offset).copied(), came, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let nothing = near_miss(|_, _, _| b"something else altogether".to_vec(), None);
    assert!(
        matches!(nothing, NearMiss::NotFound { tried } if tried > 20),
        "{nothing:?}"
    );
}

// rule SIGN-2: a query that was forgotten while signing.
#[test]
fn sign_2_a_query_that_was_not_signed_is_named() {
    let (mut lab, mut agent) = one_agent();
    let mut raw = lab.sign(&agent.clone(), &Request::Sync(Arc::new(agent.report())));
    raw.target += "?a=1";
    let answer = lab.send(&raw);
    let signature = explanation(&answer).signature.clone().unwrap();
    assert!(
        matches!(&signature.near_miss, NearMiss::Found { mistake, came: Some(b'\n'), expected: Some(b'?'), .. }
            if mistake == "a path without its query"),
        "{signature:?}"
    );
}

#[test]
fn at_most_a_hundred_near_misses_are_searched_a_minute() {
    let (mut lab, agent) = one_agent();
    let stranger = Agent {
        enrolled: agent.enrolled.clone(),
        ..agent.with_keys(7)
    };
    let searched = |lab: &mut Lab| {
        lab.pass_s(0);
        let answer = lab.call(&stranger, &manifest());
        let explained = explanation(&answer).signature.clone().unwrap();
        explained.near_miss != NearMiss::NotSearched
    };
    let first = (0..120).filter(|_| searched(&mut lab)).count();
    assert_eq!(first, 100);
    lab.pass_s(60);
    assert!(searched(&mut lab));
}

// rule WIRE-4: what a refusal looks like on the wire.
#[test]
fn wire_4_a_refusal_is_a_problem_with_its_code() {
    let (mut lab, mut agent) = one_agent();
    let at = UnixSeconds(lab.seconds().0 + 100);
    let raw = Raw::signed(&agent.clone(), &Request::Sync(Arc::new(agent.report())), at);
    let answer = lab.send(&raw);
    let encoded = answer.encode(&Dialect::default());
    assert_eq!(encoded.status, 409);
    assert!(
        encoded
            .headers
            .contains(&("Content-Type", "application/problem+json".to_owned()))
    );
    let body: serde_json::Value = serde_json::from_slice(&encoded.body).unwrap();
    assert_eq!(body["type"], "about:blank");
    assert_eq!(body["title"], "Clock skew");
    assert_eq!(body["status"], 409);
    assert_eq!(body["code"], "clock_skew");
    assert_eq!(body["portal_time"], "2026-11-30T01:02:03Z");
    // What a world without bytes hands to the agent is what the agent would have read from the bytes.
    let headers: Vec<(&str, &[u8])> = encoded
        .headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    let read = protocol::pbx::call::read_reply(
        &Dialect::default(),
        protocol::endpoint::Endpoint::Sync,
        409,
        &headers,
        &encoded.body,
    );
    assert_eq!(answer.into_reply(), read);
}

// rule ANS-7: 429 says how long, in the header and in the member.
#[test]
fn ans_7_a_429_says_how_long() {
    let limit = portal_core::RateLimit {
        requests: 2,
        seconds: 30,
    };
    let mut lab = Lab::with(|settings| settings.rate_limits.per_agent = Some(limit));
    let (mut one, mut other) = (lab.agent("clu_a", "a", 1), lab.agent("clu_a", "b", 2));
    assert_eq!(said(&lab.sync(&mut one)), "200");
    assert_eq!(said(&lab.sync(&mut one)), "200");
    let answer = lab.sync(&mut one);
    assert_eq!(said(&answer), "429 too_many_requests");
    let encoded = answer.encode(&Dialect::default());
    assert!(
        encoded.headers.contains(&("Retry-After", "28".to_owned())),
        "{:?}",
        encoded.headers
    );
    assert_eq!(
        answer.refused().unwrap().problem.retry_after_seconds,
        Some(28)
    );
    assert_eq!(
        said(&lab.sync(&mut other)),
        "200",
        "another agent is not meant"
    );
    lab.pass_s(28);
    assert_eq!(said(&lab.sync(&mut one)), "200");
    assert_eq!(lab.count(ProblemCode::TooManyRequests), 1);
}

// The same machine, with bytes and without: the same answers and the same memory.
#[test]
fn typed_and_raw_calls_are_one_machine() {
    let run = |typed: bool| {
        let mut lab = Lab::new();
        let mut agent = lab.agent("clu_a", "node-a", 1);
        lab.set_desired("clu_a", desired());
        let mut answers = Vec::new();
        for step in 0..6 {
            lab.pass_s(if step == 3 { 0 } else { 1 });
            let report: Arc<SyncReport> =
                Arc::new(serde_json::from_value(agent.report_json()).unwrap());
            agent.reports += u64::from(step > 3);
            let request = Request::Sync(report);
            let at = UnixSeconds(lab.seconds().0 + if step == 5 { 90 } else { 0 });
            let answer = match typed {
                true => {
                    let mut fingerprint = [0; 16];
                    fingerprint[..8].copy_from_slice(&at.0.to_le_bytes());
                    let (agent, key) = (Some(agent.id().clone()), agent.signing.public());
                    lab.send_typed(TypedCall {
                        agent,
                        key,
                        at,
                        fingerprint,
                        request,
                    })
                }
                false => lab.send(&Raw::signed(&agent, &request, at)),
            };
            answers.push(answer.into_reply());
        }
        answers
    };
    assert_eq!(run(true), run(false));
}
