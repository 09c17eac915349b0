//! Many controllers on one session, and clocks that say anything.

use std::time::Duration;

use futures_util::future::join_all;
use groundcrew_core::{
    Ticket,
    error::ErrorKind,
    event::Step,
    store::{RunRecord, RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{Action, FaultPlan, Gate, VerbFault};

use crate::{
    keeping::REMOVE,
    matrix::checkpoints,
    support::{Machine, Random, request, runtime, size},
};

async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[test]
fn f129_g18_of_two_controllers_on_one_session_one_wins_each_time() {
    let races = size(200, 2000);
    let base = Random::base();
    for seed in base..base + races {
        let mut random = Random::new(seed);
        runtime().block_on(async {
            let machine = Machine::new();
            let (one, two) = (machine.process(), machine.process());
            let plans = [one.plan(request()).await, two.plan(request()).await];
            let [first, second] = plans;
            let lead = random.below(200);
            let tickets = if random.below(2) == 0 {
                let ticket = one.launcher.launch(first);
                turns(lead).await;
                [ticket, two.launcher.launch(second)]
            } else {
                let ticket = two.launcher.launch(second);
                turns(lead).await;
                [one.launcher.launch(first), ticket]
            };
            let results = join_all(tickets.iter().map(Ticket::wait)).await;
            let won = results.iter().filter(|result| result.is_ok()).count();
            assert_eq!(won, 1, "seed {seed}: {results:?}");
            let lost = results.into_iter().find_map(Result::err).unwrap();
            assert_eq!(
                (&lost.step, lost.error.kind()),
                (&Step::Reserve, ErrorKind::SessionBusy),
                "seed {seed}"
            );
            assert_eq!(machine.world.count("create"), 1, "seed {seed}");
            assert_eq!(machine.store.runs().await.unwrap().len(), 1, "seed {seed}");
        });
    }
}

#[test]
fn f129_g18_of_two_controllers_on_a_dead_attempt_one_recovers_each_time() {
    let points = checkpoints();
    let points: Vec<_> = points
        .iter()
        .filter(|point| !matches!(point.as_str(), "reserve.before" | "commit.after"))
        .collect();
    let base = Random::base();
    for seed in base..base + size(200, 2000) {
        let mut random = Random::new(seed);
        let point = points[random.below(points.len())];
        let machine = Machine::new();
        let dying = runtime();
        let dead = machine.process_with(FaultPlan::at(point, Action::Hang));
        dying.block_on(async {
            drop(dead.ticket(crate::support::whole()).await);
            dead.checkpoints.until_struck().await;
        });
        drop(dying);
        dead.locks.die();
        runtime().block_on(async {
            let (one, two) = (machine.process(), machine.process());
            let lead = random.below(60);
            let late = async {
                turns(lead).await;
                two.launcher.recover().await
            };
            let (first, second) = tokio::join!(one.launcher.recover(), late);
            let (first, second) = (first.unwrap(), second.unwrap());
            assert!(
                first.is_clean() && second.is_clean(),
                "seed {seed}: {first:?} {second:?}"
            );
            let recovered = first.rolled_back.len() + second.rolled_back.len();
            assert_eq!(recovered, 1, "seed {seed} {point}");
            assert!(machine.world.count("delete") <= 1, "seed {seed} {point}");
            machine.is_empty().await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn f130_a_controller_that_stood_still_is_left_alone_and_goes_on_with_what_is_still_its_own() {
    let machine = Machine::new();
    let (paused, other) = (machine.process(), machine.process());
    let gate = Gate::new();
    paused
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let plan = other.plan(request()).await;
    let ticket = paused.ticket(request()).await;
    gate.until_reached().await;
    // It stands still for a minute and a half; others look, wait and give up.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let report = other.launcher.recover().await.unwrap();
        assert_eq!(report.busy, [ticket.run().clone()]);
    }
    let waiting = other.launcher.launch(plan);
    turns(100).await;
    gate.open();
    let run = ticket.wait().await.unwrap().record.run;
    assert_eq!(
        waiting.wait().await.unwrap_err().error.kind(),
        ErrorKind::SessionBusy
    );
    assert_eq!(machine.world.count("create"), 1);
    assert_eq!(machine.record(&run).await.state, RunState::Running);
}

#[test]
fn f130_a_controller_whose_locks_were_lost_writes_nothing_over_its_successor() {
    // As on a file system that forgot its locks: the store alone stands between the two.
    let machine = Machine::new();
    runtime().block_on(async {
        let (paused, other) = (machine.process(), machine.process());
        let gate = Gate::new();
        paused
            .executor
            .once("connect", VerbFault::Hold(gate.clone()));
        let ticket = paused.ticket(request()).await;
        gate.until_reached().await;
        paused.locks.die();
        let report = other.launcher.recover().await.unwrap();
        assert_eq!(report.rolled_back, [ticket.run().clone()]);
        let successor = other.launch().await.unwrap().record;
        gate.open();
        let error = ticket.wait().await.unwrap_err();
        assert!(
            matches!(error.step, Step::Connect | Step::Register),
            "{error:?}"
        );
        let stored = machine.record(&successor.run).await;
        assert_eq!(stored, successor);
        assert_eq!(machine.world.instances().len(), 1);
        other.launcher.close(&successor.run, REMOVE).await.unwrap();
        assert!(machine.store.all_attempts().is_empty());
    });
}

#[tokio::test(start_paused = true)]
async fn f135_the_wall_clock_decides_nothing_about_what_is_live() {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    let now = u64::try_from(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis(),
    )
    .unwrap();
    for created_ms in [0, now - DAY, now + DAY, u64::MAX] {
        let machine = Machine::new();
        let process = machine.process();
        let record = process.launch().await.unwrap().record;
        let moved = RunRecord {
            created_ms,
            ended_ms: Some(created_ms),
            ..record
        };
        let moved = machine.store.put(&moved).await.unwrap();
        let report = machine.process().launcher.recover().await.unwrap();
        assert!(report.is_clean() && report.settled.is_empty(), "{report:?}");
        assert_eq!(machine.record(&moved.run).await, moved);
        let stopped = process.launcher.stop(&moved.run, None).await.unwrap();
        assert_eq!(stopped.record.state, RunState::Stopped);
        // A row at rest is forgotten only once it was closed.
        let at_rest = RunRecord {
            created_ms,
            ended_ms: Some(created_ms),
            ..stopped.record
        };
        let at_rest = machine.store.put(&at_rest).await.unwrap();
        machine.process().launcher.recover().await.unwrap();
        assert_eq!(machine.record(&moved.run).await, at_rest);
        process.launcher.close(&moved.run, REMOVE).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn f135_limits_of_time_are_of_the_monotonic_clock() {
    // Nothing here moves but the monotonic clock: the step ends with it.
    let machine = Machine::new();
    let process = machine.process_with(FaultPlan::at("create.before", Action::Hang));
    let began = tokio::time::Instant::now();
    let error = process.launch().await.unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::TimedOut);
    let limit = groundcrew_core::Policy::default().step;
    assert!(began.elapsed() >= limit && began.elapsed() < limit + Duration::from_mins(1));
}
