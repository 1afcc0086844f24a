//! Each kind of operation, from its offer to its result (OP-7 to OP-12, R60); how any of them is carried out is
//! [`operate`](crate::operate)'s.

use std::sync::Arc;

use agent_core::limits::{FINISHED_RESULT_BYTES_MAX, Limits};
use agent_core::machine::{Evidence, LogLine};
use agent_core::pbx::diagnostics::{Section, bundle};
use agent_core::pbx::task::{Account, AccountName, Done, StopFor, SubjectHash, Task, Uid};
use protocol::id::OperationId;
use protocol::pbx::operation::{
    AccessIssueParams, AccessRevokeParams, ClusterRestoreParams, Consent, EventState, NoParams,
    NodeParams, OperationEvent, OperationOffer, OperationResult, Params, Reason, Role,
    ServerRejoinParams, SnapshotSource, Step,
};
use protocol::seal::{SealingPublicKey, SealingSecretKey};
use protocol::time::Timestamp;
use serde_json::{Value, json};

use crate::world::{START_MS, World, api_down, failure, keys, offer, sealed, secrets};

/// Runs an operation that ends well: what it came to, as it is reported.
fn result(world: &mut World, offer: &OperationOffer) -> Value {
    world.tasks();
    world.offer(offer);
    let events = world.run_operation();
    let last = events.last().unwrap();
    assert_eq!(last.state, EventState::Succeeded, "{events:#?}");
    let raw = last.result.as_ref().unwrap();
    let typed = OperationResult::read(&offer.kind, raw).unwrap().unwrap();
    assert_eq!(typed.to_raw().get(), raw.get());
    serde_json::from_str(raw.get()).unwrap()
}

/// Offers an operation that ends without a step.
fn unbegun(world: &mut World, offer: &OperationOffer) -> (EventState, Option<Reason>) {
    world.offer(offer);
    let events = world.run_operation();
    assert_eq!((events.len(), events[0].step), (1, None), "{events:?}");
    assert_eq!(world.tasks(), [""; 0]);
    (events[0].state, events[0].reason.clone())
}

fn issue(recipient_key: SealingPublicKey, lifetime_seconds: u64) -> OperationOffer {
    let params = AccessIssueParams {
        subject: "ann@example.com".to_owned(),
        role: Role::Edit,
        recipient_key,
        lifetime_seconds,
    };
    offer("op_1", &Params::AccessIssue(params))
}

fn asker() -> SealingPublicKey {
    SealingSecretKey::from_seed([5; 32]).public()
}

fn account(subject: &str, role: Role, asked_seconds: i64) -> Account {
    Account {
        name: AccountName {
            subject: SubjectHash::of(subject),
            role,
        },
        asked_at: Timestamp::from_unix_ms(START_MS + asked_seconds * 1000),
    }
}

// rule OP-7: the token leaves the host sealed to the agent's own key, the kubeconfig to whoever asked.
#[test]
fn op_7_access_is_issued_sealed_to_whoever_asked() {
    let mut world = World::enrolled();
    let came_to = result(&mut world, &issue(asker(), 3_600));
    assert_eq!(
        came_to["sealed_kubeconfig"],
        json!({"sealed": "a3ViZWNvbmZpZw=="})
    );
    let [
        Task::EnsureAccount(ensured),
        Task::RequestToken {
            account: name,
            lifetime_seconds: 3_600,
            seal_to,
        },
        Task::SealKubeconfig { token, recipient },
    ] = [0, 1, 2].map(|at| &*world.node.performed[at])
    else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!((&ensured.name, *recipient), (name, asker()));
    assert_eq!((*seal_to, token), (keys(1).sealing, &sealed("a token")));
    let text = name.to_string();
    let hash = text
        .strip_prefix("pbx-access-")
        .unwrap()
        .strip_suffix("-edit");
    assert_eq!(hash.unwrap().len(), 16, "{text}");
    let expires: Timestamp = serde_json::from_value(came_to["expires_at"].clone()).unwrap();
    let from_start_ms = expires.unix_ms() - ensured.asked_at.unix_ms();
    assert!(
        (3_600_000..3_660_000).contains(&from_start_ms),
        "{from_start_ms}"
    );
}

// R61: no longer than a day, no shorter than the API grants.
#[test]
fn op_7_a_lifetime_has_bounds() {
    for (asked, expected) in [(0, 600), (600, 600), (86_400, 86_400), (u64::MAX, 86_400)] {
        let mut world = World::enrolled();
        result(&mut world, &issue(asker(), asked));
        let Task::RequestToken {
            lifetime_seconds, ..
        } = &*world.node.performed[1]
        else {
            panic!("{:?}", world.node.performed)
        };
        assert_eq!(*lifetime_seconds, expected);
    }
}

// rule KEY-1: nothing is sealed to a key that everybody can open.
#[test]
fn key_1_nothing_is_sealed_to_a_weak_key() {
    for weak in [[0; 32], [0xff; 32]] {
        let offer = issue(SealingPublicKey(weak), 600);
        let expected = (EventState::Refused, Some(Reason::InvalidKey));
        assert_eq!(unbegun(&mut World::enrolled(), &offer), expected);
    }
}

// rule OP-8: one person's ServiceAccounts, or everyone's.
#[test]
fn op_8_access_is_revoked_for_one_person_or_for_everyone() {
    let ann = |role| account("ann", role, 0);
    let (one, two, other) = (
        ann(Role::Admin),
        ann(Role::View),
        account("bob", Role::View, 0),
    );
    let rows = [
        (AccessRevokeParams::Subject("ann".into()), vec![&one, &two]),
        (AccessRevokeParams::Subject("eve".into()), vec![]),
        (AccessRevokeParams::Everyone, vec![&one, &two, &other]),
    ];
    for (params, expected) in rows {
        let mut world = World::enrolled();
        world.node.accounts = [&one, &two, &other].map(Clone::clone).into();
        let came_to = result(&mut world, &offer("op_1", &Params::AccessRevoke(params)));
        let names: Vec<AccountName> = expected.iter().map(|it| it.name.clone()).collect();
        let texts: Vec<String> = names.iter().map(AccountName::to_string).collect();
        assert_eq!(came_to, json!({"deleted": texts}));
        let Task::DeleteAccounts(deleted) = &*world.node.performed[1] else {
            panic!("{:?}", world.node.performed)
        };
        assert_eq!(*deleted, names);
    }
}

// rule OP-8: what a first try has deleted is told, though a second one does not find it.
#[test]
fn op_8_a_crash_while_accounts_are_deleted_loses_none_of_their_names() {
    let mut world = World::enrolled();
    world.node.accounts = vec![account("ann", Role::Admin, 0)];
    world.node.holds = Some("DeleteAccounts");
    let revoke = offer("op_1", &Params::AccessRevoke(AccessRevokeParams::Everyone));
    world.offer(&revoke);
    world.settle();
    world.node.holds = None;
    world.node.accounts.clear();
    world.crash();
    let events = world.run_operation();
    let last = events.last().unwrap().result.clone().unwrap();
    assert!(last.get().contains("pbx-access-"), "{last}");
}

fn restore(id: &str) -> OperationOffer {
    offer(
        id,
        &Params::ClusterRestore(ClusterRestoreParams {
            snapshot: "nightly-fsn1-1".parse().unwrap(),
            source: SnapshotSource::Local,
            token_hash: None,
        }),
    )
}

// R60: what was revoked stays revoked, also when a snapshot brings it back; what was given since stays.
#[test]
fn r_60_a_restore_takes_revoked_access_away_again() {
    let mut world = World::enrolled();
    let revoke = offer(
        "op_1",
        &Params::AccessRevoke(AccessRevokeParams::Subject("ann".into())),
    );
    result(&mut world, &revoke);
    let (old, new, other) = (
        account("ann", Role::Admin, 0),
        account("ann", Role::View, 86_400),
        account("bob", Role::View, 0),
    );
    world.crash();
    world.node.accounts = vec![old.clone(), new, other];
    let came_to = result(&mut world, &restore("op_2"));
    assert_eq!(came_to["revoked"], json!([old.name.to_string()]));
    let names: Vec<&str> = world.tasks();
    assert_eq!(
        names[3..],
        [
            "WaitApi",
            "ListAccounts",
            "DeleteAccounts",
            "ForgetStaleNodes"
        ]
    );

    let mut world = World::enrolled();
    let came_to = result(&mut world, &restore("op_1"));
    assert_eq!(came_to["revoked"], json!([]));
    assert!(
        !world.tasks().contains(&"ListAccounts"),
        "nothing was revoked here"
    );
}

// R60: it counts from the moment at which it is written down, whatever becomes of the operation.
#[test]
fn r_60_a_revocation_that_fails_is_remembered() {
    let mut world = World::enrolled();
    world.node.failures = vec![("ListAccounts", failure("the API hangs"))];
    world.offer(&offer(
        "op_1",
        &Params::AccessRevoke(AccessRevokeParams::Everyone),
    ));
    assert_eq!(
        world.run_operation().last().unwrap().state,
        EventState::Failed
    );
    let ann = account("ann", Role::Admin, 0);
    world.node.accounts = vec![ann.clone()];
    let came_to = result(&mut world, &restore("op_2"));
    assert_eq!(came_to["revoked"], json!([ann.name.to_string()]));
}

// rule OP-10: with the keys that are to be tried, not with those in use.
#[test]
fn op_10_a_bucket_is_listed_with_the_keys_that_are_to_be_tried() {
    let mut world = World::enrolled();
    let new = secrets("new").s3;
    let came_to = result(&mut world, &offer("op_1", &Params::S3Verify(new.clone())));
    assert_eq!(came_to, json!({"objects_seen": 7}));
    let Task::ListBucket(s3) = &*world.node.performed[0] else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!(**s3, new);
}

fn collect(id: &str, consent: Option<Consent>) -> OperationOffer {
    OperationOffer {
        consent,
        ..offer(id, &Params::DiagCollect(NoParams {}))
    }
}

fn consent() -> Option<Consent> {
    Some(Consent {
        by: "ann".to_owned(),
        at: Timestamp::from_unix_ms(START_MS),
        text: "yes".to_owned(),
    })
}

// rules OP-11, OPS-6: only with consent to this very request, and with the API down as well.
#[test]
fn op_11_diagnostics_are_collected_with_consent_only() {
    let expected = (EventState::Refused, Some(Reason::NoConsent));
    assert_eq!(
        unbegun(&mut World::enrolled(), &collect("op_1", None)),
        expected
    );
    let mut world = World::enrolled();
    world.node.shows = api_down();
    let came_to = result(&mut world, &collect("op_2", consent()));
    assert_eq!(came_to["truncated"], json!(false));
    assert_eq!(world.tasks(), ["CollectDiagnostics"]);
}

// rule OPS-7: results are kept up to a number of bytes; what an operation came to is known all the same.
#[test]
fn ops_7_large_results_are_forgotten_before_what_they_came_to() {
    let noise = |at: u64| {
        let line: String = (0..60)
            .map(|n| {
                format!(
                    "{:016x}",
                    agent_core::seed::Seed(at * 64 + n).stream().draw()
                )
            })
            .collect();
        LogLine::new(line)
    };
    let large = bundle([(Section::K3sLog, (0..200).map(noise).collect())]);
    let mut world = World::enrolled();
    for number in 0..20 {
        world.node.holds = Some("CollectDiagnostics");
        world.offer(&collect(&format!("op_{number}"), consent()));
        world.settle();
        world.release(Ok(Done::Collected(large.clone())));
        world.run_operation();
    }
    world.settle();
    let finished = &world.disk.finished;
    let bytes = |end: &OperationEvent| end.result.as_ref().map_or(0, |it| it.get().len());
    let kept: usize = finished.iter().map(|finished| bytes(&finished.end)).sum();
    assert!(
        (FINISHED_RESULT_BYTES_MAX / 2..=FINISHED_RESULT_BYTES_MAX).contains(&kept),
        "{kept}"
    );
    assert_eq!(finished.len(), 20);
    assert!(bytes(&finished[19].end) > 0 && bytes(&finished[0].end) == 0);
    assert_eq!(finished[0].end.state, EventState::Succeeded);
}

fn rejoin() -> OperationOffer {
    let params = ServerRejoinParams {
        server_url: "https://10.0.0.2:6443".to_owned(),
        token: sealed("join token"),
    };
    offer("op_1", &Params::ServerRejoin(params))
}

// rule OP-12: what is destructive comes after a look whether the other server stands.
#[test]
fn op_12_a_server_joins_its_cluster_again() {
    let mut world = World::enrolled();
    let came_to = result(&mut world, &rejoin());
    assert_eq!(came_to, json!({"node": "fsn1-server-1"}));
    assert!(matches!(
        &*world.node.performed[0],
        Task::StopK3s(StopFor::Rejoin(_))
    ));
    assert_eq!(
        world.tasks(),
        ["StopK3s", "ClearDatastore", "StartK3s", "WaitApi"]
    );
}

// rules OP-12, OPS-4: clear_datastore is looked at after a crash.
#[test]
fn ops_4_a_clearing_is_probed_after_a_crash() {
    let rows = [
        (Evidence::NotStarted, 4, None),
        (Evidence::Completed(Done::Plain), 3, None),
        (
            Evidence::Unclear("neither".into()),
            1,
            Some(Reason::Unclear),
        ),
    ];
    for (evidence, tasks, reason) in rows {
        let mut world = World::enrolled();
        world.node.holds = Some("ClearDatastore");
        world.offer(&rejoin());
        world.settle();
        world.node.holds = None;
        world.node.evidence = Some(evidence);
        world.crash();
        let events = world.run_operation();
        assert_eq!(events.last().unwrap().reason, reason);
        assert_eq!(world.tasks().len(), tasks);
    }
}

fn of_node(id: &str, node: &str, params: fn(NodeParams) -> Params) -> OperationOffer {
    let node = node.parse().unwrap();
    offer(id, &params(NodeParams { node }))
}

// rule OP-12: what was moved is told whole, also after a crash in the middle of it.
#[test]
fn op_12_a_node_is_drained() {
    for crashes in [false, true] {
        let mut world = World::enrolled();
        world.node.holds = crashes.then_some("Evict");
        let drain = of_node("op_1", "fsn1-server-2", Params::NodeDrain);
        if crashes {
            world.offer(&drain);
            world.settle();
            world.node.holds = None;
            world.crash();
        } else {
            world.offer(&drain);
        }
        let events = world.run_operation();
        let last = events.last().unwrap().result.clone().unwrap();
        let came_to: Value = serde_json::from_str(last.get()).unwrap();
        let expected = json!({"evicted": ["a/shop", "a/queue"], "left": ["a/database"]});
        assert_eq!(came_to, expected);
    }
}

// rule OP-12: a Node is deleted only after it was silent, only if it is still the one that was, and never the agent's own.
#[test]
fn op_12_a_node_is_forgotten_and_never_the_agents_own() {
    let expected = (EventState::Refused, Some(Reason::OwnNode));
    let own = of_node("op_1", "fsn1-server-1", Params::NodeForget);
    assert_eq!(unbegun(&mut World::enrolled(), &own), expected);

    let gone = of_node("op_2", "fsn1-server-2", Params::NodeForget);
    let mut world = World::enrolled();
    world.node.gone_uid = Some(Uid("17".into()));
    assert_eq!(result(&mut world, &gone), json!({"deleted": true}));
    let [
        Task::ConfirmGone { silent_ms, .. },
        Task::DeleteNode { uid, .. },
    ] = [0, 1].map(|at| &*world.node.performed[at])
    else {
        panic!("{:?}", world.node.performed)
    };
    assert_eq!(
        (*silent_ms, uid.0.as_str()),
        (Limits::REAL.restore_grace_ms, "17")
    );

    let mut world = World::enrolled();
    assert_eq!(result(&mut world, &gone), json!({"deleted": false}));
    assert_eq!(world.tasks(), ["ConfirmGone"], "there is no such Node");

    let mut world = World::enrolled();
    world.node.failures = vec![("ConfirmGone", failure("fsn1-server-2 still reports"))];
    world.offer(&gone);
    let events = world.run_operation();
    assert_eq!(events[1].step, Some(Step::ConfirmGone));
    assert_eq!(events.last().unwrap().state, EventState::Failed);
    assert_eq!(world.tasks(), ["ConfirmGone"]);
}

// What a record of any of them holds is read again as it was written, and holds no secret.
#[test]
fn what_steps_find_out_outlives_a_start() {
    let mut world = World::enrolled();
    world.node.holds = Some("SealKubeconfig");
    world.offer(&issue(asker(), 600));
    world.settle();
    let json = world.disk.to_json();
    let read = agent_core::pbx::durable::Durable::read(&json).unwrap();
    let (read, kept) = (
        read.operation.unwrap(),
        world.disk.operation.as_ref().unwrap(),
    );
    assert_eq!((read.data, read.step), (kept.data.clone(), Step::Seal));
    let _: (OperationId, Arc<Limits>) = (read.offer.id, Arc::clone(&world.facts.limits));
}
