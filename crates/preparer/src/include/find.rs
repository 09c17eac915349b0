//! Finds what the patterns name in a checkout: reads only, follows no link, enters no other repository.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Component, Path},
};

use git2::Repository;
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
};
use rustix::fs::{AtFlags, Dir, FileType, readlinkat, statat};

use super::patterns::{Patterns, Verdict};
use crate::{files::beneath, git::repository::git_error, text};

/// The most files that are taken along.
const MAX_FILES: usize = 50_000;
/// The most bytes that are taken along: 4 GiB.
const MAX_BYTES: u64 = 4 << 30;

/// One thing to take along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Its path in the checkout, and in the work tree.
    pub(crate) name: OsString,
    /// What is made of it.
    pub(crate) what: What,
}

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A copy of a file.
    Copy,
    /// The same link, which leads to that.
    Link(OsString),
    /// A link to the file or directory in the checkout.
    LinkTo,
}

/// Everything that is taken along.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// It, in the order of its names.
    pub(crate) taken: Vec<Taken>,
    /// How many bytes the copies have.
    pub(crate) bytes: u64,
    /// What was left where it is, with the reason.
    pub(crate) skipped: Vec<String>,
}

/// Finds what the patterns name among the untracked files of the checkout at `place`.
///
/// # Errors
///
/// `TooLarge`, with the limits, when it is more than is ever taken along; `Cancelled`.
pub(crate) fn find(
    repository: &Repository,
    place: &Path,
    patterns: &Patterns,
    cancel: &CancelToken,
) -> Result<Found, Error> {
    let root = beneath::open_root(place).map_err(|errno| {
        Error::io("failed to open the checkout", errno.into()).with("path", place.display())
    })?;
    let index = repository
        .index()
        .map_err(|error| git_error("failed to read the index of the checkout", error))?;
    let tracked: HashSet<Vec<u8>> = index.iter().map(|entry| entry.path).collect();
    let mut directories: HashSet<&[u8]> = HashSet::new();
    for name in &tracked {
        let mut name = &name[..];
        while let Some(at) = name.iter().rposition(|byte| *byte == b'/') {
            name = &name[..at];
            if !directories.insert(name) {
                break;
            }
        }
    }
    let mut search = Search {
        root: &root,
        patterns,
        tracked: &tracked,
        directories: &directories,
        found: Found::default(),
    };
    let mut open = vec![(Vec::new(), false)];
    while let Some((directory, inside)) = open.pop() {
        if cancel.is_cancelled() {
            let why = "cancelled while files were looked for";
            return Err(Error::new(ErrorKind::Cancelled, why));
        }
        if let Err(errno) = search.directory(&directory, inside, &mut open) {
            // What no pattern names may as well not be readable.
            if inside {
                search.skip(&directory, &errno.to_string());
            }
        }
        search.within_limits()?;
    }
    let mut found = search.found;
    found.taken.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

struct Search<'a> {
    root: &'a OwnedFd,
    patterns: &'a Patterns,
    tracked: &'a HashSet<Vec<u8>>,
    /// Directories that hold tracked files.
    directories: &'a HashSet<&'a [u8]>,
    found: Found,
}

impl Search<'_> {
    fn skip(&mut self, name: &[u8], why: &str) {
        self.found
            .skipped
            .push(format!("{}: {why}", text::lossy(name)));
    }

    fn take(&mut self, name: Vec<u8>, what: What) {
        let name = OsString::from_vec(name);
        self.found.taken.push(Taken { name, what });
    }

    fn within_limits(&self) -> Result<(), Error> {
        if self.found.taken.len() <= MAX_FILES && self.found.bytes <= MAX_BYTES {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TooLarge,
            "the patterns name more files than are ever taken along; link the directory with `:symlink`, or name less",
        )
        .with("files", self.found.taken.len())
        .with("bytes", self.found.bytes)
        .with("most_files", MAX_FILES)
        .with("most_bytes", MAX_BYTES))
    }

    /// Looks through one directory; `inside` tells that a pattern named it.
    fn directory(
        &mut self,
        directory: &[u8],
        inside: bool,
        open: &mut Vec<(Vec<u8>, bool)>,
    ) -> rustix::io::Result<()> {
        let handle = beneath::open_directory(self.root, OsStr::from_bytes(directory))?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&handle)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        if !directory.is_empty() && names.iter().any(|name| name == b".git") {
            if inside {
                self.skip(directory, "is a repository of its own");
            }
            return Ok(());
        }
        for name in names.into_iter().filter(|name| name != b".git") {
            let full = if directory.is_empty() {
                name.clone()
            } else {
                [directory, &b"/"[..], &name].concat()
            };
            if self.tracked.contains(&full) {
                continue;
            }
            let stat = statat(&handle, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            let is_directory = kind == FileType::Directory;
            let path = Path::new(OsStr::from_bytes(&full));
            let verdict = match self.patterns.verdict(path, is_directory) {
                Verdict::Silent if inside => Verdict::Copied,
                verdict => verdict,
            };
            match (verdict, kind) {
                (Verdict::Linked, FileType::Directory) if self.directories.contains(&full[..]) => {
                    self.skip(&full, "holds tracked files, so it is no link");
                    open.push((full, true));
                }
                (Verdict::Linked, FileType::Directory | FileType::RegularFile) => {
                    self.take(full, What::LinkTo);
                }
                (_, FileType::Directory) => open.push((full, verdict == Verdict::Copied)),
                (Verdict::Silent | Verdict::Stays, _) => {}
                (_, FileType::RegularFile) => {
                    self.found.bytes += u64::try_from(stat.st_size).unwrap_or_default();
                    self.take(full, What::Copy);
                }
                (_, FileType::Symlink) => {
                    let target = readlinkat(&handle, OsStr::from_bytes(&name), Vec::new())?;
                    let target = OsString::from_vec(target.into_bytes());
                    if stays_inside(path, Path::new(&target)) {
                        self.take(full, What::Link(target));
                    } else {
                        self.skip(&full, "is a link that leads out of the repository");
                    }
                }
                _ => self.skip(&full, "is neither a file nor a link"),
            }
        }
        Ok(())
    }
}

/// Tells whether the link at `path`, in a tree, leads to a place in that tree; by its words alone.
fn stays_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}
