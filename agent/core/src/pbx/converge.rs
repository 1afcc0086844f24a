//! The converge lane: putting the taken document into force (SYNC-2, SYNC-3, SYNC-5, SYNC-6).
//!
//! A plan ([`next_step`]) that is made again from what the node shows, so a crash, a new document or a failed task are all
//! the same case. Whether a document counts at all is the affair of [`document`](super::document), what is done about the
//! add-ons behind the Secrets that of [`addon`](super::addon), and about the agent's own update, which comes before all, that of
//! [`update`](super::update).

use std::ops::Range;
use std::sync::Arc;

use protocol::pbx::sync::{AddonReport, DesiredState, DocumentResult, IngressMode};
use protocol::time::Timestamp;

use super::addon::Addons;
use super::document::Document;
use super::durable::TakenDocument;
use super::lead::Leadership;
use super::shared::{Conditions, Shared};
use super::task::{DocumentStep, Done, DropIns, Secrets, Task};
use super::window::Window;
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
    /// Why nothing may be done for the taken document, if its manifest, which was believed when it was taken, is not believed
    /// by this program: the keys built into it are others (SYNC-4, UPD-4).
    disbelief: Option<Box<str>>,
    /// None while nothing is to be done for the taken document.
    force: Option<Force>,
    /// The taken document as it was read, from its first task until it is in force: reading is the dearest thing that an
    /// agent does, and what was read is as large as the rest of it.
    desired: Option<Box<DesiredState>>,
    /// None before there were any, and while another leads, who knows how they are (SYNC-6).
    addons: Option<Box<Addons>>,
    /// A drop-in that waits for the window.
    waiting: Option<Box<Waiting>>,
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

/// A drop-in that waits for k3s's restart inside the maintenance window (SYNC-5).
#[derive(Debug)]
struct Waiting {
    window: Window,
    /// A time in which the window is known to be closed, up to its next opening: fleets wait for days, and calendars are
    /// dear.
    closed: Range<Timestamp>,
}

impl Waiting {
    fn is_open(&self, time: Timestamp) -> bool {
        !self.closed.contains(&time) && self.window.is_open(time)
    }

    fn look(&mut self, time: Timestamp) {
        if !self.closed.contains(&time) && !self.window.is_open(time) {
            let opens = self.window.opens_after(time);
            self.closed = time..opens.unwrap_or(Timestamp::MAX);
        }
    }
}

/// What is next in putting a document into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Do(DocumentStep),
    /// Nothing before the Kubernetes API is up (FAIL-2).
    WaitForApi,
    /// Nothing before it is known who leads.
    WaitForLease,
    /// Nothing before the agent's own update.
    WaitForUpdate,
    Finished,
}

/// The plan (SYNC-2, SYNC-6): behind the agent's own update the host's configuration, with the restart that it needs if that
/// may be now; then the cluster's, which is the leader's alone.
fn next_step(
    force: Option<Force>,
    may_restart: bool,
    conditions: Conditions,
    leadership: Leadership,
    update_comes_first: bool,
) -> Next {
    let Some(Force { done }) = force else {
        return if may_restart {
            Next::Do(DocumentStep::RestartK3s)
        } else {
            Next::Finished
        };
    };
    match done {
        None if update_comes_first => Next::WaitForUpdate,
        None => Next::Do(DocumentStep::WriteDropIns),
        Some(DocumentStep::WriteDropIns) => Next::Do(DocumentStep::LetGoOfManifests),
        Some(_) if may_restart => Next::Do(DocumentStep::RestartK3s),
        Some(DocumentStep::Addons) => Next::Finished,
        Some(_) if !conditions.api_is_up => Next::WaitForApi,
        Some(done) => match (leadership, done) {
            (Leadership::Unknown, _) => Next::WaitForLease,
            (Leadership::Follows, _) => Next::Finished,
            (Leadership::Leads, DocumentStep::WriteSecrets) => Next::Do(DocumentStep::Addons),
            (Leadership::Leads, _) => Next::Do(DocumentStep::WriteSecrets),
        },
    }
}

impl Converge {
    pub(super) fn boot(seed: Seed, shared: &Shared) -> Self {
        let taken = shared.journal.document.as_deref();
        let keys = &shared.facts.release_keys;
        let believed = taken.map(|taken| keys.verify(&taken.manifest, &taken.release));
        let disbelief = believed.and_then(Result::err);
        Self {
            disbelief: disbelief.map(|why| why.to_string().into()),
            force: if shared.journal.in_force {
                None
            } else {
                Some(Force { done: None })
            },
            desired: None,
            addons: None,
            waiting: None,
            reapply_at: shared.now.monotonic,
            retry: Backoff::default(),
            retry_at: None,
            retry_jitter: seed.child(Purpose::TaskRetryJitter),
        }
    }

    /// Another document was taken: all of it is to be done.
    pub(super) fn begin(&mut self) {
        self.disbelief = None;
        self.retry_at = None;
        self.force = Some(Force { done: None });
        self.desired = None;
        self.waiting = None;
        if let Some(addons) = &mut self.addons {
            addons.begin();
        }
    }

    /// A cycle begins: the node was looked at. Who does not lead knows nothing of the add-ons and will write everything as
    /// soon as it does, be it after a restart of k3s or a restore; and while an add-on waits for something, the cluster's
    /// configuration is applied at every cycle (ADD-12).
    pub(super) fn cycle_begins(&mut self, shared: &Shared) {
        let may_change = shared.may_change_cluster();
        if !may_change {
            self.addons = None;
        }
        let wants_it = (self.addons.as_deref()).is_some_and(Addons::wants_every_cycle);
        if !may_change || wants_it {
            self.reapply_at = shared.now.monotonic;
        }
    }

    /// What a report says of the add-ons.
    pub(super) fn addon_reports(&self) -> Arc<[AddonReport]> {
        (self.addons.as_deref()).map_or_else(Arc::default, Addons::reports)
    }

    /// Whether the taken document may be put into force by this program.
    pub(super) fn believes(&self) -> bool {
        self.disbelief.is_none()
    }

    /// Whether nothing is to be done for the taken document.
    pub(super) fn is_through(&self) -> bool {
        self.force.is_none()
    }

    /// When the host is to be touched again without any other cause.
    pub(super) fn wake(&self, shared: &Shared) -> Option<Wake> {
        let conditions = shared.conditions.filter(|_| self.believes())?;
        let waits_for_retry = matches!(self.next_step(shared, conditions), Next::Do(_));
        let retry = self.retry_at.filter(|_| waits_for_retry).map(|at| {
            let failures = self.retry.failures();
            Wake {
                at,
                why: WakeReason::TaskRetry { failures },
            }
        });
        let reapplies = self.force.is_none()
            && shared.journal.document.is_some()
            && shared.may_change_cluster();
        let reapply = reapplies.then_some(Wake {
            at: self.reapply_at,
            why: WakeReason::Reapply,
        });
        [retry, self.wake_at_window(shared), reapply]
            .into_iter()
            .flatten()
            .min_by_key(|wake| wake.at)
    }

    /// When the window opens that a restart of k3s waits for; it is looked at again then, by what the portal's time is known
    /// to be by then.
    fn wake_at_window(&self, shared: &Shared) -> Option<Wake> {
        let (waiting, time) = (self.waiting.as_deref()?, shared.portal_time()?);
        let opens = Some(waiting.closed.end).filter(|_| waiting.closed.contains(&time))?;
        let wait_ms = opens.unix_ms().saturating_sub(time.unix_ms());
        Some(Wake {
            at: shared.now.monotonic.plus_ms(wait_ms.max(0).unsigned_abs()),
            why: WakeReason::WindowOpens,
        })
    }

    fn next_step(&self, shared: &Shared, conditions: Conditions) -> Next {
        let may_restart = self.may_restart(shared);
        next_step(
            self.force,
            may_restart,
            conditions,
            shared.leadership,
            shared.update_comes_first,
        )
    }

    /// Whether k3s may be restarted now: inside the window by the portal's time, which must be known, and while no operation
    /// runs (SYNC-5).
    fn may_restart(&self, shared: &Shared) -> bool {
        let (Some(waiting), Some(time)) = (self.waiting.as_deref(), shared.portal_time()) else {
            return false;
        };
        shared.journal.operation.is_none() && waiting.is_open(time)
    }

    /// Looks what is to be done, from what the node shows: every 10 minutes the cluster's configuration is applied again
    /// even without a change (SYNC-3), and what waited for the API goes on once it is up.
    pub(super) fn plan(&mut self, shared: &mut Shared, document: &mut Document) {
        self.retry_at = self.retry_at.filter(|at| *at > shared.now.monotonic);
        let Some(conditions) = shared.conditions else {
            return;
        };
        if let (Some(why), Some(taken)) = (&self.disbelief, shared.journal.document.clone()) {
            let why = Some(why.to_string());
            document.stand_in_force(shared, &taken, DocumentResult::ManifestRejected, why);
            return;
        }
        let is_due = self.reapply_at <= shared.now.monotonic && shared.may_change_cluster();
        if self.force.is_none() && is_due && shared.journal.document.is_some() {
            self.force = Some(Force {
                done: Some(DocumentStep::LetGoOfManifests),
            });
        }
        let Some(taken) = shared.journal.document.clone() else {
            return;
        };
        self.look_for_window(shared, conditions, &taken);
        while let Next::Do(step) = self.next_step(shared, conditions)
            && self.has_nothing_for(step, shared, &taken)
        {
            self.force = Some(Force { done: Some(step) });
        }
        let Some(force) = self.force else { return };
        match self.next_step(shared, conditions) {
            Next::Do(_) => {}
            Next::WaitForApi => {
                let why = "the Kubernetes API is down; Secrets and add-ons wait for it".to_owned();
                document.stand_in_force(shared, &taken, DocumentResult::Pending, Some(why));
            }
            Next::WaitForLease => {
                let why = "who leads is not known yet; Secrets and add-ons wait for it".to_owned();
                document.stand_in_force(shared, &taken, DocumentResult::Pending, Some(why));
            }
            Next::WaitForUpdate => {
                let why = "the agent's own update comes first".to_owned();
                document.stand_in_force(shared, &taken, DocumentResult::Pending, Some(why));
            }
            Next::Finished => self.finish(shared, document, &taken, force),
        }
    }

    /// While a drop-in waits for a restart, its window is kept as it was read. One that means nothing never opens.
    fn look_for_window(&mut self, shared: &Shared, conditions: Conditions, taken: &TakenDocument) {
        if !conditions.restart_pending {
            self.waiting = None;
            return;
        }
        if self.waiting.is_none()
            && let Some(desired) = self.read(taken)
        {
            let window = Window::read(&desired.maintenance_window);
            self.waiting = Some(Box::new(Waiting {
                window: window.unwrap_or_else(|_| Window::never()),
                closed: Timestamp::MIN..Timestamp::MIN,
            }));
            if self.force.is_none() {
                self.desired = None;
            }
        }
        if let (Some(waiting), Some(time)) = (self.waiting.as_deref_mut(), shared.portal_time()) {
            waiting.look(time);
        }
    }

    /// Whether a step has nothing to do: there are no add-ons, neither in the document nor among what was applied once.
    fn has_nothing_for(
        &mut self,
        step: DocumentStep,
        shared: &Shared,
        taken: &TakenDocument,
    ) -> bool {
        let mut has_none = || (self.read(taken)).is_some_and(|desired| desired.addons.is_empty());
        match step {
            DocumentStep::WriteDropIns | DocumentStep::RestartK3s | DocumentStep::WriteSecrets => {
                false
            }
            DocumentStep::LetGoOfManifests => has_none(),
            DocumentStep::Addons => {
                let has_none = shared.journal.addons.is_empty() && has_none();
                if has_none {
                    self.addons = None;
                }
                has_none
            }
        }
    }

    /// The cluster's data may be others than before, and its configuration with them: after a restore, or whatever else an
    /// operation has waited for the API for.
    pub(super) fn cluster_came_up(&mut self, shared: &Shared) {
        if let Some(addons) = &mut self.addons {
            addons.look_anew();
        }
        self.reapply_at = shared.now.monotonic;
    }

    fn read(&mut self, taken: &TakenDocument) -> Option<&DesiredState> {
        read(&mut self.desired, taken)
    }

    /// The host's task that is next, if the document is on disk and nothing is waited for.
    pub(super) fn task(
        &mut self,
        shared: &Shared,
    ) -> Option<(Arc<TakenDocument>, DocumentStep, Recorded<Task>)> {
        if self.retry_at.is_some() || !self.believes() {
            return None;
        }
        let Next::Do(step) = self.next_step(shared, shared.conditions?) else {
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
        let task = match step {
            DocumentStep::WriteDropIns => {
                let host = &self.read(&taken)?.host;
                Task::WriteDropIns(DropIns {
                    snapshot_schedule: host.snapshot_schedule.clone(),
                    snapshot_retention: host.snapshot_retention,
                    ingress_mode: Some(host.ingress_mode.clone()).filter(is_known),
                })
            }
            DocumentStep::LetGoOfManifests => {
                let addons = self.read(&taken)?.addons.iter();
                Task::LetGoOfManifests(addons.map(|addon| addon.name.clone()).collect())
            }
            DocumentStep::RestartK3s => Task::RestartK3s,
            DocumentStep::WriteSecrets => {
                let secrets = self.read(&taken)?.secrets.clone();
                Task::WriteSecrets(Secrets::Document(Box::new(secrets)))
            }
            // What will be applied is on disk by name before it is.
            DocumentStep::Addons if !shared.journal.is_settled() => return None,
            DocumentStep::Addons => self.addons.get_or_insert_default().task(shared),
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
        if let Err(failure) = &result {
            let (generation, message) = (taken.generation, failure.message.clone());
            let work = Work::Document { generation, step };
            shared.note(Note::TaskFailed { work, message });
        }
        if let (Ok(Done::DropIns { restart_pending }), Some(seen)) =
            (&result, &mut shared.conditions)
        {
            seen.restart_pending = *restart_pending;
        }
        let is_over = match step {
            DocumentStep::WriteDropIns
            | DocumentStep::LetGoOfManifests
            | DocumentStep::RestartK3s
            | DocumentStep::WriteSecrets => result.map(|_| true),
            DocumentStep::Addons => match (&mut self.addons, read(&mut self.desired, taken)) {
                (Some(addons), Some(desired)) => addons.performed(shared, taken, desired, result),
                // Another led meanwhile, or might have: what this round has found out is gone with it.
                (None, _) => Ok(false),
                (_, None) => Ok(true),
            },
        };
        match is_over {
            Ok(is_over) => {
                self.retry.succeed();
                self.retry_at = None;
                match step {
                    DocumentStep::RestartK3s => restarted(shared),
                    DocumentStep::WriteDropIns
                    | DocumentStep::LetGoOfManifests
                    | DocumentStep::WriteSecrets
                    | DocumentStep::Addons => {
                        let over = self.force.filter(|_| is_over);
                        self.force = over.map(|_| Force { done: Some(step) }).or(self.force);
                    }
                }
                self.plan(shared, document);
            }
            Err(failure) => {
                let wait_ms = self
                    .retry
                    .fail(&shared.facts.limits, &mut self.retry_jitter);
                self.retry_at = Some(shared.now.monotonic.plus_ms(wait_ms));
                let why = Some(failure.message);
                document.stand_in_force(shared, taken, DocumentResult::Failed, why);
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
            Some(DocumentStep::Addons) => shared.facts.limits.reapply_interval_ms,
            None
            | Some(
                DocumentStep::WriteDropIns
                | DocumentStep::LetGoOfManifests
                | DocumentStep::RestartK3s
                | DocumentStep::WriteSecrets,
            ) => 0,
        };
        self.reapply_at = shared.now.monotonic.plus_ms(wait_ms);
        if !shared.journal.in_force {
            let durable = shared.journal.change();
            durable.in_force = true;
            durable.applied_generation = taken.generation;
        }
        let failed = self.read(taken).and_then(failed_parts);
        let update = shared.update_fails.as_deref().map(str::to_owned);
        let failed = match (update, failed) {
            (Some(update), Some(others)) => Some(format!("{update}; {others}")),
            (update, others) => update.or(others),
        };
        self.desired = None;
        let result = match failed {
            None => DocumentResult::Applied,
            Some(_) => DocumentResult::Failed,
        };
        document.stand_in_force(shared, taken, result, failed);
    }
}

/// The taken document, read once as long as it is needed.
fn read<'a>(
    desired: &'a mut Option<Box<DesiredState>>,
    taken: &TakenDocument,
) -> Option<&'a DesiredState> {
    if desired.is_none() {
        *desired = Some(Box::new(DesiredState::read(&taken.raw).ok()?));
    }
    desired.as_deref()
}

/// The parts of a document that fail alone, all others being in force (FILE-16, WIRE-5).
fn failed_parts(desired: &DesiredState) -> Option<String> {
    let mode = &desired.host.ingress_mode;
    let mode = (!is_known(mode))
        .then(|| format!("host.ingress_mode {mode} is unknown; its drop-in stays as it is"));
    let window = Window::read(&desired.maintenance_window).err();
    let window = window.map(|refused| format!("{refused}; k3s is not restarted"));
    let failed: Vec<String> = mode.into_iter().chain(window).collect();
    (!failed.is_empty()).then(|| failed.join("; "))
}

/// k3s has read its drop-ins. Whether its API is up again, the next look at the node says.
fn restarted(shared: &mut Shared) {
    if let Some(seen) = &mut shared.conditions {
        seen.restart_pending = false;
        seen.api_is_up = false;
    }
    shared.note(Note::K3sRestarted);
}

fn is_known(mode: &IngressMode) -> bool {
    !matches!(mode, IngressMode::Unknown(_))
}
