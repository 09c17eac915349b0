//! The administrative entries of a repository's worktrees: found by our mark or our path, removed by our own code.
//!
//! Git itself cannot remove a half-made entry, and refuses to work at all while one is there.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::error::{Error, ErrorKind};
use rustix::io::Errno;

use crate::files::{beneath, removal};

/// The longest file of an entry that is read.
const MAX_LEN: u64 = 64 * 1024;

/// What `HEAD` of a work tree says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// It names a ref.
    Branch(String),
    /// It is a commit.
    Detached(git2::Oid),
}

/// Reads a short file; `None` if there is none.
pub(crate) fn read_short(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let failed = |error| {
        Error::io("failed to read a file of the git directory", error).with("path", path.display())
    };
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_LEN => {
            match std::fs::read(path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed(error)),
            }
        }
        Ok(_) => Err(Error::new(
            ErrorKind::Corrupt,
            "a file of the git directory is no short regular file",
        )
        .with("path", path.display())),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed(error)),
    }
}

/// The mark of an attempt: the reason of the lock of its worktree.
pub(crate) fn lock_reason(
    install: &impl std::fmt::Display,
    attempt: &impl std::fmt::Display,
) -> String {
    format!("groundcrew:{install}/{attempt}")
}

/// Lists the entries of a repository.
pub(crate) fn entries(common: &Path) -> Result<Vec<PathBuf>, Error> {
    let directory = common.join("worktrees");
    let failed = |error| {
        Error::io("failed to list the worktrees of the repository", error)
            .with("path", directory.display())
    };
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the work tree that an entry names.
pub(crate) fn tree_of(entry: &Path) -> Result<Option<PathBuf>, Error> {
    let Some(bytes) = read_short(&entry.join("gitdir"))? else {
        return Ok(None);
    };
    let link = PathBuf::from(OsStr::from_bytes(bytes.trim_ascii_end()));
    let link = if link.is_relative() {
        normal(&entry.join(link))
    } else {
        link
    };
    Ok(link
        .parent()
        .filter(|parent| parent.is_absolute())
        .map(Path::to_owned))
}

/// Removes `.` and `..` from a path by its words alone.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                parts.pop();
            }
            std::path::Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

/// Finds the entry of ours: it is locked with our reason, or names our work tree, whose path nobody else uses.
///
/// Without a reason, by the path alone.
pub(crate) fn find(
    common: &Path,
    reason: Option<&str>,
    tree: &Path,
) -> Result<Option<PathBuf>, Error> {
    // Git writes the path with all links resolved; the tree itself may be gone.
    let real = tree
        .parent()
        .and_then(|parent| parent.canonicalize().ok())
        .zip(tree.file_name())
        .map(|(parent, name)| parent.join(name));
    for entry in entries(common)? {
        let place = tree_of(&entry)?;
        let ours = match reason {
            Some(reason) => {
                // A killed git may not have come to write anything: then its name has to do, which holds the run's id.
                let unwritten = place.is_none() && entry.file_name() == tree.file_name();
                unwritten
                    || read_short(&entry.join("locked"))?
                        .is_some_and(|text| text.trim_ascii_end() == reason.as_bytes())
            }
            None => false,
        };
        if ours || place.is_some_and(|place| place == tree || Some(&place) == real.as_ref()) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Reads what `HEAD` of a git directory says; `None` if it says nothing that can be understood.
pub(crate) fn read_head(git_dir: &Path) -> Result<Option<Head>, Error> {
    let Some(bytes) = read_short(&git_dir.join("HEAD"))? else {
        return Ok(None);
    };
    let text = bytes.trim_ascii_end();
    if let Some(name) = text.strip_prefix(b"ref:") {
        return Ok(String::from_utf8(name.trim_ascii().to_vec())
            .ok()
            .map(Head::Branch));
    }
    Ok(std::str::from_utf8(text)
        .ok()
        .and_then(|text| git2::Oid::from_str(text).ok())
        .filter(|_| text.len() == 40)
        .map(Head::Detached))
}

/// Tells which work tree has a ref checked out, or rebases or bisects it.
pub(crate) fn holder(common: &Path, name: &str) -> Result<Option<PathBuf>, Error> {
    let bare = std::fs::read(common.join("config")).is_ok_and(|text| {
        git2::Config::open(&common.join("config"))
            .and_then(|config| config.get_bool("core.bare"))
            .unwrap_or(false)
            && !text.is_empty()
    });
    if !bare && holds(common, name)? {
        let place = if common.file_name() == Some(OsStr::new(".git")) {
            common.parent().unwrap_or(common)
        } else {
            common
        };
        return Ok(Some(place.to_owned()));
    }
    for entry in entries(common)? {
        if holds(&entry, name)? {
            return Ok(Some(tree_of(&entry)?.unwrap_or(entry)));
        }
    }
    Ok(None)
}

fn holds(git_dir: &Path, name: &str) -> Result<bool, Error> {
    if read_head(git_dir)? == Some(Head::Branch(name.to_owned())) {
        return Ok(true);
    }
    for file in [
        "rebase-merge/head-name",
        "rebase-apply/head-name",
        "BISECT_START",
    ] {
        if let Some(text) = read_short(&git_dir.join(file))? {
            let text = text.trim_ascii_end();
            if text == name.as_bytes() || name.as_bytes().strip_prefix(b"refs/heads/") == Some(text)
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Removes one entry; the caller holds the lock of the repository.
pub(crate) fn remove(common: &Path, entry: &Path) -> Result<(), Error> {
    let directory = common.join("worktrees");
    let name = entry
        .file_name()
        .filter(|_| entry.parent() == Some(&directory))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Unexpected,
                "an entry is not one of the repository's worktrees",
            )
            .with("path", entry.display())
        })?;
    let parent = beneath::open_root(&directory).map_err(|errno| {
        Error::io(
            "failed to open the worktrees of the repository",
            errno.into(),
        )
        .with("path", directory.display())
    })?;
    removal::remove(&parent, name, entry)
}

/// Removes the directory of entries if it is empty; the caller holds the lock of the repository.
pub(crate) fn sweep(common: &Path) -> Result<(), Error> {
    let directory = common.join("worktrees");
    match rustix::fs::rmdir(&directory) {
        // Others are left in it, or it is gone.
        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
        Err(errno) => Err(
            Error::io("failed to delete an empty directory", errno.into())
                .with("path", directory.display()),
        ),
    }
}

/// Lists files of an entry's directory whose names end in `.lock`.
pub(crate) fn locks(entry: &Path) -> Result<Vec<String>, Error> {
    let failed = |error| {
        Error::io("failed to list a worktree's git directory", error).with("path", entry.display())
    };
    let mut found = Vec::new();
    for file in std::fs::read_dir(entry).map_err(failed)? {
        let name = file.map_err(failed)?.file_name().into_vec();
        if name.ends_with(b".lock") {
            found.push(crate::text::lossy(&name));
        }
    }
    Ok(found)
}
