//! Deletes a directory tree with one descriptor at a time, however deep it is.
//!
//! It never follows a link, never crosses into another mount, and never goes up into a directory that is not the one it came from.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
};

use groundcrew_core::error::{Error, ErrorKind};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, fstat, openat, statat, unlinkat},
    io::Errno,
};

use super::{beneath, id::FileId};

/// How often a tree is gone through that others still write into: more is no accident, but somebody who does not stop.
const MOST_PASSES: u32 = 1000;

/// Deletes `name` in `parent`, whatever it is; nothing there is success.
///
/// # Errors
///
/// The first thing that cannot be deleted, by its path: a mount point, an immutable file, a directory that is always filled again.
pub(crate) fn remove(parent: &OwnedFd, name: &OsStr, shown: &Path) -> Result<(), Error> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(blocked("failed to look at", shown, errno)),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
            return match unlinkat(parent, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(blocked("failed to delete", shown, errno)),
            };
        }
        Ok(_) => {}
    }
    let mut passes = 0;
    loop {
        let at = match enter(parent, name) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(|errno| blocked("failed to enter", shown, errno))?,
        };
        let mut walk = Walk {
            shown,
            way: Vec::new(),
            at,
        };
        while walk.step()? {}
        passes += 1;
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A git that cleans up puts locks into the entry of a worktree that is about to go.
            Err(Errno::NOTEMPTY) if passes < MOST_PASSES => {}
            Err(errno) => return Err(blocked("failed to delete", shown, errno)),
        }
    }
}

struct Walk<'a> {
    shown: &'a Path,
    /// The directories above the present one, with the name by which each was left.
    way: Vec<(FileId, OsString)>,
    at: OwnedFd,
}

impl Walk<'_> {
    fn path(&self, name: &OsStr) -> PathBuf {
        let mut path = self.shown.to_owned();
        path.extend(self.way.iter().map(|(_, name)| name));
        path.push(name);
        path
    }

    /// Empties the present directory up to its first subdirectory, and enters that, or goes up; `false` at the end.
    fn step(&mut self) -> Result<bool, Error> {
        let failed =
            |walk: &Self, errno| blocked("failed to read", &walk.path(OsStr::new("")), errno);
        let entries = Dir::read_from(&self.at).map_err(|errno| failed(self, errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| failed(self, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if entry.file_type() != FileType::Directory {
                match unlinkat(&self.at, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    // Some filesystems do not tell the type.
                    Err(Errno::ISDIR | Errno::PERM) if is_directory(&self.at, name) => {}
                    Err(errno) => {
                        return Err(blocked("failed to delete", &self.path(name), errno));
                    }
                }
            }
            let below = match enter(&self.at, name) {
                Ok(below) => below,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(blocked("failed to enter", &self.path(name), errno)),
            };
            let id = fstat(&self.at)
                .map(|stat| FileId::of_stat(&stat))
                .map_err(|errno| failed(self, errno))?;
            self.way
                .push((id, OsString::from_vec(name.as_bytes().to_vec())));
            self.at = below;
            return Ok(true);
        }
        self.leave()
    }

    fn leave(&mut self) -> Result<bool, Error> {
        let Some((id, name)) = self.way.pop() else {
            return Ok(false);
        };
        let above = openat(
            &self.at,
            "..",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .and_then(|above| fstat(&above).map(|stat| (above, FileId::of_stat(&stat))));
        match above {
            Ok((above, found)) if found == id => self.at = above,
            Ok(_) => {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "a directory was moved while it was being deleted",
                )
                .with("path", self.path(&name).display())
                .retryable(true));
            }
            Err(errno) => return Err(blocked("failed to leave", &self.path(&name), errno)),
        }
        match unlinkat(&self.at, &name, AtFlags::REMOVEDIR) {
            // Not empty: something was added meanwhile; the next pass meets it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(true),
            Err(errno) => Err(blocked("failed to delete", &self.path(&name), errno)),
        }
    }
}

fn is_directory(at: &OwnedFd, name: &OsStr) -> bool {
    statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Opens a directory and makes sure that its entries may be deleted.
fn enter(at: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let below = match beneath::open_directory(at, name) {
        Err(Errno::ACCESS) => {
            // A directory that its owner may not read, as some package caches are: it is ours to open.
            let handle = beneath::open(at, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
            rustix::fs::chmod(&*link, Mode::RWXU)?;
            beneath::open_directory(at, name)?
        }
        other => other?,
    };
    let mode = Mode::from_raw_mode(fstat(&below)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        fchmod(&below, Mode::RWXU)?;
    }
    Ok(below)
}

fn blocked(message: &'static str, path: &Path, errno: Errno) -> Error {
    let error = match errno {
        Errno::XDEV | Errno::BUSY => Error::new(
            ErrorKind::Unavailable,
            "a mount point is in the way of deleting; unmount it",
        )
        .with_source(std::io::Error::from(errno)),
        Errno::PERM => Error::new(
            ErrorKind::PermissionDenied,
            "the system refuses to delete; the file may be immutable",
        )
        .with_source(std::io::Error::from(errno)),
        _ => Error::io(message, errno.into()),
    };
    // The path may be as deep as the tree: its end says which one, its beginning where.
    let text = path.display().to_string();
    let text = if text.len() > 4096 {
        let end: String = text.chars().rev().take(200).collect();
        format!(
            "{}/…{}",
            text.chars().take(400).collect::<String>(),
            end.chars().rev().collect::<String>()
        )
    } else {
        text
    };
    error.with("path", text)
}

#[cfg(test)]
#[expect(clippy::print_stderr, reason = "what a test skips must be seen")]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    fn remove_in(root: &Path, name: &str) -> Result<(), Error> {
        let parent = beneath::open_root(root).unwrap();
        remove(&parent, OsStr::new(name), &root.join(name))
    }

    #[test]
    fn c18_f053_links_are_removed_and_never_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("victim")).unwrap();
        fs::write(root.join("victim/data"), "keep").unwrap();
        fs::create_dir_all(root.join("t/deep/er")).unwrap();
        symlink(root.join("victim"), root.join("t/absolute")).unwrap();
        symlink("../../../victim", root.join("t/deep/er/relative")).unwrap();
        symlink("/", root.join("t/root")).unwrap();
        remove_in(root, "t").unwrap();
        assert!(!root.join("t").exists());
        assert!(root.join("victim/data").is_file());
        // The top itself may be a link.
        symlink(root.join("victim"), root.join("t")).unwrap();
        remove_in(root, "t").unwrap();
        assert!(root.join("t").symlink_metadata().is_err());
        assert!(root.join("victim/data").is_file());
        remove_in(root, "t").unwrap();
    }

    #[test]
    fn f096_what_is_put_into_a_tree_while_it_goes_goes_with_it() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("t");
        // One turn may miss the moment between the last look and the removal; not all of them do.
        for _ in 0..200 {
            fs::create_dir(&tree).unwrap();
            let lock = tree.join("HEAD.lock");
            let other = std::thread::spawn(move || {
                while fs::write(&lock, "").is_ok() {
                    let _gone = fs::remove_file(&lock);
                }
            });
            remove_in(root.path(), "t").unwrap();
            other.join().unwrap();
            assert!(!tree.exists());
        }
    }

    /// Far more than the descriptors that a process may have by default.
    const DEPTH: usize = 20_000;

    #[test]
    fn f055_a_tree_of_any_depth_takes_one_descriptor() {
        // Some filesystems take a minute to make that many directories; this one is in memory.
        let root = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let mut at = beneath::open_root(root.path()).unwrap();
        let name = OsStr::new("directory");
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
            let file = beneath::open(
                &at,
                OsStr::new("file"),
                OFlags::CREATE | OFlags::WRONLY,
                Mode::RUSR,
            );
            drop(file.unwrap());
            at = beneath::open_directory(&at, name).unwrap();
        }
        drop(at);
        remove_in(root.path(), "directory").unwrap();
        assert!(root.path().join("directory").symlink_metadata().is_err());
    }

    #[test]
    fn f057_any_name_and_directories_without_permissions_go() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("t");
        let long = "x".repeat(255);
        for name in [
            &b"-x"[..],
            b"a b",
            b"new\nline",
            b"\xff\xfe",
            long.as_bytes(),
        ] {
            let directory = tree.join(OsStr::from_bytes(name));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(OsStr::from_bytes(name)), "x").unwrap();
        }
        for mode in [0o000, 0o555] {
            let closed = tree.join(format!("closed{mode}"));
            fs::create_dir(&closed).unwrap();
            fs::write(closed.join("f"), "x").unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        }
        remove_in(root.path(), "t").unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn f054_a_mount_is_not_crossed() {
        let root = tempfile::tempdir().unwrap();
        let (tree, victim) = (root.path().join("t"), root.path().join("victim"));
        fs::create_dir_all(tree.join("deep/mount")).unwrap();
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("data"), "keep").unwrap();
        if !run(
            "mount",
            &[
                "--bind".as_ref(),
                victim.as_ref(),
                tree.join("deep/mount").as_ref(),
            ],
        ) {
            eprintln!("skipped: this user may not mount");
            return;
        }
        let result = remove_in(root.path(), "t");
        assert!(run("umount", &[tree.join("deep/mount").as_ref()]));
        let error = result.unwrap_err();
        assert!(error.message().contains("mount point"), "{error}");
        assert!(
            error.get("path").unwrap().ends_with("deep/mount"),
            "{error}"
        );
        assert!(victim.join("data").is_file());
        remove_in(root.path(), "t").unwrap();
    }

    #[test]
    fn f050_an_immutable_file_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("t/d/file");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        if !run("chattr", &["+i".as_ref(), file.as_ref()]) {
            eprintln!("skipped: this user or filesystem has no immutable files");
            return;
        }
        let result = remove_in(root.path(), "t");
        assert!(run("chattr", &["-i".as_ref(), file.as_ref()]));
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.get("path").unwrap().ends_with("d/file"), "{error}");
        remove_in(root.path(), "t").unwrap();
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "tools of the machine that prepare a test"
    )]
    fn run(program: &str, args: &[&OsStr]) -> bool {
        std::process::Command::new(program)
            .args(args)
            .output()
            .is_ok_and(|output| output.status.success())
    }
}
