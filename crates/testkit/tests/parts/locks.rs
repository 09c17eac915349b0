//! Locks are held by one, freed by drop and by death.

use groundcrew_core::{
    error::ErrorKind,
    id::SessionId,
    store::{LockDirectory as _, LockName},
};
use groundcrew_testkit::memory::MemoryLocks;

fn name() -> LockName {
    LockName::Session(SessionId::new("s").unwrap())
}

#[tokio::test]
async fn a_lock_is_held_until_its_guard_is_dropped() {
    let locks = MemoryLocks::new();
    let other = locks.process();
    let guard = locks.lock(&name()).await.unwrap();
    assert!(other.try_lock(&name()).await.unwrap().is_none());
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.lock(&name()).await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(guard);
    waiting.await.unwrap().unwrap();
    assert!(locks.held().is_empty());
}

#[tokio::test]
async fn a_place_in_the_queue_is_given_up() {
    let locks = MemoryLocks::new();
    let guard = locks.lock(&name()).await.unwrap();
    {
        let wanted = name();
        let waiting = locks.lock(&wanted);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
    }
    drop(guard);
    assert!(locks.try_lock(&name()).await.unwrap().is_some());
}

#[tokio::test]
async fn death_frees_what_a_process_held_and_nothing_else() {
    let locks = MemoryLocks::new();
    let (dying, living) = (locks.process(), locks.process());
    let stale = dying.lock(&name()).await.unwrap();
    dying.die();
    let error = dying.try_lock(&name()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let _held = living.try_lock(&name()).await.unwrap().expect("it is free");
    drop(stale);
    assert!(
        locks.try_lock(&name()).await.unwrap().is_none(),
        "a dead guard frees nothing"
    );
}

#[tokio::test]
async fn a_shared_lock_has_many_holders_or_one_alone() {
    let locks = MemoryLocks::new();
    let other = locks.process();
    let name = LockName::Activity;
    let first = locks.try_share(&name).await.unwrap().unwrap();
    let second = other.try_share(&name).await.unwrap().unwrap();
    assert!(other.try_lock(&name).await.unwrap().is_none());
    drop(first);
    assert!(locks.try_lock(&name).await.unwrap().is_none());
    drop(second);
    let alone = locks.try_lock(&name).await.unwrap().unwrap();
    assert!(other.try_share(&name).await.unwrap().is_none());
    drop(alone);
    assert!(locks.held().is_empty());
}
