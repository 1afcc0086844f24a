//! The live screen of a run: what a person sees in the terminal while it goes on, and again when it is over.
//!
//! [`Screen`] is pure: snapshots, lines of the log and keys go in, a drawing and wishes come out. It is drawn from
//! [`record::Snapshot`] alone, so it cannot show what the result does not know. [`Terminal`] is the one part that touches a
//! terminal, and gives it back as it was, whatever happens. Who reads keys and when something is drawn is the program's
//! business.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`screen`] | the state: what was seen, which view, frozen or not |
//! | [`past`] | the last ten minutes, a point for each second |
//! | [`look`] | colours or none, and the characters of plain terminals |
//! | `text` | words, bars and curves in cells |
//! | `views` | what each view says |
//! | [`replay`] | a finished run on the same screen: where it is, playing or not |
//! | [`picture`] | the screen as an SVG, for documents |
//! | [`key`] | keys, and the bytes that a terminal sends for them |
//! | [`terminal`] | the terminal itself |

pub mod key;
pub mod look;
pub mod past;
pub mod picture;
pub mod replay;
pub mod screen;
pub mod terminal;
mod text;
mod views;

pub use key::Key;
pub use look::Look;
pub use replay::Replay;
pub use screen::{Screen, Wish};
pub use terminal::Terminal;
