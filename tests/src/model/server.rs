//! The server itself: connections, and answers that go out as fast as they are read.

use std::{convert::Infallible, net::TcpListener, pin::pin, sync::Arc};

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::CONTENT_TYPE,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinSet,
};

use super::{
    dialect::{Dialect, shell},
    question::Question,
    route,
    script::Step,
    shared::Shared,
};

type Body = BoxBody<Bytes, Infallible>;

/// The size of one piece of a flood, in bytes.
const PIECE: usize = 4096;

/// Serves until the end is called.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let mut connections = JoinSet::new();
    let mut end = pin!(shared.end());
    loop {
        tokio::select! {
            () = &mut end => return,
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    // An agent that leaves in the middle is what many tests are about.
                    drop(connection.await);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().to_string();
    let body = request.into_body().collect().await?.to_bytes();
    if path.contains(":countTokens") {
        return Ok(whole(StatusCode::OK, &json!({ "totalTokens": 11 })));
    }
    if path.contains("/count_tokens") {
        return Ok(whole(StatusCode::OK, &json!({ "input_tokens": 11 })));
    }
    let number = shared.number();
    let parsed: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some((question, dialect)) = route::of(&path, number, &parsed) else {
        return Ok(failure(StatusCode::NOT_FOUND, "there is nothing here"));
    };
    shared.note(question.clone());
    let step = question.step();
    match step {
        // The connection ends with the server.
        Step::Hang => std::future::pending().await,
        Step::Fail(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok(failure(status, "the model is out of order"))
        }
        step => {
            let kind = dialect.kind();
            let (sender, receiver) = channel(16);
            #[expect(
                clippy::disallowed_methods,
                reason = "the answer goes out beside the request; the runtime ends with the server"
            )]
            drop(tokio::spawn(speak(step, question, dialect, sender, shared)));
            let mut response = Response::new(streamed(receiver));
            let kind = hyper::header::HeaderValue::from_static(kind);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            Ok(response)
        }
    }
}

/// Says an answer; whoever listens no more ends it.
async fn speak(
    step: Step,
    question: Question,
    mut dialect: Box<dyn Dialect + Sync>,
    out: Sender<String>,
    shared: Arc<Shared>,
) -> Option<()> {
    let opening = dialect.opening();
    out.send(opening).await.ok()?;
    match step {
        Step::Say(text) => out.send(dialect.words(&text)).await.ok()?,
        Step::Run(command) => {
            let words = call(dialect.as_mut(), &question, &command, false);
            out.send(words).await.ok()?;
        }
        Step::Ask(command) => {
            let words = call(dialect.as_mut(), &question, &command, true);
            out.send(words).await.ok()?;
        }
        Step::Wait(gate) => {
            let words = format!("waiting at {gate}; ");
            out.send(dialect.words(&words)).await.ok()?;
            tokio::select! {
                () = shared.gate(&gate) => {}
                () = out.closed() => return None,
            }
            let words = format!("went through {gate}");
            out.send(dialect.words(&words)).await.ok()?;
        }
        Step::Flood(bytes) => {
            let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
            let piece = "0123456789abcde ".repeat(PIECE / 16);
            while left > 0 {
                let size = left.min(PIECE);
                out.send(dialect.words(&piece[..size])).await.ok()?;
                left -= size;
            }
        }
        Step::Hang | Step::Fail(_) => {}
    }
    let closing = dialect.closing();
    out.send(closing).await.ok()
}

fn call(dialect: &mut dyn Dialect, question: &Question, command: &str, more: bool) -> String {
    match shell(&question.tools, command, more) {
        Some((tool, arguments)) => dialect.call(&tool, &arguments),
        None => dialect.words(&format!(
            "none of the tools runs a command: {}",
            question.tools.join(", ")
        )),
    }
}

fn streamed(receiver: Receiver<String>) -> Body {
    let frames = unfold(receiver, async |mut receiver| {
        let text = receiver.recv().await?;
        Some((Ok(Frame::data(Bytes::from(text))), receiver))
    });
    StreamBody::new(frames).boxed()
}

fn whole(status: StatusCode, document: &Value) -> Response<Body> {
    let body = http_body_util::Full::new(Bytes::from(document.to_string()));
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn failure(status: StatusCode, why: &str) -> Response<Body> {
    let error =
        json!({ "error": { "message": why, "type": "server_error", "code": status.as_u16() } });
    whole(status, &error)
}
