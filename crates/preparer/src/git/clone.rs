//! Reads a private clone that others have worked in: nothing of it is executed, and it is not believed where it points elsewhere.

use std::{
    ffi::OsStr,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use git2::{Oid, Repository};
use groundcrew_core::error::{Error, ErrorKind};

use super::{
    admin,
    history::{self, OwnCommits},
    pack,
    repository::{git_error, open_common},
};
use crate::files::beneath;

/// The longest log of refs that is looked for, in directories below each other.
const MAX_DEPTH: usize = 32;

/// Opens the clone in a work tree, and lists every commit that it names: refs, `HEAD`, logs.
///
/// # Errors
///
/// * `Conflict` when its git directory, its objects or what they depend on were replaced.
/// * Those of reading a damaged repository.
pub(crate) fn open(
    tree: &OwnedFd,
    path: &Path,
    source: &Path,
) -> Result<(Repository, OwnCommits), Error> {
    let replaced = |what: &'static str| {
        Error::new(ErrorKind::Conflict, what).with("path", path.join(".git").display())
    };
    for inside in [".git", ".git/objects", ".git/refs"] {
        beneath::open_directory(tree, OsStr::new(inside)).map_err(|errno| {
            replaced("the git directory of the clone is gone, or a link").with_source(errno)
        })?;
    }
    let alternate = pack::alternate(&source.join("objects"))?;
    examine(&path.join(".git"), Some(&alternate), |_| true)
}

/// Opens the git directory of a submodule, which is a real directory, and lists every commit that it names but for those
/// that it says are its origin's.
///
/// # Errors
///
/// Those of [`open`].
pub(crate) fn open_module(git: &Path) -> Result<(Repository, OwnCommits), Error> {
    for inside in ["objects", "refs"] {
        let path = git.join(inside);
        let directory = beneath::open_root(&path).map_err(|errno| {
            Error::new(
                ErrorKind::Conflict,
                "the git directory of a submodule is gone, or a link",
            )
            .with("path", path.display())
            .with_source(errno)
        })?;
        drop(directory);
    }
    examine(git, None, |name| !name.starts_with(ORIGIN))
}

/// Begins the names of the refs that say what an origin has.
pub(crate) const ORIGIN: &str = "refs/remotes/";

fn examine(
    git: &Path,
    alternate: Option<&[u8]>,
    counts: impl Fn(&str) -> bool,
) -> Result<(Repository, OwnCommits), Error> {
    let replaced =
        |what: &'static str| Error::new(ErrorKind::Conflict, what).with("path", git.display());
    if git.join("commondir").symlink_metadata().is_ok() {
        return Err(replaced("the git directory of the clone names another one"));
    }
    let alternates = admin::read_short(&git.join("objects/info/alternates"))?;
    if let Some(text) = alternates
        && !text.is_empty()
        && Some(&*text) != alternate
    {
        return Err(replaced(
            "the clone reads objects from another place than it was made to",
        ));
    }
    let repository = open_common(git)?;
    let mut own = history::own(&repository, git)?;
    own.tips.extend(named(&repository, counts)?);
    for log in logs(&git.join("logs"))? {
        own.tips.extend(history::logged(&log)?);
    }
    own.tips.sort_unstable();
    own.tips.dedup();
    Ok((repository, own))
}

/// Lists the commits that refs name, ours of every kind included.
fn named(repository: &Repository, counts: impl Fn(&str) -> bool) -> Result<Vec<Oid>, Error> {
    let failed = |error| git_error("failed to list the refs of the clone", error);
    let mut found = Vec::new();
    for reference in repository.references().map_err(failed)? {
        let reference = reference.map_err(failed)?;
        if let Ok(commit) = reference.peel_to_commit()
            && reference.name().is_ok_and(&counts)
        {
            found.push(commit.id());
        }
    }
    Ok(found)
}

/// Lists the files below the directory of logs; links are not followed.
fn logs(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut open = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        let failed = |error| {
            Error::io("failed to list the logs of the clone", error)
                .with("path", directory.display())
        };
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && depth < MAX_DEPTH {
                open.push((entry.path(), depth + 1));
            } else if kind.is_file() {
                found.push(entry.path());
            } else {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "the logs of the clone hold what no git writes",
                )
                .with("path", entry.path().display()));
            }
        }
    }
    Ok(found)
}
