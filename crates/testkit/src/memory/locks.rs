//! Locks between processes, in memory; a process that dies frees what it held.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    store::{LockDirectory, LockGuard, LockName},
};
use tokio::sync::Notify;

/// The locks of one installation, as one process sees them.
///
/// * [`process`](Self::process) gives the view of another process on the same locks.
/// * [`die`](Self::die) frees everything that this process held, as the kernel does; its guards then mean nothing.
#[derive(Clone, Debug)]
pub struct MemoryLocks {
    directory: Arc<Directory>,
    process: u64,
}

#[derive(Debug, Default)]
struct Directory {
    table: Mutex<Table>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// By the name as `Debug` writes it: its holder, or those who share it.
    held: BTreeMap<String, Vec<Holder>>,
    processes: u64,
    dead: Vec<u64>,
    tickets: u64,
}

#[derive(Debug)]
struct Holder {
    shares: bool,
    process: u64,
    ticket: u64,
}

impl Directory {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, name: &str, ticket: u64) {
        let mut table = self.table();
        let Some(holders) = table.held.get_mut(name) else {
            return;
        };
        let before = holders.len();
        holders.retain(|holder| holder.ticket != ticket);
        if holders.len() < before {
            if holders.is_empty() {
                table.held.remove(name);
            }
            drop(table);
            self.freed.notify_waiters();
        }
    }
}

struct Guard {
    directory: Arc<Directory>,
    name: String,
    ticket: u64,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.name).finish()
    }
}

impl LockGuard for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        self.directory.release(&self.name, self.ticket);
    }
}

impl Default for MemoryLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLocks {
    /// Makes a directory without locks, and the view of its first process.
    pub fn new() -> Self {
        Self {
            directory: Arc::default(),
            process: 0,
        }
    }

    /// Returns the view of another process.
    #[must_use]
    pub fn process(&self) -> Self {
        let mut table = self.directory.table();
        table.processes += 1;
        Self {
            directory: Arc::clone(&self.directory),
            process: table.processes,
        }
    }

    /// Ends this process: what it held is free, and it gets nothing more.
    pub fn die(&self) {
        let mut table = self.directory.table();
        table.dead.push(self.process);
        table.held.retain(|_, holders| {
            holders.retain(|holder| holder.process != self.process);
            !holders.is_empty()
        });
        drop(table);
        self.directory.freed.notify_waiters();
    }

    /// Returns the names of all locks that anybody holds.
    pub fn held(&self) -> Vec<String> {
        self.directory.table().held.keys().cloned().collect()
    }

    fn take(&self, name: &LockName, shares: bool) -> Result<Option<Box<dyn LockGuard>>, Error> {
        let name = format!("{name:?}");
        let mut table = self.directory.table();
        if table.dead.contains(&self.process) {
            return Err(Error::new(ErrorKind::Unavailable, "the process is dead"));
        }
        let held = table.held.get(&name);
        if held.is_some_and(|holders| !shares || holders.iter().any(|holder| !holder.shares)) {
            return Ok(None);
        }
        table.tickets += 1;
        let ticket = table.tickets;
        let holder = Holder {
            shares,
            process: self.process,
            ticket,
        };
        table.held.entry(name.clone()).or_default().push(holder);
        Ok(Some(Box::new(Guard {
            directory: Arc::clone(&self.directory),
            name,
            ticket,
        })))
    }
}

#[async_trait]
impl LockDirectory for MemoryLocks {
    async fn lock(&self, name: &LockName) -> Result<Box<dyn LockGuard>, Error> {
        loop {
            let mut freed = std::pin::pin!(self.directory.freed.notified());
            // Registered before the attempt, so that a release in between is not missed.
            freed.as_mut().enable();
            if let Some(guard) = self.take(name, false)? {
                return Ok(guard);
            }
            freed.await;
        }
    }

    async fn try_lock(&self, name: &LockName) -> Result<Option<Box<dyn LockGuard>>, Error> {
        self.take(name, false)
    }

    async fn try_share(&self, name: &LockName) -> Result<Option<Box<dyn LockGuard>>, Error> {
        self.take(name, true)
    }

    async fn sweep(&self) -> Result<(), Error> {
        // A lock in memory that nobody has is nothing at all.
        Ok(())
    }
}
