//! Brings the work of a private clone back into its source: objects first, then a ref, by compare-and-swap.
//!
//! libgit2 copies the objects; no program is run, and no hook, filter or setting of the clone has a say.

use std::ffi::OsStr;

use git2::{ErrorCode, Oid, Repository};
use groundcrew_core::{error::Error, workspace::Finding};

use super::{look::Look, resource::Resource, shared::Shared};
use crate::{
    files::beneath,
    git::{
        branch::Verdict,
        history, lfs, pack,
        patience::{ref_error, while_locked},
        repository::{git_error, open_common},
    },
    text,
};

/// Brings the branch of a clone back; what stands against it if it cannot be.
///
/// * Nothing was committed: no branch is made.
/// * A branch of that name that is another's, or went elsewhere, is left as it is, and the clone is kept.
pub(super) fn bring_back(
    shared: &Shared,
    resource: &Resource,
    clone: &Repository,
    tip: Oid,
) -> Result<Option<Vec<Finding>>, Error> {
    let part = &resource.part;
    if tip == part.base {
        return Ok(None);
    }
    let _lock = shared.locks.lock_blocking(part.common_id)?;
    let source = open_common(&part.common)?;
    let put = put(&source, resource, clone, tip);
    pack::sweep(&part.common, &resource.mark())?;
    match put {
        Ok(kept) => Ok(kept),
        Err(error) => {
            let why = groundcrew_core::error::Chain(&error).to_string();
            Ok(Some(vec![text::single(
                "unreadable",
                format!(
                    "the branch {} could not be brought back: {why}",
                    part.branch
                ),
            )]))
        }
    }
}

/// Keeps the files of git-lfs of a clone in its source: a commit has only pointers to them.
pub(super) fn bring_files(resource: &Resource) -> Result<(), Error> {
    let (tree, common) = (&resource.part.tree, &resource.part.common);
    // The directory is looked at without following a link, as everything of the clone.
    let opened = beneath::open_root(tree)
        .and_then(|tree| beneath::open_directory(&tree, OsStr::new(".git/lfs/objects")));
    match opened {
        Ok(_directory) => lfs::bring(&lfs::store(&tree.join(".git")), &lfs::store(common)),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(
            Error::io("failed to look for files of git-lfs", errno.into())
                .with("path", tree.display()),
        ),
    }
}

fn put(
    source: &Repository,
    resource: &Resource,
    clone: &Repository,
    tip: Oid,
) -> Result<Option<Vec<Finding>>, Error> {
    const DOING: &str = "failed to bring the branch back";
    let failed = |error| git_error(DOING, error).with("branch", &resource.part.branch);
    let unwritten = |error| ref_error(DOING, error).with("branch", &resource.part.branch);
    let mark = resource.mark();
    let branch = resource.branch(&mark);
    let name = branch.full();
    let taken = |why: &str| {
        Ok(Some(vec![text::single(
            "commits",
            format!(
                "the branch {} of the repository {why}",
                resource.part.branch
            ),
        )]))
    };
    copy(source, clone, &[tip], resource)?;
    let at = match branch.judge(source)? {
        Verdict::Gone => None,
        Verdict::NotOurs(_) => return taken("is another's"),
        Verdict::Free { tip, .. } | Verdict::Holds { tip, .. } => Some(tip),
    };
    match at {
        Some(at) if at == tip => Ok(None),
        Some(at) => {
            if !source.graph_descendant_of(tip, at).map_err(failed)? {
                return taken("has other commits");
            }
            if let Some(finding) = branch.checked_out()? {
                return Ok(Some(vec![finding]));
            }
            while_locked(|| {
                source
                    .reference_matching(&name, tip, true, at, "groundcrew: brought back")
                    .map(drop)
                    .map_err(unwritten)
            })?;
            Ok(None)
        }
        None => {
            let made = while_locked(|| {
                source.reference_ensure_log(&name).map_err(unwritten)?;
                match source.reference(&name, tip, false, &mark) {
                    Ok(_) => Ok(true),
                    Err(error) if error.code() == ErrorCode::Exists => Ok(false),
                    Err(error) => Err(unwritten(error)),
                }
            })?;
            if made {
                Ok(None)
            } else {
                taken("was made meanwhile")
            }
        }
    }
}

fn copy(
    source: &Repository,
    clone: &Repository,
    tips: &[Oid],
    resource: &Resource,
) -> Result<(), Error> {
    let mut held: Vec<Oid> = history::holders(source, None)?
        .into_iter()
        .map(|(_, id)| id)
        .collect();
    held.push(resource.part.base);
    pack::copy_commits(clone, source, tips, &held, &resource.mark())
}

/// Copies everything of a clone that a snapshot of it names into its source; to be swept when the snapshot is made.
pub(super) fn copy_work(
    source: &Repository,
    look: &Look,
    resource: &Resource,
) -> Result<(), Error> {
    let mut tips = look.unheld.clone();
    tips.push(look.head);
    copy(source, &look.repository, &tips, resource)?;
    let Some(found) = &look.found else {
        return Ok(());
    };
    let Some(index) = &found.index else {
        return Ok(());
    };
    for entry in index.values() {
        // Another repository's commit is not an object of this one.
        if !matches!(entry.mode, 0 | 0o160_000) {
            pack::copy_object(&look.repository, source, entry.id)?;
        }
    }
    Ok(())
}
