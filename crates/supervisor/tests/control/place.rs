//! A place for one test: a directory with a start file, and a supervisor on it.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use groundcrew_core::{
    command::Command,
    env::{Environment, Key},
    error::Error,
    id::{InstanceId, ProcessId},
    instance::Instance as _,
    process::{
        EnvironmentSource, ExitStatus, Frame, FrameKind, Lease, Offset, ProcessSpec, StdinPolicy,
        StdioKind, StopOrder,
    },
};
use groundcrew_supervisor::{
    CGROUP_FILE, LoggedInstance, StartFile, SupervisorInstance, SupervisorSource, UnixConnector,
    end_remains, spawn,
};

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

pub(crate) fn source() -> SupervisorSource {
    SupervisorSource::Path(env!("CARGO_BIN_EXE_groundcrew-supervisor").into())
}

pub(crate) fn process(text: &str) -> ProcessId {
    ProcessId::new(text).unwrap()
}

/// A shell script that is not the main process.
pub(crate) fn shell(script: &str) -> ProcessSpec {
    let path = (
        Key::new("PATH").unwrap(),
        b"/usr/local/bin:/usr/bin:/bin".to_vec(),
    );
    ProcessSpec {
        command: Command::new(["sh", "-c", script]).unwrap(),
        directory: "/".into(),
        environment: EnvironmentSource::Exact(Environment::from_iter([path])),
        stdio: StdioKind::Pipes,
        stdin: StdinPolicy::Open,
        time_limit: None,
        idle_limit: None,
        stop: StopOrder {
            grace: Duration::from_millis(500),
            ..StopOrder::default()
        },
        no_new_privileges: false,
        main: false,
        log_limit: 1 << 30,
    }
}

pub(crate) struct Place {
    pub(crate) root: tempfile::TempDir,
    pub(crate) id: InstanceId,
}

impl Place {
    /// Makes the directory with its start file, and no supervisor yet.
    pub(crate) fn new(lease: Lease, change: impl FnOnce(&mut StartFile)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = InstanceId::new(format!("control-{}-{n}", std::process::id())).unwrap();
        let root = tempfile::tempdir().unwrap();
        let mut start = StartFile::new(
            "install".parse().unwrap(),
            id.clone(),
            "run".parse().unwrap(),
            "session".parse().unwrap(),
            root.path(),
            root.path().join("logs"),
            lease,
        )
        .unwrap();
        change(&mut start);
        start.write(File::open(root.path()).unwrap()).unwrap();
        Self { root, id }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) async fn spawn(&self) -> Result<u32, Error> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("supervisor.log"))
            .unwrap();
        spawn(&source(), &self.path("start.json"), log, LONG).await
    }

    /// Starts a supervisor and connects to it.
    pub(crate) async fn up(lease: Lease) -> (Self, SupervisorInstance) {
        let place = Self::new(lease, |_| ());
        place.spawn().await.unwrap();
        let instance = place.connect().await.unwrap();
        (place, instance)
    }

    pub(crate) async fn connect(&self) -> Result<SupervisorInstance, Error> {
        let connector = Arc::new(UnixConnector::new(self.path("control.sock")));
        let logs = LoggedInstance::new(self.path("logs"), self.root.path());
        SupervisorInstance::connect(connector, &self.id, Some(logs)).await
    }

    /// Sends bytes as they are, as a person with a plain client would, and returns all that comes back.
    pub(crate) fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.path("control.sock")).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends one HTTP/1.1 request.
    pub(crate) fn http(&self, line: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        self.raw(
            format!(
                "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
    }
}

impl Place {
    /// Ends and removes what a supervisor that was killed left in its cgroup, as whoever finds it later would.
    fn sweep(&self) {
        let Ok(cgroup) = std::fs::read_to_string(self.path(CGROUP_FILE)) else {
            return;
        };
        let (cgroup, id) = (PathBuf::from(cgroup), self.id.clone());
        if !cgroup.exists() {
            return;
        }
        let sweeping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            drop(runtime.block_on(end_remains(&cgroup, &id, Duration::from_secs(5))));
        });
        drop(sweeping.join());
    }
}

impl Drop for Place {
    /// Ends what a failed test left running; a supervisor that is gone is none.
    fn drop(&mut self) {
        if let Ok(mut stream) = UnixStream::connect(self.path("control.sock")) {
            let body = "{\"grace_ms\":0}";
            drop(write!(
                stream,
                "POST /v1/shutdown HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            drop(stream.set_read_timeout(Some(Duration::from_secs(5))));
            drop(stream.read_to_end(&mut Vec::new()));
        }
        self.sweep();
        let said = std::fs::read_to_string(self.path("supervisor.log")).unwrap_or_default();
        assert!(
            std::thread::panicking() || !said.contains("panicked"),
            "{said}"
        );
    }
}

/// Whether a process runs; one that is dead and not yet reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
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

/// Waits until a process has written that much.
pub(crate) async fn written(instance: &SupervisorInstance, bytes: u64) {
    let deadline = Instant::now() + LONG;
    while instance.processes().await.unwrap()[0].log_end < Offset(bytes) {
        assert!(Instant::now() < deadline, "it has not written all");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reads to the end, checking that there is no gap and no duplicate.
pub(crate) async fn rest(
    mut output: impl futures_util::Stream<Item = Result<Frame, Error>> + Unpin,
    from: Offset,
) -> (Vec<u8>, Option<ExitStatus>) {
    let (mut bytes, mut exit) = (Vec::new(), None);
    while let Some(frame) = tokio::time::timeout(LONG, output.next()).await.unwrap() {
        let frame = frame.unwrap();
        assert_eq!(
            frame.offset.0,
            from.0 + bytes.len() as u64,
            "a gap or a duplicate"
        );
        match frame.kind {
            FrameKind::Stdout(piece) | FrameKind::Stderr(piece) => bytes.extend_from_slice(&piece),
            FrameKind::Exit(status) => exit = Some(status),
            other => panic!("{other:?}"),
        }
    }
    (bytes, exit)
}
