//! The way to an agent's process: bytes in, frames out, an end that is asked for step by step.

mod instance;
mod ladder;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use groundcrew_core::{
    error::Error,
    id::ProcessId,
    process::{Frame, Offset},
};

use crate::launch::LaunchDescription;
pub use instance::{InstanceOptions, InstanceTransport};
pub use ladder::CloseLadder;

/// Starts processes for sessions, and finds them again.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Starts a process under the name that the description gives it.
    ///
    /// * Its life is not tied to the caller's future. The engine awaits it to its end, and ends by name what it does not want.
    async fn start(&self, launch: &LaunchDescription) -> Result<Arc<dyn Connection>, Error>;

    /// Goes on with a process that runs: its output from an offset on, and its input.
    ///
    /// * An earlier controller can write no more.
    async fn attach(&self, process: &ProcessId, from: Offset)
    -> Result<Arc<dyn Connection>, Error>;

    /// Ends a process by its name, with all that it started, whoever started it.
    ///
    /// * One that is not there is success, or an error of kind `NotFound`, which counts as one.
    async fn end(&self, process: &ProcessId) -> Result<(), Error>;
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
