//! What a container is made of: hardened by default, nothing of the run's variables in it, every mount a structured one.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use bollard::{
    models::{
        ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType,
        MountVolumeOptions, RestartPolicy, RestartPolicyNameEnum,
    },
    query_parameters::CreateContainerOptions,
};
use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::{InstanceSpec, PathAccess},
    id::InstanceId,
};

use crate::{
    away::{Away, unstarted},
    engine::{Engine, said},
    image::Image,
    inside,
    labels::{Labels, OF_IMAGE, ROLE},
    limits::EngineLimits,
    options::{Bind, Options},
    place::{CONTROL, Place},
    ports, volumes,
};

/// What a container is made for.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) id: &'a InstanceId,
    pub(crate) spec: &'a InstanceSpec,
    pub(crate) options: &'a Options,
    pub(crate) image: &'a Image,
    pub(crate) user: (u32, u32),
    pub(crate) program: &'a Path,
    pub(crate) place: &'a Place,
    pub(crate) logs: &'a Path,
    /// What of it lies in volumes.
    pub(crate) away: Option<Away>,
}

/// Returns the name of an instance's container: in no need of being escaped, and nobody else's by chance.
pub(crate) fn name(id: &InstanceId) -> String {
    format!("groundcrew-{id}")
}

fn text(path: &Path) -> Result<String, Error> {
    path.to_str().map(ToOwned::to_owned).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "engines take only paths that are text; use another place",
        )
        .with("path", path.display())
    })
}

fn bind(source: &Path, target: &Path, read_only: bool) -> Result<Mount, Error> {
    Ok(Mount {
        typ: Some(MountType::BIND),
        source: Some(text(source)?),
        target: Some(text(target)?),
        read_only: Some(read_only),
        ..Mount::default()
    })
}

/// A volume that an image wants.
fn of_image(name: String, target: &str, mut labels: HashMap<String, String>) -> Mount {
    labels.insert(ROLE.to_owned(), OF_IMAGE.to_owned());
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(name),
        target: Some(target.to_owned()),
        volume_options: Some(MountVolumeOptions {
            labels: Some(labels),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// Checks that what is mounted exists, so that the error names it, and that it is not the engine itself.
///
/// # Errors
///
/// `InvalidInput`, naming the path.
fn check_source(engine: &Engine, source: &Path) -> Result<(), Error> {
    let real = std::fs::canonicalize(source).map_err(|e| {
        let kind = match e.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::InvalidInput,
            std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            _ => ErrorKind::Unavailable,
        };
        Error::new(
            kind,
            "what is to be mounted does not exist on this host; create it, or name another path",
        )
        .with("source", source.display())
        .with_source(e)
    })?;
    let socket = engine
        .socket()
        .and_then(|path| std::fs::canonicalize(path).ok());
    let holds = |socket: &PathBuf| socket.starts_with(&real);
    if real.parent().is_none() || socket.as_ref().is_some_and(holds) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "a path that holds the engine's own socket is never mounted: it would give away this host",
        )
        .with("source", source.display()));
    }
    Ok(())
}

impl Order<'_> {
    /// The control directory, which exists nowhere but on this host.
    fn control(&self) -> Result<Mount, Error> {
        let source = self.place.path().join(CONTROL);
        bind(&source, Path::new(inside::CONTROL), false)
    }

    /// Returns the labels of everything that is made for the instance.
    pub(crate) fn labels(&self) -> HashMap<String, String> {
        let labels = Labels {
            install: self.spec.install.clone(),
            attempt: self.id.clone(),
            run: self.spec.run.clone(),
            session: self.spec.session.clone(),
        };
        labels.to_map()
    }

    /// Finds out whether the engine sees the files of this host: a directory that was just made, and is nowhere else.
    ///
    /// # Errors
    ///
    /// Those of an engine that does not say.
    pub(crate) async fn is_seen(&self, engine: &Engine) -> Result<bool, Error> {
        let name = format!("{}-look", name(self.id));
        let mounts = vec![self.control()?];
        match unstarted(engine, &name, self.image, &self.labels(), mounts).await {
            Ok(container) => {
                engine.remove(&container).await?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn mounts(&self, engine: &Engine) -> Result<Vec<Mount>, Error> {
        let mut mounts = Vec::new();
        let away = self.away.as_ref();
        if away.is_none_or(|away| !away.ours) {
            mounts.push(bind(self.program, Path::new(inside::PROGRAM), true)?);
            mounts.push(self.control()?);
            mounts.push(bind(self.logs, Path::new(inside::LOGS), false)?);
        }
        if let Some(workspace) = &self.spec.workspace {
            check_source(engine, workspace)?;
            // For one in a volume it only has to be text.
            let mount = bind(workspace, workspace, false)?;
            if away.is_none_or(|away| away.workspace.is_none()) {
                mounts.push(mount);
            }
        }
        if let Some(away) = away {
            mounts.extend(away.mounts(self.id));
        }
        for share in &self.spec.shared {
            check_source(engine, &share.path)?;
            mounts.push(bind(
                &share.path,
                &share.path,
                share.access == PathAccess::Read,
            )?);
        }
        for Bind {
            source,
            target,
            read_only,
        } in &self.options.mounts
        {
            check_source(engine, source)?;
            mounts.push(bind(source, target, *read_only)?);
        }
        // Those of the image as well, by a name of ours: an engine that dies while it makes them forgets whose they are, and
        // what labels they were to have.
        let labels = self.labels();
        for (index, target) in self.image.volumes.iter().enumerate() {
            let taken = |mount: &Mount| mount.target.as_ref() == Some(target);
            if !mounts.iter().any(taken) {
                let name = volumes::of_image(self.id, index);
                mounts.push(of_image(name, target, labels.clone()));
            }
        }
        Ok(mounts)
    }

    /// Describes the container.
    pub(crate) fn body(&self, engine: &Engine) -> Result<ContainerCreateBody, Error> {
        let (user, group) = self.user;
        let options = self.options;
        let limits = EngineLimits::of(&self.spec.limits)?;
        // It gets the mode that the image's own has, which may be closed to this user.
        let tmpfs = options.read_only.then(|| {
            let flags = format!("rw,nosuid,nodev,mode=1777,uid={user},gid={group}");
            HashMap::from([("/tmp".to_owned(), flags)])
        });
        let host = HostConfig {
            memory: limits.memory,
            // No more with swap than without.
            memory_swap: limits.memory,
            nano_cpus: limits.nano_cpus,
            pids_limit: Some(limits.processes),
            network_mode: Some(options.network.clone()),
            mounts: Some(self.mounts(engine)?),
            port_bindings: ports::bindings(&options.publish),
            tmpfs,
            readonly_rootfs: Some(options.read_only),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
            ipc_mode: Some("private".to_owned()),
            // The supervisor reaps; a second init would only be between us and it.
            init: Some(false),
            auto_remove: Some(false),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                ..RestartPolicy::default()
            }),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(HashMap::from([
                    ("max-size".to_owned(), "1m".to_owned()),
                    ("max-file".to_owned(), "1".to_owned()),
                ])),
            }),
            ..HostConfig::default()
        };
        Ok(ContainerCreateBody {
            image: Some(self.image.id.clone()),
            // In place of the image's own, which would swallow us.
            entrypoint: Some(vec![inside::PROGRAM.to_owned()]),
            cmd: Some(vec!["serve".to_owned(), inside::START_FILE.to_owned()]),
            working_dir: Some("/".to_owned()),
            user: Some(format!("{user}:{group}")),
            labels: Some(self.labels()),
            exposed_ports: ports::exposed(&options.publish),
            tty: Some(false),
            open_stdin: Some(false),
            stop_signal: Some("SIGTERM".to_owned()),
            // What the image checks is not what runs.
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            }),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        })
    }
}

/// Asks the engine to make a container; returns its id.
///
/// # Errors
///
/// `Conflict` when another container has the name; the engine's own words about what it did not accept.
pub(crate) async fn create(
    engine: &Engine,
    id: &InstanceId,
    body: ContainerCreateBody,
) -> Result<String, Error> {
    let client = engine.client().await?;
    let options = CreateContainerOptions {
        name: Some(name(id)),
        ..CreateContainerOptions::default()
    };
    let made = engine
        .call(
            "making the container",
            client.create_container(Some(options), body),
        )
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::Conflict => Error::new(
                ErrorKind::Conflict,
                "another container has the name; it is left alone, and the launch may be tried again",
            )
            .with("container", name(id))
            .with_source(error),
            ErrorKind::InvalidInput => Error::new(
                ErrorKind::InvalidInput,
                "the engine does not accept the container; see what it said about mounts, limits and network",
            )
            .with_source(error),
            _ => error,
        })?;
    Ok(made.id)
}

/// Starts a container.
///
/// # Errors
///
/// What the engine said, with its kind: a network or a runtime that is missing, a mount that vanished, a port that is taken.
pub(crate) async fn start(
    engine: &Engine,
    container: &str,
    options: &Options,
) -> Result<(), Error> {
    let client = engine.client().await?;
    let call = client.start_container(
        container,
        None::<bollard::query_parameters::StartContainerOptions>,
    );
    match engine.call("starting the container", call).await {
        Ok(()) => Ok(()),
        Err(error) if error.get("status") == Some("304") => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound && options.network != "default" => {
            Err(Error::new(
                ErrorKind::NotFound,
                "the container cannot be started; is there a network of that name?",
            )
            .with("network", &options.network)
            .with_source(error))
        }
        Err(error)
            if error.get("status") == Some("500") && ports::may_be_taken(&options.publish) =>
        {
            Err(Error::new(
                ErrorKind::Conflict,
                "the container cannot be started; is one of its ports taken? Name another, or let the engine choose with --publish PORT",
            )
            .with_source(error))
        }
        Err(error) => match engine.condition(container).await {
            // The engine keeps the reason with the container, also where its answer was lost.
            Ok(Some(condition)) if !condition.said.is_empty() => {
                Err(error.with("container_said", said(&condition.said)))
            }
            _ => Err(error),
        },
    }
}

/// Makes sure that a container that runs has the network that was asked for, and tells where its ports are reached.
///
/// An engine without a default network gives none, and says nothing.
///
/// # Errors
///
/// `Unsupported` when it has none.
pub(crate) async fn check_network(
    engine: &Engine,
    container: &str,
    options: &Options,
) -> Result<Vec<String>, Error> {
    if options.network == "none" {
        return Ok(Vec::new());
    }
    let (networks, ports) = engine.networking(container).await?;
    if networks.iter().all(|network| network == "none") {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the engine has no such network for containers; use --network none, or name one that it has",
        )
        .with("network", &options.network)
        .with("engine", engine.endpoint()));
    }
    Ok(ports::told(ports))
}
