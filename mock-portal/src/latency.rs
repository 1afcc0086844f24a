//! How long answers took here, by endpoint: from the head's arrival to the answer's hand-over.
//!
//! Not what a client waits: the network, its queue and TLS are not in it. A client that measures more than this knows
//! where to look.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::endpoint::Endpoint;
use record::{ByLabel, Histogram, Micros};
use schemars::JsonSchema;
use serde::Serialize;

/// Distributions by endpoint, in fixed memory.
#[derive(Debug, Default)]
pub struct Latencies(Mutex<ByLabel<Endpoint, Distribution>>);

/// A histogram, and the sum that it does not keep exactly.
#[derive(Debug, Clone, Default, PartialEq)]
struct Distribution {
    histogram: Histogram,
    sum_us: u64,
}

/// How long the answers of an endpoint took, as a scraper wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// All of them together, in seconds.
    pub sum_seconds: f64,
    /// How many there were.
    pub count: u64,
    /// So many took longer than the bound before and at most this one, in seconds.
    pub within: Vec<(f64, u64)>,
}

/// Bounds of the buckets, in microseconds: a sync takes tens of microseconds, and half a second is a fault.
const BOUNDS_US: [u64; 12] = [
    25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000,
];

/// What people ask of a distribution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LatencyLine {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// How many answers were measured.
    pub count: u64,
    /// Half of them took at most so long, in microseconds.
    pub p50_us: u64,
    /// 99 of a hundred took at most so long, in microseconds.
    pub p99_us: u64,
    /// The slowest, in microseconds.
    pub max_us: u64,
}

impl Latencies {
    /// Counts an answer.
    pub fn record(&self, endpoint: Endpoint, latency: Duration) {
        let micros = Micros(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        let mut distributions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let distribution = &mut distributions[endpoint];
        distribution.histogram.record(micros);
        distribution.sum_us = distribution.sum_us.saturating_add(micros.0);
    }

    /// A line for each endpoint that answered anything.
    pub fn lines(&self) -> Vec<LatencyLine> {
        let distributions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(endpoint, distribution): (Endpoint, &Distribution)| {
            let histogram = &distribution.histogram;
            let quantile = |share| histogram.quantile(share).map(|micros| micros.0);
            Some(LatencyLine {
                endpoint,
                count: histogram.count(),
                p50_us: quantile(0.5)?,
                p99_us: quantile(0.99)?,
                max_us: histogram.max()?.0,
            })
        };
        distributions.iter().filter_map(line).collect()
    }

    /// The same for a scraper.
    pub fn buckets(&self) -> Vec<(Endpoint, Buckets)> {
        let distributions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = |(endpoint, distribution): (Endpoint, &Distribution)| {
            let histogram = &distribution.histogram;
            let mut before = 0;
            let within = BOUNDS_US.map(|bound| {
                let until = histogram.count_within(Micros(bound));
                let count = until - before;
                before = until;
                (Micros(bound).as_seconds(), count)
            });
            let buckets = Buckets {
                sum_seconds: Micros(distribution.sum_us).as_seconds(),
                count: histogram.count(),
                within: within.to_vec(),
            };
            (endpoint, buckets)
        };
        let measured =
            |(_, distribution): &(Endpoint, &Distribution)| !distribution.histogram.is_empty();
        distributions.iter().filter(measured).map(buckets).collect()
    }

    /// Begins again.
    pub fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter_mut()
            .for_each(|(_, distribution)| {
                distribution.histogram.clear();
                distribution.sum_us = 0;
            });
    }
}
