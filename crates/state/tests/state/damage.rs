//! Damaged files: always an error that names the file, never a panic, never a wrong answer, never a repair unasked.

use std::{
    fs,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{RunId, SessionId},
    store::{AttemptRow, RunRecord, RunState, StateStore as _},
};
use groundcrew_state::StateDirectory;

use crate::support::{reservation, spawn};

/// What a directory holds, as an outsider reads it.
type Contents = (Vec<RunRecord>, Vec<AttemptRow>);

/// Makes a state directory with some history in another process, so that nothing of it is open here.
fn history(home: &Path) {
    spawn("write", home, "h").finish();
}

fn read(home: &Path) -> Result<Contents, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = StateDirectory::open(home)?.store();
        Ok((store.runs().await?, store.attempts().await?))
    })
}

/// Reads single rows, through the indexes, and then writes one more; each answer is right or an error.
fn use_it(home: &Path, right: &Contents, what: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = StateDirectory::open(home).unwrap().store();
        for run in &right.0 {
            match store.run(&run.run).await {
                Ok(found) => assert_eq!(found.as_ref(), Some(run), "{what}"),
                Err(error) => damaged(&error),
            }
            match store.attempts_of(&run.run).await {
                Ok(found) => assert!(found.len() == 1 && found[0].armed.len() == 2, "{what}"),
                Err(error) => damaged(&error),
            }
            match store.run_of_session(&run.session).await {
                Ok(found) => assert_eq!(found, None, "{what}"),
                Err(error) => damaged(&error),
            }
        }
        let wanted = reservation("more", "more");
        let written = match store.reserve(wanted).await {
            Ok(run) => Some(run),
            Err(error) => {
                damaged(&error);
                None
            }
        };
        match store.runs().await {
            Ok(found) => {
                let all: Vec<_> = right.0.iter().cloned().chain(written).collect();
                assert_eq!(found, all, "{what}");
            }
            Err(error) => damaged(&error),
        }
    });
}

fn copy(from: &Path, to: &Path) {
    let _fresh = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
}

/// Folds the log into the database, so that damage to either can be told apart.
fn fold(home: &Path) {
    let db = rusqlite::Connection::open(home.join("state.db")).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
}

fn damaged(error: &Error) {
    // A damaged header can also make SQLite believe that it may not write.
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Corrupt | ErrorKind::PermissionDenied
        ),
        "{error:?}"
    );
    assert!(error.get("path").is_some(), "{error:?}");
    assert!(error.get("hint").is_some(), "{error:?}");
}

/// Checks that an answer is the right one or an error.
fn never_wrong(home: &Path, right: &Contents, what: &str) -> bool {
    match read(home) {
        Ok(found) => {
            assert_eq!(found, *right, "{what}");
            use_it(home, right, what);
            false
        }
        Err(error) => {
            damaged(&error);
            true
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

fn scene() -> (tempfile::TempDir, PathBuf, PathBuf, Contents) {
    let root = tempfile::tempdir().unwrap();
    let (whole, broken) = (root.path().join("whole"), root.path().join("broken"));
    history(&whole);
    let right = read(&whole).unwrap();
    assert_eq!((right.0.len(), right.1.len()), (30, 30));
    (root, whole, broken, right)
}

#[test]
fn f132_g19_flipped_bits_in_the_database_are_noticed_or_harmless() {
    let (_root, whole, broken, right) = scene();
    fold(&whole);
    let good = fs::read(whole.join("state.db")).unwrap();
    // Pages in use: those of the headroom are empty but for a few bytes.
    let pages: Vec<usize> = (0..good.len() / 4096)
        .filter(|page| {
            let page = &good[page * 4096..][..4096];
            page.iter().filter(|byte| **byte != 0).count() > 64
        })
        .collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut noticed = 0;
    for round in 0..100 {
        copy(&whole, &broken);
        let mut bytes = good.clone();
        // Half of the blows go to heads of pages, where one bit changes most.
        let reach = if round % 2 == 0 { 100 } else { 4096 };
        let at = pages[random.below(pages.len())] * 4096 + random.below(reach);
        let bit = random.below(8);
        bytes[at] ^= 1 << bit;
        fs::write(broken.join("state.db"), bytes).unwrap();
        noticed += u32::from(never_wrong(
            &broken,
            &right,
            &format!("byte {at} bit {bit}"),
        ));
    }
    assert!(noticed >= 10, "only {noticed}");
}

#[test]
fn f132_g19_flipped_bits_in_the_log_never_lose_what_was_acknowledged() {
    let (_root, whole, broken, right) = scene();
    let good = fs::read(whole.join("state.db-wal")).unwrap();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut noticed = 0;
    for _ in 0..60 {
        copy(&whole, &broken);
        let mut bytes = good.clone();
        let (at, bit) = (random.below(bytes.len()), random.below(8));
        bytes[at] ^= 1 << bit;
        fs::write(broken.join("state.db-wal"), bytes).unwrap();
        noticed += u32::from(never_wrong(
            &broken,
            &right,
            &format!("byte {at} bit {bit}"),
        ));
    }
    assert!(noticed >= 5, "only {noticed}");
}

#[test]
fn f132_g19_a_truncated_log_is_noticed() {
    let (_root, whole, broken, right) = scene();
    let good = fs::read(whole.join("state.db-wal")).unwrap();
    // The frames in use are those with the salt of the head.
    let frames = (0..(good.len() - 32) / 4120)
        .take_while(|n| good[32 + n * 4120 + 8..][..8] == good[16..24])
        .count();
    assert!(frames > 1);
    let end = 32 + frames * 4120;
    for cut in (1..=16)
        .chain((17..4140).step_by(257))
        .chain([end - 32, end])
    {
        copy(&whole, &broken);
        fs::write(broken.join("state.db-wal"), &good[..end - cut]).unwrap();
        let what = format!("cut {cut}");
        assert!(never_wrong(&broken, &right, &what), "not noticed: {what}");
    }
    copy(&whole, &broken);
    fs::remove_file(broken.join("state.db-wal")).unwrap();
    assert!(never_wrong(&broken, &right, "no log"));
}

#[test]
fn f132_a_truncated_database_is_an_error_and_stays_as_it_is() {
    let (_root, whole, broken, right) = scene();
    fold(&whole);
    let good = fs::read(whole.join("state.db")).unwrap();
    let ends = [
        0, 1, 15, 16, 99, 100, 511, 512, 1000, 4095, 4096, 4097, 8192, 20_000,
    ];
    for end in ends {
        copy(&whole, &broken);
        fs::write(broken.join("state.db"), &good[..end]).unwrap();
        assert!(never_wrong(&broken, &right, &format!("cut to {end}")));
        // Not by a second try either.
        assert!(never_wrong(
            &broken,
            &right,
            &format!("again, cut to {end}")
        ));
        assert_eq!(fs::read(broken.join("state.db")).unwrap(), &good[..end]);
    }
    for cut in (1..4096).step_by(409) {
        copy(&whole, &broken);
        fs::write(broken.join("state.db"), &good[..good.len() - cut]).unwrap();
        never_wrong(&broken, &right, &format!("cut by {cut}"));
    }
}

#[test]
fn f132_an_empty_a_missing_and_a_foreign_database_are_not_made_anew() {
    let (_root, whole, broken, _) = scene();
    let install = fs::read(whole.join("install-id")).unwrap();
    let corrupt = |words: &str| {
        let error = read(&broken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.message().contains(words), "{error}");
        assert_eq!(error.get("path"), broken.join("state.db").to_str());
        assert_eq!(
            fs::read(broken.join("install-id")).ok(),
            Some(install.clone())
        );
    };
    copy(&whole, &broken);
    fs::write(broken.join("state.db"), "").unwrap();
    corrupt("empty");
    assert!(
        broken.join("state.db-wal").exists(),
        "the log may hold the rest"
    );
    copy(&whole, &broken);
    fs::remove_file(broken.join("state.db")).unwrap();
    corrupt("gone");
    assert!(!broken.join("state.db").exists());
    copy(&whole, &broken);
    fs::remove_file(broken.join("state.db-wal")).unwrap();
    fs::write(
        broken.join("state.db"),
        "not a database, but long enough to be one\n".repeat(200),
    )
    .unwrap();
    corrupt("damaged");
    fs::remove_file(broken.join("state.db")).unwrap();
    rusqlite::Connection::open(broken.join("state.db"))
        .unwrap()
        .execute_batch("CREATE TABLE foreigner (x); PRAGMA user_version = 1")
        .unwrap();
    corrupt("not a database of groundcrew");
}

#[test]
fn f132_what_is_left_of_a_database_is_not_overwritten_without_an_install_id_either() {
    let (_root, whole, broken, right) = scene();
    copy(&whole, &broken);
    fs::remove_file(broken.join("install-id")).unwrap();
    fs::remove_file(broken.join("state.db")).unwrap();
    let mark = fs::read(broken.join("state.mark")).unwrap();
    fs::remove_file(broken.join("state.mark")).unwrap();
    let error = read(&broken).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("its log is there"), "{error}");
    fs::remove_file(broken.join("state.db-wal")).unwrap();
    fs::write(broken.join("state.mark"), mark).unwrap();
    let error = read(&broken).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.get("remedy").unwrap().contains("state.mark"),
        "{error}"
    );
    assert!(!broken.join("state.db").exists());

    // A lost id is read from the database, whose it is.
    copy(&whole, &broken);
    fs::remove_file(broken.join("install-id")).unwrap();
    assert_eq!(read(&broken).unwrap(), right);
    assert_eq!(
        fs::read(broken.join("install-id")).unwrap(),
        fs::read(whole.join("install-id")).unwrap()
    );
}

#[test]
fn f132_an_unknown_newer_version_is_refused() {
    let (_root, whole, broken, right) = scene();
    fold(&whole);
    copy(&whole, &broken);
    let set = |version: i64| {
        rusqlite::Connection::open(broken.join("state.db"))
            .unwrap()
            .pragma_update(None, "user_version", version)
            .unwrap();
    };
    for version in [2, 1000, -1, 0] {
        set(version);
        let error = read(&broken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert_eq!(error.get("version"), Some(version.to_string().as_str()));
        if version > 1 {
            assert!(error.message().contains("newer groundcrew"), "{error}");
        }
    }
    set(1);
    assert_eq!(read(&broken).unwrap(), right);
}

#[tokio::test]
async fn f132_a_database_that_another_program_migrates_is_left_alone_from_then_on() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    let store = state.store();
    let run = store.reserve(reservation("r", "s")).await.unwrap();
    let other = rusqlite::Connection::open(state.database_path()).unwrap();
    other.pragma_update(None, "user_version", 2).unwrap();
    for error in [
        store.put(&run).await.unwrap_err(),
        store.runs().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(!error.is_retryable());
    }
    other.pragma_update(None, "user_version", 1).unwrap();
    store.put(&run).await.unwrap();
}

#[test]
fn f132_a_damaged_install_id_and_a_damaged_mark_are_named() {
    let (_root, whole, broken, _) = scene();
    for (file, text) in [
        ("install-id", &b""[..]),
        ("install-id", b"abc"),
        ("install-id", b"../../x\n"),
        ("install-id", b"\xff\xfe\n"),
        ("install-id", b"anotherinstall22\n"),
        ("state.mark", b"nonsense"),
        ("state.mark", b"0123456789abcdef"),
    ] {
        copy(&whole, &broken);
        fs::write(broken.join(file), text).unwrap();
        let error = read(&broken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert_eq!(error.get("path"), broken.join(file).to_str());
        assert_eq!(fs::read(broken.join(file)).unwrap(), text);
    }
    // A machine that crashed may leave the mark empty: it is never forced to the disk.
    copy(&whole, &broken);
    fs::write(broken.join("state.mark"), "").unwrap();
    read(&broken).unwrap();
}

#[tokio::test]
async fn f132_one_damaged_record_is_named_and_does_not_make_others_absent() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    let store = state.store();
    for id in ["r1", "r2"] {
        store.reserve(reservation(id, id)).await.unwrap();
    }
    let db = rusqlite::Connection::open(state.database_path()).unwrap();
    for sql in [
        "UPDATE runs SET record = replace(record, 'words', 'swords') WHERE run = 'r2'",
        "UPDATE runs SET state = 'closed' WHERE run = 'r2'",
        "UPDATE runs SET revision = 7 WHERE run = 'r2'",
    ] {
        let backup: (String, String, i64) = db
            .query_row(
                "SELECT record, state, revision FROM runs WHERE run = 'r2'",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        db.execute_batch(sql).unwrap();
        for error in [
            store.runs().await.unwrap_err(),
            store.run(&RunId::new("r2").unwrap()).await.unwrap_err(),
            store.check().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
            assert_eq!(error.get("run"), Some("r2"));
        }
        let other = store.run(&RunId::new("r1").unwrap()).await.unwrap();
        assert_eq!(other.unwrap().state, RunState::Preparing);
        db.execute(
            "UPDATE runs SET record = ?1, state = ?2, revision = ?3 WHERE run = 'r2'",
            rusqlite::params![backup.0, backup.1, backup.2],
        )
        .unwrap();
        store.check().await.unwrap();
    }
    // A row that vanished is not absent.
    db.execute_batch("DELETE FROM runs WHERE run = 'r2'")
        .unwrap();
    let session = SessionId::new("r2").unwrap();
    for error in [
        store.runs().await.map(drop).unwrap_err(),
        store
            .run(&RunId::new("r2").unwrap())
            .await
            .map(drop)
            .unwrap_err(),
        store.run_of_session(&session).await.map(drop).unwrap_err(),
        store.check().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    }
    db.execute_batch("DELETE FROM undo WHERE key = 'branch'")
        .unwrap();
    let error = store.attempts().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.get("attempt").is_some());
}

#[tokio::test]
async fn f132_an_index_that_no_longer_guards_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(home.path()).unwrap();
    state.store().reserve(reservation("r", "s")).await.unwrap();
    rusqlite::Connection::open(state.database_path())
        .unwrap()
        .execute_batch("DROP INDEX one_live_run_of_a_session")
        .unwrap();
    assert_eq!(
        state.store().check().await.unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    let error = StateDirectory::open(home.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
}
