//! What a transport lets be seen of a request: the phases of its connection, the first byte out, the last byte in.
//!
//! An observer is told; it cannot change anything. Moments are of tokio's clock, so that a test with paused time sees
//! paused time. `()` observes nothing and costs nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Told about one exchange, in the order of these methods; a kept connection skips the first three.
pub trait Observer {
    /// The name was resolved; not called for an address.
    fn dns(&mut self, took: Duration) {
        let _ = took;
    }

    /// TCP's handshake is done.
    fn tcp(&mut self, took: Duration) {
        let _ = took;
    }

    /// TLS's handshake is done; not called for plain HTTP. `resumed`: with a session of an earlier connection.
    fn tls(&mut self, took: Duration, resumed: bool) {
        let _ = (took, resumed);
    }

    /// The connection is ready for the request. `kept`: it served an earlier one.
    fn connected(&mut self, kept: bool) {
        let _ = kept;
    }

    /// The first byte of the request was handed to the connection.
    fn first_byte_out(&mut self, at: Instant) {
        let _ = at;
    }

    /// The last byte of the answer's body was read.
    fn last_byte_in(&mut self, at: Instant) {
        let _ = at;
    }
}

impl Observer for () {}
