//! Streams of a control connection: output to readers, input from the one writer, archives both ways.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::ProcessId,
    instance::ByteStream,
    process::{Frame, Offset},
};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Frame as BodyFrame, Incoming};
use tokio::sync::oneshot;

use super::control::Control;
use crate::wire::{self, Failure, MAX_FRAME};

fn body(
    stream: impl Stream<Item = Result<Bytes, Error>>,
) -> impl Body<Data = Bytes, Error = Error> {
    StreamBody::new(stream.map(|piece| piece.map(BodyFrame::data)))
}

/// Carries recorded and live frames, as many in a piece as are there.
pub(super) fn output(
    control: Rc<Control>,
    frames: impl Stream<Item = Result<Frame, Error>> + 'static,
) -> impl Body<Data = Bytes, Error = Error> {
    let state = Some((Box::pin(frames), control));
    body(stream::unfold(state, |state| async move {
        let (mut frames, control) = state?;
        let mut piece = BytesMut::new();
        let mut next = frames.next().await?;
        loop {
            let failed = next.is_err();
            if let Err(error) = wire::put_frame(&mut piece, &next) {
                return Some((Err(error), None));
            }
            if failed {
                return Some((Ok(piece.freeze()), None));
            }
            if piece.len() >= MAX_FRAME as usize / 2 {
                break;
            }
            match frames.next().now_or_never() {
                Some(Some(frame)) => next = frame,
                Some(None) => {
                    control.moved();
                    return Some((Ok(piece.freeze()), None));
                }
                None => break,
            }
        }
        control.moved();
        Some((Ok(piece.freeze()), Some((frames, control))))
    }))
}

/// Carries an archive that was packed here.
pub(super) fn outgoing(
    control: Rc<Control>,
    stream: ByteStream,
) -> impl Body<Data = Bytes, Error = Error> {
    body(stream.inspect(move |_| control.moved()))
}

/// Turns the body of a request into the stream of an archive.
pub(super) fn incoming(incoming: Incoming) -> ByteStream {
    incoming
        .into_data_stream()
        .map(|piece| {
            piece.map_err(|e| {
                Error::new(ErrorKind::Unavailable, "the archive broke off").with_source(e)
            })
        })
        .boxed()
}

/// Finds out whether there is such a process; one that has ended takes no input, which its writer learns when it writes.
///
/// # Errors
///
/// `NotFound`.
pub(super) fn check_started(control: &Control, id: &ProcessId) -> Result<(), Error> {
    control.processes.attach(id, Offset(0)).map(drop)
}

/// Writes the body of a request to a process until it ends, fails, or another writer takes over.
///
/// The answer begins at once, which tells the writer that it took over; its one line, `null` or an error, tells how it ended.
pub(super) fn input(
    control: Rc<Control>,
    id: ProcessId,
    mut taken: oneshot::Receiver<()>,
    mut incoming: Incoming,
) -> impl Body<Data = Bytes, Error = Error> {
    let write = async move {
        let outcome = tokio::select! {
            biased;
            _ = &mut taken => Err(Error::new(
                ErrorKind::Conflict,
                "another writer took over the input of the process",
            )
            .with("process", &id)),
            outcome = write_all(&control, &id, &mut incoming) => outcome,
            _ = control.processes.wait(&id) => {
                Err(Error::new(ErrorKind::Unavailable, "the process has ended")
                    .retryable(false)
                    .with("process", &id))
            }
        };
        let text = match outcome {
            Ok(()) => "null\n".to_owned(),
            Err(error) => serde_json::to_string(&Failure {
                error: ErrorReport::from(&error),
            })
            .map_err(|e| {
                Error::new(ErrorKind::Unexpected, "failed to write the answer").with_source(e)
            })?,
        };
        Ok(Bytes::from(text))
    };
    body(stream::once(write))
}

async fn write_all(
    control: &Control,
    id: &ProcessId,
    incoming: &mut Incoming,
) -> Result<(), Error> {
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|e| {
            Error::new(ErrorKind::Unavailable, "the input broke off").with_source(e)
        })?;
        if let Ok(data) = frame.into_data() {
            control.processes.write(id, data).await?;
        }
    }
    Ok(())
}
