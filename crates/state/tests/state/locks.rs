//! Locks between tasks and between processes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use groundcrew_core::{
    error::ErrorKind,
    id::{AttemptId, SessionId},
    store::{LockDirectory as _, LockName},
};
use groundcrew_state::StateDirectory;

use crate::support::{DEADLINE, spawn, until};

fn session(id: &str) -> LockName {
    LockName::Session(SessionId::new(id).unwrap())
}

#[tokio::test]
async fn f129_a_lock_has_one_holder_and_names_do_not_disturb_each_other() {
    let home = tempfile::tempdir().unwrap();
    let locks = StateDirectory::open(home.path()).unwrap().locks();
    let other = StateDirectory::open(home.path()).unwrap().locks();
    let name = session("One");
    let held = locks.lock(&name).await.unwrap();
    assert!(other.try_lock(&name).await.unwrap().is_none());
    assert!(locks.try_lock(&name).await.unwrap().is_none());
    assert!(other.try_lock(&session("one")).await.unwrap().is_some());
    let attempt = LockName::Attempt(AttemptId::generate().unwrap());
    assert!(other.try_lock(&attempt).await.unwrap().is_some());
    drop(held);
    assert!(other.try_lock(&name).await.unwrap().is_some());
}

#[tokio::test]
async fn no_lock_file_is_left_behind() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    let attempt = AttemptId::generate().unwrap();
    let held = state
        .locks()
        .lock(&LockName::Attempt(attempt))
        .await
        .unwrap();
    let file = state.locks_path().join("attempt").join(attempt.to_string());
    assert!(file.exists());
    drop(held);
    assert!(!file.exists());
    drop(state.locks().lock(&session("s")).await.unwrap());
    let left = std::fs::read_dir(state.locks_path().join("session")).unwrap();
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn a_waiter_that_is_dropped_gives_its_place_up() {
    let home = tempfile::tempdir().unwrap();
    let locks = StateDirectory::open(home.path()).unwrap().locks();
    let name = session("s");
    let held = locks.lock(&name).await.unwrap();
    for millis in 1..20 {
        let wait = tokio::time::timeout(Duration::from_millis(millis), locks.lock(&name));
        assert!(wait.await.is_err());
    }
    drop(held);
    // A try that was under way on another thread may gain it for a moment.
    until("the lock is free", async || {
        locks.try_lock(&name).await.unwrap().is_some()
    })
    .await;
    // Dropped at the very moment that it gains the lock.
    for micros in (0..2000).step_by(50) {
        let gained = tokio::time::timeout(Duration::from_micros(micros), locks.lock(&name)).await;
        drop(gained);
        until("the lock is given back", async || {
            locks.try_lock(&name).await.unwrap().is_some()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f129_64_tasks_and_8_processes_are_never_two_at_once() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    let counter = home.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let workers: Vec<_> = (0..8)
        .map(|n| spawn("count", home.path(), &n.to_string()))
        .collect();
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (locks, inside, counter) = (state.locks(), Arc::clone(&inside), counter.clone());
        tasks.spawn(async move {
            for _ in 0..5 {
                let held = locks.lock(&session("shared")).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                bump(&counter);
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(held);
            }
        });
    }
    tokio::time::timeout(DEADLINE * 2, tasks.join_all())
        .await
        .unwrap();
    for worker in workers {
        worker.finish();
    }
    let count = std::fs::read_to_string(&counter).unwrap();
    assert_eq!(count, (64 * 5 + 8 * 20).to_string());
}

/// Adds one, in a way that loses counts unless it is alone.
pub(crate) fn bump(counter: &std::path::Path) {
    let count: u32 = std::fs::read_to_string(counter).unwrap().parse().unwrap();
    std::thread::yield_now();
    std::fs::write(counter, (count + 1).to_string()).unwrap();
}

#[tokio::test]
async fn a_lock_ends_with_its_process() {
    let home = tempfile::tempdir().unwrap();
    let locks = StateDirectory::open(home.path()).unwrap().locks();
    let mut worker = spawn("hold", home.path(), "s");
    assert_eq!(worker.say().as_deref(), Some("held"));
    assert!(locks.try_lock(&session("s")).await.unwrap().is_none());
    worker.kill();
    tokio::time::timeout(DEADLINE, locks.lock(&session("s")))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn f127_files_of_locks_whose_holders_died_are_swept_and_held_ones_stay() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    let locks = state.locks();
    let held = locks.lock(&session("held")).await.unwrap();
    // What a process leaves that is killed after it gained the lock and before anything was written.
    let left = [
        state.locks_path().join("session").join("dead"),
        state.locks_path().join("attempt").join("0".repeat(32)),
    ];
    for path in &left {
        std::fs::write(path, "").unwrap();
    }
    locks.sweep().await.unwrap();
    assert!(left.iter().all(|path| !path.exists()));
    assert!(locks.try_lock(&session("held")).await.unwrap().is_none());
    drop(held);
    locks.sweep().await.unwrap();
    assert!(locks.try_lock(&session("held")).await.unwrap().is_some());
}

#[tokio::test]
async fn k31_a_shared_lock_has_many_holders_or_one_alone_and_its_file_stays() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    let (locks, other) = (
        state.locks(),
        StateDirectory::open(home.path()).unwrap().locks(),
    );
    for name in [
        LockName::Activity,
        LockName::Maintenance,
        LockName::TaskWaiting,
    ] {
        let first = locks.try_share(&name).await.unwrap().unwrap();
        let second = other.try_share(&name).await.unwrap().unwrap();
        assert!(other.try_lock(&name).await.unwrap().is_none());
        drop(first);
        assert!(locks.try_lock(&name).await.unwrap().is_none(), "{name:?}");
        drop(second);
        let alone = locks.try_lock(&name).await.unwrap().unwrap();
        assert!(other.try_share(&name).await.unwrap().is_none());
        drop(alone);
        assert!(other.try_share(&name).await.unwrap().is_some());
    }
    assert!(state.locks_path().join("activity").exists());
    let error = locks.try_share(&session("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let share = LockName::Share(groundcrew_core::id::ShareKey::new("s").unwrap());
    let held = locks.lock(&share).await.unwrap();
    assert!(other.try_lock(&share).await.unwrap().is_none());
    assert!(other.try_lock(&session("s")).await.unwrap().is_some());
    drop(held);
}
