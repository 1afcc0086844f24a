//! The agent of the portal protocol.
//!
//! [`agent`] owns order, the lanes own rules: it routes inputs to lanes and says whose turn it is, and nothing else.
//!
//! | Module | What it decides |
//! |---|---|
//! | [`facts`], [`task`], [`durable`] | what an agent is told, asks of its host, and keeps |

pub mod durable;
pub mod facts;
pub mod task;
