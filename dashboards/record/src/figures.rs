//! What a person asks about a run, computed from merged data.
//!
//! Nothing here is measured: each figure follows from the window, the series, the samples and the fleet's sums, so a
//! merged result has the figures of the whole and not the mean of its parts. Reports print these and compute none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use protocol::endpoint::Endpoint;

use crate::fleet::Fleet;
use crate::histogram::Histogram;
use crate::label::ByLabel;
use crate::micros::{Micros, Window};
use crate::outcome::{Class, Outcome};
use crate::samples::Samples;
use crate::series::Series;

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Successes, throughput and errors by endpoint, inside the window.
    pub endpoints: ByLabel<Endpoint, EndpointFigures>,
    /// How late the generator was, inside the window.
    pub lateness: Option<Distribution>,
    /// How old the fleet's knowledge got.
    pub staleness: Option<Distribution>,
    /// How long documents took to reach the fleet; none if none was set.
    pub convergence: Option<ConvergenceFigures>,
    /// The busiest second inside the window against the mean one; none without a request in it.
    pub peak: Option<Peak>,
    /// Syncs expected against syncs done; none if none was expected.
    pub sync_deficit: Option<SyncDeficit>,
    /// Whether so many requests failed in transport (more than 1 %) that the other figures say little.
    pub suspect: bool,
}

/// One endpoint, inside the window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EndpointFigures {
    /// Requests that ended, but for those cut off by the end of the run.
    pub ended: u64,
    /// Those that got what they asked for.
    pub successes: u64,
    /// Successes per second. Failures are no throughput.
    pub successes_per_second: Option<f64>,
    /// The share of what ended that did not get what it asked for.
    pub error_share: Option<f64>,
    /// Intended → last byte, of successes.
    pub response: Option<Distribution>,
}

/// A distribution in five figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// How many durations it is of.
    pub count: u64,
    /// Half of them took no longer.
    pub p50: Micros,
    /// 95 % of them took no longer.
    pub p95: Micros,
    /// 99 % of them took no longer.
    pub p99: Micros,
    /// The longest.
    pub max: Micros,
}

/// How long documents took to reach the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConvergenceFigures {
    /// Agents, once for each document that was set for them.
    pub owed: u64,
    /// How many of those got there.
    pub reached: u64,
    /// When half of them had; none if they never did.
    pub p50: Option<Micros>,
    /// When 95 % had.
    pub p95: Option<Micros>,
    /// When 99 % had.
    pub p99: Option<Micros>,
    /// When all had.
    pub all: Option<Micros>,
}

/// The busiest second against the mean one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// When it began.
    pub at: Micros,
    /// Requests started in it, per second.
    pub per_second: f64,
    /// Requests started per second over the window.
    pub mean_per_second: f64,
    /// How many times the mean that is.
    pub ratio: f64,
}

/// Syncs expected against syncs done, inside the window. What keeps a slow portal from hiding behind fewer requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SyncDeficit {
    /// Syncs that healthy agents would have made.
    pub expected: f64,
    /// Syncs that succeeded.
    pub done: u64,
    /// The part of what was expected that is missing; zero if more was done.
    pub share: f64,
}

/// The share of transport errors above which a run's other figures say little.
const SUSPECT_SHARE: f64 = 0.01;

impl Figures {
    /// What the data of a run come to.
    pub fn of(window: Window, series: &Series, samples: &Samples, fleet: &Fleet) -> Figures {
        let (ended, failed_in_transport) = transport(samples);
        Figures {
            endpoints: Endpoint::ALL
                .iter()
                .map(|endpoint| (*endpoint, EndpointFigures::of(*endpoint, window, samples)))
                .collect(),
            lateness: Distribution::of(&samples.lateness),
            staleness: Distribution::of_staleness(fleet),
            convergence: ConvergenceFigures::of(fleet),
            peak: Peak::of(window, series),
            sync_deficit: SyncDeficit::of(samples, fleet),
            suspect: failed_in_transport as f64 > SUSPECT_SHARE * ended as f64,
        }
    }
}

/// How many requests ended inside the window, and how many of them without a connection or by a time-out.
fn transport(samples: &Samples) -> (u64, u64) {
    let mut ended = 0;
    let mut failed = 0;
    for (_, outcome, cell) in samples.cells() {
        match outcome.class() {
            Class::Answered => ended += cell.count,
            Class::Transport | Class::TimedOut => {
                ended += cell.count;
                failed += cell.count;
            }
            Class::Aborted => {}
        }
    }
    (ended, failed)
}

impl EndpointFigures {
    fn of(endpoint: Endpoint, window: Window, samples: &Samples) -> Self {
        let mut figures = EndpointFigures::default();
        let mut response = Histogram::new();
        for (_, outcome, cell) in samples.cells().filter(|(e, _, _)| *e == endpoint) {
            if outcome != Outcome::Aborted {
                figures.ended += cell.count;
            }
            if outcome.is_success() {
                figures.successes += cell.count;
                response.add(&cell.response);
            }
        }
        if figures.ended > 0 {
            let errors = figures.ended - figures.successes;
            figures.error_share = Some(errors as f64 / figures.ended as f64);
            figures.successes_per_second = window.rate(figures.successes);
        }
        figures.response = Distribution::of(&response);
        figures
    }
}

impl Distribution {
    /// The five figures of a histogram; none of an empty one.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        let [p50, p95, p99, max] = histogram.quantiles([0.5, 0.95, 0.99, 1.0])?;
        Some(Distribution {
            count: histogram.count(),
            p50,
            p95,
            p99,
            max,
        })
    }

    fn of_staleness(fleet: &Fleet) -> Option<Self> {
        let staleness = &fleet.staleness;
        Some(Distribution {
            count: staleness.count(),
            p50: staleness.quantile(0.5)?,
            p95: staleness.quantile(0.95)?,
            p99: staleness.quantile(0.99)?,
            max: staleness.quantile(1.0)?,
        })
    }
}

impl ConvergenceFigures {
    fn of(fleet: &Fleet) -> Option<Self> {
        let convergence = &fleet.convergence;
        (convergence.owed > 0).then(|| ConvergenceFigures {
            owed: convergence.owed,
            reached: convergence.reached.count(),
            p50: convergence.time_to(0.5),
            p95: convergence.time_to(0.95),
            p99: convergence.time_to(0.99),
            all: convergence.time_to(1.0),
        })
    }
}

impl Peak {
    /// Over the buckets that lie wholly inside the window.
    fn of(window: Window, series: &Series) -> Option<Self> {
        let width = series.width_seconds() as f64;
        let inside = (0..series.len())
            .filter(|b| series.begins(*b) >= window.from && series.begins(b + 1) <= window.until);
        let mut sum = 0;
        let mut buckets = 0_u64;
        let mut highest: Option<(usize, u64)> = None;
        for bucket in inside {
            let started = series.all_started_in(bucket);
            sum += started;
            buckets += 1;
            if highest.is_none_or(|(_, most)| started > most) {
                highest = Some((bucket, started));
            }
        }
        let (bucket, most) = highest.filter(|(_, most)| *most > 0)?;
        let mean_per_second = sum as f64 / (buckets as f64 * width);
        let per_second = most as f64 / width;
        Some(Peak {
            at: series.begins(bucket),
            per_second,
            mean_per_second,
            ratio: per_second / mean_per_second,
        })
    }
}

impl SyncDeficit {
    fn of(samples: &Samples, fleet: &Fleet) -> Option<Self> {
        if fleet.syncs_expected_millionths == 0 {
            return None;
        }
        let expected = fleet.syncs_expected_millionths as f64 / 1e6;
        let done = samples.count(Endpoint::Sync, Outcome::Ok);
        Some(SyncDeficit {
            expected,
            done,
            share: (1.0 - done as f64 / expected).max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Recorded, Recorder};
    use crate::samples::Sample;

    const WINDOW: Window = Window {
        from: Micros::from_seconds(10),
        until: Micros::from_seconds(20),
    };

    /// So many requests of this end, due in each of these seconds.
    fn run(rows: &[(u64, Outcome, u64)]) -> Recorded {
        let mut recorder = Recorder::new(WINDOW);
        for (second, outcome, count) in rows {
            let at = Micros::from_seconds(*second);
            for _ in 0..*count {
                recorder.planned(Endpoint::Sync, at);
                recorder.started(Endpoint::Sync, at);
                recorder.ended(&Sample {
                    endpoint: Endpoint::Sync,
                    outcome: *outcome,
                    intended: at,
                    started: at,
                    first_byte_out: Some(at),
                    ended: at + Micros::from_ms(5),
                    connect: None,
                });
            }
        }
        recorder.recorded().clone()
    }

    fn figures(recorded: &Recorded, fleet: &Fleet) -> Figures {
        Figures::of(WINDOW, &recorded.series, &recorded.samples, fleet)
    }

    // case L26, L27: failures are no throughput, shares are of what ended, and many failures make the run suspect.
    #[test]
    fn only_successes_are_throughput() {
        let rows = [
            (&[(12, Outcome::Ok, 100)][..], Some(10.0), Some(0.0), false),
            (
                &[(12, Outcome::Ok, 6), (12, Outcome::ConnectRefused, 94)],
                Some(0.6),
                Some(0.94),
                true,
            ),
            (
                &[(12, Outcome::Ok, 90), (12, Outcome::Status5xx, 10)],
                Some(9.0),
                Some(0.1),
                false,
            ),
            (
                &[(12, Outcome::Ok, 90), (12, Outcome::Aborted, 10)],
                Some(9.0),
                Some(0.0),
                false,
            ),
            (&[(3, Outcome::Ok, 90)], None, None, false),
        ];
        for (ends, per_second, error_share, suspect) in rows {
            let figures = figures(&run(ends), &Fleet::default());
            let sync = &figures.endpoints[Endpoint::Sync];
            assert_eq!(sync.successes_per_second, per_second, "{ends:?}");
            assert_eq!(sync.error_share, error_share, "{ends:?}");
            assert_eq!(figures.suspect, suspect, "{ends:?}");
        }
    }

    #[test]
    fn the_peak_is_the_busiest_second_against_the_mean_one() {
        // Ten seconds of 2, one of them 20; the storm of the warm-up and the echo behind the end do not count.
        let mut rows: Vec<_> = (10..20).map(|s| (s, Outcome::Ok, 2)).collect();
        rows.extend([
            (13, Outcome::Ok, 18),
            (9, Outcome::Ok, 500),
            (20, Outcome::Ok, 500),
        ]);
        let peak = figures(&run(&rows), &Fleet::default()).peak.unwrap();
        assert_eq!(peak.at, Micros::from_seconds(13));
        assert_eq!(peak.per_second, 20.0);
        assert!((peak.mean_per_second - 3.8).abs() < 1e-9);
        assert!((peak.ratio - 20.0 / 3.8).abs() < 1e-9);
        assert_eq!(figures(&run(&[]), &Fleet::default()).peak, None);
    }

    // case L13: a portal that slows the fleet down shows as syncs that are missing.
    #[test]
    fn syncs_that_were_not_made_are_a_deficit() {
        let fleet = |expected: u64| Fleet {
            syncs_expected_millionths: expected,
            ..Fleet::default()
        };
        let done = run(&[(12, Outcome::Ok, 80), (12, Outcome::TimedOutAnswer, 20)]);
        let deficit = |expected| figures(&done, &fleet(expected)).sync_deficit;
        assert!((deficit(100_000_000).unwrap().share - 0.2).abs() < 1e-9);
        assert_eq!(deficit(79_500_000).unwrap().share, 0.0);
        assert_eq!(deficit(0), None);
    }

    // case L5: no request, one request: sane figures, or none.
    #[test]
    fn a_run_of_nothing_has_no_figures() {
        let nothing = figures(&run(&[]), &Fleet::default());
        assert_eq!(nothing, Figures::default());
        let one = figures(&run(&[(10, Outcome::Ok, 1)]), &Fleet::default());
        let sync = &one.endpoints[Endpoint::Sync];
        assert_eq!(sync.successes_per_second, Some(0.1));
        assert_eq!(sync.response.unwrap().count, 1);
    }
}
