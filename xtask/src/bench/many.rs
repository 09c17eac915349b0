//! Many idle runs at once: how soon they are up, what each costs, how soon they are gone.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::place::Place;

/// How many live at once.
const ALL: usize = 500;

/// How many commands work at a time.
const AT_ONCE: usize = 8;

/// What is held to: all up, private memory of a supervisor in KiB, all ended.
const MOST: (Duration, u64, Duration) = (Duration::from_secs(15), 3 << 10, Duration::from_secs(5));

/// What many runs cost.
#[derive(Debug)]
pub(super) struct Figures {
    up: Duration,
    memory: u64,
    ended: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |met: bool| if met { "met" } else { "MISSED" };
        write!(
            f,
            "{ALL} idle runs at once, each by a command of its own\n    \
             up in {:.1} s; target ≤ {} s: {}\n    \
             {} KiB private memory for each supervisor; target ≤ {} KiB: {}\n    \
             ended in {:.1} s; target ≤ {} s: {}",
            self.up.as_secs_f64(),
            MOST.0.as_secs(),
            word(self.up <= MOST.0),
            self.memory,
            MOST.1,
            word(self.memory <= MOST.1),
            self.ended.as_secs_f64(),
            MOST.2.as_secs(),
            word(self.ended <= MOST.2),
        )
    }
}

/// Starts them, looks, and ends them.
///
/// # Errors
///
/// Fails when a run does, or one of them is missing.
pub(super) fn idle(place: &Place) -> Result<Figures> {
    let argv = ["sleep", "3600"].map(Into::into);
    let begun = Instant::now();
    let ids = at_once((0..ALL).collect(), |_| {
        place.run(&["--executor", "local", "--detach"], None, &argv)
    })?;
    let up = begun.elapsed();
    let supervisors = place.supervisors()?;
    ensure!(
        supervisors.len() == ALL,
        "{} of {ALL} runs have a supervisor",
        supervisors.len()
    );
    let memory: u64 = supervisors
        .iter()
        .map(|pid| private(*pid))
        .sum::<Result<u64>>()?;
    let begun = Instant::now();
    at_once(ids, |id| {
        place.command().args(["stop", "--grace", "1s", &id]).read()
    })?;
    let ended = begun.elapsed();
    let left = place.supervisors()?.len();
    ensure!(left == 0, "{left} supervisors are left");
    place.clear_all()?;
    Ok(Figures {
        up,
        memory: memory / ALL as u64,
        ended,
    })
}

/// Does something for each, several at a time.
fn at_once<T: Send, R: Send>(all: Vec<T>, work: impl Fn(T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let todo = std::sync::Mutex::new(all);
    let next = || {
        todo.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .pop()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    while let Some(one) = next() {
                        done.push(work(one)?);
                    }
                    Ok(done)
                })
            })
            .collect();
        let mut done = Vec::new();
        for worker in workers {
            let part: Result<Vec<R>> = worker
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a worker of the bench panicked")));
            done.extend(part?);
        }
        Ok(done)
    })
}

/// Memory of a process that it shares with nobody, in KiB.
fn private(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let sizes = text
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(sizes.sum())
}
