//! What a caller asks for.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use crate::{
    command::Command,
    env::{Definition, Key},
    executor::Limits,
    id::{ExecutorName, RunId, SessionId, ShareKey, TaskId, TenantId},
    instance::McpServer,
    payload::Payload,
    process::{Lease, StdinPolicy, StdioKind, StopOrder},
    profile::{AgentProfile, AgentUse},
    script::Script,
    secret::SecretId,
    workspace::WorkspaceRequest,
};

/// A request to bring up a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRequest {
    /// The session; a run has one of its own if nothing is said.
    pub session: Option<SessionId>,
    /// The task that the session belongs to; the session itself if nothing is said.
    pub task: Option<TaskId>,
    /// The grouping that owns secrets and directories.
    pub tenant: Option<TenantId>,
    /// Words for people; the branch is named after them.
    pub title: Option<String>,
    /// What it shares with other sessions of its task: one instance and one workspace, those of the first that came up.
    ///
    /// The workspace that is asked for is then made only by that first one.
    pub share_key: Option<ShareKey>,
    /// Which executor; never another one instead.
    pub executor: ExecutorName,
    /// The files to work on.
    pub workspace: WorkspaceRequest,
    /// What to bring up.
    pub mode: Mode,
    /// Whether it is new, or goes on from an earlier run.
    pub intent: LaunchIntent,
    /// Variables.
    pub environment: Vec<Definition>,
    /// Values that may be too large for variables.
    pub payloads: Vec<Payload>,
    /// Directories that outlive runs, for programs that keep caches.
    pub caches: Vec<ManagedCache>,
    /// Servers of tools that agent sessions open with; an empty list changes nothing in an instance that is joined.
    pub mcp_servers: Vec<McpServer>,
    /// Scripts that run in the instance before the agent starts, in this order; resuming a run runs those that did not finish.
    pub setup: Vec<Script>,
    /// Whether a run is gone on with although its own setup scripts did not all run; they are then never run again.
    pub skip_setup: bool,
    /// Scripts that run in the instance, if it is up, before the run is closed.
    pub teardown: Vec<Script>,
    /// How long the run lives on without a controller, once it is committed.
    pub lease: Lease,
    /// Whether the workspace stays even if nothing was changed in it.
    pub keep: bool,
    /// How much of the machine it may use; one that the executor cannot hold it to fails the plan.
    pub limits: Limits,
    /// Options that only the executor reads; unknown ones are refused by its `check`.
    pub options: serde_json::Map<String, serde_json::Value>,
}

impl LaunchRequest {
    /// Asks for a new run with nothing but what every request must say; the other fields are set where they are wanted.
    ///
    /// * Its lease is that of an attached run, and nothing is kept without need.
    pub fn new(executor: ExecutorName, workspace: WorkspaceRequest, mode: Mode) -> Self {
        Self {
            session: None,
            task: None,
            tenant: None,
            title: None,
            share_key: None,
            executor,
            workspace,
            mode,
            intent: LaunchIntent::Fresh,
            environment: Vec::new(),
            payloads: Vec::new(),
            caches: Vec::new(),
            mcp_servers: Vec::new(),
            setup: Vec::new(),
            skip_setup: false,
            teardown: Vec::new(),
            lease: Lease::ATTACHED,
            keep: false,
            limits: Limits::default(),
            options: serde_json::Map::new(),
        }
    }
}

/// A directory that outlives runs, in which a program keeps what it can make again.
///
/// * Its variable holds its path and is stronger than what the request says, so that what a program caches can be found and
///   cleared; a secret is never outranked by it.
/// * Only an executor whose instances see the host's paths gets it; elsewhere neither variable nor directory exists.
/// * It is made, private to the user, through the instance, and stays: the embedding program lists and clears it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCache {
    /// The variable, such as `GOCACHE`.
    pub variable: Key,
    /// Its absolute path.
    pub directory: PathBuf,
}

/// What a run is: a type, never an empty command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The instance and its workspace, without an agent.
    Workspace,
    /// An agent as well.
    Agent(AgentSpec),
}

/// How to run the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSpec {
    /// What is run.
    pub program: AgentProgram,
    /// Its standard streams.
    pub stdio: StdioKind,
    /// Whether it gets input.
    pub stdin: StdinPolicy,
    /// Ends it this long after its start.
    pub time_limit: Option<Duration>,
    /// Ends it once it wrote nothing and got no input for that long.
    pub idle_limit: Option<Duration>,
    /// How it is ended; the profile's own order if nothing is said, or the default one.
    pub stop: Option<StopOrder>,
}

impl AgentSpec {
    /// Asks for an agent with pipes, without input, and without an end in time; the other fields are set where they are wanted.
    pub fn new(program: impl Into<AgentProgram>) -> Self {
        Self {
            program: program.into(),
            stdio: StdioKind::Pipes,
            stdin: StdinPolicy::Empty,
            time_limit: None,
            idle_limit: None,
            stop: None,
        }
    }
}

/// What is run as the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentProgram {
    /// Exactly these arguments.
    Command(Command),
    /// What a profile makes of what is wanted.
    Profile(Box<ProfiledAgent>),
}

impl From<Command> for AgentProgram {
    fn from(command: Command) -> Self {
        Self::Command(command)
    }
}

/// An agent that is run by a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfiledAgent {
    /// Who it is, how it is run, and what is wanted of it; stored with the run.
    pub used: AgentUse,
    /// The profile, where it was read before; else the program's directory of profiles is asked by the execution profile's name.
    pub snapshot: Option<AgentProfile>,
    /// Where the profile's program was found on this machine.
    pub native: Option<PathBuf>,
    /// Which of the secrets that the profile's credentials may be in exist.
    pub known_secrets: BTreeSet<SecretId>,
    /// Where this machine keeps managed caches; without it the profile's caches are the agent's own business.
    pub caches: Option<PathBuf>,
    /// Whether it goes on with earlier work: the command of a follow-up is run, where the profile has one.
    pub follow_up: bool,
}

/// Whether a launch is new.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchIntent {
    /// A new run.
    Fresh,
    /// The same run again, in the workspace it kept.
    ///
    /// * A workspace that is up without an agent gets one: the command and the variables are made anew of this request, and
    ///   if that fails, it is up without an agent as before.
    Resume(RunId),
}
