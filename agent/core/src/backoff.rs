//! The one wait after a failure (ANS-8): b = min(300 s, 10 s · 2ⁿ), uniform in [max(5 s, b/2), b].
//!
//! The portal's failures, a host's and a disk's are waited for alike; what counts as one, and what ends the row, is said
//! where the row is kept.

use crate::limits::Limits;
use crate::seed::Chance;

/// A row of failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Failures in a row so far.
    pub fn failures(self) -> u32 {
        self.failures
    }

    /// One more failure: the wait after it, in milliseconds.
    pub fn fail(&mut self, limits: &Limits, chance: &mut Chance) -> u64 {
        self.failures = self.failures.saturating_add(1);
        let (low, high) = bounds_ms(limits, self.failures);
        chance.between(low, high)
    }

    /// A success ends the row.
    pub fn succeed(&mut self) {
        self.failures = 0;
    }
}

/// The shortest and the longest wait, in milliseconds, after so many failures in a row, from 1.
pub fn bounds_ms(limits: &Limits, failures: u32) -> (u64, u64) {
    let doublings = failures.saturating_sub(1).min(63);
    let base = limits
        .backoff_first_ms
        .saturating_mul(1 << doublings)
        .min(limits.backoff_ms_max);
    (limits.backoff_ms_min.max(base / 2), base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    // rule ANS-8
    #[test]
    fn ans_8_the_base_doubles_from_10_s_to_5_min_and_the_wait_lies_in_its_upper_half() {
        let rows = [
            (1, 5_000, 10_000),
            (2, 10_000, 20_000),
            (3, 20_000, 40_000),
            (4, 40_000, 80_000),
            (5, 80_000, 160_000),
            (6, 150_000, 300_000),
            (7, 150_000, 300_000),
            (u32::MAX, 150_000, 300_000),
        ];
        for (failures, low, high) in rows {
            assert_eq!(
                bounds_ms(&Limits::REAL, failures),
                (low, high),
                "after {failures}"
            );
        }
    }

    // rule ANS-8
    #[test]
    fn ans_8_a_row_of_failures_waits_by_its_length_and_a_success_ends_it() {
        let mut chance = Seed(3).child(Purpose::BackoffJitter);
        let mut backoff = Backoff::default();
        for failures in 1..=20 {
            let wait = backoff.fail(&Limits::REAL, &mut chance);
            let (low, high) = bounds_ms(&Limits::REAL, failures);
            assert!((low..=high).contains(&wait), "{wait} after {failures}");
        }
        backoff.succeed();
        assert!((5_000..=10_000).contains(&backoff.fail(&Limits::REAL, &mut chance)));
    }

    // rule ANS-11
    #[test]
    fn ans_11_a_thousand_agents_that_fail_together_come_back_over_seconds() {
        let mut by_second = [0_u32; 301];
        for agent in 0..1_000 {
            let mut chance = Seed(agent).child(Purpose::BackoffJitter);
            let wait = Backoff::default().fail(&Limits::REAL, &mut chance);
            by_second[usize::try_from(wait / 1_000).unwrap()] += 1;
        }
        let most = by_second.iter().max().unwrap();
        assert!(*most < 300, "{most} agents in one second");
    }
}
