//! The files that an agent works on: what is asked for, what was made, and what is found in it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    id::{TaskId, TenantId},
    wire,
};

/// What kind of workspace a request wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkspaceRequest {
    /// A folder that the user picked, used as it is.
    InPlace {
        /// Its absolute path.
        #[serde(with = "wire::path")]
        path: PathBuf,
    },
    /// The task's own directory, which survives sessions.
    Scratch {
        /// The grouping that owns it.
        tenant: TenantId,
        /// The task that owns it.
        task: TaskId,
    },
    /// A git worktree of a repository on a branch of its own.
    Worktree(RepositorySpec),
}

/// Which repository, from where, onto which branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositorySpec {
    /// An absolute path of, or inside, the repository; bare ones are allowed.
    #[serde(with = "wire::path")]
    pub path: PathBuf,
    /// What the new branch starts from; `HEAD` if nothing is said.
    #[serde(default)]
    pub base: Option<String>,
    /// The name of the new branch; made from the title if nothing is said.
    #[serde(default)]
    pub branch: Option<String>,
}

/// What a preparer made, or is about to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// The name of the kind: `in_place`, `scratch`, `worktree`.
    pub kind: String,
    /// The preparer that answers for it.
    pub preparer: crate::id::PreparerName,
    /// Its root, absolute, on the host.
    #[serde(with = "wire::path")]
    pub path: PathBuf,
    /// Where the command is started: the root, or the caller's own subdirectory of the repository.
    #[serde(with = "wire::path")]
    pub directory: PathBuf,
    /// The work tree of the repository it was made from; the git directory of a bare one.
    #[serde(with = "wire::optional_path", default)]
    pub repository: Option<PathBuf>,
    /// The branch, without `refs/heads/`.
    #[serde(default)]
    pub branch: Option<String>,
    /// The full object id that the branch started from.
    #[serde(default)]
    pub base: Option<String>,
    /// Whether it is gone with the run; a picked folder and a task's directory are not.
    pub owned: bool,
}

/// A commit that a run made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Its full object id.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
}

/// What a workspace holds now; found by reading only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceReport {
    /// Commits since the base, newest first; the newest 1,000 at most.
    pub commits: Vec<Commit>,
    /// How many there are in all.
    pub commit_count: usize,
    /// Whether there is anything but those commits: changed, untracked or ignored files.
    pub dirty: bool,
}

/// One reason to keep something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is: `modified`, `staged`, `untracked`, `ignored`, `nested_repository`, `commits`, `operation`, `process`, `checked_out`, `unreadable`.
    pub what: String,
    /// Which ones: up to 20 paths, ids or words.
    pub items: Vec<String>,
    /// How many there are in all.
    pub count: usize,
}
