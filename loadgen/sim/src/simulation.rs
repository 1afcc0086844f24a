//! A fleet in virtual time: many real agents over simulated nodes, one real portal, one thread, no sleeps.
//!
//! Everything is an event of one queue: a request that arrives, an answer that comes back, a write or a task that ends, a
//! wake. The world answers an agent's actions with what they cost in time, and what goes wrong is drawn from the seed
//! ([`Troubles`]). So the same seed gives the same run, crashes included, and [`Simulation::digest`] says so. Whoever wants
//! to judge a run looks on: everything that goes through a machine is shown to its [`Watch`], as in a live world.
//!
//! - [`trouble`](Trouble): what goes wrong, as data.
//! - [`wire`](Wire): how much of the real wire lies between agents and portal.
//! - [`nodes`](Nodes): populations.
//! - [`script`](Planned): crashes that are planned, not drawn.

mod chance;
mod digest;
mod life;
mod nodes;
mod script;
mod trouble;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use agent_core::journal::{Recorded, Work};
use agent_core::machine::{
    Action, Call, Deadline, Input, LeaseFailure, LogLine, Machine as _, StoreFailure, TaskFailure,
    Ticket, Unreachable,
};
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::pbx::facts::BootFacts;
use agent_core::pbx::lease::{LeaseCall, LeaseReply};
use agent_core::pbx::task::Task;
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use portal_core::{Control, Portal, PortalNow};
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::ClusterId;
use protocol::limits::{CONNECT_SECONDS_MAX, REQUEST_SECONDS_MAX};
use protocol::pbx::call::{Reply, Request};
use protocol::pbx::operation::Step;
use protocol::sign::SigningKey;
use protocol::time::Timestamp;

pub use self::chance::Spread;
pub use self::nodes::Nodes;
pub use self::script::{Occasion, Planned};
pub use self::trouble::{Blow, Moment, Site, Trouble, Troubles};
pub use self::wire::Wire;

pub use self::digest::Digest;
use self::digest::TraceDigest;
use self::life::Life;
use self::script::Script;
use self::trouble::Odds;
use self::wire::{Parcel, Returned};
use crate::clock::{NodeClock, VirtualClock};
use crate::cluster::SimCluster;
use crate::host::{self, Defect, Fall, Leftover, Server, SimHost};

/// What a simulation is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where all of its chance comes from.
    pub seed: u64,
    /// The right time at its start.
    pub started_at: Timestamp,
    /// How much of the real wire there is.
    pub wire: Wire,
    /// How long a request, and how long an answer is on its way, in milliseconds.
    pub one_way_ms: Spread,
    /// From power on to the agent's start, in milliseconds.
    pub boot_ms: Spread,
    /// How long a durable write takes, in milliseconds.
    pub write_ms: u64,
    /// What goes wrong.
    pub troubles: Troubles,
}

impl Settings {
    /// A typed wire of some tens of milliseconds, and nothing that goes wrong.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            started_at: Timestamp::from_unix_ms(1_796_000_523_000), // 2026-11-30T01:02:03Z
            wire: Wire::Typed,
            one_way_ms: Spread::new(5, 40),
            boot_ms: Spread::new(3_000, 8_000),
            write_ms: 2,
            troubles: Troubles::default(),
        }
    }

    /// The portal of the same seed.
    pub fn portal(&self) -> Portal {
        let child = |purpose: &str| {
            let text = format!("simulation {purpose} {}", self.seed);
            *Sha256Hex::of(text.as_bytes()).as_bytes()
        };
        let release_key = SigningKey::from_seed(child("release key"));
        Portal::new(portal_core::Settings::new(release_key, child("portal")))
    }
}

/// A node that comes into a simulation.
#[derive(Debug, Clone)]
pub struct NewMember {
    /// What its agent is told at its first start; later without the token, once that is dropped.
    pub facts: BootFacts,
    /// Its server. It shares a cluster with all whose facts name the same.
    pub server: Server,
    /// Its clocks.
    pub clock: NodeClock,
    /// When its power comes on first.
    pub starts_at: Monotonic,
}

/// A fleet in virtual time; `W` watches one agent.
pub struct Simulation<W> {
    settings: Settings,
    odds: Odds,
    clock: VirtualClock<Due>,
    portal: Portal,
    clusters: BTreeMap<ClusterId, Arc<Mutex<SimCluster>>>,
    lives: Vec<Life<W>>,
    /// Answers to the actions that were just drained and that take no time.
    prompt: VecDeque<Input<Agent>>,
    digest: TraceDigest,
}

/// An agent that is told something again and again without any time passing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "agent {member} was told more than {INPUTS_MAX} things within the millisecond {at_ms}: it runs in a loop; the last was {last}"
)]
pub struct TightLoop {
    /// Its number.
    pub member: usize,
    /// When.
    pub at_ms: u64,
    /// What it was told last.
    pub last: String,
}

/// What an agent may be told within a millisecond: what it asks for in a row without any time passing is a handful.
const INPUTS_MAX: u32 = 64;

/// Something that happens to a member.
#[derive(Debug)]
struct Due {
    member: usize,
    /// The start of the agent that it belongs to.
    boot: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    PowerOn,
    Tick(u32),
    Arrives(Box<Sent>),
    Replied(Ticket, Box<Heard>),
    Stored(Ticket, Written),
    Performed(Ticket, Ended),
    LeaseArrives(Box<Asked>),
    Leased(Ticket, Box<Result<LeaseReply, LeaseFailure>>),
    Crash,
    /// The way back of an upgrade, unless it was disarmed.
    GoesBack,
    /// The rollback timer of the agent's own update, unless it was disarmed or armed anew.
    RollsBack,
}

/// A request under way, and what becomes of its answer.
#[derive(Debug)]
struct Sent {
    ticket: Ticket,
    endpoint: Endpoint,
    parcel: Parcel,
    back_ms: u64,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Heard,
    Broken,
    Lost { after_ms: u64 },
    CrashAfter,
    CrashAs(Leftover),
}

/// A question about the Lease under way, and what becomes of its answer.
#[derive(Debug)]
struct Asked {
    ticket: Ticket,
    call: LeaseCall,
    fate: Fate,
}

/// What comes back from a call.
#[derive(Debug)]
enum Heard {
    Reply(Result<Reply, Unreachable>),
    CrashBefore,
    CrashAs(Leftover),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Durably,
    Failed,
    CrashAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    ByItself,
    Failed,
    CutOff,
    CrashAfter,
}

/// What a simulation is asked.
impl<W> Simulation<W> {
    /// A portal, and no nodes yet.
    pub fn new(settings: Settings, portal: Portal) -> Self {
        Self {
            odds: Odds::new(&settings.troubles),
            settings,
            clock: VirtualClock::default(),
            portal,
            clusters: BTreeMap::new(),
            lives: Vec::new(),
            prompt: VecDeque::new(),
            digest: TraceDigest::default(),
        }
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The moment.
    pub fn now(&self) -> Monotonic {
        self.clock.now()
    }

    /// How many members there are; they are numbered from 0.
    pub fn members(&self) -> usize {
        self.lives.len()
    }

    /// The portal's control verbs, at this moment.
    pub fn control(&self) -> Control<'_> {
        self.portal.control(self.portal_now())
    }

    /// What is on a member's disk.
    pub fn durable(&self, member: usize) -> Arc<Durable> {
        self.lives[member].disk.read()
    }

    /// A member's watch.
    pub fn watch(&self, member: usize) -> &W {
        &self.lives[member].watch
    }

    /// A member's node.
    pub fn host(&self, member: usize) -> &SimHost {
        &self.lives[member].host
    }

    /// A cluster, if a member is in it.
    pub fn cluster(&self, id: &ClusterId) -> Option<Arc<Mutex<SimCluster>>> {
        self.clusters.get(id).map(Arc::clone)
    }

    /// The occasions of a member since they are counted.
    pub fn occasions(&self, member: usize) -> &[Occasion] {
        (self.lives[member].script.as_ref()).map_or(&[], |script| &script.seen)
    }

    /// What went wrong at a member, and how often.
    pub fn troubles(&self, member: usize) -> &BTreeMap<Trouble, u64> {
        &self.lives[member].struck
    }

    /// When something went wrong at a member last.
    pub fn last_trouble(&self, member: usize) -> Option<Monotonic> {
        self.lives[member].last_trouble
    }

    /// The digest of the trace so far: two runs with the same one were the same.
    pub fn digest(&self) -> Digest {
        self.digest.value()
    }

    fn portal_now(&self) -> PortalNow {
        let monotonic_ms = self.clock.now().as_ms();
        let elapsed_ms = i64::try_from(monotonic_ms).unwrap_or(i64::MAX);
        let started_ms = self.settings.started_at.unix_ms();
        PortalNow {
            wall: Timestamp::from_unix_ms(started_ms.saturating_add(elapsed_ms)),
            monotonic_ms,
        }
    }
}

/// What happens.
impl<W: Watch<Agent>> Simulation<W> {
    /// Brings in a node; answers its number.
    pub fn add(&mut self, new: NewMember, watch: W) -> usize {
        let NewMember {
            facts,
            server,
            clock,
            starts_at,
        } = new;
        let member = self.lives.len();
        let cluster = self
            .clusters
            .entry(facts.config.cluster_id.clone())
            .or_default();
        let host = SimHost::new(server, Arc::clone(cluster));
        let mut life = Life::new(self.settings.seed, member as u64, facts, host, clock, watch);
        let boot_ms = life.boot_time.within(self.settings.boot_ms);
        self.clock.schedule(
            starts_at.plus_ms(boot_ms),
            Due {
                member,
                boot: life.boot,
                what: What::PowerOn,
            },
        );
        self.lives.push(life);
        member
    }

    /// Lets everything happen that happens by a moment.
    ///
    /// # Errors
    /// When an agent runs in a loop in which no time passes.
    pub fn run_until(&mut self, moment: Monotonic) -> Result<(), TightLoop> {
        while let Some(due) = self.clock.next_by(moment) {
            self.happen(due)?;
        }
        Ok(())
    }

    /// Cuts a member's power and gives it back; one without power stays as it is.
    pub fn crash(&mut self, member: usize) {
        let life = &mut self.lives[member];
        if life.machine.is_none() {
            return;
        }
        life.crash(life.clock.read(self.clock.now()), None);
        self.powers_on(member);
    }

    /// From now on the occasions of a member are counted, and these crashes come at theirs.
    pub fn plan(&mut self, member: usize, planned: impl IntoIterator<Item = Planned>) {
        self.lives[member].script = Some(Box::new(Script::new(planned)));
    }

    /// An occasion of a member comes, if its occasions are counted; the crash that is planned at it.
    fn comes(&mut self, member: usize, site: Site, step: Option<Step>) -> Option<Leftover> {
        let life = &mut self.lives[member];
        life.script.as_mut()?.comes(site, step)
    }

    /// The step that a member's operation is at, as its disk has it.
    fn step_of(&self, member: usize) -> Option<Step> {
        script::step_of(&self.lives[member].disk.read())
    }

    /// A crash at something beside the task that is under way: nothing of that is done.
    fn crash_beside(&mut self, member: usize, Leftover { fall, .. }: Leftover) {
        self.crash_as(member, Leftover { effects: 0, fall });
    }

    fn crash_as(&mut self, member: usize, leftover: Leftover) {
        let life = &mut self.lives[member];
        life.crash_as(life.clock.read(self.clock.now()), leftover);
        self.powers_on(member);
    }

    /// A node that has gone down by itself comes back.
    fn comes_back(&mut self, member: usize) {
        self.lives[member].went_down();
        self.powers_on(member);
    }

    fn powers_on(&mut self, member: usize) {
        let life = &mut self.lives[member];
        let boot_ms = life.boot_time.within(self.settings.boot_ms);
        self.prompt.clear();
        self.after(member, boot_ms, What::PowerOn);
    }

    /// Has a member crash at one certain point.
    pub fn blow(&mut self, member: usize, blow: Blow) {
        self.lives[member].blow = Some(Box::new(blow));
    }

    /// Whether the crash that was ordered has not come yet.
    pub fn has_blow(&self, member: usize) -> bool {
        self.lives[member].blow.is_some()
    }

    /// Freezes a member's agent until then: its clocks go on, and the node does.
    pub fn freeze(&mut self, member: usize, until: Monotonic) {
        self.lives[member].freeze(until);
    }

    /// The API of a member's cluster answers nobody until then; everybody in that cluster is in trouble until then.
    pub fn pause_api(&mut self, member: usize, until: Monotonic) {
        self.lives[member].host.pause_api(until);
        self.pause(member, until);
    }

    fn pause(&mut self, member: usize, until: Monotonic) {
        let cluster = self.lives[member].cluster().clone();
        for life in &mut self.lives {
            if *life.cluster() == cluster {
                life.last_trouble = life.last_trouble.max(Some(until));
            }
        }
    }

    /// From now on this goes wrong, and nothing else.
    pub fn set_troubles(&mut self, troubles: Troubles) {
        self.odds = Odds::new(&troubles);
        self.settings.troubles = troubles;
    }

    /// Somebody gives a member another clock.
    pub fn set_clock(&mut self, member: usize, clock: NodeClock) {
        self.lives[member].clock = clock;
    }

    fn happen(&mut self, due: Due) -> Result<(), TightLoop> {
        let Due { member, boot, what } = due;
        let is_alive = self.lives[member].boot == boot;
        // What is on its way arrives, whether or not somebody still waits for the answer.
        if let What::Arrives(sent) = what {
            self.arrive(member, is_alive, *sent);
            return Ok(());
        }
        if let What::LeaseArrives(asked) = what {
            self.lease_arrives(member, is_alive, &asked);
            return Ok(());
        }
        // A timer of the node does not ask whether the agent lives.
        if let What::RollsBack = what {
            self.rolls_back(member);
            return Ok(());
        }
        if !is_alive {
            return Ok(());
        }
        if let Some(until) = self.lives[member].is_frozen_until(self.clock.now()) {
            self.clock.schedule(until, Due { member, boot, what });
            return Ok(());
        }
        match what {
            What::PowerOn => return self.power_on(member),
            What::Tick(number) => {
                if self.lives[member].alarm.rings(number) {
                    return self.tell(member, Input::Tick);
                }
            }
            What::Replied(ticket, heard) => match *heard {
                Heard::Reply(reply) => return self.tell(member, Input::Reply(ticket, reply)),
                Heard::CrashBefore => self.crash(member),
                Heard::CrashAs(leftover) => self.crash_beside(member, leftover),
            },
            What::Stored(ticket, written) => {
                let life = &mut self.lives[member];
                match written {
                    Written::Durably => {
                        life.disk.finish();
                        return self.tell(member, Input::Stored(ticket, Ok(())));
                    }
                    Written::Failed => {
                        life.fail_store();
                        let message = "state.json: no space left on device".to_owned();
                        let failed = Err(StoreFailure { message });
                        return self.tell(member, Input::Stored(ticket, failed));
                    }
                    Written::CrashAfter => {
                        life.disk.finish();
                        self.crash(member);
                    }
                }
            }
            What::Performed(ticket, ended) => return self.task_ends(member, ticket, ended),
            What::Crash => self.crash(member),
            What::GoesBack => {
                let now = self.clock.now();
                let life = &mut self.lives[member];
                if life.host.goes_back_at().is_some_and(|at| at <= now) {
                    life.crash(life.clock.read(now), Some(Fall::Power));
                    self.powers_on(member);
                }
            }
            What::Leased(ticket, reply) => return self.tell(member, Input::Leased(ticket, *reply)),
            What::Arrives(_) | What::LeaseArrives(_) | What::RollsBack => {}
        }
        Ok(())
    }

    fn rolls_back(&mut self, member: usize) {
        let now = self.clock.now();
        let life = &mut self.lives[member];
        if life.host.rolls_back_at().is_none_or(|at| at > now) {
            return;
        }
        // The agent is stopped before anything is put back: what it was at comes before that, or not at all.
        if life.host.is_on_trial() && life.machine.is_some() {
            life.crash(life.clock.read(now), Some(Fall::Program));
            self.prompt.clear();
            self.after(member, RESTART_MS, What::PowerOn);
        }
        self.lives[member].host.roll_back();
    }

    /// Sees to it that the rollback timer fires when it is due.
    fn watch_rollback(&mut self, member: usize) {
        let life = &self.lives[member];
        if let Some(at) = life.host.rolls_back_at() {
            let (boot, what) = (life.boot, What::RollsBack);
            self.clock.schedule(at, Due { member, boot, what });
        }
    }

    fn power_on(&mut self, member: usize) -> Result<(), TightLoop> {
        self.watch_rollback(member);
        let life = &mut self.lives[member];
        if life.host.defect() == Some(Defect::DiesAtStart) {
            self.after(member, RESTART_MS, What::PowerOn);
            return Ok(());
        }
        let now = life.clock.read(self.clock.now());
        let durable = life.disk.read();
        life.watch.boot(now, &durable);
        self.digest.boot(member, now, &durable);
        let seed = life.boot_seed();
        life.machine = Some(Agent::boot(durable, life.facts(), seed, now));
        if let Some(at) = life.host.goes_back_at() {
            let (boot, what) = (life.boot, What::GoesBack);
            let at = at.max(self.clock.now());
            self.clock.schedule(at, Due { member, boot, what });
        }
        self.drain(member, now);
        self.tell_prompt(member)
    }

    /// Tells an agent something, and does what it wants then.
    fn tell(&mut self, member: usize, input: Input<Agent>) -> Result<(), TightLoop> {
        let at = self.clock.now();
        let life = &mut self.lives[member];
        let Some(machine) = &mut life.machine else {
            return Ok(());
        };
        let now = life.clock.read(at);
        life.watch.input(now, &input);
        self.digest.input(member, now, &input);
        if life.busy.is_too_much(at) {
            return Err(TightLoop {
                member,
                at_ms: at.as_ms(),
                last: format!("{input:?}"),
            });
        }
        machine.handle(input, now);
        self.drain(member, now);
        self.tell_prompt(member)
    }

    fn tell_prompt(&mut self, member: usize) -> Result<(), TightLoop> {
        match self.prompt.pop_front() {
            Some(input) => self.tell(member, input),
            None => Ok(()),
        }
    }

    /// Carries out what an agent wants, and looks at what it waits for.
    fn drain(&mut self, member: usize, now: Now) {
        loop {
            let life = &mut self.lives[member];
            // A crash may lie between two actions.
            let Some(machine) = &mut life.machine else {
                return;
            };
            let Some(action) = machine.poll_action() else {
                break;
            };
            life.watch.action(now, &action);
            self.digest.action(member, now, &action);
            let answer = match action {
                Action::Observe(ticket) => {
                    Some(Input::Observed(ticket, life.host.observe(now.monotonic)))
                }
                Action::Open(ticket, values) => {
                    Some(Input::Opened(ticket, life.host.open(&values)))
                }
                Action::Probe(ticket, task) => {
                    let evidence = life.host.probe(task.record(), &task);
                    Some(Input::Probed(ticket, evidence))
                }
                Action::Call(ticket, call) => {
                    self.call(member, ticket, call);
                    None
                }
                Action::Store(ticket, durable) => {
                    self.store(member, ticket, durable);
                    None
                }
                Action::Perform(ticket, task, deadline) => {
                    self.perform(member, ticket, task, deadline);
                    None
                }
                Action::Lease(ticket, call, deadline) => {
                    self.lease(member, ticket, call, deadline);
                    None
                }
                Action::Exit => {
                    self.lives[member].exit();
                    self.prompt.clear();
                    self.after(member, RESTART_MS, What::PowerOn);
                    None
                }
                Action::Note(_) => None,
            };
            self.prompt.extend(answer);
        }
        let life = &mut self.lives[member];
        let wake = life.machine.as_ref().and_then(Agent::poll_wake);
        life.watch.wake(now, wake);
        self.digest.wake(member, now, wake);
        if self.prompt.is_empty()
            && let Some((at, number)) = life.alarm.set(wake.map(|wake| wake.at))
        {
            let (boot, what) = (life.boot, What::Tick(number));
            self.clock.schedule(at, Due { member, boot, what });
        }
    }

    fn after(&mut self, member: usize, ms: u64, what: What) {
        let boot = self.lives[member].boot;
        let at = self.clock.now().plus_ms(ms);
        self.clock.schedule(at, Due { member, boot, what });
    }

    /// Whether something goes wrong at this occasion.
    fn strike(&mut self, member: usize, site: Site) -> Option<Trouble> {
        let (life, now) = (&mut self.lives[member], self.clock.now());
        let drawn = self.odds.draw(site, now, &mut life.trouble);
        let trouble = life.blow_at(site).or(drawn)?;
        life.strike(trouble, now);
        match trouble {
            Trouble::Frozen(_) => {
                let until = now.plus_ms(life.trouble.pick(FROZEN_MS));
                life.freeze(until);
            }
            Trouble::ApiPaused => {
                let until = now.plus_ms(life.trouble.pick(PAUSED_MS));
                life.host.pause_api(until);
                self.pause(member, until);
            }
            _ => {}
        }
        Some(trouble)
    }
}

/// For how long an agent is frozen: less than a renewal may take, more than that, and longer than the Lease lasts.
const FROZEN_MS: [u64; 4] = [3_000, 60_000, 120_000, 300_000];
/// For how long the API of a cluster answers nobody.
const PAUSED_MS: [u64; 3] = [5_000, 60_000, 180_000];

/// Calls.
impl<W: Watch<Agent>> Simulation<W> {
    fn call(&mut self, member: usize, ticket: Ticket, call: Call<Request>) {
        let endpoint = call.request.endpoint();
        let trouble = self.strike(member, Site::Call);
        let planned = match call.request {
            Request::Sync(_) => None,
            _ => self.comes(member, Site::Call, self.step_of(member)),
        };
        if let Some(leftover) = planned.filter(|it| it.effects == 0) {
            return self.crash_beside(member, leftover);
        }
        let wire = self.settings.wire;
        let dialect = &self.portal.settings().dialect;
        let time = self.portal_now().wall;
        let life = &mut self.lives[member];
        let there_ms = life.latency.within(self.settings.one_way_ms);
        let back_ms = life.latency.within(self.settings.one_way_ms);

        if life.host.defect() == Some(Defect::NeverSyncs) {
            return self.fails(member, ticket, there_ms, "no connection");
        }
        let fate = match trouble {
            Some(Trouble::Crash(_, Moment::Before)) => return self.crash(member),
            Some(Trouble::Unreachable) => {
                let after_ms = (life.trouble).pick([there_ms, CONNECT_SECONDS_MAX * 1_000]);
                return self.fails(member, ticket, after_ms, "no connection");
            }
            Some(Trouble::Refused(code)) => {
                let answer = trouble::refusal(code, endpoint, time, &mut life.trouble);
                let reply = Returned::in_place(answer, wire, dialect).into_reply(dialect, endpoint);
                let heard = Heard::Reply(Ok(reply));
                let what = What::Replied(ticket, Box::new(heard));
                return self.after(member, there_ms + back_ms, what);
            }
            Some(Trouble::AnswerLost) => Fate::Lost {
                after_ms: (life.trouble).pick([back_ms, REQUEST_SECONDS_MAX * 1_000 - there_ms]),
            },
            Some(Trouble::AnswerBroken) => Fate::Broken,
            Some(Trouble::ClockJumps) => {
                life.clock.jump(life.trouble.pick(JUMPS_MS));
                Fate::Heard
            }
            Some(Trouble::Crash(_, Moment::After)) => Fate::CrashAfter,
            _ => planned.map_or(Fate::Heard, Fate::CrashAs),
        };
        let parcel = match wire.pack(dialect, &life.host, call) {
            Ok(parcel) => parcel,
            Err(unsent) => {
                let what = What::Replied(ticket, Box::new(Heard::Reply(Err(unsent))));
                return self.after(member, 0, what);
            }
        };
        if let Some(Trouble::Crash(_, Moment::Inside)) = trouble {
            let crash_ms = life.trouble.below(there_ms + back_ms);
            self.after(member, crash_ms, What::Crash);
        }
        let sent = Box::new(Sent {
            ticket,
            endpoint,
            parcel,
            back_ms,
            fate,
        });
        self.after(member, there_ms, What::Arrives(sent));
    }

    /// A request reaches the portal.
    fn arrive(&mut self, member: usize, is_alive: bool, sent: Sent) {
        let Sent {
            ticket,
            endpoint,
            parcel,
            back_ms,
            fate,
        } = sent;
        let returned = parcel.deliver(&self.portal, self.portal_now());
        if !is_alive {
            return;
        }
        let dialect = &self.portal.settings().dialect;
        let heard = match fate {
            Fate::Lost { after_ms } => {
                return self.fails(member, ticket, after_ms, "the connection was cut");
            }
            Fate::Heard => Heard::Reply(Ok(returned.into_reply(dialect, endpoint))),
            Fate::Broken => {
                let chance = &mut self.lives[member].trouble;
                let broken = trouble::broken(returned.into_bytes(dialect), chance);
                Heard::Reply(Ok(Returned::Bytes(broken).into_reply(dialect, endpoint)))
            }
            Fate::CrashAfter => Heard::CrashBefore,
            Fate::CrashAs(leftover) => Heard::CrashAs(leftover),
        };
        self.after(member, back_ms, What::Replied(ticket, Box::new(heard)));
    }

    fn fails(&mut self, member: usize, ticket: Ticket, after_ms: u64, why: &'static str) {
        let heard = Heard::Reply(Err(Unreachable { why: why.into() }));
        self.after(member, after_ms, What::Replied(ticket, Box::new(heard)));
    }
}

/// The Lease.
impl<W: Watch<Agent>> Simulation<W> {
    fn lease(&mut self, member: usize, ticket: Ticket, call: LeaseCall, deadline: Deadline) {
        let now = self.clock.now();
        let trouble = self.strike(member, Site::Lease);
        let life = &mut self.lives[member];
        let left_ms = deadline.0.as_ms().saturating_sub(now.as_ms());
        let there_ms = (life.host.lease_cost_ms() / 2).min(left_ms);
        let fate = match trouble {
            Some(Trouble::Crash(_, Moment::Before)) => return self.crash(member),
            Some(Trouble::LeaseUnheard) => {
                return self.leased(member, ticket, left_ms, Err(unheard()));
            }
            Some(Trouble::LeaseAnswerLost) => Fate::Lost { after_ms: left_ms },
            Some(Trouble::Crash(_, Moment::After)) => Fate::CrashAfter,
            _ => Fate::Heard,
        };
        if let Some(Trouble::Crash(_, Moment::Inside)) = trouble {
            let crash_ms = life.trouble.below(2 * there_ms);
            self.after(member, crash_ms, What::Crash);
        }
        let asked = Asked { ticket, call, fate };
        self.after(member, there_ms, What::LeaseArrives(Box::new(asked)));
    }

    /// A question about the Lease reaches the API, whether or not somebody still waits for the answer.
    fn lease_arrives(&mut self, member: usize, is_alive: bool, asked: &Asked) {
        let &Asked {
            ticket,
            ref call,
            fate,
        } = asked;
        let life = &mut self.lives[member];
        let reply = life.host.lease(call, self.clock.now());
        let back_ms = life.host.lease_cost_ms() / 2;
        match fate {
            _ if !is_alive => {}
            Fate::Heard | Fate::Broken => self.leased(member, ticket, back_ms, reply),
            Fate::Lost { after_ms } => self.leased(member, ticket, after_ms, Err(unheard())),
            Fate::CrashAfter | Fate::CrashAs(_) => self.after(member, back_ms, What::Crash),
        }
    }

    fn leased(
        &mut self,
        member: usize,
        ticket: Ticket,
        after_ms: u64,
        reply: Result<LeaseReply, LeaseFailure>,
    ) {
        self.after(member, after_ms, What::Leased(ticket, Box::new(reply)));
    }
}

fn unheard() -> LeaseFailure {
    LeaseFailure {
        why: "nothing was said by the deadline".into(),
    }
}

/// By how much a node's clock is set when it is: within the skew and beyond it, by hours, by years.
const JUMPS_MS: [i64; 6] = [
    -1_000,
    30_000,
    -90_000,
    7_200_000,
    -86_400_000,
    157_788_000_000,
];

/// Writes and tasks.
impl<W: Watch<Agent>> Simulation<W> {
    fn store(&mut self, member: usize, ticket: Ticket, durable: Arc<Durable>) {
        let trouble = self.strike(member, Site::Store);
        if let Some(leftover) = self.comes(member, Site::Store, script::step_of(&durable)) {
            if leftover.effects > 0 {
                let disk = &mut self.lives[member].disk;
                disk.begin(durable);
                disk.finish();
            }
            return self.crash_beside(member, leftover);
        }
        if let Some(Trouble::Crash(_, Moment::Before)) = trouble {
            return self.crash(member);
        }
        let write_ms = self.settings.write_ms;
        let life = &mut self.lives[member];
        life.disk.begin(durable);
        let written = match trouble {
            Some(Trouble::StoreFails) => Written::Failed,
            Some(Trouble::Crash(_, Moment::After)) => Written::CrashAfter,
            _ => Written::Durably,
        };
        if let Some(Trouble::Crash(_, Moment::Inside)) = trouble {
            let crash_ms = life.trouble.below(write_ms);
            self.after(member, crash_ms, What::Crash);
        }
        self.after(member, write_ms, What::Stored(ticket, written));
    }

    fn perform(&mut self, member: usize, ticket: Ticket, task: Recorded<Task>, deadline: Deadline) {
        let trouble = self.strike(member, Site::Task);
        let planned = match &task.record().work {
            Work::Operation { step, .. } => self.comes(member, Site::Task, Some(*step)),
            Work::Enrollment { .. } | Work::Document { .. } | Work::Update { .. } => None,
        };
        if let Some(Trouble::Crash(_, Moment::Before)) = trouble {
            return self.crash(member);
        }
        let now = self.clock.now();
        let life = &mut self.lives[member];
        if let Some(Trouble::TaskFails) = trouble {
            life.running = Some((task, false));
            let fails_ms = life.trouble.within(FAILING_TASK_MS);
            return self.after(member, fails_ms, What::Performed(ticket, Ended::Failed));
        }
        let cost_ms = life.host.begin(task.record(), &task, now);
        life.running = Some((task, true));
        life.must_end = deadline.0;
        if let Some(leftover) = planned {
            return self.crash_as(member, leftover);
        }
        let left_ms = deadline.0.as_ms().saturating_sub(now.as_ms());
        let ended = match trouble {
            _ if cost_ms > left_ms => Ended::CutOff,
            Some(Trouble::Crash(_, Moment::After)) => Ended::CrashAfter,
            _ => Ended::ByItself,
        };
        if let Some(Trouble::Crash(_, Moment::Inside)) = trouble {
            let crash_ms = life.trouble.below(cost_ms.min(left_ms));
            self.after(member, crash_ms, What::Crash);
        }
        self.after(member, cost_ms.min(left_ms), What::Performed(ticket, ended));
    }

    fn task_ends(&mut self, member: usize, ticket: Ticket, ended: Ended) -> Result<(), TightLoop> {
        let now = self.clock.now();
        let life = &mut self.lives[member];
        let Some((task, _)) = life.running.take() else {
            return Ok(());
        };
        // Who was frozen in the middle of it finds its time over.
        let ended = match ended {
            Ended::ByItself if now > life.must_end => Ended::CutOff,
            ended => ended,
        };
        let failed = |message: &str| TaskFailure {
            message: message.to_owned(),
            log_tail: vec![LogLine::new(message)],
        };
        let result = match ended {
            Ended::ByItself => {
                let ended = life.host.finish(task.record(), &task, now);
                if let (Work::Operation { .. }, Some(script)) =
                    (&task.record().work, &mut life.script)
                {
                    script.task_ended(life.host.last_effects());
                }
                match ended {
                    host::Ended::Told(told) => {
                        self.watch_rollback(member);
                        told
                    }
                    host::Ended::WentDown => {
                        self.comes_back(member);
                        return Ok(());
                    }
                }
            }
            Ended::Failed => Err(failed("the node would not do it")),
            Ended::CutOff => Err(failed("it was not done by its deadline, and was cut off")),
            Ended::CrashAfter => {
                // What fails has no effect, and nobody is there to hear why.
                match life.host.finish(task.record(), &task, now) {
                    host::Ended::Told(_) => self.crash(member),
                    host::Ended::WentDown => self.comes_back(member),
                }
                return Ok(());
            }
        };
        self.tell(member, Input::Performed(ticket, result))
    }
}

/// How long systemd waits before it starts a program again that has ended (FILE-2).
const RESTART_MS: u64 = 5_000;
/// How long a task takes that fails without an effect.
const FAILING_TASK_MS: Spread = Spread::new(1, 5_000);
