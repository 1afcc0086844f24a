//! Virtual time: a queue of what is to happen, and clocks on nodes that are wrong as they are told.
//!
//! Nothing here waits. Time passes when the next thing happens, to the moment at which it does; of two things at one
//! moment the one that was scheduled first is first, so the same run is the same in every order of its parts.

use std::collections::BTreeMap;

use agent_core::time::{Monotonic, Now, Wall};
use protocol::time::Timestamp;

/// What is to happen, and when; and the moment that it is now.
#[derive(Debug, Clone)]
pub struct VirtualClock<T> {
    now: Monotonic,
    sequence: u64,
    /// By when, then by the place in the order of scheduling.
    queue: BTreeMap<(Monotonic, u64), T>,
}

impl<T> Default for VirtualClock<T> {
    /// Monotonic zero, and nothing is to happen.
    fn default() -> Self {
        Self {
            now: Monotonic::default(),
            sequence: 0,
            queue: BTreeMap::new(),
        }
    }
}

impl<T> VirtualClock<T> {
    /// The moment.
    pub fn now(&self) -> Monotonic {
        self.now
    }

    /// Something is to happen; what should have happened already happens now, after everything that was scheduled for now.
    pub fn schedule(&mut self, at: Monotonic, what: T) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), what);
    }

    /// The next thing, if it happens by `until`; time passes to its moment. Else time passes to `until`.
    pub fn next_by(&mut self, until: Monotonic) -> Option<T> {
        match self.queue.first_entry() {
            Some(next) if next.key().0 <= until => {
                (self.now, _) = *next.key();
                Some(next.remove())
            }
            _ => {
                self.now = self.now.max(until);
                None
            }
        }
    }
}

/// A node's clocks over a run's virtual time. The monotonic one is the run's; the wall clock is off by an offset, drifts,
/// and can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeClock {
    /// The right time at monotonic zero.
    started_at: Timestamp,
    offset_ms: i64,
    drift_ppm: i64,
}

impl NodeClock {
    /// A right clock of a run that begins at this time.
    pub fn right(started_at: Timestamp) -> Self {
        Self::wrong(started_at, 0, 0)
    }

    /// A clock that is `offset_ms` ahead at monotonic zero (behind, if negative) and gains `drift_ppm` microseconds a
    /// second.
    pub fn wrong(started_at: Timestamp, offset_ms: i64, drift_ppm: i64) -> Self {
        Self {
            started_at,
            offset_ms,
            drift_ppm,
        }
    }

    /// Somebody sets the wall clock by so much; what others measure durations with goes on.
    pub fn jump(&mut self, by_ms: i64) {
        self.offset_ms = self.offset_ms.saturating_add(by_ms);
    }

    /// Both clocks at a moment of the run.
    pub fn read(&self, at: Monotonic) -> Now {
        let elapsed_ms = i64::try_from(at.as_ms()).unwrap_or(i64::MAX);
        let drift_ms = i128::from(elapsed_ms) * i128::from(self.drift_ppm) / 1_000_000;
        let wall_ms = (self.started_at.unix_ms())
            .saturating_add(elapsed_ms)
            .saturating_add(self.offset_ms)
            .saturating_add(i64::try_from(drift_ms).unwrap_or(0));
        Now {
            monotonic: at,
            wall: Wall::from_unix_ms(wall_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ms(ms)
    }

    #[test]
    fn things_happen_in_the_order_of_their_moments_and_at_one_moment_as_they_were_scheduled() {
        let mut clock = VirtualClock::default();
        for (ms, what) in [(30, "d"), (10, "a"), (20, "b"), (20, "c")] {
            clock.schedule(at(ms), what);
        }
        let mut happened = Vec::new();
        while let Some(what) = clock.next_by(at(25)) {
            happened.push((clock.now().as_ms(), what));
        }
        assert_eq!(happened, [(10, "a"), (20, "b"), (20, "c")]);
        assert_eq!(clock.now(), at(25), "time passes without anything too");
        clock.schedule(at(1), "late");
        assert_eq!((clock.next_by(at(25)), clock.now()), (Some("late"), at(25)));
        assert_eq!((clock.next_by(at(24)), clock.now()), (None, at(25)));
        assert_eq!((clock.next_by(at(30)), clock.now()), (Some("d"), at(30)));
    }

    #[test]
    fn a_wall_clock_is_as_wrong_as_it_is_told_and_the_monotonic_one_is_nobodys_to_set() {
        let started_at = Timestamp::from_unix_ms(1_000_000);
        // (offset, drift, set by) and the wall clock after 20 s
        for ((offset_ms, drift_ppm, jump_ms), wall_ms) in [
            ((0, 0, 0), 1_020_000),
            ((-90_000, 500, 0), 930_010),
            ((250, -500_000, 3_600_000), 4_610_250),
            ((i64::MAX, i64::MAX, i64::MAX), i64::MAX),
        ] {
            let mut clock = NodeClock::wrong(started_at, offset_ms, drift_ppm);
            clock.jump(jump_ms);
            let now = clock.read(at(20_000));
            assert_eq!(now.monotonic, at(20_000));
            assert_eq!(now.wall.unix_ms(), wall_ms, "{offset_ms} {drift_ppm}");
        }
    }
}
