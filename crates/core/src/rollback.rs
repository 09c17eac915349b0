//! Ends a launch that failed, or died: takes back what it made and puts its record right.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    error::{Error, ErrorReport},
    id::{AttemptId, RunId},
    shared::Shared,
    store::{ArmedRecord, AttemptPhase, AttemptRow, RunRecord, RunState},
    undo::{Due, Occasion, UndoRecord},
    unwind::{Outcome, Unwound},
    workspace::Finding,
};

/// Rolls an attempt back; the caller holds its session and its attempt lock.
///
/// * Nothing armed, nothing stored: nothing is done.
/// * Work that was found is kept; the run is then `interrupted` and owned.
/// * What is stuck stays owned; the run is then `stuck`.
/// * A run that was being resumed is what it was before.
/// * `planned` is what the attempt armed, where it is still known: if only the answer of the commit was lost, the store has
///   dropped what is due on failure, and the failure is now.
pub(crate) async fn roll_back(
    shared: &Shared,
    run: &RunId,
    attempt: AttemptId,
    planned: &[UndoRecord],
    why: Option<&Error>,
    doubtful: &BTreeSet<String>,
    tell: &(dyn Fn(&UndoRecord, &Outcome) + Sync),
) -> Unwound {
    let row = match shared.parts.store.attempts_of(run).await {
        Ok(rows) => rows.into_iter().find(|row| row.attempt == attempt),
        Err(error) => {
            return Unwound {
                unsettled: Some(Arc::new(error)),
                ..Unwound::default()
            };
        }
    };
    let resumes = row.as_ref().map(|row| row.resumes);
    let mut unwound = match row {
        Some(row) => {
            let armed = due_on_failure(row, planned);
            shared
                .unwind(&armed, Occasion::Failure.careful(), doubtful, tell)
                .await
        }
        None => Unwound::default(),
    };
    if let Err(error) = settle(shared, run, attempt, why, &unwound, resumes).await {
        unwound.unsettled = Some(Arc::new(error));
    }
    unwound
}

/// Returns what a failed attempt owns, in the order of arming.
fn due_on_failure(row: AttemptRow, planned: &[UndoRecord]) -> Vec<ArmedRecord> {
    if row.phase != AttemptPhase::Committed {
        return row.armed;
    }
    let mut armed = Vec::new();
    let mut stored = row.armed;
    for record in planned {
        if let Some(index) = stored.iter().position(|s| s.record.key == record.key) {
            armed.push(stored.remove(index));
        } else if record.due == Due::Failure {
            armed.push(ArmedRecord {
                record: record.clone(),
                tries: 0,
                last_error: None,
            });
        }
    }
    armed.extend(stored);
    armed
}

async fn settle(
    shared: &Shared,
    run: &RunId,
    attempt: AttemptId,
    why: Option<&Error>,
    unwound: &Unwound,
    resumes: Option<bool>,
) -> Result<(), Error> {
    let known = resumes.is_some();
    let store = &shared.parts.store;
    let record = store
        .run(run)
        .await?
        .filter(|record| record.attempt == attempt);
    let kept: Vec<Finding> = unwound
        .kept()
        .flat_map(|(_, findings)| findings.to_vec())
        .collect();
    let problem = why.map(ErrorReport::from);
    if !unwound.is_clean() {
        if let Some(record) = record {
            store
                .put(&RunRecord {
                    state: RunState::Stuck,
                    problem,
                    kept,
                    ..record
                })
                .await?;
        }
        return Ok(());
    }
    // The record goes last: until then it is how the rest is found.
    match record {
        Some(record) if record.before.is_some() => {
            let restored = restored(record, problem);
            if known {
                store.forget(attempt).await?;
            }
            store.put(&restored).await?;
        }
        // It was committed, so what it was before is forgotten; its workspace and its token are not.
        Some(record) if resumes == Some(true) => {
            if kept.is_empty() {
                store.forget(attempt).await?;
            } else {
                // Its work was just brought back; it goes on to be owned.
                store.rest(attempt).await?;
            }
            store
                .put(&RunRecord {
                    state: RunState::Interrupted,
                    problem,
                    kept,
                    ..record
                })
                .await?;
        }
        Some(record) if !kept.is_empty() => {
            store
                .put(&RunRecord {
                    state: RunState::Interrupted,
                    problem,
                    kept,
                    ..record
                })
                .await?;
            store.rest(attempt).await?;
        }
        _ => {
            if known {
                store.forget(attempt).await?;
            }
            store.delete(run, attempt).await?;
        }
    }
    Ok(())
}

/// Returns the record as it was before the attempt that resumed it; its resume token was never touched.
fn restored(mut record: RunRecord, problem: Option<ErrorReport>) -> RunRecord {
    if let Some(before) = record.before.take() {
        record.attempt = before.attempt;
        record.instance = before.instance;
        record.state = before.state;
        record.command = before.command;
        record.lease = before.lease;
        record.ended_ms = before.ended_ms;
        record.exit = before.exit;
        record.process = before.process;
        record.agent = before.agent;
    }
    record.problem = problem;
    record
}
