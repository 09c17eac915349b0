//! Which file a name stands for: its device and inode.

use std::{fmt, io, os::unix::fs::MetadataExt as _, path::Path, str::FromStr};

use groundcrew_core::{
    error::{Error, ErrorKind},
    identity::Identity,
    undo::UndoRecord,
};
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

/// A device and an inode; cannot be copied as a marker file can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// The device.
    pub(crate) device: u64,
    /// The inode.
    pub(crate) inode: u64,
}

impl FileId {
    /// Looks a path up without following a link at its end; `None` if there is nothing.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>, Error> {
        match path.symlink_metadata() {
            Ok(metadata) => Ok(Some(Self {
                device: metadata.dev(),
                inode: metadata.ino(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(Error::io("failed to look a path up", error).with("path", path.display()))
            }
        }
    }

    /// Reads the one that a record names; `None` if it names none.
    ///
    /// # Errors
    ///
    /// `Corrupt` when what it names is none of ours.
    pub(crate) fn of_record(record: &UndoRecord) -> Result<Option<Self>, Error> {
        record
            .identity
            .as_ref()
            .map(|identity| {
                identity.0.parse().map_err(|()| {
                    Error::new(ErrorKind::Corrupt, "an identity is no device and inode")
                        .with("key", &record.key)
                        .with("identity", identity)
                })
            })
            .transpose()
    }

    /// Takes it from what the system told.
    pub(crate) fn of_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl FromStr for FileId {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (device, inode) = text.split_once(':').ok_or(())?;
        Ok(Self {
            device: device.parse().map_err(drop)?,
            inode: inode.parse().map_err(drop)?,
        })
    }
}

impl From<FileId> for Identity {
    fn from(id: FileId) -> Self {
        Self(id.to_string())
    }
}
