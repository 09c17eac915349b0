//! What processes of the cases do, and how that is written for a shell.

use std::{path::PathBuf, time::Duration};

use groundcrew_core::{
    command::Command,
    env::Environment,
    process::{EnvironmentSource, ProcessSpec, StdinPolicy, StdioKind, StopOrder},
    wire::OsText,
};

/// Describes a process that is not the main one, with pipes and an open input.
pub(super) fn process(command: Command, directory: PathBuf) -> ProcessSpec {
    ProcessSpec {
        command,
        directory,
        environment: EnvironmentSource::Run(Environment::new()),
        stdio: StdioKind::Pipes,
        stdin: StdinPolicy::Open,
        time_limit: None,
        idle_limit: None,
        stop: StopOrder {
            grace: Duration::from_millis(500),
            ..StopOrder::default()
        },
        no_new_privileges: false,
        main: false,
        log_limit: 64 << 20,
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Program<'a> {
    /// Ends at once with that code.
    Exit(i32),
    /// Writes a line to standard output, ends with 0.
    Out(&'a str),
    /// Writes a line to standard error, ends with 0.
    Err(&'a str),
    /// Writes what it reads to standard output, byte for byte, until its input ends; ends with 0.
    Copy,
    /// Does nothing until a signal ends it.
    Sleep,
    /// Does nothing until KILL ends it.
    Stubborn,
    /// Writes the value of a variable, followed by a line feed or not; ends with 0.
    Variable(&'a str),
    /// Is no program.
    Missing,
    /// Writes its directory; ends with 0. Needs files.
    Directory,
    /// Writes the rows and columns of its terminal, then copies. Needs terminals.
    Size,
    /// Writes `up`, and starts another that writes `heard` at TERM and ends; ends with 0 behind it. Needs trees.
    Family,
    /// Starts another that holds standard output and lives on, ends with that code. Needs trees.
    Leaves(i32),
    /// Writes `up` once another runs, in a session of its own, that only KILL ends; sleeps. Needs trees.
    Escapes,
    /// Writes all its variables, one `KEY=VALUE` a line; ends with 0.
    Environment,
    /// Makes a file of that name, in its directory, that holds `here`; ends with 0. Needs files.
    File(&'a str),
    /// Writes how many descriptors it may have open; ends with 0. Needs limits.
    OpenFiles,
}

/// Returns the command of a program where there is a shell with the usual tools.
pub fn posix(program: &Program<'_>) -> Vec<OsText> {
    let shell = |script: &str| vec!["sh".into(), "-c".into(), script.into()];
    match program {
        Program::Exit(code) => shell(&format!("exit {code}")),
        Program::Out(text) => vec!["printf".into(), "%s\\n".into(), (*text).into()],
        Program::Err(text) => {
            let mut argv = shell("printf '%s\\n' \"$1\" >&2");
            argv.extend(["sh".into(), (*text).into()]);
            argv
        }
        Program::Copy => vec!["cat".into()],
        Program::Sleep => vec!["sleep".into(), "100000".into()],
        Program::Stubborn => shell("trap '' HUP INT QUIT TERM; while :; do sleep 1000; done"),
        Program::Variable(name) => vec!["printenv".into(), (*name).into()],
        Program::Missing => vec!["no-such-program-of-the-conformance-suite".into()],
        Program::Directory => vec!["pwd".into()],
        Program::Size => shell("stty size; exec cat"),
        Program::Family => shell(
            "sh -c 'trap \"echo heard; exit 0\" TERM; echo up; while :; do sleep 0.05; done' & \
             trap : TERM; wait; wait; exit 0",
        ),
        Program::Leaves(code) => shell(&format!("sleep 100000 & exit {code}")),
        Program::Escapes => shell(
            "setsid sh -c 'trap \"\" HUP INT QUIT TERM; echo up; while :; do sleep 1000; done' & wait",
        ),
        Program::Environment => vec!["env".into()],
        Program::File(name) => {
            let mut argv = shell("printf here > \"$1\"");
            argv.extend(["sh".into(), (*name).into()]);
            argv
        }
        Program::OpenFiles => shell("ulimit -n"),
    }
}
