//! Who may call the control API: it can revoke a fleet, so a web page must not be able to.
//!
//! Without a token only this machine calls it: the address is a loopback one, and `Host` must name one, or a page whose
//! name was pointed at 127.0.0.1 would be let in (DNS rebinding). With a token, the token is what counts. Writes from a
//! browser need the same origin either way.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};

use super::refusal::{Code, Refusal};

/// The token of the control API. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct LabToken(String);

/// A text that cannot be sent as a bearer token. Does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lab token is refused: it must be 8 to 200 visible ASCII characters")]
pub struct LabTokenRefused;

impl std::str::FromStr for LabToken {
    type Err = LabTokenRefused;

    fn from_str(text: &str) -> Result<Self, LabTokenRefused> {
        let fits =
            (8..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(LabTokenRefused)
        }
    }
}

impl std::fmt::Debug for LabToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LabToken(redacted)")
    }
}

impl LabToken {
    /// Compares without telling by its duration how much was right.
    fn is(&self, other: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        own.len() == other.len()
            && own
                .iter()
                .zip(other)
                .fold(0, |differ, (a, b)| differ | (a ^ b))
                == 0
    }

    /// The token, for the header of a call.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Lets a request through or says why not.
pub(super) fn check(token: Option<&LabToken>, request: &Parts) -> Result<(), Refusal> {
    let host = only(&request.headers, &HOST)?.ok_or_else(|| {
        Refusal::invalid(
            "the request has no Host header",
            "send HTTP/1.1 with a Host header, as every client does",
        )
    })?;
    match token {
        Some(token) => {
            let given = only(&request.headers, &AUTHORIZATION)?;
            let right = given.and_then(bearer).is_some_and(|given| token.is(given));
            if !right {
                let detail = match given {
                    None => "this control API asks for a token and none came",
                    Some(_) => "the token is not the one that this server was started with",
                };
                return Err(Refusal::new(
                    Code::Unauthorized,
                    detail,
                    "send Authorization: Bearer TOKEN",
                ));
            }
        }
        None if !is_loopback(host) => {
            return Err(Refusal::new(
                Code::Forbidden,
                format!("Host {host:?} does not name this machine's loopback"),
                "call it as 127.0.0.1, [::1] or localhost; from elsewhere start the server with --lab-token",
            ));
        }
        None => {}
    }
    if is_write(&request.method)
        && let Some(origin) = only(&request.headers, &ORIGIN)?
        && origin != format!("http://{host}")
    {
        return Err(Refusal::new(
            Code::Forbidden,
            format!("a browser's write from {origin:?}, which is not this server (http://{host})"),
            "call it from a page of this server, or from a program that is no browser",
        ));
    }
    Ok(())
}

/// The one value of a header, if it is there.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::invalid(
            format!("the header {name} came more than once"),
            "send it once",
        ));
    }
    first.map(|value| value.to_str()).transpose().map_err(|_| {
        Refusal::invalid(
            format!("the header {name} is not ASCII"),
            "send it in visible ASCII",
        )
    })
}

fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// The token of `Bearer TOKEN`; the scheme's case does not matter (RFC 9110, 11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a `Host` value (with or without a port) names this machine's loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if is_port(port) => address,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if is_port(&format!(":{port}")) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Nothing, or `:` and digits.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn loopback_is_told_by_the_host() {
        for (host, loopback) in [
            ("127.0.0.1:8471", true),
            ("127.0.0.1", true),
            ("127.9.9.9:1", true),
            ("localhost:8471", true),
            ("LOCALHOST", true),
            ("[::1]:8471", true),
            ("[::1]", true),
            ("evil.example:8471", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1:8471", false),
            ("[::1]evil", false),
            ("localhost:", false),
            ("localhost:80:80", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), loopback, "{host}");
        }
    }

    #[test]
    fn a_call_is_let_through_or_told_why_not() {
        let token: LabToken = "correct-horse".parse().unwrap();
        /// A token of the server, a method, headers; and what is said, or nothing.
        type Row<'a> = (
            Option<&'a LabToken>,
            &'a str,
            &'a [(&'a str, &'a str)],
            Option<Code>,
        );
        let local = ("host", "127.0.0.1:8471");
        let far = ("host", "lab.example");
        let rows: &[Row<'_>] = &[
            (None, "GET", &[local], None),
            (None, "POST", &[local], None),
            (None, "GET", &[], Some(Code::InvalidRequest)),
            (None, "GET", &[local, local], Some(Code::InvalidRequest)),
            (None, "GET", &[far], Some(Code::Forbidden)),
            (
                None,
                "POST",
                &[local, ("origin", "http://127.0.0.1:8471")],
                None,
            ),
            (
                None,
                "POST",
                &[local, ("origin", "http://evil.example")],
                Some(Code::Forbidden),
            ),
            (
                None,
                "DELETE",
                &[local, ("origin", "null")],
                Some(Code::Forbidden),
            ),
            (
                None,
                "GET",
                &[local, ("origin", "http://evil.example")],
                None,
            ),
            (
                Some(&token),
                "GET",
                &[far, ("authorization", "Bearer correct-horse")],
                None,
            ),
            (
                Some(&token),
                "GET",
                &[far, ("authorization", "bearer correct-horse")],
                None,
            ),
            (Some(&token), "GET", &[local], Some(Code::Unauthorized)),
            (
                Some(&token),
                "GET",
                &[local, ("authorization", "Bearer correct-horsf")],
                Some(Code::Unauthorized),
            ),
            (
                Some(&token),
                "GET",
                &[local, ("authorization", "Bearer correct")],
                Some(Code::Unauthorized),
            ),
            (
                Some(&token),
                "GET",
                &[local, ("authorization", "Basic correct-horse")],
                Some(Code::Unauthorized),
            ),
            (
                Some(&token),
                "PUT",
                &[
                    far,
                    ("authorization", "Bearer correct-horse"),
                    ("origin", "http://evil.example"),
                ],
                Some(Code::Forbidden),
            ),
        ];
        for (token, method, headers, refused) in rows {
            let mut request = Request::builder().method(*method).uri("/_lab/v1/reset");
            for (name, value) in *headers {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let answer = check(*token, &parts).err().map(|refusal| refusal.code);
            assert_eq!(
                answer,
                *refused,
                "{method} {headers:?} with a token: {}",
                token.is_some()
            );
        }
    }

    #[test]
    fn a_token_is_not_shown_and_not_any_text() {
        assert_eq!(
            format!("{:?}", "correct-horse".parse::<LabToken>().unwrap()),
            "LabToken(redacted)"
        );
        for text in ["", "short", "with a blank", "with\nline", "täglich-neu"] {
            assert!(text.parse::<LabToken>().is_err(), "{text:?}");
        }
    }
}
