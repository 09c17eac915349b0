//! The number of acknowledged writes, beside the database: a database that is older than this lost some.
//!
//! * Written after the commit is on disk, and never itself forced there: it may lag, it must never lead.

use std::{
    fs::File,
    io::ErrorKind as Io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::error::Error;

use crate::{
    fault::{corrupt, corrupt_file},
    seal::Sum,
};

/// The file's name.
pub(crate) const NAME: &str = "state.mark";

/// The high-water mark.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    file: Option<File>,
}

impl Mark {
    /// Opens the mark of a directory; on a read-only one there is nothing to note.
    pub(crate) fn open(home: &Path) -> Result<Self, Error> {
        let path = home.join(NAME);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        match file {
            Ok(file) => Ok(Self {
                path,
                file: Some(file),
            }),
            // Reading must go on; a write will meet the same disk and say so.
            Err(error)
                if matches!(
                    error.kind(),
                    Io::PermissionDenied
                        | Io::ReadOnlyFilesystem
                        | Io::StorageFull
                        | Io::QuotaExceeded
                ) =>
            {
                Ok(Self { path, file: None })
            }
            Err(error) => Err(Error::io("cannot open the mark of the last write", error)
                .with("path", path.display())),
        }
    }

    /// Returns how many writes were acknowledged, at least.
    pub(crate) fn read(&self) -> Result<i64, Error> {
        let wrong = || corrupt_file(&self.path, "the mark of the last write is damaged");
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == Io::NotFound => return Ok(0),
            Err(error) => {
                return Err(Error::io("cannot read the mark of the last write", error)
                    .with("path", self.path.display()));
            }
        };
        // Never forced to the disk, so a machine that crashed may leave it empty.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(0);
        }
        let (count, sum) = <[u8; 16]>::try_from(bytes)
            .ok()
            .and_then(|all| Some((*all.first_chunk::<8>()?, *all.last_chunk::<8>()?)))
            .ok_or_else(wrong)?;
        let count = i64::from_le_bytes(count);
        if sum_of(count) == i64::from_le_bytes(sum) {
            Ok(count)
        } else {
            Err(wrong())
        }
    }

    /// Checks that a database knows of every acknowledged write.
    pub(crate) fn check(&self, acknowledged: i64, writes: i64) -> Result<(), Error> {
        if writes >= acknowledged {
            return Ok(());
        }
        Err(corrupt("the database lost writes that were acknowledged")
            .with("acknowledged", acknowledged)
            .with("found", writes)
            .with(
                "remedy",
                format!(
                    "to go on with this older database, remove {}",
                    self.path.display()
                ),
            ))
    }

    /// Notes a write that is on disk; best effort, because the write itself has succeeded.
    pub(crate) fn note(&self, writes: i64) {
        if let Some(file) = &self.file {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&writes.to_le_bytes());
            bytes[8..].copy_from_slice(&sum_of(writes).to_le_bytes());
            // A mark that lags only notices less.
            let _unwritten = file.write_all_at(&bytes, 0);
        }
    }
}

fn sum_of(count: i64) -> i64 {
    Sum::new("mark").number(count).end()
}
