//! Whole-system tests of the command; one module for each theme.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that meets what it does not expect has failed"
)]

mod agents;
mod bad_input;
mod concurrency;
mod controller_death;
mod detached;
mod docker;
mod documents;
mod environment;
mod faults;
mod ground;
mod isolation;
mod naming;
mod redaction;
mod removal;
mod resume;
mod run;
mod secret;
mod signals;
mod state_directory;
mod streams;
mod terminal;
mod variables;
mod workspaces;
