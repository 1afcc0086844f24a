//! A simulated node in real time: what a task costs is waited for, what it comes to is the model's answer.
//!
//! The model ([`SimHost`]) never waits; this is the only thing that does. A crash is dropping what waits, and telling the
//! model what was under way.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::journal::{Recorded, StepRecord};
use agent_core::machine::{
    Evidence, FieldPath, KeyHandle, LeaseFailure, LogLine, StoreFailure, TaskFailure, Unopenable,
};
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::pbx::facts::Observation;
use agent_core::pbx::lease::{LeaseCall, LeaseReply};
use agent_core::pbx::task::{Done, Task};
use agent_core::port::{Clock as _, Host, Store};
use agent_core::time::Monotonic;
use agent_drive::{Signer, SystemClock};
use fleet_sim::disk::{InFlight, SimDisk};
use fleet_sim::host::{Ended, Fall, Leftover, SimHost};
use protocol::id::AgentVersion;
use protocol::seal::Sealed;
use protocol::sign::Signature;
use tokio::sync::Notify;

use crate::population::Member;

/// A node and its disk. A clone is another handle to the same ones.
#[derive(Debug, Clone)]
pub struct Node(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    host: Mutex<SimHost>,
    disk: Mutex<SimDisk<Durable>>,
    /// The task that runs; none between two.
    running: Mutex<Option<Box<(StepRecord, Task)>>>,
    clock: SystemClock,
    write_ms: u64,
    member: Arc<Member>,
    /// The node has gone down, as a task of it was to do.
    went_down: Notify,
    /// The rollback timer was armed or disarmed.
    armed: Notify,
}

/// What a crash leaves of what was under way.
#[derive(Debug, Clone, Copy)]
pub struct CrashLeaves {
    /// Of a task.
    pub task: Leftover,
    /// Of a write.
    pub write: InFlight,
}

impl Node {
    /// A member's node, with what is kept of it on its disk. A durable write takes `write_ms`.
    pub fn new(host: SimHost, member: Arc<Member>, clock: SystemClock, write_ms: u64) -> Self {
        let kept = member.kept.as_ref();
        let durable = kept.map_or_else(Durable::default, |kept| kept.durable());
        Self(Arc::new(Parts {
            host: Mutex::new(host),
            disk: Mutex::new(SimDisk::new(durable)),
            running: Mutex::new(None),
            clock,
            write_ms,
            member,
            went_down: Notify::new(),
            armed: Notify::new(),
        }))
    }

    /// The durable record: what the next boot begins with.
    pub fn durable(&self) -> Arc<Durable> {
        lock(&self.0.disk).read()
    }

    /// The agent program that is started next, or runs.
    pub fn agent_version(&self) -> AgentVersion {
        self.host().agent_version().clone()
    }

    /// The version that the rollback timer has put back (UPD-3).
    pub fn rolled_back_from(&self) -> Option<AgentVersion> {
        self.host().rolled_back_from()
    }

    /// Waits until the rollback timer has put the previous program back; what runs is to be dropped (UPD-2).
    pub async fn rolls_back(&self) {
        loop {
            let armed = self.0.armed.notified();
            let fires_at = self.host().rolls_back_at();
            match fires_at {
                None => armed.await,
                Some(at) => tokio::select! {
                    () = armed => {}
                    () = self.0.clock.sleep_until(at) => {
                        let now = self.now();
                        let mut host = self.host();
                        let is_due = host.rolls_back_at().is_some_and(|at| at <= now);
                        if is_due && host.roll_back() {
                            break;
                        }
                    }
                },
            }
        }
        lock(&self.0.disk).crash(InFlight::Lost);
        *lock(&self.0.running) = None;
    }

    /// Whether the enrollment token is gone from the node's configuration.
    pub fn has_dropped_token(&self) -> bool {
        self.host().token_dropped()
    }

    /// The node has crashed, and its power comes back.
    pub fn crash(&self, leaves: CrashLeaves) {
        lock(&self.0.disk).crash(leaves.write);
        let under_way = lock(&self.0.running).take();
        let now = self.now();
        match under_way.map(|boxed| *boxed) {
            Some((record, task)) => {
                self.host().interrupt(&record, &task, leaves.task, now);
            }
            None => self.host().fall(leaves.task.fall, now),
        }
    }

    /// Waits until the node goes down by itself: as a task of it is to do, or on its way back from an upgrade that nobody
    /// has kept (OP-6). Its power has come back then; what ran on it is to be dropped.
    pub async fn goes_down(&self) {
        let goes_back = async {
            let at = self.host().goes_back_at();
            match at {
                Some(at) => self.0.clock.sleep_until(at).await,
                None => pending().await,
            }
            let now = self.now();
            let mut host = self.host();
            let is_due = host.goes_back_at().is_some_and(|at| at <= now);
            if is_due {
                host.fall(Fall::Power, now);
            }
            is_due
        };
        tokio::select! {
            () = self.0.went_down.notified() => {}
            is_due = goes_back => if !is_due {
                self.0.went_down.notified().await;
            }
        }
        lock(&self.0.disk).crash(InFlight::Lost);
        *lock(&self.0.running) = None;
    }

    fn host(&self) -> MutexGuard<'_, SimHost> {
        lock(&self.0.host)
    }

    fn now(&self) -> Monotonic {
        self.0.clock.now().monotonic
    }

    /// What costs nothing takes no turn of the timer either.
    async fn pass(&self, ms: u64) {
        if ms == 0 {
            return;
        }
        self.0.clock.sleep_until(self.now().plus_ms(ms)).await;
    }
}

/// Nothing here panics while it holds a lock; if it did, the member's task has ended and nobody reads on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host<Agent> for Node {
    async fn observe(&self) -> Observation {
        self.host().observe(self.now())
    }

    async fn open(&self, values: Vec<(FieldPath, Sealed)>) -> Result<(), Unopenable> {
        self.host().open(&values)
    }

    async fn perform(
        &self,
        task: &Recorded<Task>,
        _: impl FnMut(Vec<LogLine>) + Send,
    ) -> Result<Done, TaskFailure> {
        let cost_ms = self.host().begin(task.record(), task, self.now());
        *lock(&self.0.running) = Some(Box::new((task.record().clone(), Task::clone(task))));
        self.pass(cost_ms).await;
        *lock(&self.0.running) = None;
        let ended = self.host().finish(task.record(), task, self.now());
        if matches!(**task, Task::ArmRollback { .. } | Task::CommitProgram) {
            self.0.armed.notify_one();
        }
        let done = match ended {
            Ended::Told(told) => told?,
            Ended::WentDown => {
                self.0.went_down.notify_one();
                pending().await
            }
        };
        if let (Task::StoreBootstrap(answer), Some(kept)) = (&**task, &self.0.member.kept) {
            kept.bootstrapped(answer);
        }
        Ok(done)
    }

    async fn lease(&self, call: LeaseCall) -> Result<LeaseReply, LeaseFailure> {
        let cost_ms = self.host().lease_cost_ms();
        self.pass(cost_ms).await;
        self.host().lease(&call, self.now())
    }

    async fn probe(&self, task: &Recorded<Task>) -> Evidence<Done> {
        self.host().probe(task.record(), task)
    }
}

impl Store<Agent> for Node {
    async fn store(&mut self, durable: Arc<Durable>) -> Result<(), StoreFailure> {
        lock(&self.0.disk).begin(durable);
        self.pass(self.0.write_ms).await;
        lock(&self.0.disk).finish();
        let member = &self.0.member;
        if let Some(kept) = &member.kept {
            kept.write(member, &self.durable());
        }
        Ok(())
    }
}

impl Signer for Node {
    fn sign(&self, key: &KeyHandle, bytes: &[u8]) -> Option<Signature> {
        self.host().sign(key, bytes)
    }
}
