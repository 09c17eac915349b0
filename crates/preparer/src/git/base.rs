//! The ref of ours that holds a start point in the user's repository, so that no clean-up there takes it away from a clone.

use std::path::Path;

use git2::{ErrorCode, Oid, Repository};
use groundcrew_core::error::Error;

use super::repository::git_error;

/// The refs of ours are all below this directory.
const OURS: &str = "refs/groundcrew";

/// What deleting it would mean.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// There is none.
    Gone,
    /// It is where it was put.
    Ours,
    /// It is elsewhere.
    Moved(Oid),
}

/// Makes it; fails if it exists elsewhere. The caller holds the lock of the repository.
pub(crate) fn hold(repository: &Repository, name: &str, base: Oid) -> Result<(), Error> {
    repository
        .reference(name, base, false, "groundcrew: start point")
        .map(drop)
        .map_err(|error| git_error("failed to hold the start point", error).with("ref", name))
}

/// Says where it is.
pub(crate) fn look(repository: &Repository, name: &str, base: Oid) -> Result<Held, Error> {
    match repository.refname_to_id(name) {
        Ok(id) if id == base => Ok(Held::Ours),
        Ok(id) => Ok(Held::Moved(id)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(Held::Gone),
        Err(error) => Err(git_error("failed to read a ref", error).with("ref", name)),
    }
}

/// Deletes it if it is where it was put, and what a killed process left of it. The caller holds the lock of the repository.
pub(crate) fn let_go(repository: &Repository, name: &str, base: Oid) -> Result<Held, Error> {
    let failed =
        |error| git_error("failed to delete the ref of a start point", error).with("ref", name);
    let held = look(repository, name, base)?;
    if held == Held::Ours {
        let mut transaction = repository.transaction().map_err(failed)?;
        transaction.lock_ref(name).map_err(failed)?;
        if repository.refname_to_id(name).map_err(failed)? == base {
            transaction.remove(name).map_err(failed)?;
            transaction.commit().map_err(failed)?;
        }
    }
    sweep(repository.commondir(), name)?;
    Ok(held)
}

/// Removes a lock file that a killed process left – nobody else uses the name – and directories that are empty now.
fn sweep(common: &Path, name: &str) -> Result<(), Error> {
    let file = common.join(name);
    let mut lock = file.clone().into_os_string();
    lock.push(".lock");
    match std::fs::remove_file(&lock) {
        Ok(()) => {}
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) => {}
        Err(error) => {
            return Err(Error::io("failed to delete a left-over of a ref", error)
                .with("path", lock.display()));
        }
    }
    let root = common.join(OURS);
    let mut directory = file.parent();
    while let Some(path) = directory.filter(|path| path.starts_with(&root)) {
        // Not empty, or gone: both are fine.
        if rustix::fs::rmdir(path).is_err() {
            break;
        }
        directory = path.parent();
    }
    Ok(())
}
