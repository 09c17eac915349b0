//! An instance, reached through its supervisor.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
    id::{InstanceId, ProcessId},
    instance::{ByteStream, Instance, McpServer, Stdio},
    process::{
        ExitStatus, Lease, Offset, ProcessSpec, ProcessState, Role, Signal, Started, TerminalSize,
    },
};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{Method, body::Frame as BodyFrame};
use serde::Serialize;
use zeroize::Zeroizing;

use super::{
    connector::Connector,
    input::{Ended, Input},
    link::Link,
    logged::{LoggedInstance, ended},
    output::Output,
};
use crate::wire::{self, Shutdown};

/// How long a supervisor that answers no more may take to let go.
const GONE_TIME: Duration = Duration::from_secs(10);

/// An instance whose supervisor is reached over any stream of bytes.
///
/// * It holds one connection, over which all requests go; as long as it is held, the lease does not run.
/// * A lost connection is made again. When the supervisor is gone, it is `Unavailable`, except for what the logs can tell.
#[derive(Debug)]
pub struct SupervisorInstance {
    link: Arc<Link>,
    logs: Option<LoggedInstance>,
}

/// Writes a document, which may hold variables and is wiped when it was sent.
fn text(document: &impl Serialize) -> Result<Bytes, Error> {
    serde_json::to_vec(document)
        .map(|text| Bytes::from_owner(Zeroizing::new(text)))
        .map_err(|e| {
            Error::new(ErrorKind::Unexpected, "failed to write the request").with_source(e)
        })
}

impl SupervisorInstance {
    /// Connects to the supervisor of an instance; `logs` is where its logs can be read when it is gone, if they are here.
    ///
    /// # Errors
    ///
    /// `Unavailable` when nobody listens, `Protocol` when it speaks another version, `PermissionDenied` when it does not
    /// take orders from this user, `Conflict` when it is that of another instance.
    pub async fn connect(
        connector: Arc<dyn Connector>,
        id: &InstanceId,
        logs: Option<LoggedInstance>,
    ) -> Result<Self, Error> {
        Ok(Self {
            link: Arc::new(Link::open(connector, id.clone()).await?),
            logs,
        })
    }

    /// Asks the supervisor.
    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, Error> {
        match self.link.call(method, path, body).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.settled(error).await),
        }
    }

    /// Tells a supervisor that has ended from one that cannot be reached now, where that can be told.
    async fn settled(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Unavailable
            && let Some(logs) = &self.logs
            && matches!(logs.is_held().await, Ok(false))
        {
            return ended();
        }
        error
    }

    /// Answers a verb that an ended process takes as done.
    async fn unless_ended(&self, id: &ProcessId, done: Result<(), Error>) -> Result<(), Error> {
        match (done, &self.logs) {
            (Err(error), Some(logs)) if error.kind() == ErrorKind::Unavailable => {
                logs.wait(id).await.map(drop).map_err(|_| error)
            }
            (done, _) => done,
        }
    }

    /// Asks the supervisor; if it is gone, its logs.
    async fn read<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, ReadError<'_>> {
        match (
            self.link.call(Method::GET, path, Bytes::new()).await,
            &self.logs,
        ) {
            (Ok(answer), _) => Ok(answer),
            (Err(error), Some(logs)) if error.kind() == ErrorKind::Unavailable => {
                Err(ReadError::Gone(logs))
            }
            (Err(error), _) => Err(ReadError::Failed(error)),
        }
    }
}

enum ReadError<'a> {
    Gone(&'a LoggedInstance),
    Failed(Error),
}

#[async_trait]
impl Instance for SupervisorInstance {
    async fn set_environment(&self, environment: &Environment) -> Result<(), Error> {
        let body = wire::encode_environment(environment)?;
        self.call(Method::PUT, "/environment", body).await
    }

    async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error> {
        let path = format!("/processes/{id}");
        self.call(Method::PUT, &path, text(spec)?).await
    }

    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error> {
        let input = match role {
            Role::Viewer => None,
            Role::Writer => match Input::open(Arc::clone(&self.link), id).await {
                Ok(input) => Some(Box::pin(input) as _),
                // It ended while its controller was about to attach; the logs tell the rest.
                Err(error) if error.kind() == ErrorKind::Unavailable && self.logs.is_some() => {
                    Some(Box::pin(Ended) as _)
                }
                Err(error) => return Err(error),
            },
        };
        let output = Output::open(Arc::clone(&self.link), self.logs.clone(), id, from).await?;
        Ok(Stdio { output, input })
    }

    async fn close_stdin(&self, id: &ProcessId) -> Result<(), Error> {
        let path = format!("/processes/{id}/input");
        let closed = self.call(Method::DELETE, &path, Bytes::new()).await;
        self.unless_ended(id, closed).await
    }

    async fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error> {
        let path = format!("/processes/{id}/size");
        self.call(Method::PUT, &path, text(&size)?).await
    }

    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        match self.read(&format!("/processes/{id}/wait")).await {
            Ok(status) => Ok(status),
            Err(ReadError::Gone(logs)) => logs.wait(id).await,
            Err(ReadError::Failed(error)) => Err(error),
        }
    }

    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error> {
        let path = format!("/processes/{id}/signal");
        let sent = self.call(Method::POST, &path, text(&signal)?).await;
        self.unless_ended(id, sent).await
    }

    async fn processes(&self) -> Result<Vec<ProcessState>, Error> {
        match self.read("/processes").await {
            Ok(states) => Ok(states),
            Err(ReadError::Gone(logs)) => logs.processes().await,
            Err(ReadError::Failed(error)) => Err(error),
        }
    }

    async fn put_archive(&self, at: &Path, tar: ByteStream) -> Result<(), Error> {
        let body = StreamBody::new(tar.map(|piece| piece.map(BodyFrame::data))).boxed_unsync();
        let response = self.link.send_once(Method::PUT, &archive(at), body).await?;
        response.into_body().collect().await.map_err(|e| {
            Error::new(
                ErrorKind::Unavailable,
                "the connection was lost before the archive was unpacked",
            )
            .with_source(e)
        })?;
        Ok(())
    }

    async fn get_archive(&self, at: &Path) -> Result<ByteStream, Error> {
        let response = self
            .link
            .send(Method::GET, &archive(at), Bytes::new())
            .await?;
        let pieces = response.into_body().into_data_stream().map(|piece| {
            piece.map_err(|e| {
                Error::new(ErrorKind::Unavailable, "the archive broke off").with_source(e)
            })
        });
        Ok(pieces.boxed())
    }

    async fn set_mcp_servers(&self, servers: &[McpServer]) -> Result<(), Error> {
        self.call(Method::PUT, "/mcp-servers", text(&servers)?)
            .await
    }

    async fn set_lease(&self, lease: Lease) -> Result<(), Error> {
        self.call(Method::PUT, "/lease", text(&lease)?).await
    }

    async fn shutdown(&self, grace: Duration) -> Result<(), Error> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let body = text(&Shutdown { grace_ms })?;
        match (self.call(Method::POST, "/shutdown", body).await, &self.logs) {
            // It was ending by itself, or ended before the answer: what counts is that nothing is left.
            (Err(error), Some(logs)) if error.kind() == ErrorKind::Unavailable => {
                match logs.all_ended(GONE_TIME).await {
                    Ok(true) => Ok(()),
                    _ => Err(error),
                }
            }
            (answer, _) => answer,
        }
    }
}

fn archive(at: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    format!(
        "/archive?at={}",
        wire::percent_encode(at.as_os_str().as_bytes())
    )
}
