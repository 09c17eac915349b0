//! What every verb of the launcher works with, and the few things that several of them do.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio_util::task::TaskTracker;

use crate::{
    activity::{Activity, ActivityKind, TaskLease},
    backpressure::Backpressure,
    cancel::CancelToken,
    checkpoint::Checkpoints,
    error::{Error, ErrorKind},
    event::EventSink,
    flights::Flights,
    id::{InstallId, ProcessId, RunId, SessionId},
    instance::SharedInstance,
    lane::Lanes,
    pacing::Pacing,
    profile::{MemoryProfiles, ProfileDirectory},
    registry::Registry,
    secret::{RuntimeSecrets, SecretStore},
    session_directory::SessionDirectory,
    store::{ArmedRecord, LockDirectory, LockGuard, LockName, RunRecord, StateStore},
    undo::{Component, Occasion, UndoOptions, UndoRecord},
    unwind::{Outcome, UnwindPolicy, Unwinder, Unwound},
    workspace::Finding,
};

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// One step of a launch.
    pub step: Duration,
    /// An effect under way after a cancellation; it is awaited this long, then undone.
    pub after_cancel: Duration,
    /// How long a step that was broken off may still have effects; only then is what it makes forgotten.
    pub settle: Duration,
    /// The grace of a tree that is ended without another being named.
    pub grace: Duration,
    /// The answer of an instance to a question that only reads.
    pub answer: Duration,
    /// One verb of the store.
    pub store: Duration,
    /// How much of one kind may wait to be taken away before no more of it is made.
    pub high_water: usize,
    /// How hard unwinding tries.
    pub unwind: UnwindPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            step: Duration::from_mins(10),
            after_cancel: Duration::from_secs(30),
            settle: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            answer: Duration::from_secs(5),
            store: Duration::from_mins(1),
            high_water: 64,
            unwind: UnwindPolicy::default(),
        }
    }
}

/// What a program hands in to launch with: [`Parts::new`], then whatever else it has, part by part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parts {
    /// The installation.
    pub install: InstallId,
    /// What can be launched on.
    pub registry: Registry,
    /// The durable state.
    pub store: Arc<dyn StateStore>,
    /// The locks between processes.
    pub locks: Arc<dyn LockDirectory>,
    /// What reveals secrets; `()` if there are none.
    pub secrets: Arc<dyn SecretStore>,
    /// What keeps the secrets that executors return; `()` if none does.
    pub runtime_secrets: Arc<dyn RuntimeSecrets>,
    /// What knows the profiles of agents; an empty [`MemoryProfiles`] if the program has none.
    pub profiles: Arc<dyn ProfileDirectory>,
    /// What the program knows of its sessions; `()` if it has none.
    pub directory: Arc<dyn SessionDirectory>,
    /// Where events go.
    pub events: Arc<dyn EventSink>,
    /// Where tests fail or die; `()` otherwise.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// How long things may take.
    pub policy: Policy,
}

impl Parts {
    /// Begins with what every program has; it knows no secrets, no profiles and no sessions of its own, and nobody hears of events.
    pub fn new(
        install: InstallId,
        registry: Registry,
        store: Arc<dyn StateStore>,
        locks: Arc<dyn LockDirectory>,
    ) -> Self {
        Self {
            install,
            registry,
            store,
            locks,
            secrets: Arc::new(()),
            runtime_secrets: Arc::new(()),
            profiles: Arc::new(MemoryProfiles::default()),
            directory: Arc::new(()),
            events: Arc::new(()),
            checkpoints: Arc::new(()),
            policy: Policy::default(),
        }
    }
}

/// The name of the agent among the processes of an instance: `agent`.
///
/// # Errors
///
/// None that can occur; the name is valid.
pub fn agent_process() -> Result<ProcessId, Error> {
    ProcessId::new("agent")
}

/// What every verb works with.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) parts: Parts,
    pub(crate) lanes: Lanes,
    pub(crate) flights: Flights,
    pub(crate) activity: Arc<Activity>,
    pub(crate) backpressure: Backpressure,
    pub(crate) pacing: Pacing,
    pub(crate) tasks: TaskTracker,
    pub(crate) stopping: CancelToken,
}

/// A session that is ours alone, in this process and between processes.
#[derive(Debug)]
pub(crate) struct Hold {
    _share: Option<Box<dyn LockGuard>>,
    _lock: Box<dyn LockGuard>,
    _lane: tokio::sync::OwnedMutexGuard<()>,
    pub(crate) at_work: TaskLease,
}

impl Shared {
    /// Says that something is at work; ends a maintenance.
    pub(crate) async fn lease(&self, kind: ActivityKind) -> Result<TaskLease, Error> {
        self.activity.lease(&*self.parts.locks, kind).await
    }

    /// Waits until a session is ours.
    pub(crate) async fn hold(
        &self,
        session: &SessionId,
        kind: ActivityKind,
    ) -> Result<Hold, Error> {
        let at_work = self.lease(kind).await?;
        let lane = self.lanes.enter(session).await;
        let lock = self
            .parts
            .locks
            .lock(&LockName::Session(session.clone()))
            .await?;
        Ok(Hold {
            _share: None,
            _lock: lock,
            _lane: lane,
            at_work,
        })
    }

    /// Waits until the session of a run is ours, and what it shares with others.
    pub(crate) async fn hold_run(&self, record: &RunRecord) -> Result<Hold, Error> {
        let hold = self.hold(&record.session, ActivityKind::Stopping).await?;
        let Some(key) = &record.share_key else {
            return Ok(hold);
        };
        let name = LockName::Share(key.clone());
        let share = self.parts.locks.lock(&name).await?;
        Ok(Hold {
            _share: Some(share),
            ..hold
        })
    }

    /// Takes a session if nobody works on it.
    pub(crate) async fn try_hold(&self, session: &SessionId) -> Result<Option<Hold>, Error> {
        let Some(lane) = self.lanes.try_enter(session) else {
            return Ok(None);
        };
        let at_work = self.lease(ActivityKind::CleanupScript).await?;
        let lock = self
            .parts
            .locks
            .try_lock(&LockName::Session(session.clone()))
            .await?;
        Ok(lock.map(|lock| Hold {
            _share: None,
            _lock: lock,
            _lane: lane,
            at_work,
        }))
    }

    /// Takes what a held run shares with others, if nobody works on it.
    pub(crate) async fn try_share(
        &self,
        hold: Hold,
        record: Option<&RunRecord>,
    ) -> Result<Option<Hold>, Error> {
        let Some(key) = record.and_then(|record| record.share_key.as_ref()) else {
            return Ok(Some(hold));
        };
        let name = LockName::Share(key.clone());
        let share = self.parts.locks.try_lock(&name).await?;
        Ok(share.map(|share| Hold {
            _share: Some(share),
            ..hold
        }))
    }

    /// Reads the record of a run.
    pub(crate) async fn record(&self, run: &RunId) -> Result<RunRecord, Error> {
        let record = self.parts.store.run(run).await?;
        record.ok_or_else(|| Error::new(ErrorKind::NotFound, "no such run").with("run", run))
    }

    /// Reaches the instance of a run.
    pub(crate) async fn instance(&self, record: &RunRecord) -> Result<SharedInstance, Error> {
        let executor = &self.parts.registry.get(&record.executor)?.executor;
        executor.connect(&record.instance).await
    }

    /// Returns everything that a run still owns, in the order of arming, over all its attempts.
    pub(crate) async fn armed(&self, run: &RunId) -> Result<Vec<ArmedRecord>, Error> {
        let attempts = self.parts.store.attempts_of(run).await?;
        Ok(attempts
            .into_iter()
            .flat_map(|attempt| attempt.armed)
            .collect())
    }

    /// Takes away what is due.
    pub(crate) async fn unwind(
        &self,
        armed: &[ArmedRecord],
        options: UndoOptions,
        doubtful: &BTreeSet<String>,
        tell: &(dyn Fn(&UndoRecord, &Outcome) + Sync),
    ) -> Unwound {
        self.unwinder(doubtful, tell).unwind(armed, options).await
    }

    /// Brings the work of what stays to where it is looked for; returns what stands against it.
    async fn deliver(&self, armed: &[ArmedRecord]) -> Vec<Finding> {
        let doubtful = BTreeSet::new();
        self.unwinder(&doubtful, &|_, _| {}).deliver(armed).await
    }

    fn unwinder<'a>(
        &'a self,
        doubtful: &'a BTreeSet<String>,
        tell: &'a (dyn Fn(&UndoRecord, &Outcome) + Sync),
    ) -> Unwinder<'a> {
        let parts = &self.parts;
        Unwinder {
            registry: &parts.registry,
            store: &*parts.store,
            runtime_secrets: &parts.runtime_secrets,
            tasks: &self.tasks,
            policy: parts.policy.unwind,
            doubtful,
            tell,
        }
    }

    /// Takes away everything of a run that is due on an occasion; what others go on with is handed over to them.
    ///
    /// The session is held, and what the run shares.
    pub(crate) async fn unwind_run(
        &self,
        run: &RunId,
        options: UndoOptions,
    ) -> Result<Unwound, Error> {
        let record = self.parts.store.run(run).await?;
        let heir = match &record {
            Some(record) => self.heir(record, options.occasion).await?,
            None => None,
        };
        match heir {
            Some(heir) => Box::pin(self.hand_over(run, options, &heir)).await,
            None => Box::pin(self.unwind_all(run, options)).await,
        }
    }

    /// Ends what is the run's alone, and hands the rest over; each attempt in one write, so that no crash parts it.
    async fn hand_over(
        &self,
        run: &RunId,
        options: UndoOptions,
        heir: &RunRecord,
    ) -> Result<Unwound, Error> {
        let store = &self.parts.store;
        let attempts = store.attempts_of(run).await?;
        let own: Vec<_> = attempts
            .iter()
            .flat_map(|row| row.armed.iter())
            .filter(|armed| matches!(armed.record.component, Component::Process(_)))
            .cloned()
            .collect();
        let unwound = self
            .unwind(&own, options, &BTreeSet::new(), &|_, _| {})
            .await;
        if unwound.is_clean() {
            for row in store.attempts_of(run).await? {
                if row.armed.is_empty() {
                    store.forget(row.attempt).await?;
                } else {
                    store
                        .hand_over(row.attempt, &heir.run, &heir.session)
                        .await?;
                }
            }
        }
        Ok(unwound)
    }

    /// Waits for what a run's instance is asked, as long as an answer may take.
    pub(crate) async fn answer<T>(
        &self,
        record: &RunRecord,
        ask: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::time::timeout(self.parts.policy.answer, ask)
            .await
            .unwrap_or_else(|_| {
                Err(
                    Error::new(ErrorKind::TimedOut, "the instance does not answer")
                        .with("run", &record.run),
                )
            })
    }

    /// Takes away everything of a run that is due on an occasion, and notes before and after that it does.
    async fn unwind_all(&self, run: &RunId, options: UndoOptions) -> Result<Unwound, Error> {
        let store = &self.parts.store;
        let attempts = store.attempts_of(run).await?;
        let due = |row: &&crate::store::AttemptRow| {
            row.armed
                .iter()
                .any(|armed| armed.record.due.on(options.occasion))
        };
        for row in attempts.iter().filter(due) {
            store.begin_unwind(row.attempt, options).await?;
        }
        let armed: Vec<_> = attempts
            .iter()
            .flat_map(|row| row.armed.iter().cloned())
            .collect();
        let mut unwound = self
            .unwind(&armed, options, &BTreeSet::new(), &|_, _| {})
            .await;
        if unwound.is_clean() {
            let left = store.attempts_of(run).await?;
            if options.occasion == Occasion::End {
                // Nobody works in them any more; and before it is noted that all is done, so that a crash has it done again.
                for row in &left {
                    unwound.undelivered.extend(self.deliver(&row.armed).await);
                }
            }
            for row in left {
                if row.armed.is_empty() {
                    store.forget(row.attempt).await?;
                } else {
                    store.rest(row.attempt).await?;
                }
            }
        }
        Ok(unwound)
    }

    /// Drops the ownership of what is never due again; what it names stays, as the user's own.
    pub(crate) async fn let_go(&self, run: &RunId) -> Result<(), Error> {
        for row in self.parts.store.attempts_of(run).await? {
            for armed in &row.armed {
                self.parts
                    .store
                    .retire(row.attempt, &armed.record.key)
                    .await?;
            }
            self.parts.store.forget(row.attempt).await?;
        }
        Ok(())
    }
}

impl Occasion {
    /// Returns the options that keep rather than lose.
    pub(crate) const fn careful(self) -> UndoOptions {
        UndoOptions {
            occasion: self,
            force: false,
        }
    }
}

/// Returns the time by the wall clock in milliseconds since 1970; for people only.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
