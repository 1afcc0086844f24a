//! The postman of a live agent: it carries out what the machine asks for, over real time and a real network.
//!
//! It decides nothing about the protocol: what to send, when, and what an answer means is `agent-core`'s. It is the only
//! crate that opens connections to a portal.
//!
//! | Module | What it is |
//! |---|---|
//! | [`driver`] | feeds and drains the machine: calls, records, tasks, waits |
//! | [`http_portal`] | encode, sign, exchange, read |
//! | [`meter`] | what is counted of calls |
//! | [`files`] | how a file is replaced as a whole |
//! | [`clock`] | the two clocks of a live world |
//! | [`base_url`] | which portal addresses are accepted |
//! | [`tls`] | whom TLS trusts, with which cryptography |
//! | [`transport`] | one connection an agent: a request out, a raw answer or a failure in |
//! | [`observe`] | what may be watched of it |
//! | [`failure`] | the ways in which there is no answer |

pub mod base_url;
pub mod clock;
pub mod driver;
pub mod failure;
pub mod files;
pub mod http_portal;
pub mod meter;
pub mod observe;
pub mod tls;
pub mod transport;

pub use base_url::{BaseUrl, UrlRefused};
pub use clock::SystemClock;
pub use driver::{Driver, Ended, World};
pub use failure::Failure;
pub use http_portal::{HttpPortal, Signer, Spoken};
pub use meter::{CallRecord, Connect, Meter};
pub use observe::Observer;
pub use transport::{Connection, Exchange, Patience, Raw, Settings, TimeOuts, Transport};
