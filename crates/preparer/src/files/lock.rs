//! The lock of a repository, between tasks of this process and between processes; held around metadata only.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::{beneath, id::FileId};

/// The locks of all repositories: one file each, named by the device and inode of the common git directory.
#[derive(Debug)]
pub(crate) struct RepositoryLocks {
    directory: PathBuf,
    turns: Mutex<HashMap<FileId, Arc<Turn<()>>>>,
}

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct RepositoryLock {
    _file: File,
    _turn: OwnedMutexGuard<()>,
}

impl RepositoryLocks {
    /// Makes none yet.
    pub(crate) fn new(locks: &Path) -> Self {
        Self {
            directory: locks.join("repository"),
            turns: Mutex::default(),
        }
    }

    fn turn(&self, repository: FileId) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(repository).or_default())
    }

    fn file(&self, repository: FileId) -> PathBuf {
        self.directory
            .join(format!("{}-{}", repository.device, repository.inode))
    }

    /// Waits for the lock of a repository.
    ///
    /// # Cancel safety
    ///
    /// A thread that waits for another process ends when it gets the lock, and gives it back at once.
    pub(crate) async fn lock(
        &self,
        repository: FileId,
        cancel: &CancelToken,
    ) -> Result<RepositoryLock, Error> {
        let cancelled = || {
            Error::new(
                ErrorKind::Cancelled,
                "cancelled while waiting for the lock of the repository",
            )
        };
        let turn = tokio::select! {
            turn = self.turn(repository).lock_owned() => turn,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let path = self.file(repository);
        let file = tokio::task::spawn_blocking(move || lock_file(&path));
        let file = tokio::select! {
            file = file => file.map_err(|e| Error::new(ErrorKind::Panicked, "the thread that takes a lock died").with_source(e))??,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        Ok(RepositoryLock {
            _file: file,
            _turn: turn,
        })
    }

    /// Removes the files of locks that nobody has, or lists them with `dry_run`.
    pub(crate) fn sweep(&self, dry_run: bool) -> Result<Vec<PathBuf>, Error> {
        let failed = |error| {
            Error::io("failed to list the locks of repositories", error)
                .with("path", self.directory.display())
        };
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            // Whoever waits for a file that loses its name finds that out, and locks a new one.
            match file.try_lock() {
                Ok(()) => {
                    if !dry_run {
                        std::fs::remove_file(&path).map_err(failed)?;
                    }
                    found.push(path);
                }
                Err(std::fs::TryLockError::WouldBlock) => {}
                Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        found.sort();
        Ok(found)
    }

    /// Waits for the lock of a repository, on a thread that may block.
    pub(crate) fn lock_blocking(&self, repository: FileId) -> Result<RepositoryLock, Error> {
        let turn = self.turn(repository).blocking_lock_owned();
        Ok(RepositoryLock {
            _file: lock_file(&self.file(repository))?,
            _turn: turn,
        })
    }
}

fn lock_file(path: &Path) -> Result<File, Error> {
    let failed =
        |error| Error::io("failed to lock a repository", error).with("path", path.display());
    if let Some(directory) = path.parent() {
        beneath::private_root(directory)?;
    }
    loop {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        file.lock().map_err(failed)?;
        let held = file.metadata().map_err(failed)?;
        // Somebody may have removed the file while we waited: a lock on a nameless file excludes nobody.
        if FileId::of(path)?
            == Some(FileId {
                device: held.dev(),
                inode: held.ino(),
            })
        {
            return Ok(file);
        }
    }
}

/// Waits until no git of ours is at work in a directory, and keeps others of ours out; `None` if it is gone.
///
/// Every git process of a launch inherits this lock as its stdin, and so holds it even if we are killed.
pub(crate) fn lock_directory(path: &Path) -> Result<Option<OwnedFd>, Error> {
    let failed = |errno: Errno| {
        Error::io("failed to lock the directory of a workspace", errno.into())
            .with("path", path.display())
    };
    let directory = match beneath::open_root(path) {
        Ok(directory) => directory,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(failed(errno)),
    };
    flock(&directory, FlockOperation::LockExclusive).map_err(failed)?;
    Ok(Some(directory))
}
