//! The preparer of directories of sessions: empty at first, and gone when the run is closed.
//!
//! What was put in one is never deleted at once: it goes to the trash, from where it can be taken back for a while.

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
    id::{AttemptId, InstallId, PreparerName, RunId, SessionId, TaskId, TenantId},
    identity::Presence,
    instance::Instance,
    preparer::{ApplyContext, Contribution, Found, PlanContext, PlannedResource, Preparer},
    undo::{Assessment, Due, UndoOptions, UndoRecord, Undone},
    wire,
    workspace::{Finding, Workspace, WorkspaceReport, WorkspaceRequest},
};
use rustix::{
    fs::{Dir, Mode, mkdirat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{
    config::EphemeralConfig,
    files::{
        self, beneath,
        id::FileId,
        marker::{self, Layout, MARKER, Marker},
        occupants,
        origin::Origin,
        trash::{self, Owner, Trash},
    },
    git::settings,
    naming, text,
};

/// The key of the record of a session's directory.
const KEY: &str = "ephemeral";

/// Gives each session an empty directory that goes with its run.
#[derive(Clone, Debug)]
pub struct EphemeralPreparer {
    name: PreparerName,
    config: Arc<EphemeralConfig>,
}

/// A session's directory, as data that another process can undo it by.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Resource {
    version: u32,
    run: RunId,
    attempt: AttemptId,
    install: InstallId,
    task: Option<TaskId>,
    tenant: Option<TenantId>,
    #[serde(with = "wire::path")]
    path: PathBuf,
}

impl Resource {
    fn read(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| {
            Error::new(
                ErrorKind::Corrupt,
                "a record of a session's directory cannot be understood",
            )
            .with_source(why)
        };
        let resource: Self =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if resource.version == 1 {
            Ok(resource)
        } else {
            Err(wrong(format!("version {}", resource.version)))
        }
    }

    fn owner(&self) -> Owner {
        Owner {
            attempt: self.attempt,
            key: KEY.to_owned(),
        }
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn marker(&self) -> Marker {
        Marker {
            layout: Layout::Ephemeral,
            directory: self.name().to_string_lossy().into_owned(),
            task: self.task.clone(),
            tenant: self.tenant.clone(),
            run: self.run.clone(),
            install: self.install.clone(),
            attempt: self.attempt,
            created_ms: marker::now_ms(),
            ready: true,
        }
    }
}

impl EphemeralPreparer {
    /// Makes the preparer `ephemeral`; touches nothing yet.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a directory of the configuration is not absolute.
    pub fn new(config: EphemeralConfig) -> Result<Self, Error> {
        for path in [&config.sessions, &config.trash] {
            if !path.is_absolute() {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a directory of the ephemeral preparer is not absolute",
                )
                .with("path", path.display()));
            }
        }
        Ok(Self {
            name: PreparerName::new("ephemeral")?,
            config: Arc::new(config),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&EphemeralConfig) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let config = Arc::clone(&self.config);
        files::blocking(move || work(&config)).await
    }

    /// Returns an identity for git where the user has none.
    async fn identity(&self, cx: PlanContext<'_>) -> Result<Vec<Definition>, Error> {
        let given = cx.request.environment.clone();
        self.blocking(move |config| settings::missing_identity(&config.user, &given))
            .await
    }
}

#[async_trait]
impl Preparer for EphemeralPreparer {
    fn name(&self) -> &PreparerName {
        &self.name
    }

    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        if cx.request.workspace != WorkspaceRequest::Ephemeral {
            return Ok(None);
        }
        let session = match &cx.request.session {
            Some(session) => session.clone(),
            None => SessionId::new(cx.run.as_str())?,
        };
        let resource = Resource {
            version: 1,
            run: cx.run.clone(),
            attempt: cx.attempt,
            install: cx.install.clone(),
            task: cx.request.task.clone(),
            tenant: cx.request.tenant.clone(),
            path: self.config.sessions.join(naming::on_disk(session.as_str())),
        };
        let path = resource.path.clone();
        self.blocking(move |_| match FileId::of(&path)? {
            None => Ok(()),
            Some(_) => Err(Error::new(
                ErrorKind::AlreadyExists,
                "the directory of the session exists already; it is left as it is",
            )
            .with("path", path.display())),
        })
        .await?;
        let state = serde_json::to_string(&resource).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "failed to write a plan down").with_source(error)
        })?;
        Ok(Some(Contribution {
            shared: Vec::new(),
            workspace: Some(Workspace {
                kind: "ephemeral".to_owned(),
                preparer: self.name.clone(),
                path: resource.path.clone(),
                directory: resource.path.clone(),
                repository: None,
                branch: None,
                base: None,
                owned: true,
                repositories: Vec::new(),
            }),
            environment: self.identity(cx).await?,
            resources: vec![PlannedResource {
                key: KEY.to_owned(),
                resource: state.clone(),
                label: format!("directory {}", resource.path.display()),
                due: Due::Close,
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
            if path.parent() != Some(&config.sessions) {
                return Err(gone("it is not in the directory of sessions".to_owned()));
            }
            let directory = beneath::open_root(&path).map_err(|errno| gone(errno.to_string()))?;
            match Marker::read(&directory)? {
                Some(marker) if marker.install != config.install => {
                    Err(gone("it is another installation's".to_owned()))
                }
                _ => Ok(()),
            }
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
        let (directory, id) = self.blocking(move |config| make(config, &wanted)).await?;
        cx.effects.identify(KEY, id.into()).await?;
        cx.effects.checkpoint("directory-made").await?;
        self.blocking(move |_| resource.marker().write(&directory, &resource.path))
            .await?;
        cx.effects.checkpoint("marked").await
    }

    async fn populate(&self, _: ApplyContext<'_>, _: &dyn Instance) -> Result<(), Error> {
        // The instance uses the files of the host.
        Ok(())
    }

    async fn assess(&self, record: &UndoRecord, _: UndoOptions) -> Result<Assessment, Error> {
        let resource = Resource::read(&record.resource)?;
        let known = FileId::of_record(record)?;
        self.blocking(move |_| {
            Ok(match place(&resource, known)? {
                Place::Nothing | Place::Another(_) => Assessment::default(),
                Place::Ours { others, losses, .. } => Assessment {
                    changed: others || !losses.is_empty(),
                    losses,
                },
            })
        })
        .await
    }

    async fn undo(&self, record: &UndoRecord, options: UndoOptions) -> Result<Undone, Error> {
        let resource = Resource::read(&record.resource)?;
        let known = FileId::of_record(record)?;
        self.blocking(move |config| undo(config, &resource, known, options))
            .await
    }

    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error> {
        let resource = Resource::read(&record.resource)?;
        let known = FileId::of_record(record)?;
        self.blocking(move |config| {
            Ok(match FileId::of(&resource.path)? {
                Some(id) if known.is_none_or(|known| known == id) => Presence::Present(id.into()),
                None if FileId::of(&config.sessions)?.is_none() => Presence::Unknown(format!(
                    "{} is not there; it may be unmounted",
                    config.sessions.display()
                )),
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
                Error::io("failed to open the session's directory", errno.into())
                    .with("path", path.display())
            })?;
            Ok(WorkspaceReport {
                dirty: has_others(&directory)?,
                ..WorkspaceReport::default()
            })
        })
        .await
    }
}

/// Makes the directory, which must not be there.
fn make(config: &EphemeralConfig, resource: &Resource) -> Result<(OwnedFd, FileId), Error> {
    let failed = |errno: Errno| {
        Error::io("failed to make the directory of the session", errno.into())
            .with("path", resource.path.display())
    };
    beneath::private_root(&config.sessions)?;
    let root = beneath::open_root(&config.sessions).map_err(failed)?;
    mkdirat(&root, resource.name(), Mode::RWXU).map_err(failed)?;
    let directory = beneath::open_directory(&root, resource.name()).map_err(failed)?;
    let stat = rustix::fs::fstat(&directory).map_err(failed)?;
    Ok((directory, FileId::of_stat(&stat)))
}

/// What is at the path of a session's directory.
enum Place {
    Nothing,
    Another(String),
    Ours {
        id: FileId,
        /// Whether there is anything in it but the marker.
        others: bool,
        losses: Vec<Finding>,
    },
}

fn place(resource: &Resource, known: Option<FileId>) -> Result<Place, Error> {
    let Some(id) = FileId::of(&resource.path)? else {
        return Ok(Place::Nothing);
    };
    let another = |why: &str| Ok(Place::Another(format!("{} {why}", resource.path.display())));
    if known.is_some_and(|known| known != id) {
        return another("is not the directory that was made");
    }
    let Some(directory) = trash::open_parent(&resource.path, Some(id))? else {
        return another("is a link or no directory");
    };
    let others = has_others(&directory)?;
    if known.is_none() {
        // It died before its identity was stored: then it is empty, or carries our mark.
        let marker = Marker::read(&directory).ok().flatten();
        let ours = match &marker {
            Some(marker) => marker.attempt == resource.attempt,
            None => !others,
        };
        if !ours {
            return another("does not carry the mark of this launch");
        }
    }
    let losses = text::finding("process", &occupants::inside(&resource.path), String::clone)
        .into_iter()
        .collect();
    Ok(Place::Ours { id, others, losses })
}

/// Tells whether there is anything in a directory but the marker.
fn has_others(directory: &OwnedFd) -> Result<bool, Error> {
    let failed =
        |errno: Errno| Error::io("failed to list the directory of the session", errno.into());
    for entry in Dir::read_from(directory).map_err(failed)? {
        let name = OsString::from_vec(entry.map_err(failed)?.file_name().to_bytes().to_vec());
        let ours = name == "." || name == "..";
        if !ours && !name.as_encoded_bytes().starts_with(MARKER.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn undo(
    config: &EphemeralConfig,
    resource: &Resource,
    known: Option<FileId>,
    options: UndoOptions,
) -> Result<Undone, Error> {
    let trash = Trash::new(config.trash.clone());
    let owner = resource.owner();
    let (id, others, losses) = match place(resource, known)? {
        Place::Nothing => {
            return Ok(if trash.empty(&owner)? {
                Undone::REMOVED
            } else {
                Undone::AlreadyGone
            });
        }
        Place::Another(why) => return Ok(Undone::NotOurs(why)),
        Place::Ours { id, others, losses } => (id, others, losses),
    };
    if !losses.is_empty() && !options.force {
        return Ok(Undone::Kept(losses));
    }
    let Some(root) = trash::open_parent(&config.sessions, None)? else {
        return Ok(Undone::AlreadyGone);
    };
    let origin = others.then(|| Origin {
        key: KEY.to_owned(),
        kind: KEY.to_owned(),
        path: resource.path.clone(),
        // It was read from such text, so it can be written.
        resource: serde_json::to_string(resource).unwrap_or_default(),
        ..Origin::new(&resource.run, resource.attempt, &resource.install, id)
    });
    trash.take(&root, resource.name(), id, &owner, origin.as_ref())?;
    trash.empty(&owner)?;
    Ok(Undone::REMOVED)
}

fn list(config: &EphemeralConfig) -> Result<Vec<Found>, Error> {
    let root: &Path = &config.sessions;
    let failed = |error: std::io::Error| {
        Error::io("failed to list the directory of sessions", error).with("path", root.display())
    };
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let Some(directory) = trash::open_parent(&path, None)? else {
            continue;
        };
        let label = format!("directory {}", path.display());
        match Marker::read(&directory) {
            Ok(Some(marker))
                if marker.layout == Layout::Ephemeral && marker.install == config.install =>
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
    found.sort_by(|a, b| a.label.cmp(&b.label));
    Ok(found)
}
