//! How often each answer was given, by endpoint and code. Fixed memory, no lock: every request counts here.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::endpoint::Endpoint;
use protocol::problem::ProblemCode;

use crate::answer::Answer;
use crate::control::{CounterLine, Counters};

/// One row for each endpoint and one for requests without a route; one column for 200 and one for each code.
pub(crate) struct Tally([[AtomicU64; COLUMNS]; ROWS]);

const ROWS: usize = Endpoint::ALL.len() + 1;
const COLUMNS: usize = ProblemCode::ALL.len() + 1;

impl Tally {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| {
            std::array::from_fn(|_| AtomicU64::new(0))
        }))
    }

    /// Counts an answer.
    pub(crate) fn count(&self, answer: &Answer) {
        let row = answer.endpoint.map_or(0, |endpoint| 1 + endpoint as usize);
        let column = answer.code().map_or(0, |code| 1 + code as usize);
        self.0[row][column].fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted.
    pub(crate) fn read(&self) -> Counters {
        self.lines(|cell| cell.load(Ordering::Relaxed))
    }

    /// What was counted, and from 0 again: each answer is counted in exactly one of two readings.
    pub(crate) fn take(&self) -> Counters {
        self.lines(|cell| cell.swap(0, Ordering::Relaxed))
    }

    fn lines(&self, read: impl Fn(&AtomicU64) -> u64) -> Counters {
        let endpoints = std::iter::once(None).chain(Endpoint::ALL.iter().copied().map(Some));
        let rows = endpoints.zip(&self.0).flat_map(|(endpoint, row)| {
            let codes = std::iter::once(None).chain(ProblemCode::ALL.iter().copied().map(Some));
            let read = &read;
            codes.zip(row).map(move |(code, cell)| CounterLine {
                endpoint,
                status: code.map_or(200, ProblemCode::status),
                code,
                count: read(cell),
            })
        });
        Counters {
            answers: rows.filter(|line| line.count > 0).collect(),
        }
    }
}
