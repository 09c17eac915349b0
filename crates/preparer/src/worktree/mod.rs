//! The preparer of git worktrees and private clones: a branch for each repository, and nothing lost when it goes.

mod asked;
mod cloning;
mod directory;
mod filling;
mod including;
mod inside;
mod look;
mod make;
mod maker;
mod plan;
mod rebuild;
mod refs;
mod report;
pub(crate) mod resource;
mod returning;
mod shared;
mod state;
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
    workspace::{Finding, Workspace, WorkspaceReport, WorkspaceRequest},
};

use self::shared::Shared;
use crate::{config::WorktreeConfig, files::lock::lock_directory};

/// How long an undo waits for a git process of the launch that is still at work.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes git worktrees or private clones for each run, and removes them when their work survives elsewhere.
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
        let (specs, clones) = match &cx.request.workspace {
            WorkspaceRequest::Worktree(specs) => (specs, None),
            WorkspaceRequest::Clone {
                repositories,
                objects,
            } => (repositories, Some(*objects)),
            _ => return Ok(None),
        };
        // Without a repository the task's own directory is taken, by its preparer.
        if specs.is_empty() {
            return Ok(None);
        }
        let request = cx.request;
        let task = match (&request.task, &request.session) {
            (Some(task), _) => task.as_str(),
            (None, Some(session)) => session.as_str(),
            (None, None) => cx.run.as_str(),
        };
        let answers = asked::ask(&self.shared, specs).await;
        let wanted = asked::Wanted {
            preparer: self.name.clone(),
            specs: specs.clone(),
            clones,
            title: request.title.clone(),
            task: task.to_owned(),
            given: request.environment.clone(),
            install: cx.install.clone(),
            run: cx.run.clone(),
            attempt: cx.attempt,
        };
        self.shared
            .blocking(move |shared| plan::plan(shared, &wanted, &answers).map(Some))
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
                let gone = report::reopen(shared, &workspace)?;
                plan::reopened(shared, &workspace, &given, &gone)
            })
            .await
    }

    async fn ensure(&self, owned: &[UndoRecord], cx: ApplyContext<'_>) -> Result<(), Error> {
        rebuild::rebuild(&self.shared, owned, &cx).await
    }

    async fn apply(&self, cx: ApplyContext<'_>) -> Result<(), Error> {
        make::make(&self.shared, &cx).await
    }

    async fn populate(&self, _: ApplyContext<'_>, _: &dyn Instance) -> Result<(), Error> {
        // The instance uses the files of the host.
        Ok(())
    }

    async fn deliver(&self, record: &UndoRecord) -> Result<Vec<Finding>, Error> {
        let record = record.clone();
        self.shared
            .blocking(move |shared| undo::deliver(shared, &record))
            .await
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
