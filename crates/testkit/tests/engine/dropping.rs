//! A caller's future is dropped at every point where it waits; what was begun is brought to its end.

use groundcrew_core::store::RunState;
use groundcrew_testkit::polls::drop_after;

use crate::{
    keeping::REMOVE,
    support::{Machine, Process, agent, runtime},
};

/// Drops a verb at its first, second, … wait until it gets through; checks that the machine always converges.
fn at_every_wait<F: Future>(
    argv: &[&str],
    verb: impl Fn(Process, groundcrew_core::id::RunId) -> F,
) -> usize {
    for polls in 0..200 {
        let ended = runtime().block_on(async {
            let machine = Machine::new();
            let run = machine
                .process()
                .ticket(agent(argv))
                .await
                .wait()
                .await
                .unwrap()
                .record
                .run;
            let ended = drop_after(polls, verb(machine.process(), run.clone()))
                .await
                .is_some();
            let next = machine.process();
            let report = next.launcher.recover().await.unwrap();
            assert!(report.is_clean(), "{polls}: {report:?}");
            let state = machine.record(&run).await.state;
            let at_rest = matches!(
                state,
                RunState::Running
                    | RunState::Stopped
                    | RunState::Exited
                    | RunState::Interrupted
                    | RunState::Closed
            );
            assert!(at_rest, "{polls}: {state}");
            if state != RunState::Running {
                assert!(machine.world.instances().is_empty(), "{polls}: {state}");
            }
            next.launcher.close(&run, REMOVE).await.unwrap();
            assert_eq!(
                machine.record(&run).await.state,
                RunState::Closed,
                "{polls}"
            );
            let left = machine.world.leftovers();
            assert!(
                left.iter().all(|left| left.ends_with("/gift")),
                "{polls}: {left:?}"
            );
            assert!(machine.store.all_attempts().is_empty(), "{polls}");
            assert!(machine.locks.held().is_empty(), "{polls}");
            ended
        });
        if ended {
            return polls;
        }
    }
    panic!("the verb never ended");
}

#[test]
fn f138_a_stop_dropped_at_every_wait_converges() {
    let stop = |process: Process, run| async move { process.launcher.stop(&run, None).await };
    assert!(at_every_wait(&["sleep-until-signal"], stop) > 5);
}

#[test]
fn f138_a_close_dropped_at_every_wait_converges() {
    let close = |process: Process, run| async move { process.launcher.close(&run, REMOVE).await };
    assert!(at_every_wait(&["sleep-until-signal"], close) > 10);
}

#[test]
fn f138_a_settlement_dropped_at_every_wait_converges() {
    let settle = |process: Process, run| async move { process.launcher.settle(&run).await };
    assert!(at_every_wait(&["exit", "0"], settle) > 10);
}

#[test]
fn f138_a_recovery_dropped_at_every_wait_converges() {
    let recover = |process: Process, _| async move { process.launcher.recover().await };
    assert!(at_every_wait(&["exit", "0"], recover) > 10);
}
