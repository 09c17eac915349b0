//! Starts, watches, records and ends the processes of one instance; all of it on one thread.
//!
//! It owns every descendant of the calling process: whoever uses it starts no others in sessions of their own.

mod activity;
mod input;
mod output;
mod process;
mod refusal;
mod resolve;
mod spawn;
mod start;
mod streams;
mod table;

use std::{
    cell::{Cell, RefCell},
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
    executor::Limits,
    id::{InstanceId, ProcessId},
    process::{EndCause, ExitStatus, Frame, Offset, ProcessState, Signal, StopOrder, TerminalSize},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Mutex, watch},
};

pub use crate::tree::CgroupPolicy;
use crate::{log::LogReader, tree::Grove};
use output::Buffer;
use table::{Known, Table};

/// How long adopted strays may take to vanish at the end.
const STRAY_PATIENCE: Duration = Duration::from_secs(5);

/// What the processes of an instance need to know of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The instance; the cgroup is named after it.
    pub instance: InstanceId,
    /// Where logs are kept, one directory for each process; made if it does not exist.
    pub log_directory: PathBuf,
    /// Whether processes get a cgroup.
    pub cgroup: CgroupPolicy,
    /// How much of the machine they may use.
    pub limits: Limits,
}

/// The processes of one instance.
///
/// * Clones are the same.
/// * A verb on a process that was never started is `NotFound`.
#[derive(Clone, Debug)]
pub struct Processes(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    log_directory: PathBuf,
    limits: Limits,
    grove: Rc<Grove>,
    environment: RefCell<Environment>,
    table: RefCell<Table>,
    starting: Mutex<()>,
    closing: Cell<bool>,
    buffer: Buffer,
    main_gone: watch::Sender<Option<ExitStatus>>,
}

impl Processes {
    /// Makes the calling process the subreaper of its descendants, and prepares directory and cgroup.
    ///
    /// * It must be called inside a `LocalSet` of a runtime with I/O and time, on the thread that lives as long as the processes may.
    ///
    /// # Errors
    ///
    /// Those of the operating system; `Unsupported` for limits that this machine cannot hold processes to.
    ///
    /// # Panics
    ///
    /// Outside a `LocalSet`.
    pub fn new(config: Config) -> Result<Self, Error> {
        let Config {
            instance,
            log_directory,
            cgroup,
            limits,
        } = config;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&log_directory)
            .map_err(|e| {
                Error::io("failed to make the directory of the logs", e)
                    .with("path", log_directory.display())
            })?;
        let mut children = signal(SignalKind::child())
            .map_err(|e| Error::io("failed to listen for the end of children", e))?;
        let grove = Grove::plant(&instance, cgroup, &limits)?;
        let reaped = Rc::downgrade(&grove);
        tokio::task::spawn_local(async move {
            while children.recv().await.is_some() {
                let Some(grove) = reaped.upgrade() else {
                    return;
                };
                grove.reap();
            }
        });
        Ok(Self(Rc::new(Shared {
            log_directory,
            limits,
            grove,
            environment: RefCell::default(),
            table: RefCell::default(),
            starting: Mutex::new(()),
            closing: Cell::new(false),
            buffer: Buffer::new(),
            main_gone: watch::Sender::new(None),
        })))
    }

    /// Returns the cgroup that holds all processes; to be remembered, for [`end_remains`](crate::tree::end_remains).
    pub fn cgroup(&self) -> Option<PathBuf> {
        self.0.grove.cgroup()
    }

    /// Replaces the run's variables; the earlier ones are wiped.
    pub fn set_environment(&self, environment: Environment) {
        drop(self.0.environment.replace(environment));
    }

    fn get(&self, id: &ProcessId) -> Result<Known, Error> {
        let known = self.0.table.borrow().find(id);
        known.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "no process of this name was started")
                .with("process", id)
        })
    }

    /// Attaches to the output of a process from an offset on; the stream ends behind the exit frame.
    ///
    /// * Replay and live output join without gap or duplicate; a frame that holds the offset is cut there.
    /// * The stream reads the files at its own pace and holds nobody up.
    ///
    /// # Errors
    ///
    /// `NotFound`; in the stream, those of reading the files.
    pub fn attach(
        &self,
        id: &ProcessId,
        from: Offset,
    ) -> Result<BoxStream<'static, Result<Frame, Error>>, Error> {
        let follow = match self.get(id)? {
            Known::Present(process) => process.log.borrow().follow(),
            Known::Past(past) => watch::channel(Some(past.exit())).1,
        };
        let reader = LogReader::at(self.0.log_directory.join(id.as_str()), from.0);
        let next = async |(mut reader, mut follow): (LogReader, watch::Receiver<Option<Frame>>)| {
            loop {
                if let Some(exit) = &*follow.borrow_and_update() {
                    reader.ended(exit.clone());
                }
                match reader.next() {
                    Ok(Some(frame)) => return Some((Ok(frame), (reader, follow))),
                    Ok(None) if reader.is_finished() => return None,
                    Ok(None) => {}
                    Err(e) => {
                        reader.give_up();
                        return Some((Err(e), (reader, follow)));
                    }
                }
                if follow.changed().await.is_err() {
                    return None;
                }
            }
        };
        Ok(stream::unfold((reader, follow), next).boxed())
    }

    /// Closes the standard input of a process; again is success.
    ///
    /// * A write that waits fails.
    /// * A terminal cannot be closed for input only: it is sent its end-of-file character.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn close_stdin(&self, id: &ProcessId) -> Result<(), Error> {
        if let Known::Present(process) = self.get(id)? {
            process.input.close();
        }
        Ok(())
    }

    /// Sets the size of its terminal; its foreground processes are told.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Unsupported` for pipes.
    pub fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error> {
        match self.get(id)? {
            Known::Present(process) => process.resize(size),
            Known::Past(past) if past.terminal => Ok(()),
            Known::Past(_) => Err(process::no_terminal(id)),
        }
    }

    /// Sends a signal to the process and everything it started; a process that has ended is success.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` for a real-time signal; `PermissionDenied`, naming them, where a process refuses.
    pub fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error> {
        match self.get(id)? {
            Known::Present(process) => process.signal(signal),
            Known::Past(_) => process::native(signal).map(drop),
        }
    }

    /// Lists all processes ever started here, in the order of their start.
    pub fn list(&self) -> Vec<ProcessState> {
        self.0.table.borrow().states()
    }
}

#[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
impl Processes {
    /// Writes to the standard input of a process; returns when the process, or the pipe to it, has taken all.
    ///
    /// * Where the process does not read, this waits, and nothing else does.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Unavailable`, not retryable, once the input is closed or the process has ended.
    ///
    /// # Cancel safety
    ///
    /// What was taken before stays taken; how much is not told.
    pub async fn write(&self, id: &ProcessId, bytes: Bytes) -> Result<(), Error> {
        let written = match self.get(id)? {
            Known::Present(process) => process.input.write(bytes, &process.activity).await,
            Known::Past(_) => Err(input::closed()),
        };
        written.map_err(|e| e.with("process", id))
    }

    /// Waits for the end of a process; any number of callers get the same answer, also later.
    ///
    /// * The end is the exit of the process itself and a drain of half a second at most, never the end of a pipe that others hold.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        let process = match self.get(id)? {
            Known::Present(process) => process,
            Known::Past(past) => return Ok(past.status),
        };
        let mut exit = process.exit.subscribe();
        let status = exit
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|status| *status);
        status.ok_or_else(|| {
            Error::new(ErrorKind::Unexpected, "the process is no longer watched")
                .with("process", id)
        })
    }

    /// Ends a process and everything it started, step by step; returns when nothing is left.
    ///
    /// * Standard input is closed if the order says so, the signal goes to the whole tree, `SIGCONT` after it; after the grace
    ///   everything is killed until nothing is left.
    /// * A process that has ended is success. A shorter grace given later counts, a longer one does not.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` for a real-time signal; `Unavailable`, naming them, when processes outlive the kill: they
    /// stay owned and are killed again and again.
    ///
    /// # Cancel safety
    ///
    /// What was begun goes on.
    pub async fn stop(
        &self,
        id: &ProcessId,
        order: &StopOrder,
        cause: EndCause,
    ) -> Result<(), Error> {
        match self.get(id)? {
            Known::Present(process) => process.stop(order, cause).await,
            Known::Past(_) => Ok(()),
        }
    }

    /// Ends all processes by their stop orders, at once, with `grace` in place of theirs; then every stray. Nothing can be started any more.
    ///
    /// # Errors
    ///
    /// That of the first process that could not be ended; then starting is possible again, and this can be repeated.
    ///
    /// # Cancel safety
    ///
    /// What was begun goes on, and nothing can be started.
    pub async fn stop_all(&self, grace: Option<Duration>, cause: EndCause) -> Result<(), Error> {
        self.0.closing.set(true);
        // A start that is under way either sees that, or is listed when its turn is over.
        drop(self.0.starting.lock().await);
        let all = self.0.table.borrow().present();
        let stops = all.iter().map(async |process| {
            let mut order = process.spec.stop.clone();
            order.grace = grace.unwrap_or(order.grace);
            process.stop(&order, cause).await
        });
        let ended = futures_util::future::join_all(stops)
            .await
            .into_iter()
            .collect::<Result<(), Error>>();
        let result = match ended {
            Ok(()) => self
                .0
                .grove
                .clear(STRAY_PATIENCE)
                .await
                .map_err(|left| left.error()),
            Err(e) => Err(e),
        };
        self.0.closing.set(result.is_ok());
        result
    }

    /// Returns when the first process with `spec.main` has ended, its exit frame is on disk, and nothing it left behind lives.
    ///
    /// * It never returns while something of it cannot be ended.
    pub async fn main_ended(&self) -> ExitStatus {
        let mut gone = self.0.main_gone.subscribe();
        loop {
            if let Some(status) = *gone.borrow_and_update() {
                return status;
            }
            if gone.changed().await.is_err() {
                // Its sender is ours, so this is never reached; waiting is the only answer that is not a lie.
                std::future::pending::<()>().await;
            }
        }
    }
}
