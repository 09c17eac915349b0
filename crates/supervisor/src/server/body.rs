//! Bodies of requests and answers.

use std::pin::Pin;

use bytes::Bytes;
use groundcrew_core::error::{Error, ErrorKind, ErrorReport};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Response, StatusCode,
    body::{Body, Incoming},
    header,
};
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use crate::wire::{Failure, PROTOCOL, PROTOCOL_HEADER};

/// The body of an answer; made and read on the supervisor's one thread.
pub(super) type ResponseBody = Pin<Box<dyn Body<Data = Bytes, Error = Error>>>;

/// The largest JSON document that is read: room for arguments and environment at the kernel's limits, escaped.
pub(super) const MAX_JSON: usize = 16 << 20;

/// The largest environment that is read.
pub(super) const MAX_ENVIRONMENT: usize = 4 << 20;

/// Answers with bytes or a stream of them.
pub(super) fn bytes(
    body: impl Body<Data = Bytes, Error = Error> + 'static,
) -> Response<ResponseBody> {
    respond(StatusCode::OK, "application/octet-stream", Box::pin(body))
}

fn whole(bytes: Vec<u8>) -> ResponseBody {
    Box::pin(Full::new(Bytes::from(bytes)).map_err(|never| match never {}))
}

fn respond(status: StatusCode, kind: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(PROTOCOL_HEADER, header::HeaderValue::from(PROTOCOL));
    response
}

/// Answers with a document.
pub(super) fn json(document: &impl Serialize) -> Response<ResponseBody> {
    json_with(StatusCode::OK, document)
}

fn json_with(status: StatusCode, document: &impl Serialize) -> Response<ResponseBody> {
    match serde_json::to_vec(document) {
        Ok(mut text) => {
            text.push(b'\n');
            respond(status, "application/json", whole(text))
        }
        Err(e) => {
            failure(&Error::new(ErrorKind::Unexpected, "failed to write the answer").with_source(e))
        }
    }
}

/// Answers with an error.
pub(super) fn failure(error: &Error) -> Response<ResponseBody> {
    let status = match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::Protocol => StatusCode::BAD_REQUEST,
        ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        ErrorKind::NotFound
        | ErrorKind::ProgramNotFound
        | ErrorKind::InterpreterNotFound
        | ErrorKind::DirectoryNotFound => StatusCode::NOT_FOUND,
        ErrorKind::AlreadyExists | ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::Unavailable | ErrorKind::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    json_with(
        status,
        &Failure {
            error: ErrorReport::from(error),
        },
    )
}

/// Reads a whole body, at most `limit` bytes of it; wiped when dropped.
pub(super) async fn read(body: Incoming, limit: usize) -> Result<Zeroizing<Vec<u8>>, Error> {
    let too_large =
        || Error::new(ErrorKind::TooLarge, "the request is too large").with("limit", limit);
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let mut body = Limited::new(body, limit);
    let mut all = Zeroizing::new(Vec::with_capacity(
        usize::try_from(body.size_hint().upper().unwrap_or(0))
            .unwrap_or(limit)
            .min(limit),
    ));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| {
            if e.is::<http_body_util::LengthLimitError>() {
                too_large()
            } else {
                Error::new(ErrorKind::Unavailable, "the request broke off").with_source(e)
            }
        })?;
        if let Some(data) = frame.data_ref() {
            all.extend_from_slice(data);
        }
    }
    Ok(all)
}

/// Reads a document.
pub(super) async fn read_json<T: DeserializeOwned>(body: Incoming) -> Result<T, Error> {
    let text = read(body, MAX_JSON).await?;
    serde_json::from_slice(&text).map_err(|e| {
        // Its words may quote the document, which may hold a variable's value; where it went wrong says enough.
        Error::new(ErrorKind::InvalidInput, "the request cannot be understood")
            .with("line", e.line())
            .with("column", e.column())
    })
}
