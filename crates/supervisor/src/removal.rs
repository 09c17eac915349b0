//! Removes the files of an instance, whatever its processes made of that directory; for executors on the host.
//!
//! Nothing here follows a link or crosses a mount: what is mounted below stays, and is told as an error. Neither the stack nor
//! descriptors nor paths run out, however deep a tree is.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, chmod, fstat, openat2, renameat, unlinkat},
    io::Errno,
};

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// How often a directory is looked through, and each time leads one level deeper: more is no tree, but somebody who writes.
const MOST_LOOKS: u32 = 1 << 20;

/// Removes an entry of a directory with all that is in it; nothing there is success.
///
/// # Errors
///
/// `EXDEV` when something is mounted in it, `ENOTEMPTY` when somebody still writes into it; else what the kernel says.
pub fn remove_tree(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let Some(inner) = removed_or_open(directory, &name)? else {
        return Ok(());
    };
    let mut looks = 0;
    loop {
        clear(inner.as_fd(), &mut looks)?;
        match unlinkat(directory, &name, AtFlags::REMOVEDIR) {
            // Somebody else removes it too, and just brought something up to it.
            Err(Errno::NOTEMPTY) => {}
            removed => return Ok(gone(removed)?),
        }
    }
}

/// Removes everything in a directory.
///
/// What lies deeper is brought up to the directory first.
///
/// # Errors
///
/// As for [`remove_tree`].
pub fn clear_tree(top: BorrowedFd<'_>) -> io::Result<()> {
    Ok(clear(top, &mut 0)?)
}

fn clear(top: BorrowedFd<'_>, looks: &mut u32) -> Result<(), Errno> {
    let mut number = 0_u64;
    loop {
        let found = names(top)?;
        if found.is_empty() {
            return Ok(());
        }
        *looks += 1;
        if *looks > MOST_LOOKS {
            return Err(Errno::NOTEMPTY);
        }
        for name in found {
            let Some(inner) = removed_or_open(top, &name)? else {
                continue;
            };
            for child in names(inner.as_fd())? {
                if removed_or_open(inner.as_fd(), &child)?.is_some() {
                    bring_up(&inner, &child, top, &mut number)?;
                }
            }
            match unlinkat(top, &name, AtFlags::REMOVEDIR) {
                // Filled meanwhile; the next look shows it.
                Err(Errno::NOTEMPTY) => {}
                removed => gone(removed)?,
            }
        }
    }
}

/// Moves a directory up to another; an empty one that is in its way there is replaced, and goes with that.
fn bring_up(
    from: &OwnedFd,
    child: &CStr,
    top: BorrowedFd<'_>,
    number: &mut u64,
) -> Result<(), Errno> {
    loop {
        *number += 1;
        match renameat(from, child, top, format!(".groundcrew-deeper-{number}")) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            moved => return gone(moved),
        }
    }
}

/// What is gone already is success: somebody else removes it too.
fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Returns the names in a directory.
fn names(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes an entry that is no directory; opens one that is, and lets its owner write it. Those of others keep their mode.
fn removed_or_open(directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        // Linux says EISDIR, POSIX says EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let open = |access: OFlags| {
        let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(directory, name, flags, Mode::empty(), BENEATH)
    };
    let opened = open(OFlags::PATH).and_then(|inner| {
        if let Ok(stat) = fstat(&inner)
            && stat.st_mode & 0o700 != 0o700
        {
            // Through the descriptor, which a mode alone does not open for this.
            let own = format!("/proc/self/fd/{}", inner.as_raw_fd());
            let _others = chmod(&own, Mode::from_raw_mode(stat.st_mode) | Mode::RWXU);
        }
        open(OFlags::RDONLY)
    });
    match opened {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{fchmod, mkdirat};
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
    fn c25_f146_what_is_deep_and_closed_goes_whole() {
        let ground = tempfile::tempdir().unwrap();
        let top = fs::File::open(ground.path()).unwrap();
        let own = Mode::RUSR | Mode::XUSR | Mode::WUSR;
        let mut here = OwnedFd::from(top.try_clone().unwrap());
        for _ in 0..1500 {
            mkdirat(&here, "a", own).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            here = openat2(&here, "a", flags, Mode::empty(), BENEATH).unwrap();
        }
        fchmod(&here, Mode::empty()).unwrap();
        // In the way of what is brought up: a file, a directory with something in it, and an empty one.
        for name in ["1/", "2/file/", "3/"] {
            fs::create_dir_all(ground.path().join(format!("a/.groundcrew-deeper-{name}"))).unwrap();
        }
        fs::write(ground.path().join("a/.groundcrew-deeper-4"), "").unwrap();
        remove_tree(top.as_fd(), "a").unwrap();
        clear_tree(top.as_fd()).unwrap();
        assert_eq!(fs::read_dir(ground.path()).unwrap().count(), 0);
    }

    #[test]
    fn f146_two_who_remove_the_same_tree_both_succeed() {
        for _ in 0..200 {
            let ground = tempfile::tempdir().unwrap();
            for branch in 0..8 {
                let path = ground.path().join(format!("private/{branch}/b/c/d/e"));
                fs::create_dir_all(&path).unwrap();
                fs::write(path.join("file"), "x").unwrap();
            }
            let top = fs::File::open(ground.path()).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| remove_tree(top.as_fd(), "private").unwrap());
                }
            });
            assert!(!ground.path().join("private").exists());
        }
    }
}
