//! The engine that the tests named `needs_docker` share: our own, with its own data, in its own network namespace.
//!
//! It never touches an engine that the machine has: an engine without a bridge takes the bridge of any other one in the same
//! network namespace away.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::metadata::Metadata;
use crate::process::Cmd;
use crate::supervisor;

/// How long an engine may take to come up, and to go.
const PATIENCE: Duration = Duration::from_mins(1);

/// An engine that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Engine {
    directory: TempDir,
    child: Child,
    supervisor: PathBuf,
}

impl Engine {
    /// Starts one, and builds the supervisor that its containers get.
    ///
    /// # Errors
    ///
    /// Fails when the supervisor cannot be built or the engine does not come up; its last words are told.
    pub(super) fn start(metadata: &Metadata) -> Result<Self> {
        let supervisor = supervisor::build(metadata)?;
        let directory = tempfile::Builder::new()
            .prefix("gc-engine")
            .tempdir()
            .context("cannot make a directory for the engine")?;
        let at = |name: &str| directory.path().join(name).display().to_string();
        let log = directory.path().join("log");
        let child = Cmd::new("unshare")
            .args([
                "--net",
                "--",
                "dockerd",
                "--bridge=none",
                "--iptables=false",
            ])
            .args(["--ip-forward=false", "--data-root", &at("data")])
            .args(["--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &format!("unix://{}", at("docker.sock"))])
            .start(&log)?;
        let mut engine = Self {
            directory,
            child,
            supervisor,
        };
        engine.wait_until_up(&log)?;
        Ok(engine)
    }

    fn endpoint(&self) -> String {
        format!(
            "unix://{}",
            self.directory.path().join("docker.sock").display()
        )
    }

    fn wait_until_up(&mut self, log: &Path) -> Result<()> {
        let asks = Cmd::new("docker").args(["--host", &self.endpoint(), "version"]);
        let end = Instant::now() + PATIENCE;
        while !asks.output()?.status.success() {
            let ended = self.child.try_wait().context("cannot watch the engine")?;
            if ended.is_some() || Instant::now() > end {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                let last: Vec<_> = said.lines().rev().take(5).collect();
                bail!("the engine does not come up: {}", last.join("\n"));
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Returns what the tests are told of it.
    pub(super) fn variables(&self) -> [(&'static str, String); 2] {
        [
            ("GROUNDCREW_TEST_ENGINE", self.endpoint()),
            (
                "GROUNDCREW_TEST_SUPERVISOR",
                self.supervisor.display().to_string(),
            ),
        ]
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let end = Instant::now() + PATIENCE;
        let _gone = kill_process(pid, Signal::TERM);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _gone = kill_process(pid, Signal::KILL);
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}
