//! Recovery: what the store says, what is there, and what cannot be told are brought together.
//!
//! It touches only what nobody works on, and never what nobody remembers: that is reported.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    closing::{CloseReport, Kept, finish, settle_dead_launch},
    ending::settle_held,
    error::{Error, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    shared::{Shared, now_ms},
    store::{AttemptPhase, LockName, RunRecord, RunState},
    undo::{Occasion, UndoOptions},
};

/// How long the row of a closed run is remembered: 7 days, in milliseconds.
const REMEMBER_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// What recovery found and did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Runs whose end was found out, with the state they are in now.
    pub settled: Vec<(RunId, RunState)>,
    /// Runs whose launch died and was taken back.
    pub rolled_back: Vec<RunId>,
    /// Runs whose closing was brought to its end.
    pub closed: Vec<RunId>,
    /// What was kept, and why.
    pub kept: Vec<(RunId, Kept)>,
    /// What could not be taken away or told, and why; it stays owned.
    pub stuck: Vec<(RunId, String, ErrorReport)>,
    /// What carries our mark and nobody remembers; left alone.
    pub strays: Vec<String>,
    /// What could not be listed, and why.
    pub unknown: Vec<ErrorReport>,
    /// Runs that somebody works on.
    pub busy: Vec<RunId>,
}

impl RecoveryReport {
    /// Returns whether nothing is left to be tried again.
    pub fn is_clean(&self) -> bool {
        self.stuck.is_empty() && self.unknown.is_empty()
    }

    fn take(&mut self, report: CloseReport) {
        let run = report.run;
        self.kept
            .extend(report.kept.into_iter().map(|kept| (run.clone(), kept)));
        self.stuck.extend(
            report
                .stuck
                .into_iter()
                .map(|(what, error)| (run.clone(), what, error)),
        );
    }
}

/// Recovers everything that nobody works on.
pub(crate) async fn recover(shared: &Shared) -> Result<RecoveryReport, Error> {
    shared.parts.store.check().await?;
    let mut report = RecoveryReport::default();
    let mut sessions = BTreeMap::new();
    for row in shared.parts.store.attempts().await? {
        sessions.insert(row.run, row.session);
    }
    for record in shared.parts.store.runs().await? {
        let forgotten = record.state == RunState::Closed
            && record
                .ended_ms
                .unwrap_or(record.created_ms)
                .saturating_add(REMEMBER_MS)
                < now_ms();
        if forgotten {
            shared
                .parts
                .store
                .delete(&record.run, record.attempt)
                .await?;
        } else if !matches!(record.state, RunState::Closed | RunState::Failed) {
            sessions.insert(record.run, record.session);
        }
    }
    recover_sessions(shared, sessions, &mut report).await?;
    find_strays(shared, &mut report).await?;
    if let Err(error) = shared.parts.locks.sweep().await {
        report.unknown.push(ErrorReport::from(&error));
    }
    Ok(report)
}

/// Recovers what the store says is under way and nobody works on.
pub(crate) async fn tend(shared: &Shared) -> Result<RecoveryReport, Error> {
    let mut report = RecoveryReport::default();
    let mut sessions = BTreeMap::new();
    for row in shared.parts.store.attempts().await? {
        // What could not be taken away belongs here as well: it is tried again for ever.
        let failed = row.armed.iter().any(|armed| armed.last_error.is_some());
        if (row.phase != AttemptPhase::Committed || failed) && !shared.pacing.rests(&row.run) {
            sessions.insert(row.run, row.session);
        }
    }
    recover_sessions(shared, sessions, &mut report).await?;
    Ok(report)
}

async fn recover_sessions(
    shared: &Shared,
    sessions: BTreeMap<RunId, SessionId>,
    report: &mut RecoveryReport,
) -> Result<(), Error> {
    for (run, session) in sessions {
        let Some(hold) = shared.try_hold(&session).await? else {
            report.busy.push(run);
            continue;
        };
        let record = shared.parts.store.run(&run).await?;
        let Some(_hold) = shared.try_share(hold, record.as_ref()).await? else {
            report.busy.push(run);
            continue;
        };
        // One run that cannot be recovered must not keep the others from it.
        let before = report.stuck.len();
        if let Err(error) = Box::pin(recover_run(shared, &run, report)).await {
            let error = ErrorReport::from(&error);
            report
                .stuck
                .push((run.clone(), "the run".to_owned(), error));
        }
        shared.pacing.tried(&run, report.stuck.len() > before);
    }
    Ok(())
}

/// Recovers one run; its session is held.
async fn recover_run(
    shared: &Shared,
    run: &RunId,
    report: &mut RecoveryReport,
) -> Result<(), Error> {
    let attempts = shared.parts.store.attempts_of(run).await?;
    let Some(record) = shared.parts.store.run(run).await? else {
        return recover_rowless(shared, run, report).await;
    };
    let launching = attempts
        .iter()
        .any(|row| row.phase == AttemptPhase::Launching);
    if launching || record.state == RunState::Preparing {
        return recover_launch(shared, run, report).await;
    }
    let unwinding = attempts.iter().find_map(|row| match row.phase {
        AttemptPhase::Unwinding(options) => Some(options),
        _ => None,
    });
    match (unwinding, record.state) {
        (Some(options), _) => resume_unwinding(shared, record, options, report).await,
        // The note that it was being closed is there, the note of how far it came is not.
        (None, RunState::Closing | RunState::Stuck) => {
            let occasion = if attempts.is_empty() {
                Occasion::Close
            } else {
                Occasion::End
            };
            resume_unwinding(shared, record, occasion.careful(), report).await
        }
        (None, RunState::Running) => {
            let settled = settle_held(shared, record).await?;
            if settled.record.state != RunState::Running {
                report.kept.extend(kept_of(&settled.record));
                report.settled.push((run.clone(), settled.record.state));
            }
            Ok(())
        }
        _ => {
            if attempts.iter().any(|row| {
                row.armed
                    .iter()
                    .any(|armed| armed.record.due.on(Occasion::End))
            }) {
                let unwound = shared.unwind_run(run, Occasion::End.careful()).await?;
                report.take(CloseReport::from_unwound(run, &unwound));
            }
            Ok(())
        }
    }
}

/// Takes back a launch that died.
async fn recover_launch(
    shared: &Shared,
    run: &RunId,
    report: &mut RecoveryReport,
) -> Result<(), Error> {
    match settle_dead_launch(shared, run).await? {
        None => report.rolled_back.push(run.clone()),
        Some(record) if record.state == RunState::Stuck => {
            let problem = record.problem.clone();
            for armed in shared.armed(run).await? {
                let error = armed.last_error.or_else(|| problem.clone());
                report
                    .stuck
                    .extend(error.map(|error| (run.clone(), armed.record.label, error)));
            }
        }
        Some(record) => {
            report.kept.extend(kept_of(&record));
            report.settled.push((run.clone(), record.state));
        }
    }
    Ok(())
}

/// Takes away what an attempt without a record still owns.
async fn recover_rowless(
    shared: &Shared,
    run: &RunId,
    report: &mut RecoveryReport,
) -> Result<(), Error> {
    for row in shared.parts.store.attempts_of(run).await? {
        let Some(_lock) = shared
            .parts
            .locks
            .try_lock(&LockName::Attempt(row.attempt))
            .await?
        else {
            report.busy.push(run.clone());
            continue;
        };
        let unwound = crate::rollback::roll_back(
            shared,
            run,
            row.attempt,
            &[],
            None,
            &BTreeSet::new(),
            &|_, _| {},
        )
        .await;
        report.take(CloseReport::from_unwound(run, &unwound));
        if unwound.is_clean() {
            report.rolled_back.push(run.clone());
        }
    }
    Ok(())
}

/// Goes on with taking away what somebody died over, or could not take away.
async fn resume_unwinding(
    shared: &Shared,
    record: RunRecord,
    options: UndoOptions,
    report: &mut RecoveryReport,
) -> Result<(), Error> {
    let run = record.run.clone();
    let unwound = shared.unwind_run(&run, options).await?;
    let at_rest = crate::observe::ended_state(record.exit);
    if matches!(options.occasion, Occasion::Close | Occasion::Remove) {
        let closed = finish(shared, record, at_rest, &unwound).await?;
        if closed.outcome == crate::closing::CloseOutcome::Closed {
            report.closed.push(run);
        }
        report.take(closed);
        return Ok(());
    }
    let outcome = CloseReport::from_unwound(&run, &unwound);
    if unwound.is_clean() {
        let state = if options.occasion == Occasion::Failure {
            RunState::Interrupted
        } else {
            at_rest
        };
        shared
            .parts
            .store
            .put(&RunRecord {
                state,
                problem: None,
                ..record
            })
            .await?;
        report.settled.push((run, state));
    }
    report.take(outcome);
    Ok(())
}

fn kept_of(record: &RunRecord) -> Option<(RunId, Kept)> {
    let workspace = record
        .workspace
        .as_ref()
        .filter(|workspace| workspace.owned)?;
    if !record.state.is_live() || record.state == RunState::Running {
        return None;
    }
    let what = format!("workspace {}", workspace.path.display());
    Some((
        record.run.clone(),
        Kept {
            what,
            findings: record.kept.clone(),
        },
    ))
}

/// Lists what carries our mark and is in no row; an incomplete list is an error.
pub(crate) async fn strays(shared: &Shared) -> Result<Vec<String>, Error> {
    let mut report = RecoveryReport::default();
    find_strays(shared, &mut report).await?;
    match report.unknown.into_iter().next() {
        Some(error) => Err(Error::from(error)),
        None => Ok(report.strays),
    }
}

/// Lists what carries our mark and is in no row.
async fn find_strays(shared: &Shared, report: &mut RecoveryReport) -> Result<(), Error> {
    let mut known: BTreeSet<AttemptId> = BTreeSet::new();
    for row in shared.parts.store.attempts().await? {
        known.insert(row.attempt);
    }
    for registration in shared.parts.registry.distinct_executors() {
        match registration.executor.list().await {
            Ok(ids) => report.strays.extend(
                ids.into_iter()
                    .filter(|id| {
                        !id.as_str()
                            .parse()
                            .is_ok_and(|attempt: AttemptId| known.contains(&attempt))
                    })
                    .map(|id| format!("instance {id}")),
            ),
            Err(error) => report.unknown.push(ErrorReport::from(&error)),
        }
    }
    match shared.parts.runtime_secrets.attempts().await {
        Ok(attempts) => report.strays.extend(
            attempts
                .into_iter()
                .filter(|attempt| !known.contains(attempt))
                .map(|attempt| format!("secrets of {}", attempt.instance())),
        ),
        Err(error) => report.unknown.push(ErrorReport::from(&error)),
    }
    for preparer in shared.parts.registry.distinct_preparers() {
        match preparer.list().await {
            Ok(found) => report.strays.extend(
                found
                    .into_iter()
                    .filter(|found| {
                        !found
                            .attempt
                            .is_some_and(|attempt| known.contains(&attempt))
                    })
                    .map(|found| found.label),
            ),
            Err(error) => report.unknown.push(ErrorReport::from(&error)),
        }
    }
    Ok(())
}
