//! The maintenance lease: for work that must not meet any other, such as clearing caches.
//!
//! It never keeps a task waiting for longer than its holder needs to notice.

use std::{sync::Arc, time::Duration};

use tokio::task::AbortHandle;

use crate::{
    activity::{ASK, Activity, ActivityKind, ActivityReport},
    cancel::CancelToken,
    error::{Error, ErrorKind},
    observe::observe,
    shared::Shared,
    store::{LockGuard, LockName, RunState},
};

/// What a maintenance asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceOptions {
    /// How long nothing may have been at work in this process.
    pub quiet: Duration,
    /// Whether it goes on beside task work that is there already; another maintenance still excludes it.
    pub force: bool,
}

/// Nothing else is at work while this lives; unless it was forced, or until it is told to end.
///
/// Whoever holds it asks [`is_pre_empted`](Self::is_pre_empted) between two pieces of work, and calls no verb of a launcher that
/// changes something: such a verb would wait for it.
#[derive(Debug)]
pub struct MaintenanceLease {
    activity: Arc<Activity>,
    ended: CancelToken,
    watch: AbortHandle,
    _maintenance: Box<dyn LockGuard>,
    _activity: Option<Box<dyn LockGuard>>,
}

impl MaintenanceLease {
    /// Returns whether task work waits for its end.
    pub fn is_pre_empted(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until task work waits for its end.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn pre_empted(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for MaintenanceLease {
    fn drop(&mut self) {
        self.watch.abort();
        self.activity.set_maintenance(None);
    }
}

/// Takes the maintenance lease.
pub(crate) async fn maintain(
    shared: &Shared,
    options: MaintenanceOptions,
) -> Result<MaintenanceLease, Error> {
    let locks = &shared.parts.locks;
    let busy = |why: &'static str| Error::new(ErrorKind::Busy, why).retryable(true);
    let Some(maintenance) = locks.try_lock(&LockName::Maintenance).await? else {
        return Err(busy("another maintenance is under way"));
    };
    let mut activity = None;
    if !options.force {
        quiet(&shared.activity.report(), options.quiet)?;
        activity = locks.try_lock(&LockName::Activity).await?;
        if activity.is_none() {
            return Err(busy("something is at work in another process"));
        }
        nothing_runs(shared).await?;
    }
    let ended = shared.stopping.child();
    shared.activity.set_maintenance(Some(ended.clone()));
    let (asking, told) = (Arc::clone(locks), ended.clone());
    let watch = shared.tasks.spawn(async move {
        while !told.is_cancelled()
            && !matches!(asking.try_lock(&LockName::TaskWaiting).await, Ok(None))
        {
            tokio::time::sleep(ASK).await;
        }
        told.cancel();
    });
    Ok(MaintenanceLease {
        activity: Arc::clone(&shared.activity),
        ended,
        watch: watch.abort_handle(),
        _maintenance: maintenance,
        _activity: activity,
    })
}

fn quiet(report: &ActivityReport, wanted: Duration) -> Result<(), Error> {
    if !report.tasks.is_empty() {
        let kinds: Vec<_> = report
            .tasks
            .iter()
            .map(|(kind, count)| format!("{kind}: {count}"))
            .collect();
        return Err(Error::new(ErrorKind::Busy, "something is at work")
            .with("at_work", kinds.join(", "))
            .retryable(true));
    }
    match report.quiet {
        Some(quiet) if quiet < wanted => {
            let left = wanted.saturating_sub(quiet).as_millis();
            Err(
                Error::new(ErrorKind::Busy, "something was at work just now")
                    .with("quiet_in_ms", left)
                    .retryable(true),
            )
        }
        _ => Ok(()),
    }
}

/// Checks that no run is up: its agent may use whatever would be cleared. Nobody can launch one meanwhile.
async fn nothing_runs(shared: &Shared) -> Result<(), Error> {
    for record in shared.parts.store.runs().await? {
        if !matches!(record.state, RunState::Running | RunState::Preparing) {
            continue;
        }
        let (run, dead_launch) = (record.run.clone(), record.state == RunState::Preparing);
        // A launch that died may have left something that runs; recovery finds out.
        if dead_launch || observe(shared, record).await.state == RunState::Running {
            return Err(Error::new(ErrorKind::Busy, "a run is up")
                .with("at_work", format!("{}: 1", ActivityKind::Running))
                .with("run", run)
                .retryable(true));
        }
    }
    Ok(())
}
