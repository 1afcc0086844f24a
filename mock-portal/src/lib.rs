//! The mock portal as a server: the agents' address, the control API, TLS, the journal.
//!
//! Everything a portal decides is in `portal-core`; here are sockets, HTTP and what people see of it. [`Server::start`]
//! is the way in, for the program of this crate and for whoever embeds a portal.
//!
//! A request of an agent goes from [`serve`] through [`wire`] to [`agent_api`], which asks the portal and tells the
//! [`journal`]; a control call goes from [`serve`] to [`control_api`].
//!
//! | Module | What it is |
//! |---|---|
//! | [`server`] | a portal that runs: configuration, URLs, end, restart |
//! | [`agent_api`] | the agents' address: from HTTP to the portal's decision and back |
//! | [`strictness`] | what `strict` refuses of HTTP itself |
//! | [`control_api`] | the control API under `/_lab/v1` |
//! | [`openapi`] | both APIs described, from the types and tables that they are made of |
//! | [`journal`], [`latency`] | what came and why it was refused; how long it took |
//! | [`serve`] | the accept loop: from an address to requests |
//! | [`wire`] | one connection below HTTP: how long it may be silent |
//! | [`store`] | what the portal knows, kept in a file |
//! | [`tls`], [`keys`] | certificates and release keys, made for a run or read from files |
//! | [`clock`] | where the machine's clocks are read |

pub mod agent_api;
pub mod clock;
pub mod control_api;
pub mod journal;
pub mod keys;
pub mod latency;
pub mod openapi;
pub mod serve;
pub mod server;
pub mod store;
pub mod strictness;
pub mod tls;
pub mod wire;

pub use server::{Config, Running, Server, StartError};
