//! What is on the wire between agents and their control planes, and its limits.
//!
//! Both machines, the agent's and the portal's, agree through this crate and through nothing else. It has no clock,
//! no chance and no IO: a moment, a random source and bytes come in as arguments.
//!
//! | Module | What it says |
//! |---|---|
//! | [`id`], [`hash`], [`time`] | small values that are checked when they are made, so that nobody checks them again |
//! | [`limits`] | every number of the wire with its unit and its rule |
//! | [`endpoint`] | the one table of endpoints: client, router and matcher read it |
//! | [`dialect`] | what a real portal may name otherwise |
//! | [`problem`] | the codes of a refusal and how one is written |
//! | [`json`] | strict reading: syntax first, shape second |
//! | [`sign`] | canonical bytes, signatures, key IDs, weak keys |
//! | [`seal`] | sealed boxes; a secret in clear does not become a value |
//! | [`verified`] | release manifests: what a release key has not signed cannot be held |
//! | [`pbx`] | the messages of the portal protocol, and reading an answer ([`pbx::call`]) |
//! | [`checkin`] | the place of the check-in protocol |
//!
//! Rule IDs (SIGN-2, WIRE-4 …) are explained in `docs/rules.md`.

pub mod checkin;
pub mod dialect;
pub mod endpoint;
pub mod hash;
pub mod id;
pub mod json;
pub mod limits;
pub mod pbx;
pub mod problem;
pub mod seal;
pub mod sign;
pub mod time;
pub mod verified;
mod words;
