//! What is remembered changes by changes alone, and nothing that comes makes the portal panic.

use std::sync::Arc;

use portal_core::control::{ClockInput, OperationInput, TokenLine};
use portal_core::{Answer, Changes, Portal, Snapshot, TypedCall};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use protocol::dialect::Dialect;
use protocol::id::OperationId;
use protocol::pbx::call::Request;
use protocol::pbx::operation::EventState;
use protocol::sign::SigningKey;
use protocol::time::UnixSeconds;
use serde_json::json;

use crate::lab::*;

/// Something that happens to a portal; indices are taken modulo what is there.
#[derive(Debug, Clone)]
enum Event {
    Token {
        cluster: u8,
        node: u8,
    },
    Enroll {
        token: u8,
        keys: u8,
    },
    Sync {
        agent: u8,
        leads: bool,
        ahead_s: i64,
    },
    Replay,
    Rotate {
        agent: u8,
        keys: u8,
    },
    SwitchKeys {
        agent: u8,
    },
    Events {
        agent: u8,
        operation: u8,
        first: u64,
        count: u64,
        last: bool,
    },
    Manifest {
        agent: u8,
    },
    Desired {
        cluster: u8,
    },
    Operation {
        cluster: u8,
        kind: u8,
        target: Option<u8>,
    },
    Release {
        version: u8,
    },
    Revoke {
        agent: u8,
    },
    Clock {
        offset_ms: i64,
    },
    Hetzner {
        server: u8,
        reachable: bool,
    },
    Pass {
        seconds: u16,
    },
    Reset,
    Restart,
}

fn event_of_any_kind() -> impl Strategy<Value = Event> {
    let few = 0_u8..6;
    prop_oneof![
        4 => (0_u8..3, few.clone()).prop_map(|(cluster, node)| Event::Token { cluster, node }),
        6 => (few.clone(), few.clone()).prop_map(|(token, keys)| Event::Enroll { token, keys }),
        16 => (few.clone(), any::<bool>(), prop_oneof![Just(0), -70_i64..70]).prop_map(|(agent, leads, ahead_s)| Event::Sync { agent, leads, ahead_s }),
        3 => Just(Event::Replay),
        4 => (few.clone(), 6_u8..12).prop_map(|(agent, keys)| Event::Rotate { agent, keys }),
        3 => few.clone().prop_map(|agent| Event::SwitchKeys { agent }),
        6 => (few.clone(), few.clone(), 1_u64..6, 0_u64..4, any::<bool>())
            .prop_map(|(agent, operation, first, count, last)| Event::Events { agent, operation, first, count, last }),
        2 => few.clone().prop_map(|agent| Event::Manifest { agent }),
        3 => (0_u8..3).prop_map(|cluster| Event::Desired { cluster }),
        4 => (0_u8..3, 0_u8..4, prop::option::of(few.clone())).prop_map(|(cluster, kind, target)| Event::Operation { cluster, kind, target }),
        1 => (0_u8..3).prop_map(|version| Event::Release { version }),
        2 => few.clone().prop_map(|agent| Event::Revoke { agent }),
        1 => (few, any::<bool>()).prop_map(|(server, reachable)| Event::Hetzner { server, reachable }),
        1 => (-200_000_i64..200_000).prop_map(|offset_ms| Event::Clock { offset_ms }),
        6 => prop_oneof![0_u16..5, 100_u16..300, Just(40_000)].prop_map(|seconds| Event::Pass { seconds }),
        1 => Just(Event::Reset),
        1 => Just(Event::Restart),
    ]
}

/// What the test knows beside the portal.
struct World {
    lab: Lab,
    tokens: Vec<TokenLine>,
    agents: Vec<Agent>,
    next_keys: Vec<Option<Agent>>,
    operations: Vec<OperationId>,
    last: Option<Raw>,
    answers: Vec<Answer>,
}

fn at<T: Clone>(all: &[T], index: u8) -> Option<T> {
    (!all.is_empty()).then(|| all[usize::from(index) % all.len()].clone())
}

impl World {
    fn new() -> Self {
        let lab = Lab::new();
        Self {
            lab,
            tokens: vec![],
            agents: vec![],
            next_keys: vec![],
            operations: vec![],
            last: None,
            answers: vec![],
        }
    }

    fn send(&mut self, raw: Raw) {
        let answer = self.lab.send(&raw);
        self.last = Some(raw);
        self.answers.push(answer);
    }

    fn happen(&mut self, what: Event) {
        match what {
            Event::Token { cluster, node } => {
                let token = self
                    .lab
                    .token(&format!("clu_{cluster}"), &format!("n-{node}"));
                self.tokens.push(token);
            }
            Event::Enroll { token, keys } => {
                let Some(token) = at(&self.tokens, token) else {
                    return;
                };
                let mut agent = Agent::new(&token, keys);
                self.send(Raw::unsigned(Request::Enroll(Arc::new(
                    agent.enrollment(&token.token),
                ))));
                if self
                    .answers
                    .last()
                    .is_some_and(|answer| answer.status() == 200)
                {
                    agent.enrolled = self.answers.last().map(expect_enrolled);
                    self.agents.push(agent);
                    self.next_keys.push(None);
                }
            }
            Event::Sync {
                agent,
                leads,
                ahead_s,
            } => {
                let Some(mut agent) = at(&self.agents, agent) else {
                    return;
                };
                agent.leader = leads;
                let at = UnixSeconds(self.lab.seconds().0.saturating_add_signed(ahead_s));
                let request = Request::Sync(Arc::new(agent.report()));
                self.send(Raw::signed(&agent, &request, at));
            }
            Event::Replay => {
                if let Some(raw) = self.last.take() {
                    self.send(raw);
                }
            }
            Event::Rotate { agent, keys } => {
                let Some(old) = at(&self.agents, agent) else {
                    return;
                };
                let new = old.with_keys(keys);
                let request = Request::RotateKey(Arc::new(old.rotation_to(&new)));
                let raw = self.lab.sign(&old, &request);
                self.send(raw);
                let index = usize::from(agent) % self.agents.len();
                self.next_keys[index] = Some(new);
            }
            Event::SwitchKeys { agent } => {
                if !self.agents.is_empty() {
                    let index = usize::from(agent) % self.agents.len();
                    if let Some(new) = self.next_keys[index].take() {
                        self.agents[index] = new;
                    }
                }
            }
            Event::Events {
                agent,
                operation,
                first,
                count,
                last,
            } => {
                let (Some(agent), Some(id)) =
                    (at(&self.agents, agent), at(&self.operations, operation))
                else {
                    return;
                };
                let mut events: Vec<_> = (first..first + count)
                    .map(|n| {
                        event(
                            n,
                            Some(protocol::pbx::operation::Step::Save),
                            EventState::Started,
                        )
                    })
                    .collect();
                if last {
                    events.push(final_event(first + count, json!({})));
                }
                let answer = self.lab.events(&agent, &id, events);
                self.answers.push(answer);
            }
            Event::Manifest { agent } => {
                let Some(agent) = at(&self.agents, agent) else {
                    return;
                };
                let raw = self.lab.sign(
                    &agent,
                    &Request::Manifest("2026.11.1".parse().expect("a version")),
                );
                self.send(raw);
            }
            Event::Desired { cluster } => {
                let id = cluster_id(&format!("clu_{cluster}"));
                if let Ok((_, changes)) = self
                    .lab
                    .portal
                    .control(self.lab.now)
                    .set_desired(&id, desired())
                {
                    self.lab.changes.push(changes);
                }
            }
            Event::Operation {
                cluster,
                kind,
                target,
            } => {
                let (kind, params) = [
                    ("snapshot.save", json!({"name": "x"})),
                    (
                        "server.rejoin",
                        json!({"server_url": "https://x", "token": "CANARY"}),
                    ),
                    ("agent.rotate_key", json!({})),
                    ("node.levitate", json!({"x": [1]})),
                ][usize::from(kind)]
                .clone();
                let input = json!({"kind": kind, "params": params, "target": target.map(|node| format!("n-{node}"))});
                let input: OperationInput =
                    serde_json::from_str(&input.to_string()).expect("an operation");
                let id = cluster_id(&format!("clu_{cluster}"));
                if let Ok((posted, changes)) = self
                    .lab
                    .portal
                    .control(self.lab.now)
                    .post_operation(&id, input)
                {
                    self.lab.changes.push(changes);
                    self.operations.push(posted.id);
                }
            }
            Event::Release { version } => {
                let payload = json!({
                    "version": format!("2027.{version}"), "created_at": "2027-01-01T00:00:00Z", "floor": 14,
                    "template_engine": "minijinja", "agent": {"version": "2.0.0", "artifacts": []},
                    "image": {"k3s_version": "v1", "artifacts": []}, "addons": []});
                let control = self.lab.portal.control(self.lab.now);
                let (_, changes) = control
                    .publish_release(payload.to_string().as_bytes())
                    .expect("a manifest");
                self.lab.changes.push(changes);
            }
            Event::Revoke { agent } => {
                let Some(agent) = at(&self.agents, agent) else {
                    return;
                };
                if let Ok((_, changes)) = self.lab.portal.control(self.lab.now).revoke(agent.id()) {
                    self.lab.changes.push(changes);
                }
            }
            Event::Clock { offset_ms } => {
                let input = ClockInput {
                    offset_ms,
                    drift_ppm: offset_ms % 1000,
                };
                let (_, changes) = self.lab.portal.control(self.lab.now).set_clock(input);
                self.lab.changes.push(changes);
            }
            Event::Hetzner { server, reachable } => self
                .lab
                .hetzner(4200 + u64::from(server), json!({"reachable": reachable})),
            Event::Pass { seconds } => self.lab.pass_s(i64::from(seconds)),
            Event::Reset => {
                let (_, changes) = self.lab.portal.control(self.lab.now).reset();
                self.lab.changes.push(changes);
            }
            Event::Restart => {
                let changes = self.lab.portal.control(self.lab.now).restart_without_data();
                self.lab.changes.push(changes);
            }
        }
    }
}

/// What happened, made to happen again on a fresh portal from what was written down of it.
fn restored(world: &World) -> Result<Portal, TestCaseError> {
    let portal = Portal::new(world.lab.portal.settings().clone());
    let mut last = 0;
    for changes in world
        .lab
        .changes
        .iter()
        .filter(|changes| !changes.changes.is_empty())
    {
        prop_assert_eq!(changes.sequence, last + 1, "numbered without a gap");
        last = changes.sequence;
        let written = serde_json::to_string(changes).expect("changes are written down");
        let read: Changes = serde_json::from_str(&written).expect("and read again");
        prop_assert_eq!(&read, changes);
        portal.restore(&read);
    }
    Ok(portal)
}

/// The same memory from a snapshot that was written down in the middle of it, and the changes after it.
fn begun_again(world: &World) -> Portal {
    let (settings, changes) = (world.lab.portal.settings(), &world.lab.changes);
    let (before, after) = changes.split_at(changes.len() / 2);
    let first = Portal::new(settings.clone());
    before.iter().for_each(|changes| first.restore(changes));
    let Snapshot {
        sequence,
        shards,
        shared,
    } = first.snapshot();
    assert_eq!(sequence, first.sequence());
    let again = |text: String| serde_json::from_str(&text).expect("what was written is read");
    let shards = shards.iter().map(|shard| again(to_text(shard))).collect();
    let shared = serde_json::from_str(&to_text(&shared)).expect("what was written is read");
    let portal = Portal::new(settings.clone());
    let snapshot = Snapshot {
        sequence,
        shards,
        shared,
    };
    portal.begin_with(snapshot).expect("as many shards");
    after.iter().for_each(|changes| portal.restore(changes));
    assert_eq!(portal.sequence(), world.lab.portal.sequence());
    assert_eq!(
        portal.latest_monotonic_ms(),
        world.lab.portal.latest_monotonic_ms()
    );
    portal
}

fn to_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a memory is written down")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // rule SIGN-5, rule OPS-8, rule OPS-9: the changes, written down and read again, give the same memory.
    #[test]
    fn what_was_written_down_gives_the_same_memory(events in prop::collection::vec(event_of_any_kind(), 1..120)) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        let restored = restored(&world)?;
        prop_assert!(restored.remembers_the_same_as(&world.lab.portal));
        prop_assert!(begun_again(&world).remembers_the_same_as(&restored));
        // And it goes on as the first would have.
        let mut second = Lab { portal: restored, now: world.lab.now, changes: vec![] };
        world.lab.pass_s(1);
        second.pass_s(1);
        for agent in &world.agents {
            let (mut one, mut other) = (agent.clone(), agent.clone());
            let (one, other) = (world.lab.sync(&mut one), second.sync(&mut other));
            prop_assert_eq!(said(&one), said(&other));
        }
    }

    // The same seed and the same calls: the same answers, down to the boxes.
    #[test]
    fn the_same_seed_gives_the_same_answers(events in prop::collection::vec(event_of_any_kind(), 1..40)) {
        let run = || {
            let mut world = World::new();
            for event in events.clone() {
                world.happen(event);
            }
            let encoded: Vec<_> = world.answers.iter().map(|answer| answer.encode(&Dialect::default())).collect();
            (encoded, world.lab.changes)
        };
        prop_assert_eq!(run(), run());
    }

    // Whatever bytes come, under whatever headers: an answer, and never a 200 for somebody who is not proven.
    #[test]
    fn no_bytes_make_it_panic(
        method in prop_oneof![Just("POST".to_owned()), Just("GET".to_owned()), any::<String>()],
        target in prop_oneof![
            Just("/agent/v1/enroll".to_owned()), Just("/agent/v1/sync".to_owned()), Just("/agent/v1/rotate-key".to_owned()),
            "/agent/v1/operations/[a-z/._%]{0,10}/events", "/agent/v1/releases/[a-z0-9/._%]{0,10}/manifest", any::<String>()
        ],
        id in prop_oneof![Just(None), "[a-zA-Z0-9_-]{1,64}".prop_map(Some), any::<String>().prop_map(Some)],
        at in prop_oneof![Just("1796000523".to_owned()), any::<String>()],
        signature in prop_oneof![Just("A".repeat(86) + "=="), any::<String>()],
        body in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), "[\\[\\]{}\":,a0 ]{0,80}".prop_map(String::into_bytes)],
    ) {
        let mut lab = Lab::new();
        let agent = lab.agent("clu_a", "node-a", 1);
        let id = id.unwrap_or_else(|| agent.id().to_string());
        let mut headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
        for (name, value) in [("pbx-agent-id", id), ("pbx-timestamp", at), ("pbx-signature", signature)] {
            headers.push((name.to_owned(), value.into_bytes()));
        }
        let answer = lab.send(&Raw { method, target, headers, body, too_large: false });
        prop_assert_ne!(answer.status(), 200);
        prop_assert_eq!(answer.agent, None);
    }
}

// Two threads, one portal: nothing is lost, and the numbers are in order.
#[test]
fn threads_share_a_portal() {
    let mut lab = Lab::new();
    let agents: Vec<Agent> = (0..8)
        .map(|n| lab.agent(&format!("clu_{n}"), "n", n))
        .collect();
    let (portal, now) = (&lab.portal, lab.now);
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = agents
            .iter()
            .map(|agent| {
                scope.spawn(move || {
                    let mut agent = agent.clone();
                    let call = |n: u64, agent: &mut Agent| TypedCall {
                        agent: Some(agent.id().clone()),
                        key: agent.signing.public(),
                        at: UnixSeconds((START_MS / 1000) as u64),
                        fingerprint: u128::from(n).to_le_bytes(),
                        request: Request::Sync(Arc::new(agent.report())),
                    };
                    let calls = (0..200).map(|n| portal.answer_typed(call(n, &mut agent), now));
                    calls
                        .map(|(answer, changes)| {
                            assert_eq!(answer.status(), 200);
                            changes.sequence
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), numbers.len(), "each number once");
    let page = portal.control(now).agents(&Default::default()).unwrap();
    assert_eq!(
        page.agents.iter().map(|agent| agent.reports).sum::<u64>(),
        1600
    );
}

// A key that is no agent's in a typed call is refused as one with bytes is.
#[test]
fn sign_6_a_typed_call_is_believed_for_its_agents_keys_only() {
    let mut lab = Lab::new();
    let mut agent = lab.agent("clu_a", "node-a", 1);
    let request = Request::Sync(Arc::new(agent.report()));
    let at = lab.seconds();
    let right = TypedCall {
        agent: Some(agent.id().clone()),
        key: agent.signing.public(),
        at,
        fingerprint: [1; 16],
        request,
    };
    let wrong_key = TypedCall {
        key: SigningKey::from_seed([8; 32]).public(),
        ..right.clone()
    };
    let nobody = TypedCall {
        agent: None,
        ..right.clone()
    };
    let unknown = TypedCall {
        agent: Some("agt_unknown".parse().unwrap()),
        ..right.clone()
    };
    for (call, says) in [
        (wrong_key, "401 bad_signature"),
        (nobody, "401 bad_signature"),
        (unknown, "401 unknown_agent"),
        (right, "200"),
    ] {
        assert_eq!(said(&lab.send_typed(call)), says);
    }
}
