//! The run at this second: what a live screen draws and a progress line says.
//!
//! A world makes one a second from its workers' counts. Percentiles here are of the last second alone, and for the eye. What
//! is judged comes from the samples.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use protocol::endpoint::Endpoint;

use crate::account::{Account, Line};
use crate::agents::AgentsShown;
use crate::judgement::{Judgement, grouped};
use crate::label::{ByLabel, Label};
use crate::latencies::Sizes;
use crate::micros::Micros;
use crate::outcome::Outcome;
use crate::second::Second;
use crate::series::Gauge;
use crate::timeline::Step;
use crate::verdict::Verdict;

/// The run at one second.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// How long it has run.
    pub at: Micros,
    /// How long it will.
    pub duration: Micros,
    /// Agents in the scenario.
    pub agents: u64,
    /// What the fleet is right now.
    pub gauges: ByLabel<Gauge, u64>,
    /// Where every request went so far.
    pub account: Account,
    /// The last second, by endpoint.
    pub last_second: ByLabel<Endpoint, Rate>,
    /// How late the generator was in the last second; none if it had nothing to do.
    pub lateness: Option<Percentiles>,
    /// When it was last judged and agents' last syncs were looked at, which is done every few seconds; none before.
    #[serde(default)]
    pub judged_at: Option<Micros>,
    /// How long ago agents had synced last by then; none while nobody had.
    pub last_sync: Option<LastSync>,
    /// What the generator takes of its machine; none where nobody knows it any more.
    pub generator: Option<GeneratorNow>,
    /// What is expected, as it stood by then.
    pub judgements: Vec<Judgement>,
    /// What was to happen when. A step counts as done from the moment on at which it was.
    #[serde(default)]
    pub timeline: Arc<[Step]>,
    /// Whether agents still arrive.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Single agents, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_shown: Option<AgentsShown>,
    /// How it ended; none while it goes on.
    #[serde(default)]
    pub end: Option<End>,
}

/// Whether agents still arrive. Those that have go on in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Some are still to arrive.
    #[default]
    GoOn,
    /// Some are still to arrive, and are held back by hand.
    Held,
    /// Everybody has arrived.
    Over,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The word for it all.
    pub verdict: Verdict,
    /// Why, in one line.
    pub reason: String,
}

/// The last second of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Requests that were due.
    pub planned: u64,
    /// Requests that were started.
    pub started: u64,
    /// Requests that got what they asked for; none where nobody knows it any more.
    pub successes: Option<u64>,
    /// Intended → last byte of those; none without any.
    pub response: Option<Percentiles>,
    /// First byte out → last byte of those; none without any.
    pub service: Option<Percentiles>,
}

/// How long ago agents synced last, of those that ever have: those that are revoked or down count, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSync {
    /// Agents that have missed a sync: their last one is longer ago than two of their intervals.
    pub behind: u64,
    /// How long ago it is.
    pub ago: Percentiles,
    /// How long ago it is for the one that waits longest.
    pub longest: Micros,
}

/// What the generator takes of its machine: one process and everything in it, the embedded portal too.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorNow {
    /// Processes.
    pub processes: u64,
    /// Processor time of the last second, as a share of one core: 1.5 is a core and a half.
    pub cpu_share: f64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Open files, counted every few seconds.
    pub files: u64,
    /// How many it may have open.
    pub files_limit: u64,
}

/// A distribution for the eye: within 6.25 %, as [`latencies`](crate::latencies) are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half of them took no longer.
    pub p50: Micros,
    /// 95 % of them took no longer.
    pub p95: Micros,
    /// 99 % of them took no longer.
    pub p99: Micros,
}

/// What workers saw since the last look. Never part of a result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Recent {
    account: Account,
    lateness: Sizes,
    response: ByLabel<Endpoint, Sizes>,
    service: ByLabel<Endpoint, Sizes>,
}

impl Recent {
    /// A request was due in a second that is over.
    pub(crate) fn planned(&mut self, endpoint: Endpoint) {
        self.account.planned(endpoint);
    }

    /// Adds what was counted of a second.
    pub(crate) fn add_second(&mut self, second: &Second) {
        self.account.add(&second.account);
        self.lateness.add_counted(&second.lateness);
        for endpoint in second.succeeded() {
            self.response[endpoint].add_counted(&second.response[endpoint]);
            self.service[endpoint].add_counted(&second.service[endpoint]);
        }
    }

    /// Adds what another worker saw in the same time.
    pub fn add(&mut self, other: &Recent) {
        self.account.add(&other.account);
        self.lateness.add_all(&other.lateness);
        for endpoint in Endpoint::ALL.iter().copied() {
            self.response[endpoint].add_all(&other.response[endpoint]);
            self.service[endpoint].add_all(&other.service[endpoint]);
        }
    }

    /// What was seen, by endpoint.
    pub fn rates(&self) -> ByLabel<Endpoint, Rate> {
        let rate = |(endpoint, line): (Endpoint, &Line)| {
            let rate = Rate {
                planned: line.planned,
                started: line.started,
                successes: Some(line.successes()),
                response: self.response[endpoint].percentiles(),
                service: self.service[endpoint].percentiles(),
            };
            (endpoint, rate)
        };
        self.account.lines().map(rate).collect()
    }

    /// How late the generator was; none if it had nothing to do.
    pub fn lateness(&self) -> Option<Percentiles> {
        self.lateness.percentiles()
    }
}

impl Snapshot {
    /// The snapshot as JSON, for whoever wants to keep one.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a snapshot holds only what JSON can say")
    }
}

/// The last syncs of a part of the fleet, to be added up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LastSyncs {
    behind: u64,
    ago: Sizes,
    longest: Micros,
}

impl LastSyncs {
    /// An agent has synced so long ago, and does so every `interval`.
    pub fn see(&mut self, ago: Micros, interval: Micros) {
        self.behind += u64::from(ago > interval + interval);
        self.longest = self.longest.max(ago);
        self.ago.count(ago);
    }

    /// Adds those of another part.
    pub fn add(&mut self, other: &Self) {
        self.behind += other.behind;
        self.longest = self.longest.max(other.longest);
        self.ago.add_all(&other.ago);
    }

    /// What they come to; none while nobody has synced.
    pub fn sum(self) -> Option<LastSync> {
        Some(LastSync {
            behind: self.behind,
            ago: self.ago.percentiles()?,
            longest: self.longest,
        })
    }
}

/// The longest progress line.
const COLUMNS_MAX: usize = 120;

/// The run at this second in one plain line of at most 120 columns, without control characters:
/// `30s/120s 1,000/1,000 enrolled | ok 1,930 | 3 of 9 hold | 33/s done | sync p50 1.2 ms p99 4.1 ms | late p99 1.1 ms`.
pub fn progress_line(snapshot: &Snapshot) -> String {
    let mut line = format!(
        "{:.0}s/{:.0}s {}/{} enrolled",
        snapshot.at.as_seconds().floor(),
        snapshot.duration.as_seconds(),
        grouped(snapshot.gauges[Gauge::Enrolled]),
        grouped(snapshot.agents),
    );
    for (gauge, word) in [
        (Gauge::BackingOff, "backing off"),
        (Gauge::ToldToWait, "told to wait"),
        (Gauge::Idle, "idle"),
        (Gauge::Down, "down"),
    ] {
        if snapshot.gauges[gauge] > 0 {
            let _ = write!(line, ", {} {word}", grouped(snapshot.gauges[gauge]));
        }
    }
    let mut parts = vec![line, outcomes(snapshot)];
    if !snapshot.judgements.is_empty() {
        parts.push(standing(&snapshot.judgements));
    }
    parts.push(done(snapshot));
    parts.extend(sync_times(snapshot));
    if let Some(late) = snapshot.lateness {
        parts.push(format!("late p99 {}", late.p99));
    }
    fitted(parts)
}

/// What got what it asked for, all together; none where that is known of nobody.
pub fn successes<'a>(rates: impl Iterator<Item = &'a Rate>) -> Option<u64> {
    rates
        .filter_map(|rate| rate.successes)
        .reduce(u64::saturating_add)
}

/// What was done in the last second, at all endpoints.
fn done(snapshot: &Snapshot) -> String {
    match successes(snapshot.last_second.values()) {
        Some(successes) => format!("{}/s done", grouped(successes)),
        None => "-/s done".to_owned(),
    }
}

/// How long the syncs of the last second took.
fn sync_times(snapshot: &Snapshot) -> Option<String> {
    let sync = snapshot.last_second[Endpoint::Sync].response?;
    Some(format!("sync p50 {} p99 {}", sync.p50, sync.p99))
}

/// Successes so far and what else came, the most frequent first.
fn outcomes(snapshot: &Snapshot) -> String {
    let total = snapshot.account.total();
    let mut text = format!("ok {}", grouped(total.successes()));
    let mut others: Vec<(Outcome, u64)> = total
        .ended
        .iter()
        .filter(|(outcome, count)| !outcome.is_success() && **count > 0)
        .map(|(outcome, count)| (outcome, *count))
        .collect();
    others.sort_by_key(|(outcome, count)| (std::cmp::Reverse(*count), outcome.index()));
    for (outcome, count) in others.iter().take(2) {
        let _ = write!(text, ", {outcome} {}", grouped(*count));
    }
    let rest: u64 = others.iter().skip(2).map(|(_, count)| count).sum();
    if rest > 0 {
        let _ = write!(text, ", other {}", grouped(rest));
    }
    text
}

/// How many expectations hold, and what the others are: `3 of 5 hold, 1 FAIL, 1 SO FAR`.
pub fn standing(judgements: &[Judgement]) -> String {
    let count = |verdict: Verdict| judgements.iter().filter(|j| j.verdict == verdict).count();
    let mut text = format!("{} of {} hold", count(Verdict::Pass), judgements.len());
    for verdict in [Verdict::Fail, Verdict::NoData, Verdict::SoFar] {
        if count(verdict) > 0 {
            let word = verdict.capitals().replace('_', " ");
            let _ = write!(text, ", {} {word}", count(verdict));
        }
    }
    text
}

/// The parts with bars between them; the last ones are left out where the line would get too long.
fn fitted(parts: Vec<String>) -> String {
    let mut line = String::new();
    for part in parts {
        let separator = if line.is_empty() { "" } else { " | " };
        if line.chars().count() + separator.len() + part.chars().count() > COLUMNS_MAX {
            break;
        }
        line.push_str(separator);
        line.push_str(&part);
    }
    line
}

#[cfg(test)]
mod tests {
    use protocol::problem::ProblemCode;

    use super::*;
    use crate::Recorder;
    use crate::judgement::{Bound, Quantity};
    use crate::micros::Window;
    use crate::samples::Sample;

    fn sample(outcome: Outcome, started_ms: u64, ended_ms: u64) -> Sample {
        Sample {
            endpoint: Endpoint::Sync,
            outcome,
            intended: Micros::ZERO,
            started: Micros::from_ms(started_ms),
            first_byte_out: None,
            ended: Micros::from_ms(ended_ms),
            connect: None,
        }
    }

    fn judgement(verdict: Verdict) -> Judgement {
        Judgement {
            text: String::new(),
            verdict,
            figure: None,
            of: None,
            bound: Bound::AtMost(Quantity::Count(0)),
            place: String::new(),
        }
    }

    /// The 30th second of a run that mostly goes well.
    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot {
            at: Micros(30_700_000),
            duration: Micros::from_seconds(120),
            agents: 1_000,
            ..Snapshot::default()
        };
        snapshot.gauges[Gauge::Enrolled] = 998;
        snapshot.gauges[Gauge::BackingOff] = 2;
        for (outcome, count) in [
            (Outcome::Ok, 1_930),
            (Outcome::Problem(ProblemCode::Replayed), 3),
            (Outcome::Reset, 2),
            (Outcome::Dns, 1),
        ] {
            for _ in 0..count {
                snapshot.account.planned(Endpoint::Sync);
                snapshot.account.started(Endpoint::Sync);
                snapshot.account.ended(Endpoint::Sync, outcome);
            }
        }
        let recent = seen(&[sample(Outcome::Ok, 1, 4); 33]);
        snapshot.last_second = recent.rates();
        snapshot.lateness = recent.lateness();
        snapshot.judgements = vec![judgement(Verdict::Pass), judgement(Verdict::NoData)];
        snapshot
    }

    #[test]
    fn a_progress_line_says_how_it_stands() {
        assert_eq!(
            progress_line(&snapshot()),
            "30s/120s 998/1,000 enrolled, 2 backing off | ok 1,930, replayed 3, reset 2, other 1 | 1 of 2 hold, 1 NO DATA | 33/s done"
        );
        assert_eq!(
            progress_line(&Snapshot::default()),
            "0s/0s 0/0 enrolled | ok 0 | -/s done"
        );
        let short = Snapshot {
            account: Account::default(),
            ..snapshot()
        };
        assert!(
            progress_line(&short).ends_with(
                "| ok 0 | 1 of 2 hold, 1 NO DATA | 33/s done | sync p50 3.97 ms p99 3.97 ms"
            ),
            "{}",
            progress_line(&short)
        );
    }

    // case L42: nothing a log could be garbled by.
    #[test]
    fn a_progress_line_is_plain_and_short_however_large_the_fleet() {
        let mut huge = snapshot();
        huge.agents = u64::MAX;
        huge.at = Micros(u64::MAX);
        for gauge in Gauge::ALL {
            huge.gauges[*gauge] = u64::MAX;
        }
        for line in [progress_line(&huge), progress_line(&snapshot())] {
            assert!(line.chars().count() <= COLUMNS_MAX, "{line}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }

    #[test]
    fn who_has_missed_a_sync_is_behind() {
        let seconds = Micros::from_seconds;
        let parts = [[(1, 6), (12, 6)], [(13, 6), (40, 30)]];
        let mut all = LastSyncs::default();
        for part in parts {
            let mut last = LastSyncs::default();
            for (ago, interval) in part {
                last.see(seconds(ago), seconds(interval));
            }
            all.add(&sent(&last));
        }
        let last = all.sum().unwrap();
        assert_eq!((last.behind, last.longest), (1, seconds(40)));
        assert_eq!(last.ago.p50.as_seconds().round(), 12.0);
        assert_eq!(LastSyncs::default().sum(), None);
    }

    fn recorder() -> Recorder {
        Recorder::new(Window {
            from: Micros::ZERO,
            until: Micros::from_seconds(60),
        })
    }

    fn seen(samples: &[Sample]) -> Recent {
        let mut recorder = recorder();
        samples.iter().for_each(|sample| recorder.ended(sample));
        recorder.recent()
    }

    /// As another process gets it.
    fn sent<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(of: &T) -> T {
        let got = serde_json::from_str(&serde_json::to_string(of).unwrap()).unwrap();
        assert_eq!(&got, of);
        got
    }

    #[test]
    fn service_counts_from_the_first_byte_and_response_from_when_it_was_due() {
        let recent = seen(&[Sample {
            first_byte_out: Some(Micros::from_ms(90)),
            ..sample(Outcome::Ok, 80, 100)
        }]);
        let sync = recent.rates()[Endpoint::Sync];
        let p50 = |times: Option<Percentiles>| times.unwrap().p50.to_string();
        assert_eq!(
            (p50(sync.response), p50(sync.service)),
            ("102 ms".to_owned(), "9.73 ms".to_owned())
        );
    }

    // An endpoint and a gauge that a snapshot does not name are as at the start, and so is what it did not have once.
    #[test]
    fn a_snapshot_that_was_kept_is_read_again() {
        let text = snapshot().to_text();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot());
    }

    #[test]
    fn what_is_looked_at_was_seen_since_the_last_look() {
        let mut recorder = recorder();
        let timed_out = sample(Outcome::TimedOutAnswer, 0, 30_000);
        recorder.planned(Endpoint::Sync, timed_out.intended);
        recorder.started(Endpoint::Sync, timed_out.started);
        recorder.ended(&timed_out);
        // Told when the second in which it was due is over.
        recorder.planned(Endpoint::Sync, timed_out.intended);
        let recent = recorder.recent();
        let mut sum = Recent::default();
        sum.add(&recent);
        sum.add(&sent(&recent));
        let sync = sum.rates()[Endpoint::Sync];
        assert_eq!(
            (sync.planned, sync.started, sync.successes),
            (4, 2, Some(0))
        );
        assert_eq!(sync.response, None);
        assert!(sum.lateness().is_some());
        assert_eq!(recorder.recent(), Recent::default());
        assert_eq!(recorder.recorded().account.total().planned, 2);
    }
}
