//! The contract of an instance: a supervised place in which processes are started.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use tokio::io::AsyncWrite;

use crate::{
    env::Environment,
    error::Error,
    id::ProcessId,
    process::{
        ExitStatus, Frame, Lease, Offset, ProcessSpec, ProcessState, Role, Signal, Started,
        TerminalSize,
    },
};

/// The streams of an attached process.
pub struct Stdio {
    /// Recorded output from the wished offset on, then live; ends behind the `Exit` frame.
    pub output: BoxStream<'static, Result<Frame, Error>>,
    /// Input, for a writer; shutting it down closes the process's standard input, dropping it does not.
    pub input: Option<Pin<Box<dyn AsyncWrite + Send>>>,
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdio")
            .field("writer", &self.input.is_some())
            .finish_non_exhaustive()
    }
}

/// A stream of bytes, such as a tar archive.
pub type ByteStream = BoxStream<'static, Result<Bytes, Error>>;

/// A server of tools that agent sessions open with.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct McpServer {
    /// Its name, unique in a list.
    pub name: String,
    /// How it is reached, in the words of the agent protocol.
    pub definition: serde_json::Value,
}

/// A supervised place in which processes are started.
///
/// * Every verb may be called again: ids are the caller's, so a lost answer is asked for again.
/// * A verb on a process that was never started is `NotFound`.
/// * After the instance ended, as long as its logs are kept, reading verbs (`attach` as a viewer, `wait`, `processes`) still
///   answer from them; all others are `Unavailable`, not retryable.
///
/// # Cancel safety
///
/// Dropping the future of any verb leaves the effect either done or not done; `processes` tells which.
#[async_trait]
pub trait Instance: fmt::Debug + Send + Sync + 'static {
    /// Hands over the run's variables; they live in the instance's memory and replace earlier ones.
    async fn set_environment(&self, environment: &Environment) -> Result<(), Error>;

    /// Starts a process.
    ///
    /// * It returns once the program really runs; a missing program (`ProgramNotFound`), interpreter
    ///   (`InterpreterNotFound`) and directory (`DirectoryNotFound`) and a file that is no program (`NotExecutable`) are told apart.
    /// * The same id with the same spec again returns the first answer; with another spec it is `AlreadyExists`.
    /// * The program is resolved to an absolute path before the directory is changed.
    async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error>;

    /// Attaches to the output from an offset on, and to the input as a writer.
    ///
    /// * Replay and live output join without gap or duplicate; a frame that holds the offset is cut there.
    /// * Where the wished output is no longer kept, the first frame is `Truncated`.
    /// * Any number of viewers; a later writer takes over from an earlier one.
    /// * A slow or absent reader never blocks the process.
    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error>;

    /// Closes the standard input of a process; again is success.
    async fn close_stdin(&self, id: &ProcessId) -> Result<(), Error>;

    /// Sets the size of its terminal; `Unsupported` for pipes.
    async fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error>;

    /// Waits for the end; any number of callers get the same answer, also later.
    ///
    /// * The end is the exit of the process itself and a bounded drain, never the end of a pipe that a grandchild holds.
    /// * A process of which nobody knows the end is an error of kind `Unexpected` with `phase=lost`.
    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error>;

    /// Sends a signal to the process and everything it started; a process that has ended is success.
    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error>;

    /// Lists all processes ever started here, in the order of their start.
    async fn processes(&self) -> Result<Vec<ProcessState>, Error>;

    /// Unpacks a tar archive below an absolute path.
    ///
    /// * A directory that is missing is made for the instance's user alone; so is what an archive without entries names.
    /// * Files that exist are replaced; nothing is written through a symbolic link.
    async fn put_archive(&self, at: &std::path::Path, tar: ByteStream) -> Result<(), Error>;

    /// Packs a file or a tree into a tar archive.
    async fn get_archive(&self, at: &std::path::Path) -> Result<ByteStream, Error>;

    /// Replaces the list of tool servers that agent sessions open with.
    async fn set_mcp_servers(&self, servers: &[McpServer]) -> Result<(), Error>;

    /// Sets how long the instance lives on without a controller.
    async fn set_lease(&self, lease: Lease) -> Result<(), Error>;

    /// Ends all processes by their stop orders, with `grace` in place of theirs, then the supervisor.
    ///
    /// * It returns when nothing is left; what could not be ended is an error that names it, and the instance stays.
    /// * Processes end with the cause `Stopped`.
    async fn shutdown(&self, grace: Duration) -> Result<(), Error>;
}

/// A shared instance.
pub type SharedInstance = Arc<dyn Instance>;
