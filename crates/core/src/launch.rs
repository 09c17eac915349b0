//! The steps of a launch, as straight-line code: each armed before its effect, each undone if a later one fails.
//!
//! Nothing here runs in a caller's future; a caller holds only a ticket.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    cancel::CancelToken,
    checkpoint::{Checkpoint, Place},
    ending,
    env::{Environment, Value},
    error::{Error, ErrorKind},
    event::{EventKind, Step},
    executor::Isolation,
    identity::Identity,
    instance::SharedInstance,
    narrator::{Narrator, StepProgress},
    plan::{INSTANCE_KEY, Plan},
    planning::busy,
    preparer::{ApplyContext, Effects, PlanContext},
    process::{DEFAULT_LOG_LIMIT, EnvironmentSource, Milliseconds, ProcessSpec, Started},
    request::{AgentSpec, Mode},
    rollback::roll_back,
    secret::SecretScope,
    session_directory::admit,
    shared::{Hold, Shared, agent_process, now_ms},
    store::{Before, LockGuard, LockName, Reservation, RunRecord, RunState},
    ticket::{LaunchError, Launched},
};

/// Where a launch failed, and why.
type Failure = (Step, Error);

/// What is held while a launch goes on, and while it is rolled back.
#[derive(Debug)]
struct Held {
    _attempt: Box<dyn LockGuard>,
    _session: Hold,
}

/// One attempt under way.
struct Attempt {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    narrator: Arc<Narrator>,
    cancel: CancelToken,
    /// Steps that did not end in time, with the keys of what they may still make.
    overdue: Mutex<Vec<(JoinHandle<()>, Vec<String>)>>,
}

/// Carries a plan out; commits or rolls back, and tells which by one last event.
pub(crate) async fn launch(
    shared: Arc<Shared>,
    plan: Plan,
    cancel: CancelToken,
) -> Result<Launched, LaunchError> {
    let narrator = Narrator::new(
        Arc::clone(&shared.parts.events),
        plan.run.clone(),
        plan.attempt,
    );
    let attempt = Attempt {
        shared,
        plan: Arc::new(plan),
        narrator: Arc::new(narrator),
        cancel,
        overdue: Mutex::default(),
    };
    for warning in &attempt.plan.warnings {
        attempt.narrator.tell(EventKind::Warning(warning.clone()));
    }
    let mut held = None;
    match attempt.steps(&mut held).await {
        Ok(launched) => {
            attempt.narrator.tell(EventKind::Launched);
            Ok(launched)
        }
        Err((step, error)) => Err(attempt.fail(step, error, held).await),
    }
}

impl Attempt {
    async fn steps(&self, held: &mut Option<Held>) -> Result<Launched, Failure> {
        let (guards, record) = self.reserve().await?;
        *held = Some(guards);
        let environment = self.reveal().await?;
        self.prepare().await?;
        self.create().await?;
        let instance = self.connect(environment).await?;
        self.populate(&instance).await?;
        self.step(Step::Equip, &[INSTANCE_KEY], async { Ok(()) })
            .await?;
        self.step(Step::Setup, &[INSTANCE_KEY], async { Ok(()) })
            .await?;
        self.admit(Step::Admit).await?;
        let record = self.register(record).await?;
        self.admit(Step::AdmitAgain).await?;
        let started = self.start(&instance).await?;
        let record = self.commit(record).await?;
        // Only a committed run may outlive its controller for longer than a launch takes.
        if let Err(error) = instance.set_lease(self.plan.request.lease).await {
            self.narrator.tell(EventKind::Warning(format!(
                "the lease could not be set: {error}"
            )));
        }
        Ok(Launched { record, started })
    }

    /// Takes the session and arms every planned name, in one transaction.
    async fn reserve(&self) -> Result<(Held, RunRecord), Failure> {
        let (shared, plan, cancel) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.plan),
            self.cancel.clone(),
        );
        self.step(Step::Reserve, &[], async move {
            let hold = shared.hold(&plan.session);
            let session = tokio::select! {
                biased;
                hold = hold => hold?,
                () = cancel.cancelled() => return Err(cancelled()),
            };
            let name = LockName::Attempt(plan.attempt);
            let Some(lock) = shared.parts.locks.try_lock(&name).await? else {
                return Err(Error::new(
                    ErrorKind::Unexpected,
                    "the lock of a new attempt is taken",
                ));
            };
            let (record, resumes) = fresh_or_resumed(&shared, &plan).await?;
            let record = shared
                .parts
                .store
                .reserve(Reservation {
                    record,
                    resumes,
                    armed: plan.records(),
                })
                .await?;
            Ok((
                Held {
                    _attempt: lock,
                    _session: session,
                },
                record,
            ))
        })
        .await
    }

    /// Reveals secrets: all or none.
    async fn reveal(&self) -> Result<Environment, Failure> {
        let (shared, plan) = (Arc::clone(&self.shared), Arc::clone(&self.plan));
        self.step(Step::Reveal, &[], async move {
            let scope = SecretScope {
                tenant: plan.request.tenant.clone(),
            };
            let mut environment = Environment::new();
            for definition in &plan.composition.variables {
                match &definition.value {
                    Value::Literal(text) => {
                        environment.set(definition.key.clone(), text.as_bytes());
                    }
                    Value::Secret(name) => {
                        let value = shared
                            .parts
                            .secrets
                            .reveal(name, &scope)
                            .await?
                            .ok_or_else(|| {
                                Error::new(
                                    ErrorKind::SecretUnavailable,
                                    "no store knows this secret",
                                )
                                .with("secret", name)
                                .with("variable", &definition.key)
                                .with("origin", &definition.origin)
                            })?;
                        environment.set(definition.key.clone(), value.expose());
                    }
                }
            }
            let arguments = match &plan.request.mode {
                Mode::Agent(agent) => agent.command.kernel_size(),
                Mode::Workspace => 0,
            };
            environment.check(arguments)?;
            Ok(environment)
        })
        .await
    }

    async fn prepare(&self) -> Result<(), Failure> {
        for index in self.prepared() {
            let (preparer, contribution) = &self.plan.contributions[index];
            let keys: Vec<_> = contribution
                .resources
                .iter()
                .map(|resource| resource.key.as_str())
                .collect();
            let step = Step::Prepare(preparer.name().clone());
            let work = self.apply(index, step.clone(), None);
            self.step(step, &keys, work).await?;
        }
        Ok(())
    }

    async fn populate(&self, instance: &SharedInstance) -> Result<(), Failure> {
        for index in self.prepared() {
            let step = Step::Populate(self.plan.contributions[index].0.name().clone());
            let work = self.apply(index, step.clone(), Some(Arc::clone(instance)));
            self.step(step, &[INSTANCE_KEY], work).await?;
        }
        Ok(())
    }

    /// Returns the contributions that make something; a resumed run has its workspace already.
    fn prepared(&self) -> std::ops::Range<usize> {
        if self.plan.prior.is_some() {
            0..0
        } else {
            0..self.plan.contributions.len()
        }
    }

    fn apply(
        &self,
        index: usize,
        step: Step,
        instance: Option<SharedInstance>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (shared, plan, cancel) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.plan),
            self.cancel.clone(),
        );
        let progress = StepProgress {
            narrator: Arc::clone(&self.narrator),
            step: step.clone(),
        };
        async move {
            let effects = StoredEffects {
                shared: Arc::clone(&shared),
                plan: Arc::clone(&plan),
                step,
            };
            let (preparer, contribution) = &plan.contributions[index];
            let cx = ApplyContext {
                plan: PlanContext {
                    request: &plan.request,
                    install: &shared.parts.install,
                    run: &plan.run,
                    attempt: plan.attempt,
                },
                contribution,
                effects: &effects,
                progress: &progress,
                cancel: &cancel,
            };
            match instance {
                None => preparer.apply(cx).await,
                Some(instance) => preparer.populate(cx, &*instance).await,
            }
        }
    }

    async fn create(&self) -> Result<(), Failure> {
        let (shared, plan) = (Arc::clone(&self.shared), Arc::clone(&self.plan));
        let progress = StepProgress {
            narrator: Arc::clone(&self.narrator),
            step: Step::Create,
        };
        self.step(Step::Create, &[INSTANCE_KEY], async move {
            let spec = plan.instance_spec(&shared.parts.install);
            let created = plan
                .registration
                .executor
                .create(&plan.attempt.instance(), &spec, &progress)
                .await?;
            shared
                .parts
                .store
                .identify(plan.attempt, INSTANCE_KEY, &created.identity)
                .await
        })
        .await
    }

    async fn connect(&self, environment: Environment) -> Result<SharedInstance, Failure> {
        let plan = Arc::clone(&self.plan);
        self.step(Step::Connect, &[INSTANCE_KEY], async move {
            let instance = plan
                .registration
                .executor
                .connect(&plan.attempt.instance())
                .await?;
            instance.set_environment(&environment).await?;
            Ok(instance)
        })
        .await
    }

    async fn admit(&self, step: Step) -> Result<(), Failure> {
        let (shared, plan) = (Arc::clone(&self.shared), Arc::clone(&self.plan));
        self.step(step, &[], async move {
            admit(&*shared.parts.directory, &plan.session, &plan.task).await
        })
        .await
    }

    async fn register(&self, record: RunRecord) -> Result<RunRecord, Failure> {
        let shared = Arc::clone(&self.shared);
        self.step(Step::Register, &[], async move {
            shared.parts.store.put(&record).await.map_err(|error| {
                Error::new(error.kind(), "failed to persist the run's registration")
                    .with_source(error)
            })
        })
        .await
    }

    async fn start(&self, instance: &SharedInstance) -> Result<Option<Started>, Failure> {
        let Mode::Agent(agent) = &self.plan.request.mode else {
            return Ok(None);
        };
        let spec = self.process_spec(agent);
        let instance = Arc::clone(instance);
        let work = async move { instance.start(&agent_process()?, &spec).await };
        let started = self.step(Step::Start, &[INSTANCE_KEY], work).await?;
        self.narrator.tell(EventKind::AgentStarted(started.clone()));
        Ok(Some(started))
    }

    fn process_spec(&self, agent: &AgentSpec) -> ProcessSpec {
        let isolation = self.plan.registration.executor.capabilities().isolation;
        ProcessSpec {
            command: agent.command.clone(),
            directory: self.plan.workspace.directory.clone(),
            environment: EnvironmentSource::Run(Environment::new()),
            stdio: agent.stdio,
            stdin: agent.stdin,
            time_limit: agent.time_limit.map(Milliseconds),
            stop: agent.stop.clone(),
            // Host processes may need sudo and set-uid programs; nothing of the kind is needed elsewhere.
            no_new_privileges: isolation != Isolation::Process,
            main: true,
            log_limit: DEFAULT_LOG_LIMIT,
        }
    }

    async fn commit(&self, record: RunRecord) -> Result<RunRecord, Failure> {
        let shared = Arc::clone(&self.shared);
        self.step(Step::Commit, &[], async move {
            let committed = RunRecord {
                state: RunState::Running,
                before: None,
                ..record
            };
            shared.parts.store.commit(&committed).await
        })
        .await
    }

    /// Runs one step in a task of its own: a panic or an endless wait in it stays there.
    ///
    /// An effect under way is awaited, within bounds, before it is undone: undoing what is still being done would race.
    async fn step<T: Send + 'static>(
        &self,
        step: Step,
        keys: &[&str],
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Failure> {
        if self.cancel.is_cancelled() {
            return Err((step, cancelled()));
        }
        self.narrator.tell(EventKind::StepStarted(step.clone()));
        let began = Instant::now();
        let checkpoints = Arc::clone(&self.shared.parts.checkpoints);
        let name = step.clone();
        let mut task = self.shared.tasks.spawn(async move {
            checkpoints
                .pass(&Checkpoint {
                    step: name.clone(),
                    place: Place::Before,
                })
                .await?;
            let value = work.await?;
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
                self.give_up(task, keys).await;
                Err(cancelled())
            }
            () = tokio::time::sleep(policy.step) => {
                self.give_up(task, keys).await;
                Err(Error::new(ErrorKind::TimedOut, "the step took too long").with("seconds", policy.step.as_secs()))
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

    /// Breaks a step off; one that does not even break off may still make what it was asked for.
    async fn give_up<T: Send + 'static>(
        &self,
        mut task: JoinHandle<Result<T, Error>>,
        keys: &[&str],
    ) {
        task.abort();
        if tokio::time::timeout(Duration::from_secs(1), &mut task)
            .await
            .is_err()
        {
            let ended = self.shared.tasks.spawn(async move { drop(task.await) });
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            self.overdue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((ended, keys));
        }
    }

    async fn fail(self, step: Step, error: Error, held: Option<Held>) -> LaunchError {
        self.narrator
            .tell(EventKind::StepFailed(step.clone(), error.kind()));
        let overdue =
            std::mem::take(&mut *self.overdue.lock().unwrap_or_else(PoisonError::into_inner));
        let doubtful: BTreeSet<_> = overdue
            .iter()
            .flat_map(|(_, keys)| keys.iter().cloned())
            .collect();
        self.narrator.tell(EventKind::RollbackStarted(step.clone()));
        let rollback = match &held {
            Some(_) => self.roll_back(&error, &doubtful).await,
            // Without the session nothing was armed by this attempt, unless only the answer of `reserve` was lost.
            None => self.roll_back_unheld(&error).await,
        };
        self.narrator.tell(EventKind::RolledBack {
            clean: rollback.is_clean(),
        });
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

    async fn roll_back(&self, why: &Error, doubtful: &BTreeSet<String>) -> crate::unwind::Unwound {
        let narrator = Arc::clone(&self.narrator);
        let tell = move |record: &crate::undo::UndoRecord, outcome: &crate::unwind::Outcome| {
            narrator.tell(EventKind::Undo(record.label.clone(), outcome.clone()));
        };
        roll_back(
            &self.shared,
            &self.plan.run,
            self.plan.attempt,
            Some(why),
            doubtful,
            &tell,
        )
        .await
    }

    async fn roll_back_unheld(&self, why: &Error) -> crate::unwind::Unwound {
        match self.shared.parts.store.attempts_of(&self.plan.run).await {
            Ok(rows) if rows.iter().all(|row| row.attempt != self.plan.attempt) => {
                crate::unwind::Unwound::default()
            }
            // The locks fell with the step; they are taken again, so that no recovery acts at the same time.
            _ => match self.shared.hold(&self.plan.session).await {
                Ok(_hold) => self.roll_back(why, &BTreeSet::new()).await,
                Err(error) => crate::unwind::Unwound {
                    unsettled: Some(Arc::new(error)),
                    ..Default::default()
                },
            },
        }
    }

    /// Rolls back once more when steps that did not end in time have ended; the session is held until then.
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
            let nobody = |_: &crate::undo::UndoRecord, _: &crate::unwind::Outcome| {};
            let plan = &self.plan;
            drop(
                roll_back(
                    &self.shared,
                    &plan.run,
                    plan.attempt,
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

/// Returns the record to reserve with: a new one, or that of the run which is gone on with.
async fn fresh_or_resumed(shared: &Shared, plan: &Plan) -> Result<(RunRecord, bool), Error> {
    let request = &plan.request;
    let command = match &request.mode {
        Mode::Agent(agent) => Some(agent.command.arguments().to_vec()),
        Mode::Workspace => None,
    };
    let Some(prior) = &plan.prior else {
        if let Some(other) = shared.parts.store.run_of_session(&plan.session).await? {
            return Err(busy(&other));
        }
        let record = RunRecord {
            run: plan.run.clone(),
            session: plan.session.clone(),
            task: plan.task.clone(),
            tenant: request.tenant.clone(),
            attempt: plan.attempt,
            revision: 0,
            executor: plan.registration.name.clone(),
            instance: plan.attempt.instance(),
            state: RunState::Preparing,
            title: request.title.clone(),
            command,
            workspace: Some(plan.workspace.clone()),
            lease: request.lease,
            created_ms: now_ms(),
            ended_ms: None,
            exit: None,
            resume_token: None,
            keep: request.keep,
            kept: Vec::new(),
            problem: None,
            before: None,
        };
        return Ok((record, false));
    };
    // What was planned with may have changed since; a run that ended unseen is settled first.
    let mut record = shared.record(&prior.run).await?;
    if record.state == RunState::Running {
        record = ending::settle_ended(shared, record).await?;
    }
    match record.state {
        RunState::Exited | RunState::Stopped | RunState::TimedOut | RunState::Interrupted => {}
        _ => return Err(busy(&record)),
    }
    let before = Before {
        attempt: record.attempt,
        instance: record.instance,
        state: record.state,
        command: record.command,
        lease: record.lease,
        ended_ms: record.ended_ms,
        exit: record.exit,
    };
    let resumed = RunRecord {
        attempt: plan.attempt,
        instance: plan.attempt.instance(),
        state: RunState::Preparing,
        command,
        lease: request.lease,
        ended_ms: None,
        exit: None,
        before: Some(before),
        problem: None,
        kept: Vec::new(),
        ..record
    };
    Ok((resumed, true))
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the launch was cancelled")
}

/// Makes the effects of a preparer known to the store, and to tests.
struct StoredEffects {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    step: Step,
}

#[async_trait]
impl Effects for StoredEffects {
    async fn identify(&self, key: &str, identity: Identity) -> Result<(), Error> {
        self.shared
            .parts
            .store
            .identify(self.plan.attempt, key, &identity)
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
