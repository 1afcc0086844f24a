//! What is counted while a fleet runs: one tally for each part of the fleet, so that agents seldom wait for each other.
//!
//! A member's meter tells it calls, its watch tells it what went through the machine. The tally holds sums and, for each
//! member, a few words of fixed size; nothing in it grows with time, but for the operations that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::machine::{Action, Input, Wake, WakeReason};
use agent_core::note::Note;
use agent_core::pbx::Agent;
use agent_core::pbx::durable::{Durable, IdleReason};
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use agent_drive::{CallRecord, Meter, SystemClock};
use fleet_sim::referee::{Context, Referees, Seat};
use protocol::endpoint::Endpoint;
use protocol::id::{AgentId, Generation, OperationId};
use protocol::pbx::call::{AnswerBody, Reply, Request};
use protocol::pbx::operation::OperationKind;
use protocol::pbx::sync::{DocumentReport, DocumentResult, OperationState};
use protocol::problem::ProblemCode;
use record::account::Line;
use record::agents::{AgentLog, AgentName, AgentRow, IdleWhy};
use record::fleet::{Fleet, OperationEnd};
use record::label::ByLabel;
use record::micros::Window;
use record::outcome::Class;
use record::series::Gauge;
use record::{ConnectTimes, Micros, Outcome, Recorder, Sample, TlsTimes};
use tokio::time::Instant;

use crate::complaint::Complaints;

/// A part of the fleet, as it is counted.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Requests.
    pub recorder: Recorder,
    /// What the fleet went through so far, but for what is only known at the end.
    pub fleet: Fleet,
    /// What its members are now.
    pub gauges: ByLabel<Gauge, u64>,
    /// Operations that its agents have taken, and how they ended there.
    pub operations: BTreeMap<OperationId, (OperationKind, OperationEnd)>,
    /// What agents complained of.
    pub complaints: Complaints,
    /// The rules that hold in every run, judged on what its members do.
    pub referees: Referees,
    standings: Vec<Standing>,
    window: Window,
    /// The member whose events are followed.
    followed: Option<(usize, AgentLog)>,
}

/// One member, as it stands.
#[derive(Debug, Clone)]
struct Standing {
    state: Gauge,
    /// Why it is idle; none where it is not.
    idle: Option<IdleWhy>,
    connected: bool,
    in_flight: bool,
    operating: bool,
    /// Whether its node was set up after the enrollment: from then on it syncs.
    set_up: bool,
    /// The identity that it got last, and how many others before.
    identity: Option<AgentId>,
    identities_before: u64,
    /// When it got the first of them.
    enrolled_at: Option<Micros>,
    interval: Micros,
    /// Whether its own update is under way.
    updating: bool,
    last_call: Option<(Endpoint, Outcome)>,
    /// Since when it owes syncs; none while it owes none.
    owes_syncs_since: Option<Micros>,
    last_sync: Option<Micros>,
    /// The document that the report under way says is in force.
    reporting: Generation,
    /// What that report says of a document that is refused or fails.
    document_says: Option<Box<DocumentReport>>,
    /// Documents that were set for it and are not reported yet.
    documents: Vec<(Generation, Micros)>,
    has_document: bool,
    /// Until when it must not call.
    must_wait_until: Option<Monotonic>,
}

impl Tally {
    /// An empty one that judges what is due inside `window`.
    pub fn new(window: Window, context: Context) -> Self {
        Self {
            recorder: Recorder::new(window),
            fleet: Fleet::default(),
            gauges: ByLabel::default(),
            operations: BTreeMap::new(),
            complaints: Complaints::default(),
            referees: Referees::new(context),
            standings: Vec::new(),
            window,
            followed: None,
        }
    }

    /// A copy without the referees, which are larger than all the rest.
    pub fn without_referees(&self) -> Self {
        Self {
            recorder: self.recorder.clone(),
            fleet: self.fleet.clone(),
            gauges: self.gauges.clone(),
            operations: self.operations.clone(),
            complaints: self.complaints.clone(),
            referees: Referees::new(Context::of_nobody()),
            standings: self.standings.clone(),
            window: self.window,
            followed: None,
        }
    }

    /// Takes in a member that has not begun; answers its place here.
    pub fn admit(&mut self, interval: Micros) -> usize {
        self.gauges[Gauge::Waiting] += 1;
        self.fleet.agents += 1;
        self.standings.push(Standing {
            state: Gauge::Waiting,
            idle: None,
            connected: false,
            in_flight: false,
            operating: false,
            set_up: false,
            identity: None,
            identities_before: 0,
            enrolled_at: None,
            interval,
            updating: false,
            last_call: None,
            owes_syncs_since: None,
            last_sync: None,
            reporting: Generation(0),
            document_says: None,
            documents: Vec::new(),
            has_document: false,
            must_wait_until: None,
        });
        self.standings.len() - 1
    }

    /// A member begins. What was set before is owed from now on.
    pub fn began(&mut self, member: usize, at: Micros) {
        for (_, since) in &mut self.standings[member].documents {
            *since = at;
        }
    }

    /// A document was set for a member.
    pub fn document_set(&mut self, member: usize, generation: Generation, at: Micros) {
        self.fleet.convergence.owed += 1;
        let standing = &mut self.standings[member];
        standing.documents.push((generation, at));
        if std::mem::replace(&mut standing.has_document, true) && standing.documents.len() == 1 {
            self.gauges[Gauge::Converged] -= 1;
        }
    }

    /// A member is somewhere else from now on.
    pub fn moved(&mut self, member: usize, to: Gauge, at: Micros) {
        let to = match to {
            Gauge::Healthy if self.standings[member].updating => Gauge::Updating,
            to => to,
        };
        let from = std::mem::replace(&mut self.standings[member].state, to);
        if to != Gauge::Idle {
            self.standings[member].idle = None;
        }
        if from == to {
            return;
        }
        self.event(member, at, || format!("is {to}"));
        self.gauges[from] -= 1;
        self.gauges[to] += 1;
        match to {
            Gauge::Healthy | Gauge::Updating => self.owes_syncs(member, at),
            Gauge::BackingOff | Gauge::ToldToWait => {}
            _ => self.owes_no_syncs(member, at),
        }
        if to == Gauge::Down {
            self.fleet.crashes += 1;
            self.set_connected(member, false);
            self.set_operating(member, false);
        }
    }

    /// What is only known when nobody runs any more.
    pub fn close(&mut self, at: Micros) {
        for member in 0..self.standings.len() {
            self.owes_no_syncs(member, at);
            let standing = &self.standings[member];
            if let Some(last) = standing.last_sync {
                self.fleet.staleness.gap(self.gap(last, at));
            }
            // What comes while calls under way end comes after the run: agents that leave make room for others.
            let in_time = |at: Micros| at <= self.window.until;
            self.fleet.enrolled += u64::from(standing.enrolled_at.is_some_and(in_time));
            self.fleet.idle += u64::from(standing.state == Gauge::Idle);
            self.fleet.duplicate_identities += standing.identities_before;
            if let Some(report) = &standing.document_says {
                self.complaints
                    .document(&report.result, report.message.as_deref());
            }
        }
        let account = &self.recorder.recorded().account;
        let replayed = |(_, line): (_, &Line)| line.ended[Outcome::Problem(ProblemCode::Replayed)];
        self.fleet.replays = account.lines().map(replayed).sum();
    }

    /// Members that hold an identity now.
    pub fn enrolled(&self) -> u64 {
        self.identities().count() as u64
    }

    /// The identity that a member holds.
    pub fn identity(&self, member: usize) -> Option<AgentId> {
        self.standings[member].identity.clone()
    }

    /// The identities that its members hold.
    pub fn identities(&self) -> impl Iterator<Item = &AgentId> {
        self.standings.iter().filter_map(|s| s.identity.as_ref())
    }

    /// Of each member that has synced: how long ago at `at`, and its interval.
    pub fn last_syncs(&self, at: Micros) -> impl Iterator<Item = (Micros, Micros)> {
        self.standings
            .iter()
            .filter_map(move |s| Some((at.since(s.last_sync?), s.interval)))
    }

    fn owes_syncs(&mut self, member: usize, at: Micros) {
        self.standings[member].owes_syncs_since.get_or_insert(at);
    }

    fn owes_no_syncs(&mut self, member: usize, at: Micros) {
        let standing = &mut self.standings[member];
        let Some(since) = standing.owes_syncs_since.take() else {
            return;
        };
        let inside = at.min(self.window.until).since(since.max(self.window.from));
        self.fleet.syncs_expected_millionths +=
            inside.0.saturating_mul(1_000_000) / standing.interval.0.max(1);
    }

    /// How long an agent was without a successful sync before `at`; nobody owes one once the run has ended.
    fn gap(&self, last: Micros, at: Micros) -> Micros {
        at.min(self.window.until).since(last)
    }

    fn set_connected(&mut self, member: usize, connected: bool) {
        let before = std::mem::replace(&mut self.standings[member].connected, connected);
        count(&mut self.gauges[Gauge::Connected], before, connected);
    }

    fn set_in_flight(&mut self, member: usize, in_flight: bool) {
        let before = std::mem::replace(&mut self.standings[member].in_flight, in_flight);
        count(&mut self.gauges[Gauge::InFlight], before, in_flight);
    }

    fn set_operating(&mut self, member: usize, operating: bool) {
        let before = std::mem::replace(&mut self.standings[member].operating, operating);
        count(&mut self.gauges[Gauge::Operating], before, operating);
    }

    fn booted(&mut self, member: usize, durable: &Durable, at: Micros) {
        let standing = &mut self.standings[member];
        if let Some(identity) = &durable.identity {
            standing.identity = Some(identity.agent_id.clone());
            standing.enrolled_at.get_or_insert(at);
        }
        standing.set_up = durable.identity.is_some() && durable.enrollment.is_none();
        standing.updating = durable.update.is_some();
        let to = match (&durable.idle, standing.set_up) {
            (Some(_), _) => Gauge::Idle,
            (None, true) => Gauge::Healthy,
            (None, false) => Gauge::Enrolling,
        };
        self.moved(member, to, at);
        self.standings[member].idle = durable.idle.as_ref().map(why);
    }

    /// A member sends nothing any more.
    fn idles(&mut self, member: usize, why: IdleWhy, at: Micros) {
        self.moved(member, Gauge::Idle, at);
        self.standings[member].idle = Some(why);
    }

    fn calls(&mut self, member: usize, request: &Request, now: Monotonic) {
        let standing = &mut self.standings[member];
        if standing
            .must_wait_until
            .take()
            .is_some_and(|until| now < until)
        {
            self.fleet.early_retries += 1;
        }
        if let Request::Sync(report) = request {
            standing.reporting = report.document.applied_generation;
            standing.document_says = match report.document.result {
                DocumentResult::Applied | DocumentResult::Pending => None,
                _ => Some(Box::new(report.document.clone())),
            };
        }
    }

    fn answered(&mut self, member: usize, answer: &AnswerBody, at: Micros) {
        let standing = &mut self.standings[member];
        if matches!(standing.state, Gauge::BackingOff | Gauge::ToldToWait) {
            let to = match standing.set_up {
                true => Gauge::Healthy,
                false => Gauge::Enrolling,
            };
            self.moved(member, to, at);
        }
        match answer {
            AnswerBody::Enroll(answer) => self.identified(member, &answer.agent_id, at),
            AnswerBody::Sync(_) => self.synced(member, at),
            AnswerBody::Events(_) | AnswerBody::Manifest(_) | AnswerBody::RotateKey(_) => {}
        }
    }

    fn identified(&mut self, member: usize, identity: &AgentId, at: Micros) {
        let standing = &mut self.standings[member];
        standing.enrolled_at.get_or_insert(at);
        match standing.identity.replace(identity.clone()) {
            Some(before) if before != *identity => standing.identities_before += 1,
            _ => {}
        }
    }

    fn synced(&mut self, member: usize, at: Micros) {
        if let Some(last) = self.standings[member].last_sync.replace(at) {
            let gap = self.gap(last, at);
            self.fleet.staleness.gap(gap);
        }
        let standing = &mut self.standings[member];
        let reached = standing.reporting;
        let owed = standing.documents.len();
        standing.documents.retain(|(generation, since)| {
            let is_there = *generation <= reached;
            if is_there {
                self.fleet.convergence.reached.record(at.since(*since));
            }
            !is_there
        });
        if owed > 0 && standing.documents.is_empty() {
            self.gauges[Gauge::Converged] += 1;
        }
    }

    fn updates(&mut self, member: usize, updating: bool, at: Micros) {
        self.standings[member].updating = updating;
        if matches!(
            self.standings[member].state,
            Gauge::Healthy | Gauge::Updating
        ) {
            self.moved(member, Gauge::Healthy, at);
        }
    }

    /// What the one that is followed does.
    fn event(&mut self, member: usize, at: Micros, what: impl FnOnce() -> String) {
        if let Some((followed, log)) = &mut self.followed
            && *followed == member
        {
            log.push(at, what());
        }
    }

    /// Follows a member from now on, and nobody else; nobody at all without one.
    pub fn follow(&mut self, member: Option<(usize, AgentName)>) {
        let is_followed = |member: usize| {
            let followed = self.followed.as_ref();
            followed.is_some_and(|(followed, _)| *followed == member)
        };
        match member {
            None => self.followed = None,
            Some((member, _)) if is_followed(member) => {}
            Some((member, name)) => {
                let events = VecDeque::new();
                self.followed = Some((member, AgentLog { name, events }));
            }
        }
    }

    /// The events of the one that is followed.
    pub fn followed(&self) -> Option<&AgentLog> {
        self.followed.as_ref().map(|(_, log)| log)
    }

    /// What a member is, and why it is idle if it is.
    pub fn state(&self, member: usize) -> (Gauge, Option<IdleWhy>) {
        let standing = &self.standings[member];
        (standing.state, standing.idle)
    }

    /// A member, as a screen shows it.
    pub fn row(
        &self,
        member: usize,
        name: AgentName,
        clock_offset_ms: i64,
        at: Micros,
    ) -> AgentRow {
        let standing = &self.standings[member];
        AgentRow {
            name,
            state: standing.state,
            idle: standing.idle,
            operating: standing.operating,
            synced_ago: standing.last_sync.map(|last| at.since(last)),
            generation: standing.reporting.0,
            last_call: standing.last_call,
            clock_offset_ms,
        }
    }

    fn noted(&mut self, member: usize, note: &Note, at: Micros) {
        self.event(member, at, || note.to_string());
        match note {
            Note::UpdateBegun { .. } => {
                self.fleet.update_attempts += 1;
                self.updates(member, true, at);
            }
            Note::Updated { .. } | Note::UpdateFailed { .. } => self.updates(member, false, at),
            Note::Enrolled { .. } => {
                self.standings[member].set_up = true;
                self.moved(member, Gauge::Healthy, at);
            }
            Note::RevocationLifted => self.moved(member, Gauge::Healthy, at),
            Note::BackedOff { .. } => self.moved(member, Gauge::BackingOff, at),
            Note::PortalWait { .. } => self.moved(member, Gauge::ToldToWait, at),
            Note::Revoked { .. } => self.idles(member, IdleWhy::Revoked, at),
            Note::EnrollmentGivenUp { reason } => self.idles(member, why(reason), at),
            Note::NoToken => self.idles(member, IdleWhy::NoToken, at),
            Note::OperationAccepted { operation, kind } => {
                let taken = (kind.clone(), OperationEnd::Unfinished);
                self.operations.insert(operation.clone(), taken);
                self.set_operating(member, true);
            }
            Note::OperationEnded {
                operation,
                kind,
                state,
                message,
                ..
            } => {
                self.complaints.operation(kind, *state, message.as_deref());
                let ended = (kind.clone(), OperationEnd::from(*state));
                self.operations.insert(operation.clone(), ended);
                self.set_operating(member, *state == OperationState::Running);
            }
            _ => {}
        }
    }

    fn waits(&mut self, member: usize, wake: Option<Wake>, at: Micros) {
        self.standings[member].must_wait_until = match wake {
            Some(Wake {
                at,
                why: WakeReason::Backoff { .. },
            }) => Some(at),
            Some(Wake {
                at: until,
                why: WakeReason::PortalsWord { .. },
            }) => {
                // Whoever is told to wait owes nothing meanwhile.
                self.owes_no_syncs(member, at);
                Some(until)
            }
            _ => None,
        };
    }
}

fn why(reason: &IdleReason) -> IdleWhy {
    match reason {
        IdleReason::Revoked { .. } => IdleWhy::Revoked,
        IdleReason::TokenRefused { .. } => IdleWhy::TokenRefused,
        IdleReason::EnrollmentRefused { .. } => IdleWhy::EnrollmentRefused,
        IdleReason::ImageMismatch => IdleWhy::ImageMismatch,
        IdleReason::IdentityLost => IdleWhy::IdentityLost,
    }
}

fn count(gauge: &mut u64, before: bool, now: bool) {
    *gauge = *gauge + u64::from(now) - u64::from(before);
}

/// One member's way to its tally: its meter and its watch.
#[derive(Debug, Clone)]
pub struct Place {
    tally: Arc<Mutex<Tally>>,
    member: usize,
    seat: Seat,
    clock: SystemClock,
    /// By how much the first request of this start is late already, since the start was.
    begun_late: Micros,
}

impl Place {
    /// The place of a member in its tally.
    pub fn new(tally: &Arc<Mutex<Tally>>, member: usize, seat: Seat, clock: SystemClock) -> Self {
        Self {
            tally: Arc::clone(tally),
            member,
            seat,
            clock,
            begun_late: Micros::ZERO,
        }
    }

    /// The member begins.
    pub fn began(&self) {
        let at = self.micros(Instant::now());
        self.tally().began(self.member, at);
    }

    /// The same place for a start that came so late. The agent does not know, so what it asks for first was due so much
    /// before it says.
    pub fn begun_late(&self, by: Duration) -> Self {
        Self {
            begun_late: by.into(),
            ..self.clone()
        }
    }

    /// When a request was due: an agent's first word in a start, by when it should have begun.
    fn due(&self, intended: Monotonic) -> Micros {
        moment(intended).since(self.begun_late)
    }

    /// The member is somewhere else from now on.
    pub fn moved(&self, to: Gauge) {
        let at = self.micros(Instant::now());
        self.tally().moved(self.member, to, at);
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    fn micros(&self, at: Instant) -> Micros {
        Micros::from(at.saturating_duration_since(self.clock.started()))
    }
}

/// A tally. A member that panicked has ended; what it counted still counts.
pub fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A moment of a machine, from the start of the run.
fn moment(now: Monotonic) -> Micros {
    Micros::from_ms(now.as_ms())
}

impl Meter for Place {
    fn planned(&mut self, endpoint: Endpoint, intended: Monotonic) {
        self.tally().recorder.planned(endpoint, self.due(intended));
    }

    fn dropped(&mut self, endpoint: Endpoint) {
        self.begun_late = Micros::ZERO;
        self.tally().recorder.dropped(endpoint);
    }

    fn started(&mut self, endpoint: Endpoint, at: Instant) {
        let at = self.micros(at);
        let mut tally = self.tally();
        tally.recorder.started(endpoint, at);
        tally.set_in_flight(self.member, true);
    }

    fn ended(&mut self, call: &CallRecord) {
        let sample = Sample {
            endpoint: call.endpoint,
            outcome: call.outcome,
            intended: self.due(call.intended),
            started: self.micros(call.started),
            first_byte_out: call.first_byte_out.map(|at| self.micros(at)),
            ended: self.micros(call.ended),
            connect: call.connect.map(|connect| ConnectTimes {
                total: connect.total().into(),
                dns: connect.dns.map(Micros::from),
                tcp: Some(connect.tcp.into()),
                tls: connect.tls.map(|(took, resumed)| TlsTimes {
                    took: took.into(),
                    resumed,
                }),
            }),
        };
        self.begun_late = Micros::ZERO;
        let mut tally = self.tally();
        tally.recorder.ended(&sample);
        tally.standings[self.member].last_call = Some((sample.endpoint, sample.outcome));
        tally.event(self.member, sample.ended, || {
            format!(
                "{}: {}, {} after it was due",
                sample.endpoint,
                sample.outcome,
                sample.ended.since(sample.intended)
            )
        });
        tally.set_in_flight(self.member, false);
        tally.set_connected(self.member, sample.outcome.class() == Class::Answered);
    }
}

impl Watch<Agent> for Place {
    fn boot(&mut self, now: Now, durable: &Durable) {
        let mut tally = lock(&self.tally);
        tally.booted(self.member, durable, moment(now.monotonic));
        self.seat.boot(now, durable, &mut tally.referees);
    }

    fn input(&mut self, now: Now, input: &Input<Agent>) {
        let mut tally = lock(&self.tally);
        if let Input::Reply(_, Ok(Reply::Done(answer))) = input {
            tally.answered(self.member, answer, moment(now.monotonic));
        }
        self.seat.input(now, input, &mut tally.referees);
    }

    fn action(&mut self, now: Now, action: &Action<Agent>) {
        let mut tally = lock(&self.tally);
        match action {
            Action::Call(_, call) => tally.calls(self.member, &call.request, now.monotonic),
            Action::Note(note) => tally.noted(self.member, note, moment(now.monotonic)),
            _ => {}
        }
        self.seat.action(now, action, &mut tally.referees);
    }

    fn wake(&mut self, now: Now, wake: Option<Wake>) {
        let mut tally = lock(&self.tally);
        tally.waits(self.member, wake, moment(now.monotonic));
        self.seat.wake(now, wake, &mut tally.referees);
    }
}
