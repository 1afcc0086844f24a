//! The control API's verbs: tokens, the fleet, releases, the clock, the counters, and forgetting everything.

use std::collections::BTreeSet;

use portal_core::ControlError;
use portal_core::control::{AgentState, AgentsQuery, TokensInput};
use protocol::endpoint::Endpoint;
use protocol::id::{AgentId, ReleaseVersion};
use protocol::pbx::call::{AnswerBody, Request};
use protocol::problem::ProblemCode;
use protocol::sign::VerifyingKey;
use protocol::verified::ReleaseKeys;
use serde_json::{Value, json};

use crate::lab::*;

#[test]
fn tokens_by_the_thousand_name_their_nodes_and_clusters() {
    let mut lab = Lab::new();
    let tokens = lab.tokens(
        json!({"cluster_id": "clu_t", "node_name": "n", "count": 7, "servers_per_cluster": 3}),
    );
    let lines: Vec<String> = tokens
        .iter()
        .map(|t| format!("{} {}", t.cluster_id, t.node_name))
        .collect();
    let due = [
        "clu_t-1 n-1",
        "clu_t-1 n-2",
        "clu_t-1 n-3",
        "clu_t-2 n-4",
        "clu_t-2 n-5",
        "clu_t-2 n-6",
        "clu_t-3 n-7",
    ];
    assert_eq!(lines, due);
    let distinct: BTreeSet<&str> = tokens.iter().map(|t| t.token.expose()).collect();
    assert_eq!(distinct.len(), 7);
    assert!(distinct.iter().all(|token| token.starts_with("pbxe_")));

    let more = lab.tokens(
        json!({"cluster_id": "clu_t", "node_name": "n", "count": 2, "first": 9, "servers_per_cluster": 3}),
    );
    let lines: Vec<String> = more
        .iter()
        .map(|t| format!("{} {}", t.cluster_id, t.node_name))
        .collect();
    assert_eq!(lines, ["clu_t-3 n-9", "clu_t-4 n-10"]);

    let shared = lab.tokens(json!({"cluster_id": "clu_s", "node_name": "n", "count": 2}));
    assert!(shared.iter().all(|t| t.cluster_id.as_str() == "clu_s"));
    assert_eq!(shared[1].node_name.as_str(), "n-2");
    let one = lab.tokens(json!({"cluster_id": "clu_s", "node_name": "n", "server_id": 5}));
    assert_eq!(
        (
            one.len(),
            one[0].node_name.as_str(),
            one[0].server_id.unwrap().0
        ),
        (1, "n", 5)
    );
    assert_eq!(
        serde_json::to_value(&lab.tokens(json!({"cluster_id": "c", "node_name": "n"}))[0]).unwrap()
            ["server_id"],
        Value::Null,
        "null where any will do"
    );
}

#[test]
fn tokens_that_cannot_be_meant_are_refused_by_name() {
    let lab = Lab::new();
    for (more, says) in [
        (json!({"count": 0}), "count"),
        (json!({"count": 100_001}), "count"),
        (json!({"servers_per_cluster": 0}), "servers_per_cluster"),
        (json!({"count": 2, "first": 0}), "first"),
        (json!({"count": 2, "first": u32::MAX}), "first"),
        (json!({"first": 2}), "first"),
        (json!({"count": 2, "server_id": 5}), "server_id"),
        (
            json!({"count": 2, "node_name": "x".repeat(63)}),
            "node_name",
        ),
        (
            json!({"count": 2, "servers_per_cluster": 1, "cluster_id": "x".repeat(64)}),
            "cluster_id",
        ),
    ] {
        let mut input = json!({"cluster_id": "c", "node_name": "n"});
        input
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let input: TokensInput = serde_json::from_value(input).unwrap();
        match lab.portal.control(lab.now).make_tokens(&input) {
            Err(ControlError::Invalid { member, .. }) => assert_eq!(member, says),
            other => panic!("{more}: {other:?}"),
        }
    }
    let typo = json!({"cluster_id": "c", "node_name": "n", "coutn": 3});
    assert!(
        serde_json::from_value::<TokensInput>(typo)
            .unwrap_err()
            .to_string()
            .contains("coutn")
    );
}

#[test]
fn the_fleet_in_pages_by_state_and_cluster() {
    let mut lab = Lab::new();
    let mut agents: Vec<Agent> = (0..25)
        .map(|n| lab.agent(&format!("clu_{}", n % 3), &format!("n-{n}"), n))
        .collect();
    for at in [3, 7] {
        lab.revoke(&agents[at]);
    }
    let rotation = agents[4].rotation_to(&agents[4].with_keys(100));
    lab.call(
        &agents[4].clone(),
        &Request::RotateKey(std::sync::Arc::new(rotation)),
    );
    lab.synced(&mut agents[0]);

    let all = |query: Value| {
        let (mut query, mut found): (AgentsQuery, Vec<AgentId>) =
            (serde_json::from_value(query).unwrap(), Vec::new());
        loop {
            let page = lab.portal.control(lab.now).agents(&query).unwrap();
            assert!(page.agents.len() <= query.limit.unwrap_or(100) as usize);
            found.extend(page.agents.into_iter().map(|agent| agent.id));
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return found,
            }
        }
    };
    let every: BTreeSet<AgentId> = agents.iter().map(|agent| agent.id().clone()).collect();
    for limit in [1, 2, 7, 24, 25, 26] {
        let found = all(json!({"limit": limit}));
        assert_eq!(
            found,
            every.iter().cloned().collect::<Vec<_>>(),
            "limit {limit}: each once, in order"
        );
    }
    assert_eq!(all(json!({"state": "revoked", "limit": 1})).len(), 2);
    assert_eq!(all(json!({"state": "active"})).len(), 23);
    assert_eq!(all(json!({"state": "rotating"})), [agents[4].id().clone()]);
    assert_eq!(all(json!({"cluster": "clu_1"})).len(), 8);
    assert_eq!(
        all(json!({"cluster": "clu_1", "state": "revoked"})),
        [agents[7].id().clone()]
    );
    let refused = lab
        .portal
        .control(lab.now)
        .agents(&AgentsQuery {
            limit: Some(0),
            ..Default::default()
        })
        .unwrap_err();
    assert_eq!(refused.status(), 400);

    let detail = lab.portal.control(lab.now).agent(agents[0].id()).unwrap();
    assert_eq!(
        (
            detail.summary.state,
            detail.summary.reports,
            detail.summary.leader
        ),
        (AgentState::Active, 1, true)
    );
    assert_eq!(detail.last_report.unwrap().sequence, 1);
    assert_eq!(
        lab.portal
            .control(lab.now)
            .agent(agents[4].id())
            .unwrap()
            .keys
            .len(),
        2
    );
}

// rule SIGN-6: revoked, and twice is once.
#[test]
fn sign_6_a_revoked_agent() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    lab.synced(&mut agent);
    let (summary, changes) = lab.portal.control(lab.now).revoke(agent.id()).unwrap();
    assert_eq!(
        (summary.state, changes.changes.len()),
        (AgentState::Revoked, 1)
    );
    let at = lab
        .portal
        .control(lab.now)
        .agent(agent.id())
        .unwrap()
        .revoked_at;
    lab.pass_s(5);
    let (_, changes) = lab.portal.control(lab.now).revoke(agent.id()).unwrap();
    assert_eq!(
        (changes.sequence, changes.changes.len()),
        (0, 0),
        "nothing changed"
    );
    assert_eq!(
        lab.portal
            .control(lab.now)
            .agent(agent.id())
            .unwrap()
            .revoked_at,
        at
    );
    assert_eq!(said(&lab.sync(&mut agent)), "401 revoked");
    let unknown = AgentId::new("agt_unknown").unwrap();
    assert_eq!(
        lab.portal
            .control(lab.now)
            .revoke(&unknown)
            .unwrap_err()
            .status(),
        404
    );
}

fn manifest_of(
    lab: &mut Lab,
    agent: &Agent,
    version: &str,
) -> Result<protocol::verified::Verified<protocol::pbx::release::Manifest>, String> {
    let version = ReleaseVersion::new(version).unwrap();
    lab.pass_s(1);
    let answer = lab.call(agent, &Request::Manifest(version.clone()));
    let Some(AnswerBody::Manifest(signed)) = answer.done() else {
        return Err(said(&answer));
    };
    let key = lab.portal.control(lab.now).release_keys()[0].public;
    let keys = ReleaseKeys::new([VerifyingKey::parse(&key).unwrap()]).unwrap();
    keys.verify(signed, &version).map_err(|why| why.to_string())
}

// rule UPD-4, rule UPD-6, on the portal's side: signed with its release key, each of its own version.
#[test]
fn upd_4_releases_are_signed_and_fetched_by_their_version() {
    let mut lab = Lab::new();
    let agent = lab.agent("clu_a", "node-a", 1);
    let first = manifest_of(&mut lab, &agent, "2026.11.1").unwrap();
    assert_eq!((first.floor, first.agent.version.as_str()), (12, "1.4.0"));
    assert_eq!(
        manifest_of(&mut lab, &agent, "2026.12.1").unwrap_err(),
        "404 not_found"
    );

    let mut payload = serde_json::to_value(&*first).unwrap();
    payload["version"] = json!("2026.12.1");
    payload["floor"] = json!(13);
    payload["unknown"] = json!("kept");
    let control = lab.portal.control(lab.now);
    let (published, _) = control
        .publish_release(payload.to_string().as_bytes())
        .unwrap();
    assert_eq!(published.warnings, Vec::<String>::new());
    assert_eq!(published.key_id, control.release_keys()[0].id);
    let latest: Vec<_> = control
        .releases()
        .into_iter()
        .map(|r| (r.version.to_string(), r.floor, r.latest))
        .collect();
    assert_eq!(
        latest,
        [
            ("2026.11.1".to_owned(), 12, false),
            ("2026.12.1".to_owned(), 13, true)
        ]
    );
    assert_eq!(
        control
            .publish_release(payload.to_string().as_bytes())
            .unwrap()
            .0
            .warnings
            .len(),
        1,
        "published again"
    );
    assert_eq!(
        manifest_of(&mut lab, &agent, "2026.12.1").unwrap().floor,
        13
    );
    assert_eq!(
        manifest_of(&mut lab, &agent, "2026.11.1").unwrap().floor,
        12
    );

    for payload in [&b"{}"[..], b"[]", b"nonsense", b""] {
        let refused = lab
            .portal
            .control(lab.now)
            .publish_release(payload)
            .unwrap_err();
        assert_eq!(refused.status(), 400, "{refused}");
    }
}

// rule SIGN-6: the release that a 426 names is the document's, else the latest.
#[test]
fn sign_6_a_426_names_a_release() {
    let mut lab = Lab::with(|settings| settings.minimum_protocol = 2);
    let mut old = Lab::new();
    let (mut a, mut b) = (old.agent("clu_a", "n", 1), old.agent("clu_b", "n", 2));
    old.set_desired("clu_a", desired());
    for changes in &old.changes {
        lab.portal.restore(changes);
    }
    let mut payload = json!({"version": "2027.1.1", "created_at": "2027-01-01T00:00:00Z", "floor": 14, "template_engine": "minijinja"});
    payload["agent"] = json!({"version": "2.0.0", "artifacts": []});
    payload["image"] = json!({"k3s_version": "v1", "artifacts": []});
    payload["addons"] = json!([]);
    lab.portal
        .control(lab.now)
        .publish_release(payload.to_string().as_bytes())
        .unwrap();
    for (agent, release) in [(&mut a, "2026.11.1"), (&mut b, "2027.1.1")] {
        let answer = lab.sync(agent);
        assert_eq!(said(&answer), "426 protocol_too_old");
        assert_eq!(
            answer
                .refused()
                .unwrap()
                .problem
                .release
                .as_ref()
                .unwrap()
                .as_str(),
            release
        );
    }
}

#[test]
fn the_clock_is_set_and_drifts() {
    let mut lab = Lab::new();
    let (view, _) = lab
        .portal
        .control(lab.now)
        .set_clock(serde_json::from_value(json!({"offset_ms": -500, "drift_ppm": 1000})).unwrap());
    assert_eq!(view.portal_time.unix_ms(), START_MS - 500);
    lab.pass_s(1000);
    let view = lab.portal.control(lab.now).clock();
    assert_eq!(
        (view.portal_time.unix_ms(), view.offset_ms, view.drift_ppm),
        (START_MS + 1_000_000 - 500 + 1000, -500, 1000)
    );
}

#[test]
fn every_answer_is_counted_under_its_endpoint_and_code() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    lab.synced(&mut agent);
    lab.synced(&mut agent);
    lab.revoke(&agent);
    lab.sync(&mut agent);
    lab.send(&Raw {
        method: "GET".to_owned(),
        target: "/".to_owned(),
        headers: vec![],
        body: vec![],
        too_large: false,
    });
    let counters = lab.portal.control(lab.now).counters();
    assert_eq!(counters.count(Endpoint::Enroll, None), 1);
    assert_eq!(counters.count(Endpoint::Sync, None), 2);
    assert_eq!(
        counters.count(Endpoint::Sync, Some(ProblemCode::Revoked)),
        1
    );
    assert_eq!(counters.total(), 5);
    let without = counters
        .answers
        .iter()
        .find(|line| line.endpoint.is_none())
        .unwrap();
    assert_eq!(
        (without.status, without.code, without.count),
        (404, Some(ProblemCode::NotFound), 1)
    );
}

/// What is left after forgetting: nobody is known, and a new enrollment works.
fn expect_forgotten(lab: &mut Lab, agent: &mut Agent) {
    assert_eq!(said(&lab.sync(agent)), "401 unknown_agent");
    let old_id = agent.id().clone();
    assert_eq!(lab.portal.control(lab.now).releases().len(), 1);
    assert_eq!(
        lab.portal
            .control(lab.now)
            .desired(&cluster_id("clu_a"))
            .unwrap_err()
            .status(),
        404
    );
    let token = lab.token("clu_a", "node-a");
    agent.enrolled = Some(expect_enrolled(
        &lab.enroll(&agent.enrollment(&token.token)),
    ));
    assert_ne!(*agent.id(), old_id, "no ID comes twice");
    assert!(lab.synced(agent).desired.is_none());
}

#[test]
fn a_reset_forgets_everything_but_settings_and_release_keys() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    lab.set_desired("clu_a", desired());
    lab.synced(&mut agent);
    lab.portal
        .control(lab.now)
        .set_clock(serde_json::from_value(json!({"offset_ms": 9})).unwrap());
    let keys = lab.portal.control(lab.now).release_keys();
    let (counted, _) = lab.portal.control(lab.now).reset();
    assert_eq!(counted.total(), 2);
    assert_eq!(lab.portal.control(lab.now).counters().total(), 0);
    assert_eq!(lab.portal.control(lab.now).clock().offset_ms, 0);
    assert_eq!(lab.portal.control(lab.now).release_keys(), keys);
    expect_forgotten(&mut lab, &mut agent);
}

#[test]
fn a_restart_without_data_forgets_the_same_and_goes_on_counting() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    lab.set_desired("clu_a", desired());
    lab.synced(&mut agent);
    lab.portal
        .control(lab.now)
        .set_clock(serde_json::from_value(json!({"offset_ms": 9})).unwrap());
    lab.portal.control(lab.now).restart_without_data();
    assert_eq!(lab.portal.control(lab.now).counters().total(), 2);
    assert_eq!(lab.portal.control(lab.now).clock().offset_ms, 9);
    expect_forgotten(&mut lab, &mut agent);
}
