//! The git repository in a task's directory: made without templates, its marker hidden from git.
//!
//! An agent may have written all of it: no link is followed, and a git directory that is one is refused.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
};

use git2::{Repository, RepositoryInitOptions, Signature};
use groundcrew_core::error::{Error, ErrorKind};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, statat},
    io::Errno,
};

use crate::{
    files::{beneath, marker::MARKER},
    git::{
        identity::{EMAIL, NAME},
        repository::{git_error, open_exact},
    },
};

/// The longest exclude file that is read.
const MAX_EXCLUDE: u64 = 1024 * 1024;

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::PermissionDenied, what)
}

/// Makes the repository unless there is one, and hides the marker from it.
///
/// # Errors
///
/// `PermissionDenied` when `.git`, its `info` or the exclude file is a link or of another kind.
pub(super) fn init(directory: &OwnedFd, path: &Path) -> Result<(), Error> {
    let failed = |error| git_error("failed to make the repository of the task", error);
    match statat(directory, ".git", AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {}
        Ok(_) => {
            return Err(invalid("invalid git directory: it is a link or a file")
                .with("path", path.join(".git").display()));
        }
        Err(Errno::NOENT) => {
            let mut options = RepositoryInitOptions::new();
            options
                .external_template(false)
                .no_reinit(true)
                .mkdir(false)
                .mkpath(false)
                .initial_head("main");
            let repository = Repository::init_opts(path, &options).map_err(failed)?;
            first_commit(&repository).map_err(failed)?;
        }
        Err(errno) => {
            return Err(Error::io(
                "failed to look at the git directory",
                errno.into(),
            ));
        }
    }
    exclude(directory).map_err(|error| error.with("path", path.display()))
}

/// Makes an empty first commit, so that `HEAD` names something.
fn first_commit(repository: &Repository) -> Result<(), git2::Error> {
    let who = Signature::now(NAME, EMAIL)?;
    let tree = repository.find_tree(repository.treebuilder(None)?.write()?)?;
    repository.commit(Some("HEAD"), &who, &who, "Begin", &tree, &[])?;
    Ok(())
}

/// Adds the marker to the exclude file, once.
fn exclude(directory: &OwnedFd) -> Result<(), Error> {
    let io = |errno: Errno| Error::io("failed to edit the git exclude file", errno.into());
    let wrong = |errno: Errno, what: &'static str| match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => invalid(what),
        errno => io(errno),
    };
    let git = beneath::open_directory(directory, OsStr::new(".git"))
        .map_err(|errno| wrong(errno, "invalid git directory: it is a link or a file"))?;
    match mkdirat(&git, "info", Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(io(errno)),
    }
    let info = beneath::open_directory(&git, OsStr::new("info")).map_err(|errno| {
        wrong(
            errno,
            "invalid git exclude file: its directory is a link or a file",
        )
    })?;
    // Without O_NONBLOCK a planted FIFO would hold us up.
    let file = beneath::open(
        &info,
        OsStr::new("exclude"),
        OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(|errno| match errno {
        Errno::ISDIR => invalid("invalid git exclude file: it is a directory"),
        errno => wrong(errno, "invalid git exclude file: it is a link"),
    })?;
    let stat = fstat(&file).map_err(io)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
        return Err(invalid(
            "invalid git exclude file: it is no regular file of its own",
        ));
    }
    let edit = |error| Error::io("failed to edit the git exclude file", error);
    let mut file = File::from(file);
    let mut text = Vec::new();
    (&mut file)
        .take(MAX_EXCLUDE)
        .read_to_end(&mut text)
        .map_err(edit)?;
    let line = format!("/{MARKER}");
    if text
        .split(|byte| *byte == b'\n')
        .any(|l| l == line.as_bytes())
    {
        return Ok(());
    }
    let gap = if text.is_empty() || text.ends_with(b"\n") {
        ""
    } else {
        "\n"
    };
    file.write_all(format!("{gap}{line}\n").as_bytes())
        .map_err(edit)
}

/// Tells whether nothing was done in it since it was made.
pub(super) fn is_fresh(path: &Path) -> Result<bool, Error> {
    let failed = |error| git_error("failed to read the repository of the task", error);
    let repository = open_exact(&path.join(".git"))?;
    let mut references = 0;
    for reference in repository.references().map_err(failed)? {
        reference.map_err(failed)?;
        references += 1;
    }
    let head = repository
        .head()
        .and_then(|head| head.peel_to_commit())
        .map_err(failed)?;
    let empty = head.tree().map_err(failed)?.is_empty();
    let index = path.join(".git/index").symlink_metadata().is_ok()
        && !repository.index().map_err(failed)?.is_empty();
    let commits = repository.reflog("HEAD").map_err(failed)?.len();
    Ok(references == 1 && head.parent_count() == 0 && empty && !index && commits <= 1)
}
