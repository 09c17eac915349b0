//! A control connection that is the standard streams of a command.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    process::Stdio,
    task::{Context, Poll},
};

use async_trait::async_trait;
use groundcrew_core::error::{Error, ErrorKind};
use groundcrew_supervisor::{Connector, ControlStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::call::Program;

/// Opens connections by starting a command for each.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) program: Program,
    /// The file that is executed, if it is not the one that the command names first.
    pub(crate) file: Option<PathBuf>,
}

#[async_trait]
impl Connector for Commands {
    async fn open(&self) -> Result<Box<dyn ControlStream>, Error> {
        let failed = |message: &'static str| Error::new(ErrorKind::Unavailable, message);
        let (name, arguments) = self
            .program
            .command
            .split_first()
            .ok_or_else(|| failed("the program names no command for a connection"))?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts the command of a connection"
        )]
        let mut command = Command::new(
            self.file
                .as_ref()
                .map_or(name.as_os_str(), |file| file.as_os_str()),
        );
        command
            .arg0(name)
            .args(arguments)
            .env_clear()
            .envs(
                self.program
                    .variables
                    .iter()
                    .map(|(key, value)| (key, value)),
            )
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|e| failed("the command for a connection cannot be started").with_source(e))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Box::new(Streams {
                input: Some(input),
                output,
                _child: child,
            })),
            _ => Err(failed("a command was started without its streams")),
        }
    }
}

/// The standard streams of a command; it ends with them.
struct Streams {
    input: Option<ChildStdin>,
    output: ChildStdout,
    _child: Child,
}

impl AsyncRead for Streams {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(cx, buffer)
    }
}

impl Streams {
    fn input(&mut self) -> io::Result<Pin<&mut ChildStdin>> {
        self.input
            .as_mut()
            .map(Pin::new)
            .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncWrite for Streams {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.input() {
            Ok(input) => input.poll_write(cx, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.input() {
            Ok(input) => input.poll_flush(cx),
            Err(_) => Poll::Ready(Ok(())),
        }
    }

    /// A pipe has no half that is shut: it is closed.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input = None;
        Poll::Ready(Ok(()))
    }
}
