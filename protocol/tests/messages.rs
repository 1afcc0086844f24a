//! The messages as the protocol's document shows them, and what each side must take or refuse in them.
//!
//! Reading of what came back, statuses and headers included, is in `replies.rs`.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

use protocol::id::Generation;
use protocol::json::{self, JsonRefusal};
use protocol::limits::DIAGNOSTICS_BYTES_MAX;
use protocol::pbx::call::Request;
use protocol::pbx::enroll::{EnrollAnswer, EnrollRequest};
use protocol::pbx::operation::{
    AccessRevokeParams, EventState, EventsRefused, OperationEvent, OperationEvents, OperationKind,
    OperationOffer, OperationResult, Params, ParamsRefusal, Step,
};
use protocol::pbx::release::Manifest;
use protocol::pbx::rotate::{RotateKeyAnswer, RotateKeyRequest};
use protocol::pbx::sync::{
    AddonState, DesiredState, DocumentRefusal, DocumentResult, IngressMode, SyncAnswer, SyncReport,
};
use protocol::seal::{Sealed, SecretText};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

const KEY: &str = "eF7G5TfdBrKgq2QmI+yRyE/HFa05L4Uk7tU7RKoe9Ac=";
const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn sealed() -> Value {
    json!({"sealed": "AAECAwQFBgcICQoLDA0ODw=="})
}

fn s3() -> Value {
    json!({"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "b", "folder": "clu_01J9",
           "access_key": sealed(), "secret_key": sealed()})
}

fn enroll_request() -> Value {
    json!({"protocol": 1, "token": "pbxe_Zk", "cluster_id": "clu_01J9", "node_name": "fsn1-server-1",
           "server_id": 42_424_242, "signing_key": KEY, "sealing_key": KEY, "boot_image_sha256": HASH,
           "agent_version": "1.4.0", "arch": "amd64"})
}

fn enroll_answer() -> Value {
    json!({"agent_id": "agt_01J9", "portal_time": "2026-11-30T01:02:03Z", "release": "2026.11.1",
           "k3s": {"config": {"cluster-init": true, "etcd-s3": true, "etcd-s3-config-secret": "pbx-etcd-s3"},
                   "token": sealed(), "agent_token": sealed()},
           "secrets": {"hcloud_token": sealed(), "s3": s3()},
           "manifests": [{"name": "pbx-hcloud-ccm.yaml", "content": "kind: x"}]})
}

fn sync_report() -> Value {
    json!({"protocol": 1, "sequence": 4711, "agent_version": "1.4.0", "arch": "amd64", "node_name": "fsn1-server-1",
           "boot": {"image_sha256": HASH, "entry": "pbx-2026.11.1-amd64.efi"},
           "k3s": {"version": "v1.34.1+k3s1", "unit": "active", "api": "up"},
           "leader": true,
           "document": {"applied_generation": 18, "seen_generation": 18, "result": "applied", "message": null},
           "addons": [{"name": "cert-manager", "state": "pending", "message": "health check not passing yet"}],
           "operation": {"id": "op_01J9", "kind": "snapshot.save", "step": "confirm_s3", "state": "running"},
           "update": {"running": "1.4.0", "rolled_back_from": null},
           "restart_pending": false, "clock_offset_ms": -120, "keys_created_at": "2026-09-01T00:00:00Z",
           "last_error": null, "problems": []})
}

fn desired() -> Value {
    json!({"generation": 18, "release": "2026.11.1", "agent_version": "1.4.0",
           "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"},
           "maintenance_window": {"days": ["sun"], "start": "02:00", "duration_minutes": 120,
                                  "time_zone": "Europe/Berlin"},
           "secrets": {"hcloud_token": sealed(), "s3": s3()},
           "addons": [{"name": "cert-manager", "enabled": true, "options": {"replicas": 2},
                       "secret_options": {"acme_key": sealed()}}]})
}

fn offer() -> Value {
    json!({"id": "op_01J9", "kind": "snapshot.save", "target": "fsn1-server-1", "params": {"name": "nightly"},
           "consent": null})
}

fn sync_answer() -> Value {
    json!({"portal_time": "2026-11-30T01:02:03Z", "desired": desired(), "operation": offer()})
}

fn events() -> Value {
    json!({"events": [{"sequence": 3, "at": "2026-11-30T01:02:03Z", "step": "confirm_s3", "state": "failed",
                       "message": "bucket has no object of that name", "log_tail": ["one", "two"],
                       "reason": null, "result": null}]})
}

fn manifest() -> Value {
    let artifact = json!({"arch": "amd64", "url": "https://x", "sha256": HASH, "size": 9_123_456});
    let mut image = artifact.clone();
    image["entry"] = json!("pbx-2026.11.1-amd64.efi");
    image["image_sha256"] = json!(HASH);
    json!({"version": "2026.11.1", "created_at": "2026-11-01T00:00:00Z", "floor": 12, "template_engine": "minijinja",
           "agent": {"version": "1.4.0", "artifacts": [artifact]},
           "image": {"k3s_version": "v1.34.1+k3s1", "artifacts": [image]},
           "addons": [{"name": "cert-manager", "requires": [], "conflicts": [], "template": "x",
                       "health": {"deployments": [{"namespace": "cert-manager", "name": "cert-manager"}]}}]})
}

fn rotate_request() -> Value {
    json!({"signing_key": KEY, "sealing_key": KEY, "proof": format!("{}{}", "A".repeat(86), "==")})
}

/// The value, read and written again.
fn again<T: DeserializeOwned + Serialize>(value: &Value) -> Value {
    let read: T =
        json::parse(value.to_string().as_bytes()).unwrap_or_else(|why| panic!("{why}: {value}"));
    serde_json::to_value(read).unwrap()
}

/// Members that may be null, and so may be left out (`.` between levels, `0` the first item).
const NULLABLE: [(&str, &[&str]); 6] = [
    (
        "SyncReport",
        &[
            "k3s.version",
            "document.message",
            "addons.0.message",
            "operation",
            "operation.step",
            "update.rolled_back_from",
            "last_error",
        ],
    ),
    ("SyncAnswer", &["desired", "operation", "operation.consent"]),
    (
        "OperationEvents",
        &[
            "events.0.step",
            "events.0.message",
            "events.0.log_tail",
            "events.0.reason",
            "events.0.result",
        ],
    ),
    ("Manifest", &["addons.0.health"]),
    ("EnrollRequest", &[]),
    ("RotateKeyRequest", &[]),
];

fn nullable(message: &str) -> &'static [&'static str] {
    NULLABLE
        .iter()
        .find(|(name, _)| *name == message)
        .map_or(&[], |(_, paths)| paths)
}

/// Every path of an object's members, down through objects and first items.
fn paths(value: &Value, prefix: &str, found: &mut Vec<String>) {
    let mut below = |name: &str, value: &Value| {
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        if value.is_object() || value.is_array() {
            paths(value, &path, found);
        }
        path
    };
    match value {
        Value::Object(members) => {
            let own: Vec<_> = members
                .iter()
                .map(|(name, value)| below(name, value))
                .collect();
            found.extend(own);
        }
        Value::Array(items) => {
            items.first().map(|item| below("0", item));
        }
        _ => {}
    }
}

fn parent<'a>(
    value: &'a mut Value,
    path: &str,
) -> (&'a mut serde_json::Map<String, Value>, String) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let pointer = if parent.is_empty() {
        String::new()
    } else {
        format!("/{}", parent.replace('.', "/"))
    };
    (
        value
            .pointer_mut(&pointer)
            .unwrap()
            .as_object_mut()
            .unwrap(),
        name.to_owned(),
    )
}

/// The example is read and written as it stands; a member may be left out, or be null, exactly where it may; an object
/// takes members that nobody knows (WIRE-5), and is never an array (KEY-2).
fn check<T: DeserializeOwned + Serialize>(message: &str, example: &Value, free: &[&str]) {
    assert_eq!(again::<T>(example), *example, "{message}");
    let mut all = Vec::new();
    paths(example, "", &mut all);
    // Below these the members are not the protocol's.
    let all: Vec<_> = all
        .into_iter()
        .filter(|path| {
            !path.ends_with(".sealed")
                && !free
                    .iter()
                    .any(|free| path.starts_with(&format!("{free}.")))
        })
        .collect();
    assert!(all.len() > 2, "{message} has members");
    let is_right = |changed: &Value| json::parse::<T>(changed.to_string().as_bytes()).is_ok();
    for path in &all {
        let optional = nullable(message).contains(&path.as_str());
        let mut changed = example.clone();
        let (members, name) = parent(&mut changed, path);
        members.remove(&name);
        assert_eq!(is_right(&changed), optional, "{message} without {path}");
        let (members, name) = parent(&mut changed, path);
        members.insert(name, Value::Null);
        let takes_all = path == "operation.params"; // raw text: its own reading refuses what is wrong with it
        assert_eq!(
            is_right(&changed),
            optional || takes_all,
            "{message} with null as {path}"
        );

        let mut changed = example.clone();
        let (members, name) = parent(&mut changed, path);
        if let Some(Value::Object(object)) = members.get(&name).cloned() {
            let is_sealed = object.contains_key("sealed");
            members.insert(
                name.clone(),
                Value::Array(object.values().cloned().collect()),
            );
            if !free.contains(&path.as_str()) {
                assert!(!is_right(&changed), "{message} with an array as {path}");
            }
            let mut changed = example.clone();
            let (members, name) = parent(&mut changed, path);
            members[&name]["unheard_of"] = json!({"of": [1]});
            // SEAL-2: but a sealed wrapper has exactly one member.
            let secret_options = path.ends_with("secret_options");
            assert_eq!(
                is_right(&changed),
                !is_sealed && !secret_options,
                "{message} with an unknown member in {path}"
            );
        }
    }
}

// rule WIRE-5, KEY-2
#[test]
fn every_message_is_as_the_document_shows_it_wire_5_key_2() {
    check::<EnrollRequest>("EnrollRequest", &enroll_request(), &[]);
    check::<EnrollAnswer>("EnrollAnswer", &enroll_answer(), &["k3s.config"]);
    check::<SyncReport>("SyncReport", &sync_report(), &[]);
    check::<SyncAnswer>(
        "SyncAnswer",
        &sync_answer(),
        &["desired", "operation.params"],
    );
    check::<DesiredState>(
        "DesiredState",
        &desired(),
        &["addons.0.options", "addons.0.secret_options"],
    );
    check::<OperationEvents>("OperationEvents", &events(), &["events.0.result"]);
    check::<Manifest>("Manifest", &manifest(), &[]);
    check::<RotateKeyRequest>("RotateKeyRequest", &rotate_request(), &[]);
    assert_eq!(
        again::<RotateKeyAnswer>(&json!({"active_key_id": "66687aadf862bd77"})),
        json!({"active_key_id": "66687aadf862bd77"})
    );
}

#[test]
fn a_body_is_the_same_bytes_each_time_and_empty_for_a_get() {
    let report: SyncReport = serde_json::from_value(sync_report()).unwrap();
    let body = Request::Sync(report.clone().into()).body();
    assert_eq!(body, Request::Sync(report.into()).body());
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap(),
        sync_report()
    );
    assert!(!body.contains(&b'\n'));
    assert!(
        Request::Manifest("2026.11.1".parse().unwrap())
            .body()
            .is_empty()
    );
}

#[test]
fn a_document_says_what_it_is_to_be() {
    let raw = to_raw_value(&desired()).unwrap();
    let desired = DesiredState::read(&raw).unwrap();
    assert_eq!(desired.generation, Generation(18));
    assert_eq!(
        (
            desired.maintenance_window.start.hour(),
            desired.maintenance_window.start.minute()
        ),
        (2, 0)
    );
    assert_eq!(DesiredState::read(&desired.to_raw()).unwrap(), desired);
    let fields: Vec<_> = desired
        .sealed_values()
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(
        fields,
        [
            "secrets.hcloud_token",
            "secrets.s3.access_key",
            "secrets.s3.secret_key",
            "addons[0].secret_options.acme_key"
        ]
    );
}

/// Every secret of a document, in clear: the document is refused by that field's name, with its generation, whatever else
/// is wrong with it.
// rule SEAL-2
#[test]
fn a_secret_in_clear_refuses_the_document_seal_2() {
    let read = |document: &Value| DesiredState::read(&to_raw_value(document).unwrap()).unwrap_err();
    let right = DesiredState::read(&to_raw_value(&desired()).unwrap()).unwrap();
    for (field, _) in right.sealed_values() {
        for clear in [
            json!("canary"),
            json!(null),
            json!({"sealed": "canary!"}),
            json!({"sealed": "AAAA", "x": 1}),
        ] {
            for also_wrong in [
                None,
                Some(("release", json!("../x"))),
                Some(("host", json!(1))),
            ] {
                let mut document = desired();
                let pointer = format!("/{}", field.replace("[0]", ".0").replace('.', "/"));
                *document.pointer_mut(&pointer).unwrap() = clear.clone();
                if let Some((member, value)) = &also_wrong {
                    document[member] = value.clone();
                }
                let refusal = read(&document);
                let expected = DocumentRefusal::UnsealedSecret {
                    field: field.clone(),
                    generation: Some(Generation(18)),
                };
                assert_eq!(refusal, expected);
                assert_eq!(refusal.result(), DocumentResult::UnsealedSecret);
                assert!(!refusal.to_string().contains("canary"));
            }
        }
    }
}

#[test]
fn a_refused_document_still_has_its_generation() {
    for (change, path, generation) in [
        (json!({"release": "a/b"}), "release", Some(18)),
        (
            json!({"addons": [{"name": "..", "enabled": true, "options": {}, "secret_options": {}}]}),
            "addons[0].name",
            Some(18),
        ),
        (json!({"generation": "18"}), "generation", None),
        (json!({"generation": -1}), "generation", None),
        (
            json!({"maintenance_window": {"days": ["sun"], "start": "24:00", "duration_minutes": 1, "time_zone": "UTC"}}),
            "maintenance_window.start",
            Some(18),
        ),
    ] {
        let mut document = desired();
        for (member, value) in change.as_object().unwrap() {
            document[member] = value.clone();
        }
        let refusal = DesiredState::read(&to_raw_value(&document).unwrap()).unwrap_err();
        assert_eq!(refusal.generation(), generation.map(Generation), "{change}");
        assert_eq!(refusal.result(), DocumentResult::Failed);
        let DocumentRefusal::Shape {
            why: JsonRefusal::Shape { path: found, .. },
            ..
        } = refusal
        else {
            panic!("{refusal}");
        };
        assert_eq!(found, path);
    }
    // No object at all, and an array for one.
    for document in ["[]", "7", "\"x\"", "[18]"] {
        let raw = RawValue::from_string(document.to_owned()).unwrap();
        assert_eq!(
            DesiredState::read(&raw).unwrap_err().generation(),
            None,
            "{document}"
        );
    }
}

// rule FILE-18
#[test]
fn a_document_with_a_name_that_leaves_its_directory_is_refused_with_the_name_file_18() {
    let mut document = desired();
    document["addons"][0]["name"] = json!("../../etc/cron.d/x");
    let refusal = DesiredState::read(&to_raw_value(&document).unwrap()).unwrap_err();
    assert!(
        refusal.to_string().contains("../../etc/cron.d/x"),
        "{refusal}"
    );
}

// rule WIRE-5
#[test]
fn an_unknown_mode_or_state_is_kept_for_its_part_alone_wire_5() {
    let mut document = desired();
    document["host"]["ingress_mode"] = json!("gateway");
    let read = DesiredState::read(&to_raw_value(&document).unwrap()).unwrap();
    assert_eq!(
        read.host.ingress_mode,
        IngressMode::Unknown("gateway".into())
    );
    let mut report = sync_report();
    report["addons"][0]["state"] = json!("dreaming");
    let read: SyncReport = json::parse(report.to_string().as_bytes()).unwrap();
    assert_eq!(read.addons[0].state, AddonState::Unknown("dreaming".into()));
    // Other words are closed.
    report["k3s"]["unit"] = json!("dreaming");
    assert!(json::parse::<SyncReport>(report.to_string().as_bytes()).is_err());
    // A word is a string; serde's own form of an enum would also take this.
    report["k3s"]["unit"] = json!({"active": null});
    assert!(json::parse::<SyncReport>(report.to_string().as_bytes()).is_err());
}

fn read_offer(kind: &str, params: Value) -> OperationOffer {
    let mut offer = offer();
    offer["kind"] = json!(kind);
    offer["params"] = params;
    json::parse(offer.to_string().as_bytes()).unwrap()
}

/// Right parameters and a right result of every kind.
fn kinds() -> Vec<(OperationKind, Value, Value)> {
    let row =
        |kind: &str, params: Value, result: Value| (OperationKind::from(kind), params, result);
    vec![
        row(
            "snapshot.save",
            json!({"name": "nightly"}),
            json!({"name": "nightly-n-1", "size": 5, "sha256": HASH, "location": "s3://b/x"}),
        ),
        row(
            "cluster.restore",
            json!({"snapshot": "nightly-n-1", "source": "local"}),
            json!({"snapshot": "nightly-n-1", "forgotten_nodes": ["n2"], "revoked": ["somebody"]}),
        ),
        row(
            "cluster.upgrade",
            json!({"release": "2026.11.1"}),
            json!({"release": "2026.11.1", "entry": "pbx-2026.11.1-amd64.efi", "k3s_version": "v1.34.1+k3s1"}),
        ),
        row(
            "access.issue",
            json!({"subject": "a@b", "role": "view", "recipient_key": KEY, "lifetime_seconds": 3600}),
            json!({"sealed_kubeconfig": sealed(), "expires_at": "2026-11-30T01:02:03Z"}),
        ),
        row(
            "access.revoke",
            json!({"subject": "a@b"}),
            json!({"deleted": ["sa-1"]}),
        ),
        row(
            "agent.rotate_key",
            json!({}),
            json!({"active_key_id": "66687aadf862bd77"}),
        ),
        row("s3.verify", s3(), json!({"objects_seen": 3})),
        row(
            "diag.collect",
            json!({}),
            json!({"bundle": "AAEC", "truncated": false}),
        ),
        row(
            "server.rejoin",
            json!({"server_url": "https://n2:6443", "token": sealed()}),
            json!({"node": "n1"}),
        ),
        row(
            "node.drain",
            json!({"node": "n1"}),
            json!({"evicted": ["a"], "left": []}),
        ),
        row(
            "node.forget",
            json!({"node": "n1"}),
            json!({"deleted": true}),
        ),
    ]
}

#[test]
fn every_kind_has_its_parameters_and_its_result() {
    let kinds = kinds();
    let listed: Vec<_> = kinds.iter().map(|(kind, ..)| kind.clone()).collect();
    assert_eq!(listed, OperationKind::KNOWN);
    for (kind, params, result) in kinds {
        let read = read_offer(kind.as_str(), params.clone())
            .params()
            .unwrap_or_else(|why| panic!("{kind}: {why}"));
        assert_eq!(read.kind(), kind);
        assert_eq!(serde_json::to_value(read.to_raw()).unwrap(), params);
        let read = OperationResult::read(&kind, &to_raw_value(&result).unwrap())
            .unwrap()
            .unwrap();
        assert_eq!(serde_json::to_value(read.to_raw()).unwrap(), result);
        // An array instead, and a number: of the wrong shape, in both.
        for wrong in [json!([]), json!(1)] {
            let refusal = read_offer(kind.as_str(), wrong.clone()).params();
            assert!(
                matches!(refusal, Err(ParamsRefusal::Shape { .. })),
                "{kind}: {refusal:?}"
            );
            assert!(
                OperationResult::read(&kind, &to_raw_value(&wrong).unwrap()).is_err(),
                "{kind}"
            );
        }
        assert!(!kind.steps().is_empty());
    }
}

// rule OPS-5, WIRE-5
#[test]
fn an_unknown_kind_is_read_and_unsupported_ops_5_wire_5() {
    let offer = read_offer("shell.run", json!(["rm", "-rf", "/"]));
    assert_eq!(offer.kind, OperationKind::Unknown("shell.run".into()));
    assert_eq!(
        offer.params(),
        Err(ParamsRefusal::Unsupported {
            kind: "shell.run".into()
        })
    );
    assert_eq!(offer.kind.steps(), &[]);
    // The answer around it is read all the same.
    let mut answer = sync_answer();
    answer["operation"]["kind"] = json!("shell.run");
    assert!(json::parse::<SyncAnswer>(answer.to_string().as_bytes()).is_ok());
}

// rule OPS-10
#[test]
fn a_secret_in_clear_refuses_the_operation_ops_10() {
    for (kind, params, fields) in [
        ("s3.verify", s3(), &["access_key", "secret_key"][..]),
        (
            "server.rejoin",
            json!({"server_url": "https://n2:6443", "token": sealed()}),
            &["token"],
        ),
    ] {
        let right = read_offer(kind, params.clone()).params().unwrap();
        let listed: Vec<_> = right
            .sealed_values()
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(listed, fields);
        for field in fields {
            let mut clear = params.clone();
            clear[field] = json!("canary");
            clear["server_url"] = json!(7);
            clear["bucket"] = json!(7);
            let refusal = read_offer(kind, clear).params();
            assert_eq!(
                refusal,
                Err(ParamsRefusal::UnsealedSecret {
                    field: (*field).to_owned()
                })
            );
        }
    }
    for (_, params, _) in kinds() {
        let secrets = params.to_string().matches("sealed").count();
        let listed: usize = kinds()
            .iter()
            .filter(|(_, p, _)| *p == params)
            .map(|(kind, ..)| kind.secrets().len())
            .max()
            .unwrap();
        assert_eq!(secrets, listed, "{params}");
    }
}

#[test]
fn access_is_taken_from_one_or_from_all() {
    let read = |params: Value| read_offer("access.revoke", params).params().ok();
    assert_eq!(
        read(json!({"everyone": true})),
        Some(Params::AccessRevoke(AccessRevokeParams::Everyone))
    );
    let one = AccessRevokeParams::Subject("a".into());
    assert_eq!(
        read(json!({"subject": "a"})),
        Some(Params::AccessRevoke(one))
    );
    for wrong in [
        json!({}),
        json!({"everyone": false}),
        json!({"subject": "a", "everyone": true}),
        json!({"everyone": 1}),
    ] {
        assert_eq!(read(wrong.clone()), None, "{wrong}");
    }
}

// rule OP-11
#[test]
fn a_bundle_has_its_limit_op_11() {
    let read = |length: usize| {
        let bundle =
            serde_json::to_value(Sealed::<SecretText>::from_bytes(vec![0; length])).unwrap();
        let result = json!({"bundle": bundle["sealed"], "truncated": true});
        OperationResult::read(&OperationKind::DiagCollect, &to_raw_value(&result).unwrap())
    };
    assert!(read(DIAGNOSTICS_BYTES_MAX).is_ok());
    assert!(read(DIAGNOSTICS_BYTES_MAX + 1).is_err());
}

// rule OPS-4
#[test]
fn three_steps_destroy_ops_4() {
    let destructive: Vec<_> = Step::ALL
        .iter()
        .filter(|step| step.is_destructive())
        .map(Step::as_str)
        .collect();
    assert_eq!(destructive, ["reset_restore", "reboot", "clear_datastore"]);
}

/// The seed's table, step by step.
// rule OP-1, OP-2, OP-5, OP-7, OP-8, OP-9, OP-10, OP-11, OP-12
#[test]
fn every_kind_has_its_steps_in_order() {
    let table = [
        ("snapshot.save", "save confirm_s3 report"),
        (
            "cluster.restore",
            "stop_k3s reset_restore start_k3s wait_api forget_stale_nodes",
        ),
        (
            "cluster.upgrade",
            "preflight pre_snapshot fetch_image stage_slot reboot health_gate commit",
        ),
        ("access.issue", "ensure_sa token seal"),
        ("access.revoke", "delete_sa"),
        ("agent.rotate_key", "generate register confirm"),
        ("s3.verify", "list_bucket"),
        ("diag.collect", "collect"),
        (
            "server.rejoin",
            "stop_k3s clear_datastore start_k3s wait_api",
        ),
        ("node.drain", "cordon evict report"),
        ("node.forget", "confirm_gone delete_node"),
    ];
    let found = OperationKind::KNOWN.iter().map(|kind| {
        let steps: Vec<_> = kind.steps().iter().map(Step::as_str).collect();
        (kind.as_str(), steps.join(" "))
    });
    assert_eq!(
        found.collect::<Vec<_>>(),
        table.map(|(kind, steps)| (kind, steps.to_owned()))
    );
    let used: Vec<_> = OperationKind::KNOWN
        .iter()
        .flat_map(OperationKind::steps)
        .collect();
    assert!(
        Step::ALL.iter().all(|step| used.contains(&step)),
        "a step of no kind"
    );
}

// rule OPS-6
#[test]
fn two_kinds_run_without_the_api_ops_6() {
    let kinds: Vec<_> = OperationKind::KNOWN
        .iter()
        .filter(|kind| kind.runs_without_api())
        .map(OperationKind::as_str)
        .collect();
    assert_eq!(kinds, ["cluster.restore", "diag.collect"]);
}

// rule OPS-3, OPS-8
#[test]
fn a_call_of_events_keeps_its_limits_ops_3_ops_8() {
    let event =
        |sequence: u64, state: EventState, step: Option<Step>, lines: usize, line_bytes: usize| {
            OperationEvent {
                sequence,
                at: "2026-11-30T01:02:03Z".parse().unwrap(),
                step,
                state,
                message: None,
                log_tail: (lines > 0).then(|| vec!["x".repeat(line_bytes); lines]),
                reason: None,
                result: None,
            }
        };
    use EventState::{Failed, Refused, Started, Succeeded, Unsupported};
    let save = Some(Step::Save);
    let plain = |count: u64| {
        (1..=count)
            .map(|sequence| event(sequence, Started, save, 0, 0))
            .collect::<Vec<_>>()
    };
    for (row, events, refused) in [
        ("none", vec![], None),
        ("100 events", plain(100), None),
        ("101 events", plain(101), Some(EventsRefused::TooMany(101))),
        (
            "number 0",
            vec![event(0, Started, save, 0, 0)],
            Some(EventsRefused::NumberedZero),
        ),
        (
            "a number twice is the portal's",
            vec![event(1, Started, save, 0, 0), event(1, Failed, save, 0, 0)],
            None,
        ),
        (
            "started, no step",
            vec![event(4, Started, None, 0, 0)],
            Some(EventsRefused::StateAndStep(4)),
        ),
        (
            "refused in a step",
            vec![event(4, Refused, save, 0, 0)],
            Some(EventsRefused::StateAndStep(4)),
        ),
        (
            "unsupported in a step",
            vec![event(4, Unsupported, save, 0, 0)],
            Some(EventsRefused::StateAndStep(4)),
        ),
        ("refused", vec![event(4, Refused, None, 0, 0)], None),
        (
            "succeeded, both",
            vec![
                event(4, Succeeded, save, 0, 0),
                event(5, Succeeded, None, 0, 0),
            ],
            None,
        ),
        ("200 lines", vec![event(4, Failed, save, 200, 10)], None),
        (
            "201 lines",
            vec![event(4, Failed, save, 201, 10)],
            Some(EventsRefused::TooManyLines(4)),
        ),
        ("1 KiB a line", vec![event(4, Failed, save, 1, 1024)], None),
        (
            "more than 1 KiB a line",
            vec![event(4, Failed, save, 1, 1025)],
            Some(EventsRefused::LineTooLong(4)),
        ),
        (
            "128 KiB of log",
            vec![
                event(4, Failed, save, 64, 1024),
                event(5, Failed, None, 64, 1024),
            ],
            None,
        ),
        (
            "more than 128 KiB of log",
            vec![
                event(4, Failed, save, 64, 1024),
                event(5, Failed, None, 65, 1024),
            ],
            Some(EventsRefused::TooMuchLog(129 * 1024)),
        ),
    ] {
        // As it is made, and as it is read.
        let text = serde_json::to_vec(&json!({"events": events})).unwrap();
        assert_eq!(OperationEvents::new(events).err(), refused, "{row}");
        let read = json::parse::<OperationEvents>(&text);
        assert_eq!(read.is_err(), refused.is_some(), "{row}: {read:?}");
    }
}
