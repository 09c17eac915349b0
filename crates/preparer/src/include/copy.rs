//! Makes the copies and links in a work tree: beneath it, over nothing, and following no link on the way.

use std::{
    ffi::OsStr,
    fs::{File, FileTimes},
    os::fd::OwnedFd,
    path::Path,
};

use groundcrew_core::error::Error;
use rustix::{
    fs::{FileType, Mode, OFlags, fchmod, fstat, ioctl_ficlone, mkdirat, symlinkat},
    io::Errno,
};

use super::find::{Taken, What};
use crate::files::beneath;

/// Makes one thing in `tree`; `None` when it is made, else why it is left out.
///
/// # Errors
///
/// Those of the file system that are no matter of this one thing, such as a full disk.
pub(crate) fn take_along(
    checkout: &OwnedFd,
    place: &Path,
    tree: &OwnedFd,
    taken: &Taken,
) -> Result<Option<&'static str>, Error> {
    let path = Path::new(&taken.name);
    let result = parents(checkout, tree, path).and_then(|parent| {
        let name = path.file_name().unwrap_or_default();
        match &taken.what {
            What::Copy => copy(checkout, &taken.name, &parent, name),
            What::Link(target) => symlinkat(target, &parent, name).map_err(Into::into),
            What::LinkTo => symlinkat(place.join(path), &parent, name).map_err(Into::into),
        }
    });
    match result {
        Ok(()) => Ok(None),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::EXIST) => Ok(Some("is there already")),
            Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
                Ok(Some("has a link, a file or a mount in its way"))
            }
            Some(Errno::NOENT) => Ok(Some("is gone meanwhile")),
            Some(Errno::ACCESS) => Ok(Some("cannot be read")),
            _ => Err(Error::io("failed to take a file along", error).with("path", path.display())),
        },
    }
}

/// Makes the directories above, with the modes that they have in the checkout; returns the last one.
fn parents(checkout: &OwnedFd, tree: &OwnedFd, path: &Path) -> std::io::Result<OwnedFd> {
    let above = path.parent().unwrap_or(Path::new(""));
    match beneath::open_directory(tree, above.as_os_str()) {
        Ok(directory) => return Ok(directory),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut at = Path::new("").to_owned();
    let mut open = beneath::open_directory(tree, OsStr::new(""))?;
    for part in above {
        at.push(part);
        let mode = beneath::open_directory(checkout, at.as_os_str())
            .and_then(|directory| fstat(&directory))
            .map_or(0o755, |stat| stat.st_mode & 0o777);
        // We have to write into it ourselves.
        match mkdirat(&open, part, Mode::from_raw_mode(mode | 0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        open = beneath::open_directory(&open, part)?;
    }
    Ok(open)
}

fn copy(checkout: &OwnedFd, from: &OsStr, parent: &OwnedFd, name: &OsStr) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let source = beneath::open(checkout, from, flags, Mode::empty())?;
    let stat = fstat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::NOENT.into());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let target = beneath::open(parent, name, flags, Mode::from_raw_mode(0o600))?;
    let (mut source, mut target) = (File::from(source), File::from(target));
    if ioctl_ficlone(&target, &source).is_err() {
        std::io::copy(&mut source, &mut target)?;
    }
    // Build tools compare times; nobody else's bits come along.
    let times = FileTimes::new().set_modified(source.metadata()?.modified()?);
    target.set_times(times)?;
    fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o777))?;
    Ok(())
}
