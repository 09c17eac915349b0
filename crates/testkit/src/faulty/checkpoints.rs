//! A launch's checkpoints with faults at them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    checkpoint::{Checkpoint, Checkpoints},
    error::Error,
};
use tokio::sync::watch;

use super::plan::{Action, FaultPlan};

/// Checkpoints that go wrong as planned, and remember what passed.
pub struct Faulty {
    plan: FaultPlan,
    cancel: Mutex<Option<Box<dyn Fn() + Send>>>,
    seen: Mutex<Seen>,
    struck: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Seen {
    passes: BTreeMap<String, u32>,
    order: Vec<String>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("plan", &self.plan)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl Faulty {
    /// Makes checkpoints for a plan.
    pub fn new(plan: FaultPlan) -> Self {
        Self {
            plan,
            cancel: Mutex::default(),
            seen: Mutex::default(),
            struck: watch::Sender::new(0),
        }
    }

    /// Sets what `cancel` does: cancel a ticket, or a token.
    pub fn on_cancel(&self, cancel: impl Fn() + Send + 'static) {
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(cancel));
    }

    /// Returns the names of all checkpoints passed so far, in order.
    pub fn passed(&self) -> Vec<String> {
        self.seen().order.clone()
    }

    /// Returns how many faults have struck so far.
    pub fn struck(&self) -> usize {
        *self.struck.borrow()
    }

    /// Waits until a fault has struck.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn until_struck(&self) {
        let mut struck = self.struck.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        drop(struck.wait_for(|count| *count > 0).await);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn action(&self, point: &Checkpoint) -> Option<Action> {
        let point = point.to_string();
        let mut seen = self.seen();
        seen.order.push(point.clone());
        let pass = seen.passes.entry(point.clone()).or_default();
        *pass += 1;
        let planned =
            |fault: &&super::plan::PlannedFault| fault.point == point && fault.pass == *pass;
        self.plan.0.iter().find(planned).map(|f| f.action.clone())
    }
}

/// Ends this process as `kill -9` does: nothing is flushed, dropped or rolled back.
fn kill_self() {
    let pid = rustix::process::getpid();
    if rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_err() {
        std::process::abort();
    }
}

#[async_trait]
impl Checkpoints for Faulty {
    async fn pass(&self, point: &Checkpoint) -> Result<(), Error> {
        let Some(action) = self.action(point) else {
            return Ok(());
        };
        self.struck.send_modify(|count| *count += 1);
        match action {
            Action::Error(kind) => {
                Err(Error::new(kind, "a fault was injected").with("point", point))
            }
            Action::Panic => injected_panic(point),
            Action::Hang => std::future::pending().await,
            Action::Delay(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Action::Kill9 => {
                kill_self();
                Ok(())
            }
            Action::Cancel => {
                let cancel = self.cancel.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(cancel) = &*cancel {
                    cancel();
                }
                Ok(())
            }
        }
    }
}

#[expect(clippy::panic, reason = "the fault that was asked for is a panic")]
fn injected_panic(point: &Checkpoint) -> ! {
    panic!("a panic was injected at {point}")
}
