//! Makes worktrees: directory, branches, entries in the repositories, files; each effect can be undone wherever it stops.

use std::{
    ffi::OsStr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    preparer::ApplyContext,
};

use super::{
    cloning, filling, including,
    maker::{Maker, git_directory},
    resource::{Kind, Resource},
    shared::Shared,
    state::State,
};
use crate::{
    files::{
        id::FileId,
        marker::{Layout, Marker},
    },
    git::{
        admin::{self, Head},
        command::{Call, Git, failure},
        patience::while_locked,
        repository::{git_error, open_common, open_exact},
    },
};

/// How often git is asked again when it met another's half-made worktree.
const TRIES: u32 = 6;

/// Makes what was planned: all of it, or an error.
pub(super) async fn make(shared: &Arc<Shared>, cx: &ApplyContext<'_>) -> Result<(), Error> {
    let state = State::read(&cx.contribution.state)?;
    let git = Git::find(&shared.config.git)?;
    let makers: Vec<Maker<'_>> = state
        .parts
        .iter()
        .map(|part| Maker {
            shared,
            cx,
            git: &git,
            part,
            resource: &part.tree,
        })
        .collect();
    let Some(first) = makers.first() else {
        return Ok(());
    };
    let marker = marker(first.resource, cx, state.clones.is_some());
    let held = Arc::new(first.directory(marker.clone()).await?);
    cx.effects.checkpoint("directory-made").await?;
    let mut entries = Vec::new();
    for maker in &makers {
        maker.fetched(&held).await?;
        if maker.part.fetch.is_some() || state.clones.is_some() {
            maker.hold().await?;
        }
        entries.push(if let Some(objects) = state.clones {
            cloning::make(maker, objects).await?;
            maker.checkpoint("clone-made").await?;
            git_directory(&maker.resource.part.tree)
        } else {
            branch(maker, &held).await?;
            maker.checkpoint("branch-made").await?;
            let entry = worktree(maker, &held).await?;
            maker.checkpoint("worktree-added").await?;
            entry
        });
    }
    for (maker, entry) in makers.iter().zip(&entries) {
        maker.checkout(&held, entry).await?;
        maker.checkpoint("files-written").await?;
        filling::fill(maker, &held, entry).await?;
        including::include(maker, &held).await?;
    }
    let ready = Marker {
        ready: true,
        ..marker
    };
    let resources: Vec<Resource> = makers.iter().map(|maker| maker.resource.clone()).collect();
    shared
        .blocking(move |_| {
            for (resource, entry) in resources.iter().zip(&entries) {
                verify(resource, entry)?;
            }
            match resources.first() {
                Some(first) => ready.write(&held, &first.directory),
                None => Ok(()),
            }
        })
        .await?;
    cx.effects.checkpoint("checked-out").await
}

fn marker(resource: &Resource, cx: &ApplyContext<'_>, clones: bool) -> Marker {
    let layout = if clones {
        Layout::Clone
    } else {
        Layout::Worktree
    };
    Marker {
        task: cx.plan.request.task.clone(),
        tenant: cx.plan.request.tenant.clone(),
        ..resource.marker(layout, false)
    }
}

/// Makes the branch.
async fn branch(maker: &Maker<'_>, held: &OwnedFd) -> Result<(), Error> {
    maker.go_on()?;
    let locks = &maker.shared.locks;
    let _lock = locks
        .lock(maker.resource.part.common_id, maker.cx.cancel)
        .await?;
    let mark = maker.resource.mark();
    maker
        .resource
        .branch(&mark)
        .create(maker.git, held, maker.cx.cancel)
        .await
}

/// Adds the worktree, without files, and puts it on the branch; returns its entry.
async fn worktree(maker: &Maker<'_>, held: &OwnedFd) -> Result<PathBuf, Error> {
    maker.go_on()?;
    maker.tree().await?;
    let locks = &maker.shared.locks;
    let _lock = locks
        .lock(maker.resource.part.common_id, maker.cx.cancel)
        .await?;
    add(maker, held).await?;
    let resource = maker.resource.clone();
    maker.shared.blocking(move |_| attach(&resource)).await
}

pub(super) async fn add(maker: &Maker<'_>, held: &OwnedFd) -> Result<(), Error> {
    let (reason, base) = (
        maker.resource.reason(),
        maker.resource.part.base.to_string(),
    );
    let args = [
        OsStr::new("worktree"),
        OsStr::new("add"),
        OsStr::new("--no-checkout"),
        OsStr::new("--detach"),
        OsStr::new("--lock"),
        OsStr::new("--reason"),
        OsStr::new(&reason),
        OsStr::new("--"),
        maker.resource.part.tree.as_os_str(),
        OsStr::new(&base),
    ];
    let call = Call {
        git_dir: &maker.resource.part.common,
        work_tree: None,
        settings: &[],
        args: &args,
        holds: Some(held),
    };
    let mut pause = Duration::from_millis(10);
    for last in (0..TRIES).rev() {
        let output = maker.git.run(&call, maker.cx.cancel).await?;
        if output.status.success() {
            return Ok(());
        }
        let error = failure("failed to add the worktree", &output)
            .with("repository", maker.resource.part.common.display());
        if last == 0 || !was_tripped(&output.stderr) {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
        maker.go_on()?;
        // A git that fails removes the directory, although it was there before.
        if FileId::of(&maker.resource.part.tree)?.is_none() {
            maker.tree().await?;
        }
    }
    Err(Error::new(
        ErrorKind::Unexpected,
        "failed to add the worktree",
    ))
}

/// Tells whether git tripped over what another git did in the same moment.
///
/// * One that makes a worktree of the same repository has an entry that is not whole yet: `commondir` is missing.
/// * One that cleans up takes our own entry for a broken one before it is whole, and what git writes into it has no directory.
fn was_tripped(stderr: &[u8]) -> bool {
    let holds = |word: &[u8]| stderr.windows(word.len()).any(|found| found == word);
    holds(b"commondir") || (holds(b"worktrees/") && holds(b"No such file or directory"))
}

/// Finds the new entry by our mark, and points its `HEAD` to the branch.
pub(super) fn attach(resource: &Resource) -> Result<PathBuf, Error> {
    let entry = admin::find(
        &resource.part.common,
        Some(&resource.reason()),
        &resource.part.tree,
    )?
    .ok_or_else(|| {
        Error::new(
            ErrorKind::Unexpected,
            "git said that it added the worktree, but there is none",
        )
        .with("path", resource.part.tree.display())
    })?;
    let repository = open_exact(&entry)?;
    let name = format!("refs/heads/{}", resource.part.branch);
    while_locked(|| {
        repository
            .set_head(&name)
            .map_err(|error| git_error("failed to put the worktree on its branch", error))
    })?;
    Ok(entry)
}

/// Makes sure that what git said it did is so: it has said so with nothing done.
pub(super) fn verify(resource: &Resource, entry: &Path) -> Result<(), Error> {
    let incomplete = |kind, what: String| {
        Error::new(
            kind,
            "git said that the worktree is complete, but it is not",
        )
        .with("path", resource.part.tree.display())
        .with_source(what)
    };
    let wrong = |what| incomplete(ErrorKind::Unexpected, what);
    let name = format!("refs/heads/{}", resource.part.branch);
    if admin::read_head(entry)? != Some(Head::Branch(name.clone())) {
        return Err(wrong("HEAD is not on the branch".to_owned()));
    }
    let repository = open_common(if resource.kind == Kind::Clone {
        entry
    } else {
        &resource.part.common
    })?;
    let tip = repository
        .refname_to_id(&name)
        .map_err(|error| git_error("failed to read the branch", error))?;
    if tip != resource.part.base {
        return Err(wrong(format!("the branch is at {tip}")));
    }
    // One that cleans up the repository locks the HEAD of each worktree for a moment.
    while_locked(|| match admin::locks(entry)?.first() {
        Some(lock) => Err(incomplete(
            ErrorKind::Unavailable,
            format!("{lock} is left"),
        )),
        None => Ok(()),
    })?;
    let index = git2::Index::open(&entry.join("index"))
        .map_err(|error| wrong(format!("the index cannot be read: {error}")))?;
    let tree = repository
        .find_commit(resource.part.base)
        .and_then(|commit| commit.tree())
        .map_err(|error| git_error("failed to read the start point", error))?;
    if index.is_empty() && !tree.is_empty() {
        return Err(wrong("the index is empty".to_owned()));
    }
    let sparse = entry.join("info/sparse-checkout").exists();
    for name in tree.iter().map(|top| top.name_bytes().to_vec()) {
        use std::os::unix::ffi::OsStrExt as _;
        if !sparse && FileId::of(&resource.part.tree.join(OsStr::from_bytes(&name)))?.is_none() {
            return Err(wrong(format!("{} is missing", crate::text::lossy(&name))));
        }
    }
    Ok(())
}
