//! Task leases against the maintenance lease, in one process and between several.

use std::time::Duration;

use groundcrew_core::{ActivityKind, MaintenanceOptions, error::ErrorKind};
use groundcrew_testkit::faulty::{Gate, VerbFault};

use crate::{
    keeping::REMOVE,
    support::{Machine, request},
};

const NOW: MaintenanceOptions = MaintenanceOptions {
    quiet: Duration::ZERO,
    force: false,
};

const FORCED: MaintenanceOptions = MaintenanceOptions {
    quiet: Duration::ZERO,
    force: true,
};

#[tokio::test(start_paused = true)]
async fn k31_the_lease_of_a_run_that_started_an_agent_lasts_until_the_run_is_gone() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let ticket = process.ticket(request()).await;
    gate.until_reached().await;
    let report = process.launcher.activity();
    assert_eq!(
        report.tasks.get(&ActivityKind::Preparing),
        Some(&1),
        "{report:?}"
    );
    for asked in [&process, &machine.process()] {
        let busy = asked.launcher.maintain(NOW).await.unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
    }
    gate.open();
    let run = ticket.wait().await.unwrap().record.run;
    // No process holds anything for it any more, and still it is at work.
    assert!(machine.locks.held().is_empty());
    for asked in [&process, &machine.process()] {
        let busy = asked.launcher.maintain(NOW).await.unwrap_err();
        assert_eq!(
            (busy.kind(), busy.get("run")),
            (ErrorKind::Busy, Some(run.as_str()))
        );
    }
    process.launcher.close(&run, REMOVE).await.unwrap();
    let lease = machine.process().launcher.maintain(NOW).await.unwrap();
    drop(lease);
    process.launcher.maintain(NOW).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn k31_a_run_whose_agent_ended_unseen_is_not_at_work() {
    let machine = Machine::new();
    let process = machine.process();
    let request = crate::support::agent(&["exit", "0"]);
    process.ticket(request).await.wait().await.unwrap();
    process.launcher.maintain(NOW).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn k31_task_work_ends_a_maintenance_and_waits_for_its_end() {
    for (same, options) in [(true, NOW), (false, NOW), (true, FORCED), (false, FORCED)] {
        let machine = Machine::new();
        let process = machine.process();
        let other = machine.process();
        let worker = if same { &process } else { &other };
        let lease = process.launcher.maintain(options).await.unwrap();
        assert!(process.launcher.activity().maintenance && !lease.is_pre_empted());
        let ticket = worker.ticket(request()).await;
        lease.pre_empted().await;
        let early = tokio::time::timeout(Duration::from_secs(5), ticket.wait()).await;
        assert!(early.is_err(), "it waits until the maintenance has ended");
        assert_eq!(machine.world.count("create"), 0);
        drop(lease);
        ticket.wait().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn k31_one_maintenance_at_a_time_forced_or_not() {
    let machine = Machine::new();
    let (process, other) = (machine.process(), machine.process());
    for first in [NOW, FORCED] {
        let lease = process.launcher.maintain(first).await.unwrap();
        for asked in [&process, &other] {
            for options in [NOW, FORCED] {
                let busy = asked.launcher.maintain(options).await.unwrap_err();
                assert_eq!(busy.kind(), ErrorKind::Busy);
            }
        }
        drop(lease);
    }
    assert!(machine.locks.held().is_empty());
}

#[tokio::test(start_paused = true)]
async fn k31_force_goes_on_beside_task_work_that_is_there() {
    let machine = Machine::new();
    let process = machine.process();
    let lease = process
        .launcher
        .begin(ActivityKind::ShellCommand)
        .await
        .unwrap();
    assert_eq!(
        process
            .launcher
            .maintain(NOW)
            .await
            .unwrap_err()
            .get("at_work"),
        Some("shell command: 1")
    );
    assert_eq!(
        machine
            .process()
            .launcher
            .maintain(NOW)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Busy,
        "another process sees it as well"
    );
    let forced = process.launcher.maintain(FORCED).await.unwrap();
    assert!(!forced.is_pre_empted());
    // The next task ends it, as any other.
    let launcher = process.launcher.clone();
    let next = tokio::spawn(async move { launcher.begin(ActivityKind::ImageBuild).await });
    forced.pre_empted().await;
    drop(forced);
    drop(next.await.unwrap().unwrap());
    lease.become_kind(ActivityKind::TestCommand);
    let report = process.launcher.activity();
    assert_eq!(
        report.tasks.into_iter().collect::<Vec<_>>(),
        [(ActivityKind::TestCommand, 1)]
    );
    lease.release();
    lease.release();
    lease.become_kind(ActivityKind::Running);
    assert!(
        process.launcher.activity().tasks.is_empty(),
        "released stays released"
    );
    process.launcher.maintain(NOW).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn k31_the_quiet_period_begins_with_the_end_of_the_last_task() {
    let machine = Machine::new();
    let process = machine.process();
    let quiet = MaintenanceOptions {
        quiet: Duration::from_mins(1),
        force: false,
    };
    drop(process.launcher.maintain(quiet).await.unwrap());
    drop(
        process
            .launcher
            .begin(ActivityKind::ShellCommand)
            .await
            .unwrap(),
    );
    tokio::time::advance(Duration::from_secs(59)).await;
    let busy = process.launcher.maintain(quiet).await.unwrap_err();
    assert_eq!(busy.get("quiet_in_ms"), Some("1000"));
    tokio::time::advance(Duration::from_secs(1)).await;
    process.launcher.maintain(quiet).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn k31_a_process_that_dies_frees_what_it_held() {
    let machine = Machine::new();
    let (task, maintenance) = (machine.process(), machine.process());
    let lease = task
        .launcher
        .begin(ActivityKind::ShellCommand)
        .await
        .unwrap();
    assert!(maintenance.launcher.maintain(NOW).await.is_err());
    task.locks.die();
    let held = maintenance.launcher.maintain(NOW).await.unwrap();
    maintenance.locks.die();
    let next = machine.process();
    drop(
        next.launcher
            .begin(ActivityKind::ShellCommand)
            .await
            .unwrap(),
    );
    drop((lease, held));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_maintenance() {
    let machine = Machine::new();
    let process = machine.process();
    let lease = process.launcher.maintain(NOW).await.unwrap();
    process.launcher.shutdown().await;
    assert!(lease.is_pre_empted());
}
