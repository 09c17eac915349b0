//! The executor: each verb is one call of the program, and what can be asked again is not believed.

use std::{
    ffi::OsString,
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
    undo::Undone,
};
use groundcrew_supervisor::{LoggedInstance, SOCKET, START_FILE, StartFile, SupervisorInstance};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::{
    call::Program,
    connection::Commands,
    protocol::{Deleted, Description, Made, Reached, Request, Stated},
};

/// What an [`ExecExecutor`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecConfig {
    /// Its own name.
    pub name: ExecutorName,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// All variables that the program gets, such as `PATH`; nothing is inherited.
    pub variables: Vec<(OsString, OsString)>,
    /// The installation that owns the instances.
    pub install: InstallId,
    /// A program that is a supervisor when it is called `groundcrew-supervisor`, on this host.
    pub supervisor: PathBuf,
    /// How long the program may take for an answer.
    pub patience: Duration,
    /// How long it may take to make an instance, or to take one away.
    pub long_patience: Duration,
}

impl ExecConfig {
    /// Begins with what has no default: an answer may take 10 s, making and taking away 2 min.
    pub fn new(
        name: ExecutorName,
        command: Vec<OsString>,
        install: InstallId,
        supervisor: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name,
            command,
            variables: Vec::new(),
            install,
            supervisor: supervisor.into(),
            patience: Duration::from_secs(10),
            long_patience: Duration::from_mins(2),
        }
    }
}

/// An executor whose verbs are those of a program.
#[derive(Debug)]
pub struct ExecExecutor {
    config: ExecConfig,
    program: Program,
    capabilities: Capabilities,
    private_directory: String,
}

struct Unheard;

impl Progress for Unheard {
    fn line(&self, _: &str) {}
}

impl ExecExecutor {
    /// Asks the program what it can do.
    ///
    /// It blocks for at most the patience of the configuration, because a program is asked.
    ///
    /// # Errors
    ///
    /// As every call: what the program says, or what is wrong with it.
    pub fn open(config: ExecConfig) -> Result<Self, Error> {
        let program = Program {
            command: config.command.clone(),
            variables: config.variables.clone(),
        };
        let described: Description = blocking(
            &program,
            &Request::new("describe", &config.install, &config.supervisor),
            config.patience,
        )?;
        let capabilities = described.check()?;
        Ok(Self {
            config,
            program,
            capabilities,
            private_directory: described.private_directory,
        })
    }

    /// Sets how long the program may take for an answer from now on.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience;
        self
    }

    fn request(&self, verb: &'static str) -> Request<'_> {
        Request::new(verb, &self.config.install, &self.config.supervisor)
    }

    async fn ask<T: DeserializeOwned>(&self, request: &Request<'_>) -> Result<T, Error> {
        let patience = self.config.patience;
        self.program.ask(request, patience, &Unheard).await
    }

    async fn ask_long<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        progress: &dyn Progress,
    ) -> Result<T, Error> {
        let patience = self.config.long_patience;
        self.program.ask(request, patience, progress).await
    }

    fn lie(&self, message: &'static str, id: &InstanceId) -> Error {
        Error::new(ErrorKind::Protocol, message)
            .with("instance", id)
            .with("executor", &self.config.name)
    }
}

/// Asks the program on a thread of its own: for verbs that are not asynchronous.
fn blocking<T: DeserializeOwned + Send>(
    program: &Program,
    request: &Request<'_>,
    patience: Duration,
) -> Result<T, Error> {
    let failed = |e: std::io::Error| Error::io("failed to ask the program of the executor", e);
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        runtime.block_on(program.ask(request, patience, &Unheard))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("executor-program".to_owned())
            .spawn_scoped(scope, work)
            .map_err(failed)?;
        thread.join().unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Panicked,
                "asking the program was given up",
            ))
        })
    })
}

#[async_trait]
impl Executor for ExecExecutor {
    fn name(&self) -> &ExecutorName {
        &self.config.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    /// Blocks for at most the patience of the configuration: the program is asked.
    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        spec.limits.check()?;
        if !self.capabilities.limits && !spec.limits.is_empty() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the executor holds no instance to limits",
            )
            .with("executor", &self.config.name));
        }
        let request = self.request("check").for_spec(spec);
        blocking::<IgnoredAny>(&self.program, &request, self.config.patience).map(drop)
    }

    fn private_directory(&self, id: &InstanceId) -> PathBuf {
        self.private_directory
            .replace("{instance}", id.as_str())
            .into()
    }

    async fn probe(&self) -> Result<ProbeReport, Error> {
        self.ask(&self.request("probe")).await
    }

    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let nowhere = Path::new("/");
        let mut start = StartFile::new(
            self.config.install.clone(),
            id.clone(),
            spec.run.clone(),
            spec.session.clone(),
            nowhere,
            nowhere.into(),
            spec.lease,
        )?;
        start.limits = spec.limits;
        let request = self
            .request("create")
            .of(id)
            .for_spec(spec)
            .starting(&start);
        let made: Made = self.ask_long(&request, progress).await?;
        // Whoever says that it made something is asked for it.
        match self.state(id).await? {
            Presence::Present(found) if found == made.identity => Ok(Created {
                identity: found,
                secrets: Vec::new(),
            }),
            other => Err(self
                .lie(
                    "the program says that it made an instance, and does not know it then",
                    id,
                )
                .with("made", made.identity)
                .with("found", format!("{other:?}"))),
        }
    }

    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        let reached: Reached = self.ask(&self.request("connect").of(id)).await?;
        let logged = reached.logs.as_ref().map(|logs| {
            let directory = reached.directory.clone().unwrap_or_else(|| logs.clone());
            LoggedInstance::new(logs, directory)
        });
        let Some(command) = reached.command else {
            return match logged {
                Some(logged) => Ok(Arc::new(logged)),
                None => Err(self.lie("the program gives neither a connection nor logs", id)),
            };
        };
        let connector = Arc::new(Commands {
            program: Program {
                command: command.into_iter().map(Into::into).collect(),
                variables: self.config.variables.clone(),
            },
            file: reached.program,
        });
        let error = match SupervisorInstance::connect(connector, id, logged.clone()).await {
            Ok(instance) => return Ok(Arc::new(instance)),
            Err(error) => error,
        };
        match logged {
            // One that listens no more has ended all it had; one that never listened has not come up yet.
            Some(logged)
                if error.kind() == ErrorKind::Unavailable
                    && ended(reached.directory.as_deref()) =>
            {
                Ok(Arc::new(logged))
            }
            _ => Err(error),
        }
    }

    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        let request = self.request("delete").of(id).known_as(identity);
        let deleted: Deleted = self.ask_long(&request, &Unheard).await?;
        let undone = Undone::from(deleted);
        if matches!(undone, Undone::NotOurs(_)) {
            return Ok(undone);
        }
        match self.state(id).await? {
            Presence::Absent => Ok(undone),
            other => Err(self
                .lie(
                    "the program says that an instance is gone, and still knows it",
                    id,
                )
                .with("found", format!("{other:?}"))),
        }
    }

    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        let stated: Stated = self.ask(&self.request("state").of(id)).await?;
        Ok(stated.into())
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        self.ask(&self.request("list")).await
    }
}

/// Whether what listens no more has ended, and not only not come up yet; without a directory on this host nobody can tell.
fn ended(directory: Option<&Path>) -> bool {
    let Some(directory) = directory else {
        return true;
    };
    if directory.join(SOCKET).exists() || !directory.join(START_FILE).exists() {
        return true;
    }
    match std::fs::File::open(directory) {
        Ok(directory) => !matches!(
            groundcrew_supervisor::StartLock::try_take(&directory),
            Ok(None)
        ),
        Err(_) => true,
    }
}
