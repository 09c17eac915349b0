//! What is made alike for worktrees and for private clones: the directory of the run, a held start point, the files.

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
    resource::{Kind, Resource},
    shared::Shared,
    state::PartState,
};
use crate::{
    files::{beneath, id::FileId, lock::lock_directory, marker::Marker, removal},
    git::{
        anchor,
        command::{Call, Git, failure},
        lfs, pack, remote,
        repository::open_common,
        settings,
    },
};

/// Makes what was planned of one repository.
#[derive(Clone, Copy)]
pub(super) struct Maker<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) cx: &'a ApplyContext<'a>,
    pub(super) git: &'a Git,
    pub(super) part: &'a PartState,
    /// The work tree, or the clone.
    pub(super) resource: &'a Resource,
}

impl Maker<'_> {
    /// Stops here if somebody asked for it.
    pub(super) fn go_on(&self) -> Result<(), Error> {
        if self.cx.cancel.is_cancelled() {
            return Err(Error::new(
                ErrorKind::Cancelled,
                "cancelled while the workspace was made",
            ));
        }
        Ok(())
    }

    pub(super) async fn identify(&self, kind: Kind, id: FileId) -> Result<(), Error> {
        let key = self.resource.part.key(kind);
        self.cx.effects.identify(&key, id.into()).await
    }

    /// Marks a point behind an effect.
    pub(super) async fn checkpoint(&self, name: &str) -> Result<(), Error> {
        let name = self.resource.part.checkpoint(name);
        self.cx.effects.checkpoint(&name).await
    }

    /// Makes the directory of the run and its marker; returns it, locked.
    pub(super) async fn directory(&self, marker: Marker) -> Result<OwnedFd, Error> {
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

    /// Makes the root of the work tree ourselves, so that it is known before anything is written in it.
    pub(super) async fn tree(&self) -> Result<(), Error> {
        let path = self.resource.part.tree.clone();
        let id = self
            .shared
            .blocking(move |_| {
                beneath::make_directory(&path, 0o755)?;
                exists(&path)
            })
            .await?;
        self.identify(self.resource.kind, id).await
    }

    /// Fetches the start point if it is not there, into a repository of ours first.
    pub(super) async fn fetched(&self, held: &Arc<OwnedFd>) -> Result<(), Error> {
        let Some(fetch) = &self.part.fetch else {
            return Ok(());
        };
        self.go_on()?;
        self.cx.progress.line("fetching the start point");
        let resource = self.resource.clone();
        let key = resource.part.key(Kind::Base);
        let into = remote::intermediate_path(&resource.directory, &key);
        let at = into.clone();
        self.shared
            .blocking(move |_| remote::intermediate(&open_common(&resource.part.common)?, &at))
            .await?;
        self.checkpoint("fetch-begun").await?;
        let config = &self.shared.config;
        let git = self.git.transport(&config.transport, &config.user);
        let base = self.resource.part.base;
        remote::fetch(&git, &into, &fetch.located(base), held, self.cx.cancel).await?;
        self.checkpoint("fetched").await?;
        let (resource, held) = (self.resource.clone(), Arc::clone(held));
        self.shared
            .blocking(move |_| {
                let source = open_common(&resource.part.common)?;
                remote::take_in(&source, &into, base, &resource.mark())?;
                let name = into.file_name().unwrap_or_default();
                removal::remove(&held, name, &into)
            })
            .await?;
        self.checkpoint("taken-in").await
    }

    /// Holds the start point by a ref of ours.
    pub(super) async fn hold(&self) -> Result<(), Error> {
        self.go_on()?;
        let locks = &self.shared.locks;
        let _lock = locks
            .lock(self.resource.part.common_id, self.cx.cancel)
            .await?;
        let resource = self.resource.clone();
        self.shared
            .blocking(move |_| {
                let part = &resource.part;
                let source = open_common(&part.common)?;
                anchor::hold(&source, &resource.base_ref(), part.base)?;
                pack::sweep(&part.common, &resource.mark())
            })
            .await?;
        self.checkpoint("base-held").await
    }

    /// Writes the files; the lock of the repository is not held.
    pub(super) async fn checkout(&self, held: &OwnedFd, entry: &Path) -> Result<(), Error> {
        self.go_on()?;
        self.cx.progress.line("writing files");
        let mut settings = self.part.settings();
        let common = if self.resource.kind == Kind::Clone {
            entry
        } else {
            &self.resource.part.common
        };
        let mut git = self.git.clone();
        if self.part.lfs.is_some() {
            lfs::check(self.git, common, self.cx.cancel).await?;
            // What is not here is fetched with the user's own logins.
            let config = &self.shared.config;
            git = git.transport(&config.transport, &config.user).with_lfs();
        }
        let filters = settings::without_filters(&git, common, self.cx.cancel).await?;
        settings.extend(filters.settings);
        if let Some(program) = &self.part.lfs {
            let source = &self.resource.part.common;
            settings.extend(lfs::settings(Path::new(&program.0), source));
        }
        let base = self.resource.part.base.to_string();
        let args = [
            "read-tree",
            "-m",
            "-u",
            "-v",
            "--no-recurse-submodules",
            &base,
        ]
        .map(OsStr::new);
        let call = Call {
            git_dir: entry,
            work_tree: Some(&self.resource.part.tree),
            settings: &settings,
            args: &args,
            holds: Some(held),
        };
        let progress = self.cx.progress;
        let tell = |done: u64, all: u64| progress.line(&format!("writing files: {done} of {all}"));
        let output = git.run_counting(&call, &tell, self.cx.cancel).await?;
        if !output.status.success() {
            return Err(failure(
                "failed to write the files of the worktree",
                &output,
            ));
        }
        if filters.required || self.part.lfs.is_some() {
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

pub(super) fn gone(path: &Path) -> Error {
    Error::new(
        ErrorKind::Conflict,
        "a directory that was just made is gone",
    )
    .with("path", path.display())
}

pub(super) fn exists(path: &Path) -> Result<FileId, Error> {
    FileId::of(path)?.ok_or_else(|| gone(path))
}

/// The git directory of a clone.
pub(super) fn git_directory(tree: &Path) -> PathBuf {
    tree.join(".git")
}
