//! The input of an attached writer: a request whose body is as long as the writer writes.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{Method, Response, body::Frame, body::Incoming};
use tokio::{io::AsyncWrite, sync::mpsc};
use tokio_util::sync::PollSender;

use super::link::{self, Link};
use crate::wire::Failure;

/// The most bytes in one piece, and how many pieces may wait to be sent.
const PIECE: usize = 64 << 10;
const PIECES: usize = 4;

/// Writes to the standard input of a process.
///
/// * Shutting it down closes the standard input behind the last byte; dropping it does not, and what was written arrives.
/// * When another writer took over, or the process ended, writing fails; the cause is the error's inner one.
pub(super) struct Input {
    id: ProcessId,
    link: Arc<Link>,
    pieces: PollSender<Bytes>,
    outcome: Outcome,
    closing: Option<BoxFuture<'static, io::Result<()>>>,
}

enum Outcome {
    Pending(BoxFuture<'static, Result<(), Error>>),
    Known(Result<(), (ErrorKind, String)>),
}

impl Input {
    /// Takes over the input of a process.
    pub(super) async fn open(link: Arc<Link>, id: &ProcessId) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel::<Bytes>(PIECES);
        let pieces = stream::unfold(receiver, |mut receiver| async move {
            let piece = receiver.recv().await?;
            Some((Ok(Frame::data(piece)), receiver))
        });
        let body = StreamBody::new(pieces.boxed()).boxed_unsync();
        let path = format!("/processes/{id}/input");
        let opening = async { Ok(link.send_once(Method::POST, &path, body).await?) };
        let response = link::within(link::ANSWER_TIME, &path, opening).await?;
        Ok(Self {
            id: id.clone(),
            link,
            pieces: PollSender::new(sender),
            outcome: Outcome::Pending(outcome(response).boxed()),
            closing: None,
        })
    }

    /// Returns why no more can be written, if that is known.
    fn failure(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        if let Outcome::Pending(outcome) = &mut self.outcome
            && let Poll::Ready(outcome) = outcome.poll_unpin(cx)
        {
            self.outcome =
                Outcome::Known(outcome.map_err(|error| (error.kind(), error.to_string())));
        }
        match &self.outcome {
            Outcome::Pending(_) => None,
            Outcome::Known(Ok(())) => Some(io::ErrorKind::BrokenPipe.into()),
            Outcome::Known(Err((kind, text))) => Some(refused(Error::new(*kind, text.clone()))),
        }
    }
}

impl Drop for Input {
    /// Lets what was written so far arrive; giving up the answer would cut the request off.
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Known(Ok(())));
        if let Outcome::Pending(outcome) = outcome
            && self.closing.is_none()
        {
            self.pieces.close();
            link::beside(async move {
                // There is no writer left to tell.
                drop(outcome.await);
            });
        }
    }
}

fn refused(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error)
}

async fn outcome(response: Response<Incoming>) -> Result<(), Error> {
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|e| {
            Error::new(
                ErrorKind::Unavailable,
                "the connection was lost while input was written",
            )
            .with_source(e)
        })?
        .to_bytes();
    match serde_json::from_slice::<Option<Failure>>(&body) {
        Ok(None) => Ok(()),
        Ok(Some(failure)) => Err(failure.error.into()),
        Err(e) => Err(Error::new(
            ErrorKind::Protocol,
            "the answer to input cannot be understood",
        )
        .with_source(e)),
    }
}

impl AsyncWrite for Input {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failure(cx) {
            return Poll::Ready(Err(error));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if ready!(self.pieces.poll_reserve(cx)).is_err() {
            // The request was given up; its answer says why, and wakes us when it is here.
            return match self.failure(cx) {
                Some(error) => Poll::Ready(Err(error)),
                None if matches!(self.outcome, Outcome::Pending(_)) => Poll::Pending,
                None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let piece = Bytes::copy_from_slice(&bytes[..bytes.len().min(PIECE)]);
        let length = piece.len();
        match self.pieces.send_item(piece) {
            Ok(()) => Poll::Ready(Ok(length)),
            Err(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.closing.is_none() {
            // Ends the body; the answer tells that the process has taken every byte.
            this.pieces.close();
            let outcome = std::mem::replace(&mut this.outcome, Outcome::Known(Ok(())));
            let (link, id) = (Arc::clone(&this.link), this.id.clone());
            let close = async move {
                match outcome {
                    Outcome::Pending(outcome) => outcome.await.map_err(refused)?,
                    Outcome::Known(Ok(())) => {}
                    Outcome::Known(Err((kind, text))) => {
                        return Err(refused(Error::new(kind, text)));
                    }
                }
                link.call::<()>(
                    Method::DELETE,
                    &format!("/processes/{id}/input"),
                    Bytes::new(),
                    link::ANSWER_TIME,
                )
                .await
                .map_err(refused)
            };
            this.closing = Some(close.boxed());
        }
        match &mut this.closing {
            Some(closing) => {
                let closed = ready!(closing.poll_unpin(cx));
                // Again is success, or the same broken pipe.
                this.closing = Some(std::future::ready(Ok(())).boxed());
                Poll::Ready(closed)
            }
            None => Poll::Ready(Ok(())),
        }
    }
}

/// The input of a process that can take none any more.
#[derive(Debug)]
pub(super) struct Ended;

impl AsyncWrite for Ended {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        let error = Error::new(ErrorKind::Unavailable, "the process has ended").retryable(false);
        Poll::Ready(Err(refused(error)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
