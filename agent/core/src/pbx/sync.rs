//! The sync lane: when a report is due, and what it says (SYNC-1, SYNC-9).
//!
//! A cycle looks at the node, reports, and takes the answer; it never overlaps another. The next one is due an interval
//! after the last one *was due*, not after it ended, so that work does not stretch the period. What becomes of the
//! document and the operation in the answer is other lanes' affair, and how long a start waits for its first report (SYNC-10) the pace's.

use std::sync::Arc;

use protocol::id::AgentVersion;
use protocol::pbx::ProtocolVersion;
use protocol::pbx::sync::{
    AddonReport, DocumentReport, LastError, OperationReport, SyncReport, UpdateReport,
};
use protocol::time::Timestamp;

use super::facts::Observation;
use super::pace::{RequestRefused, Tries};
use super::shared::Shared;
use crate::machine::{Wake, WakeReason};
use crate::seed::{Chance, Purpose, Seed};
use crate::time::Monotonic;

/// When a report is due, and the one at hand.
#[derive(Debug)]
pub(super) struct Sync {
    due: Monotonic,
    /// When the cycle under way was due.
    intended: Monotonic,
    jitter: Chance,
    /// Reports made since this start of the program.
    sequence: u64,
    /// The report that is to go out, for the first time or again as it is. None between two cycles.
    report: Option<Arc<SyncReport>>,
    pub(super) tries: Tries,
    /// What the portal refused again and again, for the next report (ANS-2).
    last_error: Option<Box<LastError>>,
}

/// What the other lanes put into a report.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) leader: bool,
    pub(super) rolled_back_from: Option<AgentVersion>,
    pub(super) document: DocumentReport,
    pub(super) addons: Arc<[AddonReport]>,
    pub(super) operation: Option<OperationReport>,
    pub(super) problems: Vec<String>,
    pub(super) keys_created_at: Timestamp,
}

impl Sync {
    /// A start: the first sync is due at once; that it waits is the pace's affair (SYNC-10).
    pub(super) fn boot(seed: Seed, shared: &Shared) -> Self {
        Self {
            due: shared.now.monotonic,
            intended: shared.now.monotonic,
            jitter: seed.child(Purpose::SyncJitter),
            sequence: 0,
            report: None,
            tries: Tries::default(),
            last_error: None,
        }
    }

    /// When the next cycle is due.
    pub(super) fn wake(&self) -> Wake {
        Wake {
            at: self.due,
            why: WakeReason::SyncDue,
        }
    }

    /// Makes the next cycle due now: after an enrollment (SYNC-10).
    pub(super) fn due_now(&mut self, shared: &Shared) {
        self.due = shared.now.monotonic;
    }

    /// The report that is to go out, in a cycle that was due at `intended`; none before the node was looked at.
    pub(super) fn ready(&mut self, intended: Monotonic) -> Option<Arc<SyncReport>> {
        self.intended = intended;
        self.report.clone()
    }

    /// A new report.
    pub(super) fn looked(&mut self, shared: &Shared, seen: Observation, contents: Contents) {
        self.sequence += 1;
        self.tries = Tries::default();
        let Contents {
            leader,
            rolled_back_from,
            document,
            addons,
            operation,
            problems,
            keys_created_at,
        } = contents;
        let facts = &shared.facts;
        self.report = Some(Arc::new(SyncReport {
            protocol: ProtocolVersion::CURRENT,
            sequence: self.sequence,
            agent_version: facts.agent_version.clone(),
            arch: facts.arch,
            node_name: facts.config.node_name.clone(),
            boot: seen.boot,
            k3s: seen.k3s,
            leader,
            document,
            addons,
            operation,
            update: UpdateReport {
                running: facts.agent_version.clone(),
                rolled_back_from,
            },
            restart_pending: seen.restart_pending,
            clock_offset_ms: shared.clock_offset_ms,
            keys_created_at,
            last_error: self.last_error.as_deref().cloned(),
            problems,
        }));
    }

    /// The cycle ended well. The next is due an interval after this one was, or at once if that is past (SYNC-9).
    pub(super) fn succeeded(&mut self, shared: &Shared) {
        self.report = None;
        self.last_error = None;
        let limits = &shared.facts.limits;
        let jitter_ms = limits.sync_jitter_ms.min(limits.sync_interval_ms);
        let shortest_ms = limits.sync_interval_ms - jitter_ms;
        let interval_ms = self
            .jitter
            .between(shortest_ms, shortest_ms + 2 * jitter_ms);
        self.due = self.intended.plus_ms(interval_ms).max(shared.now.monotonic);
    }

    /// The same report is to go out once more, with the next second (ANS-3).
    pub(super) fn again(&mut self, shared: &Shared) {
        self.due = shared.now.monotonic;
    }

    /// The report was refused with 400: it goes out again byte for byte, or for the third time is given up for another one
    /// that says so (ANS-2).
    pub(super) fn refused(&mut self, shared: &Shared, refused: RequestRefused) {
        if refused.is_final() {
            self.report = None;
            let before = self.last_error.take().map_or(0, |last| last.count);
            self.last_error = Some(Box::new(LastError {
                code: refused.code,
                count: before.saturating_add(refused.times),
            }));
        }
        self.due = shared.now.monotonic;
    }

    /// Any other failure: a new report once the pace allows it.
    pub(super) fn failed(&mut self, shared: &Shared) {
        self.report = None;
        self.due = shared.now.monotonic;
    }
}
