//! A resumed run: whatever goes wrong in going on, it is what it was before, with its workspace and its token.

use groundcrew_core::{
    error::ErrorKind,
    store::{RunRecord, RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{Action, FaultPlan};

use crate::support::{Machine, Process, agent, resume, runtime};

/// Brings a run up, lets its agent make something, stops it, and gives it the token of a conversation.
pub(crate) async fn stopped(machine: &Machine, process: &Process) -> RunRecord {
    let request = agent(&["write", "notes.txt", "sleep-until-signal"]);
    let launched = process.ticket(request).await.wait().await.unwrap();
    process
        .launcher
        .stop(&launched.record.run, None)
        .await
        .unwrap();
    let record = machine.record(&launched.record.run).await;
    assert_eq!(record.state, RunState::Stopped);
    assert!(machine.world.instances().is_empty());
    let token = Some("token-1".to_owned());
    machine
        .store
        .put(&RunRecord {
            resume_token: token,
            ..record
        })
        .await
        .unwrap()
}

/// Returns every checkpoint that a healthy resumption passes.
fn checkpoints() -> Vec<String> {
    runtime().block_on(async {
        let machine = Machine::new();
        let process = machine.process();
        let run = stopped(&machine, &process).await.run;
        let resuming = machine.process();
        resuming.ticket(resume(&run)).await.wait().await.unwrap();
        resuming.lawful();
        resuming.checkpoints.passed()
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_in_the_workspace_it_kept() {
    let machine = Machine::new();
    let process = machine.process();
    let before = stopped(&machine, &process).await;
    let things = machine.world.things();
    let launched = process
        .ticket(resume(&before.run))
        .await
        .wait()
        .await
        .unwrap();
    process.lawful();
    let record = launched.record;
    assert_eq!((record.run, record.state), (before.run, RunState::Running));
    assert_eq!(record.workspace, before.workspace);
    assert_eq!(record.resume_token, before.resume_token);
    assert_ne!(record.attempt, before.attempt);
    assert_eq!(machine.world.things(), things, "nothing was prepared again");
    assert_eq!(machine.world.instances()[0].id(), &record.instance);
}

/// Checks that a failed resumption left the run as it was.
async fn unchanged(machine: &Machine, before: &RunRecord, point: &str) {
    let after = machine.record(&before.run).await;
    assert_eq!(after.state, before.state, "{point}");
    let same = RunRecord {
        problem: None,
        revision: before.revision,
        ..after
    };
    assert_eq!(same, *before, "{point}");
    assert!(machine.world.instances().is_empty(), "{point}");
    let things = machine.world.things();
    assert_eq!(things.len(), 5, "{point}: {things:?}");
    assert_eq!(
        machine.store.armed_keys(),
        ["directory", "branch", "tree", "thing"],
        "{point}"
    );
    assert!(machine.locks.held().is_empty(), "{point}");
}

#[test]
fn k57_a_failed_resumption_leaves_record_token_and_workspace_as_they_were() {
    for point in checkpoints()
        .into_iter()
        .filter(|point| point != "commit.after")
    {
        for action in [Action::Error(ErrorKind::Protocol), Action::Panic] {
            runtime().block_on(async {
                let machine = Machine::new();
                let process = machine.process();
                let before = stopped(&machine, &process).await;
                let failing = machine.process_with(FaultPlan::at(&point, action));
                let ticket = failing.ticket(resume(&before.run)).await;
                let error = ticket.wait().await.unwrap_err();
                assert!(error.rollback.is_clean(), "{point}: {:?}", error.rollback);
                failing.rolled_back_once(ticket.attempt());
                unchanged(&machine, &before, &point).await;
            });
        }
    }
}

#[test]
fn f127_death_in_a_resumption_is_taken_back_to_what_was_before() {
    for point in checkpoints()
        .into_iter()
        .filter(|point| point != "commit.after")
    {
        let machine = Machine::new();
        let dying = runtime();
        let (before, process) = dying.block_on(async {
            let before = stopped(&machine, &machine.process()).await;
            let process = machine.process_with(FaultPlan::at(&point, Action::Hang));
            drop(process.ticket(resume(&before.run)).await);
            process.checkpoints.until_struck().await;
            (before, process)
        });
        drop(dying);
        process.locks.die();
        runtime().block_on(async {
            let report = machine.process().launcher.recover().await.unwrap();
            assert!(report.is_clean(), "{point}: {report:?}");
            unchanged(&machine, &before, &point).await;
        });
    }
}

#[test]
fn k57_a_commit_whose_answer_was_lost_costs_neither_token_nor_workspace() {
    runtime().block_on(async {
        let machine = Machine::new();
        let process = machine.process();
        let before = stopped(&machine, &process).await;
        let plan = FaultPlan::at("commit.after", Action::Error(ErrorKind::Protocol));
        let failing = machine.process_with(plan);
        let error = failing
            .ticket(resume(&before.run))
            .await
            .wait()
            .await
            .unwrap_err();
        assert!(error.rollback.is_clean(), "{:?}", error.rollback);
        let after = machine.record(&before.run).await;
        assert_eq!(after.resume_token, before.resume_token);
        assert_eq!(after.workspace, before.workspace);
        assert!(machine.world.instances().is_empty());
        assert_eq!(machine.world.things().len(), 5);
        let report = machine.process().launcher.recover().await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        let again = machine
            .process()
            .ticket(resume(&before.run))
            .await
            .wait()
            .await;
        again.expect("it can still be resumed");
    });
}

#[tokio::test(start_paused = true)]
async fn a_workspace_that_is_gone_or_replaced_is_not_resumed_in() {
    for planted in [false, true] {
        let machine = Machine::new();
        let process = machine.process();
        let before = stopped(&machine, &process).await;
        let tree = format!("workspace/{}/tree", before.run);
        machine.world.remove(&tree).unwrap();
        if planted {
            machine
                .world
                .plant(&tree, &before.workspace.as_ref().unwrap().path);
        }
        let error = process
            .launcher
            .plan(resume(&before.run))
            .await
            .unwrap_err();
        let expected = if planted {
            ErrorKind::InvalidInput
        } else {
            ErrorKind::NotFound
        };
        assert_eq!(error.kind(), expected);
        assert_eq!(machine.record(&before.run).await, before);
    }
}
