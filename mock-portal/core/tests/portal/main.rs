//! The portal's machine from outside: requests and verbs in, answers and changes out.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

mod control;
mod documents;
mod enrollment;
mod lab;
mod memory;
mod operations;
mod order;
mod rotation;
mod signing;
