//! What a process that died over a ref leaves: the lock of the ref, and directories without anything in them.

use std::{
    io,
    path::{Path, PathBuf},
};

use groundcrew_core::error::Error;

/// The lock file of a loose ref.
pub(super) fn lock_of(reference: &Path) -> PathBuf {
    let mut lock = reference.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Deletes a file; one that is gone is fine.
pub(super) fn remove_file(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        Err(error) => {
            Err(Error::io("failed to delete a left-over of git", error)
                .with("path", path.display()))
        }
    }
}

/// Removes the directories that a file was in, as far as they are empty now and below `root`.
pub(super) fn prune(file: &Path, root: &Path) {
    let mut directory = file.parent();
    while let Some(path) = directory.filter(|path| path.starts_with(root) && *path != root) {
        match rustix::fs::rmdir(path) {
            // Git, which deletes refs, takes some of them along.
            Ok(()) | Err(rustix::io::Errno::NOENT) => directory = path.parent(),
            // Not empty: others are in it.
            Err(_) => break,
        }
    }
}

/// Tells whether a process that we may look at has a file open.
pub(super) fn is_open(path: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    processes.flatten().any(|process| {
        std::fs::read_dir(process.path().join("fd")).is_ok_and(|open| {
            open.flatten()
                .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == path))
        })
    })
}
