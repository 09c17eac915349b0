//! A preparer for a workspace that is there already: it makes nothing, so that a launch is the executor's alone.

use std::path::PathBuf;

use async_trait::async_trait;
use groundcrew_core::{
    error::Error,
    id::PreparerName,
    identity::Presence,
    instance::Instance,
    preparer::{ApplyContext, Contribution, Found, PlanContext, Preparer},
    undo::{Assessment, UndoOptions, UndoRecord, Undone},
    workspace::{Workspace, WorkspaceReport},
};

/// Gives every launch one directory to work in.
#[derive(Debug)]
pub(super) struct GivenWorkspace {
    name: PreparerName,
    path: PathBuf,
    /// Where processes work: inside, it may have another path.
    directory: PathBuf,
}

impl GivenWorkspace {
    pub(super) fn new(path: PathBuf, directory: PathBuf) -> Result<Self, Error> {
        Ok(Self {
            name: PreparerName::new("given")?,
            path,
            directory,
        })
    }
}

#[async_trait]
impl Preparer for GivenWorkspace {
    fn name(&self) -> &PreparerName {
        &self.name
    }

    async fn plan(&self, _: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        Ok(Some(Contribution {
            workspace: Some(Workspace {
                kind: "in_place".to_owned(),
                preparer: self.name.clone(),
                path: self.path.clone(),
                directory: self.directory.clone(),
                repository: None,
                branch: None,
                base: None,
                owned: false,
                repositories: Vec::new(),
            }),
            ..Contribution::default()
        }))
    }

    async fn reopen(&self, _: &Workspace, _: PlanContext<'_>) -> Result<Contribution, Error> {
        Ok(Contribution::default())
    }

    async fn ensure(&self, _: &[UndoRecord], _: ApplyContext<'_>) -> Result<(), Error> {
        Ok(())
    }

    async fn apply(&self, _: ApplyContext<'_>) -> Result<(), Error> {
        Ok(())
    }

    async fn populate(&self, _: ApplyContext<'_>, _: &dyn Instance) -> Result<(), Error> {
        Ok(())
    }

    async fn assess(&self, _: &UndoRecord, _: UndoOptions) -> Result<Assessment, Error> {
        Ok(Assessment::default())
    }

    async fn undo(&self, _: &UndoRecord, _: UndoOptions) -> Result<Undone, Error> {
        Ok(Undone::AlreadyGone)
    }

    async fn state(&self, _: &UndoRecord) -> Result<Presence, Error> {
        Ok(Presence::Absent)
    }

    async fn list(&self) -> Result<Vec<Found>, Error> {
        Ok(Vec::new())
    }

    async fn report(&self, _: &Workspace) -> Result<WorkspaceReport, Error> {
        Ok(WorkspaceReport::default())
    }
}
