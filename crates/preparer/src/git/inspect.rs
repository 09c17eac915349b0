//! Looks for everything that differs between a work tree and its commit.
//!
//! It trusts neither the flags in the index nor what `.git` in the tree says nor an ignore rule that the run added; it runs nothing.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsStr,
    fs::File,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use git2::{FileMode, ObjectType, Oid, Repository, Tree};
use groundcrew_core::{
    error::{Error, ErrorKind},
    workspace::Finding,
};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, readlinkat, statat},
    io::Errno,
};

use super::{
    ignore::BaseRules,
    lfs::{MAX_POINTER, Pointer},
    repository::git_error,
    tree,
};
use crate::{files::beneath, text};

/// A path in the work tree, with slashes, relative.
type Name = Vec<u8>;

/// An entry of a commit or of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its mode.
    pub(crate) mode: u32,
    /// Its object.
    pub(crate) id: Oid,
}

/// What is compared.
pub(crate) struct Subject<'a> {
    /// The repository, opened at its common directory.
    pub(crate) repository: &'a Repository,
    /// The entry of the work tree in the repository, if there is one.
    pub(crate) entry: Option<&'a Path>,
    /// The work tree, open.
    pub(crate) tree: &'a OwnedFd,
    /// Its path, for what libgit2 has to compare.
    pub(crate) path: &'a Path,
    /// The tree of `HEAD`.
    pub(crate) head: &'a Tree<'a>,
    /// The rules of the start point.
    pub(crate) rules: &'a BaseRules,
    /// The configuration of the repository and of the user.
    pub(crate) config: &'a git2::Config,
    /// Where files of git-lfs are kept that stay, or are brought to where they stay.
    pub(crate) lfs: &'a [PathBuf],
}

/// What differs.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Tracked files with other contents or another mode.
    pub(crate) modified: Vec<Name>,
    /// Tracked files that are not there.
    pub(crate) missing: Vec<Name>,
    /// What the index has and `HEAD` has not.
    pub(crate) staged: Vec<Name>,
    /// Files that `HEAD` does not have and the rules of the start point do not ignore.
    pub(crate) untracked: Vec<Name>,
    /// Files and whole directories that these rules ignore.
    pub(crate) ignored: Vec<Name>,
    /// Directories that are repositories themselves.
    pub(crate) nested: Vec<Name>,
    /// What could not be looked at, with the reason.
    pub(crate) unreadable: Vec<String>,
    /// The entries of the index, if it could be read.
    pub(crate) index: Option<BTreeMap<Name, Entry>>,
}

impl Differences {
    /// Returns what would be lost with the tree; `finished` tells whether its checkout was, so that missing files mean something.
    pub(crate) fn losses(&self, finished: bool) -> Vec<Finding> {
        let show = |name: &Name| text::lossy(name);
        let mut modified = self.modified.clone();
        if finished {
            modified.extend(self.missing.iter().cloned());
            modified.sort_unstable();
        }
        let untracked: Vec<Name> = self
            .untracked
            .iter()
            .filter(|name| {
                self.index
                    .as_ref()
                    .is_none_or(|index| !index.contains_key(*name))
            })
            .cloned()
            .collect();
        let staged = if finished { &self.staged[..] } else { &[] };
        [
            text::finding("modified", &modified, show),
            text::finding("staged", staged, show),
            text::finding("untracked", &untracked, show),
            text::finding("nested_repository", &self.nested, show),
            text::finding("unreadable", &self.unreadable, String::clone),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Compares a work tree with its `HEAD`.
pub(crate) fn differences(subject: &Subject<'_>) -> Result<Differences, Error> {
    let head = entries_of(subject.repository, subject.head)?;
    let mut found = Differences::default();
    found.index = match subject.entry.map(|entry| read_index(&entry.join("index"))) {
        None => None,
        Some(Ok(index)) => index,
        Some(Err(error)) => {
            found.unreadable.push(error.to_string());
            None
        }
    };
    let absent: HashSet<Name> = found
        .index
        .as_ref()
        .map(|index| {
            index
                .iter()
                .filter(|(_, entry)| entry.mode & SKIPPED != 0)
                .map(|(name, _)| name.clone())
                .collect()
        })
        .unwrap_or_default();
    if let Some(index) = &mut found.index {
        for entry in index.values_mut() {
            entry.mode &= !SKIPPED;
        }
        found.staged = index
            .iter()
            .filter(|(name, entry)| head.get(*name) != Some(*entry))
            .chain(head.iter().filter(|(name, _)| !index.contains_key(*name)))
            .map(|(name, _)| name.clone())
            .collect();
    }
    let mut survey = Survey::new(subject, &head);
    survey.walk(&mut found);
    let mut missing = survey.missing();
    // What a sparse checkout leaves out was never written.
    missing.retain(|name| !absent.contains(name));
    found.missing = missing;
    let suspects = std::mem::take(&mut survey.suspects);
    let modes_count = survey.modes_count;
    drop(survey);
    found.modified = converted(subject, suspects)?;
    found.modified.retain(|name| {
        !head
            .get(name)
            .is_some_and(|entry| is_kept_by_lfs(subject, name, *entry, modes_count))
    });
    for names in [
        &mut found.untracked,
        &mut found.ignored,
        &mut found.nested,
        &mut found.staged,
    ] {
        names.sort_unstable();
    }
    Ok(found)
}

/// Marks an index entry that a sparse checkout leaves out; no mode of git has this bit.
const SKIPPED: u32 = 1 << 31;
/// `CE_SKIP_WORKTREE` as libgit2 stores it.
const SKIP_WORKTREE: u16 = 1 << 14;

/// Returns the files of a tree by name.
fn entries_of(repository: &Repository, tree: &Tree<'_>) -> Result<BTreeMap<Name, Entry>, Error> {
    Ok(tree::files(repository, tree)?
        .into_iter()
        .map(|file| {
            let (mode, id) = (file.mode, file.id);
            (file.name, Entry { mode, id })
        })
        .collect())
}

fn read_index(path: &Path) -> Result<Option<BTreeMap<Name, Entry>>, Error> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => {
            return Err(
                Error::new(ErrorKind::Corrupt, "the index is no regular file")
                    .with("path", path.display()),
            );
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(
                Error::io("failed to look at the index", error).with("path", path.display())
            );
        }
    }
    let index = git2::Index::open(path).map_err(|error| {
        git_error("the index cannot be read", error).with("path", path.display())
    })?;
    Ok(Some(
        index
            .iter()
            .map(|entry| {
                let stage = entry.flags & 0x3000;
                let skipped = if entry.flags_extended & SKIP_WORKTREE != 0 {
                    SKIPPED
                } else {
                    0
                };
                // A conflict is a difference, whatever its sides are.
                let mode = if stage == 0 { entry.mode | skipped } else { 0 };
                (entry.path, Entry { mode, id: entry.id })
            })
            .collect(),
    ))
}

struct Survey<'a> {
    subject: &'a Subject<'a>,
    head: &'a BTreeMap<Name, Entry>,
    /// Directories that hold tracked files.
    directories: HashSet<&'a [u8]>,
    seen: HashSet<&'a [u8]>,
    /// Tracked files whose bytes are not those of their object.
    suspects: Vec<Name>,
    modes_count: bool,
}

impl<'a> Survey<'a> {
    fn new(subject: &'a Subject<'a>, head: &'a BTreeMap<Name, Entry>) -> Self {
        let mut directories = HashSet::new();
        for name in head.keys() {
            let mut name = &name[..];
            while let Some(at) = name.iter().rposition(|byte| *byte == b'/') {
                name = &name[..at];
                if !directories.insert(name) {
                    break;
                }
            }
        }
        Self {
            subject,
            head,
            directories,
            seen: HashSet::new(),
            suspects: Vec::new(),
            modes_count: subject.config.get_bool("core.filemode").unwrap_or(true),
        }
    }

    fn walk(&mut self, found: &mut Differences) {
        let mut open = vec![Name::new()];
        while let Some(directory) = open.pop() {
            if let Err(errno) = self.directory(&directory, found, &mut open) {
                let mut shown = text::lossy(&directory);
                shown.truncate(shown.floor_char_boundary(200));
                found.unreadable.push(format!("{shown}/: {errno}"));
            }
        }
    }

    fn directory(
        &mut self,
        directory: &Name,
        found: &mut Differences,
        open: &mut Vec<Name>,
    ) -> rustix::io::Result<()> {
        let handle = beneath::open_directory(self.subject.tree, OsStr::from_bytes(directory))?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&handle)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push((name.to_vec(), entry.file_type()));
            }
        }
        let is_root = directory.is_empty();
        if !is_root
            && entries
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case(b".git"))
        {
            found.nested.push(directory.clone());
            if !self.directories.contains(&directory[..]) {
                return Ok(());
            }
        }
        for (name, kind) in entries {
            if name == b".git" {
                continue;
            }
            let full = if is_root {
                name.clone()
            } else {
                [directory, &b"/"[..], &name].concat()
            };
            let kind = if kind == FileType::Unknown {
                let stat = statat(&handle, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            } else {
                kind
            };
            self.entry(&handle, &name, full, kind, found, open);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        handle: &OwnedFd,
        name: &[u8],
        full: Name,
        kind: FileType,
        found: &mut Differences,
        open: &mut Vec<Name>,
    ) {
        if let Some((tracked, entry)) = self.head.get_key_value(&full) {
            self.seen.insert(&tracked[..]);
            if entry.mode == u32::from_ne_bytes(i32::from(FileMode::Commit).to_ne_bytes()) {
                match (kind, is_empty(handle, name)) {
                    (FileType::Directory, Ok(true)) => {}
                    (FileType::Directory, Ok(false)) => found.nested.push(full),
                    _ => self.suspects.push(full),
                }
                return;
            }
            match same(handle, name, kind, *entry, self.modes_count) {
                Ok(true) => {}
                Ok(false) => self.suspects.push(full.clone()),
                Err(error) => found
                    .unreadable
                    .push(format!("{}: {error}", text::lossy(&full))),
            }
            // Files may have been put where a file was.
            if kind == FileType::Directory {
                open.push(full);
            }
            return;
        }
        if kind == FileType::Directory {
            if self.directories.contains(&full[..]) {
                open.push(full);
                return;
            }
            let mut ended = full.clone();
            ended.push(b'/');
            if self.subject.rules.ignores(&ended) {
                found.ignored.push(ended);
            } else {
                open.push(full);
            }
        } else if self.subject.rules.ignores(&full) {
            found.ignored.push(full);
        } else {
            found.untracked.push(full);
        }
    }

    fn missing(&self) -> Vec<Name> {
        self.head
            .iter()
            .filter(|(name, entry)| {
                // A submodule's directory without anything in it may as well not be there.
                entry.mode != 0o160_000 && !self.seen.contains(&name[..])
            })
            .map(|(name, _)| name.clone())
            .collect()
    }
}

fn is_empty(handle: &OwnedFd, name: &[u8]) -> rustix::io::Result<bool> {
    let directory = beneath::open_directory(handle, OsStr::from_bytes(name))?;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares the bytes of a file, or the target of a link, with an object.
fn same(
    handle: &OwnedFd,
    name: &[u8],
    kind: FileType,
    entry: Entry,
    modes_count: bool,
) -> Result<bool, Error> {
    let name = OsStr::from_bytes(name);
    let io = |errno: Errno| Error::io("failed to read a file", errno.into());
    match (kind, entry.mode) {
        (FileType::Symlink, 0o120_000) => {
            let target = readlinkat(handle, name, Vec::new()).map_err(io)?;
            Ok(Oid::hash_object(ObjectType::Blob, target.as_bytes())
                .map_err(|error| git_error("failed to hash a link", error))?
                == entry.id)
        }
        (FileType::RegularFile, 0o100_644 | 0o100_755 | 0o100_664) => {
            let file = beneath::open(
                handle,
                name,
                OFlags::RDONLY | OFlags::NONBLOCK,
                Mode::empty(),
            )
            .map_err(io)?;
            let stat = fstat(&file).map_err(io)?;
            if modes_count && executable(&stat) != (entry.mode == 0o100_755) {
                return Ok(false);
            }
            Ok(hash(&file)? == entry.id)
        }
        _ => Ok(false),
    }
}

/// Tells whether its owner may execute a file.
pub(crate) fn executable(stat: &Stat) -> bool {
    Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR)
}

/// Hashes an open file as it is, in pieces.
fn hash(file: &OwnedFd) -> Result<Oid, Error> {
    Oid::hash_file(
        ObjectType::Blob,
        format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()),
    )
    .map_err(|error| git_error("failed to hash a file", error))
}

/// Tells whether a file is what a pointer in its place names, and git-lfs keeps that in the repository.
fn is_kept_by_lfs(subject: &Subject<'_>, name: &Name, entry: Entry, modes_count: bool) -> bool {
    let Some(pointer) = pointer(subject.repository, entry) else {
        return false;
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let Ok(file) = beneath::open(subject.tree, OsStr::from_bytes(name), flags, Mode::empty())
    else {
        return false;
    };
    fstat(&file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && (!modes_count || executable(&stat) == (entry.mode == 0o100_755))
    }) && pointer.is(&mut File::from(file)).unwrap_or(false)
        && subject.lfs.iter().any(|store| pointer.is_in(store))
}

fn pointer(repository: &Repository, entry: Entry) -> Option<Pointer> {
    if !matches!(entry.mode, 0o100_644 | 0o100_755 | 0o100_664) {
        return None;
    }
    let (size, kind) = repository.odb().ok()?.read_header(entry.id).ok()?;
    if size > MAX_POINTER || kind != ObjectType::Blob {
        return None;
    }
    Pointer::read(repository.find_blob(entry.id).ok()?.content())
}

/// Keeps those files that differ even when line ends and the like are converted as the attributes say.
fn converted(subject: &Subject<'_>, mut suspects: Vec<Name>) -> Result<Vec<Name>, Error> {
    if suspects.is_empty() {
        return Ok(suspects);
    }
    suspects.sort_unstable();
    let failed = |error| git_error("failed to compare the work tree", error);
    let repository = super::repository::open_common(subject.repository.path())?;
    repository.set_config(subject.config).map_err(failed)?;
    repository
        .set_workdir(subject.path, false)
        .map_err(failed)?;
    let mut index = git2::Index::new().map_err(failed)?;
    index.read_tree(subject.head).map_err(failed)?;
    // An index of our own: no flag and no time of the real one counts, so every file is read.
    repository.set_index(&mut index).map_err(failed)?;
    let mut options = git2::DiffOptions::new();
    options
        .include_typechange(true)
        .disable_pathspec_match(true)
        .ignore_submodules(true)
        .skip_binary_check(true);
    for name in &suspects {
        options.pathspec(OsStr::from_bytes(name));
    }
    let diff = repository
        .diff_index_to_workdir(Some(&index), Some(&mut options))
        .map_err(failed)?;
    let differing: HashSet<Name> = diff
        .deltas()
        .filter_map(|delta| {
            delta
                .old_file()
                .path_bytes()
                .or(delta.new_file().path_bytes())
                .map(<[u8]>::to_vec)
        })
        .collect();
    suspects.retain(|name| differing.contains(name));
    Ok(suspects)
}
