//! Records to write, processes to write them, and small disks to write them on.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use groundcrew_core::{
    id::{AttemptId, ExecutorName, InstanceId, PreparerName, RunId, SessionId, TaskId},
    process::Lease,
    store::{Reservation, RunRecord, RunState},
    undo::{Component, Due, UndoRecord},
};
use rustix::mount::{MountFlags, UnmountFlags};

/// How long anything may take on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// A record of a launch that begins.
pub(crate) fn record(run: &str, session: &str) -> RunRecord {
    let attempt = AttemptId::generate().unwrap();
    RunRecord {
        run: RunId::new(run).unwrap(),
        session: SessionId::new(session).unwrap(),
        task: TaskId::new("task").unwrap(),
        tenant: None,
        attempt,
        revision: 0,
        executor: ExecutorName::new("worktree").unwrap(),
        instance: InstanceId::new(attempt.to_string()).unwrap(),
        process: None,
        share_key: None,
        limits: groundcrew_core::executor::Limits::default(),
        options: serde_json::Map::new(),
        state: RunState::Preparing,
        title: Some("a title with words".to_owned()),
        command: None,
        workspace: None,
        lease: Lease::UNTIL_COMMIT,
        created_ms: 1_700_000_000_000,
        ended_ms: None,
        exit: None,
        agent: None,
        secrets: Vec::new(),
        runtime_secrets: Vec::new(),
        scripts: groundcrew_core::script::Scripts::default(),
        resume_token: None,
        keep: false,
        kept: Vec::new(),
        problem: None,
        before: None,
    }
}

/// An undo record of an attempt.
pub(crate) fn undo(attempt: AttemptId, key: &str, due: Due) -> UndoRecord {
    UndoRecord {
        key: key.to_owned(),
        attempt,
        component: Component::Preparer(PreparerName::new("worktree").unwrap()),
        resource: format!(r#"{{"path":"/x/{key}"}}"#),
        label: format!("worktree /x/{key}"),
        due,
        depends_on: Vec::new(),
        identity: None,
    }
}

/// A launch that reserves a session with two undo records.
pub(crate) fn reservation(run: &str, session: &str) -> Reservation {
    let record = record(run, session);
    let armed = vec![
        undo(record.attempt, "branch", Due::Remove),
        undo(record.attempt, "reservation", Due::Failure),
    ];
    Reservation {
        record,
        resumes: false,
        armed,
    }
}

/// Polls until something holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts this program again, in one of the roles that `processes` knows.
pub(crate) fn spawn(role: &str, home: &Path, tag: &str) -> Worker {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where these tests start processes"
    )]
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command
        .args(["--exact", "processes::worker", "--nocapture"])
        .arg(format!("role={role}"))
        .arg(format!("home={}", home.display()))
        .arg(format!("tag={tag}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    Worker { child, lines }
}

/// A process of a test; killed if the test ends first.
pub(crate) struct Worker {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Worker {
    /// Waits for the next line that a worker says on purpose.
    pub(crate) fn say(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test runner may have begun the line; a killed worker may not have ended it.
            if let (Some(at), true) = (line.find("@@"), line.ends_with('\n')) {
                return Some(line[at + 2..].trim_end().to_owned());
            }
        }
    }

    /// Kills it, and returns what it said until then.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        let said = std::iter::from_fn(|| self.say()).collect();
        self.child.wait().unwrap();
        said
    }

    /// Waits for its end, which must be a good one; returns what it said.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let said: Vec<String> = std::iter::from_fn(|| self.say()).collect();
        let status = self.child.wait().unwrap();
        if !status.success() {
            let mut text = String::new();
            let mut errors = self.child.stderr.take().unwrap();
            std::io::Read::read_to_string(&mut errors, &mut text).unwrap();
            panic!("{status}: {said:?}\n{text}");
        }
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A small file system in memory; gone when dropped.
pub(crate) struct SmallDisk {
    at: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one; says so and returns nothing where that is not allowed.
    pub(crate) fn mount(size: &str) -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={size},mode=700")).unwrap();
        match rustix::mount::mount(
            "groundcrew-test",
            at.path(),
            "tmpfs",
            MountFlags::empty(),
            Some(options.as_c_str()),
        ) {
            Ok(()) => Some(Self { at }),
            Err(error) => {
                #[expect(clippy::print_stderr, reason = "a skip must be heard")]
                {
                    eprintln!("skipped: needs root to mount a small disk ({error})");
                }
                None
            }
        }
    }

    /// Returns where it is.
    pub(crate) fn path(&self) -> &Path {
        self.at.path()
    }

    /// Makes it read-only, or writable again.
    pub(crate) fn read_only(&self, yes: bool) {
        let flags = if yes {
            MountFlags::RDONLY
        } else {
            MountFlags::empty()
        };
        rustix::mount::mount_remount(self.path(), flags, "").unwrap();
    }

    /// Fills it to the last byte; returns the file to remove.
    pub(crate) fn fill(&self) -> PathBuf {
        use std::io::Write as _;
        let path = self.path().join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        for size in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}
