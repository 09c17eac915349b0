//! Much at once: stale rows, what cannot be taken away, and how often it is tried.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use groundcrew_core::{
    Launcher, Parts, Policy, Registration, Registry,
    error::{ErrorKind, ErrorReport},
    id::{AttemptId, ExecutorName, RunId, SessionId},
    request::LaunchRequest,
    store::{Reservation, RunRecord, StateStore as _},
    undo::{Component, Due, UndoRecord},
};
use groundcrew_testkit::{
    faulty::{Action, FaultPlan, VerbFault},
    memory::MemoryExecutor,
};

use crate::support::{Machine, executor_name, request, runtime, size};

fn of_session(n: usize) -> LaunchRequest {
    LaunchRequest {
        session: Some(SessionId::new(format!("session-{n}")).unwrap()),
        ..request()
    }
}

/// Leaves so many launches behind whose process died; each has made its instance.
fn stale(machine: &Machine, rows: usize) {
    let dying = runtime();
    let process = machine.process();
    process.executor.always("connect", VerbFault::Hang);
    dying.block_on(async {
        drop(join_all((0..rows).map(|n| process.ticket(of_session(n)))).await);
        while process.executor.calls("connect") < u32::try_from(rows).unwrap() {
            tokio::task::yield_now().await;
        }
    });
    drop(dying);
    process.locks.die();
}

#[test]
fn g13_many_stale_rows_are_recovered_and_new_launches_do_not_wait_for_them() {
    let rows = size(1000, 2000);
    let machine = Machine::new();
    stale(&machine, rows);
    assert_eq!(machine.world.instances().len(), rows);
    runtime().block_on(async {
        let process = machine.process();
        let launcher = process.launcher.clone();
        let recovering = tokio::spawn(async move { launcher.recover().await });
        tokio::task::yield_now().await;
        let plan = process.plan(of_session(rows)).await;
        let fresh = process.launcher.launch(plan).wait().await.unwrap();
        assert!(
            !recovering.is_finished(),
            "a new launch is accepted while the old rows are still looked at"
        );
        let report = recovering.await.unwrap().unwrap();
        assert!(report.is_clean(), "{:?}", report.stuck);
        assert_eq!(report.rolled_back.len(), rows);
        assert_eq!(machine.world.instances().len(), 1);
        assert_eq!(machine.store.all_attempts().len(), 1);
        assert_eq!(machine.record(&fresh.record.run).await, fresh.record);
    });
}

/// Leaves so many instances behind that could not be taken away.
async fn undeletable(machine: &Machine, count: usize) {
    let process = machine.process();
    let record = process.launch().await.unwrap().record;
    process
        .launcher
        .close(&record.run, crate::keeping::REMOVE)
        .await
        .unwrap();
    let why = ErrorReport::from(&groundcrew_core::error::Error::new(
        ErrorKind::PermissionDenied,
        "the disk is immutable",
    ));
    for n in 0..count {
        let attempt = AttemptId::generate().unwrap();
        let record = RunRecord {
            run: RunId::new(format!("run-{n}")).unwrap(),
            session: SessionId::new(format!("stuck-{n}")).unwrap(),
            attempt,
            revision: 0,
            instance: attempt.instance(),
            state: groundcrew_core::store::RunState::Stuck,
            ..record.clone()
        };
        let undo = UndoRecord {
            key: "instance".to_owned(),
            attempt,
            component: Component::Executor(executor_name()),
            resource: attempt.instance().to_string(),
            label: format!("instance {attempt}"),
            due: Due::End,
            depends_on: Vec::new(),
            identity: None,
        };
        let reservation = Reservation {
            record,
            resumes: false,
            armed: vec![undo],
        };
        machine.store.reserve(reservation).await.unwrap();
        machine.store.rest(attempt).await.unwrap();
        machine
            .store
            .note_failure(attempt, "instance", &why)
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn f150_g25_what_cannot_be_taken_away_closes_its_class_and_no_other() {
    let count = size(1000, 10_000);
    let machine = Machine::new();
    undeletable(&machine, count).await;
    let mut registry = Registry::new();
    let other = ExecutorName::new("other").unwrap();
    for name in [executor_name(), other.clone()] {
        registry
            .register(Registration::new(
                Arc::new(MemoryExecutor::new(&machine.world, name)),
                vec![Arc::new(machine.workspace_preparer())],
            ))
            .unwrap();
    }
    let mut parts = Parts::new(
        machine.world.install().clone(),
        registry,
        Arc::new(machine.store.clone()),
        Arc::new(machine.locks.process()),
    );
    parts.secrets = Arc::new(crate::support::Secrets::default());
    parts.runtime_secrets = Arc::new(machine.world.runtime_secrets());
    parts.profiles = Arc::new(machine.profiles.clone());
    let launcher = Launcher::new(parts);
    let refused = launcher.plan(request()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Backpressure);
    let pending = count.to_string();
    assert_eq!(refused.problems[0].get("pending"), Some(pending.as_str()));
    let open = LaunchRequest {
        executor: other,
        ..request()
    };
    let plan = launcher.plan(open).await.unwrap();
    launcher.launch(plan).wait().await.unwrap();
    // It opens again by itself, once four fifths of the mark are left.
    let limit = Policy::default().high_water * 4 / 5;
    let rows = machine.store.all_attempts();
    let stuck: Vec<_> = rows
        .iter()
        .filter(|row| row.run.as_str().starts_with("run-"))
        .collect();
    for row in &stuck[limit + 1..] {
        machine.store.retire(row.attempt, "instance").await.unwrap();
    }
    let fresh = || LaunchRequest {
        session: None,
        ..request()
    };
    let still = launcher.plan(fresh()).await.unwrap_err();
    assert_eq!(still.kind(), ErrorKind::Backpressure);
    machine
        .store
        .retire(stuck[limit].attempt, "instance")
        .await
        .unwrap();
    launcher.plan(fresh()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g15_what_is_stuck_is_tried_for_ever_and_never_in_a_spin() {
    let machine = Machine::new();
    let process = machine.process_with(FaultPlan::at(
        "start.before",
        Action::Error(ErrorKind::Protocol),
    ));
    process
        .executor
        .always("delete", VerbFault::Before(ErrorKind::PermissionDenied));
    let error = process.launch().await.unwrap_err();
    assert!(!error.rollback.is_clean());
    // A timer that fires every 10 ms, for ten minutes.
    let before = process.executor.calls("delete");
    let mut by_minute = Vec::new();
    for _ in 0..10 {
        let calls = process.executor.calls("delete");
        for _ in 0..6000 {
            process.launcher.tend().await.unwrap();
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        by_minute.push(process.executor.calls("delete") - calls);
    }
    let tries = process.executor.calls("delete") - before;
    assert!((10..=60).contains(&tries), "{by_minute:?}");
    assert!(by_minute[0] >= *by_minute.last().unwrap(), "{by_minute:?}");
    // In the end it works, a minute after it can.
    process.executor.heal();
    tokio::time::advance(Duration::from_mins(1)).await;
    let report = process.launcher.tend().await.unwrap();
    assert!(
        report.is_clean() && !report.rolled_back.is_empty(),
        "{report:?}"
    );
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn g15_one_rollback_pauses_at_random_and_not_for_long() {
    let mut times = Vec::new();
    for _ in 0..12 {
        let machine = Machine::new();
        let process = machine.process_with(FaultPlan::at(
            "start.before",
            Action::Error(ErrorKind::Protocol),
        ));
        process
            .executor
            .times("delete", 3, VerbFault::Before(ErrorKind::Unavailable));
        let ticket = process.ticket(request()).await;
        let began = tokio::time::Instant::now();
        let error = ticket.wait().await.unwrap_err();
        assert!(error.rollback.is_clean(), "{:?}", error.rollback);
        assert_eq!(process.executor.calls("delete"), 4);
        times.push(began.elapsed());
    }
    assert!(
        times
            .iter()
            .all(|time| *time <= Duration::from_millis(700 + 10)),
        "{times:?}"
    );
    times.sort();
    times.dedup();
    assert!(times.len() > 3, "{times:?}");
}
