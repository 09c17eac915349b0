//! Makes a private clone: a git directory of its own, with nothing of its source that could be executed.
//!
//! Hooks, filters, aliases and everything else that names a program stay behind; so do the templates of the user.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use git2::{Repository, RepositoryInitOptions};
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    workspace::CloneObjects,
};

use super::{
    maker::{Maker, git_directory},
    state::PartState,
};
use crate::git::{
    pack,
    repository::{git_error, open_exact},
};

/// How often copying begins again because the source's files were put together meanwhile.
const TRIES: usize = 50;

/// Makes a clone without files, on its branch.
pub(super) async fn make(maker: &Maker<'_>, objects: CloneObjects) -> Result<(), Error> {
    maker.go_on()?;
    maker.tree().await?;
    maker.cx.progress.line(match objects {
        CloneObjects::Copied => "copying objects",
        CloneObjects::Shared => "sharing objects",
    });
    let (part, cancel) = (maker.part.clone(), maker.cx.cancel.clone());
    maker
        .shared
        .blocking(move |_| {
            begin(&part)?;
            fill(&part, objects, &cancel)?;
            finish(&part)
        })
        .await
}

fn failed(error: git2::Error) -> Error {
    git_error("failed to make a private clone", error)
}

fn io_failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::io("failed to make a private clone", error).with("path", path.display())
}

/// Makes the git directory.
fn begin(part: &PartState) -> Result<(), Error> {
    let tree = &part.tree.part.tree;
    let mut options = RepositoryInitOptions::new();
    options
        .external_template(false)
        .no_reinit(true)
        .mkdir(false)
        .mkpath(false)
        .initial_head(&part.tree.part.branch);
    Repository::init_opts(tree, &options).map_err(failed)?;
    let path = git_directory(tree).join("config");
    fs::write(&path, configuration(part)).map_err(io_failed(&path))
}

/// Writes the configuration: what a clone needs, and what a person set about identity and line ends.
fn configuration(part: &PartState) -> Vec<u8> {
    let mut text = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = true\n[remote \"origin\"]\n\turl = ".to_vec();
    text.extend(quoted(part.place.as_os_str()));
    text.extend_from_slice(b"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n");
    for (key, value) in &part.configuration {
        if let Some((section, name)) = key.split_once('.') {
            text.extend_from_slice(format!("[{section}]\n\t{name} = ").as_bytes());
            text.extend(quoted(&value.0));
            text.push(b'\n');
        }
    }
    text
}

/// Writes a value as git reads it, whatever is in it.
pub(super) fn quoted(value: &OsStr) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in value.as_bytes() {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            byte => text.push(*byte),
        }
    }
    text.push(b'"');
    text
}

/// Puts the objects where the clone reads them.
fn fill(part: &PartState, objects: CloneObjects, cancel: &CancelToken) -> Result<(), Error> {
    let common = &part.tree.part.common;
    let git = git_directory(&part.tree.part.tree);
    let shallow = common.join("shallow");
    if shallow.is_file() {
        let target = git.join("shallow");
        fs::copy(&shallow, &target).map_err(io_failed(&target))?;
    }
    let source = common.join("objects");
    if objects == CloneObjects::Shared {
        let path = git.join("objects/info/alternates");
        return fs::write(&path, pack::alternate(&source)?).map_err(io_failed(&path));
    }
    copy_all(&source, &git.join("objects"), cancel)
}

/// Copies a directory of objects, and those that it reads from, which the copy must not depend on.
pub(super) fn copy_all(from: &Path, into: &Path, cancel: &CancelToken) -> Result<(), Error> {
    for directory in with_alternates(from)? {
        copy(&directory, into, cancel)?;
    }
    Ok(())
}

/// Lists a directory of objects and those that it reads from, which a copy must not depend on.
fn with_alternates(objects: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = vec![objects.to_owned()];
    let mut at = 0;
    while let Some(directory) = found.get(at).cloned() {
        let path = directory.join("info/alternates");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io_failed(&path)(error)),
        };
        for line in text.split(|byte| *byte == b'\n') {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let other = directory.join(OsStr::from_bytes(line));
            if !found.contains(&other) {
                found.push(other);
            }
        }
        at += 1;
    }
    Ok(found)
}

/// Copies objects while others may put them together: loose ones first and packs last, so that what moves is met again.
fn copy(from: &Path, into: &Path, cancel: &CancelToken) -> Result<(), Error> {
    for _ in 0..TRIES {
        let mut whole = true;
        for number in 0..=255_u8 {
            let name = format!("{number:02x}");
            whole &= copy_files(&from.join(&name), &into.join(&name), cancel, |_| true)?;
        }
        let pack = |name: &OsStr| {
            let end = Path::new(name).extension().and_then(OsStr::to_str);
            matches!(end, Some("pack" | "idx" | "rev"))
        };
        whole &= copy_files(&from.join("pack"), &into.join("pack"), cancel, pack)?;
        if whole {
            return Ok(());
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        "the objects of the repository are put together again and again; try later, or share them",
    )
    .with("path", from.display())
    .retryable(true))
}

/// Copies the files of one directory that are not there yet; `false` if one was gone before it was copied.
fn copy_files(
    from: &Path,
    into: &Path,
    cancel: &CancelToken,
    wanted: impl Fn(&OsStr) -> bool,
) -> Result<bool, Error> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(io_failed(from)(error)),
    };
    let mut names: Vec<OsString> = Vec::new();
    for entry in entries {
        let name = entry.map_err(io_failed(from))?.file_name();
        // What is being written has another name until it is whole.
        if !name.as_bytes().starts_with(b"tmp_") && wanted(&name) {
            names.push(name);
        }
    }
    // An index that is there without its pack would be met as damage: packs come first in this order.
    names.sort_by_key(|name| {
        let is_pack = Path::new(name).extension() == Some(OsStr::new("pack"));
        (!is_pack, name.clone())
    });
    if !names.is_empty() {
        fs::create_dir_all(into).map_err(io_failed(into))?;
    }
    for name in names {
        if cancel.is_cancelled() {
            return Err(Error::new(
                ErrorKind::Cancelled,
                "cancelled while objects were copied",
            ));
        }
        let target = into.join(&name);
        if target.symlink_metadata().is_ok() {
            continue;
        }
        let pack = Path::new(&name).with_extension("pack");
        if Path::new(&name).extension().is_some()
            && !into.join(&pack).is_file()
            && pack != Path::new(&name)
        {
            return Ok(false);
        }
        let half = into.join("tmp_copy");
        match fs::copy(from.join(&name), &half) {
            Ok(_) => fs::rename(&half, &target).map_err(io_failed(&target))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(io_failed(&target)(error)),
        }
    }
    Ok(true)
}

/// Puts the clone on its branch, and makes sure that the history of that is whole.
fn finish(part: &PartState) -> Result<(), Error> {
    let base = part.tree.part.base;
    let repository = open_exact(&git_directory(&part.tree.part.tree))?;
    let mut walk = repository.revwalk().map_err(failed)?;
    walk.push(base).map_err(failed)?;
    for id in walk {
        id.map_err(failed)?;
    }
    let branch = format!("refs/heads/{}", part.tree.part.branch);
    let message = format!("clone: from {}", part.place.display());
    repository
        .reference(&branch, base, false, &message)
        .map_err(failed)?;
    if let Some(upstream) = &part.upstream {
        let name = format!("refs/remotes/origin/{upstream}");
        repository
            .reference(&name, base, false, &message)
            .map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f057_any_path_can_be_a_value() {
        let value = OsStr::from_bytes(b" a\"b\\c\nd;#\xff ");
        assert_eq!(quoted(value), b"\" a\\\"b\\\\c\\nd;#\xff \"");
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config");
        let line = [b"[a]\n\tb = ", &quoted(value)[..], b"\n"].concat();
        fs::write(&file, line).unwrap();
        let config = git2::Config::open(&file).unwrap().snapshot().unwrap();
        assert_eq!(config.get_bytes("a.b").unwrap(), value.as_bytes());
    }
}
