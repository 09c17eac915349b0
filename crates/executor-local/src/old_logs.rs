//! Logs that outlived their instances: which there are, and since when nothing was written to them.
//!
//! It removes logs only of an instance that is gone.

use std::{
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{AttemptId, InstanceId},
};

use crate::{LocalExecutor, instance_directory::Found};

/// The logs of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldLogs {
    /// The instance.
    pub instance: InstanceId,
    /// When something was written to them last.
    pub written: SystemTime,
    /// Whether the instance is there.
    pub up: bool,
}

impl LocalExecutor {
    /// Lists the logs of all instances, also of those that are gone; an incomplete list is an error.
    ///
    /// # Errors
    ///
    /// When a directory of ours cannot be read.
    pub fn recorded(&self) -> Result<Vec<OldLogs>, Error> {
        let root = self.logs();
        let failed =
            |error| Error::io("failed to list the logs", error).with("path", root.display());
        let entries = match std::fs::read_dir(root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // What has another name is not ours.
            let Some(attempt) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<AttemptId>().ok())
            else {
                continue;
            };
            let instance = attempt.instance();
            found.push(OldLogs {
                written: last_written(&entry.path()).map_err(failed)?,
                up: self.is_there(&instance)?,
                instance,
            });
        }
        found.sort_by(|a, b| (a.written, &a.instance).cmp(&(b.written, &b.instance)));
        Ok(found)
    }

    /// Removes logs that were listed; none there is success.
    ///
    /// # Errors
    ///
    /// `Conflict` when the instance is there, or something was written since.
    pub fn remove_recorded(&self, logs: &OldLogs) -> Result<(), Error> {
        let path = self.logs().join(logs.instance.as_str());
        let failed = |error| Error::io("failed to remove logs", error).with("path", path.display());
        let written = match last_written(&path) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        if written > logs.written || self.is_there(&logs.instance)? {
            return Err(Error::new(
                ErrorKind::Conflict,
                "the logs are in use again; they are left alone",
            )
            .with("path", path.display()));
        }
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn is_there(&self, instance: &InstanceId) -> Result<bool, Error> {
        Ok(!matches!(self.root().find(instance)?, Found::Nothing))
    }
}

/// Returns when a directory, or something directly in it, was changed last.
fn last_written(path: &Path) -> io::Result<SystemTime> {
    let mut last = path.symlink_metadata()?.modified().unwrap_or(UNIX_EPOCH);
    for entry in std::fs::read_dir(path)? {
        match entry?.metadata() {
            Ok(metadata) => last = last.max(metadata.modified().unwrap_or(UNIX_EPOCH)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(last)
}
