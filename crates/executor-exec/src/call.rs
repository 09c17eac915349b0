//! One call: the program is started, told one request, heard until its answer, and gone when the call is over.
//!
//! Nothing that it does – nothing, too much, nonsense, dying – leaves a call without an end or an error without a kind.

use std::{ffi::OsString, process::Stdio, time::Duration};

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::Progress,
};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::protocol::{Request, Said};

/// The longest line that is read.
const MAX_LINE: u64 = 1 << 20;

/// How many lines of one call are read.
const MAX_LINES: usize = 10_000;

/// How much of what the program complained of goes into an error.
const TAIL: u64 = 2048;

/// How long a program may take to end once it has answered.
const ENDING: Duration = Duration::from_secs(5);

/// How much of a line that is not understood is shown.
const SHOWN: usize = 200;

/// A program, and what it is started with.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) command: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
}

impl Program {
    /// Asks for one thing and reads the answer.
    ///
    /// # Errors
    ///
    /// What the program says; `TimedOut` when it is not done in time, `Unavailable` when it cannot be started or dies, and
    /// `Protocol` for all that is no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping it kills the program wherever it is.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        patience: Duration,
        progress: &dyn Progress,
    ) -> Result<T, Error> {
        let named = |error: Error| {
            error
                .with("verb", request.verb)
                .with("program", self.name())
        };
        let asked = tokio::time::timeout(patience, self.call(request, progress));
        let answer = match asked.await {
            Ok(answer) => answer.map_err(named)?,
            Err(_) => {
                return Err(named(
                    Error::new(
                        ErrorKind::TimedOut,
                        "the program of the executor is not done in time",
                    )
                    .with("seconds", patience.as_secs_f32()),
                ));
            }
        };
        serde_json::from_value(answer).map_err(|e| {
            named(
                Error::new(
                    ErrorKind::Protocol,
                    "the answer of the program is not what was asked for",
                )
                .with_source(e),
            )
        })
    }

    fn name(&self) -> String {
        let program = self.command.first().cloned().unwrap_or_default();
        program.to_string_lossy().into_owned()
    }

    fn start(&self) -> Result<Child, Error> {
        let (program, arguments) = self.command.split_first().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                "the program of the executor is not named",
            )
        })?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts the program of an executor"
        )]
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(key, value)| (key, value)))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().map_err(|e| {
            Error::new(
                ErrorKind::Unavailable,
                "the program of the executor cannot be started",
            )
            .retryable(false)
            .with_source(e)
        })
    }

    async fn call(
        &self,
        request: &Request<'_>,
        progress: &dyn Progress,
    ) -> Result<serde_json::Value, Error> {
        let mut child = self.start()?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(Error::new(
                ErrorKind::Unexpected,
                "a program was started without its streams",
            ));
        };
        let talk = converse(request, stdin, stdout, progress);
        // Both at once: a program that complains a lot must not be stuck in it.
        let (said, complaint) = tokio::join!(talk, tail(stderr));
        let ended = tokio::time::timeout(ENDING, child.wait()).await;
        match said {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failure)) => Err(failure.into()),
            Err(error) => {
                let error = match ended {
                    Ok(Ok(status)) if !status.success() => error.with("ended", status),
                    _ => error,
                };
                Err(match complaint.trim() {
                    "" => error,
                    complaint => error.with("said", complaint.escape_debug()),
                })
            }
        }
    }
}

type Answer = Result<serde_json::Value, crate::protocol::Failure>;

async fn converse(
    request: &Request<'_>,
    mut stdin: ChildStdin,
    stdout: ChildStdout,
    progress: &dyn Progress,
) -> Result<Answer, Error> {
    let mut text = serde_json::to_vec(request).map_err(|e| {
        Error::new(ErrorKind::Unexpected, "a request cannot be written as text").with_source(e)
    })?;
    text.push(b'\n');
    // One that does not listen may still answer; one that is dead is told by its output.
    drop(tell(&mut stdin, &text).await);
    let mut output = BufReader::new(stdout);
    for _ in 0..MAX_LINES {
        match read(&mut output).await? {
            Said::Progress(line) => progress.line(&line),
            Said::Holding(false) => {}
            Said::Holding(true) => drop(tell(&mut stdin, b"{\"go\":true}\n").await),
            Said::Ok(answer) => return nothing_more(&mut output).await.map(|()| Ok(answer)),
            Said::Error(failure) => return Ok(Err(failure)),
        }
    }
    Err(
        Error::new(ErrorKind::Protocol, "the program talks without an end")
            .with("lines", MAX_LINES),
    )
}

async fn tell(stdin: &mut ChildStdin, text: &[u8]) -> std::io::Result<()> {
    stdin.write_all(text).await?;
    stdin.flush().await
}

async fn line(output: &mut (impl AsyncBufRead + Unpin)) -> Result<Vec<u8>, Error> {
    let mut line = Vec::new();
    let read = output.take(MAX_LINE).read_until(b'\n', &mut line).await;
    read.map_err(|e| {
        Error::new(ErrorKind::Unavailable, "the program cannot be heard").with_source(e)
    })?;
    if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
        return Err(
            Error::new(ErrorKind::Protocol, "a line of the program is too long")
                .with("bytes", MAX_LINE),
        );
    }
    Ok(line)
}

async fn read(output: &mut (impl AsyncBufRead + Unpin)) -> Result<Said, Error> {
    let line = line(output).await?;
    if line.is_empty() {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "the program of the executor ended without an answer",
        ));
    }
    serde_json::from_slice(&line).map_err(|e| {
        let shown: String = String::from_utf8_lossy(&line).chars().take(SHOWN).collect();
        Error::new(
            ErrorKind::Protocol,
            "what the program says is not understood",
        )
        .with("line", format!("{:?}", shown.trim_end()))
        .with_source(e)
    })
}

/// Demands that the answer was the last word.
async fn nothing_more(output: &mut (impl AsyncBufRead + Unpin)) -> Result<(), Error> {
    let more = tokio::time::timeout(ENDING, line(output)).await;
    match more {
        Ok(Ok(line)) if line.is_empty() => Ok(()),
        Ok(Ok(_)) => Err(Error::new(
            ErrorKind::Protocol,
            "the program goes on behind its answer",
        )),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(
            ErrorKind::Protocol,
            "the program has answered and keeps its output open",
        )),
    }
}

/// Reads all, keeps the end.
async fn tail(stderr: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut stderr = BufReader::new(stderr);
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    let limit = usize::try_from(TAIL).unwrap_or(usize::MAX);
    while let Ok(length @ 1..) = stderr.read(&mut piece).await {
        kept.extend_from_slice(&piece[..length]);
        kept.drain(..kept.len().saturating_sub(limit));
    }
    String::from_utf8_lossy(&kept).into_owned()
}
