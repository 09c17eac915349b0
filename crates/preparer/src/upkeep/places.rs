//! Every directory of a workspace that is there: what its marker says, and which directory it is.

use std::{
    io,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{AttemptId, RunId},
};
use rustix::io::Errno;

use super::shared::UpkeepConfig;
use crate::files::{beneath, id::FileId, marker::Layout, marker::Marker, removal};

/// A directory of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspacePlace {
    /// The directory.
    pub path: PathBuf,
    /// `worktree`, `clone`, `scratch` or `ephemeral`; by its place where the marker does not say.
    pub kind: &'static str,
    /// Its device and inode, as `device:inode`.
    pub identity: String,
    /// The run that its marker names.
    pub run: Option<RunId>,
    /// The attempt that its marker names.
    pub attempt: Option<AttemptId>,
    /// Why its marker does not speak for us, if so: it is missing, damaged, or of another installation.
    pub unmarked: Option<&'static str>,
}

/// Lists the directories in which workspaces are.
pub(super) fn list(config: &UpkeepConfig) -> Result<Vec<WorkspacePlace>, Error> {
    let mut found = Vec::new();
    for path in directories(&config.worktrees)? {
        found.extend(place(config, path, "worktree")?);
    }
    for tenant in directories(&config.tasks)? {
        for path in directories(&tenant)? {
            found.extend(place(config, path, "scratch")?);
        }
    }
    for path in directories(&config.sessions)? {
        found.extend(place(config, path, "ephemeral")?);
    }
    Ok(found)
}

fn place(
    config: &UpkeepConfig,
    path: PathBuf,
    kind: &'static str,
) -> Result<Option<WorkspacePlace>, Error> {
    let failed = |errno: Errno| {
        Error::io(
            "failed to look at the directory of a workspace",
            errno.into(),
        )
        .with("path", path.display())
    };
    let directory = match beneath::open_root(&path) {
        Ok(directory) => directory,
        // Removed at this moment.
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(errno)),
    };
    let id = FileId::of_stat(&rustix::fs::fstat(&directory).map_err(failed)?);
    let (marker, unmarked) = match Marker::read(&directory) {
        Ok(Some(marker)) if marker.install == config.install => (Some(marker), None),
        Ok(Some(marker)) => (Some(marker), Some("it is another installation's")),
        Ok(None) => (None, Some("it has no marker")),
        Err(error) if error.kind() == ErrorKind::Corrupt => (None, Some("its marker is damaged")),
        Err(error) => return Err(error),
    };
    let kind = match marker.as_ref().map(|marker| marker.layout) {
        Some(Layout::Worktree) => "worktree",
        Some(Layout::Clone) => "clone",
        Some(Layout::Scratch) => "scratch",
        Some(Layout::Ephemeral) => "ephemeral",
        None => kind,
    };
    Ok(Some(WorkspacePlace {
        kind,
        identity: id.to_string(),
        attempt: marker.as_ref().map(|marker| marker.attempt),
        run: marker.map(|marker| marker.run),
        unmarked,
        path,
    }))
}

/// Lists the directories in one; links are none.
pub(super) fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed =
        |error| Error::io("failed to list a directory", error).with("path", path.display());
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.push(entry.path()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    found.sort();
    Ok(found)
}

/// Deletes directories of tenants without a task, or says which they are.
pub(super) fn remove_empty(config: &UpkeepConfig, dry_run: bool) -> Result<Vec<PathBuf>, Error> {
    let mut empty = Vec::new();
    for tenant in directories(&config.tasks)? {
        let failed = |error: io::Error| {
            Error::io("failed to look at the directory of a tenant", error)
                .with("path", tenant.display())
        };
        if dry_run {
            if std::fs::read_dir(&tenant).map_err(failed)?.next().is_none() {
                empty.push(tenant);
            }
            continue;
        }
        match rustix::fs::rmdir(&tenant) {
            Ok(()) => empty.push(tenant),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
    }
    Ok(empty)
}

/// Deletes a directory, by a new name that says what is left if we die.
pub(super) fn remove_directory(path: &Path) -> Result<(), Error> {
    let failed = |errno: Errno| {
        Error::io("failed to delete a directory", errno.into()).with("path", path.display())
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let parent = beneath::open_root(parent).map_err(failed)?;
    let mut gone = std::ffi::OsString::from(".gone-");
    gone.push(name);
    removal::remove(&parent, &gone, &path.with_file_name(&gone))?;
    match rustix::fs::renameat_with(
        &parent,
        name,
        &parent,
        &gone,
        rustix::fs::RenameFlags::NOREPLACE,
    ) {
        Ok(()) => removal::remove(&parent, &gone, &path.with_file_name(&gone)),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed(errno)),
    }
}
