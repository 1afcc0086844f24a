//! A run under way: one clock, the time line, a look each second, and the sum at the end.
//!
//! It holds no agent. Shards do, here or in processes of their own, and each has a portal of its own or none; what happens
//! to one of them happens to all. A shard that is lost takes what it had counted with it: the run ends, and what is left
//! is no whole and is not judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent_core::port::Clock as _;
use agent_core::time::Monotonic;
use agent_drive::SystemClock;
use futures_util::future::join_all;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::{AgentId, ClusterId, OperationId};
use protocol::pbx::operation::{Consent, OperationKind};
use protocol::problem::ProblemCode;
use protocol::time::Timestamp;
use record::agents::AgentsShown;
use record::fleet::OperationEnd;
use record::result::{Generator, IndexRange, PopulationPart, RunInfo};
use record::snapshot::{Arrivals, GeneratorNow, LastSync, LastSyncs};
use record::timeline::{Became, Done, Step};
use record::{
    Account, Decision, Figures, Fleet, Micros, Outcome, PortalCounters, Recorded, RunResult,
    Snapshot,
};
use scenario::{Action, DocumentSpec, Evidence, OperationSpec, Population, Scenario, Share};
use tokio::sync::watch;

use crate::complaint::Complaints;
use crate::embedded::{
    Count, CpuTime, Embedded, LookUpOperations, NewOperation, OperationSeen, PortalRefused,
    PostOperations, Publish, Reset, Restart, Revoke, SetDocuments,
};
use crate::forecast::longest;
use crate::headroom::Headroom;
use crate::run::{Interrupt, Options, Wanted};
use crate::shard::{
    Begin, DocumentsSet, End, Hold, Identify, Living, Look, Report, Reported, Seen, Servers, Shard,
    SharedInstant, Show, Stop, Taken, Weigh,
};
use crate::usage::{self, Part, Process};
use crate::worker::{Hand, Lost};

/// How long a shard may take for what it is asked where the run is to end at once.
const AT_ONCE_MS: u64 = 5_000;
/// How long calls that are under way at the end may take, before they count as cut off.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether all have ended.
const ENDED_EVERY_MS: u64 = 20;
/// How often what is expected is judged on the way: it costs a copy of every histogram.
const JUDGED_EVERY_SECONDS: u64 = 5;
/// How long the start lies ahead where processes must be told of it.
const START_AHEAD: Duration = Duration::from_millis(200);

/// A run under way.
pub(crate) struct Course {
    scenario: Arc<Scenario>,
    options: Options,
    clock: SystemClock,
    window: record::micros::Window,
    shards: Vec<Pair>,
    is_split: bool,
    /// Shards that are lost.
    lost: usize,
    notes: Vec<String>,
    /// The open files of the process that has most, when they were last counted.
    files: u64,
    headroom: Headroom,
    wanted: Wanted,
    /// Whether it is to end before its time.
    interrupted: watch::Receiver<Interrupt>,
    /// Since when arrivals are held.
    held_since: Option<Micros>,
    /// By when everybody has arrived if nobody is held any more.
    arrived_at: Micros,
    /// What happens when.
    timeline: Arc<[Step]>,
    /// When the processor time was last looked at, and what it was.
    cpu: (Micros, u64),
}

/// A shard and its portal.
pub(crate) struct Pair {
    /// Its agents.
    pub(crate) agents: Hand<Shard>,
    /// The portal that is just for them; none where somebody else runs one.
    pub(crate) portal: Option<Hand<Embedded>>,
    /// Who is in it, by population.
    pub(crate) ranges: Vec<IndexRange>,
    /// Its clusters, by population.
    pub(crate) clusters: Vec<Vec<Servers>>,
    posted: Vec<Posted>,
}

/// An operation that the time line has given to a cluster.
#[derive(Debug, Clone)]
struct Posted {
    id: OperationId,
    cluster: ClusterId,
    /// Of `snapshot.save`: the name that was asked for. The snapshot's own name is in the result.
    saves: Option<String>,
}

/// What a portal made of a step of the time line.
#[derive(Default)]
struct Acted {
    /// To how many it was to be done.
    meant: u64,
    refused: Vec<PortalRefused>,
}

/// What is left of a shard and its portal.
struct PairReported {
    shard: Reported,
    operations: Fleet,
    portal: Option<(PortalCounters, u64)>,
}

impl Course {
    pub(crate) fn new(
        scenario: Arc<Scenario>,
        options: Options,
        shards: Vec<Pair>,
        interrupted: watch::Receiver<Interrupt>,
    ) -> Self {
        Self {
            window: scenario.window(),
            clock: SystemClock::start(),
            is_split: shards
                .iter()
                .any(|pair| matches!(pair.agents, Hand::There(_))),
            shards,
            lost: 0,
            notes: Vec::new(),
            files: 0,
            headroom: headroom(&scenario),
            wanted: Wanted::default(),
            interrupted,
            held_since: None,
            arrived_at: longest(&scenario).into(),
            timeline: timeline(&scenario, &options),
            cpu: (Micros::ZERO, usage::process_cpu_us()),
            scenario,
            options,
        }
    }

    pub(crate) async fn run(
        mut self,
        snapshot: &watch::Sender<Snapshot>,
        mut wants: watch::Receiver<Wanted>,
    ) -> (RunResult, Decision) {
        if let Some(document) = self.scenario.portal.document.clone() {
            self.act(&Action::SetDocument(Box::new(document))).await;
        }
        let started_at = self.begin().await;
        snapshot.send_modify(|snapshot| snapshot.timeline = Arc::clone(&self.timeline));

        let duration = self.scenario.duration;
        let mut interrupted = self.interrupted.clone();
        let timeline = self.scenario.timeline.clone().into_iter();
        let mut timeline = timeline.enumerate().peekable();
        let mut second = 1;
        while self.lost == 0 {
            let next_entry = timeline.peek().map_or(duration, |(_, entry)| entry.at);
            let next = Duration::from_secs(second).min(next_entry).min(duration);
            tokio::select! {
                biased;
                _ = interrupted.wait_for(|interrupt| *interrupt != Interrupt::No) => break,
                () = self.at(next) => {}
                Ok(()) = wants.changed() => {
                    let wanted = wants.borrow_and_update().clone();
                    self.want(wanted, snapshot).await;
                    continue;
                }
            }
            if next >= duration {
                break;
            }
            while let Some((number, entry)) = timeline.next_if(|(_, entry)| entry.at <= next) {
                let done = self.act(&entry.action).await;
                self.note_step(number, done);
                snapshot.send_modify(|snapshot| snapshot.timeline = Arc::clone(&self.timeline));
            }
            if next >= Duration::from_secs(second) {
                self.look(second, snapshot).await;
                second += 1;
            }
        }

        self.window = self.window_so_far(self.now());
        self.end().await;
        let was_interrupted = *self.interrupted.borrow() != Interrupt::No;
        self.report(started_at, was_interrupted).await
    }

    /// All shards begin at one instant.
    async fn begin(&mut self) -> Timestamp {
        let ahead = match self.is_split {
            true => START_AHEAD,
            false => Duration::ZERO,
        };
        let at = SharedInstant::after(ahead);
        self.clock = SystemClock::starting_at(at.instant());
        self.each(async |pair| pair.agents.ask(Begin { at }).await)
            .await;
        wall(self.clock)
    }

    /// Asks every shard at once. One that is lost is a shard no more.
    async fn each<T>(&mut self, ask: impl AsyncFn(&mut Pair) -> Result<T, Lost>) -> Vec<T> {
        let mut answers = Vec::new();
        let asked = self.shards.iter_mut().enumerate().map(|(number, pair)| {
            let (mut interrupted, clock) = (self.interrupted.clone(), self.clock);
            let too_late = async move {
                match interrupted.wait_for(|how| *how == Interrupt::AtOnce).await {
                    Ok(_) => {
                        let until = clock.now().monotonic.plus_ms(AT_ONCE_MS);
                        clock.sleep_until(until).await;
                    }
                    Err(_) => std::future::pending().await,
                }
            };
            let ask = ask(pair);
            async move {
                tokio::select! {
                    biased;
                    answer = ask => answer,
                    () = too_late => Err(Lost::somebody_of(number, "it did not answer at once")),
                }
            }
        });
        let asked = join_all(asked).await;
        let mut asked = asked.into_iter();
        self.shards.retain(|_| match asked.next() {
            Some(Ok(answer)) => {
                answers.push(answer);
                true
            }
            Some(Err(lost)) => {
                self.notes.push(lost.to_string());
                self.lost += 1;
                false
            }
            None => true,
        });
        answers
    }

    /// What is judged where nothing is begun after `at`: what did not come to be due has no part in a rate.
    fn window_so_far(&self, at: Micros) -> record::micros::Window {
        record::micros::Window {
            until: at.max(self.window.from).min(self.window.until),
            ..self.window
        }
    }

    async fn at(&self, moment: Duration) {
        let ms = u64::try_from(moment.as_millis()).unwrap_or(u64::MAX);
        self.clock.sleep_until(Monotonic::from_ms(ms)).await;
    }

    fn now(&self) -> Micros {
        Micros::from_ms(self.clock.now().monotonic.as_ms())
    }

    /// Does what the time line says, at every portal.
    async fn act(&mut self, action: &Action) -> Done {
        let (scenario, at, now) = (Arc::clone(&self.scenario), self.now(), wall(self.clock));
        let acted = self
            .each(async |pair| pair.act(&scenario, action, at, now).await)
            .await;
        let meant = acted.iter().map(|acted| acted.meant).sum();
        let refused = acted.into_iter().flat_map(|acted| acted.refused);
        let refused: Vec<String> = refused.map(|why| why.to_string()).collect();
        let told = refused.iter().map(|why| format!("the time line: {why}"));
        self.notes.extend(told);
        Done::new(self.now(), meant, refused)
    }

    /// A step of the time line is done; where there is no portal to do it to, it stays left out.
    fn note_step(&mut self, number: usize, done: Done) {
        let step = Arc::make_mut(&mut self.timeline).get_mut(number);
        if let Some(Step {
            became: became @ Became::ToCome,
            ..
        }) = step
        {
            *became = Became::Done(done);
        }
    }

    /// Whether agents still arrive.
    fn arrivals(&self, now: Micros) -> Arrivals {
        match self.held_since {
            Some(_) => Arrivals::Held,
            None if now < self.arrived_at => Arrivals::GoOn,
            None => Arrivals::Over,
        }
    }

    /// Looks at the run, once a second.
    async fn look(&mut self, second: u64, snapshot: &watch::Sender<Snapshot>) {
        let at = self.now();
        let mut seen = Seen::default();
        for part in self
            .each(async |pair| pair.agents.ask(Look { at }).await)
            .await
        {
            seen.add(&part);
        }
        let is_judged = second.is_multiple_of(JUDGED_EVERY_SECONDS);
        let generator = self.generator_now(is_judged).await;
        let (judged_at, (judgements, last_sync)) = match is_judged {
            true => (Some(at), self.judged_so_far(at).await),
            false => {
                let before = snapshot.borrow();
                let judged = (before.judgements.clone(), before.last_sync);
                (before.judged_at, judged)
            }
        };
        let agents_shown = self.agents_shown(at).await;
        snapshot.send_replace(Snapshot {
            at,
            duration: Micros::from(self.scenario.duration),
            agents: self.scenario.agents(),
            gauges: seen.gauges,
            account: seen.account,
            last_second: seen.recent.rates(),
            lateness: seen.recent.lateness(),
            judged_at,
            last_sync,
            generator: Some(generator),
            judgements,
            timeline: Arc::clone(&self.timeline),
            arrivals: self.arrivals(at),
            agents_shown,
            end: None,
        });
    }

    /// Does what whoever looks on wants, and shows it at once.
    async fn want(&mut self, wanted: Wanted, snapshot: &watch::Sender<Snapshot>) {
        let at = self.now();
        // Where everybody has arrived there is nobody to hold.
        let are_held = wanted.held && self.arrivals(at) != Arrivals::Over;
        if are_held != self.held_since.is_some() {
            let hold = Hold { are_held, at };
            self.each(async |pair| pair.agents.ask(hold).await).await;
            self.note_held(at);
            self.held_since = are_held.then_some(at);
        }
        self.wanted = wanted;
        let agents_shown = self.agents_shown(at).await;
        snapshot.send_modify(|snapshot| {
            snapshot.arrivals = self.arrivals(at);
            snapshot.agents_shown = agents_shown;
        });
    }

    /// A run whose arrivals were held says so.
    fn note_held(&mut self, until: Micros) {
        if let Some(since) = self.held_since.take() {
            let held = until.since(since);
            self.arrived_at = self.arrived_at + held;
            self.notes.push(format!(
                "arrivals were held by hand from {since} on, for {held}"
            ));
        }
    }

    /// The single agents that are wanted, one shard after the other: where the first has shown all that there is room for,
    /// the next shows none.
    async fn agents_shown(&mut self, at: Micros) -> Option<AgentsShown> {
        let mut asked = self.wanted.agents.clone()?;
        let mut shown = AgentsShown {
            filter: asked.filter.clone(),
            ..AgentsShown::default()
        };
        for pair in &mut self.shards {
            let show = Show {
                asked: asked.clone(),
                at,
            };
            // One that is lost is told of by the next look.
            if let Ok(next) = pair.agents.ask(show).await {
                asked = asked.beyond(&next);
                shown.add(next);
            }
        }
        Some(shown)
    }

    /// What all processes take, the processor time since they were last asked.
    async fn generator_now(&mut self, count_files: bool) -> GeneratorNow {
        let theirs = self
            .each(async |pair| pair.processes(count_files).await)
            .await;
        let mut all: Vec<Process> = theirs.into_iter().flatten().collect();
        all.push(usage::process(count_files));
        if count_files {
            self.files = all.iter().filter_map(|of| of.files).max().unwrap_or(0);
        }
        let cpu_us = all.iter().map(|of| of.cpu_us).sum();
        // What was asked before may have taken its time.
        let at = self.now();
        let (since, before) = std::mem::replace(&mut self.cpu, (at, cpu_us));
        let taken = cpu_us.saturating_sub(before);
        let now = GeneratorNow {
            processes: all.len() as u64,
            cpu_share: taken as f64 / at.since(since).0.max(1) as f64,
            rss_bytes: all.iter().map(|of| of.rss_bytes).sum(),
            files: self.files,
            files_limit: usage::files_limit(),
        };
        self.headroom.cores.see(now.cpu_share);
        self.headroom.files.see(now.files);
        self.headroom.memory_bytes.see(now.rss_bytes);
        now
    }

    /// What is expected and how long ago agents synced, as it stands.
    async fn judged_so_far(&mut self, at: Micros) -> (Vec<record::Judgement>, Option<LastSync>) {
        let weighed = self
            .each(async |pair| pair.agents.ask(Weigh { at }).await)
            .await;
        let mut recorded = Recorded::default();
        let (mut fleet, mut last_syncs) = (Fleet::default(), LastSyncs::default());
        for part in weighed.iter().flatten() {
            recorded.add(&part.recorded);
            fleet.add(&part.fleet);
            last_syncs.add(&part.last_syncs);
        }
        let window = self.window_so_far(at);
        let figures = Figures::of(window, &recorded.series, &recorded.samples, &fleet);
        let evidence = Evidence {
            window,
            account: &recorded.account,
            samples: &recorded.samples,
            fleet: &fleet,
            figures: &figures,
        };
        let expected = self.scenario.expect.iter();
        let judgements = expected
            .map(|expected| expected.judge_so_far(&evidence))
            .collect();
        (judgements, last_syncs.sum())
    }

    /// Lets the calls under way end, for a while.
    async fn end(&mut self) {
        let mut interrupted = self.interrupted.clone();
        self.each(async |pair| pair.agents.ask(End).await).await;
        let grace_ms = u64::try_from(GRACE.as_millis()).unwrap_or(0);
        let given_up = self.clock.now().monotonic.plus_ms(grace_ms);
        loop {
            let ended = self.each(async |pair| pair.agents.ask(Living).await).await;
            let living: u64 = ended.iter().map(|(living, _)| living).sum();
            self.notes
                .extend(ended.into_iter().flat_map(|(_, panics)| panics));
            let now = self.clock.now().monotonic;
            if living == 0 {
                break;
            }
            if now >= given_up {
                self.notes.push(format!(
                    "without an answer {} s after the end: {living} agents; their calls are cut off, and in no share and no \
                     latency (sync_deficit and staleness see them)",
                    GRACE.as_secs(),
                ));
                break;
            }
            tokio::select! {
                biased;
                _ = interrupted.wait_for(|interrupt| *interrupt == Interrupt::AtOnce) => break,
                () = self.clock.sleep_until(now.plus_ms(ENDED_EVERY_MS)) => {}
            }
        }
        self.each(async |pair| pair.agents.ask(Stop).await).await;
    }

    async fn report(mut self, started_at: Timestamp, interrupted: bool) -> (RunResult, Decision) {
        let (ended, ended_at) = (self.now(), wall(self.clock));
        self.note_held(ended);
        let clock = self.clock;
        let parts = self
            .each(async |pair| pair.report(ended, clock).await)
            .await;
        let info = self.run_info(started_at, ended_at);
        let mut result = RunResult::new(info.clone(), self.nobody());
        result.interrupted = interrupted;
        result.timeline = self.timeline.to_vec();
        result.fleet.duplicate_identities = in_several(&parts);
        if self.is_split {
            result.generator = Generator {
                processes: 1,
                cpu_us: usage::cpu_us(Part::Agents),
                rss_bytes_peak: usage::rss_bytes_peak(),
                files_peak: usage::open_files(),
            };
        }
        let (mut complaints, mut portal_us) = (Complaints::default(), None);
        for PairReported {
            shard,
            operations,
            portal,
        } in parts
        {
            let mut part = RunResult::new(info.clone(), shard.populations);
            let mut fleet = shard.fleet;
            fleet.add(&operations);
            part.fill(shard.recorded, fleet);
            part.referees = shard.referees;
            part.generator = shard.generator;
            if let Some((counters, cpu_us)) = portal {
                part.portal = Some(counters);
                *portal_us.get_or_insert(0) += cpu_us;
            }
            complaints.add(shard.complaints);
            result
                .merge(part)
                .expect("shards are disjoint parts of one run");
        }
        if let Some(cpu_us) = portal_us {
            let seconds = cpu_us as f64 / 1e6;
            self.notes.push(format!(
                "the embedded portal took {seconds:.1} s of processor time"
            ));
        }
        if let Some(late) = result.samples.lateness.quantile(0.99) {
            self.headroom.lateness.see(Some(late));
        }
        self.notes.push(self.headroom.to_string());
        result.notes.extend(self.notes);
        result.notes.extend(complaints.lines());
        result.notes.extend(known_from_before(&result.account));
        let decision = self.scenario.judge(&mut result);
        (result, decision)
    }

    fn run_info(&self, started_at: Timestamp, ended_at: Timestamp) -> RunInfo {
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
            started_at,
            ended_at,
            hosts: [usage::host_info()].into(),
        }
    }

    /// The populations before anybody of them is in the result.
    fn nobody(&self) -> Vec<PopulationPart> {
        let populations = self.scenario.populations.iter();
        populations
            .map(|population| PopulationPart {
                name: population.name.clone(),
                protocol: population.protocol,
                count: population.count,
                ranges: Vec::new(),
            })
            .collect()
    }
}

impl Pair {
    pub(crate) fn new(
        agents: Hand<Shard>,
        portal: Option<Hand<Embedded>>,
        ranges: Vec<IndexRange>,
        clusters: Vec<Vec<Servers>>,
    ) -> Self {
        Self {
            agents,
            portal,
            ranges,
            clusters,
            posted: Vec::new(),
        }
    }

    /// Does what the time line says.
    async fn act(
        &mut self,
        scenario: &Scenario,
        action: &Action,
        at: Micros,
        now: Timestamp,
    ) -> Result<Acted, Lost> {
        let Some(portal) = &mut self.portal else {
            return Ok(Acted::default());
        };
        let to_portal = |refused: Option<PortalRefused>| Acted {
            meant: 1,
            refused: refused.into_iter().collect(),
        };
        Ok(match action {
            Action::SetDocument(document) => self.set_documents(document, at).await?,
            Action::Operation(operation) => self.post(scenario, operation, now).await?,
            Action::Revoke { share } => self.revoke(scenario, *share).await?,
            Action::ResetPortal => {
                portal.ask(Reset).await?;
                to_portal(None)
            }
            Action::RestartPortal { with_data } => {
                let restart = Restart {
                    with_data: *with_data,
                };
                to_portal(portal.ask(restart).await?.err())
            }
            Action::Release(release) => {
                to_portal(portal.ask(Publish::of(release, now)).await?.err())
            }
        })
    }

    async fn set_documents(&mut self, document: &DocumentSpec, at: Micros) -> Result<Acted, Lost> {
        let Some(portal) = &mut self.portal else {
            return Ok(Acted::default());
        };
        let clusters = self.clusters.iter().flatten();
        let clusters: Vec<_> = clusters.map(|servers| servers.cluster.clone()).collect();
        let meant = clusters.len() as u64;
        let mut refused = Vec::new();
        let set = portal.ask(SetDocuments::of(document, clusters)).await?;
        let mut set = set
            .into_iter()
            .map(|set| set.map_err(|why| refused.push(why)).ok());
        let generations = self
            .clusters
            .iter()
            .map(|clusters| set.by_ref().take(clusters.len()).collect())
            .collect();
        self.agents.ask(DocumentsSet { generations, at }).await?;
        Ok(Acted { meant, refused })
    }

    async fn post(
        &mut self,
        scenario: &Scenario,
        operation: &OperationSpec,
        now: Timestamp,
    ) -> Result<Acted, Lost> {
        let mut new = Vec::new();
        for (at, population) in scenario.populations.iter().enumerate() {
            let first = population.cluster_of(self.ranges[at].first);
            for (number, servers) in (first..).zip(&self.clusters[at]) {
                if !operation.takes(population, number) {
                    continue;
                }
                let mut params = operation.params.clone();
                if let Some(which) = operation.node {
                    params.insert("node".to_owned(), servers.node(which).as_str().into());
                }
                new.push(NewOperation {
                    cluster: servers.cluster.clone(),
                    kind: operation.kind.clone(),
                    target: operation.target.map(|which| servers.node(which).clone()),
                    params,
                    consent: operation.consent.as_ref().map(|consent| Consent {
                        by: consent.by.clone(),
                        at: now,
                        text: consent.text.clone(),
                    }),
                });
            }
        }
        if operation.kind == OperationKind::ClusterRestore {
            self.with_true_names(&mut new).await?;
        }
        let Some(portal) = &mut self.portal else {
            return Ok(Acted::default());
        };
        let mut refused = Vec::new();
        for (new, posted) in new
            .iter()
            .zip(portal.ask(PostOperations(new.clone())).await?)
        {
            match posted {
                Ok(id) => self.posted.push(Posted {
                    id,
                    cluster: new.cluster.clone(),
                    saves: match &new.kind {
                        OperationKind::SnapshotSave => text(&new.params, "name"),
                        _ => None,
                    },
                }),
                Err(why) => refused.push(why),
            }
        }
        Ok(Acted {
            meant: new.len() as u64,
            refused,
        })
    }

    /// Gives restores the name that the snapshot has in truth: k3s appends node and time to the name that it is asked for, so
    /// whoever restores looks it up in the result of the save. A name that no save of this cluster was asked for stays as
    /// it is.
    async fn with_true_names(&mut self, restores: &mut [NewOperation]) -> Result<(), Lost> {
        let Some(portal) = &mut self.portal else {
            return Ok(());
        };
        let save_of = |restore: &NewOperation| {
            let wanted = text(&restore.params, "snapshot")?;
            let is_it = |posted: &&Posted| {
                posted.cluster == restore.cluster && posted.saves.as_ref() == Some(&wanted)
            };
            self.posted.iter().rev().find(is_it)
        };
        let (mut of_a_save, mut saves) = (Vec::new(), Vec::new());
        for restore in restores {
            if let Some(save) = save_of(restore) {
                saves.push(save.id.clone());
                of_a_save.push(restore);
            }
        }
        let seen = portal.ask(LookUpOperations(saves)).await?;
        for (restore, save) in of_a_save.into_iter().zip(seen) {
            let result = save.and_then(|save| save.result);
            if let Some(name) = result.as_ref().and_then(|result| result.get("name")) {
                restore.params.insert("snapshot".to_owned(), name.clone());
            }
        }
        Ok(())
    }

    async fn revoke(&mut self, scenario: &Scenario, share: Share) -> Result<Acted, Lost> {
        let agents = taken(&scenario.populations, &self.ranges, share);
        let identities = self.agents.ask(Identify { agents }).await?;
        let Some(portal) = &mut self.portal else {
            return Ok(Acted::default());
        };
        Ok(Acted {
            meant: identities.len() as u64,
            refused: portal.ask(Revoke(identities)).await?,
        })
    }

    /// What its own processes take.
    async fn processes(&mut self, count_files: bool) -> Result<Vec<Process>, Lost> {
        let agents = self.agents.process(count_files).await?;
        let portal = match &mut self.portal {
            Some(portal) => portal.process(count_files).await?,
            None => None,
        };
        Ok(agents.into_iter().chain(portal).collect())
    }

    async fn report(&mut self, at: Micros, clock: SystemClock) -> Result<PairReported, Lost> {
        let taken = self.agents.ask(Taken).await?;
        let mut operations = Fleet::default();
        let finals = match &mut self.portal {
            Some(portal) => {
                let ids = self.posted.iter().map(|posted| posted.id.clone());
                let seen = portal.ask(LookUpOperations(ids.collect())).await?;
                weigh_operations(&self.posted, &seen, &taken, &mut operations)
            }
            None => {
                for (_, kind, end) in &taken {
                    operations.operation(kind, *end);
                }
                Vec::new()
            }
        };
        let shard = self.agents.ask(Report { at, finals }).await?;
        let portal = match &mut self.portal {
            Some(portal) => Some((settled(portal, clock).await?, portal.ask(CpuTime).await?)),
            None => None,
        };
        Ok(PairReported {
            shard,
            operations,
            portal,
        })
    }
}

/// Identities that agents of several shards hold: with those of one shard it has counted itself.
fn in_several(parts: &[PairReported]) -> u64 {
    let mut holders: BTreeMap<&AgentId, u64> = BTreeMap::new();
    for part in parts {
        for identity in part.shard.identities.iter().collect::<BTreeSet<_>>() {
            *holders.entry(identity).or_default() += 1;
        }
    }
    holders.values().map(|shards| shards - 1).sum()
}

/// What is to happen when: to the embedded portal, so to nobody where there is none.
fn timeline(scenario: &Scenario, options: &Options) -> Arc<[Step]> {
    let steps = scenario.timeline.iter().map(|entry| Step {
        due: entry.at.into(),
        what: entry.action.text(),
        became: match &options.portal {
            None => Became::ToCome,
            Some(_) => Became::LeftOut,
        },
    });
    steps.collect()
}

/// What there is of everything that limits a generator.
fn headroom(scenario: &Scenario) -> Headroom {
    let host = usage::host_info();
    let mut headroom = Headroom::default();
    headroom.cores.of = host.cpus.into();
    headroom.files.of = usage::files_limit();
    headroom.memory_bytes.of = host.memory_bytes;
    headroom.lateness.of = Some(scenario.generator.lateness_p99_at_most.into());
    headroom
}

fn wall(clock: SystemClock) -> Timestamp {
    Timestamp::from_unix_ms(clock.now().wall.unix_ms())
}

fn text(params: &serde_json::Map<String, serde_json::Value>, member: &str) -> Option<String> {
    Some(params.get(member)?.as_str()?.to_owned())
}

/// The agents of a shard that a share of the whole fleet takes, by population.
fn taken(populations: &[Population], ranges: &[IndexRange], share: Share) -> Vec<Vec<u64>> {
    let mut before = 0;
    let mut taken = Vec::new();
    for (population, range) in populations.iter().zip(ranges) {
        let here = range.first..range.end();
        taken.push(here.filter(|index| share.takes(before + index)).collect());
        before += population.count;
    }
    taken
}

/// What is behind a `conflict` at the enrollment: keys come from the seed, so a portal that remembers knows those of a run
/// before.
fn known_from_before(account: &Account) -> Option<String> {
    let conflict = Outcome::Problem(ProblemCode::Conflict);
    let count = account.line(Endpoint::Enroll).ended[conflict];
    (count > 0).then(|| {
        format!(
            "{count} enrollments were refused with `conflict`: the portal knows these keys, which come from the seed, by \
             other agents; give another --seed, or the --identities that the run before has kept"
        )
    })
}

/// Operations by how they stand at the portal, and results by how often it has them: answers those that have ended at
/// their agents, with how many final results the portal has.
fn weigh_operations(
    posted: &[Posted],
    seen: &[Option<OperationSeen>],
    taken: &[(OperationId, OperationKind, OperationEnd)],
    fleet: &mut Fleet,
) -> Vec<(OperationId, u64)> {
    let taken: BTreeMap<_, _> = taken
        .iter()
        .map(|(id, kind, end)| (id, (kind, end)))
        .collect();
    let mut ended = Vec::new();
    for (Posted { id, .. }, seen) in posted.iter().zip(seen) {
        let finished = taken
            .get(id)
            .filter(|(_, end)| **end != OperationEnd::Unfinished);
        let Some(seen) = seen else {
            // A portal that has forgotten it has no result of it either.
            if let Some((kind, end)) = finished {
                fleet.operation(kind, **end);
                fleet.results.missing += 1;
            }
            continue;
        };
        fleet.operation(&seen.kind, seen.end);
        if finished.is_some() {
            ended.push((id.clone(), seen.finals));
        }
        match (finished.is_some() || seen.finals > 0, seen.finals) {
            (false, _) => {}
            (true, 0) => fleet.results.missing += 1,
            (true, 1) if seen.different_repeats == 0 => fleet.results.once += 1,
            (true, _) => fleet.results.repeated += 1,
        }
    }
    ended
}

/// The portal's counters, once nothing moves any more: what was cut off here may still be on its way there.
async fn settled(portal: &mut Hand<Embedded>, clock: SystemClock) -> Result<PortalCounters, Lost> {
    let mut before = portal.ask(Count).await?;
    for _ in 0..50 {
        clock.sleep_until(clock.now().monotonic.plus_ms(100)).await;
        let now = portal.ask(Count).await?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Whichever shard they are in, the same agents are taken.
    #[test]
    fn a_share_of_the_fleet_is_the_same_however_it_is_split() {
        let text = "name = \"s\"\nduration = \"2s\"\n[[population]]\nname = \"a\"\ncount = 7\n[[population]]\nname = \"b\"\n\
                    count = 8\n[[expect]]\nenrolled = { exactly = \"all\" }\n";
        let populations = Scenario::parse("s.toml", text).unwrap().populations;
        let range = |first, count| IndexRange { first, count };
        let third = Share::new(0.34).unwrap();
        let whole = taken(&populations, &[range(0, 7), range(0, 8)], third);
        assert_eq!(whole, [vec![2, 5], vec![1, 4, 7]]);
        let left = taken(&populations, &[range(0, 5), range(0, 0)], third);
        let right = taken(&populations, &[range(5, 2), range(0, 8)], third);
        assert_eq!([left[0].clone(), right[0].clone()].concat(), whole[0]);
        assert_eq!(right[1], whole[1]);
    }
}
