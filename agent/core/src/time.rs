//! Two clocks that cannot be mixed.
//!
//! Durations, deadlines and waits are [`Monotonic`]; what other machines see (signatures, times in reports) is [`Wall`].
//! Nothing here reads a clock: a world hands in [`Now`] with every input.

use std::ops::{Add, Sub};
use std::time::Duration;

use protocol::time::Timestamp;

/// Milliseconds since an arbitrary start that only grow, through sleep and whatever is done to the wall clock
/// (`CLOCK_BOOTTIME` on a node).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(u64);

impl Monotonic {
    /// A reading, in milliseconds since the clock's start.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the clock's start.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; nothing if it is before.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// So many milliseconds later.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    /// Later by a duration, in whole milliseconds.
    fn add(self, duration: Duration) -> Self {
        self.plus_ms(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Sub for Monotonic {
    type Output = Duration;

    /// How long between the two; nothing if the second is the later one.
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Milliseconds since 1970 as the node's own clock says, uncorrected; it may jump, and be wrong by decades.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

impl Wall {
    /// A reading, in milliseconds since 1970.
    pub const fn from_unix_ms(unix_ms: i64) -> Self {
        Self(unix_ms)
    }

    /// Milliseconds since 1970.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// The moment that this reading means with an offset, in milliseconds, learnt from the portal (ANS-5).
    pub fn corrected(self, offset_ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(self.0.saturating_add(offset_ms))
    }
}

/// Both clocks, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Now {
    /// What durations are measured with.
    pub monotonic: Monotonic,
    /// What others are told.
    pub wall: Wall,
}
