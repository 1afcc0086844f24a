//! The document lane: taking the desired state (SYNC-4, SYNC-7, SEAL-2, SEAL-3, UPD-6).
//!
//! A document is taken whole or not at all, in this order: it is read, its release's manifest is fetched and verified, all
//! of its secrets are found to open, it is on disk. Only then the host is touched, which is the affair of
//! [`converge`](super::converge).

use std::sync::Arc;

use protocol::id::{Generation, ReleaseVersion};
use protocol::pbx::call::Refusal;
use protocol::pbx::sync::{DesiredState, DocumentReport, DocumentResult};
use protocol::seal::Sealed;
use protocol::verified::{ManifestRejected, SignedManifest};
use serde_json::value::RawValue;

use super::converge::Converge;
use super::durable::TakenDocument;
use super::manifest;
use super::pace::{RequestRefused, Tries, code_or_status};
use super::shared::{Shared, sealed_values};
use crate::machine::{FieldPath, Unopenable};
use crate::note::Note;

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

/// The sealed values of a document, by their paths.
pub(super) type SecretsOf = (Arc<RawValue>, Vec<(FieldPath, Sealed)>);

impl Document {
    pub(super) fn boot(shared: &Shared) -> Self {
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

    /// What became of the taken document, unless a later one is what the portal wants to hear of.
    pub(super) fn stand_in_force(
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

/// Taking a document.
impl Document {
    /// The document in a sync's answer. One that is in force or refused for good costs a comparison.
    pub(super) fn offered(
        &mut self,
        shared: &mut Shared,
        converge: &Converge,
        offered: Option<&Arc<RawValue>>,
    ) {
        let Some(raw) = offered else { return };
        let taken = shared.journal.document.clone();
        // One whose manifest is believed no more is taken anew: the portal may have it signed by another key by now.
        let at_hand = taken.as_deref().filter(|_| converge.believes());
        if let Some(taken) = at_hand.filter(|taken| same(&taken.raw, raw)) {
            self.offered_again(shared, converge, taken);
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
            let message = format!("generation {} was taken before", taken.generation);
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
        self.take(shared, at_hand, raw, desired);
    }

    /// The document that was taken came again: whatever came in between is over.
    fn offered_again(&mut self, shared: &mut Shared, converge: &Converge, taken: &TakenDocument) {
        self.taking = None;
        if self.refused.take().is_some() {
            let result = if converge.is_through() {
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
        self.asks_for(&release);
        self.taking = Some(Box::new(Taking {
            raw: Arc::clone(raw),
            desired,
            manifest: ManifestOf::Wanted,
        }));
        if let Some(signed) = at_hand {
            self.manifest_came(shared, &release, signed);
        }
    }

    /// The manifest of a release is about to be asked for, by whichever lane: refusals of the same request count together
    /// (ANS-2).
    pub(super) fn asks_for(&mut self, release: &ReleaseVersion) {
        if self.tried.as_ref() != Some(release) {
            self.tried = Some(release.clone());
            self.tries = Tries::default();
        }
    }

    /// A 426 has named a release: the manifest of another one that was given up may be asked for again (ANS-2).
    pub(super) fn release_named(&mut self, release: &ReleaseVersion) {
        self.given_up.take_if(|given_up| given_up.0 != *release);
    }

    /// Why the manifest of a release is not asked for any more, if it is not (ANS-2).
    pub(super) fn given_up(&self, release: &ReleaseVersion) -> Option<&str> {
        let (given_up, code) = self.given_up.as_deref()?;
        (given_up == release).then_some(code)
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
        match floor_of(shared, &taking.desired, &signed) {
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
        converge: &mut Converge,
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
        converge.begin();
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

/// The floor of the manifest that goes with a document, or why it does not (SYNC-4, UPD-6).
fn floor_of(
    shared: &Shared,
    desired: &DesiredState,
    signed: &SignedManifest,
) -> Result<u64, String> {
    let manifest = manifest::believe(shared, &desired.release, signed)?;
    if manifest.agent.version != desired.agent_version {
        return Err(format!(
            "it is of agent {}, and the document names {}",
            manifest.agent.version, desired.agent_version
        ));
    }
    Ok(manifest.floor)
}
