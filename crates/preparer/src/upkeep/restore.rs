//! Brings back what removing a run took away.
//!
//! Everything is checked first; then each step finds out whether it was done already, so that one that died is finished by
//! doing it again. Nothing that exists is replaced.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use git2::{ErrorCode, Repository, build::CheckoutBuilder};
use groundcrew_core::{
    Regained,
    error::{Error, ErrorKind},
    id::RunId,
};
use rustix::io::Errno;

use super::{
    entry,
    regained::regained,
    shared::Inner,
    things::{Thing, check, check_directory, check_place, nothing, things, tip},
};
use crate::{
    files::{
        beneath,
        id::FileId,
        marker::{Layout, Marker},
        origin::Origin,
    },
    git::{
        anchor::{self, Held},
        patience::{ref_error, while_locked},
        repository::{git_error, open_common},
    },
    worktree::resource::{Kind, Resource},
};

/// What was brought back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Restored {
    /// The run.
    pub run: RunId,
    /// Where its work is now.
    pub places: Vec<PathBuf>,
    /// The branches that are there again.
    pub branches: Vec<String>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// What the run owns again; nothing if the work was brought to another place.
    pub regained: Regained,
}

/// Brings a run back.
pub(super) fn restore(inner: &Inner, run: &RunId, to: Option<&Path>) -> Result<Restored, Error> {
    let mut notes = Vec::new();
    if let Some(to) = to {
        check_place(inner, to)?;
    }
    let mut things = things(inner, run, to)?;
    for thing in &mut things {
        check(thing, to.is_some(), &mut notes)?;
    }
    for thing in &things {
        if to.is_none() && !thing.is(Kind::Directory) {
            check_directory(thing, &things)?;
        }
    }
    let mut branches = Vec::new();
    for thing in &mut things {
        bring_back(inner, thing, to.is_some(), &mut notes)?;
        if let Some(resource) = thing.resource.clone().filter(|_| thing.repository) {
            let _lock = inner.locks.lock_blocking(resource.part.common_id)?;
            let repository = open_common(&resource.part.common)?;
            match resource.kind {
                Kind::Worktree => {
                    branches.extend(branch(&repository, &resource, &thing.origin)?);
                    entry::attach(inner, thing, &resource, to.is_none(), &mut notes)?;
                }
                Kind::Clone => hold(&repository, thing, &resource, to.is_none(), &mut notes)?,
                _ => {}
            }
        }
    }
    let regained = match to {
        Some(_) => None,
        None => Some(regained(&things)?),
    };
    if to.is_some() {
        for thing in &things {
            inner.trash.forget(&thing.owner)?;
        }
    }
    let attempt = things.first().map(|thing| thing.origin.attempt);
    Ok(Restored {
        run: run.clone(),
        places: things
            .iter()
            .filter(|thing| !thing.is(Kind::Directory))
            .map(|thing| thing.target.clone())
            .collect(),
        branches,
        notes,
        regained: match (regained, attempt) {
            (Some(regained), _) => regained,
            (None, Some(attempt)) => Regained {
                attempt,
                owned: Vec::new(),
            },
            (None, None) => return Err(nothing(run)),
        },
    })
}

/// Forgets what is back in its place.
pub(super) fn settle(inner: &Inner, run: &RunId) -> Result<usize, Error> {
    let mut count = 0;
    for item in inner.trash.list()? {
        if let Some(Ok(origin)) = &item.origin
            && &origin.run == run
            && item.tree.is_none()
            && FileId::of(&origin.path)? == Some(origin.id)
        {
            inner.trash.forget(&item.owner)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Moves a tree to its place.
fn bring_back(
    inner: &Inner,
    thing: &mut Thing,
    elsewhere: bool,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    if thing.back {
        return Ok(());
    }
    if !thing.there
        && let Some(resource) = &thing.resource
    {
        let path = &resource.part.common;
        thing.origin = inner
            .trash
            .put_rebuilt(&thing.owner, &thing.origin, |into| {
                write_snapshot(path, &thing.origin, into)
            })?;
        notes.push(
            "the tree was no longer in the trash; its files are those of the snapshot, without ignored ones"
                .to_owned(),
        );
    }
    let parent = parent(inner, thing, elsewhere)?;
    let name = thing.target.file_name().unwrap_or_default();
    inner
        .trash
        .give_back(&thing.origin, &thing.owner, &parent, name, &thing.target)
}

/// Writes the files of a snapshot, each byte as it was saved.
fn write_snapshot(common: &Path, origin: &Origin, into: &Path) -> Result<(), Error> {
    let failed = |error| git_error("failed to write the files of the snapshot", error);
    let repository = open_common(common)?;
    let name = origin.snapshot.as_deref().unwrap_or_default();
    let commit = repository
        .find_reference(name)
        .and_then(|reference| reference.peel_to_commit())
        .map_err(|error| git_error("the snapshot is gone", error).with("ref", name))?;
    let tree = commit.tree().map_err(failed)?;
    let mut options = CheckoutBuilder::new();
    options
        .target_dir(into)
        .force()
        .disable_filters(true)
        .update_index(false);
    repository
        .checkout_tree(tree.as_object(), Some(&mut options))
        .map_err(failed)
}

/// Opens the directory that a tree comes to be in; makes those of ours.
fn parent(inner: &Inner, thing: &Thing, elsewhere: bool) -> Result<OwnedFd, Error> {
    let path = thing.target.parent().unwrap_or(Path::new("/"));
    let failed = |errno: Errno| {
        Error::io(
            "failed to open the directory that the work comes back to",
            errno.into(),
        )
        .with("path", path.display())
    };
    if elsewhere {
        match std::fs::create_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(
                    Error::io("failed to make a directory", error).with("path", path.display())
                );
            }
        }
        let path = path.canonicalize().map_err(|error| {
            Error::io("failed to resolve a path", error).with("path", path.display())
        })?;
        return beneath::open_root(&path).map_err(failed);
    }
    match &thing.resource {
        Some(resource) if resource.kind != Kind::Directory => {
            beneath::private_root(&inner.config.worktrees)?;
            if FileId::of(path)?.is_none() {
                beneath::make_directory(path, 0o700)?;
            }
            let directory = beneath::open_root(path).map_err(failed)?;
            if Marker::read(&directory)?.is_none() {
                marker_of(resource).write(&directory, path)?;
            }
            Ok(directory)
        }
        _ => {
            beneath::private_root(path)?;
            beneath::open_root(path).map_err(failed)
        }
    }
}

fn marker_of(resource: &Resource) -> Marker {
    let layout = if resource.kind == Kind::Clone {
        Layout::Clone
    } else {
        Layout::Worktree
    };
    resource.marker(layout, true)
}

/// Makes the branch again, if it is gone; returns its name then. The caller holds the lock of the repository.
fn branch(
    repository: &Repository,
    resource: &Resource,
    origin: &Origin,
) -> Result<Option<String>, Error> {
    const DOING: &str = "failed to bring the branch back";
    let failed = |error| git_error(DOING, error).with("branch", &resource.part.branch);
    let unwritten = |error| ref_error(DOING, error).with("branch", &resource.part.branch);
    let Some(tip) = tip(origin)? else {
        return Ok(None);
    };
    let name = format!("refs/heads/{}", resource.part.branch);
    match repository.refname_to_id(&name) {
        Ok(at) if at == tip => return Ok(None),
        Err(error) if error.code() == ErrorCode::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(at) => {
            return Err(
                Error::new(ErrorKind::Conflict, "the branch was made meanwhile")
                    .with("branch", &resource.part.branch)
                    .with("at", at),
            );
        }
    }
    // Create-only: whoever made one of that name meanwhile keeps it.
    while_locked(|| {
        repository.reference_ensure_log(&name).map_err(unwritten)?;
        repository
            .reference(&name, tip, false, &resource.mark())
            .map(drop)
            .map_err(unwritten)
    })?;
    Ok(Some(resource.part.branch.clone()))
}

/// Holds the start point of a clone in its source again. The caller holds the lock of the repository.
fn hold(
    repository: &Repository,
    thing: &Thing,
    resource: &Resource,
    ours: bool,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let name = resource.base_ref();
    let shares = thing
        .target
        .join(".git/objects/info/alternates")
        .symlink_metadata()
        .is_ok();
    if !ours && !shares {
        return Ok(());
    }
    match anchor::look(repository, &name, resource.part.base)? {
        Held::Ours => Ok(()),
        Held::Gone => match anchor::hold(repository, &name, resource.part.base) {
            Ok(()) => {
                if !ours {
                    notes.push(format!("{name} holds what the clone reads from its source"));
                }
                Ok(())
            }
            Err(error) if shares => Err(error),
            Err(_) => {
                notes.push(format!("{name} was not made again: its commit is gone"));
                Ok(())
            }
        },
        Held::Moved(at) => Err(Error::new(ErrorKind::Conflict, "a ref of ours was moved")
            .with("ref", name)
            .with("at", at)),
    }
}
