//! Runs that are gone on with while something of their workspace is gone.

use std::sync::Arc;

use groundcrew_core::{
    CloseOutcome,
    error::ErrorKind,
    request::{LaunchIntent, LaunchRequest, Mode},
};
use groundcrew_testkit::faulty::FaultPlan;

use crate::{
    keeping::REMOVE,
    support::{Machine, Process, request},
};

/// A process whose preparer finds something gone of every workspace.
fn losing(machine: &Machine) -> Process {
    machine.process_of(
        FaultPlan::default(),
        vec![
            Arc::new(machine.workspace_preparer().losing()),
            Arc::new(machine.things_preparer()),
        ],
    )
}

fn made_again(machine: &Machine) -> Vec<String> {
    let mut calls = machine.world.calls();
    calls.retain(|call| call.starts_with("workspace.ensure"));
    calls
}

#[tokio::test(start_paused = true)]
async fn c15_w09_what_is_gone_of_a_resumed_run_is_made_again_under_its_own_records() {
    let machine = Machine::new();
    let process = machine.process();
    let first = process.ticket(request()).await.wait().await.unwrap().record;
    process.launcher.stop(&first.run, None).await.unwrap();
    assert_eq!(made_again(&machine), [""; 0]);
    let process = losing(&machine);
    let resumption = LaunchRequest {
        intent: LaunchIntent::Resume(first.run.clone()),
        ..request()
    };
    let again = process
        .ticket(resumption)
        .await
        .wait()
        .await
        .unwrap()
        .record;
    assert_eq!(
        (&again.run, &again.workspace),
        (&first.run, &first.workspace)
    );
    assert_eq!(
        made_again(&machine),
        ["directory", "branch", "tree"].map(|key| format!("workspace.ensure {key}"))
    );
    assert_eq!(machine.world.count("workspace.apply"), 1);
    process.launcher.stop(&first.run, None).await.unwrap();
    let report = process.launcher.close(&first.run, REMOVE).await.unwrap();
    assert_eq!(report.outcome, CloseOutcome::Closed);
    assert!(machine.store.all_attempts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn c15_nothing_is_made_again_beneath_an_instance_that_is_up() {
    let machine = Machine::new();
    let workspace = LaunchRequest {
        mode: Mode::Workspace,
        ..request()
    };
    let up = machine.process().launcher.ensure(workspace).await.unwrap();
    let promotion = LaunchRequest {
        intent: LaunchIntent::Resume(up.record.run.clone()),
        ..request()
    };
    let error = losing(&machine).launcher.plan(promotion).await.unwrap_err();
    let problem = &error.problems[0];
    assert_eq!(problem.kind(), ErrorKind::NotFound, "{problem:?}");
    assert_eq!(problem.get("run"), Some(up.record.run.as_str()));
    assert!(problem.get("path").is_some());
    assert_eq!(made_again(&machine), [""; 0]);
}
