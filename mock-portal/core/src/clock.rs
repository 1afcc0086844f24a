//! The portal's own clock: the machine's, set off and drifting as it was told (`PUT /clock`).

use protocol::time::{Timestamp, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::request::PortalNow;

/// How the portal's clock differs from the machine's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSetting {
    /// Milliseconds by which it was set ahead.
    pub offset_ms: i64,
    /// Parts in a million by which it runs faster.
    pub drift_ppm: i64,
    /// When it was set, by the monotonic clock: the drift counts from there.
    pub set_at_monotonic_ms: u64,
}

/// A moment as the portal sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The portal's time.
    pub(crate) time: Timestamp,
    /// Milliseconds of a clock that nobody sets.
    pub(crate) monotonic_ms: u64,
}

impl ClockSetting {
    /// The moment by the portal's clock.
    pub(crate) fn moment(&self, now: PortalNow) -> Moment {
        let elapsed_ms = i128::from(now.monotonic_ms) - i128::from(self.set_at_monotonic_ms);
        let drifted_ms = elapsed_ms * i128::from(self.drift_ppm) / 1_000_000;
        let time_ms = i128::from(now.wall.unix_ms()) + i128::from(self.offset_ms) + drifted_ms;
        let time_ms =
            i64::try_from(time_ms).unwrap_or(if time_ms < 0 { i64::MIN } else { i64::MAX });
        Moment {
            time: Timestamp::from_unix_ms(time_ms),
            monotonic_ms: now.monotonic_ms,
        }
    }
}

impl Moment {
    /// Whole seconds by which a signature's timestamp is ahead of the portal's time; negative when it is behind (SIGN-4).
    pub(crate) fn seconds_ahead(&self, at: UnixSeconds) -> i64 {
        let at = i64::try_from(at.0).unwrap_or(i64::MAX);
        at.saturating_sub(self.time.unix_seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_and_drift_add_up() {
        // (offset ms, drift ppm, set at, wall ms, monotonic ms) and the portal's time in ms
        for (setting, now, time_ms) in [
            ((0, 0, 0), (1_000_000, 5), 1_000_000),
            ((-1500, 0, 0), (1_000_000, 5), 998_500),
            ((250, 1_000, 10_000), (1_000_000, 20_000), 1_000_260),
            ((0, -500_000, 10_000), (1_000_000, 20_000), 995_000),
            ((0, 1_000, 20_000), (1_000_000, 10_000), 999_990),
            (
                (i64::MAX, i64::MAX, 0),
                (1_000_000, u64::MAX),
                Timestamp::MAX.unix_ms(),
            ),
            (
                (i64::MIN, i64::MIN, 0),
                (1_000_000, u64::MAX),
                Timestamp::MIN.unix_ms(),
            ),
        ] {
            let (offset_ms, drift_ppm, set_at_monotonic_ms) = setting;
            let (wall, monotonic_ms) = (Timestamp::from_unix_ms(now.0), now.1);
            let moment = ClockSetting {
                offset_ms,
                drift_ppm,
                set_at_monotonic_ms,
            }
            .moment(PortalNow { wall, monotonic_ms });
            assert_eq!(moment.time.unix_ms(), time_ms, "{setting:?} {now:?}");
            assert_eq!(moment.monotonic_ms, monotonic_ms);
        }
    }
}
