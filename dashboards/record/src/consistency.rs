//! Whether a result agrees with itself: what was added up is the sum, and the verdict is one that the rest can have.
//!
//! A result file can come from anybody, and a run of this program writes none that contradicts itself. What follows from
//! the scenario alone (limits of the generator, what may be empty) is not asked here.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::account::Line;
use crate::figures::Figures;
use crate::judgement::Judgement;
use crate::label::Label as _;
use crate::outcome::{Class, Outcome};
use crate::result::{PopulationPart, RefereeReport, RunResult};
use crate::series::BUCKETS_MAX;
use crate::verdict::{Exit, ORDER, Verdict};

/// No run counts further, and sums of less do not wrap around. Numbers up to it are the same in every reader of JSON.
pub const COUNT_MAX: u64 = 1 << 53;

/// Where a result contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The member, as `figures.endpoints.sync.ended`.
    pub field: String,
    /// What it says, and what it should.
    pub what: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)
    }
}

/// Everything about a result that cannot be true at once.
pub(crate) fn contradictions(result: &RunResult) -> Vec<Contradiction> {
    let mut found = Found::default();
    found.more_than_counts(result);
    if found.0.is_empty() {
        found.sums(result);
        found.figures(result);
        for (at, judgement) in result.expectations.iter().enumerate() {
            found.judgement(at, judgement);
        }
        for (at, referee) in result.referees.iter().enumerate() {
            found.referee(at, referee);
        }
        for (at, population) in result.populations.iter().enumerate() {
            found.population(at, population);
        }
        found.verdict(result);
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Contradiction>);

impl Found {
    fn push(&mut self, field: impl Into<String>, what: impl Into<String>) {
        self.0.push(Contradiction {
            field: field.into(),
            what: what.into(),
        });
    }

    /// Whatever is counted is small enough to be added up. Chance begins at any number.
    fn more_than_counts(&mut self, result: &RunResult) {
        let mut file = to_json(result);
        file["run"]["seed"] = Value::Null;
        self.more_than_counts_in(&mut String::new(), &file);
        let (len, kept) = (result.series.len(), result.series.kept());
        if len > BUCKETS_MAX || kept > len {
            let what =
                format!("it says {len}, but {kept} are there; at most {BUCKETS_MAX} are kept");
            self.push("series.len", what);
        }
    }

    fn more_than_counts_in(&mut self, path: &mut String, value: &Value) {
        let before = path.len();
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    push_member(path, name);
                    self.more_than_counts_in(path, member);
                    path.truncate(before);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    path.push_str(&format!("[{at}]"));
                    self.more_than_counts_in(path, item);
                    path.truncate(before);
                }
            }
            Value::Number(number) if number.as_u64().is_some_and(|n| n > COUNT_MAX) => {
                let what = format!("{number} is more than any run counts, {COUNT_MAX}");
                self.push(path.clone(), what);
            }
            _ => {}
        }
    }

    /// What is kept by the second, and what is kept inside the window, against the account of the whole run.
    fn sums(&mut self, result: &RunResult) {
        let (series, samples) = (&result.series, &result.samples);
        let buckets = 0..series.len();
        for (endpoint, line) in result.account.lines() {
            let sum = |in_bucket: &dyn Fn(usize) -> u64| -> u128 {
                buckets.clone().map(|at| u128::from(in_bucket(at))).sum()
            };
            let planned = sum(&|at| series.planned_in(at, endpoint));
            self.sum("planned", endpoint, planned, line.planned);
            let started = sum(&|at| series.started_in(at, endpoint));
            self.sum("started", endpoint, started, line.started);
            for (outcome, count) in line.ended.iter() {
                if series.knows_ends() {
                    let ended = sum(&|at| series.ended_in(at, endpoint, outcome));
                    let field = format!("ended.{endpoint}");
                    self.sum(&field, outcome, ended, *count);
                }
                let inside = samples.count(endpoint, outcome);
                if inside > *count {
                    self.push(
                        format!("samples.cells.{endpoint}.{outcome}.count"),
                        format!(
                            "{inside} ended so inside the window, but {count} in the whole run"
                        ),
                    );
                }
            }
        }
        for (endpoint, outcome, cell) in samples.cells() {
            let field = format!("samples.cells.{endpoint}.{outcome}");
            let (response, service) = (cell.response.count(), cell.service.count());
            if outcome != Outcome::Aborted && response != cell.count {
                let what = format!("it has {response} durations, but {} ended so", cell.count);
                self.push(format!("{field}.response"), what);
            }
            if service > cell.count {
                let what = format!("it has {service} durations, but {} ended so", cell.count);
                self.push(format!("{field}.service"), what);
            }
        }
        let fleet = &result.fleet;
        if fleet.enrolled > fleet.agents {
            let what = format!("{} of {} agents", fleet.enrolled, fleet.agents);
            self.push("fleet.enrolled", what);
        }
        let window = result.run.window;
        if window.from > window.until {
            let what = format!("it begins at {} and ends at {}", window.from, window.until);
            self.push("run.window", what);
        }
    }

    fn sum(&mut self, column: &str, label: impl fmt::Display, sum: u128, whole: u64) {
        if sum != u128::from(whole) {
            self.push(
                format!("series.{column}.{label}"),
                format!("the seconds add up to {sum}, but the account says {whole}"),
            );
        }
    }

    /// What was computed from what was counted. Another version may have computed it otherwise.
    fn figures(&mut self, result: &RunResult) {
        let version = result.run.versions.get("loadgen").map(String::as_str);
        if version != Some(env!("CARGO_PKG_VERSION")) {
            return;
        }
        let due = Figures::of(
            result.run.window,
            &result.series,
            &result.samples,
            &result.fleet,
        );
        if due != result.figures {
            let mut path = "figures".to_owned();
            self.differs(&mut path, &to_json(&result.figures), &to_json(&due));
        }
    }

    fn differs(&mut self, path: &mut String, says: &Value, due: &Value) {
        let before = path.len();
        match (says, due) {
            (Value::Object(says), Value::Object(due)) => {
                let mut names: Vec<&String> = says.keys().chain(due.keys()).collect();
                names.sort_unstable();
                names.dedup();
                for name in names {
                    push_member(path, name);
                    let of = |object: &serde_json::Map<String, Value>| {
                        object.get(name).cloned().unwrap_or_default()
                    };
                    self.differs(path, &of(says), &of(due));
                    path.truncate(before);
                }
            }
            (says, due) if says == due => {}
            (says, due) => {
                let what = format!("it says {says}, but what was counted comes to {due}");
                self.push(path.clone(), what);
            }
        }
    }

    fn judgement(&mut self, at: usize, judgement: &Judgement) {
        let (bound, verdict) = (&judgement.bound, judgement.verdict);
        let due = bound.verdict(judgement.figure);
        if due != verdict {
            let figure = match judgement.figure {
                Some(figure) => figure.to_string(),
                None => "nothing".to_owned(),
            };
            self.push(
                format!("expectations[{at}].verdict"),
                format!("it says `{verdict}`, but {figure} for {bound} is `{due}`"),
            );
        }
    }

    fn referee(&mut self, at: usize, referee: &RefereeReport) {
        let told = referee.broken.len();
        if told as u64 > referee.breaches {
            self.push(
                format!("referees[{at}].breaches"),
                format!("it says {}, but {told} are told", referee.breaches),
            );
        }
    }

    fn population(&mut self, at: usize, population: &PopulationPart) {
        let here: u128 = population.ranges.iter().map(|r| u128::from(r.count)).sum();
        let count = population.count;
        let is_beyond = population.ranges.iter().any(|range| range.end() > count);
        if is_beyond || here > u128::from(count) {
            let what = format!("they are of more agents than the population has, {count}");
            self.push(format!("populations[{at}].ranges"), what);
        }
    }

    /// The exit code against everything that it is made from.
    fn verdict(&mut self, result: &RunResult) {
        let (code, verdict) = (result.exit_code, result.verdict);
        let mut exits = Exit::ALL.iter();
        let Some(exit) = exits.find(|exit| exit.code() == code && exit.verdict().is_some()) else {
            self.push("exit_code", format!("no run ends with {code}"));
            return;
        };
        if exit.verdict() != Some(verdict) {
            let due = exit.verdict().map_or("none", Verdict::label);
            let what = format!("it says `{verdict}`, but exit code {code} is `{due}`");
            self.push("verdict", what);
            return;
        }
        if result.is_unjudged() {
            return;
        }
        let rank = |exit: &Exit| ORDER.iter().position(|one| one == exit);
        let rank = |exit: &Exit| rank(exit).unwrap_or(ORDER.len());
        for (due, why) in facts(result) {
            if rank(exit) > rank(&due) {
                let what = format!("it says {code}, but {why}, which is {}", due.code());
                self.push("exit_code", what);
            }
        }
        if let Some(missing) = missing(*exit, result) {
            self.push("exit_code", format!("it says {code}, but {missing}"));
        }
    }
}

/// What is in the result that ends a run with this exit code, or one that counts more.
fn facts(result: &RunResult) -> Vec<(Exit, String)> {
    let mut facts = Vec::new();
    let mut fact = |exit, holds: bool, why: &str| {
        if holds {
            facts.push((exit, why.to_owned()));
        }
    };
    fact(Exit::Interrupted, result.interrupted, "it was interrupted");
    fact(
        Exit::Preflight,
        is_unanswered(&result.account.total()),
        "no request was answered",
    );
    fact(
        Exit::NotHeld,
        has_judged(result, Verdict::Fail),
        "an expectation failed",
    );
    fact(
        Exit::NothingToJudge,
        is_unrefereed(result),
        "a referee that is owed judged nothing",
    );
    let broken = why_broken(result).map(|why| (Exit::Broken, why));
    facts.extend(broken);
    facts
}

/// What must be in a result of this exit code, and is not.
fn missing(exit: Exit, result: &RunResult) -> Option<&'static str> {
    let (holds, missing) = match exit {
        Exit::Interrupted => (result.interrupted, "it was not interrupted"),
        Exit::Broken => (why_broken(result).is_some(), "nothing in it is broken"),
        Exit::NotHeld => (has_judged(result, Verdict::Fail), "no expectation failed"),
        Exit::NothingToJudge => (
            is_unrefereed(result) || has_judged(result, Verdict::NoData),
            "everything in it was judged",
        ),
        Exit::Preflight => (
            is_unanswered(&result.account.total()),
            "the portal has answered",
        ),
        // Only the scenario says how much the generator may be late.
        Exit::Held | Exit::Overloaded | Exit::Usage => (true, ""),
    };
    (!holds).then_some(missing)
}

fn has_judged(result: &RunResult, verdict: Verdict) -> bool {
    let mut judgements = result.expectations.iter();
    judgements.any(|judgement| judgement.verdict == verdict)
}

fn is_unanswered(total: &Line) -> bool {
    total.started > 0 && total.of(Class::Answered) == 0
}

fn is_unrefereed(result: &RunResult) -> bool {
    let mut owed = result.referees.iter().filter(|referee| referee.owed);
    owed.any(|referee| referee.judged == 0)
}

/// An invariant that broke.
fn why_broken(result: &RunResult) -> Option<String> {
    if let Some(error) = result.account_errors().first() {
        return Some(format!("its account does not add up ({error})"));
    }
    let mut referees = result.referees.iter();
    if let Some(referee) = referees.find(|referee| referee.breaches > 0) {
        return Some(format!("referee {} saw a breach", referee.number));
    }
    let duplicates = result.fleet.duplicate_identities;
    (duplicates > 0).then(|| "an identity is there twice".to_owned())
}

fn push_member(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn to_json(part: &impl Serialize) -> Value {
    serde_json::to_value(part).expect("a result holds only what JSON can say")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ReadError;
    use crate::result::tests::judged;

    fn read(file: &Value) -> Result<RunResult, ReadError> {
        RunResult::read(file.to_string().as_bytes())
    }

    #[test]
    fn a_result_of_a_run_agrees_with_itself() {
        let result = judged();
        assert_eq!(contradictions(&result), []);
        assert_eq!(read(&to_json(&result)).unwrap(), result);
    }

    #[test]
    fn what_contradicts_the_rest_is_told_by_field() {
        let rows: &[(&str, Value, &str)] = &[
            ("/exit_code", 7.into(), "exit_code: no run ends with 7"),
            ("/exit_code", 2.into(), "exit_code: no run ends with 2"),
            (
                "/verdict",
                "fail".into(),
                "verdict: it says `fail`, but exit code 0 is `pass`",
            ),
            (
                "/interrupted",
                true.into(),
                "exit_code: it says 0, but it was interrupted, which is 130",
            ),
            (
                "/referees/0/judged",
                0.into(),
                "exit_code: it says 0, but a referee that is owed judged nothing, which is 5",
            ),
            (
                "/referees/0/breaches",
                3.into(),
                "exit_code: it says 0, but referee 6 saw a breach, which is 6",
            ),
            (
                "/fleet/duplicate_identities",
                1.into(),
                "exit_code: it says 0, but an identity is there twice, which is 6",
            ),
            (
                "/expectations/0/figure/value",
                9.into(),
                "expectations[0].verdict: it says `pass`, but 9 for exactly 10 is `fail`",
            ),
            (
                "/expectations/0/figure",
                Value::Null,
                "expectations[0].verdict: it says `pass`, but nothing for exactly 10 is `no_data`",
            ),
            (
                "/account/sync/planned",
                9.into(),
                "series.planned.sync: the seconds add up to 8, but the account says 9",
            ),
            (
                "/account/sync/ended/ok",
                3.into(),
                "samples.cells.sync.ok.count: 8 ended so inside the window, but 3 in the whole run",
            ),
            (
                "/account/sync/planned",
                u64::MAX.into(),
                "account.sync.planned: 18446744073709551615 is more than any run counts, 9007199254740992",
            ),
            (
                "/series/planned/sync/11",
                u64::MAX.into(),
                "series.planned.sync[11]: 18446744073709551615 is more than any run counts, 9007199254740992",
            ),
            (
                "/series/len",
                4_000_000.into(),
                "series.len: it says 4000000, but 12 are there; at most 7200 are kept",
            ),
            (
                "/samples/cells/sync/ok/count",
                5.into(),
                "samples.cells.sync.ok.response: it has 8 durations, but 5 ended so",
            ),
            (
                "/figures/endpoints/sync/successes",
                7.into(),
                "figures.endpoints.sync.successes: it says 7, but what was counted comes to 8",
            ),
            (
                "/figures/lateness/p99",
                1.into(),
                "figures.lateness.p99: it says 1, but what was counted comes to 2000",
            ),
            (
                "/fleet/enrolled",
                1_000.into(),
                "fleet.enrolled: 1000 of 11 agents",
            ),
            (
                "/populations/0/ranges/0/count",
                2_000.into(),
                "populations[0].ranges: they are of more agents than the population has, 1000",
            ),
            (
                "/run/window/until",
                0.into(),
                "run.window: it begins at 10 s and ends at 0 s",
            ),
        ];
        for (member, value, says) in rows {
            let mut file = to_json(&judged());
            let place = file.pointer_mut(member);
            *place.unwrap_or_else(|| panic!("{member}")) = value.clone();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains(says), "{member}: {error}");
        }
    }

    // An exit code needs its reason: whoever writes a failure into a file has to say of what.
    #[test]
    fn an_exit_code_without_what_it_is_for_is_told() {
        let rows = [
            (1, "fail", "no expectation failed"),
            (4, "aborted", "the portal has answered"),
            (5, "no_data", "everything in it was judged"),
            (6, "fail", "nothing in it is broken"),
            (130, "aborted", "it was not interrupted"),
        ];
        for (code, verdict, says) in rows {
            let mut file = to_json(&judged());
            file["exit_code"] = code.into();
            file["verdict"] = verdict.into();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.ends_with(says), "{code}: {error}");
        }
    }

    // Figures may be reckoned otherwise by another version, and are its word.
    #[test]
    fn figures_of_another_version_are_believed() {
        let mut file = to_json(&judged());
        file["figures"]["lateness"]["p99"] = 1.into();
        file["run"]["versions"]["loadgen"] = "0.0.9".into();
        assert_eq!(read(&file).unwrap().figures.lateness.unwrap().p99.0, 1);
    }
}
