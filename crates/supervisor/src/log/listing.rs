//! What became of the processes of an instance, told from their logs alone.

use std::{io, path::Path};

use groundcrew_core::{
    error::Error,
    id::ProcessId,
    process::{ExitStatus, FrameKind, Offset, ProcessPhase, ProcessState},
};

use super::{
    reader,
    record::{Record, exit, unknown},
    segments,
};

fn state(directory: &Path, record: Record, watched: bool) -> Result<ProcessState, Error> {
    let ended = exit(directory)?.and_then(|frame| match frame.kind {
        FrameKind::Exit(status) => Some((ProcessPhase::Ended(status), frame.offset)),
        _ => None,
    });
    let (phase, log_end) = match ended {
        Some(ended) => ended,
        None if watched => (
            ProcessPhase::Running(record.started),
            Offset(reader::end(directory)?),
        ),
        None => (ProcessPhase::Lost, Offset(reader::end(directory)?)),
    };
    let starts = segments::starts(directory)
        .map_err(|e| Error::io("failed to list the log", e).with("path", directory.display()))?;
    Ok(ProcessState {
        id: record.id,
        main: record.main,
        phase,
        log_start: starts.first().map_or(log_end, |start| Offset(*start)),
        log_end,
    })
}

/// Lists the processes that were ever started in an instance, in the order of their start, from its log directory.
///
/// * `watched` tells whether the supervisor of the instance lives; without it, a process of unknown end is `Lost`.
/// * A log directory that does not exist holds no process.
///
/// # Errors
///
/// Those of reading the files; `Corrupt` for a record that is damaged.
pub fn list(log_directory: &Path, watched: bool) -> Result<Vec<ProcessState>, Error> {
    let failed = |e| Error::io("failed to list the logs", e).with("path", log_directory.display());
    let entries = match std::fs::read_dir(log_directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let directory = entry.map_err(failed)?.path();
        if let Some(record) = Record::load(&directory)? {
            found.push((record.order, state(&directory, record, watched)?));
        }
    }
    found.sort_by_key(|(order, _)| *order);
    Ok(found.into_iter().map(|(_, state)| state).collect())
}

/// Returns how a process ended, `None` while that is not known.
///
/// # Errors
///
/// `NotFound` when no such process was ever started here; those of reading the files.
pub fn status(log_directory: &Path, id: &ProcessId) -> Result<Option<ExitStatus>, Error> {
    let directory = log_directory.join(id.as_str());
    if Record::load(&directory)?.is_none() {
        return Err(unknown(id));
    }
    Ok(match exit(&directory)?.map(|frame| frame.kind) {
        Some(FrameKind::Exit(status)) => Some(status),
        _ => None,
    })
}
