//! The portal's machine from outside: requests and verbs in, answers and changes out.

mod documents;
mod enrollment;
mod lab;
mod operations;
mod order;
mod rotation;
mod signing;
