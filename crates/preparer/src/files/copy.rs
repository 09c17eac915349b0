//! Copies a small tree of regular files and links, such as the git directory of one worktree.
//!
//! It follows no link, crosses no mount, and holds three descriptors at a time.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::Path,
};

use groundcrew_core::error::Error;
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, readlinkat, statat, symlinkat},
    io::Errno,
};

use super::beneath;

/// Copies what is in `from` into the new directory `name` of `parent`; lock files at its top are left out.
///
/// # Errors
///
/// The first thing that cannot be read or written, by its path; what was copied stays.
pub(crate) fn copy(
    from: &OwnedFd,
    shown: &Path,
    parent: &OwnedFd,
    name: &OsStr,
) -> Result<(), Error> {
    let failed = |at: &OsStr, errno: Errno| {
        Error::io("failed to copy a git directory", errno.into())
            .with("path", shown.join(at).display())
    };
    mkdirat(parent, name, Mode::RWXU).map_err(|errno| failed(OsStr::new(""), errno))?;
    let into =
        beneath::open_directory(parent, name).map_err(|errno| failed(OsStr::new(""), errno))?;
    let mut open = vec![OsString::new()];
    while let Some(directory) = open.pop() {
        let source =
            beneath::open_directory(from, &directory).map_err(|errno| failed(&directory, errno))?;
        let target = beneath::open_directory(&into, &directory)
            .map_err(|errno| failed(&directory, errno))?;
        for entry in Dir::read_from(&source).map_err(|errno| failed(&directory, errno))? {
            let entry = entry.map_err(|errno| failed(&directory, errno))?;
            let bytes = entry.file_name().to_bytes();
            let lock = directory.is_empty() && bytes.ends_with(b".lock");
            if matches!(bytes, b"." | b"..") || lock {
                continue;
            }
            let name = OsStr::from_bytes(bytes);
            let full = join(&directory, bytes);
            one(&source, &target, name, &full, &mut open).map_err(|errno| failed(&full, errno))?;
        }
    }
    Ok(())
}

fn join(directory: &OsStr, name: &[u8]) -> OsString {
    if directory.is_empty() {
        return OsString::from_vec(name.to_vec());
    }
    OsString::from_vec([directory.as_bytes(), b"/", name].concat())
}

fn one(
    source: &OwnedFd,
    target: &OwnedFd,
    name: &OsStr,
    full: &OsStr,
    open: &mut Vec<OsString>,
) -> rustix::io::Result<()> {
    let stat = statat(source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            mkdirat(target, name, Mode::RWXU)?;
            open.push(full.to_owned());
        }
        FileType::Symlink => symlinkat(readlinkat(source, name, Vec::new())?, target, name)?,
        FileType::RegularFile => {
            let from = beneath::open(
                source,
                name,
                OFlags::RDONLY | OFlags::NONBLOCK,
                Mode::empty(),
            )?;
            let mode = Mode::from_raw_mode(fstat(&from)?.st_mode) | Mode::RUSR | Mode::WUSR;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let into = beneath::open(target, name, flags, mode)?;
            std::io::copy(&mut File::from(from), &mut File::from(into))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        // A socket or a pipe holds nothing.
        _ => {}
    }
    Ok(())
}
