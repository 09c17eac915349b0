//! An instance whose verbs go wrong as told.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use groundcrew_core::{
    env::Environment,
    error::Error,
    id::ProcessId,
    instance::{ByteStream, Instance, McpServer, SharedInstance, Stdio},
    process::{
        ExitStatus, Lease, Offset, ProcessSpec, ProcessState, Role, Signal, Started, TerminalSize,
    },
};

use super::verbs::VerbFaults;

/// Wraps an instance; its verbs are named `instance.start` and so on.
#[derive(Clone, Debug)]
pub struct FaultyInstance {
    inner: SharedInstance,
    faults: VerbFaults,
}

impl FaultyInstance {
    /// Wraps an instance.
    pub fn new(inner: SharedInstance, faults: &VerbFaults) -> Self {
        Self {
            inner,
            faults: faults.clone(),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Instance for FaultyInstance {
    async fn set_environment(&self, environment: &Environment) -> Result<(), Error> {
        let (inner, environment) = (Arc::clone(&self.inner), environment.clone());
        let work = async move { inner.set_environment(&environment).await };
        self.faults
            .around_owned("instance.set_environment", Some(()), work)
            .await
    }

    async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error> {
        let (inner, id, spec) = (Arc::clone(&self.inner), id.clone(), spec.clone());
        let lie = Started {
            program: spec.command.program().into(),
            pid: 0,
        };
        let work = async move { inner.start(&id, &spec).await };
        self.faults
            .around_owned("instance.start", Some(lie), work)
            .await
    }

    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error> {
        let work = self.inner.attach(id, from, role);
        self.faults.around("instance.attach", None, work).await
    }

    async fn close_stdin(&self, id: &ProcessId) -> Result<(), Error> {
        let work = self.inner.close_stdin(id);
        self.faults
            .around("instance.close_stdin", Some(()), work)
            .await
    }

    async fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error> {
        let work = self.inner.resize(id, size);
        self.faults.around("instance.resize", Some(()), work).await
    }

    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        let work = self.inner.wait(id);
        let lie = ExitStatus::exited(0);
        self.faults.around("instance.wait", Some(lie), work).await
    }

    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error> {
        let work = self.inner.signal(id, signal);
        self.faults.around("instance.signal", Some(()), work).await
    }

    async fn processes(&self) -> Result<Vec<ProcessState>, Error> {
        let work = self.inner.processes();
        self.faults
            .around("instance.processes", Some(Vec::new()), work)
            .await
    }

    async fn put_archive(&self, at: &Path, tar: ByteStream) -> Result<(), Error> {
        let work = self.inner.put_archive(at, tar);
        self.faults
            .around("instance.put_archive", Some(()), work)
            .await
    }

    async fn get_archive(&self, at: &Path) -> Result<ByteStream, Error> {
        let work = self.inner.get_archive(at);
        self.faults.around("instance.get_archive", None, work).await
    }

    async fn set_mcp_servers(&self, servers: &[McpServer]) -> Result<(), Error> {
        let work = self.inner.set_mcp_servers(servers);
        self.faults
            .around("instance.set_mcp_servers", Some(()), work)
            .await
    }

    async fn set_lease(&self, lease: Lease) -> Result<(), Error> {
        let work = self.inner.set_lease(lease);
        self.faults
            .around("instance.set_lease", Some(()), work)
            .await
    }

    async fn shutdown(&self, grace: Duration) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { inner.shutdown(grace).await };
        self.faults
            .around_owned("instance.shutdown", Some(()), work)
            .await
    }
}
