//! What of a run is in the trash, and whether it can come back; reads only.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use git2::{ErrorCode, Oid, Repository};
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::RunId,
};
use rustix::io::Errno;

use super::shared::Inner;
use crate::{
    files::{
        beneath,
        id::FileId,
        marker::Marker,
        origin::Origin,
        trash::{Owner, taken},
    },
    git::{
        admin,
        repository::{git_error, open_common},
    },
    worktree::resource::{Kind, Resource},
};

/// One tree that comes back.
pub(super) struct Thing {
    pub(super) owner: Owner,
    pub(super) origin: Origin,
    /// What it was to the preparer of worktrees; none of other kinds.
    pub(super) resource: Option<Resource>,
    /// Where it comes to be.
    pub(super) target: PathBuf,
    /// Whether it is there already.
    pub(super) back: bool,
    /// Whether its tree is in the trash.
    pub(super) there: bool,
    /// Whether its repository is where it was.
    pub(super) repository: bool,
}

impl Thing {
    pub(super) fn is(&self, kind: Kind) -> bool {
        self.resource.as_ref().is_some_and(|one| one.kind == kind)
    }
}

pub(super) fn nothing(run: &RunId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        "nothing of the run is in the trash; see `trash ls`, and `git for-each-ref refs/groundcrew/snapshots` in its repository",
    )
    .with("run", run)
}

/// Checks that a place that a person named is none of ours, and that its directory exists.
pub(super) fn check_place(inner: &Inner, to: &Path) -> Result<(), Error> {
    let wrong = |why: &'static str| {
        Err(Error::new(ErrorKind::InvalidInput, why).with("path", to.display()))
    };
    if !to.is_absolute() || to.file_name().is_none() {
        return wrong("the place to bring the work back to must be an absolute path with a name");
    }
    let Some(Ok(parent)) = to.parent().map(Path::canonicalize) else {
        return wrong("the directory above the place to bring the work back to does not exist");
    };
    let config = &inner.config;
    let ours = [
        &config.worktrees,
        &config.tasks,
        &config.sessions,
        &config.trash,
    ];
    if ours.into_iter().any(|root| {
        let real = root.canonicalize().ok();
        parent.starts_with(real.as_ref().unwrap_or(root))
    }) {
        return wrong(
            "a workspace of ours is no place to bring work back to; name a directory of your own",
        );
    }
    Ok(())
}

/// Finds what of a run is in the trash: its directory first.
pub(super) fn things(inner: &Inner, run: &RunId, to: Option<&Path>) -> Result<Vec<Thing>, Error> {
    let mut things = Vec::new();
    for item in inner.trash.list()? {
        let Some(Ok(origin)) = item.origin else {
            continue;
        };
        if &origin.run != run {
            continue;
        }
        let resource = match &*origin.kind {
            "scratch" | "ephemeral" => None,
            _ => Some(Resource::read(
                &origin.resource,
                &origin.key,
                origin.attempt,
            )?),
        };
        things.push(Thing {
            target: origin.path.clone(),
            there: item.tree.is_some_and(|(id, _)| id == origin.id),
            owner: item.owner,
            origin,
            resource,
            back: false,
            repository: false,
        });
    }
    if things.is_empty() {
        return Err(nothing(run));
    }
    things.sort_by_key(|thing| {
        let index = thing.resource.as_ref().map_or(0, |one| one.part.index);
        (!thing.is(Kind::Directory), index)
    });
    if let Some(to) = to {
        let trees = things.iter().filter(|one| !one.is(Kind::Directory)).count();
        let below = trees > 1 || things.iter().any(|one| one.is(Kind::Directory));
        for thing in &mut things {
            thing.target = match thing.origin.path.file_name() {
                Some(name) if below && !thing.is(Kind::Directory) => to.join(name),
                _ => to.to_owned(),
            };
        }
    }
    Ok(things)
}

/// Checks that a tree can come back; touches nothing.
pub(super) fn check(
    thing: &mut Thing,
    elsewhere: bool,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    match FileId::of(&thing.target)? {
        None => {}
        Some(id) if id == thing.origin.id => thing.back = true,
        Some(_) => return Err(taken(&thing.target)),
    }
    let saved = thing.origin.snapshot.is_some() && thing.is(Kind::Worktree);
    if !thing.back && !thing.there && !saved {
        let error = Error::new(
            ErrorKind::NotFound,
            "the files of the run are no longer in the trash",
        )
        .with("path", thing.target.display());
        return Err(match &thing.origin.snapshot {
            Some(snapshot) => error.with("snapshot", snapshot),
            None => error,
        });
    }
    let Some(resource) = &thing.resource else {
        return Ok(());
    };
    let part = &resource.part;
    thing.repository = FileId::of(&part.common)? == Some(part.common_id);
    if !thing.repository {
        if elsewhere && thing.there {
            notes.push(format!(
                "the repository {} is gone, or another one: only files come back",
                part.common.display()
            ));
            return Ok(());
        }
        return Err(Error::new(
            ErrorKind::NotFound,
            "the repository of the run is gone, or another one; --to DIR brings back the files alone",
        )
        .with("path", part.common.display()));
    }
    if resource.kind == Kind::Worktree {
        let repository = open_common(&part.common)?;
        check_branch(&repository, thing, resource)?;
    }
    Ok(())
}

pub(super) fn tip(origin: &Origin) -> Result<Option<Oid>, Error> {
    origin
        .tip
        .as_deref()
        .map(|tip| {
            Oid::from_str(tip)
                .map_err(|error| git_error("the record in the trash names no commit", error))
        })
        .transpose()
}

/// Checks that the branch is where it was, or can be made again, and that nobody else works on it.
fn check_branch(repository: &Repository, thing: &Thing, resource: &Resource) -> Result<(), Error> {
    let name = format!("refs/heads/{}", resource.part.branch);
    let Some(tip) = tip(&thing.origin)? else {
        return Ok(());
    };
    match repository.refname_to_id(&name) {
        Ok(at) if at == tip => {}
        Ok(at) => {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "the branch exists and is elsewhere now; rename it, then bring the work back",
            )
            .with("branch", &resource.part.branch)
            .with("at", at)
            .with("was", tip));
        }
        Err(error) if error.code() == ErrorCode::NotFound => {
            if repository.find_commit(tip).is_err() {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    "the commit of the branch is no longer in the repository",
                )
                .with("branch", &resource.part.branch)
                .with("commit", tip));
            }
        }
        Err(error) => return Err(git_error("failed to read the branch", error)),
    }
    match admin::holder(&resource.part.common, &name)? {
        Some(place) if place != thing.target => Err(Error::new(
            ErrorKind::Conflict,
            "the branch is checked out elsewhere",
        )
        .with("branch", &resource.part.branch)
        .with("path", place.display())),
        _ => Ok(()),
    }
}

/// Checks that the directory that a tree was in is ours, if it is there.
pub(super) fn check_directory(thing: &Thing, things: &[Thing]) -> Result<(), Error> {
    let Some(resource) = &thing.resource else {
        return Ok(());
    };
    let comes = things
        .iter()
        .any(|other| other.is(Kind::Directory) && !other.back);
    match beneath::open_root(&resource.directory) {
        Err(Errno::NOENT) => Ok(()),
        Ok(_) if comes => Err(taken(&resource.directory)),
        Ok(directory) => match Marker::read(&directory)? {
            Some(marker) if marker.attempt == resource.attempt => Ok(()),
            None if is_empty(&directory) => Ok(()),
            _ => Err(taken(&resource.directory)),
        },
        Err(_) => Err(taken(&resource.directory)),
    }
}

fn is_empty(directory: &OwnedFd) -> bool {
    rustix::fs::Dir::read_from(directory).is_ok_and(|entries| {
        entries
            .flatten()
            .all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    })
}
