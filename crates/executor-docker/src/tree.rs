//! Trees of files on this host that came from a container, or go there: written by anybody, so nothing in them is believed.
//!
//! No link is followed, no mount crossed, and nothing is made that is no file, directory or link.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    hash::Hasher as _,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Component, Path, PathBuf},
};

use fnv::FnvHasher;
use groundcrew_core::error::{Error, ErrorKind};
use groundcrew_supervisor::clear_tree;
use rustix::{
    fs::{
        AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid,
        chownat, fchmod, linkat, mkdirat, openat, openat2, renameat, statat, symlinkat,
    },
    io::Errno,
};
use tar::EntryType;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// How many bytes of nothing stand at the end of an archive that is whole.
const END: usize = 1024;

/// A directory that gets its mode and time when all is in its place: one that nobody may write cannot be moved.
#[derive(Debug)]
pub(crate) struct Later {
    path: PathBuf,
    mode: Mode,
    modified: i64,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::io(what, errno.into()).with("path", path.display())
}

/// Opens a directory below another, which must have all of the path.
fn open(top: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    if path.as_os_str().is_empty() {
        return openat(top, ".", DIRECTORY, Mode::empty());
    }
    openat2(top, path, DIRECTORY, Mode::empty(), BENEATH)
}

/// Returns the names in a directory.
fn names(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Tells a tree from one that was changed: names, kinds, sizes, times and targets of links, but for the index of git, which
/// whoever only looks may write.
///
/// # Errors
///
/// Those of the file system; `InvalidInput` never: what is no file, directory or link counts by its name.
pub(crate) fn print(top: &Path) -> Result<u64, Error> {
    let fail = || failed("failed to look at the workspace", top);
    let root = openat(rustix::fs::CWD, top, DIRECTORY, Mode::empty()).map_err(fail())?;
    let mut sum = Sum::default();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let directory = open(&root, &path).map_err(fail())?;
        let mut found = names(&directory).map_err(fail())?;
        found.sort();
        for name in found {
            let below = path.join(&name);
            let stat = match statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(fail()(errno)),
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if below.ends_with(".git/index") {
                continue;
            }
            sum.add(below.as_os_str().as_bytes());
            sum.add(&stat.st_mode.to_le_bytes());
            match kind {
                FileType::Directory => left.push(below),
                FileType::Symlink => {
                    let target =
                        rustix::fs::readlinkat(&directory, &name, Vec::new()).map_err(fail())?;
                    sum.add(target.to_bytes());
                }
                _ => {
                    sum.add(&stat.st_size.to_le_bytes());
                    sum.add(&stat.st_mtime.to_le_bytes());
                    sum.add(&stat.st_mtime_nsec.to_le_bytes());
                }
            }
        }
    }
    Ok(sum.0.finish())
}

/// Returns whether a directory has nothing in it.
pub(crate) fn is_empty(top: &Path) -> Result<bool, Error> {
    let fail = || failed("failed to look at the workspace", top);
    let root = openat(rustix::fs::CWD, top, DIRECTORY, Mode::empty()).map_err(fail())?;
    Ok(names(&root).map_err(fail())?.is_empty())
}

/// A sum of pieces, each with its length, by a hash that is the same in every version: it is written down.
#[derive(Default)]
struct Sum(FnvHasher);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.0.write(&bytes.len().to_le_bytes());
        self.0.write(bytes);
    }
}

/// What reads an archive, and knows whether it ended as one does.
struct Whole<R> {
    from: R,
    zeros: usize,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        let read = &buffer[..count];
        let tail = read.iter().rev().take_while(|byte| **byte == 0).count();
        self.zeros = if tail == count {
            self.zeros.saturating_add(count)
        } else {
            tail
        };
        Ok(count)
    }
}

fn damaged(e: io::Error) -> Error {
    // What went wrong on the way is the reason, where it is known.
    match e.downcast::<Error>() {
        Ok(error) => error,
        Err(e) => Error::new(
            ErrorKind::Protocol,
            "what came from the container is no whole archive",
        )
        .retryable(true)
        .with_source(e),
    }
}

/// Takes the first part off: the name of what was packed.
fn parts(path: &[u8]) -> Result<Option<Vec<OsString>>, Error> {
    let path = Path::new(OsStr::from_bytes(path));
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_owned()),
            Component::CurDir => {}
            _ => {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "an entry of the archive leaves its directory",
                )
                .with("entry", path.display()));
            }
        }
    }
    if parts.is_empty() {
        return Ok(None);
    }
    parts.remove(0);
    Ok((!parts.is_empty()).then_some(parts))
}

/// Goes down from a directory, making what is missing, and never through a link.
fn enter(top: &OwnedFd, parts: &[OsString]) -> Result<OwnedFd, Errno> {
    let mut here = open(top, Path::new(""))?;
    for part in parts {
        match mkdirat(&here, part, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        here = openat2(&here, part, DIRECTORY, Mode::empty(), BENEATH)?;
    }
    Ok(here)
}

/// Unpacks what came from a container into an empty directory of ours.
///
/// * Modes of access and times travel, set-id bits do not; pipes, sockets and devices hold nothing and are left out.
/// * Everything belongs to `owner`, where that is somebody else.
/// * Directories get their modes by [`settle`], once they are where they stay.
///
/// # Errors
///
/// `Protocol` when the archive is not whole, or one of its names leads elsewhere; those of the file system.
pub(crate) fn unpack(
    top: &OwnedFd,
    from: impl Read,
    owner: Option<(u32, u32)>,
) -> Result<Vec<Later>, Error> {
    let mut later = Vec::new();
    let mut archive = tar::Archive::new(Whole { from, zeros: 0 });
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let Some(mut way) = parts(&entry.path_bytes())? else {
            continue;
        };
        let path: PathBuf = way.iter().collect();
        let fail = || failed("failed to bring a file from the container", &path);
        let mode = Mode::from_raw_mode(entry.header().mode().map_err(damaged)? & 0o777);
        let modified = entry.header().mtime().map_err(damaged)?;
        let modified = i64::try_from(modified).unwrap_or(0);
        let Some(name) = way.pop() else { continue };
        let parent = enter(top, &way).map_err(fail())?;
        match kind {
            EntryType::Directory => {
                drop(enter(&parent, std::slice::from_ref(&name)).map_err(fail())?);
                later.push(Later {
                    path: path.clone(),
                    mode,
                    modified,
                });
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                symlinkat(OsStr::from_bytes(&target), &parent, &name).map_err(fail())?;
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let Some(mut way) = parts(&target)? else {
                    continue;
                };
                let Some(old) = way.pop() else { continue };
                let from = enter(top, &way).map_err(fail())?;
                linkat(&from, &old, &parent, &name, AtFlags::empty()).map_err(fail())?;
                continue;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let mut file = openat(&parent, &name, flags, Mode::RUSR | Mode::WUSR)
                    .map(File::from)
                    .map_err(fail())?;
                let size = entry.size();
                let written = io::copy(&mut entry, &mut Written(&mut file)).map_err(|e| {
                    match e.downcast::<OnDisk>() {
                        Ok(OnDisk(e)) => Error::io("failed to bring a file from the container", e)
                            .with("path", path.display()),
                        Err(e) => damaged(e),
                    }
                })?;
                if written != size {
                    return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
                }
                fchmod(&file, mode).map_err(fail())?;
                rustix::fs::futimens(&file, &times(modified)).map_err(fail())?;
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => continue,
            _ => {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "an entry of the archive is of a kind that is not known",
                )
                .with("entry", path.display()));
            }
        }
        if let Some((user, group)) = owner {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            chownat(
                &parent,
                &name,
                Some(user),
                Some(group),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(fail())?;
        }
    }
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(damaged)?;
    if rest.zeros < END {
        return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(later)
}

/// A file of ours: what goes wrong with it is told from what goes wrong with the archive.
struct Written<'a>(&'a mut File);

#[derive(Debug)]
struct OnDisk(io::Error);

impl std::fmt::Display for OnDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for OnDisk {}

impl io::Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| io::Error::other(OnDisk(e)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn times(modified: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: modified,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Removes everything in a directory.
pub(crate) fn clear(top: &OwnedFd) -> Result<(), Errno> {
    // It says what the kernel said.
    clear_tree(top.as_fd()).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

/// Puts what is in one directory in the place of all that is in another, which stays the directory that it is.
pub(crate) fn replace(top: &OwnedFd, new: &OwnedFd) -> Result<(), Errno> {
    clear(top)?;
    for name in names(new)? {
        renameat(new, &name, top, &name)?;
    }
    Ok(())
}

/// Gives directories their modes and times, the deepest first, and brings everything to the disk.
pub(crate) fn settle(top: &OwnedFd, mut later: Vec<Later>) -> Result<(), Error> {
    later.reverse();
    for one in later {
        let fail = || failed("failed to settle a directory of the workspace", &one.path);
        let parts: Vec<OsString> = one.path.iter().map(OsStr::to_owned).collect();
        let directory = enter(top, &parts).map_err(fail())?;
        rustix::fs::futimens(&directory, &times(one.modified)).map_err(fail())?;
        fchmod(&directory, one.mode).map_err(fail())?;
    }
    rustix::fs::syncfs(top).map_err(failed(
        "failed to bring the workspace to the disk",
        Path::new(""),
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use tar::{Builder, Header};

    use super::*;

    fn top(path: &Path) -> OwnedFd {
        openat(rustix::fs::CWD, path, DIRECTORY, Mode::empty()).unwrap()
    }

    fn add(archive: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, link: &str, text: &str) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_size(text.len() as u64);
        header.set_mtime(1000);
        // As raw as whoever is inside could have it.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        if !link.is_empty() {
            header.set_link_name_literal(link).unwrap();
        }
        header.set_cksum();
        archive.append(&header, text.as_bytes()).unwrap();
    }

    #[test]
    fn c25_what_comes_back_is_whole_and_what_leads_elsewhere_is_refused() {
        let ground = tempfile::tempdir().unwrap();
        let place = ground.path().join("in");
        fs::create_dir(&place).unwrap();
        let mut archive = Builder::new(Vec::new());
        add(&mut archive, EntryType::Directory, "w/", "", "");
        add(&mut archive, EntryType::Directory, "w/ro", "", "");
        add(&mut archive, EntryType::Regular, "w/ro/a", "", "text");
        add(&mut archive, EntryType::Link, "w/b", "w/ro/a", "");
        add(&mut archive, EntryType::Symlink, "w/out", "/etc", "");
        add(&mut archive, EntryType::Fifo, "w/pipe", "", "");
        let bytes = archive.into_inner().unwrap();
        let later = unpack(&top(&place), &bytes[..], None).unwrap();
        settle(&top(&place), later).unwrap();
        assert_eq!(fs::read_to_string(place.join("b")).unwrap(), "text");
        let mode = fs::metadata(place.join("ro/a")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o755);
        assert!(!place.join("pipe").exists());
        // Half of it is nothing.
        for end in [bytes.len() - 512, bytes.len() - 1024, 700] {
            clear_tree(top(&place).as_fd()).unwrap();
            let error = unpack(&top(&place), &bytes[..end], None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{end}");
        }
        for (kind, name, link) in [
            (EntryType::Regular, "w/../../x", ""),
            (EntryType::Regular, "w/out/x", ""),
            (EntryType::Link, "w/x", "w/../../secret"),
            (EntryType::Link, "w/x", "w/out/passwd"),
        ] {
            clear_tree(top(&place).as_fd()).unwrap();
            let mut archive = Builder::new(Vec::new());
            add(&mut archive, EntryType::Symlink, "w/out", "/etc", "");
            add(&mut archive, kind, name, link, "");
            let bytes = archive.into_inner().unwrap();
            assert!(
                unpack(&top(&place), &bytes[..], None).is_err(),
                "{name} {link}"
            );
        }
        assert!(!ground.path().join("x").exists());
    }

    #[test]
    fn a_print_changes_with_the_tree_and_not_with_a_look_of_git() {
        let ground = tempfile::tempdir().unwrap();
        fs::create_dir_all(ground.path().join("a/.git")).unwrap();
        fs::write(ground.path().join("a/file"), "1").unwrap();
        fs::write(ground.path().join("a/.git/index"), "1").unwrap();
        let before = print(ground.path()).unwrap();
        fs::write(ground.path().join("a/.git/index"), "22").unwrap();
        assert_eq!(print(ground.path()).unwrap(), before);
        fs::write(ground.path().join("a/new"), "").unwrap();
        let more = print(ground.path()).unwrap();
        assert_ne!(more, before);
        fs::write(ground.path().join("a/file"), "22").unwrap();
        assert_ne!(print(ground.path()).unwrap(), more);
    }
}
