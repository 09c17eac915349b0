//! A call of the command that is about to be made: words, directory, environment, input.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use super::{job::Job, outcome::Outcome, terminal::Terminal, waiting::DEADLINE};

/// What is at standard input.
#[derive(Debug)]
enum Input {
    /// Nothing.
    Empty,
    /// Bytes, then the end.
    Bytes(Vec<u8>),
    /// A pipe that the test holds.
    Held,
}

/// A call to be made.
#[derive(Debug)]
#[must_use]
pub(crate) struct Call {
    words: Vec<OsString>,
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    program: PathBuf,
    before: Vec<OsString>,
    input: Input,
    limit: Duration,
}

impl Call {
    pub(super) fn new<S: AsRef<OsStr>>(
        directory: PathBuf,
        environment: Vec<(OsString, OsString)>,
        words: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            words: words.into_iter().map(|w| w.as_ref().to_owned()).collect(),
            directory,
            environment,
            program: env!("CARGO_BIN_EXE_groundcrew-under-test").into(),
            before: Vec::new(),
            input: Input::Empty,
            limit: DEADLINE,
        }
    }

    /// Makes the call in another directory.
    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self = self.without_env(name.as_ref());
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Drops a variable.
    pub(crate) fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.retain(|(known, _)| known != name.as_ref());
        self
    }

    /// Makes something go wrong inside, such as `create.before=kill9`.
    pub(crate) fn fault(self, plan: &str) -> Self {
        self.env("GROUNDCREW_FAULT", plan)
    }

    /// Has it wait at a point until the file exists; `FILE.reached` tells that it waits.
    pub(crate) fn hold(self, point: &str, file: &Path) -> Self {
        self.env("GROUNDCREW_HOLD", format!("{point}={}", file.display()))
    }

    /// Has it write down the points that it passes.
    pub(crate) fn note_points(self, file: &Path) -> Self {
        self.env("GROUNDCREW_PASSED", file)
    }

    /// Has another program start the command, with the command's path and words behind its own.
    pub(crate) fn through<S: AsRef<OsStr>>(
        mut self,
        program: impl AsRef<Path>,
        words: impl IntoIterator<Item = S>,
    ) -> Self {
        let command = std::mem::replace(&mut self.program, program.as_ref().to_owned());
        self.before = words.into_iter().map(|w| w.as_ref().to_owned()).collect();
        self.before.push(command.into());
        self
    }

    /// Gives bytes as standard input, then its end.
    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Input::Bytes(bytes.into());
        self
    }

    /// Keeps standard input open until the job's is closed.
    pub(crate) fn held_input(mut self) -> Self {
        self.input = Input::Held;
        self
    }

    /// Allows another time.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Makes the call and waits for its end.
    ///
    /// # Panics
    ///
    /// When it takes too long.
    #[track_caller]
    pub(crate) fn run(self) -> Outcome {
        let limit = self.limit;
        self.spawn().wait_within(limit)
    }

    /// Makes the call and waits for its end; `None` when it takes too long.
    pub(crate) fn try_run(self) -> Option<Outcome> {
        let limit = self.limit;
        self.spawn().try_wait_within(limit)
    }

    /// Makes the call.
    pub(crate) fn spawn(self) -> Job {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts the command without a terminal; cwd and environment are set"
        )]
        let mut command = Command::new(&self.program);
        command
            .args(&self.before)
            .args(&self.words)
            .current_dir(&self.directory)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(match self.input {
                Input::Empty => Stdio::null(),
                Input::Bytes(_) | Input::Held => Stdio::piped(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let bytes = match self.input {
            Input::Bytes(bytes) => Some(bytes),
            Input::Empty | Input::Held => None,
        };
        Job::watch(child, describe(&self.words), bytes)
    }

    /// Makes the call in a terminal of that size.
    pub(crate) fn in_terminal(self, rows: u16, columns: u16) -> Terminal {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(pty_process::Size::new(rows, columns)).unwrap();
        let child = pty_process::blocking::Command::new(&self.program)
            .args(&self.before)
            .args(&self.words)
            .current_dir(&self.directory)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .spawn(pts)
            .unwrap();
        Terminal::watch(pty, child, describe(&self.words))
    }
}

fn describe(words: &[OsString]) -> String {
    let words: Vec<_> = words
        .iter()
        .map(|word| word.display().to_string())
        .collect();
    words.join(" ")
}
