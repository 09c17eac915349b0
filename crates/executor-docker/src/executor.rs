//! The executor of containers.

use std::{
    os::fd::AsFd as _,
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
    LoggedInstance, Remains, SOCKET, StartFile, StartLock, SupervisorInstance, UnixConnector,
};
use tokio::time::Instant;

use crate::{
    away::{Away, LEFT},
    bridge::Bridges,
    container::{self, Order},
    engine::{DEFAULT_ENDPOINT, Engine, Listed},
    home::{self, Behind},
    image, inside,
    labels::{ATTEMPT, Labels},
    life::{self, Things},
    limits::{self, EngineLimits},
    options::{Control, Options},
    owner::Owner,
    place::{self, CONTROL, Place, Root, VOLUMES},
    probe,
    program::Program,
    volumes,
};

/// What a [`DockerExecutor`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

impl DockerConfig {
    /// Keeps the host's part of containers and logs below a directory; the engine is the one of this machine, and has a minute
    /// for each answer. Where the supervisor is has to be said.
    pub fn new(name: ExecutorName, home: &Path, install: InstallId) -> Self {
        Self {
            name,
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            containers: home.join("containers"),
            logs: home.join("logs"),
            install,
            supervisor: Vec::new(),
            patience: Duration::from_mins(1),
        }
    }
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
        exec: bool,
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
        if exec {
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

    async fn connect_to(&self, id: &InstanceId, place: &Place) -> Result<SharedInstance, Error> {
        let away = Away::read(place)?.is_some_and(|away| away.ours);
        if away || place.owner.as_ref().is_some_and(|owner| owner.exec) {
            return self.connect_through_engine(id).await;
        }
        let control = place.path().join(CONTROL);
        let logged = LoggedInstance::new(self.logs_of(id), &control);
        let connector = Arc::new(UnixConnector::new(control.join(SOCKET)));
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
        // One that holds its file lives; its socket also tells when it listens no more.
        if held && !control.join(SOCKET).exists() {
            return Err(error);
        }
        Ok(Arc::new(logged))
    }

    /// Reaches a supervisor by bridges in its container; whether that runs is its sign of life.
    async fn connect_through_engine(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        let logs = self.logs_of(id);
        let behind = Arc::new(Behind {
            engine: Arc::clone(&self.engine),
            root: self.root.clone(),
            logs: logs.clone(),
            install: self.install.clone(),
            id: id.clone(),
        });
        let logged = LoggedInstance::elsewhere(logs, Arc::clone(&behind) as Arc<dyn Remains>);
        let Some(container) = self.container(id).await? else {
            return Ok(Arc::new(logged));
        };
        let bridges = Arc::new(Bridges::new(Arc::clone(&self.engine), container));
        let deadline = Instant::now() + life::GOING;
        loop {
            let bridges = Arc::clone(&bridges);
            let error = match SupervisorInstance::connect(bridges, id, Some(logged.clone())).await {
                Ok(instance) => return Ok(Arc::new(instance)),
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Unavailable {
                return Err(error);
            }
            if !behind.is_held().await? {
                return Ok(Arc::new(logged));
            }
            // The engine sees the end of a container a moment after its supervisor listens no more, and has no event for it.
            if Instant::now() >= deadline {
                return Err(error);
            }
            tokio::time::sleep(life::LOOK).await;
        }
    }

    /// Has the engine make the container, fill its volumes and start it; returns its id, and whether it sees this host's files.
    ///
    /// Whether it does is found out when it refuses: one that accepts a directory that was just made, and is nowhere else, does.
    async fn ask(
        &self,
        order: &mut Order<'_>,
        exec: bool,
        progress: &dyn Progress,
    ) -> Result<String, Error> {
        let (engine, id, options) = (&*self.engine, order.id, order.options);
        if let Some(away) = &order.away {
            away.write(order.place)?;
            away.check_alone(&self.root, id)?;
        }
        let made = container::create(engine, id, order.body(engine)?).await;
        let container = match made {
            Err(error)
                if error.kind() == ErrorKind::InvalidInput && !order.is_seen(engine).await? =>
            {
                progress.line("the engine does not see the files of this host; volumes are filled");
                let away =
                    Away::forced(order.spec, options, order.image, order.user, order.labels())
                        .await
                        .map_err(|refusal| {
                            refusal.with("engine", engine.endpoint()).with_source(error)
                        })?;
                away.write(order.place)?;
                away.check_alone(&self.root, id)?;
                order.away = Some(away);
                container::create(engine, id, order.body(engine)?).await?
            }
            made => made?,
        };
        if let Some(away) = &order.away {
            away.check_ours(engine, id).await?;
            progress.line("filling the volumes");
            let start = self.start_file(id, order.spec, exec || away.ours, order.user.0)?;
            away.fill(engine, id, order.program, &start).await?;
            order.place.note(LEFT, b"")?;
        }
        progress.line("starting the container");
        container::start(engine, &container, options).await?;
        for line in container::check_network(engine, &container, options).await? {
            progress.line(&line);
        }
        Ok(container)
    }

    /// Takes away what an engine has of an instance, once what is wanted of it is here.
    ///
    /// # Errors
    ///
    /// Then what is left is still there, and the removal is to be tried again.
    async fn take(
        &self,
        id: &InstanceId,
        place: Option<&Place>,
        container: Option<&Listed>,
        things: &Things,
    ) -> Result<(), Error> {
        let engine = &self.engine;
        let away = place.map(Away::read).transpose()?.flatten();
        if let (Some(place), Some(away)) = (place, &away) {
            if let Some(container) = container {
                life::end(engine, container).await?;
            }
            let logs = self.logs_of(id);
            home::bring(engine, id, place, away, &things.volumes, &logs).await?;
        } else if let Some(volume) = things
            .volumes
            .iter()
            .find(|one| one.name == volumes::work(id))
        {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a volume holds the files of a workspace, and nothing on this host tells whose; copy out what is wanted, then remove it with the engine's own client",
            )
            .with("volume", &volume.name)
            .with("engine", engine.endpoint()));
        }
        for one in container.into_iter().chain(&things.carriers) {
            life::remove(engine, one).await?;
        }
        for volume in &things.volumes {
            engine.remove_volume(&volume.name).await?;
        }
        Ok(())
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
        // As deep as whoever ran in it liked to make it.
        let removed = std::fs::File::open(&self.logs)
            .and_then(|all| groundcrew_supervisor::remove_tree(all.as_fd(), id.as_str()));
        match removed {
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
        self.engine.check_endpoint()?;
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
        let exec = options.control == Control::Exec;
        self.start_file(id, spec, exec, user.0)?.write(&control)?;
        place::give_start_file(&control, user)?;
        let logs = self.logs_of(id);
        place::create_logs(&logs, user)?;
        let mut order = Order {
            id,
            spec,
            options: &options,
            image: &image,
            user,
            program: &program.path,
            place: &place,
            logs: &logs,
            away: None,
        };
        order.away = Away::asked(spec, &options, &image, user, order.labels()).await?;
        progress.line("creating the container");
        if !image.volumes.is_empty() {
            place.has_volumes()?;
        }
        place.begin_creating()?;
        let container = match self.ask(&mut order, exec, progress).await {
            // The engine may be at it still: the note about it stays.
            Err(error) if is_open(&error) => return Err(error),
            asked => {
                place.done_creating()?;
                asked?
            }
        };
        progress.line("waiting for the supervisor");
        let at_hand = !exec && !order.away.as_ref().is_some_and(|away| away.ours);
        let control = at_hand.then(|| place.path().join(CONTROL));
        life::up(&self.engine, &container, control.as_deref()).await?;
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
        let away = place.as_ref().map(Away::read).transpose()?.flatten();
        // Without any of these, all that there are go with the container.
        let asked = place.as_ref().map(Place::creating_since).transpose()?;
        let asked = asked.flatten();
        let wanted = place.as_ref().map(|place| place.has(VOLUMES)).transpose()?;
        let volumes = wanted.unwrap_or(true) || asked.is_some() || away.is_some();
        let found = life::things(&self.engine, &self.install, id, volumes).await;
        let mut things = match found {
            Ok(things) => things,
            // Its directory is made before the engine is asked for anything, and goes last: without one there is nothing of it
            // in an engine, as far as anybody can tell of one that is not there.
            Err(_) if place.is_none() && identity.is_none() && !self.engine.is_there().await => {
                return Ok(Undone::AlreadyGone);
            }
            Err(error) => return Err(error),
        };
        let mut chosen = match life::chosen(things.containers.clone(), identity) {
            Ok(chosen) => chosen,
            Err(why) => return Ok(Undone::NotOurs(why)),
        };
        let mut place = place;
        let mut removed = false;
        if let Some(place) = &mut place {
            place.set_aside(id)?;
        }
        // The engine may be about to make it, or to start it, which brings back what was removed meanwhile.
        let until = asked.map(|asked| asked.max(self.engine.answering_since()) + life::LATE);
        // One that comes late has its volumes before it is listed, however long ago it was asked for.
        let patient = Instant::now() + life::GOING;
        loop {
            if chosen.is_some() || !things.carriers.is_empty() || !things.volumes.is_empty() {
                let taken = self.take(id, place.as_ref(), chosen.as_ref(), &things);
                match taken.await {
                    Ok(()) => removed = true,
                    // A container that came meanwhile has one of the volumes: the next look shows it.
                    Err(error) if volumes::is_in_use(&error) && Instant::now() < patient => {
                        tokio::time::sleep(life::LOOK).await;
                    }
                    Err(error) => return Err(error),
                }
            } else if until.is_none_or(|until| Instant::now() >= until) {
                break;
            } else {
                tokio::time::sleep(life::LOOK).await;
            }
            things = life::things(&self.engine, &self.install, id, volumes).await?;
            chosen = match life::chosen(things.containers.clone(), identity) {
                Ok(chosen) => chosen,
                // Ours is gone; what is left only has its labels.
                Err(_) if removed => None,
                Err(why) => return Ok(Undone::NotOurs(why)),
            };
        }
        if let Some(place) = &place {
            self.clear(id, place)?;
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
        let things = life::things(&self.engine, &self.install, id, place.is_none());
        Ok(match things.await {
            Ok(things) => {
                let named = |name: &str| Presence::Present(Identity(name.to_owned()));
                match (things.containers.into_iter().next(), place) {
                    (Some(container), _) => Presence::Present(Identity(container.id)),
                    (None, Some(_)) => named("no container"),
                    (None, None) if !things.carriers.is_empty() || !things.volumes.is_empty() => {
                        named("volumes without a container")
                    }
                    (None, None) => Presence::Absent,
                }
            }
            Err(error) => Presence::Unknown(Chain(&error).to_string()),
        })
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        let mut ids = self.root.list_of(&self.install)?;
        match self.labelled().await {
            Ok(found) => ids.extend(found),
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
    /// Lists the instances of which the engine has a container or a volume.
    async fn labelled(&self) -> Result<Vec<InstanceId>, Error> {
        let filter = || vec![Labels::filter(&self.install)];
        let containers = self.engine.list(filter()).await?;
        let volumes = self.engine.volumes(filter()).await?;
        let labels = containers.iter().map(|container| &container.labels);
        let labels = labels.chain(volumes.iter().map(|volume| &volume.labels));
        Ok(labels
            .filter_map(|labels| labels.get(ATTEMPT))
            .filter_map(|attempt| InstanceId::new(attempt.as_str()).ok())
            .collect())
    }

    /// Whether there is no engine at all on this machine, as opposed to one that does not answer.
    fn is_absent(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Unavailable
            && self.engine.socket().is_some_and(|socket| !socket.exists())
    }
}
