//! What every part of the upkeep works with.

use std::path::PathBuf;

use groundcrew_core::id::InstallId;

use crate::{
    config::GitProgram,
    files::{lock::RepositoryLocks, trash::Trash},
};

/// Where everything is that outlives runs.
#[derive(Clone, Debug)]
pub struct UpkeepConfig {
    /// The directory of all worktrees and clones.
    pub worktrees: PathBuf,
    /// The directory of all tasks.
    pub tasks: PathBuf,
    /// The directory of all sessions' directories.
    pub sessions: PathBuf,
    /// The trash.
    pub trash: PathBuf,
    /// The directory of lock files.
    pub locks: PathBuf,
    /// The git program, which deletes snapshots.
    pub git: GitProgram,
    /// The installation.
    pub install: InstallId,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) config: UpkeepConfig,
    pub(super) trash: Trash,
    pub(super) locks: RepositoryLocks,
}
