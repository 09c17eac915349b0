//! Takes a worktree, its branch and its directory away; keeps what would be lost with them.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
    path::Path,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    identity::{Identity, Presence},
    undo::{Assessment, Occasion, UndoOptions, UndoRecord, Undone},
    workspace::Finding,
};
use rustix::fs::{AtFlags, FileType, statat};

use super::{
    Shared,
    look::{Look, Target, look},
    resource::{Kind, Resource},
};
use crate::{
    files::{
        beneath,
        id::FileId,
        marker::{MARKER, Marker},
        trash::{Fate, Owner},
    },
    git::{admin, branch::Verdict, history, repository::open_common, snapshot::Saved},
    text,
};

/// A work tree that is there.
struct Present {
    /// The directory that it is in, locked.
    parent: OwnedFd,
    /// Its name there.
    name: OsString,
    /// Which one it is.
    id: FileId,
    /// It, open.
    tree: OwnedFd,
}

/// What is at the path of a work tree.
enum Place {
    Nothing,
    Another(String),
    Ours(Present),
}

/// Says what taking a resource away would mean.
pub(super) fn assess(
    shared: &Shared,
    record: &UndoRecord,
    options: UndoOptions,
) -> Result<Assessment, Error> {
    let resource = Resource::of(record)?;
    match resource.kind {
        Kind::Worktree => {
            let place = place(
                &resource,
                identity(record)?,
                beneath::open_root(&resource.directory).ok(),
            )?;
            let present = match &place {
                Place::Ours(present) => Some(present),
                Place::Nothing => None,
                Place::Another(_) => return Ok(Assessment::default()),
            };
            Ok(
                match look_at(shared, &resource, present, options.occasion) {
                    Ok(Some(look)) => Assessment {
                        changed: look.changed,
                        losses: look.losses,
                    },
                    Ok(None) if present.is_none() => Assessment::default(),
                    Ok(None) => kept_unseen("the repository is gone".to_owned()),
                    Err(error) => kept_unseen(error.to_string()),
                },
            )
        }
        Kind::Branch => assess_branch(&resource),
        Kind::Directory => {
            let others = match open_directory(&resource, identity(record)?)? {
                Some(directory) => others(&directory, &resource)?,
                None => Vec::new(),
            };
            // The work tree speaks for itself.
            let losses: Vec<Finding> = strangers(&others, Some(&resource)).into_iter().collect();
            Ok(Assessment {
                changed: !losses.is_empty(),
                losses,
            })
        }
    }
}

fn kept_unseen(why: String) -> Assessment {
    Assessment {
        changed: true,
        losses: vec![text::single("unreadable", why)],
    }
}

fn assess_branch(resource: &Resource) -> Result<Assessment, Error> {
    if !is_there(resource)? {
        return Ok(kept_unseen(repository_gone(resource)));
    }
    let mark = resource.mark();
    let repository = open_common(&resource.common)?;
    Ok(match resource.branch(&mark).judge(&repository)? {
        Verdict::Gone | Verdict::NotOurs(_) => Assessment::default(),
        Verdict::Free { tip, .. } => Assessment {
            changed: tip != resource.base,
            losses: Vec::new(),
        },
        Verdict::Holds { commits, .. } => Assessment {
            changed: true,
            losses: history::finding(&repository, &commits)
                .into_iter()
                .collect(),
        },
    })
}

/// Takes a resource away; `held` is the directory of the run, locked, if it is there.
pub(super) fn undo(
    shared: &Shared,
    record: &UndoRecord,
    options: UndoOptions,
    held: Option<OwnedFd>,
) -> Result<Undone, Error> {
    let resource = Resource::of(record)?;
    match resource.kind {
        Kind::Worktree => undo_worktree(shared, &resource, identity(record)?, options, held),
        Kind::Branch => undo_branch(shared, &resource, options),
        Kind::Directory => undo_directory(shared, &resource, identity(record)?, options, held),
    }
}

/// Tells whether a resource exists.
pub(super) fn state(record: &UndoRecord) -> Result<Presence, Error> {
    let resource = Resource::of(record)?;
    let path = match resource.kind {
        Kind::Worktree => &resource.tree,
        Kind::Directory => &resource.directory,
        Kind::Branch => {
            if !is_there(&resource)? {
                return Ok(Presence::Unknown(repository_gone(&resource)));
            }
            let repository = open_common(&resource.common)?;
            return Ok(
                match repository.refname_to_id(&format!("refs/heads/{}", resource.branch)) {
                    Ok(tip) => Presence::Present(Identity(tip.to_string())),
                    Err(error) if error.code() == git2::ErrorCode::NotFound => Presence::Absent,
                    Err(error) => Presence::Unknown(error.to_string()),
                },
            );
        }
    };
    Ok(match FileId::of(path)? {
        Some(id) if identity(record)?.is_none_or(|known| known == id) => {
            Presence::Present(id.into())
        }
        Some(_) => Presence::Absent,
        None => {
            let root = resource.directory.parent().unwrap_or(Path::new("/"));
            if FileId::of(root)?.is_some() {
                Presence::Absent
            } else {
                Presence::Unknown(format!(
                    "{} is not there; it may be unmounted",
                    root.display()
                ))
            }
        }
    })
}

fn identity(record: &UndoRecord) -> Result<Option<FileId>, Error> {
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

/// Tells whether the repository of the launch is where it was; one that was replaced is not.
fn is_there(resource: &Resource) -> Result<bool, Error> {
    Ok(FileId::of(&resource.common)? == Some(resource.common_id))
}

fn repository_gone(resource: &Resource) -> String {
    format!(
        "the repository {} is gone, or another one",
        resource.common.display()
    )
}

fn place(
    resource: &Resource,
    known: Option<FileId>,
    parent: Option<OwnedFd>,
) -> Result<Place, Error> {
    let Some(parent) = parent else {
        return Ok(Place::Nothing);
    };
    let name = resource.tree.file_name().unwrap_or_default().to_owned();
    let failed = |errno: rustix::io::Errno| {
        Error::io("failed to look at the work tree", errno.into())
            .with("path", resource.tree.display())
    };
    let stat = match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(Place::Nothing),
        Err(errno) => return Err(failed(errno)),
    };
    let id = FileId::of_stat(&stat);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory
        || known.is_some_and(|known| known != id)
    {
        return Ok(Place::Another(format!(
            "{} is not the directory that was made",
            resource.tree.display()
        )));
    }
    let tree = beneath::open_directory(&parent, &name).map_err(failed)?;
    Ok(Place::Ours(Present {
        parent,
        name,
        id,
        tree,
    }))
}

/// Looks at the worktree; `None` if there is no repository any more.
fn look_at(
    shared: &Shared,
    resource: &Resource,
    present: Option<&Present>,
    occasion: Occasion,
) -> Result<Option<Look>, Error> {
    if !is_there(resource)? {
        return Ok(None);
    }
    // Without a marker it counts as finished: then everything in it is looked at.
    let ready = match present {
        Some(present) => Marker::read(&present.parent)
            .ok()
            .flatten()
            .is_none_or(|marker| marker.ready),
        None => true,
    };
    look(
        &Target::of(resource),
        present.map(|present| &present.tree),
        ready,
        occasion,
        &shared.config.user,
    )
    .map(Some)
}

fn undo_worktree(
    shared: &Shared,
    resource: &Resource,
    known: Option<FileId>,
    options: UndoOptions,
    parent: Option<OwnedFd>,
) -> Result<Undone, Error> {
    let discarded = shared.trash.holds(resource.owner(), Fate::Discard)?;
    let place = place(resource, known, parent)?;
    let present = match place {
        Place::Ours(present) => Some(present),
        Place::Nothing => None,
        Place::Another(why) => {
            // Ours is elsewhere, if anywhere: its entry stays as long as that is not known.
            return Ok(Undone::NotOurs(why));
        }
    };
    let look = match look_at(shared, resource, present.as_ref(), options.occasion) {
        Ok(look) => look,
        Err(error) if options.force || present.is_none() => return Err(error),
        Err(error) => return Ok(Undone::Kept(kept_unseen(error.to_string()).losses)),
    };
    let Some(look) = look else {
        return without_repository(shared, resource, present, options.force);
    };
    if present.is_none() && look.entry.is_none() && !discarded {
        return Ok(Undone::AlreadyGone);
    }
    let saves = !look.losses.is_empty();
    if saves && !options.force {
        return Ok(Undone::Kept(look.losses));
    }
    let snapshot = if saves {
        match save(shared, resource, present.as_ref(), &look) {
            Ok(name) => Some(name),
            Err(error) => {
                let mut losses = look.losses;
                losses.push(text::single(
                    "unreadable",
                    format!(
                        "no snapshot could be made: {}",
                        groundcrew_core::error::Chain(&error)
                    ),
                ));
                return Ok(Undone::Kept(losses));
            }
        }
    } else {
        None
    };
    let ignored = look
        .found
        .as_ref()
        .is_some_and(|found| !found.ignored.is_empty());
    let fate = if saves || ignored {
        Fate::Keep
    } else {
        Fate::Discard
    };
    if let Some(present) = &present {
        shared.trash.take(
            &present.parent,
            &present.name,
            present.id,
            resource.owner(),
            fate,
        )?;
    }
    drop_entry(shared, resource)?;
    shared.trash.empty(resource.owner())?;
    Ok(Undone::Removed { snapshot })
}

/// What is left to do when the repository is gone: nothing can be compared, so only force moves the tree.
fn without_repository(
    shared: &Shared,
    resource: &Resource,
    present: Option<Present>,
    force: bool,
) -> Result<Undone, Error> {
    let Some(present) = present else {
        return Ok(if shared.trash.empty(resource.owner())? {
            Undone::REMOVED
        } else {
            Undone::AlreadyGone
        });
    };
    if !force {
        return Ok(Undone::Kept(vec![text::single(
            "unreadable",
            repository_gone(resource),
        )]));
    }
    shared.trash.take(
        &present.parent,
        &present.name,
        present.id,
        resource.owner(),
        Fate::Keep,
    )?;
    Ok(Undone::REMOVED)
}

fn save(
    shared: &Shared,
    resource: &Resource,
    present: Option<&Present>,
    look: &Look,
) -> Result<String, Error> {
    let _lock = shared.locks.lock_blocking(resource.common_id)?;
    let saved = Saved {
        repository: &look.repository,
        run: &resource.run,
        head: look.head,
        tips: &look.unheld,
    };
    match (present, &look.found) {
        (Some(present), Some(found)) => saved.tree(&present.tree, found),
        _ => saved.commits(),
    }
}

/// Removes the entry of the worktree from the repository.
fn drop_entry(shared: &Shared, resource: &Resource) -> Result<(), Error> {
    let _lock = shared.locks.lock_blocking(resource.common_id)?;
    let (reason, tree) = (resource.reason(), &resource.tree);
    if let Some(entry) = admin::find(&resource.common, Some(&reason), tree)? {
        admin::remove(&resource.common, &entry)?;
    }
    admin::sweep(&resource.common)
}

fn undo_branch(
    shared: &Shared,
    resource: &Resource,
    options: UndoOptions,
) -> Result<Undone, Error> {
    if !is_there(resource)? {
        return Ok(
            if options.force && FileId::of(&resource.common)?.is_none() {
                Undone::AlreadyGone
            } else {
                Undone::Kept(vec![text::single("unreadable", repository_gone(resource))])
            },
        );
    }
    let _lock = shared.locks.lock_blocking(resource.common_id)?;
    let mark = resource.mark();
    let branch = resource.branch(&mark);
    let repository = open_common(&resource.common)?;
    let verdict = branch.judge(&repository)?;
    let checked_out = match verdict {
        Verdict::Gone => {
            branch.sweep()?;
            return Ok(Undone::AlreadyGone);
        }
        Verdict::NotOurs(why) => return Ok(Undone::NotOurs(why)),
        Verdict::Free { .. } | Verdict::Holds { .. } => branch.checked_out()?,
    };
    if let Some(finding) = checked_out {
        return Ok(Undone::Kept(vec![finding]));
    }
    match verdict {
        Verdict::Holds { commits, .. } if !options.force => Ok(Undone::Kept(
            history::finding(&repository, &commits)
                .into_iter()
                .collect(),
        )),
        Verdict::Holds { tip, commits } => {
            let snapshot = Saved {
                repository: &repository,
                run: &resource.run,
                head: tip,
                tips: &commits,
            }
            .commits()?;
            branch.delete(&repository, tip, None)?;
            Ok(Undone::Removed {
                snapshot: Some(snapshot),
            })
        }
        Verdict::Free { tip, holder } => {
            branch.delete(&repository, tip, holder.as_ref())?;
            Ok(Undone::REMOVED)
        }
        Verdict::Gone | Verdict::NotOurs(_) => Ok(Undone::AlreadyGone),
    }
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

fn undo_directory(
    shared: &Shared,
    resource: &Resource,
    known: Option<FileId>,
    options: UndoOptions,
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
        let Some(root) = path.parent().filter(|_| options.force) else {
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
