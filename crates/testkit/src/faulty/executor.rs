//! An executor whose verbs go wrong as told.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use groundcrew_core::{
    error::Error,
    executor::{Capabilities, Created, Executor, InstanceSpec, ProbeReport, Progress},
    id::{ExecutorName, InstanceId},
    identity::{Identity, Presence},
    instance::SharedInstance,
    undo::Undone,
};

use super::{
    instance::FaultyInstance,
    verbs::{VerbFault, VerbFaults, go_wrong},
};

/// Wraps an executor, and every instance that it reaches.
#[derive(Clone, Debug)]
pub struct FaultyExecutor {
    inner: Arc<dyn Executor>,
    faults: VerbFaults,
}

impl FaultyExecutor {
    /// Wraps an executor.
    pub fn new(inner: Arc<dyn Executor>, faults: &VerbFaults) -> Self {
        Self {
            inner,
            faults: faults.clone(),
        }
    }
}

/// Where the progress of a verb goes that outlives its caller.
struct Unheard;

impl Progress for Unheard {
    fn line(&self, _: &str) {}
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Executor for FaultyExecutor {
    fn name(&self) -> &ExecutorName {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        self.inner.check(spec)
    }

    fn private_directory(&self, id: &InstanceId) -> PathBuf {
        self.inner.private_directory(id)
    }

    async fn probe(&self) -> Result<ProbeReport, Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { inner.probe().await };
        self.faults
            .around_owned("probe", Some(ProbeReport::default()), work)
            .await
    }

    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let lie = Created {
            identity: Identity("never made".to_owned()),
            secrets: Vec::new(),
        };
        match self.faults.strike("create") {
            None => self.inner.create(id, spec, progress).await,
            Some(VerbFault::Late(time)) => {
                let (inner, id, spec) = (Arc::clone(&self.inner), id.clone(), spec.clone());
                let work = async move { inner.create(&id, &spec, &Unheard).await };
                self.faults.late(time, work).await
            }
            Some(fault) => {
                let work = self.inner.create(id, spec, progress);
                go_wrong("create", fault, Some(lie), work).await
            }
        }
    }

    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { inner.connect(&id).await };
        let reached = self.faults.around_owned("connect", None, work).await?;
        Ok(Arc::new(FaultyInstance::new(reached, &self.faults)))
    }

    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        let (inner, id, identity) = (Arc::clone(&self.inner), id.clone(), identity.cloned());
        let work = async move { inner.delete(&id, identity.as_ref()).await };
        self.faults
            .around_owned("delete", Some(Undone::REMOVED), work)
            .await
    }

    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move { inner.state(&id).await };
        self.faults
            .around_owned("state", Some(Presence::Absent), work)
            .await
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { inner.list().await };
        self.faults
            .around_owned("list", Some(Vec::new()), work)
            .await
    }
}
