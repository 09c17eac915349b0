//! A cgroup v2 leaf for each process, below our own group: nothing that is born in it leaves it, and it ends at once.
//!
//! No controller is needed, so the empty v2 hierarchy of a hybrid machine serves as well as a pure one.

use std::{
    fs::DirBuilder,
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStringExt as _, fs::DirBuilderExt as _},
    },
    path::{Path, PathBuf},
};

use groundcrew_core::id::{InstanceId, ProcessId};
use rustix::{
    fs::{Mode, OFlags},
    process::Pid,
};

/// The group of an instance; the leaves of its processes are below it.
#[derive(Debug)]
pub(super) struct Group {
    directory: PathBuf,
}

/// The leaf of one process.
#[derive(Debug)]
pub(super) struct Leaf {
    directory: PathBuf,
}

/// Finds where our own v2 group is mounted; `None` where there is no such hierarchy.
fn own_group(mounts: &[u8], groups: &[u8]) -> Option<PathBuf> {
    let own = groups
        .split(|b| *b == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    let own = PathBuf::from(std::ffi::OsString::from_vec(own.to_vec()));
    mounts.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let dash = fields.iter().position(|field| field == b"-")?;
        if fields.get(dash + 1)? != b"cgroup2" {
            return None;
        }
        let unescaped = |at: usize| {
            let field = unescape(fields.get(at)?);
            Some(PathBuf::from(std::ffi::OsString::from_vec(field)))
        };
        let (root, mount) = (unescaped(3)?, unescaped(4)?);
        // A group outside what is mounted shows as a path with `..`, or not below the root of the mount.
        let below = own.strip_prefix(&root).ok()?;
        let plain = below
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        plain.then(|| mount.join(below))
    })
}

/// Turns `\040` and the like of mountinfo into bytes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = code {
            out.push(byte);
            rest = &tail[3..];
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

impl Group {
    /// Returns where our own group is; `None` where there is no hierarchy.
    pub(super) fn own() -> Option<PathBuf> {
        let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
        let groups = std::fs::read("/proc/self/cgroup").ok()?;
        // As a path is written, without the slash that the root of the hierarchy ends in.
        Some(own_group(&mounts, &groups)?.components().collect())
    }

    /// Returns where the group of an instance is made; `None` where there is no hierarchy.
    pub(super) fn place(instance: &InstanceId) -> Option<PathBuf> {
        Some(Self::own()?.join(format!("groundcrew-{instance}")))
    }

    /// Makes the group of an instance; `None` where this machine or this user has none.
    pub(super) fn make(instance: &InstanceId) -> Option<Self> {
        let directory = Self::place(instance)?;
        let own = directory.parent()?.to_owned();
        make(&directory).ok()?;
        let group = Self { directory };
        // A process may be moved only by who may write to both groups and to the one that holds them.
        let usable = rustix::fs::access(own.join("cgroup.procs"), rustix::fs::Access::WRITE_OK)
            .is_ok()
            && group.directory.join("cgroup.events").exists();
        if usable {
            Some(group)
        } else {
            group.remove();
            None
        }
    }

    pub(super) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the leaf of a process, and opens it, so that the process can be put there.
    pub(super) fn leaf(&self, id: &ProcessId) -> io::Result<(Leaf, OwnedFd)> {
        // The prefix keeps a process named like a control file apart from it.
        let directory = self.directory.join(format!("p-{id}"));
        make(&directory)?;
        let opened = rustix::fs::open(
            &directory,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let leaf = Leaf { directory };
        match opened {
            Ok(opened) => Ok((leaf, opened)),
            Err(errno) => {
                leaf.remove();
                Err(errno.into())
            }
        }
    }

    /// Returns the group as one leaf, for ending all of it.
    pub(super) fn whole(&self) -> Leaf {
        Leaf {
            directory: self.directory.clone(),
        }
    }

    /// Removes the group if it is empty.
    pub(super) fn remove(&self) {
        self.whole().remove();
    }
}

fn make(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

impl Leaf {
    /// Returns where it is.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns whether any process, also in groups below, lives in it; one that is gone is empty.
    pub(super) fn populated(&self) -> io::Result<bool> {
        match std::fs::read_to_string(self.directory.join("cgroup.events")) {
            Ok(text) => Ok(text.lines().any(|line| line == "populated 1")),
            Err(e) if gone(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns all its processes, also of groups that were made below.
    pub(super) fn pids(&self) -> Vec<Pid> {
        let mut all = Vec::new();
        visit(&self.directory, &mut |directory| {
            let text = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            all.extend(
                text.lines()
                    .filter_map(|line| line.parse().ok())
                    .filter_map(Pid::from_raw),
            );
        });
        all
    }

    /// Kills everything in it at once; false where the kernel (before 5.14) cannot, and the pids must be killed one by one.
    ///
    /// * There it is frozen first, so that nothing is born meanwhile; a frozen process still dies.
    pub(super) fn kill(&self) -> bool {
        if std::fs::write(self.directory.join("cgroup.kill"), "1").is_ok() {
            return true;
        }
        let _unsupported = std::fs::write(self.directory.join("cgroup.freeze"), "1");
        false
    }

    /// Removes it and what was made below it, as far as it is empty.
    pub(super) fn remove(&self) {
        let mut all = Vec::new();
        visit(&self.directory, &mut |directory| {
            all.push(directory.to_owned());
        });
        for directory in all.iter().rev() {
            let _still_used = std::fs::remove_dir(directory);
        }
    }
}

fn gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound
        || e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Calls `each` for a group and all below it, parents first.
fn visit(top: &Path, each: &mut dyn FnMut(&Path)) {
    let mut todo = vec![top.to_owned()];
    while let Some(directory) = todo.pop() {
        each(&directory);
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_group_is_found_on_pure_and_hybrid_machines() {
        let pure =
            b"29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n";
        let find = |mounts: &[u8], groups: &[u8]| own_group(mounts, groups);
        assert_eq!(
            find(pure, b"0::/user.slice/a b\n"),
            Some("/sys/fs/cgroup/user.slice/a b".into())
        );
        assert_eq!(
            find(hybrid, b"9:name=systemd:/x\n0::/\n"),
            Some("/sys/fs/cgroup/uni fied".into())
        );
        assert_eq!(find(hybrid, b"0::/../x\n"), None);
        assert_eq!(find(b"", b"0::/\n"), None);
        let inside = b"41 31 0:38 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find(inside, b"0::/docker/2\n"), None);
        assert_eq!(
            find(inside, b"0::/docker/1/x\n"),
            Some("/sys/fs/cgroup/x".into())
        );
    }
}
