//! Nothing that an agent, a user or a stranger made is removed without proof.

use std::sync::Arc;

use groundcrew_core::{
    CloseOptions, CloseOutcome,
    error::ErrorKind,
    executor::{Executor as _, InstanceSpec, Limits, Progress},
    id::{AttemptId, RunId, SessionId},
    process::Lease,
    store::RunState,
};
use groundcrew_testkit::{
    faulty::{Action, FaultPlan},
    memory::MemoryExecutor,
};

use crate::support::{Machine, agent, executor_name, request, runtime};

pub(crate) const REMOVE: CloseOptions = CloseOptions {
    remove: true,
    force: false,
};
const FORCE: CloseOptions = CloseOptions {
    remove: true,
    force: true,
};

fn failing_after_the_start() -> FaultPlan {
    FaultPlan::at("start.after", Action::Error(ErrorKind::Protocol))
}

#[tokio::test(start_paused = true)]
async fn f127_a_workspace_that_was_written_into_survives_the_failure_and_is_named() {
    let machine = Machine::new();
    let process = machine.process_with(failing_after_the_start());
    let ticket = process
        .ticket(agent(&["write", "notes.txt", "sleep-until-signal"]))
        .await;
    let error = ticket.wait().await.unwrap_err();
    assert!(
        error.rollback.is_clean(),
        "kept on purpose is clean: {:?}",
        error.rollback
    );
    process.rolled_back_once(ticket.attempt());
    let kept: Vec<_> = error.rollback.kept().collect();
    assert_eq!(kept[0].0, "tree of workspace");
    assert_eq!(kept[0].1[0].items, ["notes.txt"]);

    let record = machine.record(ticket.run()).await;
    assert_eq!(record.state, RunState::Interrupted);
    assert_eq!(record.kept[0].items, ["notes.txt"]);
    assert_eq!(record.problem.unwrap().kind, ErrorKind::Protocol);
    let mut left = machine.world.things();
    left.retain(|name, _| !name.contains(ticket.run().as_str()));
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(
        machine.world.things().len(),
        3,
        "tree, branch and directory stay together"
    );
    assert!(machine.world.instances().is_empty());

    // It stays owned: recovery leaves it, removal refuses, force saves it first.
    let report = process.launcher.recover().await.unwrap();
    assert!(report.is_clean() && report.strays.is_empty(), "{report:?}");
    let refused = process.launcher.close(ticket.run(), REMOVE).await.unwrap();
    assert_eq!(refused.outcome, CloseOutcome::Refused);
    assert_eq!(machine.world.things().len(), 3);
    let removed = process.launcher.close(ticket.run(), FORCE).await.unwrap();
    assert_eq!(removed.outcome, CloseOutcome::Closed);
    assert!(removed.snapshot.is_some());
    assert!(machine.world.leftovers().is_empty());
}

#[test]
fn f127_a_dead_launch_whose_agent_worked_keeps_the_work() {
    let machine = Machine::new();
    let dying = runtime();
    let process = machine.process_with(FaultPlan::at("start.after", Action::Hang));
    let run = dying.block_on(async {
        let ticket = process
            .ticket(agent(&["write", "notes.txt", "sleep-until-signal"]))
            .await;
        process.checkpoints.until_struck().await;
        ticket.run().clone()
    });
    drop(dying);
    process.locks.die();
    runtime().block_on(async {
        let report = machine.process().launcher.recover().await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.settled, [(run.clone(), RunState::Interrupted)]);
        assert_eq!(report.kept[0].1.findings[0].items, ["notes.txt"]);
        assert!(machine.world.instances().is_empty());
        assert_eq!(machine.world.things().len(), 3);
        let again = machine.process().launcher.recover().await.unwrap();
        assert!(again.is_clean() && again.settled.is_empty(), "{again:?}");
        assert_eq!(
            machine.world.things().len(),
            3,
            "a second recovery keeps it as well"
        );
    });
}

#[tokio::test(start_paused = true)]
async fn f058_a_namesake_of_what_was_planned_is_refused_and_left_alone() {
    for (key, step) in [("tree", "prepare:workspace"), ("thing", "prepare:things")] {
        let machine = Machine::new();
        let process = machine.process();
        let plan = process.plan(request()).await;
        let preparer = step.strip_prefix("prepare:").unwrap();
        let name = format!("{preparer}/{}/{key}", plan.run());
        machine.world.plant(&name, "/elsewhere".as_ref());
        let planted = machine.world.things()[&name].clone();
        let error = process.launcher.launch(plan).wait().await.unwrap_err();
        assert_eq!(error.step.to_string(), step);
        assert_eq!(error.error.kind(), ErrorKind::AlreadyExists);
        assert!(error.rollback.is_clean());
        process.lawful();
        assert_eq!(machine.world.leftovers(), [format!("thing {name}")]);
        assert_eq!(machine.world.things()[&name], planted);
        assert!(machine.store.all_attempts().is_empty());
    }
}

struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
}

#[tokio::test(start_paused = true)]
async fn f134_what_no_launch_armed_is_reported_and_never_touched() {
    let machine = Machine::new();
    let executor = MemoryExecutor::new(&machine.world, executor_name());
    let stranger = AttemptId::generate().unwrap().instance();
    let spec = InstanceSpec {
        install: machine.world.install().clone(),
        run: RunId::generate().unwrap(),
        session: SessionId::new("stranger").unwrap(),
        workspace: None,
        shared: Vec::new(),
        lease: Lease::Unlimited,
        limits: Limits::default(),
        options: serde_json::Map::new(),
    };
    executor.create(&stranger, &spec, &Silent).await.unwrap();
    machine
        .world
        .plant("workspace/elsewhere/tree", "/elsewhere".as_ref());
    let before = machine.world.leftovers();

    let failing = machine.process_with(failing_after_the_start());
    failing.launch().await.unwrap_err();
    let preparer = Arc::new(machine.workspace_preparer());
    let healthy = machine.process_of(FaultPlan::default(), vec![preparer]);
    let launched = healthy.launch().await.unwrap();
    healthy
        .launcher
        .close(&launched.record.run, REMOVE)
        .await
        .unwrap();
    let report = healthy.launcher.recover().await.unwrap();
    assert_eq!(report.strays, [format!("instance {stranger}")]);
    assert_eq!(machine.world.leftovers(), before);
}

#[test]
fn f065_what_cannot_be_told_is_not_taken_for_gone() {
    // A launch died, and its world cannot be looked at when the next process comes.
    let machine = Machine::new();
    let dying = runtime();
    let process = machine.process_with(FaultPlan::at("start.before", Action::Hang));
    dying.block_on(async {
        drop(process.ticket(request()).await);
        process.checkpoints.until_struck().await;
    });
    drop(dying);
    process.locks.die();
    runtime().block_on(async {
        let before = machine.world.leftovers();
        machine
            .world
            .set_unknown(Some("the machine does not answer"));
        let next = machine.process();
        let report = next.launcher.recover().await.unwrap();
        assert!(
            !report.is_clean() && report.rolled_back.is_empty(),
            "{report:?}"
        );
        assert!(!report.unknown.is_empty(), "it says what it could not list");
        assert_eq!(machine.world.leftovers(), before);
        assert_eq!(
            machine.store.armed_keys().len(),
            6,
            "everything is still owned"
        );
        machine.world.set_unknown(None);
        let report = next.launcher.recover().await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        machine.is_empty().await;
    });
}

#[tokio::test(start_paused = true)]
async fn f065_a_run_that_cannot_be_asked_stays_what_it_was() {
    let machine = Machine::new();
    let process = machine.process();
    let run = process.launch().await.unwrap().record.run;
    machine
        .world
        .set_unknown(Some("the machine does not answer"));
    let report = process.launcher.recover().await.unwrap();
    assert!(
        !report.is_clean() && report.settled.is_empty(),
        "{report:?}"
    );
    let view = process.launcher.observe(&run).await.unwrap();
    assert_eq!(view.record.state, RunState::Running);
    assert!(
        view.record.problem.is_some(),
        "it says that it could not be told"
    );
    machine.world.set_unknown(None);
    let report = process.launcher.recover().await.unwrap();
    assert!(report.is_clean() && report.settled.is_empty(), "{report:?}");
    assert_eq!(machine.record(&run).await.state, RunState::Running);
}
