//! What an agent asks of a person, and what may be answered: plain data with documented shapes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{rpc::WireId, settings::TurnId};

/// The name of a request among all that a session ever asked, such as `q3`; the caller answers by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub String);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an agent asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// To run a command.
    Command {
        /// The command as the agent shows it.
        command: String,
        /// Where it would run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        directory: Option<String>,
    },
    /// To change files.
    FileChange {
        /// The files it names; none where it names none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        paths: Vec<String>,
    },
    /// To be granted permissions, in the agent's words.
    Permissions {
        /// What it asks for.
        permissions: Value,
    },
    /// To use a tool, in the agent's words.
    Tool {
        /// What it would do.
        title: String,
        /// With what.
        #[serde(default)]
        input: Value,
    },
    /// To have questions answered.
    Input {
        /// The questions.
        questions: Vec<InputQuestion>,
    },
    /// To have a form of a tool server filled in.
    Elicitation {
        /// The server.
        server: String,
        /// What it says.
        message: String,
        /// The form, as a JSON schema or an address.
        #[serde(default)]
        form: Value,
    },
}

/// One question to a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InputQuestion {
    /// Its name; the answer is given under it.
    pub id: String,
    /// A short title.
    #[serde(default)]
    pub header: String,
    /// The question.
    pub question: String,
    /// Answers to choose from.
    #[serde(default)]
    pub options: Vec<String>,
    /// Whether the answer is a secret.
    #[serde(default)]
    pub secret: bool,
}

/// One of the answers that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Choice {
    /// The agent's own name of it.
    pub id: String,
    /// What a person is shown.
    pub title: String,
    /// What it comes to.
    pub decision: DecisionKind,
}

/// What a choice comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecisionKind {
    /// Yes, this once.
    Approve,
    /// Yes, and the same again without asking.
    ApproveForSession,
    /// No; the turn goes on.
    Deny,
    /// No, and never again.
    DenyForSession,
    /// No, and the turn ends.
    Abort,
}

/// A request of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InteractiveRequest {
    /// Its name.
    pub id: RequestId,
    /// The turn in which it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The item, such as a tool call, that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// Why, in the agent's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it asks for.
    pub question: Question,
    /// The answers that it offers, where it names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Yes, this once.
    Approve,
    /// Yes, and the same again without asking.
    ApproveForSession,
    /// No; a text is told to the agent as guidance.
    Deny {
        /// Why not, or what to do instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
    },
    /// No, and the turn ends.
    Abort,
    /// One of the agent's own choices, by its name; one that it did not offer is a no.
    Choose {
        /// The choice.
        choice: String,
    },
    /// Answers to questions, each a list of texts, by the name of the question.
    Input {
        /// The answers.
        answers: BTreeMap<String, Vec<String>>,
    },
}

impl Decision {
    /// Makes a plain no.
    pub const fn deny() -> Self {
        Self::Deny { because: None }
    }
}

/// Where a request is in its life; the first end wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestPhase {
    /// It waits for an answer.
    Pending,
    /// An answer is being sent.
    Resolving,
    /// An answer was sent.
    Answered,
    /// The agent settled it by itself; nothing was, and nothing may be, sent.
    Superseded,
    /// The turn, the session or the process ended, or somebody cancelled.
    Interrupted,
}

/// How a request ends for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is answered.
    Decided(Decision),
    /// The turn was cancelled, or the session is closed.
    Cancelled,
    /// Whoever could have answered is gone.
    Disconnected,
}

/// A request as it came, with all that an answer needs; stored until it is settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenRequest {
    /// What the caller sees.
    pub request: InteractiveRequest,
    /// The agent's own id, echoed byte for byte.
    pub wire: WireId,
    /// The method that asked.
    pub method: String,
    /// Its parameters.
    pub params: Value,
    /// The answer, once one is decided: it is sent again by whoever takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decision>,
}
