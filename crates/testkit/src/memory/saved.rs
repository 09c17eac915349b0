//! The rows of a memory store as one file, written whole or not at all.

use std::{collections::BTreeMap, path::Path};

use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    store::{ArmedRecord, AttemptPhase, AttemptRow, RunRecord},
    undo::UndoRecord,
};
use serde::{Deserialize, Serialize};

type Attempts = BTreeMap<u64, AttemptRow>;
type Runs = BTreeMap<u64, RunRecord>;

#[derive(Default, Serialize, Deserialize)]
struct Saved {
    attempts: BTreeMap<u64, Saving>,
    runs: Runs,
}

#[derive(Serialize, Deserialize)]
struct Saving {
    attempt: AttemptId,
    run: RunId,
    session: SessionId,
    resumes: bool,
    phase: AttemptPhase,
    created_ms: u64,
    armed: Vec<Armed>,
}

#[derive(Serialize, Deserialize)]
struct Armed {
    record: UndoRecord,
    tries: u32,
    last_error: Option<ErrorReport>,
}

impl From<&AttemptRow> for Saving {
    fn from(row: &AttemptRow) -> Self {
        let armed = |armed: &ArmedRecord| Armed {
            record: armed.record.clone(),
            tries: armed.tries,
            last_error: armed.last_error.clone(),
        };
        Self {
            attempt: row.attempt,
            run: row.run.clone(),
            session: row.session.clone(),
            resumes: row.resumes,
            phase: row.phase,
            created_ms: row.created_ms,
            armed: row.armed.iter().map(armed).collect(),
        }
    }
}

impl From<Saving> for AttemptRow {
    fn from(saved: Saving) -> Self {
        let armed = |armed: Armed| ArmedRecord {
            record: armed.record,
            tries: armed.tries,
            last_error: armed.last_error,
        };
        Self {
            attempt: saved.attempt,
            run: saved.run,
            session: saved.session,
            resumes: saved.resumes,
            phase: saved.phase,
            created_ms: saved.created_ms,
            armed: saved.armed.into_iter().map(armed).collect(),
        }
    }
}

/// Reads what a file holds; no file is no rows.
pub(super) fn read(file: &Path) -> Result<(Attempts, Runs), Error> {
    let saved = match std::fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| {
            Error::new(ErrorKind::Corrupt, "the saved rows cannot be understood")
                .with("path", file.display())
                .with_source(e)
        })?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Saved::default(),
        Err(e) => {
            return Err(Error::io("failed to read the saved rows", e).with("path", file.display()));
        }
    };
    let attempts = saved.attempts.into_iter();
    Ok((
        attempts.map(|(age, row)| (age, row.into())).collect(),
        saved.runs,
    ))
}

/// Writes rows in place of what a file held; a process that is killed leaves the old or the new ones.
pub(super) fn write(file: &Path, attempts: &Attempts, runs: &Runs) -> Result<(), Error> {
    let attempts = attempts.iter();
    let saved = Saved {
        attempts: attempts.map(|(age, row)| (*age, row.into())).collect(),
        runs: runs.clone(),
    };
    let text = serde_json::to_vec(&saved).map_err(|e| {
        Error::new(ErrorKind::Unexpected, "the rows cannot be written as text").with_source(e)
    })?;
    let draft = file.with_extension("new");
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, file))
        .map_err(|e| Error::io("failed to save the rows", e).with("path", file.display()))
}
