//! An instance, reached through its supervisor.

use std::{path::Path, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
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
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::{
    connector::Connector,
    input::{Ended, Input},
    link::{ANSWER_TIME, Link, late},
    logged::{LoggedInstance, ended},
    output::Output,
};
use crate::wire::{self, Shutdown};

/// How long a program may take until it runs: as long as its disk takes to bring it.
const START_TIME: Duration = Duration::from_mins(2);

/// How long the end of everything may take behind its grace.
const END_TIME: Duration = Duration::from_secs(45);

/// How long an archive may stand still on its way.
const STALL_TIME: Duration = Duration::from_mins(1);

/// How long a supervisor that answers no more may take to let go.
const GONE_TIME: Duration = Duration::from_secs(10);

/// How long a supervisor that can no longer be reached is given to be seen as ended: it lets go a moment after it listens
/// no more.
const LETTING_GO: Duration = Duration::from_secs(1);

/// An instance whose supervisor is reached over any stream of bytes.
///
/// * It holds one connection, over which all requests go. From the first one on that does more than ask – what runs, who it
///   is – the lease does not run as long as the connection is held.
/// * No verb waits for ever for a supervisor that does not answer, but those that wait for a process.
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
        self.call_within(ANSWER_TIME, method, path, body).await
    }

    async fn call_within<T: serde::de::DeserializeOwned>(
        &self,
        time: Duration,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, Error> {
        match self.link.call(method, path, body, time).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.settled(error).await),
        }
    }

    /// Tells a supervisor that has ended from one that cannot be reached now, where that can be told.
    async fn settled(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Unavailable
            && let Some(logs) = &self.logs
            && matches!(logs.let_go(LETTING_GO).await, Ok(true))
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

    /// Takes what the supervisor answered; if it is gone, its logs.
    fn or_logs<T>(&self, answer: Result<T, Error>) -> Result<T, ReadError<'_>> {
        match (answer, &self.logs) {
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
        if spec.idle_limit.is_some() && self.link.version().await? < wire::IDLE_LIMITS {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the instance was made by an earlier version, which knows no idle limit; leave it out or launch anew",
            )
            .with("process", id));
        }
        let path = format!("/processes/{id}");
        self.call_within(START_TIME, Method::PUT, &path, text(spec)?)
            .await
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
        let path = format!("/processes/{id}/wait");
        // As long as the process lives; a supervisor that dies is noticed by the connection.
        let answer = self.link.call_untimed(Method::GET, &path, Bytes::new());
        match self.or_logs(answer.await) {
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
        let answer = self
            .link
            .call(Method::GET, "/processes", Bytes::new(), ANSWER_TIME);
        match self.or_logs(answer.await) {
            Ok(states) => Ok(states),
            Err(ReadError::Gone(logs)) => logs.processes().await,
            Err(ReadError::Failed(error)) => Err(error),
        }
    }

    async fn put_archive(&self, at: &Path, tar: ByteStream) -> Result<(), Error> {
        let path = archive(at);
        let (taken, mut progress) = watch::channel(());
        let pieces = tar.inspect(move |_| {
            taken.send_replace(());
        });
        let body = StreamBody::new(pieces.map(|piece| piece.map(BodyFrame::data))).boxed_unsync();
        let mut sending = pin!(async {
            let response = self.link.send_once(Method::PUT, &path, body).await?;
            response.into_body().collect().await.map_err(|e| {
                Error::new(
                    ErrorKind::Unavailable,
                    "the connection was lost before the archive was unpacked",
                )
                .with_source(e)
            })?;
            Ok(())
        });
        let mut all_sent = false;
        loop {
            tokio::select! {
                done = &mut sending => return done,
                more = progress.changed(), if !all_sent => all_sent = more.is_err(),
                () = tokio::time::sleep(STALL_TIME) => return Err(late(&path, STALL_TIME)),
            }
        }
    }

    async fn get_archive(&self, at: &Path) -> Result<ByteStream, Error> {
        let response = self
            .link
            .send(Method::GET, &archive(at), Bytes::new())
            .await?;
        let pieces = stream::unfold(
            Some(response.into_body().into_data_stream()),
            |pieces| async {
                let mut pieces = pieces?;
                match tokio::time::timeout(STALL_TIME, pieces.next()).await {
                    Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
                    Ok(Some(Err(e))) => {
                        let broke = Error::new(ErrorKind::Unavailable, "the archive broke off");
                        Some((Err(broke.with_source(e)), None))
                    }
                    Ok(None) => None,
                    Err(_) => Some((Err(late("/archive", STALL_TIME)), None)),
                }
            },
        );
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
        let time = grace.saturating_add(END_TIME);
        let asked = self.call_within(time, Method::POST, "/shutdown", body);
        match (asked.await, &self.logs) {
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
