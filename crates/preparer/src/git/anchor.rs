//! Refs of ours in the user's repository, which hold commits that a clean-up there would take away.
//!
//! One holds the start point of a clone, or one that was fetched; those of snapshots are deleted here as well.

use std::path::Path;

use git2::{ErrorCode, Oid, Repository};
use groundcrew_core::error::Error;

use super::{
    command::Git,
    deletion::{Deleted, delete},
    leftover,
    patience::{ref_error, while_locked},
    repository::git_error,
};

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

/// Makes one for a start point; fails if it exists elsewhere. The caller holds the lock of the repository.
pub(crate) fn hold(repository: &Repository, name: &str, base: Oid) -> Result<(), Error> {
    while_locked(|| {
        repository
            .reference(name, base, false, "groundcrew: start point")
            .map(drop)
            .map_err(|error| ref_error("failed to hold the start point", error).with("ref", name))
    })
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
pub(crate) fn let_go(
    git: &Git,
    repository: &Repository,
    name: &str,
    base: Oid,
) -> Result<Held, Error> {
    let file = repository.commondir().join(name);
    // A process of ours that died over this very deletion left its lock; nobody else uses the name.
    unlock(&file)?;
    let mut held = look(repository, name, base)?;
    if held == Held::Ours && delete(git, repository, name, base, None)? == Deleted::Moved {
        held = look(repository, name, base)?;
    }
    unlock(&file)?;
    leftover::prune(&file, &repository.commondir().join("refs"));
    Ok(held)
}

/// Removes the lock that a process that died left; one that a clean-up has at this moment is waited for.
fn unlock(file: &Path) -> Result<(), Error> {
    let lock = leftover::lock_of(file);
    if lock.symlink_metadata().is_ok() && !leftover::is_open(&lock) {
        leftover::remove_file(&lock)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use git2::Signature;

    use super::*;

    const NAME: &str = "refs/groundcrew/base/r";

    fn held(root: &Path) -> (Repository, Oid) {
        let repository = Repository::init_bare(root).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let who = Signature::now("t", "t@example.org").unwrap();
        let base = repository
            .commit(None, &who, &who, "one", &tree, &[])
            .unwrap();
        drop(tree);
        hold(&repository, NAME, base).unwrap();
        (repository, base)
    }

    #[test]
    fn a_deletion_that_died_over_the_lock_of_the_ref_is_gone_on_with() {
        let root = tempfile::tempdir().unwrap();
        let (repository, base) = held(root.path());
        std::fs::write(root.path().join(format!("{NAME}.lock")), "").unwrap();
        assert_eq!(
            let_go(&Git::of_tests(), &repository, NAME, base).unwrap(),
            Held::Ours
        );
        assert_eq!(look(&repository, NAME, base).unwrap(), Held::Gone);
        assert!(!root.path().join("refs/groundcrew").exists());
        assert_eq!(
            let_go(&Git::of_tests(), &repository, NAME, base).unwrap(),
            Held::Gone
        );
    }

    #[test]
    fn a_ref_that_is_elsewhere_stays_there() {
        let root = tempfile::tempdir().unwrap();
        let (repository, base) = held(root.path());
        let other = Oid::from_bytes(&[7; 20]).unwrap();
        let moved = let_go(&Git::of_tests(), &repository, NAME, other).unwrap();
        assert_eq!(moved, Held::Moved(base));
        assert_eq!(look(&repository, NAME, base).unwrap(), Held::Ours);
    }
}
