//! Teardown scripts: run in the instance of a run before it is taken away; bounded, and never a reason to keep it.

use std::time::Duration;

use crate::{
    error::{Error, ErrorKind, ErrorReport},
    id::ProcessId,
    instance::SharedInstance,
    observe::{Liveness, liveness},
    process::ExitStatus,
    script::{GRACE, Script},
    setup::process_name,
    shared::Shared,
    store::{RunRecord, RunState},
};

/// How long the answers around a script may take, beside its own time limit.
const AROUND: Duration = Duration::from_secs(5);

/// What became of a teardown script.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TornDown {
    /// Its name.
    pub script: String,
    /// The process it was, or would have been: `teardown-1` is the first one; its output is in the log of that name.
    pub process: String,
    /// How it ended, or why nobody knows.
    pub outcome: Result<ExitStatus, ErrorReport>,
}

impl TornDown {
    /// Returns what went wrong, in words; nothing if nothing did.
    pub fn problem(&self) -> Option<String> {
        match &self.outcome {
            Ok(status) if *status == ExitStatus::exited(0) => None,
            Ok(status) => Some(status.to_string()),
            Err(error) => Some(Error::from(error.clone()).to_string()),
        }
    }
}

/// Runs the teardown scripts of a run, each whatever became of those before it; the session is held.
///
/// * They run only in the instance that the run has: another one would be one more thing to own.
/// * One that ran already in that instance is not run again.
pub(crate) async fn tear_down(shared: &Shared, record: &RunRecord) -> Vec<TornDown> {
    let scripts = &record.scripts.teardown;
    if scripts.is_empty() {
        return Vec::new();
    }
    let instance = match instance(shared, record).await {
        Ok(instance) => Ok(instance),
        Err(error) => Err(ErrorReport::from(&error)),
    };
    let mut report = Vec::new();
    for (index, script) in scripts.iter().enumerate() {
        let process = process_name("teardown", index);
        let named = process.as_ref().map(ProcessId::to_string);
        let outcome = match (&instance, &process) {
            (Ok(instance), Ok(process)) => run(shared, record, instance, process, script)
                .await
                .map_err(|error| ErrorReport::from(&error)),
            (Err(error), _) => Err(error.clone()),
            (_, Err(error)) => Err(ErrorReport::from(error)),
        };
        report.push(TornDown {
            script: script.name.clone(),
            process: named.unwrap_or_default(),
            outcome,
        });
    }
    report
}

async fn instance(shared: &Shared, record: &RunRecord) -> Result<SharedInstance, Error> {
    let up = record.state == RunState::Running
        && matches!(liveness(shared, record).await?, Liveness::Up);
    if !up {
        let why = "the instance of the run has ended, so the script was not run";
        return Err(Error::new(ErrorKind::Unavailable, why).retryable(false));
    }
    shared.instance(record).await
}

async fn run(
    shared: &Shared,
    record: &RunRecord,
    instance: &SharedInstance,
    process: &ProcessId,
    script: &Script,
) -> Result<ExitStatus, Error> {
    let registration = shared.parts.registry.get(&record.executor)?;
    let isolation = registration.executor.capabilities().isolation;
    let Some(workspace) = &record.workspace else {
        let why = "the run has no workspace, so the script was not run";
        return Err(Error::new(ErrorKind::NotFound, why));
    };
    let spec = script.process(workspace, isolation);
    let ended = async {
        instance.start(process, &spec).await?;
        instance.wait(process).await
    };
    let limit = script.time_limit + GRACE + AROUND;
    tokio::time::timeout(limit, ended)
        .await
        .unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::TimedOut,
                "the instance did not say in time that the script ended",
            ))
        })
}
