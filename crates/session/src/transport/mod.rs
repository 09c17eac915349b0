//! The way to an agent's process: bytes in, frames out, an end that is asked for step by step.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use groundcrew_core::{
    error::Error,
    id::ProcessId,
    process::{Frame, Offset},
};

use crate::launch::LaunchDescription;

/// Starts processes for sessions, and finds them again.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Starts a process.
    ///
    /// * The life of the process is not tied to the caller's future once this returned.
    /// * A future that is dropped leaves no process behind.
    async fn start(&self, launch: &LaunchDescription) -> Result<Arc<dyn Connection>, Error>;

    /// Goes on with a process that runs: its output from an offset on, and its input.
    ///
    /// * An earlier controller can write no more.
    async fn attach(&self, process: &ProcessId, from: Offset)
    -> Result<Arc<dyn Connection>, Error>;
}

/// One process, and the way to it.
#[async_trait]
pub trait Connection: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the process.
    fn process(&self) -> &ProcessId;

    /// Returns the next frame of its output; none behind the last.
    ///
    /// * Frames come in order; that of the exit is the last.
    /// * One task at a time receives.
    ///
    /// # Cancel safety
    ///
    /// A frame is not lost when the future is dropped.
    async fn receive(&self) -> Result<Option<Frame>, Error>;

    /// Writes bytes to its standard input, all of them.
    ///
    /// # Cancel safety
    ///
    /// None: a future that is dropped may have written a part. The session's writer never drops one.
    async fn send(&self, bytes: Bytes) -> Result<(), Error>;

    /// Ends the process and all that it started, and gives up the way to it.
    ///
    /// * Again, after success, is success; after an error it is really tried again.
    /// * A process that is not there is success, or an error of kind `NotFound`, which counts as one.
    /// * Calls at the same time wait for the same try.
    async fn close(&self) -> Result<(), Error>;
}

/// How long each step of closing a process may take; the next one follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseLadder {
    /// After its input was closed: agents that boot need more than a quarter of a second.
    pub after_eof: Duration,
    /// After it was asked by its signal.
    pub after_signal: Duration,
    /// After its whole tree was killed; then it is an error.
    pub after_kill: Duration,
}

impl Default for CloseLadder {
    fn default() -> Self {
        Self {
            after_eof: Duration::from_millis(500),
            after_signal: Duration::from_millis(750),
            after_kill: Duration::from_secs(2),
        }
    }
}
