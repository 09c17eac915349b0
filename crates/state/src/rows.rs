//! Rows as they are stored, and their way from and to the types of the contract.
//!
//! * A row is believed only if its sum fits; one that does not names what it belongs to.

use groundcrew_core::{
    error::{Error, ErrorKind},
    identity::Identity,
    store::{ArmedRecord, AttemptPhase, AttemptRow, RunRecord},
    undo::UndoRecord,
};
use rusqlite::Row;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    fault::{Fault, corrupt},
    seal::{Sum, Tally},
};

/// The columns of a run, in the order that [`RunFields::of_row`] reads.
pub(crate) const RUN: &str =
    "seq, run, session, task, state, attempt, revision, created_ms, record, sum";

/// The columns of an attempt, in the order that [`AttemptFields::of_row`] reads.
pub(crate) const ATTEMPT: &str =
    "seq, attempt, run, session, resumes, phase, created_ms, armed, armed_mix, sum";

/// The columns of an undo record, in the order that [`UndoFields::of_row`] reads.
pub(crate) const UNDO: &str = "seq, attempt, key, record, identity, tries, last_error, sum";

pub(crate) fn encode(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "a record cannot be stored").with_source(error)
    })
}

pub(crate) fn to_i64(what: &'static str, number: u64) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| {
        Error::new(
            ErrorKind::InvalidInput,
            "a number is too large to be stored",
        )
        .with(what, number)
    })
}

fn decode<T: DeserializeOwned>(text: &str, damage: impl FnOnce() -> Error) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| damage().with_source(error))
}

/// A run.
#[derive(Debug)]
pub(crate) struct RunFields {
    pub(crate) seq: i64,
    pub(crate) run: String,
    pub(crate) session: String,
    pub(crate) task: String,
    pub(crate) state: String,
    pub(crate) attempt: String,
    pub(crate) revision: i64,
    pub(crate) created_ms: i64,
    pub(crate) record: String,
}

impl RunFields {
    /// Takes a record apart.
    pub(crate) fn of_record(seq: i64, record: &RunRecord) -> Result<Self, Error> {
        Ok(Self {
            seq,
            run: record.run.to_string(),
            session: record.session.to_string(),
            task: record.task.to_string(),
            state: record.state.to_string(),
            attempt: record.attempt.to_string(),
            revision: to_i64("revision", record.revision)?,
            created_ms: to_i64("created_ms", record.created_ms)?,
            record: encode(record)?,
        })
    }

    /// Reads a row whose sum fits; returns the sum as well.
    pub(crate) fn of_row(row: &Row<'_>) -> Result<(Self, i64), Fault> {
        let fields = Self {
            seq: row.get(0)?,
            run: row.get(1)?,
            session: row.get(2)?,
            task: row.get(3)?,
            state: row.get(4)?,
            attempt: row.get(5)?,
            revision: row.get(6)?,
            created_ms: row.get(7)?,
            record: row.get(8)?,
        };
        let sum: i64 = row.get(9)?;
        if fields.sum() == sum {
            Ok((fields, sum))
        } else {
            Err(fields.damage().into())
        }
    }

    /// Returns the row's sum.
    pub(crate) fn sum(&self) -> i64 {
        Sum::new("runs")
            .number(self.seq)
            .text(&self.run)
            .text(&self.session)
            .text(&self.task)
            .text(&self.state)
            .text(&self.attempt)
            .number(self.revision)
            .number(self.created_ms)
            .text(&self.record)
            .end()
    }

    /// Returns the record.
    pub(crate) fn decode(&self) -> Result<RunRecord, Error> {
        decode(&self.record, || self.damage())
    }

    fn damage(&self) -> Error {
        corrupt("the record of a run cannot be read").with("run", &self.run)
    }
}

/// An attempt, without what is armed.
#[derive(Debug)]
pub(crate) struct AttemptFields {
    pub(crate) seq: i64,
    pub(crate) attempt: String,
    pub(crate) run: String,
    pub(crate) session: String,
    pub(crate) resumes: bool,
    pub(crate) phase: String,
    pub(crate) created_ms: i64,
    pub(crate) armed: Tally,
}

impl AttemptFields {
    /// Reads a row whose sum fits; returns the sum as well.
    pub(crate) fn of_row(row: &Row<'_>) -> Result<(Self, i64), Fault> {
        let fields = Self {
            seq: row.get(0)?,
            attempt: row.get(1)?,
            run: row.get(2)?,
            session: row.get(3)?,
            resumes: row.get(4)?,
            phase: row.get(5)?,
            created_ms: row.get(6)?,
            armed: Tally {
                count: row.get(7)?,
                mix: row.get(8)?,
            },
        };
        let sum: i64 = row.get(9)?;
        if fields.sum() == sum {
            Ok((fields, sum))
        } else {
            Err(fields.damage().into())
        }
    }

    /// Returns the row's sum.
    pub(crate) fn sum(&self) -> i64 {
        Sum::new("attempts")
            .number(self.seq)
            .text(&self.attempt)
            .text(&self.run)
            .text(&self.session)
            .number(i64::from(self.resumes))
            .text(&self.phase)
            .number(self.created_ms)
            .number(self.armed.count)
            .number(self.armed.mix)
            .end()
    }

    /// Returns the phase.
    pub(crate) fn phase(&self) -> Result<AttemptPhase, Error> {
        decode(&self.phase, || self.damage())
    }

    /// Returns the attempt with what it has armed.
    pub(crate) fn decode(&self, armed: Vec<ArmedRecord>) -> Result<AttemptRow, Error> {
        Ok(AttemptRow {
            attempt: self.attempt.parse().map_err(|_| self.damage())?,
            run: self.run.parse().map_err(|_| self.damage())?,
            session: self.session.parse().map_err(|_| self.damage())?,
            resumes: self.resumes,
            phase: self.phase()?,
            created_ms: u64::try_from(self.created_ms).map_err(|_| self.damage())?,
            armed,
        })
    }

    fn damage(&self) -> Error {
        corrupt("the row of an attempt cannot be read")
            .with("attempt", &self.attempt)
            .with("run", &self.run)
    }
}

/// An undo record.
#[derive(Debug)]
pub(crate) struct UndoFields {
    pub(crate) seq: i64,
    pub(crate) attempt: String,
    pub(crate) key: String,
    pub(crate) record: String,
    pub(crate) identity: Option<String>,
    pub(crate) tries: i64,
    pub(crate) last_error: Option<String>,
}

impl UndoFields {
    /// Takes a record apart; its identity has a column of its own, because it comes later.
    pub(crate) fn of_record(seq: i64, record: &UndoRecord) -> Result<Self, Error> {
        let anonymous = UndoRecord {
            identity: None,
            ..record.clone()
        };
        Ok(Self {
            seq,
            attempt: record.attempt.to_string(),
            key: record.key.clone(),
            record: encode(&anonymous)?,
            identity: record.identity.as_ref().map(ToString::to_string),
            tries: 0,
            last_error: None,
        })
    }

    /// Reads a row whose sum fits; returns the sum as well.
    pub(crate) fn of_row(row: &Row<'_>) -> Result<(Self, i64), Fault> {
        let fields = Self {
            seq: row.get(0)?,
            attempt: row.get(1)?,
            key: row.get(2)?,
            record: row.get(3)?,
            identity: row.get(4)?,
            tries: row.get(5)?,
            last_error: row.get(6)?,
        };
        let sum: i64 = row.get(7)?;
        if fields.sum() == sum {
            Ok((fields, sum))
        } else {
            Err(fields.damage().into())
        }
    }

    /// Returns the row's sum.
    pub(crate) fn sum(&self) -> i64 {
        Sum::new("undo")
            .number(self.seq)
            .text(&self.attempt)
            .text(&self.key)
            .text(&self.record)
            .optional(self.identity.as_deref())
            .number(self.tries)
            .optional(self.last_error.as_deref())
            .end()
    }

    /// Returns the record, with its identity if that is known.
    pub(crate) fn record(&self) -> Result<UndoRecord, Error> {
        let mut record: UndoRecord = decode(&self.record, || self.damage())?;
        record.identity = self.identity.clone().map(Identity);
        Ok(record)
    }

    /// Returns the record with its failures.
    pub(crate) fn decode(&self) -> Result<ArmedRecord, Error> {
        Ok(ArmedRecord {
            record: self.record()?,
            tries: u32::try_from(self.tries).map_err(|_| self.damage())?,
            last_error: match &self.last_error {
                Some(text) => Some(decode(text, || self.damage())?),
                None => None,
            },
        })
    }

    fn damage(&self) -> Error {
        corrupt("an undo record cannot be read")
            .with("attempt", &self.attempt)
            .with("key", &self.key)
    }
}
