//! Many processes on one state directory, some of them killed.

use std::{collections::BTreeSet, path::Path, time::Duration};

use groundcrew_core::{
    error::ErrorKind,
    id::{RunId, SessionId},
    store::{LockDirectory as _, LockName, RunState, StateStore as _},
    undo::Due,
};
use groundcrew_state::{SqliteStore, StateDirectory};

use crate::{
    locks::bump,
    support::{record, reservation, spawn, undo},
};

fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|arg| Some(arg.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

#[expect(clippy::print_stdout, reason = "how a worker speaks to its test")]
fn say(words: &str) {
    // In front, because the runner has begun the line; behind, so that a line is whole or not there.
    println!("@@{words}");
}

/// What the processes do that tests start; in a run of the tests it has no role, and nothing to do.
#[tokio::test]
async fn worker() {
    let Some(role) = argument("role") else { return };
    let (home, tag) = (argument("home").unwrap(), argument("tag").unwrap());
    let state = StateDirectory::open(Path::new(&home)).unwrap();
    let store = state.store();
    match role.as_str() {
        "open" => say(state.install().as_str()),
        "write" => write(&store, &tag, 30).await,
        "endless" => write(&store, &tag, u32::MAX).await,
        "claim" => match store.reserve(reservation(&tag, "wanted")).await {
            Ok(_) => say("won"),
            Err(error) => say(&format!("{} {}", error.kind(), error.get("run").unwrap())),
        },
        "count" => {
            let name = LockName::Session(SessionId::new("shared").unwrap());
            for _ in 0..20 {
                let held = state.locks().lock(&name).await.unwrap();
                bump(&Path::new(&home).join("counter"));
                drop(held);
            }
        }
        "hold" => {
            let name = LockName::Session(SessionId::new(tag).unwrap());
            let _held = state.locks().lock(&name).await.unwrap();
            say("held");
            std::future::pending::<()>().await;
        }
        other => panic!("no such role: {other}"),
    }
}

/// Launches, and says each thing after its verb returned.
async fn write(store: &SqliteStore, tag: &str, count: u32) {
    for n in 0..count {
        let id = format!("{tag}-{n}");
        let mut run = store.reserve(reservation(&id, &id)).await.unwrap();
        say(&format!("reserved {id}"));
        store
            .arm(&undo(run.attempt, "worktree", Due::Close))
            .await
            .unwrap();
        say(&format!("armed {id}"));
        run.state = RunState::Running;
        run = store.commit(&run).await.unwrap();
        say(&format!("committed {id}"));
        run.state = RunState::Closed;
        store.put(&run).await.unwrap();
        say(&format!("closed {id}"));
    }
}

#[tokio::test]
async fn f129_64_processes_open_a_fresh_directory_at_once() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("deep/new/home");
    let workers: Vec<_> = (0..64).map(|_| spawn("open", &home, "x")).collect();
    let ids: BTreeSet<_> = workers
        .into_iter()
        .flat_map(super::support::Worker::finish)
        .collect();
    let state = StateDirectory::open(&home).unwrap();
    assert_eq!(ids, BTreeSet::from([state.install().to_string()]));
    state.store().check().await.unwrap();
    let left: Vec<_> = std::fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn f129_of_16_processes_one_gets_the_session() {
    let home = tempfile::tempdir().unwrap();
    let workers: Vec<_> = (0..16)
        .map(|n| spawn("claim", home.path(), &format!("r{n}")))
        .collect();
    let said: Vec<_> = workers
        .into_iter()
        .flat_map(super::support::Worker::finish)
        .collect();
    assert_eq!(said.len(), 16);
    let store = StateDirectory::open(home.path()).unwrap().store();
    let runs = store.runs().await.unwrap();
    assert_eq!(runs.len(), 1);
    let busy = format!("session_busy {}", runs[0].run);
    assert_eq!(said.iter().filter(|words| *words == "won").count(), 1);
    assert_eq!(said.iter().filter(|words| **words == busy).count(), 15);
}

#[tokio::test]
async fn f131_8_processes_write_at_once_and_all_get_their_turn() {
    let home = tempfile::tempdir().unwrap();
    let workers: Vec<_> = (0..8)
        .map(|n| spawn("write", home.path(), &format!("w{n}")))
        .collect();
    for worker in workers {
        assert_eq!(worker.finish().len(), 4 * 30);
    }
    let store = StateDirectory::open(home.path()).unwrap().store();
    let runs = store.runs().await.unwrap();
    assert_eq!(runs.len(), 8 * 30);
    assert!(runs.iter().all(|run| run.state == RunState::Closed));
    store.check().await.unwrap();
}

#[tokio::test]
async fn g19_no_acknowledged_row_is_lost_by_kill_9_in_the_middle_of_writes() {
    let home = tempfile::tempdir().unwrap();
    drop(StateDirectory::open(home.path()).unwrap());
    let mut acknowledged = Vec::new();
    for round in 0..25 {
        let mut workers: Vec<_> = (0..2)
            .map(|n| spawn("endless", home.path(), &format!("k{round}-{n}")))
            .collect();
        // Both write, then die at an arbitrary point of their loop, another one in each round.
        for (n, worker) in workers.iter_mut().enumerate() {
            for _ in 0..=(round + n) % 7 {
                acknowledged.push(worker.say().unwrap());
            }
        }
        for worker in workers {
            acknowledged.extend(worker.kill());
        }
    }
    let state = StateDirectory::open(home.path()).unwrap();
    let store = state.store();
    store.check().await.unwrap();
    let mut checked = 0;
    for words in &acknowledged {
        let (what, id) = words.split_once(' ').unwrap();
        let run = RunId::new(id).unwrap();
        let record = store.run(&run).await.unwrap().expect(words);
        let attempt = store.attempts_of(&run).await.unwrap().remove(0);
        match what {
            "reserved" => {}
            "armed" => assert!(attempt.armed.iter().any(|a| a.record.key == "worktree")),
            "committed" => assert!(record.revision >= 2 && attempt.armed.len() == 2),
            "closed" => assert_eq!(record.state, RunState::Closed),
            other => panic!("{other}"),
        }
        checked += 1;
    }
    assert!(checked >= 100, "only {checked}");
}

#[tokio::test]
async fn f131_a_locked_database_is_a_bounded_wait_and_a_typed_error() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open_within(home.path(), Duration::from_millis(300)).unwrap();
    let store = state.store();
    let run = store.reserve(reservation("r1", "s1")).await.unwrap();
    let other = rusqlite::Connection::open(state.database_path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let start = std::time::Instant::now();
    let error = store.reserve(reservation("r2", "s2")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable());
    assert!(error.get("path").is_some() && error.get("hint").is_some());
    assert!(start.elapsed() >= Duration::from_millis(250));
    // Who only reads does not wait for who writes.
    assert_eq!(store.runs().await.unwrap(), std::slice::from_ref(&run));
    assert_eq!(
        StateDirectory::open_within(home.path(), Duration::from_millis(300))
            .unwrap()
            .store()
            .runs()
            .await
            .unwrap(),
        [run]
    );
    other.execute_batch("ROLLBACK").unwrap();
    store.reserve(reservation("r2", "s2")).await.unwrap();
}

#[tokio::test]
async fn f131_a_directory_that_another_process_is_making_is_a_bounded_wait() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("locks")).unwrap();
    let lock = std::fs::File::create(home.path().join("locks/state")).unwrap();
    lock.lock().unwrap();
    let error = StateDirectory::open_within(home.path(), Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(!home.path().join("state.db").exists());
    drop(lock);
    let store = StateDirectory::open(home.path()).unwrap().store();
    assert_eq!(
        store.put(&record("r", "s")).await.unwrap_err().kind(),
        ErrorKind::Conflict
    );
}
