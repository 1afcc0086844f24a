//! The live fleet: many agents in one process, each the real engine over a simulated node, over real connections.
//!
//! A scenario says who they are, when they begin and what happens; this runs them, counts every request once, and hands
//! back one result. It decides nothing about the protocol and gives no verdict: that is `scenario`'s and `record`'s.
//!
//! How a run flows through the modules:
//!
//! | Module | What it is |
//! |---|---|
//! | [`run`] | one run from its preflight to its start |
//! | `course` | the run under way: the time line, a look each second, the sum at the end |
//! | [`shard`] | the agents of a part of the fleet |
//! | [`worker`] | a shard or a portal, in this process or in one of its own |
//! | [`forecast`] | what a scenario is going to do, before anything runs |
//! | [`preflight`], [`usage`], `headroom` | what it needs of its machine, what it takes, how near it came to the limits |
//! | [`embedded`], [`foreign`] | the portal that it starts itself; tokens and keys for another one |
//! | [`identities`] | agents that outlive a run, in a folder |
//! | [`population`] | who the agents are: everything that comes from seed and index |
//! | [`live`], [`node`], [`shelf`] | the life of one member; its simulated node in real time; what members share |
//! | [`tally`], [`complaint`] | what is counted meanwhile; what agents complained of |

pub mod complaint;
mod course;
pub mod embedded;
pub mod forecast;
pub mod foreign;
mod headroom;
pub mod identities;
pub mod live;
pub mod node;
pub mod population;
pub mod preflight;
pub mod run;
pub mod shard;
pub mod shelf;
pub mod tally;
pub mod usage;
pub mod worker;
