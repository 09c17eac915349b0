//! The one connection of a client: all its requests share it, and as long as it is open a controller counts as connected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::InstanceId,
};
use http_body_util::{BodyExt as _, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{Method, Request, Response, body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::connector::Connector;
use crate::wire::{
    self, CONNECTION_WINDOW, Failure, Hello, MAX_FRAME, PROTOCOL, PROTOCOL_HEADER, STREAM_WINDOW,
};

/// The body of a request.
pub(super) type RequestBody = UnsyncBoxBody<Bytes, Error>;

type Sender = http2::SendRequest<RequestBody>;

/// An open connection, and the version that both sides speak on it.
#[derive(Clone, Debug)]
struct Spoken {
    sender: Sender,
    version: u32,
    /// Which of the connections of a link it is.
    number: u64,
}

/// How long a supervisor may take to answer a verb that does not wait for anything.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(30);

/// How long a connection may stand still before an answer until the same is asked on another one.
const STANDSTILL: Duration = Duration::from_secs(5);

/// How long a supervisor may take to say hello.
const HELLO_TIME: Duration = Duration::from_secs(20);

/// How often a request is sent anew because the connection was lost before its answer.
const TRIES: usize = 10;

/// The largest document that is believed to be an answer.
const MAX_ANSWER: usize = 64 << 20;

/// A connection that is made again when it was lost.
#[derive(Debug)]
pub(super) struct Link {
    connector: Arc<dyn Connector>,
    instance: InstanceId,
    sender: Mutex<Option<Spoken>>,
    made: AtomicU64,
}

/// Runs a part of a connection beside the requests on it.
#[derive(Clone, Copy, Debug)]
struct Beside;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Beside {
    fn execute(&self, future: F) {
        beside(future);
    }
}

/// Runs something beside the caller that owns nothing but its part of the connection, if there is a runtime.
pub(super) fn beside(future: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(future));
    }
}

fn whole(body: Bytes) -> RequestBody {
    Full::new(body)
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn lost(error: hyper::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the connection to the supervisor was lost",
    )
    .with_source(error)
}

/// Why a request has no answer.
pub(super) enum Trouble {
    /// The connection was lost; the request may have had its effect.
    Lost(Error),
    /// The supervisor cannot be reached, or answered with this error.
    Answer(Error),
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Lost(error) | Trouble::Answer(error) => error,
        }
    }
}

impl Link {
    /// Connects, and checks that it is the supervisor of that instance and speaks our version.
    pub(super) async fn open(
        connector: Arc<dyn Connector>,
        instance: InstanceId,
    ) -> Result<Self, Error> {
        let link = Self {
            connector,
            instance,
            sender: Mutex::new(None),
            made: AtomicU64::new(0),
        };
        link.sender().await?;
        Ok(link)
    }

    /// Returns the version that is spoken with this supervisor.
    pub(super) async fn version(&self) -> Result<u32, Error> {
        Ok(self.sender().await?.version)
    }

    async fn sender(&self) -> Result<Spoken, Error> {
        self.sender_within(HELLO_TIME).await
    }

    async fn sender_within(&self, time: Duration) -> Result<Spoken, Error> {
        let mut held = self.sender.lock().await;
        if let Some(spoken) = held.as_ref().filter(|spoken| !spoken.sender.is_closed()) {
            return Ok(spoken.clone());
        }
        *held = None;
        let spoken = tokio::time::timeout(time, self.connect())
            .await
            .map_err(|_| {
                Error::new(
                    ErrorKind::Unavailable,
                    "the supervisor accepts connections but does not answer",
                )
                .with("seconds", time.as_secs())
            })??;
        *held = Some(spoken.clone());
        Ok(spoken)
    }

    async fn connect(&self) -> Result<Spoken, Error> {
        let stream = self.connector.open().await?;
        let (mut sender, connection) = http2::Builder::new(Beside)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME)
            .max_send_buf_size(MAX_FRAME as usize * 2)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(lost)?;
        beside(async move {
            // How the connection ended is told to each request on it.
            drop(connection.await);
        });
        let mut version = PROTOCOL;
        let response = loop {
            let request = request(Method::GET, version, "", whole(Bytes::new()))?;
            let response = sender.send_request(request).await.map_err(lost)?;
            // One that speaks only earlier versions says which; down it goes, and never up again.
            match response
                .headers()
                .get(PROTOCOL_HEADER)
                .and_then(|word| wire::spoken(word.as_bytes()))
            {
                Some(theirs) if theirs < version => version = theirs,
                _ => break response,
            }
        };
        let hello: Hello = document(checked(response, version).await?).await?;
        if hello.protocol != version {
            return Err(wire::mismatch(&hello.protocol.to_string()));
        }
        if hello.instance != self.instance {
            return Err(Error::new(
                ErrorKind::Conflict,
                "the supervisor that answers is that of another instance",
            )
            .with("wanted", &self.instance)
            .with("answers", &hello.instance));
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Spoken {
            sender,
            version,
            number,
        })
    }

    /// Sends a request once, with a body that cannot be sent again.
    pub(super) async fn send_once(
        &self,
        method: Method,
        path: &str,
        body: RequestBody,
    ) -> Result<Response<Incoming>, Trouble> {
        let spoken = self.sender().await.map_err(Trouble::Answer)?;
        send_on(spoken, method, path, body).await
    }

    /// Takes no more requests to a connection; those that are under way on it stay.
    async fn give_up(&self, number: u64) {
        let mut held = self.sender.lock().await;
        if held.as_ref().is_some_and(|spoken| spoken.number == number) {
            *held = None;
        }
    }

    /// Sends a request whose answer is a stream, again if the connection was lost, or stood still, before it began; every verb
    /// may be repeated.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        within(ANSWER_TIME, path, self.send_again(method, path, body)).await
    }

    async fn send_again(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        let (mut tries, mut hello) = (0, HELLO_TIME);
        loop {
            tries += 1;
            let spoken = self.sender_within(hello).await?;
            let number = spoken.number;
            let answer = send_on(spoken, method.clone(), path, whole(body.clone()));
            match tokio::time::timeout(STANDSTILL, answer).await {
                Ok(Err(Trouble::Lost(_))) if tries < TRIES => {}
                Ok(other) => return Ok(other?),
                // Such an answer waits for nothing: what carries it may be stuck, and the supervisor fine.
                Err(_) => {
                    self.give_up(number).await;
                    // If it is the supervisor after all, that it is late is what there is to tell.
                    hello = ANSWER_TIME;
                }
            }
        }
    }

    /// Sends a request and reads the document that answers it, which must be here in time.
    ///
    /// # Errors
    ///
    /// `TimedOut` when it is not; then nobody knows whether the verb had its effect, and it may be repeated.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        time: Duration,
    ) -> Result<T, Error> {
        within(time, path, self.call_untimed(method, path, body)).await
    }

    /// As [`call`](Self::call), for what takes as long as it takes.
    pub(super) async fn call_untimed<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match self
                .send_once(method.clone(), path, whole(body.clone()))
                .await
            {
                Ok(response) => document(response).await,
                Err(trouble) => Err(trouble),
            };
            match outcome {
                Err(Trouble::Lost(_)) if tries < TRIES => {}
                other => return Ok(other?),
            }
        }
    }
}

/// Sends a request on a connection.
async fn send_on(
    spoken: Spoken,
    method: Method,
    path: &str,
    body: RequestBody,
) -> Result<Response<Incoming>, Trouble> {
    let Spoken {
        mut sender,
        version,
        ..
    } = spoken;
    let request = request(method, version, path, body).map_err(Trouble::Answer)?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|e| Trouble::Lost(lost(e)))?;
    checked(response, version).await
}

/// Waits for an answer no longer than that.
pub(super) async fn within<T>(
    time: Duration,
    path: &str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(time, answer)
        .await
        .unwrap_or_else(|_| Err(late(path, time)))
}

/// The error of a supervisor that is there and does not answer.
pub(super) fn late(path: &str, time: Duration) -> Error {
    Error::new(
        ErrorKind::TimedOut,
        "the supervisor does not answer; what was asked of it may still happen",
    )
    .with("verb", path.split('?').next().unwrap_or(path))
    .with("seconds", time.as_secs())
}

fn request(
    method: Method,
    version: u32,
    path: &str,
    body: RequestBody,
) -> Result<Request<RequestBody>, Error> {
    Request::builder()
        .method(method)
        .uri(format!("http://supervisor/v{version}{path}"))
        .header(PROTOCOL_HEADER, version)
        .body(body)
        .map_err(|e| {
            Error::new(ErrorKind::Unexpected, "failed to write the request").with_source(e)
        })
}

/// Turns an answer that is an error into that error.
async fn checked(
    response: Response<Incoming>,
    version: u32,
) -> Result<Response<Incoming>, Trouble> {
    match response.headers().get(PROTOCOL_HEADER) {
        Some(word) if wire::spoken(word.as_bytes()) == Some(version) => {}
        Some(version) => {
            return Err(Trouble::Answer(wire::mismatch(&String::from_utf8_lossy(
                version.as_bytes(),
            ))));
        }
        None => {
            return Err(Trouble::Answer(Error::new(
                ErrorKind::Protocol,
                "what answers is no supervisor",
            )));
        }
    }
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let failure: Failure = document(response).await.map_err(|trouble| match trouble {
        Trouble::Lost(error) => Trouble::Lost(error),
        Trouble::Answer(error) => Trouble::Answer(error.with("status", status)),
    })?;
    Err(Trouble::Answer(failure.error.into()))
}

async fn document<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Trouble> {
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|e| match e.downcast::<hyper::Error>() {
            Ok(error) => Trouble::Lost(lost(*error)),
            Err(e) => Trouble::Answer(
                Error::new(ErrorKind::Protocol, "the answer is too long").with_source(e),
            ),
        })?
        .to_bytes();
    serde_json::from_slice(&body).map_err(|e| {
        Trouble::Answer(
            Error::new(ErrorKind::Protocol, "the answer cannot be understood").with_source(e),
        )
    })
}
