//! The mock portal as a server: the agents' address, the control API, TLS.
//!
//! Everything a portal decides is in `portal-core`; here are sockets, HTTP and the journal.
//!
//! | Module | What it is |
//! |---|---|
//! | [`serve`] | the accept loop: from an address to requests |
//! | [`wire`] | one connection below HTTP: how long it may be silent |
//! | [`tls`] | certificates, made for a run or read from files |

pub mod serve;
pub mod tls;
pub mod wire;
