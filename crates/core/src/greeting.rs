//! Greets an agent that speaks a protocol: it runs for us only once it has answered as its profile says.
//!
//! The time limit is one for all of it, so that no trickle of bytes stretches it; memory is bounded whatever is said.

use std::{io, pin::Pin, time::Duration};

use futures_util::{StreamExt as _, stream::BoxStream};
use serde_json::{Map, Value};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{
    attempt::cancelled,
    cancel::CancelToken,
    error::{Error, ErrorKind},
    executor::Progress,
    handshake::{Greeting, Handshake},
    id::ProcessId,
    instance::{Instance, Stdio},
    lines::Lines,
    process::{ExitStatus, Frame, FrameKind, Offset, Role},
    redact::Redactor,
    script_output::ScriptOutput,
};

/// The longest line that an agent may say before it is ready: 1 MiB.
const MAX_LINE: usize = 1 << 20;

/// How long an agent that failed is heard for its last words.
const LAST_WORDS: Duration = Duration::from_millis(300);

type Input = Pin<Box<dyn AsyncWrite + Send>>;
type Frames = BoxStream<'static, Result<Frame, Error>>;

/// An agent that was just started.
pub(crate) struct Newcomer<'a> {
    pub(crate) instance: &'a dyn Instance,
    pub(crate) process: &'a ProcessId,
    pub(crate) handshake: &'a Handshake,
    pub(crate) redactor: &'a Redactor,
    pub(crate) cancel: &'a CancelToken,
}

impl Newcomer<'_> {
    /// Asks it, and waits for its answer.
    ///
    /// # Errors
    ///
    /// `AgentEnded` with how it ended, `TimedOut`, `Protocol`, `TooLarge`, each with the end of what it told on standard
    /// error; `Cancelled`; those of the instance.
    pub(crate) async fn greet(&self) -> Result<Greeting, Error> {
        let mut told = ScriptOutput::new(self.redactor, &Nobody);
        let Stdio { mut output, input } = self.attach().await?;
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(cancelled()),
            answer = self.ask(&mut output, input, &mut told) => answer,
            () = tokio::time::sleep(self.handshake.limit()) => Err(Error::new(
                ErrorKind::TimedOut,
                "the agent did not answer in time that it is ready",
            )
            .with("seconds", self.handshake.seconds)),
        };
        let error = match answer {
            Ok(greeting) => return Ok(greeting),
            Err(error) => error.with("process", self.process),
        };
        // The streams have no order among them: why it answered like that may come a moment later.
        let rest = async {
            while let Some(Ok(frame)) = output.next().await {
                if matches!(frame.kind, FrameKind::Stderr(_)) {
                    told.take(&frame);
                }
            }
        };
        let _over = tokio::time::timeout(LAST_WORDS, rest).await;
        Err(match told.finish() {
            said if said.is_empty() => error,
            said => error.with("stderr", said),
        })
    }

    async fn ask(
        &self,
        output: &mut Frames,
        input: Option<Input>,
        told: &mut ScriptOutput<'_>,
    ) -> Result<Greeting, Error> {
        let asking = send(input, &self.handshake.request);
        // Both at once: an agent that tells much before it reads holds up neither itself nor us.
        let (input, greeting) = tokio::try_join!(asking, self.hear(output, told))?;
        if let Some(then) = &self.handshake.then {
            send(input, then).await?;
        }
        Ok(greeting)
    }

    async fn hear(
        &self,
        output: &mut Frames,
        told: &mut ScriptOutput<'_>,
    ) -> Result<Greeting, Error> {
        let mut lines = Lines::new(MAX_LINE);
        while let Some(frame) = output.next().await.transpose()? {
            match &frame.kind {
                FrameKind::Exit(status) => return Err(ended(*status)),
                FrameKind::Stderr(_) => told.take(&frame),
                FrameKind::Stdout(bytes) => {
                    lines.push(bytes);
                    while let Some(line) = lines.next_line()? {
                        if let Some(result) = self.handshake.hear(&line)? {
                            let behind = frame.offset.0 + (bytes.len() - lines.held()) as u64;
                            return Ok(Greeting {
                                result,
                                behind: Offset(behind),
                            });
                        }
                    }
                }
                FrameKind::Truncated(_) => {}
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "the agent's output broke off before it was ready",
        ))
    }

    async fn attach(&self) -> Result<Stdio, Error> {
        let (instance, process) = (self.instance, self.process);
        match instance.attach(process, Offset(0), Role::Writer).await {
            // It has ended already, and its instance with it; what it left says why.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                instance.attach(process, Offset(0), Role::Viewer).await
            }
            attached => attached,
        }
    }
}

/// Says one message; an agent that reads no more says why by itself.
async fn send(
    mut input: Option<Input>,
    message: &Map<String, Value>,
) -> Result<Option<Input>, Error> {
    let Some(open) = &mut input else {
        return Ok(None);
    };
    let said = async {
        open.write_all(&Handshake::line(message)).await?;
        open.flush().await
    };
    match said.await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("failed to speak to the agent", error))
        }
        _ => Ok(input),
    }
}

fn ended(status: ExitStatus) -> Error {
    let error = Error::new(ErrorKind::AgentEnded, "the agent ended before it was ready");
    let error = error.with("exit", status);
    match (status.code, status.signal) {
        (Some(code), _) => error.with("code", code),
        (None, Some(signal)) => error.with("signal", signal.0),
        (None, None) => error,
    }
}

/// What the agent tells before it is ready is shown once it runs, or stands in the error.
struct Nobody;

impl Progress for Nobody {
    fn line(&self, _: &str) {}
}
