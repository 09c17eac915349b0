//! What the tests of processes share: each runs in a process of its own, whose descendants are counted at the end.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use futures_util::StreamExt as _;
use groundcrew_core::{
    command::Command,
    env::{Environment, Key},
    error::Error,
    executor::Limits,
    id::{InstanceId, ProcessId},
    process::{
        DEFAULT_LOG_LIMIT, EndCause, EnvironmentSource, ExitStatus, FrameKind, Offset, ProcessSpec,
        StdinPolicy, StdioKind, StopOrder,
    },
};
use groundcrew_supervisor::processes::{CgroupPolicy, Config, Processes};

/// What tells a test process that it is the one to run the test; a filter that no test matches.
const ALONE: &str = "alone-in-this-process";

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Whether tests of endurance are as large as the targets say.
#[expect(
    clippy::disallowed_methods,
    reason = "the one parameter of these tests: how often"
)]
pub(crate) fn full() -> bool {
    std::env::var_os("GROUNDCREW_SOAK").is_some()
}

pub(crate) const BOTH: [CgroupPolicy; 2] = [CgroupPolicy::Automatic, CgroupPolicy::Never];

/// What a test does not share with the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Own {
    Process,
    Mounts,
    /// Our session's leader is outside then, as of a program that `docker exec` starts.
    Pids,
}

/// Runs a test in a process of its own: a subreaper adopts what others of its process left, and signals are its process's.
///
/// * It runs with some signals ignored, as under `nohup`.
pub(crate) fn alone<F: Future<Output = ()>>(name: &str, own: Own, body: impl FnOnce() -> F) {
    if argument(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        return local.block_on(&runtime, async {
            let patience = PATIENCE * if full() { 60 } else { 2 };
            tokio::time::timeout(patience, body()).await.unwrap();
        });
    }
    let output = again(name, own, &[]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name} alone: {}\n{text}",
        output.status
    );
    tell(&text);
}

/// Shows the figures of a test to whoever asks for the output of tests that passed.
#[expect(clippy::print_stdout, reason = "figures are worth knowing")]
fn tell(text: &str) {
    println!("{text}");
}

/// Returns the command that runs a test alone, with marks that it can ask for.
#[expect(
    clippy::disallowed_methods,
    reason = "the test starts itself again, as the test runner would"
)]
pub(crate) fn again(name: &str, own: Own, marks: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    let unshare = match own {
        Own::Process => "",
        Own::Mounts => "unshare --mount",
        Own::Pids => "unshare --pid --fork --kill-child --mount-proc",
    };
    let root = rustix::process::geteuid().is_root();
    let map = if root || unshare.is_empty() {
        ""
    } else {
        "--map-root-user"
    };
    command
        .args([
            "-c",
            &format!("trap '' HUP USR2; exec {unshare} {map} \"$0\" \"$@\""),
        ])
        .arg(std::env::current_exe().unwrap())
        .args([name.split_once("::").unwrap().1, ALONE])
        .args(["--exact", "--test-threads=1", "--nocapture"])
        .args(marks);
    command
}

/// Returns what follows a mark in our arguments.
pub(crate) fn argument(mark: &str) -> Option<String> {
    std::env::args().find_map(|argument| argument.strip_prefix(mark).map(str::to_owned))
}

/// An instance for a test.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) instance: InstanceId,
    pub(crate) processes: Processes,
}

pub(crate) fn id(text: &str) -> ProcessId {
    ProcessId::new(text).unwrap()
}

pub(crate) fn environment(variables: &[(&str, &str)]) -> Environment {
    variables
        .iter()
        .map(|(key, value)| (Key::new(*key).unwrap(), value.as_bytes().to_vec()))
        .collect()
}

pub(crate) fn order(grace: Duration) -> StopOrder {
    StopOrder {
        grace,
        ..StopOrder::default()
    }
}

impl Ground {
    pub(crate) fn new(policy: CgroupPolicy) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        Self::with_log(policy, directory, log)
    }

    pub(crate) fn with_log(
        policy: CgroupPolicy,
        directory: tempfile::TempDir,
        log_directory: PathBuf,
    ) -> Self {
        Self::with(policy, directory, log_directory, Limits::default()).unwrap()
    }

    /// An instance that may use only so much.
    pub(crate) fn limited(policy: CgroupPolicy, limits: Limits) -> Result<Self, Error> {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        Self::with(policy, directory, log, limits)
    }

    fn with(
        policy: CgroupPolicy,
        directory: tempfile::TempDir,
        log_directory: PathBuf,
        limits: Limits,
    ) -> Result<Self, Error> {
        let name = directory
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .trim_start_matches('.')
            .to_owned();
        let instance = InstanceId::new(format!("test-{}-{name}", std::process::id())).unwrap();
        let processes = Processes::new(Config {
            instance: instance.clone(),
            log_directory,
            cgroup: policy,
            limits,
        })?;
        Ok(Self {
            directory,
            instance,
            processes,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn spec(&self, argv: &[&str]) -> ProcessSpec {
        ProcessSpec {
            command: Command::new(argv.iter().copied()).unwrap(),
            directory: self.path().to_owned(),
            environment: EnvironmentSource::Exact(environment(&[(
                "PATH",
                "/usr/local/bin:/usr/bin:/bin",
            )])),
            stdio: StdioKind::Pipes,
            stdin: StdinPolicy::Empty,
            time_limit: None,
            idle_limit: None,
            stop: StopOrder::default(),
            no_new_privileges: false,
            main: true,
            log_limit: DEFAULT_LOG_LIMIT,
        }
    }

    pub(crate) fn shell(&self, script: &str) -> ProcessSpec {
        self.spec(&["sh", "-c", script])
    }

    pub(crate) async fn start(&self, name: &str, spec: &ProcessSpec) -> u32 {
        self.processes.start(&id(name), spec).await.unwrap().pid
    }

    pub(crate) async fn fails(&self, spec: &ProcessSpec) -> Error {
        let error = self.processes.start(&id("fails"), spec).await.unwrap_err();
        assert!(
            !self.path().join("log/fails").exists(),
            "a failed start left its log"
        );
        assert!(self.processes.list().is_empty());
        error
    }

    /// Returns everything that a process wrote, from an offset on, and how it ended; checks that offsets join.
    pub(crate) async fn output(&self, name: &str, from: u64) -> Output {
        let mut stream = self.processes.attach(&id(name), Offset(from)).unwrap();
        let mut output = Output {
            stdout: BytesMut::new(),
            stderr: BytesMut::new(),
            truncated: 0,
            status: None,
        };
        let mut position = from;
        while let Some(frame) = stream.next().await {
            let frame = frame.unwrap();
            assert_eq!(frame.offset.0, position, "a gap or a duplicate");
            match frame.kind {
                FrameKind::Stdout(bytes) => {
                    position += bytes.len() as u64;
                    output.stdout.extend_from_slice(&bytes);
                }
                FrameKind::Stderr(bytes) => {
                    position += bytes.len() as u64;
                    output.stderr.extend_from_slice(&bytes);
                }
                FrameKind::Truncated(count) => {
                    position += count;
                    output.truncated += count;
                }
                FrameKind::Exit(status) => {
                    assert!(output.status.is_none());
                    output.status = Some(status);
                }
                _ => panic!("an unknown frame"),
            }
        }
        output
    }

    pub(crate) async fn run(&self, name: &str, spec: &ProcessSpec) -> Output {
        self.start(name, spec).await;
        self.output(name, 0).await
    }

    /// Waits until a file that a script writes holds a whole line, and returns its words.
    pub(crate) async fn words(&self, file: &str) -> Vec<String> {
        let path = self.path().join(file);
        let text = until(|| {
            std::fs::read_to_string(&path)
                .ok()
                .filter(|text| text.ends_with('\n'))
        })
        .await;
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    pub(crate) async fn stop(&self, name: &str, grace: Duration) {
        self.processes
            .stop(&id(name), &order(grace), EndCause::Stopped)
            .await
            .unwrap();
    }

    /// Checks that nothing descends from this process any more, dead or alive, and that no cgroup is left.
    pub(crate) async fn nothing_left(&self) {
        let cgroup = self.processes.cgroup();
        self.processes
            .stop_all(Some(Duration::ZERO), EndCause::Stopped)
            .await
            .unwrap();
        assert_eq!(children(), "", "children, zombies included");
        assert!(
            cgroup.is_none_or(|cgroup| !cgroup.exists()),
            "the cgroup is left"
        );
    }
}

/// What a process wrote.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: BytesMut,
    pub(crate) stderr: BytesMut,
    pub(crate) truncated: u64,
    pub(crate) status: Option<ExitStatus>,
}

impl Output {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn status(&self) -> ExitStatus {
        self.status.unwrap()
    }
}

/// What a script that counts writes.
pub(crate) fn lines(numbers: std::ops::Range<u32>) -> String {
    let lines: Vec<String> = numbers.map(|n| format!("line {n}\n")).collect();
    lines.concat()
}

/// Our children, dead or alive.
pub(crate) fn children() -> String {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| {
            std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default()
        })
        .collect()
}

pub(crate) fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
