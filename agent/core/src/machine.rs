//! The face of a machine: one value that is fed and drained.
//!
//! **One rule of use:** give it one input ([`Machine::handle`]), drain its actions to the end ([`Machine::poll_action`]),
//! then look at its wake ([`Machine::poll_wake`]). Whoever does that is the postman: it waits, sends, writes and performs,
//! and decides nothing.
//!
//! [`Machine::boot`] is the only constructor. A crash is "drop the value, keep the disk, boot again", so recovery is the
//! ordinary start. The face is generic over the protocol that the machine speaks.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use protocol::limits::LOG_LINE_BYTES_MAX;
use protocol::seal::{Sealed, SealingPublicKey};
use protocol::sign::SigningPublicKey;
use protocol::time::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::journal::Recorded;
use crate::note::Note;
use crate::seed::Seed;
use crate::time::{Monotonic, Now};

/// A machine that decides everything that an agent does.
pub trait Machine: Sized + Send + fmt::Debug {
    /// What it keeps on disk.
    type Durable: Clone + fmt::Debug + Send + Sync + 'static;
    /// What it is told once, at its start.
    type Facts: Clone + fmt::Debug + Send + Sync + 'static;
    /// What a look at the node shows.
    type Observation: Clone + fmt::Debug + Send + Sync + 'static;
    /// What it asks a portal.
    type Request: Clone + fmt::Debug + Send + Sync + 'static;
    /// What a portal answers.
    type Reply: Clone + fmt::Debug + Send + Sync + 'static;
    /// What it asks of the host.
    type Task: fmt::Debug + Send + Sync + 'static;
    /// What a task of the host came to.
    type Done: Clone + fmt::Debug + Send + Sync + 'static;
    /// What it asks about a lease that it shares with others; [`Infallible`](std::convert::Infallible) where it shares none.
    type LeaseCall: Clone + fmt::Debug + Send + Sync + 'static;
    /// What it is answered then.
    type LeaseReply: Clone + fmt::Debug + Send + Sync + 'static;

    /// A start of the program, with what is on disk; the only constructor. `seed` is a new one at each boot.
    fn boot(durable: Arc<Self::Durable>, facts: Self::Facts, seed: Seed, now: Now) -> Self;

    /// Takes one input. An input with a ticket that is not outstanding changes nothing.
    fn handle(&mut self, input: Input<Self>, now: Now);

    /// The next thing to do; drain it to the end after each input, and once after the boot.
    fn poll_action(&mut self) -> Option<Action<Self>>;

    /// When to send the next [`Input::Tick`] if nothing else happens before, and why. To be asked after the actions are
    /// drained; it may lie in the past. A tick before its time is harmless.
    fn poll_wake(&self) -> Option<Wake>;
}

/// Names an action, so that its answer finds it. Tickets of two boots differ, because their seeds do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// What a machine is told.
#[derive(Debug)]
pub enum Input<M: Machine> {
    /// The wake's time has come, or any other reason to look at the clock.
    Tick,
    /// What the node shows; answers [`Action::Observe`].
    Observed(Ticket, M::Observation),
    /// What the portal answered, or that nothing came back; answers [`Action::Call`].
    Reply(Ticket, Result<M::Reply, Unreachable>),
    /// Whether the record is on disk, durably; answers [`Action::Store`].
    Stored(Ticket, Result<(), StoreFailure>),
    /// Whether all of the sealed values open; answers [`Action::Open`].
    Opened(Ticket, Result<(), Unopenable>),
    /// Lines of the log of a task that is running; may be dropped by a world that is short of memory.
    Progress(Ticket, Vec<LogLine>),
    /// What a task came to; answers [`Action::Perform`].
    Performed(Ticket, Result<M::Done, TaskFailure>),
    /// What the node shows of a step that was found started; answers [`Action::Probe`].
    Probed(Ticket, Evidence<M::Done>),
    /// What was said about the lease, or that nothing was; answers [`Action::Lease`].
    Leased(Ticket, Result<M::LeaseReply, LeaseFailure>),
}

/// What a machine wants done.
#[derive(Debug)]
pub enum Action<M: Machine> {
    /// Look at the node. Asked before each report.
    Observe(Ticket),
    /// Ask the portal. One at a time.
    Call(Ticket, Call<M::Request>),
    /// Put this on disk, durably: the old record or the new one is there after a crash, never a mixture. Nothing that
    /// depends on it is done before the answer. One at a time.
    Store(Ticket, Arc<M::Durable>),
    /// Do these sealed values open with any key that the node holds? They are not to be kept open.
    Open(Ticket, Vec<(FieldPath, Sealed)>),
    /// Do this to the node, beside everything else, and answer before the deadline; never cancelled. One at a time,
    /// [`Action::Probe`] included.
    Perform(Ticket, Recorded<M::Task>, Deadline),
    /// Look what the node shows of this task, which was found started after a crash; change nothing.
    Probe(Ticket, Recorded<M::Task>),
    /// Ask about the lease, beside everything else, and answer before the deadline: whoever holds it must be able to renew
    /// it while a task of half an hour runs. One at a time.
    Lease(Ticket, M::LeaseCall, Deadline),
    /// End this program: whoever starts it starts what is in its place now. Nothing is wanted or told after this (UPD-1).
    Exit,
    /// Something worth knowing; nothing to be answered.
    Note(Note),
}

/// A request, and when it was due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<R> {
    /// The request.
    pub request: R,
    /// How it is to be signed; none where the request proves itself otherwise.
    pub stamp: Option<Stamp>,
    /// When it was due, for measuring latency from there. Never after the action that carries it.
    pub intended: Monotonic,
}

/// How a request is to be signed: the machine decides when and by whom, the postman has the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The agent's ID.
    pub agent: protocol::id::AgentId,
    /// The key.
    pub key: KeyHandle,
    /// The timestamp to sign.
    pub at: UnixSeconds,
}

/// Names a pair of key pairs that a task of the host made; the private halves never enter a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyHandle {
    /// The key that signs.
    pub signing: SigningPublicKey,
    /// The key that secrets are sealed to.
    pub sealing: SealingPublicKey,
}

/// When a machine wants to be woken, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wake {
    /// When.
    pub at: Monotonic,
    /// Why.
    pub why: WakeReason,
}

/// Why a machine waits; each reason has bounds that a referee can hold it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WakeReason {
    /// The first sync after a start, at most [`first_sync_ms_max`](crate::limits::Limits::first_sync_ms_max) after it
    /// (SYNC-10).
    FirstSync,
    /// The next sync, an interval after the last one was due (SYNC-1).
    SyncDue,
    /// So many calls in a row have failed (ANS-8, and all that backs off like it).
    Backoff {
        /// Failures in a row, from 1.
        failures: u32,
    },
    /// The portal said how long to wait (ANS-7).
    PortalsWord {
        /// Its word in seconds, at most a day's; the wait is that long or up to
        /// [`retry_after_spread_ms_max`](crate::limits::Limits::retry_after_spread_ms_max) longer.
        seconds: u64,
    },
    /// A request is to be signed again, with the next second, another clock or another key: after
    /// [`SIGN_AGAIN_MS`](crate::limits::SIGN_AGAIN_MS) (ANS-3, ANS-4, ANS-5).
    SignAgain,
    /// The cluster's configuration is to be applied again (SYNC-3).
    Reapply,
    /// The lease is to be renewed or looked at again, at most
    /// [`lease_alone_ms`](crate::limits::Limits::lease_alone_ms) after the last answer (SYNC-6).
    Lease,
    /// The maintenance window opens, in which k3s is to be restarted (SYNC-5).
    WindowOpens,
    /// A task of the host has failed and is to be tried again, after a wait as in a backoff.
    TaskRetry {
        /// Failures in a row, from 1.
        failures: u32,
    },
    /// A step of an operation looks again, [`health_look_ms`](crate::limits::Limits::health_look_ms) after the last look
    /// (OP-6).
    LooksAgain,
    /// A record could not be written and is to be tried again, after a wait as in a backoff (FAIL-7).
    StoreRetry {
        /// Failures in a row, from 1.
        failures: u32,
    },
    /// A task of the host must have ended by now.
    TaskDeadline,
}

/// By when a task must have ended. The world enforces it and answers with a failure; the machine only tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(pub Monotonic);

/// Nothing came back from the portal, or not in time: no name, no connection, no TLS, no whole answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unreachable {
    /// What happened, for the log.
    pub why: Cow<'static, str>,
}

/// A record that is not on disk, as far as is known; it may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreFailure {
    /// Which file and why: `state.json: no space left on device`.
    pub message: String,
}

/// Nothing was said about the lease, or not in time; what was to be written may be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct LeaseFailure {
    /// What happened, for the log.
    pub why: Cow<'static, str>,
}

/// A sealed value that does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} does not open")]
pub struct Unopenable {
    /// Its member.
    pub field: FieldPath,
}

/// The path of a member in a message: `secrets.s3.access_key`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(pub String);

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A task of the host that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TaskFailure {
    /// What went wrong.
    pub message: String,
    /// The last lines of the task's log, as far as the host kept them; the machine cuts it to the last 200 (OPS-3).
    pub log_tail: Vec<LogLine>,
}

/// What the node shows of a task that was found started after a crash (OPS-4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence<D> {
    /// It has not begun; it may be performed.
    NotStarted,
    /// It is complete, with what it came to.
    Completed(D),
    /// Neither, with what was seen. A destructive step fails for good.
    Unclear(String),
}

/// A line of a log: at most 1 KiB, without a line break (OPS-8).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogLine(String);

impl LogLine {
    /// A line; what is longer than 1 KiB is cut off, at a character's end.
    pub fn new(line: impl Into<String>) -> Self {
        let mut line = line.into();
        line.truncate(line.floor_char_boundary(LOG_LINE_BYTES_MAX));
        if let Some(end) = line.find(['\n', '\r']) {
            line.truncate(end);
        }
        Self(line)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by itself.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl From<&str> for LogLine {
    fn from(line: &str) -> Self {
        Self::new(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_8_a_log_line_is_cut_at_1_kib_and_at_a_characters_end() {
        assert_eq!(LogLine::new("x".repeat(2000)).as_str().len(), 1024);
        let cut = LogLine::new(format!("{}é", "x".repeat(1023)));
        assert_eq!(cut.as_str(), "x".repeat(1023));
        assert_eq!(LogLine::new("one\ntwo").as_str(), "one");
    }
}
