//! Add-ons: from what a document switches on or off to what is in the cluster (ADD-1 to ADD-17).
//!
//! | Module | What it says |
//! |---|---|
//! | [`object`] | what an add-on may consist of; there is no way to name anything else |
//! | [`render`](mod@render) | from a template to objects |
//! | [`seen`] | what a look at the cluster shows, and what is kept on disk of what was applied |
//! | `table` | the decision table: facts come to a state, a message and one thing to do |
//! | `order` | what is required comes first; cycles |
//! | `plan` | a round: a look, then each add-on in its order by the table |

pub mod object;
mod order;
mod plan;
pub mod render;
pub mod seen;
mod table;

pub(super) use plan::Addons;
