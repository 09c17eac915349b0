//! What secret stores promise, shown from outside.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what tests share between them may fail as a test does"
)]

mod bad_input;
mod canary;
mod contract;
mod damage;
mod deadline;
mod disk;
mod environment;
mod helper_command;
mod keys;
mod processes;
mod rotation;
mod runtime;
mod support;
