//! What happens in a session: typed events in one order, ready to be written as JSON.
//!
//! An event never holds a variable of the agent. What the agent says is its own: a program that shows events to people puts
//! them through its redactor.

use std::fmt;

use groundcrew_core::{error::ErrorReport, id::SessionId, process::Offset};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    request::{Decision, InteractiveRequest, RequestId},
    settings::{ConversationId, TurnId},
};

/// Something that happened in a session.
///
/// * `seq` rises with each event of a session, over all its processes and controllers, and is never used twice; a takeover
///   leaves a gap.
/// * After a takeover the new controller tells again what the old one may not have told: what has an `offset` that was seen
///   already, of the same `process`, is the same event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionEvent {
    /// The session.
    pub session: SessionId,
    /// Its place in the order.
    pub seq: u64,
    /// Which controller tells it: the first is 0.
    pub epoch: u32,
    /// The process it is about, counted over the life of the session.
    pub process: u64,
    /// The offset of the process's output behind the message that it comes from; none for what comes from us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// The turn, counted from 1 over the life of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A conversation is open and takes prompts.
    SessionStarted {
        /// The conversation: the token with which it is resumed.
        conversation: ConversationId,
        /// Whether it is an earlier one.
        resumed: bool,
        /// The model, where the agent told it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// Another controller than before goes on with a conversation that is open; what waits for an answer is told again.
    TakenOver {
        /// The conversation.
        conversation: ConversationId,
    },
    /// The agent wants a login; no conversation is open.
    AuthenticationRequired {
        /// What a person can do.
        message: String,
    },
    /// A turn was begun by us.
    TurnStarted {
        /// The agent's name of it, where it is known already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<TurnId>,
    },
    /// A prompt went into the turn that runs.
    TurnSteered,
    /// A piece of text of the agent.
    TextDelta {
        /// The message that it belongs to.
        item: String,
        /// The piece.
        text: String,
    },
    /// A whole text of the agent; its pieces were told before.
    Text {
        /// The message.
        item: String,
        /// The whole text.
        text: String,
    },
    /// A piece of what the agent shows of its thoughts.
    ThoughtDelta {
        /// The thought that it belongs to.
        item: String,
        /// The piece.
        text: String,
    },
    /// The agent's plan, whole.
    Plan {
        /// Its steps.
        steps: Vec<PlanStep>,
    },
    /// A tool is used.
    ToolStarted {
        /// The call.
        item: String,
        /// What kind of tool.
        tool: ToolKind,
        /// What is shown of it, such as the command.
        title: String,
        /// What it is given, in the agent's words.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        input: Value,
    },
    /// More is known of a tool call that goes on.
    ToolUpdated {
        /// The call.
        item: String,
        /// What is shown of it, where that changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// What it is given, where that is told only now.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        input: Value,
    },
    /// A piece of what a tool writes.
    ToolOutput {
        /// The call.
        item: String,
        /// The piece.
        text: String,
    },
    /// A tool call ended.
    ToolEnded {
        /// The call.
        item: String,
        /// How.
        outcome: ItemOutcome,
        /// The exit code of a command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i64>,
        /// What came out, where it is told in one piece.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<String>,
    },
    /// Files change.
    FileChanges {
        /// The item.
        item: String,
        /// How far it is.
        outcome: ItemOutcome,
        /// The files.
        changes: Vec<FileChange>,
    },
    /// The agent asks a person.
    Asked {
        /// What.
        request: InteractiveRequest,
    },
    /// A request was answered.
    Answered {
        /// Which.
        request: RequestId,
        /// How.
        answer: Decision,
        /// Whether the session's settings answered it, and no person.
        automatic: bool,
    },
    /// The agent settled a request by itself.
    Superseded {
        /// Which.
        request: RequestId,
    },
    /// A request can no longer be answered.
    Interrupted {
        /// Which.
        request: RequestId,
    },
    /// What was used so far.
    Usage {
        /// The figures.
        usage: Usage,
    },
    /// A tool server's state changed.
    McpServer {
        /// Its name.
        server: String,
        /// Its state, in the agent's words.
        status: String,
        /// What is wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Something that a person should know; it decides nothing.
    Warning {
        /// What it is about, such as `mcp`.
        about: String,
        /// What.
        text: String,
    },
    /// A turn ended: the last event of it, told once.
    TurnEnded {
        /// How.
        outcome: TurnOutcome,
        /// What went wrong, where something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Why it stopped, in the agent's words, where it says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The process, or the way to it, is gone.
    Disconnected {
        /// Why, with the end of what it told on standard error.
        error: ErrorReport,
    },
    /// The session's process was closed by us.
    Closed,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanStep {
    /// What.
    pub step: String,
    /// Where it is, in the agent's words.
    pub status: String,
}

/// What kind of tool is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolKind {
    /// A command.
    Command,
    /// A change of files.
    FileChange,
    /// A tool of a tool server.
    Mcp,
    /// A search on the web.
    WebSearch,
    /// Anything else.
    Other,
}

/// How an item of a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemOutcome {
    /// It goes on.
    InProgress,
    /// Well.
    Completed,
    /// With an error.
    Failed,
    /// It was not allowed.
    Declined,
}

/// A file that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileChange {
    /// The file, as the agent names it.
    pub path: String,
    /// `add`, `update`, `delete`, or the agent's own word.
    pub change: String,
    /// The difference, where it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// What a conversation used, in tokens; what an agent does not tell is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Read.
    pub input: Option<u64>,
    /// Read from a cache, part of what was read.
    pub cached_input: Option<u64>,
    /// Written.
    pub output: Option<u64>,
    /// Thought, part of what was written.
    pub reasoning: Option<u64>,
    /// All together.
    pub total: Option<u64>,
    /// How much fits into the conversation.
    pub window: Option<u64>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnOutcome {
    /// The agent is done.
    Completed,
    /// It was interrupted, by us or by somebody else, and the process goes on.
    Interrupted,
    /// It failed.
    Failed,
    /// It did not end when it was asked to, and its process was closed.
    Cancelled,
}

/// Takes events; cannot fail and must not block.
pub trait SessionSink: fmt::Debug + Send + Sync + 'static {
    /// Takes one event.
    fn emit(&self, event: SessionEvent);
}

impl SessionSink for () {
    fn emit(&self, _: SessionEvent) {}
}

/// Sends events on a channel; without a receiver they are dropped.
impl SessionSink for tokio::sync::mpsc::UnboundedSender<SessionEvent> {
    fn emit(&self, event: SessionEvent) {
        // Nobody listens any more: that fails no session.
        let _unheard = self.send(event);
    }
}
