//! What a case works with: a fresh instance, and the few things that many cases do with one.

use futures_util::StreamExt as _;
use groundcrew_core::{
    command::Command,
    env::{Environment, Key},
    error::{Error, ErrorKind},
    id::ProcessId,
    instance::SharedInstance,
    process::{ExitStatus, Frame, FrameKind, Offset, ProcessSpec, Role},
};

use super::{
    broken::{Broken, broken, hold},
    fixture::Fixture,
    programs::{self, Program},
};

/// A fresh instance, and what may run in it.
pub(super) struct Bench<'a> {
    pub(super) instance: SharedInstance,
    pub(super) fixture: &'a dyn Fixture,
}

/// All that a process wrote, and its end.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// How many bytes were no longer there.
    pub(super) lost: u64,
    pub(super) exit: Option<ExitStatus>,
}

pub(super) fn id(name: &str) -> Result<ProcessId, Broken> {
    Ok(ProcessId::new(name)?)
}

impl<'a> Bench<'a> {
    pub(super) async fn new(fixture: &'a dyn Fixture) -> Result<Self, Broken> {
        let instance = fixture.instance().await?;
        let bench = Self { instance, fixture };
        let environment = bench.environment(&[("GREETING", "hello")])?;
        bench.instance.set_environment(&environment).await?;
        Ok(bench)
    }

    /// Returns the variables that commands need, and some more.
    pub(super) fn environment(&self, more: &[(&str, &str)]) -> Result<Environment, Broken> {
        let mut environment = Environment::new();
        for (key, value) in self.fixture.variables() {
            environment.set(Key::new(key)?, value);
        }
        for (key, value) in more {
            environment.set(Key::new(*key)?, *value);
        }
        Ok(environment)
    }

    /// A process that is not the main one, with pipes and an open input.
    pub(super) fn spec(&self, program: &Program<'_>) -> Result<ProcessSpec, Broken> {
        let command = Command::new(self.fixture.command(program))?;
        Ok(programs::process(command, self.fixture.directory()))
    }

    pub(super) async fn start(
        &self,
        name: &str,
        program: &Program<'_>,
    ) -> Result<ProcessId, Broken> {
        let id = id(name)?;
        self.instance.start(&id, &self.spec(program)?).await?;
        Ok(id)
    }

    /// Runs a process to its end and returns all of it.
    pub(super) async fn run(&self, name: &str, spec: &ProcessSpec) -> Result<Seen, Broken> {
        let id = id(name)?;
        self.instance.start(&id, spec).await?;
        self.read(&id, Offset(0)).await
    }

    /// Reads the output of a process from an offset to its end; a gap, a duplicate or frames behind the end break the case.
    pub(super) async fn read(&self, id: &ProcessId, from: Offset) -> Result<Seen, Broken> {
        let stdio = self.instance.attach(id, from, Role::Viewer).await?;
        hold!(stdio.input.is_none(), "a viewer was given the input");
        let mut output = Reader::new(stdio.output, from);
        while output.next().await? {}
        Ok(output.seen)
    }
}

/// Reads frames and checks that they join.
pub(super) struct Reader<S> {
    output: S,
    position: Offset,
    pub(super) seen: Seen,
}

impl<S: futures_util::Stream<Item = Result<Frame, Error>> + Unpin> Reader<S> {
    pub(super) fn new(output: S, from: Offset) -> Self {
        Self {
            output,
            position: from,
            seen: Seen::default(),
        }
    }

    /// Takes one frame; tells whether there was one.
    pub(super) async fn next(&mut self) -> Result<bool, Broken> {
        let Some(frame) = self.output.next().await else {
            hold!(self.seen.exit.is_some(), "the output ends without the exit");
            return Ok(false);
        };
        let frame = frame?;
        hold!(
            self.seen.exit.is_none(),
            "a frame behind the exit: {frame:?}"
        );
        hold!(
            frame.offset == self.position,
            "a frame at {} where {} is next: a gap or a duplicate",
            frame.offset,
            self.position
        );
        match frame.kind {
            FrameKind::Stdout(bytes) => {
                self.position.0 += bytes.len() as u64;
                self.seen.stdout.extend_from_slice(&bytes);
            }
            FrameKind::Stderr(bytes) => {
                self.position.0 += bytes.len() as u64;
                self.seen.stderr.extend_from_slice(&bytes);
            }
            FrameKind::Truncated(lost) => {
                self.position.0 += lost;
                self.seen.lost += lost;
            }
            FrameKind::Exit(status) => self.seen.exit = Some(status),
            other => broken!("a frame of an unknown kind: {other:?}"),
        }
        Ok(true)
    }

    /// Reads until standard output is this.
    pub(super) async fn until(&mut self, stdout: &[u8]) -> Result<(), Broken> {
        while self.seen.stdout != stdout {
            hold!(
                stdout.starts_with(&self.seen.stdout),
                "standard output is {:?}, not {:?}",
                String::from_utf8_lossy(&self.seen.stdout),
                String::from_utf8_lossy(stdout)
            );
            hold!(self.next().await?, "the output ended early");
        }
        Ok(())
    }
}

/// Demands an error of that kind.
pub(super) fn refused<T: std::fmt::Debug>(
    answer: Result<T, Error>,
    kind: ErrorKind,
) -> Result<Error, Broken> {
    match answer {
        Ok(answer) => broken!("{kind} was due, and there was an answer: {answer:?}"),
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => broken!("{kind} was due, and there was {}: {error}", error.kind()),
    }
}

/// Reads all that a process wrote to standard output, to its end.
pub(super) async fn stdout_of(
    instance: &dyn groundcrew_core::instance::Instance,
    id: &ProcessId,
) -> Result<Vec<u8>, Broken> {
    let stdio = instance.attach(id, Offset(0), Role::Viewer).await?;
    let mut output = Reader::new(stdio.output, Offset(0));
    while output.next().await? {}
    Ok(output.seen.stdout)
}
