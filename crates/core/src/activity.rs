//! What is at work, and when nothing is: task leases by kind against one maintenance lease.
//!
//! * Task work always wins: it ends a maintenance and waits until that has ended.
//! * Between processes three locks that the kernel gives back do the same; a run that is up counts by its row, whoever
//!   started it, so that no controller has to live as long as its agents.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    cancel::CancelToken,
    error::Error,
    store::{LockDirectory, LockGuard, LockName},
};

/// How often it is asked whether another process waits; the kernel tells nobody.
pub(crate) const ASK: Duration = Duration::from_millis(20);

/// What is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ActivityKind {
    /// A launch that waits for its session.
    Starting,
    /// A launch on its way.
    Preparing,
    /// An agent that runs.
    Running,
    /// A run that is settled, stopped or closed.
    Stopping,
    /// A command that a person gave.
    ShellCommand,
    /// A test that a person started.
    TestCommand,
    /// A setup script.
    SetupScript,
    /// A clean-up, such as a recovery.
    CleanupScript,
    /// An image that is built.
    ImageBuild,
}

impl ActivityKind {
    /// Returns its name for people; it says nothing of what exactly is at work.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::ShellCommand => "shell command",
            Self::TestCommand => "test command",
            Self::SetupScript => "setup script",
            Self::CleanupScript => "cleanup script",
            Self::ImageBuild => "image build",
        }
    }
}

impl fmt::Display for ActivityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// What is at work in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActivityReport {
    /// How many leases of each kind there are.
    pub tasks: BTreeMap<ActivityKind, usize>,
    /// Whether a maintenance runs.
    pub maintenance: bool,
    /// How long nothing was at work; none if something is, or nothing ever was.
    pub quiet: Option<Duration>,
}

/// The leases of a process.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tasks: BTreeMap<ActivityKind, usize>,
    maintenance: Option<CancelToken>,
    last: Option<Instant>,
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, kind: ActivityKind) {
        *self.state().tasks.entry(kind).or_default() += 1;
    }

    fn end(&self, kind: ActivityKind) {
        let mut state = self.state();
        state.last = Some(Instant::now());
        if let Some(count) = state.tasks.get_mut(&kind) {
            *count -= 1;
            if *count == 0 {
                state.tasks.remove(&kind);
            }
        }
    }

    /// Notes the maintenance of this process, or that there is none.
    pub(crate) fn set_maintenance(&self, maintenance: Option<CancelToken>) {
        self.state().maintenance = maintenance;
    }

    /// Asks the maintenance of this process to end.
    fn pre_empt(&self) {
        if let Some(maintenance) = &self.state().maintenance {
            maintenance.cancel();
        }
    }

    pub(crate) fn report(&self) -> ActivityReport {
        let state = self.state();
        let quiet = match state.last {
            Some(last) if state.tasks.is_empty() => Some(last.elapsed()),
            _ => None,
        };
        ActivityReport {
            tasks: state.tasks.clone(),
            maintenance: state.maintenance.is_some(),
            quiet,
        }
    }

    /// Takes a task lease; a maintenance is ended first, wherever it runs.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives everything back.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        locks: &dyn LockDirectory,
        kind: ActivityKind,
    ) -> Result<TaskLease, Error> {
        // Counted from the first moment on, so that no maintenance of this process begins meanwhile.
        self.begin(kind);
        let mut lease = TaskLease {
            activity: Arc::clone(self),
            held: Mutex::new(Some(Held { kind, lock: None })),
        };
        let guard = match at_once(locks).await? {
            Some(guard) => guard,
            None => self.wait(locks).await?,
        };
        let held = lease.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        *held = Some(Held {
            kind,
            lock: Some(guard),
        });
        Ok(lease)
    }

    async fn wait(&self, locks: &dyn LockDirectory) -> Result<Box<dyn LockGuard>, Error> {
        let mut waiting = None;
        loop {
            if waiting.is_none() {
                waiting = locks.try_share(&LockName::TaskWaiting).await?;
            }
            self.pre_empt();
            if let Some(guard) = at_once(locks).await? {
                return Ok(guard);
            }
            tokio::time::sleep(ASK).await;
        }
    }
}

/// Shares the lock of all that is at work, if no maintenance runs.
async fn at_once(locks: &dyn LockDirectory) -> Result<Option<Box<dyn LockGuard>>, Error> {
    let Some(guard) = locks.try_share(&LockName::Activity).await? else {
        return Ok(None);
    };
    // One that was forced does not have that lock alone, but it has this one.
    let no_maintenance = locks.try_share(&LockName::Maintenance).await?.is_some();
    Ok(no_maintenance.then_some(guard))
}

/// Something is at work while this lives.
#[derive(Debug)]
pub struct TaskLease {
    activity: Arc<Activity>,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    kind: ActivityKind,
    lock: Option<Box<dyn LockGuard>>,
}

impl TaskLease {
    /// Changes what is at work, without a gap; a lease that was released stays so.
    pub fn become_kind(&self, kind: ActivityKind) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = &mut *held {
            self.activity.begin(kind);
            self.activity.end(std::mem::replace(&mut held.kind, kind));
        }
    }

    /// Ends it; again is nothing.
    pub fn release(&self) {
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(Held { kind, lock }) = held {
            drop(lock);
            self.activity.end(kind);
        }
    }
}

impl Drop for TaskLease {
    fn drop(&mut self) {
        self.release();
    }
}
