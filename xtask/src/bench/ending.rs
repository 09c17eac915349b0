//! How soon a tree of processes is gone that does not want to go, and one that is large.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::process::Cmd;

use super::place::Place;
use super::sample::{Row, Target};

/// The grace of a stop, in milliseconds.
const GRACE: u64 = 500;

/// Nothing in it minds the signal that asks for an end, and half of it left its group.
const STUBBORN: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 100; done' & \
                        echo up >\"$0\"; while :; do sleep 100; done";

/// Four hundred processes.
const LARGE: &str =
    "i=0; while [ $i -lt 400 ]; do sleep 1000 & i=$((i+1)); done; echo up >\"$0\"; wait";

/// One process.
const SMALL: &str = "echo up >\"$0\"; exec sleep 1000";

/// Measures how long `stop` takes on top of its grace.
///
/// # Errors
///
/// Fails when a run does.
pub(super) fn stubborn(place: &Place, iterations: usize) -> Result<Row> {
    let grace = Duration::from_millis(GRACE);
    Row::measure(
        "`stop` of a tree that ignores the polite signal",
        format!("its grace, {GRACE} ms"),
        Target::OnTop(Duration::from_millis(200)),
        iterations,
        || stopped(place, STUBBORN, GRACE),
        || Ok(grace),
    )
}

/// Measures how long it takes to kill a large tree on top of a small one.
///
/// # Errors
///
/// Fails when a run does.
pub(super) fn large(place: &Place, iterations: usize) -> Result<Row> {
    Row::measure(
        "`stop --grace 0s` of a tree of 400 processes",
        "the same of one process",
        Target::OnTop(Duration::from_millis(150)),
        iterations,
        || stopped(place, LARGE, 0),
        || stopped(place, SMALL, 0),
    )
}

fn stopped(place: &Place, script: &str, grace: u64) -> Result<Duration> {
    // A pipe with a name: reading it waits until the tree is up.
    let up = place.path("up");
    Cmd::new("mkfifo").arg(&up).read()?;
    let argv = ["sh".into(), "-c".into(), script.into(), up.clone()];
    let id = place.run(&["--executor", "local", "--detach"], None, &argv)?;
    fs::read(&up).context("cannot wait for the tree")?;
    fs::remove_file(&up).context("cannot remove the pipe")?;
    let begun = Instant::now();
    let grace = format!("{grace}ms");
    place
        .command()
        .args(["stop", "--grace", &grace, &id])
        .read()?;
    let taken = begun.elapsed();
    place.clear(&id, false)?;
    Ok(taken)
}
