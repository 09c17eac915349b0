//! Which commits would be lost: those that no ref holds which survives.

use std::path::{Path, PathBuf};

use git2::{Oid, Repository, Sort};
use groundcrew_core::{error::Error, workspace::Finding};

use super::{
    admin::{self, Head},
    repository::git_error,
};
use crate::text;

/// Refs below these hold nothing: ours, and those that belong to one worktree.
const NO_HOLDERS: [&str; 4] = [
    "refs/groundcrew/",
    "refs/bisect/",
    "refs/worktree/",
    "refs/rewritten/",
];

/// A ref and the commit that it holds.
pub(crate) type Holder = (String, Oid);

/// Lists every ref that holds commits, `except` one.
pub(crate) fn holders(repository: &Repository, except: Option<&str>) -> Result<Vec<Holder>, Error> {
    let failed = |error| git_error("failed to list the refs of the repository", error);
    let mut found = Vec::new();
    for reference in repository.references().map_err(failed)? {
        let reference = reference.map_err(failed)?;
        let Ok(name) = reference.name() else {
            continue;
        };
        if Some(name) == except || NO_HOLDERS.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        // A ref that leads nowhere, or to no commit, holds none.
        if let Ok(commit) = reference.peel_to_commit() {
            found.push((name.to_owned(), commit.id()));
        }
    }
    Ok(found)
}

/// Lists the commits that are reachable from `tips` and neither from `held` nor from `base`, newest first.
pub(crate) fn unheld(
    repository: &Repository,
    tips: &[Oid],
    held: &[Oid],
    base: Oid,
) -> Result<Vec<Oid>, Error> {
    let failed = |error| git_error("failed to walk the commits", error);
    let open: Vec<Oid> = tips
        .iter()
        .copied()
        .filter(|tip| *tip != base && !held.contains(tip))
        .collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let mut walk = repository.revwalk().map_err(failed)?;
    walk.set_sorting(Sort::TIME).map_err(failed)?;
    for tip in open {
        // A log may name commits that were never fetched, or are long gone: nothing that we could lose.
        if repository.find_commit(tip).is_ok() {
            walk.push(tip).map_err(failed)?;
        }
    }
    for tip in held.iter().copied().chain([base]) {
        if repository.find_commit(tip).is_ok() {
            walk.hide(tip).map_err(failed)?;
        }
    }
    walk.collect::<Result<_, _>>().map_err(failed)
}

/// Shows a commit in a line.
pub(crate) fn line(repository: &Repository, id: Oid) -> String {
    let subject = repository
        .find_commit(id)
        .ok()
        .and_then(|commit| commit.summary_bytes().map(text::lossy))
        .unwrap_or_default();
    let id = id.to_string();
    format!("{} {subject}", id.get(..10).unwrap_or(&id))
}

/// Makes a finding of commits.
pub(crate) fn finding(repository: &Repository, commits: &[Oid]) -> Option<Finding> {
    text::finding("commits", commits, |id| line(repository, *id))
}

/// Reads every commit that a log names.
pub(crate) fn logged(path: &Path) -> Result<Vec<Oid>, Error> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(
                Error::io("failed to read a log of refs", error).with("path", path.display())
            );
        }
    };
    let mut found: Vec<Oid> = bytes
        .split(|byte| *byte == b'\n')
        .flat_map(|line| line.splitn(3, |byte| *byte == b' ').take(2))
        .filter_map(|word| std::str::from_utf8(word).ok())
        .filter(|word| word.len() == 40)
        .filter_map(|word| Oid::from_str(word).ok())
        .filter(|id| !id.is_zero())
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The log of a branch.
pub(crate) fn log_of(common: &Path, branch: &str) -> PathBuf {
    common.join("logs/refs/heads").join(branch)
}

/// What a work tree's own git directory holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnCommits {
    /// Its `HEAD`.
    pub(crate) head: Option<Oid>,
    /// `HEAD`, everything in the log of `HEAD`, and the refs of the worktree alone.
    pub(crate) tips: Vec<Oid>,
}

/// Reads what only the entry of a work tree names.
///
/// # Errors
///
/// `Corrupt` when its `HEAD` cannot be understood.
pub(crate) fn own(repository: &Repository, entry: &Path) -> Result<OwnCommits, Error> {
    let head = match admin::read_head(entry)? {
        // Git begins with a name of nothing, which a killed one leaves.
        Some(Head::Detached(id)) => Some(id).filter(|id| !id.is_zero()),
        // A branch that does not exist yet holds nothing.
        Some(Head::Branch(name)) => repository
            .find_reference(&name)
            .ok()
            .and_then(|reference| reference.peel_to_commit().ok())
            .map(|commit| commit.id()),
        None => {
            return Err(Error::new(
                groundcrew_core::error::ErrorKind::Corrupt,
                "HEAD of the worktree cannot be read",
            )
            .with("path", entry.display()));
        }
    };
    let mut tips: Vec<Oid> = head.into_iter().collect();
    tips.extend(logged(&entry.join("logs/HEAD"))?);
    let mut directories = vec![entry.join("refs")];
    while let Some(directory) = directories.pop() {
        let Ok(files) = std::fs::read_dir(&directory) else {
            continue;
        };
        for file in files.flatten() {
            match file.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(file.path()),
                Ok(kind) if kind.is_file() => tips.extend(
                    admin::read_short(&file.path())?
                        .and_then(|text| String::from_utf8(text).ok())
                        .and_then(|text| Oid::from_str(text.trim()).ok()),
                ),
                _ => {}
            }
        }
    }
    tips.sort_unstable();
    tips.dedup();
    Ok(OwnCommits { head, tips })
}

/// Names an operation of git that was begun and not finished.
pub(crate) fn unfinished(entry: &Path) -> Vec<&'static str> {
    [
        ("MERGE_HEAD", "merge"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("BISECT_LOG", "bisect"),
        ("sequencer", "sequence of picks"),
    ]
    .into_iter()
    .filter(|(file, _)| entry.join(file).symlink_metadata().is_ok())
    .map(|(_, name)| name)
    .collect()
}
