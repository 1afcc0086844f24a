//! The second that runs. A request is counted here and nowhere else at first; once the second is over, its sums are added
//! to whatever is kept by the second.
//!
//! So telling a request costs a few increments of counters that are close to each other, however much is kept.

use protocol::endpoint::Endpoint;

use crate::account::Account;
use crate::label::ByLabel;
use crate::latencies::Counters;
use crate::micros::Micros;
use crate::samples::Sample;

const LENGTH: Micros = Micros::from_seconds(1);

/// What one worker has counted of one second.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Second {
    /// When it began.
    from: Micros,
    /// Requests that were due, were started and ended in it.
    pub(crate) account: Account,
    /// Intended → started, of requests that ended in it.
    pub(crate) lateness: Counters,
    /// Intended → last byte in, of those that got what they asked for.
    pub(crate) response: ByLabel<Endpoint, Counters>,
    /// First byte out → last byte in, of the same.
    pub(crate) service: ByLabel<Endpoint, Counters>,
}

impl Second {
    /// When it began.
    pub(crate) fn from(&self) -> Micros {
        self.from
    }

    /// Whether a moment is in it.
    #[inline]
    pub(crate) fn holds(&self, at: Micros) -> bool {
        at.0.wrapping_sub(self.from.0) < LENGTH.0
    }

    /// Counts a request that ended in it.
    #[inline]
    pub(crate) fn ended(&mut self, sample: &Sample) {
        self.account.ended(sample.endpoint, sample.outcome);
        self.lateness.count(sample.started.since(sample.intended));
        if sample.outcome.is_success() {
            let response = sample.ended.since(sample.intended);
            self.response[sample.endpoint].count(response);
            if let Some(first_byte_out) = sample.first_byte_out {
                let service = sample.ended.since(first_byte_out);
                self.service[sample.endpoint].count(service);
            }
        }
    }

    /// Where requests got what they asked for.
    pub(crate) fn succeeded(&self) -> impl Iterator<Item = Endpoint> {
        let succeeded = |endpoint: &Endpoint| self.account.line(*endpoint).successes() > 0;
        Endpoint::ALL.iter().copied().filter(succeeded)
    }

    /// Forgets what it counted.
    pub(crate) fn clear(&mut self) {
        let succeeded: Vec<Endpoint> = self.succeeded().collect();
        for endpoint in succeeded {
            self.response[endpoint].clear();
            self.service[endpoint].clear();
        }
        self.lateness.clear();
        self.account.clear();
    }

    /// Becomes the second of a moment, which it is not yet, with nothing counted.
    pub(crate) fn become_that_of(&mut self, at: Micros) {
        self.clear();
        self.from = Micros(at.0 - at.0 % LENGTH.0);
    }

    /// One that has counted the end of one request.
    #[cfg(test)]
    pub(crate) fn of(sample: &Sample) -> Self {
        let mut second = Second::default();
        second.become_that_of(sample.ended);
        second.ended(sample);
        second
    }
}
