//! Takes work trees, their branches and their directory away; keeps what would be lost with them.

use std::{ffi::OsString, os::fd::OwnedFd, path::Path};

use groundcrew_core::{
    error::Error,
    identity::{Identity, Presence},
    undo::{Assessment, Occasion, UndoOptions, UndoRecord, Undone},
    workspace::Finding,
};
use rustix::fs::{AtFlags, FileType, statat};

use super::{
    directory,
    look::{Look, Target, look},
    refs::{self, is_there, kept_unseen, repository_gone},
    resource::{Kind, Resource},
    returning,
    shared::Shared,
};
use crate::{
    files::{beneath, id::FileId, marker::Marker, origin::Origin},
    git::{admin, clone, pack, repository::open_common, snapshot::Saved},
    text,
};

/// A work tree that is there.
struct Present {
    /// The directory that it is in.
    parent: OwnedFd,
    /// Whether making it was finished.
    ready: bool,
    /// Its name there.
    name: OsString,
    /// Which one it is.
    id: FileId,
    /// It, open.
    tree: OwnedFd,
}

/// What is at the path of a work tree.
enum Place {
    /// Nothing, in a directory that tells whether making it was finished.
    Nothing {
        ready: bool,
    },
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
        Kind::Worktree | Kind::Clone => {
            let place = place(
                &resource,
                FileId::of_record(record)?,
                beneath::open_root(&resource.directory).ok(),
            )?;
            if matches!(place, Place::Another(_)) {
                return Ok(Assessment::default());
            }
            Ok(match look_at(shared, &resource, &place, options.occasion) {
                Ok(Some(look)) => Assessment {
                    changed: look.changed,
                    losses: look.losses,
                },
                Ok(None) if matches!(place, Place::Nothing { .. }) => Assessment::default(),
                Ok(None) => kept_unseen("the repository is gone".to_owned()),
                Err(error) => kept_unseen(error.to_string()),
            })
        }
        Kind::Branch => refs::assess_branch(&resource),
        // It holds nothing that is not held elsewhere.
        Kind::Base => Ok(Assessment::default()),
        Kind::Directory => directory::assess(&resource, FileId::of_record(record)?),
    }
}

/// Brings the branch of a clone to its source; the clone stays. What stands against it is returned.
pub(super) fn deliver(shared: &Shared, record: &UndoRecord) -> Result<Vec<Finding>, Error> {
    let resource = Resource::of(record)?;
    if resource.kind != Kind::Clone || !is_there(&resource)? {
        return Ok(Vec::new());
    }
    let parent = beneath::open_root(&resource.directory).ok();
    let Place::Ours(Present {
        ready: true, tree, ..
    }) = place(&resource, FileId::of_record(record)?, parent)?
    else {
        return Ok(Vec::new());
    };
    let part = &resource.part;
    let (repository, _) = clone::open(&tree, &part.tree, &part.common)?;
    match repository.refname_to_id(&format!("refs/heads/{}", part.branch)) {
        Ok(tip) if tip != part.base => {
            returning::bring_files(&resource)?;
            let against = returning::bring_back(shared, &resource, &repository, tip)?;
            Ok(against.unwrap_or_default())
        }
        // Nothing was committed on it; and one that was taken away holds nothing.
        _ => Ok(Vec::new()),
    }
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
        Kind::Worktree | Kind::Clone => {
            undo_tree(shared, &resource, FileId::of_record(record)?, options, held)
        }
        Kind::Branch => refs::undo_branch(shared, &resource, options),
        Kind::Base => refs::undo_base(shared, &resource, options),
        Kind::Directory => directory::undo(
            shared,
            &resource,
            FileId::of_record(record)?,
            options.force,
            held,
        ),
    }
}

/// Tells whether a resource exists.
pub(super) fn state(record: &UndoRecord) -> Result<Presence, Error> {
    let resource = Resource::of(record)?;
    let path = match resource.kind {
        Kind::Worktree | Kind::Clone => &resource.part.tree,
        Kind::Directory => &resource.directory,
        Kind::Branch | Kind::Base => {
            if !is_there(&resource)? {
                return Ok(Presence::Unknown(repository_gone(&resource)));
            }
            let repository = open_common(&resource.part.common)?;
            let name = if resource.kind == Kind::Base {
                resource.base_ref()
            } else {
                format!("refs/heads/{}", resource.part.branch)
            };
            return Ok(match repository.refname_to_id(&name) {
                Ok(tip) => Presence::Present(Identity(tip.to_string())),
                Err(error) if error.code() == git2::ErrorCode::NotFound => Presence::Absent,
                Err(error) => Presence::Unknown(error.to_string()),
            });
        }
    };
    Ok(match FileId::of(path)? {
        Some(id) if FileId::of_record(record)?.is_none_or(|known| known == id) => {
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

fn place(
    resource: &Resource,
    known: Option<FileId>,
    parent: Option<OwnedFd>,
) -> Result<Place, Error> {
    let Some(parent) = parent else {
        return Ok(Place::Nothing { ready: true });
    };
    // Without a marker it counts as finished: then everything in it is looked at.
    let ready = Marker::read(&parent)
        .ok()
        .flatten()
        .is_none_or(|marker| marker.ready);
    let name = resource
        .part
        .tree
        .file_name()
        .unwrap_or_default()
        .to_owned();
    let failed = |errno: rustix::io::Errno| {
        Error::io("failed to look at the work tree", errno.into())
            .with("path", resource.part.tree.display())
    };
    let stat = match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(Place::Nothing { ready }),
        Err(errno) => return Err(failed(errno)),
    };
    let id = FileId::of_stat(&stat);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory
        || known.is_some_and(|known| known != id)
    {
        return Ok(Place::Another(format!(
            "{} is not the directory that was made",
            resource.part.tree.display()
        )));
    }
    let tree = beneath::open_directory(&parent, &name).map_err(failed)?;
    Ok(Place::Ours(Present {
        parent,
        ready,
        name,
        id,
        tree,
    }))
}

/// Looks at the worktree; `None` if there is no repository any more.
fn look_at(
    shared: &Shared,
    resource: &Resource,
    place: &Place,
    occasion: Occasion,
) -> Result<Option<Look>, Error> {
    if !is_there(resource)? {
        return Ok(None);
    }
    let (tree, ready) = match place {
        Place::Ours(present) => (Some(&present.tree), present.ready),
        Place::Nothing { ready } => (None, *ready),
        Place::Another(_) => (None, true),
    };
    look(
        &Target::of(resource),
        tree,
        ready,
        occasion,
        &shared.config.user,
    )
    .map(Some)
}

fn undo_tree(
    shared: &Shared,
    resource: &Resource,
    known: Option<FileId>,
    options: UndoOptions,
    parent: Option<OwnedFd>,
) -> Result<Undone, Error> {
    let discarded = shared.trash.holds_discarded(&resource.owner())?;
    let place = place(resource, known, parent)?;
    let look = look_at(shared, resource, &place, options.occasion);
    let present = match place {
        Place::Ours(present) => Some(present),
        Place::Nothing { .. } => None,
        Place::Another(why) => {
            // Ours is elsewhere, if anywhere: its entry stays as long as that is not known.
            return Ok(Undone::NotOurs(why));
        }
    };
    let look = match look {
        Ok(look) => look,
        Err(error) if present.is_none() => return Err(error),
        Err(error) => return Ok(Undone::Kept(kept_unseen(error.to_string()).losses)),
    };
    let Some(look) = look else {
        return without_repository(shared, resource, present, options.force);
    };
    if present.is_none() && look.entry.is_none() && !discarded {
        // A git that failed takes its entry back, and leaves the directory of entries.
        drop_entry(shared, resource)?;
        return Ok(Undone::AlreadyGone);
    }
    let saves = !look.losses.is_empty();
    if saves && !options.force {
        return Ok(Undone::Kept(look.losses));
    }
    if !options.force
        && let Some(finding) = kept_beside(shared, resource, options)?
    {
        return Ok(Undone::Kept(vec![finding]));
    }
    if resource.kind == Kind::Clone
        && present.is_some()
        && look.changed
        && let Err(error) = returning::bring_files(resource)
    {
        let mut losses = look.losses;
        let why = groundcrew_core::error::Chain(&error).to_string();
        losses.push(text::single("unreadable", why));
        return Ok(Undone::Kept(losses));
    }
    let returns = matches!(options.occasion, Occasion::Close | Occasion::End);
    if resource.kind == Kind::Clone
        && returns
        && let Some(tip) = look.tip
        && let Some(kept) = returning::bring_back(shared, resource, &look.repository, tip)?
    {
        return Ok(Undone::Kept(kept));
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
    // What is brought back is brought back whole.
    let keeps =
        saves || ignored || options.force && is_kept_with_others(shared, resource, options)?;
    if let Some(present) = &present {
        let origin = keeps.then(|| Origin {
            tip: look.tip.map(|tip| tip.to_string()),
            head: Some(look.head.to_string()),
            snapshot: snapshot.clone(),
            ..resource.origin(present.id)
        });
        if let (Some(_), Some(entry), Kind::Worktree) = (&origin, &look.entry, resource.kind)
            && let Err(error) = shared.trash.copy_entry(&resource.owner(), entry)
        {
            // The index, an unfinished operation and the repositories of submodules are only there.
            let why = groundcrew_core::error::Chain(&error).to_string();
            let mut losses = look.losses;
            losses.push(text::single("unreadable", why));
            return Ok(Undone::Kept(losses));
        }
        shared.trash.take(
            &present.parent,
            &present.name,
            present.id,
            &resource.owner(),
            origin.as_ref(),
        )?;
    }
    drop_entry(shared, resource)?;
    shared.trash.empty(&resource.owner())?;
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
        return Ok(if shared.trash.empty(&resource.owner())? {
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
        &resource.owner(),
        Some(&resource.origin(present.id)),
    )?;
    Ok(Undone::REMOVED)
}

fn save(
    shared: &Shared,
    resource: &Resource,
    present: Option<&Present>,
    look: &Look,
) -> Result<String, Error> {
    let _lock = shared.locks.lock_blocking(resource.part.common_id)?;
    let source = open_common(&resource.part.common)?;
    if resource.kind == Kind::Clone {
        returning::copy_work(&source, look, resource)?;
    }
    let saved = Saved {
        repository: &source,
        run: &resource.run,
        head: look.head,
        tips: &look.unheld,
    };
    let name = match (present, &look.found) {
        (Some(present), Some(found)) => saved.tree(&present.tree, found),
        _ => saved.commits(),
    };
    if resource.kind == Kind::Clone {
        pack::sweep(&resource.part.common, &resource.mark())?;
    }
    name
}

/// Finds out whether another part of the workspace holds what would be lost: a workspace is kept whole.
fn kept_beside(
    shared: &Shared,
    resource: &Resource,
    options: UndoOptions,
) -> Result<Option<Finding>, Error> {
    let mut kept = Vec::new();
    for part in &resource.others {
        let other = resource.of_other(part);
        let place = place(&other, None, beneath::open_root(&other.directory).ok())?;
        if !matches!(place, Place::Ours(_)) {
            continue;
        }
        match look_at(shared, &other, &place, options.occasion) {
            Ok(Some(look)) if look.losses.is_empty() => {}
            // What cannot be looked at is kept as well.
            _ => kept.push(part.tree.file_name().unwrap_or_default().to_owned()),
        }
    }
    Ok(text::finding("beside", &kept, |name| {
        name.display().to_string()
    }))
}

/// Tells whether another part of the workspace is in the trash, or will be.
fn is_kept_with_others(
    shared: &Shared,
    resource: &Resource,
    options: UndoOptions,
) -> Result<bool, Error> {
    for part in &resource.others {
        let other = resource.of_other(part).owner();
        if FileId::of(&shared.trash.path_of(&other))?.is_some() {
            return Ok(true);
        }
    }
    Ok(kept_beside(shared, resource, options)?.is_some())
}

/// Removes the entry of the worktree from the repository; a clone has none.
fn drop_entry(shared: &Shared, resource: &Resource) -> Result<(), Error> {
    if resource.kind == Kind::Clone {
        return Ok(());
    }
    let _lock = shared.locks.lock_blocking(resource.part.common_id)?;
    let (reason, tree) = (resource.reason(), &resource.part.tree);
    if let Some(entry) = admin::find(&resource.part.common, Some(&reason), tree)? {
        admin::remove(&resource.part.common, &entry)?;
    }
    admin::sweep(&resource.part.common)
}
