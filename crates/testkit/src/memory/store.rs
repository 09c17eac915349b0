//! The durable state in memory: the documented rules of `StateStore`, and nothing more lenient.
//!
//! It never answers from anything but what was written, so a rule that an engine forgets is an error here.
//! On a file it outlives its process: for tests in which a process is killed.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    identity::Identity,
    store::{ArmedRecord, AttemptPhase, AttemptRow, Reservation, RunRecord, StateStore},
    undo::{Due, UndoOptions, UndoRecord},
};

use super::saved;

/// The durable state of one installation, in memory.
///
/// * Clones share the rows: each clone stands for the view of another process.
/// * A run holds its session in every live state, and a second live run of it is refused by every write.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    rows: Arc<Mutex<Rows>>,
}

#[derive(Debug, Default)]
struct Rows {
    /// Where they are kept as well.
    file: Option<PathBuf>,
    /// By age: the key counts up.
    attempts: BTreeMap<u64, AttemptRow>,
    runs: BTreeMap<u64, RunRecord>,
    next: u64,
}

impl Rows {
    /// Writes all of them to their file, if they have one: before anybody is told that they changed.
    fn save(&self) -> Result<(), Error> {
        match &self.file {
            Some(file) => saved::write(file, &self.attempts, &self.runs),
            None => Ok(()),
        }
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn attempt(&mut self, attempt: AttemptId) -> Result<&mut AttemptRow, Error> {
        self.attempts
            .values_mut()
            .find(|row| row.attempt == attempt)
            .ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "no such attempt").with("attempt", attempt)
            })
    }

    fn armed(&mut self, attempt: AttemptId, key: &str) -> Result<&mut ArmedRecord, Error> {
        self.attempt(attempt)?
            .armed
            .iter_mut()
            .find(|armed| armed.record.key == key)
            .ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "no such undo record")
                    .with("attempt", attempt)
                    .with("key", key)
            })
    }

    fn run(&mut self, run: &RunId) -> Option<&mut RunRecord> {
        self.runs.values_mut().find(|record| record.run == *run)
    }

    fn session_is_free_for(&self, record: &RunRecord) -> Result<(), Error> {
        let other = self.runs.values().find(|other| {
            other.session == record.session && other.run != record.run && other.state.is_live()
        });
        match other {
            Some(other) if record.state.is_live() => {
                Err(Error::new(ErrorKind::SessionBusy, "the session has a run")
                    .with("session", &record.session)
                    .with("run", &other.run)
                    .with("state", other.state))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a write may happen; changes nothing.
    fn writable(&mut self, record: &RunRecord) -> Result<(), Error> {
        let Some(stored) = self.run(&record.run) else {
            return Err(Error::new(ErrorKind::NotFound, "no such run").with("run", &record.run));
        };
        if stored.revision != record.revision {
            return Err(Error::new(
                ErrorKind::Conflict,
                "the run was changed by somebody else meanwhile",
            )
            .with("run", &record.run)
            .with("read", record.revision)
            .with("stored", stored.revision));
        }
        self.session_is_free_for(record)
    }

    fn write(&mut self, record: &RunRecord) -> Result<RunRecord, Error> {
        self.writable(record)?;
        let mut new = record.clone();
        new.revision += 1;
        if let Some(stored) = self.run(&record.run) {
            stored.clone_from(&new);
        }
        Ok(new)
    }
}

fn armed(record: &UndoRecord) -> ArmedRecord {
    ArmedRecord {
        record: record.clone(),
        tries: 0,
        last_error: None,
    }
}

fn owns_or_is_under_way(row: &AttemptRow) -> bool {
    !row.armed.is_empty() || row.phase != AttemptPhase::Committed
}

impl MemoryStore {
    /// Makes one without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the one that a file holds, or an empty one that will be kept there.
    ///
    /// Only one process at a time may use it.
    ///
    /// # Errors
    ///
    /// `Corrupt` when the file cannot be understood, else those of the file system.
    pub fn on_file(file: PathBuf) -> Result<Self, Error> {
        let (attempts, runs) = saved::read(&file)?;
        let last = |keys: Option<&u64>| keys.copied().unwrap_or_default();
        let next = last(attempts.keys().next_back()).max(last(runs.keys().next_back()));
        let rows = Rows {
            file: Some(file),
            attempts,
            runs,
            next,
        };
        Ok(Self {
            rows: Arc::new(Mutex::new(rows)),
        })
    }

    /// Returns every attempt's row, also of those that own nothing and are at rest.
    pub fn all_attempts(&self) -> Vec<AttemptRow> {
        self.rows().attempts.values().cloned().collect()
    }

    /// Returns the keys of everything armed, oldest first.
    pub fn armed_keys(&self) -> Vec<String> {
        self.rows()
            .attempts
            .values()
            .flat_map(|row| row.armed.iter().map(|armed| armed.record.key.clone()))
            .collect()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StateStore for MemoryStore {
    async fn reserve(&self, reservation: Reservation) -> Result<RunRecord, Error> {
        let Reservation {
            record,
            resumes,
            armed: records,
        } = reservation;
        let mut rows = self.rows();
        if rows.attempt(record.attempt).is_ok() {
            return Err(Error::new(ErrorKind::AlreadyExists, "the attempt exists")
                .with("attempt", record.attempt));
        }
        if let Some(wrong) = records.iter().find(|r| r.attempt != record.attempt) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "an undo record names another attempt than its reservation",
            )
            .with("key", &wrong.key)
            .with("attempt", wrong.attempt));
        }
        for (index, new) in records.iter().enumerate() {
            if records[..index].iter().any(|old| old.key == new.key) {
                return Err(taken(new));
            }
        }
        let stored = if resumes {
            rows.write(&record)?
        } else {
            if rows.run(&record.run).is_some() {
                return Err(
                    Error::new(ErrorKind::AlreadyExists, "the run exists").with("run", &record.run)
                );
            }
            rows.session_is_free_for(&record)?;
            let mut new = record;
            new.revision = 1;
            let age = rows.next();
            rows.runs.insert(age, new.clone());
            new
        };
        let age = rows.next();
        rows.attempts.insert(
            age,
            AttemptRow {
                attempt: stored.attempt,
                run: stored.run.clone(),
                session: stored.session.clone(),
                resumes,
                phase: AttemptPhase::Launching,
                created_ms: stored.created_ms,
                armed: records.iter().map(armed).collect(),
            },
        );
        rows.save()?;
        Ok(stored)
    }

    async fn arm(&self, record: &UndoRecord) -> Result<(), Error> {
        let mut rows = self.rows();
        if rows.armed(record.attempt, &record.key).is_ok() {
            return Err(taken(record));
        }
        rows.attempt(record.attempt)?.armed.push(armed(record));
        rows.save()
    }

    async fn identify(
        &self,
        attempt: AttemptId,
        key: &str,
        identity: &Identity,
    ) -> Result<(), Error> {
        let mut rows = self.rows();
        rows.armed(attempt, key)?.record.identity = Some(identity.clone());
        rows.save()
    }

    async fn commit(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        let mut rows = self.rows();
        rows.attempt(record.attempt)?;
        let written = rows.write(record)?;
        let row = rows.attempt(record.attempt)?;
        row.phase = AttemptPhase::Committed;
        row.armed.retain(|armed| armed.record.due != Due::Failure);
        rows.save()?;
        Ok(written)
    }

    async fn begin_unwind(&self, attempt: AttemptId, options: UndoOptions) -> Result<(), Error> {
        let mut rows = self.rows();
        rows.attempt(attempt)?.phase = AttemptPhase::Unwinding(options);
        rows.save()
    }

    async fn rest(&self, attempt: AttemptId) -> Result<(), Error> {
        let mut rows = self.rows();
        rows.attempt(attempt)?.phase = AttemptPhase::Committed;
        rows.save()
    }

    async fn hand_over(
        &self,
        attempt: AttemptId,
        run: &RunId,
        session: &SessionId,
    ) -> Result<(), Error> {
        let mut rows = self.rows();
        if rows.run(run).is_none() {
            return Err(Error::new(ErrorKind::NotFound, "no such run").with("run", run));
        }
        if let Ok(row) = rows.attempt(attempt) {
            row.run = run.clone();
            row.session = session.clone();
            row.phase = AttemptPhase::Committed;
        }
        rows.save()
    }

    async fn retire(&self, attempt: AttemptId, key: &str) -> Result<(), Error> {
        let mut rows = self.rows();
        if let Ok(row) = rows.attempt(attempt) {
            row.armed.retain(|armed| armed.record.key != key);
        }
        rows.save()
    }

    async fn note_failure(
        &self,
        attempt: AttemptId,
        key: &str,
        error: &ErrorReport,
    ) -> Result<(), Error> {
        let mut rows = self.rows();
        let armed = rows.armed(attempt, key)?;
        armed.tries += 1;
        armed.last_error = Some(error.clone());
        rows.save()
    }

    async fn forget(&self, attempt: AttemptId) -> Result<(), Error> {
        let mut rows = self.rows();
        if let Ok(row) = rows.attempt(attempt)
            && let Some(armed) = row.armed.first()
        {
            return Err(
                Error::new(ErrorKind::Conflict, "the attempt still owns something")
                    .with("attempt", attempt)
                    .with("count", row.armed.len())
                    .with("first", &armed.record),
            );
        }
        rows.attempts.retain(|_, row| row.attempt != attempt);
        rows.save()
    }

    async fn attempts(&self) -> Result<Vec<AttemptRow>, Error> {
        let rows = self.rows();
        Ok(rows
            .attempts
            .values()
            .filter(|row| owns_or_is_under_way(row))
            .cloned()
            .collect())
    }

    async fn attempts_of(&self, run: &RunId) -> Result<Vec<AttemptRow>, Error> {
        let rows = self.rows();
        Ok(rows
            .attempts
            .values()
            .filter(|row| row.run == *run)
            .cloned()
            .collect())
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>, Error> {
        Ok(self.rows().run(run).cloned())
    }

    async fn runs(&self) -> Result<Vec<RunRecord>, Error> {
        Ok(self.rows().runs.values().cloned().collect())
    }

    async fn run_of_session(&self, session: &SessionId) -> Result<Option<RunRecord>, Error> {
        let rows = self.rows();
        Ok(rows
            .runs
            .values()
            .find(|record| record.session == *session && record.state.is_live())
            .cloned())
    }

    async fn put(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        let mut rows = self.rows();
        let written = rows.write(record)?;
        rows.save()?;
        Ok(written)
    }

    async fn delete(&self, run: &RunId, attempt: AttemptId) -> Result<(), Error> {
        let mut rows = self.rows();
        rows.runs
            .retain(|_, record| record.run != *run || record.attempt != attempt);
        rows.save()
    }

    /// Checks that no session has two live runs.
    async fn check(&self) -> Result<(), Error> {
        let rows = self.rows();
        for record in rows.runs.values() {
            rows.session_is_free_for(record).map_err(|e| {
                Error::new(ErrorKind::Corrupt, "two live runs share a session").with_source(e)
            })?;
        }
        Ok(())
    }
}

fn taken(record: &UndoRecord) -> Error {
    Error::new(ErrorKind::AlreadyExists, "the undo record exists")
        .with("attempt", record.attempt)
        .with("key", &record.key)
}
