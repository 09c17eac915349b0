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

/// Returns when a directory, or something in the directories of its processes, was changed last.
///
/// * What is appended to a file changes the file and not its directory, so the files themselves are asked.
fn last_written(path: &Path) -> io::Result<SystemTime> {
    let mut last = path.symlink_metadata()?.modified().unwrap_or(UNIX_EPOCH);
    for entry in std::fs::read_dir(path)? {
        let looked = entry.and_then(|entry| {
            // No link is followed: what it leads to is no log of ours.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                last_written(&entry.path())
            } else {
                Ok(entry.metadata()?.modified().unwrap_or(UNIX_EPOCH))
            }
        });
        match looked {
            Ok(written) => last = last.max(written),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    #[test]
    fn what_was_appended_to_a_log_counts_and_not_only_that_it_was_made() {
        let ground = tempfile::tempdir().unwrap();
        let process = ground.path().join("agent");
        std::fs::create_dir(&process).unwrap();
        let log = process.join("00000000000000000000.frames");
        std::fs::write(&log, "x").unwrap();
        let now = SystemTime::now();
        let old = now - Duration::from_hours(24 * 8);
        let date = |path: &Path, time| File::open(path).unwrap().set_modified(time).unwrap();
        for path in [&log, &process, &ground.path().to_owned()] {
            date(path, old);
        }
        assert_eq!(last_written(ground.path()).unwrap(), old);
        let a_day_ago = now - Duration::from_hours(24);
        date(&log, a_day_ago);
        assert_eq!(last_written(ground.path()).unwrap(), a_day_ago);
        std::os::unix::fs::symlink("/", process.join("link")).unwrap();
        for path in [&process, &ground.path().to_owned()] {
            date(path, old);
        }
        let with_link = last_written(ground.path()).unwrap();
        assert!(with_link >= a_day_ago);
    }
}
