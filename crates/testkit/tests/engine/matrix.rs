//! The fault matrix: every checkpoint of a launch, with every fault that a process survives.
//!
//! The checkpoints are those that a healthy launch passes, so a new step is in the matrix from its first day.

use groundcrew_core::{
    error::ErrorKind,
    event::{EventKind, Step},
};
use groundcrew_testkit::faulty::{Action, FaultPlan};

use crate::support::{Machine, Process, runtime, whole};

/// Returns every checkpoint that a healthy launch passes, in order.
pub(crate) fn checkpoints() -> Vec<String> {
    runtime().block_on(async {
        let machine = Machine::new();
        let process = machine.process();
        process.ticket(whole()).await.wait().await.unwrap();
        process.lawful();
        process.checkpoints.passed()
    })
}

/// The meta test: what a plan says, what a launch tells and where faults can strike are one list.
#[test]
fn f127_every_step_of_a_plan_is_told_and_has_checkpoints() {
    let (steps, told, passed) = runtime().block_on(async {
        let machine = Machine::new();
        let process = machine.process();
        let steps = process.plan(whole()).await.steps();
        process.ticket(whole()).await.wait().await.unwrap();
        let told: Vec<_> = process
            .recorder
            .events()
            .into_iter()
            .filter_map(|event| match event.kind {
                EventKind::StepStarted(step) => Some(step),
                _ => None,
            })
            .collect();
        (steps, told, process.checkpoints.passed())
    });
    assert_eq!(steps, told);
    let ends: Vec<_> = passed
        .iter()
        .filter(|point| matches!(point.rsplit('.').next(), Some("before" | "after")))
        .cloned()
        .collect();
    let expected: Vec<_> = steps
        .iter()
        .flat_map(|step| [format!("{step}.before"), format!("{step}.after")])
        .collect();
    assert_eq!(ends, expected);
    let inside: Vec<_> = passed
        .iter()
        .filter(|point| !ends.contains(point))
        .collect();
    assert_eq!(
        inside,
        [
            "prepare:workspace.directory-made",
            "prepare:workspace.branch-made",
            "prepare:workspace.tree-made",
            "prepare:things.thing-made",
            "prepare:things.gift-made",
            "setup.setup-1-started",
            "setup.setup-1-ended",
        ]
    );
}

fn step_of(point: &str) -> &str {
    point.rsplit_once('.').unwrap().0
}

/// Tells whether a checkpoint is before or behind all effects of its step.
fn is_edge(point: &str) -> bool {
    matches!(point.rsplit_once('.'), Some((_, "before" | "after")))
}

/// Returns the step behind the one that a checkpoint is in.
fn next_step(steps: &[Step], point: &str) -> Option<String> {
    let here = steps
        .iter()
        .position(|step| step.to_string() == step_of(point))
        .unwrap();
    steps.get(here + 1).map(Step::to_string)
}

async fn gone(machine: &Machine, process: &Process) {
    process.launcher.shutdown().await;
    machine.is_empty().await;
}

/// Fails a launch at every checkpoint and checks what it says and what it leaves.
fn every_checkpoint(action: &Action, kind: ErrorKind, hangs: bool) {
    for point in checkpoints() {
        runtime().block_on(async {
            let machine = Machine::new();
            let process = machine.process_with(FaultPlan::at(&point, action.clone()));
            let ticket = process.ticket(whole()).await;
            if hangs {
                process.checkpoints.until_struck().await;
                ticket.cancel();
            }
            let error = ticket.wait().await.expect_err(&point);
            assert_eq!(error.step.to_string(), step_of(&point));
            assert_eq!(error.error.kind(), kind, "{point}: {:?}", error.error);
            // What was broken off between two effects may go on for a while: it is owned until that is over.
            let at_work = *action == Action::Hang && !is_edge(&point);
            assert_eq!(
                error.rollback.is_clean(),
                !at_work,
                "{point}: {:?}",
                error.rollback
            );
            process.rolled_back(ticket.attempt(), !at_work);
            assert_eq!(process.checkpoints.struck(), 1);
            gone(&machine, &process).await;
        });
    }
}

#[test]
fn f127_an_error_at_every_checkpoint_leaves_nothing() {
    every_checkpoint(
        &Action::Error(ErrorKind::Protocol),
        ErrorKind::Protocol,
        false,
    );
}

#[test]
fn f139_a_panic_at_every_checkpoint_leaves_nothing() {
    every_checkpoint(&Action::Panic, ErrorKind::Panicked, false);
}

#[test]
fn f140_a_hang_at_every_checkpoint_is_cancelled_and_leaves_nothing() {
    every_checkpoint(&Action::Hang, ErrorKind::Cancelled, true);
}

#[test]
fn f140_a_hang_that_nobody_cancels_ends_with_the_time_of_the_step() {
    every_checkpoint(&Action::Hang, ErrorKind::TimedOut, false);
}

#[test]
fn f138_a_cancel_at_every_checkpoint_ends_before_the_next_step_and_leaves_nothing() {
    for point in checkpoints() {
        runtime().block_on(async {
            let machine = Machine::new();
            let process = machine.process_with(FaultPlan::at(&point, Action::Cancel));
            let steps = process.plan(whole()).await.steps();
            let ticket = process.ticket(whole()).await;
            match (ticket.wait().await, next_step(&steps, &point)) {
                (Err(error), next) => {
                    assert_eq!(error.error.kind(), ErrorKind::Cancelled, "{point}");
                    let step = error.step.to_string();
                    assert!(
                        step == step_of(&point) || Some(step) == next,
                        "{point}: {error}"
                    );
                    assert!(error.rollback.is_clean(), "{point}: {:?}", error.rollback);
                    process.rolled_back_once(ticket.attempt());
                }
                // What was committed before the cancellation could be heard is a run.
                (Ok(launched), None) => {
                    process.lawful();
                    let closed = process
                        .launcher
                        .close(&launched.record.run, crate::keeping::REMOVE)
                        .await;
                    assert!(closed.unwrap().stuck.is_empty());
                    let left = machine.left().await;
                    assert!(
                        left.iter()
                            .all(|l| l.ends_with(" closed") || l.contains("gift")),
                        "{left:?}"
                    );
                    return;
                }
                (Ok(_), Some(next)) => panic!("{point}: launched in spite of {next}"),
            }
            gone(&machine, &process).await;
        });
    }
}

#[test]
fn f139_two_faults_in_one_launch_leave_nothing() {
    // The second fault strikes in the rollback of the first: an undo that fails for a while.
    for point in checkpoints() {
        for verb in ["delete", "undo"] {
            runtime().block_on(async {
                let machine = Machine::new();
                let process =
                    machine.process_with(FaultPlan::at(&point, Action::Error(ErrorKind::Protocol)));
                let faults = if verb == "delete" {
                    &process.executor
                } else {
                    &process.workspace
                };
                faults.times(
                    verb,
                    2,
                    groundcrew_testkit::faulty::VerbFault::Before(ErrorKind::Unavailable),
                );
                let error = process.ticket(whole()).await.wait().await.unwrap_err();
                assert_eq!(
                    error.error.kind(),
                    ErrorKind::Protocol,
                    "the cause is never replaced"
                );
                assert!(error.rollback.is_clean(), "{point}: {:?}", error.rollback);
                gone(&machine, &process).await;
            });
        }
    }
}
