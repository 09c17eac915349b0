//! The output of an attached process: one stream, whatever becomes of the connection or the supervisor behind it.

use std::sync::Arc;

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{Frame, FrameKind, Offset},
};
use http_body_util::BodyExt as _;
use hyper::{Method, body::Incoming};

use super::{link::Link, logged::LoggedInstance};
use crate::wire::{self, FrameDecoder};

/// How often in a row a connection may be lost without a frame in between.
const MAX_LOSSES: usize = 3;

/// Where frames come from.
enum Source {
    Live(Incoming, FrameDecoder),
    Log(BoxStream<'static, Result<Frame, Error>>),
}

/// Output from an offset on, of which the next source is opened where the last one ended.
pub(super) struct Output {
    link: Arc<Link>,
    logs: Option<LoggedInstance>,
    id: ProcessId,
    position: Offset,
    source: Source,
    losses: usize,
    done: bool,
}

/// Opens the output where it is: at the supervisor, or in the logs that it left.
async fn open(
    link: &Link,
    logs: Option<&LoggedInstance>,
    id: &ProcessId,
    from: Offset,
) -> Result<Source, Error> {
    let path = format!("/processes/{id}/output?from={from}");
    match (
        link.send(Method::GET, &path, bytes::Bytes::new()).await,
        logs,
    ) {
        (Ok(response), _) => Ok(Source::Live(response.into_body(), FrameDecoder::default())),
        (Err(error), Some(logs)) if error.kind() == ErrorKind::Unavailable => {
            logs.output(id, from).await.map(Source::Log)
        }
        (Err(error), _) => Err(error),
    }
}

impl Output {
    pub(super) async fn open(
        link: Arc<Link>,
        logs: Option<LoggedInstance>,
        id: &ProcessId,
        from: Offset,
    ) -> Result<BoxStream<'static, Result<Frame, Error>>, Error> {
        let source = open(&link, logs.as_ref(), id, from).await?;
        let output = Self {
            link,
            logs,
            id: id.clone(),
            position: from,
            source,
            losses: 0,
            done: false,
        };
        Ok(stream::unfold(output, |mut output| async move {
            let frame = output.next().await?;
            Some((frame, output))
        })
        .boxed())
    }

    async fn next(&mut self) -> Option<Result<Frame, Error>> {
        while !self.done {
            match self.read().await {
                Ok(Some(frame)) => {
                    self.position = wire::end_of(&frame);
                    self.losses = 0;
                    self.done = matches!(frame.kind, FrameKind::Exit(_));
                    return Some(Ok(frame));
                }
                Ok(None) => {
                    if let Err(error) = self.reopen().await {
                        self.done = true;
                        return Some(Err(error));
                    }
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// Returns the next frame; none if the source broke off.
    async fn read(&mut self) -> Result<Option<Frame>, Error> {
        match &mut self.source {
            Source::Log(frames) => match frames.next().await {
                Some(frame) => frame.map(Some),
                None => Err(Error::new(
                    ErrorKind::Corrupt,
                    "the log ends without telling how the process ended",
                )
                .with("process", &self.id)),
            },
            Source::Live(body, decoder) => loop {
                if let Some(frame) = decoder.next()? {
                    return Ok(Some(frame));
                }
                match body.frame().await {
                    Some(Ok(piece)) => {
                        if let Ok(data) = piece.into_data() {
                            decoder.push(data);
                        }
                    }
                    Some(Err(_)) | None => return Ok(None),
                }
            },
        }
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        self.losses += 1;
        if self.losses > MAX_LOSSES {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the output of the process breaks off again and again",
            )
            .with("process", &self.id)
            .with("offset", self.position));
        }
        self.source = open(&self.link, self.logs.as_ref(), &self.id, self.position).await?;
        Ok(())
    }
}
