//! Tells the truth about runs without writing: what the store says, corrected by what is there.

use std::sync::Arc;

use crate::{
    error::{Error, ErrorKind, ErrorReport},
    id::RunId,
    process::{EndCause, ExitStatus, ProcessPhase},
    shared::Shared,
    store::{LockName, RunRecord, RunState},
    workspace::WorkspaceReport,
};

/// A run as it really is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunView {
    /// Its record, with the state and the exit that were found.
    pub record: RunRecord,
    /// What its workspace holds; none if it has none, or it could not be read.
    pub report: Option<WorkspaceReport>,
}

/// What is known of the end of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It runs, or a workspace without an agent is up.
    Up,
    /// It ended like this.
    Ended(ExitStatus),
    /// It is gone and left no word.
    Lost,
}

/// Finds out whether the agent of a run that was up still is.
pub(crate) async fn liveness(shared: &Shared, record: &RunRecord) -> Result<Liveness, Error> {
    let ask = async {
        let instance = match shared.instance(record).await {
            Ok(instance) => instance,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Liveness::Lost),
            Err(error) => return Err(error),
        };
        let agent = record.agent_process()?;
        let processes = instance.processes().await?;
        Ok(
            match processes
                .into_iter()
                .find(|process| process.id == agent)
                .map(|process| process.phase)
            {
                Some(ProcessPhase::Ended(status)) => Liveness::Ended(status),
                Some(ProcessPhase::Lost) => Liveness::Lost,
                None if record.command.is_some() => Liveness::Lost,
                Some(ProcessPhase::Running(_)) | None => Liveness::Up,
            },
        )
    };
    shared.answer(record, ask).await
}

/// Returns the state of a run whose agent ended like that.
pub(crate) fn ended_state(status: Option<ExitStatus>) -> RunState {
    match status.map(|status| status.cause) {
        Some(EndCause::Itself | EndCause::OutOfMemory) => RunState::Exited,
        Some(EndCause::Stopped) => RunState::Stopped,
        Some(EndCause::TimedOut | EndCause::Idle) => RunState::TimedOut,
        Some(EndCause::LeaseLapsed) | None => RunState::Interrupted,
    }
}

/// Returns a record corrected by what is there; what cannot be told stays as it was written.
pub(crate) async fn observe(shared: &Shared, mut record: RunRecord) -> RunRecord {
    match record.state {
        RunState::Running => match liveness(shared, &record).await {
            Ok(Liveness::Up) => {}
            Ok(Liveness::Ended(status)) => {
                record.state = ended_state(Some(status));
                record.exit = Some(status);
            }
            Ok(Liveness::Lost) => record.state = RunState::Interrupted,
            Err(error) => record.problem = Some(ErrorReport::from(&error)),
        },
        // A launch whose lock is free died; recovery will take back what it made.
        RunState::Preparing => {
            let lock = shared
                .parts
                .locks
                .try_lock(&LockName::Attempt(record.attempt))
                .await;
            if matches!(lock, Ok(Some(_))) {
                // An agent that was to join a workspace which is up takes nothing with it.
                record.state = match &record.before {
                    Some(before) if before.state == RunState::Running => RunState::Running,
                    _ => RunState::Interrupted,
                };
            }
        }
        _ => {}
    }
    record
}

/// Returns what a run's workspace holds.
pub(crate) async fn report(shared: &Shared, record: &RunRecord) -> Option<WorkspaceReport> {
    let workspace = record.workspace.as_ref()?;
    if record.state == RunState::Closed {
        return None;
    }
    let preparer = shared.parts.registry.preparer(&workspace.preparer).ok()?;
    Arc::clone(preparer).report(workspace).await.ok()
}

/// Returns a run as it really is.
pub(crate) async fn view(shared: &Shared, record: RunRecord) -> RunView {
    let record = observe(shared, record).await;
    let report = report(shared, &record).await;
    RunView { record, report }
}

/// Finds the one run whose id begins with `prefix`; a whole id always means itself.
pub(crate) async fn find(shared: &Shared, prefix: &str) -> Result<RunRecord, Error> {
    if let Ok(run) = RunId::new(prefix)
        && let Some(record) = shared.parts.store.run(&run).await?
    {
        return Ok(record);
    }
    let mut found: Vec<_> = shared.parts.store.runs().await?;
    found.retain(|record| !prefix.is_empty() && record.run.as_str().starts_with(prefix));
    match found.len() {
        0 => Err(Error::new(
            ErrorKind::NotFound,
            "no run has an id that begins so; see `ls`",
        )
        .with("id", prefix)),
        1 => Ok(found.remove(0)),
        _ => {
            let ids: Vec<_> = found.iter().map(|record| record.run.as_str()).collect();
            Err(Error::new(
                ErrorKind::Ambiguous,
                "several runs have an id that begins so; give more of it",
            )
            .with("id", prefix)
            .with("runs", ids.join(", ")))
        }
    }
}
