//! Everything that an agent decides, as a pure machine: no clock, no chance and no IO of its own.
//!
//! A world (a node, a live fleet, a virtual clock) gives it inputs and time, and carries out its actions. The machine
//! cannot tell which world it lives in, and knows no fault and no scenario.
//!
//! | Module | What it says |
//! |---|---|
//! | [`machine`] | the face: inputs, actions, wakes, and the one rule of their use |
//! | [`port`] | what a world must offer |
//! | [`journal`] | what is on disk, and therefore what may be done |
//! | [`time`], [`seed`] | two clocks that cannot be mixed; chance that can be repeated |
//! | [`limits`] | every number of an agent's behaviour |
//! | [`backoff`] | the one wait after a failure |
//! | [`note`] | what is worth knowing |
//! | [`pbx`] | the agent of the portal protocol |
//!
//! Rule IDs (ANS-8, OPS-2 …) are explained in `docs/rules.md`.

pub mod backoff;
pub mod journal;
pub mod limits;
pub mod machine;
pub mod note;
pub mod pbx;
pub mod port;
pub mod seed;
pub mod time;
