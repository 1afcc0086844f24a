//! How an agent behaves, seen from outside: inputs, actions, wakes, and what is on disk.
//!
//! [`world`] is a postman in one thread with a clock that is moved by hand. Each module reads as examples of one lane's
//! rules; a test that carries a rule's ID turns red when that rule is turned off.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

mod addon;
mod deliver;
mod document;
mod durable;
mod enroll;
mod kinds;
mod lead;
mod loss;
mod operate;
mod pace;
mod property;
mod restart;
mod rotate;
mod sync;
mod update;
mod upgrade;
mod world;
