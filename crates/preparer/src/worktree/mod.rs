//! The preparer of git worktrees: one repository, a branch of its own, and nothing lost when it goes.

mod directory;
mod look;
mod make;
mod plan;
mod report;
mod resource;
mod shared;
mod undo;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::PreparerName,
    identity::Presence,
    instance::Instance,
    preparer::{ApplyContext, Contribution, Found, PlanContext, Preparer},
    undo::{Assessment, UndoOptions, UndoRecord, Undone},
    workspace::{Workspace, WorkspaceReport, WorkspaceRequest},
};

use self::shared::Shared;
use crate::{config::WorktreeConfig, files::lock::lock_directory};

/// How long an undo waits for a git process of the launch that is still at work.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes a git worktree for each run, and removes it when its work survives elsewhere.
#[derive(Clone, Debug)]
pub struct WorktreePreparer {
    name: PreparerName,
    shared: Arc<Shared>,
}

impl WorktreePreparer {
    /// Makes the preparer `worktree`; touches nothing yet.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a directory of the configuration is not absolute.
    pub fn new(config: WorktreeConfig) -> Result<Self, Error> {
        for path in [&config.worktrees, &config.trash, &config.locks] {
            if !path.is_absolute() {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a directory of the worktree preparer is not absolute",
                )
                .with("path", path.display()));
            }
        }
        Ok(Self {
            name: PreparerName::new("worktree")?,
            shared: Arc::new(Shared::new(config)),
        })
    }

    /// Deletes trees that have been in the trash for longer than that; returns how many.
    ///
    /// # Errors
    ///
    /// That of the first one that cannot be deleted; it stays, and so do those after it.
    pub async fn expire_trash(&self, older_than: Duration) -> Result<usize, Error> {
        self.shared
            .blocking(move |shared| shared.trash.expire(older_than))
            .await
    }
}

#[async_trait]
impl Preparer for WorktreePreparer {
    fn name(&self) -> &PreparerName {
        &self.name
    }

    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        let WorkspaceRequest::Worktree(spec) = &cx.request.workspace else {
            return Ok(None);
        };
        let wanted = plan::Wanted {
            preparer: self.name.clone(),
            spec: spec.clone(),
            title: cx.request.title.clone(),
            given: cx.request.environment.clone(),
            install: cx.install.clone(),
            run: cx.run.clone(),
            attempt: cx.attempt,
        };
        self.shared
            .blocking(move |shared| plan::plan(shared, &wanted).map(Some))
            .await
    }

    async fn reopen(
        &self,
        workspace: &Workspace,
        cx: PlanContext<'_>,
    ) -> Result<Contribution, Error> {
        let workspace = workspace.clone();
        let given = cx.request.environment.clone();
        self.shared
            .blocking(move |shared| {
                report::reopen(shared, &workspace)?;
                plan::variables_of(shared, &workspace, &given)
            })
            .await
    }

    async fn apply(&self, cx: ApplyContext<'_>) -> Result<(), Error> {
        make::make(&self.shared, &cx).await
    }

    async fn populate(&self, _: ApplyContext<'_>, _: &dyn Instance) -> Result<(), Error> {
        // The instance uses the files of the host.
        Ok(())
    }

    async fn assess(&self, record: &UndoRecord, options: UndoOptions) -> Result<Assessment, Error> {
        let record = record.clone();
        self.shared
            .blocking(move |shared| undo::assess(shared, &record, options))
            .await
    }

    async fn undo(&self, record: &UndoRecord, options: UndoOptions) -> Result<Undone, Error> {
        let resource = resource::Resource::of(record)?;
        let directory = resource.directory.clone();
        // A git process of the launch may have outlived its controller: it holds this lock to its end.
        let lock = self.shared.blocking(move |_| lock_directory(&directory));
        let held = tokio::time::timeout(PATIENCE, lock).await.map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                "git of this launch is still at work in the directory of the run",
            )
            .with("path", resource.directory.display())
        })??;
        let record = record.clone();
        self.shared
            .blocking(move |shared| undo::undo(shared, &record, options, held))
            .await
    }

    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error> {
        let record = record.clone();
        self.shared.blocking(move |_| undo::state(&record)).await
    }

    async fn list(&self) -> Result<Vec<Found>, Error> {
        self.shared.blocking(report::list).await
    }

    async fn report(&self, workspace: &Workspace) -> Result<WorkspaceReport, Error> {
        let workspace = workspace.clone();
        self.shared
            .blocking(move |shared| report::report(shared, &workspace))
            .await
    }
}
