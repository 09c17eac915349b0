//! An instance in memory: scripted processes, an environment, archives and a lease, all of which a test can look at.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _};
use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
    executor::InstanceSpec,
    id::{InstanceId, ProcessId},
    identity::Identity,
    instance::{ByteStream, Instance, McpServer, Stdio},
    process::{
        EndCause, EnvironmentSource, ExitStatus, Lease, Offset, ProcessSpec, ProcessState, Role,
        Signal, Started, TerminalSize,
    },
};

use super::{
    ground::Ground,
    process::{Blueprint, MemoryProcess},
};

/// An instance whose processes are scripts.
///
/// | program | what it does |
/// |---|---|
/// | `exit CODE` | ends at once |
/// | `echo WORD…`, `warn WORD…` | writes a line to standard output or standard error, ends with 0 |
/// | `print-env NAME` | writes the value of a variable, ends with 0 |
/// | `cat` | writes what it reads until its input ends |
/// | `reply LINE` | writes the line whenever it is written to, ends with the first signal |
/// | `sleep-until-signal` | ends with the first signal |
/// | `ignore-signals` | ends with KILL only |
/// | `stuck` | does not end until the world thaws it |
/// | `write ITEM [sleep-until-signal]` | writes into its workspace; then ends with 0, or sleeps |
/// | `fail-to-start KIND` | is not started; the error has that kind, such as `interpreter_not_found` |
///
/// * Any other program is `ProgramNotFound`; a program is found under `/memory/bin`.
/// * A signal by `signal` counts as the process's own end, one by `shutdown` as a stop.
/// * Archives are kept as they came, by path.
#[derive(Debug)]
pub struct MemoryInstance {
    id: InstanceId,
    identity: Identity,
    spec: InstanceSpec,
    ground: Ground,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// In the order of their start.
    processes: Vec<Arc<MemoryProcess>>,
    environment: Option<Environment>,
    archives: BTreeMap<PathBuf, Bytes>,
    servers: Vec<McpServer>,
    lease: Lease,
    closed: bool,
}

impl MemoryInstance {
    pub(super) fn new(
        id: &InstanceId,
        identity: Identity,
        spec: &InstanceSpec,
        ground: Ground,
    ) -> Self {
        Self {
            id: id.clone(),
            identity,
            spec: spec.clone(),
            ground,
            state: Mutex::new(State {
                processes: Vec::new(),
                environment: None,
                archives: BTreeMap::new(),
                servers: Vec::new(),
                lease: spec.lease,
                closed: false,
            }),
        }
    }

    /// Returns its id.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// Returns which one it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns what it was made for.
    pub fn spec(&self) -> &InstanceSpec {
        &self.spec
    }

    /// Returns the environment that was handed over.
    pub fn environment(&self) -> Option<Environment> {
        self.state().environment.clone()
    }

    /// Returns the present list of tool servers.
    pub fn mcp_servers(&self) -> Vec<McpServer> {
        self.state().servers.clone()
    }

    /// Returns the present lease.
    pub fn lease(&self) -> Lease {
        self.state().lease
    }

    /// Returns what was started under an id.
    pub fn process_spec(&self, id: &ProcessId) -> Option<ProcessSpec> {
        self.process(id).ok().map(|process| process.spec.clone())
    }

    /// Lets stuck processes obey signals again.
    pub fn thaw(&self) {
        self.all().iter().for_each(|process| process.thaw());
    }

    /// Ends everything as when no controller came within the lease.
    pub fn lapse(&self) {
        for process in self.all() {
            process.signal(Signal::KILL, EndCause::LeaseLapsed);
        }
        self.state().closed = true;
    }

    /// Ends everything as when the supervisor was killed: nobody knows how the processes ended.
    pub fn crash(&self) {
        self.all().iter().for_each(|process| process.lose());
        self.state().closed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<MemoryProcess>> {
        self.state().processes.clone()
    }

    fn process(&self, id: &ProcessId) -> Result<Arc<MemoryProcess>, Error> {
        self.all()
            .into_iter()
            .find(|process| process.id == *id)
            .ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "no such process")
                    .with("instance", &self.id)
                    .with("process", id)
            })
    }

    /// Returns whether it has ended, by itself or on request.
    pub fn has_ended(&self) -> bool {
        self.state().closed || self.all().iter().any(|p| p.spec.main && p.has_ended())
    }

    fn alive(&self) -> Result<(), Error> {
        if self.has_ended() {
            return Err(Error::new(ErrorKind::Unavailable, "the instance has ended")
                .with("instance", &self.id)
                .retryable(false));
        }
        Ok(())
    }

    fn call(&self, verb: &str) {
        self.ground.call(format!("instance.{verb} {}", self.id));
    }

    /// Kills everything at once; what cannot be ended is an error that names it.
    pub(super) fn kill(&self) -> Result<(), Error> {
        for process in self.all() {
            process.signal(Signal::KILL, EndCause::Stopped);
            self.gone(&process)?;
        }
        self.state().closed = true;
        Ok(())
    }

    fn gone(&self, process: &MemoryProcess) -> Result<(), Error> {
        if process.is_running() {
            return Err(
                Error::new(ErrorKind::Unavailable, "a process cannot be ended")
                    .with("instance", &self.id)
                    .with("process", &process.id)
                    .with("pid", process.started.pid),
            );
        }
        Ok(())
    }
}

#[async_trait]
impl Instance for MemoryInstance {
    async fn set_environment(&self, environment: &Environment) -> Result<(), Error> {
        self.call("set_environment");
        self.alive()?;
        self.state().environment = Some(environment.clone());
        Ok(())
    }

    async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error> {
        self.call("start");
        if let Ok(old) = self.process(id) {
            return if old.spec == *spec {
                Ok(old.started.clone())
            } else {
                Err(Error::new(
                    ErrorKind::AlreadyExists,
                    "another process was started under that id",
                )
                .with("process", id))
            };
        }
        self.alive()?;
        let environment = match &spec.environment {
            EnvironmentSource::Exact(all) => all.clone(),
            EnvironmentSource::Run(overlay) => match self.environment() {
                Some(run) => run.overlaid(overlay),
                None => {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        "the run's environment was not handed over",
                    )
                    .with("process", id));
                }
            },
        };
        let blueprint = Blueprint::read(&spec.command, &environment)?;
        if let Some(item) = &blueprint.writes
            && !self.ground.write(&spec.directory, item)
        {
            return Err(
                Error::new(ErrorKind::DirectoryNotFound, "no workspace is there")
                    .with("directory", spec.directory.display()),
            );
        }
        let mut state = self.state();
        let pid = u32::try_from(state.processes.len()).unwrap_or(u32::MAX) + 2;
        let process = MemoryProcess::start(id, spec, blueprint, pid);
        let started = process.started.clone();
        state.processes.push(process);
        Ok(started)
    }

    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error> {
        let process = self.process(id)?;
        let input = match role {
            Role::Viewer => None,
            Role::Writer => {
                self.alive()?;
                Some(Box::pin(process.writer()) as _)
            }
        };
        Ok(Stdio {
            output: process.output(from),
            input,
        })
    }

    async fn close_stdin(&self, id: &ProcessId) -> Result<(), Error> {
        let process = self.process(id)?;
        self.alive()?;
        process.close_stdin(EndCause::Itself);
        Ok(())
    }

    async fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error> {
        let process = self.process(id)?;
        self.alive()?;
        process.resize(size)
    }

    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        self.process(id)?.wait().await
    }

    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error> {
        self.call("signal");
        let process = self.process(id)?;
        self.alive()?;
        process.signal(signal, EndCause::Itself);
        Ok(())
    }

    async fn processes(&self) -> Result<Vec<ProcessState>, Error> {
        Ok(self
            .all()
            .iter()
            .map(|process| process.describe())
            .collect())
    }

    async fn put_archive(&self, at: &Path, tar: ByteStream) -> Result<(), Error> {
        self.call("put_archive");
        self.alive()?;
        let whole = tar
            .try_fold(BytesMut::new(), |mut whole, piece| async move {
                whole.extend_from_slice(&piece);
                Ok(whole)
            })
            .await?;
        self.state().archives.insert(at.to_owned(), whole.freeze());
        Ok(())
    }

    async fn get_archive(&self, at: &Path) -> Result<ByteStream, Error> {
        self.alive()?;
        let archive = self.state().archives.get(at).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "no such file or directory").with("path", at.display())
        })?;
        Ok(futures_util::stream::iter([Ok(archive)]).boxed())
    }

    async fn set_mcp_servers(&self, servers: &[McpServer]) -> Result<(), Error> {
        self.call("set_mcp_servers");
        self.alive()?;
        servers.clone_into(&mut self.state().servers);
        Ok(())
    }

    async fn set_lease(&self, lease: Lease) -> Result<(), Error> {
        self.call("set_lease");
        self.alive()?;
        self.state().lease = lease;
        Ok(())
    }

    async fn shutdown(&self, grace: Duration) -> Result<(), Error> {
        self.call("shutdown");
        self.alive()?;
        let running: Vec<_> = self.all().into_iter().filter(|p| p.is_running()).collect();
        for process in &running {
            if process.spec.stop.close_stdin {
                process.close_stdin(EndCause::Stopped);
            }
            process.signal(process.spec.stop.signal, EndCause::Stopped);
        }
        let all_ended = async {
            for process in &running {
                drop(process.wait().await);
            }
        };
        drop(tokio::time::timeout(grace, all_ended).await);
        self.kill()
    }
}
