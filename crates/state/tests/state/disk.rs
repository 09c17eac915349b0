//! Full and read-only disks.

use groundcrew_core::{
    error::ErrorKind,
    id::SessionId,
    store::{LockDirectory as _, LockName, RunState, StateStore as _},
    undo::{Occasion, UndoOptions},
};
use groundcrew_state::StateDirectory;

use crate::support::{SmallDisk, reservation};

#[tokio::test]
async fn f133_a_full_disk_refuses_launches_and_still_notes_rollbacks() {
    let Some(disk) = SmallDisk::mount("8m") else {
        return;
    };
    let home = disk.path().join("home");
    let state = StateDirectory::open(&home).unwrap();
    let store = state.store();
    let mut kept = Vec::new();
    for n in 0..10 {
        let wanted = reservation(&format!("r{n}"), &format!("s{n}"));
        kept.push(store.reserve(wanted).await.unwrap());
    }
    let ballast = disk.fill();

    // What runs can be taken back: that is written in place.
    for run in &mut kept {
        let options = UndoOptions {
            occasion: Occasion::Failure,
            force: false,
        };
        store.begin_unwind(run.attempt, options).await.unwrap();
        for key in ["branch", "reservation"] {
            store.retire(run.attempt, key).await.unwrap();
        }
        run.state = RunState::Failed;
        *run = store.put(run).await.unwrap();
        store.forget(run.attempt).await.unwrap();
    }
    assert_eq!(store.attempts().await.unwrap(), []);

    // Large records run out of room sooner or later: typed, and nothing of that one stays.
    let mut refused = None;
    for n in 0..5000 {
        let mut wanted = reservation(&format!("big{n}"), &format!("big{n}"));
        wanted.record.title = Some("x".repeat(20_000));
        match store.reserve(wanted).await {
            Ok(run) => kept.push(run),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let error = refused.expect("the disk was not full");
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error:?}");
    assert!(error.is_retryable());
    assert!(error.get("path").is_some() && error.get("hint").is_some());

    // A new process can look.
    assert_eq!(store.runs().await.unwrap(), kept);
    drop((store, state));
    let state = StateDirectory::open(&home).unwrap();
    assert_eq!(state.store().runs().await.unwrap(), kept);
    state.store().check().await.unwrap();

    std::fs::remove_file(ballast).unwrap();
    state
        .store()
        .reserve(reservation("new", "new"))
        .await
        .unwrap();
    state.store().check().await.unwrap();
}

#[tokio::test]
async fn f133_a_disk_that_was_full_from_the_start_is_a_typed_error() {
    let Some(disk) = SmallDisk::mount("256k") else {
        return;
    };
    let ballast = disk.fill();
    let home = disk.path().join("home");
    let error = StateDirectory::open(&home).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error:?}");
    assert!(
        error
            .get("path")
            .unwrap()
            .starts_with(home.to_str().unwrap())
    );
    assert!(error.get("hint").is_some());
    // Nothing half-made is in the way when there is room.
    std::fs::remove_file(ballast).unwrap();
    let store = StateDirectory::open(&home).unwrap().store();
    store.reserve(reservation("r", "s")).await.unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn f133_a_read_only_disk_can_be_read_and_refuses_writes() {
    let Some(disk) = SmallDisk::mount("8m") else {
        return;
    };
    let home = disk.path().join("home");
    let state = StateDirectory::open(&home).unwrap();
    let run = state.store().reserve(reservation("r", "s")).await.unwrap();
    drop(state);
    disk.read_only(true);

    let state = StateDirectory::open(&home).unwrap();
    let store = state.store();
    assert_eq!(store.runs().await.unwrap(), std::slice::from_ref(&run));
    store.check().await.unwrap();
    let error = store.put(&run).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
    assert!(!error.is_retryable());
    assert!(error.get("hint").unwrap().contains("GROUNDCREW_HOME"));
    let name = LockName::Session(SessionId::new("s").unwrap());
    let error = state.locks().lock(&name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
    drop((store, state));

    let error = StateDirectory::open(&disk.path().join("other")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
    assert!(error.get("hint").unwrap().contains("GROUNDCREW_HOME"));

    disk.read_only(false);
    let state = StateDirectory::open(&home).unwrap();
    state.store().put(&run).await.unwrap();
}
