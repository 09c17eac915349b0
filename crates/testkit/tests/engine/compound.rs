//! Laws of sagas at every step, and two faults at once, drawn at random; a seed that fails is in the message.

use std::time::Duration;

use groundcrew_core::{
    error::ErrorKind,
    store::{RunState, StateStore as _},
    undo::Undone,
};
use groundcrew_testkit::faulty::{Action, FaultPlan, VerbFault, VerbFaults};

use crate::{
    keeping::REMOVE,
    matrix::checkpoints,
    support::{Machine, Process, Random, runtime, size, whole},
};

/// Lets everything that is left be found and taken away, then checks that nothing is.
async fn clean_slate(machine: &Machine, what: &str) {
    let next = machine.process();
    let report = next.launcher.recover().await.unwrap();
    assert!(
        report.is_clean() && report.busy.is_empty(),
        "{what}: {report:?}"
    );
    for record in machine.store.runs().await.unwrap() {
        let owned_at_rest = !matches!(
            record.state,
            RunState::Preparing | RunState::Closing | RunState::Stuck | RunState::Failed
        );
        assert!(owned_at_rest, "{what}: {record:?}");
        let report = next.launcher.close(&record.run, REMOVE).await.unwrap();
        assert!(
            report.stuck.is_empty() && report.kept.is_empty(),
            "{what}: {report:?}"
        );
    }
    let left = machine.world.leftovers();
    assert!(
        left.iter().all(|left| left.ends_with("/gift")),
        "{what}: {left:?}"
    );
    assert!(machine.store.all_attempts().is_empty(), "{what}");
    assert!(machine.locks.held().is_empty(), "{what}");
    let strays = next.launcher.strays().await.unwrap();
    assert!(
        strays.iter().all(|stray| stray.contains("gift")),
        "{what}: {strays:?}"
    );
}

#[test]
fn f127_g06_failing_at_every_step_and_launching_again_is_as_if_nothing_had_been() {
    for point in checkpoints()
        .into_iter()
        .filter(|point| point != "commit.after")
    {
        runtime().block_on(async {
            let machine = Machine::new();
            let failing =
                machine.process_with(FaultPlan::at(&point, Action::Error(ErrorKind::Protocol)));
            let error = failing.ticket(whole()).await.wait().await.unwrap_err();
            assert!(error.rollback.is_clean(), "{point}");
            machine.is_empty().await;
            // The fault is used up: the same process does the same again.
            let launched = failing.ticket(whole()).await.wait().await.expect(&point);
            assert_eq!(launched.record.state, RunState::Running);
            clean_slate(&machine, &point).await;
        });
    }
}

#[test]
fn f127_g06_every_undo_may_be_done_twice_and_without_its_effect() {
    for point in checkpoints() {
        let machine = Machine::new();
        runtime().block_on(async {
            let process = machine.process_with(FaultPlan::at(&point, Action::Hang));
            drop(process.ticket(whole()).await);
            process.checkpoints.until_struck().await;
            // While it hangs: each record that is armed is undone by hand, twice.
            for row in machine.store.all_attempts() {
                for armed in row.armed.iter().rev() {
                    let preparers = [machine.workspace_preparer(), machine.things_preparer()];
                    for preparer in preparers {
                        let component = armed.record.component.to_string();
                        let name = groundcrew_core::preparer::Preparer::name(&preparer).to_string();
                        if component != format!("preparer {name}") {
                            continue;
                        }
                        let options = groundcrew_core::undo::UndoOptions {
                            occasion: groundcrew_core::undo::Occasion::Failure,
                            force: false,
                        };
                        let mut undone = Vec::new();
                        for _ in 0..2 {
                            let undo = groundcrew_core::preparer::Preparer::undo(
                                &preparer,
                                &armed.record,
                                options,
                            );
                            undone.push(undo.await.unwrap());
                        }
                        assert!(
                            matches!(undone[1], Undone::AlreadyGone),
                            "{point}: {undone:?}"
                        );
                    }
                }
            }
            process.locks.die();
        });
        runtime().block_on(clean_slate(&machine, &point));
    }
}

#[test]
fn f127_g06_an_undo_that_fails_for_good_is_owned_and_taken_back_by_recovery() {
    for point in checkpoints()
        .into_iter()
        .filter(|point| point != "commit.after")
    {
        for broken in ["delete", "undo"] {
            runtime().block_on(async {
                let machine = Machine::new();
                let process =
                    machine.process_with(FaultPlan::at(&point, Action::Error(ErrorKind::Protocol)));
                for faults in [&process.executor, &process.workspace, &process.things] {
                    faults.always(broken, VerbFault::Before(ErrorKind::PermissionDenied));
                }
                let error = process.ticket(whole()).await.wait().await.unwrap_err();
                assert_eq!(
                    error.error.kind(),
                    ErrorKind::Protocol,
                    "{point}: the cause is never replaced"
                );
                let nothing_was_armed = point == "reserve.before";
                assert_eq!(
                    error.rollback.is_clean(),
                    nothing_was_armed,
                    "{point} {broken}"
                );
                if !nothing_was_armed {
                    let owned = machine.store.all_attempts();
                    assert!(
                        !owned.is_empty(),
                        "{point} {broken}: what is stuck is owned"
                    );
                }
                clean_slate(&machine, &point).await;
            });
        }
    }
}

/// A fault in the rollback or in the recovery.
fn second(random: &mut Random, process: &Process) -> String {
    let parts: [(&VerbFaults, &[&str]); 4] = [
        (&process.executor, &["delete"]),
        (&process.workspace, &["undo"]),
        (&process.things, &["undo"]),
        (
            &process.store,
            &[
                "retire",
                "forget",
                "delete",
                "put",
                "attempts_of",
                "run",
                "note_failure",
                "rest",
            ],
        ),
    ];
    let (faults, verbs) = parts[random.below(parts.len())];
    let verb = verbs[random.below(verbs.len())];
    let fault = match random.below(7) {
        0 => VerbFault::Before(ErrorKind::Unavailable),
        1 => VerbFault::Before(ErrorKind::PermissionDenied),
        2 => VerbFault::After(ErrorKind::Protocol),
        3 => VerbFault::Panic,
        4 => VerbFault::PanicAfter,
        5 => VerbFault::HangAfter,
        _ => VerbFault::Late(Duration::from_secs(30)),
    };
    let what = format!("{verb} {fault:?}");
    faults.after(verb, u32::try_from(random.below(3)).unwrap(), fault);
    what
}

/// One launch with a fault in it and another in what follows; the process may die of either.
fn pair(seed: u64, points: &[String]) {
    let mut random = Random::new(seed);
    let point = &points[random.below(points.len())];
    let action = match random.below(5) {
        0 => Action::Error(ErrorKind::Protocol),
        1 => Action::Panic,
        2 => Action::Cancel,
        3 => Action::Delay(Duration::from_secs(random.below(900) as u64)),
        _ => Action::Hang,
    };
    let dies = random.below(3) == 0;
    let machine = Machine::new();
    let dying = runtime();
    let process = machine.process_with(FaultPlan::at(point, action.clone()));
    let other = second(&mut random, &process);
    let what = format!("seed {seed}: {point} {action:?}, then {other}, dies: {dies}");
    dying.block_on(async {
        let ticket = process.ticket(whole()).await;
        if dies {
            // The second fault may strike first, and end the launch.
            tokio::select! {
                () = process.checkpoints.until_struck() => {}
                _ = ticket.wait() => {}
            }
        } else {
            drop(tokio::time::timeout(Duration::from_mins(30), ticket.wait()).await);
            drop(tokio::time::timeout(Duration::from_mins(30), process.launcher.shutdown()).await);
        }
    });
    drop(dying);
    process.locks.die();
    // The recovery meets a fault as well, and dies of it.
    let recovering = runtime();
    let next = machine.process();
    let third = second(&mut random, &next);
    recovering.block_on(async {
        drop(tokio::time::timeout(Duration::from_mins(30), next.launcher.recover()).await);
    });
    drop(recovering);
    next.locks.die();
    runtime().block_on(clean_slate(&machine, &format!("{what}, then {third}")));
}

#[test]
#[expect(clippy::print_stdout, reason = "what was drawn is worth knowing")]
fn f139_g07_pairs_of_faults_drawn_at_random_leave_nothing() {
    let points = checkpoints();
    let base = Random::base();
    let pairs = size(300, 3000);
    println!("{pairs} pairs, seeds from {base}");
    for seed in base..base + pairs {
        pair(seed, &points);
    }
}
