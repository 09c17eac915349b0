//! The refs of a launch in the user's repository: what becomes of them when they are taken back.

use groundcrew_core::{
    error::Error,
    undo::{Assessment, UndoOptions, Undone},
};

use super::{resource::Resource, shared::Shared};
use crate::{
    files::id::FileId,
    git::{
        anchor::{self, Held},
        branch::Verdict,
        command::Git,
        history, pack,
        repository::open_common,
        snapshot::Saved,
    },
    text,
};

pub(super) fn kept_unseen(why: String) -> Assessment {
    Assessment {
        changed: true,
        losses: vec![text::single("unreadable", why)],
    }
}

/// Says what taking a branch away would mean.
pub(super) fn assess_branch(resource: &Resource) -> Result<Assessment, Error> {
    if !is_there(resource)? {
        return Ok(kept_unseen(repository_gone(resource)));
    }
    let mark = resource.mark();
    let repository = open_common(&resource.part.common)?;
    Ok(match resource.branch(&mark).judge(&repository)? {
        Verdict::Gone | Verdict::NotOurs(_) => Assessment::default(),
        Verdict::Free { tip, .. } => Assessment {
            changed: tip != resource.part.base,
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

/// Tells whether the repository of the launch is where it was; one that was replaced is not.
pub(super) fn is_there(resource: &Resource) -> Result<bool, Error> {
    Ok(FileId::of(&resource.part.common)? == Some(resource.part.common_id))
}

pub(super) fn repository_gone(resource: &Resource) -> String {
    format!(
        "the repository {} is gone, or another one",
        resource.part.common.display()
    )
}

/// Lets a start point go.
pub(super) fn undo_base(
    shared: &Shared,
    resource: &Resource,
    options: UndoOptions,
) -> Result<Undone, Error> {
    if !is_there(resource)? {
        return without(resource, options);
    }
    let _lock = shared.locks.lock_blocking(resource.part.common_id)?;
    let git = Git::find(&shared.config.git)?;
    let repository = open_common(&resource.part.common)?;
    let name = resource.base_ref();
    pack::sweep(&resource.part.common, &resource.mark())?;
    Ok(
        match anchor::let_go(&git, &repository, &name, resource.part.base)? {
            Held::Gone => Undone::AlreadyGone,
            Held::Ours => Undone::REMOVED,
            Held::Moved(id) => Undone::NotOurs(format!("{name} was moved to {id}")),
        },
    )
}

/// What a ref comes to whose repository is gone.
pub(super) fn without(resource: &Resource, options: UndoOptions) -> Result<Undone, Error> {
    Ok(
        if options.force && FileId::of(&resource.part.common)?.is_none() {
            Undone::AlreadyGone
        } else {
            Undone::Kept(vec![text::single("unreadable", repository_gone(resource))])
        },
    )
}

pub(super) fn undo_branch(
    shared: &Shared,
    resource: &Resource,
    options: UndoOptions,
) -> Result<Undone, Error> {
    if !is_there(resource)? {
        return without(resource, options);
    }
    let _lock = shared.locks.lock_blocking(resource.part.common_id)?;
    let mark = resource.mark();
    let branch = resource.branch(&mark);
    let repository = open_common(&resource.part.common)?;
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
    let git = Git::find(&shared.config.git)?;
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
            branch.delete(&git, &repository, tip, None)?;
            Ok(Undone::Removed {
                snapshot: Some(snapshot),
            })
        }
        Verdict::Free { tip, holder } => {
            branch.delete(&git, &repository, tip, holder.as_ref())?;
            Ok(Undone::REMOVED)
        }
        Verdict::Gone | Verdict::NotOurs(_) => Ok(Undone::AlreadyGone),
    }
}
