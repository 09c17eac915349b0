//! What a worktree launch makes, as data that another process can undo it by.

use std::{ffi::OsString, path::PathBuf};

use git2::Oid;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{AttemptId, InstallId, RunId},
    undo::UndoRecord,
    wire::{self, OsText},
};
use serde::{Deserialize, Serialize};

use crate::{
    files::{id::FileId, trash::Owner},
    git::{admin, branch::Branch},
};

/// The version of what is written here.
const VERSION: u32 = 1;

/// Which of the things it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The directory of the run, with the marker.
    Directory,
    /// The work tree in it, and its entry in the repository.
    Worktree,
    /// The branch.
    Branch,
}

impl Kind {
    /// The key of its record.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Worktree => "worktree",
            Self::Branch => "branch",
        }
    }
}

/// One thing that a launch makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resource {
    version: u32,
    /// Which one.
    pub(crate) kind: Kind,
    /// The installation.
    pub(crate) install: InstallId,
    /// The run.
    pub(crate) run: RunId,
    /// The attempt.
    pub(crate) attempt: AttemptId,
    /// The directory of the run.
    #[serde(with = "wire::path")]
    pub(crate) directory: PathBuf,
    /// The work tree in it.
    #[serde(with = "wire::path")]
    pub(crate) tree: PathBuf,
    /// The common git directory of the repository.
    #[serde(with = "wire::path")]
    pub(crate) common: PathBuf,
    /// Which directory that was.
    pub(crate) common_id: FileId,
    /// The branch, without `refs/heads/`.
    pub(crate) branch: String,
    /// Whether the branch's name was made from the run's random id.
    pub(crate) unique_branch: bool,
    /// The commit that the branch starts from.
    #[serde(with = "oid")]
    pub(crate) base: Oid,
}

/// What a plan decides.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) install: InstallId,
    pub(crate) run: RunId,
    pub(crate) attempt: AttemptId,
    pub(crate) directory: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) common: PathBuf,
    pub(crate) common_id: FileId,
    pub(crate) branch: String,
    pub(crate) unique_branch: bool,
    pub(crate) base: Oid,
}

impl Resource {
    /// Makes one of the things of a plan.
    pub(crate) fn new(kind: Kind, planned: &Planned) -> Self {
        Self {
            version: VERSION,
            kind,
            install: planned.install.clone(),
            run: planned.run.clone(),
            attempt: planned.attempt,
            directory: planned.directory.clone(),
            tree: planned.tree.clone(),
            common: planned.common.clone(),
            common_id: planned.common_id,
            branch: planned.branch.clone(),
            unique_branch: planned.unique_branch,
            base: planned.base,
        }
    }

    /// Reads the one of a record.
    ///
    /// # Errors
    ///
    /// `Corrupt` when it is not one of ours, of an unknown version, or names another attempt than the record.
    pub(crate) fn of(record: &UndoRecord) -> Result<Self, Error> {
        let wrong = |why: String| {
            Error::new(
                ErrorKind::Corrupt,
                "an undo record of a worktree cannot be understood",
            )
            .with("key", &record.key)
            .with_source(why)
        };
        let resource: Self =
            serde_json::from_str(&record.resource).map_err(|error| wrong(error.to_string()))?;
        if resource.version != VERSION {
            return Err(wrong(format!("version {}", resource.version)));
        }
        if resource.attempt != record.attempt {
            return Err(wrong(format!("it is of attempt {}", resource.attempt)));
        }
        Ok(resource)
    }

    /// The reason of the lock of its worktree.
    pub(crate) fn reason(&self) -> String {
        admin::lock_reason(&self.install, &self.attempt)
    }

    /// What the log of its branch begins with.
    pub(crate) fn mark(&self) -> String {
        format!("groundcrew:{}", self.attempt)
    }

    /// Its branch.
    pub(crate) fn branch<'a>(&'a self, mark: &'a str) -> Branch<'a> {
        Branch {
            common: &self.common,
            name: &self.branch,
            base: self.base,
            mark,
            unique: self.unique_branch,
        }
    }

    /// Who it is in the trash.
    pub(crate) fn owner(&self) -> Owner<'static> {
        Owner {
            attempt: self.attempt,
            key: self.kind.key(),
        }
    }
}

/// What `apply` needs of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// The work tree.
    pub(crate) worktree: Resource,
    /// The user's settings for writing files.
    pub(crate) settings: Vec<(OsText, OsText)>,
}

impl State {
    /// The settings, as git gets them.
    pub(crate) fn settings(&self) -> Vec<(OsString, OsString)> {
        self.settings
            .iter()
            .map(|(key, value)| (key.0.clone(), value.0.clone()))
            .collect()
    }
}

mod oid {
    use git2::Oid;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(id: &Oid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Oid, D::Error> {
        let text = String::deserialize(deserializer)?;
        Oid::from_str(&text).map_err(D::Error::custom)
    }
}
