//! Random operations on few sessions by several processes that die, checked against a model: one story for each session.
//!
//! The model knows only what callers were told and what the laws are; it never looks into the engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use groundcrew_core::{
    error::ErrorKind,
    id::{RunId, SessionId, ShareKey, TaskId},
    request::{LaunchIntent, LaunchRequest, Mode},
    store::{RunRecord, RunState, StateStore as _},
};
use groundcrew_testkit::{
    faulty::{Action, FaultPlan, VerbFault},
    polls::drop_after,
};

use crate::{
    keeping::REMOVE,
    matrix::checkpoints,
    support::{Machine, Process, Random, request, runtime, size},
};

const SESSIONS: usize = 4;

/// What was seen of each run: a run that was closed stays so, and no write is undone.
#[derive(Debug, Default)]
struct Model {
    closed: BTreeSet<RunId>,
    revisions: BTreeMap<RunId, u64>,
    /// Runs that a caller was told are up, and that nobody was told to end.
    promised: BTreeSet<RunId>,
}

impl Model {
    async fn check(&mut self, machine: &Machine, what: &str) {
        let runs = machine.store.runs().await.unwrap();
        let mut live = BTreeMap::new();
        for record in &runs {
            if let Some(before) = self.revisions.insert(record.run.clone(), record.revision) {
                assert!(
                    before <= record.revision,
                    "{what}: {} was written back",
                    record.run
                );
            }
            if self.closed.contains(&record.run) {
                assert!(
                    !record.state.is_live(),
                    "{what}: {} came back to life",
                    record.run
                );
            }
            if record.state == RunState::Closed {
                self.closed.insert(record.run.clone());
                self.promised.remove(&record.run);
            }
            if record.state.is_live() {
                let other = live.insert(record.session.clone(), record.run.clone());
                assert_eq!(other, None, "{what}: {} has two runs", record.session);
            }
        }
        machine.store.check().await.unwrap();
        for run in &self.promised {
            let up = runs
                .iter()
                .any(|record| record.run == *run && record.state.is_live());
            assert!(up, "{what}: {run} was up, and is gone");
        }
        // Nothing exists that nobody owns.
        let armed: BTreeSet<_> = machine
            .store
            .all_attempts()
            .into_iter()
            .flat_map(|row| row.armed)
            .map(|armed| armed.record.resource)
            .collect();
        for instance in machine.world.instances() {
            assert!(
                armed.contains(instance.id().as_str()),
                "{what}: {} is nobody's",
                instance.id()
            );
        }
    }
}

fn session(random: &mut Random) -> SessionId {
    SessionId::new(format!("session-{}", random.below(SESSIONS))).unwrap()
}

/// Two of the sessions share; the others have instances of their own.
fn wish(session: SessionId, mode: Mode) -> LaunchRequest {
    let shares = matches!(session.as_str(), "session-0" | "session-1");
    LaunchRequest {
        share_key: shares.then(|| ShareKey::new("shared").unwrap()),
        task: Some(TaskId::new("task").unwrap()),
        session: Some(session),
        mode,
        ..request()
    }
}

async fn current(machine: &Machine, session: &SessionId) -> Option<RunRecord> {
    machine.store.run_of_session(session).await.unwrap()
}

/// Does one thing; notes what it was told.
async fn operate(
    operation: usize,
    session: SessionId,
    machine: &Machine,
    process: &Process,
    model: &mut Model,
) {
    let launcher = &process.launcher;
    let agent = request().mode;
    let record = current(machine, &session).await;
    match (operation, record) {
        (0 | 1, record) => {
            let mut wished = wish(session, agent);
            if let Some(record) = record {
                wished.intent = LaunchIntent::Resume(record.run);
            }
            if let Ok(plan) = launcher.plan(wished).await
                && let Ok(launched) = launcher.launch(plan).wait().await
            {
                model.promised.insert(launched.record.run);
            }
        }
        (2, _) => {
            let wished = wish(session, Mode::Workspace);
            if let Ok(up) = launcher.ensure(wished.clone()).await {
                assert_eq!(Some(&up.record.session), wished.session.as_ref());
                model.promised.insert(up.record.run);
            }
        }
        (3, Some(record)) => {
            drop(
                launcher
                    .stop(&record.run, Some(Duration::from_secs(1)))
                    .await,
            );
        }
        (4, Some(record)) => {
            model.promised.remove(&record.run);
            drop(launcher.close(&record.run, REMOVE).await);
        }
        (5, Some(record)) => {
            model.promised.remove(&record.run);
            drop(launcher.settle(&record.run).await);
        }
        (6, _) => {
            model.promised.clear();
            drop(launcher.recover().await);
        }
        (7, Some(record)) => {
            // Its agent, or its whole instance, ends by itself.
            model.promised.clear();
            if let Some(instance) = machine.world.instance(&record.instance) {
                instance.crash();
            }
        }
        (8, _) => drop(launcher.tend().await),
        _ => drop(launcher.runs().await),
    }
}

/// One process and what it does until it dies in the middle of something.
fn episode(random: &mut Random, machine: &Machine, model: &mut Model, what: &str) -> usize {
    let points = [
        "create.after",
        "register.after",
        "start.before",
        "equip.before",
        "reserve.after",
    ];
    let plan = match random.below(3) {
        0 => {
            let point = points[random.below(points.len())];
            FaultPlan::at(point, Action::Error(ErrorKind::Protocol))
        }
        _ => FaultPlan::default(),
    };
    let runtime = runtime();
    let process = machine.process_with(plan);
    if random.below(3) == 0 {
        let verbs = ["delete", "connect", "instance.start", "instance.shutdown"];
        let verb = verbs[random.below(verbs.len())];
        process.executor.after(
            verb,
            u32::try_from(random.below(4)).unwrap(),
            VerbFault::After(ErrorKind::Unavailable),
        );
    }
    let operations = 4 + random.below(24);
    runtime.block_on(async {
        for _ in 0..operations {
            let operation = random.below(10);
            let session = session(random);
            Box::pin(operate(operation, session, machine, &process, model)).await;
            model.check(machine, what).await;
        }
        // The last one is never finished; whoever it was promised to may lose it.
        let last = random.below(7);
        let last = Box::pin(operate(last, session(random), machine, &process, model));
        _ = drop_after(random.below(120), last).await;
        model.promised.clear();
    });
    drop(runtime);
    process.locks.die();
    operations + 1
}

#[test]
#[expect(clippy::print_stdout, reason = "what was drawn is worth knowing")]
fn f151_g20_random_operations_of_mortal_processes_tell_one_story() {
    let wanted = size(2_000, 20_000);
    let mut done = 0;
    let mut seed = Random::base();
    assert!(!checkpoints().is_empty());
    println!("{wanted} operations, seeds from {seed}");
    while done < wanted {
        let mut random = Random::new(seed);
        let machine = Machine::new();
        let mut model = Model::default();
        for n in 0..4 {
            let what = format!("seed {seed}, episode {n}");
            done += episode(&mut random, &machine, &mut model, &what);
        }
        runtime().block_on(async {
            let what = format!("seed {seed}, the end");
            let next = machine.process();
            for _ in 0..2 {
                let report = next.launcher.recover().await.unwrap();
                assert!(report.is_clean(), "{what}: {report:?}");
            }
            model.check(&machine, &what).await;
            for record in machine.store.runs().await.unwrap() {
                let report = next.launcher.close(&record.run, REMOVE).await.unwrap();
                assert!(
                    report.stuck.is_empty() && report.kept.is_empty(),
                    "{what}: {report:?}"
                );
            }
            model.check(&machine, &what).await;
            assert!(machine.world.instances().is_empty(), "{what}");
            let left = machine.world.leftovers();
            assert!(
                left.iter().all(|left| left.ends_with("/gift")),
                "{what}: {left:?}"
            );
            assert!(machine.store.all_attempts().is_empty(), "{what}");
        });
        seed += 1;
    }
}
