//! The directory of a run, with the marker and whatever was put beside the work tree.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::Error,
    undo::{Assessment, Undone},
    workspace::Finding,
};

use super::{resource::Resource, shared::Shared};
use crate::{
    files::{
        beneath,
        id::FileId,
        marker::{MARKER, Marker},
        removal,
    },
    git::remote::INTERMEDIATE,
    include::is_manifest,
    text,
};

/// Says what taking the directory of a run away would mean; the work tree in it speaks for itself.
pub(super) fn assess(resource: &Resource, known: Option<FileId>) -> Result<Assessment, Error> {
    let others = match open_directory(resource, known)? {
        Some(directory) => others(&directory, resource)?,
        None => Vec::new(),
    };
    let losses: Vec<Finding> = strangers(&others, resource, false).into_iter().collect();
    Ok(Assessment {
        changed: !losses.is_empty(),
        losses,
    })
}

/// Opens the directory of the run, if it is the one that was made.
fn open_directory(resource: &Resource, known: Option<FileId>) -> Result<Option<OwnedFd>, Error> {
    crate::files::trash::open_parent(&resource.directory, known)
}

/// Where the directory of a run is made again before it is in its place.
pub(super) fn half_of(directory: &Path) -> PathBuf {
    let mut name = OsString::from(INTERMEDIATE);
    name.push(directory.file_name().unwrap_or_default());
    directory.with_file_name(name)
}

/// Lists what is in the directory of a run besides its marker.
fn others(directory: &OwnedFd, resource: &Resource) -> Result<Vec<OsString>, Error> {
    let failed = |errno: rustix::io::Errno| {
        Error::io("failed to list the directory of a run", errno.into())
            .with("path", resource.directory.display())
    };
    let half = format!("{MARKER}.{}", resource.attempt);
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        if name != "."
            && name != ".."
            && name != MARKER
            && name != *half
            && !is_list(&name, resource)
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Tells whether a name is that of a list of ours, of files that were taken along.
fn is_list(name: &OsStr, resource: &Resource) -> bool {
    resource.trees().any(|tree| is_manifest(name, tree))
}

/// Finds what others put in the directory; work trees are none of it where they speak for themselves.
fn strangers(names: &[OsString], resource: &Resource, with_trees: bool) -> Option<Finding> {
    let trees: Vec<&OsStr> = resource.trees().filter_map(Path::file_name).collect();
    let names: Vec<&OsString> = names
        .iter()
        .filter(|name| with_trees || !trees.contains(&name.as_os_str()))
        .collect();
    // Seen from where the command works.
    let way = if trees.len() > 1 { "" } else { "../" };
    text::finding("untracked", &names, |name| {
        format!("{way}{}", name.display())
    })
}

/// Takes the directory of a run away; `held` is it, locked, if it is there.
pub(super) fn undo(
    shared: &Shared,
    resource: &Resource,
    known: Option<FileId>,
    force: bool,
    held: Option<OwnedFd>,
) -> Result<Undone, Error> {
    let path = &resource.directory;
    let found = FileId::of(path)?;
    let Some(found) = found else {
        // Making it again may have stopped before it was in its place.
        drop(std::fs::remove_dir(half_of(path)));
        return Ok(if shared.trash.empty(&resource.owner())? {
            Undone::REMOVED
        } else {
            Undone::AlreadyGone
        });
    };
    let not_ours = |why: &str| Ok(Undone::NotOurs(format!("{} {why}", path.display())));
    if known.is_some_and(|known| known != found) {
        return not_ours("is not the directory that was made");
    }
    let Some(directory) = held else {
        return not_ours("is a link or no directory");
    };
    let mut others = others(&directory, resource)?;
    let marker = Marker::read(&directory).ok().flatten();
    let ours = marker
        .as_ref()
        .is_some_and(|marker| marker.attempt == resource.attempt);
    if marker.is_some_and(|marker| !marker.ready) && ours {
        // A launch that died while it fetched; nobody else has been here.
        drop_intermediates(&directory, path, &mut others)?;
    }
    if known.is_none() && !others.is_empty() && !ours {
        return not_ours("does not carry the mark of this launch");
    }
    if let Some(finding) = strangers(&others, resource, true) {
        let Some(root) = path.parent().filter(|_| force) else {
            return Ok(Undone::Kept(vec![finding]));
        };
        let root = beneath::open_root(root).map_err(|errno| {
            Error::io("failed to open the directory of worktrees", errno.into())
                .with("path", root.display())
        })?;
        let name = path.file_name().unwrap_or_default();
        let origin = resource.origin(found);
        shared
            .trash
            .take(&root, name, found, &resource.owner(), Some(&origin))?;
        return Ok(Undone::REMOVED);
    }
    drop_lists(&directory, resource)?;
    Marker::remove(&directory, resource.attempt)?;
    match rustix::fs::rmdir(path) {
        Ok(()) => Ok(Undone::REMOVED),
        Err(rustix::io::Errno::NOENT) => Ok(Undone::AlreadyGone),
        Err(errno) => Err(
            Error::io("failed to delete the directory of a run", errno.into())
                .with("path", path.display()),
        ),
    }
}

/// Deletes the lists of files that were taken along.
fn drop_lists(directory: &OwnedFd, resource: &Resource) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        Error::io("failed to delete a list of ours", error)
            .with("path", resource.directory.display())
    };
    for entry in rustix::fs::Dir::read_from(directory).map_err(|errno| failed(errno.into()))? {
        let entry = entry.map_err(|errno| failed(errno.into()))?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        if is_list(&name, resource) {
            removal::remove(directory, &name, &resource.directory.join(&name))?;
        }
    }
    Ok(())
}

/// Deletes repositories of ours to fetch into.
fn drop_intermediates(
    directory: &OwnedFd,
    path: &Path,
    names: &mut Vec<OsString>,
) -> Result<(), Error> {
    let is_one = |name: &OsString| name.as_encoded_bytes().starts_with(INTERMEDIATE.as_bytes());
    for name in names.iter().filter(|name| is_one(name)) {
        removal::remove(directory, name, &path.join(name))?;
    }
    names.retain(|name| !is_one(name));
    Ok(())
}
