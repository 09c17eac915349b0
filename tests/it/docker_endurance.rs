//! Containers again and again, and many at once: nothing adds up, in the engine or on the host.
#![expect(clippy::print_stdout, reason = "the figures are worth knowing")]

use std::{collections::BTreeSet, time::Instant};

use crate::ground::{Engine, Ground, Job, Repository, is_whole, text};

const STAYS: &str = "exec sleep 600";

/// How often, and how many at once: small among all tests, whole under `cargo xtask soak`.
fn size() -> (usize, usize) {
    if is_whole() { (500, 50) } else { (8, 6) }
}

fn launch(engine: &Engine, ground: &Ground, repository: &Repository) -> Job {
    let options = ["--detach", "--format", "json"];
    engine.run(ground, repository, &options, STAYS).spawn()
}

/// Removes runs, all at once.
fn remove(engine: &Engine, ground: &Ground, ids: &BTreeSet<String>) {
    let removals: Vec<_> = ids
        .iter()
        .map(|id| engine.call(ground, &["rm", id]).spawn())
        .collect();
    for removal in removals {
        removal.wait().ok();
    }
}

#[test]
fn g08_heavy_needs_docker_launches_and_stops_again_and_again_leave_nothing() {
    let engine = Engine::private();
    let ground = Ground::new();
    let repository = ground.repository("r");
    engine.run(&ground, &repository, &[], "true").run().ok();
    let held = engine.holdings();
    let (cycles, _) = size();
    let began = Instant::now();
    for cycle in 0..cycles {
        let run = launch(&engine, &ground, &repository).wait().ok().json();
        let id = text(&run["id"]);
        engine
            .call(&ground, &["stop", "--grace", "1s", id])
            .run()
            .ok();
        engine.call(&ground, &["rm", id]).run().ok();
        if cycle % 50 == 0 {
            engine.holds(&held, &format!("cycle {cycle}"));
        }
    }
    engine.holds(&held, "after all cycles");
    assert_eq!(repository.branches(), ["main"]);
    assert!(ground.runs(false).is_empty());
    ground.until_quiet();
    println!(
        "{cycles} launches, stops and removals in {:.0} s; nothing left",
        began.elapsed().as_secs_f64()
    );
}

#[test]
fn g10_heavy_needs_docker_many_containers_at_once_leave_nothing() {
    let engine = Engine::private();
    let ground = Ground::new();
    let repository = ground.repository("r");
    engine.run(&ground, &repository, &[], "true").run().ok();
    let held = engine.holdings();
    let (_, count) = size();
    let began = Instant::now();
    let jobs: Vec<_> = (0..count)
        .map(|_| launch(&engine, &ground, &repository))
        .collect();
    let ids: BTreeSet<_> = jobs
        .into_iter()
        .map(|job| text(&job.wait_within(super::ground::DEADLINE * 4).ok().json()["id"]).to_owned())
        .collect();
    assert_eq!(
        (ids.len(), engine.containers(&ground).len()),
        (count, count)
    );
    let up = began.elapsed();
    remove(&engine, &ground, &ids);
    engine.holds(&held, "after all were removed");
    assert_eq!(repository.branches(), ["main"]);
    assert!(ground.runs(false).is_empty());
    println!(
        "{count} containers at once: up in {:.0} s, gone {:.0} s later; nothing left",
        up.as_secs_f64(),
        began.elapsed().as_secs_f64() - up.as_secs_f64()
    );
}
