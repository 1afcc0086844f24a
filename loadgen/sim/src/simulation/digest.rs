//! The digest of a run's trace: XXH3, 128 bits, over everything that went through the machines, in its order. It tells
//! runs apart that nobody forges, so it need not be hard to forge.
//!
//! Two runs with one digest were the same run. What the agents learn and want counts, by value; how it travelled does not,
//! so a run has the same digest over every wire that carries the same.

use std::fmt::{Debug, Formatter, Write};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use agent_core::machine::{Action, Input, Wake};
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::pbx::facts::Observation;
use agent_core::time::Now;
use protocol::hash::Sha256Hex;
use protocol::pbx::call::{AnswerBody, Reply, Request};
use protocol::pbx::sync::SyncAnswer;
use serde_json::value::RawValue;
use twox_hash::XxHash3_128;

/// The digest of a trace, or of its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(u128);

/// The digest so far.
#[derive(Clone, Default)]
pub(super) struct TraceDigest {
    hash: XxHash3_128,
    pending: Pending,
    /// The document that each agent got last, with its hash: most answers bring the same one again.
    documents: Vec<Option<(Arc<RawValue>, Sha256Hex)>>,
}

impl Debug for TraceDigest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("TraceDigest")
            .field(&self.value())
            .finish()
    }
}

/// What is not hashed yet.
#[derive(Debug, Clone, Default)]
struct Pending(Vec<u8>);

/// What went through a machine.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Kind {
    Boot,
    Tick,
    Observed,
    Synced,
    Answered,
    Input,
    Looks,
    Stores,
    Syncs,
    Action,
    Wake,
    Leased,
    Leases,
}

impl TraceDigest {
    /// Of everything so far.
    pub(super) fn value(&self) -> Digest {
        let mut whole = self.hash.clone();
        whole.write(&self.pending.0);
        Digest(whole.finish_128())
    }

    pub(super) fn boot(&mut self, member: usize, now: Now, durable: &Durable) {
        self.begin(Kind::Boot, member, now);
        self.record(durable);
    }

    pub(super) fn input(&mut self, member: usize, now: Now, input: &Input<Agent>) {
        // The inputs that a fleet has millions of are taken member by member, the others by their text.
        match input {
            Input::Tick => self.begin(Kind::Tick, member, now),
            Input::Observed(ticket, seen) => {
                self.begin(Kind::Observed, member, now);
                ticket.hash(&mut self.pending);
                self.observation(seen);
            }
            Input::Reply(ticket, Ok(Reply::Done(AnswerBody::Sync(answer)))) => {
                self.begin(Kind::Synced, member, now);
                ticket.hash(&mut self.pending);
                self.sync_answer(member, answer);
            }
            Input::Leased(ticket, Ok(reply)) => {
                self.begin(Kind::Leased, member, now);
                (ticket, reply).hash(&mut self.pending);
            }
            Input::Reply(ticket, Ok(Reply::Done(body))) => {
                self.begin(Kind::Answered, member, now);
                ticket.hash(&mut self.pending);
                self.bytes(&body.to_json());
            }
            // What a refusal says to people may name what only one wire has.
            Input::Reply(ticket, Ok(Reply::Refused(refusal))) => {
                self.begin(Kind::Input, member, now);
                let mut refusal = refusal.clone();
                refusal.detail = None;
                self.text(&(ticket, refusal));
            }
            _ => {
                self.begin(Kind::Input, member, now);
                self.text(input);
            }
        }
    }

    pub(super) fn action(&mut self, member: usize, now: Now, action: &Action<Agent>) {
        match action {
            Action::Observe(ticket) => {
                self.begin(Kind::Looks, member, now);
                ticket.hash(&mut self.pending);
            }
            Action::Store(ticket, durable) => {
                self.begin(Kind::Stores, member, now);
                ticket.hash(&mut self.pending);
                self.record(durable);
            }
            Action::Lease(ticket, call, deadline) => {
                self.begin(Kind::Leases, member, now);
                (ticket, call, deadline).hash(&mut self.pending);
            }
            Action::Call(ticket, call) => match &call.request {
                Request::Sync(report) => {
                    self.begin(Kind::Syncs, member, now);
                    (ticket, report, &call.stamp, call.intended).hash(&mut self.pending);
                }
                _ => {
                    self.begin(Kind::Action, member, now);
                    self.text(action);
                }
            },
            _ => {
                self.begin(Kind::Action, member, now);
                self.text(action);
            }
        }
    }

    pub(super) fn wake(&mut self, member: usize, now: Now, wake: Option<Wake>) {
        self.begin(Kind::Wake, member, now);
        wake.hash(&mut self.pending);
    }

    fn begin(&mut self, kind: Kind, member: usize, now: Now) {
        if self.pending.0.len() >= PENDING_BYTES {
            self.hash.write(&self.pending.0);
            self.pending.0.clear();
        }
        let Now { monotonic, wall } = now;
        // In one piece of fixed size.
        let what = (kind as u64) << 56 | member as u64;
        let mut head = [0; 24];
        head[..8].copy_from_slice(&what.to_le_bytes());
        head[8..16].copy_from_slice(&monotonic.as_ms().to_le_bytes());
        head[16..].copy_from_slice(&wall.unix_ms().to_le_bytes());
        self.pending.write(&head);
    }

    fn text(&mut self, value: &impl Debug) {
        // Writing into memory does not fail.
        let _ = write!(self.pending, "{value:?}\0");
    }

    /// A durable record, as its file is.
    fn record(&mut self, durable: &Durable) {
        self.bytes(&durable.to_json());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.pending.write(bytes);
        self.pending.write_u8(0);
    }

    fn observation(&mut self, seen: &Observation) {
        let Observation {
            boot,
            k3s,
            restart_pending,
            problems,
        } = seen;
        (boot, k3s, restart_pending, problems).hash(&mut self.pending);
    }

    fn sync_answer(&mut self, member: usize, answer: &SyncAnswer) {
        let SyncAnswer {
            portal_time,
            desired,
            operation,
        } = answer;
        portal_time.hash(&mut self.pending);
        let document = desired.as_ref().map(|raw| self.document(member, raw));
        document.hash(&mut self.pending);
        operation.is_some().hash(&mut self.pending);
        if let Some(operation) = operation {
            self.text(operation);
        }
    }

    fn document(&mut self, member: usize, raw: &Arc<RawValue>) -> Sha256Hex {
        if self.documents.len() <= member {
            self.documents.resize(member + 1, None);
        }
        match &mut self.documents[member] {
            Some((last, hash)) if Arc::ptr_eq(last, raw) => *hash,
            other => {
                let hash = Sha256Hex::of(raw.get().as_bytes());
                *other = Some((Arc::clone(raw), hash));
                hash
            }
        }
    }
}

/// How much is gathered before it is hashed: hashing a few bytes costs as much as hashing a block.
const PENDING_BYTES: usize = 4096;

impl Hasher for Pending {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        // Only `TraceDigest::value` ends a hash.
        0
    }
}

impl Write for Pending {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
