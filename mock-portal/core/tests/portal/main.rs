//! The portal's machine from outside: requests and verbs in, answers and changes out.

#![expect(
    clippy::unwrap_used,
    clippy::redundant_clone,
    clippy::type_complexity,
    clippy::semicolon_if_nothing_returned,
    reason = "tests read as examples; a failed unwrap is a failed test"
)]

mod documents;
mod enrollment;
mod lab;
mod operations;
mod order;
mod rotation;
mod signing;
