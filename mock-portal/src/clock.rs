//! The one place of this crate that reads the machine's clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use portal_core::PortalNow;
use protocol::time::Timestamp;

/// The machine's clocks, the second counted from when this was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// What the monotonic clock said at the start.
    from_ms: u64,
}

impl Clock {
    /// Starts counting.
    #[expect(
        clippy::disallowed_methods,
        reason = "this module is where the machine's clocks are read"
    )]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            from_ms: 0,
        }
    }

    /// The same, for a portal that remembers moments of the monotonic clock up to this one: it goes on from there.
    pub fn go_on_from(self, monotonic_ms: u64) -> Self {
        Self {
            from_ms: monotonic_ms,
            ..self
        }
    }

    /// The moment, for the portal.
    pub fn now(&self) -> PortalNow {
        PortalNow {
            wall: wall(),
            monotonic_ms: u64::try_from(self.elapsed().as_millis())
                .unwrap_or(u64::MAX)
                .saturating_add(self.from_ms),
        }
    }

    /// Time since this was made; two of them make a latency.
    #[expect(
        clippy::disallowed_methods,
        reason = "this module is where the machine's clocks are read"
    )]
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(self.start)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module is where the machine's clocks are read"
)]
fn wall() -> Timestamp {
    let milliseconds = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_unix_ms(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => milliseconds(since),
        Err(before) => -milliseconds(before.duration()), // a machine whose clock says 1969
    })
}
