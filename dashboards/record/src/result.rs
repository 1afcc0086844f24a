//! The result file of a run: everything that is known of it, and what every report is made from.
//!
//! Parts of one run (shards, each with a range of agents) merge exactly, in any order: sums, histograms and ranges are
//! added, figures are computed anew from the sum, and what was judged is forgotten, since only the whole can be judged.
//! The scenario's text is in it, so a merged result can be judged, and an old one understood, without another file.
//! Members that this version does not know are skipped in reading; a name of a closed set that it does not know is an
//! error, or a count would be lost. Nothing here touches a file: text in, text out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use protocol::hash::Sha256Hex;
use protocol::time::Timestamp;

use crate::account::{Account, AccountError, PortalCounters};
use crate::consistency::{Contradiction, contradictions};
use crate::figures::Figures;
use crate::fleet::Fleet;
use crate::judgement::Judgement;
use crate::label::labels;
use crate::micros::Window;
use crate::recorder::Recorded;
use crate::samples::Samples;
use crate::series::Series;
use crate::timeline::{self, Step};
use crate::verdict::{Decision, Exit, Verdict};

/// The version of the file's shape. A higher one is another shape; a new member is not.
pub const SCHEMA: u32 = 1;

/// How many breaches of one referee are kept in words. All are counted.
pub const BREACHES_KEPT: usize = 20;

/// A run and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The word for it all.
    pub verdict: Verdict,
    /// What the program exited with.
    pub exit_code: u8,
    /// Why, in one line.
    pub reason: String,
    /// Whether it was ended from outside. What is here is what was known then.
    pub interrupted: bool,
    /// What ran, when and where.
    pub run: RunInfo,
    /// The agents in it.
    pub populations: Vec<PopulationPart>,
    /// What was expected of it, judged.
    pub expectations: Vec<Judgement>,
    /// The rules that hold in every run, judged.
    pub referees: Vec<RefereeReport>,
    /// What a person asks about it.
    pub figures: Figures,
    /// What the fleet went through.
    pub fleet: Fleet,
    /// Where every request went.
    pub account: Account,
    /// What the embedded portal counted; none with a foreign one.
    pub portal: Option<PortalCounters>,
    /// What the generator itself took.
    pub generator: Generator,
    /// Durations, inside the window.
    pub samples: Samples,
    /// The run by the second.
    pub series: Series,
    /// What was to happen when, and what came of it, in the order of time.
    #[serde(default)]
    pub timeline: Vec<Step>,
    /// What a reader should know and no figure says.
    pub notes: BTreeSet<String>,
}

/// What ran, when and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// The scenario's name.
    pub scenario: String,
    /// The scenario as it was written.
    pub scenario_toml: String,
    /// SHA-256 of that text.
    #[schemars(with = "String")]
    pub scenario_sha256: Sha256Hex,
    /// What the command line set otherwise, option by option: `{"--agents": "100"}`.
    pub overrides: BTreeMap<String, String>,
    /// Where all chance came from.
    pub seed: u64,
    /// What was judged of it.
    pub window: Window,
    /// The base URL of the portal; none for the embedded one.
    pub portal: Option<String>,
    /// Versions by program: `{"loadgen": "0.1.0"}`.
    pub versions: BTreeMap<String, String>,
    /// The commit that the program was built from, where it is known.
    pub commit: Option<String>,
    /// When it began, by the wall clock.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// When it ended, by the wall clock.
    #[schemars(with = "String")]
    pub ended_at: Timestamp,
    /// The machines that it ran on.
    pub hosts: BTreeSet<HostInfo>,
}

/// A machine that a part of a run was on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct HostInfo {
    /// Processors that the program could use.
    pub cpus: u32,
    /// Main memory.
    pub memory_bytes: u64,
    /// The limit of open files that it ran under.
    pub files_limit: u64,
    /// The kernel's name and release.
    pub kernel: String,
}

labels! {
    /// The protocol that a population speaks.
    pub enum Protocol as "protocol" {
        /// The portal protocol of pbx-agent.
        Pbx = "pbx",
        /// The check-in protocol of opensource-agent.
        CheckIn = "check-in",
    }
}

/// The agents of one population that are in this result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PopulationPart {
    /// Its name in the scenario.
    pub name: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// How many agents the whole population has.
    pub count: u64,
    /// Which of them are here: disjoint, in order, none touching the next.
    pub ranges: Vec<IndexRange>,
}

/// Agents by their index in the population, which is also what their keys and seeds come from.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct IndexRange {
    /// The first index.
    pub first: u64,
    /// How many from there on.
    pub count: u64,
}

/// What one referee saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefereeReport {
    /// Its number.
    pub number: u8,
    /// What it watches over.
    pub name: String,
    /// Whether the scenario owes it: an owed one that judged nothing is `no_data`.
    pub owed: bool,
    /// Events that it judged.
    pub judged: u64,
    /// Breaches among them.
    pub breaches: u64,
    /// The first [`BREACHES_KEPT`] of them in the order of their text.
    pub broken: BTreeSet<String>,
}

/// What the generator itself took, over all of its processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Generator {
    /// Processes.
    pub processes: u64,
    /// CPU time of all of them, in microseconds.
    pub cpu_us: u64,
    /// The highest resident memory, added up.
    pub rss_bytes_peak: u64,
    /// The most open files, added up.
    pub files_peak: u64,
}

/// Two results that are not parts of one run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MergeError {
    /// They differ in something that parts of one run have in common.
    #[error("not parts of one run: {what} is {mine} in one and {theirs} in the other")]
    Differs {
        /// What differs.
        what: &'static str,
        /// In the first.
        mine: String,
        /// In the second.
        theirs: String,
    },
    /// An agent is in both.
    #[error(
        "population `{population}`: agents {first} to {last} are in both results and would count twice"
    )]
    Overlap {
        /// Which population.
        population: String,
        /// The first agent in both.
        first: u64,
        /// The last agent of that overlap.
        last: u64,
    },
}

/// A text that is no result file.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Not JSON, or not of this shape; says in which member.
    #[error("not a result file: {0}")]
    Shape(#[from] serde_path_to_error::Error<serde_json::Error>),
    /// More than one JSON value.
    #[error("not a result file: {0}")]
    Syntax(#[from] serde_json::Error),
    /// Written in another version of the shape.
    #[error(
        "result file of schema {found}, this version reads {SCHEMA}: use the version that wrote it"
    )]
    Schema {
        /// What it says.
        found: u64,
    },
    /// Not what a run can have come to.
    #[error("it contradicts itself, so it was changed or damaged after its run:{}", lines(.0))]
    Contradictory(Vec<Contradiction>),
}

/// How many contradictions are told. One sum that is wrong makes others wrong.
const TOLD_MAX: usize = 20;

fn lines(contradictions: &[Contradiction]) -> String {
    let told = contradictions.iter().take(TOLD_MAX);
    let mut lines: Vec<String> = told.map(|one| format!("\n  {one}")).collect();
    if let more @ 1.. = contradictions.len().saturating_sub(TOLD_MAX) {
        lines.push(format!("\n  and {more} more"));
    }
    lines.concat()
}

/// The JSON Schema of a result file.
pub fn schema() -> Schema {
    schemars::schema_for!(RunResult)
}

impl RunResult {
    /// A result in which nothing has happened yet.
    pub fn new(run: RunInfo, populations: Vec<PopulationPart>) -> Self {
        RunResult {
            schema: SCHEMA,
            verdict: Verdict::NoData,
            exit_code: Exit::NothingToJudge.code(),
            reason: NOT_JUDGED.to_owned(),
            interrupted: false,
            run,
            populations,
            expectations: Vec::new(),
            referees: Vec::new(),
            figures: Figures::default(),
            fleet: Fleet::default(),
            account: Account::default(),
            portal: None,
            generator: Generator::default(),
            samples: Samples::default(),
            series: Series::default(),
            timeline: Vec::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Takes what a run's workers have counted and its fleet went through, and computes the figures.
    pub fn fill(&mut self, recorded: Recorded, fleet: Fleet) {
        self.account = recorded.account;
        self.series = recorded.series;
        self.samples = recorded.samples;
        self.fleet = fleet;
        self.refigure();
    }

    /// Writes the verdict down. A decision without one (nothing ran) leaves no result and changes nothing here.
    pub fn decided(&mut self, decision: &Decision) {
        if let Some(verdict) = decision.verdict() {
            self.verdict = verdict;
            self.exit_code = decision.exit.code();
            self.reason.clone_from(&decision.reason);
        }
    }

    /// Where the account does not add up, in itself or against the embedded portal's.
    pub fn account_errors(&self) -> Vec<AccountError> {
        let mut errors = self.account.check();
        if let Some(portal) = &self.portal {
            errors.extend(self.account.check_against(portal));
        }
        errors
    }

    /// Adds another part of the same run, exactly; merging parts in any order gives the same result. What was judged is
    /// forgotten.
    ///
    /// # Errors
    /// The two are not parts of one run, or an agent is in both. Then nothing has changed.
    pub fn merge(&mut self, other: RunResult) -> Result<(), MergeError> {
        self.run.same_run(&other.run)?;
        let populations = merged_populations(&self.populations, &other.populations)?;
        let referees = merged_referees(&self.referees, &other.referees)?;

        self.populations = populations;
        self.referees = referees;
        self.run.add(other.run);
        self.interrupted |= other.interrupted;
        self.fleet.add(&other.fleet);
        self.account.add(&other.account);
        self.generator.add(&other.generator);
        self.samples.add(&other.samples);
        self.series.add(&other.series);
        timeline::add(&mut self.timeline, other.timeline);
        self.notes.extend(other.notes);
        match (&mut self.portal, other.portal) {
            (Some(mine), Some(theirs)) => mine.add(&theirs),
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
        self.verdict = Verdict::NoData;
        self.exit_code = Exit::NothingToJudge.code();
        self.reason = NOT_JUDGED.to_owned();
        self.expectations.clear();
        self.refigure();
        Ok(())
    }

    /// Reads a result file, and believes it if it agrees with itself.
    ///
    /// # Errors
    /// It is none, one of another schema, or one that contradicts itself.
    pub fn read(text: &[u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        fn parsed<T: DeserializeOwned>(text: &[u8]) -> Result<T, ReadError> {
            let mut json = serde_json::Deserializer::from_slice(text);
            let value = serde_path_to_error::deserialize(&mut json)?;
            json.end()?;
            Ok(value)
        }
        let Version { schema } = parsed(text)?;
        if schema != u64::from(SCHEMA) {
            return Err(ReadError::Schema { found: schema });
        }
        let result: RunResult = parsed(text)?;
        match contradictions(&result) {
            none if none.is_empty() => Ok(result),
            some => Err(ReadError::Contradictory(some)),
        }
    }

    /// Whether nobody has judged it: a part of a run, or parts put together.
    pub(crate) fn is_unjudged(&self) -> bool {
        self.reason == NOT_JUDGED
    }

    /// The result file's text: the same result is always the same text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a result holds only what JSON can say")
    }

    fn refigure(&mut self) {
        self.figures = Figures::of(self.run.window, &self.series, &self.samples, &self.fleet);
    }
}

const NOT_JUDGED: &str = "not judged yet";

impl RunInfo {
    fn same_run(&self, other: &RunInfo) -> Result<(), MergeError> {
        fn same<T: PartialEq + fmt::Debug>(
            what: &'static str,
            mine: &T,
            theirs: &T,
        ) -> Result<(), MergeError> {
            match mine == theirs {
                true => Ok(()),
                false => Err(MergeError::Differs {
                    what,
                    mine: format!("{mine:?}"),
                    theirs: format!("{theirs:?}"),
                }),
            }
        }
        same("the scenario", &self.scenario, &other.scenario)?;
        same(
            "the scenario's hash",
            &self.scenario_sha256,
            &other.scenario_sha256,
        )?;
        same(
            "the scenario's text",
            &self.scenario_toml,
            &other.scenario_toml,
        )?;
        same("the command line", &self.overrides, &other.overrides)?;
        same("the seed", &self.seed, &other.seed)?;
        same(
            "the start of the window",
            &self.window.from,
            &other.window.from,
        )?;
        same("the portal", &self.portal, &other.portal)?;
        same("the versions", &self.versions, &other.versions)?;
        same("the commit", &self.commit, &other.commit)
    }

    fn add(&mut self, other: RunInfo) {
        // An interrupted part ends its window early; what the others counted after that still is theirs.
        self.window.until = self.window.until.max(other.window.until);
        self.started_at = self.started_at.min(other.started_at);
        self.ended_at = self.ended_at.max(other.ended_at);
        self.hosts.extend(other.hosts);
    }
}

impl Generator {
    fn add(&mut self, other: &Generator) {
        self.processes += other.processes;
        self.cpu_us += other.cpu_us;
        self.rss_bytes_peak += other.rss_bytes_peak;
        self.files_peak += other.files_peak;
    }
}

impl PopulationPart {
    /// How many of its agents are here.
    pub fn here(&self) -> u64 {
        self.ranges.iter().map(|range| range.count).sum()
    }
}

fn merged_populations(
    mine: &[PopulationPart],
    theirs: &[PopulationPart],
) -> Result<Vec<PopulationPart>, MergeError> {
    let mut merged: BTreeMap<String, PopulationPart> = BTreeMap::new();
    for part in mine.iter().chain(theirs) {
        match merged.get_mut(&part.name) {
            None => {
                let mut part = part.clone();
                part.ranges = joined(&part.name, part.ranges)?;
                merged.insert(part.name.clone(), part);
            }
            Some(before) => {
                let described =
                    |p: &PopulationPart| format!("{} agents of {}", p.count, p.protocol);
                if described(before) != described(part) {
                    return Err(MergeError::Differs {
                        what: "a population",
                        mine: described(before),
                        theirs: described(part),
                    });
                }
                let both = before.ranges.iter().chain(&part.ranges).copied().collect();
                before.ranges = joined(&part.name, both)?;
            }
        }
    }
    Ok(merged.into_values().collect())
}

/// The ranges in order, those that touch as one.
fn joined(population: &str, mut ranges: Vec<IndexRange>) -> Result<Vec<IndexRange>, MergeError> {
    ranges.retain(|range| range.count > 0);
    ranges.sort_unstable();
    let mut joined: Vec<IndexRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.first < last.end() => {
                return Err(MergeError::Overlap {
                    population: population.to_owned(),
                    first: range.first,
                    last: last.end().min(range.end()) - 1,
                });
            }
            Some(last) if range.first == last.end() => last.count += range.count,
            _ => joined.push(range),
        }
    }
    Ok(joined)
}

impl IndexRange {
    /// The index behind the last one.
    pub const fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }
}

fn merged_referees(
    mine: &[RefereeReport],
    theirs: &[RefereeReport],
) -> Result<Vec<RefereeReport>, MergeError> {
    let mut merged: BTreeMap<u8, RefereeReport> = BTreeMap::new();
    for report in mine.iter().chain(theirs) {
        match merged.get_mut(&report.number) {
            None => {
                merged.insert(report.number, report.clone());
            }
            Some(before) => {
                if (&before.name, before.owed) != (&report.name, report.owed) {
                    return Err(MergeError::Differs {
                        what: "a referee",
                        mine: format!("{} {} (owed: {})", before.number, before.name, before.owed),
                        theirs: format!(
                            "{} {} (owed: {})",
                            report.number, report.name, report.owed
                        ),
                    });
                }
                before.judged += report.judged;
                before.breaches += report.breaches;
                before.broken.extend(report.broken.iter().cloned());
            }
        }
    }
    for report in merged.values_mut() {
        while report.broken.len() > BREACHES_KEPT {
            report.broken.pop_last();
        }
    }
    Ok(merged.into_values().collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use protocol::endpoint::Endpoint;

    use super::*;
    use crate::fleet::tests::some_fleet;
    use crate::judgement::{Bound, Quantity};
    use crate::micros::Micros;
    use crate::outcome::Outcome;
    use crate::samples::Sample;
    use crate::samples::tests::any_sample;

    const WINDOW: Window = Window {
        from: Micros::from_seconds(10),
        until: Micros::from_seconds(3_000),
    };

    /// A part of a run of 1,000 agents: those from `first` on, with these requests.
    pub(crate) fn part(first: u64, count: u64, samples: &[Sample]) -> RunResult {
        let run = RunInfo {
            scenario: "steady".to_owned(),
            scenario_toml: "name = \"steady\"".to_owned(),
            scenario_sha256: Sha256Hex::of(b"name = \"steady\""),
            overrides: BTreeMap::new(),
            seed: 7,
            window: WINDOW,
            portal: None,
            versions: BTreeMap::from([("loadgen".to_owned(), "0.1.0".to_owned())]),
            commit: None,
            started_at: Timestamp::from_unix_ms(1_000 * first as i64),
            ended_at: Timestamp::from_unix_ms(90_000 + first as i64),
            hosts: BTreeSet::from([HostInfo {
                cpus: 2,
                memory_bytes: first,
                files_limit: 20_000,
                kernel: "Linux 6".to_owned(),
            }]),
        };
        let mut result = RunResult::new(
            run,
            vec![PopulationPart {
                name: "nodes".to_owned(),
                protocol: Protocol::Pbx,
                count: 1_000,
                ranges: vec![IndexRange { first, count }],
            }],
        );
        let mut recorder = crate::Recorder::new(WINDOW);
        for sample in samples {
            recorder.planned(sample.endpoint, sample.intended);
            recorder.started(sample.endpoint, sample.started);
            recorder.ended(sample);
        }
        result.fill(recorder.recorded().clone(), some_fleet(count));
        result.generator = Generator {
            processes: 1,
            cpu_us: count,
            rss_bytes_peak: 1 << 20,
            files_peak: count + 3,
        };
        result.referees = vec![RefereeReport {
            number: 6,
            name: "pace".to_owned(),
            owed: true,
            judged: count.max(15),
            breaches: count.max(15),
            broken: (0..15)
                .map(|n| format!("agent {}: early", first + n))
                .collect(),
        }];
        result.expectations = vec![Judgement {
            text: "all enrolled".to_owned(),
            verdict: Verdict::Pass,
            figure: Some(Quantity::Count(1)),
            of: None,
            bound: Bound::Exactly(Quantity::Count(1)),
            place: "whole run".to_owned(),
        }];
        result.notes.insert(format!("part {first}"));
        result
    }

    /// A run of ten agents that was judged and passed: eight syncs, which ended as they should.
    pub(crate) fn judged() -> RunResult {
        let at = Micros::from_seconds(11);
        let sync = Sample {
            endpoint: Endpoint::Sync,
            outcome: Outcome::Ok,
            intended: at,
            started: at + Micros::from_ms(2),
            first_byte_out: Some(at + Micros::from_ms(3)),
            ended: at + Micros::from_ms(9),
            connect: None,
        };
        let mut result = part(0, 10, &[sync; 8]);
        result.fleet.duplicate_identities = 0;
        result.referees[0].breaches = 0;
        result.referees[0].broken.clear();
        result.expectations[0].figure = Some(Quantity::Count(10));
        result.expectations[0].bound = Bound::Exactly(Quantity::Count(10));
        result.decided(&Decision {
            exit: Exit::Held,
            reason: "1 expectation held".to_owned(),
        });
        result
    }

    fn merged(parts: &[RunResult]) -> RunResult {
        let mut parts = parts.iter().cloned();
        let mut sum = parts.next().unwrap();
        parts.for_each(|part| sum.merge(part).unwrap());
        sum
    }

    #[test]
    fn a_merged_result_is_of_the_union_and_not_judged() {
        let sum = merged(&[part(500, 500, &[]), part(0, 200, &[]), part(200, 300, &[])]);
        assert_eq!(
            sum.populations[0].ranges,
            [IndexRange {
                first: 0,
                count: 1_000
            }]
        );
        assert_eq!(sum.populations[0].here(), 1_000);
        assert_eq!(sum.run.started_at, Timestamp::from_unix_ms(0));
        assert_eq!(sum.run.ended_at, Timestamp::from_unix_ms(90_500));
        assert_eq!((sum.run.hosts.len(), sum.notes.len()), (3, 3));
        assert_eq!((sum.generator.processes, sum.generator.cpu_us), (3, 1_000));
        assert_eq!(
            (sum.referees[0].judged, sum.referees[0].breaches),
            (1_000, 1_000)
        );
        assert_eq!(sum.referees[0].broken.len(), BREACHES_KEPT);
        assert_eq!(
            (sum.verdict, sum.exit_code, sum.expectations.len()),
            (Verdict::NoData, 5, 0)
        );
    }

    #[test]
    fn what_is_not_a_part_of_the_same_run_is_refused_and_changes_nothing() {
        type Change = fn(&mut RunResult);
        let rows: &[(Change, &str)] = &[
            (|r| r.run.scenario = "storm".to_owned(), "the scenario is"),
            (
                |r| r.run.scenario_sha256 = Sha256Hex::of(b"other"),
                "the scenario's hash is",
            ),
            (
                |r| r.run.seed = 8,
                "the seed is 7 in one and 8 in the other",
            ),
            (
                |r| r.run.window.from = Micros::ZERO,
                "the start of the window is",
            ),
            (
                |r| r.run.portal = Some("https://portal.example".to_owned()),
                "the portal is",
            ),
            (|r| r.run.versions.clear(), "the versions is"),
            (
                |r| r.populations[0].count = 7,
                "a population is 1000 agents",
            ),
            (|r| r.referees[0].owed = false, "a referee is 6 pace"),
            (
                |r| r.populations[0].ranges[0].first = 499,
                "population `nodes`: agents 499 to 499 are in both",
            ),
        ];
        for (change, text) in rows {
            let mut sum = part(0, 500, &[]);
            let before = sum.clone();
            let mut other = part(500, 500, &[]);
            change(&mut other);
            let error = sum.merge(other).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
            assert_eq!(sum, before);
        }
    }

    #[test]
    fn the_portals_counters_add_up_too() {
        let counters = |n| {
            let mut counters = PortalCounters::default();
            counters.received[Endpoint::Sync] = n;
            counters.answered[Endpoint::Sync][Outcome::Ok] = n;
            Some(counters)
        };
        let with = |first, portal| RunResult {
            portal,
            ..part(first, 10, &[])
        };
        let rows = [
            (counters(3), counters(4), counters(7)),
            (None, counters(4), counters(4)),
            (counters(3), None, counters(3)),
            (None, None, None),
        ];
        for (mine, theirs, sum) in rows {
            assert_eq!(merged(&[with(0, mine), with(10, theirs)]).portal, sum);
        }
    }

    #[test]
    fn an_account_that_does_not_add_up_is_found_in_the_result() {
        let mut result = part(0, 10, &[]);
        assert_eq!(result.account_errors(), []);
        result.account.planned(Endpoint::Sync);
        result.portal = Some(PortalCounters {
            received: [(Endpoint::Sync, 1)].into_iter().collect(),
            ..PortalCounters::default()
        });
        assert_eq!(result.account_errors().len(), 2);
    }

    #[test]
    fn a_file_of_another_schema_or_with_unknown_names_is_refused_with_words() {
        let text = part(0, 10, &[]).to_text();
        let newer = text.replacen("\"schema\":1", "\"schema\":2", 1);
        let error = RunResult::read(newer.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            error,
            "result file of schema 2, this version reads 1: use the version that wrote it"
        );
        let member = text.replacen("\"notes\":", "\"moods\":[1],\"notes\":", 1);
        assert!(RunResult::read(member.as_bytes()).is_ok());
        let endpoint = text.replacen("\"account\":{", "\"account\":{\"teleport\":{}", 1);
        let error = RunResult::read(endpoint.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains("unknown endpoint `teleport`"), "{error}");
        let typed = text.replacen("\"agents\":", "\"agents\":\"ten\",\"x\":", 1);
        let error = RunResult::read(typed.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "not a result file: fleet.agents: invalid type: string \"ten\", expected u64"
            ),
            "{error}"
        );
        assert!(RunResult::read(format!("{text}\n").as_bytes()).is_ok());
        assert!(RunResult::read(format!("{text}}}").as_bytes()).is_err());
        for broken in ["", "[]", "{}", "{\"schema\":1}", "\u{feff}{}"] {
            assert!(RunResult::read(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn the_schema_names_every_member_of_a_result() {
        let schema = schema();
        let described = schema.get("properties").unwrap().as_object().unwrap();
        let text = part(0, 10, &[]).to_text();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        for member in written.as_object().unwrap().keys() {
            assert!(described.contains_key(member), "{member}");
        }
    }

    /// Whether two results are the same text, told member by member: the whole text of one fills a screen.
    fn same(one: &RunResult, other: &RunResult) -> Result<(), TestCaseError> {
        let members = |result: &RunResult| -> serde_json::Map<String, serde_json::Value> {
            serde_json::from_str(&result.to_text()).unwrap()
        };
        let (one_members, other_members) = (members(one), members(other));
        for (name, value) in &one_members {
            prop_assert_eq!(Some(value), other_members.get(name), "{}", name);
        }
        prop_assert!(one.to_text() == other.to_text());
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        // case L23, L24: sixteen shards, merged in any order, are the run that was never split.
        #[test]
        fn shards_merged_in_any_order_are_the_whole(
            rows in prop::collection::vec((any_sample(), 0..16_usize), 0..80),
            order in Just((0..16_usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let of = |shard: Option<usize>| -> Vec<Sample> {
                let mine = rows.iter().filter(|(_, s)| shard.is_none_or(|shard| *s == shard));
                mine.map(|(sample, _)| *sample).collect()
            };
            let shards: Vec<RunResult> = (0..16)
                .map(|shard| part(shard as u64 * 10, 10, &of(Some(shard))))
                .collect();
            let shuffled: Vec<RunResult> = order.iter().map(|at| shards[*at].clone()).collect();
            let sum = merged(&shuffled);
            same(&sum, &merged(&shards))?;

            let whole = part(0, 160, &of(None));
            prop_assert_eq!(&sum.account, &whole.account);
            prop_assert_eq!(&sum.series, &whole.series);
            prop_assert_eq!(&sum.samples, &whole.samples);
            prop_assert_eq!(&sum.figures.endpoints, &whole.figures.endpoints);
            prop_assert_eq!(&sum.figures.peak, &whole.figures.peak);
            prop_assert_eq!(&sum.populations, &whole.populations);

            let read = RunResult::read(sum.to_text().as_bytes()).unwrap();
            same(&read, &sum)?;
        }
    }
}
