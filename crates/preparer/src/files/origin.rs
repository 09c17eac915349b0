//! Where a tree in the trash came from, and what brings it back: a record beside it, written before the tree is moved.
//!
//! It authorises nothing by itself: a tree is the one it speaks of only if its device and inode are those.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::PathBuf,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{AttemptId, InstallId, RunId},
    wire,
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fstat, fsync, renameat, unlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{beneath, id::FileId};

/// The version of what is written here.
const VERSION: u32 = 1;
/// The longest one that is read.
const MAX_LEN: u64 = 1024 * 1024;

/// What is known of a tree in the trash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) version: u32,
    /// The run.
    pub(crate) run: RunId,
    /// The attempt that made it.
    pub(crate) attempt: AttemptId,
    /// The installation.
    pub(crate) install: InstallId,
    /// The key of its record.
    pub(crate) key: String,
    /// What it was: `worktree`, `clone`, `directory`, `scratch`, `ephemeral`.
    pub(crate) kind: String,
    /// Where it was.
    #[serde(with = "wire::path")]
    pub(crate) path: PathBuf,
    /// Which one it is.
    pub(crate) id: FileId,
    /// The common git directory of its repository.
    #[serde(with = "wire::optional_path", default)]
    pub(crate) repository: Option<PathBuf>,
    /// Its branch, without `refs/heads/`.
    #[serde(default)]
    pub(crate) branch: Option<String>,
    /// Where the branch was.
    #[serde(default)]
    pub(crate) tip: Option<String>,
    /// The commit that it was on.
    #[serde(default)]
    pub(crate) head: Option<String>,
    /// What the branch started from.
    #[serde(default)]
    pub(crate) base: Option<String>,
    /// The ref that keeps what was saved of it.
    #[serde(default)]
    pub(crate) snapshot: Option<String>,
    /// When it was moved, in milliseconds since 1970.
    pub(crate) trashed_ms: u64,
    /// The resource in its preparer's own words.
    pub(crate) resource: String,
}

impl Origin {
    /// Describes what is about to be moved; what is not said here is not known.
    pub(crate) fn new(run: &RunId, attempt: AttemptId, install: &InstallId, id: FileId) -> Self {
        Self {
            version: VERSION,
            run: run.clone(),
            attempt,
            install: install.clone(),
            key: String::new(),
            kind: String::new(),
            path: PathBuf::new(),
            id,
            repository: None,
            branch: None,
            tip: None,
            head: None,
            base: None,
            snapshot: None,
            trashed_ms: super::marker::now_ms(),
            resource: String::new(),
        }
    }

    /// Reads the one of that name; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `Corrupt` when it is no regular file, too long, or not what we write.
    pub(crate) fn read(trash: &OwnedFd, name: &OsStr) -> Result<Option<Self>, Error> {
        let wrong = |why: String| {
            Error::new(
                ErrorKind::Corrupt,
                "the record of something in the trash cannot be understood",
            )
            .with("name", name.display())
            .with_source(why)
        };
        let file = match beneath::open(
            trash,
            name,
            OFlags::RDONLY | OFlags::NONBLOCK,
            Mode::empty(),
        ) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno @ (Errno::LOOP | Errno::XDEV)) => return Err(wrong(errno.to_string())),
            Err(errno) => {
                return Err(
                    Error::io("failed to read a record of the trash", errno.into())
                        .with("name", name.display()),
                );
            }
        };
        let stat = fstat(&file)
            .map_err(|errno| Error::io("failed to read a record of the trash", errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(wrong("it is no regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(MAX_LEN)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io("failed to read a record of the trash", error))?;
        let origin: Self =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if origin.version == VERSION {
            Ok(Some(origin))
        } else {
            Err(wrong(format!("version {}", origin.version)))
        }
    }

    /// Writes it under that name, in place of an earlier one; it is on disk when this returns.
    pub(crate) fn write(&self, trash: &OwnedFd, name: &OsStr) -> Result<(), Error> {
        let failed = |error: std::io::Error| {
            Error::io(
                "failed to note where something in the trash came from",
                error,
            )
            .with("name", name.display())
        };
        let mut temporary = name.to_owned();
        temporary.push(".new");
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        bytes.push(b'\n');
        match unlinkat(trash, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let file = beneath::open(
            trash,
            &temporary,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|errno| failed(errno.into()))?;
        let mut file = File::from(file);
        file.write_all(&bytes).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        renameat(trash, &temporary, trash, name).map_err(|errno| failed(errno.into()))?;
        fsync(trash).map_err(|errno| failed(errno.into()))
    }
}
