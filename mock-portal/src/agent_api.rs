//! The agents' address: from HTTP to the portal's decision and back.
//!
//! It reads a body up to its limit, hands everything to `portal-core` as it came, writes the answer down, and notes
//! both in the journal. It decides nothing of the protocol; the routes, too, are the core's. What a strict portal has
//! against the HTTP itself is refused before ([`crate::strictness`]).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, EXPECT, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as HttpBody;
use portal_core::{Answer, Body, Content, Encoded, Explanation, Portal, RawRequest, Refused};
use protocol::dialect::Dialect;
use protocol::endpoint::{self, Endpoint};
use protocol::id::AgentId;
use protocol::limits;
use protocol::problem::{Problem, ProblemCode};
use record::ByLabel;

use crate::clock::Clock;
use crate::journal::{Entry, Journal, Kept};
use crate::latency::Latencies;
use crate::store::{NotKept, Store};
use crate::strictness;
pub use crate::strictness::Profile;

/// A body longer than this is read no further (WIRE-2).
const BODY_BYTES_MAX: u64 = limits::BODY_BYTES_MAX as u64;
/// Once an answer says 413, how long the rest of the body is read and thrown away (SIGN-6).
const DRAIN: Duration = Duration::from_secs(limits::DRAIN_SECONDS_MAX);
/// How long a body may take to arrive (WIRE-7).
const BODY_TIME_MAX: Duration = Duration::from_secs(limits::REQUEST_SECONDS_MAX);

/// The agents' side of a portal.
pub struct AgentApi {
    portal: Arc<Portal>,
    dialect: Dialect,
    profile: Profile,
    clock: Clock,
    journal: Arc<Journal>,
    latencies: Arc<Latencies>,
    counters: Arc<HttpCounters>,
    store: Option<Arc<Store>>,
}

/// What the portal's own counters do not have, counted from the start or the last reset.
#[derive(Debug, Default)]
pub struct HttpCounters {
    /// Requests that a strict profile refused for their HTTP.
    refused: AtomicU64,
    /// Requests that ended before their body was there, by endpoint: no answer was given.
    aborted: Mutex<ByLabel<Endpoint, u64>>,
    /// The same of requests without a route.
    aborted_elsewhere: AtomicU64,
}

impl HttpCounters {
    /// Requests that a strict profile refused for their HTTP.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Requests to an endpoint that came in part and were never answered.
    pub fn aborted(&self) -> ByLabel<Endpoint, u64> {
        self.aborted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Requests without a route that came in part and were never answered.
    pub fn aborted_elsewhere(&self) -> u64 {
        self.aborted_elsewhere.load(Relaxed)
    }

    fn abort(&self, endpoint: Option<Endpoint>) {
        match endpoint {
            Some(endpoint) => {
                self.aborted.lock().unwrap_or_else(PoisonError::into_inner)[endpoint] += 1;
            }
            None => _ = self.aborted_elsewhere.fetch_add(1, Relaxed),
        }
    }

    /// Begins again at 0.
    pub fn clear(&self) {
        self.refused.store(0, Relaxed);
        *self.aborted.lock().unwrap_or_else(PoisonError::into_inner) = ByLabel::default();
        self.aborted_elsewhere.store(0, Relaxed);
    }
}

/// A request that ended before it could be answered; its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Aborted {
    /// The connection broke inside the body.
    #[error("the body ended before its end")]
    Broken,
    /// The body took longer than a whole request may (WIRE-7).
    #[error("the body was not complete within {} s", BODY_TIME_MAX.as_secs())]
    Stalled,
}

/// The parts of an [`AgentApi`].
pub struct Wiring {
    /// Decides.
    pub portal: Arc<Portal>,
    /// How headers and members are named.
    pub dialect: Dialect,
    /// How much of HTTP passes.
    pub profile: Profile,
    /// Tells the time.
    pub clock: Clock,
    /// Keeps what came.
    pub journal: Arc<Journal>,
    /// Keeps how long it took.
    pub latencies: Arc<Latencies>,
    /// Counts what the portal does not see.
    pub counters: Arc<HttpCounters>,
    /// Keeps what the portal changes.
    pub store: Option<Arc<Store>>,
}

impl AgentApi {
    /// Puts the parts together.
    pub fn new(wiring: Wiring) -> Self {
        let Wiring {
            portal,
            dialect,
            profile,
            clock,
            journal,
            latencies,
            counters,
            store,
        } = wiring;
        Self {
            portal,
            dialect,
            profile,
            clock,
            journal,
            latencies,
            counters,
            store,
        }
    }

    /// Answers one request. `content_length_line` is what [`crate::wire::Progress::request_begins`] told.
    ///
    /// # Errors
    /// When the body did not come; there is nothing to answer then.
    pub async fn answer<B>(
        &self,
        request: Request<B>,
        content_length_line: bool,
    ) -> Result<Response<Full<Bytes>>, Aborted>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Send,
    {
        let begun = self.clock.elapsed();
        let (head, mut body) = request.into_parts();
        let target = head
            .uri
            .path_and_query()
            .map_or(head.uri.path(), |target| target.as_str());

        if self.profile == Profile::Strict
            && let Some(explanation) = strictness::against(&head, content_length_line)
        {
            self.counters.refused.fetch_add(1, Relaxed);
            let refused = self.refuse_http(&head, target, explanation, begun);
            return Ok(last(refused, &head, body));
        }
        let read = match read(&mut body).await {
            Ok(read) => read,
            Err(aborted) => {
                self.counters.abort(self.endpoint(&head, target));
                tracing::debug!(%target, reason = %aborted, "a request was never answered");
                return Err(aborted);
            }
        };

        let headers: Vec<(&str, &[u8])> = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let raw = RawRequest {
            method: head.method.as_str(),
            target,
            headers: &headers,
            body: read
                .as_ref()
                .map_or(Body::TooLarge, |body| Body::Complete(body)),
        };
        let now = self.clock.now();
        let (answer, changes) = self.portal.answer(&raw, now);
        let kept = self
            .store
            .as_ref()
            .map(|store| store.keep(&self.portal, &changes));
        let answer = match kept {
            None => answer,
            Some(kept) => match kept.await {
                Ok(()) => answer,
                Err(why) => not_kept(answer, why),
            },
        };
        let encoded = answer.encode(&self.dialect);
        let latency = self.clock.elapsed().saturating_sub(begun);
        if let Some(endpoint) = answer.endpoint {
            self.latencies.record(endpoint, latency);
        }
        self.journal.push(Entry {
            at: now.wall,
            proven: answer.agent.is_some(),
            endpoint: answer.endpoint,
            method: head.method.clone(),
            target: cut(target),
            status: answer.status(),
            code: answer.code(),
            latency_us: micros(latency),
            body: Kept::of(answer.endpoint, read.as_deref()),
            agent: answer.agent.or_else(|| self.claimed(&head)),
            explanation: match answer.content {
                Content::Done(_) => None,
                Content::Refused(refused) => Some(Box::new(refused.explanation)),
            },
        });

        let response = response(encoded);
        Ok(if read.is_none() {
            last(response, &head, body)
        } else {
            response
        })
    }

    /// Answers a request whose HTTP a strict portal does not take. The connection ends with it, for its framing may
    /// be what is wrong.
    fn refuse_http(
        &self,
        head: &Parts,
        target: &str,
        explanation: Explanation,
        begun: Duration,
    ) -> Response<Full<Bytes>> {
        let detail = format!(
            "{}: expected {}; got {} (the profile `friendly` lets it pass)",
            explanation.rule, explanation.expected, explanation.came
        );
        let problem = Problem::new(ProblemCode::InvalidRequest, detail);
        self.journal.push(Entry {
            at: self.clock.now().wall,
            agent: self.claimed(head),
            proven: false,
            endpoint: self.endpoint(head, target),
            method: head.method.clone(),
            target: cut(target),
            status: problem.status,
            code: Some(problem.code),
            latency_us: micros(self.clock.elapsed().saturating_sub(begun)),
            body: Kept::Unread,
            explanation: Some(Box::new(explanation)),
        });
        response(Encoded {
            status: problem.status,
            headers: vec![("Content-Type", Problem::CONTENT_TYPE.to_owned())],
            body: problem.encode(&self.dialect),
        })
    }

    /// The endpoint that a head names, for counting what the portal does not see.
    fn endpoint(&self, head: &Parts, target: &str) -> Option<Endpoint> {
        endpoint::route(&self.dialect, head.method.as_str(), target)
            .ok()
            .map(|route| route.endpoint)
    }

    /// The agent that a head names, proved or not.
    fn claimed(&self, head: &Parts) -> Option<AgentId> {
        head.headers
            .get(self.dialect.header_agent_id())?
            .to_str()
            .ok()?
            .parse()
            .ok()
    }
}

/// What is answered instead of what the portal decided and could not keep (KEY-4).
fn not_kept(answer: Answer, why: NotKept) -> Answer {
    let refused = Refused {
        problem: Problem::new(ProblemCode::Internal, why.to_string()),
        allow: None,
        explanation: Explanation {
            rule: "KEY-4",
            expected: "a data file that can be written".to_owned(),
            came: why.to_string(),
            signature: None,
        },
    };
    Answer {
        content: Content::Refused(Box::new(refused)),
        ..answer
    }
}

/// Reads a body; none when it is larger than WIRE-2 allows, which a `Content-Length` tells before any byte of it.
async fn read<B>(body: &mut B) -> Result<Option<Bytes>, Aborted>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > BODY_BYTES_MAX {
        return Ok(None);
    }
    match tokio::time::timeout(BODY_TIME_MAX, collect(body)).await {
        Ok(read) => read,
        Err(_) => Err(Aborted::Stalled),
    }
}

async fn collect<B>(body: &mut B) -> Result<Option<Bytes>, Aborted>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Aborted::Broken)?.into_data() else {
            continue;
        };
        if (first.len() + rest.len() + data.len()) as u64 > BODY_BYTES_MAX {
            return Ok(None);
        }
        if first.is_empty() {
            first = data; // most bodies are one frame, and are not copied
        } else {
            rest.extend_from_slice(&data);
        }
    }
    if rest.is_empty() {
        return Ok(Some(first));
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(Some(whole.freeze()))
}

/// An answer to a request whose body was not read: the last one of its connection. What is left of the body is read and
/// thrown away for a moment, so that a client that is still sending reads its answer instead of a reset (SIGN-6).
fn last<B>(mut response: Response<Full<Bytes>>, head: &Parts, body: B) -> Response<Full<Bytes>>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Send,
{
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    // A client that waits for `100 Continue` has not begun to send, and would begin if the body were read.
    if !head.headers.contains_key(EXPECT) {
        tokio::spawn(drain(body));
    }
    response
}

async fn drain<B>(mut body: B)
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    // Whether it ended or took too long, the connection is closed.
    let _ = tokio::time::timeout(DRAIN, rest).await;
}

fn response(encoded: Encoded) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(encoded.body)));
    *response.status_mut() =
        StatusCode::from_u16(encoded.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    for (name, value) in encoded.headers {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(&value),
        ) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// At most 512 bytes of a target.
fn cut(target: &str) -> String {
    target[..target.floor_char_boundary(512)].to_owned()
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
