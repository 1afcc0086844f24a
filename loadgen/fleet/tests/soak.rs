//! A week of a small fleet in virtual time, counted and judged as a run does it: memory is what it was after two days. A test
//! program of its own, so that nothing else is in its memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use agent_core::machine::{Action, Input, Wake};
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use fleet::usage::rss_bytes;
use fleet_sim::referee::{Context, Referees, Seat};
use fleet_sim::simulation::{Nodes, Settings, Simulation};
use protocol::endpoint::Endpoint;
use protocol::pbx::call::Reply;
use protocol::pbx::operation::OperationKind;
use protocol::verified::ReleaseKeys;
use record::micros::Window;
use record::{Micros, Outcome, Recorder, Sample};
use serde_json::json;
use serde_json::value::to_raw_value;

const AGENTS: u32 = 10;
const DAYS: u64 = 7;
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// What memory may grow by from the second day to the last: less than ten bytes a request.
const GROWTH_MAX: u64 = 1 << 20;

/// What a run keeps of its agents.
struct Kept {
    recorder: Recorder,
    referees: Referees,
}

/// The eyes on one agent.
struct Eyes {
    kept: Rc<RefCell<Kept>>,
    seat: Seat,
    under_way: Option<(Endpoint, Micros)>,
}

impl Watch<Agent> for Eyes {
    fn boot(&mut self, now: Now, durable: &Durable) {
        let referees = &mut self.kept.borrow_mut().referees;
        self.seat.boot(now, durable, referees);
    }

    fn input(&mut self, now: Now, input: &Input<Agent>) {
        let kept = &mut *self.kept.borrow_mut();
        if let Input::Reply(_, Ok(reply)) = input
            && let Some((endpoint, started)) = self.under_way.take()
        {
            kept.recorder.ended(&Sample {
                endpoint,
                outcome: match reply {
                    Reply::Done(_) => Outcome::Ok,
                    _ => Outcome::BrokenAnswer,
                },
                intended: started,
                started,
                first_byte_out: Some(started),
                ended: moment(now),
                connect: None,
            });
        }
        self.seat.input(now, input, &mut kept.referees);
    }

    fn action(&mut self, now: Now, action: &Action<Agent>) {
        let kept = &mut *self.kept.borrow_mut();
        if let Action::Call(_, call) = action {
            let (endpoint, at) = (call.request.endpoint(), moment(now));
            kept.recorder.planned(endpoint, at);
            kept.recorder.started(endpoint, at);
            self.under_way = Some((endpoint, at));
        }
        self.seat.action(now, action, &mut kept.referees);
    }

    fn wake(&mut self, now: Now, wake: Option<Wake>) {
        let referees = &mut self.kept.borrow_mut().referees;
        self.seat.wake(now, wake, referees);
    }
}

fn moment(now: Now) -> Micros {
    Micros::from_ms(now.monotonic.as_ms())
}

// case L28, L32: two hundred thousand requests, seven days, and no memory for them.
#[test]
fn a_week_takes_no_more_memory_than_its_first_days() {
    let settings = Settings::new(1);
    let portal = settings.portal();
    let mut simulation = Simulation::new(settings, portal);
    let context = Context {
        release_keys: Arc::new(ReleaseKeys::none()),
        canaries: Arc::from([]),
    };
    let window = Window {
        from: Micros::ZERO,
        until: Micros::from_seconds(DAYS * DAY_SECONDS),
    };
    let kept = Rc::new(RefCell::new(Kept {
        recorder: Recorder::new(window),
        referees: Referees::new(context),
    }));
    let mut clusters = Vec::new();
    Nodes::new(AGENTS)
        .join(&mut simulation, |number, member| {
            let config = &member.facts.config;
            clusters.push(config.cluster_id.clone());
            let limits = Arc::clone(&member.facts.limits);
            let referees = &mut kept.borrow_mut().referees;
            let seat = Seat::new(referees.admit(config.node_name.clone(), number, limits));
            let kept = Rc::clone(&kept);
            Eyes {
                kept,
                seat,
                under_way: None,
            }
        })
        .unwrap();
    let mut taken = Vec::new();
    for day in 1..=DAYS {
        for cluster in &clusters {
            let control = simulation.control();
            let document = serde_json::from_value(document(day)).unwrap();
            control.set_desired(cluster, document).unwrap();
            let params = to_raw_value(&json!({"name": "nightly"})).unwrap().into();
            let save = portal_core::control::OperationInput {
                kind: OperationKind::SnapshotSave,
                target: None,
                params,
                consent: None,
            };
            control.post_operation(cluster, save).unwrap();
        }
        let end = Monotonic::from_ms(day * DAY_SECONDS * 1_000);
        simulation.run_until(end).unwrap();
        taken.push(rss_bytes());
    }
    let kept = &mut *kept.borrow_mut();
    let account = &kept.recorder.recorded().account;
    let syncs = account.line(Endpoint::Sync).ended[Outcome::Ok];
    assert!(syncs > 190_000, "{syncs} syncs are no week");
    let events = account.line(Endpoint::Events).ended[Outcome::Ok];
    assert!(events >= DAYS * u64::from(AGENTS), "{events} events");
    let growth = taken[6].saturating_sub(taken[1]);
    assert!(growth <= GROWTH_MAX, "{growth} bytes more: {taken:?}");
}

/// Another document for each day.
fn document(day: u64) -> serde_json::Value {
    json!({
        "release": "2026.11.1",
        "agent_version": "1.4.0",
        "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 13 + day, "ingress_mode": "bundled"},
        "maintenance_window": {
            "days": ["mon"], "start": "02:20", "duration_minutes": 40, "time_zone": "Europe/Berlin",
        },
        "secrets": {
            "hcloud_token": "canary-hcloud-token",
            "s3": {"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "snapshots", "folder": "lab",
                   "access_key": "canary-s3-access-key", "secret_key": "canary-s3-secret-key"},
        },
        "addons": [],
    })
}
