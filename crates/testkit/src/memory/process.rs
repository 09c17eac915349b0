//! A process that is a script in memory: nothing runs, yet it starts, writes, reads, obeys signals and ends as told.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::BoxStream};
use groundcrew_core::{
    command::Command,
    env::Environment,
    error::{Error, ErrorKind},
    process::{
        EndCause, ExitStatus, Frame, FrameKind, Offset, ProcessPhase, ProcessSpec, ProcessState,
        Signal, Started, StdinPolicy, StdioKind, TerminalSize,
    },
};
use tokio::{io::AsyncWrite, sync::watch, time::Instant};

use groundcrew_core::id::ProcessId;

/// What a process does, by the name of its program.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Script {
    /// `exit CODE`.
    Exit(i32),
    /// `echo WORD…` and `warn WORD…`, or `print-env NAME` once the variable was looked up.
    Print { stderr: bool, line: Bytes },
    /// `cat`: writes what it reads, until its input ends.
    Cat,
    /// `reply LINE`: writes the line whenever it is written to; any signal ends it.
    Reply(Bytes),
    /// `sleep-until-signal`, and `write ITEM sleep-until-signal` once the item was written.
    UntilSignal,
    /// `ignore-signals`: only KILL ends it.
    UntilKill,
    /// `stuck`: nothing ends it until it is thawed.
    Stuck,
}

/// What starting a process means before it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blueprint {
    script: Script,
    /// What is written into the workspace at the start.
    pub(super) writes: Option<String>,
}

impl Blueprint {
    /// Reads a command; what it names must be known, as a program must exist.
    pub(super) fn read(command: &Command, environment: &Environment) -> Result<Self, Error> {
        let words: Vec<String> = command
            .arguments()
            .iter()
            .map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned())
            .collect();
        let rest = || words[1..].join(" ") + "\n";
        let argument = |index: usize| words.get(index).map(String::as_str);
        let script = match words[0].as_str() {
            "exit" => Script::Exit(argument(1).and_then(|n| n.parse().ok()).unwrap_or(0)),
            "echo" => Script::Print {
                stderr: false,
                line: rest().into(),
            },
            "warn" => Script::Print {
                stderr: true,
                line: rest().into(),
            },
            "print-env" => Script::Print {
                stderr: false,
                line: environment
                    .get(argument(1).unwrap_or_default())
                    .map(Bytes::copy_from_slice)
                    .unwrap_or_default(),
            },
            "cat" => Script::Cat,
            "reply" => Script::Reply(rest().into()),
            "sleep-until-signal" => Script::UntilSignal,
            "ignore-signals" => Script::UntilKill,
            "stuck" => Script::Stuck,
            "write" => {
                let sleeps = argument(2) == Some("sleep-until-signal");
                return Ok(Self {
                    script: if sleeps {
                        Script::UntilSignal
                    } else {
                        Script::Exit(0)
                    },
                    writes: Some(argument(1).unwrap_or("a file").to_owned()),
                });
            }
            "fail-to-start" => return Err(refusal(argument(1).unwrap_or_default())),
            unknown => {
                return Err(Error::new(ErrorKind::ProgramNotFound, "no such program")
                    .with("program", unknown));
            }
        };
        Ok(Self {
            script,
            writes: None,
        })
    }
}

/// Returns the error that `fail-to-start KIND` stands for.
fn refusal(kind: &str) -> Error {
    let known = [
        ErrorKind::ProgramNotFound,
        ErrorKind::InterpreterNotFound,
        ErrorKind::DirectoryNotFound,
        ErrorKind::NotExecutable,
        ErrorKind::PermissionDenied,
        ErrorKind::TooLarge,
        ErrorKind::ResourceExhausted,
        ErrorKind::Unavailable,
    ];
    let found = known.into_iter().find(|known| known.as_str() == kind);
    match found {
        Some(kind) => Error::new(kind, "the script refuses to start"),
        None => {
            Error::new(ErrorKind::InvalidInput, "no such way to fail a start").with("kind", kind)
        }
    }
}

/// A started process.
#[derive(Debug)]
pub(super) struct MemoryProcess {
    pub(super) id: ProcessId,
    pub(super) spec: ProcessSpec,
    pub(super) started: Started,
    script: Script,
    deadline: Option<Instant>,
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    frames: VecDeque<Frame>,
    log_start: u64,
    log_end: u64,
    exit: Option<ExitStatus>,
    lost: bool,
    stdin_open: bool,
    thawed: bool,
    writer: u64,
    /// When bytes last went in or out.
    active: Instant,
    size: Option<TerminalSize>,
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

fn killed_by(signal: Signal, cause: EndCause) -> ExitStatus {
    ExitStatus {
        code: None,
        signal: Some(signal),
        core_dumped: false,
        cause,
    }
}

impl MemoryProcess {
    pub(super) fn start(
        id: &ProcessId,
        spec: &ProcessSpec,
        blueprint: Blueprint,
        pid: u32,
    ) -> Arc<Self> {
        let program = PathBuf::from("/memory/bin").join(spec.command.program());
        let process = Arc::new(Self {
            id: id.clone(),
            spec: spec.clone(),
            started: Started { program, pid },
            script: blueprint.script,
            deadline: spec.time_limit.map(|limit| Instant::now() + limit.0),
            state: Mutex::new(State {
                frames: VecDeque::new(),
                log_start: 0,
                log_end: 0,
                exit: None,
                lost: false,
                stdin_open: spec.stdin == StdinPolicy::Open,
                thawed: false,
                writer: 0,
                active: Instant::now(),
                size: match spec.stdio {
                    StdioKind::Pipes => None,
                    StdioKind::Terminal(size) => Some(size),
                },
            }),
            version: watch::Sender::new(0),
        });
        match &process.script {
            Script::Exit(code) => process.end(ExitStatus::exited(*code)),
            Script::Print { stderr, line } => {
                process.print(*stderr, line.clone());
                process.end(ExitStatus::exited(0));
            }
            Script::Cat if spec.stdin == StdinPolicy::Empty => process.end(ExitStatus::exited(0)),
            Script::Cat
            | Script::Reply(_)
            | Script::UntilSignal
            | Script::UntilKill
            | Script::Stuck => {}
        }
        process
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn print(&self, stderr: bool, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.state();
        let offset = Offset(state.log_end);
        state.active = Instant::now();
        state.log_end += bytes.len() as u64;
        let merged = matches!(self.spec.stdio, StdioKind::Terminal(_));
        state.frames.push_back(Frame {
            offset,
            at_ms: now_ms(),
            kind: if stderr && !merged {
                FrameKind::Stderr(bytes)
            } else {
                FrameKind::Stdout(bytes)
            },
        });
        while state.log_end - state.log_start > self.spec.log_limit {
            let Some(oldest) = state.frames.pop_front() else {
                break;
            };
            state.log_start = oldest.offset.0 + content(&oldest).map_or(0, |b| b.len() as u64);
        }
        drop(state);
        self.changed();
    }

    fn end(&self, status: ExitStatus) {
        self.state().exit.get_or_insert(status);
        self.changed();
    }

    /// Returns when its time is up, and which limit says so.
    fn limit(&self) -> Option<(Instant, EndCause)> {
        let idle = self
            .spec
            .idle_limit
            .map(|limit| self.state().active + limit.0);
        let limits = [
            self.deadline.map(|at| (at, EndCause::TimedOut)),
            idle.map(|at| (at, EndCause::Idle)),
        ];
        limits.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Ends it if its time is up.
    fn settle(&self) {
        if let Some((at, cause)) = self.limit()
            && Instant::now() >= at
            && self.is_running()
        {
            self.signal(Signal::KILL, cause);
        }
    }

    pub(super) fn is_running(&self) -> bool {
        let state = self.state();
        state.exit.is_none() && !state.lost
    }

    pub(super) fn has_ended(&self) -> bool {
        self.settle();
        !self.is_running()
    }

    /// Lets a stuck one obey signals again.
    pub(super) fn thaw(&self) {
        self.state().thawed = true;
    }

    /// Forgets how it ends: whoever watched it is gone.
    pub(super) fn lose(&self) {
        let mut state = self.state();
        state.lost = state.exit.is_none();
        drop(state);
        self.changed();
    }

    pub(super) fn signal(&self, signal: Signal, cause: EndCause) {
        let dies = match self.script {
            Script::Stuck => self.state().thawed,
            Script::UntilKill => signal == Signal::KILL,
            _ => true,
        };
        if dies {
            self.end(killed_by(signal, cause));
        }
    }

    pub(super) fn close_stdin(&self, cause: EndCause) {
        self.state().stdin_open = false;
        if self.script == Script::Cat {
            self.end(ExitStatus {
                cause,
                ..ExitStatus::exited(0)
            });
        }
    }

    pub(super) fn resize(&self, size: TerminalSize) -> Result<(), Error> {
        let mut state = self.state();
        if state.size.is_none() {
            return Err(
                Error::new(ErrorKind::Unsupported, "the process has no terminal")
                    .with("process", &self.id),
            );
        }
        state.size = Some(size);
        Ok(())
    }

    pub(super) async fn wait(&self) -> Result<ExitStatus, Error> {
        let mut version = self.version.subscribe();
        loop {
            version.mark_unchanged();
            self.settle();
            let (exit, lost) = {
                let state = self.state();
                (state.exit, state.lost)
            };
            if let Some(status) = exit {
                return Ok(status);
            }
            if lost {
                return Err(Error::new(
                    ErrorKind::Unexpected,
                    "nobody knows how the process ended",
                )
                .with("process", &self.id)
                .with("phase", "lost"));
            }
            self.moved(&mut version).await;
        }
    }

    /// Returns when something has changed, or the time of a limit has come.
    async fn moved(&self, version: &mut watch::Receiver<u64>) {
        let time_limit = async {
            match self.limit() {
                Some((at, _)) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = version.changed() => drop(changed),
            () = time_limit => self.settle(),
        }
    }

    pub(super) fn describe(&self) -> ProcessState {
        self.settle();
        let state = self.state();
        ProcessState {
            id: self.id.clone(),
            main: self.spec.main,
            phase: match state.exit {
                Some(status) => ProcessPhase::Ended(status),
                None if state.lost => ProcessPhase::Lost,
                None => ProcessPhase::Running(self.started.clone()),
            },
            log_start: Offset(state.log_start),
            log_end: Offset(state.log_end),
        }
    }

    /// Returns the next frame from an offset on; `None` if there is none yet.
    fn frame_at(&self, from: u64) -> Option<Frame> {
        let state = self.state();
        if from < state.log_start {
            return Some(Frame {
                offset: Offset(from),
                at_ms: now_ms(),
                kind: FrameKind::Truncated(state.log_start - from),
            });
        }
        for frame in &state.frames {
            let bytes = content(frame).cloned().unwrap_or_default();
            if frame.offset.0 + bytes.len() as u64 > from {
                let skip = usize::try_from(from.saturating_sub(frame.offset.0)).unwrap_or(0);
                let rest = bytes.slice(skip..);
                let kind = match frame.kind {
                    FrameKind::Stderr(_) => FrameKind::Stderr(rest),
                    _ => FrameKind::Stdout(rest),
                };
                return Some(Frame {
                    offset: Offset(frame.offset.0 + skip as u64),
                    at_ms: frame.at_ms,
                    kind,
                });
            }
        }
        state.exit.map(|status| Frame {
            offset: Offset(state.log_end),
            at_ms: now_ms(),
            kind: FrameKind::Exit(status),
        })
    }

    /// Streams the output from an offset on: what is kept, then what comes.
    pub(super) fn output(
        self: &Arc<Self>,
        from: Offset,
    ) -> BoxStream<'static, Result<Frame, Error>> {
        let start = (Arc::clone(self), self.version.subscribe(), Some(from.0));
        futures_util::stream::unfold(start, |(process, mut version, next)| async move {
            let mut next = next?;
            let frame = loop {
                version.mark_unchanged();
                if let Some(frame) = process.frame_at(next) {
                    break frame;
                }
                process.moved(&mut version).await;
            };
            let ended = matches!(frame.kind, FrameKind::Exit(_));
            next = match &frame.kind {
                FrameKind::Truncated(lost) => next + lost,
                _ => frame.offset.0 + content(&frame).map_or(0, |b| b.len() as u64),
            };
            Some((Ok(frame), (process, version, (!ended).then_some(next))))
        })
        .boxed()
    }

    /// Takes the input over from whoever had it.
    pub(super) fn writer(self: &Arc<Self>) -> MemoryInput {
        let mut state = self.state();
        state.writer += 1;
        MemoryInput {
            process: Arc::clone(self),
            generation: state.writer,
        }
    }
}

fn content(frame: &Frame) -> Option<&Bytes> {
    match &frame.kind {
        FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) => Some(bytes),
        _ => None,
    }
}

/// The writing end of a process's standard input.
#[derive(Debug)]
pub(super) struct MemoryInput {
    process: Arc<MemoryProcess>,
    generation: u64,
}

impl AsyncWrite for MemoryInput {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.process.state();
        let open = state.stdin_open && state.exit.is_none() && state.writer == self.generation;
        state.active = Instant::now();
        drop(state);
        if !open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match &self.process.script {
            Script::Cat => self.process.print(false, Bytes::copy_from_slice(bytes)),
            Script::Reply(line) => self.process.print(false, line.clone()),
            _ => {}
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.process.state().writer == self.generation {
            self.process.close_stdin(EndCause::Itself);
        }
        Poll::Ready(Ok(()))
    }
}
