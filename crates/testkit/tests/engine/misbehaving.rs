//! Every verb of every contract, with everything that a component can do to us, in the whole life of a run.
//!
//! The verbs are those that a healthy life calls, so a new one is in here from its first day.

use std::{collections::BTreeMap, time::Duration};

use groundcrew_core::{
    error::ErrorKind,
    instance::McpServer,
    request::{LaunchIntent, LaunchRequest, Mode},
    store::{RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{VerbFault, VerbFaults};

use crate::{
    keeping::REMOVE,
    support::{Machine, Process, request, runtime, size, whole},
};

/// A caller's own patience; what it leaves goes on, or is found by the recovery.
const PATIENCE: Duration = Duration::from_mins(45);

async fn patiently<T>(work: impl Future<Output = T>) -> Option<T> {
    // On the heap: those of a launcher are large.
    tokio::time::timeout(PATIENCE, Box::pin(work)).await.ok()
}

async fn launched(process: &Process, request: LaunchRequest) {
    let Some(Ok(plan)) = patiently(process.launcher.plan(request)).await else {
        return;
    };
    drop(patiently(process.launcher.launch(plan).wait()).await);
}

/// Everything that a launcher can do, in an order in which all of it happens when nothing goes wrong.
async fn life(machine: &Machine, process: &Process) {
    let launcher = &process.launcher;
    launched(process, whole()).await;
    let run = async || {
        let runs = machine.store.runs().await.unwrap();
        runs.into_iter().find(|record| record.state.is_live())
    };
    if let Some(record) = run().await {
        drop(patiently(launcher.observe(&record.run)).await);
        drop(patiently(launcher.settle(&record.run)).await);
        drop(patiently(launcher.stop(&record.run, None)).await);
        let resumed = LaunchRequest {
            intent: LaunchIntent::Resume(record.run.clone()),
            ..request()
        };
        launched(process, resumed).await;
        drop(patiently(launcher.close(&record.run, REMOVE)).await);
    }
    let workspace = LaunchRequest {
        mode: Mode::Workspace,
        ..request()
    };
    if let Some(Ok(up)) = patiently(launcher.ensure(workspace)).await {
        let promoted = LaunchRequest {
            intent: LaunchIntent::Resume(up.record.run.clone()),
            mcp_servers: vec![McpServer {
                name: "tools".to_owned(),
                definition: serde_json::Value::Null,
            }],
            ..request()
        };
        launched(process, promoted).await;
        drop(patiently(launcher.close(&up.record.run, REMOVE)).await);
    }
    drop(patiently(launcher.tend()).await);
    drop(patiently(launcher.recover()).await);
    drop(patiently(launcher.runs()).await);
}

fn parts(process: &Process) -> [(&'static str, &VerbFaults); 4] {
    [
        ("executor", &process.executor),
        ("workspace", &process.workspace),
        ("things", &process.things),
        ("store", &process.store),
    ]
}

/// Returns how often a healthy life calls each verb of each part.
fn verbs() -> Vec<(&'static str, String, u32)> {
    runtime().block_on(async {
        let machine = Machine::new();
        let process = machine.process();
        Box::pin(life(&machine, &process)).await;
        process.lawful();
        let mut verbs = Vec::new();
        for (part, faults) in parts(&process) {
            let calls = faults.all_calls();
            verbs.extend(calls.into_iter().map(|(verb, calls)| (part, verb, calls)));
        }
        verbs
    })
}

/// Checks, after everything was healed, that nothing is left that nobody knows of.
async fn converges(machine: &Machine, what: &str) {
    let next = machine.process();
    for _ in 0..2 {
        let report = next.launcher.recover().await.unwrap();
        assert!(report.is_clean(), "{what}: {report:?}");
    }
    for record in machine.store.runs().await.unwrap() {
        let at_rest = !matches!(
            record.state,
            RunState::Preparing | RunState::Closing | RunState::Stuck
        );
        assert!(at_rest, "{what}: {record:?}");
        if record.state.is_live() {
            let report = next.launcher.close(&record.run, REMOVE).await.unwrap();
            assert!(report.stuck.is_empty(), "{what}: {report:?}");
        }
    }
    let report = next.launcher.recover().await.unwrap();
    assert!(report.is_clean(), "{what}: {report:?}");
    assert!(machine.store.all_attempts().is_empty(), "{what}");
    assert!(
        machine.locks.held().is_empty(),
        "{what}: {:?}",
        machine.locks.held()
    );
    // What a liar said was gone carries our mark, and is named for people.
    for left in machine.world.leftovers() {
        let named = report
            .strays
            .iter()
            .any(|stray| left.split_whitespace().any(|word| stray.contains(word)));
        assert!(
            named || left.ends_with("/gift"),
            "{what}: {left} is left, {:?}",
            report.strays
        );
    }
}

fn one(part: &str, verb: &str, call: u32, fault: &VerbFault) {
    let what = format!("{part}.{verb} #{call} {fault:?}");
    let machine = Machine::new();
    let dying = runtime();
    let process = machine.process();
    let ended = dying.block_on(async {
        let faulty = parts(&process).into_iter().find(|(name, _)| *name == part);
        faulty.unwrap().1.after(verb, call, fault.clone());
        Box::pin(life(&machine, &process)).await;
        for (_, faults) in parts(&process) {
            faults.heal();
        }
        // What came late has come by now; what hangs ends with its process.
        tokio::time::sleep(Duration::from_mins(5)).await;
        patiently(process.launcher.shutdown()).await.is_some()
    });
    let broken = process.recorder.violations();
    assert!(broken.is_empty() || !ended, "{what}: {broken:?}");
    drop(dying);
    process.locks.die();
    runtime().block_on(converges(&machine, &what));
}

fn every(fault: &VerbFault, in_question: impl Fn(&str, &str) -> bool) {
    let all = size(2, u32::MAX);
    let mut struck = BTreeMap::new();
    for (part, verb, calls) in verbs() {
        if in_question(part, &verb) {
            for call in 0..calls.min(all) {
                one(part, &verb, call, fault);
            }
            *struck.entry(part).or_insert(0) += 1;
        }
    }
    assert!(struck.len() >= 3, "{struck:?}");
}

#[test]
fn f140_g05_the_verbs_of_a_life_are_those_of_the_contracts() {
    let names: Vec<_> = verbs()
        .into_iter()
        .map(|(part, verb, _)| format!("{part}.{verb}"))
        .collect();
    for wanted in [
        "executor.connect",
        "executor.create",
        "executor.delete",
        "executor.instance.processes",
        "executor.instance.put_archive",
        "executor.instance.set_environment",
        "executor.instance.set_lease",
        "executor.instance.set_mcp_servers",
        "executor.instance.shutdown",
        "executor.instance.signal",
        "executor.instance.start",
        "executor.instance.wait",
        "executor.list",
        "store.attempts",
        "store.attempts_of",
        "store.begin_unwind",
        "store.commit",
        "store.delete",
        "store.forget",
        "store.identify",
        "store.put",
        "store.reserve",
        "store.retire",
        "store.run",
        "store.run_of_session",
        "store.runs",
        "workspace.apply",
        "workspace.deliver",
        "workspace.list",
        "workspace.plan",
        "workspace.populate",
        "workspace.reopen",
        "workspace.undo",
    ] {
        // A few verbs are only called when something has gone wrong.
        let rare = [
            "executor.instance.signal",
            "executor.instance.put_archive",
            "store.delete",
            "executor.instance.wait",
        ];
        assert!(
            names.contains(&wanted.to_owned()) || rare.contains(&wanted),
            "{wanted}: {names:?}"
        );
    }
}

#[test]
fn f140_g05_an_error_of_every_verb_leaks_nothing() {
    every(&VerbFault::Before(ErrorKind::Protocol), |_, _| true);
    every(&VerbFault::Before(ErrorKind::Unavailable), |_, _| true);
}

#[test]
fn f140_g05_a_lost_answer_of_every_verb_leaks_nothing() {
    every(&VerbFault::After(ErrorKind::Protocol), |_, _| true);
}

#[test]
fn f139_g05_a_panic_of_every_verb_leaks_nothing() {
    // A plan is made in the caller's own future: a panic there is the caller's, and nothing has been made.
    let ours = |part: &str, verb: &str| {
        part == "store"
            || !matches!(verb, "plan" | "reopen" | "report" | "assess" | "list")
                && !matches!(
                    verb,
                    "connect" | "instance.processes" | "instance.shutdown" | "instance.set_lease"
                )
    };
    every(&VerbFault::Panic, ours);
    every(&VerbFault::PanicAfter, ours);
}

#[test]
fn f140_g05_a_verb_that_never_returns_leaks_nothing() {
    every(&VerbFault::Hang, |_, _| true);
    every(&VerbFault::HangAfter, |_, _| true);
}

#[test]
fn f140_g05_a_verb_that_lies_leaks_nothing_unnamed() {
    // A store that says it has written and has not is beyond help: its contract is what everything stands on.
    every(&VerbFault::Lie, |part, _| part != "store");
}

#[test]
fn f140_g05_a_verb_that_comes_late_leaks_nothing() {
    every(&VerbFault::Late(Duration::from_secs(100)), |_, _| true);
}
