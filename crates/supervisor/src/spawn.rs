//! How an executor on this machine starts a supervisor: where its program comes from, and how its first word is awaited.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use groundcrew_core::error::{Error, ErrorKind, ErrorReport};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt as _, process::Command};

/// The name that a supervisor has in lists of processes, and by which a program knows that it is to be one.
pub(crate) const ARGV0: &str = "groundcrew-supervisor";

/// The longest first word.
const MAX_WORD: u64 = 64 << 10;

/// Where the program of a supervisor comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SupervisorSource {
    /// This program itself, even if its file was replaced; its `main` begins with [`run_if_invoked`](crate::run_if_invoked).
    SelfExec,
    /// A program, such as the static `groundcrew-supervisor`.
    Path(PathBuf),
}

impl SupervisorSource {
    /// Returns the file that is executed.
    pub fn program(&self) -> &Path {
        match self {
            Self::SelfExec => Path::new("/proc/self/exe"),
            Self::Path(path) => path,
        }
    }
}

/// The first and only word of a supervisor to whoever started it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FirstWord {
    /// The control socket listens.
    Ready {
        /// The process number of the supervisor.
        pid: u32,
    },
    /// It will not come up.
    Failed(ErrorReport),
}

/// Starts a supervisor on a start file and waits until it listens.
///
/// * It gets no environment, no directory, no terminal, and no descriptor but `log`, where it tells its own troubles.
/// * It is a session of its own, and outlives the caller as long as its lease.
///
/// # Errors
///
/// What hindered it; `TimedOut` when it said nothing within `deadline`, and then it was killed.
///
/// # Cancel safety
///
/// A supervisor that was started comes up nevertheless; its lease ends it.
pub async fn spawn(
    source: &SupervisorSource,
    start_file: &Path,
    log: File,
    deadline: Duration,
) -> Result<u32, Error> {
    let program = source.program();
    let fail = |message: &'static str| {
        let program = program.display().to_string();
        move |e: io::Error| Error::io(message, e).with("program", program)
    };
    let (word, mouth) = pipe().map_err(fail("failed to make a pipe for the supervisor"))?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place in this crate that starts a supervisor"
    )]
    let mut command = Command::new(program);
    command
        .arg0(ARGV0)
        .arg("serve")
        .arg(start_file)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(mouth)
        .stderr(log);
    let mut child = command
        .spawn()
        .map_err(fail("failed to start the supervisor"))?;
    // Else our own copy of the pipe's end would keep it open.
    drop(command);
    let mut text = Vec::new();
    let mut word = word.take(MAX_WORD);
    let heard = tokio::time::timeout(deadline, word.read_to_end(&mut text)).await;
    match heard {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => return Err(fail("failed to hear from the supervisor")(e)),
        Err(_) => {
            child
                .kill()
                .await
                .map_err(fail("failed to kill a supervisor that said nothing"))?;
            return Err(Error::new(
                ErrorKind::TimedOut,
                "the supervisor did not come up in time",
            )
            .with("program", program.display())
            .with("seconds", deadline.as_secs()));
        }
    }
    match serde_json::from_slice(&text) {
        Ok(FirstWord::Ready { pid }) => Ok(pid),
        Ok(FirstWord::Failed(report)) => Err(report.into()),
        Err(_) => {
            let status = tokio::time::timeout(deadline, child.wait()).await;
            Err(silent(status, &text).with("program", program.display()))
        }
    }
}

fn pipe() -> io::Result<(tokio::net::unix::pipe::Receiver, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let receiver = tokio::net::unix::pipe::Receiver::from_owned_fd(reader)?;
    Ok((receiver, writer))
}

fn silent<E>(status: Result<io::Result<ExitStatus>, E>, said: &[u8]) -> Error {
    let error = Error::new(
        ErrorKind::Unavailable,
        "the supervisor ended before it was ready; is it a program whose main begins with run_if_invoked?",
    )
    .retryable(false);
    let error = match status {
        Ok(Ok(status)) => error.with("status", status),
        Ok(Err(e)) => error.with_source(e),
        Err(_) => error,
    };
    if said.is_empty() {
        error
    } else {
        let said = &said[..said.len().min(200)];
        error.with("said", String::from_utf8_lossy(said).escape_debug())
    }
}
