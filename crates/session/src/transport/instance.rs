//! Agents as processes of an instance, wherever that is: the supervisor holds their pipes and their output, so we may die.

use std::{fmt, pin::Pin, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream::BoxStream};
use groundcrew_core::{
    command::Command,
    error::{Error, ErrorKind, ErrorReport},
    id::ProcessId,
    instance::Instance,
    process::{
        DEFAULT_LOG_LIMIT, EnvironmentSource, Frame, FrameKind, Offset, ProcessSpec, Role,
        StdinPolicy, StdioKind, StopOrder,
    },
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::Mutex,
};

use super::{CloseLadder, Connection, Transport};
use crate::{failure, launch::LaunchDescription, variable};

/// How agents are run in an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceOptions {
    /// How they are ended by us.
    pub ladder: CloseLadder,
    /// How they are ended with the instance; its signal is that of the ladder as well.
    pub stop: StopOrder,
    /// Whether the run's variables are theirs too, below those of the session.
    pub inherit: bool,
    /// Whether they may gain no privileges.
    pub no_new_privileges: bool,
    /// How much of their output is kept, in bytes.
    pub log_limit: u64,
}

impl Default for InstanceOptions {
    fn default() -> Self {
        Self {
            ladder: CloseLadder::default(),
            stop: StopOrder::default(),
            inherit: true,
            no_new_privileges: false,
            log_limit: DEFAULT_LOG_LIMIT,
        }
    }
}

/// Starts agents in one instance.
#[derive(Debug)]
pub struct InstanceTransport {
    instance: Arc<dyn Instance>,
    options: InstanceOptions,
}

impl InstanceTransport {
    /// Makes one.
    pub fn new(instance: Arc<dyn Instance>, options: InstanceOptions) -> Self {
        Self { instance, options }
    }
}

#[async_trait]
impl Transport for InstanceTransport {
    async fn start(&self, launch: &LaunchDescription) -> Result<Arc<dyn Connection>, Error> {
        let environment = variable::environment(&launch.environment)?;
        let options = &self.options;
        let spec = ProcessSpec {
            command: Command::new(launch.command.iter().cloned())?,
            directory: launch.directory.clone(),
            environment: if options.inherit {
                EnvironmentSource::Run(environment)
            } else {
                EnvironmentSource::Exact(environment)
            },
            stdio: StdioKind::Pipes,
            stdin: StdinPolicy::Open,
            time_limit: None,
            idle_limit: None,
            stop: options.stop.clone(),
            no_new_privileges: options.no_new_privileges,
            main: false,
            log_limit: options.log_limit,
        };
        self.instance.start(&launch.process, &spec).await?;
        self.attach(&launch.process, Offset(0)).await
    }

    async fn attach(
        &self,
        process: &ProcessId,
        from: Offset,
    ) -> Result<Arc<dyn Connection>, Error> {
        let stdio = match self.instance.attach(process, from, Role::Writer).await {
            // It ended, and its instance with it: what it left is read to its end.
            Err(error) if error.kind() == ErrorKind::Unavailable && !error.is_retryable() => {
                self.instance.attach(process, from, Role::Viewer).await?
            }
            stdio => stdio?,
        };
        Ok(Arc::new(InstanceConnection {
            instance: Arc::clone(&self.instance),
            process: process.clone(),
            options: self.options.clone(),
            output: Mutex::new(Output {
                frames: stdio.output,
                over: false,
            }),
            input: Mutex::new(stdio.input),
            closing: Mutex::new(None),
            tries: std::sync::atomic::AtomicU64::new(0),
        }))
    }

    async fn end(&self, process: &ProcessId) -> Result<(), Error> {
        let ladder = self.options.ladder;
        ladder
            .climb(&*self.instance, process, self.options.stop.signal)
            .await
    }
}

type Input = Pin<Box<dyn AsyncWrite + Send>>;

struct Output {
    frames: BoxStream<'static, Result<Frame, Error>>,
    over: bool,
}

struct InstanceConnection {
    instance: Arc<dyn Instance>,
    process: ProcessId,
    options: InstanceOptions,
    output: Mutex<Output>,
    input: Mutex<Option<Input>>,
    /// What became of the last try to close it.
    closing: Mutex<Option<Result<(), ErrorReport>>>,
    tries: std::sync::atomic::AtomicU64,
}

impl fmt::Debug for InstanceConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceConnection")
            .field("instance", &self.instance)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Connection for InstanceConnection {
    fn process(&self) -> &ProcessId {
        &self.process
    }

    async fn receive(&self) -> Result<Option<Frame>, Error> {
        let mut output = self.output.lock().await;
        if output.over {
            return Ok(None);
        }
        let frame = output.frames.next().await.transpose();
        let last = !matches!(&frame, Ok(Some(frame)) if !matches!(frame.kind, FrameKind::Exit(_)));
        if last {
            output.over = true;
        }
        frame
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Error> {
        let mut input = self.input.lock().await;
        let Some(open) = &mut *input else {
            return Err(failure::coded(
                ErrorKind::Unavailable,
                failure::DISCONNECTED,
                "the agent's input is closed",
            ));
        };
        let written = async {
            open.write_all(&bytes).await?;
            open.flush().await
        };
        let written = written.await;
        if written.is_err() {
            *input = None;
        }
        written.map_err(|error| {
            Error::io("failed to write to the agent", error).with("code", failure::DISCONNECTED)
        })
    }

    async fn close(&self) -> Result<(), Error> {
        use std::sync::atomic::Ordering::SeqCst;
        let seen = self.tries.load(SeqCst);
        let mut last = self.closing.lock().await;
        match &*last {
            Some(Ok(())) => return Ok(()),
            // It failed while this call waited for it.
            Some(Err(report)) if self.tries.load(SeqCst) != seen => {
                return Err(report.clone().into());
            }
            _ => {}
        }
        let signal = self.options.stop.signal;
        let ladder = self.options.ladder;
        let closed = ladder.climb(&*self.instance, &self.process, signal).await;
        self.tries.fetch_add(1, SeqCst);
        *last = Some(closed.as_ref().copied().map_err(ErrorReport::from));
        closed
    }
}
