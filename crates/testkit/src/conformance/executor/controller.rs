//! A controller in a process of its own: this very program, started again, and killed when its part is played.

use std::{io::Write as _, process::ExitCode, process::Stdio, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use groundcrew_core::{
    error::{Chain, Error, ErrorKind},
    executor::Progress,
    id::{InstallId, InstanceId, ProcessId},
    process::{FrameKind, Lease, Offset, Role},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::{
    bench::{Bench, Opening, environment, instance_spec, process_spec},
    faults,
};
use crate::conformance::{
    broken::{Broken, broken},
    place::Ground,
    programs::Program,
};

/// A variable that every such process has, and no instance may.
pub(super) const CANARY: &str = "GROUNDCREW_CONFORMANCE_CANARY";

const ARGUMENT: &str = "--as-conformance-controller";

/// How long a word may be awaited.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Runs this process as a controller if it was started to be one.
pub(super) fn run_if_asked(open: &Opening, arguments: &[String]) -> Option<ExitCode> {
    let [argument, directory, install, rest @ ..] = arguments else {
        return None;
    };
    if argument != ARGUMENT {
        return None;
    }
    let work = || {
        let ground = Ground::new(directory.into(), InstallId::new(install.as_str())?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| Error::io("failed to start a runtime", e))?;
        runtime.block_on(play(open, &ground, rest))
    };
    Some(match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed: {}", Chain(&error)));
            ExitCode::FAILURE
        }
    })
}

/// Says a word; nobody may be there any more to hear it.
fn say(word: &str) {
    let mut stdout = std::io::stdout();
    drop(writeln!(stdout, "{word}").and_then(|()| stdout.flush()));
}

struct Aloud;

impl Progress for Aloud {
    fn line(&self, line: &str) {
        say(&format!("progress: {line}"));
    }
}

async fn play(open: &Opening, ground: &Ground, words: &[String]) -> Result<(), Error> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["create", id, lease] => {
            let lease = match lease.parse() {
                Ok(milliseconds) => Lease::After(Duration::from_millis(milliseconds)),
                Err(_) => Lease::Unlimited,
            };
            create(open, ground, &InstanceId::new(*id)?, lease).await
        }
        ["launch", point] => faults::launch_to_death(open(ground)?, ground, point).await,
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "no such part for a controller",
        )),
    }
}

async fn create(
    open: &Opening,
    ground: &Ground,
    id: &InstanceId,
    lease: Lease,
) -> Result<(), Error> {
    let fixture = open(ground)?;
    let executor = Arc::clone(&fixture.executor);
    let spec = instance_spec(&fixture, ground, lease)?;
    say("creating");
    drop(executor.create(id, &spec, &Aloud).await?);
    say("created");
    let instance = executor.connect(id).await?;
    instance
        .set_environment(&environment(&fixture, ground, &[])?)
        .await?;
    let p = ProcessId::new("p")?;
    let process = process_spec(&fixture, ground, &Program::Copy)?;
    instance.start(&p, &process).await?;
    let mut stdio = instance.attach(&p, Offset(0), Role::Writer).await?;
    let lost = || Error::new(ErrorKind::Unexpected, "a process cannot be talked to");
    let input = stdio.input.as_mut().ok_or_else(lost)?;
    input
        .write_all(b"before")
        .await
        .map_err(|e| lost().with_source(e))?;
    input.flush().await.map_err(|e| lost().with_source(e))?;
    while let Some(frame) = stdio.output.next().await {
        if matches!(frame?.kind, FrameKind::Stdout(_)) {
            break;
        }
    }
    say("started");
    // Whoever started it kills it, or goes.
    let mut nothing = [0; 1];
    drop(tokio::io::stdin().read(&mut nothing).await);
    Ok(())
}
