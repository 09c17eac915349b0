//! The contract of the embedding program's own knowledge of sessions: the gate of a launch asks it.

use std::fmt;

use async_trait::async_trait;

use crate::{
    error::{Error, ErrorKind},
    id::{SessionId, TaskId},
};

/// Whether a session still wants a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// It does.
    Alive,
    /// It ended; in the program's own word, such as `CANCELLED`.
    Ended(String),
}

/// What the embedding program knows of its sessions.
#[async_trait]
pub trait SessionDirectory: fmt::Debug + Send + Sync + 'static {
    /// Reads the state of a session.
    async fn session(&self, session: &SessionId) -> Result<SessionState, Error>;

    /// Tells whether the task of a session is being cleaned up.
    async fn cleanup_active(&self, session: &SessionId, task: &TaskId) -> Result<bool, Error>;
}

/// For programs without sessions of their own: every session is alive.
#[async_trait]
impl SessionDirectory for () {
    async fn session(&self, _: &SessionId) -> Result<SessionState, Error> {
        Ok(SessionState::Alive)
    }

    async fn cleanup_active(&self, _: &SessionId, _: &TaskId) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Lets a launch pass if its session is alive before and after no cleanup of its task was seen.
///
/// The second read catches a session that ended while the cleanup was being asked for.
pub(crate) async fn admit(
    directory: &dyn SessionDirectory,
    session: &SessionId,
    task: &TaskId,
) -> Result<(), Error> {
    let alive = async || match directory.session(session).await? {
        SessionState::Alive => Ok(()),
        SessionState::Ended(state) => Err(Error::new(
            ErrorKind::SessionEnded,
            "the session ended during its launch",
        )
        .with("session", session)
        .with("state", state)),
    };
    alive().await?;
    if directory.cleanup_active(session, task).await? {
        return Err(
            Error::new(ErrorKind::SessionEnded, "task cleanup is active")
                .with("session", session)
                .with("task", task),
        );
    }
    alive().await
}
