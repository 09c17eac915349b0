//! From settings to a process that was spoken to: command, variables, hook, process, start-up calls.
//!
//! Whatever it makes is given back when it fails: closed, or as a handle that still owns it.

use std::{hash::Hasher as _, sync::Arc};

use fnv::FnvHasher;
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    id::ProcessId,
    process::Offset,
};
use serde_json::Value;

use super::{
    handle::{Handle, Way},
    parts::Inner,
    tasks::{cancelled, guarded},
};
use crate::{
    book::Book,
    dialogue::{Dialogue, DialogueParts},
    failure,
    launch::{LaunchCleanup, LaunchDescription, Preparation, Prepared},
    rpc::{Peer, PeerOptions},
    settings::{Facts, SessionSettings},
    transport::Connection,
    variable,
};

/// A process that somebody else started for the session, such as the agent of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopted {
    /// The process.
    pub process: ProcessId,
    /// Its answer to the first of the protocol's start-up calls, where that was made.
    pub greeting: Option<Value>,
    /// The offset of its output behind that answer.
    pub behind: Offset,
}

/// A process that answered the start-up calls.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) handle: Arc<Handle>,
    pub(super) peer: Peer,
    pub(super) dialogue: Arc<Dialogue>,
    pub(super) facts: Facts,
}

/// A start that failed, and what of it could not be closed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) leftover: Option<Arc<Handle>>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            leftover: None,
        }
    }
}

type Cleanup = Option<Arc<dyn LaunchCleanup>>;

impl Inner {
    /// Starts a process and makes the start-up calls.
    pub(super) async fn spawn(
        &self,
        book: &Arc<Book>,
        settings: &SessionSettings,
        adopted: Option<&Adopted>,
        cancel: &CancelToken,
    ) -> Result<Spawned, Failed> {
        let (connection, number, cleanup) = match adopted {
            None => self.start_process(book, settings, cancel).await?,
            Some(adopted) => {
                let number = book.update(|state| {
                    state.processes += 1;
                    state.processes
                });
                let from = adopted.behind;
                let attached = self.transport.attach(&adopted.process, from).await?;
                (attached, number, None)
            }
        };
        let from = adopted.map_or(Offset(0), |adopted| adopted.behind);
        let dialogue = Dialogue::new(self.dialogue_parts(book, connection.process(), number));
        let peer = self.peer(book, &connection, &dialogue, from);
        let handle = Handle::new(
            connection.process().clone(),
            Arc::clone(book),
            Way::Connected {
                connection,
                peer: peer.clone(),
                dialogue: Arc::clone(&dialogue),
            },
            cleanup,
        );
        let greeting = adopted.and_then(|adopted| adopted.greeting.clone());
        let initialised = self
            .cancellable(cancel, self.protocol.initialise(&peer, settings, greeting))
            .await;
        match initialised {
            Ok(facts) => Ok(Spawned {
                handle,
                peer,
                dialogue,
                facts,
            }),
            Err(error) => Err(Self::give_back(explained(error, &peer), handle).await),
        }
    }

    pub(super) fn dialogue_parts(
        &self,
        book: &Arc<Book>,
        process: &ProcessId,
        number: u64,
    ) -> DialogueParts {
        DialogueParts {
            book: Arc::clone(book),
            protocol: Arc::clone(&self.protocol),
            process: process.clone(),
            number,
            tracker: self.tracker.clone(),
        }
    }

    pub(super) fn peer(
        &self,
        book: &Book,
        connection: &Arc<dyn Connection>,
        dialogue: &Arc<Dialogue>,
        from: Offset,
    ) -> Peer {
        Peer::open(
            Arc::clone(connection),
            PeerOptions {
                envelope: self.protocol.envelope(),
                epoch: book.read(|state| state.epoch),
                from,
                redactor: Arc::clone(&self.redactor),
                tracker: self.tracker.clone(),
            },
            Arc::clone(dialogue) as _,
        )
    }

    /// Waits for a part of a call that may be given up.
    pub(super) async fn cancellable<T>(
        &self,
        cancel: &CancelToken,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(cancelled()),
            done = guarded("a protocol", work) => done?,
        }
    }

    /// Closes what a start that failed made; what cannot be closed is given back.
    pub(super) async fn give_back(error: Error, handle: Arc<Handle>) -> Failed {
        let closed = handle.close().await;
        Failed {
            error,
            leftover: closed.is_err().then_some(handle),
        }
    }

    async fn start_process(
        &self,
        book: &Arc<Book>,
        settings: &SessionSettings,
        cancel: &CancelToken,
    ) -> Result<(Arc<dyn Connection>, u64, Cleanup), Failed> {
        let prepared = self.prepare(settings).await?;
        let cleanup: Cleanup = prepared.cleanup.map(Arc::from);
        let number = book.update(|state| {
            state.processes += 1;
            state.processes
        });
        let process = process_id(settings, number)?;
        let launch = LaunchDescription {
            session: settings.session.clone(),
            process: process.clone(),
            protocol: self.protocol.name(),
            command: prepared.command,
            directory: prepared.directory,
            environment: prepared.environment,
        };
        let failed = |way, error| self.not_started(book, &process, way, cleanup.clone(), error);
        if cancel.is_cancelled() {
            return Err(failed(Way::Gone, cancelled()).await);
        }
        if launch.command.is_empty() {
            let error = Error::new(ErrorKind::InvalidInput, "the command names no program");
            return Err(failed(Way::Gone, error).await);
        }
        // Owned before it is there: a controller that dies here leaves a name to the next one.
        book.update(|state| state.owned.push(process.clone()));
        if let Err(error) = book.save().await {
            book.disown(&process);
            return Err(failed(Way::Gone, error).await);
        }
        let started = guarded("a transport", self.transport.start(&launch)).await;
        match started.and_then(|started| started) {
            Ok(connection) => Ok((connection, number, cleanup)),
            // Its answer may be what was lost.
            Err(error) => Err(failed(Way::Named(Arc::clone(&self.transport)), error).await),
        }
    }

    async fn not_started(
        &self,
        book: &Arc<Book>,
        process: &ProcessId,
        way: Way,
        cleanup: Cleanup,
        error: Error,
    ) -> Failed {
        let handle = Handle::new(process.clone(), Arc::clone(book), way, cleanup);
        Self::give_back(error, handle).await
    }

    /// Finds the command and the variables, and lets the hook have its way.
    async fn prepare(&self, settings: &SessionSettings) -> Result<Prepared, Error> {
        let name = self.protocol.name();
        let rule = self.protocol.environment(settings);
        let mut command = settings.command.arguments().to_vec();
        let mut environment = rule.first;
        environment.extend(settings.environment.iter().cloned());
        if let Some(resolver) = &self.resolver {
            let resolving = resolver.resolve(name, settings);
            let resolved = guarded("a command resolver", resolving).await??;
            if let Some(found) = resolved.command {
                command = found.arguments().to_vec();
            }
            environment.extend(resolved.environment);
        }
        let mut prepared = match &self.hook {
            None => Prepared {
                command,
                directory: settings.directory.clone(),
                environment,
                cleanup: None,
            },
            Some(hook) => {
                let preparing = hook.prepare(Preparation {
                    protocol: name,
                    direct_start: false,
                    settings: settings.clone(),
                    command,
                    directory: settings.directory.clone(),
                    environment,
                });
                guarded("a launch hook", preparing).await??
            }
        };
        variable::replace(&mut prepared.environment, rule.last);
        Ok(prepared)
    }
}

/// Returns a name that no other process of the session has, within the length of a name.
fn process_id(settings: &SessionSettings, number: u64) -> Result<ProcessId, Error> {
    let session = settings.session.as_str();
    let plain = format!("session-{number}-{session}");
    ProcessId::new(plain).or_else(|_| {
        // Long ids differ at their ends, or in a sum over all of them.
        let mut sum = FnvHasher::default();
        sum.write(session.as_bytes());
        ProcessId::new(format!("session-{number}-{:016x}", sum.finish()))
    })
}

/// Adds to an error what the agent said about it.
pub(super) fn explained(error: Error, peer: &Peer) -> Error {
    if failure::is(&error, failure::AUTHENTICATION_REQUIRED) {
        return error;
    }
    let error = match (error.get("stderr"), peer.stderr_tail()) {
        (None, tail) if !tail.is_empty() => error.with("stderr", tail),
        _ => error,
    };
    match peer.strays() {
        0 => error,
        strays => error.with("answers_to_nobody", strays),
    }
}
