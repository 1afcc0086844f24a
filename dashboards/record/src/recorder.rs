//! Account, series and samples behind one face: each request is told once, so the three cannot disagree.
//!
//! One a worker; they add up exactly. The account and the series hold the whole run, since they must agree with what
//! the portal counted; the samples hold what was due inside the window, so warm-up is in no figure that is judged.

use serde::{Deserialize, Serialize};

use protocol::endpoint::Endpoint;

use crate::account::Account;
use crate::micros::{Micros, Window};
use crate::samples::{Sample, Samples};
use crate::second::Second;
use crate::series::{Gauge, Series};
use crate::snapshot::Recent;

/// Counts for one worker.
#[derive(Debug, Clone)]
pub struct Recorder {
    window: Window,
    second: Second,
    /// But for what is counted in the second.
    recorded: Recorded,
    /// Since the last look, but for what is counted in the second.
    recent: Recent,
}

/// What workers have counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Whole run.
    pub account: Account,
    /// Whole run, by the second.
    pub series: Series,
    /// What was due inside the window.
    pub samples: Samples,
}

impl Recorder {
    /// An empty one that judges what is due inside `window`.
    pub fn new(window: Window) -> Self {
        Recorder {
            window,
            second: Second::default(),
            recorded: Recorded::default(),
            recent: Recent::default(),
        }
    }

    /// A request is due at `intended`. Told when it becomes due, before it is started or dropped.
    pub fn planned(&mut self, endpoint: Endpoint, intended: Micros) {
        if self.second.holds(intended) {
            self.second.account.planned(endpoint);
        } else {
            // Told late. To turn to its second and back would cost more than to add it where it belongs.
            self.recorded.account.planned(endpoint);
            self.recorded.series.planned(endpoint, intended);
            self.recent.planned(endpoint);
        }
    }

    /// A request that was due will not be started.
    pub fn dropped(&mut self, endpoint: Endpoint) {
        self.recorded.account.dropped(endpoint);
    }

    /// A request that was due is started.
    #[inline]
    pub fn started(&mut self, endpoint: Endpoint, at: Micros) {
        self.second_of(at).account.started(endpoint);
    }

    /// A request that was started has ended.
    #[inline]
    pub fn ended(&mut self, sample: &Sample) {
        self.second_of(sample.ended).ended(sample);
        if self.window.holds(sample.intended) {
            self.recorded.samples.record(sample);
        }
    }

    /// This second's reading of a gauge, from one worker of each shard.
    pub fn gauge(&mut self, gauge: Gauge, at: Micros, reading: u64) {
        self.recorded.series.gauge(gauge, at, reading);
    }

    /// All that was counted so far.
    pub fn recorded(&mut self) -> &Recorded {
        self.settle();
        &self.recorded
    }

    /// What was counted since the last look.
    pub fn recent(&mut self) -> Recent {
        self.settle();
        std::mem::take(&mut self.recent)
    }

    #[inline]
    fn second_of(&mut self, at: Micros) -> &mut Second {
        if !self.second.holds(at) {
            self.turn_to(at);
        }
        &mut self.second
    }

    #[cold]
    fn turn_to(&mut self, at: Micros) {
        self.settle();
        self.second.become_that_of(at);
    }

    /// Adds the second, so far, to what is kept.
    fn settle(&mut self) {
        self.recorded.account.add(&self.second.account);
        self.recorded.series.add_second(&self.second);
        self.recent.add_second(&self.second);
        self.second.clear();
    }
}

impl Recorded {
    /// Adds what another worker counted, exactly.
    pub fn add(&mut self, other: &Recorded) {
        self.account.add(&other.account);
        self.series.add(&other.series);
        self.samples.add(&other.samples);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::label::ByLabel;
    use crate::outcome::Outcome;
    use crate::samples::tests::any_sample;

    fn window() -> Window {
        Window {
            from: Micros::from_seconds(10),
            until: Micros::from_seconds(3_000),
        }
    }

    fn see(recorder: &mut Recorder, sample: &Sample) {
        recorder.planned(sample.endpoint, sample.intended);
        recorder.started(sample.endpoint, sample.started);
        recorder.ended(sample);
    }

    #[test]
    fn warm_up_is_accounted_for_and_not_judged() {
        let at = |second| Sample {
            endpoint: Endpoint::Sync,
            outcome: Outcome::Ok,
            intended: Micros::from_seconds(second),
            started: Micros::from_seconds(second),
            first_byte_out: None,
            ended: Micros::from_seconds(second + 1),
            connect: None,
        };
        let mut recorder = Recorder::new(window());
        for second in [9, 10, 2_999, 3_000] {
            see(&mut recorder, &at(second));
        }
        let recorded = recorder.recorded();
        assert_eq!(recorded.account.total().started, 4);
        assert_eq!(recorded.samples.count(Endpoint::Sync, Outcome::Ok), 2);
        assert_eq!(recorded.series.ended_in(10, Endpoint::Sync, Outcome::Ok), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        // case L3, L24: each request is counted once, whatever it took and wherever it was counted.
        #[test]
        fn every_request_is_counted_once_in_each_of_the_three(
            rows in prop::collection::vec((any_sample(), any::<bool>()), 0..60),
        ) {
            let mut whole = Recorder::new(window());
            let mut halves = [whole.clone(), whole.clone()];
            for (sample, half) in &rows {
                see(&mut whole, sample);
                see(&mut halves[usize::from(*half)], sample);
            }
            let whole = whole.recorded();
            let [mut one, mut other] = halves;
            let mut sum = one.recorded().clone();
            sum.add(other.recorded());
            prop_assert_eq!(&sum, whole);
            prop_assert_eq!(whole.account.check(), []);

            // Told bucket by bucket, the series comes to the account.
            let mut by_second = Account::default();
            (0..whole.series.len()).for_each(|bucket| by_second.add(&whole.series.account_in(bucket)));
            prop_assert_eq!(&by_second, &whole.account);

            let mut judged: ByLabel<Endpoint, u64> = ByLabel::default();
            whole.samples.cells().for_each(|(endpoint, _, cell)| judged[endpoint] += cell.count);
            let due = rows.iter().filter(|(s, _)| window().holds(s.intended)).count();
            prop_assert_eq!(judged.total(), due as u64);
            prop_assert_eq!(whole.samples.lateness.count(), due as u64);
        }
    }
}
