//! Whatever a portal answers and whatever a node does: never a panic, never a tight loop, never a request too often, and
//! once the trouble is over, the agent is where it should be. A seed that fails is printed.

use std::collections::HashMap;
use std::sync::Arc;

use agent_core::machine::{Evidence, Unreachable};
use agent_core::pbx::task::Done;
use agent_core::seed::{Chance, Purpose, Seed};
use agent_core::time::Monotonic;
use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::pbx::call::{AnswerBody, Refusal, Reply, Request, RetryAfter};
use protocol::pbx::operation::{
    ClusterRestoreParams, EventsAnswer, NoParams, OperationKind, OperationOffer, Params,
    SnapshotSource,
};
use protocol::pbx::rotate::RotateKeyAnswer;
use protocol::pbx::sync::{DesiredState, SyncAnswer};
use protocol::problem::ProblemCode;
use protocol::sign::SigningKey;
use protocol::time::Timestamp;
use serde_json::value::RawValue;

use crate::operate::save;
use crate::world::{
    Sent, World, api_down, broken, desired, document, enroll_answer, failure, healthy, keys,
    manifest, offer, page, refusal_with, signed, signed_by,
};

struct Trouble {
    chance: Chance,
}

impl Trouble {
    fn of(&mut self, count: u64) -> u64 {
        self.chance.between(0, count - 1)
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.of(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.of(from.len() as u64)).unwrap()].clone()
    }

    fn refusal(&mut self) -> Refusal {
        let code = self.pick(ProblemCode::ALL);
        let status = if self.happens(80) {
            code.status()
        } else {
            self.pick(&[204, 302, 400, 401, 404, 409, 426, 429, 500, 503])
        };
        let time = Timestamp::from_unix_ms(i64::try_from(self.of(4_000_000_000_000)).unwrap());
        let seconds = self.pick(&[0, 1, 7, 90, u64::MAX]);
        let retry_after = self.pick(&[
            RetryAfter::Absent,
            RetryAfter::Absent,
            RetryAfter::Unreadable("soon".into()),
            RetryAfter::Seconds(seconds),
            RetryAfter::At(time),
            RetryAfter::Longer {
                seconds,
                until: time,
            },
        ]);
        let portal_time = if self.happens(50) { Some(time) } else { None };
        let is_json = self.happens(90);
        let code = if is_json && self.happens(90) {
            Some(code)
        } else {
            None
        };
        Refusal {
            portal_time,
            retry_after,
            date: if self.happens(30) { Some(time) } else { None },
            has_age: self.happens(20),
            is_json,
            is_empty: !is_json && self.happens(50),
            ..refusal_with(status, code)
        }
    }

    fn document(&mut self) -> Arc<RawValue> {
        let generation = 1 + self.of(4);

        match self.of(5) {
            0 => DesiredState {
                release: "2026.12.1".parse().unwrap(),
                ..desired(generation)
            }
            .to_raw(),
            1 => Arc::from(
                RawValue::from_string(document(generation).get().replace("sealed", "opened"))
                    .unwrap(),
            ),
            2 => Arc::from(RawValue::from_string("[1, 2]".into()).unwrap()),
            _ => document(generation),
        }
    }

    fn operation(&mut self) -> OperationOffer {
        let id = format!("op_{}", self.of(4));
        let snapshot = "nightly".parse().unwrap();
        match self.of(4) {
            0 => save(&id),
            1 => offer(&id, &Params::AgentRotateKey(NoParams {})),
            2 => offer(
                &id,
                &Params::ClusterRestore(ClusterRestoreParams {
                    snapshot,
                    source: SnapshotSource::Local,
                    token_hash: None,
                }),
            ),
            _ => OperationOffer {
                kind: OperationKind::Unknown("x".into()),
                ..save(&id)
            },
        }
    }

    /// A 200 that may say anything.
    fn done(&mut self, world: &World, sent: &Sent) -> AnswerBody {
        match &sent.call.request {
            Request::Enroll(_) => AnswerBody::Enroll(Arc::new(enroll_answer())),
            Request::Sync(_) => AnswerBody::Sync(Arc::new(SyncAnswer {
                portal_time: world.time(),
                desired: if self.happens(60) {
                    Some(self.document())
                } else {
                    None
                },
                operation: if self.happens(60) {
                    Some(self.operation())
                } else {
                    None
                },
            })),
            Request::Events { .. } => AnswerBody::Events(EventsAnswer {
                accepted_sequence: self.of(12),
            }),
            Request::Manifest(release) => {
                let honest = manifest(release.as_str(), self.of(3), "1.4.0");
                AnswerBody::Manifest(match self.of(3) {
                    0 => signed_by(&SigningKey::from_seed([3; 32]), &honest),
                    _ => signed(&honest),
                })
            }
            Request::RotateKey(request) => {
                let key = if self.happens(80) {
                    request.signing_key
                } else {
                    keys(99).signing
                };
                AnswerBody::RotateKey(RotateKeyAnswer {
                    active_key_id: key.key_id(),
                })
            }
        }
    }

    fn answer(&mut self, world: &World, sent: &Sent) -> Result<Reply, Unreachable> {
        match self.of(10) {
            0 => Err(Unreachable {
                why: "reset".into(),
            }),
            1 => Ok(broken()),
            2 => Ok(Reply::Refused(page(self.pick(&[302, 401, 403, 404, 502])))),
            3 | 4 => Ok(Reply::Refused(self.refusal())),
            // Revocations are rarer, or nothing would be left to look at.
            5 => Ok(Reply::Refused(refusal_with(
                400,
                Some(self.pick(&[ProblemCode::Replayed, ProblemCode::InvalidRequest])),
            ))),
            _ => Ok(Reply::Done(self.done(world, sent))),
        }
    }

    fn befall(&mut self, world: &mut World) {
        match self.of(12) {
            0 => world.crash(),
            1 => {
                world.dies_in_store = Some((
                    world.stores + 1 + usize::try_from(self.of(3)).unwrap(),
                    self.happens(50),
                ));
            }
            2 => world.set_clock(self.pick(&[-86_400_000, -1_000, 5_000, 7_200_000])),
            3 => world.disk_is_full = true,
            4 => world.disk_is_full = false,
            5 => world.node.shows = self.pick(&[api_down(), healthy()]),
            6 => world.node.failures.push((
                self.pick(&["WriteSecrets", "SaveSnapshot", "MakeKeys", "StopK3s"]),
                failure("no"),
            )),
            7 => world.node.unopenable = self.pick(&[None, Some("secrets.hcloud_token")]),
            _ => {}
        }
        let evidence = [
            Evidence::NotStarted,
            Evidence::Completed(Done::Plain),
            Evidence::Unclear("half".into()),
        ];
        world.node.evidence = Some(self.pick(&evidence));
    }
}

/// What no agent may do, looked at from the wire.
#[derive(Default)]
struct Watch {
    refused: HashMap<(String, Vec<u8>), u32>,
    failed_at: Option<Monotonic>,
    calls: Vec<Monotonic>,
}

impl Watch {
    fn sent(&mut self, sent: &Sent) {
        let now = sent.at.monotonic;
        // rule ANS-10
        if let Some(failed_at) = self.failed_at {
            assert!(
                now.since(failed_at).as_millis() >= 1_000,
                "again after {:?}",
                now.since(failed_at)
            );
        }
        self.calls.push(now);
        let lately = self
            .calls
            .iter()
            .rev()
            .take_while(|at| now.since(**at).as_secs() < 10)
            .count();
        assert!(lately <= 20, "{lately} calls in ten seconds");
        // rule ANS-2
        let times = self.refused.get(&request_of(sent)).copied().unwrap_or(0);
        assert!(times < 3, "refused {times} times: {:?}", sent.call.request);
    }

    fn answered(&mut self, world: &World, sent: &Sent, answer: &Result<Reply, Unreachable>) {
        self.failed_at = if matches!(answer, Ok(Reply::Done(_))) {
            None
        } else {
            Some(world.now.monotonic)
        };
        if matches!(answer, Ok(Reply::Refused(refusal)) if refusal.status == 400) {
            *self.refused.entry(request_of(sent)).or_default() += 1;
        }
    }

    fn crashed(&mut self) {
        *self = Self::default();
    }
}

fn request_of(sent: &Sent) -> (String, Vec<u8>) {
    (sent.call.request.path(&Dialect::default()), sent.body())
}

fn live_through(seed: u64) {
    let mut trouble = Trouble {
        chance: Seed(seed).child(Purpose::Tickets),
    };
    let mut world = if trouble.happens(30) {
        World::fresh()
    } else {
        World::enrolled()
    };
    let mut watch = Watch::default();
    for _ in 0..60 {
        let boots = world.boots();
        trouble.befall(&mut world);
        // With a full disk an enrollment gets nowhere, and that for as long as it takes.
        let sent = world.next_call_in(20);
        if world.is_dead() {
            world.crash();
        }
        if world.boots() != boots {
            watch.crashed();
        }
        let Some(sent) = sent.filter(|_| world.out_endpoint().is_some()) else {
            if world.agent.is_idle() {
                world.crash();
                watch.crashed();
            }
            continue;
        };
        watch.sent(&sent);
        let answer = trouble.answer(&world, &sent);
        watch.answered(&world, &sent, &answer);
        world.pass_ms(trouble.of(3_000));
        watch.failed_at = watch.failed_at.map(|_| world.now.monotonic);
        world.reply(answer);
    }
    ends_well(&mut world);
}

/// The trouble is over: an agent that is not idle reaches the newest document, and owes nobody an event.
fn ends_well(world: &mut World) {
    world.disk_is_full = false;
    world.node.shows = healthy();
    world.node.failures.clear();
    world.node.unopenable = None;
    world.dies_in_store = None;
    if world.is_dead() {
        world.crash();
    }
    world.node.evidence = Some(Evidence::NotStarted);
    let newest = document(9);
    for _ in 0..120 {
        let Some(sent) = world.next_call() else {
            assert!(world.agent.is_idle(), "silent, and not idle");
            return;
        };
        match sent.call.request {
            Request::Sync(_) => world.answer_sync(Some(&newest), None),
            Request::Manifest(ref release) => {
                let signed = signed(&manifest(release.as_str(), 100, "1.4.0"));
                world.answer(AnswerBody::Manifest(signed));
            }
            _ => world.answer_well(),
        }
    }
    world.settle();
    let disk = &world.disk;
    assert!(
        disk.in_force && disk.applied_generation.0 == 9,
        "{:?}",
        disk.document
    );
    assert!(
        disk.operation.is_none() && disk.outbox.is_empty(),
        "{:?} {:?}",
        disk.operation,
        disk.outbox
    );
    assert!(
        disk.identity
            .as_ref()
            .is_some_and(|identity| identity.agent_id.as_str() == "agt_1")
    );
}

// rules ANS-2, ANS-10, OPS-2, OPS-8
#[test]
fn ans_10_no_sequence_of_answers_and_no_trouble_makes_a_tight_loop_or_an_end() {
    for seed in 0..2_000 {
        let outcome = std::panic::catch_unwind(|| live_through(seed));
        assert!(
            outcome.is_ok(),
            "seed {seed} fails: run live_through({seed})"
        );
    }
}

/// The endpoints that the random portal was asked for are all of them.
#[test]
fn the_random_portal_is_asked_for_everything() {
    let mut asked = std::collections::HashSet::new();
    for seed in 0..50 {
        let mut trouble = Trouble {
            chance: Seed(seed).child(Purpose::Tickets),
        };
        let mut world = World::fresh();
        for _ in 0..60 {
            let Some(sent) = world.next_call() else { break };
            asked.insert(sent.endpoint());
            let body = trouble.done(&world, &sent);
            world.answer(body);
        }
    }
    for endpoint in [
        Endpoint::Enroll,
        Endpoint::Sync,
        Endpoint::Events,
        Endpoint::Manifest,
        Endpoint::RotateKey,
    ] {
        assert!(asked.contains(&endpoint), "{endpoint}");
    }
}
