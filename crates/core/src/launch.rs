//! The steps of a launch, as straight-line code: each armed before its effect, each undone if a later one fails.
//!
//! Nothing here runs in a caller's future; a caller holds only a ticket.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::io::AsyncWriteExt as _;

use crate::{
    activity::ActivityKind,
    adopted::AGENT_KEY,
    attempt::{Attempt, Failure, Held, StoredEffects, cancelled},
    cancel::CancelToken,
    env::{Definition, Environment, Value},
    error::{Error, ErrorKind},
    event::{EventKind, Step},
    executor::Isolation,
    greeting::Newcomer,
    handshake::{Greeting, Handshake},
    id::ProcessId,
    instance::{Instance, SharedInstance},
    narrator::{Narrator, StepProgress},
    observe::{Liveness, liveness},
    payload,
    plan::Plan,
    planned_agent::PlannedAgent,
    preparer::{ApplyContext, PlanContext},
    process::{
        DEFAULT_LOG_LIMIT, EnvironmentSource, Milliseconds, Offset, ProcessSpec, Role, Started,
    },
    redact::Redactor,
    reservation::{fresh_or_resumed, owned},
    secret::{SecretId, SecretValue},
    session_directory::admit,
    shared::{Shared, agent_process},
    store::{LockName, Reservation, RunRecord, RunState},
    ticket::{LaunchError, Launched},
    undo::{INSTANCE_KEY, RUNTIME_SECRETS_KEY},
};

/// How long a cancelled launch waits for a lock that it may be about to gain.
const LAST_GAIN: Duration = Duration::from_millis(200);

/// What an executor returned, by name.
type RuntimeTokens = Vec<(String, SecretValue)>;

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
        let guards = &*held.insert(guards);
        let at_work = |kind| guards.session.at_work.become_kind(kind);
        at_work(ActivityKind::Preparing);
        let (environment, revealed) = self.reveal().await?;
        let secrets = if self.plan.joins() {
            Vec::new()
        } else {
            self.prepare().await?;
            self.create(revealed).await?
        };
        let instance = self.connect(environment.clone()).await?;
        if !self.plan.joins() {
            self.populate(&instance).await?;
        }
        self.equip(&instance).await?;
        if !self.plan.joins() {
            at_work(ActivityKind::SetupScript);
            self.set_up(&instance).await?;
            at_work(ActivityKind::Preparing);
        }
        self.admit(Step::Admit).await?;
        let record = self.register(record, secrets).await?;
        self.admit(Step::AdmitAgain).await?;
        at_work(ActivityKind::Running);
        let (started, greeting) = self.start(&instance, environment).await?.unzip();
        let record = self.commit(record).await?;
        self.extend_lease(&instance, &record).await;
        let redactor = self.narrator.redactor();
        Ok(Launched {
            record,
            started,
            greeting: greeting.flatten(),
            redactor,
        })
    }

    /// Takes the session and arms every planned name, in one transaction.
    async fn reserve(&self) -> Result<(Held, RunRecord), Failure> {
        let (shared, plan, cancel) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.plan),
            self.cancel.clone(),
        );
        self.step(Step::Reserve, &[], async move {
            let mut hold = pin!(shared.hold(&plan.session, ActivityKind::Starting));
            let session = tokio::select! {
                biased;
                hold = &mut hold => hold?,
                () = cancel.cancelled() => {
                    // A lock that is just being gained is given back in order, before the program may end.
                    drop(tokio::time::timeout(LAST_GAIN, hold).await);
                    return Err(cancelled());
                }
            };
            let share = match plan.share_key() {
                None => None,
                Some(key) => {
                    let name = LockName::Share(key.clone());
                    let mut hold = pin!(shared.parts.locks.lock(&name));
                    tokio::select! {
                        biased;
                        hold = &mut hold => Some(hold?),
                        () = cancel.cancelled() => {
                            drop(tokio::time::timeout(LAST_GAIN, hold).await);
                            return Err(cancelled());
                        }
                    }
                }
            };
            let name = LockName::Attempt(plan.attempt);
            let Some(lock) = shared.parts.locks.try_lock(&name).await? else {
                return Err(Error::new(
                    ErrorKind::Unexpected,
                    "the lock of a new attempt is taken",
                ));
            };
            let (record, resumes) = Box::pin(fresh_or_resumed(&shared, &plan)).await?;
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
                    _share: share,
                    session,
                },
                record,
            ))
        })
        .await
    }

    /// Reveals secrets: all or none; from then on they are hidden in whatever is told.
    async fn reveal(&self) -> Result<(Environment, Vec<SecretValue>), Failure> {
        let (shared, plan) = (Arc::clone(&self.shared), Arc::clone(&self.plan));
        let narrator = Arc::clone(&self.narrator);
        self.step(Step::Reveal, &[], async move {
            let mut environment = Environment::new();
            // A store may ask a program or a person: each secret once, however many variables it goes to.
            let mut revealed = BTreeMap::new();
            for definition in plan.composition.definitions() {
                match &definition.value {
                    Value::Literal(text) => {
                        environment.set(definition.key.clone(), text.as_bytes());
                    }
                    Value::Secret(secret) => {
                        let value = match revealed.entry(secret) {
                            Entry::Occupied(known) => known.into_mut(),
                            Entry::Vacant(unknown) => {
                                let store = &shared.parts.secrets;
                                let value = store.reveal(&secret.name, &secret.scope).await?;
                                unknown
                                    .insert(value.ok_or_else(|| unavailable(definition, secret))?)
                            }
                        };
                        environment.set(definition.key.clone(), value.expose());
                    }
                }
            }
            let agent = plan.agent.as_ref();
            let arguments = agent.map_or(0, |agent| agent.command.kernel_size());
            let revealed: Vec<_> = revealed.into_values().collect();
            narrator.hide(Redactor::new(&revealed)?);
            environment.check(arguments)?;
            Ok((environment, revealed))
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
        // A resumed run has what it was filled with.
        let prepared = self.prepared().filter(|_| self.plan.prior.is_none());
        for index in prepared {
            let step = Step::Populate(self.plan.contributions[index].0.name().clone());
            let work = self.apply(index, step.clone(), Some(Arc::clone(instance)));
            self.step(step, &[INSTANCE_KEY], work).await?;
        }
        Ok(())
    }

    /// Returns the contributions that make something; a resumed run has its workspace already, unless a part of it is gone.
    fn prepared(&self) -> impl Iterator<Item = usize> {
        let fresh = self.plan.prior.is_none();
        self.plan
            .contributions
            .iter()
            .enumerate()
            .filter(move |(_, (_, contribution))| fresh || !contribution.state.is_empty())
            .map(|(index, _)| index)
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
            let (preparer, contribution) = &plan.contributions[index];
            let owned = match &plan.prior {
                Some(prior) => owned(&shared, &prior.run, preparer.name()).await?,
                None => Vec::new(),
            };
            let effects = StoredEffects {
                shared: Arc::clone(&shared),
                attempt: owned.first().map_or(plan.attempt, |record| record.attempt),
                step,
            };
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
                None if plan.prior.is_some() => preparer.ensure(&owned, cx).await,
                None => preparer.apply(cx).await,
                Some(instance) => preparer.populate(cx, &*instance).await,
            }
        }
    }

    async fn create(&self, revealed: Vec<SecretValue>) -> Result<RuntimeTokens, Failure> {
        let (shared, plan) = (Arc::clone(&self.shared), Arc::clone(&self.plan));
        let narrator = Arc::clone(&self.narrator);
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
                .await?;
            if created.secrets.is_empty() {
                return Ok(created.secrets);
            }
            let returned = created.secrets.iter().map(|(_, value)| value);
            narrator.hide(Redactor::new(revealed.iter().chain(returned))?);
            if plan.returns_secrets() {
                return Ok(created.secrets);
            }
            Err(Error::new(
                ErrorKind::Unexpected,
                "the executor returned secrets, which its capabilities deny",
            )
            .with("executor", &plan.registration.name))
        })
        .await
    }

    async fn connect(&self, environment: Environment) -> Result<SharedInstance, Failure> {
        let plan = Arc::clone(&self.plan);
        self.step(Step::Connect, &[INSTANCE_KEY], async move {
            let instance = plan.registration.executor.connect(&plan.instance()).await?;
            // Whoever is in an instance that is joined keeps its own; the agent gets its environment with its start.
            if !plan.joins() {
                instance.set_environment(&environment).await?;
            }
            Ok(instance)
        })
        .await
    }

    /// Hands over what is no variable, through the instance: payloads as private files, and directories for caches.
    async fn equip(&self, instance: &SharedInstance) -> Result<(), Failure> {
        let (plan, instance) = (Arc::clone(&self.plan), Arc::clone(instance));
        self.step(Step::Equip, &[INSTANCE_KEY], async move {
            if !plan.request.mcp_servers.is_empty() {
                instance.set_mcp_servers(&plan.request.mcp_servers).await?;
            }
            if let Some(archive) = payload::archive(&plan.request.payloads)? {
                instance.put_archive(&plan.directory, archive).await?;
            }
            for cache in plan.caches() {
                instance
                    .put_archive(&cache.directory, payload::empty_archive()?)
                    .await
                    .map_err(|error| {
                        Error::new(error.kind(), "failed to make a cache directory")
                            .with("variable", &cache.variable)
                            .with_source(error)
                    })?;
            }
            Ok(())
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

    /// Keeps what the executor returned, and writes the run's row with the names: one write, so that no crash parts them.
    async fn register(
        &self,
        mut record: RunRecord,
        secrets: RuntimeTokens,
    ) -> Result<RunRecord, Failure> {
        let shared = Arc::clone(&self.shared);
        self.step(Step::Register, &[RUNTIME_SECRETS_KEY], async move {
            record.scripts.set_up = true;
            if !secrets.is_empty() {
                let place = &shared.parts.runtime_secrets;
                record.runtime_secrets = place.keep(record.attempt, &secrets).await?;
            }
            shared.parts.store.put(&record).await.map_err(|error| {
                Error::new(error.kind(), "failed to persist the run's registration")
                    .with_source(error)
            })
        })
        .await
    }

    async fn start(
        &self,
        instance: &SharedInstance,
        environment: Environment,
    ) -> Result<Option<(Started, Option<Greeting>)>, Failure> {
        let Some(agent) = &self.plan.agent else {
            return Ok(None);
        };
        let plan = Arc::clone(&self.plan);
        let spec = self.process_spec(agent, &environment);
        let (instance, cancel) = (Arc::clone(instance), self.cancel.clone());
        let (prompt, handshake) = (agent.prompt.clone(), agent.handshake.clone());
        let redactor = self.narrator.redactor();
        let own = handshake.as_ref().map_or(Duration::ZERO, Handshake::limit);
        let limit = self.shared.parts.policy.step.saturating_add(own);
        let work = async move {
            let process = match plan.process() {
                Some(process) => process,
                None => agent_process()?,
            };
            let started = instance.start(&process, &spec).await?;
            if plan.promotes() {
                // From here on terminals get what the agent got.
                instance.set_environment(&environment).await?;
            }
            if let Some(prompt) = prompt {
                hand_over(&*instance, &process, &prompt).await?;
            }
            let Some(handshake) = handshake else {
                return Ok((started, None));
            };
            let newcomer = Newcomer {
                instance: &*instance,
                process: &process,
                handshake: &handshake,
                redactor: &redactor,
                cancel: &cancel,
            };
            Ok((started, Some(newcomer.greet().await?)))
        };
        let key = if self.plan.joins() {
            AGENT_KEY
        } else {
            INSTANCE_KEY
        };
        let keys = [key];
        let work = self.step_within(Step::Start, &keys, limit, work);
        let (started, greeting) = work.await?;
        self.narrator.tell(EventKind::AgentStarted(started.clone()));
        Ok(Some((started, greeting)))
    }

    fn process_spec(&self, agent: &PlannedAgent, environment: &Environment) -> ProcessSpec {
        let isolation = self.plan.registration.executor.capabilities().isolation;
        ProcessSpec {
            command: agent.command.clone(),
            directory: self.plan.workspace.directory.clone(),
            environment: if self.plan.joins() {
                EnvironmentSource::Exact(environment.clone())
            } else {
                EnvironmentSource::Run(Environment::new())
            },
            stdio: agent.stdio,
            stdin: agent.stdin,
            time_limit: agent.time_limit.map(Milliseconds),
            idle_limit: agent.idle_limit.map(Milliseconds),
            stop: agent.stop.clone(),
            // Host processes may need sudo and set-uid programs; nothing of the kind is needed elsewhere.
            no_new_privileges: isolation != Isolation::Process,
            // An instance that others are in, or that was there before, does not end with one agent.
            main: !self.plan.joins() && self.plan.share_key().is_none(),
            log_limit: DEFAULT_LOG_LIMIT,
        }
    }

    /// Sets the run's own lease: only a committed run may outlive its controller for longer than a launch takes.
    async fn extend_lease(&self, instance: &SharedInstance, record: &RunRecord) {
        if let Err(error) = instance.set_lease(self.plan.request.lease).await {
            // An agent that has ended already took its instance, and the need for a lease, with it.
            let up = !matches!(liveness(&self.shared, record).await, Ok(Liveness::Ended(_)));
            if up {
                let warning = format!("the lease could not be set: {error}");
                self.narrator.tell(EventKind::Warning(warning));
            }
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
}

/// Writes a prompt to the agent's standard input, to its end.
///
/// An agent that ends without reading it has said why on its own streams; that is its end, not a failed start.
async fn hand_over(
    instance: &dyn Instance,
    process: &ProcessId,
    prompt: &[u8],
) -> Result<(), Error> {
    let stdio = instance.attach(process, Offset(0), Role::Writer).await?;
    let Some(mut input) = stdio.input else {
        return Err(Error::new(
            ErrorKind::Protocol,
            "the instance gave no input for a writer",
        ));
    };
    let written = async {
        input.write_all(prompt).await?;
        input.shutdown().await
    };
    match written.await {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::io("failed to hand the prompt over", error))
        }
        _ => Ok(()),
    }
}

fn unavailable(definition: &Definition, secret: &SecretId) -> Error {
    Error::new(ErrorKind::SecretUnavailable, "no store knows this secret")
        .with("secret", secret)
        .with("variable", &definition.key)
        .with("origin", &definition.origin)
}
