//! Cases of launches that fail: a real launcher, the author's executor, and a fault at every step.
//!
//! The checkpoints are those that a healthy launch passes, so a new step is in the cases from its first day.

use std::{path::PathBuf, sync::Arc, time::Duration};

use groundcrew_core::{
    CloseOptions, LaunchError, Launched, Launcher, Parts, Policy, Registration, Registry, Ticket,
    command::Command,
    env::{Definition, Key, Tier},
    error::{Chain, Error, ErrorKind},
    process::Lease,
    request::{AgentSpec, LaunchRequest, Mode},
    script::Script,
    store::StateStore as _,
    workspace::WorkspaceRequest,
};

use super::{bench::Bench, fixture::ExecutorFixture, leftovers, workspace::GivenWorkspace};
use crate::{
    conformance::{
        broken::{Broken, broken, hold},
        place::Ground,
        programs::Program,
    },
    faulty::{Action, FaultPlan, Faulty, FaultyExecutor, VerbFault, VerbFaults},
    memory::{MemoryLocks, MemoryRuntimeSecrets, MemoryStore},
    recorder::Recorder,
};

const REMOVE: CloseOptions = CloseOptions {
    remove: true,
    force: false,
};

/// How long what was broken off may be owned: it may go on for a while, and only then is it taken away.
const OWNED: Duration = Duration::from_secs(20);

/// A launcher on the executor of a case, with everything in it that can go wrong.
struct Crew {
    launcher: Launcher,
    store: MemoryStore,
    checkpoints: Arc<Faulty>,
    recorder: Recorder,
    verbs: VerbFaults,
    request: LaunchRequest,
}

/// Short times: what hangs on purpose is not waited for.
fn policy() -> Policy {
    Policy {
        step: Duration::from_secs(30),
        after_cancel: Duration::from_millis(300),
        settle: Duration::from_millis(300),
        grace: Duration::from_millis(500),
        ..Policy::default()
    }
}

fn store_file(ground: &Ground) -> PathBuf {
    ground.directory().join("rows.json")
}

fn request(fixture: &ExecutorFixture, ground: &Ground) -> Result<LaunchRequest, Error> {
    let command = |program: &Program<'_>| Command::new((fixture.command)(program));
    let mark = (leftovers::MARK, leftovers::mark(ground));
    let variables = fixture.variables.iter().cloned().chain([mark]);
    let environment = variables.map(|(key, value)| {
        Ok(Definition::literal(
            Key::new(key)?,
            value,
            Tier::Request,
            "conformance",
        ))
    });
    let workspace = WorkspaceRequest::InPlace {
        path: ground.workspace(),
    };
    let agent = AgentSpec::new(command(&Program::Sleep)?);
    Ok(LaunchRequest {
        environment: environment.collect::<Result<_, Error>>()?,
        setup: vec![Script::new("greet", command(&Program::Out("set up"))?)],
        lease: Lease::Unlimited,
        options: fixture.options.clone(),
        ..LaunchRequest::new(
            fixture.executor.name().clone(),
            workspace,
            Mode::Agent(agent),
        )
    })
}

impl Crew {
    fn new(
        fixture: &ExecutorFixture,
        ground: &Ground,
        store: MemoryStore,
        plan: FaultPlan,
    ) -> Result<Self, Error> {
        let verbs = VerbFaults::new();
        let directory = fixture.directory.clone().unwrap_or(ground.workspace());
        let mut registry = Registry::new();
        let preparer = GivenWorkspace::new(ground.workspace(), directory)?;
        let executor = FaultyExecutor::new(Arc::clone(&fixture.executor), &verbs);
        registry.register(Registration::new(
            Arc::new(executor),
            vec![Arc::new(preparer)],
        ))?;
        let (recorder, checkpoints) = (Recorder::new(), Arc::new(Faulty::new(plan)));
        let install = ground.install().clone();
        let (store_part, locks) = (Arc::new(store.clone()), Arc::new(MemoryLocks::new()));
        let mut parts = Parts::new(install, registry, store_part, locks);
        parts.runtime_secrets = Arc::new(MemoryRuntimeSecrets::default());
        parts.events = Arc::new(recorder.clone());
        parts.checkpoints = Arc::clone(&checkpoints) as _;
        parts.policy = policy();
        let launcher = Launcher::new(parts);
        Ok(Self {
            launcher,
            store,
            checkpoints,
            recorder,
            verbs,
            request: request(fixture, ground)?,
        })
    }

    fn of(it: &Bench, plan: FaultPlan) -> Result<Self, Broken> {
        Ok(Self::new(
            &it.fixture,
            it.ground(),
            MemoryStore::new(),
            plan,
        )?)
    }

    async fn ticket(&self) -> Result<Ticket, Broken> {
        let plan = match self.launcher.plan(self.request.clone()).await {
            Ok(plan) => plan,
            Err(error) => broken!("a launch cannot be planned: {error}"),
        };
        let ticket = self.launcher.launch(plan);
        let cancelled = ticket.clone();
        self.checkpoints.on_cancel(move || cancelled.cancel());
        Ok(ticket)
    }

    /// Waits until nothing is owned, and demands that nothing is there.
    async fn nothing_is_left(&self, it: &Bench, after: &str) -> Result<(), Broken> {
        self.verbs.heal();
        let until = tokio::time::Instant::now() + OWNED;
        while !self.store.attempts().await?.is_empty() {
            hold!(
                tokio::time::Instant::now() < until,
                "{after}: still owned is {:?}\n{}",
                self.store.armed_keys(),
                self.recorder.transcript()
            );
            self.verbs.settled().await;
            drop(self.launcher.recover().await?);
            // What is not due yet has no event.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.launcher.shutdown().await;
        let there = it.executor().list().await?;
        hold!(
            there.is_empty(),
            "{after}: there is still {there:?}\n{}",
            self.recorder.transcript()
        );
        let violations = self.recorder.violations();
        hold!(violations.is_empty(), "{after}: {violations:?}");
        Ok(())
    }

    /// Closes what came up, if it did, and demands that nothing is there.
    async fn closed(
        &self,
        it: &Bench,
        launched: Result<Launched, LaunchError>,
        after: &str,
    ) -> Result<(), Broken> {
        if let Ok(launched) = launched {
            drop(self.launcher.close(&launched.record.run, REMOVE).await?);
        }
        self.nothing_is_left(it, after).await
    }
}

/// Returns every checkpoint that a healthy launch passes, and closes what came up.
async fn checkpoints(it: &Bench) -> Result<Vec<String>, Broken> {
    let crew = Crew::of(it, FaultPlan::default())?;
    let launched = crew.ticket().await?.wait().await;
    if let Err(error) = &launched {
        broken!(
            "a launch does not come up: {} at {}\n{}",
            Chain(&*error.error),
            error.step,
            crew.recorder.transcript()
        );
    }
    let passed = crew.checkpoints.passed();
    crew.closed(it, launched, "a healthy launch").await?;
    Ok(passed)
}

pub(super) async fn a_launch_comes_up_and_is_closed(it: &Bench) -> Result<(), Broken> {
    let passed = checkpoints(it).await?;
    for step in [
        "create.after",
        "connect.after",
        "setup.after",
        "start.after",
    ] {
        hold!(
            passed.iter().any(|point| point == step),
            "it does not pass {step}: {passed:?}"
        );
    }
    Ok(())
}

async fn at_every_step(it: &Bench, action: &Action) -> Result<(), Broken> {
    for point in checkpoints(it).await? {
        let crew = Crew::of(it, FaultPlan::at(&point, action.clone()))?;
        let ticket = crew.ticket().await?;
        if *action == Action::Hang {
            crew.checkpoints.until_struck().await;
            ticket.cancel();
        }
        let launched = ticket.wait().await;
        let after = format!("{action} at {point}");
        hold!(crew.checkpoints.struck() == 1, "{after}: it did not strike");
        hold!(
            launched.is_err() || *action == Action::Cancel,
            "{after}: it came up nevertheless"
        );
        crew.closed(it, launched, &after).await?;
    }
    Ok(())
}

pub(super) async fn an_error_at_every_step_leaves_nothing(it: &Bench) -> Result<(), Broken> {
    at_every_step(it, &Action::Error(ErrorKind::Protocol)).await
}

pub(super) async fn a_panic_at_every_step_leaves_nothing(it: &Bench) -> Result<(), Broken> {
    at_every_step(it, &Action::Panic).await
}

pub(super) async fn a_cancellation_at_every_step_leaves_nothing(it: &Bench) -> Result<(), Broken> {
    at_every_step(it, &Action::Cancel).await
}

pub(super) async fn a_hang_at_every_step_leaves_nothing(it: &Bench) -> Result<(), Broken> {
    at_every_step(it, &Action::Hang).await
}

pub(super) async fn an_answer_that_is_lost_leaves_nothing(it: &Bench) -> Result<(), Broken> {
    for verb in [
        "create",
        "connect",
        "instance.set_environment",
        "instance.start",
    ] {
        for fault in [
            VerbFault::After(ErrorKind::Unavailable),
            VerbFault::PanicAfter,
            VerbFault::Late(Duration::from_millis(100)),
        ] {
            let after = format!("{verb}, {fault:?}");
            let crew = Crew::of(it, FaultPlan::default())?;
            crew.verbs.once(verb, fault);
            let launched = crew.ticket().await?.wait().await;
            crew.verbs.settled().await;
            crew.closed(it, launched, &after).await?;
        }
    }
    Ok(())
}

pub(super) async fn a_verb_that_fails_for_a_while_leaves_nothing(it: &Bench) -> Result<(), Broken> {
    for fault in [
        VerbFault::Before(ErrorKind::Unavailable),
        VerbFault::After(ErrorKind::TimedOut),
        VerbFault::Panic,
    ] {
        let after = format!("a rollback whose deletion is {fault:?}");
        let failing = FaultPlan::at("start.after", Action::Error(ErrorKind::Protocol));
        let crew = Crew::of(it, failing)?;
        crew.verbs.times("delete", 2, fault);
        let launched = crew.ticket().await?.wait().await;
        hold!(launched.is_err(), "{after}: it came up nevertheless");
        crew.closed(it, launched, &after).await?;
    }
    Ok(())
}

pub(super) async fn a_controller_killed_at_every_step_leaves_nothing(
    it: &Bench,
) -> Result<(), Broken> {
    for point in checkpoints(it).await? {
        let after = format!("killed at {point}");
        let died = super::controller::Controller::launch(it, &point)?;
        let signal = died.ended().await?;
        hold!(
            signal == Some(9),
            "{after}: it ended with {signal:?} and was not killed"
        );
        let store = MemoryStore::on_file(store_file(it.ground()))?;
        let crew = Crew::new(&it.fixture, it.ground(), store, FaultPlan::default())?;
        let report = crew.launcher.recover().await?;
        hold!(
            report.stuck.is_empty() && report.unknown.is_empty(),
            "{after}: {report:?}"
        );
        for run in crew.store.runs().await? {
            drop(crew.launcher.close(&run.run, REMOVE).await);
        }
        crew.nothing_is_left(it, &after).await?;
        match std::fs::remove_file(store_file(it.ground())) {
            // It was killed before it wrote anything.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Launches on a file of rows, and dies at a checkpoint; returns only if it does not.
pub(super) async fn launch_to_death(
    fixture: ExecutorFixture,
    ground: &Ground,
    point: &str,
) -> Result<(), Error> {
    let store = MemoryStore::on_file(store_file(ground))?;
    let plan = FaultPlan::at(point, Action::Kill9);
    let crew = Crew::new(&fixture, ground, store, plan)?;
    let wrong = |broken: Broken| Error::new(ErrorKind::Unexpected, broken.0);
    let launched = crew.ticket().await.map_err(wrong)?.wait().await;
    drop(launched);
    Err(Error::new(
        ErrorKind::Unexpected,
        "the launch did not pass the checkpoint",
    )
    .with("point", point))
}
