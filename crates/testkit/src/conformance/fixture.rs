//! What a case is run against: how an instance is made, and what runs in it.

use std::path::PathBuf;

use async_trait::async_trait;
use groundcrew_core::{error::Error, instance::SharedInstance, wire::OsText};

use super::programs::Program;

/// What not every instance has; a case that needs it is skipped, and listed as such, where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Need {
    /// Processes with a terminal of their own.
    Terminals,
    /// Directories and files that processes and archives share.
    Files,
    /// Processes that start others.
    Trees,
    /// Instances that outlive the process that made them.
    Detached,
    /// Paths of the host that are the same inside.
    HostPaths,
    /// Instances that can be held to limits.
    Limits,
    /// Something that can be asked for or done for the sake of a case, such as damaging a store.
    Damage,
    /// Work that has a place outside of the workspace, such as a branch of another repository.
    Delivery,
}

impl Need {
    /// Returns the name that reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminals => "terminals",
            Self::Files => "files",
            Self::Trees => "trees",
            Self::Detached => "detached",
            Self::HostPaths => "host_paths",
            Self::Limits => "limits",
            Self::Damage => "damage",
            Self::Delivery => "delivery",
        }
    }
}

/// What the cases are run against.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Makes a fresh instance, to which no environment was handed over. Taking it away again is the fixture's business.
    async fn instance(&self) -> Result<SharedInstance, Error>;

    /// Returns the command that does this inside.
    fn command(&self, program: &Program<'_>) -> Vec<OsText>;

    /// Returns the variables without which no command is found, such as `PATH`.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// Returns a directory that exists inside and may be written to.
    fn directory(&self) -> PathBuf;

    /// Returns whether the instance has something.
    fn has(&self, need: Need) -> bool;
}
