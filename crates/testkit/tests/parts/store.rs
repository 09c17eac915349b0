//! Every documented rule of the durable state, on the one in memory.

use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::{AttemptId, RunId},
    identity::Identity,
    store::{AttemptPhase, Reservation, RunRecord, RunState, StateStore as _},
    undo::{Due, Occasion, UndoOptions},
};
use groundcrew_testkit::memory::MemoryStore;

use crate::support::{fresh, record, undo};

const UNWIND: UndoOptions = UndoOptions {
    occasion: Occasion::Close,
    force: false,
};

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[tokio::test]
async fn one_live_run_for_a_session() {
    let store = MemoryStore::new();
    let first = store
        .reserve(fresh(&record("one", "s"), &[]))
        .await
        .unwrap();
    assert_eq!(first.revision, 1);
    let error = store
        .reserve(fresh(&record("two", "s"), &[]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionBusy);
    assert_eq!(error.get("run"), Some("one"));
    assert_eq!(error.get("state"), Some("preparing"));
    assert_eq!(
        store.all_attempts().len(),
        1,
        "a refused one writes nothing"
    );

    let ended = store
        .put(&RunRecord {
            state: RunState::Closed,
            ..first
        })
        .await
        .unwrap();
    assert_eq!(store.run_of_session(&ended.session).await.unwrap(), None);
    store
        .reserve(fresh(&record("two", "s"), &[]))
        .await
        .unwrap();
    let back = RunRecord {
        state: RunState::Running,
        ..ended
    };
    assert_eq!(kind(store.put(&back).await), ErrorKind::SessionBusy);
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_write_names_the_revision_it_read() {
    let store = MemoryStore::new();
    let read = store
        .reserve(fresh(&record("one", "s"), &[]))
        .await
        .unwrap();
    let written = store.put(&read).await.unwrap();
    assert_eq!(written.revision, read.revision + 1);
    assert_eq!(kind(store.put(&read).await), ErrorKind::Conflict);
    assert_eq!(kind(store.commit(&read).await), ErrorKind::Conflict);
    let row = &store.all_attempts()[0];
    assert_eq!(
        row.phase,
        AttemptPhase::Launching,
        "a refused commit changes nothing"
    );
    assert_eq!(store.run(&read.run).await.unwrap(), Some(written));
    assert_eq!(
        kind(store.put(&record("unknown", "t")).await),
        ErrorKind::NotFound
    );
}

#[tokio::test]
async fn a_resumption_replaces_the_attempt_of_the_row_it_read() {
    let store = MemoryStore::new();
    let first = store
        .reserve(fresh(&record("one", "s"), &[]))
        .await
        .unwrap();
    let resumed = |record: RunRecord| Reservation {
        record: RunRecord {
            attempt: AttemptId::generate().unwrap(),
            ..record
        },
        resumes: true,
        armed: Vec::new(),
    };
    let stale = RunRecord {
        revision: 0,
        ..first.clone()
    };
    assert_eq!(
        kind(store.reserve(resumed(stale)).await),
        ErrorKind::Conflict
    );
    assert_eq!(
        kind(store.reserve(resumed(record("no", "t"))).await),
        ErrorKind::NotFound
    );
    let second = store.reserve(resumed(first.clone())).await.unwrap();
    assert_ne!(second.attempt, first.attempt);
    let rows = store.attempts_of(&first.run).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.resumes).collect::<Vec<_>>(),
        [false, true]
    );
    store.delete(&first.run, first.attempt).await.unwrap();
    assert!(
        store.run(&first.run).await.unwrap().is_some(),
        "the row names another attempt"
    );
    store.delete(&first.run, second.attempt).await.unwrap();
    assert_eq!(store.run(&first.run).await.unwrap(), None);
}

#[tokio::test]
async fn commit_drops_what_was_due_only_on_failure() {
    let store = MemoryStore::new();
    let keys = [("a", Due::Failure), ("b", Due::End), ("c", Due::Remove)];
    let read = store
        .reserve(fresh(&record("one", "s"), &keys))
        .await
        .unwrap();
    assert_eq!(store.armed_keys(), ["a", "b", "c"]);
    store.commit(&read).await.unwrap();
    assert_eq!(store.armed_keys(), ["b", "c"]);
    assert_eq!(store.all_attempts()[0].phase, AttemptPhase::Committed);
}

#[tokio::test]
async fn an_attempt_is_forgotten_only_when_it_owns_nothing() {
    let store = MemoryStore::new();
    let read = store
        .reserve(fresh(&record("one", "s"), &[("a", Due::End)]))
        .await
        .unwrap();
    let attempt = read.attempt;
    assert_eq!(kind(store.forget(attempt).await), ErrorKind::Conflict);
    store.arm(&undo(attempt, "b", Due::Close)).await.unwrap();
    assert_eq!(
        kind(store.arm(&undo(attempt, "b", Due::Close)).await),
        ErrorKind::AlreadyExists
    );
    store.retire(attempt, "a").await.unwrap();
    store.retire(attempt, "a").await.unwrap();
    store.retire(attempt, "b").await.unwrap();
    assert_eq!(store.attempts().await.unwrap().len(), 1, "it is under way");
    store.forget(attempt).await.unwrap();
    store.forget(attempt).await.unwrap();
    assert!(store.attempts_of(&read.run).await.unwrap().is_empty());
    let lost = undo(attempt, "c", Due::End);
    assert_eq!(kind(store.arm(&lost).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn an_attempt_remembers_where_it_is_and_what_failed() {
    let store = MemoryStore::new();
    let read = store
        .reserve(fresh(&record("one", "s"), &[("a", Due::End)]))
        .await
        .unwrap();
    let attempt = read.attempt;
    let identity = Identity("x".into());
    store.identify(attempt, "a", &identity).await.unwrap();
    assert_eq!(
        kind(store.identify(attempt, "z", &identity).await),
        ErrorKind::NotFound
    );
    let error = ErrorReport::from(&Error::new(ErrorKind::Unavailable, "down"));
    store.note_failure(attempt, "a", &error).await.unwrap();
    store.note_failure(attempt, "a", &error).await.unwrap();
    store.begin_unwind(attempt, UNWIND).await.unwrap();
    let row = store.attempts().await.unwrap().remove(0);
    assert_eq!(row.phase, AttemptPhase::Unwinding(UNWIND));
    assert_eq!(row.armed[0].tries, 2);
    assert_eq!(row.armed[0].last_error, Some(error));
    assert_eq!(row.armed[0].record.identity, Some(identity));
    store.rest(attempt).await.unwrap();
    assert_eq!(store.all_attempts()[0].phase, AttemptPhase::Committed);
    assert_eq!(
        store.attempts().await.unwrap().len(),
        1,
        "it owns something"
    );
    store.retire(attempt, "a").await.unwrap();
    assert!(
        store.attempts().await.unwrap().is_empty(),
        "it owns nothing and is at rest"
    );
}

#[tokio::test]
async fn what_is_contradictory_is_refused_whole() {
    let store = MemoryStore::new();
    let one = record("one", "s");
    let mut foreign = fresh(&one, &[]);
    foreign
        .armed
        .push(undo(AttemptId::generate().unwrap(), "a", Due::End));
    assert_eq!(kind(store.reserve(foreign).await), ErrorKind::InvalidInput);
    let twice = fresh(&one, &[("a", Due::End), ("a", Due::End)]);
    assert_eq!(kind(store.reserve(twice).await), ErrorKind::AlreadyExists);
    assert!(store.runs().await.unwrap().is_empty() && store.all_attempts().is_empty());
    store.reserve(fresh(&one, &[])).await.unwrap();
    let mut again = record("two", "t");
    again.attempt = one.attempt;
    assert_eq!(
        kind(store.reserve(fresh(&again, &[])).await),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        kind(store.reserve(fresh(&record("one", "u"), &[])).await),
        ErrorKind::AlreadyExists
    );
}

#[tokio::test]
async fn clones_are_other_processes_on_the_same_rows() {
    let (here, there) = {
        let store = MemoryStore::new();
        (store.clone(), store)
    };
    for n in 0..3 {
        let name = format!("run{n}");
        here.reserve(fresh(&record(&name, &name), &[]))
            .await
            .unwrap();
    }
    let runs = there.runs().await.unwrap();
    let names: Vec<_> = runs.iter().map(|r| r.run.as_str()).collect();
    assert_eq!(names, ["run0", "run1", "run2"], "oldest first");
    assert!(
        there
            .run(&RunId::new("run1").unwrap())
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn an_attempt_is_handed_over_whole() {
    let store = MemoryStore::new();
    let one = store
        .reserve(fresh(&record("one", "s"), &[("tree", Due::Close)]))
        .await
        .unwrap();
    let two = store
        .reserve(fresh(&record("two", "t"), &[]))
        .await
        .unwrap();
    store.begin_unwind(one.attempt, UNWIND).await.unwrap();
    let nobody = RunId::new("nobody").unwrap();
    let refused = store.hand_over(one.attempt, &nobody, &two.session).await;
    assert_eq!(kind(refused), ErrorKind::NotFound);
    for _ in 0..2 {
        store
            .hand_over(one.attempt, &two.run, &two.session)
            .await
            .unwrap();
    }
    assert!(store.attempts_of(&one.run).await.unwrap().is_empty());
    let rows = store.attempts_of(&two.run).await.unwrap();
    assert_eq!(rows[0].armed[0].record.attempt, one.attempt);
    assert_eq!(
        (&rows[0].session, rows[0].phase),
        (&two.session, AttemptPhase::Committed)
    );
    let unknown = AttemptId::generate().unwrap();
    store
        .hand_over(unknown, &two.run, &two.session)
        .await
        .unwrap();
}
