//! Makes a worktree: directory, branch, entry in the repository, files; each effect can be undone wherever it stops.

use std::{
    ffi::OsStr,
    fs::{File, FileTimes},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    preparer::ApplyContext,
};

use super::{
    resource::{Kind, Resource, State},
    shared::Shared,
};
use crate::{
    files::{
        beneath,
        id::FileId,
        lock::lock_directory,
        marker::{self, Layout, Marker},
    },
    git::{
        admin::{self, Head},
        command::{Call, Git, failure},
        repository::{git_error, open_common, open_exact},
        settings,
    },
};

/// How often git is asked again when it met another's half-made worktree.
const TRIES: u32 = 6;

/// Makes what was planned.
pub(super) async fn make(shared: &Arc<Shared>, cx: &ApplyContext<'_>) -> Result<(), Error> {
    let state: State = serde_json::from_str(&cx.contribution.state).map_err(|error| {
        Error::new(
            ErrorKind::Corrupt,
            "the plan of a worktree cannot be understood",
        )
        .with_source(error)
    })?;
    let made = Maker {
        shared,
        cx,
        git: Git::find(&shared.config.git)?,
        resource: &state.worktree,
    };
    let marker = Marker {
        layout: Layout::Worktree,
        directory: made
            .resource
            .directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        task: cx.plan.request.task.clone(),
        tenant: cx.plan.request.tenant.clone(),
        run: made.resource.run.clone(),
        install: made.resource.install.clone(),
        attempt: made.resource.attempt,
        created_ms: marker::now_ms(),
        ready: false,
    };
    let held = Arc::new(made.directory(marker.clone()).await?);
    cx.effects.checkpoint("directory-made").await?;
    made.branch(&held).await?;
    cx.effects.checkpoint("branch-made").await?;
    let entry = made.worktree(&held).await?;
    cx.effects.checkpoint("worktree-added").await?;
    made.checkout(&held, &entry, state.settings()).await?;
    let (resource, ready) = (
        made.resource.clone(),
        Marker {
            ready: true,
            ..marker
        },
    );
    shared
        .blocking(move |_| {
            verify(&resource, &entry)?;
            ready.write(&held, &resource.directory)
        })
        .await?;
    cx.effects.checkpoint("checked-out").await
}

struct Maker<'a> {
    shared: &'a Arc<Shared>,
    cx: &'a ApplyContext<'a>,
    git: Git,
    resource: &'a Resource,
}

impl Maker<'_> {
    /// Stops here if somebody asked for it.
    fn go_on(&self) -> Result<(), Error> {
        if self.cx.cancel.is_cancelled() {
            return Err(Error::new(
                ErrorKind::Cancelled,
                "cancelled while the worktree was made",
            ));
        }
        Ok(())
    }

    async fn identify(&self, kind: Kind, id: FileId) -> Result<(), Error> {
        self.cx.effects.identify(kind.key(), id.into()).await
    }

    /// Makes the directory of the run and its marker; returns it, locked.
    async fn directory(&self, marker: Marker) -> Result<OwnedFd, Error> {
        self.go_on()?;
        let path = self.resource.directory.clone();
        let id = self
            .shared
            .blocking(move |shared| {
                beneath::private_root(&shared.config.worktrees)?;
                beneath::make_directory(&path, 0o700)?;
                exists(&path)
            })
            .await?;
        self.identify(Kind::Directory, id).await?;
        let path = self.resource.directory.clone();
        self.shared
            .blocking(move |_| {
                let held = lock_directory(&path)?.ok_or_else(|| gone(&path))?;
                marker.write(&held, &path)?;
                Ok(held)
            })
            .await
    }

    /// Makes the branch.
    async fn branch(&self, held: &OwnedFd) -> Result<(), Error> {
        self.go_on()?;
        let locks = &self.shared.locks;
        let _lock = locks.lock(self.resource.common_id, self.cx.cancel).await?;
        let mark = self.resource.mark();
        self.resource
            .branch(&mark)
            .create(&self.git, held, self.cx.cancel)
            .await
    }

    /// Adds the worktree, without files, and puts it on the branch; returns its entry.
    async fn worktree(&self, held: &OwnedFd) -> Result<PathBuf, Error> {
        self.go_on()?;
        self.tree().await?;
        let locks = &self.shared.locks;
        let _lock = locks.lock(self.resource.common_id, self.cx.cancel).await?;
        self.add(held).await?;
        let resource = self.resource.clone();
        self.shared.blocking(move |_| attach(&resource)).await
    }

    /// Makes the root of the work tree ourselves, so that it is known before git writes in it.
    async fn tree(&self) -> Result<(), Error> {
        let path = self.resource.tree.clone();
        let id = self
            .shared
            .blocking(move |_| {
                beneath::make_directory(&path, 0o755)?;
                exists(&path)
            })
            .await?;
        self.identify(Kind::Worktree, id).await
    }

    async fn add(&self, held: &OwnedFd) -> Result<(), Error> {
        let (reason, base) = (self.resource.reason(), self.resource.base.to_string());
        let args = [
            OsStr::new("worktree"),
            OsStr::new("add"),
            OsStr::new("--no-checkout"),
            OsStr::new("--detach"),
            OsStr::new("--lock"),
            OsStr::new("--reason"),
            OsStr::new(&reason),
            OsStr::new("--"),
            self.resource.tree.as_os_str(),
            OsStr::new(&base),
        ];
        let call = Call {
            git_dir: &self.resource.common,
            work_tree: None,
            settings: &[],
            args: &args,
            holds: Some(held),
        };
        let mut pause = Duration::from_millis(10);
        for last in (0..TRIES).rev() {
            let output = self.git.run(&call, self.cx.cancel).await?;
            if output.status.success() {
                return Ok(());
            }
            let error = failure("failed to add the worktree", &output)
                .with("repository", self.resource.common.display());
            // Somebody else's git is just making a worktree of this repository, and ours tripped over it.
            if last == 0 || !output.stderr.windows(9).any(|word| word == b"commondir") {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            self.go_on()?;
            // A git that fails removes the directory, although it was there before.
            if FileId::of(&self.resource.tree)?.is_none() {
                self.tree().await?;
            }
        }
        Err(Error::new(
            ErrorKind::Unexpected,
            "failed to add the worktree",
        ))
    }

    /// Writes the files; the lock of the repository is not held.
    async fn checkout(
        &self,
        held: &OwnedFd,
        entry: &Path,
        mut settings: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<(), Error> {
        self.go_on()?;
        self.cx.progress.line("writing files");
        let filters =
            settings::without_filters(&self.git, &self.resource.common, self.cx.cancel).await?;
        settings.extend(filters.settings);
        let base = self.resource.base.to_string();
        let args = ["read-tree", "-m", "-u", "--no-recurse-submodules", &base].map(OsStr::new);
        let call = Call {
            git_dir: entry,
            work_tree: Some(&self.resource.tree),
            settings: &settings,
            args: &args,
            holds: Some(held),
        };
        self.git
            .succeed(
                &call,
                "failed to write the files of the worktree",
                self.cx.cancel,
            )
            .await?;
        if filters.required {
            self.settle(&entry.join("index")).await?;
        }
        Ok(())
    }

    /// Dates the index a second later than the files that were written.
    ///
    /// Git compares the contents of files as young as the index, and runs their filters for that; one that must not fail
    /// and is missing would make `git status` fail in this worktree for ever.
    async fn settle(&self, index: &Path) -> Result<(), Error> {
        let failed =
            |error| Error::io("failed to date the index", error).with("path", index.display());
        let index = File::options().write(true).open(index).map_err(failed)?;
        let written = index
            .metadata()
            .and_then(|metadata| metadata.modified())
            .map_err(failed)?;
        // Most gits look at whole seconds.
        let part = written.duration_since(UNIX_EPOCH).unwrap_or_default();
        let next =
            written + Duration::from_secs(1) - Duration::from_nanos(part.subsec_nanos().into());
        let rest = next.duration_since(SystemTime::now()).unwrap_or_default();
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = self.cx.cancel.cancelled() => return self.go_on(),
        }
        let times = FileTimes::new().set_modified(next.max(SystemTime::now()));
        index.set_times(times).map_err(failed)
    }
}

fn gone(path: &Path) -> Error {
    Error::new(
        ErrorKind::Conflict,
        "a directory that was just made is gone",
    )
    .with("path", path.display())
}

fn exists(path: &Path) -> Result<FileId, Error> {
    FileId::of(path)?.ok_or_else(|| gone(path))
}

/// Finds the new entry by our mark, and points its `HEAD` to the branch.
fn attach(resource: &Resource) -> Result<PathBuf, Error> {
    let entry = admin::find(&resource.common, Some(&resource.reason()), &resource.tree)?
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Unexpected,
                "git said that it added the worktree, but there is none",
            )
            .with("path", resource.tree.display())
        })?;
    open_exact(&entry)?
        .set_head(&format!("refs/heads/{}", resource.branch))
        .map_err(|error| git_error("failed to put the worktree on its branch", error))?;
    Ok(entry)
}

/// Makes sure that what git said it did is so: it has said so with nothing done.
fn verify(resource: &Resource, entry: &Path) -> Result<(), Error> {
    let wrong = |what: String| {
        Error::new(
            ErrorKind::Unexpected,
            "git said that the worktree is complete, but it is not",
        )
        .with("path", resource.tree.display())
        .with_source(what)
    };
    let name = format!("refs/heads/{}", resource.branch);
    if admin::read_head(entry)? != Some(Head::Branch(name.clone())) {
        return Err(wrong("HEAD is not on the branch".to_owned()));
    }
    let repository = open_common(&resource.common)?;
    let tip = repository
        .refname_to_id(&name)
        .map_err(|error| git_error("failed to read the branch", error))?;
    if tip != resource.base {
        return Err(wrong(format!("the branch is at {tip}")));
    }
    if let Some(lock) = admin::stale_locks(entry)?.first() {
        return Err(wrong(format!("{lock} is left")));
    }
    let index = git2::Index::open(&entry.join("index"))
        .map_err(|error| wrong(format!("the index cannot be read: {error}")))?;
    let tree = repository
        .find_commit(resource.base)
        .and_then(|commit| commit.tree())
        .map_err(|error| git_error("failed to read the start point", error))?;
    if index.is_empty() && !tree.is_empty() {
        return Err(wrong("the index is empty".to_owned()));
    }
    let sparse = entry.join("info/sparse-checkout").exists();
    for name in tree.iter().map(|top| top.name_bytes().to_vec()) {
        use std::os::unix::ffi::OsStrExt as _;
        if !sparse && FileId::of(&resource.tree.join(OsStr::from_bytes(&name)))?.is_none() {
            return Err(wrong(format!("{} is missing", crate::text::lossy(&name))));
        }
    }
    Ok(())
}
