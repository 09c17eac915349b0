//! Deletes refs of the user's repository, by git itself.
//!
//! libgit2 reads the file of packed refs before it locks it, and writes back what it read: refs that a clean-up packed in
//! between, of whomever they are, would be gone. It must never delete a ref, nor rename one, in a repository of others.

use std::ffi::OsStr;

use git2::{ErrorCode, Oid, Repository};
use groundcrew_core::error::Error;

use super::{
    command::{Call, Git, failure},
    history::Holder,
    repository::git_error,
};

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// It is deleted, or was before.
    Gone,
    /// It, or the other ref, is elsewhere; nothing was deleted.
    Moved,
}

/// Deletes a ref that is at `at`, if the other one is still where it was: one transaction over both; blocks the thread.
///
/// # Errors
///
/// What git says when it cannot; it has waited for locks by then.
pub(crate) fn delete(
    git: &Git,
    repository: &Repository,
    name: &str,
    at: Oid,
    holder: Option<&Holder>,
) -> Result<Deleted, Error> {
    let mut orders = Vec::new();
    if let Some((holder, commit)) = holder {
        let Some(id) = holds(repository, holder, *commit)? else {
            return Ok(Deleted::Moved);
        };
        orders.extend_from_slice(format!("verify {holder}\0{id}\0").as_bytes());
    }
    // One that became symbolic meanwhile never leads to the deletion of another.
    orders.extend_from_slice(b"option no-deref\0");
    orders.extend_from_slice(format!("delete {name}\0{at}\0").as_bytes());
    let call = Call {
        git_dir: repository.commondir(),
        work_tree: None,
        settings: &[],
        args: &["update-ref", "-z", "--stdin"].map(OsStr::new),
        holds: None,
    };
    let output = git.run_blocking(&call, &orders)?;
    if output.status.success() {
        return Ok(Deleted::Gone);
    }
    // Which of its reasons it was is read from the refs, not from git's words.
    match at_now(repository, name)? {
        None => return Ok(Deleted::Gone),
        Some(now) if now != at => return Ok(Deleted::Moved),
        Some(_) => {}
    }
    if let Some((holder, commit)) = holder
        && holds(repository, holder, *commit)?.is_none()
    {
        return Ok(Deleted::Moved);
    }
    Err(failure("failed to delete a ref", &output).with("ref", name))
}

fn at_now(repository: &Repository, name: &str) -> Result<Option<Oid>, Error> {
    match repository.refname_to_id(name) {
        Ok(id) => Ok(Some(id)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(git_error("failed to read a ref", error).with("ref", name)),
    }
}

/// Returns what a ref is at, which for a tag is no commit; `None` if it does not lead to that commit any more.
fn holds(repository: &Repository, name: &str, commit: Oid) -> Result<Option<Oid>, Error> {
    let failed = |error| git_error("failed to read a ref", error).with("ref", name);
    let Some(id) = at_now(repository, name)? else {
        return Ok(None);
    };
    let found = repository
        .find_object(id, None)
        .and_then(|object| object.peel_to_commit())
        .map_err(failed)?;
    Ok((found.id() == commit).then_some(id))
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use git2::Signature;

    use super::*;

    fn made(root: &Path) -> (Repository, Oid) {
        let repository = Repository::init_bare(root).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let who = Signature::now("t", "t@example.org").unwrap();
        let base = repository
            .commit(None, &who, &who, "one", &tree, &[])
            .unwrap();
        drop(tree);
        (repository, base)
    }

    fn pack(git: &Git, common: &Path) {
        let call = Call {
            git_dir: common,
            work_tree: None,
            settings: &[],
            args: &["pack-refs", "--all"].map(OsStr::new),
            holds: None,
        };
        assert!(git.run_blocking(&call, b"").unwrap().status.success());
    }

    #[test]
    fn f096_no_ref_of_others_is_lost_when_one_is_deleted_beside_a_clean_up() {
        const ROUNDS: usize = 150;
        let root = tempfile::tempdir().unwrap();
        let (repository, base) = made(root.path());
        let git = Git::of_tests();
        for number in 0..ROUNDS {
            let name = format!("refs/heads/ours/{number}");
            repository.reference(&name, base, false, "").unwrap();
        }
        pack(&git, root.path());
        let stop = Arc::new(AtomicBool::new(false));
        let others = std::thread::spawn({
            let (stop, root, git) = (Arc::clone(&stop), root.path().to_owned(), git.clone());
            move || {
                let repository = Repository::open_bare(&root).unwrap();
                let mut made = 0;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("refs/heads/theirs/{made}");
                    // The clean-up takes an empty directory away, which libgit2 takes for one that it has made.
                    if repository.reference(&name, base, false, "").is_ok() {
                        made += 1;
                    }
                    pack(&git, &root);
                }
                made
            }
        });
        for number in 0..ROUNDS {
            let name = format!("refs/heads/ours/{number}");
            let deleted = delete(&git, &repository, &name, base, None).unwrap();
            assert_eq!(deleted, Deleted::Gone);
        }
        stop.store(true, Ordering::Relaxed);
        let made = others.join().unwrap();
        assert!(made > 0);
        for number in 0..made {
            let name = format!("refs/heads/theirs/{number}");
            assert_eq!(repository.refname_to_id(&name).unwrap(), base, "{name}");
        }
        assert_eq!(
            repository
                .references_glob("refs/heads/ours/*")
                .unwrap()
                .count(),
            0
        );
    }

    #[test]
    fn one_that_moved_stays_and_so_does_one_whose_holder_moved() {
        let root = tempfile::tempdir().unwrap();
        let (repository, base) = made(root.path());
        let git = Git::of_tests();
        let first = repository.find_commit(base).unwrap();
        let who = Signature::now("t", "t@example.org").unwrap();
        let next = repository
            .commit(None, &who, &who, "two", &first.tree().unwrap(), &[&first])
            .unwrap();
        let name = "refs/heads/x";
        repository.reference(name, next, false, "").unwrap();
        let tag = repository
            .tag(
                "t",
                &repository.find_object(next, None).unwrap(),
                &who,
                "",
                false,
            )
            .unwrap();
        assert_ne!(tag, next);
        let at = |id| delete(&git, &repository, name, id, None).unwrap();
        assert_eq!(at(base), Deleted::Moved);
        let held = |holder: &str, id| {
            delete(
                &git,
                &repository,
                name,
                next,
                Some(&(holder.to_owned(), id)),
            )
            .unwrap()
        };
        assert_eq!(held("refs/tags/none", next), Deleted::Moved);
        assert_eq!(held("refs/tags/t", base), Deleted::Moved);
        assert_eq!(repository.refname_to_id(name).unwrap(), next);
        // An annotated tag holds its commit.
        assert_eq!(held("refs/tags/t", next), Deleted::Gone);
        assert!(repository.refname_to_id(name).is_err());
        assert_eq!(at(next), Deleted::Gone);
    }
}
