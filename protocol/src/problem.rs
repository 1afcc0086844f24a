//! A refusal as the portal writes it: RFC 9457 with the extension member `code` (WIRE-4).
//!
//! How an agent reads one stands in [`crate::pbx::call`].

use serde_json::{Map, Value};

use crate::dialect::Dialect;
use crate::id::ReleaseVersion;
use crate::time::Timestamp;
use crate::words::closed_words;

closed_words! {
    /// Every code of the protocol's table. Each has one status.
    pub enum ProblemCode ("problem code") {
        /// 400: syntax or shape of the request.
        InvalidRequest = "invalid_request",
        /// 400: a signature that was seen before (SIGN-5).
        Replayed = "replayed",
        /// 400: a weak or doubled key, or a wrong proof (KEY-1).
        InvalidKey = "invalid_key",
        /// 401: headers or signature (SIGN-3, SIGN-6).
        BadSignature = "bad_signature",
        /// 401: no agent of that ID (SIGN-6).
        UnknownAgent = "unknown_agent",
        /// 401: the identity was revoked.
        Revoked = "revoked",
        /// 401 at enrollment: no such token, or it is bound to another cluster or node.
        InvalidToken = "invalid_token",
        /// 401 at enrollment: used by other keys or another server (ENR-10).
        TokenUsed = "token_used",
        /// 401 at enrollment: too old.
        TokenExpired = "token_expired",
        /// 401 at enrollment: the token is for another cluster, node or server.
        ServerMismatch = "server_mismatch",
        /// 404: no such path, release or operation.
        NotFound = "not_found",
        /// 405: another method; `Allow` names it.
        MethodNotAllowed = "method_not_allowed",
        /// 413: more than 256 KiB (WIRE-2).
        BodyTooLarge = "body_too_large",
        /// 415: not exactly one `Content-Type` of JSON (SIGN-6).
        UnsupportedMediaType = "unsupported_media_type",
        /// 409: the timestamp is more than 60 s off; `portal_time` helps (SIGN-4).
        ClockSkew = "clock_skew",
        /// 409 at enrollment: the node booted another image than its release's.
        ImageMismatch = "image_mismatch",
        /// 409 at enrollment: the configuration cannot be built yet.
        Conflict = "conflict",
        /// 426: the agent is too old; `release` names the one to go to (ANS-6).
        ProtocolTooOld = "protocol_too_old",
        /// 429: `Retry-After` and `retry_after_seconds` (ANS-7).
        TooManyRequests = "too_many_requests",
        /// 503: the portal cannot decide (KEY-4).
        Internal = "internal",
    }
}

impl ProblemCode {
    /// The HTTP status that goes with the code.
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::Replayed | Self::InvalidKey => 400,
            Self::BadSignature | Self::UnknownAgent | Self::Revoked => 401,
            Self::InvalidToken | Self::TokenUsed | Self::TokenExpired | Self::ServerMismatch => 401,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::ClockSkew | Self::ImageMismatch | Self::Conflict => 409,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::ProtocolTooOld => 426,
            Self::TooManyRequests => 429,
            Self::Internal => 503,
        }
    }

    /// The title that people read.
    pub const fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "Invalid request",
            Self::Replayed => "Replayed",
            Self::InvalidKey => "Invalid key",
            Self::BadSignature => "Bad signature",
            Self::UnknownAgent => "Unknown agent",
            Self::Revoked => "Revoked",
            Self::InvalidToken => "Invalid token",
            Self::TokenUsed => "Token used",
            Self::TokenExpired => "Token expired",
            Self::ServerMismatch => "Server mismatch",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::BodyTooLarge => "Body too large",
            Self::UnsupportedMediaType => "Unsupported media type",
            Self::ClockSkew => "Clock skew",
            Self::ImageMismatch => "Image mismatch",
            Self::Conflict => "Conflict",
            Self::ProtocolTooOld => "Protocol too old",
            Self::TooManyRequests => "Too many requests",
            Self::Internal => "Internal",
        }
    }
}

/// A refusal, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The HTTP status; the code's own unless a fault says otherwise.
    pub status: u16,
    /// The code (WIRE-4).
    pub code: ProblemCode,
    /// The code's words for people.
    pub title: String,
    /// What was wrong with this very request, and what to do.
    pub detail: String,
    /// The portal's time; with `clock_skew` always (SIGN-4).
    pub portal_time: Option<Timestamp>,
    /// The release to go to; with `protocol_too_old` always (ANS-6).
    pub release: Option<ReleaseVersion>,
    /// Seconds to wait; with `too_many_requests` always (ANS-7).
    pub retry_after_seconds: Option<u64>,
}

impl Problem {
    /// The content type of a problem (RFC 9457).
    pub const CONTENT_TYPE: &'static str = "application/problem+json";

    /// A refusal with this code, its status and its title; members are added by the caller.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            status: code.status(),
            code,
            title: code.title().to_owned(),
            detail: detail.into(),
            portal_time: None,
            release: None,
            retry_after_seconds: None,
        }
    }

    /// The body, as `application/problem+json`, with the dialect's member names.
    pub fn encode(&self, dialect: &Dialect) -> Vec<u8> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
        put("type", "about:blank".into());
        put("title", self.title.as_str().into());
        put("status", self.status.into());
        put("detail", self.detail.as_str().into());
        put(dialect.member_code(), self.code.as_str().into());
        if let Some(portal_time) = self.portal_time {
            put(dialect.member_portal_time(), portal_time.to_string().into());
        }
        if let Some(release) = &self.release {
            put("release", release.as_str().into());
        }
        if let Some(seconds) = self.retry_after_seconds {
            put(dialect.member_retry_after_seconds(), seconds.into());
        }
        serde_json::to_vec(&members).expect("a map of strings and numbers always encodes")
    }

    /// The headers that the protocol's table puts beside this refusal, but for `Allow`, which the router knows
    /// ([`crate::endpoint::RouteRefusal`]): `WWW-Authenticate` (401), `Upgrade` (426), `Retry-After` (429, 503).
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        match self.status {
            401 => headers.push(("WWW-Authenticate", "Pbx".to_owned())),
            426 => headers.push(("Upgrade", "pbx-agent/2".to_owned())),
            _ => {}
        }
        if let Some(seconds) = self.retry_after_seconds {
            headers.push(("Retry-After", seconds.to_string()));
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_status_of_the_table_wire_4() {
        let mut by_status = std::collections::BTreeMap::<u16, Vec<&str>>::new();
        for code in ProblemCode::ALL {
            by_status
                .entry(code.status())
                .or_default()
                .push(code.as_str());
            assert_eq!(code.as_str().parse(), Ok(*code));
        }
        let found: Vec<_> = by_status
            .into_iter()
            .map(|(status, codes)| (status, codes.join(" ")))
            .collect();
        let table = [
            (400, "invalid_request replayed invalid_key"),
            (
                401,
                "bad_signature unknown_agent revoked invalid_token token_used token_expired server_mismatch",
            ),
            (404, "not_found"),
            (405, "method_not_allowed"),
            (409, "clock_skew image_mismatch conflict"),
            (413, "body_too_large"),
            (415, "unsupported_media_type"),
            (426, "protocol_too_old"),
            (429, "too_many_requests"),
            (503, "internal"),
        ];
        assert_eq!(
            found,
            table.map(|(status, codes)| (status, codes.to_owned()))
        );
    }

    #[test]
    fn a_problem_is_rfc_9457_with_its_members_wire_4() {
        let problem = Problem {
            portal_time: Some("2026-11-30T01:02:03Z".parse().unwrap()),
            ..Problem::new(ProblemCode::ClockSkew, "61 s behind")
        };
        let expected = serde_json::json!({
            "type": "about:blank", "title": "Clock skew", "status": 409, "code": "clock_skew", "detail": "61 s behind",
            "portal_time": "2026-11-30T01:02:03Z",
        });
        let written: Value = serde_json::from_slice(&problem.encode(&Dialect::default())).unwrap();
        assert_eq!(written, expected);

        let dialect =
            serde_json::from_str(r#"{"member_code": "err", "member_retry_after_seconds": "wait"}"#)
                .unwrap();
        let problem = Problem {
            retry_after_seconds: Some(7),
            ..Problem::new(ProblemCode::TooManyRequests, "too fast")
        };
        let written: Value = serde_json::from_slice(&problem.encode(&dialect)).unwrap();
        assert_eq!(
            (&written["err"], &written["wait"]),
            (&"too_many_requests".into(), &7.into())
        );
        assert_eq!(problem.headers(), [("Retry-After", "7".to_owned())]);
    }

    #[test]
    fn a_status_brings_its_header() {
        for code in ProblemCode::ALL {
            let names: Vec<_> = Problem::new(*code, "")
                .headers()
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            let expected: &[&str] = match code.status() {
                401 => &["WWW-Authenticate"],
                426 => &["Upgrade"],
                _ => &[],
            };
            assert_eq!(names, expected, "{code}");
        }
    }
}
