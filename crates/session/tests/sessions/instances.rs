//! Agents in an instance: the ladder that ends them, what they are started with, and the way back to one that runs.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use groundcrew_core::{
    env::Environment,
    error::ErrorKind,
    executor::{Executor as _, InstanceSpec, Limits},
    id::{ExecutorName, InstanceId, ProcessId, RunId},
    process::{EnvironmentSource, FrameKind, Lease, Offset, ProcessPhase},
};
use groundcrew_session::{
    launch::LaunchDescription,
    transport::{Connection, InstanceOptions, InstanceTransport, Transport as _},
    variable::Variable,
};
use groundcrew_testkit::memory::{MemoryExecutor, MemoryInstance, MemoryWorld};
use tokio::time::Instant;

use crate::desk::{key, settle};

struct Place {
    memory: Arc<MemoryInstance>,
    transport: InstanceTransport,
}

impl Place {
    async fn new() -> Self {
        struct Silent;
        impl groundcrew_core::executor::Progress for Silent {
            fn line(&self, _: &str) {}
        }
        let world = MemoryWorld::new().unwrap();
        let executor = MemoryExecutor::new(&world, ExecutorName::new("memory").unwrap());
        let id = InstanceId::new("i").unwrap();
        let spec = instance_spec(&world);
        executor.create(&id, &spec, &Silent).await.unwrap();
        let instance = executor.connect(&id).await.unwrap();
        instance.set_environment(&Environment::new()).await.unwrap();
        Self {
            memory: world.instance(&id).unwrap(),
            transport: InstanceTransport::new(instance, InstanceOptions::default()),
        }
    }

    async fn start(&self, name: &str, command: &[&str]) -> Arc<dyn Connection> {
        let launch = LaunchDescription {
            session: key("s"),
            process: pid(name),
            protocol: "codex",
            command: command.iter().map(|word| (*word).into()).collect(),
            directory: PathBuf::from("/memory"),
            environment: vec![
                Variable::new("TWICE", "first"),
                Variable::new("TWICE", "second"),
            ],
        };
        self.transport.start(&launch).await.unwrap()
    }

    async fn runs(&self, name: &str) -> bool {
        use groundcrew_core::instance::Instance as _;
        let processes = self.memory.processes().await.unwrap();
        let process = processes.iter().find(|process| process.id == pid(name));
        matches!(process.unwrap().phase, ProcessPhase::Running(_))
    }
}

fn pid(name: &str) -> ProcessId {
    ProcessId::new(name).unwrap()
}

async fn next(connection: &Arc<dyn Connection>) -> FrameKind {
    connection.receive().await.unwrap().unwrap().kind
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_ended_by_what_it_listens_to() {
    let place = Place::new().await;
    let (eof, term, kill) = (500, 1250, 1250);
    for (command, at_most, at_least) in [
        ("cat", 0, 0),
        ("sleep-until-signal", eof, eof),
        ("ignore-signals", term, kill),
    ] {
        let connection = place.start(command, &[command]).await;
        let before = Instant::now();
        connection.close().await.unwrap();
        let took = before.elapsed();
        assert!(
            took >= Duration::from_millis(at_least),
            "{command}: {took:?}"
        );
        assert!(
            took <= Duration::from_millis(at_most + 5),
            "{command}: {took:?}"
        );
        assert!(!place.runs(command).await);
        connection.close().await.unwrap();
        place.transport.end(&pid(command)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_outlives_its_kill_is_an_error_and_is_really_tried_again() {
    let place = Place::new().await;
    let connection = place.start("stuck", &["stuck"]).await;
    let closes: Vec<_> = (0..8)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.close().await })
        })
        .collect();
    let before = Instant::now();
    for close in closes {
        let error = close.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    assert!(
        before.elapsed() < Duration::from_secs(4),
        "all waited for one try"
    );
    assert!(place.runs("stuck").await);
    place.memory.thaw();
    connection.close().await.unwrap();
    assert!(!place.runs("stuck").await);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_nobody_knows_is_gone() {
    let place = Place::new().await;
    place.transport.end(&pid("unknown")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_later_variable_wins_and_the_runs_own_are_below() {
    let place = Place::new().await;
    place.start("cat", &["cat"]).await;
    let spec = place.memory.process_spec(&pid("cat")).unwrap();
    let EnvironmentSource::Run(overlay) = spec.environment else {
        panic!("{:?}", spec.environment);
    };
    assert_eq!(overlay.get("TWICE"), Some(&b"second"[..]));
    assert!(!spec.main, "the end of a conversation does not end the run");
}

#[tokio::test(start_paused = true)]
async fn another_controller_reads_on_from_its_offset_and_takes_the_input() {
    let place = Place::new().await;
    let old = place.start("cat", &["cat"]).await;
    old.send(Bytes::from_static(b"one\ntwo\n")).await.unwrap();
    let FrameKind::Stdout(said) = next(&old).await else {
        panic!("no output");
    };
    assert!(said.starts_with(b"one\n"));
    let new = place
        .transport
        .attach(&pid("cat"), Offset(4))
        .await
        .unwrap();
    assert_eq!(
        next(&new).await,
        FrameKind::Stdout(Bytes::from_static(b"two\n"))
    );
    new.send(Bytes::from_static(b"three\n")).await.unwrap();
    assert_eq!(
        next(&new).await,
        FrameKind::Stdout(Bytes::from_static(b"three\n"))
    );
    let late = old.send(Bytes::from_static(b"four\n")).await;
    settle().await;
    assert!(late.is_err() || old.send(Bytes::from_static(b"five\n")).await.is_err());
    new.close().await.unwrap();
    assert!(matches!(next(&new).await, FrameKind::Exit(_)));
    assert!(new.receive().await.unwrap().is_none());
}

fn instance_spec(world: &MemoryWorld) -> InstanceSpec {
    InstanceSpec {
        install: world.install().clone(),
        run: RunId::new("run").unwrap(),
        session: key("s"),
        workspace: Some(PathBuf::from("/memory")),
        shared: Vec::new(),
        lease: Lease::Unlimited,
        limits: Limits::default(),
        options: serde_json::Map::new(),
    }
}
