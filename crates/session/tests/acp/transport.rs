//! The way to the agent: two streams in memory, and an engine on them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use groundcrew_core::{
    command::Command,
    error::{Error, ErrorKind},
    id::{ProcessId, SessionId},
    process::{ExitStatus, Frame, FrameKind, Offset},
};
use groundcrew_session::{
    acp::Acp,
    engine::{Engine, EngineParts},
    event::{EventKind, SessionEvent},
    launch::LaunchDescription,
    settings::{Approve, SessionSettings},
    transport::{Connection, Transport},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::{Mutex, mpsc},
};

use crate::peer::{World, play};

#[derive(Debug)]
struct Streams(Arc<World>);

#[async_trait]
impl Transport for Streams {
    async fn start(&self, launch: &LaunchDescription) -> Result<Arc<dyn Connection>, Error> {
        let (input, theirs) = tokio::io::duplex(1 << 16);
        let (their_output, output) = tokio::io::duplex(1 << 16);
        tokio::spawn(play(Arc::clone(&self.0), their_output, theirs));
        Ok(Arc::new(Streamed {
            process: launch.process.clone(),
            input: Mutex::new(Some(input)),
            output: Mutex::new((output, 0, false)),
        }))
    }

    async fn attach(&self, _: &ProcessId, _: Offset) -> Result<Arc<dyn Connection>, Error> {
        Err(Error::new(ErrorKind::NotFound, "streams have one end"))
    }

    async fn end(&self, _: &ProcessId) -> Result<(), Error> {
        Err(Error::new(ErrorKind::NotFound, "streams have one end"))
    }
}

#[derive(Debug)]
struct Streamed {
    process: ProcessId,
    input: Mutex<Option<DuplexStream>>,
    /// The stream, how much of it was read, and whether its end was told.
    output: Mutex<(DuplexStream, u64, bool)>,
}

#[async_trait]
impl Connection for Streamed {
    fn process(&self) -> &ProcessId {
        &self.process
    }

    async fn receive(&self) -> Result<Option<Frame>, Error> {
        let mut output = self.output.lock().await;
        let (stream, offset, over) = &mut *output;
        if *over {
            return Ok(None);
        }
        let mut piece = vec![0; 1 << 16];
        let read = stream.read(&mut piece).await.unwrap();
        piece.truncate(read);
        let kind = if read == 0 {
            *over = true;
            FrameKind::Exit(ExitStatus::exited(0))
        } else {
            FrameKind::Stdout(piece.into())
        };
        let at = Offset(*offset);
        *offset += read as u64;
        Ok(Some(Frame {
            offset: at,
            at_ms: 0,
            kind,
        }))
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Error> {
        let mut input = self.input.lock().await;
        let gone = |e| Error::io("the agent's input is gone", e);
        match &mut *input {
            Some(input) => input.write_all(&bytes).await.map_err(gone),
            None => Err(gone(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    async fn close(&self) -> Result<(), Error> {
        *self.input.lock().await = None;
        Ok(())
    }
}

/// An engine, and what it tells.
pub(crate) struct Scene {
    pub(crate) world: Arc<World>,
    pub(crate) engine: Engine,
    pub(crate) session: SessionId,
    pub(crate) events: mpsc::UnboundedReceiver<SessionEvent>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let world = World::new();
        let (sink, events) = mpsc::unbounded_channel();
        let transport = Arc::new(Streams(Arc::clone(&world)));
        let mut parts = EngineParts::new(Arc::new(Acp), transport);
        parts.sink = Arc::new(sink);
        Self {
            world,
            engine: Engine::new(parts),
            session: SessionId::new("s-1").unwrap(),
            events,
        }
    }

    pub(crate) fn settings(&self) -> SessionSettings {
        let command = Command::new(["agent"]).unwrap();
        let mut settings = SessionSettings::new(self.session.clone(), command, "/work");
        settings.approve = Approve::Ask;
        settings
    }

    /// Waits for the first event that something is made of.
    pub(crate) async fn until<T>(&mut self, mut find: impl FnMut(&EventKind) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let waiting = async {
            while let Some(event) = self.events.recv().await {
                if let Some(found) = find(&event.kind) {
                    return found;
                }
                seen.push(event.kind);
            }
            panic!("nobody tells anything any more");
        };
        let limit = std::time::Duration::from_mins(1);
        let found = tokio::time::timeout(limit, waiting).await;
        found.unwrap_or_else(|_| panic!("it was never told: {seen:#?}"))
    }
}
