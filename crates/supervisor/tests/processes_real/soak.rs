//! Many processes under one supervisor: nothing adds up.
//!
//! A thousand, unless `GROUNDCREW_SOAK` is set; then as many as the targets say.

use std::time::Instant;

use groundcrew_core::process::ProcessSpec;
use groundcrew_supervisor::processes::CgroupPolicy;

use crate::support::{Ground, children, full, id};

/// How many of them live at the same time.
const AT_ONCE: usize = 10;

/// How many of them come before what is held is counted for the first time.
const WARM_UP: usize = 500;

/// How much the memory of one of the others may add up to on the average, in bytes: 5 MiB for ten thousand.
const MOST: u64 = (5 << 20) / 10_000;

/// How much memory may come and go besides, in KiB.
const NOISE: u64 = 512;

/// An instance whose files are in memory where there is such a place: how fast a disk makes them is no property of ours.
fn ground() -> Ground {
    let memory = std::path::Path::new("/dev/shm");
    let directory = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    let directory = directory.unwrap();
    let log = directory.path().join("log");
    Ground::with_log(CgroupPolicy::Automatic, directory, log)
}

/// What this process holds: descriptors, threads, and groups of processes.
fn held(ground: &Ground) -> (usize, usize, usize) {
    let count = |directory: &std::path::Path| std::fs::read_dir(directory).unwrap().count();
    let groups = ground.processes.cgroup().map_or(0, |group| {
        let below = std::fs::read_dir(group).unwrap().flatten();
        below.filter(|entry| entry.path().is_dir()).count()
    });
    (
        count("/proc/self/fd".as_ref()),
        count("/proc/self/task".as_ref()),
        groups,
    )
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[expect(clippy::print_stdout, reason = "a figure is worth knowing")]
fn tell(text: std::fmt::Arguments<'_>) {
    println!("{text}");
}

alone! {
    async fn g8_heavy_processes_by_the_thousand_leave_nothing_here() {
        let ground = ground();
        let ground = &ground;
        let spec = &ProcessSpec {
            main: false,
            ..ground.spec(&["true"])
        };
        let (mut before, mut memory, mut begun) = (held(ground), 0, Instant::now());
        let all = if full() { 10_000 } else { 1_000 };
        for n in (0..WARM_UP + all).step_by(AT_ONCE) {
            if n == WARM_UP {
                (before, memory, begun) = (held(ground), resident(), Instant::now());
            }
            let wave = (n..n + AT_ONCE).map(|n| async move {
                let name = format!("p{n}");
                ground.start(&name, spec).await;
                let status = ground.processes.wait(&id(&name)).await.unwrap();
                assert_eq!(status.code, Some(0));
            });
            futures_util::future::join_all(wave).await;
        }
        let (took, grown) = (begun.elapsed(), resident().saturating_sub(memory));
        tell(format_args!(
            "{all} processes in {took:?}; descriptors, threads and groups {before:?} then {:?}; memory grew by {grown} KiB",
            held(ground)
        ));
        assert_eq!(held(ground), before);
        assert_eq!(children(), "", "zombies");
        assert!(grown <= NOISE + MOST * all as u64 / 1024, "{grown} KiB");
        ground.nothing_left().await;
    }
}
