//! What has to outlive a controller so that the next one can go on with a live conversation, and where it is kept.
//!
//! Nothing in it is secret: no variable, no definition of a tool server.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{ProcessId, SessionId},
    process::Offset,
};
use serde::{Deserialize, Serialize};

use crate::{
    failure,
    request::{OpenRequest, RequestId, RequestPhase},
    settings::{Conversation, ConversationId, TurnId},
};

/// A session as the next controller finds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionState {
    /// The session.
    pub session: SessionId,
    /// How many controllers went on with it: the present one's number.
    pub epoch: u32,
    /// The first number of an event that was surely not told yet.
    pub next_seq: u64,
    /// How many requests a person was asked.
    pub asked: u64,
    /// How many turns were begun.
    pub turns: u64,
    /// How many processes it had.
    pub processes: u64,
    /// Processes that may exist: noted before they are started, and until they were surely ended.
    #[serde(default)]
    pub owned: Vec<ProcessId>,
    /// The token with which the conversation is resumed; never lost by a start that failed.
    #[serde(default)]
    pub token: Option<ConversationId>,
    /// Whether anything was said in it, so that the agent can find it again.
    #[serde(default)]
    pub content: bool,
    /// The process that serves it, while one does.
    #[serde(default)]
    pub live: Option<LiveState>,
}

/// The part of a session that ends with its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LiveState {
    /// The process.
    pub process: ProcessId,
    /// Its number among those of the session.
    pub number: u64,
    /// Everything before this offset of its output is reflected here, or was told.
    pub settled: Offset,
    /// The conversation.
    pub conversation: Conversation,
    /// The turn that runs.
    #[serde(default)]
    pub turn: Option<TurnState>,
    /// What waits for an answer.
    #[serde(default)]
    pub requests: Vec<OpenRequest>,
    /// How the last requests ended, oldest first: an answer that comes late is told from one to nothing.
    #[serde(default)]
    pub ended_requests: Vec<(RequestId, RequestPhase)>,
}

/// A turn that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnState {
    /// Its number in the session.
    pub number: u64,
    /// The agent's name of it, once it is known.
    #[serde(default)]
    pub id: Option<TurnId>,
    /// Whether the agent said that it runs.
    #[serde(default)]
    pub confirmed: bool,
    /// The call that began it; its answer may come to the next controller.
    pub call: u64,
    /// Whether its end was asked for.
    #[serde(default)]
    pub interrupting: bool,
}

impl SessionState {
    /// Makes one of a session that has nothing yet.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            epoch: 0,
            next_seq: 0,
            asked: 0,
            turns: 0,
            processes: 0,
            owned: Vec::new(),
            token: None,
            content: false,
            live: None,
        }
    }
}

/// Keeps states of sessions; in a program that lives on it is durable.
///
/// * What `save` returned is what `load` and `claim` find, also after a crash.
/// * A state whose epoch is lower than the stored one is refused: another controller has taken over.
#[async_trait]
pub trait StateStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the state of a session, if there is one.
    async fn load(&self, session: &SessionId) -> Result<Option<SessionState>, Error>;

    /// Stores a state in place of the earlier one.
    ///
    /// # Errors
    ///
    /// `Conflict`, with the code [`failure::SUPERSEDED`], when a higher epoch is stored.
    async fn save(&self, state: &SessionState) -> Result<(), Error>;

    /// Raises the epoch of a session by one, stores it, and returns its state; none if there is no such session.
    ///
    /// * Two controllers never get the same epoch.
    async fn claim(&self, session: &SessionId) -> Result<Option<SessionState>, Error>;
}

/// States in memory: for programs whose sessions end with them.
#[derive(Debug, Default)]
pub struct MemoryStates(Mutex<HashMap<SessionId, SessionState>>);

/// Makes the error of a controller whose session another one goes on with.
pub fn superseded(session: &SessionId) -> Error {
    failure::coded(
        ErrorKind::Conflict,
        failure::SUPERSEDED,
        "another controller goes on with the session",
    )
    .with("session", session)
}

#[async_trait]
impl StateStore for MemoryStates {
    async fn load(&self, session: &SessionId) -> Result<Option<SessionState>, Error> {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(states.get(session).cloned())
    }

    async fn save(&self, state: &SessionState) -> Result<(), Error> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match states.get(&state.session) {
            Some(stored) if stored.epoch > state.epoch => Err(superseded(&state.session)),
            _ => {
                states.insert(state.session.clone(), state.clone());
                Ok(())
            }
        }
    }

    async fn claim(&self, session: &SessionId) -> Result<Option<SessionState>, Error> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(states.get_mut(session).map(|state| {
            state.epoch += 1;
            state.clone()
        }))
    }
}
