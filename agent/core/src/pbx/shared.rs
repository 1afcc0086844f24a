//! What all lanes of an agent share: what it was told, what it keeps, what it has noted, and the time.

use std::collections::VecDeque;

use protocol::seal::Sealed;
use protocol::time::Timestamp;

use super::durable::Durable;
use super::facts::{BootFacts, Observation};
use super::lead::Leadership;
use crate::journal::Journal;
use crate::machine::FieldPath;
use crate::note::Note;
use crate::time::{Monotonic, Now};

/// What all lanes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) facts: BootFacts,
    pub(super) journal: Journal<Durable>,
    /// Notes that were not handed out yet.
    pub(super) notes: VecDeque<Note>,
    /// The input's time; every input brings its own.
    pub(super) now: Now,
    /// The time of the input before.
    pub(super) before: Monotonic,
    /// What a look at the node has shown last, as far as it decides anything; none before the first.
    pub(super) conditions: Option<Conditions>,
    /// The portal's time minus the raw clock; only the pace changes it (ANS-5).
    pub(super) clock_offset_ms: i64,
    /// When an answer came that was plainly the portal's.
    pub(super) heard_at: Option<Monotonic>,
    /// The agent's own update comes before the rest of the document (SYNC-2).
    pub(super) update_comes_first: bool,
    /// Why the agent's own update stands in the document's way.
    pub(super) update_fails: Option<Box<str>>,
    /// Whether this agent leads, as of this input (SYNC-6).
    pub(super) leadership: Leadership,
    /// The portal's time as a sync was answered with last, and when.
    pub(super) portal_said: Option<(Timestamp, Monotonic)>,
}

/// What a look at the node has shown, as far as it decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Conditions {
    /// Whether the Kubernetes API answers (FAIL-2).
    pub(super) api_is_up: bool,
    /// Whether a drop-in was written that k3s has not read yet (SYNC-5).
    pub(super) restart_pending: bool,
}

impl From<&Observation> for Conditions {
    fn from(seen: &Observation) -> Self {
        Self {
            api_is_up: seen.api_is_up(),
            restart_pending: seen.restart_pending,
        }
    }
}

impl Shared {
    /// Whether this agent may change the cluster's configuration: it leads, and the Kubernetes API is up (SYNC-6).
    pub(super) fn may_change_cluster(&self) -> bool {
        let api_is_up = self.conditions.is_some_and(|seen| seen.api_is_up);
        api_is_up && self.leadership == Leadership::Leads
    }

    /// The time, corrected by what the portal said.
    pub(super) fn time(&self) -> Timestamp {
        self.now.wall.corrected(self.clock_offset_ms)
    }

    /// Whether the portal was heard a moment ago.
    pub(super) fn has_heard_portal(&self) -> bool {
        let heard = |at| self.now.monotonic.since(at).as_millis();
        self.heard_at
            .is_some_and(|at| heard(at) <= u128::from(self.facts.limits.heard_ms_max))
    }

    /// The portal's time, however the node's clock is set meanwhile; none while that is unsure (SYNC-5).
    pub(super) fn portal_time(&self) -> Option<Timestamp> {
        let (said, at) = self.portal_said?;
        let since_ms = u64::try_from(self.now.monotonic.since(at).as_millis()).ok()?;
        (since_ms <= self.facts.limits.portal_time_ms_max)
            .then(|| Timestamp::from_unix_ms(said.unix_ms().saturating_add_unsigned(since_ms)))
    }

    pub(super) fn note(&mut self, note: Note) {
        self.notes.push_back(note);
    }

    /// The next note. A queue that was used is given back: most agents have nothing to note most of the time.
    pub(super) fn next_note(&mut self) -> Option<Note> {
        let note = self.notes.pop_front();
        if note.is_none() && self.notes.capacity() > 0 {
            self.notes = VecDeque::new();
        }
        note
    }
}

/// Sealed values with their paths, as an [`Action::Open`](crate::machine::Action::Open) takes them.
pub(super) fn sealed_values(values: Vec<(String, &Sealed)>) -> Vec<(FieldPath, Sealed)> {
    values
        .into_iter()
        .map(|(path, sealed)| (FieldPath(path), sealed.clone()))
        .collect()
}
