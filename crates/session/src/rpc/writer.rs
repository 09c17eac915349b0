//! The writing side: one task writes, whole lines in their order, so that no reader ever waits for a full pipe.

use std::sync::Arc;

use bytes::Bytes;
use groundcrew_core::error::{Error, ErrorKind, ErrorReport};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{failure, transport::Connection};

/// How much may wait to be written, in KiB.
const ROOM: u32 = 32 << 10;

struct Piece {
    bytes: Bytes,
    written: Option<oneshot::Sender<Result<(), ErrorReport>>>,
    /// Gives its room back when it was written.
    _room: OwnedSemaphorePermit,
}

/// Hands lines to the task that writes.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pieces: mpsc::UnboundedSender<Piece>,
    room: Arc<Semaphore>,
}

impl Writer {
    /// Starts the task; it ends when the writer is dropped, writing failed, or `stop` is cancelled.
    pub(super) fn start(
        connection: Arc<dyn Connection>,
        tracker: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        // The room bounds it.
        let (pieces, receiver) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(ROOM as usize));
        tracker.spawn(async move {
            let writing = write(connection, receiver);
            stop.run_until_cancelled_owned(writing).await;
        });
        Self { pieces, room }
    }

    /// Writes a line, and waits until it was handed to the process.
    ///
    /// # Cancel safety
    ///
    /// Dropped before there was room for it, nothing is written; afterwards all of it.
    pub(super) async fn send(&self, line: Vec<u8>) -> Result<(), Error> {
        let room = Arc::clone(&self.room)
            .acquire_many_owned(size(&line))
            .await
            .map_err(|_| gone())?;
        let (written, outcome) = oneshot::channel();
        self.pieces
            .send(Piece {
                bytes: line.into(),
                written: Some(written),
                _room: room,
            })
            .map_err(|_| gone())?;
        match outcome.await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(gone()),
        }
    }

    /// Writes a line without waiting.
    ///
    /// # Errors
    ///
    /// `ResourceExhausted` when too much waits already: the agent does not read what it is told.
    pub(super) fn post(&self, line: Vec<u8>) -> Result<(), Error> {
        let room = Arc::clone(&self.room)
            .try_acquire_many_owned(size(&line))
            .map_err(|_| {
                Error::new(
                    ErrorKind::ResourceExhausted,
                    "the agent does not read what it is answered",
                )
                .with("waiting_kib", ROOM)
            })?;
        self.pieces
            .send(Piece {
                bytes: line.into(),
                written: None,
                _room: room,
            })
            .map_err(|_| gone())
    }
}

/// Returns the room a line takes; the longest takes all of it.
fn size(line: &[u8]) -> u32 {
    u32::try_from(line.len() / 1024 + 1)
        .unwrap_or(ROOM)
        .min(ROOM)
}

fn gone() -> Error {
    failure::coded(
        ErrorKind::Unavailable,
        failure::DISCONNECTED,
        "the agent's input is gone",
    )
}

async fn write(connection: Arc<dyn Connection>, mut pieces: mpsc::UnboundedReceiver<Piece>) {
    while let Some(piece) = pieces.recv().await {
        let outcome = connection.send(piece.bytes).await;
        let failed = outcome.is_err();
        if let Some(written) = piece.written {
            // Whoever gave up meanwhile does not care.
            let _heard = written.send(outcome.map_err(|error| ErrorReport::from(&error)));
        }
        if failed {
            // What comes behind would be the middle of a message.
            return;
        }
    }
}
