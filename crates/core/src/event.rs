//! What a launch tells while it goes on: one ordered stream, from which nothing secret can be read.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use crate::{
    error::ErrorKind,
    id::{AttemptId, PreparerName, RunId},
    process::Started,
    unwind::Outcome,
};

/// The steps of a launch, in order; also the key of errors, timings and fault points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The session is taken, every planned name is armed.
    Reserve,
    /// Secrets are revealed.
    Reveal,
    /// One preparer makes its effects.
    Prepare(PreparerName),
    /// The executor makes the instance.
    Create,
    /// The instance is reached and gets its environment.
    Connect,
    /// One preparer fills the instance's own storage.
    Populate(PreparerName),
    /// Payload files and tool servers are handed over.
    Equip,
    /// Setup scripts run.
    Setup,
    /// The session is asked whether it still wants the run.
    Admit,
    /// The run is recorded.
    Register,
    /// The session is asked again.
    AdmitAgain,
    /// The agent starts.
    Start,
    /// What was due only on failure is dropped.
    Commit,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve => f.write_str("reserve"),
            Self::Reveal => f.write_str("reveal"),
            Self::Prepare(name) => write!(f, "prepare:{name}"),
            Self::Create => f.write_str("create"),
            Self::Connect => f.write_str("connect"),
            Self::Populate(name) => write!(f, "populate:{name}"),
            Self::Equip => f.write_str("equip"),
            Self::Setup => f.write_str("setup"),
            Self::Admit => f.write_str("admit"),
            Self::Register => f.write_str("register"),
            Self::AdmitAgain => f.write_str("admit_again"),
            Self::Start => f.write_str("start"),
            Self::Commit => f.write_str("commit"),
        }
    }
}

/// Something that happened in a launch.
#[derive(Clone, Debug)]
pub struct Event {
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: AttemptId,
    /// Counts from 0 within the attempt, without gaps.
    pub seq: u64,
    /// When, by the wall clock, for people.
    pub at: SystemTime,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// Something a person should know.
    Warning(String),
    /// A step began.
    StepStarted(Step),
    /// A step tells what it does.
    StepProgress(Step, String),
    /// A step ended well, after that long.
    StepFinished(Step, Duration),
    /// A step failed.
    StepFailed(Step, ErrorKind),
    /// Rollback began, because that step failed.
    RollbackStarted(Step),
    /// A resource, by its label, was asked to go, with that outcome.
    Undo(String, Outcome),
    /// The agent runs.
    AgentStarted(Started),
    /// The launch succeeded; its last event.
    Launched,
    /// The launch failed and was rolled back; its last event.
    RolledBack {
        /// Whether nothing is left that was not kept on purpose.
        clean: bool,
    },
}

/// Takes events; cannot fail and must not block.
pub trait EventSink: fmt::Debug + Send + Sync + 'static {
    /// Takes one event.
    fn emit(&self, event: Event);
}

/// Takes no notice.
impl EventSink for () {
    fn emit(&self, _: Event) {}
}

/// Sends each event into a channel; a receiver that is gone is no failure.
impl EventSink for tokio::sync::mpsc::UnboundedSender<Event> {
    fn emit(&self, event: Event) {
        drop(self.send(event));
    }
}
