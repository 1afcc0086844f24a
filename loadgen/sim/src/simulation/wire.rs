//! The way between an agent and the portal: how much of the real wire there is, and what travels on it.
//!
//! The same two machines meet over each of them, and behave the same. [`Wire::Typed`] is for a fleet's day in seconds;
//! [`Wire::Signed`] does everything but sockets, byte for byte.

use std::hash::{Hash as _, Hasher};
use std::sync::Arc;

use agent_core::machine::{Call, Unreachable};
use portal_core::{Answer, Body, Encoded, Portal, PortalNow, RawRequest, TypedCall};
use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::json;
use protocol::pbx::call::{Reply, Request, read_reply};
use protocol::sign::{SigningPublicKey, canonical};
use protocol::time::UnixSeconds;

use crate::host::SimHost;

/// How much of the real wire there is between agents and portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Values change hands; who holds a key is believed to have signed with it.
    Typed,
    /// Requests and answers are written and read as JSON, each way; signatures as with [`Wire::Typed`].
    Json,
    /// Requests are written, signed and verified, answers written and read: all that HTTP carries.
    Signed,
}

/// A request on its way.
#[derive(Debug)]
pub(super) enum Parcel {
    Typed(TypedCall),
    Json {
        claim: Claim,
        body: Vec<u8>,
    },
    Signed {
        method: &'static str,
        path: String,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
}

/// Who has signed a request that has no signature, and what cannot be told from its body.
#[derive(Debug)]
pub(super) struct Claim {
    /// The request as it was made; only what its path says is taken from it.
    sent: Request,
    agent: Option<protocol::id::AgentId>,
    key: SigningPublicKey,
    at: UnixSeconds,
}

/// An answer on its way.
#[derive(Debug)]
pub(super) enum Returned {
    Typed(Answer),
    Bytes(Encoded),
}

impl Wire {
    /// Makes a request ready to travel.
    ///
    /// # Errors
    /// When the node does not hold the key that it is to be signed with: then nothing is sent.
    pub(super) fn pack(
        self,
        dialect: &Dialect,
        host: &SimHost,
        call: Call<Request>,
    ) -> Result<Parcel, Unreachable> {
        let Call { request, stamp, .. } = call;
        let not_held = || Unreachable {
            why: "the node does not hold the key that the request is to be signed with".into(),
        };
        if self == Self::Signed {
            let (method, path, body) = (request.method(), request.path(dialect), request.body());
            let mut headers = vec![("Accept".to_owned(), "application/json".to_owned())];
            if method == "POST" {
                headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
            }
            if let Some(stamp) = stamp {
                let signed = canonical(dialect, method, &path, stamp.at, &Sha256Hex::of(&body));
                let signature = host.sign(&stamp.key, &signed).ok_or_else(not_held)?;
                headers.extend([
                    (
                        dialect.header_agent_id().to_owned(),
                        stamp.agent.to_string(),
                    ),
                    (dialect.header_timestamp().to_owned(), stamp.at.to_string()),
                    (dialect.header_signature().to_owned(), signature.to_string()),
                ]);
            }
            return Ok(Parcel::Signed {
                method,
                path,
                headers,
                body,
            });
        }
        let claim = match stamp {
            Some(stamp) if host.holds(&stamp.key) => Claim {
                agent: Some(stamp.agent),
                key: stamp.key.signing,
                at: stamp.at,
                sent: request,
            },
            Some(_) => return Err(not_held()),
            None => Claim {
                agent: None,
                key: SigningPublicKey([0; 32]),
                at: UnixSeconds(0),
                sent: request,
            },
        };
        Ok(match self {
            Self::Json => Parcel::Json {
                body: claim.sent.body(),
                claim,
            },
            Self::Typed | Self::Signed => Parcel::Typed(typed(claim)),
        })
    }
}

impl Parcel {
    /// It arrives.
    pub(super) fn deliver(self, portal: &Portal, now: PortalNow) -> Returned {
        let dialect = &portal.settings().dialect;
        match self {
            Self::Typed(call) => Returned::Typed(portal.answer_typed(call, now).0),
            Self::Json { mut claim, body } => {
                claim.sent = read(&claim.sent, &body);
                let (answer, _) = portal.answer_typed(typed(claim), now);
                Returned::Bytes(answer.encode(dialect))
            }
            Self::Signed {
                method,
                path,
                headers,
                body,
            } => {
                let headers: Vec<(&str, &[u8])> = headers
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_bytes()))
                    .collect();
                let request = RawRequest {
                    method,
                    target: &path,
                    headers: &headers,
                    body: Body::Complete(&body),
                };
                let (answer, _) = portal.answer(&request, now);
                Returned::Bytes(answer.encode(dialect))
            }
        }
    }
}

impl Returned {
    /// An answer that was given in the portal's place, as this wire carries answers.
    pub(super) fn in_place(answer: Answer, wire: Wire, dialect: &Dialect) -> Self {
        match wire {
            Wire::Typed => Self::Typed(answer),
            Wire::Json | Wire::Signed => Self::Bytes(answer.encode(dialect)),
        }
    }

    /// As HTTP has it: what can break has bytes, whatever the wire.
    pub(super) fn into_bytes(self, dialect: &Dialect) -> Encoded {
        match self {
            Self::Typed(answer) => answer.encode(dialect),
            Self::Bytes(encoded) => encoded,
        }
    }

    /// What the agent learns from it.
    pub(super) fn into_reply(self, dialect: &Dialect, endpoint: Endpoint) -> Reply {
        match self {
            Self::Typed(answer) => answer.into_reply(),
            Self::Bytes(Encoded {
                status,
                headers,
                body,
            }) => {
                let headers: Vec<(&str, &[u8])> = headers
                    .iter()
                    .map(|(name, value)| (*name, value.as_bytes()))
                    .collect();
                read_reply(dialect, endpoint, status, &headers, &body)
            }
        }
    }
}

fn typed(claim: Claim) -> TypedCall {
    let Claim {
        sent,
        agent,
        key,
        at,
    } = claim;
    TypedCall {
        fingerprint: fingerprint(&sent, at),
        agent,
        key,
        at,
        request: sent,
    }
}

/// Stands for what is signed: the timestamp as it is, and a hash of method, path and body.
fn fingerprint(request: &Request, at: UnixSeconds) -> [u8; 16] {
    let mut hash = Mix(0);
    match request {
        Request::Sync(report) => report.hash(&mut hash),
        Request::Manifest(release) => release.hash(&mut hash),
        Request::RotateKey(keys) => keys.hash(&mut hash),
        Request::Events { operation, .. } => {
            operation.hash(&mut hash);
            request.body().hash(&mut hash);
        }
        // It is not signed.
        Request::Enroll(_) => {}
    }
    request.endpoint().hash(&mut hash);
    (u128::from(at.0) << 64 | u128::from(hash.finish())).to_be_bytes()
}

/// A hash of many small pieces that nobody tries to break: multiply and rotate, as rustc hashes its own.
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// Reads a request's body back, as a portal does. What the path says is taken from the request itself.
fn read(sent: &Request, body: &[u8]) -> Request {
    fn shape<T: serde::de::DeserializeOwned>(body: &[u8]) -> Arc<T> {
        json::parse(body)
            .map(Arc::new)
            .expect("an agent's request reads back as it was written")
    }
    match sent {
        Request::Enroll(_) => Request::Enroll(shape(body)),
        Request::Sync(_) => Request::Sync(shape(body)),
        Request::Events { operation, .. } => Request::Events {
            operation: operation.clone(),
            body: shape(body),
        },
        Request::Manifest(release) => Request::Manifest(release.clone()),
        Request::RotateKey(_) => Request::RotateKey(shape(body)),
    }
}
