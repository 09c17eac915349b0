//! What it means when the kernel refuses to start a program.

use std::{io, path::Path};

use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
    process::ProcessSpec,
};

/// Says what a failed start means.
pub(super) fn explain(
    e: io::Error,
    program: &Path,
    spec: &ProcessSpec,
    environment: &Environment,
) -> Error {
    use rustix::io::Errno;
    let code = Errno::from_io_error(&e);
    let (kind, message) = match code {
        Some(Errno::NOENT) => (
            ErrorKind::InterpreterNotFound,
            "the program or what it is run by does not exist",
        ),
        Some(Errno::NOEXEC) => (
            ErrorKind::NotExecutable,
            "the program is no program that this machine can execute",
        ),
        Some(Errno::ACCESS) => (
            ErrorKind::NotExecutable,
            "the program may not be executed; check permissions and mount options",
        ),
        Some(Errno::TXTBSY) => (ErrorKind::Unavailable, "the program is being written"),
        Some(Errno::TOOBIG) => (
            ErrorKind::TooLarge,
            "arguments and environment are larger than the kernel takes",
        ),
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOSPC) => (
            ErrorKind::ResourceExhausted,
            "the system has no room for another process",
        ),
        _ => return Error::io("failed to start the program", e).with("program", program.display()),
    };
    let mut error = Error::new(kind, message).with("program", program.display());
    if kind == ErrorKind::TooLarge {
        let variables: usize = environment
            .iter()
            .map(|(key, value)| key.as_bytes().len() + value.len() + 2 + size_of::<usize>())
            .sum();
        error = error
            .with("arguments_bytes", spec.command.kernel_size())
            .with("environment_bytes", variables);
    }
    error.with_source(e)
}
