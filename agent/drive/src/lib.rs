//! The postman of a live agent: it carries out what the machine asks for, over real time and a real network.
//!
//! It decides nothing about the protocol: what to send, when, and what an answer means is `agent-core`'s. It is the only
//! crate that opens connections to a portal.
//!
//! | Module | What it is |
//! |---|---|
//! | [`base_url`] | which portal addresses are accepted |
//! | [`tls`] | whom TLS trusts, with which cryptography |
//! | [`transport`] | one connection an agent: a request out, a raw answer or a failure in |
//! | [`observe`] | what may be watched of it |
//! | [`failure`] | the ways in which there is no answer |

pub mod base_url;
pub mod failure;
pub mod observe;
pub mod tls;
pub mod transport;

pub use base_url::{BaseUrl, UrlRefused};
pub use failure::Failure;
pub use observe::Observer;
pub use transport::{Connection, Exchange, Patience, Raw, Settings, TimeOuts, Transport};
