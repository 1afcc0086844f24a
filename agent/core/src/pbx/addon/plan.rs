//! A round over the add-ons: a look at the cluster, then each add-on in the order of work, by the decision table.
//!
//! What a round finds out (the manifest, the look, rendered objects) lives as long as the round. Between two there are the
//! states for the next report, and a hash of the last look: while neither document nor cluster changes, a round is a look
//! and a comparison (SYNC-3). An add-on that fails holds up no other; what waits is looked at again at every cycle (ADD-12).
//!
//! What will be applied is on disk by name before it is ([`KeptAddon`]), and nothing else is ever deleted (ADD-5).

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use protocol::id::AddonName;
use protocol::pbx::release::{AddonTemplate, Manifest, TemplateEngine};
use protocol::pbx::sync::{AddonReport, AddonSpec, AddonState, DesiredState};
use protocol::verified::Verified;
use serde_json::{Map, Value};

use super::object::{Content, Object, ObjectId, ObjectKind, PLATFORM_ADDON, labels_of};
use super::order::Requirements;
use super::render::{Inputs, render};
use super::seen::{
    AddonsSeen, AppliedObject, KeptAddon, KeptForm, KeptObject, Look, SeenObject, Status,
};
use super::table::{Act, Facts, Form, Other, Platform, Shows, Verdict, decide};
use crate::machine::TaskFailure;
use crate::note::Note;
use crate::pbx::durable::TakenDocument;
use crate::pbx::shared::Shared;
use crate::pbx::task::{Done, Doomed, Task};

/// Add-ons of which it is kept what was applied.
const ADDONS_KEPT_MAX: usize = 128;
/// Objects of one add-on that are kept.
const OBJECTS_KEPT_MAX: usize = 64;
/// What a HelmChart says where its template does not: helm-controller's own are 1000 and none, with which nothing ever fails.
const BACK_OFF_LIMIT: u64 = 5;
const TIMEOUT: &str = "10m";

/// The add-ons lane.
#[derive(Debug, Default)]
pub(in crate::pbx) struct Addons {
    /// What the next report says.
    states: Arc<[AddonReport]>,
    /// A round is wanted at every cycle (ADD-12).
    again: bool,
    /// What the last look has shown, if nothing was left to do then.
    settled: Option<u64>,
    /// There was a round since this agent leads.
    has_looked: bool,
    round: Option<Box<Round>>,
}

impl Addons {
    /// What a report says of the add-ons; nothing before the first round, and from an agent that does not lead.
    pub(in crate::pbx) fn reports(&self) -> Arc<[AddonReport]> {
        Arc::clone(&self.states)
    }

    /// Whether the cluster's configuration is to be applied again at this cycle (ADD-12).
    pub(in crate::pbx) fn wants_every_cycle(&self) -> bool {
        self.again
    }

    /// Another document was taken.
    pub(in crate::pbx) fn begin(&mut self) {
        self.settled = None;
        self.round = None;
    }

    /// The cluster's data may be others than before: after a restore.
    pub(in crate::pbx) fn look_anew(&mut self) {
        self.settled = None;
    }

    /// The host's task that is next in the round, which begins with the first. It may be handed out once all that is known
    /// is on disk.
    pub(in crate::pbx) fn task(&mut self, shared: &Shared) -> Task {
        let round = self.round.get_or_insert_default();
        match &round.at {
            At::Look => Task::LookAtAddons(look(&shared.journal.addons)),
            At::Apply(name) => Task::ApplyAddon {
                addon: name.clone(),
                objects: round.objects.clone(),
            },
            At::EmptyPlatform(platform) => Task::EmptyPlatform(Box::new(platform.clone())),
            At::Delete(name, doomed) => Task::DeleteAddon {
                addon: name.clone(),
                objects: doomed.clone(),
            },
        }
    }

    /// A task of the round has ended; whether the round has.
    ///
    /// # Errors
    /// When the cluster could not be looked at.
    pub(in crate::pbx) fn performed(
        &mut self,
        shared: &mut Shared,
        taken: &TakenDocument,
        desired: &DesiredState,
        result: Result<Done, TaskFailure>,
    ) -> Result<bool, TaskFailure> {
        let Some(mut round) = self.round.take() else {
            return Ok(true);
        };
        let before = Before {
            states: &self.states,
            has_looked: self.has_looked,
        };
        match round.performed(shared, desired, result) {
            Came::Looked if self.settled == Some(round.seen_hash()) => return Ok(true),
            Came::Looked => round.begin(shared, taken, desired),
            Came::Acted => {}
            Came::NotSeen(failure) => return Err(failure),
        }
        if round.advance(shared, desired, &before) {
            self.round = Some(round);
            return Ok(false);
        }
        self.settled = round.settled();
        self.again = round.again;
        self.has_looked = true;
        let states = round.states;
        for state in states.iter().filter(|state| !self.states.contains(state)) {
            shared.note(Note::Addon(state.clone()));
        }
        self.states = states.into();
        Ok(true)
    }
}

/// What a look is to find out: a function of what is kept.
fn look(kept: &[KeptAddon]) -> Look {
    Look {
        releases: kept.iter().flat_map(KeptAddon::releases).collect(),
        deployments: kept
            .iter()
            .flat_map(|addon| addon.deployments.clone())
            .collect(),
    }
}

/// What the round before has left.
struct Before<'a> {
    states: &'a [AddonReport],
    has_looked: bool,
}

impl Before<'_> {
    fn state(&self, name: &AddonName) -> Option<&AddonState> {
        let state = self.states.iter().find(|state| state.name == *name);
        state.map(|state| &state.state)
    }
}

/// A round.
#[derive(Debug, Default)]
struct Round {
    at: At,
    seen: AddonsSeen,
    /// What the first look has shown, once the cluster was looked at a second time since something seems to be gone.
    seen_before: Option<u64>,
    manifest: Option<Verified<Manifest>>,
    /// The add-ons in the order of work: first those that are off, the ones that others require last, then those that are
    /// on, the ones that others require first.
    names: Vec<AddonName>,
    next: usize,
    /// The objects of the add-on that is being applied.
    objects: Vec<Object>,
    /// Those of which something was applied in this round: what the look has shown of them is old.
    applied: BTreeSet<AddonName>,
    states: Vec<AddonReport>,
    again: bool,
    has_acted: bool,
}

/// What a round is at.
#[derive(Debug, Default)]
enum At {
    #[default]
    Look,
    Apply(AddonName),
    EmptyPlatform(Object),
    Delete(AddonName, Vec<Doomed>),
}

/// What a task has brought.
enum Came {
    Looked,
    Acted,
    NotSeen(TaskFailure),
}

/// What came of what was done about an add-on, before the table is asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Just {
    Applied,
    Emptied,
    HasApplications(Vec<String>),
    Deleted,
    Failed(String),
}

impl Round {
    /// What the last look has shown, as a hash that is the same in every start of the program.
    fn seen_hash(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        self.seen.hash(&mut hash);
        hash.finish()
    }

    /// What it has seen, if the same, seen again, leaves nothing to do: nothing was done, and all of it was decided by that.
    fn settled(&self) -> Option<u64> {
        let seen = self.seen_hash();
        let has_seen_one = self.seen_before.is_none_or(|before| before == seen);
        (!self.has_acted && has_seen_one).then_some(seen)
    }

    fn performed(
        &mut self,
        shared: &mut Shared,
        desired: &DesiredState,
        result: Result<Done, TaskFailure>,
    ) -> Came {
        let at = std::mem::take(&mut self.at);
        let just = match (at, result) {
            (At::Look, Ok(Done::AddonsSeen(seen))) => {
                self.seen = *seen;
                return Came::Looked;
            }
            (At::Look, Ok(other)) => {
                return Came::NotSeen(TaskFailure {
                    message: wrong(&other),
                    log_tail: Vec::new(),
                });
            }
            (At::Look, Err(failure)) => return Came::NotSeen(failure),
            (At::Apply(name), Ok(Done::AddonApplied(applied)))
                if applied.len() == self.objects.len() =>
            {
                self.keep_forms(shared, &name, applied);
                Just::Applied
            }
            (At::EmptyPlatform(..), Ok(Done::Applications(applications))) => {
                match applications.is_empty() {
                    true => Just::Emptied,
                    false => Just::HasApplications(applications),
                }
            }
            (At::Delete(..), Ok(Done::Plain)) => Just::Deleted,
            (_, Ok(other)) => Just::Failed(wrong(&other)),
            (_, Err(failure)) => Just::Failed(failure.message),
        };
        self.has_acted = true;
        self.objects = Vec::new();
        let verdict = self.names.get(self.next).cloned().map(|name| {
            let facts = self.facts_after(shared, desired, &name, just);
            (name, decide(&facts))
        });
        if let Some((name, verdict)) = verdict {
            self.is_decided(desired, name, verdict);
        }
        Came::Acted
    }

    /// What was applied is on record with what came of it.
    fn keep_forms(&mut self, shared: &mut Shared, name: &AddonName, applied: Vec<AppliedObject>) {
        let kept = kept(shared, name);
        for (object, applied) in self.objects.iter().zip(applied) {
            let AppliedObject { uid, fingerprint } = applied;
            if let Some(kept) = kept.objects.iter_mut().find(|it| it.id == object.id) {
                kept.form = Some(KeptForm::of(object, &uid, fingerprint));
            }
        }
        self.applied.insert(name.clone());
    }

    /// What has the labels of an add-on and was applied by an agent is that add-on's, also where another server's agent has
    /// done it that led before (SYNC-6). It is recorded by name, as if it had been applied here.
    fn adopt(&self, shared: &mut Shared) {
        for seen in self.seen.objects.iter().filter(|seen| seen.is_applied) {
            let Ok(name) = AddonName::new(&seen.addon) else {
                continue;
            };
            // One that is known stays whose it is, whatever a hand has made of its label.
            let mut known = shared.journal.addons.iter().flat_map(|kept| &kept.objects);
            if !known.any(|kept| kept.id == seen.id) {
                let release_namespace = match &seen.status {
                    Status::Chart { namespace, .. } => Some(namespace.clone()),
                    Status::None | Status::Platform { .. } => None,
                };
                kept(shared, &name).objects.push(KeptObject {
                    id: seen.id.clone(),
                    form: None,
                    release_namespace,
                    was_deployed: false,
                });
            }
        }
    }

    /// The cluster was looked at: the order of work.
    fn begin(&mut self, shared: &mut Shared, taken: &TakenDocument, desired: &DesiredState) {
        if self.manifest.is_some() {
            return;
        }
        let verified = (shared.facts.release_keys).verify(&taken.manifest, &taken.release);
        match verified {
            Ok(manifest) => self.manifest = Some(manifest),
            Err(why) => {
                // rule SYNC-4: nothing changes, not even what is off.
                self.states = (desired.addons.iter())
                    .map(|addon| AddonReport {
                        name: addon.name.clone(),
                        state: AddonState::Failed,
                        message: Some(why.to_string()),
                    })
                    .collect();
                return;
            }
        }
        self.adopt(shared);
        let mut all: Vec<AddonName> = Vec::new();
        let listed = desired.addons.iter().map(|addon| &addon.name);
        for name in listed.chain(shared.journal.addons.iter().map(|kept| &kept.name)) {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        let order = Requirements::new(self.addons()).order(&all);
        let (on, mut off): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|name| is_on(desired, name));
        off.reverse();
        off.extend(on);
        self.names = off;
    }

    /// Goes through the add-ons until one needs a task; whether one does.
    fn advance(
        &mut self,
        shared: &mut Shared,
        desired: &DesiredState,
        before: &Before<'_>,
    ) -> bool {
        if !matches!(self.at, At::Look) {
            return true;
        }
        while let Some(name) = self.names.get(self.next).cloned() {
            let mut form = Form::Unknown;
            loop {
                let mut facts = self.facts(shared, desired, &name, form);
                facts.shows.is_gone_for_sure = self.seen_before.is_some()
                    || match before.state(&name) {
                        Some(AddonState::Removed) => true,
                        Some(_) => false,
                        None => before.has_looked,
                    };
                let verdict = decide(&facts);
                match verdict.act {
                    Act::Nothing => {
                        self.is_decided(desired, name, verdict);
                        break;
                    }
                    Act::Compare => form = self.compare(shared, desired, &name),
                    Act::LookAgain => {
                        self.seen_before = Some(self.seen_hash());
                        return true;
                    }
                    Act::Apply => {
                        self.intend(shared, desired, &name);
                        self.at = At::Apply(name);
                        return true;
                    }
                    Act::EmptyPlatform => {
                        match self.empty_platform(shared, &name) {
                            Some(platform) => self.at = At::EmptyPlatform(platform),
                            None => {
                                self.is_decided(desired, name, verdict);
                                break;
                            }
                        }
                        return true;
                    }
                    Act::Delete => {
                        let doomed = self.doomed(shared, &name).collect();
                        self.at = At::Delete(name, doomed);
                        return true;
                    }
                }
            }
        }
        self.states.sort_by_key(|state| {
            let listed = desired
                .addons
                .iter()
                .position(|addon| addon.name == state.name);
            listed.unwrap_or(usize::MAX)
        });
        false
    }

    /// An add-on's state is known. One that the document does not have is reported until it is gone.
    fn is_decided(&mut self, desired: &DesiredState, name: AddonName, verdict: Verdict) {
        self.next += 1;
        self.again |= verdict.again;
        if verdict.state != AddonState::Removed || spec(desired, &name).is_some() {
            self.states.push(AddonReport {
                name,
                state: verdict.state,
                message: verdict.message,
            });
        }
    }
}

/// What the table is told.
impl Round {
    fn addons(&self) -> &[AddonTemplate] {
        self.manifest
            .as_ref()
            .map_or(&[], |manifest| &manifest.addons)
    }

    fn template(&self, name: &AddonName) -> Option<&AddonTemplate> {
        self.addons().iter().find(|addon| addon.name == *name)
    }

    fn facts(
        &self,
        shared: &Shared,
        desired: &DesiredState,
        name: &AddonName,
        form: Form,
    ) -> Facts {
        let template = self.template(name);
        let mut listed = desired.addons.iter();
        let is_on = is_on(desired, name);
        let other = |name: &AddonName| self.other(shared, desired, name);
        let says = |addon: &AddonTemplate| addon.name != *name && addon.conflicts.contains(name);
        let conflicts = template
            .into_iter()
            .flat_map(|template| &template.conflicts);
        let conflicts = conflicts.chain(
            self.addons()
                .iter()
                .filter(|it| says(it))
                .map(|it| &it.name),
        );
        let requires_it =
            |addon: &&AddonTemplate| addon.name != *name && addon.requires.contains(name);
        Facts {
            is_on,
            is_doubled: listed
                .by_ref()
                .filter(|addon| addon.name == *name)
                .nth(1)
                .is_some(),
            is_in_release: template.is_some(),
            cycle: is_on
                .then(|| Requirements::new(self.addons()).cycle(name))
                .flatten(),
            requires: template.map_or_else(Vec::new, |it| it.requires.iter().map(other).collect()),
            conflicts: conflicts.map(other).collect(),
            required_by: self
                .addons()
                .iter()
                .filter(requires_it)
                .map(|it| other(&it.name))
                .collect(),
            shows: self.shows(shared, name),
            form,
            failed: None,
        }
    }

    /// The facts after something was done about the add-on.
    fn facts_after(
        &self,
        shared: &Shared,
        desired: &DesiredState,
        name: &AddonName,
        just: Just,
    ) -> Facts {
        let mut facts = self.facts(shared, desired, name, Form::Differs);
        let shows = &mut facts.shows;
        match just {
            Just::Applied => {
                facts.form = Form::Same;
                shows.failed_release = None;
                // Read only after the change was observed.
                shows.is_healthy = self.template(name).is_some_and(|it| it.health.is_none());
            }
            Just::Emptied => {
                if let Some(platform) = &mut shows.platform {
                    (platform.is_empty, platform.is_cleared) = (true, false);
                }
            }
            Just::HasApplications(applications) => {
                if let Some(platform) = &mut shows.platform {
                    platform.applications = applications;
                }
            }
            Just::Deleted => shows.has_deletable = false,
            Just::Failed(why) => facts.failed = Some(why),
        }
        facts
    }

    fn other(&self, shared: &Shared, desired: &DesiredState, name: &AddonName) -> Other {
        let state = self.states.iter().find(|state| state.name == *name);
        Other {
            name: name.clone(),
            is_on: is_on(desired, name),
            is_there: self.applied.contains(name) || self.is_there(shared, name),
            is_applied: state.is_some_and(|state| state.state == AddonState::Applied),
        }
    }

    /// The objects of an add-on: with its labels, and of a name that was recorded before it was applied (ADD-5).
    fn objects_of<'a>(
        &'a self,
        shared: &'a Shared,
        name: &'a AddonName,
    ) -> impl Iterator<Item = (&'a SeenObject, &'a KeptObject)> {
        let kept = shared.journal.addons.iter().find(|kept| kept.name == *name);
        let kept = kept.map_or(&[][..], |kept| &kept.objects);
        let ours = self
            .seen
            .objects
            .iter()
            .filter(|seen| seen.addon == name.as_str());
        ours.filter_map(|seen| Some((seen, kept.iter().find(|kept| kept.id == seen.id)?)))
    }

    fn is_there(&self, shared: &Shared, name: &AddonName) -> bool {
        let kept = shared.journal.addons.iter().find(|kept| kept.name == *name);
        let mut releases = kept.into_iter().flat_map(KeptAddon::releases);
        self.objects_of(shared, name).next().is_some()
            || releases.any(|release| self.seen.releases.contains(&release))
    }

    fn shows(&self, shared: &Shared, name: &AddonName) -> Shows {
        let mut shows = Shows {
            is_there: self.is_there(shared, name),
            is_healthy: self.is_healthy(shared, name),
            ..Shows::default()
        };
        if name.as_str() == PLATFORM_ADDON {
            shows.platform = Some(Platform {
                applications: self.seen.applications.clone(),
                refuses: None,
                is_empty: true,
                is_cleared: true,
            });
        }
        for (seen, _) in self.objects_of(shared, name) {
            match seen.is_deleting {
                true => shows.deleting = Some(seen.id.to_string()),
                false => shows.has_deletable = true,
            }
            match (&seen.status, &mut shows.platform) {
                (
                    Status::Chart {
                        failed: Some(_), ..
                    },
                    _,
                ) => {
                    shows.failed_release = Some(seen.id.name().to_owned());
                }
                (
                    Status::Platform {
                        is_empty,
                        is_cleared,
                        refuses,
                    },
                    Some(platform),
                ) => {
                    platform.refuses.clone_from(refuses);
                    (platform.is_empty, platform.is_cleared) = (*is_empty, *is_cleared);
                }
                _ => {}
            }
        }
        shows
    }

    /// Whether an add-on's health check passes: all of its charts are deployed as they are now, and its Deployments, which
    /// were asked for, are available.
    fn is_healthy(&self, shared: &Shared, name: &AddonName) -> bool {
        let Some(health) = self.template(name).and_then(|it| it.health.as_ref()) else {
            return true;
        };
        let kept = shared.journal.addons.iter().find(|kept| kept.name == *name);
        let were_asked_for = kept.is_some_and(|kept| kept.deployments == health.deployments);
        let mut unavailable = health.deployments.iter();
        were_asked_for
            && !unavailable.any(|deployment| self.seen.unavailable.contains(deployment))
            && self
                .objects_of(shared, name)
                .all(|(seen, _)| match seen.status {
                    Status::Chart { is_deployed, .. } => is_deployed,
                    Status::None | Status::Platform { .. } => true,
                })
    }
}

/// What is done.
impl Round {
    /// Renders what an add-on should have, and compares it with what the cluster shows.
    fn compare(&mut self, shared: &Shared, desired: &DesiredState, name: &AddonName) -> Form {
        match self.rendered(shared, desired, name) {
            Err(why) => Form::Refused(why),
            Ok(objects) => {
                let form = match self.is_as_it_should_be(shared, name, &objects) {
                    true => Form::Same,
                    false => Form::Differs,
                };
                self.objects = objects;
                form
            }
        }
    }

    fn rendered(
        &self,
        shared: &Shared,
        desired: &DesiredState,
        name: &AddonName,
    ) -> Result<Vec<Object>, String> {
        let Some(manifest) = &self.manifest else {
            return Err("the release has no manifest".to_owned());
        };
        if let TemplateEngine::Unknown(engine) = &manifest.template_engine {
            // rule WIRE-5: fails this part alone.
            return Err(format!(
                "its template is written for {engine}, which this agent does not know"
            ));
        }
        let (Some(template), Some(spec)) = (self.template(name), spec(desired, name)) else {
            return Err("the release has no such add-on".to_owned());
        };
        let mut objects = render(Inputs {
            addon: name,
            template: &template.template,
            options: &spec.options,
            secret_options: &spec.secret_options,
            cluster: &shared.facts.config.cluster_id,
            release: &manifest.version,
        })
        .map_err(|why| why.to_string())?;
        for object in &mut objects {
            self.keeps_its_place(shared, name, object)?;
            self.guard(shared, name, object);
        }
        let mut own = self
            .objects_of(shared, name)
            .filter(|(seen, _)| !seen.is_deleting);
        if let Some((dropped, _)) = own.find(|(seen, _)| !objects.iter().any(|it| it.id == seen.id))
        {
            return Err(format!(
                "its template has no {} any more; it is kept",
                dropped.id
            ));
        }
        Ok(objects)
    }

    /// Whether an object is not another add-on's, and its release stays where it is.
    fn keeps_its_place(
        &self,
        shared: &Shared,
        name: &AddonName,
        object: &Object,
    ) -> Result<(), String> {
        let id = &object.id;
        let mut others = shared
            .journal
            .addons
            .iter()
            .filter(|kept| kept.name != *name);
        let owner = others.find(|other| {
            let mut theirs = self.objects_of(shared, &other.name);
            theirs.any(|(seen, _)| seen.id == *id)
        });
        if let Some(owner) = owner {
            return Err(format!("{id} is of add-on {}", owner.name));
        }
        let mut own = self.objects_of(shared, name);
        let there = own.find(|(seen, _)| seen.id == *id);
        let place = there.and_then(|(_, kept)| kept.release_namespace.as_deref());
        match (place, object.release_namespace()) {
            (Some(old), Some(new)) if old != new => Err(format!(
                "its template moves the release of {id} from namespace {old} to {new}; it is kept where it is"
            )),
            _ => Ok(()),
        }
    }

    /// What a HelmChart must say so that a failure neither uninstalls what runs nor goes on for ever. `reinstall` is for a
    /// helm-controller that knows nothing better, and a release that never ran.
    fn guard(&self, shared: &Shared, name: &AddonName, object: &mut Object) {
        if object.id.kind() != ObjectKind::HelmChart {
            return;
        }
        let mut own = self.objects_of(shared, name);
        let was_deployed = own.any(|(seen, kept)| {
            let is_deployed = matches!(
                seen.status,
                Status::Chart {
                    is_deployed: true,
                    ..
                }
            );
            seen.id == object.id && (kept.was_deployed || is_deployed)
        });
        let Content::Spec(spec) = &mut object.content else {
            return;
        };
        let policy = match (self.seen.offers_retry, was_deployed) {
            (true, _) => "retry",
            (false, true) => "abort",
            (false, false) => "reinstall",
        };
        spec.insert("failurePolicy".to_owned(), policy.into());
        spec.entry("backOffLimit").or_insert(BACK_OFF_LIMIT.into());
        spec.entry("timeout").or_insert(TIMEOUT.into());
    }

    /// Whether all is in the cluster as it was applied, and would be applied so again.
    fn is_as_it_should_be(&self, shared: &Shared, name: &AddonName, objects: &[Object]) -> bool {
        let kept = shared.journal.addons.iter().find(|kept| kept.name == *name);
        let deployments = self.template(name).and_then(|it| it.health.as_ref());
        let deployments = deployments.map_or(&[][..], |health| &health.deployments);
        let has_none = objects.is_empty() && deployments.is_empty();
        kept.map_or(has_none, |kept| kept.deployments == deployments)
            && objects.iter().all(|object| {
                let mut own = self.objects_of(shared, name);
                let Some((seen, kept)) = own.find(|(seen, _)| seen.id == object.id) else {
                    return false;
                };
                kept.form == Some(KeptForm::of(object, &seen.uid, seen.fingerprint))
            })
    }

    /// Records by name what is about to be applied.
    fn intend(&self, shared: &mut Shared, desired: &DesiredState, name: &AddonName) {
        let deployments = self.template(name).and_then(|it| it.health.as_ref());
        let deployments = deployments.map_or_else(Vec::new, |health| health.deployments.clone());
        let deployed: Vec<ObjectId> = (self.objects_of(shared, name))
            .filter(|(seen, _)| {
                matches!(
                    seen.status,
                    Status::Chart {
                        is_deployed: true,
                        ..
                    }
                )
            })
            .map(|(seen, _)| seen.id.clone())
            .collect();
        let there: Vec<ObjectId> = (self.objects_of(shared, name))
            .map(|(seen, _)| seen.id.clone())
            .collect();
        self.make_room(shared, desired, name);
        let kept = kept(shared, name);
        kept.deployments = deployments;
        for object in &self.objects {
            let at = kept.objects.iter().position(|kept| kept.id == object.id);
            let mut entry = match at {
                Some(at) => kept.objects.remove(at),
                None => KeptObject {
                    id: object.id.clone(),
                    form: None,
                    release_namespace: None,
                    was_deployed: false,
                },
            };
            entry.release_namespace = object.release_namespace().map(str::to_owned);
            entry.was_deployed |= deployed.contains(&entry.id);
            kept.objects.push(entry);
        }
        // The oldest are first, and what is not there any more can be forgotten.
        while kept.objects.len() > OBJECTS_KEPT_MAX {
            let is_over = |kept: &KeptObject| {
                !there.contains(&kept.id) && !self.objects.iter().any(|it| it.id == kept.id)
            };
            match kept.objects.iter().position(is_over) {
                Some(at) => drop(kept.objects.remove(at)),
                None => break,
            }
        }
        kept.objects.shrink_to_fit();
    }

    /// What is kept of add-ons is bounded: the oldest is forgotten that the document does not have and the cluster neither.
    fn make_room(&self, shared: &mut Shared, desired: &DesiredState, name: &AddonName) {
        let addons = &shared.journal.addons;
        if addons.len() < ADDONS_KEPT_MAX || addons.iter().any(|kept| kept.name == *name) {
            return;
        }
        let over = addons.iter().position(|kept| {
            spec(desired, &kept.name).is_none() && !self.is_there(shared, &kept.name)
        });
        if let Some(at) = over {
            Arc::make_mut(&mut shared.journal.change().addons).remove(at);
        }
    }

    /// The Platform of the cluster, so that it installs nothing (ADD-15).
    fn empty_platform(&self, shared: &Shared, name: &AddonName) -> Option<Object> {
        let mut own = self.objects_of(shared, name);
        let (platform, _) = own.find(|(seen, _)| seen.id.kind() == ObjectKind::Platform)?;
        Some(Object {
            id: platform.id.clone(),
            labels: labels_of(name).into(),
            annotations: BTreeMap::new(),
            content: Content::Spec(Map::from_iter([(
                "components".to_owned(),
                Value::Array(Vec::new()),
            )])),
        })
    }

    /// What is to be deleted of an add-on: each by the UID that was seen.
    fn doomed<'a>(
        &'a self,
        shared: &'a Shared,
        name: &'a AddonName,
    ) -> impl Iterator<Item = Doomed> + 'a {
        let own = self
            .objects_of(shared, name)
            .filter(|(seen, _)| !seen.is_deleting);
        own.map(|(seen, _)| Doomed {
            id: seen.id.clone(),
            uid: seen.uid.clone(),
        })
    }
}

fn wrong(done: &Done) -> String {
    format!("the host answered with {}", done.name())
}

fn spec<'a>(desired: &'a DesiredState, name: &AddonName) -> Option<&'a AddonSpec> {
    desired.addons.iter().find(|addon| addon.name == *name)
}

fn is_on(desired: &DesiredState, name: &AddonName) -> bool {
    spec(desired, name).is_some_and(|addon| addon.enabled)
}

/// What is kept of an add-on, to be changed.
fn kept<'a>(shared: &'a mut Shared, name: &AddonName) -> &'a mut KeptAddon {
    let addons = Arc::make_mut(&mut shared.journal.change().addons);
    let at = addons.iter().position(|kept| kept.name == *name);
    let at = at.unwrap_or_else(|| {
        addons.push(KeptAddon {
            name: name.clone(),
            objects: Vec::new(),
            deployments: Vec::new(),
        });
        addons.len() - 1
    });
    &mut addons[at]
}
