//! Writing: one transaction for each verb, which checks its premises inside and keeps the sums.

use std::time::{SystemTime, UNIX_EPOCH};

use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    identity::Identity,
    store::{AttemptPhase, Reservation, RunRecord},
    undo::{Due, UndoRecord},
};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::{
    fault::Fault,
    meta::{Meta, load_meta, store_meta},
    read::{RunKey, armed_of, find_attempt, find_run},
    rows::{AttemptFields, RunFields, UndoFields, encode, to_i64},
    schema::still_current,
};

/// A transaction that writes; dropped, it has changed nothing.
#[derive(Debug)]
pub(crate) struct Writing<'c> {
    tx: Transaction<'c>,
    meta: Meta,
}

impl<'c> Writing<'c> {
    /// Begins to write; waits for other writers, for as long as the connection may.
    pub(crate) fn begin(db: &'c mut Connection) -> Result<Self, Fault> {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        still_current(&tx)?;
        let meta = load_meta(&tx)?;
        Ok(Self { tx, meta })
    }

    /// Commits; returns how many writes the database has seen. A write that may be lost is not counted.
    pub(crate) fn commit(mut self, counted: bool) -> Result<i64, Fault> {
        self.meta.writes += i64::from(counted);
        store_meta(&self.tx, &self.meta)?;
        self.tx.commit()?;
        Ok(self.meta.writes)
    }

    /// See [`StateStore::reserve`](groundcrew_core::store::StateStore::reserve).
    pub(crate) fn reserve(&mut self, reservation: &Reservation) -> Result<RunRecord, Fault> {
        let mut record = reservation.record.clone();
        if reservation.resumes {
            self.replace(&mut record)?;
        } else {
            self.refuse_busy(&record)?;
            if find_run(&self.tx, &self.meta, RunKey::Run(record.run.as_str()))?.is_some() {
                return Err(
                    Error::new(ErrorKind::AlreadyExists, "a run of that id exists")
                        .with("run", &record.run)
                        .into(),
                );
            }
            record.revision = 1;
            let seq = self.next("SELECT max(seq) FROM runs")?;
            self.put_run(None, &RunFields::of_record(seq, &record)?)?;
        }
        let attempt = record.attempt.to_string();
        if find_attempt(&self.tx, &self.meta, &attempt)?.is_some() {
            return Err(
                Error::new(ErrorKind::AlreadyExists, "an attempt of that id exists")
                    .with("attempt", attempt)
                    .into(),
            );
        }
        let mut fields = AttemptFields {
            seq: self.next("SELECT max(seq) FROM attempts")?,
            attempt,
            run: record.run.to_string(),
            session: record.session.to_string(),
            resumes: reservation.resumes,
            phase: encode(&AttemptPhase::Launching)?,
            created_ms: now_ms()?,
            armed: crate::seal::Tally::default(),
        };
        let first = self.next("SELECT max(seq) FROM undo")?;
        let mut armed = Vec::with_capacity(reservation.armed.len());
        for (undo, seq) in reservation.armed.iter().zip(first..) {
            if undo.attempt != record.attempt {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "an undo record names another attempt than its reservation",
                )
                .with("key", &undo.key)
                .with("attempt", undo.attempt)
                .into());
            }
            if reservation.armed[..armed.len()]
                .iter()
                .any(|other| other.key == undo.key)
            {
                return Err(taken(undo).into());
            }
            let row = UndoFields::of_record(seq, undo)?;
            fields.armed.add(row.sum());
            armed.push(row);
        }
        self.put_attempt(None, &fields)?;
        for row in &armed {
            self.put_undo(row)?;
        }
        Ok(record)
    }

    /// See [`StateStore::arm`](groundcrew_core::store::StateStore::arm).
    pub(crate) fn arm(&mut self, record: &UndoRecord) -> Result<(), Fault> {
        let (mut fields, sum) = self.attempt(record.attempt)?;
        let armed = armed_of(&self.tx, &fields)?;
        if let Some((present, _)) = armed.iter().find(|(undo, _)| undo.key == record.key) {
            // A caller that got no answer asks again.
            let mut same = present.record()?;
            same.identity.clone_from(&record.identity);
            return if same == *record {
                Ok(())
            } else {
                Err(taken(record).into())
            };
        }
        let row = UndoFields::of_record(self.next("SELECT max(seq) FROM undo")?, record)?;
        fields.armed.add(row.sum());
        self.put_undo(&row)?;
        self.put_attempt(Some(sum), &fields)
    }

    /// See [`StateStore::identify`](groundcrew_core::store::StateStore::identify).
    pub(crate) fn identify(
        &mut self,
        attempt: AttemptId,
        key: &str,
        identity: &Identity,
    ) -> Result<(), Fault> {
        self.change_undo(attempt, key, |row| {
            row.identity = Some(identity.to_string());
            Ok(())
        })
    }

    /// See [`StateStore::note_failure`](groundcrew_core::store::StateStore::note_failure).
    pub(crate) fn note_failure(
        &mut self,
        attempt: AttemptId,
        key: &str,
        error: &ErrorReport,
    ) -> Result<(), Fault> {
        self.change_undo(attempt, key, |row| {
            row.tries = row.tries.saturating_add(1).min(i64::from(u32::MAX));
            row.last_error = Some(encode(error)?);
            Ok(())
        })
    }

    /// See [`StateStore::commit`](groundcrew_core::store::StateStore::commit).
    pub(crate) fn commit_launch(&mut self, record: &RunRecord) -> Result<RunRecord, Fault> {
        let (mut fields, sum) = self.attempt(record.attempt)?;
        if fields.run != record.run.as_str() {
            return Err(conflict("the attempt is for another run", record)
                .with("attempt_run", &fields.run)
                .into());
        }
        if let AttemptPhase::Unwinding(_) = fields.phase()? {
            return Err(conflict("the attempt is being rolled back", record).into());
        }
        for (undo, undo_sum) in armed_of(&self.tx, &fields)? {
            if undo.decode()?.record.due == Due::Failure {
                fields.armed.remove(undo_sum);
                self.drop_undo(undo.seq)?;
            }
        }
        fields.phase = encode(&AttemptPhase::Committed)?;
        self.put_attempt(Some(sum), &fields)?;
        self.put(record)
    }

    /// Sets the phase of an attempt.
    pub(crate) fn set_phase(
        &mut self,
        attempt: AttemptId,
        phase: AttemptPhase,
    ) -> Result<(), Fault> {
        let (mut fields, sum) = self.attempt(attempt)?;
        fields.phase = encode(&phase)?;
        self.put_attempt(Some(sum), &fields)
    }

    /// See [`StateStore::hand_over`](groundcrew_core::store::StateStore::hand_over).
    pub(crate) fn hand_over(
        &mut self,
        attempt: AttemptId,
        run: &RunId,
        session: &SessionId,
    ) -> Result<(), Fault> {
        if find_run(&self.tx, &self.meta, RunKey::Run(run.as_str()))?.is_none() {
            return Err(Error::new(ErrorKind::NotFound, "there is no such run")
                .with("run", run)
                .into());
        }
        let Some((mut fields, sum)) = find_attempt(&self.tx, &self.meta, &attempt.to_string())?
        else {
            return Ok(());
        };
        fields.run = run.to_string();
        fields.session = session.to_string();
        fields.phase = encode(&AttemptPhase::Committed)?;
        self.put_attempt(Some(sum), &fields)
    }

    /// See [`StateStore::retire`](groundcrew_core::store::StateStore::retire).
    pub(crate) fn retire(&mut self, attempt: AttemptId, key: &str) -> Result<(), Fault> {
        let Some((mut fields, sum)) = find_attempt(&self.tx, &self.meta, &attempt.to_string())?
        else {
            return Ok(());
        };
        let armed = armed_of(&self.tx, &fields)?;
        let Some((undo, undo_sum)) = armed.into_iter().find(|(undo, _)| undo.key == key) else {
            return Ok(());
        };
        fields.armed.remove(undo_sum);
        self.drop_undo(undo.seq)?;
        self.put_attempt(Some(sum), &fields)
    }

    /// See [`StateStore::forget`](groundcrew_core::store::StateStore::forget).
    pub(crate) fn forget(&mut self, attempt: AttemptId) -> Result<(), Fault> {
        let Some((fields, sum)) = find_attempt(&self.tx, &self.meta, &attempt.to_string())? else {
            return Ok(());
        };
        // Checked against the rows: a damaged count must not orphan them.
        if !armed_of(&self.tx, &fields)?.is_empty() {
            return Err(
                Error::new(ErrorKind::Conflict, "the attempt still owns something")
                    .with("attempt", attempt)
                    .with("armed", fields.armed.count)
                    .into(),
            );
        }
        self.tx
            .prepare_cached("DELETE FROM attempts WHERE seq = ?1")?
            .execute([fields.seq])?;
        self.meta.attempts.remove(sum);
        Ok(())
    }

    /// See [`StateStore::put`](groundcrew_core::store::StateStore::put).
    pub(crate) fn put(&mut self, record: &RunRecord) -> Result<RunRecord, Fault> {
        let mut record = record.clone();
        self.replace(&mut record)?;
        Ok(record)
    }

    /// See [`StateStore::delete`](groundcrew_core::store::StateStore::delete).
    pub(crate) fn delete(&mut self, run: &RunId, attempt: AttemptId) -> Result<(), Fault> {
        let Some((fields, sum)) = find_run(&self.tx, &self.meta, RunKey::Run(run.as_str()))? else {
            return Ok(());
        };
        if fields.attempt == attempt.to_string() {
            self.tx
                .prepare_cached("DELETE FROM runs WHERE seq = ?1")?
                .execute([fields.seq])?;
            self.meta.runs.remove(sum);
        }
        Ok(())
    }

    /// Writes a record over the one whose revision it names.
    fn replace(&mut self, record: &mut RunRecord) -> Result<(), Fault> {
        let Some((stored, sum)) = find_run(&self.tx, &self.meta, RunKey::Run(record.run.as_str()))?
        else {
            return Err(conflict("the run is gone", record).into());
        };
        if to_i64("revision", record.revision)? != stored.revision {
            return Err(conflict("the run was changed meanwhile", record)
                .with("stored", stored.revision)
                .into());
        }
        self.refuse_busy(record)?;
        record.revision += 1;
        self.put_run(Some(sum), &RunFields::of_record(stored.seq, record)?)
    }

    fn refuse_busy(&self, record: &RunRecord) -> Result<(), Fault> {
        if !record.state.is_live() {
            return Ok(());
        }
        match find_run(
            &self.tx,
            &self.meta,
            RunKey::LiveOfSession(record.session.as_str()),
        )? {
            Some((other, _)) if other.run != record.run.as_str() => Err(Error::new(
                ErrorKind::SessionBusy,
                "the session has a run already",
            )
            .with("session", &record.session)
            .with("run", other.run)
            .with("state", other.state)
            .into()),
            _ => Ok(()),
        }
    }

    fn attempt(&self, attempt: AttemptId) -> Result<(AttemptFields, i64), Fault> {
        find_attempt(&self.tx, &self.meta, &attempt.to_string())?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such attempt")
                .with("attempt", attempt)
                .into()
        })
    }

    fn change_undo(
        &mut self,
        attempt: AttemptId,
        key: &str,
        change: impl FnOnce(&mut UndoFields) -> Result<(), Error>,
    ) -> Result<(), Fault> {
        let (mut fields, sum) = self.attempt(attempt)?;
        let armed = armed_of(&self.tx, &fields)?;
        let Some((mut row, old)) = armed.into_iter().find(|(undo, _)| undo.key == key) else {
            return Err(
                Error::new(ErrorKind::NotFound, "nothing of that key is armed")
                    .with("attempt", attempt)
                    .with("key", key)
                    .into(),
            );
        };
        change(&mut row)?;
        fields.armed.remove(old);
        fields.armed.add(row.sum());
        self.put_undo(&row)?;
        self.put_attempt(Some(sum), &fields)
    }

    fn next(&self, newest: &'static str) -> Result<i64, Fault> {
        let newest: Option<i64> = self
            .tx
            .prepare_cached(newest)?
            .query_row([], |row| row.get(0))
            .optional()?
            .flatten();
        Ok(newest.unwrap_or(0) + 1)
    }

    fn put_run(&mut self, old: Option<i64>, row: &RunFields) -> Result<(), Fault> {
        let sum = row.sum();
        let sql = if old.is_some() {
            "UPDATE runs SET run = ?2, session = ?3, task = ?4, state = ?5, attempt = ?6, revision = ?7,
             created_ms = ?8, record = ?9, sum = ?10 WHERE seq = ?1"
        } else {
            "INSERT INTO runs (seq, run, session, task, state, attempt, revision, created_ms, record, sum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        };
        self.tx.prepare_cached(sql)?.execute(params![
            row.seq,
            row.run,
            row.session,
            row.task,
            row.state,
            row.attempt,
            row.revision,
            row.created_ms,
            row.record,
            sum,
        ])?;
        if let Some(old) = old {
            self.meta.runs.remove(old);
        }
        self.meta.runs.add(sum);
        Ok(())
    }

    fn put_attempt(&mut self, old: Option<i64>, row: &AttemptFields) -> Result<(), Fault> {
        let sum = row.sum();
        let sql = if old.is_some() {
            "UPDATE attempts SET attempt = ?2, run = ?3, session = ?4, resumes = ?5, phase = ?6, created_ms = ?7,
             armed = ?8, armed_mix = ?9, sum = ?10 WHERE seq = ?1"
        } else {
            "INSERT INTO attempts (seq, attempt, run, session, resumes, phase, created_ms, armed, armed_mix, sum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        };
        self.tx.prepare_cached(sql)?.execute(params![
            row.seq,
            row.attempt,
            row.run,
            row.session,
            row.resumes,
            row.phase,
            row.created_ms,
            row.armed.count,
            row.armed.mix,
            sum,
        ])?;
        if let Some(old) = old {
            self.meta.attempts.remove(old);
        }
        self.meta.attempts.add(sum);
        Ok(())
    }

    fn put_undo(&self, row: &UndoFields) -> Result<(), Fault> {
        self.tx
            .prepare_cached(
                "INSERT INTO undo (seq, attempt, key, record, identity, tries, last_error, sum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (seq) DO UPDATE SET record = ?4, identity = ?5, tries = ?6, last_error = ?7, sum = ?8",
            )?
            .execute(params![
                row.seq,
                row.attempt,
                row.key,
                row.record,
                row.identity,
                row.tries,
                row.last_error,
                row.sum(),
            ])?;
        Ok(())
    }

    fn drop_undo(&self, seq: i64) -> Result<(), Fault> {
        self.tx
            .prepare_cached("DELETE FROM undo WHERE seq = ?1")?
            .execute([seq])?;
        Ok(())
    }
}

fn conflict(message: &'static str, record: &RunRecord) -> Error {
    Error::new(ErrorKind::Conflict, message)
        .with("run", &record.run)
        .with("attempt", record.attempt)
        .with("revision", record.revision)
}

fn taken(record: &UndoRecord) -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "something else is armed under that key",
    )
    .with("attempt", record.attempt)
    .with("key", &record.key)
}

/// The wall clock, for people only: nothing is decided by it.
fn now_ms() -> Result<i64, Error> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    to_i64("now", u64::try_from(since.as_millis()).unwrap_or(0))
}
