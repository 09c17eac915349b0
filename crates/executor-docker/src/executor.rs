//! The executor of containers.

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
    process::{Offset, ProcessPhase, ProcessState},
    undo::Undone,
};
use groundcrew_supervisor::{
    Connector, LoggedInstance, SOCKET, StartFile, StartLock, SupervisorInstance, UnixConnector,
};
use tokio::time::Instant;

use crate::{
    bridge::Bridges,
    container::{self, Order},
    engine::Engine,
    image, inside,
    labels::{ATTEMPT, Labels},
    life,
    limits::{self, EngineLimits},
    options::{Control, Options},
    place::{self, CONTROL, Owner, Place, Root},
    probe,
    program::Program,
};

/// What a [`DockerExecutor`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerConfig {
    /// Its own name.
    pub name: ExecutorName,
    /// Where the engine is: `unix://PATH` or `tcp://HOST:PORT`; it must see the files of this host.
    pub endpoint: String,
    /// Where the directories of containers are; absolute, and made if missing.
    pub containers: PathBuf,
    /// Where the logs of processes are, one directory for each instance; absolute, and made if missing.
    pub logs: PathBuf,
    /// The installation that owns the containers.
    pub install: InstallId,
    /// Where the static supervisor may be; the first that exists is taken.
    pub supervisor: Vec<PathBuf>,
    /// How long the engine may take for one answer.
    pub patience: Duration,
}

/// Makes instances in containers of an engine, each with our supervisor as its first process.
#[derive(Debug)]
pub struct DockerExecutor {
    name: ExecutorName,
    engine: Arc<Engine>,
    root: Root,
    logs: PathBuf,
    install: InstallId,
    supervisor: Vec<PathBuf>,
}

impl DockerExecutor {
    /// Makes one; touches nothing and reaches nothing.
    pub fn new(config: DockerConfig) -> Self {
        Self {
            name: config.name,
            engine: Arc::new(Engine::new(config.endpoint, config.patience)),
            root: Root::new(config.containers),
            logs: config.logs,
            install: config.install,
            supervisor: config.supervisor,
        }
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
                self.root.path().join(id.as_str()).join(CONTROL),
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
        options: &Options,
        user: u32,
    ) -> Result<StartFile, Error> {
        let mut start = StartFile::new(
            self.install.clone(),
            id.clone(),
            spec.run.clone(),
            spec.session.clone(),
            Path::new(inside::CONTROL),
            PathBuf::from(inside::LOGS),
            spec.lease,
        )?;
        // Through its socket it is we who ask; a bridge is the container's own user.
        if options.control == Control::Exec {
            start.uid = user;
        }
        start.inherits = true;
        start.limits = limits::of_each_process(&spec.limits);
        Ok(start)
    }

    /// The container of an instance, if exactly one is ours.
    async fn container(&self, id: &InstanceId) -> Result<Option<String>, Error> {
        let found = life::find(&self.engine, &self.install, id).await?;
        life::chosen(found, None)
            .map(|one| one.map(|one| one.id))
            .map_err(|why| {
                Error::new(
                    ErrorKind::Conflict,
                    "what has the labels of the instance is not ours",
                )
                .with("instance", id)
                .with("why", why)
            })
    }

    async fn connector(
        &self,
        id: &InstanceId,
        place: &Place,
    ) -> Result<Option<Arc<dyn Connector>>, Error> {
        if !place.owner.as_ref().is_some_and(|owner| owner.exec) {
            let socket = place.path().join(CONTROL).join(SOCKET);
            return Ok(Some(Arc::new(UnixConnector::new(socket))));
        }
        Ok(self.container(id).await?.map(|container| {
            Arc::new(Bridges::new(Arc::clone(&self.engine), container)) as Arc<dyn Connector>
        }))
    }

    async fn connect_to(&self, id: &InstanceId, place: &Place) -> Result<SharedInstance, Error> {
        let logged = LoggedInstance::new(self.logs_of(id), place.path().join(CONTROL));
        let Some(connector) = self.connector(id, place).await? else {
            return Ok(Arc::new(logged));
        };
        let error = match SupervisorInstance::connect(connector, id, Some(logged.clone())).await {
            Ok(instance) => return Ok(Arc::new(instance)),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Unavailable {
            return Err(error);
        }
        let held = match place.control()? {
            Some(control) => match StartLock::try_take(&control) {
                Ok(lock) => lock.is_none(),
                // Removed meanwhile.
                Err(e) if e.kind() == ErrorKind::NotFound => false,
                Err(e) => return Err(e),
            },
            None => false,
        };
        // One that holds its file lives; through its socket it also tells when it listens no more.
        let listens = place.path().join(CONTROL).join(SOCKET).exists();
        let exec = place.owner.as_ref().is_some_and(|owner| owner.exec);
        if held && (exec || !listens) {
            return Err(error);
        }
        Ok(Arc::new(logged))
    }

    /// Removes the logs of an instance in which nothing ever happened, such as that of a failed launch.
    fn remove_logs_without_frames(&self, id: &InstanceId) -> Result<(), Error> {
        let logs = self.logs_of(id);
        let silent = |process: &ProcessState| {
            process.log_end == Offset(0) && process.phase == ProcessPhase::Lost
        };
        // What cannot be understood is no reason to keep the container: whoever ran in it could have written it.
        let silent = groundcrew_supervisor::log::list(&logs, false)
            .is_ok_and(|processes| processes.iter().all(silent));
        if !silent {
            return Ok(());
        }
        match std::fs::remove_dir_all(&logs) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("failed to remove empty logs", e).with("path", logs.display()))
            }
            _ => Ok(()),
        }
    }

    /// Takes the host's side away, of which no container is left.
    fn clear(&self, id: &InstanceId, place: &Place) -> Result<(), Error> {
        self.remove_logs_without_frames(id)?;
        place.remove(id)
    }
}

#[async_trait]
impl Executor for DockerExecutor {
    fn name(&self) -> &ExecutorName {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::host();
        capabilities.isolation = Isolation::Container;
        // The image's variables are the base: the engine gives them to the supervisor, and that to its processes.
        capabilities.inherits_environment = false;
        capabilities
    }

    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        EngineLimits::of(&spec.limits)?;
        Options::read(&spec.options).map(drop)
    }

    fn private_directory(&self, _id: &InstanceId) -> PathBuf {
        inside::PRIVATE.into()
    }

    async fn probe(&self) -> Result<ProbeReport, Error> {
        probe::probe(&self.engine, Program::find(&self.supervisor)).await
    }

    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let options = Options::read(&spec.options)?;
        let program = Program::find(&self.supervisor)?;
        container::attempt(id)?;
        limits::check(&self.engine, &spec.limits).await?;
        let image = image::settle(&self.engine, &options, &program, progress).await?;
        let user = options.user.unwrap_or_else(|| {
            (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            )
        });
        // From here on there is something, and it is found by its name.
        let place = self
            .root
            .create(&Owner::new(&self.install, id, options.control))?;
        let control = place.create_control(user)?;
        self.start_file(id, spec, &options, user.0)?
            .write(&control)?;
        place::give_start_file(&control, user)?;
        let logs = self.logs_of(id);
        place::create_logs(&logs, user)?;
        let order = Order {
            id,
            spec,
            options: &options,
            image: &image,
            user,
            program: &program.path,
            place: &place,
            logs: &logs,
        };
        let body = order.body(&self.engine)?;
        progress.line("creating the container");
        place.begin_creating()?;
        let asked = async {
            let container = container::create(&self.engine, id, body).await?;
            progress.line("starting the container");
            container::start(&self.engine, &container, &options).await?;
            Ok(container)
        };
        let container = match asked.await {
            // The engine may be at it still: the note about it stays.
            Err(error) if is_open(&error) => return Err(error),
            asked => {
                place.done_creating()?;
                asked?
            }
        };
        progress.line("waiting for the supervisor");
        life::up(&self.engine, &container, &place.path().join(CONTROL)).await?;
        Ok(Created {
            identity: Identity(container),
            secrets: Vec::new(),
        })
    }

    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        if let Some(place) = self.root.find(id)?
            && !place.trashed
            && place.owner.is_some()
        {
            return match place.check_owner(id, &self.install) {
                Ok(()) => self.connect_to(id, &place).await,
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
            None => {
                Err(Error::new(ErrorKind::NotFound, "no such container of ours")
                    .with("instance", id))
            }
        }
    }

    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        let place = self.root.find(id)?;
        if let Some(place) = &place
            && let Err(why) = place.check_owner(id, &self.install)
        {
            return Ok(Undone::NotOurs(why));
        }
        // Before anything is touched: an engine that does not answer leaves all as it was.
        let found = life::find(&self.engine, &self.install, id).await?;
        let mut removed = false;
        let mut chosen = match life::chosen(found, identity) {
            Ok(chosen) => chosen,
            Err(why) => return Ok(Undone::NotOurs(why)),
        };
        if let Some(mut place) = place {
            place.set_aside(id)?;
            // The engine may be about to make it, or to start it, which brings back what was removed meanwhile.
            let until = place
                .creating_since()?
                .map(|asked| asked.max(self.engine.answering_since()) + life::LATE);
            loop {
                if let Some(container) = chosen {
                    life::remove(&self.engine, &container).await?;
                    removed = true;
                } else if until.is_none_or(|until| Instant::now() >= until) {
                    break;
                } else {
                    tokio::time::sleep(life::LOOK).await;
                }
                let found = life::find(&self.engine, &self.install, id).await?;
                chosen = match life::chosen(found, identity) {
                    Ok(chosen) => chosen,
                    // Ours is gone; what is left only has its labels.
                    Err(_) if removed => None,
                    Err(why) => return Ok(Undone::NotOurs(why)),
                };
            }
            self.clear(id, &place)?;
            return Ok(Undone::REMOVED);
        }
        if let Some(container) = &chosen {
            life::remove(&self.engine, container).await?;
            removed = true;
        }
        Ok(if removed {
            Undone::REMOVED
        } else {
            Undone::AlreadyGone
        })
    }

    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        let place = match self.root.find(id) {
            Ok(place) => place,
            Err(error) => return Ok(Presence::Unknown(Chain(&error).to_string())),
        };
        Ok(match life::find(&self.engine, &self.install, id).await {
            Ok(found) => match (found.into_iter().next(), place) {
                (Some(container), _) => Presence::Present(Identity(container.id)),
                (None, Some(_)) => Presence::Present(Identity("no container".to_owned())),
                (None, None) => Presence::Absent,
            },
            Err(error) => Presence::Unknown(Chain(&error).to_string()),
        })
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        let mut ids = self.root.list()?;
        match self.engine.list(vec![Labels::filter(&self.install)]).await {
            Ok(found) => ids.extend(
                found
                    .iter()
                    .filter_map(|container| container.labels.get(ATTEMPT))
                    .filter_map(|attempt| InstanceId::new(attempt.as_str()).ok()),
            ),
            // Each container has a directory until it is gone: without one, a machine without an engine has none either.
            Err(error) if ids.is_empty() && self.is_absent(&error) => {}
            Err(error) => return Err(error),
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }
}

/// Whether an error leaves open what the engine does with the request.
fn is_open(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::TimedOut | ErrorKind::Unavailable | ErrorKind::Protocol
    )
}

impl DockerExecutor {
    /// Whether there is no engine at all on this machine, as opposed to one that does not answer.
    fn is_absent(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Unavailable
            && self.engine.socket().is_some_and(|socket| !socket.exists())
    }
}
