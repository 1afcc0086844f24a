//! What `strict` refuses of HTTP itself, before the protocol's own checks begin.
//!
//! HTTP allows more than every portal, proxy and firewall lets through. A client that lives on such room works against
//! a lenient mock and fails in front of its first proxy, so the default profile refuses it and says why. None of it is
//! a rule of the protocol: the answer is 400 `invalid_request`, and the explanation names the RFC.

use http::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName,
    TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{Method, Version};
use portal_core::Explanation;

/// How much passes beside the protocol's own rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// What some portal or proxy may refuse is refused. No chance in it.
    #[default]
    Strict,
    /// Whatever HTTP/1.1 allows passes; the protocol's rules hold as they are.
    Friendly,
}

/// What a strict portal has against this head, if anything. `content_length_line`: whether the head had one, also where
/// hyper has taken it out ([`crate::wire::Progress::request_begins`]).
pub fn against(request: &Parts, content_length_line: bool) -> Option<Explanation> {
    let headers = &request.headers;
    let chunked = headers.contains_key(TRANSFER_ENCODING);
    let said = |rule, expected: &str, came: String| {
        Some(Explanation {
            rule,
            expected: expected.to_owned(),
            came,
            signature: None,
        })
    };
    if request.version != Version::HTTP_11 {
        return said(
            "RFC 9112, 2.3",
            "HTTP/1.1",
            format!("{:?}", request.version),
        );
    }
    if request.uri.authority().is_some() || !request.uri.path().starts_with('/') {
        let came = format!("the target {}", cut(&request.uri.to_string()));
        return said(
            "RFC 9112, 3.2.1",
            "a target that begins with the path",
            came,
        );
    }
    match headers.get_all(HOST).iter().count() {
        1 => {}
        count => {
            return said(
                "RFC 9112, 3.2",
                "exactly one Host",
                format!("{count} of them"),
            );
        }
    }
    if chunked && content_length_line {
        let came = "both; a proxy and a server may each believe another one".to_owned();
        return said("RFC 9112, 6.1", "Content-Length or Transfer-Encoding", came);
    }
    let announces_body = chunked
        || headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    if request.method == Method::GET && announces_body {
        return said(
            "RFC 9110, 9.3.1",
            "a GET without a body",
            "a body is announced".to_owned(),
        );
    }
    if let Some(coding) =
        values(headers, &CONTENT_ENCODING).find(|coding| !coding.eq_ignore_ascii_case("identity"))
    {
        return said(
            "RFC 9110, 8.4",
            "a body that is not coded",
            format!("Content-Encoding: {}", cut(&coding)),
        );
    }
    if let Some(expect) =
        values(headers, &EXPECT).find(|expect| !expect.eq_ignore_ascii_case("100-continue"))
    {
        return said(
            "RFC 9110, 10.1.1",
            "no expectation but 100-continue",
            format!("Expect: {}", cut(&expect)),
        );
    }
    let mut ranges = values(headers, &ACCEPT).peekable();
    if ranges.peek().is_some() && !ranges.any(|range| takes_json(&range)) {
        let came = values(headers, &ACCEPT).collect::<Vec<_>>().join(", ");
        return said(
            "RFC 9110, 12.5.1",
            "no Accept, or one that takes application/json",
            format!("Accept: {}", cut(&came)),
        );
    }
    None
}

/// The elements of a header that is a list, over all its lines.
fn values(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let lines: Vec<String> = headers.get_all(name).iter().map(text).collect();
    lines
        .into_iter()
        .flat_map(|line| {
            line.split(',')
                .map(|part| part.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .filter(|part| !part.is_empty())
}

/// Whether a media range of `Accept` takes JSON; `;q=0` says no.
fn takes_json(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let refused = parts.any(|part| {
        let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
        weight.and_then(|weight| weight.parse::<f32>().ok()) == Some(0.0)
    });
    !refused && matches!(kind.as_str(), "*/*" | "application/*" | "application/json")
}

/// At most 120 characters of what came.
fn cut(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn each_oddity_is_named_by_its_rfc() {
        /// Method, target, version, headers; and the rule, or nothing.
        type Row<'a> = (
            &'a str,
            &'a str,
            Version,
            &'a [(&'a str, &'a str)],
            Option<&'a str>,
        );
        let host = ("host", "127.0.0.1:8470");
        let one = Version::HTTP_11;
        let sync = "/agent/v1/sync";
        let rows: &[Row<'_>] = &[
            ("POST", sync, one, &[host, ("content-length", "2")], None),
            (
                "POST",
                sync,
                one,
                &[host, ("transfer-encoding", "chunked")],
                None,
            ),
            (
                "POST",
                sync,
                one,
                &[host, ("expect", "100-continue"), ("accept", "*/*")],
                None,
            ),
            (
                "POST",
                sync,
                one,
                &[host, ("accept", "text/html, application/json;q=0.9")],
                None,
            ),
            (
                "POST",
                sync,
                one,
                &[host, ("content-encoding", "identity")],
                None,
            ),
            ("GET", sync, one, &[host, ("content-length", "0")], None),
            (
                "POST",
                sync,
                Version::HTTP_10,
                &[host],
                Some("RFC 9112, 2.3"),
            ),
            (
                "POST",
                "http://127.0.0.1/agent/v1/sync",
                one,
                &[host],
                Some("RFC 9112, 3.2.1"),
            ),
            ("OPTIONS", "*", one, &[host], Some("RFC 9112, 3.2.1")),
            ("POST", sync, one, &[], Some("RFC 9112, 3.2")),
            ("POST", sync, one, &[host, host], Some("RFC 9112, 3.2")),
            (
                "GET",
                sync,
                one,
                &[host, ("content-length", "2")],
                Some("RFC 9110, 9.3.1"),
            ),
            (
                "GET",
                sync,
                one,
                &[host, ("transfer-encoding", "chunked")],
                Some("RFC 9110, 9.3.1"),
            ),
            (
                "POST",
                sync,
                one,
                &[host, ("content-encoding", "gzip")],
                Some("RFC 9110, 8.4"),
            ),
            (
                "POST",
                sync,
                one,
                &[host, ("expect", "the-unexpected")],
                Some("RFC 9110, 10.1.1"),
            ),
            (
                "POST",
                sync,
                one,
                &[host, ("accept", "text/html")],
                Some("RFC 9110, 12.5.1"),
            ),
            (
                "POST",
                sync,
                one,
                &[host, ("accept", "application/json;q=0")],
                Some("RFC 9110, 12.5.1"),
            ),
        ];
        for (method, target, version, headers, rule) in rows {
            let mut request = Request::builder()
                .method(*method)
                .uri(*target)
                .version(*version);
            for (name, value) in *headers {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let found = against(&parts, false).map(|explanation| explanation.rule);
            assert_eq!(found, *rule, "{method} {target} {version:?} {headers:?}");
        }
    }

    #[test]
    fn two_lengths_are_refused_where_only_one_is_left() {
        let request = Request::post("/agent/v1/sync")
            .header("host", "h")
            .header("transfer-encoding", "chunked");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(
            against(&parts, true).map(|explanation| explanation.rule),
            Some("RFC 9112, 6.1")
        );
        assert_eq!(against(&parts, false), None);
    }
}
