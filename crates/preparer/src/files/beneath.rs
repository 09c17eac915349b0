//! Opens and makes files beneath a directory that is held open; refuses links, mounts and `..` on the way.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::Path,
};

use groundcrew_core::error::{Error, ErrorKind};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a directory by an absolute path whose last part must not be a link.
pub(crate) fn open_root(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, DIRECTORY, Mode::empty())
}

/// Opens something beneath `root`; no part of `path` may be a link or another mount.
pub(crate) fn open(
    root: impl AsFd,
    path: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    openat2(
        root,
        path,
        flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        mode,
        ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV,
    )
}

/// Opens a directory beneath `root`; the empty path is `root` itself.
pub(crate) fn open_directory(root: impl AsFd, path: &OsStr) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() {
        OsStr::new(".")
    } else {
        path
    };
    open(root, path, DIRECTORY, Mode::empty())
}

/// Makes a directory of ours with mode 0700, and those above it, unless it exists as a directory of this user.
///
/// # Errors
///
/// `PermissionDenied` when it is a link, no directory, or another user's.
pub(crate) fn private_root(path: &Path) -> Result<(), Error> {
    let failed =
        |error| Error::io("failed to make a directory", error).with("path", path.display());
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(failed)?;
            path.symlink_metadata().map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    let user = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != user {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            "a directory of ours is a link, no directory, or another user's",
        )
        .with("path", path.display()));
    }
    Ok(())
}

/// Makes one directory that must not exist yet.
pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<(), Error> {
    std::fs::DirBuilder::new()
        .mode(mode)
        .create(path)
        .map_err(|error| {
            Error::io("failed to make a directory", error).with("path", path.display())
        })
}
