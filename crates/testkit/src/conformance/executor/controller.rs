//! A controller in a process of its own: this very program, started again, and killed when its part is played.

use std::{process::Stdio, time::Duration};

use groundcrew_core::id::InstanceId;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::bench::Bench;
use crate::conformance::{
    broken::{Broken, broken},
    place::Ground,
};

/// A variable that every such process has, and no instance may.
pub(super) const CANARY: &str = "GROUNDCREW_CONFORMANCE_CANARY";

pub(super) const ARGUMENT: &str = "--as-conformance-controller";

/// How long a word may be awaited.
const PATIENCE: Duration = Duration::from_mins(1);

/// A process that controls the ground of a case.
pub(super) struct Controller {
    child: Child,
    words: Lines<BufReader<ChildStdout>>,
    heard: Vec<String>,
}

impl Controller {
    /// Starts one that makes an instance, and in it a process `p` that copies and was told `before`.
    ///
    /// It says `creating`, `created` and `started`; then it waits to be killed.
    pub(super) fn create(
        it: &Bench,
        id: &InstanceId,
        lease: Option<Duration>,
    ) -> Result<Self, Broken> {
        let lease = lease.map_or_else(|| "none".to_owned(), |lease| lease.as_millis().to_string());
        Self::start(it.ground(), &["create", id.as_str(), &lease])
    }

    /// Starts one that launches, and kills itself at a checkpoint.
    pub(super) fn launch(it: &Bench, point: &str) -> Result<Self, Broken> {
        Self::start(it.ground(), &["launch", point])
    }

    fn start(ground: &Ground, words: &[&str]) -> Result<Self, Broken> {
        #[expect(
            clippy::disallowed_methods,
            reason = "it is this program, and its variables are what the case is about"
        )]
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(ARGUMENT)
            .arg(ground.directory())
            .arg(ground.install().as_str())
            .args(words)
            .env(CANARY, "a variable of the controller")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let Some(stdout) = child.stdout.take() else {
            broken!("a controller was started without its output");
        };
        Ok(Self {
            child,
            words: BufReader::new(stdout).lines(),
            heard: Vec::new(),
        })
    }

    /// Waits until it says a word.
    pub(super) async fn until(&mut self, word: &str) -> Result<(), Broken> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.words.next_line()).await;
            match next {
                Ok(Ok(Some(line))) if line == word => return Ok(()),
                Ok(Ok(Some(line))) => self.heard.push(line),
                Ok(Ok(None)) => broken!(
                    "another controller ended before it said {word:?}; it said {:?}",
                    self.heard
                ),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => broken!("another controller does not say {word:?}"),
            }
        }
    }

    /// Kills it with SIGKILL.
    pub(super) async fn kill(mut self) {
        drop(self.child.kill().await);
    }

    /// Waits for its end; tells the signal that it died of, if it did.
    pub(super) async fn ended(mut self) -> Result<Option<i32>, Broken> {
        use std::os::unix::process::ExitStatusExt as _;
        let Ok(status) = tokio::time::timeout(PATIENCE, self.child.wait()).await else {
            broken!("another controller does not end");
        };
        Ok(status?.signal())
    }
}
