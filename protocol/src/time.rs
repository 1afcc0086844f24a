//! The two spellings of a moment on the wire: a signature's Unix seconds, and RFC 3339 UTC for all else (WIRE-6).
//!
//! Nobody's clock is read here.

use std::fmt;
use std::str::FromStr;

use crate::hash::ascii;
use crate::words::{schema, serde_by_text};

/// The timestamp of a signature: whole seconds since 1970 (SIGN-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Reads 1 to 10 decimal digits without sign or leading zero (KEY-2); `0` itself is one digit. `None` otherwise.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let spelled_once = text == "0" || !text.starts_with('0');
        if digits && spelled_once {
            text.parse().ok().map(Self)
        } else {
            None
        }
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A moment as RFC 3339 UTC, to the millisecond; years 0000 to 9999. Written with `Z`, and with a fraction only where
/// there is one; read with `Z` or `+00:00`, digits beyond the millisecond cut off (WIRE-6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A text that is no moment in RFC 3339 UTC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time: it must be RFC 3339 in UTC, as 2026-11-30T01:02:03Z")]
pub struct TimeRefused(pub String);

impl Timestamp {
    /// 0000-01-01T00:00:00Z.
    pub const MIN: Self = Self(-62_167_219_200_000);
    /// 9999-12-31T23:59:59.999Z.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// A moment from milliseconds since 1970; what lies outside the years 0000 to 9999 becomes the nearest end.
    pub fn from_unix_ms(unix_ms: i64) -> Self {
        Self(unix_ms.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Milliseconds since 1970.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970, rounded down.
    pub const fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

impl FromStr for Timestamp {
    type Err = TimeRefused;

    fn from_str(text: &str) -> Result<Self, TimeRefused> {
        read_rfc3339(text.as_bytes())
            .map(Self)
            .ok_or_else(|| TimeRefused(crate::id::shown(text).to_owned()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Digit by digit: every report and every answer carries times, and general formatting shows in their cost.
        let seconds = self.unix_seconds();
        let (year, month, day) = date_of(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |end: usize, mut number: i64| {
            for digit in text[..end]
                .iter_mut()
                .rev()
                .take_while(|byte| byte.is_ascii_digit())
            {
                *digit += (number % 10) as u8;
                number /= 10;
            }
        };
        put(4, year);
        put(7, month);
        put(10, day);
        put(13, of_day / 3600);
        put(16, of_day / 60 % 60);
        put(19, of_day % 60);
        let ms = self.0.rem_euclid(1000);
        put(23, ms);
        if ms == 0 {
            text[19] = b'Z';
        }
        formatter.pad(ascii(if ms == 0 { &text[..20] } else { &text }))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

serde_by_text!(Timestamp, "a time as RFC 3339 UTC");
schema!(
    Timestamp,
    schemars::json_schema!({
        "description": "A time, RFC 3339 in UTC.", "type": "string", "format": "date-time", "pattern": "Z$",
    })
);

/// Unix milliseconds of `YYYY-MM-DDTHH:MM:SS[.fraction](Z|+00:00)`. A leap second (`23:59:60`) is the second after.
fn read_rfc3339(text: &[u8]) -> Option<i64> {
    let number = |at: usize, length: usize| {
        let digits = text.get(at..at + length)?;
        digits.iter().try_fold(0_i64, |sum, b| {
            b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0'))
        })
    };
    let is = |at: usize, byte: u8| text.get(at) == Some(&byte);
    if !(is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':')) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let (ms, rest) = read_fraction(text.get(19..)?)?;
    let leap_second = second == 60 && hour == 23 && minute == 59;
    let in_range = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && (second < 60 || leap_second)
        && matches!(rest, b"Z" | b"+00:00");
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    in_range.then(|| (seconds * 1000 + ms).min(Timestamp::MAX.0))
}

/// Milliseconds of an optional `.digits`, and what follows it.
fn read_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let length = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let digit = |at: usize| {
        if at < length {
            i64::from(text[at] - b'0')
        } else {
            0
        }
    };
    (length > 0).then(|| (digit(0) * 100 + digit(1) * 10 + digit(2), &text[length..]))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap_year => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date of the proleptic Gregorian calendar; years begin in March, so a leap day ends one
/// (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The reverse of [`days_since_1970`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_signatures_timestamp_is_digits_only_key_2() {
        for (text, seconds) in [
            ("0", Some(0)),
            ("9", Some(9)),
            ("1796000523", Some(1_796_000_523)),
            ("9999999999", Some(9_999_999_999)),
            ("", None),
            ("00", None),
            ("01796000523", None),
            ("+1", None),
            ("-1", None),
            ("1.0", None),
            (" 1", None),
            ("10000000000", None),
            ("١", None),
        ] {
            assert_eq!(
                UnixSeconds::parse(text),
                seconds.map(UnixSeconds),
                "{text:?}"
            );
        }
    }

    #[test]
    fn every_other_time_is_rfc_3339_utc_wire_6() {
        for (text, written) in [
            ("2026-11-30T01:02:03Z", Some("2026-11-30T01:02:03Z")),
            ("2026-11-30T01:02:03+00:00", Some("2026-11-30T01:02:03Z")),
            ("2026-11-30T01:02:03.5Z", Some("2026-11-30T01:02:03.500Z")),
            ("2026-11-30T01:02:03.0009Z", Some("2026-11-30T01:02:03Z")),
            ("0000-01-01T00:00:00Z", Some("0000-01-01T00:00:00Z")),
            ("9999-12-31T23:59:59.999Z", Some("9999-12-31T23:59:59.999Z")),
            ("2016-12-31T23:59:60Z", Some("2017-01-01T00:00:00Z")),
            ("2000-02-29T00:00:00Z", Some("2000-02-29T00:00:00Z")),
            ("1900-02-29T00:00:00Z", None),
            ("2026-04-31T00:00:00Z", None),
            ("2026-11-30T12:59:60Z", None),
            ("2026-11-30T01:02:03-00:00", None),
            ("2026-11-30T02:02:03+01:00", None),
            ("2026-11-30t01:02:03z", None),
            ("2026-11-30 01:02:03Z", None),
            ("2026-11-30T01:02Z", None),
            ("2026-11-30T01:02:03.Z", None),
            ("2026-11-30T01:02:03ZZ", None),
            ("+2026-11-30T01:02:03Z", None),
            ("2026-11-30T01:02:03é", None),
        ] {
            let read = text.parse::<Timestamp>().ok().map(|time| time.to_string());
            assert_eq!(read.as_deref(), written, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_was_written(ms in Timestamp::MIN.0..=Timestamp::MAX.0) {
            let time = Timestamp::from_unix_ms(ms);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }

        /// Another library's calendar says the same.
        #[test]
        fn a_time_is_what_jiff_says(ms in -62_000_000_000_000_i64..=253_000_000_000_000) {
            let theirs = jiff::Timestamp::from_millisecond(ms).unwrap();
            prop_assert_eq!(theirs.to_string().parse(), Ok(Timestamp(ms)));
            prop_assert_eq!(Timestamp(ms).to_string().parse::<jiff::Timestamp>().unwrap(), theirs);
        }
    }
}
