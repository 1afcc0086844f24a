//! How long answers took here, by endpoint: from the head's arrival to the answer's hand-over.
//!
//! Not what a client waits: the network, its queue and TLS are not in it. A client that measures more than this knows
//! where to look.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::endpoint::Endpoint;
use record::{ByLabel, Histogram, Micros};
use serde::Serialize;

/// Distributions by endpoint, in fixed memory.
#[derive(Debug, Default)]
pub struct Latencies(Mutex<ByLabel<Endpoint, Histogram>>);

/// What people ask of a distribution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[endpoint].record(micros);
    }

    /// A line for each endpoint that answered anything.
    pub fn lines(&self) -> Vec<LatencyLine> {
        let histograms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(endpoint, histogram): (Endpoint, &Histogram)| {
            let quantile = |share| histogram.quantile(share).map(|micros| micros.0);
            Some(LatencyLine {
                endpoint,
                count: histogram.count(),
                p50_us: quantile(0.5)?,
                p99_us: quantile(0.99)?,
                max_us: histogram.max()?.0,
            })
        };
        histograms.iter().filter_map(line).collect()
    }

    /// Begins again.
    pub fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter_mut()
            .for_each(|(_, histogram)| histogram.clear());
    }
}
