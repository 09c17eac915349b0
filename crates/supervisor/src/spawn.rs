//! How an executor on this machine starts a supervisor: where its program comes from, and how its first word is awaited.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use groundcrew_core::error::{Error, ErrorKind, ErrorReport};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    process::{Child, Command},
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// The name that a supervisor has in lists of processes, and by which a program knows that it is to be one.
pub(crate) const ARGV0: &str = "groundcrew-supervisor";

/// The longest first word.
const MAX_WORD: u64 = 64 << 10;

/// How long a supervisor that was killed may take to vanish before it is left to itself.
const VANISH: Duration = Duration::from_secs(1);

/// Where the program of a supervisor comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SupervisorSource {
    /// This program itself, even if its file was replaced; its `main` begins with [`run_if_invoked`](crate::run_if_invoked).
    SelfExec,
    /// A program, such as the static `groundcrew-supervisor`.
    Path(PathBuf),
    /// A command that goes on as the supervisor of the start file that is added to it, once it has separated it from the host.
    Command(Vec<OsString>),
}

impl SupervisorSource {
    /// Returns the file that is executed.
    pub fn program(&self) -> &Path {
        match self {
            Self::SelfExec => Path::new("/proc/self/exe"),
            Self::Path(path) => path,
            Self::Command(words) => words.first().map_or(Path::new(""), Path::new),
        }
    }

    fn command(&self) -> Command {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place in this crate that starts a supervisor"
        )]
        let mut command = Command::new(self.program());
        match self {
            Self::SelfExec | Self::Path(_) => {
                command.arg0(ARGV0).arg("serve");
            }
            // Out of reach of a terminal: the supervisor makes a session of its own, what separates it may not.
            Self::Command(words) => {
                command.args(words.iter().skip(1)).process_group(0);
            }
        }
        command
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
/// What hindered it; `TimedOut` when it was not up within `deadline`, and then it was killed.
///
/// # Cancel safety
///
/// A supervisor that was started comes up nevertheless, and its lease ends it, or it is killed.
pub async fn spawn(
    source: &SupervisorSource,
    start_file: &Path,
    log: File,
    deadline: Duration,
) -> Result<u32, Error> {
    let program = source.program();
    let until = Instant::now() + deadline;
    let fail = |message: &'static str| {
        let program = program.display().to_string();
        move |e: io::Error| Error::io(message, e).with("program", program)
    };
    let late = || {
        Error::new(
            ErrorKind::TimedOut,
            "the supervisor did not come up in time",
        )
        .with("program", program.display())
        .with("seconds", deadline.as_secs())
    };
    let (word, mouth) = pipe().map_err(fail("failed to make a pipe for the supervisor"))?;
    let has_group = matches!(source, SupervisorSource::Command(_));
    let mut command = source.command();
    command
        .arg(start_file)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(mouth)
        .stderr(log);
    let mut child = match timeout_at(until, execute(command, has_group)).await {
        Ok(started) => started.map_err(fail("failed to start the supervisor"))?,
        Err(_) => return Err(late()),
    };
    let text = match timeout_at(until, hear(word)).await {
        Ok(Ok(text)) => text,
        Ok(Err(e)) => {
            kill(&mut child, has_group).await;
            return Err(fail("failed to hear from the supervisor")(e));
        }
        Err(_) => {
            kill(&mut child, has_group).await;
            return Err(late());
        }
    };
    match serde_json::from_slice(&text) {
        Ok(FirstWord::Ready { pid }) => Ok(pid),
        Ok(FirstWord::Failed(report)) => Err(report.into()),
        Err(_) => {
            let status = timeout_at(until, child.wait()).await;
            if status.is_err() {
                kill(&mut child, has_group).await;
            }
            Err(silent(status, &text).with("program", program.display()))
        }
    }
}

/// Executes a program on a thread of its own: that returns only when the program runs, which takes as long as its disk likes.
async fn execute(mut command: Command, has_group: bool) -> io::Result<Child> {
    let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let (sender, started) = oneshot::channel();
    std::thread::Builder::new()
        .name("supervisor-start".to_owned())
        .spawn(move || {
            let _inside = runtime.enter();
            let child = command.spawn();
            // Else our own copy of the pipe's end would keep it open.
            drop(command);
            if let Err(Ok(mut unwanted)) = sender.send(child) {
                // Nobody waits for it any more; that it has ended already is as good.
                start_kill(&mut unwanted, has_group);
            }
        })?;
    started.await.map_err(io::Error::other)?
}

/// Reads the first line: the end of the stream may never come, if something else got hold of the pipe.
async fn hear(word: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    BufReader::new(word.take(MAX_WORD))
        .read_until(b'\n', &mut text)
        .await?;
    Ok(text)
}

/// Kills a supervisor that is of no use; waits only a moment for its end, which a disk that hangs can put off.
async fn kill(child: &mut Child, has_group: bool) {
    // One that is not waited for here is reaped by the runtime.
    start_kill(child, has_group);
    let _reaped = tokio::time::timeout(VANISH, child.wait()).await;
}

/// Kills it, and all of its group where that is its own: what separates from the host may be several processes that wait for each
/// other. One that has ended already is as good.
fn start_kill(child: &mut Child, has_group: bool) {
    let leader = child
        .id()
        .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    if let (true, Some(leader)) = (has_group, leader) {
        // It is not reaped yet, so the number is still its own.
        let _ended = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
    let _ended = child.start_kill();
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn the_first_word_needs_no_end_of_the_stream() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(b"{\"ready\":1}\n").await.unwrap();
        let heard = tokio::time::timeout(LONG, hear(ours)).await.unwrap();
        assert_eq!(heard.unwrap(), b"{\"ready\":1}\n");
        drop(theirs);
    }

    #[tokio::test]
    async fn what_says_nothing_is_killed_in_time() {
        let root = tempfile::tempdir().unwrap();
        // A pipe that nobody writes into: whatever reads it hangs until it is killed.
        let (silence, _quiet) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let silent = format!("/proc/{}/fd/{}", std::process::id(), silence.as_raw_fd());
        let log = File::create(root.path().join("log")).unwrap();
        let began = std::time::Instant::now();
        let error = spawn(
            &SupervisorSource::Path("/bin/cat".into()),
            Path::new(&silent),
            log,
            Duration::from_millis(500),
        )
        .await
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    }

    /// The shell waits for another process, which a kill of the shell alone would leave.
    #[tokio::test]
    async fn what_separates_from_the_host_is_killed_with_all_that_it_started() {
        let root = tempfile::tempdir().unwrap();
        let log = File::create(root.path().join("log")).unwrap();
        let script = "(read -r never <>\"$0.pipe\") & echo $! >\"$0.pid\"; wait";
        let start = root.path().join("start.json");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("start.json.pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let command = ["/bin/sh", "-c", script].map(Into::into).to_vec();
        let source = SupervisorSource::Command(command);
        let error = spawn(&source, &start, log, Duration::from_millis(800))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let pid = std::fs::read_to_string(root.path().join("start.json.pid")).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        let began = std::time::Instant::now();
        while state().is_ok_and(|stat| !stat.contains(") Z")) {
            assert!(began.elapsed() < LONG / 2, "it still waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn what_talks_nonsense_and_goes_on_is_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let log = File::create(root.path().join("log")).unwrap();
        let error = spawn(
            &SupervisorSource::Path("/usr/bin/yes".into()),
            &root.path().join("start.json"),
            log,
            LONG,
        )
        .await
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error
                .get("said")
                .is_some_and(|said| said.starts_with("serve"))
        );
    }
}
