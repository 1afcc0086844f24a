//! Desired states: sealed for each agent, made once a key and generation, and never shown in clear.

use std::sync::Arc;

use portal_core::ControlError;
use portal_core::control::{DesiredInput, OperationInput};
use protocol::dialect::Dialect;
use protocol::limits::BODY_BYTES_MAX;
use protocol::pbx::sync::IngressMode;
use protocol::seal::Sealed;
use serde_json::{Value, json};

use crate::lab::*;

// A fresh cluster has none.
#[test]
fn before_the_first_document_there_is_none() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let answer = lab.synced(&mut agent);
    assert!(answer.desired.is_none());
    assert_eq!(answer.portal_time, lab.now.wall);
}

// rule SEAL-1: what comes is the document that was set, its secrets sealed to this agent.
#[test]
fn seal_1_a_document_arrives_as_it_was_set_its_secrets_sealed() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let mut other = lab.agent("clu_a", "node-b", 2);
    assert_eq!(lab.set_desired("clu_a", desired()), 1);
    let answer = lab.sync(&mut agent);
    let document = desired_of(&expect_synced(&answer));
    let secrets: Vec<_> = document
        .sealed_values()
        .into_iter()
        .map(|(path, sealed)| (path, agent.open(sealed).unwrap()))
        .collect();
    let due = [
        ("secrets.hcloud_token", "CANARY-hcloud"),
        ("secrets.s3.access_key", "CANARY-access"),
        ("secrets.s3.secret_key", "CANARY-secret"),
        ("addons[0].secret_options.acme_key", "CANARY-acme"),
    ];
    assert_eq!(
        secrets,
        due.map(|(path, secret)| (path.to_owned(), secret.to_owned()))
    );
    // All else is equal.
    let mut came: Value =
        serde_json::from_str(expect_synced(&answer).desired.as_ref().unwrap().get()).unwrap();
    let mut set = desired_json();
    for document in [&mut came, &mut set] {
        document["secrets"] = json!({"s3": {"endpoint": document["secrets"]["s3"]["endpoint"]}});
        document["addons"][0]["secret_options"] = json!({});
    }
    set["generation"] = json!(1);
    assert_eq!(came, set);
    // Nothing in clear, and nothing for others.
    let body = String::from_utf8(answer.encode(&Dialect::default()).body).unwrap();
    assert!(!body.contains("CANARY"), "{body}");
    let to_other = desired_of(&lab.synced(&mut other));
    assert!(
        to_other
            .sealed_values()
            .iter()
            .all(|(_, sealed)| agent.open(sealed).is_none() && other.open(sealed).is_some())
    );
}

// rule SEAL-1: sealed once a key and generation, not once a sync.
#[test]
fn seal_1_a_keep_alive_sync_gets_the_same_text_without_sealing() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    lab.set_desired("clu_a", desired());
    let texts: Vec<_> = (0..3)
        .map(|_| lab.synced(&mut agent).desired.clone().unwrap())
        .collect();
    assert!(Arc::ptr_eq(&texts[0], &texts[1]) && Arc::ptr_eq(&texts[0], &texts[2]));
    assert_eq!(lab.set_desired("clu_a", desired()), 2);
    let next = lab.synced(&mut agent).desired.clone().unwrap();
    assert_ne!(next.get(), texts[0].get());
    assert_eq!(desired_of(&lab.synced(&mut agent)).generation.0, 2);
    // During a rotation both keys have their text at hand.
    let mut new = agent.with_keys(2);
    let request = agent.rotation_to(&new);
    lab.call(
        &agent,
        &protocol::pbx::call::Request::RotateKey(Arc::new(request)),
    );
    assert!(Arc::ptr_eq(
        &next,
        lab.synced(&mut agent).desired.as_ref().unwrap()
    ));
    let to_new = lab.synced(&mut new).desired.clone().unwrap();
    assert!(Arc::ptr_eq(
        &to_new,
        lab.synced(&mut new).desired.as_ref().unwrap()
    ));
}

// rule WIRE-5: a mode that this version does not know goes through as it is.
#[test]
fn wire_5_an_unknown_mode_goes_through() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let mut document = desired_json();
    document["host"]["ingress_mode"] = json!("levitating");
    lab.set_desired("clu_a", serde_json::from_value(document).unwrap());
    let came = desired_of(&lab.synced(&mut agent));
    assert_eq!(
        came.host.ingress_mode,
        IngressMode::Unknown("levitating".to_owned())
    );
}

// A box that somebody else made goes through, so that a test can send one that does not open (SEAL-3).
#[test]
fn a_secret_that_is_sealed_already_goes_through() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let sealed: Sealed = Sealed::from_bytes([7; 60]);
    let mut document = desired_json();
    document["secrets"]["hcloud_token"] = serde_json::to_value(&sealed).unwrap();
    lab.set_desired("clu_a", serde_json::from_value(document).unwrap());
    assert_eq!(
        desired_of(&lab.synced(&mut agent)).secrets.hcloud_token,
        sealed
    );
}

// rule SEAL-4, on the portal's side: nowhere that people look, and in no `Debug`.
#[test]
fn seal_4_no_secret_is_shown() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    lab.set_desired("clu_a", desired());
    let params = json!({"endpoint": "e", "region": "r", "bucket": "b", "folder": "f", "access_key": "CANARY-a", "secret_key": "CANARY-s"});
    let id = lab.post("clu_a", json!({"kind": "s3.verify", "params": params}));
    lab.synced(&mut agent);
    let control = lab.portal.control(lab.now);
    let view = control.desired(&cluster_id("clu_a")).unwrap();
    assert_eq!(
        view.desired.as_ref().unwrap()["secrets"]["s3"]["access_key"],
        "(redacted)"
    );
    assert_eq!(
        view.desired.as_ref().unwrap()["secrets"]["s3"]["region"],
        "fsn1"
    );
    let token = lab.token("clu_a", "node-b");
    let shown = [
        format!("{view:?} {}", serde_json::to_string(&view).unwrap()),
        serde_json::to_string(&lab.portal.control(lab.now).operation(&id).unwrap()).unwrap(),
        serde_json::to_string(&lab.portal.control(lab.now).agent(agent.id()).unwrap()).unwrap(),
        format!("{:?} {:?}", desired(), lab.changes),
        format!("{:?} {token:?}", lab.portal.settings()),
    ];
    for text in shown {
        assert!(
            !text.contains("CANARY") && !text.contains(token.token.expose()),
            "{text}"
        );
    }
}

#[test]
fn what_a_release_does_not_have_is_accepted_with_a_warning() {
    let mut lab = Lab::new();
    lab.token("clu_a", "node-a");
    let warnings = |document: Value| {
        let input: DesiredInput = serde_json::from_value(document).unwrap();
        lab.portal
            .control(lab.now)
            .set_desired(&cluster_id("clu_a"), input)
            .unwrap()
            .0
            .warnings
    };
    assert_eq!(warnings(desired_json()), Vec::<String>::new());
    type Change = fn(&mut Value);
    let rows: [(&str, Change); 3] = [
        ("release 1.2 ", |d| d["release"] = json!("1.2")),
        ("agent 1.4.0, not 1.5.0", |d| {
            d["agent_version"] = json!("1.5.0");
        }),
        ("no add-on levitation", |d| {
            d["addons"][0]["name"] = json!("levitation");
        }),
    ];
    for (says, change) in rows {
        let mut document = desired_json();
        change(&mut document);
        let warnings = warnings(document);
        assert!(
            warnings.len() == 1 && warnings[0].contains(says),
            "{says}: {warnings:?}"
        );
    }
}

#[test]
fn a_document_for_a_cluster_that_no_token_named() {
    let lab = Lab::new();
    let refused = lab
        .portal
        .control(lab.now)
        .set_desired(&cluster_id("clu_x"), desired())
        .unwrap_err();
    assert_eq!(refused, ControlError::UnknownCluster(cluster_id("clu_x")));
    assert_eq!(
        lab.portal
            .control(lab.now)
            .desired(&cluster_id("clu_x"))
            .unwrap_err()
            .status(),
        404
    );
}

#[test]
fn members_that_nobody_knows_are_refused_by_name() {
    for (path, says) in [
        ("/secrts", "secrts"),
        ("/secrets/hcloud", "hcloud"),
        ("/addons/0/enable", "enable"),
    ] {
        let mut document = desired_json();
        let (parent, name) = path.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[name] = json!(1);
        let error = serde_json::from_value::<DesiredInput>(document)
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
}

// rule WIRE-2: what is set fits into an answer of 256 KiB, sealed, the largest operation beside it; what does not is refused.
#[test]
fn wire_2_what_is_set_fits_into_an_answer() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let cluster = cluster_id("clu_a");
    // Secrets grow most by being sealed.
    let document = |bytes: usize| -> DesiredInput {
        let mut document = desired_json();
        document["addons"][0]["secret_options"]["acme_key"] = json!("x".repeat(bytes));
        serde_json::from_value(document).unwrap()
    };
    let operation = |bytes: usize| -> OperationInput {
        let params = json!({"snapshot": "a", "source": "local", "token_hash": null, "more": "x".repeat(bytes)});
        let input = json!({"kind": "a.kind.of.later", "target": "node-a", "params": params});
        serde_json::from_value(input).unwrap()
    };
    for (kib, fits) in [(127, true), (128, false), (400, false)] {
        let set = lab
            .portal
            .control(lab.now)
            .set_desired(&cluster, document(kib * 1024));
        assert_eq!(set.is_ok(), fits, "{kib} KiB: {:?}", set.err());
    }
    for (kib, fits) in [(31, true), (32, false)] {
        let posted = lab
            .portal
            .control(lab.now)
            .post_operation(&cluster, operation(kib * 1024));
        assert_eq!(posted.is_ok(), fits, "{kib} KiB: {:?}", posted.err());
    }
    let answer = lab.synced(&mut agent);
    assert!(answer.desired.is_some() && answer.operation.is_some());
    let bytes = serde_json::to_vec(&*answer).unwrap().len();
    assert!(bytes > 200 * 1024 && bytes <= BODY_BYTES_MAX, "{bytes}");

    let mut release = serde_json::from_slice::<Value>(&release_of("2027.1.1")).unwrap();
    release["addons"][0]["template"] = json!("x".repeat(200 * 1024));
    let payload = serde_json::to_vec(&release).unwrap();
    let refused = lab.portal.control(lab.now).publish_release(&payload);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("agents read no answer with more than 262144"),
        "{refused}"
    );
}

fn release_of(version: &str) -> Vec<u8> {
    let manifest = json!({
        "version": version, "created_at": "2026-11-30T01:02:03Z", "floor": 12, "template_engine": "minijinja",
        "agent": {"version": "1.4.0", "artifacts": []}, "image": {"k3s_version": "v1.34.1+k3s1", "artifacts": []},
        "addons": [{"name": "a", "requires": [], "conflicts": [], "template": "", "health": null}],
    });
    serde_json::to_vec(&manifest).unwrap()
}
