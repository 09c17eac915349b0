//! What outlives runs: the trash, what can be brought back from it, and every directory that is there.
//!
//! It deletes only what its own names and identities prove; what nobody remembers is listed and left alone.

mod entry;
mod places;
mod regained;
mod restore;
mod shared;
mod snapshots;
mod things;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use groundcrew_core::{
    error::{Chain, Error, ErrorKind},
    id::RunId,
};

use self::shared::Inner;
pub use self::{
    places::WorkspacePlace, restore::Restored, shared::UpkeepConfig, snapshots::Snapshot,
};
use crate::files::{
    self,
    lock::RepositoryLocks,
    occupants,
    trash::{Item, Trash},
};

/// Looks after what outlives runs.
#[derive(Clone, Debug)]
pub struct Upkeep(Arc<Inner>);

/// Something in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trashed {
    /// Its name in the trash: the attempt and what it was to it.
    pub name: String,
    /// Where it is; none if only the record is left that leads to a snapshot.
    pub place: Option<PathBuf>,
    /// The run that it was of; none for what an earlier version put there.
    pub run: Option<RunId>,
    /// What it was, such as `worktree`.
    pub kind: Option<String>,
    /// Where it was.
    pub path: Option<PathBuf>,
    /// The common git directory of its repository.
    pub repository: Option<PathBuf>,
    /// Its branch.
    pub branch: Option<String>,
    /// The commit that the branch was at.
    pub tip: Option<String>,
    /// The commit that the branch started from.
    pub base: Option<String>,
    /// The ref that keeps what was saved of it.
    pub snapshot: Option<String>,
    /// Since when it is there.
    pub since: Option<SystemTime>,
    /// Why it may not be deleted, if so.
    pub stays: Option<String>,
}

/// What emptying the trash came to, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emptied {
    /// What was deleted.
    pub removed: Vec<Trashed>,
    /// What was not, and why.
    pub kept: Vec<(Trashed, String)>,
}

impl Upkeep {
    /// Touches nothing yet.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a directory of the configuration is not absolute.
    pub fn new(config: UpkeepConfig) -> Result<Self, Error> {
        let all = [
            &config.worktrees,
            &config.tasks,
            &config.sessions,
            &config.trash,
            &config.locks,
        ];
        if let Some(path) = all.into_iter().find(|path| !path.is_absolute()) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a directory of ours is not absolute",
            )
            .with("path", path.display()));
        }
        Ok(Self(Arc::new(Inner {
            trash: Trash::new(config.trash.clone()),
            locks: RepositoryLocks::new(&config.locks),
            config,
        })))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.0);
        files::blocking(move || work(&inner)).await
    }

    /// Lists what is in the trash, oldest first; an incomplete list is an error.
    ///
    /// # Errors
    ///
    /// When the trash cannot be read.
    pub async fn trash(&self) -> Result<Vec<Trashed>, Error> {
        self.blocking(|inner| Ok(listed(inner)?.into_iter().map(|(_, seen)| seen).collect()))
            .await
    }

    /// Deletes what has been in the trash for longer than that; with `dry_run` only says what would go.
    ///
    /// * A tree that a process uses stays, and so does one that is not what was moved there.
    /// * What cannot be deleted stays and is named; the rest goes on.
    ///
    /// # Errors
    ///
    /// When the trash cannot be read; then nothing was deleted.
    pub async fn empty_trash(&self, older_than: Duration, dry_run: bool) -> Result<Emptied, Error> {
        self.blocking(move |inner| {
            let now = SystemTime::now();
            let mut emptied = Emptied::default();
            for (item, seen) in listed(inner)? {
                let age = seen
                    .since
                    .map(|since| now.duration_since(since).unwrap_or_default());
                let young = age.is_some_and(|age| age < item.least_age(older_than));
                if item.is_only_snapshot() || (young && !item.discarded) {
                    continue;
                }
                if young && item.tree.is_some() {
                    // What was to be deleted at once goes; the tree beside it stays, and with it what is listed.
                    if !dry_run && let Err(error) = inner.trash.empty(&item.owner) {
                        emptied.kept.push((seen, Chain(&error).to_string()));
                    }
                    continue;
                }
                let stays = match seen.stays.clone() {
                    Some(why) => Some(why),
                    None if dry_run => None,
                    None => inner
                        .trash
                        .delete_item(&item)
                        .err()
                        .map(|error| Chain(&error).to_string()),
                };
                match stays {
                    Some(why) => emptied.kept.push((seen, why)),
                    None => emptied.removed.push(seen),
                }
            }
            Ok(emptied)
        })
        .await
    }

    /// Brings back what removing a run took away: files, index and branch; where it was, or to a directory of one's own.
    ///
    /// * Never over anything that exists, and never over a branch that is elsewhere now.
    /// * Everything is checked before anything is touched; one that was broken off is finished by asking again.
    /// * The records in the trash stay until [`settle`](Self::settle).
    ///
    /// # Errors
    ///
    /// * `NotFound` when nothing of the run is in the trash, nor a snapshot known.
    /// * `AlreadyExists` with the path, or the ref, that is in the way.
    /// * `Conflict` when what is in the trash is not what was put there.
    pub async fn restore(&self, run: &RunId, to: Option<&Path>) -> Result<Restored, Error> {
        let (run, to) = (run.clone(), to.map(Path::to_owned));
        self.blocking(move |inner| restore::restore(inner, &run, to.as_deref()))
            .await
    }

    /// Forgets in the trash what is back in its place; returns how many things that were.
    ///
    /// # Errors
    ///
    /// When the trash cannot be read or written.
    pub async fn settle(&self, run: &RunId) -> Result<usize, Error> {
        let run = run.clone();
        self.blocking(move |inner| restore::settle(inner, &run))
            .await
    }

    /// Lists every directory of a workspace that is there, whether or not anybody remembers it; an incomplete list is an error.
    ///
    /// # Errors
    ///
    /// When a directory of ours cannot be read.
    pub async fn workspaces(&self) -> Result<Vec<WorkspacePlace>, Error> {
        self.blocking(|inner| places::list(&inner.config)).await
    }

    /// Lists snapshots of ours in repositories, by their common git directories or anything in them.
    ///
    /// # Errors
    ///
    /// When a repository that exists cannot be read; one that is gone has none.
    pub async fn snapshots(&self, repositories: Vec<PathBuf>) -> Result<Vec<Snapshot>, Error> {
        self.blocking(move |_| snapshots::list(&repositories)).await
    }

    /// Deletes a snapshot if it still is where it was listed, and the record in the trash that leads to it.
    ///
    /// # Errors
    ///
    /// `Conflict` when it moved meanwhile; nothing is deleted then.
    pub async fn remove_snapshot(&self, snapshot: &Snapshot) -> Result<(), Error> {
        let snapshot = snapshot.clone();
        self.blocking(move |inner| snapshots::remove(inner, &snapshot))
            .await
    }

    /// Removes lock files of repositories that nobody holds, or lists them with `dry_run`.
    ///
    /// # Errors
    ///
    /// When the directory of lock files cannot be read.
    pub async fn sweep_locks(&self, dry_run: bool) -> Result<Vec<PathBuf>, Error> {
        self.blocking(move |inner| inner.locks.sweep(dry_run)).await
    }

    /// Lists the directories directly in `root`, such as managed caches, each with the processes that use it.
    ///
    /// # Errors
    ///
    /// When `root` cannot be read; one that is not there has none.
    pub async fn directories(&self, root: &Path) -> Result<Vec<(PathBuf, Vec<String>)>, Error> {
        let root = root.to_owned();
        self.blocking(move |_| {
            let found = places::directories(&root)?.into_iter();
            Ok(found
                .map(|path| {
                    let users = occupants::using(&path);
                    (path, users)
                })
                .collect())
        })
        .await
    }

    /// Deletes a directory that was listed: it is renamed first, so that whoever comes meanwhile gets a new one.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be deleted, by its path.
    pub async fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        let path = path.to_owned();
        self.blocking(move |_| places::remove_directory(&path))
            .await
    }

    /// Deletes directories of tenants in which there is no task, or lists them with `dry_run`.
    ///
    /// # Errors
    ///
    /// When a directory of ours cannot be read.
    pub async fn remove_empty(&self, dry_run: bool) -> Result<Vec<PathBuf>, Error> {
        self.blocking(move |inner| places::remove_empty(&inner.config, dry_run))
            .await
    }
}

fn listed(inner: &Inner) -> Result<Vec<(Item, Trashed)>, Error> {
    let mut all: Vec<_> = inner
        .trash
        .list()?
        .into_iter()
        .map(|item| {
            let seen = seen(inner, &item);
            (item, seen)
        })
        .collect();
    all.sort_by(|(_, a), (_, b)| (a.since, &a.name).cmp(&(b.since, &b.name)));
    Ok(all)
}

fn seen(inner: &Inner, item: &Item) -> Trashed {
    let origin = item.origin.as_ref().and_then(|origin| origin.as_ref().ok());
    Trashed {
        name: format!("{}-{}", item.owner.attempt, item.owner.key),
        place: item.tree.map(|_| inner.trash.path_of(&item.owner)),
        run: origin.map(|origin| origin.run.clone()),
        kind: origin.map(|origin| origin.kind.clone()),
        path: origin.map(|origin| origin.path.clone()),
        repository: origin.and_then(|origin| origin.repository.clone()),
        branch: origin.and_then(|origin| origin.branch.clone()),
        tip: origin.and_then(|origin| origin.tip.clone()),
        base: origin.and_then(|origin| origin.base.clone()),
        snapshot: origin.and_then(|origin| origin.snapshot.clone()),
        since: item.since(),
        stays: item.stays(&inner.trash),
    }
}
