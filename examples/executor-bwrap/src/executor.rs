//! The ten verbs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Chain, Error, ErrorKind},
    executor::{Capabilities, Created, Executor, InstanceSpec, Isolation, ProbeReport, Progress},
    id::{ExecutorName, InstallId, InstanceId},
    identity::{Identity, Presence},
    instance::SharedInstance,
    undo::Undone,
};
use groundcrew_supervisor::{
    LoggedInstance, SOCKET, START_FILE, SUPERVISOR_LOG, StartFile, StartLock, SupervisorInstance,
    SupervisorSource, UnixConnector,
};

use crate::{
    ending,
    place::{self, Place},
    sealing::{self, Network},
};

/// How long a supervisor may take to come up on a busy machine.
const START_TIME: Duration = Duration::from_secs(20);

/// What a [`BwrapExecutor`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BwrapConfig {
    /// Its own name.
    pub name: ExecutorName,
    /// Where everything of its instances lies; absolute, and made if missing.
    pub directory: PathBuf,
    /// The installation that owns the instances.
    pub install: InstallId,
    /// A program that is a supervisor when it is called `groundcrew-supervisor`, such as this one.
    pub supervisor: PathBuf,
    /// The program of bubblewrap.
    pub bwrap: PathBuf,
}

impl BwrapConfig {
    /// Keeps everything below a directory; this very program is the supervisor, and bubblewrap is where Debian has it.
    ///
    /// # Errors
    ///
    /// When this program cannot find itself.
    pub fn new(directory: impl Into<PathBuf>, install: InstallId) -> Result<Self, Error> {
        let own = std::env::current_exe();
        Ok(Self {
            name: ExecutorName::new("bwrap")?,
            directory: directory.into(),
            install,
            supervisor: own.map_err(|e| Error::io("this program cannot find itself", e))?,
            bwrap: "/usr/bin/bwrap".into(),
        })
    }
}

/// Makes instances that are namespaces of this machine.
#[derive(Debug)]
pub struct BwrapExecutor {
    config: BwrapConfig,
}

impl BwrapExecutor {
    /// Makes one; touches nothing.
    pub fn new(config: BwrapConfig) -> Self {
        Self { config }
    }

    fn place(&self, id: &InstanceId) -> Place {
        Place::of(&self.config.directory, id)
    }

    /// Why something may not be touched, if so.
    fn foreign(&self, place: &Place, identity: Option<&Identity>) -> Result<Option<String>, Error> {
        if !place.is_of(&self.config.install)? {
            return Ok(Some("it is another installation's".to_owned()));
        }
        let found = place.identity()?;
        Ok(match (identity, found) {
            (Some(wanted), Some(found)) if *wanted != found => Some(format!("it is {found}")),
            _ => None,
        })
    }
}

#[async_trait]
impl Executor for BwrapExecutor {
    fn name(&self) -> &ExecutorName {
        &self.config.name
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::host();
        capabilities.isolation = Isolation::Container;
        capabilities
    }

    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        let limits = spec.limits;
        limits.check()?;
        // Those of all processes together need control groups, which are read-only inside.
        if limits
            .memory
            .or(limits.milli_cpus)
            .or(limits.processes)
            .is_some()
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "only files can be limited: open_files, file_size, core_size",
            ));
        }
        Network::of(spec).map(drop)
    }

    fn private_directory(&self, id: &InstanceId) -> PathBuf {
        self.place(id).control().join("private")
    }

    async fn probe(&self) -> Result<ProbeReport, Error> {
        let bwrap = &self.config.bwrap;
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that tries bubblewrap"
        )]
        let mut command = tokio::process::Command::new(bwrap);
        let tried = command
            .args(["--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/"])
            .args([
                "--proc",
                "/proc",
                "--dev",
                "/dev",
                "--",
                bwrap_path(bwrap),
                "--version",
            ])
            .env_clear()
            .kill_on_drop(true)
            .output()
            .await;
        let unusable = |why: String| {
            Error::new(
                ErrorKind::Unavailable,
                "bubblewrap cannot make namespaces here",
            )
            .retryable(false)
            .with("program", bwrap.display())
            .with("why", why)
        };
        let tried = tried.map_err(|e| unusable(e.to_string()))?;
        if !tried.status.success() {
            return Err(unusable(
                String::from_utf8_lossy(&tried.stderr).trim().to_owned(),
            ));
        }
        let version = String::from_utf8_lossy(&tried.stdout).trim().to_owned();
        Ok(ProbeReport {
            facts: vec![
                ("bubblewrap".to_owned(), version),
                (
                    "directory".to_owned(),
                    self.config.directory.display().to_string(),
                ),
            ],
            warnings: Vec::new(),
        })
    }

    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        self.check(spec)?;
        let (place, network) = (self.place(id), Network::of(spec)?);
        place
            .create(&self.config.install)
            .map_err(|e| e.with("instance", id))?;
        let (control, logs) = (place.control(), place.logs().to_owned());
        let failed = |e| Error::io("failed to write what a supervisor is started on", e);
        let install = self.config.install.clone();
        let (run, session) = (spec.run.clone(), spec.session.clone());
        let mut start = StartFile::new(
            install,
            id.clone(),
            run,
            session,
            &control,
            logs,
            spec.lease,
        )?;
        start.limits = spec.limits;
        start.write(std::fs::File::open(&control).map_err(failed)?)?;
        let log = std::fs::File::create_new(control.join(SUPERVISOR_LOG)).map_err(failed)?;
        progress.line("sealing off");
        let bwrap = &self.config.bwrap;
        let supervisor = &self.config.supervisor;
        let command = sealing::command(bwrap, supervisor, spec, &place, network);
        let source = SupervisorSource::Command(command);
        groundcrew_supervisor::spawn(&source, &control.join(START_FILE), log, START_TIME)
            .await
            .map_err(|error| {
                let said = std::fs::read_to_string(control.join(SUPERVISOR_LOG));
                error
                    .with("instance", id)
                    .with("said", said.unwrap_or_default().trim_end())
            })?;
        let identity = place.identity()?.ok_or_else(|| {
            Error::new(
                ErrorKind::Conflict,
                "the instance was removed while it was made",
            )
            .with("instance", id)
        })?;
        Ok(Created {
            identity,
            secrets: Vec::new(),
        })
    }

    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        let place = self.place(id);
        let logged = LoggedInstance::new(place.logs(), place.control());
        if place.identity()?.is_none() {
            if place.logs().exists() {
                return Ok(Arc::new(logged));
            }
            return Err(Error::new(ErrorKind::NotFound, "no such instance").with("instance", id));
        }
        if let Some(why) = self.foreign(&place, None)? {
            return Err(
                Error::new(ErrorKind::Conflict, "the instance is not ours").with("why", why)
            );
        }
        let connector = Arc::new(UnixConnector::new(place.control().join(SOCKET)));
        match SupervisorInstance::connect(connector, id, Some(logged.clone())).await {
            Ok(instance) => Ok(Arc::new(instance)),
            // It has ended, and its logs tell of it.
            Err(error) if error.kind() == ErrorKind::Unavailable && has_ended(&place.control()) => {
                Ok(Arc::new(logged))
            }
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        let place = self.place(id);
        if place.identity()?.is_none() {
            return Ok(Undone::AlreadyGone);
        }
        if let Some(why) = self.foreign(&place, identity)? {
            return Ok(Undone::NotOurs(why));
        }
        // Held until nothing is left that a late supervisor could start on.
        let _lock = ending::end(id, &place).await?;
        place.remove()?;
        Ok(Undone::REMOVED)
    }

    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        Ok(match self.place(id).identity() {
            Ok(Some(identity)) => Presence::Present(identity),
            Ok(None) => Presence::Absent,
            Err(error) => Presence::Unknown(Chain(&error).to_string()),
        })
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        let mut ours = Vec::new();
        for id in place::list(&self.config.directory)? {
            if self.place(&id).is_of(&self.config.install)? {
                ours.push(id);
            }
        }
        Ok(ours)
    }
}

fn bwrap_path(path: &Path) -> &str {
    path.to_str().unwrap_or("bwrap")
}

/// One that has its start file and no socket yet is about to come up; one that listens no more has ended all it had.
fn has_ended(control: &Path) -> bool {
    if control.join(SOCKET).exists() {
        return true;
    }
    match std::fs::File::open(control) {
        Ok(directory) => !matches!(StartLock::try_take(&directory), Ok(None)),
        Err(_) => true,
    }
}
