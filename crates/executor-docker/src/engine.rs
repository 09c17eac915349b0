//! The engine: one client, made when it is first needed, whose every call is bounded and whose every error is typed.
//!
//! Nothing of the client's own types is seen outside of this crate.

use std::{collections::HashMap, io, path::Path, sync::PoisonError, time::Duration};

use bollard::{
    API_DEFAULT_VERSION, Docker,
    errors::Error as EngineError,
    models::{ContainerSummaryStateEnum, PortMap, SystemInfo, SystemVersion},
    query_parameters::{
        InspectContainerOptions, ListContainersOptions, ListNetworksOptions, LogsOptions,
        RemoveContainerOptions, StopContainerOptions,
    },
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use groundcrew_core::error::{Error, ErrorKind};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::Mutex,
    time::Instant,
};

/// Where an engine listens if nobody says otherwise.
pub const DEFAULT_ENDPOINT: &str = "unix:///var/run/docker.sock";

/// The timeout of the client itself, in seconds; every call has one of ours, which is shorter or minds what moves.
const CLIENT_TIMEOUT: u64 = 24 * 60 * 60;

/// How much of what an engine said goes into an error.
const SAID: usize = 600;

/// An engine, by its address.
#[derive(Debug)]
pub(crate) struct Engine {
    endpoint: String,
    patience: Duration,
    client: Mutex<Option<Docker>>,
    /// Since when each call was answered; none while the last one was not.
    answering: SinceWhen,
}

/// Since when something is so.
#[derive(Debug, Default)]
struct SinceWhen(std::sync::Mutex<Option<Instant>>);

impl SinceWhen {
    fn is(&self, so: bool) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = so.then(|| since.unwrap_or_else(Instant::now));
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A container, as a list shows it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) labels: HashMap<String, String>,
    pub(crate) running: bool,
    pub(crate) paused: bool,
}

/// How a container is, or how it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    pub(crate) exit_code: Option<i64>,
    pub(crate) out_of_memory: bool,
    pub(crate) said: String,
}

/// Shortens what an engine said, and keeps it on one line.
pub(crate) fn said(text: &str) -> String {
    let mut end = text.len().min(SAID);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim().escape_debug().to_string()
}

/// Types an error of the client: by status, never by the words of a message.
pub(crate) fn typed(what: &'static str, error: EngineError) -> Error {
    match error {
        EngineError::DockerResponseServerError {
            status_code,
            message,
        } => {
            let kind = match status_code {
                400 => ErrorKind::InvalidInput,
                401 | 403 => ErrorKind::PermissionDenied,
                404 => ErrorKind::NotFound,
                409 => ErrorKind::Conflict,
                500.. => ErrorKind::Unavailable,
                _ => ErrorKind::Unexpected,
            };
            Error::new(kind, what)
                .with("status", status_code)
                .with("engine_said", said(&message))
        }
        EngineError::SocketNotFoundError(path) => absent(what).with("socket", path),
        EngineError::RequestTimeoutError => late(what),
        EngineError::JsonDataError { .. } | EngineError::JsonSerdeError { .. } => {
            Error::new(ErrorKind::Protocol, what)
                .retryable(true)
                .with_source(error)
        }
        EngineError::DockerStreamError { error } => {
            Error::new(ErrorKind::Unavailable, what).with("engine_said", said(&error))
        }
        EngineError::UnsupportedURISchemeError { uri } => unsupported(&uri),
        error => {
            if is_denied(&error) {
                return Error::new(
                    ErrorKind::PermissionDenied,
                    "this user may not use the engine; add it to the group of the engine's socket",
                )
                .with("while", what)
                .with_source(error);
            }
            absent(what).with_source(error)
        }
    }
}

/// Returns whether the operating system refused the connection for want of a permission.
fn is_denied(error: &EngineError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

fn absent(what: &'static str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the engine cannot be reached; start it, or name another one with DOCKER_HOST",
    )
    .with("while", what)
}

fn late(what: &'static str) -> Error {
    Error::new(
        ErrorKind::TimedOut,
        "the engine does not answer; it may be frozen or overloaded",
    )
    .retryable(true)
    .with("while", what)
}

fn unsupported(endpoint: &str) -> Error {
    let why = match endpoint.split(':').next() {
        Some("https") => {
            "engines behind TLS are not supported yet; tunnel the engine's socket to unix:// or tcp://127.0.0.1"
        }
        Some("ssh") => {
            "engines behind ssh are not supported yet; forward the engine's socket with `ssh -L`, and name that with DOCKER_HOST=unix://…"
        }
        _ => "engines are reached through unix:// and tcp://; tunnel others to one of these",
    };
    Error::new(ErrorKind::Unsupported, why).with("endpoint", endpoint)
}

impl Engine {
    /// Names an engine; nothing is reached yet.
    pub(crate) fn new(endpoint: String, patience: Duration) -> Self {
        Self {
            endpoint,
            patience,
            client: Mutex::new(None),
            answering: SinceWhen::default(),
        }
    }

    /// Returns since when it answers whatever it is asked; now, if the last call got no answer.
    pub(crate) fn answering_since(&self) -> Instant {
        self.answering.get().unwrap_or_else(Instant::now)
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the socket file of an engine of this machine.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.endpoint.strip_prefix("unix://").map(Path::new)
    }

    /// Returns host and port of an engine that is reached over TCP.
    fn address(&self) -> Option<&str> {
        ["tcp://", "http://"]
            .iter()
            .find_map(|scheme| self.endpoint.strip_prefix(scheme))
            .map(|rest| rest.trim_end_matches('/'))
    }

    /// Checks that engines are reached in that way; touches nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported`, saying what to do.
    pub(crate) fn check_endpoint(&self) -> Result<(), Error> {
        if self.socket().is_some() || self.address().is_some() {
            Ok(())
        } else {
            Err(unsupported(&self.endpoint))
        }
    }

    /// Whether anybody takes connections at the endpoint; nothing is asked.
    pub(crate) async fn is_there(&self) -> bool {
        let connected = async {
            match (self.socket(), self.address()) {
                (Some(socket), _) => UnixStream::connect(socket).await.map(drop),
                (None, Some(address)) => TcpStream::connect(address).await.map(drop),
                (None, None) => Err(io::ErrorKind::Unsupported.into()),
            }
        };
        match tokio::time::timeout(self.patience, connected).await {
            Ok(Ok(())) => true,
            // More want to than it takes at once.
            Ok(Err(e)) => e.kind() == io::ErrorKind::WouldBlock,
            Err(_) => false,
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the client; one that could not be made is made anew the next time.
    pub(crate) async fn client(&self) -> Result<Docker, Error> {
        let mut held = self.client.lock().await;
        if let Some(client) = &*held {
            return Ok(client.clone());
        }
        let client = if self.endpoint.starts_with("unix://") {
            Docker::connect_with_unix(&self.endpoint, CLIENT_TIMEOUT, API_DEFAULT_VERSION)
        } else if self.address().is_some() {
            Docker::connect_with_http(&self.endpoint, CLIENT_TIMEOUT, API_DEFAULT_VERSION)
        } else {
            return Err(unsupported(&self.endpoint));
        };
        let what = "agreeing on a version of the API";
        let client = client.map_err(|e| self.placed(typed(what, e)))?;
        let client = self.call(what, client.negotiate_version()).await?;
        *held = Some(client.clone());
        Ok(client)
    }

    pub(crate) fn placed(&self, error: Error) -> Error {
        error.with("engine", &self.endpoint)
    }

    /// The error of an engine that did not answer for as long as patience lasts.
    pub(crate) fn too_late(&self, what: &'static str) -> Error {
        self.placed(late(what).with("seconds", self.patience.as_secs_f32()))
    }

    /// Makes one call, for as long as patience lasts.
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, Error> {
        self.call_within(what, self.patience, call).await
    }

    /// Makes one call that may take that long.
    pub(crate) async fn call_within<T>(
        &self,
        what: &'static str,
        patience: Duration,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, Error> {
        let answer = tokio::time::timeout(patience, call).await;
        self.answering.is(match &answer {
            Ok(Ok(_)) => true,
            // What it refuses is an answer; what it fails at, or nobody understands, is none.
            Ok(Err(EngineError::DockerResponseServerError { status_code, .. })) => {
                *status_code < 500
            }
            Ok(Err(_)) | Err(_) => false,
        });
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.placed(typed(what, error))),
            Err(_) => Err(self.placed(late(what).with("seconds", patience.as_secs_f32()))),
        }
    }

    pub(crate) async fn version(&self) -> Result<SystemVersion, Error> {
        let client = self.client().await?;
        self.call("asking the engine for its version", client.version())
            .await
    }

    pub(crate) async fn info(&self) -> Result<SystemInfo, Error> {
        let client = self.client().await?;
        self.call("asking the engine what it can do", client.info())
            .await
    }

    /// Lists containers, running or not, that have all these labels with exactly these values.
    pub(crate) async fn list(&self, labels: Vec<String>) -> Result<Vec<Listed>, Error> {
        let client = self.client().await?;
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), labels)])),
            ..ListContainersOptions::default()
        };
        let found = self
            .call("listing containers", client.list_containers(Some(options)))
            .await?;
        found
            .into_iter()
            .map(|container| {
                let Some(id) = container.id else {
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        "the engine listed a container without an id",
                    ));
                };
                let running = matches!(
                    container.state,
                    Some(
                        ContainerSummaryStateEnum::RUNNING
                            | ContainerSummaryStateEnum::PAUSED
                            | ContainerSummaryStateEnum::RESTARTING
                    )
                );
                Ok(Listed {
                    id,
                    labels: container.labels.unwrap_or_default(),
                    running,
                    paused: container.state == Some(ContainerSummaryStateEnum::PAUSED),
                })
            })
            .collect()
    }

    /// Returns how a container is; none if there is none.
    pub(crate) async fn condition(&self, id: &str) -> Result<Option<Condition>, Error> {
        let client = self.client().await?;
        let call = client.inspect_container(id, None::<InspectContainerOptions>);
        match self.call("looking at the container", call).await {
            Ok(found) => {
                let state = found.state.unwrap_or_default();
                Ok(Some(Condition {
                    exit_code: state.exit_code,
                    out_of_memory: state.oom_killed.unwrap_or(false),
                    said: state.error.unwrap_or_default(),
                }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the names of all networks, in order.
    pub(crate) async fn networks(&self) -> Result<Vec<String>, Error> {
        let client = self.client().await?;
        let call = client.list_networks(None::<ListNetworksOptions>);
        let found = self.call("listing networks", call).await?;
        let mut names: Vec<_> = found.into_iter().filter_map(|one| one.name).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the networks that a container has, and where its ports are reached.
    pub(crate) async fn networking(&self, id: &str) -> Result<(Vec<String>, PortMap), Error> {
        let client = self.client().await?;
        let call = client.inspect_container(id, None::<InspectContainerOptions>);
        let found = self
            .call("looking at the container's network", call)
            .await?;
        let settings = found.network_settings.unwrap_or_default();
        // One that it could not be connected to has a name and no id.
        let networks = settings.networks.unwrap_or_default().into_iter();
        let networks = networks
            .filter(|(_, network)| network.network_id.as_ref().is_some_and(|id| !id.is_empty()))
            .map(|(name, _)| name)
            .collect();
        Ok((networks, settings.ports.unwrap_or_default()))
    }

    /// Returns the last of what a container's first process wrote: standard output, and standard error.
    pub(crate) async fn output(&self, id: &str) -> Result<(String, String), Error> {
        let client = self.client().await?;
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            tail: "50".to_owned(),
            ..LogsOptions::default()
        };
        let read = async {
            let (mut out, mut err) = (String::new(), String::new());
            let mut pieces = client.logs(id, Some(options));
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                let into = match &piece {
                    bollard::container::LogOutput::StdErr { .. } => &mut err,
                    _ => &mut out,
                };
                into.push_str(&String::from_utf8_lossy(piece.as_ref()));
            }
            Ok((out, err))
        };
        self.call("reading what the container wrote", read).await
    }

    /// Returns the first line of what a container's first process wrote to its standard output; none if it ended without one.
    pub(crate) async fn first_line(&self, id: &str) -> Result<Option<String>, Error> {
        let client = self.client().await?;
        let options = LogsOptions {
            follow: true,
            stdout: true,
            ..LogsOptions::default()
        };
        let mut pieces = client.logs(id, Some(options));
        let mut text = String::new();
        while let Some(piece) = pieces.next().await {
            let piece =
                piece.map_err(|e| self.placed(typed("reading what the container says", e)))?;
            text.push_str(&String::from_utf8_lossy(piece.as_ref()));
            if let Some((line, _)) = text.split_once('\n') {
                return Ok(Some(line.to_owned()));
            }
        }
        Ok(None)
    }

    /// Asks a container to end, and kills it after `grace`; one that does not run is success.
    pub(crate) async fn stop(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let client = self.client().await?;
        let options = StopContainerOptions {
            t: i32::try_from(grace.as_secs()).ok(),
            ..StopContainerOptions::default()
        };
        let call = client.stop_container(id, Some(options));
        let patience = self.patience + grace;
        match self
            .call_within("stopping the container", patience, call)
            .await
        {
            Err(error) if matches!(error.get("status"), Some("304" | "404")) => Ok(()),
            stopped => stopped,
        }
    }

    /// Removes a container with its anonymous volumes, running or not; one that is gone is success.
    ///
    /// # Errors
    ///
    /// `Conflict` while somebody else removes it.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), Error> {
        let client = self.client().await?;
        let options = RemoveContainerOptions {
            v: true,
            force: true,
            ..RemoveContainerOptions::default()
        };
        let call = client.remove_container(id, Some(options));
        match self.call("removing the container", call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Returns when a container does not run any more, or cannot be watched.
    pub(crate) async fn ended(&self, id: &str) -> Result<(), Error> {
        let client = self.client().await?;
        let waiting =
            client.wait_container(id, None::<bollard::query_parameters::WaitContainerOptions>);
        match waiting.try_collect::<Vec<_>>().await {
            // An exit code other than 0 comes as an error.
            Ok(_) | Err(EngineError::DockerContainerWaitError { .. }) => Ok(()),
            Err(error) => Err(self.placed(typed("waiting for the container", error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status_code: u16) -> Error {
        typed(
            "doing it",
            EngineError::DockerResponseServerError {
                status_code,
                message: "No such thing\n<html>".to_owned(),
            },
        )
    }

    #[test]
    fn f107_errors_are_typed_by_status_and_never_by_words() {
        for (code, kind) in [
            (400, ErrorKind::InvalidInput),
            (403, ErrorKind::PermissionDenied),
            (404, ErrorKind::NotFound),
            (409, ErrorKind::Conflict),
            (500, ErrorKind::Unavailable),
            (502, ErrorKind::Unavailable),
            (418, ErrorKind::Unexpected),
        ] {
            assert_eq!(status(code).kind(), kind, "{code}");
        }
        assert!(status(500).is_retryable());
        assert_eq!(
            status(404).get("engine_said"),
            Some("No such thing\\n<html>")
        );
    }

    #[test]
    fn what_an_engine_says_is_cut_at_a_letter() {
        let long = "ä".repeat(SAID);
        assert!(said(&long).len() <= SAID * 2);
    }
}
