//! Every number that both sides of the wire rely on, with its unit and its rule.
//!
//! What an agent does by itself (pace, backoff) stands in its own crate; here stands what the other side can see.

/// Bytes of a body, in both directions (WIRE-2).
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Seconds for which a portal drains a body that is too large, so that the client can read the 413 (SIGN-6).
pub const DRAIN_SECONDS_MAX: u64 = 1;
/// Seconds until a connection must stand (WIRE-7).
pub const CONNECT_SECONDS_MAX: u64 = 10;
/// Seconds for a whole request (WIRE-7).
pub const REQUEST_SECONDS_MAX: u64 = 30;

/// Whole seconds by which a signature's timestamp may lie off the portal's clock; exactly so many pass (SIGN-4).
pub const CLOCK_SKEW_SECONDS_MAX: u64 = 60;
/// Seconds for which a signature seen is remembered (SIGN-5).
pub const REPLAY_SECONDS: u64 = 120;
/// Seconds after which a timestamp at the far end of the skew can no longer pass: 2 · 60 + 1 (SIGN-5).
pub const REPLAY_WHOLE_SECONDS: u64 = 2 * CLOCK_SKEW_SECONDS_MAX + 1;

/// Nesting of JSON; the outermost value counts 1 (KEY-2).
pub const JSON_DEPTH_MAX: usize = 32;

/// Events in one call.
pub const EVENTS_PER_CALL_MAX: usize = 100;
/// Lines of log in one event (OPS-3).
pub const LOG_TAIL_LINES_MAX: usize = 200;
/// Bytes of one line of log (OPS-8).
pub const LOG_LINE_BYTES_MAX: usize = 1024;
/// Bytes of log in one call (OPS-8).
pub const LOG_CALL_BYTES_MAX: usize = 128 * 1024;
/// Bytes of a diagnostic bundle, before base64.
pub const DIAGNOSTICS_BYTES_MAX: usize = 128 * 1024;

/// Seconds that a portal may ask an agent to wait; more is read as this (ANS-7).
pub const RETRY_AFTER_SECONDS_MAX: u64 = 24 * 60 * 60;
/// Seconds that an agent waits at least when it is told to wait (ANS-7).
pub const RETRY_AFTER_SECONDS_MIN: u64 = 1;
/// How often the same request is sent when it is answered 400 (ANS-2).
pub const SAME_REQUEST_SENT_MAX: u32 = 3;

/// Seconds for which a key that is being replaced stays valid (rotation).
pub const KEY_OVERLAP_SECONDS_MAX: u64 = 24 * 60 * 60;

/// Release keys built into an agent (UPD-4).
pub const RELEASE_KEYS_MAX: usize = 2;
/// Signatures of a manifest that are looked at; an envelope with more is refused, so that nobody buys CPU time with one.
pub const MANIFEST_SIGNATURES_MAX: usize = 16;
