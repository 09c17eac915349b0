//! How a state directory comes to be, once, however many processes begin at the same time.
//!
//! * `install-id` is written last: where it is, a database was.
//! * Never makes a database where one was.

use std::{fs, path::Path, time::Duration};

use groundcrew_core::{error::Error, id::InstallId};
use rusqlite::OpenFlags;

use crate::{
    database::{self, Database},
    fault::{Fault, corrupt, corrupt_file},
    files, schema,
};

/// The file that names the installation.
pub(crate) const INSTALL: &str = "install-id";

/// The lock under which a directory is made and migrated, below `locks/`.
pub(crate) const LOCK: &str = "locks/state";

/// Opens the database of a directory, after it was made, migrated, or given its room, if that is due.
pub(crate) fn open(home: &Path, patience: Duration) -> Result<(InstallId, Database), Error> {
    let database = Database::new(&home.join(database::NAME), patience)?;
    if let Some(install) = read_install(home)? {
        let mut db = database.connect()?;
        let version = schema::version_of(&db).map_err(|fault| read_failed(&database, fault))?;
        if version == schema::VERSION && database.has_headroom() {
            check_same(home, &install, &database.verify(&mut db)?)?;
            return Ok((install, database));
        }
    }
    let lock = files::lock_within(&home.join(LOCK), patience);
    let lock = match lock {
        Ok(lock) => lock,
        // Where nothing can be written there is nothing to make either: what is there can be read.
        Err(error) => return read_only(home, database, error),
    };
    let install = settle(home, &database, patience)?;
    drop(lock);
    Ok((install, database))
}

fn read_failed(database: &Database, fault: Fault) -> Error {
    fault.into_error(database.path(), "read the database")
}

fn read_only(
    home: &Path,
    database: Database,
    error: Error,
) -> Result<(InstallId, Database), Error> {
    let Some(install) = read_install(home)? else {
        return Err(error);
    };
    let mut db = database.connect()?;
    let version = schema::version_of(&db).map_err(|fault| read_failed(&database, fault))?;
    if version != schema::VERSION {
        return Err(error);
    }
    check_same(home, &install, &database.verify(&mut db)?)?;
    Ok((install, database))
}

fn settle(home: &Path, database: &Database, patience: Duration) -> Result<InstallId, Error> {
    let path = database.path();
    let known = read_install(home)?;
    let size =
        files::size_of(path).map_err(|e| files::failed("cannot open the database", path, e))?;
    let found = match (known, size) {
        (None, None | Some(0)) => {
            refuse_orphans(path)?;
            database
                .mark
                .check(database.mark.read()?, 0)
                .map_err(|error| Fault::Own(error).into_error(path, "make the database"))?;
            let install = InstallId::generate()?;
            make(path, &install, patience)?;
            None
        }
        (known, _) => known,
    };
    let mut db = database.connect()?;
    schema::upgrade(&mut db, path)
        .map_err(|fault| fault.into_error(path, "migrate the database"))?;
    let install = database.verify(&mut db)?;
    match found {
        Some(found) => check_same(home, &found, &install)?,
        // New, or its maker died just before this line, or somebody removed the file.
        None => files::publish(home, INSTALL, &format!("{install}\n"))
            .map_err(|e| files::failed("cannot write the install id", &home.join(INSTALL), e))?,
    }
    if !database.has_headroom() {
        // On a disk that is already full or read-only there is no room to take; everything else works without.
        if let Err(error) = database::make_headroom(&db) {
            let error = Fault::Sql(error).into_error(path, "make room in the database");
            if !matches!(
                error.kind(),
                groundcrew_core::error::ErrorKind::ResourceExhausted
                    | groundcrew_core::error::ErrorKind::PermissionDenied
            ) {
                return Err(error);
            }
        }
    }
    Ok(install)
}

/// A log without its database is what is left of one.
fn refuse_orphans(path: &Path) -> Result<(), Error> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match files::size_of(Path::new(&log)) {
        Ok(None | Some(0)) => Ok(()),
        Ok(Some(_)) => Err(corrupt_file(
            path,
            "the database is gone, but its log is there",
        )),
        Err(error) => Err(files::failed("cannot look for the database", path, error)),
    }
}

fn make(path: &Path, install: &InstallId, patience: Duration) -> Result<(), Error> {
    let draft = path.with_extension("db.new");
    let failed = |error| files::failed("cannot make the database", path, error);
    for left in ["db.new", "db.new-journal", "db.new-wal", "db.new-shm"] {
        files::remove_if_there(&path.with_extension(left)).map_err(failed)?;
    }
    drop(files::create_private(&draft).map_err(failed)?);
    fill(&draft, install, patience).map_err(|fault| fault.into_error(path, "make the database"))?;
    fs::File::open(&draft)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(&draft, path))
        .and_then(|()| files::sync_directory(path.parent().unwrap_or(path)))
        .map_err(failed)
}

fn fill(draft: &Path, install: &InstallId, patience: Duration) -> Result<(), Fault> {
    let mut db = database::open(draft, patience, OpenFlags::empty())?;
    schema::create(&mut db, install)?;
    // Last, so that nothing is in a log that the rename would leave behind.
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::new(
            groundcrew_core::error::ErrorKind::Unsupported,
            "the file system of the state directory cannot hold a shared database",
        )
        .with("path", draft.display())
        .with("hint", files::ELSEWHERE)
        .into());
    }
    db.close().map_err(|(_, error)| Fault::Sql(error))
}

/// Reads the install id; `None` if there is none yet.
fn read_install(home: &Path) -> Result<Option<InstallId>, Error> {
    let path = home.join(INSTALL);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(files::failed("cannot read the install id", &path, error)),
    };
    std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.strip_suffix('\n'))
        .and_then(|text| InstallId::new(text).ok())
        .map(Some)
        .ok_or_else(|| corrupt_file(&path, "the install id is damaged"))
}

fn check_same(home: &Path, file: &InstallId, stored: &InstallId) -> Result<(), Error> {
    if file == stored {
        return Ok(());
    }
    let path = home.join(INSTALL);
    Err(Fault::Own(
        corrupt("the install id and the database are of different installations")
            .with("file", file)
            .with("database", stored),
    )
    .into_error(&path, "read the install id"))
}
