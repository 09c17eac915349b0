//! The file beside a work tree that tells people what it is.
//!
//! It authorises nothing by itself: that takes our row, the inode, and a place inside our root.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{AttemptId, InstallId, RunId, TaskId, TenantId},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fstat, renameat, unlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::beneath;

/// Its name.
pub(crate) const MARKER: &str = ".groundcrew-workspace.json";
/// The longest one that is read.
const MAX_LEN: u64 = 64 * 1024;

/// How the directory is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layout {
    /// The marker lies in a task directory, beside the work trees.
    Worktree,
    /// The marker lies in a task directory, beside private clones.
    Clone,
    /// The task directory is the work tree itself.
    Scratch,
    /// The directory of a session.
    Ephemeral,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// How the directory is laid out.
    pub(crate) layout: Layout,
    /// The name of the directory that it lies in.
    pub(crate) directory: String,
    /// The task, if there is one.
    pub(crate) task: Option<TaskId>,
    /// The tenant, if there is one.
    pub(crate) tenant: Option<TenantId>,
    /// The run that it was made for.
    pub(crate) run: RunId,
    /// The installation that made it.
    pub(crate) install: InstallId,
    /// The attempt that made it.
    pub(crate) attempt: AttemptId,
    /// When, in milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// Whether making it was finished, so that others may have written in it.
    pub(crate) ready: bool,
}

/// The present time, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

impl Marker {
    /// Reads the one in a directory; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `Corrupt` when it is no regular file, too long, or not what we write.
    pub(crate) fn read(directory: &OwnedFd) -> Result<Option<Self>, Error> {
        let wrong = |why: String| {
            Error::new(
                ErrorKind::Corrupt,
                "the marker of a workspace is not one of ours",
            )
            .with_source(why)
        };
        let file = match beneath::open(
            directory,
            OsStr::new(MARKER),
            OFlags::RDONLY | OFlags::NONBLOCK,
            Mode::empty(),
        ) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno @ (Errno::LOOP | Errno::XDEV)) => return Err(wrong(errno.to_string())),
            Err(errno) => {
                return Err(Error::io(
                    "failed to open the marker of a workspace",
                    errno.into(),
                ));
            }
        };
        let stat = fstat(&file).map_err(|errno| {
            Error::io("failed to look at the marker of a workspace", errno.into())
        })?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(wrong("it is no regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(MAX_LEN)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io("failed to read the marker of a workspace", error))?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| wrong(error.to_string()))
    }

    /// Writes it, replacing the one that is there, in one step.
    pub(crate) fn write(&self, directory: &OwnedFd, shown: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| {
            Error::io("failed to write the marker of a workspace", error)
                .with("path", shown.join(MARKER).display())
        };
        let temporary = format!("{MARKER}.{}", self.attempt);
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        bytes.push(b'\n');
        match unlinkat(directory, &*temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let file = beneath::open(
            directory,
            OsStr::new(&temporary),
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|errno| failed(errno.into()))?;
        File::from(file).write_all(&bytes).map_err(failed)?;
        renameat(directory, &*temporary, directory, MARKER).map_err(|errno| failed(errno.into()))
    }

    /// Removes the one in a directory, and a half-written one of that attempt.
    pub(crate) fn remove(directory: &OwnedFd, attempt: AttemptId) -> Result<(), Error> {
        for name in [format!("{MARKER}.{attempt}"), MARKER.to_owned()] {
            match unlinkat(directory, &*name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(Error::io(
                        "failed to delete the marker of a workspace",
                        errno.into(),
                    ));
                }
            }
        }
        Ok(())
    }
}
