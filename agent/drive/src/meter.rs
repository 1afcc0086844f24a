//! What is counted of calls: each one when it is due, when it is started, and how it ended.
//!
//! A meter is told every call exactly once in each of these, also when the call is cut off. It counts; it decides
//! nothing. `()` counts nothing.

use std::time::Duration;

use agent_core::time::Monotonic;
use protocol::endpoint::Endpoint;
use record::Outcome;
use tokio::time::Instant;

use crate::observe::Observer;

/// Told about the calls of one agent.
pub trait Meter: Send {
    /// A call is due.
    fn planned(&mut self, endpoint: Endpoint, intended: Monotonic) {
        let _ = (endpoint, intended);
    }

    /// A call that was due cannot be made, and never will be.
    fn dropped(&mut self, endpoint: Endpoint) {
        let _ = endpoint;
    }

    /// A call is made: it is encoded and signed, and handed to the transport.
    fn started(&mut self, endpoint: Endpoint, at: Instant) {
        let _ = (endpoint, at);
    }

    /// A call that was made has ended.
    fn ended(&mut self, call: &CallRecord) {
        let _ = call;
    }
}

impl Meter for () {}

/// One call that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    /// What was called.
    pub endpoint: Endpoint,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was due, by the machine's clock.
    pub intended: Monotonic,
    /// When it was handed to the transport.
    pub started: Instant,
    /// When its first byte left; none if it never came to that.
    pub first_byte_out: Option<Instant>,
    /// When it ended: the last byte of the answer, the failure, the end of the wait, or the cut.
    pub ended: Instant,
    /// The connection that was made for it; none on a kept one, and none where it could not be made.
    pub connect: Option<Connect>,
}

/// A connection that was made, by phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connect {
    /// Resolving the name; none for an address.
    pub dns: Option<Duration>,
    /// TCP's handshake.
    pub tcp: Duration,
    /// TLS's handshake, and whether it resumed a session; none for plain HTTP.
    pub tls: Option<(Duration, bool)>,
}

impl Connect {
    /// All phases together.
    pub fn total(&self) -> Duration {
        let tls = self.tls.map_or(Duration::ZERO, |(took, _)| took);
        self.dns.unwrap_or_default() + self.tcp + tls
    }
}

/// A call that is under way: it counts as aborted unless it is said to have ended.
pub(crate) struct Underway<'a, M: Meter> {
    meter: &'a mut M,
    call: CallRecord,
    last_byte_in: Option<Instant>,
    connecting: Connect,
    ended: bool,
}

impl<'a, M: Meter> Underway<'a, M> {
    pub(crate) fn start(meter: &'a mut M, endpoint: Endpoint, intended: Monotonic) -> Self {
        let started = Instant::now();
        meter.started(endpoint, started);
        Self {
            meter,
            call: CallRecord {
                endpoint,
                outcome: Outcome::Aborted,
                intended,
                started,
                first_byte_out: None,
                ended: started,
                connect: None,
            },
            last_byte_in: None,
            connecting: Connect::default(),
            ended: false,
        }
    }

    pub(crate) fn end(mut self, outcome: Outcome) {
        self.call.outcome = outcome;
        self.ended = true;
        self.tell();
    }

    fn tell(&mut self) {
        self.call.ended = match (self.ended, self.last_byte_in) {
            (true, Some(at)) => at,
            _ => Instant::now(),
        };
        self.meter.ended(&self.call);
    }
}

impl<M: Meter> Drop for Underway<'_, M> {
    fn drop(&mut self) {
        if !self.ended {
            self.tell();
        }
    }
}

impl<M: Meter> Observer for Underway<'_, M> {
    fn dns(&mut self, took: Duration) {
        self.connecting.dns = Some(took);
    }

    fn tcp(&mut self, took: Duration) {
        self.connecting.tcp = took;
    }

    fn tls(&mut self, took: Duration, resumed: bool) {
        self.connecting.tls = Some((took, resumed));
    }

    fn connected(&mut self, kept: bool) {
        if !kept {
            self.call.connect = Some(self.connecting);
        }
    }

    fn first_byte_out(&mut self, at: Instant) {
        self.call.first_byte_out = Some(at);
    }

    fn last_byte_in(&mut self, at: Instant) {
        self.last_byte_in = Some(at);
    }
}
