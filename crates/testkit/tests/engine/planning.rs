//! A plan finds everything that is wrong, at once, and touches nothing.

use std::sync::Arc;

use groundcrew_core::{
    PlanError,
    command::Command,
    env::{Definition, Key, Tier},
    error::ErrorKind,
    event::Step,
    executor::Capabilities,
    id::{ExecutorName, RunId},
    preparer::Preparer,
    process::{StdioKind, TerminalSize},
    request::{LaunchIntent, LaunchRequest, Mode},
    store::StateStore as _,
};
use groundcrew_testkit::{
    faulty::FaultPlan,
    memory::{MemoryExecutor, MemoryPreparer},
};

use crate::support::{Machine, Process, executor_name, preparer_name, request, resume};

fn variable(value: &str, origin: &str) -> Definition {
    Definition::literal(Key::new("COLOUR").unwrap(), value, Tier::Request, origin)
}

fn has(error: &PlanError, kind: ErrorKind, words: &str) {
    let found = error
        .problems
        .iter()
        .any(|p| p.kind() == kind && p.to_string().contains(words));
    assert!(found, "{kind} {words:?}: {error}");
}

async fn touched_nothing(machine: &Machine, process: &Process) {
    machine.is_empty().await;
    assert!(process.recorder.events().is_empty() && process.checkpoints.passed().is_empty());
    assert_eq!(process.secrets.asked(), Vec::<String>::new());
    let effects = ["create", "workspace.apply", "things.apply", "delete"];
    assert!(effects.iter().all(|verb| machine.world.count(verb) == 0));
}

#[tokio::test(start_paused = true)]
async fn all_problems_are_told_at_once() {
    let machine = Machine::new();
    let problem = |name: &str, kind, message| -> Arc<dyn Preparer> {
        let preparer = MemoryPreparer::new(&machine.world, preparer_name(name));
        Arc::new(preparer.with_problem(kind, message))
    };
    let preparers = vec![
        problem("workspace", ErrorKind::NotFound, "no such base"),
        problem("things", ErrorKind::AlreadyExists, "the branch is taken"),
        // Found by two, told once.
        problem("more", ErrorKind::NotFound, "no such base"),
    ];
    let capabilities = Capabilities::host();
    let capabilities = {
        let mut none = capabilities;
        none.terminal = false;
        none
    };
    let executor =
        MemoryExecutor::new(&machine.world, executor_name()).with_capabilities(capabilities);
    let process = machine.process_on(FaultPlan::default(), Arc::new(executor), preparers);
    let mut wrong = LaunchRequest {
        environment: vec![variable("red", "--env"), variable("blue", "profile")],
        ..request()
    };
    if let Mode::Agent(agent) = &mut wrong.mode {
        agent.stdio = StdioKind::Terminal(TerminalSize {
            rows: 1,
            columns: 1,
        });
    }
    let error = process.launcher.plan(wrong).await.unwrap_err();
    has(&error, ErrorKind::NotFound, "no such base");
    has(&error, ErrorKind::AlreadyExists, "the branch is taken");
    has(&error, ErrorKind::Unsupported, "terminals");
    has(&error, ErrorKind::InvalidInput, "--env, profile");
    assert_eq!(
        (error.problems.len(), error.conflicts.len()),
        (4, 1),
        "{error}"
    );
    touched_nothing(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_executor_refuses_is_told_with_everything_else() {
    let machine = Machine::new();
    let process = machine.process();
    let mut wrong = request();
    wrong.options.insert("colour".into(), "red".into());
    wrong.environment = vec![variable("red", "--env"), variable("blue", "profile")];
    let error = process.launcher.plan(wrong).await.unwrap_err();
    has(&error, ErrorKind::InvalidInput, "option=colour");
    has(&error, ErrorKind::InvalidInput, "--env, profile");
    touched_nothing(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_executor_is_told_with_the_known_ones() {
    let machine = Machine::new();
    let process = machine.process();
    let executor = ExecutorName::new("cloud").unwrap();
    let error = process
        .launcher
        .plan(LaunchRequest {
            executor,
            ..request()
        })
        .await
        .unwrap_err();
    has(&error, ErrorKind::NotFound, "known=memory");
    touched_nothing(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn a_workspace_that_no_preparer_makes_is_told() {
    let machine = Machine::new();
    let things: Arc<dyn Preparer> = Arc::new(machine.things_preparer());
    let process = machine.process_of(FaultPlan::default(), vec![things]);
    let error = process.launcher.plan(request()).await.unwrap_err();
    has(
        &error,
        ErrorKind::Unsupported,
        "no preparer for such a workspace",
    );
    touched_nothing(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn f032_what_the_kernel_would_refuse_is_refused_before_any_step() {
    let machine = Machine::new();
    let process = machine.process();
    let large = "x".repeat(130_000);
    let mut request = request();
    if let Mode::Agent(agent) = &mut request.mode {
        let words = std::iter::once("echo").chain(std::iter::repeat_n(large.as_str(), 20));
        agent.program = Command::new(words).unwrap().into();
    }
    let error = process.launcher.plan(request).await.unwrap_err();
    has(&error, ErrorKind::TooLarge, "limit=");
    touched_nothing(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn a_good_plan_shows_what_would_happen_and_does_nothing() {
    let machine = Machine::new();
    let process = machine.process();
    let plan = process.plan(request()).await;
    assert_eq!(plan.steps().first(), Some(&Step::Reserve));
    assert_eq!(plan.steps().last(), Some(&Step::Commit));
    let keys: Vec<_> = plan
        .records()
        .into_iter()
        .map(|record| record.key)
        .collect();
    assert_eq!(
        keys,
        ["directory", "branch", "tree", "thing", "gift", "instance"]
    );
    for record in plan.records() {
        assert_eq!(record.attempt, plan.attempt());
        let waits = record.depends_on.contains(&"instance".to_owned());
        assert_eq!(waits, record.key != "instance", "{}", record.key);
    }
    assert_eq!(plan.workspace().kind, "memory");
    touched_nothing(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_unknown_or_busy_is_not_resumed() {
    let machine = Machine::new();
    let process = machine.process();
    let unknown = RunId::new("unknown").unwrap();
    let error = process.launcher.plan(resume(&unknown)).await.unwrap_err();
    has(&error, ErrorKind::NotFound, "run=unknown");
    let run = process.launch().await.unwrap().record.run;
    let plan = process.plan(resume(&run)).await;
    assert_eq!(plan.request().intent, LaunchIntent::Resume(run.clone()));
    let error = process.launcher.launch(plan).wait().await.unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::SessionBusy, "it is still up");
    assert_eq!(machine.store.runs().await.unwrap().len(), 1);
    process
        .launcher
        .close(&run, crate::keeping::REMOVE)
        .await
        .unwrap();
    let error = process.launcher.plan(resume(&run)).await.unwrap_err();
    has(&error, ErrorKind::Unsupported, "state=closed");
}
