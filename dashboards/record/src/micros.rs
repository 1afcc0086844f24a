//! The unit of time in a record: whole microseconds.
//!
//! A [`Micros`] is a span, or a moment as the span since the start of the run; which of the two a field is, its name
//! says (`started`, `intended` are moments). It comes from no clock: the world that measured it hands it in.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Microseconds, as a span or since the start of the run.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all; as a moment, the start of the run.
    pub const ZERO: Micros = Micros(0);

    /// So many milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Micros(ms.saturating_mul(1_000))
    }

    /// So many seconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Micros(seconds.saturating_mul(1_000_000))
    }

    /// The span from `earlier` to this moment; zero if `earlier` is the later one.
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// Seconds with their fraction.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// The part of a run that is judged: what was due from `from` on and before `until`. Warm-up lies before it, the time in
/// which the last answers are waited for behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// The first moment that counts.
    pub from: Micros,
    /// The first moment that no longer does.
    pub until: Micros,
}

impl Window {
    /// Whether what was due at `intended` counts.
    pub fn holds(&self, intended: Micros) -> bool {
        (self.from..self.until).contains(&intended)
    }

    /// How long it is; zero if the run ended before its warm-up did.
    pub fn length(&self) -> Micros {
        self.until.since(self.from)
    }

    /// Events per second; none for an empty window, or a short run would divide by nothing.
    pub fn rate(&self, count: u64) -> Option<f64> {
        (self.length() > Micros::ZERO).then(|| count as f64 / self.length().as_seconds())
    }
}

impl From<Duration> for Micros {
    /// Saturates after half a million years.
    fn from(duration: Duration) -> Self {
        Micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for Duration {
    fn from(micros: Micros) -> Self {
        Duration::from_micros(micros.0)
    }
}

impl Add for Micros {
    type Output = Micros;

    fn add(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Micros {
    /// Three digits and a unit, as a person would say it: `850 µs`, `12.4 ms`, `1.25 s`, `3 min 20 s`, `2 h 5 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0;
        let seconds = (us.saturating_add(500_000)) / 1_000_000;
        let text = match us {
            // Nothing is nothing in any unit, and a start is at no microsecond.
            0 => "0 s".to_owned(),
            1..1_000 => format!("{us} µs"),
            // Rounding to three digits must not print `1000 ms`.
            1_000..999_500 => three_digits(us as f64 / 1e3, "ms"),
            999_500..119_500_000 => three_digits(us as f64 / 1e6, "s"),
            119_500_000..7_170_000_000 => two_units(seconds, 60, "min", "s"),
            _ => two_units((seconds + 30) / 60, 60, "h", "min"),
        };
        f.pad(&text)
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    let decimals = match value {
        _ if value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    let digits = format!("{value:.decimals$}");
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits.as_str(),
    };
    format!("{digits} {unit}")
}

fn two_units(small: u64, per_large: u64, large_unit: &str, small_unit: &str) -> String {
    match (small / per_large, small % per_large) {
        (large, 0) => format!("{large} {large_unit}"),
        (large, rest) => format!("{large} {large_unit} {rest} {small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_as_a_person_would_say_it() {
        let rows = [
            (0, "0 s"),
            (1, "1 µs"),
            (999, "999 µs"),
            (1_000, "1 ms"),
            (1_234, "1.23 ms"),
            (12_340, "12.3 ms"),
            (250_000, "250 ms"),
            (999_499, "999 ms"),
            (999_500, "1 s"),
            (1_250_000, "1.25 s"),
            (30_000_000, "30 s"),
            (119_000_000, "119 s"),
            (119_499_999, "119 s"),
            (119_500_000, "2 min"),
            (200_000_000, "3 min 20 s"),
            (7_200_000_000, "2 h"),
            (7_500_000_000, "2 h 5 min"),
            (u64::MAX, "5124095576 h 2 min"),
        ];
        for (us, text) in rows {
            assert_eq!(Micros(us).to_string(), text, "{us}");
        }
    }

    // case L5: a rate is events over the window, and there is none over no window.
    #[test]
    fn a_rate_over_no_time_is_none() {
        let window = |from, until| Window {
            from: Micros::from_seconds(from),
            until: Micros::from_seconds(until),
        };
        assert_eq!(window(25, 120).rate(950), Some(10.0));
        assert_eq!(window(25, 26).rate(0), Some(0.0));
        assert_eq!(window(25, 25).rate(7), None);
        assert_eq!(window(25, 3).rate(7), None);
        assert!(window(25, 26).holds(Micros::from_seconds(25)));
        assert!(!window(25, 26).holds(Micros::from_seconds(26)));
    }

    #[test]
    fn spans_do_not_wrap() {
        assert_eq!(Micros(5).since(Micros(7)), Micros::ZERO);
        assert_eq!(Micros(7).since(Micros(5)), Micros(2));
        assert_eq!(Micros(u64::MAX) + Micros(1), Micros(u64::MAX));
        assert_eq!(Micros::from(Duration::MAX), Micros(u64::MAX));
    }
}
