//! The store that the contract asks for: each verb is one transaction on a blocking thread.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    identity::Identity,
    store::{AttemptPhase, AttemptRow, Reservation, RunRecord, StateStore},
    undo::{UndoOptions, UndoRecord},
};
use rusqlite::Connection;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    task::spawn_blocking,
};

use crate::{database::Database, fault::Fault, read::Reading, write::Writing};

/// So many reads run at once; each has a connection.
const READERS: usize = 2;

/// Durable state in one `SQLite` file; many processes share it.
///
/// * A verb that returned is on disk with one fsync; [`identify`](StateStore::identify) needs none.
/// * Writers of one process take turns in the order they came; those of several poll, for a bounded time.
///
/// # Cancel safety
///
/// A verb whose future is dropped happens wholly or not at all; which of the two is told by reading.
pub struct SqliteStore {
    inner: Arc<Inner>,
    /// Holds the connection that writes; a fair queue, so that nobody of this process starves.
    writer: Arc<AsyncMutex<Option<Connection>>>,
    reading: Arc<Semaphore>,
}

#[derive(Debug)]
struct Inner {
    database: Database,
    readers: Mutex<Vec<Connection>>,
}

/// Whether a write must be on disk when its verb returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// It must survive the machine.
    Machine,
    /// It must survive the process.
    Process,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.inner.database.path())
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    pub(crate) fn new(database: Database) -> Self {
        Self {
            inner: Arc::new(Inner {
                database,
                readers: Mutex::new(Vec::new()),
            }),
            writer: Arc::default(),
            reading: Arc::new(Semaphore::new(READERS)),
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        what: &'static str,
        durability: Durability,
        verb: impl FnOnce(&mut Writing<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        let mut writer = Arc::clone(&self.writer).lock_owned().await;
        blocking(what, move || {
            inner.write(&mut writer, what, durability, verb)
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        verb: impl FnOnce(&Reading<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        let turn = Arc::clone(&self.reading)
            .acquire_owned()
            .await
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "the store is closed").with_source(error)
            })?;
        blocking(what, move || {
            let read = inner.read(what, verb);
            drop(turn);
            read
        })
        .await
    }
}

impl Inner {
    fn write<T>(
        &self,
        writer: &mut Option<Connection>,
        what: &'static str,
        durability: Durability,
        verb: impl FnOnce(&mut Writing<'_>) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        // Taken out: a connection that met an error of the disk, or a panic, is not used again.
        let mut db = match writer.take() {
            Some(db) => db,
            None => self.database.connect()?,
        };
        let written = write_on(&mut db, durability, verb);
        if !matches!(written, Err(Fault::Sql(_))) {
            *writer = Some(db);
        }
        let (value, count) =
            written.map_err(|fault| fault.into_error(self.database.path(), what))?;
        if durability == Durability::Machine {
            self.database.mark.note(count);
        }
        Ok(value)
    }

    fn read<T>(
        &self,
        what: &'static str,
        verb: impl FnOnce(&Reading<'_>) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let idle = self
            .readers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut db = match idle {
            Some(db) => db,
            None => self.database.connect()?,
        };
        let read = Reading::begin(&mut db).and_then(|reading| verb(&reading));
        if !matches!(read, Err(Fault::Sql(_))) {
            self.readers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(db);
        }
        read.map_err(|fault| fault.into_error(self.database.path(), what))
    }
}

fn write_on<T>(
    db: &mut Connection,
    durability: Durability,
    verb: impl FnOnce(&mut Writing<'_>) -> Result<T, Fault>,
) -> Result<(T, i64), Fault> {
    let lasting = durability == Durability::Machine;
    if !lasting {
        db.pragma_update(None, "synchronous", "NORMAL")?;
    }
    let written = Writing::begin(db).and_then(|mut writing| {
        let value = verb(&mut writing)?;
        Ok((value, writing.commit(lasting)?))
    });
    if !lasting {
        db.pragma_update(None, "synchronous", "FULL")?;
    }
    written
}

async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => Err(Error::new(
            ErrorKind::Panicked,
            format!("the store panicked when asked to {what}"),
        )
        .with_source(error)),
        Err(error) => Err(Error::new(
            ErrorKind::Cancelled,
            format!("the program ended before it could {what}"),
        )
        .with_source(error)),
    }
}

#[async_trait]
impl StateStore for SqliteStore {
    async fn reserve(&self, reservation: Reservation) -> Result<RunRecord, Error> {
        self.write("reserve a run", Durability::Machine, move |w| {
            w.reserve(&reservation)
        })
        .await
    }

    async fn arm(&self, record: &UndoRecord) -> Result<(), Error> {
        let record = record.clone();
        self.write("arm an undo record", Durability::Machine, move |w| {
            w.arm(&record)
        })
        .await
    }

    async fn identify(
        &self,
        attempt: AttemptId,
        key: &str,
        identity: &Identity,
    ) -> Result<(), Error> {
        let (key, identity) = (key.to_owned(), identity.clone());
        self.write("note what was made", Durability::Process, move |w| {
            w.identify(attempt, &key, &identity)
        })
        .await
    }

    async fn commit(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        let record = record.clone();
        self.write("commit a launch", Durability::Machine, move |w| {
            w.commit_launch(&record)
        })
        .await
    }

    async fn begin_unwind(&self, attempt: AttemptId, options: UndoOptions) -> Result<(), Error> {
        self.write(
            "begin to take an attempt back",
            Durability::Machine,
            move |w| w.set_phase(attempt, AttemptPhase::Unwinding(options)),
        )
        .await
    }

    async fn rest(&self, attempt: AttemptId) -> Result<(), Error> {
        self.write("put an attempt to rest", Durability::Machine, move |w| {
            w.set_phase(attempt, AttemptPhase::Committed)
        })
        .await
    }

    async fn hand_over(
        &self,
        attempt: AttemptId,
        run: &RunId,
        session: &SessionId,
    ) -> Result<(), Error> {
        let (run, session) = (run.clone(), session.clone());
        self.write("hand an attempt over", Durability::Machine, move |w| {
            w.hand_over(attempt, &run, &session)
        })
        .await
    }

    async fn retire(&self, attempt: AttemptId, key: &str) -> Result<(), Error> {
        let key = key.to_owned();
        self.write("retire an undo record", Durability::Machine, move |w| {
            w.retire(attempt, &key)
        })
        .await
    }

    async fn note_failure(
        &self,
        attempt: AttemptId,
        key: &str,
        error: &ErrorReport,
    ) -> Result<(), Error> {
        let (key, error) = (key.to_owned(), error.clone());
        self.write("note a failed undo", Durability::Machine, move |w| {
            w.note_failure(attempt, &key, &error)
        })
        .await
    }

    async fn forget(&self, attempt: AttemptId) -> Result<(), Error> {
        self.write("forget an attempt", Durability::Machine, move |w| {
            w.forget(attempt)
        })
        .await
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is for one lifetime of the snapshot, the closure for all"
    )]
    async fn attempts(&self) -> Result<Vec<AttemptRow>, Error> {
        self.read("read the attempts", |r| r.attempts()).await
    }

    async fn attempts_of(&self, run: &RunId) -> Result<Vec<AttemptRow>, Error> {
        let run = run.clone();
        self.read("read the attempts of a run", move |r| r.attempts_of(&run))
            .await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>, Error> {
        let run = run.clone();
        self.read("read a record", move |r| r.run(&run)).await
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is for one lifetime of the snapshot, the closure for all"
    )]
    async fn runs(&self) -> Result<Vec<RunRecord>, Error> {
        self.read("read the records", |r| r.runs()).await
    }

    async fn run_of_session(&self, session: &SessionId) -> Result<Option<RunRecord>, Error> {
        let session = session.clone();
        self.read("read the record of a session", move |r| {
            r.run_of_session(&session)
        })
        .await
    }

    async fn put(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        let record = record.clone();
        self.write("write a record", Durability::Machine, move |w| {
            w.put(&record)
        })
        .await
    }

    async fn delete(&self, run: &RunId, attempt: AttemptId) -> Result<(), Error> {
        let run = run.clone();
        self.write("delete a record", Durability::Machine, move |w| {
            w.delete(&run, attempt)
        })
        .await
    }

    async fn check(&self) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        // Read before the snapshot is taken: what was acknowledged by then must be in it.
        let acknowledged = blocking("read the mark", move || inner.database.mark.read()).await?;
        let inner = Arc::clone(&self.inner);
        self.read("check the database", move |r| {
            r.check()?;
            Ok(inner.database.mark.check(acknowledged, r.writes())?)
        })
        .await
    }
}
