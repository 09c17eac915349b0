//! The laws of taking back: newest first, dependents wait, failures are tried again, ownership stays until success.

use std::time::Duration;

use groundcrew_core::{Outcome, error::ErrorKind, event::EventKind, store::RunState};
use groundcrew_testkit::faulty::{Action, FaultPlan, VerbFault};

use crate::support::{Machine, Process, request};

fn failing() -> FaultPlan {
    FaultPlan::at("commit.before", Action::Error(ErrorKind::Protocol))
}

fn undone(process: &Process) -> Vec<String> {
    let events = process.recorder.events();
    let undos = events.into_iter().filter_map(|event| match event.kind {
        EventKind::Undo(label, outcome) => Some((label, outcome)),
        _ => None,
    });
    undos
        .map(|(label, outcome)| {
            let label = label.split(' ').next().unwrap_or_default().to_owned();
            let outcome = outcome.to_string();
            format!("{label}: {}", outcome.split(':').next().unwrap_or_default())
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn newest_first_and_the_instance_before_all_it_may_use() {
    let machine = Machine::new();
    let process = machine.process_with(failing());
    process.launch().await.unwrap_err();
    assert_eq!(
        undone(&process),
        [
            "instance: removed",
            "gift: removed",
            "thing: removed",
            "tree: removed",
            "branch: removed",
            "directory: removed",
        ]
    );
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_undo_holds_only_what_depends_on_it() {
    let machine = Machine::new();
    let process = machine.process_with(failing());
    process
        .workspace
        .always("undo", VerbFault::Before(ErrorKind::PermissionDenied));
    let ticket = process.ticket(request()).await;
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(
        error.error.kind(),
        ErrorKind::Protocol,
        "the cause comes first"
    );
    assert!(!error.rollback.is_clean());
    assert_eq!(
        error.to_string(),
        "the launch failed at step commit; rollback is not complete"
    );
    assert_eq!(
        undone(&process),
        [
            "instance: removed",
            "gift: removed",
            "thing: removed",
            "tree: stuck",
            "branch: waits for tree",
            "directory: waits for tree",
        ]
    );
    process.lawful();
    let closings = process.recorder.closings(ticket.attempt());
    assert!(matches!(
        closings.as_slice(),
        [EventKind::RolledBack { clean: false }]
    ));

    // What is stuck stays owned, visible and retried, and the session with it.
    assert_eq!(machine.store.armed_keys(), ["directory", "branch", "tree"]);
    let record = machine.record(ticket.run()).await;
    assert_eq!(record.state, RunState::Stuck);
    assert_eq!(record.problem.unwrap().kind, ErrorKind::Protocol);
    let busy = process.launcher.plan(request()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::SessionBusy);
    let report = process.launcher.recover().await.unwrap();
    assert!(
        !report.is_clean() && report.rolled_back.is_empty(),
        "{report:?}"
    );
    assert!(report.stuck.iter().any(|(_, what, error)| {
        what == "tree of workspace" && error.kind == ErrorKind::PermissionDenied
    }));
    assert_eq!(machine.store.armed_keys(), ["directory", "branch", "tree"]);
    process.workspace.heal();
    let report = process.launcher.recover().await.unwrap();
    assert_eq!(report.rolled_back, [ticket.run().clone()]);
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn f005_an_instance_that_cannot_be_ended_holds_everything_it_may_use() {
    let machine = Machine::new();
    let process = machine.process_with(failing());
    let ticket = process.ticket(crate::support::agent(&["stuck"])).await;
    let error = ticket.wait().await.unwrap_err();
    assert!(matches!(error.rollback.outcomes[0].1, Outcome::Stuck(_)));
    let held = |outcome: &Outcome| matches!(outcome, Outcome::HeldByStuck(_));
    assert!(
        error.rollback.outcomes[1..]
            .iter()
            .all(|(_, outcome)| held(outcome))
    );
    assert_eq!(
        machine.world.leftovers().len(),
        6,
        "nothing was pulled from under it"
    );
    machine.world.instances()[0].thaw();
    let report = machine.process().launcher.recover().await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_is_tried_again_within_the_rollback() {
    let machine = Machine::new();
    let process = machine.process_with(failing());
    process
        .executor
        .times("delete", 3, VerbFault::Before(ErrorKind::Unavailable));
    process
        .things
        .times("undo", 3, VerbFault::After(ErrorKind::TimedOut));
    let error = process.launch().await.unwrap_err();
    assert!(error.rollback.is_clean(), "{:?}", error.rollback);
    assert_eq!(process.executor.calls("delete"), 4);
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn f139_an_undo_that_panics_is_stuck_and_nobody_else() {
    let machine = Machine::new();
    let process = machine.process_with(failing());
    process.things.once("undo", VerbFault::Panic);
    let error = process.launch().await.unwrap_err();
    let stuck: Vec<_> = error.rollback.stuck().collect();
    assert_eq!(stuck.len(), 1);
    assert_eq!(stuck[0].1.kind(), ErrorKind::Panicked);
    process.lawful();
    let report = process.launcher.recover().await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn f141_an_undo_that_never_returns_is_bounded_owned_and_shutdown_is_not_held_up() {
    let machine = Machine::new();
    let process = machine.process_with(failing());
    process.things.once("undo", VerbFault::Hang);
    let ticket = process.ticket(request()).await;
    let error = ticket.wait().await.unwrap_err();
    let stuck: Vec<_> = error.rollback.stuck().collect();
    assert_eq!(stuck.len(), 1);
    assert_eq!(stuck[0].1.kind(), ErrorKind::TimedOut);
    process.lawful();
    let hour = Duration::from_hours(1);
    tokio::time::timeout(hour, process.launcher.shutdown())
        .await
        .expect("shutdown ends");
    let report = machine.process().launcher.recover().await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn f141_a_caller_that_gives_up_does_not_end_the_rollback() {
    let machine = Machine::new();
    let process = machine.process_with(failing());
    process
        .things
        .once("undo", VerbFault::Late(Duration::from_secs(30)));
    let ticket = process.ticket(request()).await;
    let impatient = tokio::time::timeout(Duration::from_secs(1), ticket.wait()).await;
    assert!(impatient.is_err());
    drop(ticket);
    let closed = |kind: &EventKind| matches!(kind, EventKind::RolledBack { clean: true });
    process.recorder.until(closed).await;
    process.launcher.shutdown().await;
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_cancel_does_not_cancel_the_rollback() {
    let machine = Machine::new();
    let process = machine.process_with(FaultPlan::at("start.before", Action::Cancel));
    process
        .things
        .once("undo", VerbFault::Late(Duration::from_secs(30)));
    let ticket = process.ticket(request()).await;
    process
        .recorder
        .until(|kind| matches!(kind, EventKind::RollbackStarted(_)))
        .await;
    ticket.cancel();
    let error = ticket.wait().await.unwrap_err();
    assert!(error.rollback.is_clean(), "{:?}", error.rollback);
    machine.is_empty().await;
}
