//! The versions of the database, and the way from each to the newest.

use std::path::Path;

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::InstallId,
};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::{
    fault::{Fault, corrupt},
    files,
    meta::{Meta, load_meta, store_meta},
    seal::{Sum, Tally},
};

/// What `PRAGMA application_id` says: `gcrw`.
pub(crate) const APPLICATION: i32 = 0x6763_7277;

/// The steps, oldest first: the n-th leads from version n to version n + 1.
///
/// * A published step is never changed.
/// * A step that changes what a row holds must seal the row anew; the marks are in [`seal`](crate::seal).
pub(crate) const STEPS: &[&str] = &[include_str!("../schema/1.sql")];

/// The version that this program reads and writes.
pub(crate) const VERSION: usize = STEPS.len();

/// Returns the version of a database that is ours.
pub(crate) fn version_of(db: &Connection) -> Result<usize, Fault> {
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION {
        return Err(corrupt("the file is not a database of groundcrew").into());
    }
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match usize::try_from(version) {
        Ok(version) if (1..=VERSION).contains(&version) => Ok(version),
        Ok(version) if version > VERSION => Err(Fault::Own(
            corrupt("the database was written by a newer groundcrew")
                .with("version", version)
                .with("known", VERSION)
                .with("remedy", "update groundcrew"),
        )),
        _ => Err(Fault::Own(
            corrupt("the database has a version that never existed").with("version", version),
        )),
    }
}

/// Checks, inside a transaction, that nobody migrated the database since it was opened.
pub(crate) fn still_current(tx: &Transaction<'_>) -> Result<(), Fault> {
    let version: i64 = tx
        .prepare_cached("PRAGMA user_version")?
        .query_row([], |row| row.get(0))?;
    if usize::try_from(version) == Ok(VERSION) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        "another groundcrew changed the version of the database meanwhile",
    )
    .with("version", version)
    .with("known", VERSION)
    .with(
        "hint",
        "start this program again, in the same version as the other",
    )
    .retryable(false)
    .into())
}

/// Fills an empty database.
pub(crate) fn create(db: &mut Connection, install: &InstallId) -> Result<(), Fault> {
    create_with(db, install, STEPS)
}

fn create_with(db: &mut Connection, install: &InstallId, steps: &[&str]) -> Result<(), Fault> {
    db.pragma_update(None, "application_id", APPLICATION)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in steps {
        tx.execute_batch(step)?;
    }
    set_version(&tx, steps.len())?;
    store_meta(
        &tx,
        &Meta {
            install: install.to_string(),
            writes: 0,
            schema_sum: schema_sum(&tx)?,
            runs: Tally::default(),
            attempts: Tally::default(),
        },
    )?;
    tx.commit()?;
    Ok(())
}

/// Leads a database of an older version to the newest, after a copy of it was written beside it.
pub(crate) fn upgrade(db: &mut Connection, path: &Path) -> Result<(), Fault> {
    let from = version_of(db)?;
    upgrade_with(db, path, from, STEPS)
}

fn upgrade_with(
    db: &mut Connection,
    path: &Path,
    from: usize,
    steps: &[&str],
) -> Result<(), Fault> {
    if from >= steps.len() {
        return Ok(());
    }
    copy_before(db, path, from)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut meta = load_meta(&tx)?;
    for step in &steps[from..] {
        tx.execute_batch(step)?;
    }
    set_version(&tx, steps.len())?;
    meta.schema_sum = schema_sum(&tx)?;
    meta.writes += 1;
    store_meta(&tx, &meta)?;
    tx.commit()?;
    Ok(())
}

fn copy_before(db: &Connection, path: &Path, from: usize) -> Result<(), Fault> {
    let copy = path.with_extension(format!("db.v{from}"));
    let draft = path.with_extension(format!("db.v{from}.new"));
    let failed = |error| {
        files::failed(
            "cannot copy the database before its migration",
            &copy,
            error,
        )
    };
    files::remove_if_there(&draft).map_err(failed)?;
    // SQLite fills an empty file, which keeps our mode.
    drop(files::create_private(&draft).map_err(failed)?);
    let Some(name) = draft.to_str() else {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "a state directory whose name is not UTF-8 cannot be migrated",
        )
        .with("path", path.display())
        .with("hint", "rename the directory and set GROUNDCREW_HOME to it")
        .into());
    };
    db.execute("VACUUM INTO ?1", [name])?;
    std::fs::File::open(&draft)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&draft, &copy))
        .and_then(|()| files::sync_directory(path.parent().unwrap_or(path)))
        .map_err(failed)?;
    Ok(())
}

fn set_version(tx: &Transaction<'_>, version: usize) -> Result<(), Fault> {
    let version = i64::try_from(version).map_err(|_| corrupt("a version is out of range"))?;
    tx.pragma_update(None, "user_version", version)?;
    Ok(())
}

/// Adds up what tables and indexes are declared as; a damaged declaration would weaken what they promise.
pub(crate) fn schema_sum(db: &Connection) -> Result<i64, Fault> {
    let mut statement =
        db.prepare_cached("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")?;
    let mut rows = statement.query([])?;
    let mut sum = Sum::new("schema");
    while let Some(row) = rows.next()? {
        sum = sum
            .text(&row.get::<_, String>(0)?)
            .text(&row.get::<_, String>(1)?)
            .optional(row.get::<_, Option<String>>(2)?.as_deref());
    }
    Ok(sum.end())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const TWO: &str =
        "ALTER TABLE meta ADD COLUMN note TEXT; CREATE TABLE extra (n INTEGER) STRICT;";
    const THREE: &str = "DROP TABLE extra;";

    /// Every version that ever was, and two that are yet to come.
    fn history() -> Vec<&'static str> {
        STEPS.iter().copied().chain([TWO, THREE]).collect()
    }

    #[test]
    fn f132_each_old_version_leads_to_the_newest_and_leaves_a_copy() {
        let steps = history();
        for from in 1..=steps.len() {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("state.db");
            let mut db = Connection::open(&path).unwrap();
            let install = InstallId::generate().unwrap();
            create_with(&mut db, &install, &steps[..from]).unwrap();

            upgrade_with(&mut db, &path, from, &steps).unwrap();
            let version: usize = db
                .pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
                .unwrap()
                .try_into()
                .unwrap();
            assert_eq!(version, steps.len());
            let meta = load_meta(&db).unwrap();
            assert_eq!(meta.install, install.as_str());
            assert_eq!(meta.schema_sum, schema_sum(&db).unwrap());

            let copy = home.path().join(format!("state.db.v{from}"));
            assert_eq!(copy.exists(), from < steps.len(), "from {from}");
            if copy.exists() {
                assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
                let old = Connection::open(&copy).unwrap();
                let version: i64 = old
                    .pragma_query_value(None, "user_version", |row| row.get(0))
                    .unwrap();
                assert_eq!(usize::try_from(version), Ok(from));
                assert_eq!(load_meta(&old).unwrap().install, install.as_str());
            }
        }
    }

    #[test]
    fn f132_a_step_that_fails_leaves_the_old_version_whole() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state.db");
        let mut db = Connection::open(&path).unwrap();
        create(&mut db, &InstallId::generate().unwrap()).unwrap();
        let steps: Vec<&str> = STEPS
            .iter()
            .copied()
            .chain([TWO, "CREATE TABLE runs (again INTEGER);"])
            .collect();
        upgrade_with(&mut db, &path, VERSION, &steps).unwrap_err();
        assert_eq!(version_of(&db).unwrap(), VERSION);
        assert_eq!(load_meta(&db).unwrap().schema_sum, schema_sum(&db).unwrap());
    }
}
