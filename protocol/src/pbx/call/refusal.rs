//! What an agent can learn from anything but a 200 (WIRE-4, ANS-4, ANS-5, ANS-7).

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::time::UNIX_EPOCH;

use serde_json::value::RawValue;

use crate::dialect::Dialect;
use crate::id::ReleaseVersion;
use crate::json;
use crate::limits::{BODY_BYTES_MAX, RETRY_AFTER_SECONDS_MIN};
use crate::problem::{Problem, ProblemCode};
use crate::time::Timestamp;

/// A refusal as it was understood; what could not be read is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The code, if it is one of the table's.
    pub code: Option<ProblemCode>,
    /// The code as it came, known or not; at most 80 characters of it.
    pub raw_code: Option<String>,
    /// The portal's time (ANS-5).
    pub portal_time: Option<Timestamp>,
    /// The release to go to (ANS-6).
    pub release: Option<ReleaseVersion>,
    /// How long the portal asks to wait (ANS-7).
    pub retry_after: RetryAfter,
    /// The `Date` header; counts only where `portal_time` is missing and there is no `Age` (ANS-5).
    pub date: Option<Timestamp>,
    /// Whether there is an `Age` header: the answer, and its `Date`, come from a cache.
    pub has_age: bool,
    /// Whether the body is a JSON object and the content type, if any, says so. What is not is a proxy's word (ANS-4).
    pub is_json: bool,
    /// Whether the body is empty; an empty 401 is the portal's word (ANS-4).
    pub is_empty: bool,
    /// The detail for people; at most 1,000 characters of it.
    pub detail: Option<String>,
}

/// How long a portal asks to wait, after merging header lines and member (ANS-7). No bound is set here: neither the least
/// second nor the greatest day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum RetryAfter {
    /// Not at all.
    #[default]
    Absent,
    /// It says something, and none of it can be read; at most 80 characters of it.
    Unreadable(String),
    /// So many seconds. More than fit are [`u64::MAX`].
    Seconds(u64),
    /// Until a moment.
    At(Timestamp),
    /// Both were said; whichever is longer. Which one that is depends on the time.
    Longer {
        /// So many seconds.
        seconds: u64,
        /// Until a moment.
        until: Timestamp,
    },
}

impl RetryAfter {
    /// Seconds to wait as of `now` (the portal's time, as well as it is known), at least 1, the 24 h of ANS-7 not yet
    /// applied; none where nothing readable was said.
    pub fn wait_seconds(&self, now: Timestamp) -> Option<u64> {
        let until_seconds = |until: Timestamp| {
            let ms = u64::try_from(until.unix_ms() - now.unix_ms()).unwrap_or(0);
            ms.div_ceil(1000)
        };
        let seconds = match self {
            Self::Absent | Self::Unreadable(_) => return None,
            Self::Seconds(seconds) => *seconds,
            Self::At(until) => until_seconds(*until),
            Self::Longer { seconds, until } => (*seconds).max(until_seconds(*until)),
        };
        Some(seconds.max(RETRY_AFTER_SECONDS_MIN))
    }
}

impl From<&Problem> for Refusal {
    /// What an agent learns from a problem that reached it whole: for worlds without bytes.
    fn from(problem: &Problem) -> Self {
        Self {
            status: problem.status,
            code: Some(problem.code),
            raw_code: Some(problem.code.as_str().to_owned()),
            portal_time: problem.portal_time,
            release: problem.release.clone(),
            retry_after: problem
                .retry_after_seconds
                .map_or(RetryAfter::Absent, RetryAfter::Seconds),
            date: None,
            has_age: false,
            is_json: true,
            is_empty: false,
            detail: Some(cut(&problem.detail, 1000)),
        }
    }
}

/// Reads a refusal.
pub(super) fn read(
    dialect: &Dialect,
    status: u16,
    headers: &[(&str, &[u8])],
    body: &[u8],
) -> Refusal {
    let lines = |name: &'static str| {
        headers
            .iter()
            .filter(move |(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    };
    let members = if lines("content-type").all(says_json) {
        read_members(body)
    } else {
        None
    };
    let is_json = members.is_some();
    let members = members.unwrap_or_default();
    let text = |name: &str| {
        members
            .get(name)
            .and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
    };

    let raw_code = text(dialect.member_code());
    let wait_member = members
        .get(dialect.member_retry_after_seconds())
        .map(|raw| raw.get());
    Refusal {
        status,
        code: raw_code
            .as_deref()
            .and_then(|code| ProblemCode::from_str(code).ok()),
        raw_code: raw_code.map(|code| cut(&code, 80)),
        portal_time: text(dialect.member_portal_time()).and_then(|time| time.parse().ok()),
        release: text("release").and_then(|release| release.parse().ok()),
        retry_after: merge(
            lines("retry-after")
                .map(Said::by_header)
                .chain(wait_member.map(Said::by_member)),
        ),
        date: lines("date")
            .find_map(|value| read_http_date(std::str::from_utf8(value).ok()?.trim())),
        has_age: lines("age").next().is_some(),
        is_json,
        is_empty: body.is_empty(),
        detail: text("detail").map(|detail| cut(&detail, 1000)),
    }
}

/// The members of a body that is a JSON object.
fn read_members(body: &[u8]) -> Option<BTreeMap<String, Box<RawValue>>> {
    if body.len() > BODY_BYTES_MAX {
        return None;
    }
    json::scan(body).ok()?.read().ok()
}

/// `application/json` or `application/problem+json`, parameters aside (WIRE-4).
fn says_json(content_type: &[u8]) -> bool {
    let media_type = content_type
        .split(|b| *b == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    [&b"application/json"[..], b"application/problem+json"]
        .iter()
        .any(|json| media_type.eq_ignore_ascii_case(json))
}

fn cut(text: &str, characters_max: usize) -> String {
    text.chars().take(characters_max).collect()
}

/// What one header line or the member says.
enum Said {
    Seconds(u64),
    At(Timestamp),
    Unreadable(String),
}

impl Said {
    /// Digits only, or an HTTP date (RFC 9110, 10.2.3): `1.5`, `+5` and `-5` are neither.
    fn by_header(value: &[u8]) -> Self {
        let text = String::from_utf8_lossy(value);
        let text = text.trim_matches([' ', '\t']);
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Self::Seconds(text.parse().unwrap_or(u64::MAX));
        }
        match read_http_date(text) {
            Some(until) => Self::At(until),
            None => Self::Unreadable(cut(text, 80)),
        }
    }

    /// A number, not negative; a fraction rounds up.
    fn by_member(raw: &str) -> Self {
        if raw.bytes().all(|b| b.is_ascii_digit()) {
            return Self::Seconds(raw.parse().unwrap_or(u64::MAX));
        }
        match raw.parse::<f64>() {
            // `as` saturates, so 1e400 is the longest wait and not the shortest.
            Ok(seconds) if seconds >= 0.0 && !raw.starts_with('-') => {
                Self::Seconds(seconds.ceil() as u64)
            }
            _ => Self::Unreadable(cut(raw, 80)),
        }
    }
}

/// The larger of what was said (ANS-7); what cannot be read counts only where nothing can.
fn merge(said: impl Iterator<Item = Said>) -> RetryAfter {
    let (mut seconds, mut until, mut unreadable) = (None, None, None);
    for said in said {
        match said {
            Said::Seconds(said) => seconds = seconds.max(Some(said)),
            Said::At(said) => until = until.max(Some(said)),
            Said::Unreadable(raw) => unreadable = unreadable.or(Some(raw)),
        }
    }
    match (seconds, until) {
        (Some(seconds), Some(until)) => RetryAfter::Longer { seconds, until },
        (Some(seconds), None) => RetryAfter::Seconds(seconds),
        (None, Some(until)) => RetryAfter::At(until),
        (None, None) => unreadable.map_or(RetryAfter::Absent, RetryAfter::Unreadable),
    }
}

/// An HTTP date in any of its three forms (RFC 9110, 5.6.7).
fn read_http_date(text: &str) -> Option<Timestamp> {
    let since_1970 = httpdate::parse_http_date(text)
        .ok()?
        .duration_since(UNIX_EPOCH)
        .ok()?;
    i64::try_from(since_1970.as_millis())
        .ok()
        .map(Timestamp::from_unix_ms)
}
