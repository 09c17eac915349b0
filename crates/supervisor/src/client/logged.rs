//! An instance that has ended, as its logs tell of it.

use std::{
    fmt,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
    id::ProcessId,
    instance::{ByteStream, Instance, McpServer, Stdio},
    process::{
        ExitStatus, Frame, FrameKind, Lease, Offset, ProcessPhase, ProcessSpec, ProcessState, Role,
        Signal, Started, TerminalSize,
    },
};

use tokio::sync::OnceCell;

use crate::{
    log::{self, LogReader},
    start::StartLock,
};

/// How much output is read in one go.
const BATCH: usize = 1 << 20;

/// How long a supervisor of which no sign of life is here is given to be seen as ended, before its logs are brought.
const GOING_TIME: Duration = Duration::from_secs(10);

/// The logs of an instance that are not on this machine while it lives.
#[async_trait]
pub trait Remains: fmt::Debug + Send + Sync + 'static {
    /// Whether a supervisor has the instance; it may still write.
    ///
    /// * What cannot be found out is an error: unknown is not ended.
    async fn is_held(&self) -> Result<bool, Error>;

    /// Brings the logs of an instance that has ended to where they are read; may be repeated.
    async fn bring(&self) -> Result<(), Error>;
}

/// What tells whether a supervisor has an instance.
#[derive(Debug)]
enum Sign {
    /// The lock on the start file in its directory.
    Directory(PathBuf),
    /// Whoever knows the machine on which it lives; and whether its logs were brought.
    Elsewhere(Arc<dyn Remains>, OnceCell<()>),
}

/// An instance that has ended, read from its logs.
///
/// * What reads is answered; all else is `Unavailable`, not retryable.
/// * While a supervisor holds the instance, a process of which the logs do not tell the end is not called lost.
#[derive(Clone, Debug)]
pub struct LoggedInstance {
    logs: Arc<Logs>,
}

#[derive(Debug)]
struct Logs {
    directory: PathBuf,
    sign: Sign,
}

/// The error of a verb that an ended instance does not answer.
pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the instance has ended").retryable(false)
}

/// Runs what reads files where it does not hold up others.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|e| {
        Error::new(ErrorKind::Panicked, "reading the logs was given up").with_source(e)
    })?
}

impl Logs {
    /// Whether a supervisor has the instance; it may still write.
    fn is_held(&self) -> Result<bool, Error> {
        let path = match &self.sign {
            Sign::Directory(path) => path,
            // Its logs are brought only once it has ended.
            Sign::Elsewhere(..) => return Ok(false),
        };
        let directory = match File::open(path) {
            Ok(directory) => directory,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => {
                return Err(Error::io("failed to open the instance's directory", e)
                    .with("path", path.display()));
            }
        };
        match StartLock::try_take(&directory) {
            Ok(lock) => Ok(lock.is_none()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns why the end of a process is not known.
    fn unknown_end(held: bool, id: &ProcessId) -> Error {
        if held {
            Error::new(
                ErrorKind::Unavailable,
                "the supervisor cannot be reached, and the process has not ended yet",
            )
            .with("process", id)
        } else {
            Error::new(
                ErrorKind::Unexpected,
                "nobody knows how the process ended: its supervisor was killed",
            )
            .with("process", id)
            .with("phase", "lost")
        }
    }

    fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        if let Some(status) = log::status(&self.directory, id)? {
            return Ok(status);
        }
        let held = self.is_held()?;
        // It may have been written just before the supervisor let go.
        match log::status(&self.directory, id)? {
            Some(status) => Ok(status),
            None => Err(Self::unknown_end(held, id)),
        }
    }

    /// Reads what is there, up to a batch; the error behind the last frame that tells no end comes alone.
    fn read(&self, id: &ProcessId, reader: &mut LogReader) -> Result<Vec<Frame>, Error> {
        let mut frames = read_batch(reader)?;
        if frames.is_empty() && !reader.is_finished() {
            let held = self.is_held()?;
            frames = read_batch(reader)?;
            if frames.is_empty() {
                return Err(Self::unknown_end(held, id));
            }
        }
        Ok(frames)
    }
}

fn read_batch(reader: &mut LogReader) -> Result<Vec<Frame>, Error> {
    let (mut frames, mut size) = (Vec::new(), 0);
    while size < BATCH
        && let Some(frame) = reader.next()?
    {
        if let FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) = &frame.kind {
            size += bytes.len();
        }
        frames.push(frame);
    }
    Ok(frames)
}

impl LoggedInstance {
    /// Names the directory of the logs, and that of the instance, which may be gone.
    pub fn new(logs: impl Into<PathBuf>, instance: impl Into<PathBuf>) -> Self {
        Self::with(logs.into(), Sign::Directory(instance.into()))
    }

    /// Names the directory to which the logs are brought from where the instance lived.
    pub fn elsewhere(logs: impl Into<PathBuf>, remains: Arc<dyn Remains>) -> Self {
        Self::with(logs.into(), Sign::Elsewhere(remains, OnceCell::new()))
    }

    fn with(directory: PathBuf, sign: Sign) -> Self {
        Self {
            logs: Arc::new(Logs { directory, sign }),
        }
    }

    /// Makes sure that the logs are here.
    ///
    /// # Errors
    ///
    /// `Unavailable` while a supervisor elsewhere still has them.
    async fn arrive(&self) -> Result<(), Error> {
        let Sign::Elsewhere(remains, arrived) = &self.logs.sign else {
            return Ok(());
        };
        let bring = async || {
            if self.let_go(Duration::ZERO).await? {
                return remains.bring().await;
            }
            Err(Error::new(
                ErrorKind::Unavailable,
                "the supervisor cannot be reached, and has not ended yet",
            ))
        };
        arrived.get_or_try_init(bring).await.copied()
    }

    /// Whether a supervisor has the instance.
    async fn is_held(&self) -> Result<bool, Error> {
        if let Sign::Elsewhere(remains, _) = &self.logs.sign {
            return remains.is_held().await;
        }
        let logs = Arc::clone(&self.logs);
        blocking(move || logs.is_held()).await
    }

    /// Whether its supervisor let go of it within that time.
    ///
    /// The end of one elsewhere is seen later than that of a process here, and waited for longer.
    pub(super) async fn let_go(&self, patience: Duration) -> Result<bool, Error> {
        let patience = match &self.logs.sign {
            Sign::Directory(_) => patience,
            Sign::Elsewhere(..) => patience.max(GOING_TIME),
        };
        let deadline = tokio::time::Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        while self.is_held().await? {
            if tokio::time::Instant::now() >= deadline {
                return Ok(false);
            }
            // A lock has no event for those who do not want it.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(true)
    }

    /// Whether its supervisor let go of it within that time and all its processes have ended, for all that is known.
    pub(super) async fn all_ended(&self, patience: Duration) -> Result<bool, Error> {
        if !self.let_go(patience).await? {
            return Ok(false);
        }
        let states = self.processes().await?;
        Ok(states
            .iter()
            .all(|state| matches!(state.phase, ProcessPhase::Ended(_))))
    }

    /// Replays the output of a process.
    pub(super) async fn output(
        &self,
        id: &ProcessId,
        from: Offset,
    ) -> Result<BoxStream<'static, Result<Frame, Error>>, Error> {
        self.arrive().await?;
        let (logs, id) = (Arc::clone(&self.logs), id.clone());
        let open = {
            let (logs, id) = (Arc::clone(&logs), id.clone());
            move || LogReader::open(&logs.directory, &id, from)
        };
        let reader = blocking(open).await?;
        let batches = stream::unfold(Some((logs, id, reader)), |state| async move {
            let (logs, id, mut reader) = state?;
            let read = move || {
                let frames = logs.read(&id, &mut reader)?;
                Ok((frames, (logs, id, reader)))
            };
            match blocking(read).await {
                Ok((frames, _)) if frames.is_empty() => None,
                Ok((frames, state)) => Some((Ok(frames), Some(state))),
                Err(error) => Some((Err(error), None)),
            }
        });
        let frames = batches.flat_map(|batch| match batch {
            Ok(frames) => stream::iter(frames.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        });
        Ok(frames.boxed())
    }
}

#[async_trait]
impl Instance for LoggedInstance {
    async fn set_environment(&self, _: &Environment) -> Result<(), Error> {
        Err(ended())
    }

    async fn start(&self, _: &ProcessId, _: &ProcessSpec) -> Result<Started, Error> {
        Err(ended())
    }

    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error> {
        match role {
            Role::Viewer => Ok(Stdio {
                output: self.output(id, from).await?,
                input: None,
            }),
            Role::Writer => Err(ended()),
        }
    }

    async fn close_stdin(&self, _: &ProcessId) -> Result<(), Error> {
        Err(ended())
    }

    async fn resize(&self, _: &ProcessId, _: TerminalSize) -> Result<(), Error> {
        Err(ended())
    }

    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        self.arrive().await?;
        let (logs, id) = (Arc::clone(&self.logs), id.clone());
        blocking(move || logs.wait(&id)).await
    }

    async fn signal(&self, _: &ProcessId, _: Signal) -> Result<(), Error> {
        Err(ended())
    }

    async fn processes(&self) -> Result<Vec<ProcessState>, Error> {
        self.arrive().await?;
        let logs = Arc::clone(&self.logs);
        blocking(move || {
            let held = logs.is_held()?;
            log::list(&logs.directory, held)
        })
        .await
    }

    async fn put_archive(&self, _: &Path, _: ByteStream) -> Result<(), Error> {
        Err(ended())
    }

    async fn get_archive(&self, _: &Path) -> Result<ByteStream, Error> {
        Err(ended())
    }

    async fn set_mcp_servers(&self, _: &[McpServer]) -> Result<(), Error> {
        Err(ended())
    }

    async fn set_lease(&self, _: Lease) -> Result<(), Error> {
        Err(ended())
    }

    async fn shutdown(&self, _: Duration) -> Result<(), Error> {
        Err(ended())
    }
}
