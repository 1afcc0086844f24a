//! Rotation: a second pair of keys beside the first, until it is used.

use std::sync::Arc;

use portal_core::{Answer, NearMiss};
use protocol::pbx::call::{AnswerBody, Request};
use protocol::pbx::operation::{EventState, OperationKind};
use protocol::pbx::rotate::RotateKeyRequest;
use protocol::seal::SealingPublicKey;
use protocol::sign::{SigningPublicKey, rotation_proof_bytes};
use serde_json::json;

use crate::lab::*;

const HOUR_S: i64 = 3600;

fn one_agent() -> (Lab, Agent) {
    let mut lab = Lab::new();
    let agent = lab.agent("clu_a", "node-a", 1);
    (lab, agent)
}

fn rotate(lab: &mut Lab, signed_by: &Agent, request: &RotateKeyRequest) -> Answer {
    lab.pass_s(1);
    lab.call(signed_by, &Request::RotateKey(Arc::new(request.clone())))
}

fn active_key(answer: &Answer) -> String {
    match answer.done() {
        Some(AnswerBody::RotateKey(answer)) => answer.active_key_id.to_string(),
        _ => panic!("not rotated: {answer:?}"),
    }
}

/// What the portal lists as the agent's keys.
fn keys(lab: &Lab, agent: &Agent) -> Vec<SigningPublicKey> {
    let detail = lab.portal.control(lab.now).agent(agent.id()).unwrap();
    detail.keys.iter().map(|key| key.signing_key).collect()
}

// rule OP-9: both keys are in force until the new one is used, then only that one.
#[test]
fn op_9_the_old_key_stays_until_the_new_one_is_used() {
    let (mut lab, mut old) = one_agent();
    let mut new = old.with_keys(2);
    let request = old.rotation_to(&new);
    assert_eq!(
        active_key(&rotate(&mut lab, &old, &request)),
        new.signing.public().key_id().to_string()
    );
    assert_eq!(
        keys(&lab, &old),
        [old.signing.public(), new.signing.public()]
    );
    assert_eq!(said(&lab.sync(&mut old)), "200");
    assert_eq!(said(&lab.sync(&mut new)), "200");
    assert_eq!(keys(&lab, &old), [new.signing.public()]);
    let answer = lab.sync(&mut old);
    assert_eq!(said(&answer), "401 bad_signature");
    let explained = explanation(&answer).signature.clone().unwrap();
    assert!(
        matches!(&explained.near_miss, NearMiss::OtherKey { mistake } if mistake.contains("replaced")),
        "{explained:?}"
    );
}

// rule OP-9: at most 24 hours, then only the new one, used or not.
#[test]
fn op_9_the_overlap_lasts_24_hours() {
    for (passed_s, old_says) in [(24 * HOUR_S - 1, "200"), (24 * HOUR_S, "401 bad_signature")] {
        let (mut lab, mut old) = one_agent();
        let mut new = old.with_keys(2);
        let request = old.rotation_to(&new);
        rotate(&mut lab, &old, &request);
        lab.pass_s(passed_s);
        let answer = lab.sync(&mut old); // a second later
        assert_eq!(said(&answer), old_says, "{passed_s}");
        if answer.status() == 401 {
            let explained = explanation(&answer).signature.clone().unwrap();
            assert!(
                matches!(&explained.near_miss, NearMiss::OtherKey { mistake } if mistake.contains("24 hours"))
            );
        }
        assert_eq!(said(&lab.sync(&mut new)), "200", "{passed_s}");
    }
}

// rule OP-9: what makes the switch is the first request of the new key that passes up to and including replay, whatever
// comes after; one that fails before makes none.
#[test]
fn op_9_which_request_makes_the_switch() {
    type Send = fn(&mut Lab, &Agent) -> Answer;
    let skewed: Send = |lab, new| {
        let at = protocol::time::UnixSeconds(lab.seconds().0 + 100);
        lab.send(&Raw::signed(
            new,
            &Request::Sync(Arc::new(new.clone().report())),
            at,
        ))
    };
    let not_json: Send = |lab, new| {
        let mut raw = Raw::unsigned(Request::Sync(Arc::new(new.clone().report())));
        raw.body = b"nonsense".to_vec();
        raw.sign(new, lab.seconds());
        lab.send(&raw)
    };
    let no_type: Send = |lab, new| {
        let mut raw = lab.sign(new, &Request::Sync(Arc::new(new.clone().report())));
        raw.remove("content-type");
        lab.send(&raw)
    };
    for (send, says, switches) in [
        (skewed, "409 clock_skew", false),
        (no_type, "415 unsupported_media_type", false),
        (not_json, "400 invalid_request", true),
    ] {
        let (mut lab, mut old) = one_agent();
        let new = old.with_keys(2);
        let request = old.rotation_to(&new);
        rotate(&mut lab, &old, &request);
        assert_eq!(said(&send(&mut lab, &new)), says);
        let old_says = if switches { "401 bad_signature" } else { "200" };
        assert_eq!(said(&lab.sync(&mut old)), old_says, "{says}");
    }
}

// rule OP-9: every answer can be lost; the same request gets the same answer, before the switch and after it.
#[test]
fn op_9_the_same_rotation_again() {
    let (mut lab, old) = one_agent();
    let new = old.with_keys(2);
    let request = old.rotation_to(&new);
    let first = active_key(&rotate(&mut lab, &old, &request));
    assert_eq!(
        active_key(&rotate(&mut lab, &old, &request)),
        first,
        "signed with the old key"
    );
    assert_eq!(
        active_key(&rotate(&mut lab, &new, &request)),
        first,
        "signed with the new key, which makes the switch"
    );
    assert_eq!(
        active_key(&rotate(&mut lab, &new, &request)),
        first,
        "after the switch"
    );
    assert_eq!(said(&rotate(&mut lab, &old, &request)), "401 bad_signature");
    assert_eq!(keys(&lab, &old), [new.signing.public()]);
}

// rule OP-9: another rotation during the overlap replaces the pending key.
#[test]
fn op_9_another_rotation_replaces_the_pending_key() {
    let (mut lab, mut old) = one_agent();
    let (mut second, mut third) = (old.with_keys(2), old.with_keys(3));
    let request = old.rotation_to(&second);
    rotate(&mut lab, &old, &request);
    let request = old.rotation_to(&third);
    rotate(&mut lab, &old, &request);
    assert_eq!(
        keys(&lab, &old),
        [old.signing.public(), third.signing.public()]
    );
    assert_eq!(said(&lab.sync(&mut second)), "401 bad_signature");
    assert_eq!(said(&lab.sync(&mut old)), "200");
    assert_eq!(said(&lab.sync(&mut third)), "200");
    // And one after another.
    let fourth = old.with_keys(4);
    let request = third.rotation_to(&fourth);
    assert_eq!(said(&rotate(&mut lab, &third, &request)), "200");
}

// rule KEY-1: what is refused at a rotation.
#[test]
fn key_1_keys_that_are_refused_at_rotation() {
    type Make = fn(&Agent, &Agent, &Agent) -> RotateKeyRequest;
    let rows: Vec<(&str, Make)> = vec![
        ("the proof of the old key", |old, new, _| {
            let bytes = rotation_proof_bytes(&old.signing.public(), &new.signing.public());
            RotateKeyRequest {
                proof: old.signing.sign(&bytes),
                ..old.rotation_to(new)
            }
        }),
        ("a proof over the keys in the other order", |old, new, _| {
            let bytes = rotation_proof_bytes(&new.signing.public(), &old.signing.public());
            RotateKeyRequest {
                proof: new.signing.sign(&bytes),
                ..old.rotation_to(new)
            }
        }),
        (
            "the proof for another agent's rotation",
            |old, new, other| RotateKeyRequest {
                proof: other.rotation_to(new).proof,
                ..old.rotation_to(new)
            },
        ),
        ("the keys that it has", |old, _, _| old.rotation_to(old)),
        ("another agent's signing key", |old, new, other| {
            RotateKeyRequest {
                sealing_key: new.sealing.public(),
                ..old.rotation_to(other)
            }
        }),
        ("another agent's sealing key", |old, new, other| {
            RotateKeyRequest {
                sealing_key: other.sealing.public(),
                ..old.rotation_to(new)
            }
        }),
        ("its own sealing key", |old, new, _| RotateKeyRequest {
            sealing_key: old.sealing.public(),
            ..old.rotation_to(new)
        }),
        ("a signing key of small order", |old, new, _| {
            RotateKeyRequest {
                signing_key: SigningPublicKey([0; 32]),
                ..old.rotation_to(new)
            }
        }),
        ("a sealing key of small order", |old, new, _| {
            RotateKeyRequest {
                sealing_key: SealingPublicKey([0; 32]),
                ..old.rotation_to(new)
            }
        }),
    ];
    for (what, make) in rows {
        let (mut lab, mut old) = one_agent();
        let other = lab.agent("clu_b", "node-b", 7);
        let new = old.with_keys(2);
        let request = make(&old, &new, &other);
        let answer = rotate(&mut lab, &old, &request);
        assert_eq!(
            (said(&answer).as_str(), explanation(&answer).rule),
            ("400 invalid_key", "KEY-1"),
            "{what}"
        );
        assert_eq!(keys(&lab, &old), [old.signing.public()], "{what}");
        assert_eq!(said(&lab.sync(&mut old)), "200", "{what}");
    }
}

// rule KEY-1: a key that was registered once is nobody's again: neither one that was replaced, nor one that was pending.
#[test]
fn key_1_a_key_is_registered_once() {
    let (mut lab, first) = one_agent();
    let (second, third) = (first.with_keys(2), first.with_keys(3));
    for new in [&second, &third] {
        let request = first.rotation_to(new);
        rotate(&mut lab, &first, &request);
    }
    let request = first.rotation_to(&second);
    assert_eq!(
        said(&rotate(&mut lab, &first, &request)),
        "400 invalid_key",
        "it was pending"
    );
    lab.synced(&mut third.clone());
    let request = third.rotation_to(&first);
    assert_eq!(
        said(&rotate(&mut lab, &third, &request)),
        "400 invalid_key",
        "it was replaced"
    );

    let token = lab.token("clu_b", "node-b");
    let thief = Agent {
        cluster: "clu_b".to_owned(),
        node: "node-b".to_owned(),
        ..second
    };
    assert_eq!(
        said(&lab.enroll(&thief.enrollment(&token.token))),
        "409 conflict"
    );
}

// rule SEAL-1: sealed to the sealing key that belongs to the signing key which verified the request.
#[test]
fn seal_1_during_a_rotation_each_key_gets_its_own_boxes() {
    let (mut lab, mut old) = one_agent();
    lab.set_desired("clu_a", desired());
    let mut new = old.with_keys(2);
    lab.synced(&mut old);
    let request = old.rotation_to(&new);
    rotate(&mut lab, &old, &request);
    let to_old = desired_of(&lab.synced(&mut old));
    assert!(
        to_old
            .sealed_values()
            .iter()
            .all(|(_, sealed)| old.open(sealed).is_some() && new.open(sealed).is_none())
    );
    let to_new = desired_of(&lab.synced(&mut new));
    assert!(
        to_new
            .sealed_values()
            .iter()
            .all(|(_, sealed)| new.open(sealed).is_some() && old.open(sealed).is_none())
    );
    assert_eq!(to_new.sealed_values().len(), 4);
}

// rule OP-9: the portal asks when the keys are 90 days old, and again a day after that has come to nothing.
#[test]
fn op_9_the_portal_asks_when_the_keys_are_90_days_old() {
    let (mut lab, mut agent) = one_agent();
    lab.pass_s(90 * 24 * HOUR_S - 2);
    assert_eq!(lab.offer(&mut agent), None, "a second early");
    let offer = lab.offer(&mut agent).expect("an operation");
    assert_eq!(
        (&offer.kind, offer.target.as_str(), offer.params.get()),
        (&OperationKind::AgentRotateKey, "node-a", "{}")
    );
    let mut new = agent.with_keys(2);
    let request = agent.rotation_to(&new);
    rotate(&mut lab, &agent, &request);
    let done = vec![final_event(
        1,
        json!({"active_key_id": new.signing.public().key_id()}),
    )];
    assert_eq!(said(&lab.events(&new, &offer.id, done)), "200");
    assert_eq!(lab.offer(&mut new), None, "the new keys are young");

    // The new ones age from their own registration on.
    lab.pass_s(90 * 24 * HOUR_S - 4);
    assert_eq!(lab.offer(&mut new), None, "seconds early");
    lab.pass_s(4);
    let second = lab.offer(&mut new).expect("an operation for the new key");
    assert_ne!(second.id, offer.id);
    let failed = vec![event(1, None, EventState::Failed)];
    assert_eq!(said(&lab.events(&new, &second.id, failed)), "200");
    lab.pass_s(24 * HOUR_S - 2);
    assert_eq!(lab.offer(&mut new), None, "not a day later");
    lab.pass_s(2);
    let third = lab.offer(&mut new).expect("an operation, a day after");
    assert_ne!(third.id, second.id);
    for _ in 0..3 {
        lab.pass_s(30 * 24 * HOUR_S);
        let same = lab
            .offer(&mut new)
            .expect("the same one, as long as it has not ended");
        assert_eq!(same.id, third.id);
    }
}

// rule OP-9: by the portal's clock, however it is set, and behind what the cluster has to do already (OPS-1).
#[test]
fn op_9_the_portal_asks_by_its_own_clock_and_waits_for_its_turn() {
    let (mut lab, mut agent) = one_agent();
    let other = lab.post(
        "clu_a",
        json!({"kind": "snapshot.save", "params": {"name": "x"}}),
    );
    lab.set_clock(91 * 24 * HOUR_S * 1000);
    for _ in 0..3 {
        let offer = lab.offer(&mut agent).expect("the operation before it");
        assert_eq!(offer.id, other, "one at a time");
    }
    let done = vec![final_event(1, json!({"name": "x"}))];
    assert_eq!(said(&lab.events(&agent, &other, done)), "200");
    let offer = lab.offer(&mut agent).expect("its turn");
    assert_eq!(offer.kind, OperationKind::AgentRotateKey);
    // A clock that is set back and ahead again does not make a second one.
    for offset_ms in [0, 400 * 24 * HOUR_S * 1000] {
        lab.set_clock(offset_ms);
        assert_eq!(lab.offer(&mut agent).expect("the same").id, offer.id);
    }
    let failed = vec![event(1, None, EventState::Failed)];
    assert_eq!(said(&lab.events(&agent, &offer.id, failed)), "200");
    assert_eq!(lab.offer(&mut agent), None);
}
