//! The preparer of folders that a person picked: they are used as they are, nothing is made in them.

use std::path::Path;

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

/// Uses a folder as it is.
#[derive(Clone, Debug)]
pub struct InPlacePreparer {
    name: PreparerName,
}

impl InPlacePreparer {
    /// Makes the preparer `in_place`.
    ///
    /// # Errors
    ///
    /// None in practice: the name is valid.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            name: PreparerName::new("in_place")?,
        })
    }
}

async fn check(path: &Path) -> Result<(), Error> {
    if !path.is_absolute() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the path of a folder must be absolute",
        )
        .with("path", path.display()));
    }
    let missing =
        |message| Error::new(ErrorKind::DirectoryNotFound, message).with("path", path.display());
    match tokio::fs::metadata(path).await {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(missing("the path of the folder is no directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(missing("the folder does not exist"))
        }
        Err(error) => {
            Err(Error::io("failed to look at the folder", error).with("path", path.display()))
        }
    }
}

/// What an undo record that nobody armed comes to.
fn stray(record: &UndoRecord) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "an undo record names the preparer of picked folders, which makes nothing",
    )
    .with("key", &record.key)
}

#[async_trait]
impl Preparer for InPlacePreparer {
    fn name(&self) -> &PreparerName {
        &self.name
    }

    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        let WorkspaceRequest::InPlace { path } = &cx.request.workspace else {
            return Ok(None);
        };
        check(path).await?;
        Ok(Some(Contribution {
            workspace: Some(Workspace {
                kind: "in_place".to_owned(),
                preparer: self.name.clone(),
                path: path.clone(),
                directory: path.clone(),
                repository: None,
                branch: None,
                base: None,
                owned: false,
                repositories: Vec::new(),
            }),
            ..Contribution::default()
        }))
    }

    async fn reopen(
        &self,
        workspace: &Workspace,
        _: PlanContext<'_>,
    ) -> Result<Contribution, Error> {
        check(&workspace.path).await?;
        Ok(Contribution::default())
    }

    async fn ensure(&self, _: &[UndoRecord], _: ApplyContext<'_>) -> Result<(), Error> {
        // What is gone is not made again.
        Ok(())
    }

    async fn apply(&self, _: ApplyContext<'_>) -> Result<(), Error> {
        // Nothing is made.
        Ok(())
    }

    async fn populate(&self, _: ApplyContext<'_>, _: &dyn Instance) -> Result<(), Error> {
        // The instance uses the files of the host.
        Ok(())
    }

    async fn assess(&self, record: &UndoRecord, _: UndoOptions) -> Result<Assessment, Error> {
        Err(stray(record))
    }

    async fn undo(&self, record: &UndoRecord, _: UndoOptions) -> Result<Undone, Error> {
        Err(stray(record))
    }

    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error> {
        Err(stray(record))
    }

    async fn list(&self) -> Result<Vec<Found>, Error> {
        Ok(Vec::new())
    }

    async fn report(&self, _: &Workspace) -> Result<WorkspaceReport, Error> {
        // What is in a picked folder is not told apart from what was in it before.
        Ok(WorkspaceReport::default())
    }
}
