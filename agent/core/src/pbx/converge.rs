//! The converge lane: putting the taken document into force (SYNC-2, SYNC-3, SYNC-6).
//!
//! A plan ([`next_step`]) that is made again from what the node shows, so a crash, a new document or a failed task are all
//! the same case. Whether a document counts at all is the affair of [`document`](super::document). The agent's own update
//! and the add-ons, which belong before and behind the Secrets, are not here yet.

use std::sync::Arc;

use protocol::pbx::sync::{DesiredState, DocumentResult, IngressMode};

use super::document::Document;
use super::durable::TakenDocument;
use super::shared::{Conditions, Shared};
use super::task::{DocumentStep, Done, DropIns, Secrets, Task};
use crate::backoff::Backoff;
use crate::journal::{Recorded, StepRecord, Work};
use crate::machine::{TaskFailure, Wake, WakeReason};
use crate::note::Note;
use crate::seed::{Chance, Purpose, Seed};
use crate::time::Monotonic;

/// How far the taken document is in force; what must outlive a crash is
/// [`Durable::in_force`](super::durable::Durable::in_force).
#[derive(Debug)]
pub(super) struct Converge {
    /// None while nothing is to be done for the taken document.
    force: Option<Force>,
    /// The taken document as it was read, from its first task until it is in force: reading is the dearest thing that an
    /// agent does, and what was read is as large as the rest of it.
    desired: Option<Box<DesiredState>>,
    /// When the cluster's configuration is to be applied again (SYNC-3).
    reapply_at: Monotonic,
    retry: Backoff,
    retry_at: Option<Monotonic>,
    retry_jitter: Chance,
}

/// How far a taken document is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Force {
    /// The last step that is done.
    done: Option<DocumentStep>,
}

/// What is next in putting a document into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Do(DocumentStep),
    /// Nothing before the Kubernetes API is up (FAIL-2).
    WaitForApi,
    Finished,
}

/// The plan (SYNC-2, SYNC-6): the host's configuration, then the cluster's, which is the leader's alone.
fn next_step(done: Option<DocumentStep>, conditions: Conditions) -> Next {
    match done {
        None => Next::Do(DocumentStep::WriteDropIns),
        Some(DocumentStep::WriteDropIns) if !conditions.api_is_up => Next::WaitForApi,
        Some(DocumentStep::WriteDropIns) if conditions.leader => {
            Next::Do(DocumentStep::WriteSecrets)
        }
        Some(DocumentStep::WriteDropIns | DocumentStep::WriteSecrets) => Next::Finished,
    }
}

impl Converge {
    pub(super) fn boot(seed: Seed, shared: &Shared) -> Self {
        Self {
            force: if shared.journal.in_force {
                None
            } else {
                Some(Force { done: None })
            },
            desired: None,
            reapply_at: shared.now.monotonic,
            retry: Backoff::default(),
            retry_at: None,
            retry_jitter: seed.child(Purpose::TaskRetryJitter),
        }
    }

    /// Another document was taken: all of it is to be done.
    pub(super) fn begin(&mut self) {
        self.retry_at = None;
        self.force = Some(Force { done: None });
        self.desired = None;
    }

    /// Whether nothing is to be done for the taken document.
    pub(super) fn is_through(&self) -> bool {
        self.force.is_none()
    }

    /// When the host is to be touched again without any other cause.
    pub(super) fn wake(&self, shared: &Shared) -> Option<Wake> {
        let conditions = shared.conditions?;
        if let Some(force) = self.force {
            let failures = self.retry.failures();
            let waits_for_it = matches!(next_step(force.done, conditions), Next::Do(_));
            let at = self.retry_at.filter(|_| waits_for_it)?;
            return Some(Wake {
                at,
                why: WakeReason::TaskRetry { failures },
            });
        }
        let reapplies = shared.journal.document.is_some() && conditions.may_change_cluster();
        reapplies.then_some(Wake {
            at: self.reapply_at,
            why: WakeReason::Reapply,
        })
    }

    /// Looks what is to be done, from what the node shows: every 10 minutes the cluster's configuration is applied again
    /// even without a change (SYNC-3), and what waited for the API goes on once it is up.
    pub(super) fn plan(&mut self, shared: &mut Shared, document: &mut Document) {
        self.retry_at = self.retry_at.filter(|at| *at > shared.now.monotonic);
        let Some(conditions) = shared.conditions else {
            return;
        };
        let is_due = self.reapply_at <= shared.now.monotonic && conditions.may_change_cluster();
        if self.force.is_none() && is_due && shared.journal.document.is_some() {
            self.force = Some(Force {
                done: Some(DocumentStep::WriteDropIns),
            });
        }
        let (Some(force), Some(taken)) = (self.force, shared.journal.document.clone()) else {
            return;
        };
        match next_step(force.done, conditions) {
            Next::Do(_) => {}
            Next::WaitForApi => {
                let why = "the Kubernetes API is down; the Secrets wait for it".to_owned();
                document.stand_in_force(shared, &taken, DocumentResult::Pending, Some(why));
            }
            Next::Finished => self.finish(shared, document, &taken, force),
        }
    }

    /// The host's task that is next, if the document is on disk and nothing is waited for.
    pub(super) fn task(
        &mut self,
        shared: &Shared,
    ) -> Option<(Arc<TakenDocument>, DocumentStep, Recorded<Task>)> {
        let (force, conditions) = (self.force?, shared.conditions?);
        if self.retry_at.is_some() {
            return None;
        }
        let Next::Do(step) = next_step(force.done, conditions) else {
            return None;
        };
        let taken = shared.journal.on_disk().document.clone()?;
        if !shared
            .journal
            .document
            .as_ref()
            .is_some_and(|wanted| Arc::ptr_eq(wanted, &taken))
        {
            return None;
        }
        let desired = match &mut self.desired {
            Some(desired) => desired,
            none => none.insert(Box::new(DesiredState::read(&taken.raw).ok()?)),
        };
        let task = match step {
            DocumentStep::WriteDropIns => Task::WriteDropIns(DropIns {
                snapshot_schedule: desired.host.snapshot_schedule.clone(),
                snapshot_retention: desired.host.snapshot_retention,
                ingress_mode: Some(desired.host.ingress_mode.clone()).filter(is_known),
            }),
            DocumentStep::WriteSecrets => {
                Task::WriteSecrets(Secrets::Document(Box::new(desired.secrets.clone())))
            }
        };
        let work = Work::Document {
            generation: taken.generation,
            step,
        };
        let record = StepRecord {
            work,
            attempt: self.retry.failures() + 1,
        };
        Some((taken, step, shared.journal.recorded(record, task)?))
    }

    /// A task has ended: the next step, or the same one after a wait.
    pub(super) fn performed(
        &mut self,
        shared: &mut Shared,
        document: &mut Document,
        taken: &Arc<TakenDocument>,
        step: DocumentStep,
        result: Result<Done, TaskFailure>,
    ) {
        if !shared
            .journal
            .document
            .as_ref()
            .is_some_and(|wanted| Arc::ptr_eq(wanted, taken))
        {
            return;
        }
        match result {
            Ok(_) => {
                self.retry.succeed();
                self.retry_at = None;
                self.force = self.force.map(|_| Force { done: Some(step) });
                self.plan(shared, document);
            }
            Err(failure) => {
                let wait_ms = self
                    .retry
                    .fail(&shared.facts.limits, &mut self.retry_jitter);
                self.retry_at = Some(shared.now.monotonic.plus_ms(wait_ms));
                let message = failure.message;
                document.stand_in_force(
                    shared,
                    taken,
                    DocumentResult::Failed,
                    Some(message.clone()),
                );
                let work = Work::Document {
                    generation: taken.generation,
                    step,
                };
                shared.note(Note::TaskFailed { work, message });
            }
        }
    }

    /// All that can be done is done.
    fn finish(
        &mut self,
        shared: &mut Shared,
        document: &mut Document,
        taken: &TakenDocument,
        was: Force,
    ) {
        self.force = None;
        // Who did not write them writes them as soon as it leads.
        let wait_ms = match was.done {
            Some(DocumentStep::WriteSecrets) => shared.facts.limits.reapply_interval_ms,
            None | Some(DocumentStep::WriteDropIns) => 0,
        };
        self.reapply_at = shared.now.monotonic.plus_ms(wait_ms);
        if !shared.journal.in_force {
            let durable = shared.journal.change();
            durable.in_force = true;
            durable.applied_generation = taken.generation;
        }
        // rules FILE-16, WIRE-5: an unknown mode fails its part alone.
        let desired = self.desired.take();
        let desired = desired.or_else(|| DesiredState::read(&taken.raw).ok().map(Box::new));
        let unknown_mode = desired.filter(|desired| !is_known(&desired.host.ingress_mode));
        match unknown_mode {
            None => document.stand_in_force(shared, taken, DocumentResult::Applied, None),
            Some(desired) => {
                let why = format!(
                    "host.ingress_mode {} is unknown; its drop-in stays as it is",
                    desired.host.ingress_mode
                );
                document.stand_in_force(shared, taken, DocumentResult::Failed, Some(why));
            }
        }
    }
}

fn is_known(mode: &IngressMode) -> bool {
    !matches!(mode, IngressMode::Unknown(_))
}
