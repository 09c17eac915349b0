//! The leak oracle: everything that a launch could leave behind, to be equal before and after.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Ground, Repository, repository::Tree, waiting};

/// What was found at one moment.
#[derive(Debug)]
pub(crate) struct Leaks<'a> {
    ground: &'a Ground,
    repositories: Vec<Repository>,
    before: Found,
}

/// What is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    processes: Vec<String>,
    refs: Vec<String>,
    worktrees: Vec<String>,
    locks: Vec<PathBuf>,
    /// What a user has in each repository.
    users: Vec<Tree>,
    /// What lies below the state directory, the home and the directory for temporary files.
    paths: BTreeSet<PathBuf>,
    mounts: Vec<String>,
    runs: Vec<String>,
}

impl<'a> Leaks<'a> {
    /// Looks for the first time.
    pub(crate) fn watch(ground: &'a Ground, repositories: &[&Repository]) -> Self {
        let repositories: Vec<_> = repositories.iter().map(|r| (*r).clone()).collect();
        let before = look(ground, &repositories);
        Self {
            ground,
            repositories,
            before,
        }
    }

    /// Demands that everything is as it was; what is on its way out gets some time.
    #[track_caller]
    pub(crate) fn none(&self, when: &str) {
        let mut after = Found::default();
        let same = waiting::until_within(Duration::from_secs(20), || {
            after = look(self.ground, &self.repositories);
            after == self.before
        });
        assert!(
            same,
            "{when}: something was left or taken\nbefore: {:#?}\nafter: {:#?}",
            Shown(&self.before),
            Shown(&after)
        );
    }
}

/// Shows what was found without the content of files.
struct Shown<'a>(&'a Found);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = self.0;
        let users: Vec<_> = found
            .users
            .iter()
            .flat_map(|tree| {
                tree.iter()
                    .map(|(path, (mode, bytes))| (path, mode, bytes.len()))
            })
            .collect();
        f.debug_struct("Found")
            .field("processes", &found.processes)
            .field("refs", &found.refs)
            .field("worktrees", &found.worktrees)
            .field("locks", &found.locks)
            .field("paths", &found.paths)
            .field("mounts", &found.mounts)
            .field("runs", &found.runs)
            .field("users", &users)
            .finish()
    }
}

fn look(ground: &Ground, repositories: &[Repository]) -> Found {
    let mut found = Found::default();
    found.processes = ground
        .processes()
        .into_iter()
        .map(|process| format!("{} ({})", process.words, process.seen))
        .collect();
    for repository in repositories {
        found.refs.extend(repository.refs());
        found.worktrees.extend(repository.worktree_entries());
        found.locks.extend(repository.locks());
        found.users.push(repository.fingerprint());
    }
    for root in [
        ground.state().to_owned(),
        ground.root().join("home"),
        ground.root().join("tmp"),
    ] {
        collect(&root, &root, ground.state(), &mut found.paths);
    }
    let root = ground.root().display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.mounts = mounts
        .lines()
        .filter(|line| line.contains(&root))
        .map(str::to_owned)
        .collect();
    // A directory without a state has no runs, and asking would make one.
    if ground.state().join("state.db").exists() {
        found.runs = ground
            .runs(true)
            .iter()
            .map(|run| format!("{} {}", run["id"], run["state"]))
            .collect();
    }
    found
}

/// Collects the paths below a directory; what every state directory has is left out.
fn collect(root: &Path, directory: &Path, state: &Path, paths: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_furniture(&path, state, is_directory) {
            paths.insert(path.clone());
        }
        if is_directory {
            collect(root, &path, state, paths);
        }
    }
}

/// Tells whether something is there from the first use of a state directory on: the store, and the empty rooms.
fn is_furniture(path: &Path, state: &Path, is_directory: bool) -> bool {
    let Ok(inner) = path.strip_prefix(state) else {
        return false;
    };
    let Some(first) = inner.iter().next().and_then(|name| name.to_str()) else {
        return true;
    };
    let rooms = [
        "instances",
        "worktrees",
        "tasks",
        "quick-chat",
        "trash",
        "secrets",
    ];
    first.starts_with("state.db")
        || first == "install-id"
        || first == "locks"
        || (is_directory && inner.iter().count() == 1 && rooms.contains(&first))
}
