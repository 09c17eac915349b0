//! The executor of host processes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::{Capabilities, Created, Executor, InstanceSpec, ProbeReport, Progress},
    id::{ExecutorName, InstallId, InstanceId},
    identity::{Identity, Presence},
    instance::SharedInstance,
    process::{Offset, ProcessPhase, ProcessState},
    undo::Undone,
};
use groundcrew_supervisor::{
    LoggedInstance, SOCKET, START_FILE, StartFile, StartLock, SupervisorInstance, SupervisorSource,
    UnixConnector,
};

use crate::{
    instance_directory::{Found, InstanceDirectory, PRIVATE, Root},
    life, probe, room,
};

/// How long a supervisor may take to come up on a busy machine.
const START_TIME: Duration = Duration::from_secs(20);

/// How often a removal begins anew because another one came in between.
const DELETE_TRIES: usize = 5;

/// How much of what a supervisor said goes into the error about it.
const LOG_TAIL: u64 = 2048;

/// What a [`LocalExecutor`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalConfig {
    /// Its own name.
    pub name: ExecutorName,
    /// Where the directories of instances are; absolute, and made if missing.
    pub instances: PathBuf,
    /// Where the logs of processes are, one directory for each instance; absolute, and made if missing.
    pub logs: PathBuf,
    /// The installation that owns the instances.
    pub install: InstallId,
    /// Where the program of a supervisor comes from.
    pub supervisor: SupervisorSource,
}

impl LocalConfig {
    /// Keeps instances and logs below a directory; this very program is their supervisor.
    pub fn new(name: ExecutorName, home: &Path, install: InstallId) -> Self {
        Self {
            name,
            instances: home.join("instances"),
            logs: home.join("logs"),
            install,
            supervisor: SupervisorSource::SelfExec,
        }
    }
}

/// Makes instances on this machine: processes of the calling user, under a supervisor of their own.
#[derive(Debug)]
pub struct LocalExecutor {
    name: ExecutorName,
    root: Root,
    logs: PathBuf,
    install: InstallId,
    supervisor: SupervisorSource,
}

impl LocalExecutor {
    /// Makes one; touches nothing.
    pub fn new(config: LocalConfig) -> Self {
        Self {
            name: config.name,
            root: Root::new(config.instances),
            logs: config.logs,
            install: config.install,
            supervisor: config.supervisor,
        }
    }

    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    fn logs_of(&self, id: &InstanceId) -> PathBuf {
        self.logs.join(id.as_str())
    }

    /// The instance as its logs tell of it; none if there are none.
    fn logged(&self, id: &InstanceId) -> Result<Option<LoggedInstance>, Error> {
        let logs = self.logs_of(id);
        match std::fs::symlink_metadata(&logs) {
            Ok(_) => Ok(Some(LoggedInstance::new(
                logs,
                self.root.path().join(id.as_str()),
            ))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("failed to look for the logs of the instance", e)
                .with("path", logs.display())),
        }
    }

    fn start_file(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        directory: &InstanceDirectory,
    ) -> Result<(), Error> {
        let mut start = StartFile::new(
            self.install.clone(),
            id.clone(),
            spec.run.clone(),
            spec.session.clone(),
            directory.path(),
            self.logs_of(id),
            spec.lease,
        )?;
        start.limits = spec.limits;
        start.write(directory.fd())
    }

    async fn connect_to(
        &self,
        id: &InstanceId,
        directory: &InstanceDirectory,
    ) -> Result<SharedInstance, Error> {
        let socket = directory.path().join(SOCKET);
        let logged = LoggedInstance::new(self.logs_of(id), directory.path());
        let connector = Arc::new(UnixConnector::new(&socket));
        let error = match SupervisorInstance::connect(connector, id, Some(logged.clone())).await {
            Ok(instance) => return Ok(Arc::new(instance)),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Unavailable {
            return Err(error);
        }
        let held = match StartLock::try_take(directory.fd()) {
            Ok(lock) => lock.is_none(),
            // Removed meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            Err(e) => return Err(e),
        };
        // One that holds its file and has no socket yet is about to come up; one that listens no more has ended all it had.
        if held && !socket.exists() {
            return Err(error);
        }
        Ok(Arc::new(logged))
    }

    async fn remove(&self, id: &InstanceId, directory: &InstanceDirectory) -> Result<(), Error> {
        // The lock is held until nothing is left that a late supervisor could start on.
        let _lock = match &directory.start {
            Some(_) => Some(life::end(directory, id).await?),
            None => None,
        };
        self.remove_logs_without_frames(id)?;
        directory.remove(id)
    }

    /// Removes the logs of an instance in which nothing ever happened, such as that of a failed launch.
    fn remove_logs_without_frames(&self, id: &InstanceId) -> Result<(), Error> {
        let logs = self.logs_of(id);
        let silent = |process: &ProcessState| {
            process.log_end == Offset(0) && process.phase == ProcessPhase::Lost
        };
        if !groundcrew_supervisor::log::list(&logs, false)?
            .iter()
            .all(silent)
        {
            return Ok(());
        }
        match std::fs::remove_dir_all(&logs) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("failed to remove empty logs", e).with("path", logs.display()))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Executor for LocalExecutor {
    fn name(&self) -> &ExecutorName {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::host()
    }

    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        groundcrew_supervisor::check_limits(&spec.limits)
            .map_err(|e| e.with("executor", &self.name))?;
        let unknown: Vec<&str> = spec.options.keys().map(String::as_str).collect();
        if unknown.is_empty() {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::InvalidInput,
                "the executor of host processes has no options",
            )
            .with("executor", &self.name)
            .with("unknown", unknown.join(", ")))
        }
    }

    fn private_directory(&self, id: &InstanceId) -> PathBuf {
        self.root.path().join(id.as_str()).join(PRIVATE)
    }

    async fn probe(&self) -> Result<ProbeReport, Error> {
        probe::probe(&self.supervisor, self.root.path())
    }

    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        self.check(spec)?;
        room::check().map_err(|error| error.with("executor", &self.name))?;
        self.root.create(id)?;
        let directory = self.open(id)?;
        self.start_file(id, spec, &directory)?;
        let log = directory.create_log()?;
        progress.line("starting the supervisor");
        let start_file = directory.path().join(START_FILE);
        groundcrew_supervisor::spawn(&self.supervisor, &start_file, log, START_TIME)
            .await
            .map_err(|error| {
                let error = error.with("instance", id);
                match directory.log_tail(LOG_TAIL) {
                    said if said.is_empty() => error,
                    said => error.with("supervisor_log", said.escape_debug()),
                }
            })?;
        // Read anew: only now it has the start file, which names the boot.
        let identity = self.open(id)?.identity();
        Ok(Created {
            identity,
            secrets: Vec::new(),
        })
    }

    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        if let Found::Directory(directory) = self.root.find(id)?
            && !directory.is_trashed()
            && directory.start.is_some()
        {
            return match directory.check_owner(id, &self.install, None)? {
                Ok(()) => self.connect_to(id, &directory).await,
                Err(why) => Err(Error::new(
                    ErrorKind::Conflict,
                    "what has the name of the instance is not ours",
                )
                .with("instance", id)
                .with("why", why)),
            };
        }
        match self.logged(id)? {
            Some(logged) => Ok(Arc::new(logged)),
            None => Err(
                Error::new(ErrorKind::NotFound, "no such instance on this machine")
                    .with("instance", id),
            ),
        }
    }

    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let directory = match self.root.find(id)? {
                Found::Nothing if tries > 1 => return Ok(Undone::REMOVED),
                Found::Nothing => return Ok(Undone::AlreadyGone),
                Found::Foreign(found) => {
                    return Ok(Undone::NotOurs(format!("{found} is no directory")));
                }
                Found::Directory(directory) => directory,
            };
            if let Err(why) = directory.check_owner(id, &self.install, identity)? {
                return Ok(Undone::NotOurs(why));
            }
            match self.remove(id, &directory).await {
                Ok(()) => return Ok(Undone::REMOVED),
                // Somebody else removes it too and was faster; what is left then is looked at anew.
                Err(error)
                    if tries < DELETE_TRIES
                        && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        Ok(match self.root.find(id) {
            Ok(Found::Nothing) => Presence::Absent,
            Ok(Found::Directory(directory)) => Presence::Present(directory.identity()),
            Ok(Found::Foreign(identity)) => Presence::Present(identity),
            Err(error) => Presence::Unknown(groundcrew_core::error::Chain(&error).to_string()),
        })
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        self.root.list(&self.install)
    }
}

impl LocalExecutor {
    fn open(&self, id: &InstanceId) -> Result<InstanceDirectory, Error> {
        match self.root.find(id)? {
            Found::Directory(directory) => Ok(directory),
            Found::Nothing | Found::Foreign(_) => Err(Error::new(
                ErrorKind::Conflict,
                "the instance was removed while it was made",
            )
            .with("instance", id)),
        }
    }
}
