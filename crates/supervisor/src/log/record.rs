//! The small files beside the segments: which process a log belongs to, and how it ended.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{Frame, Started},
};
use serde::{Deserialize, Serialize};

use super::{
    files,
    frame::{EXIT_LEN, decode_exit},
};

const STATE: &str = "state.json";
const EXIT: &str = "exit";
const VERSION: u32 = 1;

/// What a record may take: arguments at the kernel's limits, escaped, and what is said of them.
const MAX_STATE: usize = 64 << 20;

/// What is remembered of a process that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The form of this file.
    pub(crate) version: u32,
    /// Its name.
    pub(crate) id: ProcessId,
    /// Its place in the order of starts.
    pub(crate) order: u64,
    /// Whether its end ends the instance.
    pub(crate) main: bool,
    /// What was started.
    pub(crate) started: Started,
    /// The boot in which the process number means something.
    pub(crate) boot_id: String,
}

impl Record {
    pub(crate) fn new(id: &ProcessId, order: u64, main: bool, started: &Started) -> Self {
        Self {
            version: VERSION,
            id: id.clone(),
            order,
            main,
            started: started.clone(),
            boot_id: crate::boot::boot_id().unwrap_or_default(),
        }
    }

    /// Writes it, whole or not at all.
    pub(crate) fn store(&self, directory: &Path) -> Result<(), Error> {
        let failed =
            |e| Error::io("failed to record the process", e).with("path", directory.display());
        let bytes = serde_json::to_vec(self).map_err(|e| {
            Error::new(ErrorKind::Unexpected, "failed to record the process").with_source(e)
        })?;
        let part = directory.join("state.json.new");
        let mut file = create(&part).map_err(failed)?;
        file.write_all(&bytes).map_err(failed)?;
        std::fs::rename(&part, directory.join(STATE)).map_err(failed)
    }

    /// Reads it; `None` when no process was started in that directory.
    pub(crate) fn load(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(STATE);
        let bytes = match files::read(directory, STATE, MAX_STATE) {
            Ok(bytes) => bytes,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(e) => {
                return Err(Error::io("failed to read the record of a process", e)
                    .with("path", path.display()));
            }
        };
        let record: Self = serde_json::from_slice(&bytes).map_err(|e| {
            Error::new(ErrorKind::Corrupt, "the record of a process is damaged")
                .with("path", path.display())
                .with_source(e)
        })?;
        if record.version != VERSION {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the record of a process is of an unknown version",
            )
            .with("path", path.display())
            .with("version", record.version));
        }
        Ok(Some(record))
    }
}

pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Makes the directory of a log with room for the exit frame; what an earlier attempt left without a process goes.
pub(crate) fn prepare(directory: &Path) -> Result<File, Error> {
    let failed =
        |e| Error::io("failed to make the log of the process", e).with("path", directory.display());
    if Record::load(directory)?.is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "a process of this name was started here before",
        )
        .with("path", directory.display()));
    }
    clear(directory).map_err(failed)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)?;
    let exit = create(&directory.join(EXIT)).map_err(failed)?;
    exit.write_all_at(&[0; EXIT_LEN], 0).map_err(failed)?;
    Ok(exit)
}

/// Removes a log; gone already is success.
pub(crate) fn clear(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Reads the exit frame; `None` while there is none.
pub(crate) fn exit(directory: &Path) -> Result<Option<Frame>, Error> {
    let path = directory.join(EXIT);
    match files::read(directory, EXIT, EXIT_LEN) {
        Ok(bytes) => Ok(decode_exit(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => {
            Err(Error::io("failed to read how the process ended", e).with("path", path.display()))
        }
    }
}

pub(crate) fn unknown(id: &ProcessId) -> Error {
    Error::new(ErrorKind::NotFound, "no process of this name was started").with("process", id)
}
