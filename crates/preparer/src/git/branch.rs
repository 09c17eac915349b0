//! Makes and deletes the branch of a run.
//!
//! It deletes a branch only if the launch made it and its commits survive elsewhere, in one transaction over both refs.

use std::{error::Error as _, ffi::OsStr, os::fd::OwnedFd, path::Path};

use git2::{ErrorCode, Oid, Repository};
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    workspace::Finding,
};

use super::{
    admin,
    command::{Call, Git},
    deletion::{Deleted, delete},
    history::{self, Holder},
    leftover,
    repository::git_error,
};
use crate::text;

/// The branch of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<'a> {
    /// The common git directory.
    pub(crate) common: &'a Path,
    /// The name, without `refs/heads/`.
    pub(crate) name: &'a str,
    /// What it started from.
    pub(crate) base: Oid,
    /// What its log begins with.
    pub(crate) mark: &'a str,
    /// Whether its name was made from the random id of the run, so that nobody else uses it.
    pub(crate) unique: bool,
}

/// What deleting a branch would mean.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// There is none.
    Gone,
    /// This launch did not make it.
    NotOurs(String),
    /// It can go: it is at this commit, which another ref holds unless it is the start point.
    Free {
        /// Where it is.
        tip: Oid,
        /// The ref that holds its commits.
        holder: Option<Holder>,
    },
    /// It is the only one that holds these commits.
    Holds {
        /// Where it is.
        tip: Oid,
        /// The commits, newest first.
        commits: Vec<Oid>,
    },
}

impl Branch<'_> {
    /// Its full name.
    pub(crate) fn full(&self) -> String {
        format!("refs/heads/{}", self.name)
    }

    /// Makes it, with a log that carries the mark; fails if it exists. The caller holds the lock of the repository.
    pub(crate) async fn create(
        &self,
        git: &Git,
        held: &OwnedFd,
        cancel: &CancelToken,
    ) -> Result<(), Error> {
        let (name, base) = (self.full(), self.base.to_string());
        let never = "0".repeat(base.len());
        git.succeed(
            &Call {
                git_dir: self.common,
                work_tree: None,
                settings: &[],
                args: &[
                    "update-ref",
                    "--create-reflog",
                    "-m",
                    self.mark,
                    &name,
                    &base,
                    &never,
                ]
                .map(OsStr::new),
                holds: Some(held),
            },
            "failed to make the branch",
            cancel,
        )
        .await
        .map(drop)
        .map_err(|error| {
            let taken = error
                .source()
                .is_some_and(|words| words.to_string().contains("already exists"));
            if taken {
                Error::new(
                    ErrorKind::AlreadyExists,
                    "the branch was made by another meanwhile",
                )
                .with_source(error)
            } else {
                error
            }
        })
        .map_err(|error| error.with("branch", self.name))
    }

    /// Says what deleting it would mean; reads only.
    pub(crate) fn judge(&self, repository: &Repository) -> Result<Verdict, Error> {
        let reference = match repository.find_reference(&self.full()) {
            Ok(reference) => reference,
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(Verdict::Gone),
            Err(error) => {
                return Err(git_error("failed to read the branch", error).with("branch", self.name));
            }
        };
        let Some(tip) = reference.target() else {
            return Ok(Verdict::NotOurs(
                "the branch was made a symbolic ref".to_owned(),
            ));
        };
        if !self.is_ours(tip)? {
            return Ok(Verdict::NotOurs(format!(
                "the branch {} was not made by this launch",
                self.name
            )));
        }
        if tip == self.base {
            return Ok(Verdict::Free { tip, holder: None });
        }
        let holders = history::holders(repository, Some(&self.full()))?;
        let held: Vec<Oid> = holders.iter().map(|(_, id)| *id).collect();
        let mut tips = history::logged(&history::log_of(self.common, self.name))?;
        tips.push(tip);
        let commits = history::unheld(repository, &tips, &held, self.base)?;
        if commits.is_empty() {
            for (name, id) in &holders {
                let holds = *id == tip
                    || repository.graph_descendant_of(*id, tip).map_err(|error| {
                        git_error("failed to compare the branch with another ref", error)
                    })?;
                if holds {
                    let holder = Some((name.clone(), *id));
                    return Ok(Verdict::Free { tip, holder });
                }
            }
            // It went back behind its start point: every commit of its own is held, so is this one by the start point.
            return Ok(Verdict::Free { tip, holder: None });
        }
        Ok(Verdict::Holds { tip, commits })
    }

    /// Tells whether its log begins with our mark; without a log, whether only we can have made it.
    fn is_ours(&self, tip: Oid) -> Result<bool, Error> {
        let path = history::log_of(self.common, self.name);
        match std::fs::read(&path) {
            Ok(bytes) if !bytes.is_empty() => Ok(begins_with(&bytes, self.mark)),
            Ok(_) => Ok(self.unique && tip == self.base),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(self.unique && tip == self.base)
            }
            Err(error) => Err(Error::io("failed to read the log of the branch", error)
                .with("path", path.display())),
        }
    }

    /// Tells who else has it checked out; the caller holds the lock of the repository.
    pub(crate) fn checked_out(&self) -> Result<Option<Finding>, Error> {
        Ok(admin::holder(self.common, &self.full())?
            .map(|place| text::single("checked_out", place.display().to_string())))
    }

    /// Deletes it if it is still at `tip`, and the holder still where it was; the caller holds the lock of the repository.
    ///
    /// # Errors
    ///
    /// `Conflict` when one of them moved meanwhile; nothing is deleted then.
    pub(crate) fn delete(
        &self,
        git: &Git,
        repository: &Repository,
        tip: Oid,
        holder: Option<&Holder>,
    ) -> Result<(), Error> {
        // A process of ours that died over this very deletion left its lock; nobody else uses the name.
        self.unlock()?;
        match delete(git, repository, &self.full(), tip, holder)? {
            Deleted::Gone => self.sweep(),
            Deleted::Moved => Err(Error::new(
                ErrorKind::Conflict,
                "the branch, or the ref that holds its commits, moved meanwhile",
            )
            .with("branch", self.name)
            .retryable(true)),
        }
    }

    /// Removes the lock of its ref if a process that died left it.
    fn unlock(&self) -> Result<(), Error> {
        let lock = leftover::lock_of(&self.common.join(self.full()));
        if self.is_stale(&lock) {
            leftover::remove_file(&lock)?;
        }
        Ok(())
    }

    /// Removes what a killed git, or a deletion, left of it: its log, a lock file, empty directories.
    pub(crate) fn sweep(&self) -> Result<(), Error> {
        let log = history::log_of(self.common, self.name);
        let ours = match std::fs::read(&log) {
            Ok(bytes) => bytes.is_empty() && self.unique || begins_with(&bytes, self.mark),
            Err(_) => false,
        };
        let reference = self.common.join(self.full());
        if ours && reference.symlink_metadata().is_err() {
            leftover::remove_file(&log)?;
        }
        self.unlock()?;
        leftover::prune(&reference, &self.common.join("refs/heads"));
        leftover::prune(&log, &self.common.join("logs/refs/heads"));
        Ok(())
    }

    /// Tells whether a lock file is one that a killed git of this launch left.
    fn is_stale(&self, lock: &Path) -> bool {
        lock.symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file())
            && (self.unique || self.holds_only_base(lock))
            && !leftover::is_open(lock)
    }

    fn holds_only_base(&self, lock: &Path) -> bool {
        std::fs::read(lock)
            .is_ok_and(|bytes| bytes.trim_ascii_end() == self.base.to_string().as_bytes())
    }
}

fn begins_with(log: &[u8], mark: &str) -> bool {
    let first = log.split(|byte| *byte == b'\n').next().unwrap_or_default();
    first
        .iter()
        .position(|byte| *byte == b'\t')
        .is_some_and(|at| &first[at + 1..] == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use git2::Signature;

    use super::*;

    #[test]
    fn a_deletion_that_died_over_the_lock_of_the_branch_is_gone_on_with() {
        const MARK: &str = "groundcrew:1";
        let root = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(root.path()).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let who = Signature::now("t", "t@example.org").unwrap();
        let base = repository
            .commit(None, &who, &who, "one", &tree, &[])
            .unwrap();
        // A name of the run's own is nobody else's; under another name the lock must hold what we wrote.
        for (unique, held) in [(true, String::new()), (false, format!("{base}\n"))] {
            let branch = Branch {
                common: repository.commondir(),
                name: "topic/x",
                base,
                mark: MARK,
                unique,
            };
            repository.reference_ensure_log(&branch.full()).unwrap();
            repository
                .reference(&branch.full(), base, false, MARK)
                .unwrap();
            let lock = repository.commondir().join("refs/heads/topic/x.lock");
            std::fs::write(&lock, held).unwrap();
            branch
                .delete(&Git::of_tests(), &repository, base, None)
                .unwrap();
            assert!(matches!(branch.judge(&repository), Ok(Verdict::Gone)));
            assert!(!lock.exists());
            assert!(!repository.commondir().join("refs/heads/topic").exists());
        }
    }
}
