//! Fleets in virtual time, from outside: what goes wrong, what comes of it, and that it can be repeated.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

mod addons;
mod herd;
mod lab;
mod leaders;
mod mixed;
mod property;
mod seeds;
mod update;
