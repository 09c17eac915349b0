//! The files that an agent works on: what is asked for, what was made, and what is found in it.

use std::{path::PathBuf, time::Duration};

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
    /// A directory of the session's own, which goes when its run is closed.
    Ephemeral,
    /// A git worktree for each repository, on a branch of its own; without a repository the task's own directory.
    Worktree(Vec<RepositorySpec>),
    /// A private clone for each repository, with a git directory of its own; without a repository the task's own directory.
    Clone {
        /// The repositories.
        repositories: Vec<RepositorySpec>,
        /// Where their objects are.
        objects: CloneObjects,
    },
}

/// Where the objects of a private clone are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloneObjects {
    /// In the clone: it needs nothing of its source, and nothing in it reaches its source.
    #[default]
    Copied,
    /// In the source, from where they are read; only new ones are in the clone.
    ///
    /// The start point is pinned in the source; what is fetched from there later is only as safe as its refs there.
    Shared,
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
    /// The name of the new branch; made from the template if nothing is said.
    #[serde(default)]
    pub branch: Option<String>,
    /// How the branch is named, with `{title}`, `{title_full}`, `{task}`, `{ticket}` and `{suffix}`; the preparer's own way if nothing is said.
    #[serde(default)]
    pub template: Option<String>,
    /// What `{ticket}` stands for.
    #[serde(default)]
    pub ticket: Option<String>,
    /// What tells its directory from those of other branches of the repository; has no part in the branch's identity.
    #[serde(default)]
    pub slug: Option<String>,
    /// Which branch it is to the caller, whatever its name and its directory are; a repository is taken once for each.
    #[serde(default)]
    pub identity: Option<String>,
    /// Whether the start point is looked for on a remote; only what is there already is used if nothing is said.
    #[serde(default)]
    pub fetch: Option<FetchSpec>,
    /// Where its work is to be published; only compared, never reached.
    #[serde(default)]
    pub destination: Option<Destination>,
    /// Untracked files of the checkout that are taken along, as patterns of git's ignore files, a later one stronger.
    ///
    /// * `:symlink` at the end of one makes a link to the file or directory instead of a copy.
    #[serde(default)]
    pub include: Vec<String>,
    /// Whether the patterns in the checkout's own `.worktreeinclude` are left out.
    #[serde(default)]
    pub no_include_file: bool,
    /// Which submodules are filled.
    #[serde(default)]
    pub submodules: Submodules,
    /// Whether files that git-lfs keeps outside of git are written as they are, instead of pointers to them.
    #[serde(default)]
    pub lfs: bool,
}

impl RepositorySpec {
    /// Takes `HEAD` of the repository at `path`, and leaves everything else to the preparer.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            base: None,
            branch: None,
            template: None,
            ticket: None,
            slug: None,
            identity: None,
            fetch: None,
            destination: None,
            include: Vec::new(),
            no_include_file: false,
            submodules: Submodules::default(),
            lfs: false,
        }
    }
}

/// Which submodules of a work tree are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Submodules {
    /// None: their directories are empty.
    #[default]
    Empty,
    /// Those of the start point.
    Top,
    /// Those of the start point, and theirs, and so on.
    All,
}

/// How a start point is fetched: without a question, and never for longer than this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchSpec {
    /// The remote; the one that the start point names, the only one, or `origin` if nothing is said.
    #[serde(default)]
    pub remote: Option<String>,
    /// How long asking the remote may take, and fetching from it once more.
    #[serde(with = "wire::millis")]
    pub limit: Duration,
}

impl Default for FetchSpec {
    fn default() -> Self {
        Self {
            remote: None,
            limit: Duration::from_secs(30),
        }
    }
}

/// A repository on a server that work is to be published to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Destination {
    /// The id of the target at its provider.
    pub provider: String,
    /// The host; its case does not count.
    pub host: String,
    /// The path on the host.
    pub path: String,
    /// The address.
    pub url: String,
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        self.host.eq_ignore_ascii_case(&other.host)
            && (&self.provider, &self.path, &self.url) == (&other.provider, &other.path, &other.url)
    }
}

impl Eq for Destination {}

/// What a preparer made, or is about to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// The name of the kind: `in_place`, `scratch`, `ephemeral`, `worktree`, `clone`.
    pub kind: String,
    /// The preparer that answers for it.
    pub preparer: crate::id::PreparerName,
    /// Its root, absolute, on the host.
    #[serde(with = "wire::path")]
    pub path: PathBuf,
    /// Where the command is started: the root, or the caller's own subdirectory of the repository.
    #[serde(with = "wire::path")]
    pub directory: PathBuf,
    /// The work tree of the repository it was made from, the first one of several; the git directory of a bare one.
    #[serde(with = "wire::optional_path", default)]
    pub repository: Option<PathBuf>,
    /// The branch, the first one of several, without `refs/heads/`.
    #[serde(default)]
    pub branch: Option<String>,
    /// The full object id that the branch, the first one of several, started from.
    #[serde(default)]
    pub base: Option<String>,
    /// Whether it is gone with the run; a picked folder and a task's directory are not.
    pub owned: bool,
    /// Everything that was made from a repository, in the order of the request; none in records of earlier versions.
    #[serde(default)]
    pub repositories: Vec<WorkspaceRepository>,
}

/// What was made from one repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRepository {
    /// The work tree of the repository it was made from; the git directory of a bare one.
    #[serde(with = "wire::path")]
    pub repository: PathBuf,
    /// The work tree.
    #[serde(with = "wire::path")]
    pub path: PathBuf,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// The full object id that the branch started from.
    pub base: String,
    /// Which branch it is to the caller.
    #[serde(default)]
    pub identity: Option<String>,
    /// Where its work is to be published.
    #[serde(default)]
    pub destination: Option<Destination>,
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
    /// What it is: `modified`, `staged`, `untracked`, `ignored`, `nested_repository`, `commits`, `operation`, `process`, `checked_out`, `beside`, `unreadable`.
    pub what: String,
    /// Which ones: up to 20 paths, ids or words.
    pub items: Vec<String>,
    /// How many there are in all.
    pub count: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k9_the_case_of_a_host_does_not_count_and_everything_else_does() {
        let one = Destination {
            provider: "1".to_owned(),
            host: "Forge.Example".to_owned(),
            path: "a/b".to_owned(),
            url: "https://forge.example/a/b".to_owned(),
        };
        let with = |change: fn(&mut Destination)| {
            let mut other = one.clone();
            change(&mut other);
            other
        };
        assert_eq!(one, with(|d| d.host = "forge.example".to_owned()));
        assert_ne!(one, with(|d| d.host = "forge".to_owned()));
        assert_ne!(one, with(|d| d.path = "A/b".to_owned()));
        assert_ne!(one, with(|d| d.provider = "2".to_owned()));
        assert_ne!(
            one,
            with(|d| d.url = "https://forge.example/a/B".to_owned())
        );
    }

    #[test]
    fn records_of_earlier_versions_are_understood() {
        let json = r#"{"kind":"worktree","preparer":"worktree","path":"/w/a","directory":"/w/a","repository":"/a","branch":"b","base":"c","owned":true}"#;
        let workspace: Workspace = serde_json::from_str(json).unwrap();
        assert!(workspace.repositories.is_empty());
        let spec: RepositorySpec = serde_json::from_str(r#"{"path":"/a"}"#).unwrap();
        assert_eq!(spec, RepositorySpec::new("/a"));
    }
}
