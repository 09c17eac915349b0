//! Makes the git directory of a worktree again: from the copy in the trash, else from what its snapshot tells.
//!
//! It is put together beside the others and moved among them in one step: git refuses to work while a half-made one is there.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Write as _,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use git2::{Index, Oid, Repository};
use groundcrew_core::error::{Error, ErrorKind};
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, fsync, renameat_with, unlinkat},
    io::Errno,
};

use super::{shared::Inner, things::Thing};
use crate::{
    files::{beneath, copy, id::FileId, origin::Origin, removal},
    git::{
        admin,
        repository::{git_error, open_common, open_exact},
        snapshot::staged_message,
    },
    worktree::resource::Resource,
};

/// How many names are tried.
const NAMES: u32 = 1_000;

/// Makes the entry and leads the tree to it; one that is there already is left as it is. The caller holds the repository's lock.
pub(super) fn attach(
    inner: &Inner,
    thing: &Thing,
    resource: &Resource,
    ours: bool,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let common = &resource.part.common;
    let tree = thing.target.canonicalize().map_err(|error| {
        Error::io("failed to resolve a path", error).with("path", thing.target.display())
    })?;
    let reason = resource.reason();
    let entry = match admin::find(common, ours.then_some(&reason), &tree)? {
        Some(entry) => entry,
        None => make(inner, thing, resource, &tree, ours.then_some(&reason))?,
    };
    open_exact(&entry)?;
    link(&tree, &entry, notes)
}

fn failed(path: &Path) -> impl Fn(Errno) -> Error {
    move |errno| {
        Error::io(
            "failed to make the worktree known to its repository",
            errno.into(),
        )
        .with("path", path.display())
    }
}

fn make(
    inner: &Inner,
    thing: &Thing,
    resource: &Resource,
    tree: &Path,
    reason: Option<&String>,
) -> Result<PathBuf, Error> {
    let common = &resource.part.common;
    let parent = beneath::open_root(common).map_err(failed(common))?;
    let half: OsString = format!("groundcrew-{}-{}", resource.attempt, resource.key()).into();
    let path = common.join(&half);
    // Nobody else uses the name: what is there was left by one of us that died.
    removal::remove(&parent, &half, &path)?;
    let copy_of = inner.trash.entry(&thing.owner)?;
    let copied = copy_of.is_some();
    if let Some((from, shown)) = copy_of {
        copy::copy(&from, &shown, &parent, &half)?;
    } else {
        beneath::make_directory(&path, 0o777)?;
    }
    let directory = beneath::open_root(&path).map_err(failed(&path))?;
    let mut gitdir = tree.join(".git").into_os_string();
    gitdir.push("\n");
    put(&directory, "gitdir", gitdir.as_bytes())?;
    put(&directory, "commondir", b"../..\n")?;
    match reason {
        Some(reason) => put(&directory, "locked", reason.as_bytes())?,
        None => remove(&directory, "locked")?,
    }
    let repository = open_common(common)?;
    if !copied || admin::read_head(&path)?.is_none() {
        let head = match (&thing.origin.tip, &thing.origin.head) {
            (None, Some(head)) => format!("{head}\n"),
            _ => format!("ref: refs/heads/{}\n", resource.part.branch),
        };
        put(&directory, "HEAD", head.as_bytes())?;
    }
    if !copied
        || Index::open(&path.join("index")).is_err()
        || FileId::of(&path.join("index"))?.is_none()
    {
        remove(&directory, "index")?;
        index(&repository, &thing.origin, &path)?;
    }
    let among = common.join("worktrees");
    match rustix::fs::mkdir(&among, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(&among)(errno)),
    }
    let others = beneath::open_root(&among).map_err(failed(&among))?;
    let base = resource.part.tree.file_name().unwrap_or(OsStr::new("run"));
    for number in 0..NAMES {
        let mut name = base.to_owned();
        if number > 0 {
            name.push(number.to_string());
        }
        match renameat_with(&parent, &half, &others, &name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                fsync(&others).map_err(failed(&among))?;
                return Ok(among.join(name));
            }
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            Err(errno) => return Err(failed(&path)(errno)),
        }
    }
    Err(Error::new(
        ErrorKind::AlreadyExists,
        "the repository has too many worktrees of one name",
    )
    .with("path", among.display()))
}

/// Writes the index as it was staged, as far as the snapshot tells, else as the commit is.
fn index(repository: &Repository, origin: &Origin, entry: &Path) -> Result<(), Error> {
    let failed = |error| git_error("failed to write the index again", error);
    let commit = match staged(repository, origin) {
        Some(staged) => staged,
        None => match origin.head.as_deref().map(Oid::from_str) {
            Some(Ok(head)) => head,
            _ => return Ok(()),
        },
    };
    let tree = repository
        .find_commit(commit)
        .and_then(|commit| commit.tree())
        .map_err(failed)?;
    let mut index = Index::open(&entry.join("index")).map_err(failed)?;
    index.read_tree(&tree).map_err(failed)?;
    index.write().map_err(failed)
}

/// Finds the commit in which a snapshot keeps what was staged: its second parent, if that says so.
fn staged(repository: &Repository, origin: &Origin) -> Option<Oid> {
    let snapshot = repository
        .find_reference(origin.snapshot.as_deref()?)
        .and_then(|reference| reference.peel_to_commit())
        .ok()?;
    let second = snapshot.parent(1).ok()?;
    (second.message_bytes() == staged_message(&origin.run).as_bytes()).then(|| second.id())
}

fn put(directory: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Error> {
    remove(directory, name)?;
    let io =
        |error| Error::io("failed to write a file of the git directory", error).with("file", name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = beneath::open(
        directory,
        OsStr::new(name),
        flags,
        Mode::from_raw_mode(0o666),
    )
    .map_err(|errno| io(errno.into()))?;
    let mut file = File::from(file);
    file.write_all(bytes).map_err(io)?;
    file.sync_all().map_err(io)
}

fn remove(directory: &OwnedFd, name: &str) -> Result<(), Error> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::io(
            "failed to replace a file of the git directory",
            errno.into(),
        )
        .with("file", name)),
    }
}

/// Leads the tree to its entry, unless its `.git` is something that still means something.
fn link(tree: &Path, entry: &Path, notes: &mut Vec<String>) -> Result<(), Error> {
    let at = tree.join(".git");
    let wanted = [b"gitdir: ", entry.as_os_str().as_bytes(), b"\n"].concat();
    match FileId::of(&at)? {
        None => {}
        Some(_) => match admin::read_short(&at) {
            Ok(Some(text)) if text == wanted => return Ok(()),
            Ok(Some(text)) if leads_nowhere(tree, &text) => {}
            _ => {
                notes.push(format!("{} is left as it was found", at.display()));
                return Ok(());
            }
        },
    }
    let directory = beneath::open_root(tree).map_err(failed(tree))?;
    put(&directory, ".git", &wanted)
}

fn leads_nowhere(tree: &Path, text: &[u8]) -> bool {
    text.trim_ascii_end()
        .strip_prefix(b"gitdir: ")
        .is_some_and(|target| {
            let target = tree.join(OsStr::from_bytes(target));
            target.symlink_metadata().is_err()
        })
}
