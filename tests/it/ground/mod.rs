//! The ground that a test stands on: a directory of its own with a home, a state directory and repositories.
//!
//! Nothing of the machine's own configuration reaches the command: the environment is empty but for `PATH` and a few names
//! that point below the test's own directory. At its end a ground ends everything that it finds below itself, and a process
//! that the product should have ended fails the test.

mod call;
mod engine;
mod job;
mod leaks;
mod length;
mod network;
mod outcome;
mod place;
mod processes;
mod relay;
mod repository;
mod terminal;
mod waiting;

pub(crate) use call::Call;
pub(crate) use engine::{Engine, IMAGE};
pub(crate) use job::Job;
pub(crate) use leaks::Leaks;
pub(crate) use length::is_whole;
pub(crate) use network::Network;
pub(crate) use outcome::{Outcome, path, text};
pub(crate) use place::Ground;
pub(crate) use processes::is_alive;
pub(crate) use relay::{Asked, Deed, Relay, answer};
pub(crate) use repository::{Repository, tree};
pub(crate) use terminal::Terminal;
pub(crate) use waiting::{DEADLINE, until, until_within};
