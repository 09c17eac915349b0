//! The directory of the store, locked: its files are read and replaced relative to it, and no link is followed.
//!
//! * Readers share the lock, a writer has it alone; the kernel gives it back when its holder ends, however it ends.
//! * A file is replaced whole: a crash leaves the old one or the new one.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, ErrorKind as Io, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use groundcrew_core::error::{Error, ErrorKind};
use rustix::fs::{AtFlags, Mode, OFlags};
use zeroize::Zeroizing;

use super::points::WritePoints;

/// What is wanted of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Only to look, beside others who look.
    Read,
    /// To change what is there.
    Change,
    /// To change it, and to make it first if it is not there.
    Make,
}

/// The directory, locked until dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    path: &'a Path,
    directory: File,
    points: &'a dyn WritePoints,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Not left to closing: a child between fork and exec may have a copy of the descriptor.
        let _left = self.directory.unlock();
    }
}

impl<'a> Place<'a> {
    /// Opens and locks the directory; `None` when it is not there and not to be made.
    pub(super) fn open(
        path: &'a Path,
        access: Access,
        patience: Duration,
        points: &'a dyn WritePoints,
    ) -> Result<Option<Self>, Error> {
        let start = Instant::now();
        loop {
            let Some(directory) = open_directory(path, access)? else {
                return Ok(None);
            };
            lock(&directory, path, access, start, patience)?;
            let place = Self {
                path,
                directory,
                points,
            };
            // It may have been taken away while we waited; then others lock a new one.
            if place.is_still_there()? {
                return Ok(Some(place));
            }
        }
    }

    fn is_still_there(&self) -> Result<bool, Error> {
        let failed = |error| failed("cannot look at the directory of secrets", self.path, error);
        let ours = self.directory.metadata().map_err(failed)?;
        match fs::symlink_metadata(self.path) {
            Ok(named) => Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino())),
            Err(error) if error.kind() == Io::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the path of a file, for people.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Passes a point.
    pub(super) fn pass(&self, point: &'static str) -> Result<(), Error> {
        self.points.pass(point)
    }

    /// Opens a file to be read; `None` when it is not there.
    pub(super) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        open_no_follow(&self.directory, Path::new(name))
    }

    /// Reads a file of that size at most; `None` when it is not there.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path_of(name);
        let failed = |error| failed("cannot read the stored secrets", &path, error);
        let Some(file) = self.open_file(name).map_err(failed)? else {
            return Ok(None);
        };
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "what has the name of the stored secrets is no file",
            )
            .with("path", path.display()));
        }
        if found.len() > most {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the stored secrets are damaged: the file is too long",
            )
            .with("path", path.display())
            .with("bytes", found.len())
            .with("most", most));
        }
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(bytes))
    }

    /// Removes what a writer that died has left.
    pub(super) fn sweep(&self, names: &[&str]) -> Result<(), Error> {
        names.iter().try_for_each(|name| {
            self.remove(name)
                .map_err(|error| failed("cannot remove a draft", &self.path_of(name), error))
        })
    }

    /// Removes a file that may be gone already.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Writes a file that is not there, for its owner only, and has it on disk; its name is not, yet.
    pub(super) fn draft(
        &self,
        name: &str,
        bytes: &[u8],
        half: Option<&'static str>,
    ) -> Result<(), Error> {
        let path = self.path_of(name);
        let failed = |error| failed("cannot write the stored secrets", &path, error);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| failed(errno.into()))?;
        let mut file = File::from(file);
        let written = (|| {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            file.write_all(first).map_err(failed)?;
            if let Some(half) = half {
                self.pass(half)?;
            }
            file.write_all(second).map_err(failed)?;
            file.sync_all().map_err(failed)
        })();
        if written.is_err() {
            // What stays is swept away by the next writer.
            let _swept = self.remove(name);
        }
        written
    }

    /// Gives a draft its name, in place of what has it.
    pub(super) fn rename(&self, draft: &str, name: &str) -> Result<(), Error> {
        rustix::fs::renameat(&self.directory, draft, &self.directory, name).map_err(|errno| {
            failed(
                "cannot replace the stored secrets",
                &self.path_of(name),
                errno.into(),
            )
        })
    }

    /// Gives a draft a name that nothing has; it keeps its own as well.
    pub(super) fn link(&self, draft: &str, name: &str) -> Result<(), Error> {
        // A link, unlike a rename, never replaces.
        rustix::fs::linkat(
            &self.directory,
            draft,
            &self.directory,
            name,
            AtFlags::empty(),
        )
        .map_err(|errno| {
            failed(
                "cannot place the master key",
                &self.path_of(name),
                errno.into(),
            )
        })
    }

    /// Makes the names in the directory durable.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.directory
            .sync_all()
            .map_err(|error| failed("cannot write the directory of secrets", self.path, error))
    }
}

/// Opens a file to be read, relative to a directory, without following a link or waiting for a writer of a pipe.
pub(super) fn open_no_follow(directory: &File, path: &Path) -> io::Result<Option<File>> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads a small file into memory that is wiped; one byte more than `most` tells that it is longer.
pub(super) fn read_wiped(file: &mut File, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; most + 1]);
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn open_directory(path: &Path, access: Access) -> Result<Option<File>, Error> {
    let wrong = |error| failed("cannot open the directory of secrets", path, error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let opened = match open() {
        Err(error) if error.kind() == Io::NotFound && access == Access::Make => {
            make(path).map_err(wrong)?;
            open()
        }
        other => other,
    };
    let directory = match opened {
        Ok(directory) => File::from(directory),
        Err(error) if error.kind() == Io::NotFound && access != Access::Make => return Ok(None),
        // A link shows itself as either, depending on how it was met.
        Err(error) if error.kind() == Io::NotADirectory || error.raw_os_error() == Some(40) => {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the place of the secrets is a file or a link, and must be a directory",
            )
            .with("path", path.display()));
        }
        Err(error) => return Err(wrong(error)),
    };
    let found = directory.metadata().map_err(wrong)?;
    let refuse = |why: &'static str, hint: String| {
        Err(Error::new(ErrorKind::PermissionDenied, why)
            .with("path", path.display())
            .with("hint", hint))
    };
    if found.uid() != rustix::process::geteuid().as_raw() {
        return refuse(
            "the directory of secrets belongs to another user",
            format!("it belongs to user {}", found.uid()),
        );
    }
    if found.mode() & 0o077 != 0 {
        return refuse(
            "the directory of secrets is open to other users",
            format!("chmod 700 {}", path.display()),
        );
    }
    Ok(Some(directory))
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn lock(
    directory: &File,
    path: &Path,
    access: Access,
    start: Instant,
    patience: Duration,
) -> Result<(), Error> {
    loop {
        let tried = match access {
            Access::Read => directory.try_lock_shared(),
            Access::Change | Access::Make => directory.try_lock(),
        };
        match tried {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if start.elapsed() < patience => pause(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "another process keeps the secrets locked",
                )
                .with("path", path.display())
                .with("hint", "try again when it is done"));
            }
            Err(TryLockError::Error(error)) => {
                return Err(failed("cannot lock the directory of secrets", path, error));
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "flock has no bounded wait, and this is called on blocking threads only"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(3));
}

pub(super) fn failed(message: &'static str, path: &Path, source: io::Error) -> Error {
    Error::io(message, source).with("path", path.display())
}
