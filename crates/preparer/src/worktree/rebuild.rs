//! Makes worktrees of an earlier run again that are gone: out of their entries, which have the index, or out of their branches.
//!
//! Nothing that is there is replaced. What is made has the names that the run's own records have, so they stand for it as well.

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    preparer::ApplyContext,
    undo::{Occasion, UndoRecord},
    wire::OsText,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};

use super::{
    directory::half_of,
    look::{Target, look},
    make,
    maker::Maker,
    refs::{is_there, repository_gone},
    resource::{Kind, Resource},
    shared::Shared,
    state::PartState,
};
use crate::{
    files::{
        beneath,
        id::FileId,
        lock::lock_directory,
        marker::{Layout, Marker},
    },
    git::{
        admin,
        command::{Call, Git},
        history,
        remote::INTERMEDIATE,
        repository::{git_error, open_common},
        settings,
    },
};

/// Which worktrees are made again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rebuild {
    trees: Vec<OsText>,
}

impl Rebuild {
    /// Those at these paths.
    pub(super) fn of(trees: &[PathBuf]) -> Self {
        Self {
            trees: trees
                .iter()
                .map(|tree| OsText(tree.clone().into_os_string()))
                .collect(),
        }
    }

    fn has(&self, tree: &Path) -> bool {
        self.trees.iter().any(|one| one.0 == tree.as_os_str())
    }
}

/// Makes what a plan named; `owned` are the records of the workspace.
pub(super) async fn rebuild(
    shared: &Arc<Shared>,
    owned: &[UndoRecord],
    cx: &ApplyContext<'_>,
) -> Result<(), Error> {
    let wanted: Rebuild = serde_json::from_str(&cx.contribution.state).map_err(|error| {
        Error::new(
            ErrorKind::Corrupt,
            "the plan of a worktree cannot be understood",
        )
        .with_source(error)
    })?;
    let git = Git::find(&shared.config.git)?;
    let mut trees = Vec::new();
    let mut directory = None;
    for record in owned {
        let resource = Resource::of(record)?;
        match resource.kind {
            Kind::Directory => directory = Some((resource, FileId::of_record(record)?)),
            Kind::Worktree if wanted.has(&resource.part.tree) => trees.push(resource),
            _ => {}
        }
    }
    let Some((directory, known)) = directory.filter(|_| trees.len() == wanted.trees.len()) else {
        return Err(Error::new(
            ErrorKind::NotFound,
            "the worktree is gone, and no record tells any more how it was made",
        ));
    };
    let held = root(shared, cx, &directory, known).await?;
    let path = directory.directory.clone();
    let ready = marker(&directory, cx, true);
    let (begun, kept) = (marker(&directory, cx, false), Arc::clone(&held));
    shared.blocking(move |_| begun.write(&kept, &path)).await?;
    cx.effects.checkpoint("rebuild-begun").await?;
    for resource in trees {
        one(shared, cx, &git, &held, &resource).await?;
    }
    let path = directory.directory.clone();
    shared.blocking(move |_| ready.write(&held, &path)).await?;
    cx.effects.checkpoint("rebuilt").await
}

fn marker(resource: &Resource, cx: &ApplyContext<'_>, ready: bool) -> Marker {
    Marker {
        task: cx.plan.request.task.clone(),
        tenant: cx.plan.request.tenant.clone(),
        ..resource.marker(Layout::Worktree, ready)
    }
}

/// Makes a directory that is recorded before it is in its place: wherever that stops, no stranger is taken for it.
async fn directory(
    shared: &Arc<Shared>,
    cx: &ApplyContext<'_>,
    key: &str,
    (half, path): (PathBuf, PathBuf),
    mode: u32,
) -> Result<(), Error> {
    let at = half.clone();
    let id = shared
        .blocking(move |_| {
            match fs::remove_dir(&at) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&at)(error)),
            }
            beneath::make_directory(&at, mode)?;
            super::maker::exists(&at)
        })
        .await?;
    cx.effects.identify(key, id.into()).await?;
    cx.effects.checkpoint("rebuild-identified").await?;
    shared
        .blocking(move |_| {
            renameat_with(CWD, &half, CWD, &path, RenameFlags::NOREPLACE)
                .map_err(|errno| failed(&path)(errno.into()))
        })
        .await
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::io("failed to make a worktree again", error).with("path", path.display())
}

/// Opens the directory of the run, or makes it again; returns it, locked.
async fn root(
    shared: &Arc<Shared>,
    cx: &ApplyContext<'_>,
    resource: &Resource,
    known: Option<FileId>,
) -> Result<Arc<OwnedFd>, Error> {
    let path = resource.directory.clone();
    if FileId::of(&path)?.is_none() {
        let places = (half_of(&path), path.clone());
        directory(shared, cx, &resource.key(), places, 0o700).await?;
    } else if known.is_some_and(|known| FileId::of(&path).ok().flatten() != Some(known)) {
        return Err(Error::new(
            ErrorKind::Conflict,
            "the directory of the run is another one than was made; it is left as it is",
        )
        .with("path", path.display()));
    }
    shared
        .blocking(move |_| lock_directory(&path)?.ok_or_else(|| super::maker::gone(&path)))
        .await
        .map(Arc::new)
}

/// Makes one worktree again.
async fn one(
    shared: &Arc<Shared>,
    cx: &ApplyContext<'_>,
    git: &Git,
    held: &Arc<OwnedFd>,
    resource: &Resource,
) -> Result<(), Error> {
    let wanted = resource.clone();
    let (part, entry) = shared
        .blocking(move |shared| {
            discard(shared, &wanted)?;
            decide(shared, &wanted)
        })
        .await?;
    let maker = Maker {
        shared,
        cx,
        git,
        part: &part,
        resource: &part.tree,
    };
    maker.go_on()?;
    let tree = resource.part.tree.clone();
    if FileId::of(&tree)?.is_none() {
        let half = format!("{INTERMEDIATE}{}", resource.key());
        let places = (resource.directory.join(half), tree.clone());
        directory(shared, cx, &resource.key(), places, 0o755).await?;
    }
    maker.checkpoint("rebuild-placed").await?;
    if let Some(entry) = entry {
        out_of_index(&maker, held, &entry).await?;
    } else {
        let entry = {
            let locks = &shared.locks;
            let _lock = locks.lock(resource.part.common_id, cx.cancel).await?;
            make::add(&maker, held).await?;
            let resource = part.tree.clone();
            shared.blocking(move |_| make::attach(&resource)).await?
        };
        maker.checkpoint("rebuild-added").await?;
        maker.checkout(held, &entry).await?;
        let resource = part.tree.clone();
        shared
            .blocking(move |_| make::verify(&resource, &entry))
            .await?;
    }
    maker.checkpoint("rebuild-written").await
}

/// Takes away what an attempt to make it again left half-made; what others put there is kept, and named.
fn discard(shared: &Shared, resource: &Resource) -> Result<(), Error> {
    let tree = &resource.part.tree;
    let parent = beneath::open_root(&resource.directory)
        .map_err(|errno| failed(&resource.directory)(errno.into()))?;
    let name = tree.file_name().unwrap_or_default();
    let open = match beneath::open_directory(&parent, name) {
        Ok(open) => open,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(tree)(errno.into())),
    };
    if fs::read_dir(tree).map_err(failed(tree))?.next().is_none() {
        return Ok(());
    }
    let target = Target::of(resource);
    let user = &shared.config.user;
    let look = look(&target, Some(&open), false, Occasion::Close, user)?;
    if let Some(loss) = look.losses.first() {
        return Err(Error::new(
            ErrorKind::Conflict,
            "making the worktree again was never finished, and something else is in it; it is left as it is",
        )
        .with("path", tree.display())
        .with("found", format!("{}: {}", loss.what, loss.items.join(", "))));
    }
    let id = FileId::of(tree)?.ok_or_else(|| super::maker::gone(tree))?;
    shared
        .trash
        .take(&parent, name, id, &resource.owner(), None)?;
    shared.trash.empty(&resource.owner()).map(drop)
}

/// Decides what it is made of: the entry if that is there and can be read, else the branch.
fn decide(shared: &Shared, resource: &Resource) -> Result<(PartState, Option<PathBuf>), Error> {
    let part = &resource.part;
    let path = part.tree.display();
    if !is_there(resource)? {
        return Err(Error::new(ErrorKind::NotFound, repository_gone(resource)).with("path", path));
    }
    let repository = open_common(&part.common)?;
    let name = format!("refs/heads/{}", part.branch);
    let tip = match repository.refname_to_id(&name) {
        Ok(tip) => tip,
        Err(error) => {
            return Err(
                git_error("the worktree is gone, and its branch cannot be read", error)
                    .with("path", path)
                    .with("branch", &part.branch),
            );
        }
    };
    let entry = admin::find(&part.common, Some(&resource.reason()), &part.tree)?;
    if entry.is_none()
        && let Some(place) = admin::holder(&part.common, &name)?
    {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "the worktree is gone, and its branch is checked out elsewhere",
        )
        .with("path", path)
        .with("branch", &part.branch)
        .with("checked_out_at", place.display()));
    }
    let config = settings::layered(&repository, &shared.config.user)
        .map_err(|error| git_error("failed to read the configuration of git", error))?;
    let mut checkout = settings::checkout(&config);
    checkout.extend(settings::workers(&config));
    let mut resource = resource.clone();
    resource.part.base = match &entry {
        Some(entry) => history::own(&repository, entry)?.head.unwrap_or(tip),
        None => tip,
    };
    Ok((
        PartState {
            place: resource.part.common.clone(),
            settings: checkout
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            fetch: None,
            configuration: Vec::new(),
            include: Vec::new(),
            upstream: None,
            submodules: None,
            lfs: None,
            tree: resource,
        },
        entry,
    ))
}

/// Joins the tree with its entry, and writes what the index has: also what was staged and never committed.
async fn out_of_index(maker: &Maker<'_>, held: &Arc<OwnedFd>, entry: &Path) -> Result<(), Error> {
    if !entry.join("index").is_file() {
        join_with(maker, entry).await?;
        return maker.checkout(held, entry).await;
    }
    join_with(maker, entry).await?;
    let mut settings = maker.part.settings();
    let common = &maker.resource.part.common;
    settings.extend(
        settings::without_filters(maker.git, common, maker.cx.cancel)
            .await?
            .settings,
    );
    let args = ["checkout-index", "--all", "--index", "--quiet"].map(OsStr::new);
    let call = Call {
        git_dir: entry,
        work_tree: Some(&maker.part.tree.part.tree),
        settings: &settings,
        args: &args,
        holds: Some(held),
    };
    maker
        .git
        .succeed(
            &call,
            "failed to write the files of the worktree",
            maker.cx.cancel,
        )
        .await?;
    Ok(())
}

async fn join_with(maker: &Maker<'_>, entry: &Path) -> Result<(), Error> {
    let (tree, entry) = (maker.resource.part.tree.clone(), entry.to_owned());
    maker.shared.blocking(move |_| join(&tree, &entry)).await
}

/// Writes the file that leads from a tree to its entry.
fn join(tree: &Path, entry: &Path) -> Result<(), Error> {
    let link = tree.join(".git");
    let text = [b"gitdir: ", entry.as_os_str().as_bytes(), b"\n"].concat();
    fs::File::create_new(&link)
        .and_then(|mut file| file.write_all(&text))
        .map_err(failed(&link))
}
