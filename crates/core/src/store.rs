//! The contract of the durable state: attempts with their undo records, and the records of runs.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorReport},
    executor::Limits,
    id::{
        AttemptId, ExecutorName, InstanceId, ProcessId, RunId, SessionId, ShareKey, TaskId,
        TenantId,
    },
    identity::Identity,
    process::{ExitStatus, Lease},
    profile::AgentUse,
    script::Scripts,
    secret::{SecretId, SecretRef},
    undo::{UndoOptions, UndoRecord},
    wire::OsText,
    workspace::{Finding, Workspace},
};

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunState {
    /// Its launch is under way.
    Preparing,
    /// It is up.
    Running,
    /// Its agent ended by itself.
    Exited,
    /// It was stopped on request.
    Stopped,
    /// Its time limit passed.
    TimedOut,
    /// Its end was not seen, or came with the lease; or its launch failed and work was found in its workspace.
    Interrupted,
    /// Its launch failed.
    Failed,
    /// It is being closed.
    Closing,
    /// Nothing of it is left but this row and its logs.
    Closed,
    /// Something of it could not be taken away yet; it is tried again.
    Stuck,
}

impl RunState {
    /// Returns the name that documents use, such as `timed_out`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Stopped => "stopped",
            Self::TimedOut => "timed_out",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Stuck => "stuck",
        }
    }

    /// Returns whether the run still holds its session: every state but `failed` and `closed`.
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Failed | Self::Closed)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a run was before the attempt that resumes it; put back when that attempt fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Its attempt.
    pub attempt: AttemptId,
    /// Its instance.
    pub instance: InstanceId,
    /// Its state.
    pub state: RunState,
    /// The agent's arguments.
    pub command: Option<Vec<OsText>>,
    /// Its lease.
    pub lease: Lease,
    /// When its agent ended.
    pub ended_ms: Option<u64>,
    /// How its agent ended.
    pub exit: Option<ExitStatus>,
    /// The name of its agent's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// Who its agent was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentUse>,
}

/// The durable row of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run.
    pub run: RunId,
    /// Its session; at most one live run has it.
    pub session: SessionId,
    /// Its task.
    pub task: TaskId,
    /// Its tenant.
    pub tenant: Option<TenantId>,
    /// The attempt that made, or is making, its present instance.
    pub attempt: AttemptId,
    /// Counts the writes to this row; a write names the one it has read.
    pub revision: u64,
    /// The executor's name, as requested.
    pub executor: ExecutorName,
    /// Its present instance; a run that shares it or joined it did not make it.
    pub instance: InstanceId,
    /// The name of its agent's process, where that is not `agent`: an agent that joined an instance has a name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// What it shares its instance and its workspace under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_key: Option<ShareKey>,
    /// What its instance is limited to.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// What its executor was told; never a secret.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub options: serde_json::Map<String, serde_json::Value>,
    /// Where it is in its life.
    pub state: RunState,
    /// Words for people.
    pub title: Option<String>,
    /// The agent's arguments; none for a workspace without an agent.
    pub command: Option<Vec<OsText>>,
    /// Its workspace.
    pub workspace: Option<Workspace>,
    /// Its lease.
    pub lease: Lease,
    /// When it was asked for, in milliseconds since 1970; for people.
    pub created_ms: u64,
    /// When its agent ended, in milliseconds since 1970; for people.
    pub ended_ms: Option<u64>,
    /// How its agent ended.
    pub exit: Option<ExitStatus>,
    /// Who its agent is and what was wanted of it, where a profile says how it is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentUse>,
    /// The secrets of its environment, by name: what is hidden when its output is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretId>,
    /// What its executor returned, by the names under which it is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_secrets: Vec<SecretRef>,
    /// The scripts that ready and clear its workspace.
    #[serde(default, skip_serializing_if = "Scripts::is_empty")]
    pub scripts: Scripts,
    /// What a protocol needs to go on with the conversation; survives failed starts.
    pub resume_token: Option<String>,
    /// Whether the workspace stays even if nothing was changed.
    pub keep: bool,
    /// Why its workspace was kept.
    #[serde(default)]
    pub kept: Vec<Finding>,
    /// What went wrong last.
    #[serde(default)]
    pub problem: Option<ErrorReport>,
    /// What it was before, while an attempt to resume it is under way.
    #[serde(default)]
    pub before: Option<Before>,
}

impl RunRecord {
    /// Returns the name of its agent among the processes of its instance.
    ///
    /// # Errors
    ///
    /// None that can occur; the name is valid.
    pub fn agent_process(&self) -> Result<ProcessId, Error> {
        match &self.process {
            Some(process) => Ok(process.clone()),
            None => ProcessId::new("agent"),
        }
    }
}

/// Where an attempt is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptPhase {
    /// Its launch is under way, or died.
    Launching,
    /// Its launch succeeded.
    Committed,
    /// What is due is being taken away.
    Unwinding(UndoOptions),
}

/// The durable row of an attempt, with what is still armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    /// The attempt.
    pub attempt: AttemptId,
    /// The run it is for.
    pub run: RunId,
    /// The session it is for.
    pub session: SessionId,
    /// Whether it resumes a run that existed before.
    pub resumes: bool,
    /// Where it is in its life.
    pub phase: AttemptPhase,
    /// When it began, in milliseconds since 1970; for people.
    pub created_ms: u64,
    /// What is still armed, in the order of arming.
    pub armed: Vec<ArmedRecord>,
}

/// An undo record in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmedRecord {
    /// The record.
    pub record: UndoRecord,
    /// How often taking it away failed.
    pub tries: u32,
    /// Why it failed last.
    pub last_error: Option<ErrorReport>,
}

/// What one transaction writes at the start of a launch.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// The record: new, or the read one with the new attempt in it.
    pub record: RunRecord,
    /// Whether the record existed; its revision is then the one that was read.
    pub resumes: bool,
    /// Every undo record that is known at plan.
    pub armed: Vec<UndoRecord>,
}

/// The durable state; many processes share it.
///
/// * A verb that returned is on disk, unless its bullet says otherwise.
/// * A write that names a revision which is not the stored one changes nothing: `Conflict`.
/// * A full or read-only disk is an error before the effect that the write announces.
#[async_trait]
pub trait StateStore: fmt::Debug + Send + Sync + 'static {
    /// Begins an attempt: its row, the record, and all undo records, in one transaction.
    ///
    /// * A session that has another live run is `SessionBusy`, with `run` and `state` in the context.
    /// * A resumption whose revision is not the stored one is `Conflict`.
    /// * Sets the record's revision and returns the record as stored.
    async fn reserve(&self, reservation: Reservation) -> Result<RunRecord, Error>;

    /// Arms one more record of an attempt.
    async fn arm(&self, record: &UndoRecord) -> Result<(), Error>;

    /// Stores which thing a record turned out to be; may be lost with a crash of the machine, not of the process.
    async fn identify(
        &self,
        attempt: AttemptId,
        key: &str,
        identity: &Identity,
    ) -> Result<(), Error>;

    /// Ends a launch well: the attempt is committed, records due only on failure are dropped, the record is written.
    async fn commit(&self, record: &RunRecord) -> Result<RunRecord, Error>;

    /// Notes that what is due on an occasion is about to be taken away.
    async fn begin_unwind(&self, attempt: AttemptId, options: UndoOptions) -> Result<(), Error>;

    /// Notes that an attempt is at rest again: what is still armed is owned, and due on a later occasion.
    async fn rest(&self, attempt: AttemptId) -> Result<(), Error>;

    /// Forgets an undo record, after its undo returned.
    async fn retire(&self, attempt: AttemptId, key: &str) -> Result<(), Error>;

    /// Hands an attempt with everything that it still owns over to another run; it is at rest then.
    ///
    /// * The records name the attempt as before: the marks on what they stand for do.
    /// * No attempt of that name is success: nothing was left to hand over.
    async fn hand_over(
        &self,
        attempt: AttemptId,
        run: &RunId,
        session: &SessionId,
    ) -> Result<(), Error>;

    /// Notes that taking a record away failed.
    async fn note_failure(
        &self,
        attempt: AttemptId,
        key: &str,
        error: &ErrorReport,
    ) -> Result<(), Error>;

    /// Forgets an attempt with nothing armed; one that still owns something is `Conflict`.
    async fn forget(&self, attempt: AttemptId) -> Result<(), Error>;

    /// Returns all attempts that own something or are under way, oldest first.
    async fn attempts(&self) -> Result<Vec<AttemptRow>, Error>;

    /// Returns the attempts of one run, oldest first.
    async fn attempts_of(&self, run: &RunId) -> Result<Vec<AttemptRow>, Error>;

    /// Returns one record.
    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>, Error>;

    /// Returns all records, oldest first.
    async fn runs(&self) -> Result<Vec<RunRecord>, Error>;

    /// Returns the live record of a session.
    async fn run_of_session(&self, session: &SessionId) -> Result<Option<RunRecord>, Error>;

    /// Writes a record whose revision is the stored one; returns it with the new revision.
    async fn put(&self, record: &RunRecord) -> Result<RunRecord, Error>;

    /// Deletes a record that still names `attempt`; one that names another, or none, is left alone and is success.
    async fn delete(&self, run: &RunId, attempt: AttemptId) -> Result<(), Error>;

    /// Checks that what is stored is sound; for `doctor` and `recover`.
    async fn check(&self) -> Result<(), Error>;
}

/// What is locked between processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockName {
    /// Everything that happens to one session.
    Session(SessionId),
    /// One attempt, while it launches or rolls back.
    Attempt(AttemptId),
    /// Everything that happens to what several sessions share; taken after the session's own.
    Share(ShareKey),
    /// Everything at work, shared; a maintenance that is not forced has it alone.
    Activity,
    /// One maintenance.
    Maintenance,
    /// Those who wait for a maintenance to end, shared.
    TaskWaiting,
}

/// Held until dropped, or until the process ends however it ends.
pub trait LockGuard: fmt::Debug + Send + Sync {}

/// Locks between processes.
#[async_trait]
pub trait LockDirectory: fmt::Debug + Send + Sync + 'static {
    /// Waits for a lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place in the queue up; a lock that was just gained is given back.
    async fn lock(&self, name: &LockName) -> Result<Box<dyn LockGuard>, Error>;

    /// Takes a lock if nobody has it.
    async fn try_lock(&self, name: &LockName) -> Result<Option<Box<dyn LockGuard>>, Error>;

    /// Takes a lock together with others who share it, if nobody has it alone.
    async fn try_share(&self, name: &LockName) -> Result<Option<Box<dyn LockGuard>>, Error>;

    /// Removes what dead holders left behind of locks that nobody has, such as files; held ones stay.
    async fn sweep(&self) -> Result<(), Error>;
}
