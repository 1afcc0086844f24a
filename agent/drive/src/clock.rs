//! A live world's clocks.
//!
//! The monotonic one is tokio's, so that a test with paused time sees paused time. The wall clock is read once and goes
//! on with the monotonic one, by the offset and the drift of the node that is modelled: a fleet's clocks are wrong as its
//! scenario says and not as the machine's time service happens to slew.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::port::Clock;
use agent_core::time::{Monotonic, Now, Wall};
use tokio::time::Instant;

/// Clocks that begin at the start of a run. Copies share that start.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
    wall_ms_at_start: i64,
    offset_ms: i64,
    drift_ppm: i64,
}

impl SystemClock {
    /// Starts them: monotonic zero is now, and the wall clock is right.
    pub fn start() -> Self {
        Self::starting_at(Instant::now())
    }

    /// Starts them at a moment, which may be to come: until then monotonic time stands at zero.
    pub fn starting_at(start: Instant) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one reading of the system's time in a live world"
        )]
        let wall = SystemTime::now();
        let now = Instant::now();
        let wall_at_start =
            wall + start.saturating_duration_since(now) - now.saturating_duration_since(start);
        let since_epoch = wall_at_start.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start,
            wall_ms_at_start: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX),
            offset_ms: 0,
            drift_ppm: 0,
        }
    }

    /// The same start, with a wall clock that is `offset_ms` ahead (behind, if negative) and gains `drift_ppm`
    /// microseconds a second.
    #[must_use]
    pub fn with_wall(self, offset_ms: i64, drift_ppm: i64) -> Self {
        Self {
            offset_ms,
            drift_ppm,
            ..self
        }
    }

    /// When monotonic zero was.
    pub fn started(&self) -> Instant {
        self.start
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let elapsed_ms = i64::try_from(ms).unwrap_or(i64::MAX);
        let drift_ms = i128::from(elapsed_ms) * i128::from(self.drift_ppm) / 1_000_000;
        let wall_ms = self
            .wall_ms_at_start
            .saturating_add(elapsed_ms)
            .saturating_add(self.offset_ms)
            .saturating_add(i64::try_from(drift_ms).unwrap_or(0));
        Now {
            monotonic: Monotonic::from_ms(ms),
            wall: Wall::from_unix_ms(wall_ms),
        }
    }

    async fn sleep_until(&self, at: Monotonic) {
        // A wake that is centuries away is none; tokio would panic on an instant that does not exist.
        const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        let from_start = Duration::from_millis(at.as_ms()).min(FOREVER);
        tokio::time::sleep_until(self.start + from_start).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wall_goes_on_with_the_monotonic_clock_as_wrong_as_it_is_told() {
        let clock = SystemClock::start();
        let wrong = clock.with_wall(-90_000, 500);
        let before = clock.now();
        assert_eq!(before.monotonic, Monotonic::from_ms(0));
        clock.sleep_until(Monotonic::from_ms(20_000)).await;
        let (now, wrong) = (clock.now(), wrong.now());
        assert_eq!(now.monotonic, Monotonic::from_ms(20_000));
        assert_eq!(now.wall.unix_ms() - before.wall.unix_ms(), 20_000);
        assert_eq!(wrong.monotonic, now.monotonic);
        assert_eq!(wrong.wall.unix_ms() - now.wall.unix_ms(), -90_000 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn before_its_start_a_clock_stands_at_zero() {
        let reference = SystemClock::start().now();
        let later = Instant::now() + Duration::from_millis(3_000);
        let clock = SystemClock::starting_at(later);
        assert_eq!(clock.now().monotonic, Monotonic::from_ms(0));
        assert!(clock.now().wall.unix_ms() >= reference.wall.unix_ms() + 3_000);
        clock.sleep_until(Monotonic::from_ms(500)).await;
        assert_eq!(Instant::now(), later + Duration::from_millis(500));
        assert_eq!(clock.now().monotonic, Monotonic::from_ms(500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_in_the_past_is_now_and_one_without_end_is_never() {
        let clock = SystemClock::start();
        clock.sleep_until(Monotonic::from_ms(5)).await;
        clock.sleep_until(Monotonic::from_ms(1)).await;
        assert_eq!(clock.now().monotonic, Monotonic::from_ms(5));
        let never = clock.sleep_until(Monotonic::from_ms(u64::MAX));
        let limit = Duration::from_secs(365 * 24 * 3600);
        assert!(tokio::time::timeout(limit, never).await.is_err());
    }
}
