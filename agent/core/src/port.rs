//! What a world must offer for a machine to live in it, in the machine's own words.
//!
//! Three worlds do: a node, a live fleet, a virtual clock. `std` futures only; nothing here is a runtime. The postman that
//! drives a machine over these ports stands on a higher floor.

use std::future::Future;
use std::sync::Arc;

use protocol::seal::Sealed;

use crate::journal::Recorded;
use crate::machine::{
    Action, Call, Evidence, FieldPath, Input, LeaseFailure, LogLine, Machine, StoreFailure,
    TaskFailure, Unopenable, Unreachable, Wake,
};
use crate::time::{Monotonic, Now};

/// The portal, as a machine reaches it.
pub trait Portal<M: Machine> {
    /// Signs, sends and reads one answer. Tries once: the machine decides whether and when again.
    fn call(
        &mut self,
        call: Call<M::Request>,
    ) -> impl Future<Output = Result<M::Reply, Unreachable>> + Send;
}

/// The node that a machine is responsible for. A clone is another handle to the same node.
pub trait Host<M: Machine>: Clone {
    /// What the node shows now.
    fn observe(&self) -> impl Future<Output = M::Observation> + Send;

    /// Whether all of these open, with any key that the node holds; the first that does not is named.
    fn open(
        &self,
        values: Vec<(FieldPath, Sealed)>,
    ) -> impl Future<Output = Result<(), Unopenable>> + Send;

    /// Does a task, and hands over its log as it grows.
    fn perform(
        &self,
        task: &Recorded<M::Task>,
        lines: impl FnMut(Vec<LogLine>) + Send,
    ) -> impl Future<Output = Result<M::Done, TaskFailure>> + Send;

    /// What the node shows of a task that was found started; changes nothing.
    fn probe(&self, task: &Recorded<M::Task>) -> impl Future<Output = Evidence<M::Done>> + Send;

    /// Asks about the lease, once.
    fn lease(
        &self,
        call: M::LeaseCall,
    ) -> impl Future<Output = Result<M::LeaseReply, LeaseFailure>> + Send;
}

/// Where a machine's durable record is kept.
pub trait Store<M: Machine> {
    /// Replaces the record atomically and durably (FILE-12).
    fn store(
        &mut self,
        durable: Arc<M::Durable>,
    ) -> impl Future<Output = Result<(), StoreFailure>> + Send;
}

/// A world's clocks.
pub trait Clock {
    /// Both of them, now.
    fn now(&self) -> Now;

    /// Waits until the monotonic one says so.
    fn sleep_until(&self, at: Monotonic) -> impl Future<Output = ()> + Send;
}

/// Taps at a machine's boundary: the same record of a run in every world.
pub trait Watch<M: Machine> {
    /// A machine starts from this record.
    fn boot(&mut self, _now: Now, _durable: &M::Durable) {}

    /// A machine is about to be told this.
    fn input(&mut self, _now: Now, _input: &Input<M>) {}

    /// A machine wants this done.
    fn action(&mut self, _now: Now, _action: &Action<M>) {}

    /// A machine's actions are drained, and this is its wake.
    fn wake(&mut self, _now: Now, _wake: Option<Wake>) {}
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl<M: Machine> Watch<M> for Unwatched {}
