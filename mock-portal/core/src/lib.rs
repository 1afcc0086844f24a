//! Everything the portal decides, as a machine without IO, clock or chance of its own.
//!
//! A request goes in with the moment at which it came; an [`Answer`] comes out, and the [`Changes`] that the portal made to
//! its state, apart: so a lost answer is lost after the work, and what must survive can be written down before the answer is
//! sent. Who listens, sends, waits and writes is the shell's affair (`mock-portal`), or a simulation's.
//!
//! | Module | What it says |
//! |---|---|
//! | [`portal`] | the machine: settings, shards, a request from its bytes (or typed) to its answer |
//! | [`request`], [`answer`] | what goes in and what comes out; why something was refused |
//! | `checks` | the order of the checks, SIGN-6, read from the top |
//! | `near_miss` | what a wrong signature was probably made over |
//! | `replay` | which signatures were seen (SIGN-5, KEY-3) |
//! | `enroll` | a token for an identity (ENR-4, ENR-10) |
//! | `hetzner` | the simulated Hetzner API that an enrollment asks (ENR-4) |
//! | `identities` | agents and their keys, rotation (KEY-1, SEAL-1, OP-9) |
//! | `documents` | desired states: secrets in clear on this side, sealed on the other |
//! | `operations` | one at a time a cluster, to its target, and the events that come back (OPS-8, OPS-9, OPS-10) |
//! | `releases` | manifests, signed |
//! | [`control`] | the verbs of the control API |
//! | [`clock`] | the portal's clock, which can be set wrong |
//! | [`state`] | all that is remembered, and the one way in which it changes |
//! | [`snapshot`] | all that is remembered at one moment, to be kept and begun again with |
//! | `shard`, `seals`, `secret`, `counters`, `limiter` | where things are, boxes made once, secrets in clear, what was answered, 429 |
//!
//! Rule IDs (SIGN-2, WIRE-4 …) are explained in `docs/rules.md`.

pub mod answer;
pub mod clock;
pub mod control;
pub mod portal;
pub mod request;
pub mod snapshot;
pub mod state;

mod checks;
mod counters;
mod documents;
mod enroll;
mod hetzner;
mod identities;
mod limiter;
mod near_miss;
mod operations;
mod releases;
mod replay;
mod seals;
mod secret;
mod shard;

pub use answer::{Answer, Content, Encoded, Explanation, NearMiss, Refused, SignatureExplanation};
pub use control::{Control, ControlError};
pub use portal::{Portal, RateLimit, RateLimits, Settings};
pub use request::{Body, PortalNow, RawRequest, TypedCall};
pub use secret::{ClearOrSealed, ClearSecret};
pub use shard::Shards;
pub use snapshot::{OtherShards, Snapshot};
pub use state::{Change, Changes};
