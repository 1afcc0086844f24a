//! 429: so many requests within so many seconds. Forgotten when the portal ends; not part of its state.

use crate::portal::RateLimit;

/// What one caller has used up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    since_monotonic_ms: u64,
    requests: u32,
}

impl Window {
    /// Counts a request; the seconds to wait, at least 1, if it is one too many.
    pub(crate) fn take(&mut self, limit: RateLimit, monotonic_ms: u64) -> Result<(), u64> {
        let length_ms = u64::from(limit.seconds) * 1000;
        let passed_ms = monotonic_ms.saturating_sub(self.since_monotonic_ms);
        if self.requests == 0 || passed_ms >= length_ms {
            *self = Self {
                since_monotonic_ms: monotonic_ms,
                requests: 0,
            };
        }
        if self.requests < limit.requests {
            self.requests += 1;
            return Ok(());
        }
        Err(
            (length_ms - monotonic_ms.saturating_sub(self.since_monotonic_ms))
                .div_ceil(1000)
                .max(1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_pass_and_the_next_waits_for_the_end_of_the_window() {
        let limit = RateLimit {
            requests: 2,
            seconds: 10,
        };
        let mut window = Window::default();
        for (monotonic_ms, says) in [
            (5_000, Ok(())),
            (6_000, Ok(())),
            (6_001, Err(9)),
            (14_999, Err(1)),
            (15_000, Ok(())),
            (15_000, Ok(())),
            (15_000, Err(10)),
        ] {
            assert_eq!(window.take(limit, monotonic_ms), says, "{monotonic_ms}");
        }
        assert_eq!(
            Window::default().take(
                RateLimit {
                    requests: 0,
                    seconds: 0
                },
                7
            ),
            Err(1)
        );
    }
}
