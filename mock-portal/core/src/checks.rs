//! The checks of SIGN-6, in their order: method, size, content type, headers, signature, revocation, skew, replay, and then
//! the body's syntax, protocol and shape. [`crate::portal`] calls them in that order, with the rate between the two halves.
//!
//! What comes after the shape is the endpoint's: [`crate::enroll`], [`crate::identities`], [`crate::operations`],
//! [`crate::releases`]. The checks that need no state take none; [`admit`] is the one that needs the agent's.

use std::sync::Arc;

use protocol::dialect::Dialect;
use protocol::endpoint::{Endpoint, Route, RouteRefusal, route};
use protocol::id::AgentId;
use protocol::json::{JsonRefusal, scan};
use protocol::limits::{BODY_BYTES_MAX, CLOCK_SKEW_SECONDS_MAX};
use protocol::pbx::call::Request;
use protocol::problem::ProblemCode;
use protocol::sign::{Signature, SigningPublicKey};
use protocol::time::UnixSeconds;

use crate::answer::Refused;
use crate::clock::Moment;
use crate::identities::KeyPair;
use crate::replay::{Seen, Verdict};
use crate::request::{Body, RawRequest};
use crate::state::{Change, Work};

/// A request that has a route, a body of a size that is read, and the right content type.
pub(crate) struct Routed<'a> {
    pub(crate) route: Route,
    pub(crate) body: &'a [u8],
}

/// Route 404, method 405, size 413, content type 415. A refusal tells the endpoint, where there is one.
pub(crate) fn route_of<'a>(
    dialect: &Dialect,
    request: &RawRequest<'a>,
) -> Result<Routed<'a>, (Option<Endpoint>, Box<Refused>)> {
    let route = match route(dialect, request.method, request.target) {
        Ok(route) if route.endpoint != Endpoint::CheckIn => route,
        Ok(_) | Err(RouteRefusal::NotFound) => {
            let expected = format!("a path of the protocol below {}", dialect.base_path());
            return Err((
                None,
                Refused::new(
                    ProblemCode::NotFound,
                    "SIGN-6",
                    expected,
                    shown(request.target),
                ),
            ));
        }
        Err(RouteRefusal::MethodNotAllowed { allow }) => {
            let mut refused = Refused::new(
                ProblemCode::MethodNotAllowed,
                "SIGN-6",
                allow,
                shown(request.method),
            );
            refused.allow = Some(allow);
            return Err((None, refused));
        }
    };
    let endpoint = Some(route.endpoint);
    let body = match request.body {
        Body::Complete(body) if body.len() <= BODY_BYTES_MAX => body,
        Body::Complete(_) | Body::TooLarge => {
            let expected = format!("a body of at most {BODY_BYTES_MAX} bytes");
            return Err((
                endpoint,
                Refused::new(
                    ProblemCode::BodyTooLarge,
                    "WIRE-2",
                    expected,
                    "a larger one",
                ),
            ));
        }
    };
    if request.method == "POST" {
        content_type(request).map_err(|refused| (endpoint, refused))?;
    }
    Ok(Routed { route, body })
}

/// 415: exactly one `Content-Type`, `application/json`, with no parameter but `charset=utf-8`.
fn content_type(request: &RawRequest<'_>) -> Result<(), Box<Refused>> {
    let refused = |came: String| {
        let expected = "exactly one Content-Type of application/json (charset=utf-8 is allowed)";
        Err(Refused::new(
            ProblemCode::UnsupportedMediaType,
            "SIGN-6",
            expected,
            came,
        ))
    };
    let mut lines = header(request, "content-type");
    let (first, more) = (lines.next(), lines.count());
    match first {
        None => refused("no Content-Type".to_owned()),
        Some(_) if more > 0 => refused(format!("{} lines of Content-Type", more + 1)),
        Some(line) if is_json(line) => Ok(()),
        Some(line) => refused(shown(&String::from_utf8_lossy(line))),
    }
}

fn is_json(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else {
        return false;
    };
    let mut parts = line.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let is_utf8 = |parameter: &str| {
        let charset = parameter
            .split_once('=')
            .filter(|(name, _)| name.eq_ignore_ascii_case("charset"));
        charset.is_some_and(|(_, value)| {
            value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("\"utf-8\"")
        })
    };
    media_type.eq_ignore_ascii_case("application/json") && parts.all(is_utf8)
}

/// What the three headers say (SIGN-3).
pub(crate) struct Claim {
    pub(crate) agent: AgentId,
    pub(crate) at: UnixSeconds,
    pub(crate) signature: Signature,
}

/// The three headers, each exactly once and well-formed (SIGN-3, KEY-2).
pub(crate) fn claim(dialect: &Dialect, request: &RawRequest<'_>) -> Result<Claim, Box<Refused>> {
    let agent = one_header(request, dialect.header_agent_id())?;
    let at = one_header(request, dialect.header_timestamp())?;
    let signature = one_header(request, dialect.header_signature())?;
    let agent = AgentId::new(agent).map_err(|_| {
        malformed(
            dialect.header_agent_id(),
            "1 to 64 of A-Z a-z 0-9 _ -",
            shown(agent),
        )
    })?;
    let at = UnixSeconds::parse(at).ok_or_else(|| {
        let looks_like_ms = at.len() == 13 && at.bytes().all(|b| b.is_ascii_digit());
        let came = format!(
            "{}{}",
            shown(at),
            if looks_like_ms {
                ", which looks like milliseconds"
            } else {
                ""
            }
        );
        malformed(
            dialect.header_timestamp(),
            "Unix seconds in 1 to 10 digits, no sign, no leading zero",
            came,
        )
    })?;
    let signature = signature.parse().map_err(|_| {
        let came = format!("{} characters that are not", signature.len());
        malformed(
            dialect.header_signature(),
            "64 bytes in standard base64, padded and canonical",
            came,
        )
    })?;
    Ok(Claim {
        agent,
        at,
        signature,
    })
}

fn one_header<'a>(request: &RawRequest<'a>, name: &str) -> Result<&'a str, Box<Refused>> {
    let mut lines = header(request, name);
    match (lines.next(), lines.count()) {
        (Some(line), 0) => std::str::from_utf8(line)
            .map_err(|_| malformed(name, "ASCII", "bytes that are no text".to_owned())),
        (None, _) => Err(malformed(name, "exactly one line", "none".to_owned())),
        (Some(_), more) => Err(malformed(name, "exactly one line", format!("{}", more + 1))),
    }
}

fn malformed(name: &str, expected: &str, came: String) -> Box<Refused> {
    Refused::new(
        ProblemCode::BadSignature,
        "SIGN-3",
        format!("{name}: {expected}"),
        came,
    )
}

fn header<'a>(request: &RawRequest<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    request
        .headers
        .iter()
        .filter(move |(header, _)| header.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value)
}

/// A request whose signature was found right by somebody: by [`crate::Portal::answer`] over its bytes, or by whoever
/// vouches for a typed call.
pub(crate) struct Proven {
    pub(crate) agent: AgentId,
    pub(crate) key: SigningPublicKey,
    pub(crate) at: UnixSeconds,
    pub(crate) seen: Seen,
}

/// Known agent and its key in force, revoked 401, skew 409, replay 400. What passes is remembered, and the first use of a
/// new key ends the old one's time, whatever comes after. Returns the pair that verified the request.
pub(crate) fn admit(
    work: &mut Work<'_>,
    proven: &Proven,
    replay_capacity: usize,
    moment: Moment,
) -> Result<KeyPair, Box<Refused>> {
    let agent = work
        .agent(&proven.agent)
        .ok_or_else(|| unknown_agent(&proven.agent))?;
    let Some(pair) = agent.keys.pair(&proven.key, moment).cloned() else {
        return Err(wrong_signature(
            "a signature of a key of the agent that is in force",
            "another key's",
        ));
    };
    if let Some(revoked_at) = agent.revoked_at {
        let came = format!("one of an agent that was revoked at {revoked_at}");
        return Err(Refused::new(
            ProblemCode::Revoked,
            "SIGN-6",
            "a request of an agent that is not revoked",
            came,
        ));
    }
    let ahead = moment.seconds_ahead(proven.at);
    if ahead.unsigned_abs() > CLOCK_SKEW_SECONDS_MAX {
        let expected = format!(
            "a timestamp within {CLOCK_SKEW_SECONDS_MAX} s of {}",
            moment.time.unix_seconds()
        );
        let came = format!(
            "{}, {} s {}",
            proven.at,
            ahead.unsigned_abs(),
            if ahead > 0 { "ahead" } else { "behind" }
        );
        let mut refused = Refused::new(ProblemCode::ClockSkew, "SIGN-4", expected, came);
        refused.problem.portal_time = Some(moment.time);
        return Err(refused);
    }
    match work
        .state()
        .replay
        .verdict(proven.seen, replay_capacity, moment)
    {
        Verdict::Fresh => {}
        Verdict::Replayed => {
            let expected = "a signature that was not seen before; sign again with the next second";
            return Err(Refused::new(
                ProblemCode::Replayed,
                "SIGN-5",
                expected,
                "one that was",
            ));
        }
        Verdict::Full => {
            let expected =
                format!("room in the replay memory, which holds {replay_capacity} signatures");
            return Err(Refused::new(
                ProblemCode::Internal,
                "SIGN-5",
                expected,
                "a full one; try again later",
            ));
        }
    }
    let is_next = agent.keys.next() == Some(&pair);
    work.change(Change::SignatureSeen {
        agent: proven.agent.clone(),
        seen: proven.seen,
        at: proven.at.0,
        time: moment.time,
        monotonic_ms: moment.monotonic_ms,
    });
    if is_next {
        work.change(Change::KeysSwitched {
            agent: proven.agent.clone(),
        });
    }
    Ok(pair)
}

/// 401 `unknown_agent`.
pub(crate) fn unknown_agent(agent: &AgentId) -> Box<Refused> {
    Refused::new(
        ProblemCode::UnknownAgent,
        "SIGN-6",
        "the ID of an agent that enrolled here",
        format!("{agent}"),
    )
}

/// 401 `bad_signature`, of a signature that is well-formed.
pub(crate) fn wrong_signature(expected: &str, came: &str) -> Box<Refused> {
    Refused::new(ProblemCode::BadSignature, "SIGN-2", expected, came)
}

/// 429 with the seconds to wait.
pub(crate) fn too_many(wait_seconds: u64) -> Box<Refused> {
    let expected = format!("the next request in {wait_seconds} s");
    let mut refused = Refused::new(
        ProblemCode::TooManyRequests,
        "ANS-7",
        expected,
        "one before",
    );
    refused.problem.retry_after_seconds = Some(wait_seconds);
    refused
}

/// A body that was not read: why, but for the release that a 426 names, which depends on whose request it is.
pub(crate) enum Unread {
    Refused(Box<Refused>),
    ProtocolTooOld(Box<Refused>),
}

/// The body: no query (in the place of the syntax), JSON syntax 400, `protocol` 426, shape 400.
pub(crate) fn read(routed: &Routed<'_>, minimum_protocol: u32) -> Result<Request, Unread> {
    let invalid = |rule, expected: &str, came: String| {
        Unread::Refused(Refused::new(
            ProblemCode::InvalidRequest,
            rule,
            expected,
            came,
        ))
    };
    let route = &routed.route;
    if route.has_query {
        return Err(invalid(
            "SIGN-2",
            "a path without a query",
            "one with a query".to_owned(),
        ));
    }
    if let (Endpoint::Manifest, Some(release)) = (route.endpoint, &route.release) {
        if !routed.body.is_empty() {
            return Err(invalid(
                "SIGN-6",
                "no body",
                format!("{} bytes", routed.body.len()),
            ));
        }
        return Ok(Request::Manifest(release.clone()));
    }
    let json = scan(routed.body).map_err(|syntax| {
        invalid(
            "KEY-2",
            "JSON: UTF-8, no member twice, at most 32 levels",
            syntax.to_string(),
        )
    })?;
    if matches!(route.endpoint, Endpoint::Enroll | Endpoint::Sync)
        && json.protocol_below(minimum_protocol)
    {
        return Err(Unread::ProtocolTooOld(protocol_too_old(minimum_protocol)));
    }
    let shape = |why: JsonRefusal| {
        invalid(
            "SIGN-6",
            "the members of the request, each of its type",
            why.to_string(),
        )
    };
    match (route.endpoint, &route.operation) {
        (Endpoint::Enroll, _) => json
            .read()
            .map(|request| Request::Enroll(Arc::new(request)))
            .map_err(shape),
        (Endpoint::Sync, _) => json
            .read()
            .map(|report| Request::Sync(Arc::new(report)))
            .map_err(shape),
        (Endpoint::RotateKey, _) => json
            .read()
            .map(|request| Request::RotateKey(Arc::new(request)))
            .map_err(shape),
        (Endpoint::Events, Some(operation)) => json
            .read()
            .map(|events| Request::Events {
                operation: operation.clone(),
                body: Arc::new(events),
            })
            .map_err(shape),
        (Endpoint::Events | Endpoint::Manifest | Endpoint::CheckIn, _) => {
            let refused = Refused::new(
                ProblemCode::NotFound,
                "SIGN-6",
                "a path of the protocol",
                "another",
            );
            Err(Unread::Refused(refused))
        }
    }
}

/// The same for a request that has no bytes: its protocol alone can be wrong.
pub(crate) fn read_typed(request: Request, minimum_protocol: u32) -> Result<Request, Unread> {
    let protocol = match &request {
        Request::Enroll(request) => Some(request.protocol),
        Request::Sync(report) => Some(report.protocol),
        Request::Events { .. } | Request::Manifest(_) | Request::RotateKey(_) => None,
    };
    match protocol {
        Some(protocol) if protocol.number() < minimum_protocol => {
            Err(Unread::ProtocolTooOld(protocol_too_old(minimum_protocol)))
        }
        _ => Ok(request),
    }
}

fn protocol_too_old(minimum_protocol: u32) -> Box<Refused> {
    let expected = format!("protocol {minimum_protocol} or later");
    Refused::new(
        ProblemCode::ProtocolTooOld,
        "SIGN-6",
        expected,
        "an earlier one",
    )
}

impl Unread {
    /// The refusal; a 426 names the release to go to.
    pub(crate) fn refused(
        self,
        release: impl FnOnce() -> protocol::id::ReleaseVersion,
    ) -> Box<Refused> {
        match self {
            Self::Refused(refused) => refused,
            Self::ProtocolTooOld(mut refused) => {
                refused.problem.release = Some(release());
                refused
            }
        }
    }
}

/// At most 80 characters of something that came, for a text.
fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}
