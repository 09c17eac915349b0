//! The world that memory executors and preparers act on; it outlives every launcher, as a machine outlives a process.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use groundcrew_core::{
    error::Error,
    executor::InstanceSpec,
    id::{InstallId, InstanceId},
    identity::Identity,
};

use super::{
    ground::{Ground, Thing},
    instance::MemoryInstance,
    runtime_secrets::MemoryRuntimeSecrets,
};

/// One machine, in memory.
///
/// * Clones are the same world.
/// * Everything that a launch makes in it is a leftover until it is taken away.
#[derive(Clone, Debug)]
pub struct MemoryWorld {
    install: InstallId,
    pub(super) ground: Ground,
    instances: Arc<Mutex<Instances>>,
    runtime_secrets: MemoryRuntimeSecrets,
}

#[derive(Debug, Default)]
struct Instances {
    present: BTreeMap<InstanceId, Arc<MemoryInstance>>,
    /// Those that were deleted, whose logs are kept.
    past: BTreeMap<InstanceId, Arc<MemoryInstance>>,
}

impl MemoryWorld {
    /// Makes an empty world with an installation of its own.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the system gives no random numbers.
    pub fn new() -> Result<Self, Error> {
        Ok(Self::of(InstallId::generate()?))
    }

    /// Makes an empty world of an installation.
    pub fn of(install: InstallId) -> Self {
        Self {
            install,
            ground: Ground::default(),
            instances: Arc::default(),
            runtime_secrets: MemoryRuntimeSecrets::default(),
        }
    }

    /// Returns the installation whose mark everything here carries.
    pub fn install(&self) -> &InstallId {
        &self.install
    }

    /// Returns the place of secrets that executors return.
    pub fn runtime_secrets(&self) -> MemoryRuntimeSecrets {
        self.runtime_secrets.clone()
    }

    /// Returns the present instances.
    pub fn instances(&self) -> Vec<Arc<MemoryInstance>> {
        self.table().present.values().map(Arc::clone).collect()
    }

    /// Returns a present or deleted instance.
    pub fn instance(&self, id: &InstanceId) -> Option<Arc<MemoryInstance>> {
        let table = self.table();
        table
            .present
            .get(id)
            .or_else(|| table.past.get(id))
            .map(Arc::clone)
    }

    /// Returns what preparers made, by name.
    pub fn things(&self) -> BTreeMap<String, Thing> {
        self.ground.things()
    }

    /// Places something of somebody else's under a name; whatever had that name is gone.
    pub fn plant(&self, name: &str, workspace: &Path) {
        drop(self.ground.take(name));
        let thing = Thing {
            attempt: None,
            identity: self.ground.identity(),
            workspace: workspace.to_owned(),
            written: Vec::new(),
        };
        drop(self.ground.place(name, thing));
    }

    /// Takes a thing away behind everybody's back.
    pub fn remove(&self, name: &str) -> Option<Thing> {
        self.ground.take(name)
    }

    /// Writes into the workspace of a directory, as an agent does; returns whether there is one.
    pub fn write(&self, directory: &Path, item: &str) -> bool {
        self.ground.write(directory, item)
    }

    /// Makes it impossible to tell what exists, for that reason, until it is set back.
    pub fn set_unknown(&self, reason: Option<&str>) {
        self.ground.set_unknown(reason.map(str::to_owned));
    }

    /// Returns the verbs that were called so far, such as `create 1f…`.
    pub fn calls(&self) -> Vec<String> {
        self.ground.calls()
    }

    /// Returns how often a verb was called.
    pub fn count(&self, verb: &str) -> usize {
        let called = |call: &String| call.split(' ').next() == Some(verb);
        self.calls().iter().filter(|call| called(call)).count()
    }

    /// Names everything that exists, for people; empty is a clean world.
    pub fn leftovers(&self) -> Vec<String> {
        let instances = self.table();
        let instances = instances.present.keys().map(|id| format!("instance {id}"));
        let things = self.things();
        let secrets = self.runtime_secrets.names();
        instances
            .chain(things.keys().map(|name| format!("thing {name}")))
            .chain(secrets.iter().map(|name| format!("secret {name}")))
            .collect()
    }

    fn table(&self) -> MutexGuard<'_, Instances> {
        self.instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn present(&self, id: &InstanceId) -> Option<Arc<MemoryInstance>> {
        self.table().present.get(id).map(Arc::clone)
    }

    /// Makes an instance if the id was never used; returns which one.
    pub(super) fn add(&self, id: &InstanceId, spec: &InstanceSpec) -> Option<Identity> {
        let mut table = self.table();
        if table.present.contains_key(id) || table.past.contains_key(id) {
            return None;
        }
        let identity = self.ground.identity();
        let instance = MemoryInstance::new(id, identity.clone(), spec, self.ground.clone());
        table.present.insert(id.clone(), Arc::new(instance));
        Some(identity)
    }

    /// Moves an instance into the past.
    pub(super) fn retire(&self, id: &InstanceId) {
        let mut table = self.table();
        if let Some(instance) = table.present.remove(id) {
            table.past.insert(id.clone(), instance);
        }
    }
}
