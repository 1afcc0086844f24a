//! A request as it reaches the portal: as bytes, or typed for worlds without bytes. Nothing is decided here.

use protocol::id::AgentId;
use protocol::pbx::call::Request;
use protocol::sign::SigningPublicKey;
use protocol::time::{Timestamp, UnixSeconds};

/// The moment of a request by the machine's own clocks; what the portal's clock makes of it is [`crate::clock`]'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortalNow {
    /// Wall time.
    pub wall: Timestamp,
    /// Milliseconds of a clock that never goes back, from any start.
    pub monotonic_ms: u64,
}

/// A request as bytes, read no further than HTTP.
#[derive(Debug, Clone, Copy)]
pub struct RawRequest<'a> {
    /// The method, as it came.
    pub method: &'a str,
    /// What follows the base URL's prefix, query included, as it came.
    pub target: &'a str,
    /// The headers in their order; a name that came twice is there twice. Names in any case.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body.
    pub body: Body<'a>,
}

/// What was read of a body.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// All of it; empty where there was none.
    Complete(&'a [u8]),
    /// More than [`protocol::limits::BODY_BYTES_MAX`] came or were announced; not read whole (WIRE-2).
    TooLarge,
}

/// A request without bytes. Who sends it vouches for the signature: it was made by `key`, at `at`, over bytes that
/// `fingerprint` stands for. Everything after that is decided as for a [`RawRequest`].
#[derive(Debug, Clone)]
pub struct TypedCall {
    /// The agent that it claims to be of; `None` for `/enroll`, which has no signature.
    pub agent: Option<AgentId>,
    /// The key that signed it; not looked at for `/enroll`.
    pub key: SigningPublicKey,
    /// The signature's timestamp; not looked at for `/enroll`.
    pub at: UnixSeconds,
    /// Stands for the signed bytes: equal exactly when method, path, timestamp and body are.
    pub fingerprint: [u8; 16],
    /// The request itself.
    pub request: Request,
}
