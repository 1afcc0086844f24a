//! Simulated nodes: a model of a node, of the Kubernetes API it shares with its cluster, and of its disk.
//!
//! The same agent engine that runs on a node runs over these. A model answers from its state, never from a list of
//! canned answers: what a task comes to depends on what happened before it, and a crash leaves the node as a crash would.
//! Nothing here waits: a task has a *cost* in milliseconds that whoever owns the clock pays.
//!
//! - [`disk`]: what survives a crash.
//! - [`cluster`]: the Kubernetes API and what lies behind it, shared by the servers of a cluster.
//! - [`addons`]: what is in a cluster of its add-ons, and what controllers make of it.
//! - [`host`]: one server; [`signing`]: its key.
//! - [`trace`]: what goes through an agent's machine, as events; [`referee`]: rules that hold in every run, judged on them.

pub mod addons;
pub mod clock;
pub mod cluster;
pub mod disk;
pub mod host;
pub mod referee;
pub mod signing;
pub mod simulation;
pub mod trace;
