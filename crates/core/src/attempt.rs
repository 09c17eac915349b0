//! One attempt under way: how a step is run, broken off, and rolled back.
//!
//! Nothing here runs in a caller's future; a caller holds only a ticket.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    activity::ActivityKind,
    cancel::CancelToken,
    checkpoint::{Checkpoint, Place},
    error::{Error, ErrorKind},
    event::{EventKind, Step},
    id::AttemptId,
    identity::Identity,
    narrator::Narrator,
    plan::Plan,
    preparer::Effects,
    rollback::roll_back,
    shared::{Hold, Shared},
    store::LockGuard,
    ticket::LaunchError,
    undo::UndoRecord,
    unwind::{Outcome, Unwound},
};

/// Where a launch failed, and why.
pub(crate) type Failure = (Step, Error);

/// What is held while a launch goes on, and while it is rolled back.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) _attempt: Box<dyn LockGuard>,
    pub(crate) _share: Option<Box<dyn LockGuard>>,
    pub(crate) session: Hold,
}

/// One attempt under way.
pub(crate) struct Attempt {
    pub(crate) shared: Arc<Shared>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) narrator: Arc<Narrator>,
    pub(crate) cancel: CancelToken,
    /// Steps that did not end in time, with the keys of what they may still make.
    pub(crate) overdue: Mutex<Vec<(JoinHandle<()>, Vec<String>)>>,
}

impl Attempt {
    /// Runs one step in a task of its own: a panic or an endless wait in it stays there.
    ///
    /// An effect under way is awaited, within bounds, before it is undone: undoing what is still being done would race.
    pub(crate) fn step<'a, T: Send + 'static>(
        &'a self,
        step: Step,
        keys: &'a [&'a str],
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Failure>> + Send + 'a {
        let limit = self.shared.parts.policy.step;
        self.step_within(step, keys, limit, work)
    }

    /// Runs one step that may take as long as that.
    pub(crate) async fn step_within<T: Send + 'static>(
        &self,
        step: Step,
        keys: &[&str],
        limit: Duration,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Failure> {
        // Told first: a step that fails has started, also when it was cancelled before it did anything.
        self.narrator.tell(EventKind::StepStarted(step.clone()));
        if self.cancel.is_cancelled() {
            return Err((step, cancelled()));
        }
        let began = Instant::now();
        let checkpoints = Arc::clone(&self.shared.parts.checkpoints);
        let name = step.clone();
        let at_work = Arc::new(AtomicBool::new(false));
        let working = Arc::clone(&at_work);
        let mut task = self.shared.tasks.spawn(async move {
            checkpoints
                .pass(&Checkpoint {
                    step: name.clone(),
                    place: Place::Before,
                })
                .await?;
            working.store(true, Ordering::Relaxed);
            let value = work.await?;
            working.store(false, Ordering::Relaxed);
            checkpoints
                .pass(&Checkpoint {
                    step: name,
                    place: Place::After,
                })
                .await?;
            Ok(value)
        });
        let policy = self.shared.parts.policy;
        let patience = async {
            self.cancel.cancelled().await;
            tokio::time::sleep(policy.after_cancel).await;
        };
        let result = tokio::select! {
            biased;
            joined = &mut task => joined.unwrap_or_else(|_| Err(Error::new(ErrorKind::Panicked, "the component panicked"))),
            () = patience => {
                self.give_up(task, &at_work, keys).await;
                Err(cancelled())
            }
            () = tokio::time::sleep(limit) => {
                self.give_up(task, &at_work, keys).await;
                Err(Error::new(ErrorKind::TimedOut, "the step took too long").with("seconds", limit.as_secs()))
            }
        };
        match result {
            Ok(value) => {
                self.narrator
                    .tell(EventKind::StepFinished(step, began.elapsed()));
                Ok(value)
            }
            Err(error) => Err((step, error)),
        }
    }

    /// Breaks a step off; one that was at work may still make what it was asked for, on a thread or in an engine.
    async fn give_up<T: Send + 'static>(
        &self,
        mut task: JoinHandle<Result<T, Error>>,
        at_work: &AtomicBool,
        keys: &[&str],
    ) {
        task.abort();
        let broken_off = tokio::time::timeout(Duration::from_secs(1), &mut task).await;
        if broken_off.is_ok() && !at_work.load(Ordering::Relaxed) {
            return;
        }
        let ended = self.shared.tasks.spawn(async move {
            if broken_off.is_err() {
                drop(task.await);
            }
        });
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        self.overdue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((ended, keys));
    }

    pub(crate) async fn fail(self, step: Step, error: Error, held: Option<Held>) -> LaunchError {
        let redactor = self.narrator.redactor();
        let error = redactor.error(error);
        self.narrator
            .tell(EventKind::StepFailed(step.clone(), error.kind()));
        let overdue =
            std::mem::take(&mut *self.overdue.lock().unwrap_or_else(PoisonError::into_inner));
        let doubtful: BTreeSet<_> = overdue
            .iter()
            .flat_map(|(_, keys)| keys.iter().cloned())
            .collect();
        self.narrator.tell(EventKind::RollbackStarted(step.clone()));
        let mut rollback = match &held {
            Some(_) => self.roll_back(&error, &doubtful).await,
            // Without the session nothing was armed by this attempt, unless only the answer of `reserve` was lost.
            None => self.roll_back_unheld(&error).await,
        };
        self.narrator.tell(EventKind::RolledBack {
            clean: rollback.is_clean(),
        });
        for (_, outcome) in &mut rollback.outcomes {
            *outcome = redactor.outcome(outcome.clone());
        }
        let error = Arc::new(error);
        if !overdue.is_empty() {
            self.finish_later(overdue, Arc::clone(&error), held);
        }
        LaunchError {
            step,
            error,
            rollback: Arc::new(rollback),
        }
    }

    async fn roll_back(&self, why: &Error, doubtful: &BTreeSet<String>) -> Unwound {
        let narrator = Arc::clone(&self.narrator);
        let tell = move |record: &UndoRecord, outcome: &Outcome| {
            narrator.tell(EventKind::Undo(record.label.clone(), outcome.clone()));
        };
        roll_back(
            &self.shared,
            &self.plan.run,
            self.plan.attempt,
            &self.plan.records(),
            Some(why),
            doubtful,
            &tell,
        )
        .await
    }

    async fn roll_back_unheld(&self, why: &Error) -> Unwound {
        match self.shared.parts.store.attempts_of(&self.plan.run).await {
            Ok(rows) if rows.iter().all(|row| row.attempt != self.plan.attempt) => {
                Unwound::default()
            }
            // The locks fell with the step; they are taken again, so that no recovery acts at the same time.
            _ => match self
                .shared
                .hold(&self.plan.session, ActivityKind::Stopping)
                .await
            {
                Ok(_hold) => self.roll_back(why, &BTreeSet::new()).await,
                Err(error) => Unwound {
                    unsettled: Some(Arc::new(error)),
                    ..Default::default()
                },
            },
        }
    }

    /// Rolls back once more when steps that did not end in time have ended and had time to settle.
    ///
    /// The session is held until then; a process that dies before leaves this to the next recovery.
    fn finish_later(
        self,
        overdue: Vec<(JoinHandle<()>, Vec<String>)>,
        why: Arc<Error>,
        held: Option<Held>,
    ) {
        let shared = Arc::clone(&self.shared);
        drop(shared.tasks.spawn(async move {
            for (task, _) in overdue {
                drop(task.await);
            }
            tokio::time::sleep(self.shared.parts.policy.settle).await;
            let nobody = |_: &UndoRecord, _: &Outcome| {};
            let plan = &self.plan;
            drop(
                roll_back(
                    &self.shared,
                    &plan.run,
                    plan.attempt,
                    &plan.records(),
                    Some(&why),
                    &BTreeSet::new(),
                    &nobody,
                )
                .await,
            );
            drop(held);
        }));
    }
}

pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the launch was cancelled")
}

/// Makes the effects of a preparer known to the store, and to tests.
pub(crate) struct StoredEffects {
    pub(crate) shared: Arc<Shared>,
    /// Whose records are identified: those of a workspace that is made again are an earlier attempt's.
    pub(crate) attempt: AttemptId,
    pub(crate) step: Step,
}

#[async_trait]
impl Effects for StoredEffects {
    async fn identify(&self, key: &str, identity: Identity) -> Result<(), Error> {
        self.shared
            .parts
            .store
            .identify(self.attempt, key, &identity)
            .await
    }

    async fn checkpoint(&self, name: &str) -> Result<(), Error> {
        let point = Checkpoint {
            step: self.step.clone(),
            place: Place::Inside(name.to_owned()),
        };
        self.shared.parts.checkpoints.pass(&point).await
    }
}
