//! Enrollment: which token, whose keys, which server; and the same answer for the same request.

use std::sync::Arc;

use protocol::dialect::Dialect;
use protocol::pbx::call::Request;
use protocol::pbx::enroll::{EnrollAnswer, EnrollRequest};
use protocol::seal::SealingPublicKey;
use protocol::sign::SigningPublicKey;
use serde_json::{Value, json};

use crate::lab::*;

/// A lab with a token for that node, and the request of the node that it is for.
fn prepared(token: Value) -> (Lab, Agent, EnrollRequest) {
    let mut lab = Lab::new();
    let line = lab.tokens(token).remove(0);
    let agent = Agent::new(&line, 1);
    let request = agent.enrollment(&line.token);
    (lab, agent, request)
}

fn plain() -> Value {
    json!({"cluster_id": "clu_a", "node_name": "node-a"})
}

fn expires() -> Value {
    json!({"cluster_id": "clu_a", "node_name": "node-a", "expires_in_seconds": 60})
}

fn bound() -> Value {
    json!({"cluster_id": "clu_a", "node_name": "node-a", "server_id": 4201,
           "boot_image_sha256": "6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"})
}

// rule ENR-4: what the token is for, and when.
#[test]
fn enr_4_a_token_is_for_one_cluster_one_node_one_server_and_one_image() {
    type Change = fn(&mut Lab, &mut EnrollRequest);
    let rows: Vec<(&str, Value, Change, &str)> = vec![
        ("all right", plain(), |_, _| {}, "200"),
        ("all right, bound", bound(), |_, _| {}, "200"),
        (
            "another token",
            plain(),
            |_, r| r.token = "pbxe_other".parse().unwrap(),
            "401 invalid_token",
        ),
        (
            "the token of another shard",
            plain(),
            |_, r| r.token = "pbxe_0f0000".parse().unwrap(),
            "401 invalid_token",
        ),
        (
            "another cluster",
            plain(),
            |_, r| r.cluster_id = cluster_id("clu_b"),
            "401 server_mismatch",
        ),
        (
            "another node",
            plain(),
            |_, r| r.node_name = "node-b".parse().unwrap(),
            "401 server_mismatch",
        ),
        ("any server", plain(), |_, r| r.server_id.0 = 7, "200"),
        (
            "another server",
            bound(),
            |_, r| r.server_id.0 = 7,
            "401 server_mismatch",
        ),
        (
            "any image",
            plain(),
            |_, r| r.boot_image_sha256 = protocol::hash::Sha256Hex::of(b"x"),
            "200",
        ),
        (
            "another image",
            bound(),
            |_, r| r.boot_image_sha256 = protocol::hash::Sha256Hex::of(b"x"),
            "409 image_mismatch",
        ),
        ("in time", expires(), |lab, _| lab.pass_s(59), "200"),
        (
            "too late",
            expires(),
            |lab, _| lab.pass_s(60),
            "401 token_expired",
        ),
    ];
    for (what, token, change, says) in rows {
        let (mut lab, _, mut request) = prepared(token);
        change(&mut lab, &mut request);
        let answer = lab.enroll(&request);
        assert_eq!(said(&answer), says, "{what}");
        if answer.status() == 401 {
            let headers = answer.encode(&Dialect::default()).headers;
            assert!(
                headers.contains(&("WWW-Authenticate", "Pbx".to_owned())),
                "{what}"
            );
        }
        // A refusal uses up nothing.
        if answer.status() != 200 && says != "401 token_expired" {
            assert_eq!(
                lab.portal
                    .control(lab.now)
                    .agents(&Default::default())
                    .unwrap()
                    .agents,
                vec![],
                "{what}"
            );
        }
    }
}

// rule ENR-4: what the Hetzner API says of the server; one that nobody has put, and a member that is left out, are right.
#[test]
fn enr_4_the_hetzner_api_is_asked_about_the_server() {
    let rows: Vec<(Option<Value>, &str)> = vec![
        (None, "200"),
        (Some(json!({})), "200"),
        (
            Some(json!({"label": "clu_a", "name": "node-a", "reachable": true})),
            "200",
        ),
        (Some(json!({"label": "clu_b"})), "401 server_mismatch"),
        (
            Some(json!({"label": "", "name": "node-a"})),
            "401 server_mismatch",
        ),
        (
            Some(json!({"label": "clu_a", "name": "node-b"})),
            "401 server_mismatch",
        ),
        (Some(json!({"reachable": false})), "503 internal"),
        (
            Some(json!({"label": "clu_b", "reachable": false})),
            "503 internal",
        ),
    ];
    for (put, says) in rows {
        let (mut lab, _, request) = prepared(plain());
        lab.hetzner(7, json!({"label": "another server's"}));
        if let Some(put) = &put {
            lab.hetzner(4201, put.clone());
        }
        assert_eq!(said(&lab.enroll(&request)), says, "{put:?}");
        // A refusal uses up nothing, and the API can change its mind.
        lab.hetzner(4201, json!({}));
        assert_eq!(said(&lab.enroll(&request)), "200", "{put:?}");
        // What is enrolled is answered again, whatever is said of its server since (SIGN-6).
        lab.hetzner(4201, json!({"reachable": false}));
        assert_eq!(said(&lab.enroll(&request)), "200", "{put:?}");
    }
}

#[test]
fn the_hetzner_api_is_around_the_portal_and_not_in_its_memory() {
    let (mut lab, _, request) = prepared(plain());
    assert_eq!(request.server_id.0, 4201);
    lab.hetzner(4201, json!({"reachable": false}));
    lab.portal.control(lab.now).restart_without_data();
    for says in ["503 internal", "200"] {
        let line = lab.tokens(plain()).remove(0);
        let request = EnrollRequest {
            token: line.token,
            ..request.clone()
        };
        assert_eq!(said(&lab.enroll(&request)), says);
        lab.portal.control(lab.now).reset();
    }
}

/// The image in `bound` is that of the lab's agents.
#[test]
fn the_bound_image_is_the_agents() {
    let (_, agent, _) = prepared(bound());
    assert_eq!(bound()["boot_image_sha256"], agent.image.to_string());
}

// rule ENR-10: the same keys, the same server: the same answer, also when the token has expired, and no second agent.
#[test]
fn enr_10_the_same_request_gets_the_same_answer() {
    let (mut lab, agent, request) = prepared(expires());
    lab.set_desired("clu_a", desired());
    let first = expect_enrolled(&lab.enroll(&request));
    lab.pass_s(3600);
    // What the cluster is told meanwhile changes nothing about it.
    let mut other = desired_json();
    other["secrets"]["hcloud_token"] = json!("CANARY-new");
    lab.set_desired("clu_a", serde_json::from_value(other).unwrap());
    let again = expect_enrolled(&lab.enroll(&request));
    assert_eq!(opened(&agent, &first), opened(&agent, &again));
    assert_eq!(again.portal_time, lab.now.wall, "but for the portal's time");
    let back = EnrollAnswer {
        portal_time: first.portal_time,
        ..EnrollAnswer::clone(&again)
    };
    assert_eq!(back, *first);
    assert_eq!(
        lab.portal
            .control(lab.now)
            .agents(&Default::default())
            .unwrap()
            .agents
            .len(),
        1
    );
}

fn opened(agent: &Agent, answer: &EnrollAnswer) -> Vec<(String, String)> {
    answer
        .sealed_values()
        .into_iter()
        .map(|(path, sealed)| (path, agent.open(sealed).expect("opens")))
        .collect()
}

// rule ENR-10: a used token is nobody else's.
#[test]
fn enr_10_a_used_token() {
    type Change = fn(&mut Lab, &mut EnrollRequest);
    let rows: Vec<(&str, Change, &str)> = vec![
        ("the same", |_, _| {}, "200"),
        (
            "another program and image",
            |_, r| {
                r.agent_version = "1.5.0".parse().unwrap();
                r.boot_image_sha256 = protocol::hash::Sha256Hex::of(b"x");
            },
            "200",
        ),
        (
            "another signing key",
            |_, r| r.signing_key = protocol::sign::SigningKey::from_seed([3; 32]).public(),
            "401 token_used",
        ),
        (
            "another sealing key",
            |_, r| {
                r.sealing_key = protocol::seal::SealingSecretKey::from_seed([3; 32]).public();
            },
            "401 token_used",
        ),
        ("another server", |_, r| r.server_id.0 = 7, "401 token_used"),
        (
            "another server, expired",
            |lab, r| {
                lab.pass_s(3600);
                r.server_id.0 = 7;
            },
            "401 token_used",
        ),
        (
            "another node",
            |_, r| r.node_name = "node-b".parse().unwrap(),
            "401 server_mismatch",
        ),
        (
            "revoked",
            |lab, _| {
                let id = lab
                    .portal
                    .control(lab.now)
                    .agents(&Default::default())
                    .unwrap()
                    .agents[0]
                    .id
                    .clone();
                lab.portal.control(lab.now).revoke(&id).unwrap();
            },
            "401 token_used",
        ),
    ];
    for (what, change, says) in rows {
        let (mut lab, _, mut request) = prepared(expires());
        expect_enrolled(&lab.enroll(&request));
        change(&mut lab, &mut request);
        assert_eq!(said(&lab.enroll(&request)), says, "{what}");
    }
}

// rule ENR-10: after a rotation the token's first keys still get the first answer, and are no longer in force.
#[test]
fn enr_10_after_a_rotation() {
    let (mut lab, mut agent, request) = prepared(plain());
    agent.enrolled = Some(expect_enrolled(&lab.enroll(&request)));
    let mut new = agent.with_keys(2);
    lab.call(
        &agent,
        &Request::RotateKey(Arc::new(agent.rotation_to(&new))),
    );
    lab.synced(&mut new);
    let again = expect_enrolled(&lab.enroll(&request));
    assert_eq!(again.agent_id, *agent.id());
    assert_eq!(said(&lab.sync(&mut agent)), "401 bad_signature");
}

/// What can be wrong with an enrollment, in the order of SIGN-6.
const FAULTS: [(&str, &str); 14] = [
    ("content type", "415 unsupported_media_type"),
    ("rate", "429 too_many_requests"),
    ("syntax", "400 invalid_request"),
    ("protocol", "426 protocol_too_old"),
    ("shape", "400 invalid_request"),
    ("keys", "400 invalid_key"),
    ("token", "401 invalid_token"),
    ("node", "401 server_mismatch"),
    ("used", "401 token_used"),
    ("expired", "401 token_expired"),
    ("server", "401 server_mismatch"),
    ("conflict", "409 conflict"),
    ("hetzner", "401 server_mismatch"),
    ("image", "409 image_mismatch"),
];

fn answer_with(faults: &[&str]) -> String {
    let has = |fault: &str| faults.contains(&fault);
    let mut lab = Lab::with(|settings| {
        if has("rate") {
            settings.rate_limits.enroll = Some(portal_core::RateLimit {
                requests: 0,
                seconds: 60,
            });
        }
    });
    let mut token = bound();
    token["expires_in_seconds"] = json!(60);
    let line = lab.tokens(token).remove(0);
    let agent = Agent::new(&line, 1);
    let mut request = agent.enrollment(&line.token);
    // Setting up goes by a typed change of another portal where the rate refuses everything.
    if has("used") {
        let signing_key = protocol::sign::SigningKey::from_seed([5; 32]).public();
        lab.enroll(&EnrollRequest {
            signing_key,
            ..request.clone()
        });
    }
    if has("conflict") {
        let other = lab.token("clu_b", "node-b");
        let other = Agent {
            cluster: "clu_b".to_owned(),
            node: "node-b".to_owned(),
            ..agent
        }
        .enrollment(&other.token);
        lab.enroll(&other);
    }
    if has("hetzner") {
        lab.hetzner(4201, json!({"label": "clu_other"}));
    }
    if has("expired") {
        lab.pass_s(60);
    }
    if has("image") {
        request.boot_image_sha256 = protocol::hash::Sha256Hex::of(b"x");
    }
    if has("server") {
        request.server_id.0 = 7;
    }
    if has("node") {
        request.node_name = "node-x".parse().unwrap();
    }
    if has("token") {
        request.token = "pbxe_unknown".parse().unwrap();
    }
    if has("keys") {
        request.sealing_key = SealingPublicKey([0; 32]);
    }
    let mut raw = Raw::unsigned(Request::Enroll(Arc::new(request)));
    let mut body: Value = serde_json::from_slice(&raw.body).unwrap();
    if has("shape") {
        body.as_object_mut().unwrap().remove("arch");
    }
    if has("protocol") {
        body["protocol"] = json!(0);
    }
    raw.body = body.to_string().into_bytes();
    if has("syntax") {
        raw.body.push(b'}');
    }
    if has("content type") {
        raw.remove("content-type");
    }
    said(&lab.send(&raw))
}

// rule SIGN-6: the order of `/enroll`, every pair. `rate` refuses everything and so stands for the pairs before it only
// with what it does not hinder from being set up.
#[test]
fn sign_6_of_two_faults_of_an_enrollment_the_earlier_wins() {
    for (at, (earlier, says)) in FAULTS.iter().enumerate() {
        assert_eq!(answer_with(&[earlier]), *says, "{earlier}");
        for (later, _) in &FAULTS[at + 1..] {
            assert_eq!(
                answer_with(&[earlier, later]),
                *says,
                "{earlier} and {later}"
            );
        }
    }
}

// rule SIGN-6: the headers of a signature mean nothing here, and nothing is remembered.
#[test]
fn sign_6_an_enrollment_has_no_headers_and_no_replay() {
    let (mut lab, _, request) = prepared(plain());
    let mut raw = Raw::unsigned(Request::Enroll(Arc::new(request)));
    raw.add("Pbx-Agent-Id", "not / an ID");
    assert_eq!(said(&lab.send(&raw)), "200");
    assert_eq!(said(&lab.send(&raw)), "200");
    raw.target += "?";
    assert_eq!(said(&lab.send(&raw)), "400 invalid_request");
}

// rule KEY-1: weak keys are refused, each kind of weakness.
#[test]
fn key_1_weak_keys_are_refused_at_enrollment() {
    let hex = |text: &str| -> [u8; 32] {
        let bytes: Vec<u8> = (0..32)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        bytes.try_into().unwrap()
    };
    let mut identity = [0; 32];
    identity[0] = 1;
    let signing = [
        ("the identity", identity),
        ("zero, of order 4", [0; 32]),
        (
            "of order 8",
            hex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
        ),
        (
            "no point",
            hex("0200000000000000000000000000000000000000000000000000000000000000"),
        ),
        (
            "the identity spelled above p",
            hex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        ),
    ];
    for (what, key) in signing {
        let (mut lab, _, mut request) = prepared(plain());
        request.signing_key = SigningPublicKey(key);
        assert_eq!(said(&lab.enroll(&request)), "400 invalid_key", "{what}");
    }
    let sealing = [
        ("zero", [0; 32]),
        ("one", identity),
        (
            "of order 8",
            hex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        ),
        (
            "p - 1",
            hex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        ),
        (
            "p",
            hex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        ),
        (
            "nine, spelled above p",
            hex("f6ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        ),
    ];
    for (what, key) in sealing {
        let (mut lab, _, mut request) = prepared(plain());
        request.sealing_key = SealingPublicKey(key);
        assert_eq!(said(&lab.enroll(&request)), "400 invalid_key", "{what}");
    }
}

// rule SEAL-1: every secret of the answer is sealed to this node's key, and no other opens it.
#[test]
fn seal_1_the_secrets_of_an_enrollment_are_sealed_to_its_key() {
    let (mut lab, agent, request) = prepared(plain());
    lab.set_desired("clu_a", desired());
    let answer = lab.enroll(&request);
    let enrolled = expect_enrolled(&answer);
    let secrets = opened(&agent, &enrolled);
    assert_eq!(secrets.len(), 5);
    for (path, secret) in [
        ("secrets.hcloud_token", "CANARY-hcloud"),
        ("secrets.s3.access_key", "CANARY-access"),
        ("secrets.s3.secret_key", "CANARY-secret"),
    ] {
        assert!(
            secrets.contains(&(path.to_owned(), secret.to_owned())),
            "{path}"
        );
    }
    let stranger = agent.with_keys(9);
    assert!(
        enrolled
            .sealed_values()
            .iter()
            .all(|(_, sealed)| stranger.open(sealed).is_none())
    );
    let body = String::from_utf8(answer.encode(&Dialect::default()).body).unwrap();
    assert!(
        secrets.iter().all(|(_, secret)| !body.contains(secret)),
        "{body}"
    );
}

#[test]
fn the_servers_of_a_cluster_share_its_k3s_tokens_and_no_other_cluster_does() {
    let mut lab = Lab::new();
    let tokens_of = |lab: &mut Lab, cluster: &str, node: &str, seed: u8| {
        let agent = lab.agent(cluster, node, seed);
        let secrets = opened(&agent, agent.enrolled.as_ref().unwrap());
        secrets
            .into_iter()
            .filter(|(path, _)| path.starts_with("k3s."))
            .map(|(_, secret)| secret)
            .collect::<Vec<_>>()
    };
    let one = tokens_of(&mut lab, "clu_a", "n-1", 1);
    let two = tokens_of(&mut lab, "clu_a", "n-2", 2);
    let other = tokens_of(&mut lab, "clu_b", "n-1", 3);
    assert_eq!(one, two);
    assert_eq!(one.len(), 2);
    assert!(one.iter().all(|secret| !other.contains(secret)));
}

// rule FILE-17, on the portal's side: what k3s is told of the bucket is the Secret's name and nothing else.
#[test]
fn the_configuration_names_the_secret_and_no_other_option_of_the_bucket() {
    let (mut lab, _, request) = prepared(plain());
    let enrolled = expect_enrolled(&lab.enroll(&request));
    let config = Value::Object(enrolled.k3s.config.clone());
    assert_eq!(
        config,
        json!({"cluster-init": true, "etcd-s3": true, "etcd-s3-config-secret": "pbx-etcd-s3"})
    );
    assert_eq!(enrolled.release.as_str(), "2026.11.1");
}
