//! A place for one test: its own directories, an executor on them, and what tests ask of it again and again.

use std::{
    path::PathBuf,
    pin::pin,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use groundcrew_core::{
    command::Command,
    env::{Environment, Key},
    error::Error,
    executor::{Executor as _, InstanceSpec, Limits, Progress},
    id::{ExecutorName, InstallId, InstanceId, ProcessId, RunId, SessionId},
    identity::Identity,
    instance::{Instance, SharedInstance},
    process::{
        EnvironmentSource, ExitStatus, Frame, FrameKind, Lease, Offset, ProcessSpec, Role,
        StdinPolicy, StdioKind, StopOrder,
    },
};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// How large tests of endurance are, where that is said.
#[expect(
    clippy::disallowed_methods,
    reason = "the one parameter of these tests: how often"
)]
pub(crate) fn soak() -> Option<std::ffi::OsString> {
    std::env::var_os("GROUNDCREW_SOAK")
}

pub(crate) fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let patience = LONG * if soak().is_some() { 60 } else { 2 };
            tokio::time::timeout(patience, test)
                .await
                .expect("a test hangs");
        });
}

pub(crate) struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) root: tempfile::TempDir,
    pub(crate) executor: LocalExecutor,
}

pub(crate) fn executor(root: &std::path::Path) -> LocalExecutor {
    let install = InstallId::new("install-of-the-test").unwrap();
    let name = ExecutorName::new("local").unwrap();
    LocalExecutor::new(LocalConfig::new(name, root, install))
}

pub(crate) fn id(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

/// An instance id that no other test, nor another run of the tests, uses: cgroups are the whole machine's.
pub(crate) fn fresh() -> InstanceId {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    id(&format!("test-{}-{n}", std::process::id()))
}

pub(crate) fn process(text: &str) -> ProcessId {
    ProcessId::new(text).unwrap()
}

pub(crate) fn instance_spec(lease: Lease) -> InstanceSpec {
    InstanceSpec {
        install: InstallId::new("install-of-the-test").unwrap(),
        run: RunId::new("run-1").unwrap(),
        session: SessionId::new("session-1").unwrap(),
        workspace: None,
        shared: Vec::new(),
        lease,
        limits: Limits::default(),
        options: serde_json::Map::new(),
    }
}

/// A shell script as the main process, with the run's variables and an open standard input.
pub(crate) fn shell(script: &str) -> ProcessSpec {
    ProcessSpec {
        command: Command::new(["sh", "-c", script]).unwrap(),
        directory: "/".into(),
        environment: EnvironmentSource::Run(Environment::new()),
        stdio: StdioKind::Pipes,
        stdin: StdinPolicy::Open,
        time_limit: None,
        idle_limit: None,
        stop: StopOrder {
            grace: Duration::from_millis(500),
            ..StopOrder::default()
        },
        no_new_privileges: false,
        main: true,
        log_limit: 64 << 20,
    }
}

pub(crate) fn environment(pairs: &[(&str, &str)]) -> Environment {
    let path = [(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    )];
    path.iter()
        .chain(pairs)
        .map(|(key, value)| (Key::new(*key).unwrap(), value.as_bytes().to_vec()))
        .collect()
}

impl Place {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self {
            executor: executor(root.path()),
            root,
        }
    }

    pub(crate) async fn create(&self, id: &InstanceId, lease: Lease) -> Identity {
        let created = self
            .executor
            .create(id, &instance_spec(lease), &Silent)
            .await
            .unwrap();
        created.identity
    }

    /// Makes an instance and connects to it.
    pub(crate) async fn instance(&self, id: &InstanceId, lease: Lease) -> SharedInstance {
        self.create(id, lease).await;
        let instance = self.executor.connect(id).await.unwrap();
        instance.set_environment(&environment(&[])).await.unwrap();
        instance
    }

    pub(crate) fn directory(&self, id: &InstanceId) -> PathBuf {
        self.root.path().join("instances").join(id.as_str())
    }

    pub(crate) fn logs(&self, id: &InstanceId) -> PathBuf {
        self.root.path().join("logs").join(id.as_str())
    }

    pub(crate) fn supervisor_pid(&self, id: &InstanceId) -> Option<u32> {
        let start_file = self.directory(id).join("start.json");
        pids().into_iter().find(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|arguments| {
                arguments
                    .split(|b| *b == 0)
                    .any(|argument| argument == start_file.as_os_str().as_encoded_bytes())
            })
        })
    }
}

impl Drop for Place {
    /// Ends what a failed test left running.
    fn drop(&mut self) {
        let executor = executor(self.root.path());
        let cleanup = std::thread::spawn(move || {
            block_on(async {
                for id in executor.list().await.unwrap_or_default() {
                    drop(executor.delete(&id, None).await);
                }
            });
        });
        drop(cleanup.join());
    }
}

pub(crate) fn pids() -> Vec<u32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .collect()
}

/// Whether a process runs; one that is dead and not yet reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with(['Z', 'X']))
}

/// Waits until something is so, looking again in short steps; panics after a long time.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn kill(pid: u32) {
    let pid_t = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid_t, rustix::process::Signal::KILL).unwrap();
    until("killed", || !runs(pid)).await;
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit: Option<ExitStatus>,
}

impl Seen {
    fn take(&mut self, frame: Frame) {
        match frame.kind {
            FrameKind::Stdout(bytes) => self.stdout.extend_from_slice(&bytes),
            FrameKind::Stderr(bytes) => self.stderr.extend_from_slice(&bytes),
            FrameKind::Exit(status) => self.exit = Some(status),
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// Reads the output of a process from an offset to its end, checking that there is no gap and no duplicate.
pub(crate) async fn read(
    instance: &dyn Instance,
    id: &ProcessId,
    from: Offset,
) -> Result<Seen, Error> {
    let stdio = instance.attach(id, from, Role::Viewer).await?;
    collect(stdio.output, from, |_| false).await
}

pub(crate) async fn collect(
    output: impl futures_util::Stream<Item = Result<Frame, Error>>,
    from: Offset,
    mut enough: impl FnMut(&Seen) -> bool,
) -> Result<Seen, Error> {
    let (mut seen, mut position, mut output) = (Seen::default(), from, pin!(output));
    while !enough(&seen)
        && let Some(frame) = tokio::time::timeout(LONG, output.next())
            .await
            .expect("no frame comes")
    {
        let frame = frame?;
        assert_eq!(frame.offset, position, "a gap or a duplicate");
        if let FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) = &frame.kind {
            position.0 += bytes.len() as u64;
        }
        seen.take(frame);
    }
    Ok(seen)
}
