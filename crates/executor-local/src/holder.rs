//! Who holds the lock on a start file: found through the kernel's list of locks, for a supervisor that does not answer.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    time::Duration,
};

use groundcrew_core::error::Error;
use groundcrew_supervisor::START_FILE;
use rustix::{
    fs::AtFlags,
    process::{Pid, PidfdFlags},
};
use tokio::io::{Interest, unix::AsyncFd};

/// A supervisor, by a handle that never means another process.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) pid: Pid,
    pub(crate) handle: OwnedFd,
}

impl Holder {
    /// Returns when it has ended, or after that time.
    pub(crate) async fn ended(&self, patience: Duration) {
        let Ok(handle) = self.handle.try_clone() else {
            return;
        };
        // The handle of a process is ready to be read once the process has ended.
        #[expect(
            unsafe_code,
            reason = "the registration asks for a promise that safe code cannot give"
        )]
        // SAFETY: the handle is owned by what it is registered in, and is neither closed nor replaced before that is dropped.
        let end = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) };
        let Ok(end) = end else {
            return;
        };
        let _late = tokio::time::timeout(patience, end.readable()).await;
    }
}

/// Returns the processes that have an exclusive `flock` on a file of this inode number, on whichever device.
fn lockers(locks: &str, inode: u64) -> Vec<Pid> {
    locks
        .lines()
        .filter_map(|line| {
            // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", pid, place, ..] = fields.as_slice() else {
                return None;
            };
            let number = place.rsplit(':').next()?.parse::<u64>().ok()?;
            // Whoever is in another pid namespace is 0 or -1 here.
            let pid = pid.parse().ok().filter(|pid| *pid > 0 && number == inode)?;
            Pid::from_raw(pid)
        })
        .collect()
}

/// Finds the supervisor that holds the start file in a directory, under the path by which it was started.
///
/// It must both hold a lock on that inode and have been started on that very path: numbers alone are not enough to kill.
pub(crate) fn find(directory: impl AsFd, path: &Path) -> Result<Option<Holder>, Error> {
    let stat = rustix::fs::statat(directory, START_FILE, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| Error::io("failed to look at the start file", e.into()))?;
    let locks = std::fs::read_to_string("/proc/locks")
        .map_err(|e| Error::io("failed to read the kernel's list of locks", e))?;
    let start_file = path.join(START_FILE);
    for pid in lockers(&locks, stat.st_ino) {
        // The handle first: what is then read of the number is of this process, or the handle is dead.
        let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let Ok(arguments) = std::fs::read(format!("/proc/{pid}/cmdline")) else {
            continue;
        };
        if arguments
            .split(|b| *b == 0)
            .any(|argument| argument == start_file.as_os_str().as_bytes())
        {
            return Ok(Some(Holder { pid, handle }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockers_are_told_by_inode_and_kind() {
        let locks = "1: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 14 fe:00:77 0 EOF\n\
            3: FLOCK  ADVISORY  READ 15 fe:00:77 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE 16 fe:00:78 0 EOF\n\
            5: FLOCK  ADVISORY  WRITE 0 fe:00:77 0 EOF\n\
            6: FLOCK  ADVISORY  WRITE -1 fe:00:77 0 EOF\n";
        assert_eq!(lockers(locks, 77), [Pid::from_raw(12).unwrap()]);
    }
}
