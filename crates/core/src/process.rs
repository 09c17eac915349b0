//! What a process inside an instance is told, and what is known of it: plain data that crosses every boundary.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    command::Command,
    env::Environment,
    error::{Error, ErrorKind},
    id::ProcessId,
    wire,
};

/// Where the environment of a process comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentSource {
    /// The run's snapshot, which the instance holds, with these variables laid over it.
    Run(Environment),
    /// Exactly these variables and no other.
    Exact(Environment),
}

/// What stands at a process's standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdioKind {
    /// Three pipes; standard output and standard error are recorded apart.
    Pipes,
    /// One terminal of that size; standard error merges into standard output.
    Terminal(TerminalSize),
}

/// Whether a process gets input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinPolicy {
    /// Standard input is at its end from the first read on.
    Empty,
    /// Standard input stays open until [`close_stdin`](crate::instance::Instance::close_stdin).
    Open,
}

/// The size of a terminal in character cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// How a process and everything it started are ended, one measure after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// Whether standard input is closed first, as a polite hint.
    pub close_stdin: bool,
    /// The signal that asks for an end.
    pub signal: Signal,
    /// How long the tree may take before it is killed.
    #[serde(with = "wire::millis")]
    pub grace: Duration,
}

impl Default for StopOrder {
    fn default() -> Self {
        Self {
            close_stdin: true,
            signal: Signal::TERM,
            grace: Duration::from_secs(10),
        }
    }
}

/// How to start a process in an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The exact argument vector; the first one is resolved against the `PATH` of the process's environment.
    pub command: Command,
    /// The working directory, absolute, as seen inside the instance.
    #[serde(with = "wire::path")]
    pub directory: PathBuf,
    /// Its environment.
    pub environment: EnvironmentSource,
    /// Its standard streams.
    pub stdio: StdioKind,
    /// Whether it gets input.
    pub stdin: StdinPolicy,
    /// Ends it this long after its start, with [`EndCause::TimedOut`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Milliseconds>,
    /// Ends it once it wrote nothing and got no input for that long, with [`EndCause::Idle`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit: Option<Milliseconds>,
    /// How it is ended.
    pub stop: StopOrder,
    /// Forbids gaining privileges through set-uid programs.
    pub no_new_privileges: bool,
    /// Whether the instance ends when this process has ended: the agent.
    pub main: bool,
    /// The most bytes of output that are kept; the oldest go first.
    pub log_limit: u64,
}

/// What is kept of a process's output unless a request says otherwise: 1 GiB.
pub const DEFAULT_LOG_LIMIT: u64 = 1 << 30;

/// A duration that is stored as whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Milliseconds(#[serde(with = "wire::millis")] pub Duration);

/// What was really started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The absolute path of the program, as seen inside the instance.
    #[serde(with = "wire::path")]
    pub program: PathBuf,
    /// Its process number, as seen inside the instance.
    pub pid: u32,
}

/// A signal, by its Linux number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signal(pub i32);

impl Signal {
    /// The terminal is gone.
    pub const HUP: Self = Self(1);
    /// Interrupt, as by Ctrl-C.
    pub const INT: Self = Self(2);
    /// Quit.
    pub const QUIT: Self = Self(3);
    /// Kill; cannot be caught.
    pub const KILL: Self = Self(9);
    /// Please end.
    pub const TERM: Self = Self(15);

    const NAMES: [(i32, &'static str); 15] = [
        (1, "HUP"),
        (2, "INT"),
        (3, "QUIT"),
        (4, "ILL"),
        (6, "ABRT"),
        (7, "BUS"),
        (8, "FPE"),
        (9, "KILL"),
        (10, "USR1"),
        (11, "SEGV"),
        (12, "USR2"),
        (13, "PIPE"),
        (14, "ALRM"),
        (15, "TERM"),
        (24, "XCPU"),
    ];
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl FromStr for Signal {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some((number, _)) = Self::NAMES.iter().find(|(_, known)| *known == name) {
            return Ok(Self(*number));
        }
        match text.parse() {
            Ok(number) if (1..=64).contains(&number) => Ok(Self(number)),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "no such signal; use a name such as TERM or a number from 1 to 64",
            )
            .with("signal", text)),
        }
    }
}

/// Why a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// By itself, or by a signal that was not ours.
    Itself,
    /// It was stopped on request.
    Stopped,
    /// Its time limit passed.
    TimedOut,
    /// It wrote nothing and got no input for as long as its idle limit.
    Idle,
    /// No controller was connected for longer than the lease.
    LeaseLapsed,
    /// The kernel ended it, because the memory that it may use had run out.
    OutOfMemory,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitStatus {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<Signal>,
    /// Whether it dumped core.
    pub core_dumped: bool,
    /// Why.
    pub cause: EndCause,
}

impl ExitStatus {
    /// Returns the status of a process that ended by itself with `code`.
    pub const fn exited(code: i32) -> Self {
        Self {
            code: Some(code),
            signal: None,
            core_dumped: false,
            cause: EndCause::Itself,
        }
    }

    /// Returns the code that a shell would show: the exit code, or 128 and the signal's number.
    pub fn shell_code(self) -> i32 {
        self.code
            .unwrap_or_else(|| 128 + self.signal.map_or(0, |s| s.0))
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (_, Some(signal)) => write!(f, "ended by {signal}")?,
            (Some(code), None) => write!(f, "exit code {code}")?,
            (None, None) => f.write_str("ended")?,
        }
        if self.core_dumped {
            f.write_str(", core dumped")?;
        }
        f.write_str(match self.cause {
            EndCause::Itself => "",
            EndCause::Stopped => " (stopped)",
            EndCause::TimedOut => " (time limit reached)",
            EndCause::Idle => " (idle limit reached)",
            EndCause::LeaseLapsed => " (no controller within the lease)",
            EndCause::OutOfMemory => " (out of memory; raise --memory)",
        })
    }
}

/// What is known of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Its name.
    pub id: ProcessId,
    /// Whether it is the one whose end ends the instance.
    pub main: bool,
    /// Where it is in its life.
    pub phase: ProcessPhase,
    /// The first offset that can still be replayed.
    pub log_start: Offset,
    /// The offset behind the last byte of output.
    pub log_end: Offset,
}

/// Where a process is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessPhase {
    /// It runs.
    Running(Started),
    /// It ended.
    Ended(ExitStatus),
    /// Whoever watched it is gone and left no word of its end.
    Lost,
}

/// A position in a process's output: how many bytes, of standard output and standard error together, come before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A piece of a process's recorded output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it begins; the next frame begins where its bytes end.
    pub offset: Offset,
    /// When it was recorded, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it holds.
    pub kind: FrameKind,
}

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameKind {
    /// Standard output, or the terminal.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// That many bytes before the next frame are no longer kept.
    Truncated(u64),
    /// The process ended; the last frame.
    Exit(ExitStatus),
}

/// What an attached client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read output only.
    Viewer,
    /// Also write input; a later writer takes over from an earlier one.
    Writer,
}

/// How long an instance lives on without a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lease {
    /// For ever.
    Unlimited,
    /// That long after the last control connection was lost, or after the start where there was none yet.
    After(#[serde(with = "wire::millis")] Duration),
}

impl Lease {
    /// The lease of every instance until its launch is committed.
    pub const UNTIL_COMMIT: Self = Self::After(Duration::from_secs(10));
    /// The lease of a run whose caller stays attached.
    pub const ATTACHED: Self = Self::After(Duration::from_mins(15));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f020_exit_statuses_read_as_a_shell_shows_them() {
        assert_eq!(ExitStatus::exited(7).shell_code(), 7);
        let killed = ExitStatus {
            code: None,
            signal: Some(Signal::KILL),
            core_dumped: false,
            cause: EndCause::Stopped,
        };
        assert_eq!(killed.shell_code(), 137);
        assert_eq!(killed.to_string(), "ended by SIGKILL (stopped)");
    }

    #[test]
    fn signals_are_known_by_name_and_number() {
        assert_eq!("sigterm".parse::<Signal>().unwrap(), Signal::TERM);
        assert_eq!("9".parse::<Signal>().unwrap(), Signal::KILL);
        assert!("0".parse::<Signal>().is_err());
        assert!("NOPE".parse::<Signal>().is_err());
    }
}
