//! Removes the files of an instance, whatever its processes made of that directory; for executors on the host.
//!
//! Nothing here follows a link or crosses a mount: what is mounted below stays, and is told as an error.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, unlinkat},
    io::Errno,
};

/// The deepest tree that is removed; deeper ones are an error, not an overflow.
const MAX_DEPTH: usize = 128;

/// Removes an entry of a directory with all that is in it; nothing there is success.
///
/// # Errors
///
/// `EXDEV` when something is mounted in it; `ENAMETOOLONG` when it is too deep; else what the kernel says.
pub fn remove_tree(directory: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    remove_entry(directory, &name, MAX_DEPTH)
}

fn remove_entry(directory: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Linux says EISDIR, POSIX says EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    if depth == 0 {
        return Err(Errno::NAMETOOLONG);
    }
    let inner = openat2(
        directory,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )?;
    for entry in Dir::read_from(&inner)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        // The type that the listing gives saves a call; one that changed meanwhile is found out by the call.
        match entry.file_type() {
            FileType::Directory | FileType::Unknown => {
                remove_entry(inner.as_fd(), name, depth - 1)?;
            }
            _ => match unlinkat(&inner, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            },
        }
    }
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn f146_private_files_go_whole_and_nothing_behind_a_link_does() {
        let ground = tempfile::tempdir().unwrap();
        let outside = ground.path().join("outside");
        fs::create_dir_all(outside.join("kept")).unwrap();
        let private = ground.path().join("private");
        fs::create_dir_all(private.join("a/b/c")).unwrap();
        fs::write(private.join("a/b/file"), "x").unwrap();
        symlink(&outside, private.join("a/link")).unwrap();
        let top = fs::File::open(ground.path()).unwrap();
        remove_tree(top.as_fd(), "private").unwrap();
        assert!(!private.exists() && outside.join("kept").exists());
        remove_tree(top.as_fd(), "private").unwrap();
        symlink(&outside, &private).unwrap();
        remove_tree(top.as_fd(), "private").unwrap();
        assert!(fs::symlink_metadata(&private).is_err() && outside.join("kept").exists());
    }

    #[test]
    fn f146_a_tree_that_is_too_deep_is_an_error_and_no_overflow() {
        let ground = tempfile::tempdir().unwrap();
        let mut path = ground.path().join("private");
        for _ in 0..MAX_DEPTH + 5 {
            path.push("d");
        }
        fs::create_dir_all(&path).unwrap();
        let top = fs::File::open(ground.path()).unwrap();
        assert_eq!(remove_tree(top.as_fd(), "private"), Err(Errno::NAMETOOLONG));
    }
}
