//! Saves everything that a work tree holds in one commit under a ref of ours, before the tree goes to the trash.
//!
//! What git cannot hold – other repositories, sockets, devices, empty directories – stays in the trash alone.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
};

use git2::{Commit, Index, IndexEntry, IndexTime, Oid, Repository, Signature, Tree};
use groundcrew_core::{error::Error, id::RunId};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fstat, readlinkat, statat},
    io::Errno,
};

use super::{
    identity::{EMAIL, NAME},
    inspect::{Differences, Entry, executable},
    patience::{ref_error, while_locked},
    repository::git_error,
};
use crate::{files::beneath, naming};

/// The refs of snapshots are below this one.
pub(crate) const SNAPSHOTS: &str = "refs/groundcrew/snapshots/";

/// What the commit says that keeps what a run had staged; it is the second parent of the snapshot.
pub(crate) fn staged_message(run: &RunId) -> String {
    format!("groundcrew: what run {run} had staged")
}

/// What is saved.
pub(crate) struct Saved<'a> {
    /// The repository, opened at its common directory.
    pub(crate) repository: &'a Repository,
    /// The run.
    pub(crate) run: &'a RunId,
    /// The commit that the tree is on.
    pub(crate) head: Oid,
    /// Commits that nothing else holds.
    pub(crate) tips: &'a [Oid],
}

const DOING: &str = "failed to make a snapshot";

fn failed(error: git2::Error) -> Error {
    git_error(DOING, error)
}

impl Saved<'_> {
    /// Saves a work tree and the commits; returns the name of the ref. The caller holds the lock of the repository.
    pub(crate) fn tree(&self, tree: &OwnedFd, found: &Differences) -> Result<String, Error> {
        let head = self.repository.find_commit(self.head).map_err(failed)?;
        let head_tree = head.tree().map_err(failed)?;
        let files = self.files(tree, &head_tree, found)?;
        let mut parents = vec![self.head];
        if !found.staged.is_empty()
            && let Some(index) = &found.index
        {
            parents.push(self.staged(&head, index)?);
        }
        self.keep(&files, parents)
    }

    /// Saves commits alone, such as those of a branch; returns the name of the ref.
    pub(crate) fn commits(&self) -> Result<String, Error> {
        if self.tips.iter().all(|tip| *tip == self.head) {
            return self.name(self.head);
        }
        let head = self.repository.find_commit(self.head).map_err(failed)?;
        self.keep(&head.tree().map_err(failed)?, vec![self.head])
    }

    fn keep(&self, files: &Tree<'_>, mut parents: Vec<Oid>) -> Result<String, Error> {
        for tip in self.tips {
            let held = parents.contains(tip)
                || self
                    .repository
                    .graph_descendant_of(self.head, *tip)
                    .map_err(failed)?;
            if !held && self.repository.find_commit(*tip).is_ok() {
                parents.push(*tip);
            }
        }
        let id = self.commit(
            files,
            &parents,
            &format!("groundcrew: what run {} left", self.run),
        )?;
        self.name(id)
    }

    fn commit(&self, tree: &Tree<'_>, parents: &[Oid], message: &str) -> Result<Oid, Error> {
        let parents: Vec<Commit<'_>> = parents
            .iter()
            .map(|id| self.repository.find_commit(*id))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let parents: Vec<&Commit<'_>> = parents.iter().collect();
        let who = Signature::now(NAME, EMAIL).map_err(failed)?;
        self.repository
            .commit(None, &who, &who, message, tree, &parents)
            .map_err(failed)
    }

    /// Gives a commit the first free name; a snapshot is never overwritten.
    fn name(&self, id: Oid) -> Result<String, Error> {
        let run = naming::ref_part(self.run.as_str());
        let mut number = 1_u32;
        loop {
            let name = if number == 1 {
                format!("{SNAPSHOTS}{run}")
            } else {
                format!("{SNAPSHOTS}{run}-{number}")
            };
            match self.repository.find_reference(&name) {
                Ok(taken) if taken.target() == Some(id) => return Ok(name),
                Ok(_) => number += 1,
                Err(error) if error.code() == git2::ErrorCode::NotFound => {
                    while_locked(|| {
                        self.repository
                            .reference(&name, id, false, "groundcrew: snapshot")
                            .map(drop)
                            .map_err(|error| ref_error(DOING, error))
                    })?;
                    return Ok(name);
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn staged(&self, head: &Commit<'_>, entries: &BTreeMap<Vec<u8>, Entry>) -> Result<Oid, Error> {
        let mut index = Index::new().map_err(failed)?;
        for (name, entry) in entries.iter().filter(|(_, entry)| entry.mode != 0) {
            index
                .add(&index_entry(name, entry.mode, entry.id, 0))
                .map_err(failed)?;
        }
        let tree = index.write_tree_to(self.repository).map_err(failed)?;
        let tree = self.repository.find_tree(tree).map_err(failed)?;
        self.commit(&tree, &[head.id()], &staged_message(self.run))
    }

    fn files(
        &self,
        tree: &OwnedFd,
        head: &Tree<'_>,
        found: &Differences,
    ) -> Result<Tree<'_>, Error> {
        let mut index = Index::new().map_err(failed)?;
        index.read_tree(head).map_err(failed)?;
        for name in found.missing.iter().chain(&found.modified) {
            index
                .remove(std::path::Path::new(OsStr::from_bytes(name)), 0)
                .map_err(failed)?;
        }
        for name in found.modified.iter().chain(&found.untracked) {
            if let Some((mode, id, size)) = self.blob(tree, name)? {
                index
                    .add(&index_entry(name, mode, id, size))
                    .map_err(failed)?;
            }
        }
        let id = index.write_tree_to(self.repository).map_err(failed)?;
        self.repository.find_tree(id).map_err(failed)
    }

    /// Stores a file or link as it is; `None` for what git cannot hold.
    fn blob(&self, tree: &OwnedFd, name: &[u8]) -> Result<Option<(u32, Oid, u64)>, Error> {
        let io = |errno: Errno| {
            Error::io("failed to read a file for the snapshot", errno.into())
                .with("file", crate::text::lossy(name))
        };
        let path = OsStr::from_bytes(name);
        let (directory, last) = match name.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&name[..at], &name[at + 1..]),
            None => (&b""[..], name),
        };
        let directory = beneath::open_directory(tree, OsStr::from_bytes(directory)).map_err(io)?;
        let last = OsStr::from_bytes(last);
        let stat = statat(&directory, last, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = readlinkat(&directory, last, Vec::new()).map_err(io)?;
                let id = self.repository.blob(target.as_bytes()).map_err(failed)?;
                Ok(Some((0o120_000, id, 0)))
            }
            FileType::RegularFile => {
                let file =
                    beneath::open(tree, path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
                        .map_err(io)?;
                let stat = fstat(&file).map_err(io)?;
                let mode = if executable(&stat) {
                    0o100_755
                } else {
                    0o100_644
                };
                let mut writer = self.repository.blob_writer(None).map_err(failed)?;
                let size = std::io::copy(&mut File::from(file), &mut writer).map_err(|error| {
                    Error::io("failed to store a file in the snapshot", error)
                        .with("file", crate::text::lossy(name))
                })?;
                Ok(Some((mode, writer.commit().map_err(failed)?, size)))
            }
            _ => Ok(None),
        }
    }
}

fn index_entry(name: &[u8], mode: u32, id: Oid, size: u64) -> IndexEntry {
    IndexEntry {
        ctime: IndexTime::new(0, 0),
        mtime: IndexTime::new(0, 0),
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: u32::try_from(size).unwrap_or(u32::MAX),
        id,
        flags: 0,
        flags_extended: 0,
        path: name.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_name_for_what_is_saved_of_it() {
        let root = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(root.path()).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let who = Signature::now("t", "t@example.org").unwrap();
        let commit = |words| {
            repository
                .commit(None, &who, &who, words, &tree, &[])
                .unwrap()
        };
        let (one, two) = (commit("one"), commit("two"));
        let mut names = Vec::new();
        for run in ["abc", "A-1_x.y", "a..b", "x.lock", "x."] {
            let run = RunId::new(run).unwrap();
            let save = |head| {
                let saved = Saved {
                    repository: &repository,
                    run: &run,
                    head,
                    tips: &[],
                };
                saved.commits().unwrap()
            };
            let (first, second) = (save(one), save(two));
            assert_eq!(save(one), first);
            assert_eq!(second, format!("{first}-2"));
            names.push(first);
        }
        // What git takes keeps its name.
        let plain = ["abc", "A-1_x.y"].map(|run| format!("refs/groundcrew/snapshots/{run}"));
        assert_eq!(names[..2], plain);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5);
    }
}
