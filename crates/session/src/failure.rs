//! What goes wrong with agent sessions, by code: the part of an error that a program decides on.
//!
//! A code stands in the error's context under `code`; the kind says how the error is treated where codes are not known.

use groundcrew_core::error::{Chain, Error, ErrorKind};

use crate::rpc::{CallError, Refusal};

/// An earlier process of the session could not be closed yet; nothing new is started before it is.
pub const CLEANUP_PENDING: &str = "agent.process_cleanup_pending";
/// The agent does not know the conversation any more; a fresh one may be started.
pub const CONVERSATION_NOT_FOUND: &str = "agent.provider_session_not_found";
/// There is no token of a conversation that could be resumed.
pub const RESUME_NOT_LOCAL: &str = "agent.resume_session_not_local";
/// The agent wants a login first.
pub const AUTHENTICATION_REQUIRED: &str = "agent.authentication_required";
/// The agent accepted a conversation and did not say which.
pub const MISSING_IDENTITY: &str = "provider_acceptance_missing_identity";
/// The agent's process, or the way to it, is gone.
pub const DISCONNECTED: &str = "agent.disconnected";
/// A turn is running, or a request waits for an answer.
pub const BUSY: &str = "agent.busy";
/// The session has no live conversation.
pub const NOT_LIVE: &str = "agent.session_not_found";
/// No turn is running.
pub const NO_TURN: &str = "agent.no_active_turn";
/// Another process of the agent has the conversation open.
pub const ACTIVE_WRITER: &str = "agent.active_writer";
/// There is no such request, or not any more.
pub const REQUEST_GONE: &str = "agent.request_not_live";
/// The request was answered already.
pub const ALREADY_ANSWERED: &str = "agent.request_already_answered";
/// A running turn of this agent takes no further prompts.
pub const CANNOT_STEER: &str = "agent.guidance_unsupported";
/// Another controller goes on with the session.
pub const SUPERSEDED: &str = "agent.controller_superseded";

/// Makes an error with a code.
pub fn coded(kind: ErrorKind, code: &'static str, message: &'static str) -> Error {
    Error::new(kind, message).with("code", code)
}

/// Returns whether an error has that code.
pub fn is(error: &Error, code: &str) -> bool {
    error.get("code") == Some(code)
}

/// Returns what an agent answered, where that is what went wrong.
pub fn refusal(error: &Error) -> Option<&Refusal> {
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        if let Some(CallError::Refused { refusal, .. }) = source.downcast_ref() {
            return Some(refusal);
        }
        next = source.source();
    }
    None
}

/// Returns whether a close failed only because there is nothing left to close; looks through wrapped errors.
pub fn is_gone(error: &Error) -> bool {
    if error.kind() == ErrorKind::NotFound || is(error, NOT_LIVE) {
        return true;
    }
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        if source
            .downcast_ref::<Error>()
            .is_some_and(|inner| inner.kind() == ErrorKind::NotFound)
        {
            return true;
        }
        next = source.source();
    }
    false
}

pub(crate) fn cleanup_pending(cause: Error) -> Error {
    let debug = Chain(&cause).to_string();
    coded(
        ErrorKind::Backpressure,
        CLEANUP_PENDING,
        "an earlier process of the session could not be closed yet; try again, it is retried first",
    )
    .with("debug", debug)
    .retryable(true)
    .with_source(cause)
}

pub(crate) fn several_pending(count: usize) -> Error {
    coded(
        ErrorKind::Backpressure,
        CLEANUP_PENDING,
        "several earlier processes of the session could not be closed yet; try again, they are retried first",
    )
    .with("left", count)
    .retryable(true)
}

pub(crate) fn not_live() -> Error {
    coded(
        ErrorKind::NotFound,
        NOT_LIVE,
        "the session has no live conversation; resume it first",
    )
}

pub(crate) fn busy() -> Error {
    coded(
        ErrorKind::Busy,
        BUSY,
        "the session is busy: a turn runs or a request waits for its answer",
    )
}

pub(crate) fn no_turn() -> Error {
    coded(ErrorKind::NotFound, NO_TURN, "no turn is running")
}
