//! What a session is to be: plain data, given with each call that starts a process.

use std::path::PathBuf;

use groundcrew_core::{command::Command, id::SessionId, instance::McpServer, wire};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::variable::Variable;

/// The name of a conversation as the agent gave it: the token with which it is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConversationId(pub String);

impl std::fmt::Display for ConversationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a turn as the agent gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnId(pub String);

impl std::fmt::Display for TurnId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who decides what the agent asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Approve {
    /// The agent is told to ask nobody; what it asks nevertheless is declined.
    Never,
    /// Whoever answers.
    #[default]
    Ask,
    /// Everything is approved; questions to a person still wait for one.
    Always,
}

/// What the agent's own sandbox lets its tools do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Access {
    /// Nothing is written without an approval.
    ReadOnly,
    /// The workspace may be written.
    #[default]
    Auto,
    /// No sandbox of the agent's: the instance is the isolation.
    Full,
}

/// How a session's process is started and its conversation opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionSettings {
    /// The caller's key; everything is per key.
    pub session: SessionId,
    /// The agent's command.
    pub command: Command,
    /// The working directory of the process, absolute, as seen inside the instance.
    #[serde(with = "wire::path")]
    pub directory: PathBuf,
    /// The working directory as the agent is told it, where that differs.
    #[serde(default, with = "wire::optional_path")]
    pub told_directory: Option<PathBuf>,
    /// Variables of the session, in order.
    #[serde(default)]
    pub environment: Vec<Variable>,
    /// The model; none leaves it to the agent.
    #[serde(default)]
    pub model: Option<String>,
    /// How hard it thinks, in the agent's words.
    #[serde(default)]
    pub effort: Option<String>,
    /// Who decides what it asks for.
    #[serde(default)]
    pub approve: Approve,
    /// What its tools may do unasked.
    #[serde(default)]
    pub access: Access,
    /// Tool servers that it opens with.
    #[serde(default)]
    pub mcp_servers: Vec<McpServer>,
    /// Further settings in the words of the protocol, laid over ours.
    #[serde(default)]
    pub options: Map<String, Value>,
}

impl SessionSettings {
    /// Makes settings that leave everything else to the agent.
    pub fn new(session: SessionId, command: Command, directory: impl Into<PathBuf>) -> Self {
        Self {
            session,
            command,
            directory: directory.into(),
            told_directory: None,
            environment: Vec::new(),
            model: None,
            effort: None,
            approve: Approve::default(),
            access: Access::default(),
            mcp_servers: Vec::new(),
            options: Map::new(),
        }
    }

    /// Returns the working directory as the agent is told it.
    pub fn told(&self) -> &std::path::Path {
        self.told_directory.as_deref().unwrap_or(&self.directory)
    }
}

/// What is said to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Prompt {
    /// The text.
    pub text: String,
}

impl Prompt {
    /// Makes one of text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

/// What a protocol learned from the agent and needs again, also after a takeover: capabilities, modes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(pub Map<String, Value>);

/// A conversation that is open, as its protocol needs it; stored, so nothing secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Conversation {
    /// Its name.
    pub id: ConversationId,
    /// The working directory as the agent was told it.
    #[serde(with = "wire::path")]
    pub directory: PathBuf,
    /// Who decides what the agent asks for.
    pub approve: Approve,
    /// What its tools may do unasked.
    pub access: Access,
    /// What the protocol learned.
    pub facts: Facts,
}

impl Conversation {
    /// Makes one that was opened with these settings.
    pub fn new(id: ConversationId, settings: &SessionSettings, facts: Facts) -> Self {
        Self {
            id,
            directory: settings.told().to_owned(),
            approve: settings.approve,
            access: settings.access,
            facts,
        }
    }
}
