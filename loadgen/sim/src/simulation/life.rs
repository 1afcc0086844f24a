//! One member of a simulation: a node with its disk, its clock and its agent, through all of its starts.

use std::collections::BTreeMap;

use agent_core::journal::Recorded;
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::pbx::facts::BootFacts;
use agent_core::pbx::task::Task;
use agent_core::seed::Seed;
use agent_core::time::{Monotonic, Now};
use protocol::id::ClusterId;

use super::INPUTS_MAX;
use super::chance::{Chance, Purpose};
use super::script::Script;
use super::trouble::{Blow, Site, Trouble};
use crate::clock::NodeClock;
use crate::disk::{InFlight, SimDisk};
use crate::host::{Fall, Leftover, SimHost};

/// A member.
pub(super) struct Life<W> {
    facts: BootFacts,
    pub(super) host: SimHost,
    pub(super) disk: SimDisk<Durable>,
    pub(super) clock: NodeClock,
    pub(super) watch: W,
    /// None while the power is off.
    pub(super) machine: Option<Agent>,
    /// Which start this is, or will be. What was begun in an earlier one is nobody's any more.
    pub(super) boot: u32,
    pub(super) alarm: Alarm,
    /// The task under way; whether the host has begun it.
    pub(super) running: Option<(Recorded<Task>, bool)>,
    /// By when the task under way must have ended.
    pub(super) must_end: Monotonic,
    frozen_until: Monotonic,
    pub(super) blow: Option<Box<Blow>>,
    /// What the next crash leaves, if that is settled.
    leaves: Option<(Leftover, InFlight)>,
    boots: Chance,
    pub(super) boot_time: Chance,
    pub(super) latency: Chance,
    pub(super) trouble: Chance,
    leftovers: Chance,
    pub(super) struck: BTreeMap<Trouble, u64>,
    pub(super) last_trouble: Option<Monotonic>,
    pub(super) busy: Busy,
    /// Crashes that are planned, where there are any.
    pub(super) script: Option<Box<Script>>,
}

/// How much an agent was told within one millisecond.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Busy {
    at: Monotonic,
    inputs: u32,
}

impl Busy {
    /// One more thing; whether that is more than anybody asks for without any time passing.
    pub(super) fn is_too_much(&mut self, now: Monotonic) -> bool {
        if self.at != now {
            *self = Self { at: now, inputs: 0 };
        }
        self.inputs += 1;
        self.inputs > INPUTS_MAX
    }
}

/// The tick that an agent is waiting for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alarm {
    at: Option<Monotonic>,
    number: u32,
}

impl Alarm {
    /// Sets it; the number to schedule, if it was not set for that moment before.
    pub(super) fn set(&mut self, at: Option<Monotonic>) -> Option<(Monotonic, u32)> {
        if self.at == at {
            return None;
        }
        self.at = at;
        self.number = self.number.wrapping_add(1);
        at.map(|at| (at, self.number))
    }

    /// A tick comes; whether it is the one that is waited for.
    pub(super) fn rings(&mut self, number: u32) -> bool {
        let rings = self.number == number && self.at.is_some();
        if rings {
            self.at = None;
        }
        rings
    }
}

impl<W> Life<W> {
    pub(super) fn new(
        seed: u64,
        member: u64,
        facts: BootFacts,
        host: SimHost,
        clock: NodeClock,
        watch: W,
    ) -> Self {
        let chance = |purpose| Chance::new(seed, member, purpose);
        Self {
            facts,
            host,
            disk: SimDisk::new(Durable::default()),
            clock,
            watch,
            machine: None,
            boot: 0,
            alarm: Alarm::default(),
            running: None,
            must_end: Monotonic::default(),
            frozen_until: Monotonic::default(),
            blow: None,
            leaves: None,
            boots: chance(Purpose::Boots),
            boot_time: chance(Purpose::BootTime),
            latency: chance(Purpose::Latency),
            trouble: chance(Purpose::Trouble),
            leftovers: chance(Purpose::Leftovers),
            struck: BTreeMap::new(),
            last_trouble: None,
            busy: Busy::default(),
            script: None,
        }
    }

    pub(super) fn cluster(&self) -> &ClusterId {
        &self.facts.config.cluster_id
    }

    /// Its agent does nothing until then.
    pub(super) fn freeze(&mut self, until: Monotonic) {
        self.frozen_until = self.frozen_until.max(until);
        self.last_trouble = self.last_trouble.max(Some(self.frozen_until));
    }

    /// The crash that was ordered, if this is its point.
    pub(super) fn blow_at(&mut self, site: Site) -> Option<Trouble> {
        let blow = self.blow.as_deref_mut().filter(|blow| blow.site == site)?;
        if blow.passes > 0 {
            blow.passes -= 1;
            return None;
        }
        let blow = self.blow.take()?;
        self.leaves = Some((blow.leaves, blow.write));
        Some(Trouble::Crash(site, blow.moment))
    }

    /// Until when its agent does nothing, if it is frozen.
    pub(super) fn is_frozen_until(&self, now: Monotonic) -> Option<Monotonic> {
        (self.frozen_until > now).then_some(self.frozen_until)
    }

    /// The seed of the next start.
    pub(super) fn boot_seed(&mut self) -> Seed {
        Seed(self.boots.draw())
    }

    /// What the agent is told at its start.
    pub(super) fn facts(&self) -> BootFacts {
        let mut facts = self.facts.clone();
        facts.agent_version = self.host.agent_version().clone();
        facts.rolled_back_from = self.host.rolled_back_from();
        if self.host.token_dropped() {
            facts.config.token = None;
        }
        facts
    }

    /// A crash of the program or of the node; what was under way is left as a node could leave it.
    pub(super) fn crash(&mut self, now: Now, what: Option<Fall>) {
        let effects = self.leftovers.pick([0, 1, 2, 3, u32::MAX]);
        let drawn = self.leftovers.pick([Fall::Program, Fall::Power]);
        let leftover = Leftover {
            effects,
            fall: what.unwrap_or(drawn),
        };
        let write = self.leftovers.pick([InFlight::Lost, InFlight::Kept]);
        let (leftover, write) = self.leaves.take().unwrap_or((leftover, write));
        self.disk.crash(write);
        match self.running.take() {
            Some((task, true)) => {
                self.host
                    .interrupt(task.record(), &task, leftover, now.monotonic);
            }
            Some((_, false)) | None => self.host.fall(leftover.fall, now.monotonic),
        }
        self.end_boot();
    }

    /// The same, as it was planned: nothing else that is under way is done.
    pub(super) fn crash_as(&mut self, now: Now, leftover: Leftover) {
        self.disk.crash(InFlight::Lost);
        match self.running.take() {
            Some((task, true)) => {
                self.host
                    .interrupt(task.record(), &task, leftover, now.monotonic);
            }
            Some((_, false)) | None => self.host.fall(leftover.fall, now.monotonic),
        }
        self.end_boot();
    }

    /// The node has gone down by itself, and the agent with it.
    pub(super) fn went_down(&mut self) {
        self.disk
            .crash(self.leftovers.pick([InFlight::Lost, InFlight::Kept]));
        self.running = None;
        self.end_boot();
    }

    /// The program ends by itself, between two tasks.
    pub(super) fn exit(&mut self) {
        self.running = None;
        self.end_boot();
    }

    fn end_boot(&mut self) {
        self.machine = None;
        self.frozen_until = Monotonic::default();
        self.alarm.set(None);
        self.boot += 1;
    }

    /// A failed write: the new record may be on the disk all the same.
    pub(super) fn fail_store(&mut self) {
        match self.leftovers.pick([InFlight::Lost, InFlight::Kept]) {
            InFlight::Lost => self.disk.fail(),
            InFlight::Kept => self.disk.finish(),
        }
    }

    pub(super) fn strike(&mut self, trouble: Trouble, now: Monotonic) {
        *self.struck.entry(trouble).or_default() += 1;
        self.last_trouble = self.last_trouble.max(Some(now));
    }
}
