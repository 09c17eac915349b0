//! Reading, in one snapshot; what is not found is checked to be absent.

use groundcrew_core::{
    error::Error,
    id::{RunId, SessionId},
    store::{AttemptPhase, AttemptRow, RunRecord},
};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use crate::{
    fault::{Fault, corrupt},
    meta::{Meta, load_meta},
    rows::{ATTEMPT, AttemptFields, RUN, RunFields, UNDO, UndoFields},
    schema::{schema_sum, still_current},
    seal::Tally,
};

/// A snapshot.
#[derive(Debug)]
pub(crate) struct Reading<'c> {
    tx: Transaction<'c>,
    meta: Meta,
}

impl<'c> Reading<'c> {
    /// Begins to read.
    pub(crate) fn begin(db: &'c mut Connection) -> Result<Self, Fault> {
        let tx = db.transaction_with_behavior(TransactionBehavior::Deferred)?;
        still_current(&tx)?;
        let meta = load_meta(&tx)?;
        Ok(Self { tx, meta })
    }

    /// Returns how many writes the snapshot holds.
    pub(crate) fn writes(&self) -> i64 {
        self.meta.writes
    }

    /// Returns one record.
    pub(crate) fn run(&self, run: &RunId) -> Result<Option<RunRecord>, Fault> {
        self.found(find_run(&self.tx, "run = ?1", run.as_str())?)
    }

    /// Returns the live record of a session.
    pub(crate) fn run_of_session(&self, session: &SessionId) -> Result<Option<RunRecord>, Fault> {
        self.found(find_run(&self.tx, LIVE_OF_SESSION, session.as_str())?)
    }

    fn found(&self, found: Option<(RunFields, i64)>) -> Result<Option<RunRecord>, Fault> {
        match found {
            Some((fields, _)) => Ok(Some(fields.decode()?)),
            // An index or a page may have lost it: unknown is not absent.
            None => {
                self.meta.runs.expect(
                    tally(&self.tx, "SELECT sum FROM runs NOT INDEXED")?,
                    "the records",
                )?;
                Ok(None)
            }
        }
    }

    /// Returns all records, oldest first.
    pub(crate) fn runs(&self) -> Result<Vec<RunRecord>, Fault> {
        let mut statement = self
            .tx
            .prepare_cached(&format!("SELECT {RUN} FROM runs NOT INDEXED ORDER BY seq"))?;
        let mut rows = statement.query([])?;
        let (mut all, mut tally) = (Vec::new(), Tally::default());
        while let Some(row) = rows.next()? {
            let (fields, sum) = RunFields::of_row(row)?;
            tally.add(sum);
            all.push(fields.decode()?);
        }
        self.meta.runs.expect(tally, "the records")?;
        Ok(all)
    }

    /// Returns the attempts that own something or are under way, oldest first.
    pub(crate) fn attempts(&self) -> Result<Vec<AttemptRow>, Fault> {
        let mut all = self.all_attempts()?;
        all.retain(|row| !row.armed.is_empty() || row.phase != AttemptPhase::Committed);
        Ok(all)
    }

    /// Returns the attempts of one run, oldest first.
    pub(crate) fn attempts_of(&self, run: &RunId) -> Result<Vec<AttemptRow>, Fault> {
        self.meta.attempts.expect(
            tally(&self.tx, "SELECT sum FROM attempts NOT INDEXED")?,
            "the attempts",
        )?;
        let mut statement = self.tx.prepare_cached(&format!(
            "SELECT {ATTEMPT} FROM attempts WHERE run = ?1 ORDER BY seq"
        ))?;
        let mut rows = statement.query([run.as_str()])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(self.with_armed(&AttemptFields::of_row(row)?.0)?);
        }
        Ok(all)
    }

    fn all_attempts(&self) -> Result<Vec<AttemptRow>, Fault> {
        let mut statement = self.tx.prepare_cached(&format!(
            "SELECT {ATTEMPT} FROM attempts NOT INDEXED ORDER BY seq"
        ))?;
        let mut rows = statement.query([])?;
        let (mut all, mut tally) = (Vec::new(), Tally::default());
        while let Some(row) = rows.next()? {
            let (fields, sum) = AttemptFields::of_row(row)?;
            tally.add(sum);
            all.push(self.with_armed(&fields)?);
        }
        self.meta.attempts.expect(tally, "the attempts")?;
        Ok(all)
    }

    fn with_armed(&self, fields: &AttemptFields) -> Result<AttemptRow, Fault> {
        let armed = armed_of(&self.tx, fields)?
            .iter()
            .map(|(undo, _)| undo.decode())
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(fields.decode(armed)?)
    }

    /// Checks everything that can be checked.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let mut statement = self.tx.prepare("PRAGMA integrity_check(20)")?;
        let mut rows = statement.query([])?;
        let mut problems = Vec::new();
        while let Some(row) = rows.next()? {
            problems.push(row.get::<_, String>(0)?);
        }
        if problems != ["ok"] {
            return Err(corrupt("the database is damaged")
                .with_source(problems.join("; "))
                .into());
        }
        if self.tx.prepare("PRAGMA foreign_key_check")?.exists([])? {
            return Err(corrupt("an undo record has lost its attempt").into());
        }
        if self.meta.schema_sum != schema_sum(&self.tx)? {
            return Err(corrupt("the tables are not declared as they were made").into());
        }
        self.runs()?;
        let attempts = self.all_attempts()?;
        let owned: usize = attempts.iter().map(|row| row.armed.len()).sum();
        let stored: i64 =
            self.tx
                .query_row("SELECT count(*) FROM undo NOT INDEXED", [], |row| {
                    row.get(0)
                })?;
        if usize::try_from(stored) != Ok(owned) {
            return Err(corrupt("an undo record belongs to no attempt").into());
        }
        Ok(())
    }
}

/// Finds the run that holds a session.
pub(crate) const LIVE_OF_SESSION: &str = "session = ?1 AND state NOT IN ('failed', 'closed')";

/// Finds a run; `filter` is one of the fixed conditions of this crate, on `?1`.
pub(crate) fn find_run(
    db: &Connection,
    filter: &'static str,
    value: &str,
) -> Result<Option<(RunFields, i64)>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {RUN} FROM runs WHERE {filter}"))?;
    statement
        .query_row([value], |row| Ok(RunFields::of_row(row)))
        .optional()?
        .transpose()
}

/// Finds an attempt.
pub(crate) fn find_attempt(
    db: &Connection,
    attempt: &str,
) -> Result<Option<(AttemptFields, i64)>, Fault> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {ATTEMPT} FROM attempts WHERE attempt = ?1"
    ))?;
    statement
        .query_row([attempt], |row| Ok(AttemptFields::of_row(row)))
        .optional()?
        .transpose()
}

/// Returns what an attempt has armed, in order, checked to be all of it; with the sum of each row.
pub(crate) fn armed_of(
    db: &Connection,
    fields: &AttemptFields,
) -> Result<Vec<(UndoFields, i64)>, Fault> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {UNDO} FROM undo WHERE attempt = ?1 ORDER BY seq"
    ))?;
    let mut rows = statement.query([&fields.attempt])?;
    let (mut all, mut tally) = (Vec::new(), Tally::default());
    while let Some(row) = rows.next()? {
        let (undo, sum) = UndoFields::of_row(row)?;
        tally.add(sum);
        all.push((undo, sum));
    }
    fields
        .armed
        .expect(tally, "the undo records of an attempt")
        .map_err(|error| error.with("attempt", &fields.attempt))?;
    Ok(all)
}

fn tally(db: &Connection, sums: &'static str) -> Result<Tally, Fault> {
    let mut statement = db.prepare_cached(sums)?;
    let mut rows = statement.query([])?;
    let mut tally = Tally::default();
    while let Some(row) = rows.next()? {
        tally.add(row.get(0)?);
    }
    Ok(tally)
}
