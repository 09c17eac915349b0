//! Recovery: as often as one likes, by as many as like, and never on what somebody works on.

use groundcrew_core::{
    CloseOutcome,
    error::ErrorKind,
    process::Signal,
    store::{RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{Action, FaultPlan, Gate, VerbFault};

use crate::{
    keeping::REMOVE,
    support::{Machine, agent, request, runtime},
};

fn dead_at(machine: &Machine, point: &str) {
    let dying = runtime();
    let process = machine.process_with(FaultPlan::at(point, Action::Hang));
    dying.block_on(async {
        drop(process.ticket(request()).await);
        process.checkpoints.until_struck().await;
    });
    drop(dying);
    process.locks.die();
}

#[test]
fn f128_recovering_twice_changes_nothing_the_second_time() {
    let machine = Machine::new();
    dead_at(&machine, "start.after");
    runtime().block_on(async {
        let process = machine.process();
        let first = process.launcher.recover().await.unwrap();
        assert_eq!(first.rolled_back.len(), 1);
        let calls = machine.world.calls();
        let second = process.launcher.recover().await.unwrap();
        assert!(second.is_clean() && second.rolled_back.is_empty() && second.settled.is_empty());
        assert_eq!(machine.world.calls(), calls);
        machine.is_empty().await;
    });
}

#[test]
fn f129_two_processes_that_recover_at_once_undo_everything_once() {
    for point in [
        "prepare:workspace.tree-made",
        "create.after",
        "start.after",
        "commit.before",
    ] {
        let machine = Machine::new();
        dead_at(&machine, point);
        runtime().block_on(async {
            let (one, two) = (machine.process(), machine.process());
            let (first, second) = tokio::join!(one.launcher.recover(), two.launcher.recover());
            let (first, second) = (first.unwrap(), second.unwrap());
            assert!(
                first.stuck.is_empty() && second.stuck.is_empty(),
                "{first:?} {second:?}"
            );
            assert_eq!(first.rolled_back.len() + second.rolled_back.len(), 1);
            assert_eq!(machine.world.count("delete"), 1);
            machine.is_empty().await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn f129_a_launch_under_way_is_left_alone() {
    for verb in ["create", "connect", "instance.start"] {
        let machine = Machine::new();
        let (working, recovering) = (machine.process(), machine.process());
        let gate = Gate::new();
        working.executor.once(verb, VerbFault::Hold(gate.clone()));
        let ticket = working.ticket(request()).await;
        gate.until_reached().await;
        let before = machine.left().await;
        let report = recovering.launcher.recover().await.unwrap();
        assert_eq!(report.busy, [ticket.run().clone()], "{verb}");
        assert!(
            report.is_clean() && report.strays.is_empty(),
            "{verb}: {report:?}"
        );
        assert_eq!(machine.left().await, before, "{verb}");
        gate.open();
        let run = ticket.wait().await.unwrap().record.run;
        working.launcher.close(&run, REMOVE).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn f129_a_rollback_under_way_is_left_alone() {
    let machine = Machine::new();
    let working = machine.process_with(FaultPlan::at(
        "start.before",
        Action::Error(ErrorKind::Protocol),
    ));
    let gate = Gate::new();
    working.things.once("undo", VerbFault::Hold(gate.clone()));
    let ticket = working.ticket(request()).await;
    gate.until_reached().await;
    let report = machine.process().launcher.recover().await.unwrap();
    assert_eq!(report.busy, [ticket.run().clone()]);
    gate.open();
    let error = ticket.wait().await.unwrap_err();
    assert!(error.rollback.is_clean());
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn f134_runs_that_ended_unseen_are_settled_by_how_they_ended() {
    enum End {
        Exit,
        Signal,
        Lease,
        Crash,
        Live,
    }
    for (end, state) in [
        (End::Exit, RunState::Exited),
        (End::Signal, RunState::Exited),
        (End::Lease, RunState::Interrupted),
        (End::Crash, RunState::Interrupted),
        (End::Live, RunState::Running),
    ] {
        let machine = Machine::new();
        let gone = machine.process();
        let argv: &[&str] = match end {
            End::Exit => &["write", "notes.txt"],
            _ => &["write", "notes.txt", "sleep-until-signal"],
        };
        let record = gone.ticket(agent(argv)).await.wait().await.unwrap().record;
        let instance = machine.world.instance(&record.instance).unwrap();
        match end {
            End::Exit | End::Live => {}
            End::Signal => {
                let reached = gone.launcher.instance(&record).await.unwrap();
                let agent = groundcrew_core::agent_process().unwrap();
                reached.signal(&agent, Signal::TERM).await.unwrap();
            }
            End::Lease => instance.lapse(),
            End::Crash => instance.crash(),
        }
        gone.locks.die();
        let next = machine.process();
        let report = next.launcher.recover().await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(machine.record(&record.run).await.state, state);
        let live = state == RunState::Running;
        assert_eq!(machine.world.instances().len(), usize::from(live));
        assert!(
            machine
                .world
                .things()
                .keys()
                .any(|name| name.contains("/tree")),
            "the work stays"
        );
        let again = next.launcher.recover().await.unwrap();
        assert!(again.settled.is_empty(), "{again:?}");
    }
}

#[test]
fn f129_work_that_a_dying_controller_did_not_deliver_is_delivered_by_recovery() {
    let machine = Machine::new();
    let dying = runtime();
    let gone = machine.process();
    let gate = Gate::new();
    let run = dying.block_on(async {
        let ticket = gone.ticket(agent(&["write", "notes.txt"])).await;
        let run = ticket.wait().await.unwrap().record.run;
        gone.workspace
            .once("deliver", VerbFault::Hold(gate.clone()));
        let launcher = gone.launcher.clone();
        let settled = run.clone();
        tokio::spawn(async move { launcher.settle(&settled).await });
        gate.until_reached().await;
        run
    });
    drop(dying);
    gone.locks.die();
    let delivered = || machine.world.count("workspace.deliver");
    assert_eq!(delivered(), 0);
    runtime().block_on(async {
        let next = machine.process();
        assert!(next.launcher.recover().await.unwrap().is_clean());
        let once = delivered();
        assert!(once > 0);
        assert_eq!(machine.record(&run).await.state, RunState::Exited);
        let again = next.launcher.recover().await.unwrap();
        assert!(again.is_clean() && again.settled.is_empty(), "{again:?}");
        assert_eq!(delivered(), once);
    });
}

#[tokio::test(start_paused = true)]
async fn f140_work_that_cannot_be_delivered_is_told_and_delivered_at_the_next_end() {
    let machine = Machine::new();
    let process = machine.process();
    let ticket = process.ticket(agent(&["write", "notes.txt"])).await;
    let run = ticket.wait().await.unwrap().record.run;
    let fault = VerbFault::Before(ErrorKind::PermissionDenied);
    process.things.once("deliver", fault);
    let settled = process.launcher.settle(&run).await.unwrap().record;
    assert_eq!(settled.state, RunState::Exited);
    let kept = &settled.kept;
    assert!(
        kept.len() == 1 && kept[0].what == "unreadable",
        "{settled:?}"
    );
    assert_eq!(machine.record(&run).await.kept, *kept);
    let mut again = agent(&["exit", "0"]);
    again.intent = groundcrew_core::request::LaunchIntent::Resume(run.clone());
    process.ticket(again).await.wait().await.unwrap();
    let settled = process.launcher.settle(&run).await.unwrap().record;
    assert!(settled.kept.is_empty(), "{settled:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_in_which_nothing_was_changed_closes_itself_unless_it_is_kept() {
    for keep in [false, true] {
        let machine = Machine::new();
        let process = machine.process();
        let mut request = agent(&["exit", "0"]);
        request.keep = keep;
        let run = process
            .ticket(request)
            .await
            .wait()
            .await
            .unwrap()
            .record
            .run;
        let settled = process.launcher.settle(&run).await.unwrap();
        assert_eq!(settled.closed, !keep);
        let expected = if keep {
            RunState::Exited
        } else {
            RunState::Closed
        };
        assert_eq!(machine.record(&run).await.state, expected);
        let trees = machine
            .world
            .things()
            .keys()
            .filter(|name| name.contains("workspace"))
            .count();
        assert_eq!(trees, if keep { 3 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_that_could_not_end_is_brought_to_its_end() {
    let machine = Machine::new();
    let process = machine.process();
    let run = process.launch().await.unwrap().record.run;
    process
        .workspace
        .always("undo", VerbFault::Before(ErrorKind::PermissionDenied));
    let report = process.launcher.close(&run, REMOVE).await.unwrap();
    assert_eq!(report.outcome, CloseOutcome::Stuck);
    assert_eq!(machine.record(&run).await.state, RunState::Stuck);
    let report = process.launcher.recover().await.unwrap();
    assert!(!report.is_clean());
    process.workspace.heal();
    let report = process.launcher.recover().await.unwrap();
    assert_eq!(report.closed, std::slice::from_ref(&run), "{report:?}");
    assert_eq!(machine.record(&run).await.state, RunState::Closed);
    let left = machine.world.leftovers();
    assert!(left.iter().all(|left| left.ends_with("/gift")), "{left:?}");
    assert!(machine.store.attempts().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_run_that_cannot_be_recovered_does_not_keep_the_others() {
    let machine = Machine::new();
    let process = machine.process();
    let mut runs = Vec::new();
    for name in ["a", "b", "c"] {
        let mut request = agent(&["exit", "3"]);
        request.session = Some(groundcrew_core::id::SessionId::new(name).unwrap());
        runs.push(
            process
                .ticket(request)
                .await
                .wait()
                .await
                .unwrap()
                .record
                .run,
        );
    }
    process
        .executor
        .once("connect", VerbFault::Before(ErrorKind::PermissionDenied));
    let report = process.launcher.recover().await.unwrap();
    assert_eq!(
        (report.settled.len(), report.stuck.len()),
        (2, 1),
        "{report:?}"
    );
    let report = process.launcher.recover().await.unwrap();
    assert!(report.is_clean());
    for run in runs {
        assert_eq!(machine.record(&run).await.exit.unwrap().code, Some(3));
    }
}

#[test]
fn f128_tending_takes_back_what_died_and_asks_nobody_for_a_list() {
    for point in ["create.after", "start.after", "commit.before"] {
        let machine = Machine::new();
        dead_at(&machine, point);
        runtime().block_on(async {
            let process = machine.process();
            let report = process.launcher.tend().await.unwrap();
            assert_eq!(report.rolled_back.len(), 1, "{point}");
            machine.is_empty().await;
            // A run that is up is nobody's leftover.
            let record = process.launch().await.unwrap().record;
            let calls = machine.world.calls();
            assert!(process.launcher.tend().await.unwrap().is_clean());
            assert_eq!(machine.world.calls(), calls);
            assert_eq!(machine.record(&record.run).await.state, RunState::Running);
        });
    }
}

#[test]
fn k57_what_cannot_be_taken_away_is_owned_refuses_more_and_is_tried_again() {
    runtime().block_on(async {
        let machine = Machine::new();
        let session = |n: usize| groundcrew_core::id::SessionId::new(format!("s{n}")).unwrap();
        let asked = |n: usize| groundcrew_core::request::LaunchRequest {
            session: Some(session(n)),
            ..request()
        };
        let mut made = 0;
        let refused = loop {
            let failing = FaultPlan::at("commit.before", Action::Error(ErrorKind::Protocol));
            let process = machine.process_with(failing);
            process
                .executor
                .always("delete", VerbFault::Before(ErrorKind::PermissionDenied));
            match process.launcher.plan(asked(made)).await {
                Ok(plan) => {
                    let error = process.launcher.launch(plan).wait().await.unwrap_err();
                    assert!(!error.rollback.is_clean());
                    made += 1;
                    assert!(made <= 64, "nothing refuses");
                }
                Err(error) => break error,
            }
        };
        assert_eq!(made, 64);
        let error = &refused.problems[0];
        assert_eq!(error.kind(), ErrorKind::Backpressure);
        assert_eq!(error.get("pending"), Some("64"));
        // The way is free again: what was owned goes, and launches come up.
        let process = machine.process();
        let report = process.launcher.tend().await.unwrap();
        assert_eq!(report.rolled_back.len(), 64, "{report:?}");
        process.launch().await.unwrap();
    });
}
