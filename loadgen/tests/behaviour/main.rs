//! What `loadgen` does, seen from outside: the real program, run on small fleets that hurry.
//!
//! One test program, so that it is linked once. Fleets are a few agents at a hundredth of a node's pace: a run that shows
//! something takes two or three seconds, and tests run beside each other. What a figure is, and when it holds, is tested
//! where it is computed; here it is what a person, a script or a pipeline meets.
//!
//! | Module | What it asks |
//! |---|---|
//! | [`exits`] | does every exit code happen, and mean what it says |
//! | [`bad_input`] | what is told about input that cannot be meant, and is nothing left behind |
//! | [`foreign`] | a portal that somebody else runs: tokens, keys, refusals |
//! | [`liars`] | portals that lie, lose answers, forget, or fall silent under load |
//! | [`load`] | do a thousand get what five get, and is it counted as it was asked for |
//! | [`ends`] | Ctrl-C, once and twice, before and while it runs |
//! | [`output`] | stdout, stderr, colours, `result.json` |
//! | [`commands`] | what the commands beside `run` and `check` answer |
//! | [`screen`] | the live screen: the terminal before and after, the report, hang-ups |
//! | [`shards`] | a fleet in several processes: the same fleet, and one that loses a part |
//! | [`program`], [`portal`] | the program in a folder of its own; a portal and what stands before it |

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

mod bad_input;
mod commands;
mod ends;
mod exits;
mod foreign;
mod liars;
mod load;
mod output;
mod portal;
mod program;
mod screen;
mod shards;
