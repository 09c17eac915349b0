//! What follows when an agent ended, by itself or on request: its record, its instance, and nothing of its work.

use std::{sync::Arc, time::Duration};

use crate::{
    adoption::answers,
    error::{Error, ErrorKind},
    id::{ProcessId, RunId},
    instance::Instance,
    observe::{Liveness, ended_state, liveness},
    process::{EndCause, ExitStatus, ProcessPhase, Signal},
    shared::{Shared, now_ms},
    store::{RunRecord, RunState},
    undo::{Component, Occasion},
};

/// What settling a run came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settled {
    /// The record as it is now.
    pub record: RunRecord,
    /// Whether the run was closed, branch included, because nothing was changed.
    pub closed: bool,
}

/// Settles a run whose agent ended: its state is recorded, its instance goes, and if nothing at all was changed the run is closed.
///
/// What somebody else settled is left as it is, and a run that is up as well.
pub(crate) async fn settle(shared: &Shared, run: &RunId) -> Result<Settled, Error> {
    let record = shared.record(run).await?;
    let _hold = shared.hold_run(&record).await?;
    settle_held(shared, shared.record(run).await?).await
}

/// Settles a run whose session is held.
pub(crate) async fn settle_held(shared: &Shared, record: RunRecord) -> Result<Settled, Error> {
    if record.state != RunState::Running {
        let closed = record.state == RunState::Closed;
        return Ok(Settled { record, closed });
    }
    let record = settle_ended(shared, record).await?;
    let may_close = !record.keep
        && matches!(
            record.state,
            RunState::Exited | RunState::TimedOut | RunState::Interrupted
        );
    if may_close && unchanged(shared, &record.run).await {
        return Box::pin(close_unchanged(shared, record)).await;
    }
    Ok(Settled {
        record,
        closed: false,
    })
}

/// Records the end of an agent that is found to have ended, and removes its instance; does not close.
pub(crate) async fn settle_ended(shared: &Shared, record: RunRecord) -> Result<RunRecord, Error> {
    let status = match liveness(shared, &record).await? {
        // Where there is no agent to ask for, its instance is asked.
        Liveness::Up if record.command.is_none() && !answers(shared, &record).await? => None,
        Liveness::Up => return Ok(record),
        Liveness::Ended(status) => Some(status),
        Liveness::Lost => None,
    };
    Box::pin(record_end(shared, record, ended_state(status), status)).await
}

/// Writes how an agent ended, then takes its instance away.
pub(crate) async fn record_end(
    shared: &Shared,
    record: RunRecord,
    state: RunState,
    exit: Option<ExitStatus>,
) -> Result<RunRecord, Error> {
    let ended = RunRecord {
        state,
        exit: exit.or(record.exit),
        ended_ms: Some(now_ms()),
        ..record
    };
    let ended = shared.parts.store.put(&ended).await?;
    let unwound = shared
        .unwind_run(&ended.run, Occasion::End.careful())
        .await?;
    let problem = unwound.stuck().next();
    let problem = problem.map(|(_, error)| crate::error::ErrorReport::from(&**error));
    let left = match problem {
        Some(_) => RunRecord {
            state: RunState::Stuck,
            problem,
            ..ended
        },
        None if unwound.undelivered == ended.kept => return Ok(ended),
        None => RunRecord {
            kept: unwound.undelivered,
            ..ended
        },
    };
    shared.parts.store.put(&left).await
}

/// Tells whether everything a run still owns is as it was made.
async fn unchanged(shared: &Shared, run: &RunId) -> bool {
    let Ok(armed) = shared.armed(run).await else {
        return false;
    };
    let mut owns_something = false;
    for record in armed.iter().map(|armed| &armed.record) {
        let Component::Preparer(name) = &record.component else {
            return false;
        };
        let Ok(preparer) = shared.parts.registry.preparer(name) else {
            return false;
        };
        match Arc::clone(preparer)
            .assess(record, Occasion::Remove.careful())
            .await
        {
            Ok(assessment) if !assessment.changed => owns_something = true,
            _ => return false,
        }
    }
    owns_something
}

/// Closes a run in which nothing was changed; what turns out to be changed after all is kept.
async fn close_unchanged(shared: &Shared, record: RunRecord) -> Result<Settled, Error> {
    let unwound = shared
        .unwind_run(&record.run, Occasion::Remove.careful())
        .await?;
    if unwound.is_clean() && unwound.kept().next().is_none() {
        let record = shared
            .parts
            .store
            .put(&RunRecord {
                state: RunState::Closed,
                ..record
            })
            .await?;
        return Ok(Settled {
            record,
            closed: true,
        });
    }
    let kept = unwound
        .kept()
        .flat_map(|(_, findings)| findings.to_vec())
        .collect();
    let state = if unwound.is_clean() {
        record.state
    } else {
        RunState::Stuck
    };
    let record = shared
        .parts
        .store
        .put(&RunRecord {
            state,
            kept,
            ..record
        })
        .await?;
    Ok(Settled {
        record,
        closed: false,
    })
}

/// Stops the processes of a run; its workspace stays. One that has ended already is settled and left as it is.
pub(crate) async fn stop(
    shared: &Shared,
    run: &RunId,
    grace: Option<Duration>,
) -> Result<RunRecord, Error> {
    let record = shared.record(run).await?;
    let _hold = shared.hold_run(&record).await?;
    let record = shared.record(run).await?;
    match record.state {
        RunState::Running => end(shared, record, grace.unwrap_or(shared.parts.policy.grace)).await,
        RunState::Preparing => Err(Error::new(
            ErrorKind::Unavailable,
            "the launch of the run died; run `recover`",
        )
        .with("run", run)),
        _ => Ok(record),
    }
}

/// Ends a run that is up; the session is held.
pub(crate) async fn end(
    shared: &Shared,
    record: RunRecord,
    grace: Duration,
) -> Result<RunRecord, Error> {
    let exit = match liveness(shared, &record).await {
        Ok(Liveness::Up) => Box::pin(shut_down(shared, &record, grace)).await?,
        Ok(Liveness::Ended(status)) => Some(status),
        Ok(Liveness::Lost) => None,
        // It does not answer: taking the instance away ends it in any case.
        Err(error) if error.is_retryable() => None,
        Err(error) => return Err(error),
    };
    let state = match exit {
        // A workspace without an agent has no status of its own.
        None if record.command.is_none() => RunState::Stopped,
        status => ended_state(status),
    };
    Box::pin(record_end(shared, record, state, exit)).await
}

/// Ends an agent in an instance that others go on with.
async fn end_agent(
    instance: &dyn Instance,
    agent: &ProcessId,
    grace: Duration,
) -> Result<ExitStatus, Error> {
    instance.signal(agent, Signal::TERM).await?;
    let in_time = tokio::time::timeout(grace, instance.wait(agent)).await;
    let ended = if let Ok(ended) = in_time {
        ended
    } else {
        instance.signal(agent, Signal::KILL).await?;
        instance.wait(agent).await
    };
    // It ended because it was asked to, whatever it knows of that.
    ended.map(|status| ExitStatus {
        cause: EndCause::Stopped,
        ..status
    })
}

async fn shut_down(
    shared: &Shared,
    record: &RunRecord,
    grace: Duration,
) -> Result<Option<ExitStatus>, Error> {
    let instance = shared.instance(record).await?;
    let agent = record.agent_process()?;
    if shared.heir(record, Occasion::End).await?.is_some() {
        if record.command.is_none() {
            return Ok(None);
        }
        return end_agent(&*instance, &agent, grace).await.map(Some);
    }
    instance.shutdown(grace).await?;
    // The supervisor is gone now; what it recorded is read from where it left it.
    let processes = match shared.instance(record).await {
        Ok(instance) => instance.processes().await?,
        Err(_) => Vec::new(),
    };
    Ok(processes
        .into_iter()
        .find(|process| process.id == agent)
        .map(|process| match process.phase {
            ProcessPhase::Ended(status) => status,
            _ => ExitStatus {
                code: None,
                signal: None,
                core_dumped: false,
                cause: EndCause::Stopped,
            },
        }))
}
