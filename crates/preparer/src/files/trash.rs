//! The directory that removed trees go to first, by one rename: what is deleted there is no longer what anybody works in.

use std::{
    ffi::{OsStr, OsString},
    fs::FileTimes,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::AttemptId,
};
use rustix::{
    fs::{AtFlags, RenameFlags, fstat, renameat_with, statat},
    io::Errno,
};

use super::{beneath, id::FileId, removal};

/// Ends the name of what is deleted at once.
const DISCARD: &str = "discard";
/// Ends the name of what is kept for a while.
const KEPT: &str = "kept";

/// The trash of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Trash {
    path: PathBuf,
}

/// What becomes of a tree in the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is deleted at once.
    Discard,
    /// It is kept until it expires.
    Keep,
}

/// Who put something in: an attempt, and the key of its record.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// The attempt.
    pub(crate) attempt: AttemptId,
    /// The key.
    pub(crate) key: String,
}

fn name(owner: &Owner, fate: Fate) -> OsString {
    let end = match fate {
        Fate::Discard => DISCARD,
        Fate::Keep => KEPT,
    };
    format!("{}-{}-{end}", owner.attempt, owner.key).into()
}

impl Trash {
    /// Uses a directory, which is made when first needed.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn open(&self) -> Result<OwnedFd, Error> {
        beneath::private_root(&self.path)?;
        beneath::open_root(&self.path).map_err(|errno| {
            Error::io("failed to open the trash", errno.into()).with("path", self.path.display())
        })
    }

    /// Moves `name` of the open directory `parent` in, if it still is `expected`.
    ///
    /// # Errors
    ///
    /// `Conflict` when it is another thing; it is put back.
    pub(crate) fn take(
        &self,
        parent: &OwnedFd,
        entry: &OsStr,
        expected: FileId,
        owner: &Owner,
        fate: Fate,
    ) -> Result<(), Error> {
        let trash = self.open()?;
        let target = name(owner, fate);
        let moved = renameat_with(parent, entry, &trash, &target, RenameFlags::NOREPLACE);
        match moved {
            Ok(()) => {}
            Err(Errno::XDEV) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the trash is on another filesystem than the workspace",
                )
                .with("trash", self.path.display()));
            }
            Err(errno) => {
                return Err(Error::io("failed to move to the trash", errno.into())
                    .with("name", entry.display())
                    .with("trash", self.path.display()));
            }
        }
        let found = statat(&trash, &target, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileId::of_stat(&stat))
            .map_err(|errno| Error::io("failed to look into the trash", errno.into()))?;
        if found != expected {
            // Swapped between the check and the rename: not ours to take.
            renameat_with(&trash, &target, parent, entry, RenameFlags::NOREPLACE)
                .map_err(|errno| Error::io("failed to put back what is not ours", errno.into()))?;
            return Err(Error::new(
                ErrorKind::Conflict,
                "another thing was put in the place of the workspace",
            )
            .with("name", entry.display()));
        }
        if fate == Fate::Keep
            && let Ok(directory) = beneath::open_directory(&trash, &target)
        {
            // Its age in the trash counts from now.
            let now = FileTimes::new().set_modified(SystemTime::now());
            std::fs::File::from(directory)
                .set_times(now)
                .map_err(|error| Error::io("failed to date what is in the trash", error))?;
        }
        Ok(())
    }

    /// Deletes what an owner discarded; `false` if there is none.
    pub(crate) fn empty(&self, owner: &Owner) -> Result<bool, Error> {
        if !self.holds(owner, Fate::Discard)? {
            return Ok(false);
        }
        let target = name(owner, Fate::Discard);
        removal::remove(&self.open()?, &target, &self.path.join(&target))?;
        Ok(true)
    }

    /// Tells whether an owner has something in it.
    pub(crate) fn holds(&self, owner: &Owner, fate: Fate) -> Result<bool, Error> {
        Ok(FileId::of(&self.path.join(name(owner, fate)))?.is_some())
    }

    /// Deletes what has been in it for longer than that, and what should have been deleted at once; returns how many.
    pub(crate) fn expire(&self, older_than: Duration) -> Result<usize, Error> {
        if FileId::of(&self.path)?.is_none() {
            return Ok(0);
        }
        let trash = self.open()?;
        let failed = |errno: Errno| Error::io("failed to read the trash", errno.into());
        let now = SystemTime::now();
        let mut count = 0;
        for entry in rustix::fs::Dir::read_from(&trash).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(text) = entry.file_name().to_str() else {
                continue;
            };
            let (Some((attempt, _)), Some((_, end))) =
                (text.split_once('-'), text.rsplit_once('-'))
            else {
                continue;
            };
            if attempt.parse::<AttemptId>().is_err() || !matches!(end, DISCARD | KEPT) {
                continue;
            }
            let path = self.path.join(text);
            let age = path
                .symlink_metadata()
                .and_then(|metadata| metadata.modified())
                .map_err(|error| Error::io("failed to look into the trash", error))
                .map(|modified| now.duration_since(modified).unwrap_or_default())?;
            if end == DISCARD || age > older_than {
                removal::remove(&trash, OsStr::new(text), &path)?;
                count += 1;
            }
        }
        Ok(count)
    }
}

/// Opens the directory that holds `path`, if it is still the recorded one.
pub(crate) fn open_parent(
    directory: &Path,
    expected: Option<FileId>,
) -> Result<Option<OwnedFd>, Error> {
    let failed = |errno: Errno| {
        Error::io("failed to open the directory of a workspace", errno.into())
            .with("path", directory.display())
    };
    let parent = match beneath::open_root(directory) {
        Ok(parent) => parent,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(failed(errno)),
    };
    let found = FileId::of_stat(&fstat(&parent).map_err(failed)?);
    Ok((expected.is_none_or(|expected| expected == found)).then_some(parent))
}
