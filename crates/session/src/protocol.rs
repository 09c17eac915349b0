//! The seam between the engine and an agent's protocol.
//!
//! The engine owns processes, turns, requests and their order; a protocol knows words. It holds no state: what it has to
//! know of a conversation it gets with each call, for the next controller starts with that alone.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use groundcrew_core::error::Error;
use serde_json::Value;

use crate::{
    event::{EventKind, TurnOutcome},
    request::{Choice, OpenRequest, Question, Verdict},
    rpc::{Envelope, Peer, Refusal},
    settings::{Conversation, ConversationId, Facts, Prompt, SessionSettings, TurnId},
    variable::Variable,
};

/// What a protocol puts around the variables of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentRule {
    /// Before all others.
    pub first: Vec<Variable>,
    /// Behind all others, also those of a launch hook; earlier ones of the same names, in whatever case, go.
    pub last: Vec<Variable>,
}

/// A conversation that was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Its name.
    pub conversation: ConversationId,
    /// The model, where the agent told it.
    pub model: Option<String>,
    /// What a person should know of it, such as a tool server that was left out; told once it is open.
    pub warnings: Vec<EventKind>,
}

/// A call that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The method.
    pub method: String,
    /// The parameters.
    pub params: Value,
}

impl Call {
    /// Makes one.
    pub fn new(method: impl Into<String>, params: Value) -> Self {
        Self {
            method: method.into(),
            params,
        }
    }
}

/// How a turn is begun.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnCall {
    /// The answer comes at once, within that time, and tells that the turn begins; a notification tells its end.
    Acknowledged(Call, Duration),
    /// The answer comes when the turn ends, and tells how.
    Ends(Call),
}

/// How a turn is asked to end.
#[derive(Clone, Debug, PartialEq)]
pub enum InterruptCall {
    /// With a call that is answered.
    Request(Call),
    /// With a notification.
    Notification(Call),
}

/// What an agent means that refuses to interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterruptRefused {
    /// Another turn runs than the one named: that one is to be interrupted.
    Other(TurnId),
    /// The turn does not run yet: ask again once it does.
    NotYet,
    /// Anything else.
    No,
}

/// What an agent told.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Happening {
    /// Something for whoever listens.
    Tell(EventKind),
    /// Something that belongs to that turn: once it has ended, nobody hears of it.
    TellOf(TurnId, EventKind),
    /// A turn was accepted under that name; it may never run.
    TurnNamed(TurnId),
    /// A turn really runs.
    TurnRuns(TurnId),
    /// A turn ended; without a name, the one that runs.
    TurnEnded {
        /// Which.
        turn: Option<TurnId>,
        /// How.
        outcome: TurnOutcome,
        /// What went wrong.
        error: Option<String>,
        /// Why it stopped, in the agent's words.
        reason: Option<String>,
    },
    /// The agent settled one of its own requests; the value is its id as a notification names it.
    RequestSettled(Value),
}

/// What is to be done about a request of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// A person is asked; outside of a turn it is refused.
    Person {
        /// The turn that it names.
        turn: Option<TurnId>,
        /// The item that it is about.
        item: Option<String>,
        /// Why, in the agent's words.
        reason: Option<String>,
        /// What it asks for.
        question: Question,
        /// The answers that it offers.
        choices: Vec<Choice>,
    },
    /// It is answered at once.
    Answer(Result<Value, Refusal>),
    /// Nobody knows the method: it is refused, and told as a warning.
    Unknown,
}

/// One protocol.
#[async_trait]
pub trait Protocol: fmt::Debug + Send + Sync + 'static {
    /// Returns its name, such as `codex`.
    fn name(&self) -> &'static str;

    /// Returns the form of its messages.
    fn envelope(&self) -> Envelope;

    /// Returns what it puts around the variables of a session.
    fn environment(&self, settings: &SessionSettings) -> EnvironmentRule;

    /// Makes the start-up calls that come before any conversation.
    ///
    /// * `greeting` is the answer to the first of them, where whoever started the process made it already.
    /// * What it learned, and needs again after a takeover, goes into the facts.
    ///
    /// # Errors
    ///
    /// One with the code [`AUTHENTICATION_REQUIRED`](crate::failure::AUTHENTICATION_REQUIRED) where a login is missing: a
    /// start then succeeds without a conversation. Those of the peer.
    async fn initialise(
        &self,
        peer: &Peer,
        settings: &SessionSettings,
        greeting: Option<Value>,
    ) -> Result<Facts, Error>;

    /// Opens a new conversation.
    ///
    /// # Errors
    ///
    /// As `initialise`; one with the code [`MISSING_IDENTITY`](crate::failure::MISSING_IDENTITY) where it got no name.
    async fn open(
        &self,
        peer: &Peer,
        settings: &SessionSettings,
        facts: &Facts,
    ) -> Result<Opened, Error>;

    /// Opens an earlier conversation.
    ///
    /// # Errors
    ///
    /// As `open`; the codes [`CONVERSATION_NOT_FOUND`](crate::failure::CONVERSATION_NOT_FOUND) where the agent does not know
    /// it, and [`ACTIVE_WRITER`](crate::failure::ACTIVE_WRITER) where another of its processes has it open and this one
    /// could have it afterwards.
    async fn resume(
        &self,
        peer: &Peer,
        settings: &SessionSettings,
        facts: &Facts,
        conversation: &ConversationId,
    ) -> Result<Opened, Error>;

    /// Returns whether a conversation could be resumed by another process; one that could not is never released.
    fn can_resume(&self, facts: &Facts) -> bool;

    /// Makes a conversation in which nothing was said yet one that can be resumed, without asking a model.
    ///
    /// # Errors
    ///
    /// Those of the peer; the conversation is then as it was.
    async fn preserve(&self, peer: &Peer, conversation: &Conversation) -> Result<(), Error>;

    /// Tells the agent that the conversation is closed for good, where the protocol has words for it; bounded by itself.
    async fn farewell(&self, peer: &Peer, conversation: &Conversation);

    /// Returns how a turn is begun.
    fn prompt(&self, conversation: &Conversation, prompt: &Prompt) -> TurnCall;

    /// Returns what the answer to the call that began a turn means; a refusal of a call that was to be acknowledged is the
    /// engine's to treat.
    fn turn_answered(
        &self,
        conversation: &Conversation,
        answer: &Result<Value, Refusal>,
    ) -> Vec<Happening>;

    /// Returns how a prompt is put into the turn that runs; none if the agent takes none.
    fn steer(&self, conversation: &Conversation, turn: &TurnId, prompt: &Prompt) -> Option<Call>;

    /// Returns how a turn is asked to end; none while that cannot be said without its name.
    fn interrupt(
        &self,
        conversation: &Conversation,
        turn: Option<&TurnId>,
    ) -> Option<InterruptCall>;

    /// Returns what an agent means that refuses to interrupt.
    fn interrupt_refused(&self, refusal: &Refusal) -> InterruptRefused;

    /// Returns what a notification means; one that is not known, or of another conversation, means nothing.
    fn notice(&self, conversation: &Conversation, method: &str, params: &Value) -> Vec<Happening>;

    /// Returns what a notification means that comes before a conversation is open, such as the state of a tool server.
    fn early_notice(&self, method: &str, params: &Value) -> Vec<Happening>;

    /// Returns what a line of standard error is worth telling; it decides nothing, and is told once for each connection.
    fn stderr(&self, line: &str) -> Option<EventKind>;

    /// Returns what is to be done about a request; parameters that are wrong are an answer with -32602.
    fn request(&self, conversation: &Conversation, method: &str, params: &Value) -> Asked;

    /// Returns the answer to a request that a person was asked.
    fn reply(&self, request: &OpenRequest, verdict: &Verdict) -> Result<Value, Refusal>;
}
