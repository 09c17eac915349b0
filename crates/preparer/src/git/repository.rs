//! Finds and opens repositories; never reads a `GIT_*` variable, never runs anything.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use git2::{ErrorCode, Repository, RepositoryOpenFlags};
use groundcrew_core::error::{Error, ErrorKind};

use crate::files::id::FileId;

const NO_CEILING: [&OsStr; 0] = [];

/// A repository that a person named.
pub(crate) struct Source {
    /// It, opened as the work tree that the path is in.
    pub(crate) repository: Repository,
    /// The git directory that all its worktrees share.
    pub(crate) common: PathBuf,
    /// Which directory that is.
    pub(crate) common_id: FileId,
    /// The work tree, or the git directory of a bare one.
    pub(crate) place: PathBuf,
    /// Where in the work tree the path points.
    pub(crate) subdirectory: PathBuf,
}

/// Turns an error of libgit2 into ours.
pub(crate) fn git_error(message: &'static str, error: git2::Error) -> Error {
    let kind = match error.code() {
        ErrorCode::NotFound => ErrorKind::NotFound,
        ErrorCode::Ambiguous => ErrorKind::Ambiguous,
        ErrorCode::Exists => ErrorKind::AlreadyExists,
        ErrorCode::Owner => ErrorKind::PermissionDenied,
        ErrorCode::Locked => ErrorKind::Unavailable,
        ErrorCode::Modified => ErrorKind::Conflict,
        _ => ErrorKind::Unexpected,
    };
    Error::new(kind, message).with_source(error)
}

/// Opens the common git directory of a repository, without a work tree.
pub(crate) fn open_common(common: &Path) -> Result<Repository, Error> {
    Repository::open_bare(common).map_err(|error| open_error(common, error))
}

/// Opens a git directory that is known exactly.
pub(crate) fn open_exact(git_dir: &Path) -> Result<Repository, Error> {
    Repository::open_ext(
        git_dir,
        RepositoryOpenFlags::NO_SEARCH | RepositoryOpenFlags::NO_DOTGIT,
        NO_CEILING,
    )
    .map_err(|error| open_error(git_dir, error))
}

/// Finds the repository that a path is in.
///
/// # Errors
///
/// * `InvalidInput` when there is no repository there.
/// * `PermissionDenied` when it is another user's.
/// * `Unsupported` when it needs what libgit2 cannot do: the reftable format, SHA-256, a partial clone.
pub(crate) fn discover(path: &Path) -> Result<Source, Error> {
    if !path.is_absolute() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the path of a repository must be absolute",
        )
        .with("path", path.display()));
    }
    let path = path.canonicalize().map_err(|error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound {
            ErrorKind::InvalidInput
        } else {
            ErrorKind::PermissionDenied
        };
        Error::new(kind, "the path of the repository cannot be used")
            .with("path", path.display())
            .with_source(error)
    })?;
    let repository = Repository::open_ext(&path, RepositoryOpenFlags::empty(), NO_CEILING)
        .map_err(|error| open_error(&path, error))?;
    let common = real(repository.commondir())?;
    let common_id = FileId::of(&common)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "the repository is gone").with("path", common.display())
    })?;
    let place = match repository.workdir() {
        Some(tree) => real(tree)?,
        None => real(repository.path())?,
    };
    let subdirectory = path
        .strip_prefix(&place)
        .ok()
        // A path inside the git directory is no place in the work tree.
        .filter(|_| repository.workdir().is_some() && !path.starts_with(&common))
        .map(Path::to_owned)
        .unwrap_or_default();
    Ok(Source {
        repository,
        common,
        common_id,
        place,
        subdirectory,
    })
}

fn real(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| {
        Error::io("failed to resolve a path of the repository", error).with("path", path.display())
    })
}

fn open_error(path: &Path, error: git2::Error) -> Error {
    let text = error.message().to_owned();
    let (kind, message) = if error.code() == ErrorCode::Owner {
        (
            ErrorKind::PermissionDenied,
            "the repository belongs to another user; add its path to `safe.directory` if you trust it",
        )
    } else if text.contains("extension")
        || text.contains("object format")
        || text.contains("repository version")
    {
        (
            ErrorKind::Unsupported,
            "the repository uses a format that cannot be read here (reftable, SHA-256 or a partial clone); use a plain clone of it",
        )
    } else if error.code() == ErrorCode::NotFound {
        (
            ErrorKind::InvalidInput,
            "not a git repository; run `git init` there, or use the executor `local`",
        )
    } else {
        (
            ErrorKind::InvalidInput,
            "the git repository cannot be opened",
        )
    };
    Error::new(kind, message)
        .with("path", path.display())
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c40_what_is_no_repository_is_named_with_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let error = discover(root.path()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("git init"), "{error}");
        assert!(error.get("path").is_some());
        assert!(discover(Path::new("relative")).is_err());
        assert!(discover(&root.path().join("missing")).is_err());
    }
}
