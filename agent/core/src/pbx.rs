//! The agent of the portal protocol.
//!
//! [`Agent`] owns order, the lanes own rules: it routes inputs to lanes and says whose turn it is.
//!
//! | Module | What it decides |
//! |---|---|
//! | [`facts`], [`boot`], [`task`], [`lease`], [`durable`] | nothing: what an agent is told, asks of its host and of its cluster, and keeps |
//! | `agent` | whose turn it is |
//! | `pace` | when this agent may call at all; the table of answers |
//! | `enroll` | from a token to an identity and a node that runs |
//! | `sync` | when a report is due, and what it says |
//! | `document`, `converge` | taking the desired state; putting it into force |
//! | `manifest` | which manifest is believed |
//! | `update` | replacing the agent's own program, and leaving alone what failed |
//! | `lead` | which of a cluster's agents may change its configuration |
//! | `window` | whether a moment lies in the maintenance window, and when the next one begins |
//! | [`k3s`] | what k3s reads of the agent: drop-ins as text, Secrets key by key |
//! | [`addon`] | add-ons: what they may consist of, their table of decisions, a round over them |
//! | `operate` | which operations are begun, and carrying them out step by step |
//! | `steps`, `rotate` | what each step does, a file a family; a rotation of the keys |
//! | [`diagnostics`] | what a diagnostic bundle may hold |
//! | `events`, `deliver` | what an operation leaves behind; how the portal gets it |
//! | `shared` | nothing: what all lanes share |

pub mod addon;
mod agent;
pub mod boot;
mod converge;
mod deliver;
pub mod diagnostics;
mod document;
pub mod durable;
mod enroll;
mod events;
pub mod facts;
pub mod k3s;
mod lead;
pub mod lease;
mod manifest;
mod operate;
mod pace;
mod rotate;
mod shared;
mod steps;
mod sync;
pub mod task;
mod update;
mod window;

pub use agent::Agent;
