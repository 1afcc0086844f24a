//! The operation lane: one operation at a time, step by step (OPS-1 to OPS-6, OPS-9, OPS-10).
//!
//! [`admit`] says which offers are begun, and [`Operate`] carries the steps out: each is on disk before it begins, and what
//! a start of the program makes of a step that was found begun is the [`journal`](crate::journal)'s table. What a step does
//! stands in [`steps`], what it leaves behind in
//! [`events`] (OPS-7, OPS-8).

use std::sync::Arc;

use protocol::id::{KeyId, OperationId, ReleaseVersion};
use protocol::limits::LOG_TAIL_LINES_MAX;
use protocol::pbx::call::Request;
use protocol::pbx::operation::{OperationOffer, ParamsRefusal, Reason, Step};
use protocol::pbx::sync::{OperationReport, OperationState};
use protocol::time::Timestamp;
use protocol::verified::SignedManifest;

use super::boot::Image;
use super::durable::{RunningOperation, StepData};
use super::events::{self, End};
use super::manifest;
use super::pace::{RequestRefused, Tries};
use super::rotate::{self, Accepted};
use super::shared::Shared;
use super::steps::{self, Doing, Failure, Progress, upgrade};
use super::task::{Done, Task};
use crate::journal::{AfterProbe, Recorded, Resume, StepRecord, Work, after_probe, found_started};
use crate::limits::RESUMES_MAX;
use crate::machine::{Evidence, KeyHandle, LogLine, TaskFailure, Wake, WakeReason};
use crate::note::Note;
use crate::time::Monotonic;

/// The operation under way; what must outlive a crash is [`RunningOperation`].
#[derive(Debug, Default)]
pub(super) struct Operate {
    /// Made when it is needed first, and gone with the operation: most agents have none most of the time.
    run: Option<Box<Run>>,
    /// An operation that came again with other content (OPS-9).
    changed: Option<Box<OperationId>>,
}

/// What is known of the step under way, in this life of the program.
#[derive(Debug, Default)]
struct Run {
    /// The step was found begun, and the node is to be looked at before it may run (OPS-4).
    probe_first: bool,
    /// The last lines of the log of the task that runs.
    log: Vec<LogLine>,
    tries: Tries,
    waits: Waits,
}

/// What the step's next task waits for.
#[derive(Debug, Clone, Copy, Default)]
enum Waits {
    #[default]
    Nothing,
    /// The next look, which is not before then (OP-6).
    Look(Monotonic),
    /// The step was found begun at a start: for the API, which may be coming up with the node, until then at most (OPS-2).
    Api(Monotonic),
}

/// Whether an offer is begun: with its first step, or how it is answered instead (OPS-5, OPS-6, OPS-10).
fn admit(offer: &OperationOffer, shared: &Shared) -> Result<(Step, StepData), End> {
    let params = offer.params().map_err(|refusal| {
        let why = refusal.to_string();
        match refusal {
            ParamsRefusal::Unsupported { .. } => End::unsupported(why),
            ParamsRefusal::UnsealedSecret { .. } => End::refused(why, Reason::UnsealedSecret),
            ParamsRefusal::Shape { .. } => End::failed(why, None),
        }
    })?;
    let data = steps::begin(offer, &params, &shared.facts, shared.time())?;
    let first = offer.kind.steps().first();
    let first = first.expect("a kind whose parameters were read has steps");
    let api_is_up = shared.conditions.is_some_and(|seen| seen.api_is_up);
    if !api_is_up && !offer.kind.runs_without_api() {
        let why = "the Kubernetes API is down".to_owned();
        return Err(End::refused(why, Reason::ApiDown));
    }
    Ok((*first, data))
}

impl Operate {
    /// The operation in a sync's answer, if there is one.
    pub(super) fn offered(&mut self, shared: &mut Shared, offered: Option<&OperationOffer>) {
        let is_after_loss = shared.journal.is_after_loss;
        if is_after_loss {
            shared.journal.change().is_after_loss = false;
        }
        let Some(offer) = offered else {
            self.changed = None;
            return;
        };
        if offer.target != shared.facts.config.node_name {
            // rule OPS-10
            let (operation, target) = (offer.id.clone(), offer.target.clone());
            shared.note(Note::OperationForAnother { operation, target });
            return;
        }
        if let Some(running) = shared.journal.operation.as_deref() {
            // rule OPS-9: what was recorded runs to its end, and another one waits.
            if running.offer.id == offer.id {
                let is_same = running.offer == *offer;
                self.came_again(shared, offer, is_same);
            }
            return;
        }
        let mut finished = shared.journal.finished.iter();
        if let Some(finished) = finished.find(|finished| finished.id == offer.id).cloned() {
            // rule OPS-7
            self.came_again(shared, offer, finished.content == events::content_of(offer));
            events::answer_again(shared, finished);
            return;
        }
        self.changed = None;
        if is_after_loss {
            // rule FILE-13: it may have been under way, and how far it was nobody knows.
            let why = "the node has lost the record of what it was at".to_owned();
            events::end_unbegun(shared, offer, End::failed(why, Some(Reason::StateLost)));
            return;
        }
        match admit(offer, shared) {
            Ok((first, data)) => self.begin(shared, offer, first, data),
            Err(end) => events::end_unbegun(shared, offer, end),
        }
    }

    /// An operation that is known came again. With other content it changes nothing but what is reported (OPS-9).
    fn came_again(&mut self, shared: &mut Shared, offer: &OperationOffer, is_same: bool) {
        if is_same {
            self.changed = None;
        } else if self.changed() != Some(&offer.id) {
            self.changed = Some(Box::new(offer.id.clone()));
            let operation = offer.id.clone();
            shared.note(Note::OperationChanged { operation });
        }
    }

    fn begin(&mut self, shared: &mut Shared, offer: &OperationOffer, first: Step, data: StepData) {
        shared.journal.change().operation = Some(Box::new(RunningOperation {
            offer: offer.clone(),
            step: first,
            attempt: 1,
            resumes: 0,
            next_sequence: 1,
            data,
        }));
        if let Ok(params) = offer.params() {
            let time = shared.time();
            steps::begun(shared.journal.change(), &params, time);
        }
        let (operation, kind) = (offer.id.clone(), offer.kind.clone());
        shared.note(Note::OperationAccepted { operation, kind });
        self.step_begins(shared, first);
    }

    /// What a report says: the operation that runs, or the one whose end the portal has not heard of.
    pub(super) fn report(&self, shared: &Shared) -> Option<OperationReport> {
        if let Some(running) = shared.journal.operation.as_deref() {
            return Some(OperationReport {
                id: running.offer.id.clone(),
                kind: running.offer.kind.clone(),
                step: Some(running.step),
                state: OperationState::Running,
            });
        }
        let unheard = shared.journal.outbox.first()?;
        let mut finished = shared.journal.finished.iter().rev();
        let finished = finished.find(|finished| finished.id == unheard.operation)?;
        Some(OperationReport {
            id: finished.id.clone(),
            kind: finished.kind.clone(),
            step: None,
            state: events::state_of(finished.end.state),
        })
    }

    fn run(&mut self) -> &mut Run {
        self.run.get_or_insert_default()
    }

    fn waits(&self) -> Waits {
        self.run.as_ref().map_or(Waits::Nothing, |run| run.waits)
    }

    /// How the call of the step has fared so far.
    pub(super) fn tries(&mut self) -> &mut Tries {
        &mut self.run().tries
    }

    /// The operation that came again with other content.
    pub(super) fn changed(&self) -> Option<&OperationId> {
        self.changed.as_deref()
    }
}

/// Carrying the steps out.
impl Operate {
    /// A start of the program: an operation that was found running goes on at its step (OPS-2), or fails if that has
    /// happened too often.
    pub(super) fn boot(shared: &mut Shared) -> Self {
        let mut lane = Self::default();
        let Some(running) = shared.journal.operation.as_deref() else {
            return lane;
        };
        if let Err(refusal) = running.offer.params() {
            lane.fail(
                shared,
                refusal.to_string(),
                Some(Reason::StateLost),
                Vec::new(),
            );
            return lane;
        }
        if running.resumes >= RESUMES_MAX {
            let why = format!("the program was started {RESUMES_MAX} times in the middle of it");
            lane.fail(shared, why, Some(Reason::ResumeLimit), Vec::new());
            return lane;
        }
        let wait_ms = shared.facts.limits.long_task_ms_max;
        lane.run().waits = Waits::Api(shared.now.monotonic.plus_ms(wait_ms));
        lane.run().probe_first = found_started(&work_of(running)) == Resume::Probe;
        if let Some(running) = &mut shared.journal.change().operation {
            running.resumes += 1;
            running.attempt += 1;
        }
        lane
    }

    /// The host's task of the step, and whether it is only to be looked for. Not before all that is known is on disk.
    pub(super) fn task(&self, shared: &Shared) -> Option<(Recorded<Task>, Resume)> {
        let Doing::Task(task) = self.doing(shared)? else {
            return None;
        };
        if self.must_wait(shared, &task) {
            return None;
        }
        let running = shared.journal.operation.as_deref()?;
        let record = StepRecord {
            work: work_of(running),
            attempt: running.attempt,
        };
        let how = if self.run.as_ref().is_some_and(|run| run.probe_first) {
            Resume::Probe
        } else {
            Resume::Run
        };
        Some((shared.journal.recorded(record, task)?, how))
    }

    /// Whether the step's task is not to be done yet. After a power cut k3s comes up later than the agent; if it does not
    /// come up in time, the step fails in the host's words.
    fn must_wait(&self, shared: &Shared, task: &Task) -> bool {
        let now = shared.now.monotonic;
        match self.waits() {
            Waits::Nothing => false,
            Waits::Look(at) => now < at,
            Waits::Api(until) => {
                let is_up = shared.conditions.is_some_and(|seen| seen.api_is_up);
                now < until && task.needs_api() && !is_up
            }
        }
    }

    /// When a step looks again.
    pub(super) fn wake(&self, shared: &Shared) -> Option<Wake> {
        let Waits::Look(at) = self.waits() else {
            return None;
        };
        let is_ahead = at > shared.now.monotonic && shared.journal.operation.is_some();
        is_ahead.then_some(Wake {
            at,
            why: WakeReason::LooksAgain,
        })
    }

    /// The call of the portal that the step is.
    pub(super) fn request(&self, shared: &Shared) -> Option<Request> {
        match self.doing(shared)? {
            Doing::Call(request) => Some(request),
            Doing::Task(_) | Doing::Wait | Doing::Nothing => None,
        }
    }

    fn doing(&self, shared: &Shared) -> Option<Doing> {
        let running = shared.journal.operation.as_deref()?;
        let is_on_disk = shared.journal.is_settled();
        is_on_disk.then(|| steps::doing(&shared.journal, running, &shared.facts.limits))
    }

    /// More lines of the log of the task that runs; the last 200 are kept (OPS-3).
    pub(super) fn progress(&mut self, lines: Vec<LogLine>) {
        let log = &mut self.run().log;
        log.extend(lines);
        let surplus = log.len().saturating_sub(LOG_TAIL_LINES_MAX);
        log.drain(..surplus);
    }

    /// What the node shows of a step that was found begun: the second half of the resume table (OPS-4).
    pub(super) fn probed(&mut self, shared: &mut Shared, evidence: Evidence<Done>) {
        self.run().probe_first = false;
        match after_probe(evidence) {
            AfterProbe::Run => {}
            AfterProbe::GoOn(done) => self.performed(shared, Ok(done)),
            AfterProbe::FailForGood(seen) => {
                let why = format!("the crash was inside this step, and the node shows: {seen}");
                self.fail(shared, why, Some(Reason::Unclear), Vec::new());
            }
        }
    }

    /// The step's task has ended: the next step, or the end (FAIL-3).
    pub(super) fn performed(&mut self, shared: &mut Shared, result: Result<Done, TaskFailure>) {
        let time = shared.time();
        match result {
            Ok(done) => match self.found_out(shared, done, time) {
                Ok(Progress::Over) => self.step_over(shared),
                Ok(Progress::More) => {}
                Ok(Progress::MoreAfter(ms)) => {
                    self.run().waits = Waits::Look(shared.now.monotonic.plus_ms(ms));
                }
                Err(Failure { why, reason }) => {
                    let log = std::mem::take(&mut self.run().log);
                    self.fail(shared, why, reason, log);
                }
            },
            Err(TaskFailure { message, log_tail }) => {
                if let Some(running) = shared.journal.operation.as_deref() {
                    let (work, message) = (work_of(running), message.clone());
                    shared.note(Note::TaskFailed { work, message });
                }
                // The host's own log outlives a crash; what was heard of it here is second best.
                let heard = std::mem::take(&mut self.run().log);
                let log = if log_tail.is_empty() { heard } else { log_tail };
                self.fail(shared, message, None, log);
            }
        }
    }

    fn found_out(
        &self,
        shared: &mut Shared,
        done: Done,
        time: Timestamp,
    ) -> Result<Progress, Failure> {
        let limits = Arc::clone(&shared.facts.limits);
        steps::done(shared.journal.change(), done, time, &limits)
    }

    /// A step begins: its event, and nothing before both are on disk. One that has nothing to do is over at once.
    fn step_begins(&mut self, shared: &mut Shared, step: Step) {
        let time = shared.time();
        self.run = None;
        events::step_started(shared.journal.change(), time, step);
        let running = shared.journal.operation.as_deref();
        let limits = &shared.facts.limits;
        if running.is_some_and(|it| steps::doing(&shared.journal, it, limits) == Doing::Nothing) {
            self.step_over(shared);
        }
    }

    /// The step is over: its event, and the next one, or the end.
    fn step_over(&mut self, shared: &mut Shared) {
        let time = shared.time();
        let durable = shared.journal.change();
        let Some(running) = durable.operation.as_deref() else {
            return;
        };
        let (operation, step) = (running.offer.id.clone(), running.step);
        let mut behind = running
            .offer
            .kind
            .steps()
            .iter()
            .skip_while(|known| **known != step);
        let next = behind.nth(1).copied();
        events::step_succeeded(durable, time, step);
        shared.note(Note::StepEnded {
            operation,
            step,
            succeeded: true,
        });
        match next {
            Some(next) => {
                if let Some(running) = &mut shared.journal.change().operation {
                    running.step = next;
                    running.attempt = 1;
                }
                self.step_begins(shared, next);
            }
            None => self.succeed(shared),
        }
    }

    fn succeed(&mut self, shared: &mut Shared) {
        let Some(running) = shared.journal.operation.as_deref() else {
            return;
        };
        let result = steps::result(running, &shared.facts);
        if let StepData::AgentRotateKey { new: Some(new), .. } = &running.data {
            let key = new.handle.signing.key_id();
            shared.note(Note::KeysRotated { key });
        }
        self.run = None;
        events::end_running(shared, End::succeeded(result));
    }

    /// The step has failed, and with it the operation: its name and the last lines of its log are reported (OPS-3).
    fn fail(
        &mut self,
        shared: &mut Shared,
        why: String,
        reason: Option<Reason>,
        log: Vec<LogLine>,
    ) {
        let time = shared.time();
        let durable = shared.journal.change();
        let Some(running) = durable.operation.as_deref() else {
            return;
        };
        let (operation, step) = (running.offer.id.clone(), running.step);
        events::step_failed(durable, time, step, &why, reason.clone(), log);
        shared.note(Note::StepEnded {
            operation,
            step,
            succeeded: false,
        });
        self.run = None;
        events::end_running(shared, End::failed(why, reason));
    }
}

fn work_of(running: &RunningOperation) -> Work {
    Work::Operation {
        operation: running.offer.id.clone(),
        step: running.step,
    }
}

/// What the portal's answers bring to an upgrade (OP-5).
impl Operate {
    /// The release whose manifest the step needs.
    pub(super) fn wants_manifest(&self, shared: &Shared) -> Option<ReleaseVersion> {
        upgrade::wants_manifest(shared.journal.operation.as_deref()?)
    }

    /// A manifest: verified before anything is done with it, or the operation fails (SYNC-4, UPD-4, UPD-6).
    pub(super) fn manifest_came(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        signed: &SignedManifest,
    ) {
        if self.wants_manifest(shared).as_ref() != Some(release) {
            return;
        }
        match believed_image(shared, release, signed) {
            Ok((image, floor)) => {
                let durable = shared.journal.change();
                durable.floor = durable.floor.max(floor);
                let running = durable.operation.as_deref_mut();
                if let Some(StepData::ClusterUpgrade(data)) = running.map(|it| &mut it.data) {
                    data.image = Some(image);
                }
            }
            Err(Failure { why, reason }) => self.fail(shared, why, reason, Vec::new()),
        }
    }

    /// The portal has no such manifest, or refuses it for good.
    pub(super) fn manifest_refused(
        &mut self,
        shared: &mut Shared,
        release: &ReleaseVersion,
        code: &str,
    ) {
        if self.wants_manifest(shared).as_ref() == Some(release) {
            let why =
                format!("asked for the manifest of release {release}, the portal said {code}");
            let Failure { why, reason } = upgrade::rejected(why);
            self.fail(shared, why, reason, Vec::new());
        }
    }
}

/// The image that a manifest has for this node, and its floor, if the manifest is to be believed.
fn believed_image(
    shared: &Shared,
    release: &ReleaseVersion,
    signed: &SignedManifest,
) -> Result<(Image, u64), Failure> {
    let manifest = manifest::believe(shared, release, signed).map_err(upgrade::rejected)?;
    let image = upgrade::image_of(&manifest, shared.facts.arch)?;
    Ok((image, manifest.floor))
}

/// What the portal's answers bring to a rotation of the keys (OP-9).
impl Operate {
    /// The portal has registered keys.
    pub(super) fn registered(&mut self, shared: &mut Shared, active_key_id: KeyId) {
        let Some(new) = rotate::registering(&shared.journal) else {
            return;
        };
        if new.handle.signing.key_id() == active_key_id {
            self.step_over(shared);
        } else {
            let why = format!("the portal registered key {active_key_id}, not the new one");
            self.fail(shared, why, None, Vec::new());
        }
    }

    /// The registration was refused with 400: three of these fail it, and both key pairs stay (ANS-2).
    pub(super) fn registration_refused(&mut self, shared: &mut Shared, refused: RequestRefused) {
        if refused.is_final() && rotate::registering(&shared.journal).is_some() {
            let why = format!("the portal refuses the new keys: {}", refused.code);
            self.fail(shared, why, None, Vec::new());
        }
    }

    /// A signed request got a 200: the portal knows that key.
    pub(super) fn key_accepted(&mut self, shared: &mut Shared, accepted: KeyHandle, by_sync: bool) {
        match rotate::key_accepted(&mut shared.journal, accepted, by_sync) {
            Accepted::Nothing => {}
            Accepted::Registered => self.step_over(shared),
            Accepted::OldKeysOnly => {
                let why = "the portal knows the old keys only, though it had registered the new";
                self.fail(shared, why.to_owned(), None, Vec::new());
            }
        }
    }
}
