//! The preparer of task directories: one for each task, a git repository, kept when the run ends.

mod repository;
mod resource;

use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use groundcrew_core::{
    env::Definition,
    error::{Error, ErrorKind},
    id::{PreparerName, TaskId, TenantId},
    identity::Presence,
    instance::Instance,
    preparer::{ApplyContext, Contribution, Found, PlanContext, PlannedResource, Preparer},
    request::LaunchRequest,
    undo::{Assessment, Due, UndoOptions, UndoRecord, Undone},
    workspace::{Workspace, WorkspaceReport, WorkspaceRequest},
};
use rustix::{
    fs::{Dir, FlockOperation, Mode, flock, fstat, mkdirat},
    io::Errno,
};

use self::resource::{KEY, Resource};
use crate::{
    config::ScratchConfig,
    files::{
        self, beneath,
        id::FileId,
        marker::{self, Layout, MARKER, Marker},
        origin::Origin,
        trash::{self, Trash},
    },
    git::settings,
    naming, text,
};

/// Gives each task a directory of its own that survives its sessions.
#[derive(Clone, Debug)]
pub struct ScratchPreparer {
    name: PreparerName,
    config: Arc<ScratchConfig>,
}

impl ScratchPreparer {
    /// Makes the preparer `scratch`; touches nothing yet.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a directory of the configuration is not absolute.
    pub fn new(config: ScratchConfig) -> Result<Self, Error> {
        for path in [&config.tasks, &config.trash] {
            if !path.is_absolute() {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a directory of the scratch preparer is not absolute",
                )
                .with("path", path.display()));
            }
        }
        Ok(Self {
            name: PreparerName::new("scratch")?,
            config: Arc::new(config),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ScratchConfig) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let config = Arc::clone(&self.config);
        files::blocking(move || work(&config)).await
    }
}

/// Returns whose directory a request wants; a worktree or a clone of no repository is one as well.
///
/// # Errors
///
/// `InvalidInput` when tenant or task are not named.
fn wanted(request: &LaunchRequest) -> Result<Option<(TenantId, TaskId)>, Error> {
    let none = match &request.workspace {
        WorkspaceRequest::Scratch { tenant, task } => {
            return Ok(Some((tenant.clone(), task.clone())));
        }
        WorkspaceRequest::Worktree(repositories) | WorkspaceRequest::Clone { repositories, .. } => {
            repositories.is_empty()
        }
        _ => false,
    };
    if !none {
        return Ok(None);
    }
    match (&request.tenant, &request.task) {
        (Some(tenant), Some(task)) => Ok(Some((tenant.clone(), task.clone()))),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "without a repository the task's own directory is used, which needs a tenant and a task",
        )),
    }
}

fn identity(record: &UndoRecord) -> Option<FileId> {
    record.identity.as_ref().and_then(|id| id.0.parse().ok())
}

impl ScratchPreparer {
    /// Returns an identity for git where the user has none.
    async fn identity(&self, cx: PlanContext<'_>) -> Result<Vec<Definition>, Error> {
        let given = cx.request.environment.clone();
        self.blocking(move |config| settings::missing_identity(&config.user, &given))
            .await
    }
}

#[async_trait]
impl Preparer for ScratchPreparer {
    fn name(&self) -> &PreparerName {
        &self.name
    }

    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        let Some((tenant, task)) = wanted(cx.request)? else {
            return Ok(None);
        };
        let resource = Resource {
            version: 1,
            run: cx.run.clone(),
            attempt: cx.attempt,
            tenant: tenant.clone(),
            task: task.clone(),
            path: self
                .config
                .tasks
                .join(naming::on_disk(tenant.as_str()))
                .join(naming::on_disk(task.as_str())),
        };
        let environment = self.identity(cx).await?;
        let state = serde_json::to_string(&resource).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "failed to write a plan down").with_source(error)
        })?;
        Ok(Some(Contribution {
            shared: Vec::new(),
            workspace: Some(Workspace {
                kind: "scratch".to_owned(),
                preparer: self.name.clone(),
                path: resource.path.clone(),
                directory: resource.path.clone(),
                repository: None,
                branch: None,
                base: None,
                owned: false,
                repositories: Vec::new(),
            }),
            environment,
            resources: vec![PlannedResource {
                key: KEY.to_owned(),
                resource: state.clone(),
                label: format!("task directory {}", resource.shown()),
                due: Due::Failure,
                depends_on: Vec::new(),
            }],
            warnings: Vec::new(),
            state,
        }))
    }

    async fn reopen(
        &self,
        workspace: &Workspace,
        cx: PlanContext<'_>,
    ) -> Result<Contribution, Error> {
        let path = workspace.path.clone();
        self.blocking(move |config| {
            let gone = |why: String| {
                Error::new(
                    ErrorKind::NotFound,
                    "the workspace is gone; no other is taken instead",
                )
                .with("path", path.display())
                .with_source(why)
            };
            if path.parent().and_then(Path::parent) != Some(&config.tasks) {
                return Err(gone("it is not in the directory of tasks".to_owned()));
            }
            beneath::open_root(&path)
                .map(drop)
                .map_err(|errno| gone(errno.to_string()))
        })
        .await?;
        Ok(Contribution {
            environment: self.identity(cx).await?,
            ..Contribution::default()
        })
    }

    async fn ensure(&self, _: &[UndoRecord], _: ApplyContext<'_>) -> Result<(), Error> {
        // What is gone is not made again.
        Ok(())
    }

    async fn apply(&self, cx: ApplyContext<'_>) -> Result<(), Error> {
        let resource = Resource::read(&cx.contribution.state)?;
        let wanted = resource.clone();
        let made = self
            .blocking(move |config| directory(config, &wanted))
            .await?;
        if made.new {
            cx.effects.identify(KEY, made.id.into()).await?;
        }
        cx.effects.checkpoint("directory-made").await?;
        self.blocking(move |config| fill(config, &resource, &made))
            .await?;
        cx.effects.checkpoint("repository-made").await
    }

    async fn populate(&self, _: ApplyContext<'_>, _: &dyn Instance) -> Result<(), Error> {
        // The instance uses the files of the host.
        Ok(())
    }

    async fn assess(&self, record: &UndoRecord, _: UndoOptions) -> Result<Assessment, Error> {
        let (resource, known) = (Resource::read(&record.resource)?, identity(record));
        self.blocking(move |_| {
            Ok(match place(&resource, known)? {
                Place::Nothing | Place::Another(_) => Assessment::default(),
                Place::Ours { losses, .. } => Assessment {
                    changed: !losses.is_empty(),
                    losses,
                },
            })
        })
        .await
    }

    async fn undo(&self, record: &UndoRecord, options: UndoOptions) -> Result<Undone, Error> {
        let (resource, known) = (Resource::read(&record.resource)?, identity(record));
        self.blocking(move |config| undo(config, &resource, known, options))
            .await
    }

    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error> {
        let (resource, known) = (Resource::read(&record.resource)?, identity(record));
        self.blocking(move |_| {
            Ok(match FileId::of(&resource.path)? {
                Some(id) if known.is_none_or(|known| known == id) => Presence::Present(id.into()),
                _ => Presence::Absent,
            })
        })
        .await
    }

    async fn list(&self) -> Result<Vec<Found>, Error> {
        self.blocking(list).await
    }

    async fn report(&self, workspace: &Workspace) -> Result<WorkspaceReport, Error> {
        let path = workspace.path.clone();
        self.blocking(move |_| {
            let directory = beneath::open_root(&path).map_err(|errno| {
                Error::io("failed to open the task's directory", errno.into())
                    .with("path", path.display())
            })?;
            Ok(WorkspaceReport {
                dirty: !others(&directory)?.is_empty() || !repository::is_fresh(&path)?,
                ..WorkspaceReport::default()
            })
        })
        .await
    }
}

/// A task's directory, open.
struct Made {
    directory: OwnedFd,
    id: FileId,
    /// Whether it was not there before.
    new: bool,
}

/// Makes the directory of the task, or opens the one that is there.
fn directory(config: &ScratchConfig, resource: &Resource) -> Result<Made, Error> {
    let failed = |errno: Errno| {
        let what = match errno {
            Errno::LOOP | Errno::NOTDIR => "the directory of the task is a link or no directory",
            _ => "failed to make the directory of the task",
        };
        Error::io(what, errno.into()).with("path", resource.path.display())
    };
    beneath::private_root(&config.tasks)?;
    let mut at = beneath::open_root(&config.tasks).map_err(failed)?;
    let mut new = false;
    let names =
        [&resource.tenant.to_string(), &resource.task.to_string()].map(|id| naming::on_disk(id));
    for name in names {
        new = match mkdirat(&at, &*name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(failed(errno)),
        };
        at = beneath::open_directory(&at, OsStr::new(&name)).map_err(failed)?;
    }
    let id = FileId::of_stat(&fstat(&at).map_err(failed)?);
    Ok(Made {
        directory: at,
        id,
        new,
    })
}

/// Marks the directory, then makes the repository in it.
fn fill(config: &ScratchConfig, resource: &Resource, made: &Made) -> Result<(), Error> {
    // Two sessions of one task may come at once.
    flock(&made.directory, FlockOperation::LockExclusive).map_err(|errno| {
        Error::io("failed to lock the directory of the task", errno.into())
            .with("path", resource.path.display())
    })?;
    let marker = Marker {
        layout: Layout::Scratch,
        directory: resource.task.to_string(),
        task: Some(resource.task.clone()),
        tenant: Some(resource.tenant.clone()),
        run: resource.run.clone(),
        install: config.install.clone(),
        attempt: resource.attempt,
        created_ms: marker::now_ms(),
        // What was there before may hold work.
        ready: !made.new,
    };
    match Marker::read(&made.directory)? {
        Some(found) => {
            let same = found.layout == marker.layout
                && found.directory == marker.directory
                && found.task == marker.task
                && found.tenant == marker.tenant;
            if !same {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "the directory of the task is marked as another task's",
                )
                .with("path", resource.path.display()));
            }
        }
        None => marker.write(&made.directory, &resource.path)?,
    }
    repository::init(&made.directory, &resource.path)?;
    if made.new {
        let ready = Marker {
            ready: true,
            ..marker
        };
        ready.write(&made.directory, &resource.path)?;
    }
    Ok(())
}

/// Lists what is in the directory besides the marker and the repository.
fn others(directory: &OwnedFd) -> Result<Vec<OsString>, Error> {
    let failed = |errno: Errno| Error::io("failed to list the directory of the task", errno.into());
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        let ours = name == "." || name == ".." || name == ".git";
        if !ours && !name.as_encoded_bytes().starts_with(MARKER.as_bytes()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

enum Place {
    Nothing,
    Another(String),
    Ours {
        id: FileId,
        losses: Vec<groundcrew_core::workspace::Finding>,
    },
}

fn place(resource: &Resource, known: Option<FileId>) -> Result<Place, Error> {
    let Some(id) = FileId::of(&resource.path)? else {
        return Ok(Place::Nothing);
    };
    let another = |why: &str| Ok(Place::Another(format!("{} {why}", resource.shown())));
    if known.is_some_and(|known| known != id) {
        return another("is not the directory that was made");
    }
    let Some(directory) = trash::open_parent(&resource.path, Some(id))? else {
        return another("is a link or no directory");
    };
    let marker = Marker::read(&directory).ok().flatten();
    let others = others(&directory)?;
    let repository = resource.path.join(".git").symlink_metadata().is_ok();
    let half = marker
        .as_ref()
        .is_none_or(|marker| marker.attempt == resource.attempt && !marker.ready);
    if known.is_none() {
        let empty = others.is_empty() && marker.is_none() && !repository;
        if !(empty || half && marker.is_some()) {
            return another("was there before this launch");
        }
    }
    let mut losses: Vec<_> = text::finding("untracked", &others, |name| name.display().to_string())
        .into_iter()
        .collect();
    if repository && !half {
        match repository::is_fresh(&resource.path) {
            Ok(true) => {}
            Ok(false) => losses.push(text::single("commits", "the repository was used")),
            Err(error) => losses.push(text::single("unreadable", error.to_string())),
        }
    }
    Ok(Place::Ours { id, losses })
}

fn undo(
    config: &ScratchConfig,
    resource: &Resource,
    known: Option<FileId>,
    options: UndoOptions,
) -> Result<Undone, Error> {
    let trash = Trash::new(config.trash.clone());
    let (id, losses) = match place(resource, known)? {
        Place::Nothing => {
            return Ok(if trash.empty(&resource.owner())? {
                Undone::REMOVED
            } else {
                Undone::AlreadyGone
            });
        }
        Place::Another(why) => return Ok(Undone::NotOurs(why)),
        Place::Ours { id, losses } => (id, losses),
    };
    if !losses.is_empty() && !options.force {
        return Ok(Undone::Kept(losses));
    }
    let origin = (!losses.is_empty()).then(|| Origin {
        key: KEY.to_owned(),
        kind: KEY.to_owned(),
        path: resource.path.clone(),
        // It was read from such text, so it can be written.
        resource: serde_json::to_string(resource).unwrap_or_default(),
        ..Origin::new(&resource.run, resource.attempt, &config.install, id)
    });
    let parent = resource.path.parent().unwrap_or(&resource.path);
    let Some(parent) = trash::open_parent(parent, None)? else {
        return Ok(Undone::AlreadyGone);
    };
    trash.take(
        &parent,
        resource.path.file_name().unwrap_or_default(),
        id,
        &resource.owner(),
        origin.as_ref(),
    )?;
    trash.empty(&resource.owner())?;
    // The tenant's directory goes when this was its only task.
    if let Some(tenant) = resource.path.parent() {
        match rustix::fs::rmdir(tenant) {
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => {}
            Err(errno) => {
                return Err(
                    Error::io("failed to delete an empty directory", errno.into())
                        .with("path", tenant.display()),
                );
            }
        }
    }
    Ok(Undone::REMOVED)
}

fn list(config: &ScratchConfig) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    for tenant in directories(&config.tasks)? {
        for task in directories(&tenant)? {
            let Some(directory) = trash::open_parent(&task, None)? else {
                continue;
            };
            let label = format!("task directory {}", task.display());
            match Marker::read(&directory) {
                Ok(Some(marker))
                    if marker.layout == Layout::Scratch && marker.install == config.install =>
                {
                    found.push(Found {
                        attempt: Some(marker.attempt),
                        label,
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => found.push(Found {
                    attempt: None,
                    label: format!("{label}, whose {MARKER} is damaged"),
                }),
                Err(error) => return Err(error),
            }
        }
    }
    found.sort_by(|a, b| a.label.cmp(&b.label));
    Ok(found)
}

fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed =
        |error| Error::io("failed to list a directory", error).with("path", path.display());
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}
