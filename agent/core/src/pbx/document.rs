//! The document lane: taking the desired state, and putting it into force (SYNC-2 to SYNC-7, SEAL-2, SEAL-3, UPD-6).
//!
//! A document is taken whole or not at all, in this order: it is read, its release's manifest is fetched and verified, all
//! of its secrets are found to open, it is on disk. Only then the host is touched. Putting it into force is a plan
//! ([`next_step`]) that is made again from what the node shows, so a crash, a new document or a failed task are all the
//! same case. The agent's own update and the add-ons, which belong before and behind the Secrets, are not here yet.

use std::sync::Arc;

use protocol::id::{Generation, ReleaseVersion};
use protocol::pbx::call::Refusal;
use protocol::pbx::sync::{DesiredState, DocumentReport, DocumentResult, IngressMode};
use protocol::seal::Sealed;
use protocol::verified::{ManifestRejected, SignedManifest};
use serde_json::value::RawValue;

use super::durable::TakenDocument;
use super::pace::{RequestRefused, Tries, code_or_status};
use super::shared::{Conditions, Shared, sealed_values};
use super::task::{DocumentStep, Done, DropIns, Secrets, Task};
use crate::backoff::Backoff;
use crate::journal::{Recorded, StepRecord, Work};
use crate::machine::{FieldPath, TaskFailure, Unopenable, Wake, WakeReason};
use crate::note::Note;
use crate::seed::{Chance, Purpose, Seed};
use crate::time::Monotonic;

/// Where the document stands; what must outlive a crash is [`TakenDocument`].
#[derive(Debug)]
pub(super) struct Document {
    standing: Standing,
    /// The document that is being taken.
    taking: Option<Box<Taking>>,
    /// The document that was refused last.
    refused: Option<Refused>,
    /// The release whose manifest the portal does not give out (ANS-2).
    given_up: Option<Box<(ReleaseVersion, String)>>,
    /// How the request for the manifest of a release has fared, and of which: several documents may name it.
    pub(super) tries: Tries,
    tried: Option<ReleaseVersion>,
    /// How far the taken document is in force; none while nothing is to be done for it.
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

/// What a report says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    seen: Generation,
    result: DocumentResult,
    message: Option<String>,
}

/// A document that is being taken.
#[derive(Debug)]
struct Taking {
    raw: Arc<RawValue>,
    desired: DesiredState,
    manifest: ManifestOf,
}

/// The manifest of a document that is being taken.
#[derive(Debug)]
enum ManifestOf {
    /// To be asked for; once an answer of the portal, so that a portal without it is not asked all the time.
    Wanted,
    /// Was asked for in vain.
    Missing,
    /// Believed.
    Verified {
        signed: Arc<SignedManifest>,
        floor: u64,
    },
}

/// A document that was refused.
#[derive(Debug)]
struct Refused {
    raw: Arc<RawValue>,
    /// It was refused for what it says, and will be again.
    for_good: bool,
}

/// How far a taken document is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Force {
    /// The last step that is done.
    done: Option<DocumentStep>,
}

/// The sealed values of a document, by their paths.
pub(super) type SecretsOf = (Arc<RawValue>, Vec<(FieldPath, Sealed)>);

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

impl Document {
    pub(super) fn boot(seed: Seed, shared: &Shared) -> Self {
        let in_force = shared.journal.in_force;
        Self {
            standing: Standing {
                seen: shared
                    .journal
                    .document
                    .as_ref()
                    .map_or(Generation(0), |taken| taken.generation),
                result: if in_force {
                    DocumentResult::Applied
                } else {
                    DocumentResult::Pending
                },
                message: None,
            },
            taking: None,
            refused: None,
            given_up: None,
            tries: Tries::default(),
            tried: None,
            force: if in_force {
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

    /// What the next report says: a document is in force only once the disk says so, too.
    pub(super) fn report(&self, shared: &Shared) -> DocumentReport {
        let Standing {
            seen,
            result,
            message,
        } = self.standing.clone();
        let on_disk = shared.journal.on_disk();
        let not_yet_on_disk = result == DocumentResult::Applied && !on_disk.in_force;
        DocumentReport {
            applied_generation: on_disk.applied_generation,
            seen_generation: seen,
            result: if not_yet_on_disk {
                DocumentResult::Pending
            } else {
                result
            },
            message,
        }
    }

    fn stand(
        &mut self,
        shared: &mut Shared,
        seen: Option<Generation>,
        result: DocumentResult,
        message: Option<String>,
    ) {
        let standing = Standing {
            seen: seen.unwrap_or(self.standing.seen),
            result,
            message,
        };
        if standing != self.standing {
            shared.note(Note::Document {
                generation: seen,
                result,
                message: standing.message.clone(),
            });
            self.standing = standing;
        }
    }
}

/// Taking a document.
impl Document {
    /// The document in a sync's answer. One that is in force or refused for good costs a comparison.
    pub(super) fn offered(&mut self, shared: &mut Shared, offered: Option<&Arc<RawValue>>) {
        let Some(raw) = offered else { return };
        let taken = shared.journal.document.clone();
        if let Some(taken) = taken.as_deref().filter(|taken| same(&taken.raw, raw)) {
            self.offered_again(shared, taken);
            return;
        }
        if let Some(taking) = self
            .taking
            .as_deref_mut()
            .filter(|taking| same(&taking.raw, raw))
        {
            if matches!(taking.manifest, ManifestOf::Missing) {
                taking.manifest = ManifestOf::Wanted;
            }
            return;
        }
        let again = self
            .refused
            .as_ref()
            .filter(|refused| same(&refused.raw, raw));
        if again.is_some_and(|refused| refused.for_good) {
            return;
        }
        let is_new = again.is_none();
        self.taking = None;
        let desired = match DesiredState::read(raw) {
            Ok(desired) => desired,
            // rules SEAL-2, FAIL-5: nothing changes.
            Err(refusal) => {
                self.stand(
                    shared,
                    refusal.generation(),
                    refusal.result(),
                    Some(refusal.to_string()),
                );
                self.refuse(raw, true);
                return;
            }
        };
        if let Some(taken) = taken
            .as_deref()
            .filter(|taken| desired.generation < taken.generation)
        {
            // rule SYNC-7
            let message = format!("generation {} is in force", taken.generation);
            self.stand(
                shared,
                Some(desired.generation),
                DocumentResult::StaleDocument,
                Some(message),
            );
            self.refuse(raw, true);
            return;
        }
        if is_new {
            self.stand(
                shared,
                Some(desired.generation),
                DocumentResult::Pending,
                None,
            );
        }
        self.take(shared, taken.as_deref(), raw, desired);
    }

    /// The document that was taken came again: whatever came in between is over.
    fn offered_again(&mut self, shared: &mut Shared, taken: &TakenDocument) {
        self.taking = None;
        if self.refused.take().is_some() {
            let in_force = self.force.is_none();
            let result = if in_force {
                DocumentResult::Applied
            } else {
                DocumentResult::Pending
            };
            self.stand(shared, Some(taken.generation), result, None);
        }
    }

    fn refuse(&mut self, raw: &Arc<RawValue>, for_good: bool) {
        self.refused = Some(Refused {
            raw: Arc::clone(raw),
            for_good,
        });
    }

    /// Begins with the manifest: the one at hand if it is of this release, else the portal is asked (SYNC-4).
    fn take(
        &mut self,
        shared: &mut Shared,
        taken: Option<&TakenDocument>,
        raw: &Arc<RawValue>,
        desired: DesiredState,
    ) {
        if let Some((release, code)) = self.given_up.as_deref() {
            if *release == desired.release {
                let message = format!("the manifest of release {release} was refused: {code}");
                self.stand(
                    shared,
                    Some(desired.generation),
                    DocumentResult::ManifestRejected,
                    Some(message),
                );
                self.refuse(raw, false);
                return;
            }
            self.given_up = None;
        }
        if shared.facts.release_keys.is_empty() {
            // rule UPD-4
            let why = ManifestRejected::NoReleaseKeys.to_string();
            self.stand(
                shared,
                Some(desired.generation),
                DocumentResult::ManifestRejected,
                Some(why),
            );
            self.refuse(raw, true);
            return;
        }
        let at_hand = taken
            .filter(|taken| taken.release == desired.release)
            .map(|taken| Arc::clone(&taken.manifest));
        let release = desired.release.clone();
        if self.tried.as_ref() != Some(&release) {
            self.tried = Some(release.clone());
            self.tries = Tries::default();
        }
        self.taking = Some(Box::new(Taking {
            raw: Arc::clone(raw),
            desired,
            manifest: ManifestOf::Wanted,
        }));
        if let Some(signed) = at_hand {
            self.manifest_came(shared, &release, signed);
        }
    }

    /// The release whose manifest the portal is to be asked for.
    pub(super) fn wants_manifest(&self) -> Option<&ReleaseVersion> {
        let taking = self.taking.as_deref()?;
        matches!(taking.manifest, ManifestOf::Wanted).then_some(&taking.desired.release)
    }

    /// A manifest: believed, or the document is refused and nothing changes (SYNC-4, FAIL-4).
    pub(super) fn manifest_came(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        signed: Arc<SignedManifest>,
    ) {
        let Some(taking) = self
            .taking
            .as_deref_mut()
            .filter(|taking| taking.desired.release == *release)
        else {
            return;
        };
        match believe(shared, &taking.desired, &signed) {
            Ok(floor) => taking.manifest = ManifestOf::Verified { signed, floor },
            Err(why) => self.refuse_taking(shared, DocumentResult::ManifestRejected, why),
        }
    }

    /// The portal did not give out the manifest; it is asked again after its next answer to a sync.
    pub(super) fn manifest_missing(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        said: Option<&Refusal>,
    ) {
        let Some(taking) = self
            .taking
            .as_deref_mut()
            .filter(|taking| taking.desired.release == *release)
        else {
            return;
        };
        taking.manifest = ManifestOf::Missing;
        let generation = taking.desired.generation;
        if self.refused.is_none() {
            let said = said.map_or_else(|| "nothing readable".to_owned(), code_or_status);
            let why =
                format!("asked for the manifest of release {release}, the portal said {said}");
            self.stand(shared, Some(generation), DocumentResult::Pending, Some(why));
        }
    }

    /// The portal refused to give out the manifest with 400: three of these, and it is not asked for again until a document
    /// names another release (ANS-2).
    pub(super) fn manifest_refused(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        refused: RequestRefused,
    ) {
        if refused.is_final() {
            let message = format!(
                "the manifest of release {release} was refused: {}",
                refused.code
            );
            self.given_up = Some(Box::new((release.clone(), refused.code)));
            if self
                .taking
                .as_deref()
                .is_some_and(|taking| taking.desired.release == *release)
            {
                self.refuse_taking(shared, DocumentResult::ManifestRejected, message);
            }
        }
    }

    /// The document that is being taken is refused, and looked at again when the portal offers it again: what was wrong
    /// may be mended elsewhere.
    fn refuse_taking(&mut self, shared: &mut Shared, result: DocumentResult, why: String) {
        if let Some(taking) = self.taking.take() {
            self.stand(shared, Some(taking.desired.generation), result, Some(why));
            self.refuse(&taking.raw, false);
        }
    }

    /// The secrets that must be found to open before anything is done (SEAL-3).
    pub(super) fn to_open(&self) -> Option<SecretsOf> {
        let taking = self.taking.as_deref()?;
        let is_believed = matches!(taking.manifest, ManifestOf::Verified { .. });
        is_believed.then(|| {
            (
                Arc::clone(&taking.raw),
                sealed_values(taking.desired.sealed_values()),
            )
        })
    }

    /// Whether the secrets of `raw` opened. If so, the document counts: it is written down, and put into force once it is
    /// on disk.
    pub(super) fn opened(
        &mut self,
        shared: &mut Shared,
        raw: &Arc<RawValue>,
        result: Result<(), Unopenable>,
    ) {
        if !self
            .taking
            .as_deref()
            .is_some_and(|taking| Arc::ptr_eq(&taking.raw, raw))
        {
            return;
        }
        if let Err(unopenable) = result {
            self.refuse_taking(
                shared,
                DocumentResult::UnopenableSecret,
                unopenable.to_string(),
            );
            return;
        }
        let Some(taking) = self.taking.take() else {
            return;
        };
        let Taking {
            raw,
            desired,
            manifest: ManifestOf::Verified { signed, floor },
        } = *taking
        else {
            return;
        };
        if desired.agent_version != shared.facts.agent_version {
            shared.note(Note::AgentVersionWanted {
                wanted: desired.agent_version,
            });
        }
        let durable = shared.journal.change();
        durable.floor = durable.floor.max(floor);
        durable.in_force = false;
        durable.document = Some(Arc::new(TakenDocument {
            generation: desired.generation,
            release: desired.release,
            raw,
            manifest: signed,
        }));
        self.refused = None;
        self.retry_at = None;
        self.force = Some(Force { done: None });
        self.desired = None;
        self.stand(
            shared,
            Some(desired.generation),
            DocumentResult::Pending,
            None,
        );
    }
}

/// Whether two raw texts are the same: mostly one and the same value, else byte for byte.
fn same(one: &Arc<RawValue>, other: &Arc<RawValue>) -> bool {
    Arc::ptr_eq(one, other) || one.get() == other.get()
}

/// The floor of a manifest that goes with a document, or why it is not believed (SYNC-4, UPD-4, UPD-6).
fn believe(
    shared: &Shared,
    desired: &DesiredState,
    signed: &SignedManifest,
) -> Result<u64, String> {
    let manifest = shared
        .facts
        .release_keys
        .verify(signed, &desired.release)
        .map_err(|rejected| rejected.to_string())?;
    let floor_seen = shared.journal.floor;
    if manifest.floor < floor_seen {
        return Err(format!(
            "its floor {} is below {floor_seen}, which was seen before",
            manifest.floor
        ));
    }
    if manifest.agent.version != desired.agent_version {
        return Err(format!(
            "it is of agent {}, and the document names {}",
            manifest.agent.version, desired.agent_version
        ));
    }
    Ok(manifest.floor)
}

/// Putting the taken document into force.
impl Document {
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
    pub(super) fn plan(&mut self, shared: &mut Shared) {
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
                self.stand_in_force(shared, &taken, DocumentResult::Pending, Some(why));
            }
            Next::Finished => self.finish(shared, &taken, force),
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
                self.plan(shared);
            }
            Err(failure) => {
                let wait_ms = self
                    .retry
                    .fail(&shared.facts.limits, &mut self.retry_jitter);
                self.retry_at = Some(shared.now.monotonic.plus_ms(wait_ms));
                let message = failure.message;
                self.stand_in_force(shared, taken, DocumentResult::Failed, Some(message.clone()));
                let work = Work::Document {
                    generation: taken.generation,
                    step,
                };
                shared.note(Note::TaskFailed { work, message });
            }
        }
    }

    /// All that can be done is done.
    fn finish(&mut self, shared: &mut Shared, taken: &TakenDocument, was: Force) {
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
            None => self.stand_in_force(shared, taken, DocumentResult::Applied, None),
            Some(desired) => {
                let why = format!(
                    "host.ingress_mode {} is unknown; its drop-in stays as it is",
                    desired.host.ingress_mode
                );
                self.stand_in_force(shared, taken, DocumentResult::Failed, Some(why));
            }
        }
    }

    /// What became of the taken document, unless a later one is what the portal wants to hear of.
    fn stand_in_force(
        &mut self,
        shared: &mut Shared,
        taken: &TakenDocument,
        result: DocumentResult,
        message: Option<String>,
    ) {
        if self.taking.is_none() && self.refused.is_none() {
            self.stand(shared, Some(taken.generation), result, message);
        }
    }
}

fn is_known(mode: &IngressMode) -> bool {
    !matches!(mode, IngressMode::Unknown(_))
}
