//! One machine in memory, and launchers on it.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    LaunchError, Launched, Launcher, Parts, Plan, Registration, Registry, Ticket,
    command::Command,
    error::{Error, ErrorKind},
    executor::Executor,
    id::{AttemptId, ExecutorName, PreparerName, RunId, SessionId, TaskId},
    preparer::Preparer,
    process::{Lease, StdinPolicy, StdioKind},
    profile::MemoryProfiles,
    request::{AgentSpec, LaunchIntent, LaunchRequest, Mode},
    script::Script,
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
    session_directory::{SessionDirectory, SessionState},
    store::{RunRecord, StateStore as _},
    undo::Due,
    workspace::WorkspaceRequest,
};
use groundcrew_testkit::{
    faulty::{FaultPlan, Faulty, FaultyExecutor, FaultyPreparer, FaultyStore, VerbFaults},
    memory::{
        MemoryExecutor, MemoryLocks, MemoryPreparer, MemoryResource, MemoryStore, MemoryWorld,
    },
    recorder::Recorder,
};
use tokio::runtime::Runtime;

/// A machine: what outlives every launcher.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) world: MemoryWorld,
    pub(crate) store: MemoryStore,
    pub(crate) locks: MemoryLocks,
    pub(crate) profiles: MemoryProfiles,
}

/// A process on the machine, with everything in it that can go wrong.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) launcher: Launcher,
    pub(crate) recorder: Recorder,
    pub(crate) checkpoints: Arc<Faulty>,
    pub(crate) executor: VerbFaults,
    pub(crate) workspace: VerbFaults,
    pub(crate) things: VerbFaults,
    pub(crate) store: VerbFaults,
    pub(crate) locks: MemoryLocks,
    pub(crate) directory: Arc<Directory>,
    pub(crate) secrets: Arc<Secrets>,
}

pub(crate) fn executor_name() -> ExecutorName {
    ExecutorName::new("memory").unwrap()
}

pub(crate) fn preparer_name(name: &str) -> PreparerName {
    PreparerName::new(name).unwrap()
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            world: MemoryWorld::new().unwrap(),
            store: MemoryStore::new(),
            locks: MemoryLocks::new(),
            profiles: MemoryProfiles::default(),
        }
    }

    pub(crate) fn workspace_preparer(&self) -> MemoryPreparer {
        MemoryPreparer::workspace(&self.world, preparer_name("workspace"))
    }

    /// One more preparer: a thing that goes with the run, and one that goes only when the launch fails.
    pub(crate) fn things_preparer(&self) -> MemoryPreparer {
        let resources = vec![
            MemoryResource::new("thing", Due::Close, &[]),
            MemoryResource::new("gift", Due::Failure, &["thing"]),
        ];
        MemoryPreparer::new(&self.world, preparer_name("things")).with_resources(resources)
    }

    pub(crate) fn process(&self) -> Process {
        self.process_with(FaultPlan::default())
    }

    pub(crate) fn process_with(&self, plan: FaultPlan) -> Process {
        self.process_of(
            plan,
            vec![
                Arc::new(self.workspace_preparer()),
                Arc::new(self.things_preparer()),
            ],
        )
    }

    pub(crate) fn process_of(&self, plan: FaultPlan, preparers: Vec<Arc<dyn Preparer>>) -> Process {
        let executor = MemoryExecutor::new(&self.world, executor_name());
        self.process_on(plan, Arc::new(executor), preparers)
    }

    pub(crate) fn process_on(
        &self,
        plan: FaultPlan,
        executor: Arc<dyn Executor>,
        preparers: Vec<Arc<dyn Preparer>>,
    ) -> Process {
        let faults: [VerbFaults; 4] = std::array::from_fn(|_| VerbFaults::new());
        let [executor_faults, workspace, things, store] = faults;
        let preparers = preparers.into_iter().zip([&workspace, &things]);
        let mut registry = Registry::new();
        registry
            .register(Registration::new(
                Arc::new(FaultyExecutor::new(executor, &executor_faults)),
                preparers
                    .map(|(inner, faults)| Arc::new(FaultyPreparer::new(inner, faults)) as _)
                    .collect(),
            ))
            .unwrap();
        let recorder = Recorder::new();
        let checkpoints = Arc::new(Faulty::new(plan));
        let locks = self.locks.process();
        let directory = Arc::new(Directory::default());
        let secrets = Arc::new(Secrets::default());
        let rows = FaultyStore::new(Arc::new(self.store.clone()), &store);
        let mut parts = Parts::new(
            self.world.install().clone(),
            registry,
            Arc::new(rows),
            Arc::new(locks.clone()),
        );
        parts.profiles = Arc::new(self.profiles.clone());
        parts.runtime_secrets = Arc::new(self.world.runtime_secrets());
        parts.secrets = Arc::clone(&secrets) as _;
        parts.directory = Arc::clone(&directory) as _;
        parts.events = Arc::new(recorder.clone());
        parts.checkpoints = Arc::clone(&checkpoints) as _;
        let launcher = Launcher::new(parts);
        Process {
            launcher,
            recorder,
            checkpoints,
            executor: executor_faults,
            workspace,
            things,
            store,
            locks,
            directory,
            secrets,
        }
    }

    /// Names what exists or is remembered; an empty machine has nothing of either.
    pub(crate) async fn left(&self) -> Vec<String> {
        let mut left = self.world.leftovers();
        let runs = self.store.runs().await.unwrap();
        left.extend(runs.iter().map(|r| format!("run {} {}", r.run, r.state)));
        let attempts = self.store.all_attempts();
        left.extend(attempts.iter().map(|a| format!("attempt {}", a.attempt)));
        left.extend(self.locks.held().iter().map(|l| format!("lock {l}")));
        left
    }

    pub(crate) async fn is_empty(&self) {
        assert_eq!(self.left().await, Vec::<String>::new());
    }

    pub(crate) async fn record(&self, run: &RunId) -> RunRecord {
        self.store
            .run(run)
            .await
            .unwrap()
            .expect("the run has a record")
    }
}

impl Process {
    pub(crate) async fn plan(&self, request: LaunchRequest) -> Plan {
        self.launcher.plan(request).await.unwrap()
    }

    /// Launches an agent that runs until it gets a signal.
    pub(crate) async fn launch(&self) -> Result<Launched, LaunchError> {
        self.ticket(request()).await.wait().await
    }

    pub(crate) async fn ticket(&self, request: LaunchRequest) -> Ticket {
        let plan = self.plan(request).await;
        let ticket = self.launcher.launch(plan);
        let cancelled = ticket.clone();
        self.checkpoints.on_cancel(move || cancelled.cancel());
        ticket
    }

    /// Checks that every attempt told a lawful story.
    pub(crate) fn lawful(&self) {
        let violations = self.recorder.violations();
        assert!(
            violations.is_empty(),
            "{violations:#?}\n{}",
            self.recorder.transcript()
        );
    }

    /// Checks that one attempt told exactly one clean rollback.
    pub(crate) fn rolled_back_once(&self, attempt: AttemptId) {
        self.rolled_back(attempt, true);
    }

    /// Checks that one attempt told exactly one rollback, and whether it said that nothing is left.
    pub(crate) fn rolled_back(&self, attempt: AttemptId, wholly: bool) {
        self.lawful();
        let closings = self.recorder.closings(attempt);
        match closings.as_slice() {
            [groundcrew_core::event::EventKind::RolledBack { clean }] if *clean == wholly => {}
            _ => panic!("{closings:?}\n{}", self.recorder.transcript()),
        }
    }
}

/// A request for an agent in a workspace of its own.
pub(crate) fn request() -> LaunchRequest {
    agent(&["sleep-until-signal"])
}

pub(crate) fn agent(argv: &[&str]) -> LaunchRequest {
    let workspace = WorkspaceRequest::InPlace {
        path: PathBuf::from("/memory"),
    };
    let mode = Mode::Agent(AgentSpec {
        program: Command::new(argv.iter().copied()).unwrap().into(),
        stdio: StdioKind::Pipes,
        stdin: StdinPolicy::Empty,
        time_limit: None,
        idle_limit: None,
        stop: None,
    });
    LaunchRequest {
        session: Some(SessionId::new("session").unwrap()),
        task: Some(TaskId::new("task").unwrap()),
        lease: Lease::Unlimited,
        ..LaunchRequest::new(executor_name(), workspace, mode)
    }
}

/// The same with everything that a launch can have a step for.
pub(crate) fn whole() -> LaunchRequest {
    LaunchRequest {
        setup: vec![script(&["echo", "set", "up"])],
        ..request()
    }
}

/// A script that must succeed.
pub(crate) fn script(argv: &[&str]) -> Script {
    Script::new(argv.join(" "), Command::new(argv.iter().copied()).unwrap())
}

pub(crate) fn resume(run: &RunId) -> LaunchRequest {
    LaunchRequest {
        intent: LaunchIntent::Resume(run.clone()),
        ..request()
    }
}

/// Runs everything until nothing is left to do, in a time of its own; dropped, it is a process that was killed.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

/// What the embedding program says of its sessions, in the order of being asked; alive when nothing is left to say.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    sessions: Mutex<Vec<SessionState>>,
    cleanups: Mutex<Vec<bool>>,
    reads: Mutex<u32>,
}

impl Directory {
    pub(crate) fn sessions(&self, states: impl IntoIterator<Item = SessionState>) {
        *self.sessions.lock().unwrap() = states.into_iter().collect();
    }

    pub(crate) fn cleanups(&self, active: impl IntoIterator<Item = bool>) {
        *self.cleanups.lock().unwrap() = active.into_iter().collect();
    }

    /// Returns how often the state of a session was read.
    pub(crate) fn reads(&self) -> u32 {
        *self.reads.lock().unwrap()
    }
}

#[async_trait]
impl SessionDirectory for Directory {
    async fn session(&self, _: &SessionId) -> Result<SessionState, Error> {
        *self.reads.lock().unwrap() += 1;
        let mut states = self.sessions.lock().unwrap();
        if states.is_empty() {
            return Ok(SessionState::Alive);
        }
        Ok(states.remove(0))
    }

    async fn cleanup_active(&self, _: &SessionId, _: &TaskId) -> Result<bool, Error> {
        let mut active = self.cleanups.lock().unwrap();
        Ok(!active.is_empty() && active.remove(0))
    }
}

/// Reveals `known`, fails for `broken`, and does not know anything else.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    asked: Mutex<Vec<String>>,
}

impl Secrets {
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[async_trait]
impl SecretStore for Secrets {
    async fn reveal(
        &self,
        name: &SecretRef,
        _: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        let name = name.to_string();
        self.asked.lock().unwrap().push(name.clone());
        match name.as_str() {
            "known" => Ok(Some(SecretValue::new("hunter2"))),
            "broken" => Err(Error::new(ErrorKind::Corrupt, "the store's key is damaged")),
            _ => Ok(None),
        }
    }
}

/// Returns how often a loop runs: a few times among all tests, in full under `cargo xtask soak`.
pub(crate) fn size<T>(few: T, full: T) -> T {
    if std::env::var_os("GROUNDCREW_SOAK").is_some() {
        full
    } else {
        few
    }
}

/// Numbers that are the same for the same seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring numbers.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns where seeds begin: at the one to be repeated, else at the same one each time.
    pub(crate) fn base() -> u64 {
        match std::env::var("GROUNDCREW_SEED") {
            Ok(seed) => seed.parse().expect("a seed is a number"),
            Err(_) => 1,
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }
}
