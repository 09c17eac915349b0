//! Finds worktrees again, and tells what they hold; reads only.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use git2::{Oid, Repository, Sort};
use groundcrew_core::{
    error::{Error, ErrorKind},
    preparer::Found,
    undo::Occasion,
    workspace::{Commit, Workspace, WorkspaceReport, WorkspaceRepository},
};
use rustix::io::Errno;

use super::{
    look::{Target, look},
    shared::Shared,
};
use crate::{
    files::{
        beneath,
        id::FileId,
        marker::{Layout, MARKER, Marker},
    },
    git::{
        admin,
        repository::{discover, git_error, open_common},
    },
    include::is_manifest,
    text,
};

/// The kind of a workspace of private clones.
pub(super) const CLONE: &str = "clone";
/// How many commits a report names.
const MAX_COMMITS: usize = 1_000;

fn gone(workspace: &Workspace, why: impl Into<String>) -> Error {
    Error::new(
        ErrorKind::NotFound,
        "the workspace is gone; no other is taken instead",
    )
    .with("path", workspace.path.display())
    .with_source(why.into())
}

/// Lists the work trees of a workspace; a record of an earlier version has one.
fn targets(shared: &Shared, workspace: &Workspace) -> Result<Vec<Target>, Error> {
    let missing = |what: &str| {
        Error::new(
            ErrorKind::Corrupt,
            "the record of a worktree lacks what every worktree has",
        )
        .with("path", workspace.path.display())
        .with("lacks", what)
    };
    let parts = if workspace.repositories.is_empty() {
        vec![WorkspaceRepository {
            repository: workspace
                .repository
                .clone()
                .ok_or_else(|| missing("repository"))?,
            path: workspace.path.clone(),
            branch: workspace.branch.clone().ok_or_else(|| missing("branch"))?,
            base: workspace.base.clone().ok_or_else(|| missing("base"))?,
            identity: None,
            destination: None,
        }]
    } else {
        workspace.repositories.clone()
    };
    parts
        .into_iter()
        .map(|part| {
            if part.path.parent().and_then(Path::parent) != Some(&shared.config.worktrees) {
                return Err(gone(workspace, "it is not in the directory of worktrees"));
            }
            Ok(Target {
                cloned: workspace.kind == CLONE,
                root: workspace.path.clone(),
                common: discover(&part.repository)?.common,
                tree: part.path,
                // It is found by its path: the attempt that made it is not known here.
                reason: None,
                branch: part.branch,
                base: Oid::from_str(&part.base)
                    .map_err(|error| missing("base").with_source(error))?,
            })
        })
        .collect()
}

/// Checks that a workspace is the one that was made; returns the worktrees that are gone, and can be made again.
///
/// A directory in the place of one is no gone one.
pub(super) fn reopen(shared: &Shared, workspace: &Workspace) -> Result<Vec<PathBuf>, Error> {
    let targets = targets(shared, workspace)?;
    let Some(parent) = targets.first().and_then(|target| target.tree.parent()) else {
        return Err(gone(workspace, "it has no repository"));
    };
    if FileId::of(&shared.config.worktrees)?.is_none() {
        return Err(gone(
            workspace,
            "the directory of worktrees is not there; it may be unmounted",
        ));
    }
    let begun = is_begun(shared, workspace, parent)?;
    let mut missing = Vec::new();
    for target in &targets {
        match beneath::open_root(&target.tree) {
            Ok(_half) if begun => {}
            Ok(tree) => {
                is_whole(workspace, target, &tree)?;
                continue;
            }
            Err(Errno::NOENT) if !target.cloned => {}
            Err(errno) => {
                return Err(gone(
                    workspace,
                    format!("{}: {errno}", target.tree.display()),
                ));
            }
        }
        let branch = format!("refs/heads/{}", target.branch);
        open_common(&target.common)?
            .refname_to_id(&branch)
            .map_err(|error| gone(workspace, format!("and so is its branch: {error}")))?;
        missing.push(target.tree.clone());
    }
    Ok(missing)
}

/// Tells whether making it again was begun and not finished, as its marker says.
fn is_begun(shared: &Shared, workspace: &Workspace, directory: &Path) -> Result<bool, Error> {
    let directory = match beneath::open_root(directory) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(gone(workspace, errno.to_string())),
    };
    // The marker is a hint: only one that says something else speaks against it.
    match Marker::read(&directory)? {
        Some(marker) if marker.install != shared.config.install => {
            Err(gone(workspace, "it is another installation's"))
        }
        Some(marker) if !marker.ready && marker.layout == Layout::Clone => {
            Err(gone(workspace, "making it was never finished"))
        }
        marker => Ok(marker.is_some_and(|marker| !marker.ready)),
    }
}

/// Checks that what is there is what was made.
fn is_whole(workspace: &Workspace, target: &Target, tree: &OwnedFd) -> Result<(), Error> {
    if target.cloned {
        return match beneath::open_directory(tree, OsStr::new(".git")) {
            Ok(_git) => Ok(()),
            Err(errno) => Err(gone(
                workspace,
                format!("the clone has no git directory: {errno}"),
            )),
        };
    }
    let Some(entry) = admin::find(&target.common, None, &target.tree)? else {
        return Err(gone(
            workspace,
            "the repository has no worktree at its path any more",
        ));
    };
    if leads_to(&target.tree, &entry)? {
        return Ok(());
    }
    Err(gone(
        workspace,
        "what is at its path is not a worktree of the repository",
    ))
}

/// Tells whether the `.git` of a directory leads to an entry of the repository; one that was put there since does not.
fn leads_to(tree: &Path, entry: &Path) -> Result<bool, Error> {
    let Some(link) = admin::read_short(&tree.join(".git"))? else {
        return Ok(false);
    };
    let Some(target) = link.strip_prefix(b"gitdir:") else {
        return Ok(false);
    };
    let target = tree.join(OsStr::from_bytes(target.trim_ascii()));
    let known = FileId::of(entry)?;
    Ok(known.is_some() && FileId::of(&target)? == known)
}

/// Tells what a workspace holds, all its repositories together.
pub(super) fn report(shared: &Shared, workspace: &Workspace) -> Result<WorkspaceReport, Error> {
    let mut report = WorkspaceReport::default();
    let targets = targets(shared, workspace)?;
    for target in &targets {
        let tree = beneath::open_root(&target.tree).ok();
        let look = look(
            target,
            tree.as_ref(),
            true,
            Occasion::Close,
            &shared.config.user,
        )?;
        let tips: Vec<Oid> = look.tip.into_iter().chain([look.head]).collect();
        let (commits, count) = commits(&look.repository, &tips, target.base)?;
        report.commits.extend(commits);
        report.commits.truncate(MAX_COMMITS);
        report.commit_count += count;
        report.dirty |= look
            .losses
            .iter()
            .any(|finding| !matches!(&*finding.what, "commits" | "process"))
            || look.found.is_some_and(|found| !found.ignored.is_empty());
    }
    if targets.len() > 1 {
        report.dirty |= others_in(&workspace.path, &targets)?;
    }
    Ok(report)
}

/// Tells whether there is anything beside the work trees of a workspace.
fn others_in(root: &Path, targets: &[Target]) -> Result<bool, Error> {
    let failed = |error: io::Error| {
        Error::io("failed to list the directory of a run", error).with("path", root.display())
    };
    for entry in std::fs::read_dir(root).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default();
        let ours = name == MARKER
            || targets
                .iter()
                .any(|target| target.tree == path || is_manifest(name, &target.tree));
        if !ours {
            return Ok(true);
        }
    }
    Ok(false)
}

fn commits(
    repository: &Repository,
    tips: &[Oid],
    base: Oid,
) -> Result<(Vec<Commit>, usize), Error> {
    let failed = |error| git_error("failed to list the commits of a run", error);
    let mut walk = repository.revwalk().map_err(failed)?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::TIME)
        .map_err(failed)?;
    for tip in tips {
        walk.push(*tip).map_err(failed)?;
    }
    if repository.find_commit(base).is_ok() {
        walk.hide(base).map_err(failed)?;
    }
    let (mut commits, mut count) = (Vec::new(), 0);
    for id in walk {
        let id = id.map_err(failed)?;
        if count < MAX_COMMITS {
            let subject = repository
                .find_commit(id)
                .map_err(failed)?
                .summary_bytes()
                .map(text::lossy)
                .unwrap_or_default();
            commits.push(Commit {
                id: id.to_string(),
                subject,
            });
        }
        count += 1;
    }
    Ok((commits, count))
}

/// Lists the directories that carry the mark of this installation.
pub(super) fn list(shared: &Shared) -> Result<Vec<Found>, Error> {
    let root = &shared.config.worktrees;
    let failed = |error: io::Error| {
        Error::io("failed to list the directory of worktrees", error).with("path", root.display())
    };
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if let Some(one) = marked(shared, &path)? {
            found.push(one);
        }
    }
    found.sort_by(|a, b| a.label.cmp(&b.label));
    Ok(found)
}

fn marked(shared: &Shared, path: &Path) -> Result<Option<Found>, Error> {
    let directory = match beneath::open_root(path) {
        Ok(directory) => directory,
        // No directory, a link, or removed meanwhile: nothing of ours.
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {
            return Ok(None);
        }
        Err(errno) => {
            return Err(
                Error::io("failed to open the directory of a run", errno.into())
                    .with("path", path.display()),
            );
        }
    };
    let label = format!("directory {}", path.display());
    Ok(match Marker::read(&directory) {
        Ok(Some(marker))
            if matches!(marker.layout, Layout::Worktree | Layout::Clone)
                && marker.install == shared.config.install =>
        {
            Some(Found {
                attempt: Some(marker.attempt),
                label,
            })
        }
        Ok(_) => None,
        // It lies in our root and has our marker's name, whatever was made of it.
        Err(error) if error.kind() == ErrorKind::Corrupt => Some(Found {
            attempt: None,
            label: format!("{label}, whose {MARKER} is damaged"),
        }),
        Err(error) => return Err(error),
    })
}
