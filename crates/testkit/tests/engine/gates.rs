//! The gates before and behind the registration, and what a launch that fails there does to the record.

use groundcrew_core::{
    LaunchError,
    error::{Chain, ErrorKind},
    event::Step,
    session_directory::SessionState,
    store::{RunRecord, RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{Gate, VerbFault};

use crate::{
    resuming::stopped,
    support::{Machine, Process, request, resume},
};

fn ended() -> SessionState {
    SessionState::Ended("CANCELLED".to_owned())
}

fn text(error: &LaunchError) -> String {
    Chain(&*error.error).to_string()
}

/// Checks that the instance was stopped exactly once and nothing is left.
async fn stopped_once(machine: &Machine, process: &Process) {
    assert_eq!(process.executor.calls("delete"), 1);
    process.lawful();
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn k51_a_launch_that_loses_the_race_to_register_is_stopped_once() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let ticket = process.ticket(request()).await;
    gate.until_reached().await;
    // Somebody else writes the row of the session meanwhile.
    let row = machine.record(ticket.run()).await;
    machine.store.put(&row).await.unwrap();
    gate.open();
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(
        (&error.step, error.error.kind()),
        (&Step::Register, ErrorKind::Conflict)
    );
    assert!(text(&error).contains("registration"), "{}", text(&error));
    stopped_once(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn k52_a_session_that_ends_during_create_registers_nothing() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let ticket = process.ticket(request()).await;
    gate.until_reached().await;
    process.directory.sessions([ended()]);
    gate.open();
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(
        (&error.step, error.error.kind()),
        (&Step::Admit, ErrorKind::SessionEnded)
    );
    assert!(text(&error).contains("CANCELLED") && text(&error).contains("session=session"));
    assert_eq!(process.store.calls("put"), 0, "it was never registered");
    stopped_once(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn k53_a_session_that_ends_during_registration_leaves_no_row() {
    let machine = Machine::new();
    let process = machine.process();
    // Two reads at each gate; the second one of the second gate sees the end.
    let alive = || SessionState::Alive;
    process
        .directory
        .sessions([alive(), alive(), alive(), ended()]);
    let error = process.launch().await.unwrap_err();
    assert_eq!(
        (&error.step, error.error.kind()),
        (&Step::AdmitAgain, ErrorKind::SessionEnded)
    );
    assert_eq!(process.directory.reads(), 4);
    assert_eq!(process.store.calls("put"), 1, "it was registered");
    assert_eq!(process.store.calls("delete"), 1, "its row goes once");
    assert_eq!(process.executor.calls("instance.start"), 0);
    stopped_once(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn k54_a_cleanup_during_registration_repairs_the_row_and_keeps_the_token() {
    let machine = Machine::new();
    let process = machine.process();
    let before = stopped(&machine, &process).await;
    process.directory.cleanups([false, true]);
    let error = process
        .ticket(resume(&before.run))
        .await
        .wait()
        .await
        .unwrap_err();
    assert_eq!(
        (&error.step, error.error.kind()),
        (&Step::AdmitAgain, ErrorKind::SessionEnded)
    );
    assert!(
        text(&error).contains("cleanup is active"),
        "{}",
        text(&error)
    );
    repaired(&machine, &before).await;
    assert_eq!(
        process.store.calls("delete"),
        0,
        "a row that was there is never deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn k55_a_row_that_cannot_be_written_stops_the_instance_and_is_not_deleted() {
    let machine = Machine::new();
    let process = machine.process();
    let before = stopped(&machine, &process).await;
    process
        .store
        .once("put", VerbFault::Before(ErrorKind::ResourceExhausted));
    let error = process
        .ticket(resume(&before.run))
        .await
        .wait()
        .await
        .unwrap_err();
    assert_eq!(
        (&error.step, error.error.kind()),
        (&Step::Register, ErrorKind::ResourceExhausted)
    );
    assert!(text(&error).contains("failed to persist the run's registration"));
    repaired(&machine, &before).await;
    assert_eq!(process.store.calls("delete"), 0);
    assert!(machine.world.instances().is_empty());
}

/// Checks that a record is what it was, but for what went wrong, and that its workspace and token are still there.
async fn repaired(machine: &Machine, before: &RunRecord) {
    let after = machine.record(&before.run).await;
    assert!(after.problem.is_some());
    assert_eq!(after.resume_token.as_deref(), Some("token-1"));
    let same = RunRecord {
        problem: None,
        revision: before.revision,
        ..after
    };
    assert_eq!(same, *before);
    assert_eq!(
        machine
            .world
            .things()
            .keys()
            .filter(|name| name.contains("/tree"))
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn k56_the_session_is_read_again_behind_the_question_for_cleanups() {
    let machine = Machine::new();
    let process = machine.process();
    process.directory.sessions([SessionState::Alive, ended()]);
    let error = process.launch().await.unwrap_err();
    // At the first gate: nothing was registered.
    assert_eq!(error.step, Step::Admit);
    assert_eq!(process.store.calls("put"), 0);
    assert_eq!(error.error.kind(), ErrorKind::SessionEnded);
    assert!(text(&error).contains("CANCELLED"));
    assert_eq!(process.directory.reads(), 2);
    stopped_once(&machine, &process).await;
}

#[tokio::test(start_paused = true)]
async fn k57_ownership_stays_until_the_stop_works_and_then_the_row_is_repaired() {
    for cleanup in [false, true] {
        let machine = Machine::new();
        let process = machine.process();
        let before = stopped(&machine, &process).await;
        let deletes = process.executor.calls("delete");
        if cleanup {
            process.directory.cleanups([true]);
        } else {
            process
                .store
                .once("put", VerbFault::Before(ErrorKind::ResourceExhausted));
        }
        let gate = Gate::new();
        process
            .executor
            .once("delete", VerbFault::Before(ErrorKind::Unavailable));
        process
            .executor
            .after("delete", 0, VerbFault::Hold(gate.clone()));
        let ticket = process.ticket(resume(&before.run)).await;
        gate.until_reached().await;
        let during = machine.record(&before.run).await;
        assert_eq!(
            during.state,
            RunState::Preparing,
            "neither deleted nor repaired yet"
        );
        assert_eq!(during.attempt, ticket.attempt());
        assert!(machine.store.armed_keys().contains(&"instance".to_owned()));
        gate.open();
        let error = ticket.wait().await.unwrap_err();
        assert!(error.rollback.is_clean(), "{:?}", error.rollback);
        assert_eq!(process.executor.calls("delete") - deletes, 2);
        repaired(&machine, &before).await;
        assert!(machine.world.instances().is_empty());
        process.lawful();
    }
}

#[tokio::test(start_paused = true)]
async fn k57_a_stop_that_never_works_keeps_the_token_for_the_recovery() {
    let machine = Machine::new();
    let process = machine.process();
    let before = stopped(&machine, &process).await;
    process.directory.cleanups([true]);
    process
        .executor
        .always("delete", VerbFault::Before(ErrorKind::Unavailable));
    let error = process
        .ticket(resume(&before.run))
        .await
        .wait()
        .await
        .unwrap_err();
    assert!(!error.rollback.is_clean());
    let stuck = machine.record(&before.run).await;
    assert_eq!(
        (stuck.state, stuck.resume_token.as_deref()),
        (RunState::Stuck, Some("token-1"))
    );
    process.executor.heal();
    let report = machine.process().launcher.recover().await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    let after = machine.record(&before.run).await;
    assert_eq!((after.state, after.attempt), (before.state, before.attempt));
    assert_eq!(after.resume_token, before.resume_token);
    assert_eq!(
        machine.world.leftovers().len(),
        5,
        "workspace, thing and gift stay"
    );
}
