//! Executors that are wrong on purpose, each in one thing: the strict one in memory, and what it does instead.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use groundcrew_core::{
    async_trait,
    env::{Environment, Key},
    error::{Error, ErrorKind},
    executor::{Capabilities, Created, Executor, InstanceSpec, ProbeReport, Progress},
    id::{ExecutorName, InstanceId, ProcessId},
    identity::{Identity, Presence},
    instance::{ByteStream, Instance, McpServer, SharedInstance, Stdio},
    process::{
        EnvironmentSource, ExitStatus, FrameKind, Lease, Offset, ProcessSpec, ProcessState, Role,
        Signal, Started, TerminalSize,
    },
    secret::SecretValue,
    undo::Undone,
};
use groundcrew_testkit::{
    conformance::{self, ExecutorFixture, Ground, Need, Report},
    memory::{MemoryExecutor, MemoryWorld, commands},
};

/// What an executor does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    ChangesItsMind,
    NeverAnswersAProbe,
    TakesAnyOption,
    MakesWhatItRefuses,
    IgnoresLimits,
    LiesAboutWhatItMade,
    StartsSomethingItself,
    TakesATakenId,
    MixesInstancesUp,
    ReturnsSecretsUnasked,
    SharesThePrivateDirectory,
    InheritsTheEnvironment,
    AddsToAnExactEnvironment,
    TrimsValues,
    SplitsArguments,
    CutsLongValues,
    ListsOnlyTheFirst,
    ForgetsWhatAnotherMade,
    ReachesWhatNeverWas,
    KnowsProcessesByConnection,
    LosesWhatHasEnded,
    FailsOnWhatIsGone,
    IgnoresTheIdentity,
    DeletesNamesakes,
    KeepsWhatHasEnded,
    DeletesOneAtATime,
    ForgetsTheLogs,
    MakesOneAtATime,
    StartsOnce,
    WaitsOnce,
    LosesStandardError,
    EndsPolitelyOnly,
}

/// The calls of all executors on one ground.
#[derive(Debug, Default)]
struct Memory {
    asked_for: Mutex<Vec<InstanceId>>,
    made: Mutex<Vec<InstanceId>>,
    gone: Mutex<Vec<InstanceId>>,
    creating: AtomicUsize,
    deleting: AtomicUsize,
    opened: AtomicUsize,
}

#[derive(Debug)]
struct Wrong {
    inner: MemoryExecutor,
    fault: Fault,
    memory: Arc<Memory>,
    /// Whether it is the first on its ground.
    first: bool,
    asked: AtomicUsize,
}

impl Wrong {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn asked_for(&self, id: &InstanceId) -> bool {
        self.memory.asked_for.lock().unwrap().contains(id)
    }

    fn made(&self, id: &InstanceId) -> bool {
        self.memory.made.lock().unwrap().contains(id)
    }

    async fn is_there(&self, id: &InstanceId) -> bool {
        matches!(self.inner.state(id).await, Ok(Presence::Present(_)))
    }

    async fn has_ended(&self, id: &InstanceId) -> bool {
        if !self.is_there(id).await {
            return false;
        }
        let Ok(instance) = self.inner.connect(id).await else {
            return false;
        };
        instance.set_lease(Lease::Unlimited).await.is_err()
    }
}

fn refusal(kind: ErrorKind) -> Error {
    Error::new(kind, "wrong on purpose")
}

/// Counts for as long as it lives.
struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    fn alone(counter: &'a AtomicUsize) -> (Self, bool) {
        let alone = counter.fetch_add(1, Ordering::SeqCst) == 0;
        (Self(counter), alone)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Executor for Wrong {
    fn name(&self) -> &ExecutorName {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        if self.is(Fault::ChangesItsMind) {
            capabilities.inherits_environment =
                self.asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        }
        capabilities
    }

    fn check(&self, spec: &InstanceSpec) -> Result<(), Error> {
        match self.inner.check(spec) {
            Err(error) => match self.fault {
                Fault::TakesAnyOption if error.get("option").is_some() => Ok(()),
                Fault::IgnoresLimits if !spec.limits.is_empty() => Ok(()),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }

    fn private_directory(&self, id: &InstanceId) -> PathBuf {
        if self.is(Fault::SharesThePrivateDirectory) {
            return "/instances/private".into();
        }
        self.inner.private_directory(id)
    }

    async fn probe(&self) -> Result<ProbeReport, Error> {
        if self.is(Fault::NeverAnswersAProbe) {
            std::future::pending::<()>().await;
        }
        self.inner.probe().await
    }

    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error> {
        let (_busy, alone) = Busy::alone(&self.memory.creating);
        self.memory.asked_for.lock().unwrap().push(id.clone());
        tokio::task::yield_now().await;
        if self.is(Fault::MakesOneAtATime) && !alone {
            return Err(refusal(ErrorKind::Conflict));
        }
        let mut spec = spec.clone();
        if self.is(Fault::MakesWhatItRefuses) {
            spec.options.clear();
        }
        let mut created = match self.inner.create(id, &spec, progress).await {
            Ok(created) => created,
            Err(error)
                if self.is(Fault::TakesATakenId)
                    && error.kind() == ErrorKind::AlreadyExists
                    && let Presence::Present(identity) = self.inner.state(id).await? =>
            {
                Created {
                    identity,
                    secrets: Vec::new(),
                }
            }
            Err(error) => return Err(error),
        };
        self.memory.made.lock().unwrap().push(id.clone());
        match self.fault {
            Fault::LiesAboutWhatItMade => created.identity = Identity("another".to_owned()),
            Fault::ReturnsSecretsUnasked => {
                let secret = ("token".to_owned(), SecretValue::new("x"));
                created.secrets.push(secret);
            }
            _ => {}
        }
        Ok(created)
    }

    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error> {
        let gone = self.memory.gone.lock().unwrap().contains(id);
        if self.is(Fault::ForgetsTheLogs) && gone {
            return Err(refusal(ErrorKind::NotFound));
        }
        let first = self.memory.made.lock().unwrap().first().cloned();
        let inner = match (self.fault, first) {
            (Fault::MixesInstancesUp, Some(first))
                if self.made(id)
                    && !gone
                    && self.is_there(&first).await
                    && !self.has_ended(&first).await =>
            {
                self.inner.connect(&first).await?
            }
            (Fault::ReachesWhatNeverWas, Some(first)) if !self.made(id) => {
                self.inner.connect(&first).await?
            }
            _ => self.inner.connect(id).await?,
        };
        Ok(Arc::new(WrongInstance {
            inner,
            fault: self.fault,
            asked: Mutex::default(),
            told: AtomicUsize::new(0),
            started: Mutex::default(),
        }))
    }

    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error> {
        let (_busy, alone) = Busy::alone(&self.memory.deleting);
        tokio::task::yield_now().await;
        if self.is(Fault::DeletesOneAtATime) && !alone && !self.many() {
            return Err(refusal(ErrorKind::Conflict));
        }
        if self.is(Fault::KeepsWhatHasEnded) && self.has_ended(id).await {
            let undone = "it has ended, so there is nothing to delete";
            // Once it was asked twice it gives way: whatever comes behind the case takes it away.
            if self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
                return Ok(Undone::NotOurs(undone.to_owned()));
            }
        }
        let identity = match self.fault {
            Fault::IgnoresTheIdentity => None,
            _ => identity,
        };
        if self.is(Fault::DeletesNamesakes) {
            for other in self.inner.list().await? {
                if other.as_str().starts_with(id.as_str()) && other != *id {
                    self.inner.delete(&other, None).await?;
                }
            }
        }
        let undone = self.inner.delete(id, identity).await?;
        if undone == Undone::AlreadyGone && self.is(Fault::FailsOnWhatIsGone) && !self.asked_for(id)
        {
            return Err(refusal(ErrorKind::NotFound));
        }
        if matches!(undone, Undone::Removed { .. }) {
            self.memory.gone.lock().unwrap().push(id.clone());
        }
        Ok(undone)
    }

    async fn state(&self, id: &InstanceId) -> Result<Presence, Error> {
        if self.is(Fault::LosesWhatHasEnded) && self.has_ended(id).await {
            return Ok(Presence::Absent);
        }
        self.inner.state(id).await
    }

    async fn list(&self) -> Result<Vec<InstanceId>, Error> {
        let mut listed = self.inner.list().await?;
        match self.fault {
            Fault::ListsOnlyTheFirst if listed.len() == 2 => listed.truncate(1),
            Fault::ForgetsWhatAnotherMade if !self.first => listed.clear(),
            _ => {}
        }
        Ok(listed)
    }
}

impl Wrong {
    /// Whether more than two instances were ever made here: then it is another case that deletes at once.
    fn many(&self) -> bool {
        self.memory.made.lock().unwrap().len() > 2
    }
}

#[derive(Debug)]
struct WrongInstance {
    inner: SharedInstance,
    fault: Fault,
    asked: Mutex<Vec<ProcessId>>,
    /// Whether it was told its variables.
    told: AtomicUsize,
    started: Mutex<Vec<ProcessId>>,
}

impl WrongInstance {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn changed(&self, environment: &Environment) -> Result<Environment, Error> {
        let mut changed = Environment::new();
        for (key, value) in environment.iter() {
            let mut value = value.to_vec();
            match self.fault {
                Fault::TrimsValues => value = value.trim_ascii().to_vec(),
                Fault::CutsLongValues => value.truncate(64 << 10),
                _ => {}
            }
            changed.set(key.clone(), value);
        }
        if self.is(Fault::InheritsTheEnvironment) {
            changed.set(Key::new("GROUNDCREW_CONFORMANCE_CANARY")?, "ours");
        }
        Ok(changed)
    }
}

#[async_trait]
impl Instance for WrongInstance {
    async fn set_environment(&self, environment: &Environment) -> Result<(), Error> {
        self.told.store(1, Ordering::SeqCst);
        self.inner
            .set_environment(&self.changed(environment)?)
            .await
    }

    async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error> {
        let mut spec = spec.clone();
        if self.is(Fault::StartsOnce) && self.started.lock().unwrap().contains(id) {
            return Err(refusal(ErrorKind::AlreadyExists));
        }
        if self.is(Fault::KnowsProcessesByConnection)
            && !self.started.lock().unwrap().contains(id)
            && self
                .inner
                .processes()
                .await?
                .iter()
                .any(|state| state.id == *id)
        {
            return Err(refusal(ErrorKind::AlreadyExists));
        }
        if self.is(Fault::SplitsArguments) {
            let words = spec.command.arguments().iter().flat_map(|word| {
                let text = String::from_utf8_lossy(word.as_bytes()).into_owned();
                text.split(' ').map(str::to_owned).collect::<Vec<_>>()
            });
            let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
            spec.command = groundcrew_core::command::Command::new(words)?;
        }
        spec.environment = match &spec.environment {
            EnvironmentSource::Exact(exact) if self.is(Fault::AddsToAnExactEnvironment) => {
                EnvironmentSource::Run(exact.clone())
            }
            EnvironmentSource::Exact(exact) => EnvironmentSource::Exact(self.changed(exact)?),
            EnvironmentSource::Run(overlay) => EnvironmentSource::Run(self.changed(overlay)?),
        };
        let started = self.inner.start(id, &spec).await?;
        self.started.lock().unwrap().push(id.clone());
        Ok(started)
    }

    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error> {
        let mut stdio = self.inner.attach(id, from, role).await?;
        if self.is(Fault::LosesStandardError) {
            let kept = |frame: &Result<groundcrew_core::process::Frame, Error>| !matches!(frame, Ok(frame) if matches!(frame.kind, FrameKind::Stderr(_)));
            stdio.output = stdio
                .output
                .filter(move |frame| std::future::ready(kept(frame)))
                .boxed();
        }
        Ok(stdio)
    }

    async fn close_stdin(&self, id: &ProcessId) -> Result<(), Error> {
        self.inner.close_stdin(id).await
    }

    async fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error> {
        self.inner.resize(id, size).await
    }

    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        let status = self.inner.wait(id).await?;
        let mut asked = self.asked.lock().unwrap();
        if self.is(Fault::WaitsOnce) && asked.iter().filter(|known| *known == id).count() >= 2 {
            return Err(refusal(ErrorKind::NotFound));
        }
        asked.push(id.clone());
        Ok(status)
    }

    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error> {
        self.inner.signal(id, signal).await
    }

    async fn processes(&self) -> Result<Vec<ProcessState>, Error> {
        let mut states = self.inner.processes().await?;
        if self.is(Fault::StartsSomethingItself) && self.told.load(Ordering::SeqCst) == 0 {
            let pause = ProcessId::new("pause")?;
            states.push(ProcessState {
                id: pause,
                main: false,
                phase: groundcrew_core::process::ProcessPhase::Lost,
                log_start: Offset(0),
                log_end: Offset(0),
            });
        }
        Ok(states)
    }

    async fn put_archive(&self, at: &Path, tar: ByteStream) -> Result<(), Error> {
        self.inner.put_archive(at, tar).await
    }

    async fn get_archive(&self, at: &Path) -> Result<ByteStream, Error> {
        self.inner.get_archive(at).await
    }

    async fn set_mcp_servers(&self, servers: &[McpServer]) -> Result<(), Error> {
        self.inner.set_mcp_servers(servers).await
    }

    async fn set_lease(&self, lease: Lease) -> Result<(), Error> {
        self.inner.set_lease(lease).await
    }

    async fn shutdown(&self, grace: Duration) -> Result<(), Error> {
        if self.is(Fault::EndsPolitelyOnly) {
            for state in self.inner.processes().await? {
                self.inner.signal(&state.id, Signal::TERM).await?;
            }
            return Ok(());
        }
        self.inner.shutdown(grace).await
    }
}

/// The worlds of one run of the suite, by ground.
#[derive(Default)]
struct Worlds(Mutex<BTreeMap<PathBuf, (MemoryWorld, Arc<Memory>)>>);

impl Worlds {
    fn open(&self, ground: &Ground, fault: Fault) -> Result<ExecutorFixture, Error> {
        let key = ground.directory().join(ground.install().as_str());
        let mut worlds = self.0.lock().unwrap();
        let (world, memory) = worlds.entry(key).or_insert_with(|| {
            let world = MemoryWorld::of(ground.install().clone());
            (world, Arc::default())
        });
        let mut capabilities = Capabilities::host();
        capabilities.terminal = false;
        capabilities.detached = false;
        capabilities.limits = false;
        let inner = MemoryExecutor::new(world, ExecutorName::new("memory")?);
        let executor = Wrong {
            inner: inner.with_capabilities(capabilities),
            fault,
            memory: Arc::clone(memory),
            first: memory.opened.fetch_add(1, Ordering::SeqCst) == 0,
            asked: AtomicUsize::new(0),
        };
        Ok(ExecutorFixture::new(Arc::new(executor))
            .with_commands(commands)
            .in_directory("/memory")
            .without(Need::Files, "nothing in memory is a file")
            .without(Need::Trees, "a process in memory starts no other"))
    }
}

async fn report(fault: Fault) -> Report {
    let worlds = Worlds::default();
    conformance::executor(move |ground| worlds.open(ground, fault))
        .await
        .unwrap()
}

/// Of the launches that fail there are cases as well; they are no sentences of their own, so any of them may fail too.
fn sentences(report: &Report) -> Vec<&str> {
    let failed = report.failed().into_iter();
    failed
        .filter(|name| !name.starts_with("faults::"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_strict_one_passes() {
    let report = report(Fault::Nothing).await;
    assert!(report.certifies(), "{report}");
    assert!(
        report.cases.len() - report.skipped().len() >= 50,
        "{report}"
    );
}

async fn fails(fault: Fault, case: &str) {
    let report = report(fault).await;
    assert_eq!(sentences(&report), [case], "{fault:?}:\n{report}");
}

macro_rules! wrong {
    ($($test:ident: $fault:ident fails $case:literal;)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $test() {
            fails(Fault::$fault, $case).await;
        })*
    };
}

wrong! {
    one_that_changes_its_mind: ChangesItsMind fails "making::an_executor_is_always_the_same";
    one_that_never_answers_a_probe: NeverAnswersAProbe fails "making::a_probe_answers_and_makes_nothing";
    one_that_takes_any_option: TakesAnyOption fails "making::an_unknown_option_is_refused_by_name";
    one_that_makes_what_it_refuses: MakesWhatItRefuses fails "making::what_a_check_refuses_is_not_made";
    one_that_ignores_limits: IgnoresLimits fails "making::limits_that_it_cannot_hold_are_refused";
    one_that_lies_about_what_it_made: LiesAboutWhatItMade fails "making::what_was_made_is_what_is_there";
    one_that_starts_something_itself: StartsSomethingItself fails "making::a_new_instance_runs_nothing";
    one_that_takes_a_taken_id: TakesATakenId fails "making::a_taken_id_is_refused_and_what_has_it_is_left_alone";
    one_that_mixes_instances_up: MixesInstancesUp fails "making::two_instances_are_two";
    one_that_returns_secrets_unasked: ReturnsSecretsUnasked fails "making::secrets_are_returned_only_by_those_that_say_so";
    one_that_shares_the_private_directory: SharesThePrivateDirectory fails "making::private_directories_are_of_one_instance_each";
    one_that_inherits_the_environment: InheritsTheEnvironment fails "surroundings::nothing_of_the_controller_is_inherited";
    one_that_trims_values: TrimsValues fails "surroundings::values_arrive_byte_for_byte";
    one_that_splits_arguments: SplitsArguments fails "surroundings::arguments_arrive_byte_for_byte";
    one_that_cuts_long_values: CutsLongValues fails "surroundings::long_values_arrive";
    one_that_lists_only_the_first: ListsOnlyTheFirst fails "finding::a_list_holds_what_is_there";
    one_that_forgets_what_another_made: ForgetsWhatAnotherMade fails "finding::another_executor_finds_the_same";
    one_that_reaches_what_never_was: ReachesWhatNeverWas fails "finding::what_never_was_is_not_found";
    one_that_knows_processes_by_connection: KnowsProcessesByConnection fails "finding::two_connections_see_one_instance";
    one_that_loses_what_has_ended: LosesWhatHasEnded fails "finding::an_instance_that_has_ended_is_still_there";
    one_that_fails_on_what_is_gone: FailsOnWhatIsGone fails "removing::what_is_gone_already_is_success";
    one_that_ignores_the_identity: IgnoresTheIdentity fails "removing::another_identity_is_left_alone";
    one_that_deletes_namesakes: DeletesNamesakes fails "removing::namesakes_are_left_alone";
    one_that_keeps_what_has_ended: KeepsWhatHasEnded fails "removing::an_instance_that_has_ended_is_deleted";
    one_that_deletes_one_at_a_time: DeletesOneAtATime fails "removing::two_deletions_at_once_succeed";
    one_that_forgets_the_logs: ForgetsTheLogs fails "removing::logs_are_kept";
    one_that_makes_one_at_a_time: MakesOneAtATime fails "rolling_back::many_at_once_are_made_and_taken_back";
    one_that_starts_once: StartsOnce fails "starting::the_same_start_again_gives_the_first_answer";
    one_that_answers_a_wait_twice_only: WaitsOnce fails "ending::any_number_of_callers_get_the_same_end";
    one_that_loses_standard_error: LosesStandardError fails "streams::standard_error_is_kept_apart";
    one_that_ends_politely_only: EndsPolitelyOnly fails "ending::shutdown_ends_all_within_the_grace";
}

/// A declared exception is run, and one that holds is no exception.
#[tokio::test(start_paused = true)]
async fn exceptions_are_run_and_must_fail() {
    let case = "removing::namesakes_are_left_alone";
    for (fault, fails) in [(Fault::DeletesNamesakes, false), (Fault::Nothing, true)] {
        let worlds = Worlds::default();
        let open = move |ground: &Ground| Ok(worlds.open(ground, fault)?.except(case, "it cannot"));
        let report = conformance::executor(open).await.unwrap();
        assert_eq!(report.failed().contains(&case), fails, "{report}");
        assert_eq!(report.certifies(), !fails, "{report}");
        let exceptions = &report.document()["exceptions"];
        assert_eq!(exceptions.as_array().unwrap().len(), usize::from(!fails));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_capability_says_is_not_declared_and_no_case_is_invented() {
    for wrong in [
        (|fixture: ExecutorFixture| fixture.without(Need::Terminals, "none")) as fn(_) -> _,
        |fixture: ExecutorFixture| fixture.except("removing::no_such_case", "none"),
    ] {
        let worlds = Worlds::default();
        let open = move |ground: &Ground| Ok(wrong(worlds.open(ground, Fault::Nothing)?));
        let error = conformance::executor(open).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
