//! Operations: one at a time a cluster, to its target, until its final event is here.

use portal_core::ControlError;
use portal_core::control::{OperationInput, OperationStatus};
use protocol::id::OperationId;
use protocol::pbx::call::AnswerBody;
use protocol::pbx::operation::{EventState, OperationEvent, Params, ParamsRefusal, Reason, Step};
use protocol::seal::Sealed;
use serde_json::{Value, json};

use crate::lab::*;

fn save() -> Value {
    json!({"kind": "snapshot.save", "params": {"name": "nightly"}})
}

fn one_agent() -> (Lab, Agent) {
    let mut lab = Lab::new();
    let agent = lab.agent("clu_a", "node-a", 1);
    (lab, agent)
}

fn offered(lab: &mut Lab, agent: &mut Agent) -> Option<OperationId> {
    lab.offer(agent).map(|offer| offer.id)
}

fn accepted(lab: &mut Lab, agent: &Agent, id: &OperationId, events: Vec<OperationEvent>) -> u64 {
    match lab.events(agent, id, events).done() {
        Some(AnswerBody::Events(answer)) => answer.accepted_sequence,
        other => panic!("not accepted: {other:?}"),
    }
}

fn steps(numbers: impl IntoIterator<Item = u64>) -> Vec<OperationEvent> {
    numbers
        .into_iter()
        .map(|n| event(n, Some(Step::Save), EventState::Started))
        .collect()
}

fn status(lab: &Lab, id: &OperationId) -> OperationStatus {
    lab.portal.control(lab.now).operation(id).unwrap().state
}

// rule OPS-9: handed out in every sync until the final event is stored, the same each time.
#[test]
fn ops_9_it_is_handed_out_until_its_final_event_is_stored() {
    let (mut lab, mut agent) = one_agent();
    let id = lab.post("clu_a", save());
    assert_eq!(status(&lab, &id), OperationStatus::Queued);
    let first = lab.offer(&mut agent).unwrap();
    assert_eq!(
        (first.id.clone(), first.target.as_str(), first.params.get()),
        (id.clone(), "node-a", r#"{"name":"nightly"}"#)
    );
    assert_eq!(status(&lab, &id), OperationStatus::HandedOut);
    assert_eq!(lab.offer(&mut agent).unwrap(), first);
    accepted(&mut lab, &agent, &id, steps(1..=2));
    assert_eq!(status(&lab, &id), OperationStatus::Running);
    assert_eq!(lab.offer(&mut agent).unwrap(), first);
    // Beyond a gap, a final event ends nothing.
    accepted(&mut lab, &agent, &id, vec![final_event(4, json!({}))]);
    assert_eq!(lab.offer(&mut agent).unwrap(), first);
    accepted(
        &mut lab,
        &agent,
        &id,
        vec![final_event(3, json!({"name": "nightly"}))],
    );
    assert_eq!(status(&lab, &id), OperationStatus::Succeeded);
    assert_eq!(lab.offer(&mut agent), None);
    let view = lab.portal.control(lab.now).operation(&id).unwrap();
    assert_eq!(view.result.unwrap().get(), r#"{"name":"nightly"}"#);
    assert!(view.handed_out_at < view.ended_at);
}

// rule OPS-1, rule OPS-9: one at a time a cluster, the others wait in their order.
#[test]
fn ops_1_one_at_a_time_in_the_order_of_their_making() {
    let (mut lab, mut a) = one_agent();
    let mut b = lab.agent("clu_a", "node-b", 2);
    let mut other = lab.agent("clu_b", "node-a", 3);
    let first = lab.post(
        "clu_a",
        json!({"kind": "snapshot.save", "target": "node-b", "params": {"name": "one"}}),
    );
    let second = lab.post(
        "clu_a",
        json!({"kind": "snapshot.save", "target": "node-a", "params": {"name": "two"}}),
    );
    let elsewhere = lab.post("clu_b", save());
    assert_eq!(
        offered(&mut lab, &mut a),
        None,
        "another node's comes first"
    );
    assert_eq!(offered(&mut lab, &mut b), Some(first.clone()));
    assert_eq!(offered(&mut lab, &mut a), None);
    assert_eq!(
        offered(&mut lab, &mut other),
        Some(elsewhere),
        "another cluster does not wait"
    );
    accepted(
        &mut lab,
        &b,
        &first,
        vec![event(1, None, EventState::Failed)],
    );
    assert_eq!(offered(&mut lab, &mut b), None);
    assert_eq!(offered(&mut lab, &mut a), Some(second));
}

// rule OPS-9: every way in which it can end.
#[test]
fn ops_9_how_it_ends() {
    for (state, ends) in [
        (EventState::Succeeded, OperationStatus::Succeeded),
        (EventState::Failed, OperationStatus::Failed),
        (EventState::Unsupported, OperationStatus::Unsupported),
        (EventState::Refused, OperationStatus::Refused),
    ] {
        let (mut lab, mut agent) = one_agent();
        let id = lab.post("clu_a", save());
        lab.synced(&mut agent);
        let last = OperationEvent {
            reason: Some(Reason::ApiDown),
            ..event(1, None, state)
        };
        accepted(&mut lab, &agent, &id, vec![last]);
        let view = lab.portal.control(lab.now).operation(&id).unwrap();
        assert_eq!((view.state, view.reason), (ends, Some(Reason::ApiDown)));
        assert!(ends.is_final());
        assert_eq!(offered(&mut lab, &mut agent), None);
    }
    // A step that failed is not the end.
    let (mut lab, mut agent) = one_agent();
    let id = lab.post("clu_a", save());
    lab.synced(&mut agent);
    accepted(
        &mut lab,
        &agent,
        &id,
        vec![event(1, Some(Step::Save), EventState::Failed)],
    );
    assert_eq!(status(&lab, &id), OperationStatus::Running);
    assert_eq!(offered(&mut lab, &mut agent), Some(id));
}

// rule OPS-8: the highest contiguous number is acknowledged, stored means acknowledged, the first content stays.
#[test]
fn ops_8_events() {
    let (mut lab, mut agent) = one_agent();
    let id = lab.post("clu_a", save());
    lab.synced(&mut agent);
    // (numbers that come, acknowledged, (repeats, different, beyond a gap) in all)
    type Row = (&'static [u64], u64, (u64, u64, u64));
    let rows: [Row; 8] = [
        (&[], 0, (0, 0, 0)),
        (&[2], 0, (0, 0, 1)),
        (&[1], 1, (0, 0, 1)),
        (&[1], 1, (1, 0, 1)),
        (&[2, 3], 3, (1, 0, 1)),
        (&[3, 4, 6], 4, (2, 0, 2)),
        (&[5, 6, 5], 6, (3, 0, 2)),
        (&[9, 8, 7], 7, (3, 0, 4)),
    ];
    for (numbers, highest, (repeats, different_repeats, beyond_a_gap)) in rows {
        assert_eq!(
            accepted(&mut lab, &agent, &id, steps(numbers.iter().copied())),
            highest,
            "{numbers:?}"
        );
        let view = lab.portal.control(lab.now).operation(&id).unwrap();
        assert_eq!(
            (view.accepted_sequence, view.events.len() as u64),
            (highest, highest),
            "stored means acknowledged"
        );
        let counted = (view.repeats, view.different_repeats, view.beyond_a_gap);
        assert_eq!(
            counted,
            (repeats, different_repeats, beyond_a_gap),
            "{numbers:?}"
        );
    }
    // A repeat that differs is counted and not stored.
    let mut other = event(2, Some(Step::ConfirmS3), EventState::Succeeded);
    other.message = Some("another".to_owned());
    assert_eq!(accepted(&mut lab, &agent, &id, vec![other]), 7);
    let view = lab.portal.control(lab.now).operation(&id).unwrap();
    assert_eq!(view.events[1], steps([2])[0]);
    assert_eq!(view.different_repeats, 1);
}

// rule OPS-8: a result that comes again after the end is acknowledged, and the first one stays.
#[test]
fn ops_8_a_result_comes_exactly_once() {
    let (mut lab, mut agent) = one_agent();
    let id = lab.post("clu_a", save());
    lab.synced(&mut agent);
    for result in [json!({"n": 1}), json!({"n": 1}), json!({"n": 2})] {
        assert_eq!(
            accepted(&mut lab, &agent, &id, vec![final_event(1, result)]),
            1
        );
    }
    assert_eq!(
        accepted(&mut lab, &agent, &id, vec![final_event(2, json!({"n": 3}))]),
        2
    );
    let view = lab.portal.control(lab.now).operation(&id).unwrap();
    assert_eq!(view.result.unwrap().get(), r#"{"n":1}"#);
    assert_eq!((view.repeats, view.different_repeats), (1, 1));
}

// rule SIGN-6, rule OPS-10: events of an operation that this agent was not handed are 404, handed or not to another.
#[test]
fn ops_10_events_of_an_operation_that_this_agent_was_not_handed() {
    let (mut lab, mut a) = one_agent();
    let mut b = lab.agent("clu_a", "node-b", 2);
    let stranger = lab.agent("clu_b", "node-a", 3);
    let id = lab.post(
        "clu_a",
        json!({"kind": "snapshot.save", "target": "node-a", "params": {"name": "x"}}),
    );
    assert_eq!(
        said(&lab.events(&a, &id, steps([1]))),
        "404 not_found",
        "not handed out yet"
    );
    lab.synced(&mut a);
    lab.synced(&mut b);
    assert_eq!(said(&lab.events(&b, &id, steps([1]))), "404 not_found");
    assert_eq!(
        said(&lab.events(&stranger, &id, steps([1]))),
        "404 not_found"
    );
    assert_eq!(
        said(&lab.events(&a, &OperationId::new("op_unknown").unwrap(), steps([1]))),
        "404 not_found"
    );
    assert_eq!(said(&lab.events(&a, &id, steps([1]))), "200");
}

/// Agents of one cluster, nodes `n-1`, `n-2` …, in the order of their enrollment.
fn cluster(count: u8) -> (Lab, Vec<Agent>) {
    let mut lab = Lab::new();
    let agents = (1..=count)
        .map(|n| Agent {
            leader: false,
            ..lab.agent("clu_a", &format!("n-{n}"), n)
        })
        .collect();
    (lab, agents)
}

/// Reports that come before the operation is made, as (node, leads); who is handed it when all sync as they did last, in
/// that order.
fn target_after(reports: &[(usize, bool)], revoked: &[usize], order: [usize; 3]) -> Vec<usize> {
    let (mut lab, mut agents) = cluster(3);
    for (node, leads) in reports {
        agents[node - 1].leader = *leads;
        lab.synced(&mut agents[node - 1]);
    }
    for node in revoked {
        lab.revoke(&agents[node - 1]);
    }
    lab.post("clu_a", save());
    let mut handed = Vec::new();
    for _ in 0..2 {
        for node in order {
            let answer = lab.sync(&mut agents[node - 1]);
            if answer.status() == 200
                && expect_synced(&answer).operation.is_some()
                && !handed.contains(&node)
            {
                handed.push(node);
            }
        }
    }
    handed
}

// rule OPS-10: who becomes the target.
#[test]
fn ops_10_an_operation_without_a_target_gets_one_at_its_first_hand_out() {
    for (what, reports, revoked, target) in [
        (
            "who leads",
            &[(1, false), (2, true), (3, false)][..],
            &[][..],
            &[2][..],
        ),
        (
            "nobody ever led: enrolled first",
            &[(3, false), (2, false), (1, false)],
            &[],
            &[1],
        ),
        ("nobody reported at all", &[], &[], &[1]),
        (
            "nobody leads any more: who last did",
            &[(2, true), (3, true), (2, false), (3, false)],
            &[],
            &[3],
        ),
        (
            "who leads, not who last did",
            &[(1, true), (2, true), (2, false)],
            &[],
            &[1],
        ),
        (
            "who last did is revoked",
            &[(2, true), (3, true), (2, false), (3, false)],
            &[3],
            &[2],
        ),
        ("enrolled first is revoked", &[], &[1], &[2]),
        (
            "who leads is revoked",
            &[(1, false), (2, true), (3, false)],
            &[2],
            &[1],
        ),
        ("all are revoked", &[(1, true)], &[1, 2, 3], &[]),
    ] {
        for order in [[1, 2, 3], [3, 2, 1]] {
            assert_eq!(
                target_after(reports, revoked, order),
                target,
                "{what}, {order:?}"
            );
        }
    }
}

// rule OPS-10: the target is chosen when it is handed out, not when somebody else asks.
#[test]
fn ops_10_a_target_is_chosen_at_the_hand_out() {
    let (mut lab, mut agents) = cluster(2);
    agents[0].leader = true;
    lab.synced(&mut agents[0]);
    let id = lab.post("clu_a", save());
    assert_eq!(offered(&mut lab, &mut agents[1]), None, "another leads");
    agents[1].leader = true;
    assert_eq!(
        offered(&mut lab, &mut agents[1]),
        Some(id),
        "now this one said so last"
    );
}

// rule OPS-10: of two that say they lead, the one that reported last.
#[test]
fn ops_10_of_two_leaders_the_one_that_reported_last() {
    let (mut lab, mut agents) = cluster(2);
    for agent in &mut agents {
        agent.leader = true;
        lab.synced(agent);
    }
    let id = lab.post("clu_a", save());
    // `n-1` syncs next: it says that it leads, and now it is the one that reported last.
    assert_eq!(offered(&mut lab, &mut agents[0]), Some(id.clone()));
    assert_eq!(
        offered(&mut lab, &mut agents[1]),
        None,
        "it stays where it is"
    );
    assert_eq!(
        lab.portal
            .control(lab.now)
            .operation(&id)
            .unwrap()
            .target
            .unwrap()
            .as_str(),
        "n-1"
    );
}

// rule OPS-10: once it has its target it stays there, whoever leads.
#[test]
fn ops_10_a_target_stays() {
    let (mut lab, mut agents) = cluster(2);
    agents[0].leader = true;
    lab.synced(&mut agents[0]);
    let id = lab.post("clu_a", save());
    assert_eq!(offered(&mut lab, &mut agents[0]), Some(id.clone()));
    agents[0].leader = false;
    agents[1].leader = true;
    for _ in 0..2 {
        assert_eq!(offered(&mut lab, &mut agents[1]), None);
        assert_eq!(offered(&mut lab, &mut agents[0]), Some(id.clone()));
    }
}

// rule OPS-10: a named target gets it although another leads.
#[test]
fn ops_10_a_named_target_counts() {
    let (mut lab, mut agents) = cluster(2);
    agents[0].leader = true;
    let id = lab.post(
        "clu_a",
        json!({"kind": "snapshot.save", "target": "n-2", "params": {"name": "x"}}),
    );
    assert_eq!(offered(&mut lab, &mut agents[0]), None);
    assert_eq!(offered(&mut lab, &mut agents[1]), Some(id));
}

// A new token means a new server: the operation goes to the node's new agent, from the start.
#[test]
fn an_operation_goes_on_to_the_new_server_of_its_node() {
    let (mut lab, mut old) = one_agent();
    let id = lab.post("clu_a", save());
    lab.synced(&mut old);
    accepted(&mut lab, &old, &id, steps(1..=3));
    let mut new = lab.agent("clu_a", "node-a", 2);
    assert_eq!(offered(&mut lab, &mut old), None);
    assert_eq!(offered(&mut lab, &mut new), Some(id.clone()));
    assert_eq!(said(&lab.events(&old, &id, steps([4]))), "404 not_found");
    assert_eq!(accepted(&mut lab, &new, &id, steps([1])), 1);
}

// rule OPS-10: secrets among the parameters are sealed on hand-out, once a key.
#[test]
fn ops_10_secrets_among_the_parameters_are_sealed() {
    let rows = [
        json!({"kind": "s3.verify", "params": {"endpoint": "e", "region": "r", "bucket": "b", "folder": "f",
               "access_key": "CANARY-a", "secret_key": "CANARY-s"}}),
        json!({"kind": "server.rejoin", "params": {"server_url": "https://x", "token": "CANARY-t"}}),
    ];
    for input in rows {
        let (mut lab, mut agent) = one_agent();
        lab.post("clu_a", input.clone());
        let offer = lab.offer(&mut agent).unwrap();
        let params = offer.params().expect("no secret in clear");
        let opened: Vec<String> = params
            .sealed_values()
            .iter()
            .map(|(_, sealed)| agent.open(sealed).unwrap())
            .collect();
        assert!(
            !opened.is_empty()
                && opened
                    .iter()
                    .all(|secret| input.to_string().contains(secret.as_str()))
        );
        assert!(!offer.params.get().contains("CANARY"));
        assert_eq!(lab.offer(&mut agent).unwrap(), offer, "sealed once");
    }
    // What is sealed already stays as it is.
    let sealed: Sealed = Sealed::from_bytes([3; 50]);
    let (mut lab, mut agent) = one_agent();
    lab.post(
        "clu_a",
        json!({"kind": "server.rejoin", "params": {"server_url": "https://x", "token": sealed}}),
    );
    match lab.offer(&mut agent).unwrap().params().unwrap() {
        Params::ServerRejoin(params) => assert_eq!(params.token, sealed),
        other => panic!("{other:?}"),
    }
}

// rule OPS-5: an unknown kind is handed out all the same, parameters and all; the agent answers `unsupported`.
#[test]
fn ops_5_an_unknown_kind_goes_through_with_a_warning() {
    let (mut lab, mut agent) = one_agent();
    let input: OperationInput =
        serde_json::from_str(r#"{"kind": "node.levitate", "params": {"height_m": 1.50}}"#).unwrap();
    let (posted, _) = lab
        .portal
        .control(lab.now)
        .post_operation(&cluster_id("clu_a"), input)
        .unwrap();
    assert!(posted.warnings[0].contains("node.levitate"), "{posted:?}");
    let offer = lab.offer(&mut agent).unwrap();
    assert_eq!(
        offer.params(),
        Err(ParamsRefusal::Unsupported {
            kind: "node.levitate".to_owned()
        })
    );
    assert_eq!(offer.params.get(), r#"{"height_m": 1.50}"#, "byte for byte");
}

#[test]
fn an_operation_that_cannot_be_meant_is_refused_by_name() {
    let (lab, _) = one_agent();
    let post = |cluster: &str, input: Value| {
        let input: OperationInput = serde_json::from_str(&input.to_string()).unwrap();
        lab.portal
            .control(lab.now)
            .post_operation(&cluster_id(cluster), input)
            .map(|(posted, _)| posted.warnings)
    };
    assert_eq!(
        post("clu_x", save()),
        Err(ControlError::UnknownCluster(cluster_id("clu_x")))
    );
    for (input, says) in [
        (json!({"kind": "snapshot.save"}), "name"),
        (
            json!({"kind": "snapshot.save", "params": {"name": "../x"}}),
            "snapshot name",
        ),
        (
            json!({"kind": "access.issue", "params": {"subject": "me"}}),
            "role",
        ),
        (
            json!({"kind": "server.rejoin", "params": {"server_url": "https://x", "token": 5}}),
            "token",
        ),
        (json!({"kind": "snapshot.save", "params": ["x"]}), "params"),
    ] {
        match post("clu_a", input.clone()) {
            Err(refused @ ControlError::Invalid { .. }) => {
                assert!(refused.to_string().contains(says), "{input}: {refused}");
                assert_eq!(refused.status(), 400);
            }
            other => panic!("{input}: {other:?}"),
        }
    }
    for (input, says) in [
        (json!({"kind": "diag.collect", "params": {}}), "consent"),
        (
            json!({"kind": "agent.rotate_key", "target": "node-x"}),
            "node-x",
        ),
    ] {
        let warnings = post("clu_a", input).unwrap();
        assert!(warnings[0].contains(says), "{warnings:?}");
    }
}

// rule OP-11: consent travels with the request that it is for.
#[test]
fn op_11_consent_is_handed_on() {
    let (mut lab, mut agent) = one_agent();
    let consent = json!({"by": "ops@example.org", "at": "2026-11-30T01:00:00Z", "text": "yes"});
    lab.post(
        "clu_a",
        json!({"kind": "diag.collect", "params": {}, "consent": consent}),
    );
    let offer = lab.offer(&mut agent).unwrap();
    assert_eq!(serde_json::to_value(offer.consent).unwrap(), consent);
}

// rule OPS-8: what a call may hold is held to, under SIGN-6's shape.
#[test]
fn ops_8_limits_of_a_call() {
    let (mut lab, mut agent) = one_agent();
    let id = lab.post("clu_a", save());
    lab.synced(&mut agent);
    let line =
        json!({"sequence": 1, "at": "2026-11-30T01:02:03Z", "step": "save", "state": "started"});
    let with = |name: &str, value: Value| {
        let mut line = line.clone();
        line[name] = value;
        json!({"events": [line]})
    };
    for (what, body, says) in [
        (
            "101 events",
            json!({"events": vec![line.clone(); 101]}),
            "400 invalid_request",
        ),
        (
            "number 0",
            with("sequence", json!(0)),
            "400 invalid_request",
        ),
        (
            "a line of 1025 bytes",
            with("log_tail", json!(["x".repeat(1025)])),
            "400 invalid_request",
        ),
        (
            "201 lines",
            with("log_tail", json!(vec!["x"; 201])),
            "400 invalid_request",
        ),
        (
            "a state nobody knows",
            with("state", json!("levitating")),
            "400 invalid_request",
        ),
        (
            "a reason nobody knows",
            with("reason", json!("levitating")),
            "200",
        ),
    ] {
        lab.pass_s(1);
        let mut raw = Raw {
            method: "POST".to_owned(),
            target: format!("/agent/v1/operations/{id}/events"),
            headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
            body: body.to_string().into_bytes(),
            too_large: false,
        };
        raw.sign(&agent, lab.seconds());
        assert_eq!(said(&lab.send(&raw)), says, "{what}");
    }
}

// What agents will ignore is told to whoever misspelled it.
#[test]
fn a_parameter_that_the_kind_does_not_have_is_warned_of() {
    let mut lab = Lab::new();
    lab.token("clu_a", "node-a");
    let rows = [
        (json!({"name": "n"}), vec![]),
        (
            json!({"name": "n", "retain": 3}),
            vec!["snapshot.save has no parameter \"retain\"; agents ignore it"],
        ),
    ];
    for (params, expected) in rows {
        let input = json!({"kind": "snapshot.save", "params": params});
        let input = serde_json::from_value(input).unwrap();
        let cluster = cluster_id("clu_a");
        let (posted, _) = lab
            .portal
            .control(lab.now)
            .post_operation(&cluster, input)
            .unwrap();
        assert_eq!(posted.warnings, expected, "{params}");
    }
    // One that may be null is no other for being so.
    let restore = json!({"snapshot": "a", "source": "local", "token_hash": null});
    let input = json!({"kind": "cluster.restore", "params": restore});
    let input = serde_json::from_value(input).unwrap();
    let (posted, _) = lab
        .portal
        .control(lab.now)
        .post_operation(&cluster_id("clu_a"), input)
        .unwrap();
    assert_eq!(posted.warnings, Vec::<String>::new());
}
