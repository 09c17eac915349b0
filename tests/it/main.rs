//! Whole-system tests of the command; one module for each theme.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that meets what it does not expect has failed"
)]

mod agents;
mod bad_input;
mod busy;
mod concurrency;
mod controller_death;
mod conversations;
mod detached;
mod docker;
mod docker_adoption;
mod docker_endurance;
mod docker_faults;
mod docker_outage;
mod docker_replies;
mod docker_secrets;
mod documents;
mod elsewhere;
mod environment;
mod exec;
mod faults;
mod ground;
mod handshakes;
mod hostile;
mod isolation;
mod joining;
mod limits;
mod naming;
mod real_agents;
mod redaction;
mod removal;
mod repositories;
mod restoring;
mod resume;
mod run;
mod scripts;
mod secret;
mod sessions;
mod signals;
mod state_directory;
mod streams;
mod terminal;
mod variables;
mod volumes;
mod watching;
mod workspaces;
