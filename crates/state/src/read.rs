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
        self.found(RunKey::Run(run.as_str()))
    }

    /// Returns the live record of a session.
    pub(crate) fn run_of_session(&self, session: &SessionId) -> Result<Option<RunRecord>, Fault> {
        self.found(RunKey::LiveOfSession(session.as_str()))
    }

    fn found(&self, key: RunKey<'_>) -> Result<Option<RunRecord>, Fault> {
        match find_run(&self.tx, &self.meta, key)? {
            Some((fields, _)) => Ok(Some(fields.decode()?)),
            None => Ok(None),
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
        self.meta.runs.check(tally, "the records")?;
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
        let mut statement = self.tx.prepare_cached(&format!(
            "SELECT {ATTEMPT} FROM attempts WHERE run = ?1 ORDER BY seq"
        ))?;
        let mut rows = statement.query([run.as_str()])?;
        let (mut all, mut last) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let (fields, _) = AttemptFields::of_row(row)?;
            // A damaged index can lead to another row, or twice to the same.
            if fields.run != run.as_str() || fields.seq <= last {
                return Err(index_of_attempts().with("run", run).into());
            }
            last = fields.seq;
            all.push(self.with_armed(&fields)?);
        }
        let there = scan_attempts(&self.tx, &self.meta, "run", run.as_str())?;
        if there == all.len() {
            Ok(all)
        } else {
            Err(index_of_attempts().with("run", run).into())
        }
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
        self.meta.attempts.check(tally, "the attempts")?;
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

/// What a run is found by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunKey<'a> {
    /// Its id.
    Run(&'a str),
    /// The session that it holds.
    LiveOfSession(&'a str),
}

impl<'a> RunKey<'a> {
    fn fits(self, fields: &RunFields) -> bool {
        match self {
            Self::Run(run) => fields.run == run,
            Self::LiveOfSession(session) => {
                fields.session == session && !matches!(fields.state.as_str(), "failed" | "closed")
            }
        }
    }

    const fn parts(self) -> (&'static str, &'a str) {
        match self {
            Self::Run(run) => ("run = ?1", run),
            Self::LiveOfSession(session) => (
                "session = ?1 AND state NOT IN ('failed', 'closed')",
                session,
            ),
        }
    }
}

/// Finds a run; that there is none is believed only if the whole table says so.
pub(crate) fn find_run(
    db: &Connection,
    meta: &Meta,
    key: RunKey<'_>,
) -> Result<Option<(RunFields, i64)>, Fault> {
    let (filter, value) = key.parts();
    let found = db
        .prepare_cached(&format!("SELECT {RUN} FROM runs WHERE {filter}"))?
        .query_row([value], |row| Ok(RunFields::of_row(row)))
        .optional()?
        .transpose()?;
    if found.is_none() {
        let sql = format!("SELECT sum, {filter} FROM runs NOT INDEXED");
        let (tally, matches) = scan(db, &sql, value)?;
        meta.runs.check(tally, "the records")?;
        if matches > 0 {
            return Err(index_of_runs().into());
        }
    }
    match found {
        // A damaged index can lead to another row.
        Some((fields, _)) if !key.fits(&fields) => Err(index_of_runs().into()),
        found => Ok(found),
    }
}

fn index_of_runs() -> Error {
    corrupt("an index of the records is damaged")
}

fn index_of_attempts() -> Error {
    corrupt("an index of the attempts is damaged")
}

/// Finds an attempt; that there is none is believed only if the whole table says so.
pub(crate) fn find_attempt(
    db: &Connection,
    meta: &Meta,
    attempt: &str,
) -> Result<Option<(AttemptFields, i64)>, Fault> {
    let found = db
        .prepare_cached(&format!(
            "SELECT {ATTEMPT} FROM attempts WHERE attempt = ?1"
        ))?
        .query_row([attempt], |row| Ok(AttemptFields::of_row(row)))
        .optional()?
        .transpose()?;
    if found.is_none() && scan_attempts(db, meta, "attempt", attempt)? > 0 {
        return Err(index_of_attempts().into());
    }
    match found {
        Some((fields, _)) if fields.attempt != attempt => Err(index_of_attempts().into()),
        found => Ok(found),
    }
}

/// Counts the attempts with a value in a column, without an index, and checks that the table is whole.
fn scan_attempts(
    db: &Connection,
    meta: &Meta,
    column: &'static str,
    value: &str,
) -> Result<usize, Fault> {
    let sql = format!("SELECT sum, {column} = ?1 FROM attempts NOT INDEXED");
    let (tally, matches) = scan(db, &sql, value)?;
    meta.attempts.check(tally, "the attempts")?;
    Ok(matches)
}

fn scan(db: &Connection, sql: &str, value: &str) -> Result<(Tally, usize), Fault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([value])?;
    let (mut tally, mut matches) = (Tally::default(), 0);
    while let Some(row) = rows.next()? {
        tally.add(row.get(0)?);
        matches += usize::from(row.get::<_, bool>(1)?);
    }
    Ok((tally, matches))
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
        .check(tally, "the undo records of an attempt")
        .map_err(|error| error.with("attempt", &fields.attempt))?;
    Ok(all)
}
