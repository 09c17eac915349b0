//! Takes armed resources away, newest first, by the laws of rollback.
//!
//! * A record is forgotten only after its undo returned; dropping the future loses nothing.
//! * A stuck or kept one holds those that depend on it, and no others.
//! * What is kept stays owned: it is due again on a later occasion.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::{
    adopted::end_process,
    error::{Chain, Error, ErrorKind, ErrorReport},
    id::InstanceId,
    pacing::jitter,
    registry::Registry,
    secret::RuntimeSecrets,
    store::{ArmedRecord, StateStore},
    undo::{Component, UndoOptions, UndoRecord, Undone},
    workspace::Finding,
};

/// How hard unwinding tries before it leaves the rest owned.
#[derive(Clone, Copy, Debug)]
pub struct UnwindPolicy {
    /// Tries for each record.
    pub tries: u32,
    /// The longest first pause; it doubles, and each pause is a random part of it.
    pub pause: Duration,
    /// The longest time for one try.
    pub timeout: Duration,
}

impl Default for UnwindPolicy {
    fn default() -> Self {
        Self {
            tries: 4,
            pause: Duration::from_millis(100),
            timeout: Duration::from_mins(1),
        }
    }
}

/// What became of one record.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Its component answered.
    Done(Undone),
    /// Not tried: it must wait for what was kept.
    HeldByKept(String),
    /// Not tried: it must wait for what is stuck.
    HeldByStuck(String),
    /// It failed; it stays owned and is tried again.
    Stuck(Arc<Error>),
}

/// What unwinding came to.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Unwound {
    /// What became of each record that was due, in the order of trying.
    pub outcomes: Vec<(UndoRecord, Outcome)>,
    /// Why the result could not be noted in the store; the next recovery finds it out again.
    pub unsettled: Option<Arc<Error>>,
    /// What kept the work of resources that stay from being where it is looked for.
    pub undelivered: Vec<Finding>,
}

impl Unwound {
    /// Returns whether nothing is left that was not kept on purpose.
    pub fn is_clean(&self) -> bool {
        let stuck =
            |outcome: &Outcome| matches!(outcome, Outcome::Stuck(_) | Outcome::HeldByStuck(_));
        self.unsettled.is_none() && !self.outcomes.iter().any(|(_, outcome)| stuck(outcome))
    }

    /// Returns what was kept, by label, with the reasons.
    pub fn kept(&self) -> impl Iterator<Item = (&str, &[Finding])> {
        self.outcomes
            .iter()
            .filter_map(|(record, outcome)| match outcome {
                Outcome::Done(Undone::Kept(findings)) => {
                    Some((record.label.as_str(), findings.as_slice()))
                }
                _ => None,
            })
    }

    /// Returns what is stuck, by label, with the errors.
    pub fn stuck(&self) -> impl Iterator<Item = (&str, &Arc<Error>)> {
        self.outcomes
            .iter()
            .filter_map(|(record, outcome)| match outcome {
                Outcome::Stuck(error) => Some((record.label.as_str(), error)),
                _ => None,
            })
    }

    /// Returns the labels of what was there and is gone.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.outcomes
            .iter()
            .filter_map(|(record, outcome)| match outcome {
                Outcome::Done(Undone::Removed { .. }) => Some(record.label.as_str()),
                _ => None,
            })
    }

    /// Returns the first ref that keeps what was removed by force.
    pub fn snapshot(&self) -> Option<&str> {
        self.outcomes.iter().find_map(|(_, outcome)| match outcome {
            Outcome::Done(Undone::Removed { snapshot }) => snapshot.as_deref(),
            _ => None,
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(Undone::Removed { .. }) => f.write_str("removed"),
            Self::Done(Undone::AlreadyGone) => f.write_str("already gone"),
            Self::Done(Undone::Kept(_)) => f.write_str("kept"),
            Self::Done(Undone::NotOurs(why)) => write!(f, "not ours: {why}"),
            Self::HeldByKept(key) | Self::HeldByStuck(key) => write!(f, "waits for {key}"),
            Self::Stuck(error) => write!(f, "stuck: {}", Chain(&**error)),
        }
    }
}

/// What unwinding needs.
pub(crate) struct Unwinder<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) store: &'a dyn StateStore,
    pub(crate) runtime_secrets: &'a Arc<dyn RuntimeSecrets>,
    pub(crate) tasks: &'a TaskTracker,
    pub(crate) policy: UnwindPolicy,
    /// Keys of records whose effect may still be under way: that they are gone does not retire them.
    pub(crate) doubtful: &'a BTreeSet<String>,
    pub(crate) tell: &'a (dyn Fn(&UndoRecord, &Outcome) + Sync),
}

impl Unwinder<'_> {
    /// Takes away what is due of `armed`, which is in the order of arming.
    pub(crate) async fn unwind(&self, armed: &[ArmedRecord], options: UndoOptions) -> Unwound {
        let mut unwound = Unwound::default();
        let mut kept = BTreeSet::new();
        let mut stuck = BTreeSet::new();
        for record in armed
            .iter()
            .rev()
            .map(|armed| &armed.record)
            .filter(|record| record.due.on(options.occasion))
        {
            let waits_for = |keys: &BTreeSet<&str>| {
                record
                    .depends_on
                    .iter()
                    .find(|key| keys.contains(key.as_str()))
                    .cloned()
            };
            let outcome = if let Some(key) = waits_for(&stuck) {
                Outcome::HeldByStuck(key)
            } else if let Some(key) = waits_for(&kept) {
                Outcome::HeldByKept(key)
            } else {
                self.undo(record, options).await
            };
            match outcome {
                Outcome::Done(Undone::Kept(_)) | Outcome::HeldByKept(_) => {
                    _ = kept.insert(record.key.as_str());
                }
                Outcome::Stuck(_) | Outcome::HeldByStuck(_) => {
                    _ = stuck.insert(record.key.as_str());
                }
                Outcome::Done(_) => {}
            }
            (self.tell)(record, &outcome);
            unwound.outcomes.push((record.clone(), outcome));
        }
        unwound
    }

    async fn undo(&self, record: &UndoRecord, options: UndoOptions) -> Outcome {
        let undone = match self.try_undo(record, options).await {
            // What is gone may come again: it is not forgotten before its making is known to have ended.
            Ok(Undone::AlreadyGone | Undone::Removed { .. })
                if self.doubtful.contains(&record.key) =>
            {
                let why = "what makes it may still be under way";
                Err(Error::new(ErrorKind::Unavailable, why))
            }
            other => other,
        };
        let retired = match undone {
            Ok(kept @ Undone::Kept(_)) => return Outcome::Done(kept),
            Ok(undone) => self
                .store
                .retire(record.attempt, &record.key)
                .await
                .map(|()| undone),
            Err(error) => Err(error),
        };
        match retired {
            Ok(undone) => Outcome::Done(undone),
            Err(error) => {
                // That it could not be noted either must not hide why it is stuck.
                drop(
                    self.store
                        .note_failure(record.attempt, &record.key, &ErrorReport::from(&error))
                        .await,
                );
                Outcome::Stuck(Arc::new(error))
            }
        }
    }

    async fn try_undo(&self, record: &UndoRecord, options: UndoOptions) -> Result<Undone, Error> {
        let mut pause = self.policy.pause;
        for left in (0..self.policy.tries.max(1)).rev() {
            match self.undo_once(record.clone(), options).await {
                Err(error) if error.is_retryable() && left > 0 => {
                    tokio::time::sleep(jitter(pause)).await;
                    pause *= 2;
                }
                other => return other,
            }
        }
        Err(Error::new(ErrorKind::Unexpected, "no try was made"))
    }

    /// Brings the work of what stays to where it is looked for; returns what stands against it.
    pub(crate) async fn deliver(&self, armed: &[ArmedRecord]) -> Vec<Finding> {
        let mut undelivered = Vec::new();
        for record in armed.iter().map(|armed| armed.record.clone()) {
            let Component::Preparer(name) = &record.component else {
                continue;
            };
            let delivered = match self.registry.preparer(name).cloned() {
                Ok(preparer) => {
                    let task = async move { preparer.deliver(&record).await };
                    self.bounded("delivering the work", self.tasks.spawn(task))
                        .await
                }
                Err(error) => Err(error),
            };
            match delivered {
                Ok(findings) => undelivered.extend(findings),
                Err(error) => undelivered.push(Finding {
                    what: "unreadable".to_owned(),
                    items: vec![Chain(&error).to_string()],
                    count: 1,
                }),
            }
        }
        undelivered
    }

    /// Runs one undo in a task of its own.
    async fn undo_once(&self, record: UndoRecord, options: UndoOptions) -> Result<Undone, Error> {
        let task = match record.component.clone() {
            Component::Executor(name) => {
                let executor = Arc::clone(&self.registry.get(&name)?.executor);
                let id = InstanceId::new(record.resource.as_str())?;
                self.tasks
                    .spawn(async move { executor.delete(&id, record.identity.as_ref()).await })
            }
            Component::Process(name) => {
                let executor = Arc::clone(&self.registry.get(&name)?.executor);
                self.tasks
                    .spawn(async move { end_process(&*executor, &record).await })
            }
            Component::Preparer(name) => {
                let preparer = Arc::clone(self.registry.preparer(&name)?);
                self.tasks
                    .spawn(async move { preparer.undo(&record, options).await })
            }
            Component::RuntimeSecrets => {
                let secrets = Arc::clone(self.runtime_secrets);
                self.tasks
                    .spawn(async move { secrets.forget(record.attempt).await })
            }
        };
        self.bounded("the undo", task).await
    }

    /// Waits for a task of ours: a panic or an endless wait in it stays there.
    async fn bounded<T>(&self, what: &str, task: JoinHandle<Result<T, Error>>) -> Result<T, Error> {
        let abort = task.abort_handle();
        match tokio::time::timeout(self.policy.timeout, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Error::new(ErrorKind::Panicked, format!("{what} panicked"))),
            Err(_) => {
                // It may be done in part; it is repeatable. Left alone it would hold up the launcher's shutdown for ever.
                abort.abort();
                let error = Error::new(ErrorKind::TimedOut, format!("{what} took too long"));
                Err(error.retryable(false))
            }
        }
    }
}
