//! One run, from its preflight to its result.
//!
//! [`prepare`] finds out whether the run can be had and says what it will need; [`Prepared::start`] runs it on threads of
//! its own; [`Run`] is how a face looks on and ends it. A run always ends: its duration, or an interruption, and a grace
//! for the calls under way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use agent_core::limits::Limits;
use agent_core::port::Clock as _;
use agent_core::time::Monotonic;
use agent_drive::tls::{Trust, client_config};
use agent_drive::{
    BaseUrl, Exchange, Failure, Patience, Settings, Spoken, SystemClock, TimeOuts, Transport,
};
use fleet_sim::addons::AddonCosts;
use fleet_sim::host::Costs;
use fleet_sim::referee::{self, Context, Referees};
use portal_core::control::TokenLine;
use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::{AgentVersion, ClusterId, NodeName, OperationId, ReleaseVersion};
use protocol::pbx::operation::OperationKind;
use protocol::problem::ProblemCode;
use protocol::time::Timestamp;
use protocol::verified::ReleaseKeys;
use record::fleet::OperationEnd;
use record::result::{IndexRange, PopulationPart, RunInfo};
use record::snapshot::{GeneratorNow, LastSync};
use record::{Decision, Micros, Outcome, RunResult, Snapshot};
use scenario::{Action, Evidence, Population, Scenario, ServerOf};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::complaint::Complaints;
use crate::embedded::Embedded;
use crate::foreign::{TokenSource, read_release_keys};
use crate::identities::Identities;
use crate::live::{Clusters, Home, Stage, live};
use crate::population::Member;
use crate::preflight::{self, Need, fit};
use crate::tally::{Place, Tally, lock};
use crate::usage::{self, Part};

/// How long calls that are under way at the end may take, before they count as cut off.
const GRACE: Duration = Duration::from_secs(10);
/// How often what is expected is judged on the way: it costs a copy of every histogram.
const JUDGED_EVERY_SECONDS: u64 = 5;

/// What a run is given beside its scenario.
#[derive(Debug, Clone)]
pub struct Options {
    /// The portal to run against; none for the embedded one.
    pub portal: Option<ForeignPortal>,
    /// Whether whoever runs it has said that a portal beyond this machine is theirs.
    pub owns_target: bool,
    /// How long the portal may take to answer at all before the run starts.
    pub reach_within: Duration,
    /// Versions by program, for the result.
    pub versions: BTreeMap<String, String>,
    /// The commit that the program was built from, for the result.
    pub commit: Option<String>,
}

/// A portal that somebody else runs.
#[derive(Debug, Clone)]
pub struct ForeignPortal {
    /// Its base URL.
    pub url: String,
    /// Tokens to enroll with.
    pub tokens: Option<TokenSource>,
    /// A folder of identities: those in it are taken up again, those that are new are put there.
    pub identities: Option<PathBuf>,
    /// A file with the public keys that its releases are signed with.
    pub release_key: Option<PathBuf>,
}

/// Why a run did not start; each mistake in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotStarted {
    /// What was asked for cannot be meant.
    Usage(Vec<String>),
    /// Something that the run needs is not there.
    Preflight(Vec<String>),
}

/// A run that can be had.
#[derive(Debug)]
pub struct Prepared {
    scenario: Scenario,
    options: Options,
    embedded: Option<Embedded>,
    transport: Transport,
    release_keys: Arc<ReleaseKeys>,
    /// By population, in the order of the scenario.
    members: Vec<Vec<Member>>,
    told: Vec<String>,
}

/// Finds out whether a run can be had, and starts the embedded portal. Waits for the portal; not to be called on a
/// runtime's threads.
///
/// # Errors
/// See [`NotStarted`].
pub fn prepare(scenario: Scenario, options: Options) -> Result<Prepared, NotStarted> {
    let foreign = match &options.portal {
        None => None,
        Some(portal) => Some(Checked::of(portal, &options, scenario.agents())?),
    };
    let need = Need {
        agents: scenario.agents(),
        embedded: foreign.is_none(),
        loopback: foreign
            .as_ref()
            .is_none_or(|foreign| foreign.base.is_loopback()),
    };
    let fit = fit(need, preflight::offer());
    if !fit.missing.is_empty() {
        return Err(NotStarted::Preflight(fit.missing));
    }
    let mut told = fit.told;
    let settings = Settings {
        sources: fit.sources,
        time_outs: TimeOuts::default(),
    };
    match foreign {
        Some(foreign) => {
            if foreign.release_keys.is_empty() {
                told.push("release keys: none given, so every document will be manifest_rejected (--release-key)".to_owned());
            }
            if scenario.portal.document.is_some() || !scenario.timeline.is_empty() {
                told.push("portal: document and time line of the scenario are for the embedded portal and are left out".to_owned());
            }
            let transport = transport(foreign.base, &Trust::Platform, settings)?;
            reach(&transport, options.reach_within)?;
            let members = foreign_members(&scenario, foreign.tokens, foreign.identities)?;
            Ok(Prepared {
                release_keys: Arc::new(foreign.release_keys),
                embedded: None,
                scenario,
                options,
                transport,
                members,
                told,
            })
        }
        None => {
            let embedded =
                Embedded::start(&scenario.portal, scenario.seed).map_err(preflight_failed)?;
            let trust = Trust::only_pem(embedded.ca_pem().as_bytes()).map_err(preflight_failed)?;
            let base = BaseUrl::parse(embedded.base_url(), &Dialect::default())
                .map_err(preflight_failed)?;
            let keys = embedded
                .release_keys()
                .iter()
                .map(protocol::sign::VerifyingKey::parse);
            let keys: Result<Vec<_>, _> = keys.collect();
            let keys =
                ReleaseKeys::new(keys.map_err(preflight_failed)?).map_err(preflight_failed)?;
            let members = embedded_members(&scenario, &embedded)?;
            told.push(format!("portal: embedded, {}", embedded.base_url()));
            Ok(Prepared {
                transport: transport(base, &trust, settings)?,
                release_keys: Arc::new(keys),
                embedded: Some(embedded),
                scenario,
                options,
                members,
                told,
            })
        }
    }
}

fn preflight_failed(why: impl ToString) -> NotStarted {
    NotStarted::Preflight(vec![why.to_string()])
}

/// A foreign portal whose address, tokens and keys have been looked at.
struct Checked {
    base: BaseUrl,
    tokens: Vec<TokenLine>,
    identities: Option<Identities>,
    release_keys: ReleaseKeys,
}

impl Checked {
    fn of(portal: &ForeignPortal, options: &Options, agents: u64) -> Result<Self, NotStarted> {
        let usage = |why: String| NotStarted::Usage(vec![why]);
        let base = BaseUrl::parse(&portal.url, &Dialect::default())
            .map_err(|refused| usage(format!("--portal: {refused}")))?;
        if !base.is_loopback() && !options.owns_target {
            return Err(usage(format!(
                "--portal: {base} is not on this machine; a load test of somebody else's portal is an attack. If it is \
                 yours, say so with --i-own-this-target"
            )));
        }
        let identities = match &portal.identities {
            None => Ok(None),
            Some(folder) => Identities::open(folder)
                .map(Some)
                .map_err(|why| format!("--identities: {why}")),
        };
        let tokens = match &portal.tokens {
            None if portal.identities.is_some() => Ok(Vec::new()),
            None => Err("a foreign portal needs tokens to enroll with (--tokens)".to_owned()),
            Some(tokens) => tokens
                .read(agents)
                .map_err(|why| format!("--tokens: {why}")),
        };
        let release_keys = match &portal.release_key {
            None => Ok(ReleaseKeys::none()),
            Some(file) => read_release_keys(file).map_err(|why| format!("--release-key: {why}")),
        };
        match (tokens, identities, release_keys) {
            (Ok(tokens), Ok(identities), Ok(release_keys)) => Ok(Self {
                base,
                tokens,
                identities,
                release_keys,
            }),
            (tokens, identities, release_keys) => {
                let missing = [tokens.err(), identities.err(), release_keys.err()];
                Err(NotStarted::Preflight(
                    missing.into_iter().flatten().collect(),
                ))
            }
        }
    }
}

fn transport(base: BaseUrl, trust: &Trust, settings: Settings) -> Result<Transport, NotStarted> {
    let tls = client_config(trust).map_err(preflight_failed)?;
    Transport::new(base, &tls, settings).map_err(preflight_failed)
}

/// A failure, and what to look at where it does not say so itself.
fn explained(failure: &Failure) -> String {
    match failure {
        Failure::Tls(_) => format!(
            "{failure}; it must speak TLS, with a certificate that this machine trusts (SSL_CERT_FILE names a private \
             authority's)"
        ),
        _ => failure.to_string(),
    }
}

/// Asks the portal for anything, again and again, until it answers anything.
fn reach(transport: &Transport, within: Duration) -> Result<(), NotStarted> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(preflight_failed)?;
    runtime.block_on(async {
        let clock = SystemClock::start();
        let given_up = Monotonic::from_ms(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let mut last = "it did not answer".to_owned();
        let asking = async {
            loop {
                let anything = Exchange {
                    method: http::Method::GET,
                    path: "/",
                    headers: http::HeaderMap::new(),
                    body: Default::default(),
                    patience: Patience::Whole,
                };
                match transport.connection().exchange(anything, &mut ()).await {
                    Ok(_) => return,
                    Err(failure) => last = explained(&failure),
                }
                clock.sleep_until(clock.now().monotonic.plus_ms(500)).await;
            }
        };
        let reached = tokio::select! {
            biased;
            () = asking => true,
            () = clock.sleep_until(given_up) => false,
        };
        match reached {
            true => Ok(()),
            false => Err(preflight_failed(format!(
                "the portal at {} did not answer within {} s: {last}",
                transport.base(),
                within.as_secs()
            ))),
        }
    })
}

/// The members of every population: those whose identities are kept, and the others with a token each.
fn foreign_members(
    scenario: &Scenario,
    tokens: Vec<TokenLine>,
    identities: Option<Identities>,
) -> Result<Vec<Vec<Member>>, NotStarted> {
    let have = tokens.len();
    let (mut tokens, mut kept, mut without) = (tokens.into_iter(), 0, 0);
    let mut populations = Vec::new();
    for population in &scenario.populations {
        let mut members = Vec::new();
        for index in 0..population.count {
            let known = match &identities {
                None => None,
                Some(identities) => identities
                    .member(scenario.seed, population, index)
                    .map_err(|why| preflight_failed(format!("--identities: {why}")))?,
            };
            kept += u64::from(known.is_some());
            let new = || {
                let member = Member::new(scenario.seed, population, index, tokens.next()?);
                Some(match &identities {
                    None => member,
                    Some(identities) => identities.keep(member, population),
                })
            };
            match known.or_else(new) {
                Some(member) => members.push(member),
                None => without += 1,
            }
        }
        populations.push(members);
    }
    if without == 0 {
        return Ok(populations);
    }
    let most = scenario.agents() - without;
    Err(preflight_failed(format!(
        "{have} tokens{} for {} agents: make more, or run fewer (--agents {most})",
        match identities {
            None => String::new(),
            Some(_) => format!(" and {kept} identities"),
        },
        scenario.agents(),
    )))
}

fn embedded_members(
    scenario: &Scenario,
    embedded: &Embedded,
) -> Result<Vec<Vec<Member>>, NotStarted> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(preflight_failed)?;
    let mut members = Vec::new();
    for population in &scenario.populations {
        let tokens = runtime
            .block_on(embedded.tokens(population))
            .map_err(preflight_failed)?;
        members.push(numbered(scenario.seed, population, tokens.into_iter()));
    }
    Ok(members)
}

fn numbered(
    seed: u64,
    population: &Population,
    tokens: impl Iterator<Item = TokenLine>,
) -> Vec<Member> {
    (0..)
        .zip(tokens)
        .map(|(index, token)| Member::new(seed, population, index, token))
        .collect()
}

/// How a run is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interrupt {
    /// It is not.
    No,
    /// Calls under way may end; then it reports.
    Gently,
    /// It reports at once.
    AtOnce,
}

/// A run that is on its way.
#[derive(Debug)]
pub struct Run {
    snapshots: watch::Receiver<Snapshot>,
    interrupt: watch::Sender<Interrupt>,
    thread: JoinHandle<(RunResult, Decision)>,
}

impl Run {
    /// The run at its last second.
    pub fn snapshots(&self) -> watch::Receiver<Snapshot> {
        self.snapshots.clone()
    }

    /// How to end it.
    pub fn interrupt(&self) -> watch::Sender<Interrupt> {
        self.interrupt.clone()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// With the panic of the run's own thread.
    pub fn wait(self) -> (RunResult, Decision) {
        match self.thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Prepared {
    /// What should be known before it starts, a line each.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start(self) -> Result<Run, NotStarted> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name(Part::Agents.thread_name())
            .enable_all()
            .build()
            .map_err(preflight_failed)?;
        let (snapshot, snapshots) = watch::channel(Snapshot::default());
        let (interrupt, interrupted) = watch::channel(Interrupt::No);
        let thread = std::thread::Builder::new()
            .name(Part::Agents.thread_name().to_owned())
            .spawn(move || self.run(&runtime, &snapshot, interrupted))
            .map_err(preflight_failed)?;
        Ok(Run {
            snapshots,
            interrupt,
            thread,
        })
    }

    fn run(
        self,
        runtime: &Runtime,
        snapshot: &watch::Sender<Snapshot>,
        interrupted: watch::Receiver<Interrupt>,
    ) -> (RunResult, Decision) {
        let scenario = Arc::new(self.scenario);
        let (stage, _) = watch::channel(Stage::Running);
        let clock = SystemClock::start();
        let course = Course {
            clock,
            started_at: wall(clock),
            window: scenario.window(),
            tallies: tallies(&scenario, &self.release_keys),
            places: Vec::new(),
            clusters: Vec::new(),
            posted: Vec::new(),
            notes: Vec::new(),
            files: 0,
            files_peak: 0,
            cpu: (Micros::ZERO, usage::process_cpu_us()),
            embedded: self.embedded,
            scenario,
            options: self.options,
            stage,
        };
        runtime.block_on(course.run(
            self.members,
            self.transport,
            self.release_keys,
            snapshot,
            interrupted,
        ))
    }
}

/// One tally for each worker thread: more would cost memory and spare no waiting.
fn tallies(scenario: &Scenario, release_keys: &Arc<ReleaseKeys>) -> Vec<Arc<Mutex<Tally>>> {
    let context = Context {
        release_keys: Arc::clone(release_keys),
        canaries: canaries(scenario).into(),
    };
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..workers)
        .map(|_| Arc::new(Mutex::new(Tally::new(scenario.window(), context.clone()))))
        .collect()
}

/// Every secret that the scenario hands to its portal in clear, for the referee that finds them in no text.
fn canaries(scenario: &Scenario) -> Vec<String> {
    let later = scenario
        .timeline
        .iter()
        .filter_map(|entry| match &entry.action {
            Action::SetDocument(document) => Some(&**document),
            _ => None,
        });
    let mut canaries: Vec<String> = scenario
        .portal
        .document
        .iter()
        .chain(later)
        .flat_map(|document| document.secrets_in_clear())
        .map(|secret| secret.expose().to_owned())
        .collect();
    canaries.sort_unstable();
    canaries.dedup();
    canaries
}

fn wall(clock: SystemClock) -> Timestamp {
    Timestamp::from_unix_ms(clock.now().wall.unix_ms())
}

/// A run under way.
struct Course {
    scenario: Arc<Scenario>,
    options: Options,
    embedded: Option<Embedded>,
    clock: SystemClock,
    started_at: Timestamp,
    window: record::micros::Window,
    stage: watch::Sender<Stage>,
    tallies: Vec<Arc<Mutex<Tally>>>,
    /// By population, by index.
    places: Vec<Vec<Seat>>,
    /// By population, by the cluster's number.
    clusters: Vec<Vec<Servers>>,
    posted: Vec<Posted>,
    notes: Vec<String>,
    /// Open files when they were last counted, and the most so far.
    files: u64,
    files_peak: u64,
    /// When the processor time was last looked at, and what it was.
    cpu: (Micros, u64),
}

/// A cluster and its servers, as the scenario names them.
#[derive(Debug, Clone)]
struct Servers {
    cluster: ClusterId,
    first: NodeName,
    last: NodeName,
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

    fn node(&self, which: ServerOf) -> &NodeName {
        match which {
            ServerOf::First => &self.first,
            ServerOf::Last => &self.last,
        }
    }
}

/// An operation that the time line has given to a cluster.
#[derive(Debug, Clone)]
struct Posted {
    id: OperationId,
    cluster: ClusterId,
    /// Of `snapshot.save`: the name that was asked for. The snapshot's own name is in the result.
    saves: Option<String>,
}

/// Where a member is counted.
#[derive(Debug, Clone, Copy)]
struct Seat {
    tally: usize,
    member: usize,
}

impl Course {
    async fn run(
        mut self,
        members: Vec<Vec<Member>>,
        transport: Transport,
        release_keys: Arc<ReleaseKeys>,
        snapshot: &watch::Sender<Snapshot>,
        mut interrupted: watch::Receiver<Interrupt>,
    ) -> (RunResult, Decision) {
        let mut agents = JoinSet::new();
        self.begin(members, &transport, &release_keys, &mut agents);
        self.set_first_documents().await;

        let duration = self.scenario.duration;
        let mut timeline = self.scenario.timeline.clone().into_iter().peekable();
        let mut second = 1;
        loop {
            let next_entry = timeline.peek().map_or(duration, |entry| entry.at);
            let next = Duration::from_secs(second).min(next_entry).min(duration);
            tokio::select! {
                biased;
                _ = interrupted.wait_for(|interrupt| *interrupt != Interrupt::No) => break,
                () = self.at(next) => {}
            }
            if next >= duration {
                break;
            }
            while let Some(entry) = timeline.next_if(|entry| entry.at <= next) {
                self.act(&entry.action).await;
            }
            if next >= Duration::from_secs(second) {
                self.look(second, snapshot).await;
                second += 1;
            }
        }

        self.end(&mut agents, &mut interrupted).await;
        let was_interrupted = *interrupted.borrow() != Interrupt::No;
        self.report(was_interrupted).await
    }

    async fn at(&self, moment: Duration) {
        let ms = u64::try_from(moment.as_millis()).unwrap_or(u64::MAX);
        self.clock.sleep_until(Monotonic::from_ms(ms)).await;
    }

    fn now(&self) -> Micros {
        Micros::from_ms(self.clock.now().monotonic.as_ms())
    }

    /// Gives every member its place and its task.
    fn begin(
        &mut self,
        members: Vec<Vec<Member>>,
        transport: &Transport,
        release_keys: &Arc<ReleaseKeys>,
        agents: &mut JoinSet<()>,
    ) {
        let mut simulated = Clusters::default();
        let mut tally_of = BTreeMap::new();
        let document = self.scenario.portal.document.as_ref();
        for (population, members) in self.scenario.populations.iter().zip(members) {
            let limits = Arc::new(Limits::REAL.scaled(population.tempo));
            let home = Home {
                population: Arc::new(population.clone()),
                duration: self.scenario.duration,
                limits: Arc::clone(&limits),
                costs: Arc::new(costs(population)),
                transport: transport.clone(),
                spoken: Spoken::default(),
                clock: self.clock,
                release_keys: Arc::clone(release_keys),
                agent_version: document
                    .map_or_else(first_agent_version, |d| d.agent_version.clone()),
                release: document.map_or_else(first_release, |d| d.release.clone()),
                stage: self.stage.subscribe(),
            };
            let mut seats = Vec::new();
            let mut clusters = Vec::new();
            for member in members {
                // A cluster is counted in one place, so that a referee sees all of it.
                let number = tally_of.len();
                let (tally, cluster_number) = *tally_of
                    .entry(member.cluster.clone())
                    .or_insert((number % self.tallies.len(), number));
                Servers::count(&mut clusters, &member);
                let begins = Micros::from(population.start_of(member.index));
                let interval = Micros::from_ms(limits.sync_interval_ms);
                let mut counted = lock(&self.tallies[tally]);
                let watched = counted.referees.admit(
                    member.node.clone(),
                    cluster_number,
                    Arc::clone(&limits),
                );
                let seat = Seat {
                    tally,
                    member: counted.admit(interval, begins),
                };
                drop(counted);
                seats.push(seat);
                let place = Place::new(
                    &self.tallies[tally],
                    seat.member,
                    referee::Seat::new(watched),
                    self.clock,
                );
                let cluster = simulated.of(&member.cluster);
                agents.spawn(live(home.clone(), member, cluster, place));
            }
            self.places.push(seats);
            self.clusters.push(clusters);
        }
    }

    async fn set_first_documents(&mut self) {
        if let Some(document) = self.scenario.portal.document.clone() {
            self.set_document(&document).await;
        }
    }

    async fn set_document(&mut self, document: &scenario::DocumentSpec) {
        let Some(embedded) = &self.embedded else {
            return;
        };
        for (at, population) in self.scenario.populations.iter().enumerate() {
            let mut generations = Vec::new();
            for Servers { cluster, .. } in &self.clusters[at] {
                match embedded.set_document(cluster, document).await {
                    Ok(generation) => generations.push(Some(generation)),
                    Err(why) => {
                        self.notes.push(format!("a document was not set: {why}"));
                        generations.push(None);
                    }
                }
            }
            let now = Micros::from_ms(self.clock.now().monotonic.as_ms());
            for (index, seat) in (0..).zip(&self.places[at]) {
                let cluster = usize::try_from(population.cluster_of(index)).unwrap_or(usize::MAX);
                if let Some(Some(generation)) = generations.get(cluster) {
                    lock(&self.tallies[seat.tally]).document_set(seat.member, *generation, now);
                }
            }
        }
    }

    /// Does what the time line says.
    async fn act(&mut self, action: &Action) {
        let now = wall(self.clock);
        let Some(embedded) = &self.embedded else {
            return;
        };
        let mut refused = Vec::new();
        match action {
            Action::SetDocument(document) => return self.set_document(document).await,
            Action::Operation(operation) => {
                for (population, clusters) in self.scenario.populations.iter().zip(&self.clusters) {
                    for (number, servers) in (0..).zip(clusters) {
                        if !operation.takes(population, number) {
                            continue;
                        }
                        let cluster = &servers.cluster;
                        let mut params = match &operation.kind {
                            OperationKind::ClusterRestore => {
                                with_true_name(embedded, &self.posted, cluster, &operation.params)
                                    .await
                            }
                            _ => operation.params.clone(),
                        };
                        if let Some(which) = operation.node {
                            let node = servers.node(which).as_str();
                            params.insert("node".to_owned(), node.into());
                        }
                        let target = operation.target.map(|which| servers.node(which).clone());
                        match embedded
                            .post_operation(cluster, operation, target, &params, now)
                            .await
                        {
                            Ok(id) => self.posted.push(Posted {
                                id,
                                cluster: cluster.clone(),
                                saves: match &operation.kind {
                                    OperationKind::SnapshotSave => text(&params, "name"),
                                    _ => None,
                                },
                            }),
                            Err(why) => refused.push(why),
                        }
                    }
                }
            }
            Action::Revoke { share } => {
                let seats = self.places.iter().flatten();
                for (_, seat) in (0..).zip(seats).filter(|(index, _)| share.takes(*index)) {
                    let identity = lock(&self.tallies[seat.tally]).identity(seat.member);
                    if let Some(identity) = identity {
                        refused.extend(embedded.revoke(&identity).await.err());
                    }
                }
            }
            Action::ResetPortal => embedded.reset().await,
            Action::RestartPortal { with_data } => {
                refused.extend(embedded.restart(*with_data).await.err());
            }
            Action::Release(release) => refused.extend(embedded.publish(release, now).await.err()),
        }
        self.notes
            .extend(refused.iter().map(|why| format!("the time line: {why}")));
    }

    /// Looks at the run, once a second.
    async fn look(&mut self, second: u64, snapshot: &watch::Sender<Snapshot>) {
        let at = self.now();
        let mut seen = Snapshot {
            at,
            duration: Micros::from(self.scenario.duration),
            agents: self.scenario.agents(),
            ..Snapshot::default()
        };
        let mut recent = record::snapshot::Recent::new();
        for tally in &self.tallies {
            let mut tally = lock(tally);
            recent.add(&std::mem::take(&mut tally.recent));
            seen.account.add(&tally.recorder.account);
            seen.enrolled += tally.enrolled();
            let gauges = tally.gauges.clone();
            for (gauge, count) in gauges.iter() {
                seen.gauges[gauge] += count;
                tally.recorder.gauge(gauge, at, *count);
            }
        }
        (seen.last_second, seen.lateness) = recent.take();
        let is_judged = second.is_multiple_of(JUDGED_EVERY_SECONDS);
        if is_judged {
            self.files = usage::open_files();
            self.files_peak = self.files_peak.max(self.files);
        }
        seen.generator = self.generator_now(at);
        (seen.judgements, seen.last_sync) = match is_judged {
            true => self.judged_so_far(at).await,
            false => {
                let before = snapshot.borrow();
                (before.judgements.clone(), before.last_sync)
            }
        };
        snapshot.send_replace(seen);
    }

    /// What this process takes, the processor time since it was last asked.
    fn generator_now(&mut self, at: Micros) -> GeneratorNow {
        let (since, taken) = std::mem::replace(&mut self.cpu, (at, usage::process_cpu_us()));
        let cpu_us = self.cpu.1.saturating_sub(taken);
        GeneratorNow {
            processes: 1,
            cpu_share: cpu_us as f64 / at.since(since).0.max(1) as f64,
            rss_bytes: usage::rss_bytes(),
            files: self.files,
            files_limit: usage::files_limit(),
        }
    }

    /// What is expected and how long ago agents synced, as it stands: from a copy, so that no agent waits while it is
    /// weighed.
    async fn judged_so_far(&self, at: Micros) -> (Vec<record::Judgement>, Option<LastSync>) {
        let tallies: Vec<Tally> = self
            .tallies
            .iter()
            .map(|tally| lock(tally).clone())
            .collect();
        let (scenario, window) = (Arc::clone(&self.scenario), self.window);
        let judging = tokio::task::spawn_blocking(move || {
            let last_sync = LastSync::of(tallies.iter().flat_map(|tally| tally.last_syncs(at)));
            let sum = Sum::of(tallies, window, at);
            let mut fleet = sum.fleet;
            for (kind, end) in sum.operations.values() {
                fleet.operation(kind, *end);
            }
            let recorder = sum.recorder;
            let figures = record::Figures::of(window, &recorder.series, &recorder.samples, &fleet);
            let evidence = Evidence {
                window,
                account: &recorder.account,
                samples: &recorder.samples,
                fleet: &fleet,
                figures: &figures,
            };
            let judgements = scenario
                .expect
                .iter()
                .map(|expectation| expectation.judge(&evidence))
                .collect();
            (judgements, last_sync)
        });
        judging.await.unwrap_or_default()
    }

    /// Lets the calls under way end, for a while.
    async fn end(
        &mut self,
        agents: &mut JoinSet<()>,
        interrupted: &mut watch::Receiver<Interrupt>,
    ) {
        self.stage.send_replace(Stage::Ending);
        let given_up = self
            .clock
            .now()
            .monotonic
            .plus_ms(u64::try_from(GRACE.as_millis()).unwrap_or(0));
        loop {
            tokio::select! {
                biased;
                _ = interrupted.wait_for(|interrupt| *interrupt == Interrupt::AtOnce) => break,
                () = self.clock.sleep_until(given_up) => {
                    self.notes.push(format!(
                        "without an answer {} s after the end: {} agents; their calls are cut off, and in no share and no \
                         latency (sync_deficit and staleness see them)",
                        GRACE.as_secs(),
                        agents.len()
                    ));
                    break;
                }
                ended = agents.join_next() => match ended {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(panicked)) => self.notes.push(format!("an agent ended in a panic: {panicked}")),
                }
            }
        }
        agents.shutdown().await;
    }

    async fn report(mut self, interrupted: bool) -> (RunResult, Decision) {
        let ended = self.now();
        let ended_at = wall(self.clock);
        let tallies: Vec<Tally> = self
            .tallies
            .iter()
            .map(|tally| lock(tally).clone())
            .collect();
        let sum = Sum::of(tallies, self.window, ended);
        let (mut fleet, mut referees) = (sum.fleet, sum.referees);
        match &self.embedded {
            Some(embedded) => {
                let now = self.clock.now();
                let finals =
                    weigh_operations(embedded, &self.posted, &sum.operations, &mut fleet).await;
                for (operation, results) in finals {
                    referees.stored_at_portal(now, &operation, results);
                }
            }
            None => {
                for (kind, end) in sum.operations.values() {
                    fleet.operation(kind, *end);
                }
            }
        }

        let mut result = RunResult::new(self.run_info(ended_at), self.populations());
        result.interrupted = interrupted;
        result.fill(sum.recorder, fleet);
        result.referees =
            referees.reports(&self.scenario.referees.iter().map(|r| r.get()).collect());
        if let Some(embedded) = &self.embedded {
            result.portal = Some(settled(embedded, self.clock).await);
            let seconds = usage::cpu_us(Part::Portal) as f64 / 1e6;
            self.notes.push(format!(
                "the embedded portal took {seconds:.1} s of processor time"
            ));
        }
        result.generator = record::result::Generator {
            processes: 1,
            cpu_us: usage::cpu_us(Part::Agents),
            rss_bytes_peak: usage::rss_bytes_peak(),
            files_peak: self.files_peak.max(usage::open_files()),
        };
        result.notes.extend(self.notes);
        result.notes.extend(sum.complaints.lines());
        result.notes.extend(known_from_before(&result.account));
        let decision = self.scenario.judge(&mut result);
        (result, decision)
    }

    fn run_info(&self, ended_at: Timestamp) -> RunInfo {
        RunInfo {
            scenario: self.scenario.name.clone(),
            scenario_toml: self.scenario.text.clone(),
            scenario_sha256: Sha256Hex::of(self.scenario.text.as_bytes()),
            overrides: self.scenario.overrides.given(),
            seed: self.scenario.seed,
            window: self.window,
            portal: self
                .options
                .portal
                .as_ref()
                .map(|portal| portal.url.clone()),
            versions: self.options.versions.clone(),
            commit: self.options.commit.clone(),
            started_at: self.started_at,
            ended_at,
            hosts: [usage::host_info()].into(),
        }
    }

    fn populations(&self) -> Vec<PopulationPart> {
        let parts = self
            .scenario
            .populations
            .iter()
            .map(|population| PopulationPart {
                name: population.name.clone(),
                protocol: population.protocol,
                count: population.count,
                ranges: vec![IndexRange {
                    first: 0,
                    count: population.count,
                }],
            });
        parts.collect()
    }
}

type Params = serde_json::Map<String, serde_json::Value>;

fn text(params: &Params, member: &str) -> Option<String> {
    Some(params.get(member)?.as_str()?.to_owned())
}

/// The parameters of a restore with the name that the snapshot has in truth: k3s appends node and time to the name that
/// it is asked for, so whoever restores looks it up in the result of the save. A name that no save of this cluster was
/// asked for stays as it is.
async fn with_true_name(
    embedded: &Embedded,
    posted: &[Posted],
    cluster: &ClusterId,
    params: &Params,
) -> Params {
    let mut params = params.clone();
    let wanted = text(&params, "snapshot");
    let save = posted.iter().rev().find(|posted| {
        posted.cluster == *cluster && posted.saves.is_some() && posted.saves == wanted
    });
    let Some(save) = save else {
        return params;
    };
    let view = embedded.operation(&save.id).await;
    let result = view.and_then(|view| serde_json::from_str::<Params>(view.result?.get()).ok());
    if let Some(name) = result.as_ref().and_then(|result| result.get("name")) {
        params.insert("snapshot".to_owned(), name.clone());
    }
    params
}

/// What is behind a `conflict` at the enrollment: keys come from the seed, so a portal that remembers knows those of a run
/// before.
fn known_from_before(account: &record::Account) -> Option<String> {
    let conflict = Outcome::Problem(ProblemCode::Conflict);
    let count = account.line(Endpoint::Enroll).ended[conflict];
    (count > 0).then(|| {
        format!(
            "{count} enrollments were refused with `conflict`: the portal knows these keys, which come from the seed, by \
             other agents; give another --seed, or the --identities that the run before has kept"
        )
    })
}

/// All tallies together.
struct Sum {
    recorder: record::Recorder,
    fleet: record::Fleet,
    operations: BTreeMap<OperationId, (OperationKind, OperationEnd)>,
    complaints: Complaints,
    referees: Referees,
}

impl Sum {
    fn of(tallies: Vec<Tally>, window: record::micros::Window, at: Micros) -> Self {
        let nobody = Context {
            release_keys: Arc::new(ReleaseKeys::none()),
            canaries: Arc::from([]),
        };
        let mut sum = Self {
            recorder: record::Recorder::new(window),
            fleet: record::Fleet::default(),
            operations: BTreeMap::new(),
            complaints: Complaints::default(),
            referees: Referees::new(nobody),
        };
        let mut holders = BTreeMap::new();
        for mut tally in tallies {
            tally.close(at);
            for identity in tally.identities() {
                *holders.entry(identity.clone()).or_insert(0_u64) += 1;
            }
            sum.recorder.add(&tally.recorder);
            sum.fleet.add(&tally.fleet);
            sum.operations.append(&mut tally.operations);
            sum.complaints.add(tally.complaints);
            sum.referees.append(tally.referees);
        }
        sum.fleet.duplicate_identities += holders.values().map(|agents| agents - 1).sum::<u64>();
        sum
    }
}

/// Operations by how they stand at the portal, and results by how often it has them: answers those that have ended at
/// their agents, with how many final results the portal has.
async fn weigh_operations(
    embedded: &Embedded,
    posted: &[Posted],
    taken: &BTreeMap<OperationId, (OperationKind, OperationEnd)>,
    fleet: &mut record::Fleet,
) -> Vec<(OperationId, u64)> {
    let mut ended = Vec::new();
    for Posted { id, .. } in posted {
        let finished = taken
            .get(id)
            .filter(|(_, end)| *end != OperationEnd::Unfinished);
        let Some(view) = embedded.operation(id).await else {
            // A portal that has forgotten it has no result of it either.
            if let Some((kind, end)) = finished {
                fleet.operation(kind, *end);
                fleet.results.missing += 1;
            }
            continue;
        };
        fleet.operation(&view.kind, crate::embedded::end_of(view.state));
        let finals = view
            .events
            .iter()
            .filter(|event| crate::embedded::is_final(event))
            .count();
        if finished.is_some() {
            ended.push((id.clone(), finals as u64));
        }
        match (finished.is_some() || finals > 0, finals) {
            (false, _) => {}
            (true, 0) => fleet.results.missing += 1,
            (true, 1) if view.different_repeats == 0 => fleet.results.once += 1,
            (true, _) => fleet.results.repeated += 1,
        }
    }
    ended
}

/// The portal's counters, once nothing moves any more: what was cut off here may still be on its way there.
async fn settled(embedded: &Embedded, clock: SystemClock) -> record::PortalCounters {
    let mut before = embedded.counters().await;
    for _ in 0..50 {
        clock.sleep_until(clock.now().monotonic.plus_ms(100)).await;
        let now = embedded.counters().await;
        if now == before {
            break;
        }
        before = now;
    }
    before
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
