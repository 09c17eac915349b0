//! The directory of a run, with the marker and whatever was put beside the work tree.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
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
        trash::{Fate, Owner},
    },
    text,
};

/// Says what taking the directory of a run away would mean; the work tree in it speaks for itself.
pub(super) fn assess(resource: &Resource, known: Option<FileId>) -> Result<Assessment, Error> {
    let others = match open_directory(resource, known)? {
        Some(directory) => others(&directory, resource)?,
        None => Vec::new(),
    };
    let losses: Vec<Finding> = strangers(&others, Some(resource)).into_iter().collect();
    Ok(Assessment {
        changed: !losses.is_empty(),
        losses,
    })
}

/// Opens the directory of the run, if it is the one that was made.
fn open_directory(resource: &Resource, known: Option<FileId>) -> Result<Option<OwnedFd>, Error> {
    crate::files::trash::open_parent(&resource.directory, known)
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
        if name != "." && name != ".." && name != MARKER && name != *half {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn strangers(names: &[OsString], besides: Option<&Resource>) -> Option<Finding> {
    let tree: Option<&OsStr> = besides.and_then(|resource| resource.tree.file_name());
    let names: Vec<&OsString> = names
        .iter()
        .filter(|name| tree != Some(name.as_os_str()))
        .collect();
    text::finding("untracked", &names, |name| format!("../{}", name.display()))
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
        return Ok(if shared.trash.empty(resource.owner())? {
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
    let others = others(&directory, resource)?;
    if known.is_none() && !others.is_empty() {
        let ours = Marker::read(&directory)
            .ok()
            .flatten()
            .is_some_and(|marker| marker.attempt == resource.attempt);
        if !ours {
            return not_ours("does not carry the mark of this launch");
        }
    }
    if let Some(finding) = strangers(&others, None) {
        let Some(root) = path.parent().filter(|_| force) else {
            return Ok(Undone::Kept(vec![finding]));
        };
        let root = beneath::open_root(root).map_err(|errno| {
            Error::io("failed to open the directory of worktrees", errno.into())
                .with("path", root.display())
        })?;
        let name = path.file_name().unwrap_or_default();
        let owner: Owner<'_> = resource.owner();
        shared.trash.take(&root, name, found, owner, Fate::Keep)?;
        return Ok(Undone::REMOVED);
    }
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
