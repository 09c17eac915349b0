//! The refs of ours that keep what was removed by force: listed, and deleted only when somebody asks for it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use git2::{Oid, Reference, Repository};
use groundcrew_core::error::{Error, ErrorKind};

use super::shared::Inner;
use crate::{
    files::id::FileId,
    git::{
        anchor::{self, Held},
        command::Git,
        repository::{discover, git_error, open_common},
        snapshot::SNAPSHOTS,
    },
};

/// A ref that keeps what was removed by force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The common git directory of the repository.
    pub repository: PathBuf,
    /// Its full name.
    pub name: String,
    /// The commit that it keeps.
    pub id: String,
    /// When it was made.
    pub made: SystemTime,
}

/// Lists those of some repositories, each repository once.
pub(super) fn list(repositories: &[PathBuf]) -> Result<Vec<Snapshot>, Error> {
    let mut common = Vec::new();
    for path in repositories {
        if FileId::of(path)?.is_none() {
            continue;
        }
        let found = discover(path)?.common;
        if !common.contains(&found) {
            common.push(found);
        }
    }
    let mut found = Vec::new();
    for path in common {
        of(&path, &mut found)?;
    }
    found.sort_by(|a, b| (a.made, &a.name).cmp(&(b.made, &b.name)));
    Ok(found)
}

fn of(common: &Path, found: &mut Vec<Snapshot>) -> Result<(), Error> {
    let failed = |error| {
        git_error("failed to list the snapshots of a repository", error)
            .with("path", common.display())
    };
    let repository = open_common(common)?;
    let references = repository
        .references_glob(&format!("{SNAPSHOTS}*"))
        .map_err(failed)?;
    for reference in references {
        let reference = reference.map_err(failed)?;
        let (Ok(name), Some(id)) = (reference.name(), reference.target()) else {
            continue;
        };
        found.push(Snapshot {
            repository: common.to_owned(),
            name: name.to_owned(),
            id: id.to_string(),
            made: made(&repository, common, name, id)?,
        });
    }
    Ok(())
}

/// Returns when a snapshot was made: the time of its commit, or of the file of its ref if that is later.
///
/// A snapshot of commits alone is a commit of the user's, which may be years old.
fn made(repository: &Repository, common: &Path, name: &str, id: Oid) -> Result<SystemTime, Error> {
    let commit = repository
        .find_commit(id)
        .map_err(|error| git_error("failed to read a snapshot", error).with("ref", name))?;
    let seconds = u64::try_from(commit.committer().when().seconds()).unwrap_or_default();
    let committed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let written = common.join(name).symlink_metadata();
    let written = written.and_then(|metadata| metadata.modified());
    Ok(match written {
        Ok(written) => written.max(committed),
        // It was packed meanwhile; the file of all packed refs is younger than it.
        Err(_) => common
            .join("packed-refs")
            .symlink_metadata()
            .and_then(|metadata| metadata.modified())
            .map_or(committed, |packed| packed.max(committed)),
    })
}

/// Deletes one that is still where it was listed.
pub(super) fn remove(inner: &Inner, snapshot: &Snapshot) -> Result<(), Error> {
    let failed =
        |error| git_error("failed to delete a snapshot", error).with("ref", &snapshot.name);
    // Its name becomes a path: one that climbs is no ref.
    if !snapshot.name.starts_with(SNAPSHOTS) || !Reference::is_valid_name(&snapshot.name) {
        return Err(
            Error::new(ErrorKind::InvalidInput, "a ref is no snapshot of ours")
                .with("ref", &snapshot.name),
        );
    }
    let at = Oid::from_str(&snapshot.id).map_err(failed)?;
    let common = &snapshot.repository;
    let Some(id) = FileId::of(common)? else {
        return Ok(());
    };
    let _lock = inner.locks.lock_blocking(id)?;
    let git = Git::find(&inner.config.git)?;
    let repository = open_common(common)?;
    match anchor::let_go(&git, &repository, &snapshot.name, at)? {
        Held::Ours | Held::Gone => {}
        Held::Moved(id) => {
            return Err(
                Error::new(ErrorKind::Conflict, "a snapshot moved meanwhile")
                    .with("ref", &snapshot.name)
                    .with("at", id),
            );
        }
    }
    for item in inner.trash.list()? {
        if let Some(Ok(origin)) = &item.origin
            && item.is_only_snapshot()
            && origin.repository.as_ref() == Some(common)
            && origin.snapshot.as_ref() == Some(&snapshot.name)
        {
            inner.trash.forget(&item.owner)?;
        }
    }
    Ok(())
}
