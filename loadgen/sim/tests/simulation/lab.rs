//! A small fleet with a day of its own: documents, operations, and whoever watches it.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use agent_core::machine::{Action, Input, Wake};
use agent_core::note::Note;
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::pbx::facts::Config;
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use fleet_sim::clock::NodeClock;
use fleet_sim::host::{Defect, Quirks, TOKEN_MARK};
use fleet_sim::referee::{Context, Peace, Referees, Seat};
use fleet_sim::simulation::{Nodes, Settings, Simulation, TightLoop};
use portal_core::control::{DesiredInput, OperationInput, OperationView};
use portal_core::{Portal, PortalNow};
use protocol::hash::Sha256Hex;
use protocol::id::{Arch, ClusterId, Generation, NodeName, OperationId};
use protocol::pbx::call::{Reply, Request};
use protocol::pbx::operation::{Consent, EventState, OperationKind, SnapshotSaveResult};
use protocol::pbx::release::AgentArtifact;
use protocol::pbx::sync::{AddonReport, UnitState};
use protocol::seal::SealingSecretKey;
use protocol::sign::VerifyingKey;
use protocol::time::Timestamp;
use protocol::verified::ReleaseKeys;
use record::result::RefereeReport;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::addons::{self, Wanted};

pub(crate) const MINUTE_MS: u64 = 60_000;

/// A fleet, and the operations that it was given.
pub(crate) struct Lab {
    pub(crate) simulation: Simulation<Eyes>,
    pub(crate) operations: Vec<(ClusterId, OperationId)>,
    clusters: Vec<ClusterId>,
    /// The name of each member's node.
    nodes: Vec<NodeName>,
    pub(crate) generation: Generation,
    documents: u32,
    /// The add-ons of that document.
    pub(crate) wanted: Wanted,
    /// When the document of that generation was set.
    set_at: Monotonic,
    modelled_ms: u64,
    referees: Rc<RefCell<Referees>>,
}

impl Lab {
    /// A fleet of these populations.
    pub(crate) fn new(settings: Settings, populations: &[Nodes]) -> Self {
        let portal = settings.portal();
        let context = Context {
            release_keys: release_keys(&portal),
            canaries: CANARIES.map(str::to_owned).into(),
        };
        let referees = Rc::new(RefCell::new(Referees::new(context)));
        let longest = populations
            .iter()
            .map(|nodes| modelled_ms(&settings, nodes));
        let modelled_ms = longest.max().unwrap_or(0);
        publish(&portal);
        let mut simulation = Simulation::new(settings, portal);
        let release = serde_json::to_vec(&addons::release()).unwrap();
        simulation.control().publish_release(&release).unwrap();
        let mut clusters: Vec<ClusterId> = Vec::new();
        let mut names: Vec<NodeName> = Vec::new();
        for nodes in populations {
            nodes
                .join(&mut simulation, |_, member| {
                    let Config {
                        cluster_id,
                        node_name,
                        ..
                    } = &member.facts.config;
                    names.push(node_name.clone());
                    if clusters.last() != Some(cluster_id) {
                        clusters.push(cluster_id.clone());
                    }
                    let limits = Arc::clone(&member.facts.limits);
                    let number = clusters.len();
                    let seat = referees
                        .borrow_mut()
                        .admit(node_name.clone(), number, limits);
                    Eyes::new(cluster_id.clone(), Seat::new(seat), Rc::clone(&referees))
                })
                .unwrap();
        }
        Self {
            simulation,
            operations: Vec::new(),
            clusters,
            nodes: names,
            generation: Generation(0),
            documents: 0,
            wanted: Wanted::default(),
            set_at: Monotonic::default(),
            modelled_ms,
            referees,
        }
    }

    /// Whether a member sends nothing any more.
    pub(crate) fn is_idle(&self, member: usize) -> bool {
        self.simulation.watch(member).has_given_up || self.simulation.durable(member).idle.is_some()
    }

    /// What the referees have seen.
    pub(crate) fn reports(&self) -> Vec<RefereeReport> {
        self.referees.borrow().reports(&BTreeSet::new())
    }

    /// The referees hear of an operation that ended as the portal has it.
    pub(crate) fn tell_referees(&self, operation: &OperationId, results: u64) {
        let now = NodeClock::right(self.simulation.settings().started_at);
        let now = now.read(self.simulation.now());
        let mut referees = self.referees.borrow_mut();
        referees.stored_at_portal(now, operation, results);
    }

    /// The referees hear since when nothing has stood in a member's way to the last document.
    pub(crate) fn tell_of_peace(&self, member: usize) {
        let now = NodeClock::right(self.simulation.settings().started_at);
        let now = now.read(self.simulation.now());
        let last_trouble = self.simulation.last_trouble(member);
        let peace = Peace {
            since: last_trouble.map_or(self.set_at, |trouble| trouble.max(self.set_at)),
            wanted: self.generation,
            modelled_ms: self.modelled_ms,
        };
        // Members take their seats in their order.
        self.referees.borrow_mut().at_peace(member, now, &peace);
    }

    pub(crate) fn run_until_minute(&mut self, minute: u64) -> Result<(), TightLoop> {
        self.simulation
            .run_until(Monotonic::from_ms(minute * MINUTE_MS))
    }

    /// Every cluster gets another document.
    pub(crate) fn set_document(&mut self) {
        self.set_at = self.simulation.now();
        self.documents += 1;
        let seed = self.simulation.settings().seed;
        self.wanted = Wanted::of(seed, self.documents);
        for cluster in &self.clusters {
            let (set, _) = self
                .simulation
                .control()
                .set_desired(cluster, document(self.documents, &self.wanted))
                .unwrap();
            self.generation = set.generation;
        }
    }

    /// Every cluster gets a last document, with add-ons that can all be had.
    pub(crate) fn set_last_document(&mut self) {
        self.documents += addons::LAST;
        self.set_document();
    }

    /// Nobody does any more.
    pub(crate) fn leave_alone(&self) {
        for id in &self.clusters {
            let cluster = self.simulation.cluster(id).unwrap();
            addons::leave_alone(&mut cluster.lock().unwrap());
        }
    }

    /// Somebody lays hands on the add-ons of every cluster whose API answers.
    pub(crate) fn meddle(&self, number: u64) {
        let now = self.simulation.now();
        for id in &self.clusters {
            let cluster = self.simulation.cluster(id).unwrap();
            let mut cluster = cluster.lock().unwrap();
            addons::meddle(&mut cluster, number, now);
        }
    }

    /// Clusters get an operation of this kind, those for which there are parameters.
    pub(crate) fn operate(
        &mut self,
        kind: OperationKind,
        params: impl Fn(&Self, &ClusterId) -> Option<Value>,
    ) {
        self.operate_with(kind, None, params);
    }

    fn operate_with(
        &mut self,
        kind: OperationKind,
        consent: Option<Consent>,
        params: impl Fn(&Self, &ClusterId) -> Option<Value>,
    ) {
        for cluster in self.clusters.clone() {
            let Some(params) = params(self, &cluster) else {
                continue;
            };
            let input = OperationInput {
                kind: kind.clone(),
                target: None,
                params: to_raw_value(&params).unwrap().into(),
                consent: consent.clone(),
            };
            let control = self.simulation.control();
            let (posted, _) = control.post_operation(&cluster, input).unwrap();
            self.operations.push((cluster, posted.id));
        }
    }

    /// Clusters get two operations of the kinds that need nothing from before; which two, the number says.
    pub(crate) fn operate_other_kinds(&mut self, number: u64) {
        for offset in [0, 1] {
            let at = usize::try_from((number + offset) % OTHER_KINDS).unwrap();
            let (kind, _, consent) = other_kinds("any").swap_remove(at);
            self.operate_with(kind, consent, |lab, cluster| {
                let last = lab.members_of(cluster).last()?;
                Some(other_kinds(lab.nodes[last].as_str()).swap_remove(at).1)
            });
        }
    }

    pub(crate) fn operation(&self, operation: &OperationId) -> OperationView {
        self.simulation.control().operation(operation).unwrap()
    }

    /// The operations of a cluster, the last one first.
    pub(crate) fn operations_of(&self, cluster: &ClusterId) -> impl Iterator<Item = OperationView> {
        let of_cluster = self
            .operations
            .iter()
            .rev()
            .filter(move |(of, _)| of == cluster);
        of_cluster.map(|(_, id)| self.operation(id))
    }

    /// What the snapshot was called in truth that a cluster saved last.
    pub(crate) fn snapshot_of(&self, cluster: &ClusterId) -> Option<String> {
        self.operations_of(cluster).find_map(|view| {
            let saved: SnapshotSaveResult = serde_json::from_str(view.result?.get()).ok()?;
            Some(saved.name.to_string())
        })
    }

    /// Whether the last restore that has ended at a member did so badly. The member is asked, since a portal that has not
    /// taken all of its events does not know.
    pub(crate) fn restore_has_failed(&self, member: usize) -> bool {
        let durable = self.simulation.durable(member);
        let mut ended = durable.finished.iter().rev();
        let last = ended.find(|ended| ended.kind == OperationKind::ClusterRestore);
        last.is_some_and(|last| last.end.state == EventState::Failed)
    }

    /// The members of a cluster.
    pub(crate) fn members_of(&self, cluster: &ClusterId) -> impl Iterator<Item = usize> {
        let members = 0..self.simulation.members();
        members.filter(move |member| self.simulation.watch(*member).cluster == *cluster)
    }
}

/// How long it may take at most, by the model, until a node that was just started can put a document into force: its start,
/// and a restore that the portal has asked it for before; some seconds are for requests and files.
fn modelled_ms(settings: &Settings, nodes: &Nodes) -> u64 {
    let costs = &nodes.costs;
    let restore_ms = costs.k3s_stop_ms + costs.reset_ms + nodes.limits.restore_grace_ms;
    let start_ms = settings.boot_ms.most + costs.k3s_start_ms + costs.api_ready_ms;
    let restart_ms = costs.k3s_stop_ms + costs.k3s_start_ms + costs.api_ready_ms;
    // A new agent that does not do well is put back first, and then another may be fetched.
    let update_ms = nodes.limits.rollback_ms + 2 * costs.fetch_program_ms + 20_000;
    restore_ms + start_ms + restart_ms + update_ms + 5_000
}

/// The releases that nodes are upgraded to; on the second no node ever gets well.
pub(crate) const UPGRADES: [&str; 2] = ["2026.11.2", "2026.11.3"];

/// The releases that documents name in turn, with their agents.
pub(crate) const AGENTS: [(&str, &str); 3] = [
    (addons::RELEASE, "1.4.0"),
    ("2026.12.2", "1.6.0"),
    ("2026.12.1", "1.5.0"),
];

/// What is wrong with the nodes of a run: with an image that nodes are upgraded to, and with the second of the agents.
pub(crate) fn quirks(of_agent: Option<Defect>) -> Arc<Quirks> {
    let programs = of_agent.map(|defect| (program_hash(AGENTS[1].1), defect));
    Arc::new(Quirks {
        programs: programs.into_iter().collect(),
        sick: vec![format!("pbx-{}-amd64.efi", UPGRADES[1]).parse().unwrap()],
        forgets_variables: false,
    })
}

fn program_hash(version: &str) -> Sha256Hex {
    Sha256Hex::of(format!("agent {version}").as_bytes())
}

fn publish(portal: &Portal) {
    let now = PortalNow {
        wall: Timestamp::from_unix_ms(1_796_000_000_000),
        monotonic_ms: 0,
    };
    for release in UPGRADES {
        let hash = |what: &str| Sha256Hex::of(format!("{release} {what}").as_bytes());
        let manifest = json!({
            "version": release, "created_at": "2026-11-30T00:00:00Z", "floor": 12, "template_engine": "minijinja",
            "agent": {"version": "1.4.0", "artifacts": []},
            "image": {"k3s_version": "v1.34.2+k3s1", "artifacts": [{
                "arch": "amd64", "url": "https://artifacts.invalid/image", "sha256": hash("download"), "size": 512_000_000,
                "entry": format!("pbx-{release}-amd64.efi"), "image_sha256": hash("booted"),
            }]},
            "addons": [],
        });
        let payload = serde_json::to_vec(&manifest).unwrap();
        portal.control(now).publish_release(&payload).unwrap();
    }
    for (release, version) in &AGENTS[1..] {
        let mut manifest = addons::release();
        manifest.version = release.parse().unwrap();
        manifest.agent.version = version.parse().unwrap();
        manifest.agent.artifacts = vec![AgentArtifact {
            arch: Arch::Amd64,
            url: "https://artifacts.invalid/agent".to_owned(),
            sha256: program_hash(version),
            size: 9_000_000,
        }];
        let payload = serde_json::to_vec(&manifest).unwrap();
        portal.control(now).publish_release(&payload).unwrap();
    }
}

fn release_keys(portal: &Portal) -> Arc<ReleaseKeys> {
    let key = VerifyingKey::parse(&portal.settings().release_key.public()).unwrap();
    Arc::new(ReleaseKeys::new([key]).unwrap())
}

/// How many kinds [`Lab::operate_other_kinds`] knows.
pub(crate) const OTHER_KINDS: u64 = 11;

fn other_kinds(node: &str) -> Vec<(OperationKind, Value, Option<Consent>)> {
    let asker = SealingSecretKey::from_seed([5; 32]).public();
    let consent = Consent {
        by: "ann".to_owned(),
        at: Timestamp::from_unix_ms(1_796_000_000_000),
        text: "collect".to_owned(),
    };
    let s3 = json!({"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "snapshots", "folder": "lab",
                    "access_key": "canary-s3-access-key", "secret_key": "canary-s3-secret-key"});
    let plain = |kind, params| (kind, params, None);
    let kinds = vec![
        plain(
            OperationKind::AccessIssue,
            json!({"subject": "ann", "role": "edit", "recipient_key": asker, "lifetime_seconds": 3600}),
        ),
        plain(OperationKind::AccessRevoke, json!({"subject": "ann"})),
        plain(OperationKind::AccessRevoke, json!({"everyone": true})),
        plain(OperationKind::S3Verify, s3),
        (OperationKind::DiagCollect, json!({}), Some(consent)),
        plain(
            OperationKind::ServerRejoin,
            json!({"server_url": "https://10.0.0.2:6443", "token": "canary-join-token"}),
        ),
        plain(
            OperationKind::ClusterUpgrade,
            json!({"release": UPGRADES[0]}),
        ),
        plain(
            OperationKind::ClusterUpgrade,
            json!({"release": UPGRADES[1]}),
        ),
        plain(OperationKind::NodeDrain, json!({"node": node})),
        plain(
            OperationKind::NodeForget,
            json!({"node": "a-node-that-never-was"}),
        ),
        plain(OperationKind::NodeForget, json!({"node": node})),
    ];
    assert_eq!(kinds.len() as u64, OTHER_KINDS);
    kinds
}

/// Every secret that is in a run.
const CANARIES: [&str; 6] = [
    TOKEN_MARK,
    "canary-hcloud-token",
    "canary-s3-access-key",
    "canary-s3-secret-key",
    "canary-acme-key",
    "canary-join-token",
];

/// The example of the protocol, with four secrets. Each has another drop-in, so that k3s is to be restarted in the window;
/// that is open from the 17th to the 57th minute of a run, on a Monday.
fn document(number: u32, wanted: &Wanted) -> DesiredInput {
    let (release, version) = match number {
        1 => (wanted.release, AGENTS[0].1),
        _ if number > addons::LAST => AGENTS[2],
        _ => AGENTS[(number as usize - 1) % AGENTS.len()],
    };
    serde_json::from_value(json!({
        "release": release,
        "agent_version": version,
        "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 13 + number, "ingress_mode": "bundled"},
        "maintenance_window": {
            "days": ["mon"], "start": "02:20", "duration_minutes": 40, "time_zone": "Europe/Berlin",
        },
        "secrets": {
            "hcloud_token": "canary-hcloud-token",
            "s3": {"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "snapshots", "folder": "lab",
                   "access_key": "canary-s3-access-key", "secret_key": "canary-s3-secret-key"},
        },
        "addons": wanted.specs(),
    }))
    .unwrap()
}

/// What is seen of one agent, and its seat among the referees.
pub(crate) struct Eyes {
    pub(crate) cluster: ClusterId,
    pub(crate) boots: u32,
    pub(crate) calls: u32,
    pub(crate) answers: u32,
    lately: VecDeque<Monotonic>,
    /// The most calls within ten seconds.
    pub(crate) most_calls: usize,
    /// What the agent said of itself last.
    pub(crate) last_report: String,
    /// And of its add-ons; none while it does not lead.
    pub(crate) last_addons: Option<Arc<[AddonReport]>>,
    pub(crate) k3s_is_stopped: bool,
    /// It has said in this start that it sends nothing any more; its disk may not say so yet.
    pub(crate) has_given_up: bool,
    seat: Seat,
    referees: Rc<RefCell<Referees>>,
}

impl Eyes {
    fn new(cluster: ClusterId, seat: Seat, referees: Rc<RefCell<Referees>>) -> Self {
        Self {
            cluster,
            boots: 0,
            calls: 0,
            answers: 0,
            lately: VecDeque::new(),
            most_calls: 0,
            last_report: String::new(),
            last_addons: None,
            k3s_is_stopped: false,
            has_given_up: false,
            seat,
            referees,
        }
    }
}

impl Watch<Agent> for Eyes {
    fn boot(&mut self, now: Now, durable: &Durable) {
        self.boots += 1;
        self.has_given_up = false;
        // A new start knows nothing of the calls of the one before.
        self.lately.clear();
        self.seat
            .boot(now, durable, &mut self.referees.borrow_mut());
    }

    fn input(&mut self, now: Now, input: &Input<Agent>) {
        if let Input::Reply(_, Ok(Reply::Done(_))) = input {
            self.answers += 1;
        }
        self.seat.input(now, input, &mut self.referees.borrow_mut());
    }

    fn action(&mut self, now: Now, action: &Action<Agent>) {
        if let Action::Note(Note::Revoked { .. } | Note::EnrollmentGivenUp { .. }) = action {
            self.has_given_up = true;
        }
        if let Action::Call(_, call) = action {
            if let Request::Sync(report) = &call.request {
                self.last_report = format!("{report:?}");
                self.last_addons = report.leader.then(|| report.addons.clone());
                self.k3s_is_stopped = report.k3s.unit == UnitState::Inactive;
            }
            self.calls += 1;
            self.lately.push_back(now.monotonic);
            while now.monotonic.since(self.lately[0]).as_secs() >= 10 {
                self.lately.pop_front();
            }
            self.most_calls = self.most_calls.max(self.lately.len());
        }
        self.seat
            .action(now, action, &mut self.referees.borrow_mut());
    }

    fn wake(&mut self, now: Now, wake: Option<Wake>) {
        self.seat.wake(now, wake, &mut self.referees.borrow_mut());
    }
}
