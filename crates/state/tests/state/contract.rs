//! The sentences of the store's contract, one by one.

use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    identity::Identity,
    store::{AttemptPhase, Reservation, RunState, StateStore as _},
    undo::{Due, Occasion, UndoOptions},
};
use groundcrew_state::StateDirectory;

use crate::support::{record, reservation, undo};

fn open() -> (tempfile::TempDir, StateDirectory) {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    (home, state)
}

const FAILURE: UndoOptions = UndoOptions {
    occasion: Occasion::Failure,
    force: false,
};

#[tokio::test]
async fn a_reservation_is_one_transaction_and_is_read_back_by_another_opening() {
    let (home, state) = open();
    let wanted = reservation("r1", "s1");
    let stored = state.store().reserve(wanted.clone()).await.unwrap();
    assert_eq!(stored.revision, 1);

    let again = StateDirectory::open(home.path()).unwrap();
    assert_eq!(again.install(), state.install());
    let store = again.store();
    assert_eq!(
        store.run(&stored.run).await.unwrap().as_ref(),
        Some(&stored)
    );
    assert_eq!(store.runs().await.unwrap(), std::slice::from_ref(&stored));
    assert_eq!(
        store
            .run_of_session(&stored.session)
            .await
            .unwrap()
            .as_ref(),
        Some(&stored)
    );
    let attempts = store.attempts().await.unwrap();
    assert_eq!(attempts.len(), 1);
    let attempt = &attempts[0];
    assert_eq!(attempt.attempt, stored.attempt);
    assert_eq!(attempt.run, stored.run);
    assert_eq!(attempt.session, stored.session);
    assert!(!attempt.resumes);
    assert_eq!(attempt.phase, AttemptPhase::Launching);
    assert!(attempt.created_ms > 0);
    let armed: Vec<_> = attempt.armed.iter().map(|a| a.record.clone()).collect();
    assert_eq!(armed, wanted.armed);
    store.check().await.unwrap();
}

#[tokio::test]
async fn f129_a_session_with_a_live_run_is_busy_and_nothing_of_the_second_stays() {
    let (_home, state) = open();
    let store = state.store();
    let first = store.reserve(reservation("r1", "s1")).await.unwrap();
    let error = store.reserve(reservation("r2", "s1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionBusy);
    assert_eq!(error.get("run"), Some("r1"));
    assert_eq!(error.get("state"), Some("preparing"));
    assert_eq!(error.get("session"), Some("s1"));
    assert_eq!(store.runs().await.unwrap().len(), 1);
    assert_eq!(store.attempts().await.unwrap().len(), 1);

    // Every live state holds the session; the two that do not, give it up.
    let mut held = first;
    for state in [RunState::Exited, RunState::Stuck, RunState::Closing] {
        held.state = state;
        held = store.put(&held).await.unwrap();
        let error = store.reserve(reservation("r2", "s1")).await.unwrap_err();
        assert_eq!(error.get("state"), Some(state.as_str()));
    }
    held.state = RunState::Closed;
    let mut held = store.put(&held).await.unwrap();
    assert_eq!(store.run_of_session(&held.session).await.unwrap(), None);
    let second = store.reserve(reservation("r2", "s1")).await.unwrap();
    assert_eq!(
        store.run_of_session(&held.session).await.unwrap(),
        Some(second)
    );
    // Nor can the old one come back to life beside it.
    held.state = RunState::Running;
    let error = store.put(&held).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionBusy);
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_run_or_an_attempt_is_not_reserved_twice() {
    let (_home, state) = open();
    let store = state.store();
    let wanted = reservation("r1", "s1");
    store.reserve(wanted.clone()).await.unwrap();
    let mut same_run = reservation("r1", "s2");
    let error = store.reserve(same_run.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    same_run.record.run = RunId::new("r2").unwrap();
    same_run.record.attempt = wanted.record.attempt;
    same_run.armed.clear();
    let error = store.reserve(same_run).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);

    let mut foreign = reservation("r3", "s3");
    foreign.armed[1].attempt = AttemptId::generate().unwrap();
    let error = store.reserve(foreign).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let mut twice = reservation("r3", "s3");
    twice.armed[1].key = "branch".to_owned();
    let error = store.reserve(twice).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(store.runs().await.unwrap().len(), 1);
    assert_eq!(store.attempts().await.unwrap().len(), 1);
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_write_that_names_another_revision_changes_nothing() {
    let (_home, state) = open();
    let store = state.store();
    let read = store.reserve(reservation("r1", "s1")).await.unwrap();
    let mut mine = read.clone();
    mine.title = Some("mine".to_owned());
    let mine = store.put(&mine).await.unwrap();
    assert_eq!(mine.revision, 2);

    let conflict = |error: Error| assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    conflict(store.put(&read).await.unwrap_err());
    conflict(store.commit(&read).await.unwrap_err());
    let mut outdated = read.clone();
    outdated.attempt = AttemptId::generate().unwrap();
    conflict(
        store
            .reserve(Reservation {
                armed: vec![undo(outdated.attempt, "instance", Due::End)],
                record: outdated,
                resumes: true,
            })
            .await
            .unwrap_err(),
    );
    conflict(store.put(&record("r9", "s9")).await.unwrap_err());
    assert_eq!(store.runs().await.unwrap(), [mine]);
    let attempts = store.attempts().await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].phase, AttemptPhase::Launching);
    assert_eq!(attempts[0].armed.len(), 2);
}

#[tokio::test]
async fn a_resumption_gives_the_run_a_new_attempt_beside_the_old_one() {
    let (_home, state) = open();
    let store = state.store();
    let first = store.reserve(reservation("r1", "s1")).await.unwrap();
    let first_attempt = first.attempt;
    let mut read = store.commit(&first).await.unwrap();
    read.attempt = AttemptId::generate().unwrap();
    let resumed = store
        .reserve(Reservation {
            armed: vec![undo(read.attempt, "instance", Due::End)],
            record: read.clone(),
            resumes: true,
        })
        .await
        .unwrap();
    assert_eq!(resumed.revision, read.revision + 1);
    let of: Vec<_> = store
        .attempts_of(&resumed.run)
        .await
        .unwrap()
        .iter()
        .map(|row| (row.attempt, row.resumes, row.armed.len()))
        .collect();
    assert_eq!(of, [(first_attempt, false, 1), (read.attempt, true, 1)]);
    assert_eq!(
        store
            .attempts_of(&RunId::new("other").unwrap())
            .await
            .unwrap(),
        []
    );
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_commit_drops_what_was_due_on_failure_only_and_writes_the_record() {
    let (_home, state) = open();
    let store = state.store();
    let mut run = store.reserve(reservation("r1", "s1")).await.unwrap();
    run.state = RunState::Running;
    let committed = store.commit(&run).await.unwrap();
    assert_eq!(
        (committed.state, committed.revision),
        (RunState::Running, 2)
    );
    let rows = store.attempts().await.unwrap();
    assert_eq!(rows[0].phase, AttemptPhase::Committed);
    let keys: Vec<_> = rows[0]
        .armed
        .iter()
        .map(|a| a.record.key.as_str())
        .collect();
    assert_eq!(keys, ["branch"]);

    // A rollback that somebody else began is not overtaken by a commit.
    let other = store.reserve(reservation("r2", "s2")).await.unwrap();
    store.begin_unwind(other.attempt, FAILURE).await.unwrap();
    let error = store.commit(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let rows = store.attempts_of(&other.run).await.unwrap();
    assert_eq!(rows[0].phase, AttemptPhase::Unwinding(FAILURE));
    assert_eq!(rows[0].armed.len(), 2);

    let stranger = record("r3", "s3");
    let error = store.commit(&stranger).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    store.check().await.unwrap();
}

#[tokio::test]
async fn undo_records_are_armed_identified_failed_and_retired() {
    let (_home, state) = open();
    let store = state.store();
    let run = store.reserve(reservation("r1", "s1")).await.unwrap();
    let late = undo(run.attempt, "snapshot", Due::Close);
    store.arm(&late).await.unwrap();
    // Asked again because the answer was lost: still one.
    store.arm(&late).await.unwrap();
    let mut other = late.clone();
    other.resource = "another".to_owned();
    let error = store.arm(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    other.attempt = AttemptId::generate().unwrap();
    let error = store.arm(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);

    let inode = Identity("7:4711".to_owned());
    store.identify(run.attempt, "branch", &inode).await.unwrap();
    let report = ErrorReport::from(&Error::new(ErrorKind::Unavailable, "the engine is away"));
    for _ in 0..2 {
        store
            .note_failure(run.attempt, "snapshot", &report)
            .await
            .unwrap();
    }
    let error = store
        .identify(run.attempt, "none", &inode)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = store
        .note_failure(run.attempt, "none", &report)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);

    let armed = store.attempts().await.unwrap().remove(0).armed;
    let keys: Vec<_> = armed.iter().map(|a| a.record.key.as_str()).collect();
    assert_eq!(keys, ["branch", "reservation", "snapshot"]);
    assert_eq!(armed[0].record.identity, Some(inode));
    assert_eq!((armed[0].tries, &armed[0].last_error), (0, &None));
    assert_eq!((armed[2].tries, &armed[2].last_error), (2, &Some(report)));

    let error = store.forget(run.attempt).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.get("armed"), Some("3"));
    for key in ["branch", "snapshot", "reservation", "reservation"] {
        store.retire(run.attempt, key).await.unwrap();
    }
    store.check().await.unwrap();
    store.forget(run.attempt).await.unwrap();
    store.forget(run.attempt).await.unwrap();
    store.retire(run.attempt, "branch").await.unwrap();
    assert_eq!(store.attempts_of(&run.run).await.unwrap(), []);
    store.check().await.unwrap();
}

#[tokio::test]
async fn attempts_are_those_that_own_something_or_are_under_way() {
    let (_home, state) = open();
    let store = state.store();
    let mut bare = reservation("r1", "s1");
    bare.armed.clear();
    let bare = store.reserve(bare).await.unwrap();
    let owner = store.reserve(reservation("r2", "s2")).await.unwrap();
    let listed = async || -> Vec<AttemptId> {
        let rows = store.attempts().await.unwrap();
        rows.iter().map(|row| row.attempt).collect()
    };
    assert_eq!(listed().await, [bare.attempt, owner.attempt], "both launch");
    store.commit(&bare).await.unwrap();
    assert_eq!(listed().await, [owner.attempt], "nothing owned, at rest");
    assert_eq!(store.attempts_of(&bare.run).await.unwrap().len(), 1);
    store.begin_unwind(bare.attempt, FAILURE).await.unwrap();
    assert_eq!(listed().await, [bare.attempt, owner.attempt]);
    store.rest(bare.attempt).await.unwrap();
    assert_eq!(listed().await, [owner.attempt]);
    store.forget(bare.attempt).await.unwrap();
    for attempt in [bare.attempt, AttemptId::generate().unwrap()] {
        let error = store.rest(attempt).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn a_record_is_deleted_only_if_it_names_the_attempt() {
    let (_home, state) = open();
    let store = state.store();
    let run = store.reserve(reservation("r1", "s1")).await.unwrap();
    store
        .delete(&run.run, AttemptId::generate().unwrap())
        .await
        .unwrap();
    assert_eq!(store.runs().await.unwrap().len(), 1);
    store.delete(&run.run, run.attempt).await.unwrap();
    store.delete(&run.run, run.attempt).await.unwrap();
    assert_eq!(store.run(&run.run).await.unwrap(), None);
    assert_eq!(
        store
            .run_of_session(&SessionId::new("s1").unwrap())
            .await
            .unwrap(),
        None
    );
    // What the attempt owns outlives the record.
    assert_eq!(store.attempts().await.unwrap()[0].armed.len(), 2);
    store.check().await.unwrap();
}

#[tokio::test]
async fn runs_are_listed_oldest_first_whatever_the_clock_said() {
    let (_home, state) = open();
    let store = state.store();
    for (n, created) in [30, 10, 20].into_iter().enumerate() {
        let mut wanted = reservation(&format!("r{n}"), &format!("s{n}"));
        wanted.record.created_ms = created;
        store.reserve(wanted).await.unwrap();
    }
    let ids: Vec<_> = store
        .runs()
        .await
        .unwrap()
        .iter()
        .map(|r| r.run.to_string())
        .collect();
    assert_eq!(ids, ["r0", "r1", "r2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verb_that_is_dropped_happens_wholly_or_not_at_all() {
    let (_home, state) = open();
    let store = state.store();
    for n in 0..40_u64 {
        let wanted = reservation(&format!("r{n}"), &format!("s{n}"));
        let reserve = store.reserve(wanted);
        let _dropped =
            tokio::time::timeout(std::time::Duration::from_micros(n * 40), reserve).await;
    }
    // What was dropped last may still be at work: the two lists are of one moment when nothing changed between them.
    let (attempts, runs) = loop {
        let before = store.attempts().await.unwrap();
        let runs = store.runs().await.unwrap().len();
        if before == store.attempts().await.unwrap() {
            break (before, runs);
        }
    };
    assert_eq!(attempts.len(), runs);
    assert!(attempts.iter().all(|row| row.armed.len() == 2));
    store.check().await.unwrap();
}

#[tokio::test]
async fn i14_an_attempt_is_handed_over_whole_and_everything_still_adds_up() {
    let (home, state) = open();
    let store = state.store();
    let one = store.reserve(reservation("r1", "s1")).await.unwrap();
    let two = store.reserve(reservation("r2", "s2")).await.unwrap();
    let owned = store.attempts_of(&one.run).await.unwrap()[0].armed.len();
    store.begin_unwind(one.attempt, FAILURE).await.unwrap();
    let nobody = RunId::new("nobody").unwrap();
    let refused = store.hand_over(one.attempt, &nobody, &two.session).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    for _ in 0..2 {
        store
            .hand_over(one.attempt, &two.run, &two.session)
            .await
            .unwrap();
    }
    let store = StateDirectory::open(home.path()).unwrap().store();
    assert!(store.attempts_of(&one.run).await.unwrap().is_empty());
    let rows = store.attempts_of(&two.run).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].attempt, &rows[0].session),
        (one.attempt, &two.session)
    );
    assert_eq!(
        (rows[0].phase, rows[0].armed.len()),
        (AttemptPhase::Committed, owned)
    );
    assert_eq!(
        rows[0].armed[0].record.attempt, one.attempt,
        "the mark stays"
    );
    store.check().await.unwrap();
    let unknown = AttemptId::generate().unwrap();
    store
        .hand_over(unknown, &two.run, &two.session)
        .await
        .unwrap();
}
