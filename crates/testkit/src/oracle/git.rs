//! Repositories: what git lists, and what lies in its directory whether git lists it or not.

use std::{
    fs,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use groundcrew_core::error::{Error, ErrorKind};

use super::{
    files::{contents, failed, hash, walk},
    snapshot::{Kind, Snapshot, in_repository},
};

/// Looks at a repository, bare or not.
pub(super) fn look(repository: &Path, snapshot: &mut Snapshot) -> Result<(), Error> {
    let directory = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
    let directory = path(git(repository, &directory)?);
    let bare = git(repository, &["rev-parse", "--is-bare-repository"])?;
    if bare.trim_ascii() != b"true" {
        contents(repository, Kind::Checkout, snapshot)?;
    }
    listed(repository, snapshot)?;
    entries(repository, &directory, snapshot)?;
    inside(repository, &directory, snapshot)
}

/// Runs git so that it writes nothing and nobody's configuration plays a part.
fn git(repository: &Path, arguments: &[&str]) -> Result<Vec<u8>, Error> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place of the crate that starts a program"
    )]
    let mut command = Command::new("git");
    for variable in [
        "GIT_DIR",
        "GIT_COMMON_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_CONFIG_COUNT",
    ] {
        command.env_remove(variable);
    }
    let output = command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("LC_ALL", "C")
        .arg("-C")
        .arg(repository)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::io("failed to run git", e))?;
    // `config --get-regexp` answers 1 when there is nothing.
    let nothing = arguments[0] == "config" && output.status.code() == Some(1);
    if !output.status.success() && !nothing {
        return Err(
            Error::new(ErrorKind::Unexpected, "git cannot list the repository")
                .with("repository", repository.display())
                .with("arguments", arguments.join(" "))
                .with_source(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        );
    }
    Ok(output.stdout)
}

fn path(mut line: Vec<u8>) -> PathBuf {
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    std::ffi::OsString::from_vec(line).into()
}

fn listed(repository: &Path, snapshot: &mut Snapshot) -> Result<(), Error> {
    let worktrees = git(repository, &["worktree", "list", "--porcelain", "-z"])?;
    // Each line ends with NUL; a record begins with its `worktree` line.
    let mut lines = worktrees.split(|byte| *byte == 0).peekable();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix(b"worktree ") else {
            continue;
        };
        let mut rest = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.is_empty()) {
            rest.push(line.escape_ascii().to_string());
        }
        let name = in_repository(repository, &name.escape_ascii().to_string());
        snapshot.see(Kind::Worktree, name, rest.join("; "));
    }
    let format = "--format=%(refname)%00%(objectname) %(symref)";
    let refs = git(repository, &["for-each-ref", format])?;
    for line in String::from_utf8_lossy(&refs).lines() {
        if let Some((name, value)) = line.split_once('\0') {
            snapshot.see(Kind::Ref, in_repository(repository, name), value.trim());
        }
    }
    let settings = ["config", "--local", "--null", "--get-regexp", r"^branch\."];
    let settings = git(repository, &settings)?;
    for setting in String::from_utf8_lossy(&settings).split_terminator('\0') {
        let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
        snapshot.see(Kind::BranchSetting, in_repository(repository, key), value);
    }
    Ok(())
}

/// Notes the raw entries of worktrees, also those that git cannot read.
fn entries(repository: &Path, directory: &Path, snapshot: &mut Snapshot) -> Result<(), Error> {
    let worktrees = directory.join("worktrees");
    walk(&worktrees, &mut |path, _| {
        let name = path.file_name().unwrap_or_default();
        let locked = match fs::read_to_string(path.join("locked")) {
            Ok(reason) => format!("locked: {}", reason.trim()),
            Err(_) => String::new(),
        };
        let name = in_repository(
            repository,
            &name.as_encoded_bytes().escape_ascii().to_string(),
        );
        snapshot.see(Kind::WorktreeEntry, name, locked);
        Ok(false)
    })
}

/// Notes locks, logs, configuration and hooks in the git directory.
fn inside(repository: &Path, directory: &Path, snapshot: &mut Snapshot) -> Result<(), Error> {
    let head = directory.join("HEAD");
    let content = fs::read(&head).map_err(|e| failed(&head, e))?;
    let content = String::from_utf8_lossy(&content).trim().to_owned();
    snapshot.see(Kind::Ref, in_repository(repository, "HEAD"), content);
    walk(directory, &mut |path, metadata| {
        let inner = path.strip_prefix(directory).unwrap_or(path);
        let name = inner
            .as_os_str()
            .as_encoded_bytes()
            .escape_ascii()
            .to_string();
        let seen = |name: &str| in_repository(repository, name);
        if metadata.is_dir() {
            return Ok(true);
        }
        if inner
            .extension()
            .is_some_and(|extension| extension == "lock")
        {
            snapshot.see(Kind::Lock, seen(&name), "");
        } else if let Some(reference) = name.strip_prefix("logs/") {
            snapshot.see(Kind::Reflog, seen(reference), "");
        } else if matches!(name.as_str(), "config" | "config.worktree") {
            snapshot.see(Kind::Config, seen(&name), hash(path)?);
        } else if name.starts_with("hooks/") || name.starts_with("info/") {
            snapshot.see(Kind::Hook, seen(&name), hash(path)?);
        }
        Ok(false)
    })
}
