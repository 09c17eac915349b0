//! How a client reaches a supervisor: anything that opens a stream of bytes.

use std::{fmt, io, path::PathBuf, time::Duration};

use async_trait::async_trait;
use groundcrew_core::error::{Error, ErrorKind};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};

use crate::socket;

/// A stream of bytes in both directions.
pub trait ControlStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ControlStream for T {}

/// Opens streams to one supervisor.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens another one.
    ///
    /// * A supervisor that does not listen (any more) is `Unavailable`.
    async fn open(&self) -> Result<Box<dyn ControlStream>, Error>;
}

/// Reaches a supervisor through its control socket; the path may be of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixConnector {
    path: PathBuf,
}

impl UnixConnector {
    /// Names the socket.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

/// How long connecting is tried while the supervisor's queue is full.
const FULL_QUEUE_TRIES: u32 = 10;

#[async_trait]
impl Connector for UnixConnector {
    async fn open(&self) -> Result<Box<dyn ControlStream>, Error> {
        let mut tries = 0;
        loop {
            let connected = socket::connect(&self.path).await;
            let error = match connected.and_then(UnixStream::from_std) {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => error,
            };
            let error = match error.kind() {
                io::ErrorKind::WouldBlock if tries < FULL_QUEUE_TRIES => {
                    // There is no event for a place in the queue.
                    tokio::time::sleep(Duration::from_millis(2 << tries)).await;
                    tries += 1;
                    continue;
                }
                io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::WouldBlock => {
                    Error::new(ErrorKind::Unavailable, "the supervisor does not listen")
                        .with_source(error)
                }
                _ => Error::io("failed to connect to the supervisor", error),
            };
            return Err(error.with("socket", self.path.display()));
        }
    }
}
