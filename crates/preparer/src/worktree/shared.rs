//! The state of the worktree preparer.

use std::sync::Arc;

use groundcrew_core::error::Error;

use crate::{
    config::WorktreeConfig,
    files::{lock::RepositoryLocks, trash::Trash},
};

/// What all calls share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: WorktreeConfig,
    pub(super) locks: RepositoryLocks,
    pub(super) trash: Trash,
}

impl Shared {
    pub(super) fn new(config: WorktreeConfig) -> Self {
        Self {
            locks: RepositoryLocks::new(&config.locks),
            trash: Trash::new(config.trash.clone()),
            config,
        }
    }

    /// Runs what may block on a thread for that.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(self);
        crate::files::blocking(move || work(&shared)).await
    }
}
