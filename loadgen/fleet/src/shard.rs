//! The agents of a shard, and what is counted of them: a part of the fleet whose clusters are whole.
//!
//! A small fleet is one shard in the run's own process; a larger one has shards in processes of their own, since a
//! process may hold so many connections and no more. A shard knows nothing of the others, nor of the time line: it is
//! asked, and it answers with sums that add up exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::limits::Limits;
use agent_core::port::Clock as _;
use agent_drive::tls::{Trust, client_config};
use agent_drive::{BaseUrl, Settings, Spoken, SystemClock, TimeOuts, Transport};
use fleet_sim::addons::AddonCosts;
use fleet_sim::host::Costs;
use fleet_sim::referee::{self, Context, Referees};
use portal_core::control::TokenLine;
use protocol::dialect::Dialect;
use protocol::id::{
    AgentId, AgentVersion, ClusterId, Generation, NodeName, OperationId, ReleaseVersion,
};
use protocol::pbx::operation::OperationKind;
use protocol::sign::{SigningPublicKey, VerifyingKey};
use protocol::verified::ReleaseKeys;
use record::agents::{AgentName, AgentsAsked, AgentsShown};
use record::fleet::OperationEnd;
use record::label::ByLabel;
use record::result::{Generator, IndexRange, PopulationPart, RefereeReport};
use record::series::Gauge;
use record::snapshot::{LastSyncs, Recent};
use record::{Account, Fleet, Micros, Recorded};
use rustix::time::{ClockId, clock_gettime};
use scenario::{Overrides, Population, Scenario, ServerOf};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::complaint::Complaints;
use crate::identities::Identities;
use crate::live::{Arrivals, Clusters, Home, Stage, clock_offset_ms, live};
use crate::population::Member;
use crate::shelf::Shelf;
use crate::tally::{Place, Tally, lock};
use crate::usage::{self, Part};
use crate::worker::{Ask, Worker, orders};

/// What a shard is to be.
#[derive(Serialize, Deserialize)]
pub struct ShardSetup {
    /// What the whole fleet is to do.
    #[serde(with = "as_text")]
    pub scenario: Arc<Scenario>,
    /// Every secret that the portal is handed in clear, to be found in no text.
    pub canaries: Vec<String>,
    /// The way to its portal.
    pub portal: Way,
    /// Who of each population is in it, in the order of the scenario.
    pub rosters: Vec<Roster>,
    /// Where identities are kept; none where they end with the run.
    pub identities: Option<PathBuf>,
}

/// The way to a portal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Way {
    /// Its base URL.
    pub url: String,
    /// Who has signed its certificate, in PEM; without, whom the machine trusts.
    pub ca_pem: Option<String>,
    /// The keys that its releases are signed with.
    pub release_keys: Vec<SigningPublicKey>,
    /// Addresses that connections leave from in turn; empty for the system's choice.
    pub sources: Vec<IpAddr>,
}

/// Who of a population is in a shard.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Roster {
    /// The index of the first one.
    pub first: u64,
    /// What each of them may enroll with; none for one whose identity is kept.
    pub tokens: Vec<Option<TokenLine>>,
}

/// A cluster and its servers, as the scenario names them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Servers {
    /// The cluster.
    pub cluster: ClusterId,
    first: NodeName,
    last: NodeName,
}

/// The agents of a shard.
pub struct Shard {
    scenario: Arc<Scenario>,
    rosters: Vec<IndexRange>,
    transport: Transport,
    release_keys: Arc<ReleaseKeys>,
    tallies: Vec<Arc<Mutex<Tally>>>,
    /// By population, by the index in its roster.
    seats: Vec<Vec<Seat>>,
    names: Vec<Vec<(ClusterId, NodeName)>>,
    /// Until they begin.
    waiting: Vec<Waiting>,
    agents: JoinSet<()>,
    stage: watch::Sender<Stage>,
    arrivals: watch::Sender<Arrivals>,
    clock: SystemClock,
    files_peak: u64,
}

/// Where a member is counted.
#[derive(Debug, Clone, Copy)]
struct Seat {
    tally: usize,
    member: usize,
    watched: usize,
}

/// A member that has not begun.
struct Waiting {
    population: usize,
    member: Arc<Member>,
    seat: Seat,
}

impl Way {
    /// What calls take to get there.
    ///
    /// # Errors
    /// When the URL, or who has signed the certificate, cannot be used.
    pub fn transport(&self) -> Result<Transport, String> {
        let trust = match &self.ca_pem {
            Some(pem) => Trust::only_pem(pem.as_bytes()).map_err(|why| why.to_string())?,
            None => Trust::Platform,
        };
        let base = BaseUrl::parse(&self.url, &Dialect::default()).map_err(|why| why.to_string())?;
        let tls = client_config(&trust).map_err(|why| why.to_string())?;
        let settings = Settings {
            sources: self.sources.clone(),
            time_outs: TimeOuts::default(),
        };
        Transport::new(base, &tls, settings).map_err(|why| why.to_string())
    }

    fn release_keys(&self) -> Result<ReleaseKeys, String> {
        let keys = self.release_keys.iter().map(VerifyingKey::parse);
        let keys: Result<Vec<_>, _> = keys.collect();
        let keys = keys.map_err(|why| why.to_string())?;
        ReleaseKeys::new(keys).map_err(|why| why.to_string())
    }
}

impl Roster {
    /// The indices of those in it.
    pub fn range(&self) -> IndexRange {
        IndexRange {
            first: self.first,
            count: self.tokens.len() as u64,
        }
    }
}

impl Servers {
    /// Counts a member, which follows those of its own cluster.
    fn count(clusters: &mut Vec<Self>, member: &Member) {
        match clusters.last_mut() {
            Some(servers) if servers.cluster == member.cluster => {
                servers.last = member.node.clone();
            }
            _ => clusters.push(Self {
                cluster: member.cluster.clone(),
                first: member.node.clone(),
                last: member.node.clone(),
            }),
        }
    }

    /// One of them.
    pub fn node(&self, which: ServerOf) -> &NodeName {
        match which {
            ServerOf::First => &self.first,
            ServerOf::Last => &self.last,
        }
    }
}

impl Worker for Shard {
    const NAME: &'static str = Part::Agents.thread_name();
    type Setup = ShardSetup;
    /// Its clusters, by population.
    type Ready = Vec<Vec<Servers>>;
    type Order = ShardOrder;

    async fn begin(setup: ShardSetup) -> Result<(Self, Self::Ready), String> {
        usage::raise_files_limit();
        Self::of(setup)
    }

    async fn obey(&mut self, order: ShardOrder) -> serde_json::Result<String> {
        order.done_by(self).await
    }
}

impl Shard {
    fn of(setup: ShardSetup) -> Result<(Self, Vec<Vec<Servers>>), String> {
        let release_keys = Arc::new(setup.portal.release_keys()?);
        let context = Context {
            release_keys: Arc::clone(&release_keys),
            canaries: setup.canaries.into(),
        };
        let identities = match &setup.identities {
            None => None,
            Some(folder) => Some(Identities::open(folder).map_err(|why| why.to_string())?),
        };
        let mut shard = Self {
            rosters: setup.rosters.iter().map(Roster::range).collect(),
            transport: setup.portal.transport()?,
            release_keys,
            tallies: tallies(&setup.scenario, &context),
            seats: Vec::new(),
            names: Vec::new(),
            waiting: Vec::new(),
            agents: JoinSet::new(),
            stage: watch::channel(Stage::Running).0,
            arrivals: watch::channel(Arrivals::default()).0,
            clock: SystemClock::start(),
            files_peak: 0,
            scenario: setup.scenario,
        };
        let scenario = Arc::clone(&shard.scenario);
        let mut tally_of = BTreeMap::new();
        let mut ready = Vec::new();
        for (at, (population, roster)) in scenario.populations.iter().zip(setup.rosters).enumerate()
        {
            let limits = Arc::new(Limits::REAL.scaled(population.tempo));
            let (mut seats, mut names, mut clusters) = (Vec::new(), Vec::new(), Vec::new());
            for (index, token) in (roster.first..).zip(roster.tokens) {
                let member = member(scenario.seed, population, index, token, identities.as_ref())?;
                // A cluster is counted in one place, so that a referee sees all of it.
                let number = tally_of.len();
                let cluster = member.cluster.clone();
                let (tally, cluster) = *tally_of
                    .entry(cluster)
                    .or_insert((number % shard.tallies.len(), number));
                Servers::count(&mut clusters, &member);
                let seat = shard.admit(&limits, &member, tally, cluster);
                seats.push(seat);
                names.push((member.cluster.clone(), member.node.clone()));
                shard.waiting.push(Waiting {
                    population: at,
                    member: Arc::new(member),
                    seat,
                });
            }
            shard.seats.push(seats);
            shard.names.push(names);
            ready.push(clusters);
        }
        Ok((shard, ready))
    }

    fn admit(&self, limits: &Arc<Limits>, member: &Member, tally: usize, cluster: usize) -> Seat {
        let interval = Micros::from_ms(limits.sync_interval_ms);
        let mut counted = lock(&self.tallies[tally]);
        let (node, limits) = (member.node.clone(), Arc::clone(limits));
        Seat {
            tally,
            watched: counted.referees.admit(node, cluster, limits),
            member: counted.admit(interval),
        }
    }

    /// The home of each population's agents.
    fn homes(&self) -> Vec<Arc<Home>> {
        let document = self.scenario.portal.document.as_ref();
        let shelf = Shelf::default();
        let home = |population: &Population| Home {
            population: Arc::new(population.clone()),
            duration: self.scenario.duration,
            limits: Arc::new(Limits::REAL.scaled(population.tempo)),
            costs: Arc::new(costs(population)),
            transport: self.transport.clone(),
            spoken: Spoken::default(),
            clock: self.clock,
            release_keys: Arc::clone(&self.release_keys),
            shelf: shelf.clone(),
            agent_version: document.map_or_else(first_agent_version, |d| d.agent_version.clone()),
            release: document.map_or_else(first_release, |d| d.release.clone()),
            stage: self.stage.subscribe(),
            arrivals: self.arrivals.subscribe(),
        };
        let populations = self.scenario.populations.iter();
        populations.map(home).map(Arc::new).collect()
    }
}

/// One member, from its token or from what an earlier run has kept.
fn member(
    seed: u64,
    population: &Population,
    index: u64,
    token: Option<TokenLine>,
    identities: Option<&Identities>,
) -> Result<Member, String> {
    match (token, identities) {
        (Some(token), None) => Ok(Member::new(seed, population, index, token)),
        (Some(token), Some(identities)) => {
            let member = Member::new(seed, population, index, token);
            Ok(identities.keep(member, population))
        }
        (None, identities) => {
            let kept = match identities {
                Some(identities) => identities.member(seed, population, index),
                None => Ok(None),
            };
            let nothing = || {
                format!(
                    "agent {index} of `{}` has neither a token nor an identity",
                    population.name
                )
            };
            kept.map_err(|why| why.to_string())?.ok_or_else(nothing)
        }
    }
}

/// One tally for each worker thread: more would cost memory and spare no waiting.
fn tallies(scenario: &Scenario, context: &Context) -> Vec<Arc<Mutex<Tally>>> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..workers)
        .map(|_| Arc::new(Mutex::new(Tally::new(scenario.window(), context.clone()))))
        .collect()
}

orders! {
    /// What a shard can be asked.
    pub enum ShardOrder of Shard {
        Begin,
        DocumentsSet,
        Identify,
        Look,
        Show,
        Hold,
        Weigh,
        End,
        Living,
        Stop,
        Taken,
        Report,
    }
}

/// A moment that all processes of this machine agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedInstant {
    /// Nanoseconds of the system's monotonic clock, which has one zero for all.
    monotonic_ns: u64,
}

impl SharedInstant {
    /// So long from now.
    pub fn after(delay: Duration) -> Self {
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self {
            monotonic_ns: Self::now_ns().saturating_add(delay),
        }
    }

    /// The same moment for timers of this process.
    pub fn instant(self) -> Instant {
        let (here, shared) = (Instant::now(), Self::now_ns());
        match self.monotonic_ns.checked_sub(shared) {
            Some(to_come) => here + Duration::from_nanos(to_come),
            None => here
                .checked_sub(Duration::from_nanos(shared - self.monotonic_ns))
                .unwrap_or(here),
        }
    }

    fn now_ns() -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    }
}

/// Begins: every agent at its moment after this one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Begin {
    /// The start of the run.
    pub at: SharedInstant,
}

impl Ask<Shard> for Begin {
    type Answer = ();

    async fn done_by(self, shard: &mut Shard) {
        shard.clock = SystemClock::starting_at(self.at.instant());
        let homes = shard.homes();
        let mut simulated = Clusters::default();
        for Waiting {
            population,
            member,
            seat,
        } in std::mem::take(&mut shard.waiting)
        {
            let place = Place::new(
                &shard.tallies[seat.tally],
                seat.member,
                referee::Seat::new(seat.watched),
                shard.clock,
            );
            let cluster = simulated.of(&member.cluster);
            let home = Arc::clone(&homes[population]);
            shard.agents.spawn(live(home, member, cluster, place));
        }
    }
}

/// Its portal has a new document for its clusters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DocumentsSet {
    /// By population, by cluster: its generation; none where it was refused.
    pub generations: Vec<Vec<Option<Generation>>>,
    /// When, from the start of the run.
    pub at: Micros,
}

impl Ask<Shard> for DocumentsSet {
    type Answer = ();

    async fn done_by(self, shard: &mut Shard) {
        let populations = shard.scenario.populations.iter().zip(&shard.rosters);
        for ((population, roster), (seats, generations)) in
            populations.zip(shard.seats.iter().zip(&self.generations))
        {
            let first = population.cluster_of(roster.first);
            for (index, seat) in (roster.first..).zip(seats) {
                let cluster = usize::try_from(population.cluster_of(index) - first);
                let generation = cluster.ok().and_then(|cluster| generations.get(cluster));
                if let Some(Some(generation)) = generation {
                    lock(&shard.tallies[seat.tally]).document_set(
                        seat.member,
                        *generation,
                        self.at,
                    );
                }
            }
        }
    }
}

/// The identities that some of its agents hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identify {
    /// By population: the indices of the agents.
    pub agents: Vec<Vec<u64>>,
}

impl Ask<Shard> for Identify {
    type Answer = Vec<AgentId>;

    async fn done_by(self, shard: &mut Shard) -> Vec<AgentId> {
        let populations = shard.rosters.iter().zip(&shard.seats);
        let seats = populations
            .zip(&self.agents)
            .flat_map(|((roster, seats), indices)| {
                indices.iter().filter_map(|index| {
                    let at = usize::try_from(index.checked_sub(roster.first)?).ok()?;
                    seats.get(at)
                })
            });
        seats
            .filter_map(|seat| lock(&shard.tallies[seat.tally]).identity(seat.member))
            .collect()
    }
}

/// What it has seen since the last look. Asked once a second.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Look {
    /// When, from the start of the run.
    pub at: Micros,
}

/// A shard at a second.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    /// What its agents are.
    pub gauges: ByLabel<Gauge, u64>,
    /// Where every request went so far.
    pub account: Account,
    /// The requests since the last look.
    pub recent: Recent,
}

impl Seen {
    /// Adds what another shard has seen.
    pub fn add(&mut self, other: &Seen) {
        self.account.add(&other.account);
        self.recent.add(&other.recent);
        for (gauge, count) in other.gauges.iter() {
            self.gauges[gauge] += count;
        }
    }
}

impl Ask<Shard> for Look {
    type Answer = Seen;

    async fn done_by(self, shard: &mut Shard) -> Seen {
        let mut seen = Seen::default();
        for tally in &shard.tallies {
            let mut tally = lock(tally);
            seen.recent.add(&tally.recorder.recent());
            seen.account.add(&tally.recorder.recorded().account);
            let mut gauges = tally.gauges.clone();
            gauges[Gauge::Enrolled] = tally.enrolled();
            for (gauge, count) in gauges.iter() {
                seen.gauges[gauge] += count;
                tally.recorder.gauge(gauge, self.at, *count);
            }
        }
        seen
    }
}

/// Shows single agents, and follows one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Show {
    /// Which.
    pub asked: AgentsAsked,
    /// When, from the start of the run.
    pub at: Micros,
}

impl Ask<Shard> for Show {
    type Answer = AgentsShown;

    async fn done_by(self, shard: &mut Shard) -> AgentsShown {
        let Self { asked, at } = self;
        let mut shown = AgentsShown {
            filter: asked.filter.clone(),
            ..AgentsShown::default()
        };
        let mut followed = None;
        let populations = shard.scenario.populations.iter().zip(&shard.rosters);
        for ((population, roster), (seats, names)) in
            populations.zip(shard.seats.iter().zip(&shard.names))
        {
            for (index, (seat, (cluster, node))) in (roster.first..).zip(seats.iter().zip(names)) {
                let name = AgentName {
                    cluster: cluster.to_string(),
                    node: node.to_string(),
                };
                if asked.followed.as_ref() == Some(&name) {
                    followed = Some((*seat, name.clone()));
                }
                let tally = lock(&shard.tallies[seat.tally]);
                let (state, idle) = tally.state(seat.member);
                if !asked.lets_through(&name, state, idle) {
                    continue;
                }
                shown.matching += 1;
                if shown.skipped < asked.skip {
                    shown.skipped += 1;
                } else if (shown.rows.len() as u64) < asked.rows {
                    let offset_ms = clock_offset_ms(shard.scenario.seed, population, index);
                    let row = tally.row(seat.member, name, offset_ms, at);
                    shown.rows.push(row);
                }
            }
        }
        for (number, tally) in shard.tallies.iter().enumerate() {
            let here = followed.as_ref().filter(|(seat, _)| seat.tally == number);
            let mut tally = lock(tally);
            tally.follow(here.map(|(seat, name)| (seat.member, name.clone())));
            shown.followed = shown.followed.or_else(|| tally.followed().cloned());
        }
        shown
    }
}

/// Arrivals are held, or go on where they stood.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Hold {
    /// Whether they are held.
    pub are_held: bool,
    /// When, from the start of the run.
    pub at: Micros,
}

impl Ask<Shard> for Hold {
    type Answer = ();

    async fn done_by(self, shard: &mut Shard) {
        let at = Duration::from(self.at);
        shard
            .arrivals
            .send_modify(|arrivals| arrivals.hold(self.are_held, at));
    }
}

/// What it comes to so far, for what is expected to be judged by.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Weigh {
    /// When, from the start of the run.
    pub at: Micros,
}

/// What a shard has counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Weighed {
    /// Requests.
    pub recorded: Recorded,
    /// What its agents went through.
    pub fleet: Fleet,
    /// How long ago they synced.
    pub last_syncs: LastSyncs,
}

impl Ask<Shard> for Weigh {
    type Answer = Option<Weighed>;

    /// From copies, one after the other, on a thread of its own, so that no agent waits while it is weighed.
    async fn done_by(self, shard: &mut Shard) -> Option<Weighed> {
        shard.files_peak = shard.files_peak.max(usage::open_files());
        let at = self.at;
        let tallies = shard.tallies.clone();
        let weighing = tokio::task::spawn_blocking(move || {
            let mut last_syncs = LastSyncs::default();
            let copies = tallies.iter().map(|tally| {
                let copy = lock(tally).without_referees();
                for (ago, interval) in copy.last_syncs(at) {
                    last_syncs.see(ago, interval);
                }
                copy
            });
            let sum = Sum::of(copies, at);
            let mut fleet = sum.fleet;
            for (kind, end) in sum.operations.values() {
                fleet.operation(kind, *end);
            }
            Weighed {
                recorded: sum.recorded,
                fleet,
                last_syncs,
            }
        });
        weighing.await.ok()
    }
}

/// The run has ended: nothing new is begun, calls under way end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct End;

impl Ask<Shard> for End {
    type Answer = ();

    async fn done_by(self, shard: &mut Shard) {
        shard.stage.send_replace(Stage::Ending);
    }
}

/// How many agents have not ended, and what those that ended in a panic said.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Living;

impl Ask<Shard> for Living {
    type Answer = (u64, Vec<String>);

    async fn done_by(self, shard: &mut Shard) -> (u64, Vec<String>) {
        let mut panics = Vec::new();
        while let Some(ended) = shard.agents.try_join_next() {
            if let Err(panicked) = ended {
                panics.push(format!("an agent ended in a panic: {panicked}"));
            }
        }
        (shard.agents.len() as u64, panics)
    }
}

/// Agents that have not ended are cut off.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Stop;

impl Ask<Shard> for Stop {
    type Answer = ();

    async fn done_by(self, shard: &mut Shard) {
        shard.agents.shutdown().await;
    }
}

/// The operations that its agents have taken, and how they ended there.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Taken;

impl Ask<Shard> for Taken {
    type Answer = Vec<(OperationId, OperationKind, OperationEnd)>;

    async fn done_by(self, shard: &mut Shard) -> Self::Answer {
        let mut taken = Vec::new();
        for tally in &shard.tallies {
            let tally = lock(tally);
            let operations = tally.operations.iter();
            taken.extend(operations.map(|(id, (kind, end))| (id.clone(), kind.clone(), *end)));
        }
        taken
    }
}

/// Everything that it has counted, once nobody runs any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// When the run ended, from its start.
    pub at: Micros,
    /// Operations that have ended at their agents, with how many final results the portal has.
    pub finals: Vec<(OperationId, u64)>,
}

/// What is left of a shard.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reported {
    /// Who was in it.
    pub populations: Vec<PopulationPart>,
    /// Requests.
    pub recorded: Recorded,
    /// What its agents went through, but for operations.
    pub fleet: Fleet,
    /// The rules that hold in every run, judged on its agents.
    pub referees: Vec<RefereeReport>,
    /// What its agents complained of.
    pub complaints: Complaints,
    /// The identities that they hold.
    pub identities: Vec<AgentId>,
    /// What its process took.
    pub generator: Generator,
}

impl Ask<Shard> for Report {
    type Answer = Reported;

    async fn done_by(self, shard: &mut Shard) -> Reported {
        let tallies: Vec<Tally> = shard
            .tallies
            .iter()
            .map(|tally| lock(tally).clone())
            .collect();
        let identities = tallies.iter().flat_map(Tally::identities).cloned();
        let identities = identities.collect();
        let mut sum = Sum::of(tallies, self.at);
        let now = shard.clock.now();
        for (operation, results) in &self.finals {
            sum.referees.stored_at_portal(now, operation, *results);
        }
        Reported {
            populations: shard.populations(),
            recorded: sum.recorded,
            fleet: sum.fleet,
            // Whoever judges the whole knows which are owed.
            referees: sum.referees.reports(&BTreeSet::new()),
            complaints: sum.complaints,
            identities,
            generator: Generator {
                processes: 1,
                cpu_us: usage::cpu_us(Part::Agents),
                rss_bytes_peak: usage::rss_bytes_peak(),
                files_peak: shard.files_peak.max(usage::open_files()),
            },
        }
    }
}

impl Shard {
    fn populations(&self) -> Vec<PopulationPart> {
        let populations = self.scenario.populations.iter().zip(&self.rosters);
        populations
            .map(|(population, roster)| PopulationPart {
                name: population.name.clone(),
                protocol: population.protocol,
                count: population.count,
                ranges: match roster.count {
                    0 => Vec::new(),
                    _ => vec![*roster],
                },
            })
            .collect()
    }
}

/// All tallies together.
struct Sum {
    recorded: Recorded,
    fleet: Fleet,
    operations: BTreeMap<OperationId, (OperationKind, OperationEnd)>,
    complaints: Complaints,
    referees: Referees,
}

impl Sum {
    fn of(tallies: impl IntoIterator<Item = Tally>, at: Micros) -> Self {
        let mut sum = Self {
            recorded: Recorded::default(),
            fleet: Fleet::default(),
            operations: BTreeMap::new(),
            complaints: Complaints::default(),
            referees: Referees::new(Context::of_nobody()),
        };
        let mut holders = BTreeMap::new();
        for mut tally in tallies {
            tally.close(at);
            for identity in tally.identities() {
                *holders.entry(identity.clone()).or_insert(0_u64) += 1;
            }
            sum.recorded.add(tally.recorder.recorded());
            sum.fleet.add(&tally.fleet);
            sum.operations.append(&mut tally.operations);
            sum.complaints.add(tally.complaints);
            sum.referees.append(tally.referees);
        }
        sum.fleet.duplicate_identities += holders.values().map(|agents| agents - 1).sum::<u64>();
        sum
    }
}

/// A scenario as another process reads it: its text, which has no secrets in it, and the command line.
mod as_text {
    use serde::de::Error as _;

    use super::{Arc, Deserialize, Deserializer, Overrides, Scenario, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Form {
        name: String,
        text: String,
        overrides: Overrides,
    }

    pub(super) fn serialize<S: Serializer>(
        scenario: &Arc<Scenario>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let form = Form {
            name: scenario.name.clone(),
            text: scenario.text.clone(),
            overrides: scenario.overrides.clone(),
        };
        form.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Scenario>, D::Error> {
        let form = Form::deserialize(deserializer)?;
        Scenario::parse_with(&form.name, &form.text, form.overrides)
            .map(Arc::new)
            .map_err(D::Error::custom)
    }
}

/// What a population's nodes cost, at its tempo.
fn costs(population: &Population) -> Costs {
    let real = Costs::default();
    let scaled = |ms: u64| (ms as f64 * population.tempo).round() as u64;
    Costs {
        file_ms: scaled(real.file_ms),
        keys_ms: scaled(real.keys_ms),
        metadata_ms: scaled(real.metadata_ms),
        k3s_start_ms: scaled(real.k3s_start_ms),
        api_ready_ms: scaled(real.api_ready_ms),
        k3s_stop_ms: scaled(real.k3s_stop_ms),
        api_call_ms: scaled(real.api_call_ms),
        snapshot_ms: scaled(real.snapshot_ms),
        bucket_ms: scaled(real.bucket_ms),
        reset_ms: scaled(real.reset_ms),
        evict_ms: scaled(real.evict_ms),
        collect_ms: scaled(real.collect_ms),
        addons: AddonCosts {
            manifests_pass_ms: scaled(real.addons.manifests_pass_ms),
            install_ms: scaled(real.addons.install_ms),
            uninstall_ms: scaled(real.addons.uninstall_ms),
            rollout_ms: scaled(real.addons.rollout_ms),
            flux_ms: scaled(real.addons.flux_ms),
        },
        fetch_ms: scaled(real.fetch_ms),
        fetch_program_ms: scaled(real.fetch_program_ms),
        stage_ms: scaled(real.stage_ms),
        rollout_ms: scaled(real.rollout_ms),
    }
}

/// What nodes have booted where no document names a release.
fn first_release() -> ReleaseVersion {
    ReleaseVersion::new("2026.11.1").expect("a version of plain digits")
}

/// What agents say they are where no document names a version.
fn first_agent_version() -> AgentVersion {
    AgentVersion::new("1.4.0").expect("a version of plain digits")
}
