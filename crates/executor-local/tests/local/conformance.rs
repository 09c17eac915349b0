//! The suite is judged with real processes as well: what signals only the leader of a tree fails the case for it.

use std::{path::Path, sync::Arc, time::Duration};

use groundcrew_core::{
    async_trait,
    env::Environment,
    error::Error,
    executor::{Capabilities, Created, Executor, InstanceSpec, ProbeReport, Progress},
    id::{ExecutorName, InstanceId, ProcessId},
    identity::{Identity, Presence},
    instance::{ByteStream, Instance, McpServer, SharedInstance, Stdio},
    process::{
        ExitStatus, Lease, Offset, ProcessPhase, ProcessSpec, ProcessState, Role, Signal, Started,
        TerminalSize,
    },
    undo::Undone,
};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_testkit::conformance::{self, ExecutorFixture};

crate::runner::tests![one_that_signals_only_the_leader_fails_the_case_for_it];

#[derive(Debug)]
struct LeaderOnly(LocalExecutor);

#[async_trait]
impl Executor for LeaderOnly {
    fn name(&self) -> &ExecutorName {
        self.0.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        self.0.check(spec)
    }
    fn private_directory(&self, id: &InstanceId) -> std::path::PathBuf {
        self.0.private_directory(id)
    }
    async fn probe(&self) -> Result<ProbeReport, Error> {
        self.0.probe().await
    }
    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        self.0.create(id, spec, progress).await
    }
    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        Ok(Arc::new(LeaderOnlyInstance(self.0.connect(id).await?)))
    }
    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        self.0.delete(id, identity).await
    }
    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        self.0.state(id).await
    }
    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        self.0.list().await
    }
}

#[derive(Debug)]
struct LeaderOnlyInstance(SharedInstance);

#[async_trait]
impl Instance for LeaderOnlyInstance {
    async fn set_environment(&self, environment: &Environment) -> Result<(), Error> {
        self.0.set_environment(environment).await
    }
    async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error> {
        self.0.start(id, spec).await
    }
    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error> {
        self.0.attach(id, from, role).await
    }
    async fn close_stdin(&self, id: &ProcessId) -> Result<(), Error> {
        self.0.close_stdin(id).await
    }
    async fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error> {
        self.0.resize(id, size).await
    }
    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        self.0.wait(id).await
    }
    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error> {
        let states = self.0.processes().await?;
        let leader = states.iter().find_map(|state| match &state.phase {
            ProcessPhase::Running(started) if state.id == *id => Some(started.pid),
            _ => None,
        });
        let known = [Signal::TERM, Signal::KILL].contains(&signal);
        let Some(pid) = leader.filter(|_| known) else {
            return self.0.signal(id, signal).await;
        };
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        let signal = match signal {
            Signal::TERM => rustix::process::Signal::TERM,
            _ => rustix::process::Signal::KILL,
        };
        rustix::process::kill_process(pid, signal).unwrap();
        Ok(())
    }
    async fn processes(&self) -> Result<Vec<ProcessState>, Error> {
        self.0.processes().await
    }
    async fn put_archive(&self, at: &Path, tar: ByteStream) -> Result<(), Error> {
        self.0.put_archive(at, tar).await
    }
    async fn get_archive(&self, at: &Path) -> Result<ByteStream, Error> {
        self.0.get_archive(at).await
    }
    async fn set_mcp_servers(&self, servers: &[McpServer]) -> Result<(), Error> {
        self.0.set_mcp_servers(servers).await
    }
    async fn set_lease(&self, lease: Lease) -> Result<(), Error> {
        self.0.set_lease(lease).await
    }
    async fn shutdown(&self, grace: Duration) -> Result<(), Error> {
        self.0.shutdown(grace).await
    }
}

async fn one_that_signals_only_the_leader_fails_the_case_for_it() {
    let report = conformance::executor_where(
        |ground| {
            let name = ExecutorName::new("leader-only")?;
            let config = LocalConfig::new(name, ground.directory(), ground.install().clone());
            let executor = LocalExecutor::new(config);
            // What waits for the rest of the tree waits for ever.
            Ok(ExecutorFixture::new(Arc::new(LeaderOnly(executor)))
                .with_patience(Duration::from_secs(10)))
        },
        |case| {
            ["ending::", "starting::", "making::"]
                .iter()
                .any(|group| case.starts_with(group))
        },
    )
    .await
    .unwrap();
    assert_eq!(
        report.failed(),
        ["ending::a_signal_reaches_what_a_process_started"],
        "{report}"
    );
    assert!(report.cases.len() > 25, "{report}");
}
