//! What can go wrong with the database, told in the kinds of the contract.

use std::path::Path;

use groundcrew_core::error::{Error, ErrorKind};
use rusqlite::{ErrorCode, ffi};

/// A failure inside a transaction: the database's, or a refusal of ours.
#[derive(Debug)]
pub(crate) enum Fault {
    /// `SQLite`'s own.
    Sql(rusqlite::Error),
    /// One with a kind already.
    Own(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Own(error)
    }
}

impl Fault {
    /// Makes the error that callers see.
    pub(crate) fn into_error(self, path: &Path, what: &'static str) -> Error {
        match self {
            Self::Sql(error) => sql(path, what, error),
            Self::Own(error)
                if error.kind() == ErrorKind::Corrupt && error.get("path").is_none() =>
            {
                error.with("path", path.display()).with("hint", DAMAGED)
            }
            Self::Own(error) => error,
        }
    }
}

const DAMAGED: &str = "nothing was changed; keep a copy of the directory, then restore state.db from a backup or set GROUNDCREW_HOME to a new directory";

/// Describes damage; the path and the advice are added at the boundary.
pub(crate) fn corrupt(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

/// Describes damage of a file.
pub(crate) fn corrupt_file(path: &Path, message: &'static str) -> Error {
    Fault::Own(corrupt(message)).into_error(path, "")
}

/// Gives an error of `SQLite` its kind.
///
/// Every statement is fixed and checks its premises in its own transaction, so a broken constraint, a missing table or
/// a value of the wrong type can only mean that the file is damaged.
pub(crate) fn sql(path: &Path, what: &'static str, error: rusqlite::Error) -> Error {
    let (kind, why, hint) = match &error {
        rusqlite::Error::SqliteFailure(failure, _) => of_code(*failure),
        _ => (ErrorKind::Corrupt, "the database is damaged", DAMAGED),
    };
    Error::new(kind, format!("cannot {what}: {why}"))
        .with("path", path.display())
        .with("hint", hint)
        .with_source(error)
}

fn of_code(failure: ffi::Error) -> (ErrorKind, &'static str, &'static str) {
    const ROOM: &str = "free some space on the file system that holds it, then try again";
    match failure.code {
        ErrorCode::DiskFull => (ErrorKind::ResourceExhausted, "the disk is full", ROOM),
        ErrorCode::OutOfMemory => (
            ErrorKind::ResourceExhausted,
            "there is not enough memory",
            "free some memory, then try again",
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => (
            ErrorKind::PermissionDenied,
            "the database is read-only",
            "make the file and its directory writable, or set GROUNDCREW_HOME to a writable directory",
        ),
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => (
            ErrorKind::Unavailable,
            "another process keeps the database locked",
            "try again when it is done",
        ),
        ErrorCode::CannotOpen => (
            ErrorKind::Unavailable,
            "the database cannot be opened",
            "see that the file exists, and that it and its directory are accessible",
        ),
        ErrorCode::SystemIoFailure => match failure.extended_code {
            ffi::SQLITE_IOERR_SHMSIZE => (ErrorKind::ResourceExhausted, "the disk is full", ROOM),
            ffi::SQLITE_IOERR_NOMEM => (
                ErrorKind::ResourceExhausted,
                "there is not enough memory",
                "free some memory, then try again",
            ),
            ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_CORRUPTFS => {
                (ErrorKind::Corrupt, "the database is damaged", DAMAGED)
            }
            _ => (
                ErrorKind::Unexpected,
                "the disk reports an error",
                "look into the kernel's log",
            ),
        },
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => (
            ErrorKind::Cancelled,
            "the operation was interrupted",
            "try again",
        ),
        _ => (ErrorKind::Corrupt, "the database is damaged", DAMAGED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: i32) -> Error {
        sql(
            Path::new("/x/state.db"),
            "write",
            rusqlite::Error::SqliteFailure(ffi::Error::new(code), None),
        )
    }

    #[test]
    fn f131_f132_f133_each_failure_of_the_disk_has_its_kind() {
        for (code, kind, retryable) in [
            (ffi::SQLITE_FULL, ErrorKind::ResourceExhausted, true),
            (
                ffi::SQLITE_IOERR_SHMSIZE,
                ErrorKind::ResourceExhausted,
                true,
            ),
            (ffi::SQLITE_READONLY, ErrorKind::PermissionDenied, false),
            (ffi::SQLITE_BUSY, ErrorKind::Unavailable, true),
            (ffi::SQLITE_BUSY_RECOVERY, ErrorKind::Unavailable, true),
            (ffi::SQLITE_PROTOCOL, ErrorKind::Unavailable, true),
            (ffi::SQLITE_CORRUPT, ErrorKind::Corrupt, false),
            (ffi::SQLITE_NOTADB, ErrorKind::Corrupt, false),
            (ffi::SQLITE_ERROR, ErrorKind::Corrupt, false),
        ] {
            let error = of(code);
            assert_eq!(error.kind(), kind, "{code}");
            assert_eq!(error.is_retryable(), retryable, "{code}");
            assert_eq!(error.get("path"), Some("/x/state.db"));
            assert!(error.get("hint").is_some());
        }
    }
}
