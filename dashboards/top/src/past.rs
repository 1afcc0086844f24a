//! The last ten minutes, a point for each second: what curves are drawn from. A long run that is replayed has points that
//! are further apart.

use std::collections::VecDeque;

use record::label::ByLabel;
use record::snapshot::{GeneratorNow, Percentiles, Rate, successes};
use record::{Endpoint, Micros, Snapshot};

/// How many points are kept.
pub const POINTS_KEPT: usize = 600;

/// Whatever a curve can be drawn of, at one second.
#[derive(Debug, Clone)]
pub struct Point {
    /// When that was.
    pub at: Micros,
    /// Syncs that were due.
    pub offered: u64,
    /// Syncs that got what they asked for, where that is known.
    pub done: Option<u64>,
    /// What calls took, by endpoint.
    pub times: ByLabel<Endpoint, Times>,
    /// How late the generator was.
    pub lateness: Option<Percentiles>,
    /// What it took of its machine, where that is known.
    pub generator: Option<GeneratorNow>,
}

/// What calls of one endpoint took in one second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    /// From when it was due.
    pub response: Option<Percentiles>,
    /// From its first byte.
    pub service: Option<Percentiles>,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// From when it was due.
    Response,
    /// From its first byte.
    Service,
}

/// Which of three figures of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantile {
    /// The median.
    P50,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
}

impl Quantile {
    /// All three.
    pub const ALL: [Quantile; 3] = [Quantile::P50, Quantile::P95, Quantile::P99];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Quantile::P50 => "p50",
            Quantile::P95 => "p95",
            Quantile::P99 => "p99",
        }
    }

    /// Its figure.
    pub const fn of(self, percentiles: &Percentiles) -> Micros {
        match self {
            Quantile::P50 => percentiles.p50,
            Quantile::P95 => percentiles.p95,
            Quantile::P99 => percentiles.p99,
        }
    }
}

impl Times {
    /// One of the two.
    pub const fn get(&self, time: Time) -> Option<Percentiles> {
        match time {
            Time::Response => self.response,
            Time::Service => self.service,
        }
    }
}

/// Syncs of either protocol in the last second: due, and done.
pub fn syncs(snapshot: &Snapshot) -> (u64, Option<u64>) {
    let rates: [&Rate; 2] =
        [Endpoint::Sync, Endpoint::CheckIn].map(|endpoint| &snapshot.last_second[endpoint]);
    (
        rates.iter().map(|rate| rate.planned).sum(),
        successes(rates.into_iter()),
    )
}

/// The last ten minutes, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct Past(VecDeque<Point>);

impl Past {
    /// Takes in the next second.
    pub fn see(&mut self, snapshot: &Snapshot) {
        if self.0.len() == POINTS_KEPT {
            self.0.pop_front();
        }
        let (offered, done) = syncs(snapshot);
        let times = snapshot.last_second.iter().map(|(endpoint, rate)| {
            let times = Times {
                response: rate.response,
                service: rate.service,
            };
            (endpoint, times)
        });
        self.0.push_back(Point {
            at: snapshot.at,
            offered,
            done,
            times: times.collect(),
            lateness: snapshot.lateness,
            generator: snapshot.generator,
        });
    }

    /// A figure of every second.
    pub fn curve<T>(&self, figure: impl Fn(&Point) -> Option<T>) -> Vec<Option<T>> {
        self.0.iter().map(figure).collect()
    }

    /// The time from the first point to the last one.
    pub fn length(&self) -> Micros {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => last.at.since(first.at),
            _ => Micros::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_are_kept_and_no_more() {
        let mut past = Past::default();
        for second in 0..700 {
            let mut snapshot = Snapshot::default();
            snapshot.last_second[Endpoint::Sync].planned = second;
            past.see(&snapshot);
        }
        let offered = past.curve(|point| Some(point.offered));
        assert_eq!(offered.len(), POINTS_KEPT);
        assert_eq!((offered[0], offered[599]), (Some(100), Some(699)));
    }
}
