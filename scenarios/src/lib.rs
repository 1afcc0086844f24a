//! The scenario file: what a run does, and what is expected of it.
//!
//! [`Scenario::parse`] takes a file's text and gives either a scenario that needs no further check or *all* of its
//! mistakes at once, each with line, column and a suggestion. Three types carry it: as written (every value with its
//! place), merged with what the command line sets otherwise, valid. Nothing here reads a file, waits or draws a number:
//! where chance is needed a draw is an argument.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`mistake`] | what is wrong with a file, for a person and for a program |
//! | `form`, `written` | the file's form: declared once, which gives the reader and the JSON Schema |
//! | [`scenario`] | the valid scenario, and how one is made from what is written |
//! | [`population`] | who the agents are and how they arrive |
//! | [`node`] | what a simulated node costs, and how it fails |
//! | [`portal`] | the embedded portal and its documents |
//! | [`timeline`] | what happens when |
//! | [`expect`] | what is expected, and judging it |
//! | [`referees`] | which referees a run owes, and what they need |
//! | [`judge`] | the verdict on a whole run |
//! | [`share`] | a part of a whole, and whom it takes |
//! | [`shipped`] | the scenarios that come with the program |

pub mod expect;
mod form;
pub mod judge;
pub mod mistake;
pub mod node;
pub mod population;
pub mod portal;
pub mod referees;
pub mod scenario;
pub mod share;
pub mod shipped;
pub mod timeline;
mod written;

pub use expect::{Evidence, Expectation};
pub use mistake::{Mistake, Mistakes};
pub use node::{Cost, NodeModel, Spread};
pub use population::{Arrival, Population, Stage};
pub use portal::{DocumentSpec, PortalSpec, Profile};
pub use referees::{Host, RefereeNumber, Referees};
pub use scenario::{GeneratorLimits, Overrides, Scenario, schema};
pub use share::Share;
pub use timeline::{Action, OperationSpec, ReleaseSpec, ServerOf, TimelineEntry};
