//! One run, from its preflight to its result.
//!
//! [`prepare`] finds out whether the run can be had, says what it will need, and starts what it is made of; [`Prepared::start`]
//! lets it run on threads of its own; [`Run`] is how a face looks on and ends it. A run always ends: its duration, or an
//! interruption, and a grace for the calls under way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use agent_core::limits::Limits;
use agent_core::port::Clock as _;
use agent_core::time::Monotonic;
use agent_drive::{BaseUrl, Exchange, Failure, Patience, SystemClock, Transport};
use portal_core::control::TokenLine;
use protocol::dialect::Dialect;
use protocol::sign::SigningPublicKey;
use record::agents::AgentsAsked;
use record::result::IndexRange;
use record::{Decision, RunResult, Snapshot};
use scenario::{Action, Host, Scenario};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::course::{Course, Pair};
use crate::embedded::{Embedded, MakeTokens, PortalSetup};
use crate::foreign::{TokenCommand, TokenSource, read_release_keys};
use crate::identities::Identities;
use crate::population::split;
use crate::preflight::{self, Fit, Need, Split, fit};
use crate::shard::{Roster, ShardSetup, Way};
use crate::usage::{Part, room_for_threads, runtime_threads};
use crate::worker::{Hand, Program, Worker};

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
    /// How processes are started that the fleet can be split into; none if it is never split.
    pub shards: Option<Sharding>,
}

/// How a fleet is split into processes.
#[derive(Debug, Clone)]
pub struct Sharding {
    /// Into how many; without, as the connections need.
    pub count: Option<u64>,
    /// What they are.
    pub program: Program,
}

/// A portal that somebody else runs.
#[derive(Debug, Clone)]
pub struct ForeignPortal {
    /// Its base URL.
    pub url: String,
    /// Tokens to enroll with.
    pub tokens: Option<TokenSource>,
    /// The command that makes them while it runs, if one does: whoever gives the run up before it has begun ends it.
    pub token_command: TokenCommand,
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
pub struct Prepared {
    runtime: Runtime,
    course: Course,
    interrupt: watch::Sender<Interrupt>,
    told: Vec<String>,
}

/// Finds out whether a run can be had, and starts what it is made of: the embedded portal, processes of its own where the
/// fleet is split. Waits for the portal; not to be called on a runtime's threads.
///
/// # Errors
/// See [`NotStarted`].
pub fn prepare(scenario: Scenario, options: Options) -> Result<Prepared, NotStarted> {
    let foreign = match &options.portal {
        None => None,
        Some(portal) => Some(Checked::of(portal, &options, scenario.agents())?),
    };
    let need = need(&scenario, &options, foreign.as_ref());
    let fit = fit(need, preflight::offer());
    if !fit.missing.is_empty() {
        return Err(NotStarted::Preflight(fit.missing));
    }
    room_for_threads(runtime_threads()).map_err(preflight_failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name(Part::Agents.thread_name())
        .enable_all()
        .build()
        .map_err(preflight_failed)?;
    let mut told = fit.told.clone();
    let host = match &foreign {
        None => Host::Embedded,
        Some(_) => Host::Foreign,
    };
    told.extend(scenario.without_data(host));
    let scenario = Arc::new(scenario);
    let making = Making {
        scenario: &scenario,
        program: options.shards.as_ref().map(|shards| &shards.program),
        canaries: canaries(&scenario),
        fit,
    };
    let shards = match foreign {
        Some(foreign) => {
            if foreign.release_keys.is_empty() {
                told.push("release keys: none given, so every document will be manifest_rejected (--release-key)".to_owned());
            }
            if scenario.portal.document.is_some() || !scenario.timeline.is_empty() {
                told.push("portal: document and time line of the scenario are for the embedded portal and are left out".to_owned());
            }
            making.at_foreign(&runtime, foreign, options.reach_within)?
        }
        None => runtime.block_on(making.with_portals(&mut told))?,
    };
    let (interrupt, interrupted) = watch::channel(Interrupt::No);
    Ok(Prepared {
        course: Course::new(scenario, options, shards, interrupted),
        interrupt,
        runtime,
        told,
    })
}

/// What a run is about to need.
fn need(scenario: &Scenario, options: &Options, foreign: Option<&Checked>) -> Need {
    let populations = scenario.populations.iter();
    let interval = Limits::REAL.sync_interval_ms as f64 / 1e3;
    let a_second = |population: &scenario::Population| {
        population.count as f64 / (interval * population.tempo).max(1e-3)
    };
    Need {
        agents: scenario.agents(),
        clusters: populations
            .clone()
            .map(scenario::Population::clusters)
            .sum(),
        syncs_a_second: populations.map(a_second).sum(),
        embedded: foreign.is_none(),
        loopback: foreign.is_none_or(|foreign| foreign.base.is_loopback()),
        split: match &options.shards {
            None => Split::Never,
            Some(Sharding { count: None, .. }) => Split::AsNeeded,
            Some(Sharding {
                count: Some(count), ..
            }) => Split::Into(*count),
        },
    }
}

/// What shards are made from.
struct Making<'a> {
    scenario: &'a Arc<Scenario>,
    program: Option<&'a Program>,
    canaries: Vec<String>,
    fit: Fit,
}

impl Making<'_> {
    /// Shards that each have a portal of their own.
    async fn with_portals(self, told: &mut Vec<String>) -> Result<Vec<Pair>, NotStarted> {
        let mut shards = Vec::new();
        for (number, sources) in self.fit.sources.iter().enumerate() {
            let setup = PortalSetup::of(&self.scenario.portal, self.scenario.seed, number);
            let (mut portal, ready) = self.hand::<Embedded>(number, setup).await?;
            told.push(format!("portal: embedded, {}", ready.base_url));
            let mut rosters = Vec::new();
            for (population, agents) in self.scenario.populations.iter().zip(self.part(number)) {
                let tokens = match agents.count {
                    0 => Vec::new(),
                    _ => portal
                        .ask(MakeTokens::of(population, agents))
                        .await
                        .map_err(preflight_failed)?
                        .map_err(preflight_failed)?,
                };
                rosters.push(Roster {
                    first: agents.first,
                    tokens: tokens.into_iter().map(Some).collect(),
                });
            }
            let way = Way {
                url: ready.base_url,
                ca_pem: Some(ready.ca_pem),
                release_keys: ready.release_keys,
                sources: sources.clone(),
            };
            shards.push(self.pair(number, way, rosters, None, Some(portal)).await?);
        }
        Ok(shards)
    }

    /// Shards at one portal that somebody else runs.
    fn at_foreign(
        self,
        runtime: &Runtime,
        foreign: Checked,
        reach_within: Duration,
    ) -> Result<Vec<Pair>, NotStarted> {
        let way = Way {
            url: foreign.base.to_string(),
            ca_pem: None,
            release_keys: foreign.release_keys,
            sources: Vec::new(),
        };
        let transport = way.transport().map_err(preflight_failed)?;
        runtime.block_on(reach(&transport, reach_within))?;
        let tokens = foreign_tokens(self.scenario, foreign.tokens, foreign.identities.as_ref())?;
        let mut shards = Vec::new();
        for (number, sources) in self.fit.sources.iter().enumerate() {
            let rosters = self.part(number).into_iter().zip(&tokens);
            let rosters = rosters.map(|(agents, tokens)| Roster {
                first: agents.first,
                tokens: within(tokens, agents).to_vec(),
            });
            let way = Way {
                sources: sources.clone(),
                ..way.clone()
            };
            let pair = self.pair(number, way, rosters.collect(), foreign.folder.clone(), None);
            shards.push(runtime.block_on(pair)?);
        }
        Ok(shards)
    }

    /// The agents of a shard, by population.
    fn part(&self, number: usize) -> Vec<IndexRange> {
        split(
            &self.scenario.populations,
            number as u64,
            self.fit.sources.len() as u64,
        )
    }

    async fn pair(
        &self,
        number: usize,
        portal: Way,
        rosters: Vec<Roster>,
        identities: Option<PathBuf>,
        own: Option<Hand<Embedded>>,
    ) -> Result<Pair, NotStarted> {
        let ranges = rosters.iter().map(Roster::range).collect();
        let setup = ShardSetup {
            scenario: Arc::clone(self.scenario),
            canaries: self.canaries.clone(),
            portal,
            rosters,
            identities,
        };
        let (agents, clusters) = self.hand(number, setup).await?;
        Ok(Pair::new(agents, own, ranges, clusters))
    }

    /// A worker where the run fits it.
    async fn hand<W: Worker>(
        &self,
        number: usize,
        setup: W::Setup,
    ) -> Result<(Hand<W>, W::Ready), NotStarted> {
        let hand = match (self.fit.shards, self.program) {
            (1.., Some(program)) => Hand::there(program, number, &setup).await,
            (0, _) | (_, None) => Hand::here(setup).await,
        };
        hand.map_err(preflight_failed)
    }
}

/// Those of a population that are in a range.
fn within<T>(all: &[T], range: IndexRange) -> &[T] {
    let at = |index: u64| usize::try_from(index).unwrap_or(usize::MAX).min(all.len());
    &all[at(range.first)..at(range.end())]
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

fn preflight_failed(why: impl ToString) -> NotStarted {
    NotStarted::Preflight(vec![why.to_string()])
}

/// A foreign portal whose address, tokens and keys have been looked at.
struct Checked {
    base: BaseUrl,
    tokens: Vec<TokenLine>,
    identities: Option<Identities>,
    folder: Option<PathBuf>,
    release_keys: Vec<SigningPublicKey>,
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
        if portal.tokens.is_none() && portal.identities.is_none() {
            return Err(usage(
                "--portal: a portal of your own needs tokens to enroll with (--tokens), or agents that are enrolled \
                 (--identities)"
                    .to_owned(),
            ));
        }
        let identities = match &portal.identities {
            None => Ok(None),
            Some(folder) => Identities::open(folder)
                .map(Some)
                .map_err(|why| format!("--identities: {why}")),
        };
        let tokens = match &portal.tokens {
            None => Ok(Vec::new()),
            Some(tokens) => tokens
                .read(agents, &portal.token_command)
                .map_err(|why| format!("--tokens: {why}")),
        };
        let release_keys = match &portal.release_key {
            None => Ok(Vec::new()),
            Some(file) => read_release_keys(file).map_err(|why| format!("--release-key: {why}")),
        };
        match (tokens, identities, release_keys) {
            (Ok(tokens), Ok(identities), Ok(release_keys)) => Ok(Self {
                base,
                tokens,
                identities,
                folder: portal.identities.clone(),
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
async fn reach(transport: &Transport, within: Duration) -> Result<(), NotStarted> {
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
}

/// The tokens of every population's agents: none for those whose identities are kept, one each for the others.
fn foreign_tokens(
    scenario: &Scenario,
    tokens: Vec<TokenLine>,
    identities: Option<&Identities>,
) -> Result<Vec<Vec<Option<TokenLine>>>, NotStarted> {
    let have = tokens.len();
    let (mut tokens, mut kept, mut without) = (tokens.into_iter(), 0, 0);
    let mut populations = Vec::new();
    for population in &scenario.populations {
        let mut of_agents = Vec::new();
        for index in 0..population.count {
            let known = match identities {
                None => None,
                Some(identities) => identities
                    .member(scenario.seed, population, index)
                    .map_err(|why| preflight_failed(format!("--identities: {why}")))?,
            };
            match known {
                Some(_) => {
                    kept += 1;
                    of_agents.push(None);
                }
                None => match tokens.next() {
                    Some(token) => of_agents.push(Some(token)),
                    None => without += 1,
                },
            }
        }
        populations.push(of_agents);
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

/// What whoever looks on wants of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Single agents that its snapshots are to show.
    pub agents: Option<AgentsAsked>,
    /// Whether arrivals are to be held: agents that have arrived go on.
    pub held: bool,
}

/// A run that is on its way.
#[derive(Debug)]
pub struct Run {
    snapshots: watch::Receiver<Snapshot>,
    wanted: watch::Sender<Wanted>,
    interrupt: watch::Sender<Interrupt>,
    thread: JoinHandle<(RunResult, Decision)>,
}

impl Run {
    /// The run at its last second.
    pub fn snapshots(&self) -> watch::Receiver<Snapshot> {
        self.snapshots.clone()
    }

    /// How to say what is wanted of it.
    pub fn wanted(&self) -> watch::Sender<Wanted> {
        self.wanted.clone()
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

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("told", &self.told)
            .finish_non_exhaustive()
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
        let (snapshot, snapshots) = watch::channel(Snapshot::default());
        let (wanted, wants) = watch::channel(Wanted::default());
        let Self {
            runtime,
            course,
            interrupt,
            ..
        } = self;
        let thread = std::thread::Builder::new()
            .name(Part::Agents.thread_name().to_owned())
            .spawn(move || runtime.block_on(course.run(&snapshot, wants)))
            .map_err(preflight_failed)?;
        Ok(Run {
            snapshots,
            wanted,
            interrupt,
            thread,
        })
    }
}
