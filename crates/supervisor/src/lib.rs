#![doc = include_str!("../README.md")]

pub mod archive;
mod boot;
mod bridge;
mod client;
pub mod log;
mod note;
pub mod processes;
mod removal;
mod server;
pub mod socket;
mod spawn;
mod start;
pub mod tree;
mod wire;

use std::{
    ffi::{OsStr, OsString},
    io::Write as _,
    path::Path,
    process::ExitCode,
};

pub use boot::boot_id;
pub use client::{
    Connector, ControlStream, LoggedInstance, Remains, SupervisorInstance, UnixConnector,
};
pub use removal::{clear_tree, remove_tree};
pub use spawn::{SupervisorSource, spawn};
pub use start::{
    CGROUP_FILE, SOCKET, START_FILE, START_FILE_DRAFT, SUPERVISOR_LOG, StartFile, StartLock,
};
pub use tree::{check_limits, end_remains};

/// The exit code for arguments that nobody understands.
const USAGE: u8 = 2;

/// Runs the supervisor if this process was started to be one, and returns its exit code.
///
/// It must be the first line of `main` of every program that uses [`SupervisorSource::SelfExec`]: before any runtime,
/// thread or open file. It is one if the name that it was started by ends with `groundcrew-supervisor`, so that it can be
/// given that name in a place of its own where `argv[0]` cannot be chosen.
pub fn run_if_invoked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if Path::new(&name).file_name() == Some(OsStr::new(spawn::ARGV0)) {
        Some(run(arguments))
    } else {
        None
    }
}

/// Runs the supervisor on the arguments `serve <start file>` or `bridge <socket>`.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let words: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    match words.as_slice() {
        [verb, path] if *verb == "serve" => server::run(path),
        [verb, path] if *verb == "bridge" => match bridge::run(path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                note::note(format_args!(
                    "failed to carry the control connection: {error}"
                ));
                ExitCode::FAILURE
            }
        },
        [flag] if *flag == "--version" => {
            let text = format!("groundcrew-supervisor {}\n", env!("CARGO_PKG_VERSION"));
            match std::io::stdout().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        _ => {
            note::note(format_args!(
                "usage: groundcrew-supervisor serve START_FILE | bridge SOCKET | --version"
            ));
            ExitCode::from(USAGE)
        }
    }
}
