//! What is expected of a run, and judging it.
//!
//! Each expectation is judged over a finished run, or over one that still goes on, by a pure function of what was
//! counted. Without data there is no pass: an expectation of something that never happened is `no_data`, and fails the
//! run unless it says `allow_empty`. Shares, rates and durations are of the window, warm-up excluded; counts and the
//! fleet's figures are of the whole run, since they answer "how many" and must agree with the account.

use std::time::Duration;

use serde_json::{Value, json};
use toml::de::DeValue;

use protocol::endpoint::Endpoint;
use protocol::pbx::operation::OperationKind;
use record::account::Account;
use record::figures::Figures;
use record::fleet::{Fleet, Kind, OperationEnd};
use record::histogram::Histogram;
use record::judgement::{Bound, Judgement, Quantity, grouped};
use record::micros::{Micros, Window};
use record::outcome::{Class, Outcome};
use record::result::RunResult;
use record::samples::Samples;
use record::verdict::Verdict;

use crate::form::leaf::{Count, Percentile, Word, a_word, word};
use crate::form::{At, Node, Reader, Slot, Written, listed};
use crate::mistake::{shown, suggest};
use crate::share::Share;
use crate::written;

/// Something that is expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// What.
    pub expected: Expected,
    /// Whether it is no fault when there is nothing to judge.
    pub allow_empty: bool,
}

/// What can be expected.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// A percentile of a duration is at most so long.
    Latency {
        /// Which of the four times.
        of: Time,
        /// Of service and response: whose; of all endpoints if none is named.
        endpoint: Option<Endpoint>,
        /// Of service and response: of requests that ended so.
        outcome: Outcome,
        /// The percentile, above 0 and at most 100.
        percentile: f64,
        /// The longest it may be.
        at_most: Duration,
    },
    /// So many requests ended in some way, over the whole run.
    Count {
        /// Whose; of all endpoints if none is named.
        endpoint: Option<Endpoint>,
        /// How they ended.
        outcome: Outcome,
        /// How many.
        limit: Limit<u64>,
    },
    /// Such a share of an endpoint's requests ended in some way.
    Share {
        /// Whose.
        endpoint: Endpoint,
        /// How they ended.
        outcome: Outcome,
        /// Which share.
        limit: Limit<Share>,
    },
    /// So many successes a second.
    Throughput {
        /// Whose.
        endpoint: Endpoint,
        /// How many a second.
        limit: Limit<f64>,
    },
    /// So many agents are enrolled at the end.
    Enrolled {
        /// How many.
        limit: Limit<Headcount>,
    },
    /// Such a share of the agents has a document within such a time of its being set.
    Convergence {
        /// Which share.
        share: Share,
        /// Within which time.
        within: Duration,
    },
    /// Agents are at most so long without a successful sync.
    Staleness {
        /// The percentile of the gaps.
        percentile: f64,
        /// The longest it may be.
        at_most: Duration,
    },
    /// At most such a part of the expected syncs is missing.
    SyncDeficit {
        /// Which part.
        at_most: Share,
    },
    /// So many operations of a kind stand so at the end.
    Operations {
        /// Which kind.
        kind: OperationKind,
        /// In which state.
        state: OperationEnd,
        /// How many.
        limit: Limit<Headcount>,
    },
    /// The busiest second is at most so many times the mean one.
    Peak {
        /// How many times.
        at_most: f64,
    },
    /// There are at most so many identities beyond one an agent.
    DuplicateIdentities {
        /// How many.
        at_most: u64,
    },
}

/// One of the four times, which are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Due → started: the generator's.
    Lateness,
    /// Name, TCP and TLS.
    Connect,
    /// First byte out → last byte in.
    Service,
    /// Due → last byte in.
    Response,
}

/// A limit on a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit<T> {
    /// No less.
    AtLeast(T),
    /// No more.
    AtMost(T),
    /// Just that.
    Exactly(T),
}

/// A number of members of a whole that is only known at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headcount {
    /// All of them.
    All,
    /// So many.
    Count(u64),
}

/// What a run has shown so far.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The part of the run that is judged.
    pub window: Window,
    /// Where every request went.
    pub account: &'a Account,
    /// Durations, inside the window.
    pub samples: &'a Samples,
    /// What the fleet went through.
    pub fleet: &'a Fleet,
    /// What follows from all that.
    pub figures: &'a Figures,
}

impl<'a> From<&'a RunResult> for Evidence<'a> {
    fn from(result: &'a RunResult) -> Self {
        Evidence {
            window: result.run.window,
            account: &result.account,
            samples: &result.samples,
            fleet: &result.fleet,
            figures: &result.figures,
        }
    }
}

impl Expectation {
    /// Judges it: `pass`, `fail`, or `no_data` where there is nothing to judge, `allow_empty` or not.
    pub fn judge(&self, evidence: &Evidence<'_>) -> Judgement {
        let (figure, bound) = self.expected.measure(evidence);
        Judgement {
            text: self.expected.text(),
            verdict: bound.verdict(figure),
            figure,
            of: figure.and_then(|_| self.expected.whole(evidence)),
            bound,
            place: self.expected.place(evidence.window),
        }
    }

    /// Judges it while the run goes on: what only the end can tell is `so_far`, whatever the figure is by now.
    pub fn judge_so_far(&self, evidence: &Evidence<'_>) -> Judgement {
        let mut judgement = self.judge(evidence);
        if self.expected.is_open_until_the_end() {
            judgement.verdict = Verdict::SoFar;
        }
        if !self.expected.is_of_the_window() {
            judgement.place = "so far".to_owned();
        }
        judgement
    }

    pub(crate) fn from_written(
        written: written::Expect,
        place: &At<()>,
        reader: &mut Reader,
    ) -> Option<Self> {
        use written::Expect as W;
        let allow_empty = match &written {
            W::Latency(w) => &w.allow_empty,
            W::Count(w) => &w.allow_empty,
            W::Share(w) => &w.allow_empty,
            W::Throughput(w) => &w.allow_empty,
            W::Enrolled(w) => &w.allow_empty,
            W::Convergence(w) => &w.allow_empty,
            W::Staleness(w) => &w.allow_empty,
            W::SyncDeficit(w) => &w.allow_empty,
            W::Operations(w) => &w.allow_empty,
            W::Peak(w) => &w.allow_empty,
            W::DuplicateIdentities(w) => &w.allow_empty,
        };
        let allow_empty = allow_empty.clone().or(false);
        Some(Expectation {
            expected: Expected::from_written(written, place, reader)?,
            allow_empty: allow_empty?,
        })
    }
}

impl Expected {
    fn from_written(written: written::Expect, place: &At<()>, reader: &mut Reader) -> Option<Self> {
        use written::Expect as W;
        Some(match written {
            W::Latency(w) => {
                check_latency(&w, reader);
                Expected::Latency {
                    of: w.of.value()?,
                    endpoint: w.endpoint.optional()?,
                    outcome: w.outcome.or(Outcome::Ok)?,
                    percentile: w.quantile.value()?.0,
                    at_most: w.at_most.value()?.0,
                }
            }
            W::Count(w) => {
                let limit = limit(
                    place,
                    Some(w.at_least),
                    Some(w.at_most),
                    Some(w.exactly),
                    reader,
                );
                Expected::Count {
                    endpoint: w.endpoint.optional()?,
                    outcome: w.outcome.value()?,
                    limit: limit?.map(Count::get),
                }
            }
            W::Share(w) => {
                let limit = limit(place, Some(w.at_least), Some(w.at_most), None, reader);
                Expected::Share {
                    endpoint: w.endpoint.value()?,
                    outcome: w.outcome.value()?,
                    limit: limit?,
                }
            }
            W::Throughput(w) => {
                let limit = limit(place, Some(w.at_least), Some(w.at_most), None, reader);
                Expected::Throughput {
                    endpoint: w.endpoint.value()?,
                    limit: limit?.map(|rate| rate.0),
                }
            }
            W::Enrolled(w) => Expected::Enrolled {
                limit: limit(place, Some(w.at_least), None, Some(w.exactly), reader)?,
            },
            W::Convergence(w) => Expected::Convergence {
                share: w.share.value()?,
                within: w.within.value()?.0,
            },
            W::Staleness(w) => Expected::Staleness {
                percentile: w.quantile.or(Percentile(100.0))?.0,
                at_most: w.at_most.value()?.0,
            },
            W::SyncDeficit(w) => Expected::SyncDeficit {
                at_most: w.at_most.value()?,
            },
            W::Operations(w) => {
                let w = *w;
                let limit = limit(
                    place,
                    Some(w.at_least),
                    Some(w.at_most),
                    Some(w.exactly),
                    reader,
                );
                Expected::Operations {
                    kind: w.kind.value()?,
                    state: w.state.value()?,
                    limit: limit?,
                }
            }
            W::Peak(w) => Expected::Peak {
                at_most: w.at_most.value()?.0,
            },
            W::DuplicateIdentities(w) => Expected::DuplicateIdentities {
                at_most: w.at_most.value()?.get(),
            },
        })
    }

    /// The figure, none without data, and the bound it is held against.
    fn measure(&self, evidence: &Evidence<'_>) -> (Option<Quantity>, Bound) {
        match self {
            Expected::Latency {
                of,
                endpoint,
                outcome,
                percentile,
                at_most,
            } => {
                let limit = Micros::from(*at_most);
                let durations = durations(evidence.samples, *of, *endpoint, *outcome);
                let figure = percentile_against(&durations, *percentile, limit);
                (
                    figure.map(Quantity::Micros),
                    Bound::AtMost(Quantity::Micros(limit)),
                )
            }
            Expected::Count {
                endpoint,
                outcome,
                limit,
            } => {
                let line = match endpoint {
                    Some(endpoint) => evidence.account.line(*endpoint).clone(),
                    None => evidence.account.total(),
                };
                // "None of these" is only shown where some could have come.
                let figure = (line.started > 0).then(|| Quantity::Count(line.ended[*outcome]));
                (figure, limit.map(Quantity::Count).bound())
            }
            Expected::Share {
                endpoint,
                outcome,
                limit,
            } => {
                let ended: u64 = evidence
                    .samples
                    .cells()
                    .filter(|(e, o, _)| e == endpoint && o.class() != Class::Aborted)
                    .map(|(_, _, cell)| cell.count)
                    .sum();
                let of_them = evidence.samples.count(*endpoint, *outcome);
                let figure = (ended > 0).then(|| Quantity::Share(of_them as f64 / ended as f64));
                (figure, limit.map(|s| Quantity::Share(s.get())).bound())
            }
            Expected::Throughput { endpoint, limit } => {
                let rate = evidence.figures.endpoints[*endpoint].successes_per_second;
                (
                    rate.map(Quantity::PerSecond),
                    limit.map(Quantity::PerSecond).bound(),
                )
            }
            Expected::Enrolled { limit } => {
                let agents = evidence.fleet.agents;
                let figure = (agents > 0).then_some(Quantity::Count(evidence.fleet.enrolled));
                (figure, limit.map(|h| Quantity::Count(h.of(agents))).bound())
            }
            Expected::Convergence { share, within } => {
                let reached = evidence.fleet.convergence.share_within((*within).into());
                (
                    reached.map(Quantity::Share),
                    Bound::AtLeast(Quantity::Share(share.get())),
                )
            }
            Expected::Staleness {
                percentile,
                at_most,
            } => {
                let limit = Micros::from(*at_most);
                let figure = evidence.fleet.staleness.quantile(percentile / 100.0);
                (
                    figure.map(Quantity::Micros),
                    Bound::AtMost(Quantity::Micros(limit)),
                )
            }
            Expected::SyncDeficit { at_most } => {
                let deficit = evidence.figures.sync_deficit;
                (
                    deficit.map(|deficit| Quantity::Share(deficit.share)),
                    Bound::AtMost(Quantity::Share(at_most.get())),
                )
            }
            Expected::Operations { kind, state, limit } => {
                let stand = &evidence.fleet.operations[Kind::from(kind)];
                let handed_out = stand.total();
                let figure = (handed_out > 0).then(|| Quantity::Count(stand[*state]));
                (
                    figure,
                    limit.map(|h| Quantity::Count(h.of(handed_out))).bound(),
                )
            }
            Expected::Peak { at_most } => {
                let peak = evidence.figures.peak;
                (
                    peak.map(|peak| Quantity::Ratio(peak.ratio)),
                    Bound::AtMost(Quantity::Ratio(*at_most)),
                )
            }
            Expected::DuplicateIdentities { at_most } => {
                let fleet = evidence.fleet;
                let figure =
                    (fleet.enrolled > 0).then_some(Quantity::Count(fleet.duplicate_identities));
                (figure, Bound::AtMost(Quantity::Count(*at_most)))
            }
        }
    }

    /// Of how many its figure is a part.
    fn whole(&self, evidence: &Evidence<'_>) -> Option<u64> {
        match self {
            Expected::Enrolled { .. } => Some(evidence.fleet.agents),
            Expected::Operations { kind, .. } => {
                Some(evidence.fleet.operations[Kind::from(kind)].total())
            }
            _ => None,
        }
    }

    /// Whether what has not come yet may still come: it is no failure before the end, nor does it hold before.
    fn is_open_until_the_end(&self) -> bool {
        match self {
            Expected::Enrolled { .. } | Expected::Convergence { .. } => true,
            Expected::Count { limit, .. } => !matches!(limit, Limit::AtMost(_)),
            Expected::Operations { limit, .. } => !matches!(limit, Limit::AtMost(_)),
            Expected::Latency { .. }
            | Expected::Share { .. }
            | Expected::Throughput { .. }
            | Expected::Staleness { .. }
            | Expected::SyncDeficit { .. }
            | Expected::Peak { .. }
            | Expected::DuplicateIdentities { .. } => false,
        }
    }

    /// As a person would say it.
    pub fn text(&self) -> String {
        match self {
            Expected::Latency {
                of,
                endpoint,
                outcome,
                percentile,
                at_most,
            } => {
                let at_most = Micros::from(*at_most);
                let requests = requests(*endpoint);
                match of {
                    Time::Lateness => {
                        format!("{percentile} % of requests start at most {at_most} late")
                    }
                    Time::Connect => {
                        format!("{percentile} % of connections are made within {at_most}")
                    }
                    Time::Service => {
                        format!(
                            "{percentile} % of {requests} end `{outcome}` within {at_most} of being sent"
                        )
                    }
                    Time::Response => {
                        format!(
                            "{percentile} % of {requests} that end `{outcome}` do within {at_most} of being due"
                        )
                    }
                }
            }
            Expected::Count {
                endpoint,
                outcome,
                limit,
            } => {
                let how_many = limit.said(|count| grouped(*count));
                format!("{how_many} {} end `{outcome}`", requests(*endpoint))
            }
            Expected::Share {
                endpoint,
                outcome,
                limit,
            } => {
                let how_many = limit.said(ToString::to_string);
                format!(
                    "{how_many} of {} end `{outcome}`",
                    requests(Some(*endpoint))
                )
            }
            Expected::Throughput { endpoint, limit } => {
                let how_many = limit.said(|rate| Quantity::PerSecond(*rate).to_string());
                format!("{how_many} of {} succeed", requests(Some(*endpoint)))
            }
            Expected::Enrolled { limit } => format!("{} agents are enrolled", limit.heads()),
            Expected::Convergence { share, within } => {
                let within = Micros::from(*within);
                format!("{share} of the agents have a new document within {within}")
            }
            Expected::Staleness {
                percentile,
                at_most,
            } => {
                let at_most = Micros::from(*at_most);
                match *percentile >= 100.0 {
                    true => format!("no agent is longer than {at_most} without a successful sync"),
                    false => format!(
                        "{percentile} % of the gaps between successful syncs are at most {at_most}"
                    ),
                }
            }
            Expected::SyncDeficit { at_most } => {
                format!("at most {at_most} of the expected syncs are missing")
            }
            Expected::Operations { kind, state, limit } => {
                format!("{} `{kind}` operations end as `{state}`", limit.heads())
            }
            Expected::Peak { at_most } => {
                let ratio = Quantity::Ratio(*at_most);
                format!("the busiest second is at most {ratio} the mean one")
            }
            Expected::DuplicateIdentities { at_most: 0 } => {
                "no agent has an identity too many".to_owned()
            }
            Expected::DuplicateIdentities { at_most } => {
                format!("at most {} identities are one too many", grouped(*at_most))
            }
        }
    }

    /// Which part of the run the figure is of.
    fn place(&self, window: Window) -> String {
        match self {
            _ if self.is_of_the_window() => format!("{} to {}", window.from, window.until),
            Expected::Enrolled { .. }
            | Expected::Operations { .. }
            | Expected::DuplicateIdentities { .. } => "at the end".to_owned(),
            _ => "whole run".to_owned(),
        }
    }

    /// Whether the warm-up is not in its figure.
    fn is_of_the_window(&self) -> bool {
        match self {
            Expected::Latency { .. }
            | Expected::Share { .. }
            | Expected::Throughput { .. }
            | Expected::SyncDeficit { .. }
            | Expected::Peak { .. } => true,
            Expected::Count { .. }
            | Expected::Convergence { .. }
            | Expected::Staleness { .. }
            | Expected::Enrolled { .. }
            | Expected::Operations { .. }
            | Expected::DuplicateIdentities { .. } => false,
        }
    }
}

impl<T> Limit<T> {
    /// The same limit on something else.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Limit<U> {
        match self {
            Limit::AtLeast(limit) => Limit::AtLeast(change(limit)),
            Limit::AtMost(limit) => Limit::AtMost(change(limit)),
            Limit::Exactly(limit) => Limit::Exactly(change(limit)),
        }
    }

    fn said(&self, say: impl Fn(&T) -> String) -> String {
        match self {
            Limit::AtLeast(limit) => format!("at least {}", say(limit)),
            Limit::AtMost(limit) => format!("at most {}", say(limit)),
            Limit::Exactly(limit) => format!("exactly {}", say(limit)),
        }
    }
}

impl Limit<Quantity> {
    fn bound(self) -> Bound {
        match self {
            Limit::AtLeast(limit) => Bound::AtLeast(limit),
            Limit::AtMost(limit) => Bound::AtMost(limit),
            Limit::Exactly(limit) => Bound::Exactly(limit),
        }
    }
}

impl Limit<Headcount> {
    fn heads(&self) -> String {
        match self {
            Limit::AtLeast(Headcount::All) | Limit::Exactly(Headcount::All) => "all".to_owned(),
            Limit::AtMost(Headcount::All) => "any number of".to_owned(),
            limit => limit.said(|head| match head {
                Headcount::All => "all".to_owned(),
                Headcount::Count(count) => grouped(*count),
            }),
        }
    }
}

impl Headcount {
    /// How many that are of a whole.
    pub const fn of(self, whole: u64) -> u64 {
        match self {
            Headcount::All => whole,
            Headcount::Count(count) => count,
        }
    }
}

fn requests(endpoint: Option<Endpoint>) -> String {
    match endpoint {
        Some(endpoint) => format!("{} requests", endpoint.label()),
        None => "requests".to_owned(),
    }
}

/// The durations that an expectation is about.
fn durations(
    samples: &Samples,
    of: Time,
    endpoint: Option<Endpoint>,
    outcome: Outcome,
) -> Histogram {
    match of {
        Time::Lateness => samples.lateness.clone(),
        Time::Connect => {
            let mut all = samples.connections.full.clone();
            all.add(&samples.connections.resumed);
            all
        }
        Time::Service | Time::Response => {
            let mut all = Histogram::new();
            let cells = samples.cells().filter(|(e, o, _)| {
                endpoint.is_none_or(|endpoint| *e == endpoint) && *o == outcome
            });
            for (_, _, cell) in cells {
                all.add(match of {
                    Time::Service => &cell.service,
                    Time::Lateness | Time::Connect | Time::Response => &cell.response,
                });
            }
            all
        }
    }
}

/// A percentile; one that keeps the limit is never told as longer than it, although a histogram rounds up in its third
/// digit.
fn percentile_against(durations: &Histogram, percentile: f64, limit: Micros) -> Option<Micros> {
    let figure = durations.quantile(percentile / 100.0)?;
    let due = (durations.count() as f64 * (percentile / 100.0)).ceil() as u64;
    match durations.count_within(limit) >= due {
        true => Some(figure.min(limit)),
        false => Some(figure),
    }
}

/// Tells members that say nothing for the time that is meant.
fn check_latency(written: &written::Latency, reader: &mut Reader) {
    let Some(At {
        value: Time::Lateness | Time::Connect,
        ..
    }) = written.of.good()
    else {
        return;
    };
    let endpoint = written.endpoint.good().map(At::place);
    let outcome = written.outcome.good().map(At::place);
    for place in endpoint.into_iter().chain(outcome) {
        let what =
            "says nothing here: lateness is the generator's, a connection is made for no endpoint";
        reader.unfit(&place, what, None);
    }
}

/// The one limit of several that is written; none where the expectation has no such key.
fn limit<T>(
    place: &At<()>,
    at_least: Option<Slot<T>>,
    at_most: Option<Slot<T>>,
    exactly: Option<Slot<T>>,
    reader: &mut Reader,
) -> Option<Limit<T>> {
    type Make<T> = fn(T) -> Limit<T>;
    let keys = [
        ("at_least", at_least, Limit::AtLeast as Make<T>),
        ("at_most", at_most, Limit::AtMost),
        ("exactly", exactly, Limit::Exactly),
    ];
    let keys: Vec<_> = keys
        .into_iter()
        .filter_map(|(key, slot, make)| Some((key, slot?, make)))
        .collect();
    if keys.iter().any(|(_, slot, _)| slot.is_bad()) {
        return None;
    }
    let due: Vec<&str> = keys.iter().map(|(key, ..)| *key).collect();
    let mut written = keys
        .into_iter()
        .filter_map(|(_, slot, make)| slot.value().map(make));
    match (written.next(), written.next()) {
        (Some(limit), None) => Some(limit),
        (None, _) => {
            let what = format!("has no limit: {} is due", listed(&due));
            reader.unfit(place, what, None);
            None
        }
        (Some(_), Some(_)) => {
            let what = "has several limits: write an expectation for each";
            reader.unfit(place, what, None);
            None
        }
    }
}

word!(
    Time,
    "time",
    vec![
        ("lateness", Time::Lateness),
        ("connect", Time::Connect),
        ("service", Time::Service),
        ("response", Time::Response),
    ]
);

impl Written for Headcount {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match node.value {
            DeValue::String(text) if text == "all" => Some(Headcount::All),
            DeValue::String(text) => {
                let what = format!("unknown word `{}`", shown(text));
                reader.wrong(node, what, Some(suggest(text, ["all"])));
                None
            }
            _ => written::Number::read(node, reader).map(|count| Headcount::Count(count.get())),
        }
    }

    fn schema() -> Value {
        json!({ "oneOf": [written::Number::schema(), { "const": "all" }] })
    }
}

#[cfg(test)]
mod tests {
    use protocol::problem::ProblemCode;
    use record::recorder::Recorder;
    use record::samples::Sample;

    use super::*;

    const WINDOW: Window = Window {
        from: Micros::from_seconds(10),
        until: Micros::from_seconds(110),
    };
    const REPLAYED: Outcome = Outcome::Problem(ProblemCode::Replayed);

    struct Run {
        recorder: Recorder,
        fleet: Fleet,
    }

    impl Run {
        fn nothing() -> Self {
            Run {
                recorder: Recorder::new(WINDOW),
                fleet: Fleet::default(),
            }
        }

        /// 99 syncs that end well after 5 ms, one that the portal took for a replay, all started 2 ms late, in seconds 10
        /// to 109; a storm of 50 enrollments before; nine of ten agents enrolled; two documents, the second not everywhere.
        fn usual() -> Self {
            let mut run = Run::nothing();
            for second in 0..100_u64 {
                let outcome = if second == 50 { REPLAYED } else { Outcome::Ok };
                run.request(Endpoint::Sync, outcome, 10 + second, 5);
            }
            for _ in 0..50 {
                run.request(Endpoint::Enroll, Outcome::Ok, 1, 700);
            }
            run.fleet.agents = 10;
            run.fleet.enrolled = 9;
            run.fleet.syncs_expected_millionths = 110_000_000;
            for seconds in [5, 30, 31] {
                run.fleet.staleness.gap(Micros::from_seconds(seconds));
            }
            run.fleet.convergence.owed = 20;
            for seconds in 1..=19 {
                run.fleet
                    .convergence
                    .reached
                    .record(Micros::from_seconds(seconds));
            }
            for _ in 0..8 {
                run.fleet
                    .operation(&OperationKind::SnapshotSave, OperationEnd::Succeeded);
            }
            run.fleet
                .operation(&OperationKind::SnapshotSave, OperationEnd::Failed);
            run
        }

        fn request(&mut self, endpoint: Endpoint, outcome: Outcome, second: u64, ms: u64) {
            let intended = Micros::from_seconds(second);
            let started = intended + Micros::from_ms(2);
            self.recorder.planned(endpoint, intended);
            self.recorder.started(endpoint, started);
            self.recorder.ended(&Sample {
                endpoint,
                outcome,
                intended,
                started,
                first_byte_out: Some(started + Micros::from_ms(1)),
                ended: intended + Micros::from_ms(ms),
                connect: None,
            });
        }

        fn judge(&self, expected: Expected) -> Judgement {
            let mut recorder = self.recorder.clone();
            let recorded = recorder.recorded();
            let figures = Figures::of(WINDOW, &recorded.series, &recorded.samples, &self.fleet);
            let evidence = Evidence {
                window: WINDOW,
                account: &recorded.account,
                samples: &recorded.samples,
                fleet: &self.fleet,
                figures: &figures,
            };
            let expectation = Expectation {
                expected,
                allow_empty: false,
            };
            expectation.judge(&evidence)
        }
    }

    fn latency_of(of: Time, percentile: f64, at_most_ms: u64) -> Expected {
        Expected::Latency {
            of,
            endpoint: Some(Endpoint::Sync),
            outcome: Outcome::Ok,
            percentile,
            at_most: Duration::from_millis(at_most_ms),
        }
    }

    fn share(share: f64) -> Share {
        Share::new(share).unwrap()
    }

    /// One row for each kind of expectation: what holds, what does not by a little, and how the line reads.
    fn rows() -> Vec<(Expected, Expected, &'static str)> {
        use Limit::{AtLeast, AtMost, Exactly};
        let second = Duration::from_secs;
        let count = |limit| Expected::Count {
            endpoint: Some(Endpoint::Sync),
            outcome: REPLAYED,
            limit,
        };
        let share_of = |limit| Expected::Share {
            endpoint: Endpoint::Sync,
            outcome: Outcome::Ok,
            limit,
        };
        let throughput = |limit| Expected::Throughput {
            endpoint: Endpoint::Sync,
            limit,
        };
        let converged = |within| Expected::Convergence {
            share: share(0.9),
            within: second(within),
        };
        let saved = |state, limit| Expected::Operations {
            kind: OperationKind::SnapshotSave,
            state,
            limit,
        };
        let stale = |at_most| Expected::Staleness {
            percentile: 100.0,
            at_most: second(at_most),
        };
        vec![
            (
                latency_of(Time::Response, 99.0, 5),
                latency_of(Time::Response, 99.0, 4),
                "99 % of sync requests that end `ok` do within 4 ms of being due: 5 ms (10 s to 110 s)",
            ),
            (
                latency_of(Time::Service, 50.0, 2),
                latency_of(Time::Service, 50.0, 1),
                "50 % of sync requests end `ok` within 1 ms of being sent: 2 ms (10 s to 110 s)",
            ),
            (
                latency_of(Time::Lateness, 99.9, 2),
                latency_of(Time::Lateness, 99.9, 1),
                "99.9 % of requests start at most 1 ms late: 2 ms (10 s to 110 s)",
            ),
            (
                count(Exactly(1)),
                count(AtMost(0)),
                "at most 0 sync requests end `replayed`: 1 (whole run)",
            ),
            (
                share_of(AtLeast(share(0.99))),
                share_of(AtLeast(share(0.999))),
                "at least 99.9 % of sync requests end `ok`: 99 % (10 s to 110 s)",
            ),
            (
                throughput(AtLeast(0.99)),
                throughput(AtLeast(1.0)),
                "at least 1/s of sync requests succeed: 0.99/s (10 s to 110 s)",
            ),
            (
                Expected::Enrolled {
                    limit: AtLeast(Headcount::Count(9)),
                },
                Expected::Enrolled {
                    limit: Exactly(Headcount::All),
                },
                "all agents are enrolled: 9 of 10 (at the end)",
            ),
            (
                converged(18),
                converged(17),
                "90 % of the agents have a new document within 17 s: 85 % (whole run)",
            ),
            (
                stale(31),
                stale(30),
                "no agent is longer than 30 s without a successful sync: 31 s (whole run)",
            ),
            (
                Expected::SyncDeficit {
                    at_most: share(0.1),
                },
                Expected::SyncDeficit {
                    at_most: share(0.09),
                },
                "at most 9 % of the expected syncs are missing: 10 % (10 s to 110 s)",
            ),
            (
                saved(OperationEnd::Succeeded, Exactly(Headcount::Count(8))),
                saved(OperationEnd::Succeeded, Exactly(Headcount::All)),
                "all `snapshot.save` operations end as `succeeded`: 8 of 9 (at the end)",
            ),
            (
                Expected::Peak { at_most: 1.0 },
                Expected::Peak { at_most: 0.99 },
                "the busiest second is at most 0.99 times the mean one: 1 times (10 s to 110 s)",
            ),
        ]
    }

    #[test]
    fn each_kind_of_expectation_holds_and_fails_at_its_limit() {
        let run = Run::usual();
        for (holds, fails, line) in rows() {
            let held = run.judge(holds);
            assert_eq!(held.verdict, Verdict::Pass, "{held}");
            let failed = run.judge(fails);
            assert_eq!(failed.to_string(), format!("fail    {line}"));
        }
        let mut doubled = Run::usual();
        let duplicates = |at_most| Expected::DuplicateIdentities { at_most };
        assert_eq!(doubled.judge(duplicates(0)).verdict, Verdict::Pass);
        doubled.fleet.duplicate_identities = 1;
        assert_eq!(
            doubled.judge(duplicates(0)).to_string(),
            "fail    no agent has an identity too many: 1 (at the end)"
        );
    }

    // case L18: nothing to judge is never a pass.
    #[test]
    fn without_data_there_is_no_pass() {
        let run = Run::nothing();
        let duplicates = Expected::DuplicateIdentities { at_most: 0 };
        let rows = rows()
            .into_iter()
            .flat_map(|(holds, fails, _)| [holds, fails]);
        for expected in rows.chain([duplicates]) {
            let judgement = run.judge(expected);
            assert_eq!(judgement.verdict, Verdict::NoData, "{judgement}");
            assert_eq!(judgement.figure, None, "{judgement}");
        }
    }

    // case L10: what timed out is in no percentile of the successes, and in the share of what failed.
    #[test]
    fn a_time_out_is_seen_where_it_belongs() {
        let mut run = Run::usual();
        for _ in 0..100 {
            run.request(Endpoint::Sync, Outcome::TimedOutAnswer, 60, 30_000);
        }
        let ok = latency_of(Time::Response, 100.0, 5);
        assert_eq!(run.judge(ok).verdict, Verdict::Pass);
        let failed = Expected::Share {
            endpoint: Endpoint::Sync,
            outcome: Outcome::TimedOutAnswer,
            limit: Limit::Exactly(share(0.5)),
        };
        assert_eq!(run.judge(failed).verdict, Verdict::Pass);
    }

    #[test]
    fn what_was_cut_off_counts_in_no_share() {
        let mut run = Run::nothing();
        run.request(Endpoint::Sync, Outcome::Aborted, 60, 1);
        let all_ok = Expected::Share {
            endpoint: Endpoint::Sync,
            outcome: Outcome::Ok,
            limit: Limit::AtLeast(Share::ALL),
        };
        assert_eq!(run.judge(all_ok.clone()).verdict, Verdict::NoData);
        run.request(Endpoint::Sync, Outcome::Ok, 60, 5);
        assert_eq!(run.judge(all_ok).verdict, Verdict::Pass);
    }

    #[test]
    fn counts_are_of_the_whole_run_and_of_all_endpoints_if_none_is_named() {
        let run = Run::usual();
        let ok = |endpoint, count| Expected::Count {
            endpoint,
            outcome: Outcome::Ok,
            limit: Limit::Exactly(count),
        };
        for (endpoint, count) in [
            (Some(Endpoint::Enroll), 50),
            (Some(Endpoint::Sync), 99),
            (None, 149),
        ] {
            let judgement = run.judge(ok(endpoint, count));
            assert_eq!(judgement.verdict, Verdict::Pass, "{judgement}");
        }
        let never_called = run.judge(ok(Some(Endpoint::RotateKey), 0));
        assert_eq!(never_called.verdict, Verdict::NoData);
    }
}
