//! What was taken along into a work tree, beside it: so that only what was changed since counts as work.
//!
//! It proves nothing about what may be deleted; it tells which files are copies of what a user has.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::Path,
};

use git2::{ObjectType, Oid};
use groundcrew_core::{
    error::{Error, ErrorKind},
    wire::OsText,
};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, readlinkat, renameat, statat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::find::Taken;
use crate::files::beneath;

/// What its name begins with.
const PREFIX: &str = ".groundcrew-included.";
const VERSION: u32 = 1;
/// The longest one that is read: 64 MiB.
const MAX_LEN: u64 = 64 << 20;

/// What was taken along, by name.
#[derive(Debug, Default)]
pub(crate) struct Manifest(BTreeMap<Vec<u8>, Option<Print>>);

/// What a copy was when it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Print {
    /// The id that git would give its content, or its target.
    id: String,
    executable: bool,
    link: bool,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    entries: Vec<(OsText, Option<Print>)>,
}

/// Tells whether a name in the directory of a run is that of the manifest of a tree, or of a half-written one.
pub(crate) fn is_manifest(name: &OsStr, tree: &Path) -> bool {
    let rest = name.as_bytes().strip_prefix(name_of(tree).as_bytes());
    matches!(rest, Some(b"" | b".new"))
}

fn name_of(tree: &Path) -> OsString {
    let mut name = OsString::from(PREFIX);
    name.push(tree.file_name().unwrap_or_default());
    name
}

impl Manifest {
    /// Names what is about to be taken along.
    pub(crate) fn planned(taken: &[Taken]) -> Self {
        let name = |one: &Taken| (one.name.as_bytes().to_vec(), None);
        Self(taken.iter().map(name).collect())
    }

    /// Remembers what became of one that was made in the work tree.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub(crate) fn made(&mut self, tree: &OwnedFd, name: &OsStr) -> Result<(), Error> {
        let print = print(tree, name).map_err(|error| error.with("path", name.display()))?;
        self.0.insert(name.as_bytes().to_vec(), Some(print));
        Ok(())
    }

    /// Drops one that was not made.
    pub(crate) fn not_made(&mut self, name: &OsStr) {
        self.0.remove(name.as_bytes());
    }

    /// Writes the one of a work tree into the directory that the tree is in, in place of an earlier one.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn write(&self, directory: &OwnedFd, tree: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| {
            Error::io("failed to note which files are taken along", error)
                .with("path", tree.display())
        };
        let entries = self.0.iter();
        let written = Written {
            version: VERSION,
            entries: entries
                .map(|(name, print)| (OsText::from_bytes(name.clone()), print.clone()))
                .collect(),
        };
        let text = serde_json::to_vec(&written).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "failed to write a list down").with_source(error)
        })?;
        let name = name_of(tree);
        let mut half = name.clone();
        half.push(".new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let file = beneath::open(directory, &half, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| failed(errno.into()))?;
        let mut file = File::from(file);
        file.write_all(&text).map_err(failed)?;
        renameat(directory, &half, directory, &name).map_err(|errno| failed(errno.into()))
    }

    /// Reads the one of a work tree; empty if there is none, or it is none of ours: then every file counts.
    pub(crate) fn read(tree: &Path) -> Self {
        let read = || {
            let directory = beneath::open_root(tree.parent()?).ok()?;
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let file = beneath::open(&directory, &name_of(tree), flags, Mode::empty()).ok()?;
            let stat = fstat(&file).ok()?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return None;
            }
            let mut text = Vec::new();
            File::from(file).take(MAX_LEN).read_to_end(&mut text).ok()?;
            let written: Written = serde_json::from_slice(&text).ok()?;
            (written.version == VERSION).then(|| {
                let entries = written.entries.into_iter();
                Self(
                    entries
                        .map(|(name, print)| (name.0.into_vec(), print))
                        .collect(),
                )
            })
        };
        read().unwrap_or_default()
    }

    /// Tells whether a file of a work tree, or everything in a directory whose name ends with a slash, is as it was taken along.
    ///
    /// In a tree that was never finished nobody else was at work: there it is enough that it was to be made.
    pub(crate) fn holds(&self, tree: &OwnedFd, name: &[u8], finished: bool) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Some(directory) = name.strip_suffix(b"/") else {
            return self.holds_file(tree, name, finished);
        };
        let mut open = vec![directory.to_vec()];
        while let Some(directory) = open.pop() {
            match entries(tree, &directory) {
                Ok(entries) => {
                    for (name, kind) in entries {
                        let full = [&directory[..], b"/", &name].concat();
                        if kind == FileType::Directory {
                            open.push(full);
                        } else if !self.holds_file(tree, &full, finished) {
                            return false;
                        }
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn holds_file(&self, tree: &OwnedFd, name: &[u8], finished: bool) -> bool {
        match self.0.get(name) {
            Some(_) if !finished => true,
            None | Some(None) => false,
            Some(Some(known)) => {
                print(tree, OsStr::from_bytes(name)).is_ok_and(|found| found == *known)
            }
        }
    }
}

fn entries(tree: &OwnedFd, directory: &[u8]) -> rustix::io::Result<Vec<(Vec<u8>, FileType)>> {
    let handle = beneath::open_directory(tree, OsStr::from_bytes(directory))?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&handle)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            let stat = statat(&handle, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW)?;
            entries.push((name, FileType::from_raw_mode(stat.st_mode)));
        }
    }
    Ok(entries)
}

/// Returns what a file or a link of a work tree is now.
fn print(tree: &OwnedFd, name: &OsStr) -> Result<Print, Error> {
    let failed =
        |errno: Errno| Error::io("failed to read a file that was taken along", errno.into());
    let hashed = |error: git2::Error| {
        Error::new(ErrorKind::Unexpected, "failed to hash a file").with_source(error)
    };
    let path = Path::new(name);
    let parent = path.parent().unwrap_or(Path::new("")).as_os_str();
    let parent = beneath::open_directory(tree, parent).map_err(failed)?;
    let last = path.file_name().unwrap_or_default();
    let stat: Stat = statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        let target = readlinkat(&parent, last, Vec::new()).map_err(failed)?;
        let id = Oid::hash_object(ObjectType::Blob, target.as_bytes()).map_err(hashed)?;
        return Ok(Print {
            id: id.to_string(),
            executable: false,
            link: true,
        });
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let file = beneath::open(&parent, last, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::new(ErrorKind::Unexpected, "it is no regular file"));
    }
    let place = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(Print {
        id: Oid::hash_file(ObjectType::Blob, place)
            .map_err(hashed)?
            .to_string(),
        executable: Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR),
        link: false,
    })
}
