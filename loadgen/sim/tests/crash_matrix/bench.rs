//! One agent on one node, or on the first of two, and what it was asked.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use agent_core::machine::{Action, Input, Wake};
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use fleet_sim::cluster::SimCluster;
use fleet_sim::host::TOKEN_MARK;
use fleet_sim::referee::{Context, Referees, Seat};
use fleet_sim::simulation::{Nodes, Occasion, Planned, Settings, Simulation};
use portal_core::control::{DesiredInput, OperationInput, OperationView};
use protocol::id::{ClusterId, NodeName, OperationId};
use protocol::pbx::operation::{Consent, OperationKind};
use protocol::sign::VerifyingKey;
use protocol::time::Timestamp;
use protocol::verified::ReleaseKeys;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::rows::End;

const MINUTE_MS: u64 = 60_000;
/// By then every operation has ended, crashes and a way back included.
const MINUTES_MAX: u64 = 90;
/// The member that operations go to.
pub(crate) const MEMBER: usize = 0;

/// A simulation, and what is known of it.
pub(crate) struct Bench {
    pub(crate) simulation: Simulation<Watched>,
    pub(crate) id: ClusterId,
    pub(crate) nodes: Vec<NodeName>,
    /// What a case has prepared, by name.
    pub(crate) notes: BTreeMap<&'static str, String>,
    referees: Rc<RefCell<Referees>>,
}

/// What a run came to.
pub(crate) struct Ran {
    pub(crate) view: OperationView,
    pub(crate) occasions: Vec<Occasion>,
    id: OperationId,
}

impl Bench {
    fn new(servers: u32) -> Self {
        let settings = Settings::new(1);
        let portal = settings.portal();
        let key = VerifyingKey::parse(&portal.settings().release_key.public()).unwrap();
        let context = Context {
            release_keys: Arc::new(ReleaseKeys::new([key]).unwrap()),
            canaries: CANARIES.map(str::to_owned).into(),
        };
        let referees = Rc::new(RefCell::new(Referees::new(context)));
        let mut simulation = Simulation::new(settings, portal);
        let nodes = Nodes {
            servers_per_cluster: servers,
            ..Nodes::new(servers)
        };
        let (mut names, mut id) = (Vec::new(), None);
        nodes
            .join(&mut simulation, |_, member| {
                let config = &member.facts.config;
                names.push(config.node_name.clone());
                id = Some(config.cluster_id.clone());
                let limits = Arc::clone(&member.facts.limits);
                let seat = referees
                    .borrow_mut()
                    .admit(config.node_name.clone(), 1, limits);
                Watched {
                    seat: Seat::new(seat),
                    referees: Rc::clone(&referees),
                }
            })
            .unwrap();
        let mut bench = Self {
            simulation,
            id: id.unwrap(),
            nodes: names,
            notes: BTreeMap::new(),
            referees,
        };
        bench.pass_ms(2 * MINUTE_MS);
        let id = bench.id.clone();
        bench
            .simulation
            .control()
            .set_desired(&id, document())
            .unwrap();
        bench.pass_ms(MINUTE_MS);
        bench
    }

    /// Runs a case with these crashes.
    pub(crate) fn run(case: &Case, planned: impl IntoIterator<Item = Planned>) -> (Self, Ran) {
        let mut bench = Self::new(case.servers);
        (case.prepare)(&mut bench);
        let params = (case.params)(&bench);
        bench.simulation.plan(MEMBER, planned);
        let (id, view) = bench.operate(case.kind(), params);
        // Whatever might still happen.
        bench.pass_ms(25 * MINUTE_MS);
        let occasions = bench.simulation.occasions(MEMBER).to_vec();
        (
            bench,
            Ran {
                view,
                occasions,
                id,
            },
        )
    }

    /// Asks for an operation, and goes on until it has ended and the agent owes nothing.
    pub(crate) fn operate(
        &mut self,
        kind: OperationKind,
        params: Value,
    ) -> (OperationId, OperationView) {
        let consent = (kind == OperationKind::DiagCollect).then(|| Consent {
            by: "ann".to_owned(),
            at: Timestamp::from_unix_ms(1_796_000_000_000),
            text: "collect".to_owned(),
        });
        let input = OperationInput {
            kind,
            target: Some(self.nodes[MEMBER].clone()),
            params: to_raw_value(&params).unwrap().into(),
            consent,
        };
        let control = self.simulation.control();
        let (posted, _) = control.post_operation(&self.id, input).unwrap();
        for _ in 0..MINUTES_MAX * 6 {
            self.pass_ms(MINUTE_MS / 6);
            let durable = self.durable();
            let view = self.simulation.control().operation(&posted.id).unwrap();
            if view.ended_at.is_some() && durable.operation.is_none() && durable.outbox.is_empty() {
                return (posted.id, view);
            }
        }
        let view = self.simulation.control().operation(&posted.id).unwrap();
        panic!(
            "{} has not ended: {view:#?}, {:#?}",
            posted.id,
            self.durable().operation
        );
    }

    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let until = self.simulation.now().plus_ms(ms);
        self.simulation.run_until(until).unwrap();
    }

    pub(crate) fn now(&self) -> Monotonic {
        self.simulation.now()
    }

    pub(crate) fn durable(&self) -> Arc<Durable> {
        self.simulation.durable(MEMBER)
    }

    pub(crate) fn cluster(&self) -> Arc<Mutex<SimCluster>> {
        self.simulation.cluster(&self.id).unwrap()
    }

    /// What must be so after every run: one end at the portal, one at the agent, events without a gap, no referee broken;
    /// and what the case says of its node.
    pub(crate) fn judge(&self, case: &Case, ran: &Ran) {
        let Ran { view, id, .. } = ran;
        let finals = view.events.iter().filter(|event| event.is_final()).count();
        assert_eq!(finals, 1, "{view:#?}");
        let numbers: Vec<u64> = view.events.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        assert_eq!(
            (view.different_repeats, view.beyond_a_gap),
            (0, 0),
            "{view:#?}"
        );
        let durable = self.durable();
        assert!(durable.idle.is_none(), "{:?}", durable.idle);
        assert!(durable.operation.is_none() && durable.outbox.is_empty());
        let ends = durable
            .finished
            .iter()
            .filter(|finished| finished.id == *id);
        assert_eq!(ends.count(), 1);
        for report in self.referees.borrow().reports(&BTreeSet::new()) {
            assert_eq!(
                report.breaches, 0,
                "referee {}: {:?}",
                report.number, report.broken
            );
        }
        match End::of(view) {
            End::Refused(_) => assert_eq!(view.events.len(), 1, "nothing was begun: {view:#?}"),
            _ => (case.check)(self, view),
        }
    }
}

/// Shows everything to the referees.
pub(crate) struct Watched {
    seat: Seat,
    referees: Rc<RefCell<Referees>>,
}

impl Watch<Agent> for Watched {
    fn boot(&mut self, now: Now, durable: &Durable) {
        self.seat
            .boot(now, durable, &mut self.referees.borrow_mut());
    }

    fn input(&mut self, now: Now, input: &Input<Agent>) {
        self.seat.input(now, input, &mut self.referees.borrow_mut());
    }

    fn action(&mut self, now: Now, action: &Action<Agent>) {
        self.seat
            .action(now, action, &mut self.referees.borrow_mut());
    }

    fn wake(&mut self, now: Now, wake: Option<Wake>) {
        self.seat.wake(now, wake, &mut self.referees.borrow_mut());
    }
}

/// Secrets that are in a run, and may be in no text of it.
const CANARIES: [&str; 6] = [
    TOKEN_MARK,
    "canary-hcloud-token",
    "canary-s3-access-key",
    "canary-s3-secret-key",
    "canary-new-secret-key",
    "canary-join-token",
];

fn document() -> DesiredInput {
    serde_json::from_value(json!({
        "release": "2026.11.1",
        "agent_version": "1.4.0",
        "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"},
        "maintenance_window": {
            "days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin",
        },
        "secrets": {
            "hcloud_token": "canary-hcloud-token",
            "s3": {"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "snapshots", "folder": "lab",
                   "access_key": "canary-s3-access-key", "secret_key": "canary-s3-secret-key"},
        },
        "addons": [],
    }))
    .unwrap()
}
