//! The update lane: replacing the agent's own program (UPD-1 to UPD-6, ANS-6).
//!
//! A journal of fixed steps, each recorded before it begins and each repeatable:
//!
//! | Step | What is done |
//! |---|---|
//! | fetch, check | the host fetches the new program, compares its hash, and sees whether it runs |
//! | keep | the running program becomes the previous one as well |
//! | arm | the rollback timer is started; from here on it decides, and no operation begins |
//! | swap | the new program takes the running one's place; then this one ends |
//! | trial | the new program runs; its first good sync goes on |
//! | commit | the host notes that the program stays, and stops the timer |
//!
//! What a start finds is told by which program runs. The one of the update is on trial. The one before it is where the update
//! was when it fell, before the swap; after it, or where the host says so, the timer has put it back: then that version is
//! left alone for six hours. Before the swap the timer is armed anew, so that a trial always has all of its time; a swap that
//! fails again and again is left to the timer that runs.
//!
//! Which release counts is decided as for a document: a built-in key has signed its manifest, and its floor is not below one
//! that was seen. When an answer of the portal makes the agent ask for one (426), one try a release and six hours is all.

use protocol::id::{AgentVersion, ReleaseVersion};
use protocol::pbx::release::Manifest;
use protocol::time::Timestamp;
use protocol::verified::SignedManifest;

use super::durable::{Ban, BanReason, SCHEMA, Tried, Update, UpdateStep};
use super::manifest;
use super::shared::Shared;
use super::task::{Done, Program, Task};
use crate::backoff::Backoff;
use crate::journal::{Recorded, StepRecord, Work};
use crate::limits::{BANS_MAX, RESUMES_MAX, SWAPS_MAX};
use crate::machine::{TaskFailure, Wake, WakeReason};
use crate::note::Note;
use crate::seed::{Chance, Purpose, Seed};
use crate::time::Monotonic;

/// The agent's own update; what must outlive a crash is [`Update`].
#[derive(Debug)]
pub(super) struct Updating {
    /// The program that the document names, if it is another than the running one; or why there is none to be had.
    wanted: Option<Box<Result<Wanted, String>>>,
    /// A release that a 426 has named, whose manifest is to be asked for.
    asks_for: Option<Box<ReleaseVersion>>,
    retry: Option<Box<Retry>>,
    jitter: Chance,
    /// This program has ended itself.
    has_ended: bool,
}

#[derive(Debug, Clone)]
struct Wanted {
    release: ReleaseVersion,
    program: Program,
}

/// A task of the host that has failed.
#[derive(Debug)]
struct Retry {
    row: Backoff,
    at: Option<Monotonic>,
    /// No more is tried: the rollback timer ends this program.
    is_left_to_timer: bool,
    message: String,
}

impl Updating {
    /// A start: what it makes of an update that was under way (UPD-2, UPD-3, UPD-5).
    pub(super) fn boot(seed: Seed, shared: &mut Shared) -> Self {
        if let Some(found) = shared.journal.update.as_deref().cloned() {
            resume(shared, found);
        }
        if !is_on_trial(shared) {
            settle_schema(shared);
        }
        let mut lane = Self {
            wanted: None,
            asks_for: None,
            retry: None,
            jitter: seed.child(Purpose::UpdateRetryJitter),
            has_ended: false,
        };
        if let Some(taken) = shared.journal.document.clone() {
            lane.document_taken(shared, &taken.release, &taken.manifest);
        }
        lane
    }

    /// Another document was taken: which program it names. A document goes with its release's manifest, which was believed
    /// before (SYNC-4, UPD-6).
    pub(super) fn document_taken(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        signed: &SignedManifest,
    ) {
        self.wanted = None;
        if let Ok(manifest) = shared.facts.release_keys.verify(signed, release)
            && manifest.agent.version != shared.facts.agent_version
        {
            let wanted = program_of(shared, &manifest).map(|program| Wanted {
                release: release.clone(),
                program,
            });
            self.wanted = Some(Box::new(wanted));
        }
        // An update of an earlier document that nothing depends on yet.
        let wants = match self.wanted.as_deref() {
            Some(Ok(wanted)) => Some(&wanted.program),
            _ => None,
        };
        let is_void = |update: &Update| {
            !update.too_old && update.step < UpdateStep::Arm && Some(&update.program) != wants
        };
        if shared.journal.update.as_deref().is_some_and(is_void) {
            shared.journal.change().update = None;
            self.retry = None;
        }
    }

    /// Begins what is wanted, when nothing stands against it.
    pub(super) fn plan(&mut self, shared: &mut Shared) {
        if let Some(retry) = self.retry.as_deref_mut() {
            retry.at = retry.at.filter(|at| *at > shared.now.monotonic);
        }
        if shared.journal.update.is_some() || shared.journal.operation.is_some() {
            return;
        }
        if let Some(Ok(wanted)) = self.wanted.as_deref()
            && ban_of(shared, &wanted.program.version).is_none()
        {
            begin(
                shared,
                wanted.release.clone(),
                wanted.program.clone(),
                false,
            );
        }
    }

    /// Whether the document's other parts wait for the update (SYNC-2): until it has failed once, or cannot begin.
    pub(super) fn comes_first(&self, shared: &Shared) -> bool {
        let is_under_way = |update: &Update| update.step < UpdateStep::Trial;
        self.retry.is_none()
            && shared.journal.operation.is_none()
            && shared.journal.update.as_deref().is_some_and(is_under_way)
    }

    /// Whether the programs are being swapped, so that nothing else may be begun on this node.
    pub(super) fn is_swapping(&self, shared: &Shared) -> bool {
        is_past_arming(shared) && !is_on_trial(shared)
    }

    /// Whether this program is to end now: its successor is in its place, and the record says so.
    pub(super) fn ends(&mut self, shared: &Shared) -> bool {
        let is_swapped = |update: &Update| {
            update.step == UpdateStep::Trial && update.program.version != shared.facts.agent_version
        };
        let ends = !self.has_ended
            && shared.journal.is_settled()
            && shared.journal.update.as_deref().is_some_and(is_swapped);
        self.has_ended |= ends;
        ends
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What the document's report says of the update, if it stands in the document's way (UPD-3).
    pub(super) fn failed_part(&self, shared: &Shared) -> Option<String> {
        match self.wanted.as_deref()? {
            Err(why) => Some(why.clone()),
            Ok(wanted) => {
                let version = &wanted.program.version;
                let banned = ban_of(shared, version).map(|ban| ban.reason.to_string());
                let failed = (self.retry.as_deref()).map(|retry| retry.message.clone());
                let why = banned.or(failed)?;
                Some(format!("agent_version {version}: {why}"))
            }
        }
    }

    /// When a task that has failed is to be tried again.
    pub(super) fn wake(&self, shared: &Shared) -> Option<Wake> {
        let retry = self.retry.as_deref()?;
        let at = retry.at.filter(|_| shared.journal.update.is_some())?;
        let failures = retry.row.failures();
        Some(Wake {
            at,
            why: WakeReason::TaskRetry { failures },
        })
    }

    /// The host's task that is next.
    pub(super) fn task(&self, shared: &Shared) -> Option<Recorded<Task>> {
        let update = shared.journal.update.as_deref()?;
        let waits = self
            .retry
            .as_deref()
            .is_some_and(|retry| retry.at.is_some() || retry.is_left_to_timer);
        // rule OPS-9: it waits for an operation that runs; once the timer is armed none begins.
        let operates = shared.journal.operation.is_some() && update.step < UpdateStep::Trial;
        if waits || operates || !shared.journal.is_settled() {
            return None;
        }
        let limits = &shared.facts.limits;
        let task = match update.step {
            UpdateStep::Fetch => Task::FetchProgram(Box::new(update.program.clone())),
            UpdateStep::Check => Task::CheckProgram(update.program.version.clone()),
            UpdateStep::Keep => Task::KeepProgram,
            // Not before the portal was heard, or a trial would begin that cannot end well.
            UpdateStep::Arm if !shared.has_heard_portal() => return None,
            UpdateStep::Arm => Task::ArmRollback {
                version: update.program.version.clone(),
                after_ms: limits.rollback_ms,
            },
            UpdateStep::Swap => Task::SwapPrograms(update.program.sha256),
            UpdateStep::Trial => return None,
            UpdateStep::Commit => Task::CommitProgram,
        };
        shared.journal.recorded(record_of(update), task)
    }

    /// A task has ended: the next step, or the same one after a wait.
    pub(super) fn performed(&mut self, shared: &mut Shared, result: Result<Done, TaskFailure>) {
        let Some(update) = shared.journal.update.as_deref() else {
            return;
        };
        let (step, work) = (update.step, record_of(update).work);
        match result {
            Ok(_) => {
                // A swap that fails is a row of its own, with the timer armed before each.
                if step != UpdateStep::Arm {
                    self.retry = None;
                }
                step_over(shared, step);
            }
            Err(failure) if step == UpdateStep::Check => {
                let message = failure.message;
                shared.note(Note::TaskFailed { work, message });
                give_up(shared, BanReason::DoesNotRun);
            }
            Err(failure) => self.failed(shared, step, work, failure.message),
        }
    }

    fn failed(&mut self, shared: &mut Shared, step: UpdateStep, work: Work, message: String) {
        let retry = self.retry.get_or_insert_with(|| {
            Box::new(Retry {
                row: Backoff::default(),
                at: None,
                is_left_to_timer: false,
                message: String::new(),
            })
        });
        let wait_ms = retry.row.fail(&shared.facts.limits, &mut self.jitter);
        retry.at = Some(shared.now.monotonic.plus_ms(wait_ms));
        retry.message.clone_from(&message);
        if step == UpdateStep::Swap && retry.row.failures() < SWAPS_MAX {
            // The timer runs, and the trial is to have all of its time.
            go_to(shared, UpdateStep::Arm);
        } else if step == UpdateStep::Swap {
            // It fires, and puts everything in order.
            retry.at = None;
            retry.is_left_to_timer = true;
        }
        shared.note(Note::TaskFailed { work, message });
    }

    /// A sync got its 200: a program on trial is committed (UPD-2), and bans are dated by the portal's time.
    pub(super) fn good_sync(&mut self, shared: &mut Shared) {
        let is_trial = |update: &Update| update.step == UpdateStep::Trial;
        if is_on_trial(shared) && shared.journal.update.as_deref().is_some_and(is_trial) {
            go_to(shared, UpdateStep::Commit);
        }
        let Some(time) = shared.portal_time() else {
            return;
        };
        let latest_ms = shared.facts.limits.ban_ms;
        let latest = time.unix_ms().saturating_add_unsigned(latest_ms);
        let latest = Timestamp::from_unix_ms(latest);
        let is_over = |until: Option<Timestamp>| until.is_some_and(|until| until <= time);
        let is_late = |until: Option<Timestamp>| until.is_none_or(|until| until > latest);
        let bans = shared.journal.bans.iter().map(|ban| ban.until);
        let tried = shared.journal.tried.as_deref().map(|tried| tried.until);
        if !(bans.chain(tried)).any(|until| is_over(until) || is_late(until)) {
            return;
        }
        let durable = shared.journal.change();
        durable.bans.retain(|ban| !is_over(ban.until));
        durable.tried.take_if(|tried| is_over(tried.until));
        let bans = durable.bans.iter_mut().map(|ban| &mut ban.until);
        let tried = durable.tried.as_deref_mut().map(|tried| &mut tried.until);
        for until in bans.chain(tried) {
            // A clock that was set must not make six hours longer.
            if is_late(*until) {
                *until = Some(latest);
            }
        }
    }
}

/// What an answer that says the protocol is too old comes to (ANS-6).
impl Updating {
    /// A sync was answered with 426. What is under way goes on, a trial above all: it neither ends it nor counts against it.
    pub(super) fn too_old(&mut self, shared: &mut Shared, release: Option<&ReleaseVersion>) {
        if shared.journal.update.is_some() || self.asks_for.is_some() {
            return;
        }
        let Some(release) = release else {
            return;
        };
        let tried = shared.journal.tried.as_deref();
        if tried.is_some_and(|tried| tried.release == *release) {
            return;
        }
        if shared.facts.release_keys.is_empty() {
            // rule UPD-4
            refuse(shared, release, "no release key is built in".to_owned());
            return;
        }
        self.asks_for = Some(Box::new(release.clone()));
    }

    /// The release whose manifest the portal is to be asked for.
    pub(super) fn wants_manifest(&self) -> Option<&ReleaseVersion> {
        self.asks_for.as_deref()
    }

    /// Its manifest: the agent in it is taken, whatever the document says, or the release is left alone for six hours.
    pub(super) fn manifest_came(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        signed: &SignedManifest,
    ) {
        let asked = |asked: &mut Box<ReleaseVersion>| **asked == *release;
        let Some(release) = self.asks_for.take_if(asked) else {
            return;
        };
        match believed_program(shared, &release, signed) {
            Ok((program, floor)) => {
                let durable = shared.journal.change();
                durable.floor = durable.floor.max(floor);
                begin(shared, *release, program, true);
            }
            Err(why) => refuse(shared, &release, why),
        }
    }

    /// The portal did not give out the manifest. Where it has said so, the release is left alone; else it is asked again
    /// after the next 426.
    pub(super) fn manifest_missing(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        said: Option<String>,
    ) {
        let asked = |asked: &mut Box<ReleaseVersion>| **asked == *release;
        if let (Some(release), Some(said)) = (self.asks_for.take_if(asked), said) {
            refuse(shared, &release, format!("the portal said {said}"));
        }
    }
}

/// Whether the running program is a new one whose update is not committed.
pub(super) fn is_on_trial(shared: &Shared) -> bool {
    let update = shared.journal.update.as_deref();
    update.is_some_and(|update| update.program.version == shared.facts.agent_version)
}

/// Whether the rollback timer may run, so that no operation may begin: it would be cut off in the middle.
pub(super) fn is_past_arming(shared: &Shared) -> bool {
    let update = shared.journal.update.as_deref();
    update.is_some_and(|update| update.step >= UpdateStep::Arm)
}

/// The version that was tried last and put back (UPD-3).
pub(super) fn rolled_back_from(shared: &Shared) -> Option<AgentVersion> {
    let mut bans = shared.journal.bans.iter().rev();
    let last = bans.find(|ban| ban.reason == BanReason::RolledBack)?;
    Some(last.version.clone())
}

fn resume(shared: &mut Shared, mut found: Update) {
    let runs_new = shared.facts.agent_version == found.program.version;
    let host_says = shared.facts.rolled_back_from.as_ref() == Some(&found.program.version);
    found.attempt += 1;
    found.resumes += 1;
    found.step = match (found.step, runs_new) {
        // Somebody has put that program here, and no timer waits for it.
        (step, true) if step < UpdateStep::Swap => {
            shared.journal.change().update = None;
            return;
        }
        (UpdateStep::Commit, true) => UpdateStep::Commit,
        (_, true) => UpdateStep::Trial,
        (UpdateStep::Trial | UpdateStep::Commit, false) => {
            give_up(shared, BanReason::RolledBack);
            return;
        }
        (UpdateStep::Arm | UpdateStep::Swap, false) if host_says => {
            give_up(shared, BanReason::RolledBack);
            return;
        }
        (_, false) if found.resumes > RESUMES_MAX => {
            give_up(shared, BanReason::DoesNotRun);
            return;
        }
        (UpdateStep::Swap, false) => UpdateStep::Arm,
        (step, false) => step,
    };
    shared.journal.change().update = Some(Box::new(found));
}

fn begin(shared: &mut Shared, release: ReleaseVersion, program: Program, too_old: bool) {
    let wanted = program.version.clone();
    shared.note(Note::UpdateBegun { wanted });
    shared.journal.change().update = Some(Box::new(Update {
        release,
        program,
        too_old,
        from: shared.facts.agent_version.clone(),
        step: UpdateStep::Fetch,
        attempt: 1,
        resumes: 0,
    }));
}

fn step_over(shared: &mut Shared, step: UpdateStep) {
    match step {
        UpdateStep::Fetch => go_to(shared, UpdateStep::Check),
        UpdateStep::Check => go_to(shared, UpdateStep::Keep),
        // rule OPS-9: it was accepted meanwhile, and goes first; what was kept is kept once more after it.
        UpdateStep::Keep if shared.journal.operation.is_some() => {}
        UpdateStep::Keep => go_to(shared, UpdateStep::Arm),
        UpdateStep::Arm => go_to(shared, UpdateStep::Swap),
        UpdateStep::Swap => go_to(shared, UpdateStep::Trial),
        UpdateStep::Trial => {}
        UpdateStep::Commit => committed(shared),
    }
}

fn go_to(shared: &mut Shared, step: UpdateStep) {
    if let Some(update) = &mut shared.journal.change().update {
        update.step = step;
        update.attempt = 1;
    }
}

fn committed(shared: &mut Shared) {
    let Some(update) = shared.journal.change().update.take() else {
        return;
    };
    settle_schema(shared);
    if update.too_old {
        // Or the document that names it would bring back what the portal does not speak with.
        ban(shared, update.from, BanReason::TooOld);
    }
    let version = update.program.version;
    shared.note(Note::Updated { version });
}

/// From here on the record is this program's. Until its update is committed the one before must be able to read it.
fn settle_schema(shared: &mut Shared) {
    if shared.journal.schema < SCHEMA {
        shared.journal.change().schema = SCHEMA;
    }
}

/// The update under way is over, and its version is left alone (UPD-3).
fn give_up(shared: &mut Shared, reason: BanReason) {
    if let Some(update) = shared.journal.change().update.take() {
        shared.note(Note::UpdateFailed {
            version: update.program.version.clone(),
            reason: reason.clone(),
        });
        ban(shared, update.program.version, reason);
    }
}

fn ban(shared: &mut Shared, version: AgentVersion, reason: BanReason) {
    let bans = &mut shared.journal.change().bans;
    bans.retain(|ban| ban.version != version);
    bans.push(Ban {
        version,
        reason,
        until: None,
    });
    let surplus = bans.len().saturating_sub(BANS_MAX);
    bans.drain(..surplus);
}

fn ban_of<'a>(shared: &'a Shared, version: &AgentVersion) -> Option<&'a Ban> {
    let mut bans = shared.journal.bans.iter();
    bans.find(|ban| ban.version == *version)
}

/// A release that a 426 has named is left alone (ANS-6).
fn refuse(shared: &mut Shared, release: &ReleaseVersion, why: String) {
    shared.journal.change().tried = Some(Box::new(Tried {
        release: release.clone(),
        until: None,
    }));
    let release = release.clone();
    shared.note(Note::UpdateRefused { release, why });
}

/// The program in a manifest that a 426 has led to, and its floor; or why it is not taken (ANS-6).
fn believed_program(
    shared: &Shared,
    release: &ReleaseVersion,
    signed: &SignedManifest,
) -> Result<(Program, u64), String> {
    let manifest = manifest::believe(shared, release, signed)?;
    let version = &manifest.agent.version;
    if *version == shared.facts.agent_version {
        return Err(format!("it is of agent {version}, which runs"));
    }
    if let Some(ban) = ban_of(shared, version) {
        return Err(format!(
            "it is of agent {version}, which is left alone: {}",
            ban.reason
        ));
    }
    Ok((program_of(shared, &manifest)?, manifest.floor))
}

/// The program for this node in a release (UPD-1).
fn program_of(shared: &Shared, manifest: &Manifest) -> Result<Program, String> {
    let (arch, version) = (shared.facts.arch, &manifest.agent.version);
    let mut artifacts = manifest.agent.artifacts.iter();
    let artifact = artifacts.find(|artifact| artifact.arch == arch);
    let artifact = artifact.ok_or_else(|| {
        format!(
            "release {} has no agent {version} for {arch}",
            manifest.version
        )
    })?;
    Ok(Program {
        version: version.clone(),
        url: artifact.url.clone(),
        sha256: artifact.sha256,
        size: artifact.size,
    })
}

fn record_of(update: &Update) -> StepRecord {
    StepRecord {
        work: Work::Update {
            version: update.program.version.clone(),
            step: update.step,
        },
        attempt: update.attempt,
    }
}
