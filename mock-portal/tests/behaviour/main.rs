//! What the mock portal does, seen from outside: without sockets, over sockets and TLS, and as a program.
//!
//! One test program, so that it is linked once. What the portal decides is tested in `portal-core`; here it is what
//! HTTP, sockets, files and signals make of it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

mod agent_api;
mod client;
mod control_api;
mod data;
mod openapi;
mod program;
mod sockets;
mod watching;
