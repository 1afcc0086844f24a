//! The portal as an agent reaches it over a network: encode, hash, sign, exchange, read.
//!
//! The machine has decided what is sent, when, and which second is signed; the private halves of its keys are a
//! [`Signer`]'s. One call is one request: nothing is tried again here.

use std::sync::Arc;

use agent_core::machine::{Call, KeyHandle, Machine, Stamp, Unreachable};
use agent_core::port::Portal;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::pbx::call::{Reply, Request, read_reply};
use protocol::sign::{Signature, canonical};
use record::Outcome;

use crate::meter::{Meter, Underway};
use crate::transport::{Connection, Exchange, Patience, Transport};

/// Who has the private halves of an agent's keys.
pub trait Signer: Send {
    /// Signs `bytes` with a key; none if there is no such key.
    fn sign(&self, key: &KeyHandle, bytes: &[u8]) -> Option<Signature>;
}

/// What all agents that speak one dialect share: names, made once.
#[derive(Debug, Clone)]
pub struct Spoken(Arc<Names>);

#[derive(Debug)]
struct Names {
    dialect: Dialect,
    agent_id: HeaderName,
    timestamp: HeaderName,
    signature: HeaderName,
}

impl Spoken {
    /// Prepares a dialect.
    pub fn new(dialect: Dialect) -> Self {
        let name = |text: &str| {
            HeaderName::from_bytes(text.as_bytes())
                .expect("a dialect is checked to hold header names when it is read")
        };
        Self(Arc::new(Names {
            agent_id: name(dialect.header_agent_id()),
            timestamp: name(dialect.header_timestamp()),
            signature: name(dialect.header_signature()),
            dialect,
        }))
    }
}

impl Default for Spoken {
    /// This protocol.
    fn default() -> Self {
        Self::new(Dialect::default())
    }
}

/// One agent's way to its portal.
#[derive(Debug)]
pub struct HttpPortal<S, M = ()> {
    connection: Connection,
    spoken: Spoken,
    signer: S,
    meter: M,
}

impl<S: Signer, M: Meter> HttpPortal<S, M> {
    /// A way over a connection of its own, which the first call opens.
    pub fn new(transport: &Transport, spoken: Spoken, signer: S, meter: M) -> Self {
        Self {
            connection: transport.connection(),
            spoken,
            signer,
            meter,
        }
    }

    fn headers(
        &self,
        request: &Request,
        path: &str,
        body: &[u8],
        stamp: Option<&Stamp>,
    ) -> Result<HeaderMap, Unreachable> {
        let names = &*self.spoken.0;
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if request.method() == "POST" {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let Some(stamp) = stamp else {
            return Ok(headers);
        };
        let hash = Sha256Hex::of(body);
        let signed = canonical(&names.dialect, request.method(), path, stamp.at, &hash);
        let signature = self.signer.sign(&stamp.key, &signed).ok_or(Unreachable {
            why: "the node does not hold the key that the request is to be signed with".into(),
        })?;
        headers.insert(&names.agent_id, value(stamp.agent.as_str()));
        headers.insert(&names.timestamp, HeaderValue::from(stamp.at.0));
        headers.insert(&names.signature, value(&signature.to_string()));
        Ok(headers)
    }
}

impl<A, S, M> Portal<A> for HttpPortal<S, M>
where
    A: Machine<Request = Request, Reply = Reply>,
    S: Signer,
    M: Meter,
{
    async fn call(&mut self, call: Call<Request>) -> Result<Reply, Unreachable> {
        let Call {
            request,
            stamp,
            intended,
        } = call;
        let endpoint = request.endpoint();
        self.meter.planned(endpoint, intended);
        let dialect = &self.spoken.0.dialect;
        let path = request.path(dialect);
        let body = request.body();
        let headers = match self.headers(&request, &path, &body, stamp.as_ref()) {
            Ok(headers) => headers,
            Err(unsigned) => {
                self.meter.dropped(endpoint);
                return Err(unsigned);
            }
        };
        let exchange = Exchange {
            method: method(&request),
            path: &path,
            headers,
            body: Bytes::from(body),
            patience: patience(endpoint),
        };
        let mut underway = Underway::start(&mut self.meter, endpoint, intended);
        let answered = self.connection.exchange(exchange, &mut underway).await;
        match answered {
            Ok(raw) => {
                let headers: Vec<(&str, &[u8])> = raw
                    .headers
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_bytes()))
                    .collect();
                let reply = read_reply(dialect, endpoint, raw.status, &headers, &raw.body);
                underway.end(outcome(&reply));
                Ok(reply)
            }
            Err(failure) => {
                underway.end(failure.outcome());
                Err(Unreachable {
                    why: failure.to_string().into(),
                })
            }
        }
    }
}

/// How an answer counts in a run.
fn outcome(reply: &Reply) -> Outcome {
    match reply {
        Reply::Done(_) => Outcome::Ok,
        Reply::Broken { .. } => Outcome::BrokenAnswer,
        Reply::Refused(refusal) => match refusal.code {
            Some(code) => Outcome::Problem(code),
            None => Outcome::of_status(refusal.status),
        },
    }
}

/// A download is limited by how long it stands still (WIRE-7).
fn patience(endpoint: Endpoint) -> Patience {
    match endpoint {
        Endpoint::Manifest => Patience::Stall,
        Endpoint::Enroll
        | Endpoint::Sync
        | Endpoint::Events
        | Endpoint::RotateKey
        | Endpoint::CheckIn => Patience::Whole,
    }
}

fn method(request: &Request) -> Method {
    match request.method() {
        "GET" => Method::GET,
        _ => Method::POST,
    }
}

/// A header's value from a word of a checked alphabet.
fn value(word: &str) -> HeaderValue {
    HeaderValue::from_str(word).expect("IDs and base64 are printable ASCII")
}
