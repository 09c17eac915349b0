//! Locks between processes: `flock` on one file for each name.
//!
//! * The kernel gives a lock back when its holder ends, however it ends.
//! * A file is unlinked by its holder before the lock is given back, so that none pile up; who gains a lock checks
//!   that the file still has its name.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    store::{LockDirectory, LockGuard, LockName},
};
use tokio::{task::spawn_blocking, time::sleep};

use crate::files;

/// The directory of lock files.
#[derive(Debug)]
pub struct FlockDirectory {
    sessions: PathBuf,
    attempts: PathBuf,
    shares: PathBuf,
    /// The files of the locks that there is one of each.
    single: PathBuf,
}

/// A held lock.
#[derive(Debug)]
struct Held {
    file: File,
    path: PathBuf,
    /// Whether the file goes with the lock: not where others may share it.
    unlinks: bool,
}

/// How a lock is taken.
#[derive(Clone, Copy, Debug)]
enum How {
    Alone,
    Shared,
}

impl LockGuard for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // Only the holder unlinks, and only while it holds. A file that stays is harmless.
        if self.unlinks {
            let _left = files::remove_if_there(&self.path);
        }
        // Not left to closing: a child between fork and exec may have a copy of the descriptor.
        let _left = self.file.unlock();
    }
}

impl FlockDirectory {
    pub(crate) fn new(locks: &Path) -> Self {
        Self {
            sessions: locks.join("session"),
            attempts: locks.join("attempt"),
            shares: locks.join("share"),
            single: locks.to_owned(),
        }
    }

    /// Lists the files of locks that nobody has; what a sweep removes. Blocks for no lock.
    ///
    /// # Errors
    ///
    /// When the directory of lock files cannot be read.
    pub fn left_over(&self) -> Result<Vec<PathBuf>, Error> {
        let mut found = Vec::new();
        for directory in [&self.sessions, &self.attempts, &self.shares] {
            let failed = |error| files::failed("cannot list the locks in", directory, error);
            for entry in std::fs::read_dir(directory).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                match File::open(&path) {
                    // Given back at once; the file stays.
                    Ok(file) => match file.try_lock() {
                        Ok(()) => found.push(path),
                        Err(TryLockError::WouldBlock) => {}
                        Err(TryLockError::Error(error)) => return Err(failed(error)),
                    },
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn path_of(&self, name: &LockName) -> Result<PathBuf, Error> {
        match name {
            LockName::Activity => Ok(self.single.join("activity")),
            LockName::Maintenance => Ok(self.single.join("maintenance")),
            LockName::TaskWaiting => Ok(self.single.join("task-waiting")),
            LockName::Session(session) => Ok(self.sessions.join(disk_name(session.as_str()))),
            LockName::Share(key) => Ok(self.shares.join(disk_name(key.as_str()))),
            LockName::Attempt(attempt) => Ok(self.attempts.join(attempt.to_string())),
            other => Err(Error::new(
                ErrorKind::Unsupported,
                "this kind of lock is not known here",
            )
            .with("lock", format!("{other:?}"))),
        }
    }
}

/// Returns the name of the lock file of a session or a share key, which also on a file system that folds case is its alone.
///
/// * An id without upper-case letters is its own name.
/// * Another is its lower case, `~`, which no id holds, and eight hexadecimal digits of the FNV-1a hash of the id.
fn disk_name(id: &str) -> String {
    if !id.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return id.to_owned();
    }
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{}~{hash:08x}", id.to_ascii_lowercase())
}

/// Returns whether the file of a lock goes with it: where others may share it, it stays.
fn unlinks(name: &LockName) -> bool {
    !matches!(
        name,
        LockName::Activity | LockName::Maintenance | LockName::TaskWaiting
    )
}

/// Takes the lock on a file of the state directory that is none of the directory of locks, if nobody has it.
///
/// * The file is made unless it is there, and stays; a lock on one that was unlinked meanwhile is none.
/// * It blocks for nobody.
///
/// # Errors
///
/// When the file cannot be opened or locked.
pub fn try_lock_file(path: &Path) -> Result<Option<Box<dyn LockGuard>>, Error> {
    let held = try_once(path, How::Alone, false)?;
    Ok(held.map(|held| Box::new(held) as Box<dyn LockGuard>))
}

fn try_once(path: &Path, how: How, unlinks: bool) -> Result<Option<Held>, Error> {
    let failed = |error| files::failed("cannot lock", path, error);
    loop {
        let file = files::open_lock(path).map_err(failed)?;
        let tried = match how {
            How::Alone => file.try_lock(),
            How::Shared => file.try_lock_shared(),
        };
        match tried {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // The holder before us may have unlinked the file between our two calls; then others lock a new one.
        if files::is_still(&file, path).map_err(failed)? {
            return Ok(Some(Held {
                file,
                path: path.to_owned(),
                unlinks,
            }));
        }
    }
}

async fn try_off_thread(path: PathBuf, how: How, unlinks: bool) -> Result<Option<Held>, Error> {
    // If this future is dropped meanwhile, the guard is dropped with the task's result.
    match spawn_blocking(move || try_once(&path, how, unlinks)).await {
        Ok(tried) => tried,
        Err(error) => Err(Error::new(
            ErrorKind::Cancelled,
            "the program ended while it waited for a lock",
        )
        .with_source(error)),
    }
}

/// Picks a random time below a bound that grows with each try, so that those who wait do not march in step.
fn backoff(tries: u32) -> Result<Duration, Error> {
    let bound = (2_u64 << tries.min(5)).min(50) * 1000;
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the system gives no random numbers")
            .with_source(error.to_string())
    })?;
    Ok(Duration::from_micros(
        1000 + u64::from_le_bytes(bytes) % bound,
    ))
}

#[async_trait]
impl LockDirectory for FlockDirectory {
    async fn lock(&self, name: &LockName) -> Result<Box<dyn LockGuard>, Error> {
        let path = self.path_of(name)?;
        let mut tries = 0;
        loop {
            if let Some(held) = try_off_thread(path.clone(), How::Alone, unlinks(name)).await? {
                return Ok(Box::new(held));
            }
            // The kernel announces a free flock to a blocked thread only, and a blocked thread cannot be called off:
            // it would gain the lock for somebody who is gone.
            sleep(backoff(tries)?).await;
            tries += 1;
        }
    }

    async fn try_lock(&self, name: &LockName) -> Result<Option<Box<dyn LockGuard>>, Error> {
        let held = try_off_thread(self.path_of(name)?, How::Alone, unlinks(name)).await?;
        Ok(held.map(|held| Box::new(held) as Box<dyn LockGuard>))
    }

    async fn try_share(&self, name: &LockName) -> Result<Option<Box<dyn LockGuard>>, Error> {
        if unlinks(name) {
            return Err(
                Error::new(ErrorKind::Unsupported, "this kind of lock is never shared")
                    .with("lock", format!("{name:?}")),
            );
        }
        let held = try_off_thread(self.path_of(name)?, How::Shared, false).await?;
        Ok(held.map(|held| Box::new(held) as Box<dyn LockGuard>))
    }

    async fn sweep(&self) -> Result<(), Error> {
        for directory in [&self.sessions, &self.attempts, &self.shares] {
            let failed = |error| files::failed("cannot list the locks in", directory, error);
            for entry in std::fs::read_dir(directory).map_err(failed)? {
                // A lock that is gained is given back at once, and its file goes with it.
                drop(try_off_thread(entry.map_err(failed)?.path(), How::Alone, true).await?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_never_share_a_file_even_where_case_is_folded() {
        let name = disk_name;
        assert_eq!(name("abc-1.x_y"), "abc-1.x_y");
        assert_eq!(name("Abc"), "abc~7cd280ab");
        assert_ne!(name("aBc").to_lowercase(), name("Abc").to_lowercase());
        assert_eq!(name("ABC"), name("ABC"));
    }

    #[test]
    fn the_wait_between_two_tries_is_bounded() {
        for tries in [0, 1, 5, 40, u32::MAX] {
            let wait = backoff(tries).unwrap();
            assert!(wait >= Duration::from_millis(1) && wait <= Duration::from_millis(51));
        }
    }
}
