//! The directory that removed trees go to first, by one rename: what is deleted there is no longer what anybody works in.

use std::{
    collections::BTreeMap,
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
    fs::{AtFlags, RenameFlags, fstat, fsync, renameat_with, statat, unlinkat},
    io::Errno,
};

use super::{beneath, copy, id::FileId, occupants, origin::Origin, removal};

/// Ends the name of what is deleted at once.
const DISCARD: &str = "discard";
/// Ends the name of what is kept for a while.
const KEPT: &str = "kept";
/// Ends the name of the record of where it came from.
const ORIGIN: &str = "origin";
/// Ends the name of the copy of the git directory of a worktree.
const ENTRY: &str = "entry";

/// How long a record may be without its tree before it counts as a left-over.
const HALF_MADE: Duration = Duration::from_hours(1);

/// The trash of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Trash {
    path: PathBuf,
}

/// Who put something in: an attempt, and the key of its record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    /// The attempt.
    pub(crate) attempt: AttemptId,
    /// The key.
    pub(crate) key: String,
}

/// Everything in the trash that one owner put there.
#[derive(Debug)]
pub(crate) struct Item {
    /// Who.
    pub(crate) owner: Owner,
    /// The tree that is kept, and since when.
    pub(crate) tree: Option<(FileId, SystemTime)>,
    /// Whether there is something that is to be deleted at once.
    pub(crate) discarded: bool,
    /// Whether there is a copy of a worktree's git directory.
    pub(crate) entry: bool,
    /// Where it came from; none for what an earlier version put there.
    pub(crate) origin: Option<Result<Origin, Error>>,
}

impl Item {
    /// Returns since when it is in the trash.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        match (&self.origin, &self.tree) {
            (Some(Ok(origin)), _) => {
                SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(origin.trashed_ms))
            }
            (_, Some((_, modified))) => Some(*modified),
            _ => None,
        }
    }

    /// Returns how old it must be at least to be deleted.
    ///
    /// A record without a tree is that of somebody who is just about to move the tree, or who died before.
    pub(crate) fn least_age(&self, older_than: Duration) -> Duration {
        if self.tree.is_some() || self.discarded {
            older_than
        } else {
            older_than.max(HALF_MADE)
        }
    }

    /// Returns why it may not be deleted, if so.
    pub(crate) fn stays(&self, trash: &Trash) -> Option<String> {
        let Some((id, _)) = &self.tree else {
            return None;
        };
        match &self.origin {
            Some(Err(error)) => return Some(error.to_string()),
            Some(Ok(origin)) if origin.id != *id => {
                return Some("it is another directory than the one that was moved here".to_owned());
            }
            _ => {}
        }
        let users = occupants::using(&trash.path_of(&self.owner));
        (!users.is_empty()).then(|| format!("a process uses it: {}", users.join(", ")))
    }

    /// Returns whether what is left of it is only the record that leads to a snapshot.
    pub(crate) fn is_only_snapshot(&self) -> bool {
        self.tree.is_none()
            && !self.discarded
            && matches!(&self.origin, Some(Ok(origin)) if origin.snapshot.is_some())
    }
}

fn name(owner: &Owner, end: &str) -> OsString {
    format!("{}-{}-{end}", owner.attempt, owner.key).into()
}

impl Trash {
    /// Uses a directory, which is made when first needed.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Opens the directory; makes it first if it is missing.
    pub(crate) fn open(&self) -> Result<OwnedFd, Error> {
        beneath::private_root(&self.path)?;
        beneath::open_root(&self.path).map_err(|errno| {
            Error::io("failed to open the trash", errno.into()).with("path", self.path.display())
        })
    }

    /// Where the tree of an owner is kept.
    pub(crate) fn path_of(&self, owner: &Owner) -> PathBuf {
        self.path.join(name(owner, KEPT))
    }

    /// Moves `name` of the open directory `parent` in, if it still is `expected`; to be deleted at once, unless it has an origin.
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
        origin: Option<&Origin>,
    ) -> Result<(), Error> {
        let trash = self.open()?;
        let target = name(owner, if origin.is_some() { KEPT } else { DISCARD });
        if let Some(origin) = origin {
            // Whoever finds the tree later must find out what it is, whatever happens to us in between.
            origin.write(&trash, &name(owner, ORIGIN))?;
        }
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
        if origin.is_some()
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

    /// Puts a copy of a worktree's git directory in, in place of an earlier one.
    pub(crate) fn copy_entry(&self, owner: &Owner, entry: &Path) -> Result<(), Error> {
        let trash = self.open()?;
        let from = beneath::open_root(entry).map_err(|errno| {
            Error::io(
                "failed to open the git directory of the worktree",
                errno.into(),
            )
            .with("path", entry.display())
        })?;
        let (half, whole) = (name(owner, "half"), name(owner, ENTRY));
        removal::remove(&trash, &half, &self.path.join(&half))?;
        copy::copy(&from, entry, &trash, &half)?;
        removal::remove(&trash, &whole, &self.path.join(&whole))?;
        renameat_with(&trash, &half, &trash, &whole, RenameFlags::NOREPLACE)
            .and_then(|()| fsync(&trash))
            .map_err(|errno| Error::io("failed to copy to the trash", errno.into()))
    }

    /// Opens the copy of a worktree's git directory.
    pub(crate) fn entry(&self, owner: &Owner) -> Result<Option<(OwnedFd, PathBuf)>, Error> {
        let path = self.path.join(name(owner, ENTRY));
        match beneath::open_root(&path) {
            Ok(entry) => Ok(Some((entry, path))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io("failed to look into the trash", errno.into())
                .with("path", path.display())),
        }
    }

    /// Moves a kept tree out again, to `entry` of `parent`, where nothing may be.
    ///
    /// # Errors
    ///
    /// * `AlreadyExists` when something is there.
    /// * `Conflict` when the tree is not the one that its origin speaks of.
    /// * `Unsupported` when that is on another filesystem.
    pub(crate) fn give_back(
        &self,
        origin: &Origin,
        owner: &Owner,
        parent: &OwnedFd,
        entry: &OsStr,
        shown: &Path,
    ) -> Result<(), Error> {
        let trash = self.open()?;
        let source = name(owner, KEPT);
        let found = FileId::of(&self.path.join(&source))?;
        if found != Some(origin.id) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "what is in the trash is not what was moved there",
            )
            .with("path", self.path.join(&source).display()));
        }
        match renameat_with(&trash, &source, parent, entry, RenameFlags::NOREPLACE) {
            Ok(()) => fsync(parent)
                .map_err(|errno| Error::io("failed to bring back a tree", errno.into())),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(taken(shown)),
            Err(Errno::XDEV) => Err(Error::new(
                ErrorKind::Unsupported,
                "the place is on another filesystem than the trash; bring it back without --to, or to a directory beside the state directory",
            )
            .with("path", shown.display())),
            Err(errno) => Err(Error::io("failed to bring back a tree", errno.into())
                .with("path", shown.display())),
        }
    }

    /// Deletes what an owner discarded; `false` if there is none.
    pub(crate) fn empty(&self, owner: &Owner) -> Result<bool, Error> {
        if !self.holds_discarded(owner)? {
            return Ok(false);
        }
        self.delete(owner, DISCARD)?;
        Ok(true)
    }

    /// Tells whether an owner has something in it that is to be deleted at once.
    pub(crate) fn holds_discarded(&self, owner: &Owner) -> Result<bool, Error> {
        Ok(FileId::of(&self.path.join(name(owner, DISCARD)))?.is_some())
    }

    fn delete(&self, owner: &Owner, end: &str) -> Result<(), Error> {
        let target = name(owner, end);
        removal::remove(&self.open()?, &target, &self.path.join(&target))
    }

    /// Lists everything in it, by who put it there; an incomplete list is an error.
    pub(crate) fn list(&self) -> Result<Vec<Item>, Error> {
        if FileId::of(&self.path)?.is_none() {
            return Ok(Vec::new());
        }
        let trash = self.open()?;
        let failed = |errno: Errno| {
            Error::io("failed to read the trash", errno.into()).with("path", self.path.display())
        };
        let mut items: BTreeMap<Owner, Item> = BTreeMap::new();
        for entry in rustix::fs::Dir::read_from(&trash).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some((owner, end)) = entry.file_name().to_str().ok().and_then(parse) else {
                continue;
            };
            let stat = match statat(&trash, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Somebody else empties it at this moment.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            let item = items.entry(owner.clone()).or_insert_with(|| Item {
                owner: owner.clone(),
                tree: None,
                discarded: false,
                entry: false,
                origin: None,
            });
            match end {
                KEPT => item.tree = Some((FileId::of_stat(&stat), modified(&stat))),
                DISCARD => item.discarded = true,
                ENTRY => item.entry = true,
                _ => {
                    item.origin = Origin::read(&trash, &name(&owner, ORIGIN)).transpose();
                }
            }
        }
        Ok(items.into_values().collect())
    }

    /// Deletes everything of an item but the record that leads to a snapshot; only as long as it is what was listed.
    pub(crate) fn delete_item(&self, item: &Item) -> Result<(), Error> {
        let now = FileId::of(&self.path_of(&item.owner))?;
        if now != item.tree.as_ref().map(|(id, _)| *id) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "what is in the trash changed since it was listed",
            )
            .with("path", self.path_of(&item.owner).display())
            .retryable(true));
        }
        for end in [ENTRY, KEPT, DISCARD] {
            self.delete(&item.owner, end)?;
        }
        match &item.origin {
            Some(Ok(origin)) if origin.snapshot.is_some() => Ok(()),
            _ => self.forget(&item.owner),
        }
    }

    /// Deletes the record of where something came from, and the copy of its git directory.
    pub(crate) fn forget(&self, owner: &Owner) -> Result<(), Error> {
        self.delete(owner, ENTRY)?;
        match unlinkat(self.open()?, name(owner, ORIGIN), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::io(
                "failed to delete a record of the trash",
                errno.into(),
            )),
        }
    }

    /// Puts a tree that was made again of a snapshot where the kept one was, and notes that it stands for it.
    pub(crate) fn put_rebuilt(
        &self,
        owner: &Owner,
        origin: &Origin,
        fill: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<Origin, Error> {
        let trash = self.open()?;
        let (half, whole) = (name(owner, "half"), name(owner, KEPT));
        removal::remove(&trash, &half, &self.path.join(&half))?;
        let path = self.path.join(&half);
        beneath::make_directory(&path, 0o755)?;
        fill(&path)?;
        let id = FileId::of(&path)?.ok_or_else(|| {
            Error::new(ErrorKind::Conflict, "a directory in the trash is gone")
                .with("path", path.display())
        })?;
        let origin = Origin {
            id,
            ..origin.clone()
        };
        origin.write(&trash, &name(owner, ORIGIN))?;
        renameat_with(&trash, &half, &trash, &whole, RenameFlags::NOREPLACE)
            .map_err(|errno| Error::io("failed to put a tree in the trash", errno.into()))?;
        Ok(origin)
    }

    /// Deletes what has been in it for longer than that, and what should have been deleted at once; returns how many.
    pub(crate) fn expire(&self, older_than: Duration) -> Result<usize, Error> {
        let now = SystemTime::now();
        let mut count = 0;
        for item in self.list()? {
            if item.discarded {
                self.delete(&item.owner, DISCARD)?;
                count += 1;
            }
            let age = item
                .since()
                .map(|since| now.duration_since(since).unwrap_or_default());
            let old = age.is_none_or(|age| age > item.least_age(older_than));
            let old = old && !item.is_only_snapshot();
            if old && item.stays(self).is_none() {
                self.delete_item(&item)?;
                count += 1;
            }
        }
        Ok(count)
    }
}

/// Says that something is in the way of what comes back.
pub(crate) fn taken(path: &Path) -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "something is there already; nothing is put over it: move it away, or bring the work back elsewhere with --to",
    )
    .with("path", path.display())
}

/// Understands a name in the trash.
fn parse(text: &str) -> Option<(Owner, &str)> {
    let (attempt, rest) = text.split_once('-')?;
    let (key, end) = rest.rsplit_once('-')?;
    let owner = Owner {
        attempt: attempt.parse().ok()?,
        key: key.to_owned(),
    };
    matches!(end, KEPT | DISCARD | ORIGIN | ENTRY).then_some((owner, end))
}

fn modified(stat: &rustix::fs::Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
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
