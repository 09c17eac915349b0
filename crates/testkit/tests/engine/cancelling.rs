//! A launch is called off at every point where anything waits, by everything that calls launches off.

use std::time::Duration;

use groundcrew_core::{
    Ticket,
    error::ErrorKind,
    store::{RunState, StateStore as _},
};
use groundcrew_testkit::polls::drop_after;
use tokio::time::Instant;

use crate::{
    keeping::REMOVE,
    support::{Machine, Process, runtime, whole},
};

/// What calls a launch off; the first three only call off the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The caller drops its future and its ticket.
    Drop,
    /// The caller's own deadline passes.
    Timeout,
    /// The caller's task is aborted.
    Abort,
    /// The process is lost, with all of its tasks.
    Disconnect,
    /// The launcher is shut down.
    Shutdown,
    /// The launch is cancelled.
    Cancel,
}

async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// Lets a launch have so many turns, then calls it off; returns whether it had ended before.
async fn call_off(cause: Cause, turns_before: usize, process: &Process, ticket: Ticket) -> bool {
    let began = Instant::now();
    let wait = ticket.clone();
    match cause {
        Cause::Drop => return drop_after(turns_before, ticket.wait()).await.is_some(),
        Cause::Timeout => {
            let wait = tokio::time::timeout(Duration::from_secs(1), ticket.wait());
            return drop_after(turns_before, wait).await.is_some();
        }
        Cause::Abort => {
            let task = tokio::spawn(async move { wait.wait().await });
            turns(turns_before).await;
            task.abort();
            return task.await.is_ok();
        }
        Cause::Disconnect => {
            let task = tokio::spawn(async move { wait.wait().await });
            turns(turns_before).await;
            return task.is_finished();
        }
        Cause::Shutdown => {
            turns(turns_before).await;
            process.launcher.shutdown().await;
        }
        Cause::Cancel => {
            turns(turns_before).await;
            ticket.cancel();
        }
    }
    let result = ticket.wait().await;
    let took = began.elapsed();
    assert!(
        took <= Duration::from_secs(1),
        "{cause:?} after {turns_before} turns took {took:?}"
    );
    match result {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.error.kind(), ErrorKind::Cancelled);
            assert!(
                error.rollback.is_clean(),
                "{turns_before}: {:?}",
                error.rollback
            );
            false
        }
    }
}

/// Checks what is left: a run that is up, or nothing at all.
async fn whole_or_nothing(machine: &Machine, cause: Cause, what: &str) {
    let next = machine.process();
    let report = next.launcher.recover().await.unwrap();
    assert!(
        report.is_clean() && report.strays.is_empty(),
        "{what}: {report:?}"
    );
    let runs = machine.store.runs().await.unwrap();
    let Some(record) = runs.first() else {
        assert!(
            matches!(cause, Cause::Disconnect | Cause::Shutdown | Cause::Cancel),
            "{what}: a caller that left took the launch with it"
        );
        return machine.is_empty().await;
    };
    assert_eq!((runs.len(), record.state), (1, RunState::Running), "{what}");
    assert_eq!(machine.world.instances().len(), 1, "{what}");
    next.launcher.close(&record.run, REMOVE).await.unwrap();
    let left = machine.world.leftovers();
    assert!(
        left.iter().all(|left| left.ends_with("/gift")),
        "{what}: {left:?}"
    );
}

#[test]
fn f138_g04_a_launch_called_off_at_every_turn_is_whole_or_nothing() {
    for cause in [
        Cause::Drop,
        Cause::Timeout,
        Cause::Abort,
        Cause::Disconnect,
        Cause::Shutdown,
        Cause::Cancel,
    ] {
        let mut count = 0;
        loop {
            let what = format!("{cause:?} after {count} turns");
            let machine = Machine::new();
            let first = runtime();
            let process = machine.process();
            let ended = first.block_on(async {
                let ticket = process.ticket(whole()).await;
                let ended = call_off(cause, count, &process, ticket).await;
                if matches!(cause, Cause::Drop | Cause::Timeout | Cause::Abort) {
                    // Nobody waits any more; the launch comes to its end alone.
                    let launched =
                        |kind: &_| matches!(kind, groundcrew_core::event::EventKind::Launched);
                    process.recorder.until(launched).await;
                    process.lawful();
                }
                ended
            });
            drop(first);
            process.locks.die();
            runtime().block_on(whole_or_nothing(&machine, cause, &what));
            if ended {
                break;
            }
            count += 1;
            assert!(count < 1000, "{what}: it never ended");
        }
        assert!(count > 30, "{cause:?}: only {count} turns");
    }
}
