//! A place for one test: directories, an executor on a real engine, and what tests ask of both again and again.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    sync::Mutex,
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use groundcrew_core::{
    command::Command as Words,
    env::{Environment, Key},
    error::Error,
    executor::{Created, Executor as _, InstanceSpec, Progress},
    id::{AttemptId, ExecutorName, InstallId, InstanceId, ProcessId, RunId, SessionId},
    instance::{Instance, SharedInstance},
    process::{
        EnvironmentSource, ExitStatus, FrameKind, Lease, Offset, ProcessSpec, Role, StdinPolicy,
        StdioKind, StopOrder,
    },
};
use groundcrew_executor_docker::{DockerConfig, DockerExecutor};
use serde_json::{Value, json};

use crate::engine::client;
pub(crate) use crate::engine::{BASE, ONE, docker, images, told};

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(100);

pub(crate) struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
}

/// Keeps what is told.
#[derive(Default)]
pub(crate) struct Told(pub(crate) Mutex<Vec<String>>);

impl Progress for Told {
    fn line(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

/// A place on an engine.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) root: tempfile::TempDir,
    pub(crate) endpoint: String,
    pub(crate) install: InstallId,
    pub(crate) executor: DockerExecutor,
}

impl Ground {
    /// Takes the engine that all tests share.
    pub(crate) fn new() -> Self {
        Self::at(&told("GROUNDCREW_TEST_ENGINE"))
    }

    /// Takes an engine, or what stands where one should be.
    pub(crate) fn at(endpoint: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let install = InstallId::generate().unwrap();
        Self {
            executor: executor(root.path(), endpoint, &install),
            endpoint: endpoint.to_owned(),
            install,
            root,
        }
    }

    /// The executor of another controller of the same installation.
    pub(crate) fn again(&self) -> DockerExecutor {
        executor(self.root.path(), &self.endpoint, &self.install)
    }

    /// An executor whose engine has that long for each answer.
    pub(crate) fn with_patience(&self, patience: Duration) -> DockerExecutor {
        patient(self.root.path(), &self.endpoint, &self.install, patience)
    }

    /// Runs the engine's own client, which must succeed.
    #[track_caller]
    pub(crate) fn docker(&self, words: &[&str]) -> String {
        docker(&self.endpoint, words)
    }

    /// Makes the images if the engine lacks them.
    pub(crate) fn images(&self) {
        images(&self.endpoint);
    }

    pub(crate) fn spec(&self, options: Value) -> InstanceSpec {
        let Value::Object(mut options) = options else {
            panic!("options are an object")
        };
        let limits = options.remove("limits").unwrap_or_else(|| json!({}));
        options.entry("image").or_insert(json!(BASE));
        options.entry("network").or_insert(json!("none"));
        InstanceSpec {
            install: self.install.clone(),
            run: RunId::generate().unwrap(),
            session: SessionId::new("session-1").unwrap(),
            workspace: None,
            shared: Vec::new(),
            lease: Lease::Unlimited,
            limits: serde_json::from_value(limits).unwrap(),
            options,
        }
    }

    pub(crate) async fn create(&self, id: &InstanceId, options: Value) -> Result<Created, Error> {
        self.executor.create(id, &self.spec(options), &Silent).await
    }

    /// Makes an instance and connects to it.
    pub(crate) async fn instance(&self, id: &InstanceId, options: Value) -> SharedInstance {
        self.create(id, options).await.unwrap();
        let instance = self.executor.connect(id).await.unwrap();
        instance.set_environment(&Environment::new()).await.unwrap();
        instance
    }

    /// Returns the ids of all containers of this installation.
    pub(crate) fn containers(&self) -> Vec<String> {
        let filter = format!("label=dev.groundcrew.install={}", self.install);
        let listed = self.docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Demands that nothing of this installation is left, in the engine or on the host.
    #[track_caller]
    pub(crate) fn nothing_left(&self) {
        assert_eq!(self.containers(), [""; 0]);
        let left: Vec<PathBuf> = std::fs::read_dir(self.root.path().join("containers"))
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Ground {
    /// Removes what a failed test left.
    fn drop(&mut self) {
        let filter = format!("label=dev.groundcrew.install={}", self.install);
        let listed = client(&self.endpoint, &["ps", "-aq", "--filter", &filter])
            .output()
            .unwrap();
        for id in String::from_utf8_lossy(&listed.stdout).lines() {
            drop(client(&self.endpoint, &["rm", "-fv", id]).output());
        }
    }
}

fn executor(root: &Path, endpoint: &str, install: &InstallId) -> DockerExecutor {
    patient(root, endpoint, install, Duration::from_mins(1))
}

fn patient(root: &Path, endpoint: &str, install: &InstallId, patience: Duration) -> DockerExecutor {
    let name = ExecutorName::new("docker").unwrap();
    let mut config = DockerConfig::new(name, root, install.clone());
    endpoint.clone_into(&mut config.endpoint);
    config.supervisor = vec![told("GROUNDCREW_TEST_SUPERVISOR").into()];
    config.patience = patience;
    DockerExecutor::new(config)
}

pub(crate) fn fresh() -> InstanceId {
    AttemptId::generate().unwrap().instance()
}

pub(crate) fn process(text: &str) -> ProcessId {
    ProcessId::new(text).unwrap()
}

pub(crate) fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs
        .iter()
        .map(|(key, value)| (Key::new(*key).unwrap(), value.as_bytes().to_vec()))
        .collect()
}

/// A command as the main process, with the run's variables.
pub(crate) fn words(words: &[&str]) -> ProcessSpec {
    ProcessSpec {
        command: Words::new(words.iter().copied()).unwrap(),
        directory: "/".into(),
        environment: EnvironmentSource::Run(Environment::new()),
        stdio: StdioKind::Pipes,
        stdin: StdinPolicy::Empty,
        time_limit: None,
        idle_limit: None,
        stop: StopOrder {
            grace: Duration::from_millis(500),
            ..StopOrder::default()
        },
        no_new_privileges: true,
        main: true,
        log_limit: 64 << 20,
    }
}

pub(crate) fn shell(script: &str) -> ProcessSpec {
    words(&["sh", "-c", script])
}

/// Reads the output of a process from an offset until enough, or to its end.
pub(crate) async fn read_until(
    instance: &dyn Instance,
    id: &ProcessId,
    from: Offset,
    enough: &str,
) -> (String, Option<ExitStatus>) {
    let stdio = instance.attach(id, from, Role::Viewer).await.unwrap();
    let (mut said, mut output) = (Vec::new(), pin!(stdio.output));
    loop {
        let frame = tokio::time::timeout(LONG, output.next())
            .await
            .expect("no frame comes");
        let Some(frame) = frame else {
            return (String::from_utf8_lossy(&said).into_owned(), None);
        };
        match frame.unwrap().kind {
            FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) => said.extend_from_slice(&bytes),
            FrameKind::Exit(status) => {
                return (String::from_utf8_lossy(&said).into_owned(), Some(status));
            }
            other => panic!("unexpected {other:?}"),
        }
        // Only where something is waited for: long outputs are not searched again and again.
        if !enough.is_empty() {
            let text = String::from_utf8_lossy(&said);
            if text.contains(enough) {
                return (text.into_owned(), None);
            }
        }
    }
}

/// Runs a command to its end; returns what it said and how it ended.
pub(crate) async fn ran(instance: &dyn Instance, spec: &ProcessSpec) -> (String, ExitStatus) {
    let id = process("agent");
    instance.start(&id, spec).await.unwrap();
    let (said, exit) = read_until(instance, &id, Offset(0), "").await;
    (said, exit.expect("it has an end"))
}

/// Waits until something is so, looking again in short steps; panics after a long time.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
