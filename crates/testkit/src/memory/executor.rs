//! An executor whose instances exist in a memory world.

use std::path::PathBuf;

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::{Capabilities, Created, Executor, InstanceSpec, ProbeReport, Progress},
    id::{ExecutorName, InstanceId},
    identity::{Identity, Presence},
    instance::SharedInstance,
    secret::SecretValue,
    undo::Undone,
};

use super::world::MemoryWorld;

/// An executor in memory.
///
/// * Ids are remembered: one that was ever used is `AlreadyExists`, also after its deletion.
/// * It has no options, so every option is refused by name.
/// * `create` tells the progress line `the instance is being made` and gives one secret, `token`, if its capabilities say so.
#[derive(Clone, Debug)]
pub struct MemoryExecutor {
    world: MemoryWorld,
    name: ExecutorName,
    capabilities: Capabilities,
}

impl MemoryExecutor {
    /// Makes one with the capabilities of host processes.
    pub fn new(world: &MemoryWorld, name: ExecutorName) -> Self {
        Self {
            world: world.clone(),
            name,
            capabilities: Capabilities::host(),
        }
    }

    /// Sets what it can do.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    fn call(&self, verb: &str, id: &InstanceId) {
        self.world.ground.call(format!("{verb} {id}"));
    }
}

#[async_trait]
impl Executor for MemoryExecutor {
    fn name(&self) -> &ExecutorName {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        spec.limits.check()?;
        if !spec.limits.is_empty() && !self.capabilities.limits {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the executor holds no instance to limits",
            )
            .with("executor", &self.name));
        }
        match spec.options.keys().next() {
            Some(option) => Err(Error::new(
                ErrorKind::InvalidInput,
                "the executor has no such option",
            )
            .with("option", option)
            .with("executor", &self.name)),
            None => Ok(()),
        }
    }

    fn private_directory(&self, id: &InstanceId) -> PathBuf {
        PathBuf::from("/instances")
            .join(id.as_str())
            .join("private")
    }

    async fn probe(&self) -> Result<ProbeReport, Error> {
        self.world.ground.known()?;
        Ok(ProbeReport::default())
    }

    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        self.call("create", id);
        self.check(spec)?;
        progress.line("the instance is being made");
        let identity = self.world.add(id, spec).ok_or_else(|| {
            Error::new(ErrorKind::AlreadyExists, "the instance id is taken").with("instance", id)
        })?;
        Ok(Created {
            identity,
            secrets: if self.capabilities.runtime_secrets {
                vec![("token".to_owned(), SecretValue::new(id.as_str()))]
            } else {
                Vec::new()
            },
        })
    }

    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        self.call("connect", id);
        self.world.ground.known()?;
        match self.world.instance(id) {
            Some(instance) => Ok(instance),
            None => Err(Error::new(ErrorKind::NotFound, "no such instance").with("instance", id)),
        }
    }

    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        self.call("delete", id);
        self.world.ground.known()?;
        let Some(instance) = self.world.present(id) else {
            return Ok(Undone::AlreadyGone);
        };
        if identity.is_some_and(|identity| identity != instance.identity()) {
            return Ok(Undone::NotOurs(format!(
                "the instance is {}",
                instance.identity()
            )));
        }
        instance.kill()?;
        self.world.retire(id);
        Ok(Undone::REMOVED)
    }

    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        self.call("state", id);
        if let Some(reason) = self.world.ground.unknown() {
            return Ok(Presence::Unknown(reason));
        }
        Ok(match self.world.present(id) {
            Some(instance) => Presence::Present(instance.identity().clone()),
            None => Presence::Absent,
        })
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        self.world.ground.known()?;
        let instances = self.world.instances();
        Ok(instances.iter().map(|i| i.id().clone()).collect())
    }
}
