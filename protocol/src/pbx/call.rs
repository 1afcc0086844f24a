//! All requests and answers, both ways, and [`read_reply`]: what an agent learns from the bytes that came back.
//!
//! Here it is decided what an answer *says*: done, refused with which code, or broken (ANS-9), and how long the portal
//! asks to wait (the merging of ANS-7). What an agent *does* about it is the agent's.

mod refusal;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use refusal::{Refusal, RetryAfter};

use super::enroll::{EnrollAnswer, EnrollRequest};
use super::operation::{EventsAnswer, OperationEvents};
use super::rotate::{RotateKeyAnswer, RotateKeyRequest};
use super::sync::{SyncAnswer, SyncReport};
use crate::dialect::Dialect;
use crate::endpoint::{Endpoint, Route};
use crate::id::{OperationId, ReleaseVersion};
use crate::json::{self, JsonRefusal};
use crate::limits::BODY_BYTES_MAX;
use crate::seal::{SecretPlaces, first_in_clear};
use crate::verified::SignedManifest;

/// A request of the portal protocol. A clone is a counter.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// `POST /enroll`.
    Enroll(Arc<EnrollRequest>),
    /// `POST /sync`.
    Sync(Arc<SyncReport>),
    /// `POST /operations/{id}/events`.
    Events {
        /// The operation.
        operation: OperationId,
        /// The events.
        body: Arc<OperationEvents>,
    },
    /// `GET /releases/{version}/manifest`.
    Manifest(ReleaseVersion),
    /// `POST /rotate-key`.
    RotateKey(Arc<RotateKeyRequest>),
}

impl Request {
    /// The endpoint.
    pub fn endpoint(&self) -> Endpoint {
        match self {
            Self::Enroll(_) => Endpoint::Enroll,
            Self::Sync(_) => Endpoint::Sync,
            Self::Events { .. } => Endpoint::Events,
            Self::Manifest(_) => Endpoint::Manifest,
            Self::RotateKey(_) => Endpoint::RotateKey,
        }
    }

    /// The method.
    pub fn method(&self) -> &'static str {
        self.endpoint().method()
    }

    /// The endpoint with what the path names.
    pub fn route(&self) -> Route {
        match self {
            Self::Enroll(_) | Self::Sync(_) | Self::RotateKey(_) => Route::plain(self.endpoint()),
            Self::Events { operation, .. } => Route::events(operation.clone()),
            Self::Manifest(release) => Route::manifest(release.clone()),
        }
    }

    /// The path to ask for and to sign (SIGN-2).
    pub fn path(&self, dialect: &Dialect) -> String {
        self.route().path(dialect)
    }

    /// The body: compact JSON, the same bytes for the same request; empty for a GET.
    pub fn body(&self) -> Vec<u8> {
        match self {
            Self::Enroll(request) => encode(request),
            Self::Sync(report) => encode(report),
            Self::Events { body, .. } => encode(body),
            Self::Manifest(_) => Vec::new(),
            Self::RotateKey(request) => encode(request),
        }
    }
}

/// The body of a 200. A clone is a counter.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerBody {
    /// To `POST /enroll`.
    Enroll(Arc<EnrollAnswer>),
    /// To `POST /sync`.
    Sync(Arc<SyncAnswer>),
    /// To `POST /operations/{id}/events`.
    Events(EventsAnswer),
    /// To `GET /releases/{version}/manifest`; not verified yet.
    Manifest(Arc<SignedManifest>),
    /// To `POST /rotate-key`.
    RotateKey(RotateKeyAnswer),
}

impl AnswerBody {
    /// The endpoint that it answers.
    pub fn endpoint(&self) -> Endpoint {
        match self {
            Self::Enroll(_) => Endpoint::Enroll,
            Self::Sync(_) => Endpoint::Sync,
            Self::Events(_) => Endpoint::Events,
            Self::Manifest(_) => Endpoint::Manifest,
            Self::RotateKey(_) => Endpoint::RotateKey,
        }
    }

    /// The body: compact JSON.
    pub fn to_json(&self) -> Vec<u8> {
        match self {
            Self::Enroll(answer) => encode(answer),
            Self::Sync(answer) => encode(answer),
            Self::Events(answer) => encode(answer),
            Self::Manifest(signed) => encode(signed),
            Self::RotateKey(answer) => encode(answer),
        }
    }
}

fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut body = Vec::with_capacity(1024);
    serde_json::to_writer(&mut body, message).expect("the types of the wire always encode");
    body
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A 200 with the body that the endpoint answers with.
    Done(AnswerBody),
    /// Any other status, with what can be learnt from it.
    Refused(Refusal),
    /// A 200 whose body is not what it should be (ANS-9); nothing of it counts.
    Broken {
        /// The status: 200.
        status: u16,
        /// What is wrong with the body.
        why: BrokenBody,
    },
}

/// What is wrong with the body of a 200 (ANS-9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenBody {
    /// More than a body may have (WIRE-2).
    #[error("the body has {0} bytes; at most {BODY_BYTES_MAX} are read")]
    TooLarge(usize),
    /// Not JSON, or of another shape.
    #[error("{0}")]
    Json(#[from] JsonRefusal),
    /// A secret came in clear (SEAL-2).
    #[error("{field} is a secret that is not sealed")]
    UnsealedSecret {
        /// The secret's member.
        field: String,
    },
    /// An endpoint that this protocol does not answer.
    #[error("{endpoint} is no endpoint of the portal protocol")]
    Endpoint {
        /// The endpoint.
        endpoint: Endpoint,
    },
}

/// Reads an answer: status, headers (as they came, names in any case) and body. Pure, and never panics, whatever the bytes
/// are.
///
/// A 200 counts by its body alone; its content type is not asked for. The document in a sync's answer stays raw. Of
/// anything else a code is read only where the content type says JSON, or says nothing, and the body is a JSON object;
/// each member on its own, so one that is malformed hides no other (WIRE-4).
pub fn read_reply(
    dialect: &Dialect,
    endpoint: Endpoint,
    status: u16,
    headers: &[(&str, &[u8])],
    body: &[u8],
) -> Reply {
    if status != 200 {
        return Reply::Refused(refusal::read(dialect, status, headers, body));
    }
    match read_done(endpoint, body) {
        Ok(answer) => Reply::Done(answer),
        Err(why) => Reply::Broken { status, why },
    }
}

fn read_done(endpoint: Endpoint, body: &[u8]) -> Result<AnswerBody, BrokenBody> {
    if body.len() > BODY_BYTES_MAX {
        return Err(BrokenBody::TooLarge(body.len()));
    }
    match endpoint {
        Endpoint::Enroll => read_body(body, EnrollAnswer::SECRETS)
            .map(|answer| AnswerBody::Enroll(Arc::new(answer))),
        Endpoint::Sync => read_body(body, &[]).map(|answer| AnswerBody::Sync(Arc::new(answer))),
        Endpoint::Events => read_body(body, &[]).map(AnswerBody::Events),
        Endpoint::Manifest => {
            read_body(body, &[]).map(|signed| AnswerBody::Manifest(Arc::new(signed)))
        }
        Endpoint::RotateKey => read_body(body, &[]).map(AnswerBody::RotateKey),
        Endpoint::CheckIn => Err(BrokenBody::Endpoint { endpoint }),
    }
}

fn read_body<T: DeserializeOwned>(body: &[u8], secrets: SecretPlaces) -> Result<T, BrokenBody> {
    let json = json::scan(body).map_err(JsonRefusal::from)?;
    json.read().map_err(|why| {
        let answer = serde_json::from_str(json.as_str()).unwrap_or_default();
        match first_in_clear(&answer, secrets) {
            Some(field) => BrokenBody::UnsealedSecret { field },
            None => BrokenBody::Json(why),
        }
    })
}
