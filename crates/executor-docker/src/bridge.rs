//! Reaches a supervisor through the engine: a bridge that is executed in the container, for where its socket is not at hand.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use bollard::{
    container::LogOutput,
    exec::{CreateExecOptions, StartExecOptions, StartExecResults},
};
use bytes::{Buf as _, Bytes};
use futures_util::{Stream as _, StreamExt as _, stream::BoxStream};
use groundcrew_core::error::{Error, ErrorKind};
use groundcrew_supervisor::{Connector, ControlStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{engine::Engine, inside};

/// How much of the bridge's output is taken at once.
const PIECE: usize = 256 << 10;

/// Opens bridges into one container.
#[derive(Clone)]
pub(crate) struct Bridges {
    engine: Arc<Engine>,
    container: String,
}

impl Bridges {
    pub(crate) fn new(engine: Arc<Engine>, container: String) -> Self {
        Self { engine, container }
    }
}

impl fmt::Debug for Bridges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bridges").field(&self.container).finish()
    }
}

#[async_trait]
impl Connector for Bridges {
    async fn open(&self) -> Result<Box<dyn ControlStream>, Error> {
        let client = self.engine.client().await?;
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(false),
            cmd: Some(vec![inside::PROGRAM, "bridge", inside::SOCKET]),
            ..CreateExecOptions::default()
        };
        let what = "opening a bridge into the container";
        let gone = |error: Error| match error.kind() {
            // None there, or one that does not run: nobody listens.
            ErrorKind::NotFound | ErrorKind::Conflict => {
                Error::new(ErrorKind::Unavailable, "the supervisor does not listen")
                    .with("container", &self.container)
                    .with_source(error)
            }
            _ => error,
        };
        let made = self
            .engine
            .call(what, client.create_exec(&self.container, options))
            .await
            .map_err(gone)?;
        let options = StartExecOptions {
            output_capacity: Some(PIECE),
            ..StartExecOptions::default()
        };
        let started = self
            .engine
            .call(what, client.start_exec(&made.id, Some(options)))
            .await
            .map_err(gone)?;
        match started {
            StartExecResults::Attached { output, input } => Ok(Box::new(Bridge {
                output: output.boxed(),
                input,
                rest: Bytes::new(),
            })),
            StartExecResults::Detached => Err(Error::new(
                ErrorKind::Protocol,
                "the engine started a bridge without its streams",
            )),
        }
    }
}

/// The two streams of a bridge as one.
struct Bridge {
    output: BoxStream<'static, Result<LogOutput, bollard::errors::Error>>,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    rest: Bytes,
}

impl AsyncRead for Bridge {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.output).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Ok(
                    LogOutput::StdOut { message } | LogOutput::Console { message },
                ))) => self.rest = message,
                // What the bridge says of its own troubles; its end tells the rest.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Bridge {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(cx)
    }
}
