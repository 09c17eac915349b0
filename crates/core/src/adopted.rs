//! The run whose instance a launch joins, and the one thing that such a launch makes: its agent's process.

use crate::{
    error::{Error, ErrorKind},
    executor::Executor,
    id::{AttemptId, InstanceId, ProcessId},
    instance::Instance,
    process::Signal,
    store::RunRecord,
    undo::{Component, Due, UndoRecord, Undone},
};

/// The key of the undo record of an agent that is started in an instance which was there before.
pub(crate) const AGENT_KEY: &str = "agent";

/// The run whose instance a launch joins, as it was planned with.
#[derive(Clone, Debug)]
pub(crate) struct Adopted {
    /// Whose instance it is: the run's own before, or a sibling's.
    pub(crate) owner: RunRecord,
    /// The name of the agent to be: names are used once in an instance.
    pub(crate) process: ProcessId,
}

impl Adopted {
    pub(crate) fn new(owner: RunRecord, attempt: AttemptId) -> Result<Self, Error> {
        let process = ProcessId::new(format!("{AGENT_KEY}-{attempt}"))?;
        Ok(Self { owner, process })
    }

    /// Returns the record of the agent to be.
    pub(crate) fn record(&self, attempt: AttemptId) -> UndoRecord {
        UndoRecord {
            key: AGENT_KEY.to_owned(),
            attempt,
            component: Component::Process(self.owner.executor.clone()),
            resource: format!("{}/{}", self.owner.instance, self.process),
            label: format!("process {}", self.process),
            due: Due::End,
            depends_on: Vec::new(),
            identity: None,
        }
    }
}

/// Tells whether an error means that the instance is no more.
pub(crate) fn ended(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::NotFound => true,
        ErrorKind::Unavailable => !error.is_retryable(),
        _ => false,
    }
}

/// Takes a process away from an instance that stays.
pub(crate) async fn end_process(
    executor: &dyn Executor,
    record: &UndoRecord,
) -> Result<Undone, Error> {
    let Some((instance, process)) = record.resource.split_once('/') else {
        return Err(
            Error::new(ErrorKind::Corrupt, "the record names no process")
                .with("resource", &record.resource),
        );
    };
    let (instance, process) = (InstanceId::new(instance)?, ProcessId::new(process)?);
    let reached = match executor.connect(&instance).await {
        Ok(reached) => reached,
        Err(error) if ended(&error) => return Ok(Undone::AlreadyGone),
        Err(error) => return Err(error),
    };
    kill(&*reached, &process).await
}

async fn kill(instance: &dyn Instance, process: &ProcessId) -> Result<Undone, Error> {
    match instance.signal(process, Signal::KILL).await {
        Ok(()) => {}
        Err(error) if ended(&error) => return Ok(Undone::AlreadyGone),
        Err(error) => return Err(error),
    }
    match instance.wait(process).await {
        Ok(_) => Ok(Undone::REMOVED),
        // Nobody knows how, but it ended.
        Err(error) if error.get("phase") == Some("lost") || ended(&error) => Ok(Undone::REMOVED),
        Err(error) => Err(error),
    }
}
