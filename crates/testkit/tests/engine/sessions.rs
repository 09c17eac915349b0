//! One run for a session, whoever asks and however often; tickets, cancels and shutdown.

use std::time::Duration;

use futures_util::future::join_all;
use groundcrew_core::{
    Ticket,
    error::ErrorKind,
    event::{EventKind, Step},
    id::SessionId,
    request::LaunchRequest,
    store::{RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{Action, FaultPlan, Gate, VerbFault};

use crate::support::{Machine, request};

#[tokio::test(start_paused = true)]
async fn f151_of_64_launches_of_one_session_one_wins() {
    for processes in [1, 64] {
        let machine = Machine::new();
        let all: Vec<_> = (0..processes).map(|_| machine.process()).collect();
        let askers: Vec<_> = all.iter().cycle().take(64).collect();
        // All are planned before one is launched: only the launches themselves find out.
        let plans = join_all(askers.iter().map(|process| process.plan(request()))).await;
        let launches = askers.iter().zip(plans);
        let tickets: Vec<_> = launches
            .map(|(process, plan)| process.launcher.launch(plan))
            .collect();
        let results = join_all(tickets.iter().map(Ticket::wait)).await;
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 63));
        let winner = won[0].as_ref().unwrap().record.run.clone();
        for error in lost.into_iter().filter_map(Result::err) {
            assert_eq!(
                (&error.step, error.error.kind()),
                (&Step::Reserve, ErrorKind::SessionBusy)
            );
            assert_eq!(error.error.get("run"), Some(winner.as_str()));
            assert!(error.rollback.is_clean() && error.rollback.outcomes.is_empty());
        }
        assert_eq!(machine.store.runs().await.unwrap().len(), 1);
        assert_eq!(machine.world.instances().len(), 1);
        assert_eq!(machine.world.count("create"), 1, "a loser makes nothing");
        assert!(machine.locks.held().is_empty());
        for process in &all {
            process.lawful();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f149_64_launches_of_64_sessions_all_succeed() {
    let machine = Machine::new();
    let process = machine.process();
    let tickets = join_all((0..64).map(|n| {
        let session = SessionId::new(format!("session-{n}")).unwrap();
        process.ticket(LaunchRequest {
            session: Some(session),
            ..request()
        })
    }))
    .await;
    let results = join_all(tickets.iter().map(Ticket::wait)).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(machine.world.instances().len(), 64);
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn f138_a_launch_goes_on_without_its_ticket() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let ticket = process.ticket(request()).await;
    let run = ticket.run().clone();
    gate.until_reached().await;
    drop(ticket);
    gate.open();
    process
        .recorder
        .until(|kind| matches!(kind, EventKind::Launched))
        .await;
    process.lawful();
    assert_eq!(machine.record(&run).await.state, RunState::Running);
}

#[tokio::test(start_paused = true)]
async fn k49_k50_one_caller_s_deadline_cancels_nobody_else() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let ticket = process.ticket(request()).await;
    let patient = tokio::spawn({
        let ticket = ticket.clone();
        async move { ticket.wait().await }
    });
    gate.until_reached().await;
    let late = tokio::time::timeout(Duration::from_millis(250), ticket.wait()).await;
    assert!(late.is_err(), "the deadline of this caller passed");
    assert!(!patient.is_finished());
    gate.open();
    patient.await.unwrap().expect("the other one gets the run");
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_waits_for_its_session_can_be_cancelled() {
    let machine = Machine::new();
    let (first, second) = (machine.process(), machine.process());
    let gate = Gate::new();
    first.executor.once("create", VerbFault::Hold(gate.clone()));
    let plan = second.plan(request()).await;
    let leading = first.ticket(request()).await;
    gate.until_reached().await;
    let waiting = second.launcher.launch(plan);
    let patience = tokio::time::timeout(Duration::from_mins(1), waiting.wait()).await;
    assert!(patience.is_err(), "it waits for the session");
    let busy = second.launcher.plan(request()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::SessionBusy, "a plan tells at once");
    waiting.cancel();
    let error = waiting.wait().await.unwrap_err();
    assert_eq!(
        (&error.step, error.error.kind()),
        (&Step::Reserve, ErrorKind::Cancelled)
    );
    second.rolled_back_once(waiting.attempt());
    gate.open();
    leading
        .wait()
        .await
        .expect("the one that had the session is not disturbed");
}

#[tokio::test(start_paused = true)]
async fn shutdown_cancels_rolls_back_waits_and_admits_nothing_more() {
    let machine = Machine::new();
    let process = machine.process_with(FaultPlan::at("start.before", Action::Hang));
    process
        .things
        .once("undo", VerbFault::Late(Duration::from_secs(20)));
    let plan = process
        .plan(LaunchRequest {
            session: None,
            ..request()
        })
        .await;
    let ticket = process.ticket(request()).await;
    process.checkpoints.until_struck().await;
    process.launcher.shutdown().await;
    machine.is_empty().await;
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::Cancelled);
    let refused = process.launcher.launch(plan).wait().await.unwrap_err();
    assert_eq!(
        (&refused.step, refused.error.kind()),
        (&Step::Reserve, ErrorKind::Cancelled)
    );
    machine.is_empty().await;
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn f152_stopping_and_closing_at_once_and_again_come_to_the_same() {
    let machine = Machine::new();
    let process = machine.process();
    let run = process.launch().await.unwrap().record.run;
    let stops = join_all((0..3).map(|_| process.launcher.stop(&run, None))).await;
    for view in stops {
        assert_eq!(view.unwrap().record.state, RunState::Stopped);
    }
    let closes =
        join_all((0..3).map(|_| process.launcher.close(&run, crate::keeping::REMOVE))).await;
    for report in closes {
        assert_eq!(
            report.unwrap().outcome,
            groundcrew_core::CloseOutcome::Closed
        );
    }
    assert_eq!(machine.record(&run).await.state, RunState::Closed);
    assert!(machine.store.all_attempts().is_empty());
    process.launch().await.expect("the session is free again");
}
