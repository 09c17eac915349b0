//! Connections to the database file: how they are set up, and what is checked before one is trusted.
//!
//! * Never opens the file but through `SQLite`: closing another descriptor would drop `SQLite`'s locks in this process.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_core::{error::Error, id::InstallId};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};

use crate::{
    fault::{Fault, corrupt, corrupt_file},
    files,
    mark::Mark,
    meta::load_meta,
    schema::{schema_sum, version_of},
};

/// The file's name.
pub(crate) const NAME: &str = "state.db";

/// What the write-ahead log has room for on a full disk, in bytes.
const HEADROOM: u64 = 1 << 20;

/// After so many pages the log is folded into the database, well before the headroom ends.
const CHECKPOINT_PAGES: u32 = 200;

/// A database file, and its mark.
#[derive(Debug)]
pub(crate) struct Database {
    path: PathBuf,
    patience: Duration,
    pub(crate) mark: Mark,
}

impl Database {
    /// Names a database; nothing of it is opened yet.
    pub(crate) fn new(path: &Path, patience: Duration) -> Result<Self, Error> {
        Ok(Self {
            path: path.to_owned(),
            patience,
            mark: Mark::open(path.parent().unwrap_or(path))?,
        })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a connection to a database that must exist.
    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        const WHAT: &str = "open the database";
        // SQLite takes an empty file for a new database, and then deletes the write-ahead log beside it.
        match files::size_of(&self.path) {
            Ok(Some(0)) => return Err(corrupt_file(&self.path, "the database is empty")),
            Ok(Some(_)) => {}
            Ok(None) => return Err(corrupt_file(&self.path, "the database is gone")),
            Err(error) => return Err(files::failed("cannot open the database", &self.path, error)),
        }
        open(&self.path, self.patience, OpenFlags::empty())
            .map_err(|fault| fault.into_error(&self.path, WHAT))
    }

    /// Checks, before anything is believed, that the database is whole as far as a look can tell, and newest.
    pub(crate) fn verify(&self, db: &mut Connection) -> Result<InstallId, Error> {
        let acknowledged = self.mark.read()?;
        self.verified(db, acknowledged)
            .map_err(|fault| fault.into_error(&self.path, "read the database"))
    }

    fn verified(&self, db: &mut Connection, acknowledged: i64) -> Result<InstallId, Fault> {
        let tx = db.transaction_with_behavior(TransactionBehavior::Deferred)?;
        version_of(&tx)?;
        let meta = load_meta(&tx)?;
        if meta.schema_sum != schema_sum(&tx)? {
            return Err(corrupt("the tables are not declared as they were made").into());
        }
        self.mark.check(acknowledged, meta.writes)?;
        InstallId::new(meta.install).map_err(|error| {
            corrupt("the install id in the database is damaged")
                .with_source(error)
                .into()
        })
    }

    /// Returns whether the write-ahead log has its room.
    pub(crate) fn has_headroom(&self) -> bool {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        matches!(files::size_of(Path::new(&log)), Ok(Some(size)) if size >= HEADROOM)
    }
}

/// Gives the log and the database room to write in when the disk is full, so that a rollback can be noted.
pub(crate) fn make_headroom(db: &Connection) -> rusqlite::Result<()> {
    // Two transactions: pages that are freed in the one that filled them would never reach the log.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.execute("DELETE FROM headroom", [])?;
    db.execute(
        "INSERT INTO headroom (filler) VALUES (zeroblob(?1))",
        [i64::try_from(HEADROOM).unwrap_or(i64::MAX)],
    )?;
    db.execute("DELETE FROM headroom", [])?;
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "FULL")
}

/// Opens a connection with our settings; `extra` may allow to create the file.
pub(crate) fn open(path: &Path, patience: Duration, extra: OpenFlags) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | extra;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(patience)?;
    // The log stays: making it anew would cost two more fsyncs at every start, and a read-only directory could not
    // be read at all.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    db.pragma_update(None, "cell_size_check", true)?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g19_connections_are_set_up_to_keep_what_they_acknowledge() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NAME);
        Connection::open(&path)
            .unwrap()
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x TEXT) STRICT")
            .unwrap();
        let db = open(&path, Duration::from_secs(20), OpenFlags::empty()).unwrap();
        let pragma =
            |name: &str| -> i64 { db.pragma_query_value(None, name, |row| row.get(0)).unwrap() };
        assert_eq!(pragma("synchronous"), 2, "FULL");
        assert_eq!(pragma("foreign_keys"), 1);
        assert_eq!(pragma("busy_timeout"), 20_000);
        let mode: String = db
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
    }
}
