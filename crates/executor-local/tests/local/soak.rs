//! Many instances, one after the other and at once: nothing adds up, and the figures are told.
//!
//! Small unless `GROUNDCREW_SOAK` is set: to `gate`, and they take a minute or two; to anything else, and they are as large as
//! the targets say.

use std::time::{Duration, Instant};

use groundcrew_core::{
    error::ErrorKind, executor::Executor as _, instance::SharedInstance, process::Lease,
    undo::Undone,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    place::{Place, fresh, process, shell, soak},
    runner::say,
};

crate::runner::tests![
    g8_instances_one_after_the_other_leave_nothing_here,
    g10_g11_many_instances_at_once_take_few_descriptors_and_end_together,
    g11_f035_an_instance_is_refused_while_there_is_room_to_take_things_back,
];

/// How often something is done here, in every gate's run, and before a release.
fn times(here: usize, gate: usize, release: usize) -> usize {
    match soak() {
        None => here,
        Some(size) if size == "gate" => gate,
        Some(_) => release,
    }
}

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// What this process holds: descriptors, threads, children dead or alive.
fn held() -> (usize, usize, usize) {
    let children = std::fs::read_dir("/proc/self/task").unwrap().map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("children"));
        text.unwrap_or_default().split_whitespace().count()
    });
    (
        count("/proc/self/fd"),
        count("/proc/self/task"),
        children.sum(),
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

/// Memory of a process that it shares with nobody, in KiB.
fn private(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

/// The parts of a cycle whose time is told.
const PARTS: [&str; 4] = ["create", "connect", "run", "delete"];

/// Makes an instance, runs a process in it, and takes it away; returns how long each part took.
async fn cycle(place: &Place) -> [Duration; PARTS.len()] {
    let id = fresh();
    let mut begun = Instant::now();
    let mut took = Vec::new();
    let mut part = |begun: &mut Instant| {
        took.push(begun.elapsed());
        *begun = Instant::now();
    };
    place.create(&id, Lease::UNTIL_COMMIT).await;
    part(&mut begun);
    let instance = place.executor.connect(&id).await.unwrap();
    let variables = crate::place::environment(&[]);
    instance.set_environment(&variables).await.unwrap();
    part(&mut begun);
    let agent = process("agent");
    instance.start(&agent, &shell("exit 3")).await.unwrap();
    assert_eq!(instance.wait(&agent).await.unwrap().code, Some(3));
    drop(instance);
    part(&mut begun);
    assert_eq!(
        place.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    part(&mut begun);
    let group = groundcrew_supervisor::tree::place(&id);
    assert!(
        group.is_none_or(|group| !group.exists()),
        "its cgroup is left"
    );
    std::fs::remove_dir_all(place.logs(&id)).ok();
    took.try_into().unwrap()
}

async fn g8_instances_one_after_the_other_leave_nothing_here() {
    let place = Place::new();
    for _ in 0..5 {
        cycle(&place).await;
    }
    crate::place::until("the runtime has let go of what it started", || {
        held().2 == 0
    })
    .await;
    let (before, memory) = (held(), resident());
    let all = times(40, 1_000, 10_000);
    let begun = Instant::now();
    let mut parts = [Duration::ZERO; PARTS.len()];
    for _ in 0..all {
        for (sum, part) in parts.iter_mut().zip(cycle(&place).await) {
            *sum += part;
        }
    }
    let took = begun.elapsed();
    crate::place::until("all children are reaped", || held().2 == 0).await;
    let after = held();
    let grown = resident().saturating_sub(memory);
    say(format_args!(
        "{all} cycles in {took:?}, of which {PARTS:?} {parts:?}; descriptors, threads and children {before:?} then {after:?}; memory grew by {grown} KiB"
    ));
    assert_eq!((after.0, after.2), (before.0, before.2));
    assert!(after.1 <= before.1 + 1, "threads: {before:?} {after:?}");
    assert!(grown <= 5 << 10, "{grown} KiB");
    assert_eq!(place.executor.list().await.unwrap(), []);
}

async fn g10_g11_many_instances_at_once_take_few_descriptors_and_end_together() {
    let place = Place::new();
    let all = times(24, 500, 500);
    let before = held().0;
    let begun = Instant::now();
    let mut up: Vec<SharedInstance> = Vec::new();
    let mut ids = Vec::new();
    // Eight at a time, as a controller with work to do would.
    for chunk in (0..all).collect::<Vec<_>>().chunks(8) {
        let starts = chunk.iter().map(|_| async {
            let id = fresh();
            let instance = place.instance(&id, Lease::Unlimited).await;
            let agent = process("agent");
            instance
                .start(&agent, &shell("exec sleep 1000"))
                .await
                .unwrap();
            (id, instance)
        });
        for (id, instance) in futures_util::future::join_all(starts).await {
            ids.push(id);
            up.push(instance);
        }
    }
    let took = begun.elapsed();
    let each = (held().0 - before).div_ceil(all);
    let memory: Vec<u64> = ids
        .iter()
        .filter_map(|id| place.supervisor_pid(id))
        .map(private)
        .collect();
    assert_eq!(memory.len(), all, "each has its supervisor");
    let begun = Instant::now();
    let ends = up
        .iter()
        .map(|instance| instance.shutdown(Duration::from_secs(1)));
    for ended in futures_util::future::join_all(ends).await {
        ended.unwrap();
    }
    let ended = begun.elapsed();
    drop(up);
    for id in &ids {
        assert_eq!(
            place.executor.delete(id, None).await.unwrap(),
            Undone::REMOVED
        );
    }
    say(format_args!(
        "{all} at once: up in {took:?}, {each} descriptors each, {} KiB private memory each, ended in {ended:?}",
        memory.iter().sum::<u64>() / memory.len() as u64
    ));
    assert!(each <= 5, "{each} descriptors for each run");
    let most =
        Duration::from_secs(15).max(Duration::from_millis(100) * u32::try_from(all).unwrap());
    assert!(took < most && ended < most, "{took:?} {ended:?}");
}

/// What tells a test program that its limits are its own to change.
const ALONE: &str = "GROUNDCREW_TEST_ALONE";

#[expect(
    clippy::disallowed_methods,
    reason = "a limit is the whole process's, so the test starts itself again, as the runner would"
)]
async fn g11_f035_an_instance_is_refused_while_there_is_room_to_take_things_back() {
    if std::env::var_os(ALONE).is_none() {
        let name = "g11_f035_an_instance_is_refused_while_there_is_room_to_take_things_back";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args([name, "--exact"]).env(ALONE, "1");
        let output = tokio::task::spawn_blocking(move || again.output())
            .await
            .unwrap()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{output:?}"
        );
        return;
    }
    let place = Place::new();
    // Room for a few, and for what is kept.
    let limit = held().0 as u64 + 64 + 25;
    let before = getrlimit(Resource::Nofile);
    let low = Rlimit {
        current: Some(limit),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, low).unwrap();
    let mut up = Vec::new();
    let error = loop {
        let id = fresh();
        let spec = crate::place::instance_spec(Lease::Unlimited);
        match place
            .executor
            .create(&id, &spec, &crate::place::Silent)
            .await
        {
            Ok(_) => up.push((place.executor.connect(&id).await.unwrap(), id)),
            Err(error) => break error,
        }
        assert!(up.len() < 100, "nothing is refused");
    };
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    assert!(
        error.is_retryable() && error.to_string().contains("ulimit"),
        "{error}"
    );
    assert!(up.len() >= 3, "{} fit", up.len());
    let left = limit - held().0 as u64;
    assert!(left >= 64, "{left} are left");
    // What is there can be taken back while nothing more is made, and then there is room again.
    let ids: Vec<_> = up.iter().map(|(_, id)| id.clone()).collect();
    assert_eq!(place.executor.list().await.unwrap().len(), ids.len());
    drop(up.pop());
    for id in &ids {
        let undone = place.executor.delete(id, None).await.unwrap();
        assert_eq!(undone, Undone::REMOVED);
    }
    drop(up);
    crate::place::until("descriptors are free again", || {
        limit - held().0 as u64 >= 64 + 20
    })
    .await;
    let id = fresh();
    place.create(&id, Lease::UNTIL_COMMIT).await;
    place.executor.delete(&id, None).await.unwrap();
}
