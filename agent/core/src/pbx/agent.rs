//! The agent: routes inputs to lanes and says whose turn it is. It owns order; the lanes own rules.
//! What concerns them all is here as well: that nothing goes out once an identity is revoked (FAIL-6), that a record which
//! cannot be written is written again (FAIL-7), and what a report says of problems.
//!
//! Each kind of effect is a slot that one lane at a time may hold: a write, a look at the node, a call, an opening of
//! secrets, a task of the host. Whoever drains the actions asks [`Agent::poll_action`], and that asks the lanes, in the
//! order that SYNC-2 gives, for what they would put into a slot that is free. So nothing is queued that could grow old, and
//! what an input has changed is all that counts.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use protocol::endpoint::{Authentication, Endpoint};
use protocol::id::ReleaseVersion;
use protocol::pbx::call::{AnswerBody, Reply, Request};
use protocol::pbx::operation::Step;
use protocol::problem::ProblemCode;
use protocol::time::Timestamp;
use serde_json::value::RawValue;

use super::converge::Converge;
use super::deliver::Deliver;
use super::document::Document;
use super::durable::{Days, Durable, IdleReason, TakenDocument};
use super::enroll::{Enroll, Start};
use super::events;
use super::facts::{BootFacts, Observation};
use super::lead::{Lead, Leadership};
use super::lease::{LeaseCall, LeaseReply};
use super::operate::Operate;
use super::pace::{Pace, Tries, Verdict, code_or_status};
use super::shared::{Conditions, Shared};
use super::sync::{Contents, Sync};
use super::task::{DocumentStep, Done, Task};
use super::update::{self, Updating};
use crate::backoff::Backoff;
use crate::journal::{Journal, Recorded, Resume, Work};
use crate::machine::{
    Action, Call, Deadline, Evidence, Input, KeyHandle, Machine, StoreFailure, TaskFailure, Ticket,
    Unopenable, Unreachable, Wake, WakeReason,
};
use crate::note::Note;
use crate::seed::{Chance, Purpose, Seed};
use crate::time::{Monotonic, Now};

/// The agent of the portal protocol.
#[derive(Debug)]
pub struct Agent {
    shared: Shared,
    pace: Pace,
    lead: Lead,
    update: Updating,
    /// Until the enrollment is through, it has all slots to itself.
    enroll: Option<Box<Enroll>>,
    sync: Sync,
    document: Document,
    converge: Converge,
    operate: Operate,
    deliver: Deliver,
    slots: Slots,
    store_retry: StoreRetry,
    next_ticket: u32,
    /// A sync has got its answer, and no other lane has called since.
    has_synced: bool,
}

/// What is under way, a slot each.
#[derive(Debug, Default)]
struct Slots {
    look: Option<Ticket>,
    call: Option<Box<CallOut>>,
    open: Option<(Ticket, Opening)>,
    host: Option<Box<AtWork>>,
}

/// The call that is out.
#[derive(Debug)]
struct CallOut {
    ticket: Ticket,
    request: Request,
    /// The keys that it was signed with.
    key: Option<KeyHandle>,
}

/// Whose secrets are being opened.
#[derive(Debug)]
enum Opening {
    Enrollment,
    Document(Arc<RawValue>),
}

/// The host's task that is under way.
#[derive(Debug)]
struct AtWork {
    ticket: Ticket,
    whose: Whose,
    work: Work,
    deadline: Deadline,
    is_overdue: bool,
}

/// Whose task the host is at.
#[derive(Debug)]
enum Whose {
    Enrollment,
    Document(Arc<TakenDocument>, DocumentStep),
    Update,
    Operation,
}

/// A record that could not be written (FAIL-7).
#[derive(Debug)]
struct StoreRetry {
    row: Backoff,
    at: Option<Monotonic>,
    message: Option<String>,
    jitter: Chance,
}

impl Machine for Agent {
    type Durable = Durable;
    type Facts = BootFacts;
    type Observation = Observation;
    type Request = Request;
    type Reply = Reply;
    type Task = Task;
    type Done = Done;
    type LeaseCall = LeaseCall;
    type LeaseReply = LeaseReply;

    fn boot(durable: Arc<Durable>, facts: BootFacts, seed: Seed, now: Now) -> Self {
        let mut shared = Shared {
            facts,
            journal: Journal::boot(durable),
            notes: VecDeque::new(),
            conditions: None,
            now,
            before: now.monotonic,
            clock_offset_ms: 0,
            heard_at: None,
            update_comes_first: false,
            update_fails: None,
            leadership: Leadership::Unknown,
            portal_said: None,
        };
        shared.note(Note::Booted {
            enrolled: shared.journal.identity.is_some(),
            operation: shared
                .journal
                .operation
                .as_deref()
                .map(|running| running.offer.id.clone()),
        });
        let asks_again = matches!(shared.journal.idle, Some(IdleReason::Revoked { .. }));
        let start = if shared.journal.idle.is_some() && !asks_again {
            Start::Idle
        } else {
            Enroll::boot(seed, &mut shared)
        };
        let update = Updating::boot(seed, &mut shared);
        // rule SYNC-10: right after an update of the agent the first sync comes at once.
        let first_sync_waits = matches!(start, Start::Through) && !update::is_on_trial(&shared);
        let mut pace = Pace::boot(seed, &shared, first_sync_waits);
        let enroll = match start {
            Start::Through => None,
            Start::UnderWay(enroll) => Some(Box::new(enroll)),
            Start::Idle => {
                pace.shut();
                None
            }
        };
        let operate = Operate::boot(&mut shared);
        Self {
            pace,
            lead: Lead::boot(seed, &shared),
            update,
            enroll,
            sync: Sync::boot(seed, &shared),
            document: Document::boot(&shared),
            converge: Converge::boot(seed, &shared),
            operate,
            deliver: Deliver::default(),
            slots: Slots::default(),
            store_retry: StoreRetry {
                row: Backoff::default(),
                at: None,
                message: None,
                jitter: seed.child(Purpose::StoreRetryJitter),
            },
            next_ticket: seed.child(Purpose::Tickets).draw() as u32,
            has_synced: false,
            shared,
        }
    }

    fn handle(&mut self, input: Input<Self>, now: Now) {
        self.shared.before = self.shared.now.monotonic;
        self.shared.now = now;
        self.look_who_leads();
        match input {
            Input::Tick => {}
            Input::Observed(ticket, seen) => self.observed(ticket, seen),
            Input::Reply(ticket, reply) => self.replied(ticket, reply),
            Input::Stored(ticket, result) => self.stored(ticket, result),
            Input::Opened(ticket, result) => self.opened(ticket, result),
            Input::Progress(ticket, lines) => {
                if self
                    .slots
                    .host
                    .as_ref()
                    .is_some_and(|at_work| at_work.ticket == ticket)
                {
                    self.operate.progress(lines);
                }
            }
            Input::Performed(ticket, result) => self.performed(ticket, result),
            Input::Probed(ticket, evidence) => self.probed(ticket, evidence),
            Input::Leased(ticket, reply) => self.lead.replied(&self.shared, ticket, reply),
        }
        self.look_who_leads();
        self.tell_if_overdue();
        if let Some(enroll) = self.enroll.as_deref_mut() {
            enroll.look_at_clock(&self.shared);
        }
        if self.is_at_work() {
            self.plan_update();
        }
        if !self.pace.is_shut() {
            self.converge.plan(&mut self.shared, &mut self.document);
            self.give_up_manifest();
        }
    }

    fn poll_action(&mut self) -> Option<Action<Self>> {
        if let Some(note) = self.shared.next_note() {
            return Some(Action::Note(note));
        }
        let action = self.write().or_else(|| self.go_on());
        action.or_else(|| self.shared.next_note().map(Action::Note))
    }

    fn poll_wake(&self) -> Option<Wake> {
        if self.update.has_ended() {
            return None;
        }
        let at_work = self
            .slots
            .host
            .as_deref()
            .filter(|at_work| !at_work.is_overdue);
        let deadline = at_work.map(|at_work| Wake {
            at: at_work.deadline.0,
            why: WakeReason::TaskDeadline,
        });
        [
            deadline,
            self.store_retry.wake(),
            self.lead.wake().filter(|_| self.is_at_work()),
            self.wake_to_work(),
            self.wake_to_call(),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|wake| wake.at)
    }
}

/// Whose turn it is.
impl Agent {
    /// The first effect that a free slot is wanted for.
    fn go_on(&mut self) -> Option<Action<Self>> {
        if self.pace.is_shut() {
            // rule FAIL-6: nothing is sent, and the node is left as it is.
            return None;
        }
        if self.enroll.is_some() {
            return self.go_on_enrolling();
        }
        if self.pace.only_asks_again() {
            return self.begin_sync();
        }
        if self.update.has_ended() {
            return None;
        }
        if self.update.ends(&self.shared) {
            return Some(Action::Exit);
        }
        let first = self.ask_lease().or_else(|| self.work_on_update());
        if first.is_some() || self.update.is_swapping(&self.shared) {
            return first.or_else(|| self.begin_call());
        }
        self.open_document()
            .or_else(|| self.work_on_document())
            .or_else(|| self.work_on_operation())
            .or_else(|| self.begin_call())
    }

    /// A sync when it is due, and the other lanes between two syncs. They have their turn after every sync that got its
    /// answer, even if the next one is due by then: a portal that takes longer than the interval for each would otherwise
    /// never hear how an operation ended.
    fn begin_call(&mut self) -> Option<Action<Self>> {
        if self.has_synced || self.update.wants_manifest().is_some() {
            self.call_for_others().or_else(|| self.begin_sync())
        } else {
            self.begin_sync().or_else(|| self.call_for_others())
        }
    }

    /// The record, whenever it has changed and none is being written.
    fn write(&mut self) -> Option<Action<Self>> {
        let now = self.shared.now.monotonic;
        if self.store_retry.at.is_some_and(|at| at > now) {
            return None;
        }
        let ticket = Ticket(self.next_ticket);
        let durable = self.shared.journal.write(ticket)?;
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.store_retry.at = None;
        Some(Action::Store(ticket, durable))
    }

    fn go_on_enrolling(&mut self) -> Option<Action<Self>> {
        let enroll = self.enroll.as_deref()?;
        if self.slots.open.is_none()
            && let Some(values) = enroll.to_open(&self.shared)
        {
            let ticket = self.ticket();
            self.slots.open = Some((ticket, Opening::Enrollment));
            return Some(Action::Open(ticket, values));
        }
        if self.slots.host.is_none()
            && let Some(task) = enroll.task(&self.shared)
        {
            return Some(self.perform(Whose::Enrollment, task, Resume::Run));
        }
        if !self.may_call() {
            return None;
        }
        if enroll.wants_look(&self.shared) {
            return Some(self.look());
        }
        if enroll.wants_call(&self.shared) {
            if !enroll.is_ready_to_call(&mut self.shared) {
                return self.write();
            }
            let request = enroll.request(&self.shared)?;
            return Some(self.call(request, self.wanted_since()));
        }
        None
    }

    /// Whether this agent does what an enrolled one does.
    fn is_at_work(&self) -> bool {
        !self.pace.is_shut()
            && !self.pace.only_asks_again()
            && self.enroll.is_none()
            && !self.update.has_ended()
    }

    fn look_who_leads(&mut self) {
        let shared = &mut self.shared;
        let is = self.lead.leadership(shared);
        let was = mem::replace(&mut shared.leadership, is);
        let leads = is == Leadership::Leads;
        if leads != (was == Leadership::Leads) {
            shared.note(Note::Leadership { leads });
        }
    }

    fn plan_update(&mut self) {
        let shared = &mut self.shared;
        self.update.plan(shared);
        shared.update_comes_first = self.update.comes_first(shared);
        shared.update_fails = self.update.failed_part(shared).map(String::into_boxed_str);
    }

    /// Before the rest of the document (SYNC-2).
    fn work_on_update(&mut self) -> Option<Action<Self>> {
        if self.slots.host.is_some() {
            return None;
        }
        let task = self.update.task(&self.shared)?;
        Some(self.perform(Whose::Update, task, Resume::Run))
    }

    fn ask_lease(&mut self) -> Option<Action<Self>> {
        let (call, deadline) = self.lead.call(&self.shared, Ticket(self.next_ticket))?;
        Some(Action::Lease(self.ticket(), call, deadline))
    }

    fn open_document(&mut self) -> Option<Action<Self>> {
        if self.slots.open.is_some() {
            return None;
        }
        let (raw, values) = self.document.to_open()?;
        let ticket = self.ticket();
        self.slots.open = Some((ticket, Opening::Document(raw)));
        Some(Action::Open(ticket, values))
    }

    fn work_on_document(&mut self) -> Option<Action<Self>> {
        if self.slots.host.is_some() {
            return None;
        }
        let (taken, step, task) = self.converge.task(&self.shared)?;
        let must_end = if step.changes_cluster() {
            self.lead.must_end(&self.shared)
        } else {
            None
        };
        let mut deadline = self.deadline(&task);
        deadline = must_end.map_or(deadline, |must_end| deadline.min(must_end));
        let whose = Whose::Document(taken, step);
        Some(self.perform_by(deadline, whose, task, Resume::Run))
    }

    /// After the document's work (SYNC-2), and not while secrets are being opened: a step of a rotation may forget the
    /// keys that they are sealed to.
    fn work_on_operation(&mut self) -> Option<Action<Self>> {
        if self.slots.host.is_some() || self.slots.open.is_some() {
            return None;
        }
        let (task, how) = self.operate.task(&self.shared)?;
        Some(self.perform(Whose::Operation, task, how))
    }

    /// The next sync, if it is due: with a look at the node first, or the same report once more.
    fn begin_sync(&mut self) -> Option<Action<Self>> {
        let due = self.sync.wake().at;
        if !self.may_call() || due > self.shared.now.monotonic {
            return None;
        }
        let intended = self.pace.opened().map_or(due, |opened| opened.max(due));
        match self.sync.ready(intended) {
            Some(report) => Some(self.call(Request::Sync(report), intended)),
            None => Some(self.look()),
        }
    }

    /// The calls of the other lanes, between two syncs.
    fn call_for_others(&mut self) -> Option<Action<Self>> {
        if !self.may_call() {
            return None;
        }
        let release = self.update.wants_manifest();
        let release = release.or_else(|| self.document.wants_manifest());
        let manifest = release.cloned().map(Request::Manifest);
        let request = manifest
            .or_else(|| self.operate.request(&self.shared))
            .inspect(|request| {
                if let Request::Manifest(release) = request {
                    self.document.asks_for(release);
                }
            })
            .or_else(|| self.deliver.request(&self.shared))?;
        self.has_synced = false;
        Some(self.call(request, self.wanted_since()))
    }

    /// Since when a call was due that goes out now: since the gate opened, if that was after the last input; else this input
    /// is what made it due.
    fn wanted_since(&self) -> Monotonic {
        let opened = self
            .pace
            .opened()
            .filter(|opened| *opened > self.shared.before);
        opened.unwrap_or(self.shared.now.monotonic)
    }

    /// Whether any call may go out now. A look at the node is the beginning of one.
    fn may_call(&self) -> bool {
        self.slots.call.is_none()
            && self.slots.look.is_none()
            && self.pace.opens(self.shared.now.monotonic).is_none()
    }

    /// When the next call goes out, if none is out.
    fn wake_to_call(&self) -> Option<Wake> {
        if self.pace.is_shut() || self.slots.call.is_some() || self.slots.look.is_some() {
            return None;
        }
        let gate = self.pace.opens(self.shared.now.monotonic);
        if let Some(enroll) = self.enroll.as_deref() {
            return gate
                .filter(|_| enroll.wants_look(&self.shared) || enroll.wants_call(&self.shared));
        }
        let sync = self.sync.wake();
        let others_want = !self.pace.only_asks_again()
            && (self.update.wants_manifest().is_some()
                || self.document.wants_manifest().is_some()
                || self.operate.request(&self.shared).is_some()
                || self.deliver.wants_call(&self.shared));
        match gate {
            Some(gate) if others_want || gate.at > sync.at => Some(gate),
            _ => Some(sync),
        }
    }

    /// When the host is to be asked again without any other cause.
    fn wake_to_work(&self) -> Option<Wake> {
        if self.pace.is_shut() || self.pace.only_asks_again() || self.slots.host.is_some() {
            return None;
        }
        match self.enroll.as_deref() {
            Some(enroll) => enroll.wake(),
            None => {
                let wakes = [
                    self.update.wake(&self.shared),
                    self.converge.wake(&self.shared),
                    self.operate.wake(&self.shared),
                ];
                wakes.into_iter().flatten().min_by_key(|wake| wake.at)
            }
        }
    }
}

/// Actions.
impl Agent {
    fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.wrapping_add(1);
        ticket
    }

    fn look(&mut self) -> Action<Self> {
        let ticket = self.ticket();
        self.slots.look = Some(ticket);
        Action::Observe(ticket)
    }

    fn call(&mut self, request: Request, intended: Monotonic) -> Action<Self> {
        let stamp = match request.endpoint().authentication() {
            Authentication::Signature => {
                let mut tries = self.take_tries_of(&request);
                let stamp = self.pace.stamp(&self.shared, &mut tries);
                self.keep_tries_of(&request, tries);
                stamp
            }
            _ => None,
        };
        let ticket = self.ticket();
        let key = stamp.as_ref().map(|stamp| stamp.key);
        self.slots.call = Some(Box::new(CallOut {
            ticket,
            request: request.clone(),
            key,
        }));
        Action::Call(
            ticket,
            Call {
                request,
                stamp,
                intended,
            },
        )
    }

    fn deadline(&self, task: &Task) -> Deadline {
        task.deadline(&self.shared.facts.limits, self.shared.now.monotonic)
    }

    fn perform(&mut self, whose: Whose, task: Recorded<Task>, how: Resume) -> Action<Self> {
        self.perform_by(self.deadline(&task), whose, task, how)
    }

    fn perform_by(
        &mut self,
        deadline: Deadline,
        whose: Whose,
        task: Recorded<Task>,
        how: Resume,
    ) -> Action<Self> {
        let ticket = self.ticket();
        let work = task.record().work.clone();
        self.slots.host = Some(Box::new(AtWork {
            ticket,
            whose,
            work,
            deadline,
            is_overdue: false,
        }));
        match how {
            Resume::Run => Action::Perform(ticket, task, deadline),
            Resume::Probe => Action::Probe(ticket, task),
        }
    }
}

/// Inputs.
impl Agent {
    fn observed(&mut self, ticket: Ticket, mut seen: Observation) {
        if self
            .slots
            .look
            .take_if(|looking| *looking == ticket)
            .is_none()
        {
            return;
        }
        self.shared.conditions = Some(Conditions::from(&seen));
        if seen.api_is_up() {
            self.lead.api_is_up(&self.shared);
        }
        if let Some(enroll) = self.enroll.as_deref_mut() {
            enroll.looked(seen.boot.image_sha256);
            return;
        }
        self.converge.cycle_begins(&self.shared);
        let identity = self.shared.journal.identity.as_ref();
        let contents = Contents {
            leader: self.shared.may_change_cluster(),
            rolled_back_from: update::rolled_back_from(&self.shared),
            document: self.document.report(&self.shared),
            addons: self.converge.addon_reports(),
            operation: self.operate.report(&self.shared),
            problems: self.problems(mem::take(&mut seen.problems)),
            keys_created_at: identity.map_or(Timestamp::MIN, |identity| identity.active.created_at),
        };
        self.sync.looked(&self.shared, seen, contents);
    }

    /// An operation does not ask for a manifest that the portal has refused for good (ANS-2).
    fn give_up_manifest(&mut self) {
        if let Some(release) = self.operate.wants_manifest(&self.shared)
            && let Some(code) = self.document.given_up(&release)
        {
            let operate = &mut self.operate;
            operate.manifest_refused(&mut self.shared, &release, code);
        }
    }

    /// What is wrong with the node, with what the agent knows of it (FAIL-7, OPS-9).
    fn problems(&self, mut problems: Vec<String>) -> Vec<String> {
        if let Some(message) = &self.store_retry.message {
            problems.push(format!("state_unwritable: {message}"));
        }
        if let Some(operation) = self.operate.changed() {
            problems.push(format!("operation_changed: {operation}"));
        }
        if let Some(at_work) = self
            .slots
            .host
            .as_deref()
            .filter(|at_work| at_work.is_overdue)
        {
            problems.push(format!("task_overdue: {}", at_work.work));
        }
        problems
    }

    /// An answer: the pace judges it, its lane takes it.
    fn replied(&mut self, ticket: Ticket, reply: Result<Reply, Unreachable>) {
        let Some(out) = self.slots.call.take_if(|out| out.ticket == ticket) else {
            return;
        };
        let is_portals = match &reply {
            Ok(Reply::Done(_)) => true,
            Ok(Reply::Refused(refusal)) => refusal.code.is_some(),
            Ok(Reply::Broken { .. }) | Err(_) => false,
        };
        if is_portals {
            self.shared.heard_at = Some(self.shared.now.monotonic);
        }
        let mut tries = self.take_tries_of(&out.request);
        let verdict = self
            .pace
            .judge(&mut self.shared, out.request.endpoint(), &mut tries, reply);
        self.keep_tries_of(&out.request, tries);
        if let (Verdict::Done(_), Some(key)) = (&verdict, out.key) {
            let by_sync = matches!(out.request, Request::Sync(_));
            self.operate.key_accepted(&mut self.shared, key, by_sync);
        }
        match out.request {
            Request::Enroll(_) => self.enroll_replied(verdict),
            Request::Sync(_) => self.sync_replied(verdict),
            Request::Manifest(release) => self.manifest_replied(&release, verdict),
            Request::RotateKey(_) => self.register_replied(verdict),
            Request::Events { .. } => self.events_replied(verdict),
        }
    }

    fn enroll_replied(&mut self, verdict: Verdict) {
        let Some(enroll) = self.enroll.as_deref_mut() else {
            return;
        };
        let given_up = match verdict {
            Verdict::Done(AnswerBody::Enroll(answer)) => {
                enroll.answered(answer);
                false
            }
            Verdict::Refused(refused) => enroll.request_refused(&mut self.shared, refused),
            Verdict::Later(refusal) => enroll.failed(&mut self.shared, refusal.as_ref()),
            Verdict::Done(_) | Verdict::Again | Verdict::Revoked => false,
        };
        if given_up {
            self.pace.shut();
        }
    }

    fn sync_replied(&mut self, verdict: Verdict) {
        let shared = &mut self.shared;
        match verdict {
            Verdict::Done(AnswerBody::Sync(answer)) => {
                self.has_synced = true;
                shared.portal_said = Some((answer.portal_time, shared.now.monotonic));
                self.sync.succeeded(shared);
                self.document
                    .offered(shared, &self.converge, answer.desired.as_ref());
                self.update.good_sync(shared);
                if !update::is_past_arming(shared) {
                    self.operate.offered(shared, answer.operation.as_ref());
                }
                self.look_at_calendar(answer.portal_time);
            }
            Verdict::Again => self.sync.again(shared),
            Verdict::Refused(refused) => self.sync.refused(shared, refused),
            Verdict::Later(refusal) => {
                self.sync.failed(shared);
                if let Some(refusal) = refusal.filter(|refusal| refusal.status == 426) {
                    let release = refusal.release.as_ref();
                    if let Some(release) = release {
                        self.document.release_named(release);
                    }
                    let release = release.filter(|it| self.document.given_up(it).is_none());
                    self.update.too_old(shared, release);
                }
            }
            Verdict::Done(_) | Verdict::Revoked => self.sync.failed(shared),
        }
    }

    fn manifest_replied(&mut self, release: &ReleaseVersion, verdict: Verdict) {
        let shared = &mut self.shared;
        match verdict {
            Verdict::Done(AnswerBody::Manifest(signed)) => {
                self.update.manifest_came(shared, release, &signed);
                self.operate.manifest_came(shared, release, &signed);
                self.document.manifest_came(shared, release, signed);
            }
            Verdict::Refused(refused) => {
                let code = refused.is_final().then(|| refused.code.clone());
                self.update.manifest_missing(shared, release, code);
                self.document.manifest_refused(shared, release, refused);
            }
            Verdict::Later(refusal) => {
                let not_there = refusal.as_ref().filter(|refusal| refusal.status == 404);
                let said = not_there.map(code_or_status);
                self.update.manifest_missing(shared, release, said);
                if let Some(code) = refusal.as_ref().and_then(|refusal| refusal.code)
                    && code == ProblemCode::NotFound
                {
                    let operate = &mut self.operate;
                    operate.manifest_refused(shared, release, code.as_str());
                }
                self.document
                    .manifest_missing(shared, release, refusal.as_ref());
            }
            Verdict::Done(_) | Verdict::Again | Verdict::Revoked => {}
        }
    }

    fn register_replied(&mut self, verdict: Verdict) {
        let shared = &mut self.shared;
        match verdict {
            Verdict::Done(AnswerBody::RotateKey(answer)) => {
                self.operate.registered(shared, answer.active_key_id);
            }
            Verdict::Refused(refused) => self.operate.registration_refused(shared, refused),
            Verdict::Done(_) | Verdict::Again | Verdict::Later(_) | Verdict::Revoked => {}
        }
    }

    fn events_replied(&mut self, verdict: Verdict) {
        let shared = &mut self.shared;
        match verdict {
            Verdict::Done(AnswerBody::Events(answer)) => {
                if !self.deliver.accepted(shared, answer) {
                    // rule ANS-10: such an answer must not make a tight loop.
                    let why = "the answer acknowledges nothing of what was sent";
                    self.pace
                        .back_off(shared, Endpoint::Events, Some(200), why.into());
                }
            }
            Verdict::Refused(refused) => self.deliver.refused(shared, refused),
            Verdict::Later(refusal) => self.deliver.failed(shared, refusal.as_ref()),
            Verdict::Done(_) | Verdict::Again | Verdict::Revoked => {}
        }
    }

    /// How the request of a call has fared so far; its lane keeps it.
    fn tries_of(&mut self, request: &Request) -> Option<&mut Tries> {
        match request {
            Request::Enroll(_) => self.enroll.as_deref_mut().map(|enroll| &mut enroll.tries),
            Request::Sync(_) => Some(&mut self.sync.tries),
            Request::Manifest(_) => Some(&mut self.document.tries),
            Request::RotateKey(_) => Some(self.operate.tries()),
            Request::Events { .. } => Some(&mut self.deliver.tries),
        }
    }

    fn take_tries_of(&mut self, request: &Request) -> Tries {
        self.tries_of(request).map(mem::take).unwrap_or_default()
    }

    fn keep_tries_of(&mut self, request: &Request, tries: Tries) {
        if let Some(kept) = self.tries_of(request) {
            *kept = tries;
        }
    }

    fn stored(&mut self, ticket: Ticket, result: Result<(), StoreFailure>) {
        match self.shared.journal.written(ticket, result) {
            None => {}
            Some(Ok(())) if self.store_retry.succeed() => self.shared.note(Note::StoreRecovered),
            Some(Ok(())) => {}
            Some(Err(failure)) => {
                let note = self.store_retry.fail(&self.shared, failure);
                self.shared.note(note);
            }
        }
    }

    fn opened(&mut self, ticket: Ticket, result: Result<(), Unopenable>) {
        let Some((_, opening)) = self.slots.open.take_if(|(opening, _)| *opening == ticket) else {
            return;
        };
        let shared = &mut self.shared;
        match (opening, self.enroll.as_deref_mut()) {
            (Opening::Enrollment, Some(enroll)) => {
                if result.is_err() {
                    // An answer that cannot be used is a broken one (ANS-9).
                    let why = "a secret in the answer does not open";
                    self.pace
                        .back_off(shared, Endpoint::Enroll, Some(200), why.into());
                }
                enroll.opened(shared, result);
            }
            (Opening::Enrollment, None) => {}
            (Opening::Document(raw), _) => {
                let converge = &mut self.converge;
                let before = shared.journal.document.clone();
                self.document.opened(shared, converge, &raw, result);
                let taken = shared.journal.document.clone();
                let is_new = |taken: &Arc<TakenDocument>| {
                    !before.is_some_and(|before| Arc::ptr_eq(&before, taken))
                };
                if let Some(taken) = taken.filter(is_new) {
                    self.update
                        .document_taken(shared, &taken.release, &taken.manifest);
                }
            }
        }
    }

    fn performed(&mut self, ticket: Ticket, result: Result<Done, TaskFailure>) {
        let Some(at_work) = self.slots.host.take_if(|at_work| at_work.ticket == ticket) else {
            return;
        };
        let shared = &mut self.shared;
        if at_work.work.moves_k3s() {
            self.lead.see_anew(shared.now.monotonic);
        }
        match at_work.whose {
            Whose::Enrollment => {
                if let Some(enroll) = self.enroll.as_deref_mut() {
                    enroll.performed(shared, result);
                }
                if shared.journal.enrollment.is_none() {
                    // rule SYNC-10: right after an enrollment the sync comes at once.
                    self.enroll = None;
                    self.sync.due_now(shared);
                }
            }
            Whose::Document(taken, step) => {
                let document = &mut self.document;
                self.converge
                    .performed(shared, document, &taken, step, result);
            }
            Whose::Operation => {
                if let Work::Operation {
                    step: Step::WaitApi,
                    ..
                } = at_work.work
                {
                    self.converge.cluster_came_up(shared);
                }
                self.operate.performed(shared, result);
            }
            Whose::Update => self.update.performed(shared, result),
        }
    }

    fn probed(&mut self, ticket: Ticket, evidence: Evidence<Done>) {
        if self
            .slots
            .host
            .take_if(|at_work| at_work.ticket == ticket)
            .is_some()
        {
            self.operate.probed(&mut self.shared, evidence);
        }
    }

    /// A task that has not ended by its deadline is told of and waited for: it is never cancelled.
    fn tell_if_overdue(&mut self) {
        let now = self.shared.now.monotonic;
        let overdue = self
            .slots
            .host
            .as_deref_mut()
            .filter(|at_work| !at_work.is_overdue && at_work.deadline.0 <= now);
        if let Some(at_work) = overdue {
            at_work.is_overdue = true;
            let work = at_work.work.clone();
            self.shared.note(Note::TaskOverdue { work });
        }
    }

    /// Counts the days on which this agent has run, by what the portal says of the time, and forgets what ended more than 30
    /// of them ago (OPS-7). The node's own clock may jump as often as it likes, and the portal's ages nothing by more than a
    /// day at a time.
    fn look_at_calendar(&mut self, portal_time: Timestamp) {
        let today = portal_time.unix_seconds().div_euclid(86_400);
        let Days { seen, last } = self.shared.journal.days;
        if today == last {
            return;
        }
        let durable = self.shared.journal.change();
        durable.days.last = today;
        if today > last {
            durable.days.seen = seen.saturating_add(1);
            events::forget_old(durable);
        }
    }
}

impl StoreRetry {
    fn wake(&self) -> Option<Wake> {
        let failures = self.row.failures();
        self.at.map(|at| Wake {
            at,
            why: WakeReason::StoreRetry { failures },
        })
    }

    fn fail(&mut self, shared: &Shared, failure: StoreFailure) -> Note {
        let wait_ms = self.row.fail(&shared.facts.limits, &mut self.jitter);
        self.at = Some(shared.now.monotonic.plus_ms(wait_ms));
        self.message = Some(failure.message.clone());
        Note::StoreFailed {
            message: failure.message,
            failures: self.row.failures(),
            wait_ms,
        }
    }

    /// Whether this ends a row of failures.
    fn succeed(&mut self) -> bool {
        self.row.succeed();
        self.at = None;
        self.message.take().is_some()
    }
}

/// What others may know of an agent.
impl Agent {
    /// What it keeps, as it is known to be on disk.
    pub fn on_disk(&self) -> &Durable {
        self.shared.journal.on_disk()
    }

    /// Whether it sends nothing any more in this life of the program.
    pub fn is_idle(&self) -> bool {
        self.pace.is_shut()
    }

    /// The portal's time minus the node's raw clock, in milliseconds, as it was learnt (ANS-5).
    pub fn clock_offset_ms(&self) -> i64 {
        self.shared.clock_offset_ms
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use protocol::id::{AgentId, Arch};
    use protocol::pbx::sync::{ApiState, BootReport, K3sReport, SyncAnswer, SyncReport, UnitState};
    use protocol::verified::ReleaseKeys;

    use super::super::durable::{Identity, KeyPairs};
    use super::super::facts::Config;
    use super::*;
    use crate::limits::Limits;
    use crate::time::Wall;

    const NOW: Now = Now {
        monotonic: Monotonic::from_ms(0),
        wall: Wall::from_unix_ms(1_795_996_800_000),
    };

    fn agent() -> Agent {
        let handle = KeyHandle {
            signing: protocol::sign::SigningPublicKey([1; 32]),
            sealing: protocol::seal::SealingPublicKey([1; 32]),
        };
        let durable = Durable {
            identity: Some(Identity {
                agent_id: AgentId::new("agt_01J9ZK3V5M8Q2R7T4W6Y0XBCDE").unwrap(),
                active: KeyPairs {
                    handle,
                    created_at: NOW.wall.corrected(0),
                },
                other: None,
            }),
            days: Days {
                seen: 1,
                last: 20_787,
            },
            ..Durable::default()
        };
        let facts = BootFacts {
            config: Config {
                cluster_id: "clu_01J9ZK3V5M8Q2R7T4W6Y0XBCDE".parse().unwrap(),
                node_name: "fsn1-server-000001".parse().unwrap(),
                token: None,
            },
            agent_version: "1.4.0".parse().unwrap(),
            rolled_back_from: None,
            arch: Arch::Amd64,
            limits: Arc::new(Limits::REAL),
            release_keys: Arc::new(ReleaseKeys::none()),
        };
        Agent::boot(Arc::new(durable), facts, Seed(1), NOW)
    }

    fn seen() -> Observation {
        Observation {
            boot: BootReport {
                image_sha256: protocol::hash::Sha256Hex::of(b"image"),
                entry: "pbx-2026.11.1-amd64.efi".parse().unwrap(),
            },
            k3s: K3sReport {
                version: Some("v1.34.1+k3s1".into()),
                unit: UnitState::Active,
                api: ApiState::Up,
            },
            restart_pending: false,
            problems: Vec::new(),
        }
    }

    /// The next sync, when it is due: the report that goes out.
    fn sync(agent: &mut Agent) -> (Ticket, Arc<SyncReport>, Now) {
        while agent.poll_action().is_some() {}
        let wake = agent.poll_wake().expect("a sync is due");
        let now = Now {
            monotonic: wake.at,
            ..NOW
        };
        agent.handle(Input::Tick, now);
        loop {
            match agent.poll_action().expect("a sync is due") {
                Action::Observe(ticket) => agent.handle(Input::Observed(ticket, seen()), now),
                Action::Call(
                    ticket,
                    Call {
                        request: Request::Sync(report),
                        ..
                    },
                ) => return (ticket, report, now),
                _ => {}
            }
        }
    }

    fn answer(agent: &mut Agent, ticket: Ticket, now: Now) {
        let answer = SyncAnswer {
            portal_time: now.wall.corrected(0),
            desired: None,
            operation: None,
        };
        let reply = Reply::Done(AnswerBody::Sync(Arc::new(answer)));
        agent.handle(Input::Reply(ticket, Ok(reply)), now);
        while agent.poll_action().is_some() {}
    }

    #[test]
    fn between_two_syncs_nothing_of_the_report_is_kept() {
        let mut agent = agent();
        for cycle in 1..=3 {
            let (ticket, report, now) = sync(&mut agent);
            assert_eq!(report.sequence, cycle);
            answer(&mut agent, ticket, now);
            assert_eq!(Arc::strong_count(&report), 1);
        }
        assert_eq!(agent.shared.notes.capacity(), 0);
    }

    /// An allocation that is counted by `Arc`.
    const COUNTERS: usize = 2 * size_of::<usize>();

    fn text(text: &str) -> usize {
        COUNTERS + text.len().next_multiple_of(size_of::<usize>())
    }

    #[test]
    fn an_agent_costs_at_most_2_kib_beside_the_document_and_the_manifest() {
        let mut agent = agent();
        let (_, report, _) = sync(&mut agent);
        assert!(
            agent.shared.journal.is_settled(),
            "one record, in memory and on disk"
        );
        let config = &agent.shared.facts.config;
        let identity = agent.shared.journal.identity.as_ref().unwrap();
        let bytes = size_of::<Agent>()
            + COUNTERS
            + size_of::<Durable>()
            + COUNTERS
            + size_of::<TakenDocument>()
            + COUNTERS
            + size_of::<SyncReport>()
            + size_of::<CallOut>()
            + "1234567".len().next_multiple_of(size_of::<usize>())
            + text(identity.agent_id.as_str())
            + text(config.cluster_id.as_str())
            + text(config.node_name.as_str())
            + text(report.boot.entry.as_str())
            + report.k3s.version.as_ref().unwrap().capacity();
        assert!(bytes <= 2_048, "{bytes} bytes");
    }
}
