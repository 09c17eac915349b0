//! A launch's checkpoints with faults at them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    cancel::CancelToken,
    checkpoint::{Checkpoint, Checkpoints},
    error::{Error, ErrorKind},
};
use tokio::sync::watch;

use super::plan::{Action, FaultPlan};

/// Checkpoints that go wrong as planned, and remember what passed.
#[derive(Debug)]
pub struct Faulty {
    plan: FaultPlan,
    cancel: CancelToken,
    seen: Mutex<Seen>,
    struck: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Seen {
    passes: BTreeMap<String, u32>,
    order: Vec<String>,
}

impl Faulty {
    /// Makes checkpoints for a plan; `cancel` and `hang` act on a token of their own.
    pub fn new(plan: FaultPlan) -> Self {
        Self::with_cancel(plan, CancelToken::new())
    }

    /// Makes checkpoints for a plan; `cancel` cancels that token, and `hang` lasts until it is cancelled.
    pub fn with_cancel(plan: FaultPlan, cancel: CancelToken) -> Self {
        Self {
            plan,
            cancel,
            seen: Mutex::default(),
            struck: watch::Sender::new(0),
        }
    }

    /// Returns the token that `cancel` cancels and `hang` waits for.
    pub fn cancel_token(&self) -> &CancelToken {
        &self.cancel
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
            Action::Hang => {
                self.cancel.cancelled().await;
                Err(Error::new(
                    ErrorKind::Cancelled,
                    "the hanging step was cancelled",
                ))
            }
            Action::Delay(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Action::Kill9 => {
                kill_self();
                Ok(())
            }
            Action::Cancel => {
                self.cancel.cancel();
                Ok(())
            }
        }
    }
}

#[expect(clippy::panic, reason = "the fault that was asked for is a panic")]
fn injected_panic(point: &Checkpoint) -> ! {
    panic!("a panic was injected at {point}")
}
