//! The process dies at every checkpoint; another one takes back what it made.

use groundcrew_core::{
    error::Error,
    store::{RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{Action, FaultPlan, VerbFault};

use crate::{
    keeping::REMOVE,
    matrix::checkpoints,
    support::{Machine, runtime, whole},
};

/// Lets a launch get as far as a checkpoint, then kills its process: its tasks end in mid-air, its locks are free.
fn dies_at(machine: &Machine, point: &str) {
    let runtime = runtime();
    let process = machine.process_with(FaultPlan::at(point, Action::Hang));
    runtime.block_on(async {
        drop(process.ticket(whole()).await);
        process.checkpoints.until_struck().await;
    });
    drop(runtime);
    process.locks.die();
}

#[test]
fn f127_death_at_every_checkpoint_is_taken_back_by_the_next_process() {
    for point in checkpoints() {
        let machine = Machine::new();
        dies_at(&machine, &point);
        runtime().block_on(async {
            let next = machine.process();
            let report = next.launcher.recover().await.unwrap();
            assert!(
                report.is_clean() && report.busy.is_empty(),
                "{point}: {report:?}"
            );
            if point == "commit.after" {
                // It was committed: the run lives on without its controller.
                let runs = machine.store.runs().await.unwrap();
                assert_eq!(runs[0].state, RunState::Running);
                next.launcher.close(&runs[0].run, REMOVE).await.unwrap();
                let left = machine.world.leftovers();
                assert!(left.iter().all(|l| l.ends_with("/gift")), "{left:?}");
                return;
            }
            machine.is_empty().await;
            let again = next.launcher.recover().await.unwrap();
            assert!(
                again.is_clean() && again.rolled_back.is_empty(),
                "{point}: {again:?}"
            );
        });
    }
}

#[test]
fn f127_between_death_and_recovery_the_truth_is_told_and_nothing_is_written() {
    for point in checkpoints() {
        let machine = Machine::new();
        dies_at(&machine, &point);
        runtime().block_on(async {
            let before = machine.store.runs().await.unwrap();
            let views = machine.process().launcher.runs().await.unwrap();
            assert_eq!(machine.store.runs().await.unwrap(), before);
            for view in views {
                let expected = if point == "commit.after" {
                    RunState::Running
                } else {
                    RunState::Interrupted
                };
                assert_eq!(view.record.state, expected, "{point}");
            }
        });
    }
}

#[test]
fn f127_a_dead_launch_does_not_keep_its_session_for_ever() {
    for point in checkpoints()
        .into_iter()
        .filter(|point| point != "commit.after")
    {
        let machine = Machine::new();
        dies_at(&machine, &point);
        runtime().block_on(async {
            let next = machine.process();
            next.launcher.recover().await.unwrap();
            let launched = next.launch().await.expect(&point);
            next.lawful();
            next.launcher
                .close(&launched.record.run, REMOVE)
                .await
                .unwrap();
        });
    }
}

/// Where the recovering process dies: the n-th call of a verb, before or behind its effect.
#[test]
fn f128_death_during_recovery_at_every_undo_converges() {
    let verbs: [(&str, u32); 3] = [("delete", 1), ("undo", 5), ("forget", 1)];
    for point in ["start.after", "prepare:things.gift-made", "create.after"] {
        for (verb, calls) in verbs {
            for call in 0..calls {
                for fault in [VerbFault::Hang, VerbFault::HangAfter] {
                    let machine = Machine::new();
                    dies_at(&machine, point);
                    for _ in 0..2 {
                        dies_recovering(&machine, verb, call, &fault);
                    }
                    runtime().block_on(async {
                        let report = machine.process().launcher.recover().await.unwrap();
                        assert!(report.is_clean(), "{point} {verb} {call}: {report:?}");
                        machine.is_empty().await;
                    });
                }
            }
        }
    }
}

fn dies_recovering(machine: &Machine, verb: &str, call: u32, fault: &VerbFault) {
    let runtime = runtime();
    let process = machine.process();
    runtime.block_on(async {
        // Undos are shared out between two preparers; whichever is asked for the n-th time hangs.
        for faults in [
            &process.executor,
            &process.workspace,
            &process.things,
            &process.store,
        ] {
            faults.after(verb, call, fault.clone());
        }
        let struck = async {
            let all = [
                &process.executor,
                &process.workspace,
                &process.things,
                &process.store,
            ];
            while all.iter().all(|faults| faults.struck() == 0) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = struck => {}
            recovered = process.launcher.recover() => drop::<Result<_, Error>>(recovered),
        }
    });
    drop(runtime);
    process.locks.die();
}

#[test]
fn f127_a_launcher_that_is_aborted_without_a_runtime_ending_leaves_what_recovery_finds() {
    for point in checkpoints() {
        let machine = Machine::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let process = machine.process_with(FaultPlan::at(&point, Action::Hang));
        runtime.block_on(async {
            drop(process.ticket(whole()).await);
            process.checkpoints.until_struck().await;
        });
        runtime.shutdown_background();
        drop(process.launcher);
        process.locks.die();
        crate::support::runtime().block_on(async {
            let next = machine.process();
            next.launcher.recover().await.unwrap();
            for record in machine.store.runs().await.unwrap() {
                assert_eq!(
                    (point.as_str(), record.state),
                    ("commit.after", RunState::Running)
                );
            }
        });
    }
}
