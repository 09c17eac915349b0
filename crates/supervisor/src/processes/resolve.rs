//! Finds the program of a command and tells apart why it cannot run, before anything is started.
//!
//! The kernel says "no such file" for a missing program, a missing interpreter and a missing directory alike.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
};
use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Where programs are looked for when the environment has no `PATH` at all.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// How many interpreters of interpreters the kernel follows.
const MAX_INTERPRETERS: usize = 5;

/// How much of a file the kernel looks at for an interpreter.
const FIRST_LINE: usize = 256;

/// Checks that a directory can be entered.
pub(super) fn directory(path: &Path) -> Result<(), Error> {
    if !path.is_absolute() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the directory of a process must be absolute",
        )
        .with("directory", path.display()));
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|e| {
                Error::io("the directory of the process cannot be entered", e.into())
                    .with("directory", path.display())
            }),
        Ok(_) => Err(Error::new(
            ErrorKind::DirectoryNotFound,
            "the directory of the process is not a directory",
        )
        .with("directory", path.display())),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(Error::new(
                ErrorKind::DirectoryNotFound,
                "the directory of the process does not exist",
            )
            .with("directory", path.display()))
        }
        Err(e) => Err(Error::io("the directory of the process cannot be read", e)
            .with("directory", path.display())),
    }
}

fn not_executable(path: &Path, why: &'static str) -> Error {
    Error::new(ErrorKind::NotExecutable, why).with("program", path.display())
}

/// Returns the absolute path of a program, as the process would find it.
///
/// * A name with a slash is relative to `directory`; any other is looked for in `PATH` of `environment`.
/// * Entries of `PATH` that are empty or relative are ignored: they would mean the workspace.
///
/// # Errors
///
/// `ProgramNotFound`, `InterpreterNotFound` and `NotExecutable`, naming what is missing.
pub(super) fn program(
    name: &OsStr,
    directory: &Path,
    environment: &Environment,
) -> Result<PathBuf, Error> {
    let found = if name.as_bytes().contains(&b'/') {
        let path: PathBuf = directory.join(name).components().collect();
        executable(&path)?;
        path
    } else {
        search(name, environment.get("PATH").unwrap_or(DEFAULT_PATH))?
    };
    interpreter(&found, directory)?;
    Ok(found)
}

fn executable(path: &Path) -> Result<(), Error> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Error::new(ErrorKind::ProgramNotFound, "the program does not exist")
                .with("program", path.display())
        }
        _ => Error::io("the program cannot be looked at", e).with("program", path.display()),
    })?;
    if meta.is_dir() {
        return Err(not_executable(path, "the program is a directory"));
    }
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(|e| {
        not_executable(path, "the program is not executable; check its permissions")
            .with_source(io::Error::from(e))
    })
}

fn search(name: &OsStr, path: &[u8]) -> Result<PathBuf, Error> {
    let mut refused = None;
    for entry in path
        .split(|b| *b == b':')
        .filter(|entry| entry.starts_with(b"/"))
    {
        let candidate = Path::new(OsStr::from_bytes(entry)).join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            // As a shell does: a later entry may have one that can be executed.
            Err(e) if e.kind() != ErrorKind::ProgramNotFound => refused = refused.or(Some(e)),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| {
        Error::new(
            ErrorKind::ProgramNotFound,
            "the program is in no directory of PATH",
        )
        .with("program", name.display())
        .with("searched", OsStr::from_bytes(path).display())
    }))
}

fn interpreter(program: &Path, directory: &Path) -> Result<(), Error> {
    let mut current = program.to_owned();
    for _ in 0..MAX_INTERPRETERS {
        // A program that may be executed and not read is the kernel's to judge.
        let Ok(first) = first_bytes(&current) else {
            return Ok(());
        };
        let Some(next) = first.strip_prefix(b"#!") else {
            return elf(&current);
        };
        let line = next.split(|b| *b == b'\n').next().unwrap_or_default();
        let name = line
            .split(|b| matches!(b, b' ' | b'\t' | 0))
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        if name.is_empty() {
            return Err(not_executable(
                program,
                "the first line of the program names no interpreter",
            ));
        }
        let path = directory.join(OsString::from_vec(name.to_vec()));
        executable(&path).map_err(|e| {
            let (kind, message) = match e.kind() {
                ErrorKind::ProgramNotFound if name.ends_with(b"\r") => (
                    ErrorKind::InterpreterNotFound,
                    "the interpreter of the program does not exist: its first line ends in a carriage return; store it with Unix line ends",
                ),
                ErrorKind::ProgramNotFound => (ErrorKind::InterpreterNotFound, "the interpreter of the program does not exist"),
                _ => (ErrorKind::NotExecutable, "the interpreter of the program is not executable"),
            };
            missing(kind, message, program, &path)
        })?;
        current = path;
    }
    Ok(())
}

fn missing(kind: ErrorKind, message: &'static str, program: &Path, interpreter: &Path) -> Error {
    Error::new(kind, message)
        .with("program", program.display())
        .with("interpreter", interpreter.to_string_lossy().escape_debug())
}

fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut first = Vec::new();
    std::fs::File::open(path)?
        .take(FIRST_LINE as u64)
        .read_to_end(&mut first)?;
    Ok(first)
}

/// Checks that the loader which a binary names exists; a file that is no such binary is the kernel's to judge.
fn elf(program: &Path) -> Result<(), Error> {
    let Some(loader) = loader(program).ok().flatten() else {
        return Ok(());
    };
    if std::fs::metadata(&loader).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Err(missing(
            ErrorKind::InterpreterNotFound,
            "the loader of the program does not exist; it was built for another system",
            program,
            &loader,
        ));
    }
    Ok(())
}

/// Reads the loader of a 64-bit binary of our byte order.
fn loader(program: &Path) -> io::Result<Option<PathBuf>> {
    use std::os::unix::fs::FileExt as _;
    const LOADER: u32 = 3;
    let file = std::fs::File::open(program)?;
    let mut head = [0; 64];
    if file.read_at(&mut head, 0)? < head.len() || !head.starts_with(b"\x7fELF\x02") {
        return Ok(None);
    }
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (Ok(table), entry_size, entries) = (
        head[32..40].try_into().map(u64::from_le_bytes),
        u16_at(54),
        u16_at(56),
    ) else {
        return Ok(None);
    };
    for index in 0..entries.min(64) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table + u64::from(index) * u64::from(entry_size))?;
        let number = |at: usize| entry[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        if entry[..4] != LOADER.to_le_bytes() {
            continue;
        }
        let mut name = vec![0; usize::try_from(number(32)).unwrap_or(0).min(4096)];
        file.read_exact_at(&mut name, number(8))?;
        name.retain(|b| *b != 0);
        return Ok(Some(OsString::from_vec(name).into()));
    }
    Ok(None)
}
