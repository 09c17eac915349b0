//! The desk of a conversation: one process at a time sits at it and controls the agent; others ask that one.
//!
//! * Who sits there holds a lock that goes with the process, however it ends, and listens at a socket of the user's own.
//! * One JSON object a line each way; who asks for a turn hears what happens in it.
//! * What was asked counts from the moment on that it is told as taken: who did not hear that goes to the desk again, and
//!   nothing is done twice.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures_util::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::SessionId,
    store::LockGuard,
};
use groundcrew_session::{
    event::SessionEvent,
    request::{Decision, RequestId},
};
use groundcrew_state::try_lock_file;
use groundcrew_supervisor::socket;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf, unix::OwnedWriteHalf},
};

/// How long somebody may be neither there nor gone.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before the next look.
const PAUSE: Duration = Duration::from_millis(50);
/// The largest question: a prompt, in JSON.
const MAX_ASK: u64 = 64 << 20;

/// What is asked of whoever sits at the desk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// To answer a request of the agent's.
    Answer {
        /// Which.
        request: RequestId,
        /// How.
        decision: Decision,
    },
    /// To end the turn that runs.
    Interrupt,
    /// To say something.
    Prompt {
        /// What.
        text: String,
    },
}

/// What is told to who asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub(crate) enum Tell {
    /// It was heard, and is about to be done.
    Taken,
    /// It is done; for a prompt, that turn takes it, and what happens in it follows.
    Done {
        /// The turn.
        turn: Option<u64>,
    },
    /// It cannot be done.
    Failed {
        /// Why.
        error: ErrorReport,
    },
    /// Something happened.
    Happened {
        /// What.
        event: Box<SessionEvent>,
    },
}

/// The seat at the desk.
#[derive(Debug)]
pub(crate) struct Desk {
    listener: UnixListener,
    /// Those who have come and have not said yet what they want.
    hearing: FuturesUnordered<BoxFuture<'static, Option<(Ask, Line)>>>,
    path: PathBuf,
    _lock: Box<dyn LockGuard>,
}

/// Who sits at a desk.
#[derive(Debug)]
pub(crate) enum Seat {
    /// We do.
    Ours(Desk),
    /// Somebody else, who can be asked.
    Theirs(Line),
}

/// Finds a desk free, or whoever sits at it.
///
/// # Errors
///
/// `Busy` when somebody sits there and does not answer; those of the file system.
pub(crate) async fn take(directory: &Path, session: &SessionId) -> Result<Seat, Error> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(desk) = Desk::sit(directory, session)? {
            return Ok(Seat::Ours(desk));
        }
        if let Some(line) = Line::reach(directory, session).await {
            return Ok(Seat::Theirs(line));
        }
        if Instant::now() > end {
            return Err(Error::new(
                ErrorKind::Busy,
                "another process controls the conversation and does not answer",
            )
            .with("session", session));
        }
        // It has just come, or is just going.
        tokio::time::sleep(PAUSE).await;
    }
}

impl Desk {
    /// Sits down, unless somebody else sits there.
    fn sit(directory: &Path, session: &SessionId) -> Result<Option<Self>, Error> {
        let failed =
            |e| Error::io("failed to take control of the conversation", e).with("session", session);
        let Some(lock) = try_lock_file(&directory.join(format!("{session}.lock")))? else {
            return Ok(None);
        };
        let path = directory.join(format!("{session}.sock"));
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let listener = socket::listen(&path)
            .and_then(UnixListener::from_std)
            .map_err(failed)?;
        Ok(Some(Self {
            listener,
            hearing: FuturesUnordered::new(),
            path,
            _lock: lock,
        }))
    }

    /// Returns the next who asks; one that says nothing sensible is sent away.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again; who was about to ask is heard then.
    pub(crate) async fn next(&mut self) -> (Ask, Line) {
        loop {
            tokio::select! {
                Some(heard) = self.hearing.next() => if let Some(asked) = heard {
                    return asked;
                },
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.hearing.push(heard(Line::new(stream)).boxed()),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
            }
        }
    }
}

/// Hears what somebody wants who has come.
async fn heard(mut line: Line) -> Option<(Ask, Line)> {
    let asked = tokio::time::timeout(PATIENCE, line.hear()).await;
    asked.ok().flatten().map(|ask| (ask, line))
}

impl Drop for Desk {
    fn drop(&mut self) {
        // Before the lock goes: who comes next makes its own.
        drop(std::fs::remove_file(&self.path));
    }
}

/// A line between who asks and who sits at the desk.
#[derive(Debug)]
pub(crate) struct Line {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Line {
    fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: BufReader::new(reader),
            writer,
        }
    }

    async fn reach(directory: &Path, session: &SessionId) -> Option<Self> {
        let path = directory.join(format!("{session}.sock"));
        let stream = socket::connect(&path).await.and_then(UnixStream::from_std);
        stream.ok().map(Self::new)
    }

    /// Says one thing; whether it was heard is seen by what comes back.
    pub(crate) async fn say(&mut self, what: &(impl Serialize + Sync)) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.writer.write_all(&line).await
    }

    /// Hears one thing; nothing when the other is gone or talks nonsense.
    pub(crate) async fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> Option<T> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(MAX_ASK);
        bounded.read_until(b'\n', &mut line).await.ok()?;
        serde_json::from_slice(&line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionId {
        SessionId::new("s-1").unwrap()
    }

    #[tokio::test]
    async fn one_sits_there_and_the_others_ask() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let Seat::Ours(mut desk) = take(at, &session()).await.unwrap() else {
            panic!("nobody sits there");
        };
        let asking = async {
            let Seat::Theirs(mut line) = take(at, &session()).await.unwrap() else {
                panic!("somebody sits there");
            };
            line.say(&Ask::Interrupt).await.unwrap();
            line.hear::<Tell>().await
        };
        let sitting = async {
            let (ask, mut line) = desk.next().await;
            assert_eq!(ask, Ask::Interrupt);
            line.say(&Tell::Done { turn: Some(3) }).await.unwrap();
        };
        let (told, ()) = tokio::join!(asking, sitting);
        assert_eq!(told, Some(Tell::Done { turn: Some(3) }));
        drop(desk);
        assert!(matches!(take(at, &session()).await.unwrap(), Seat::Ours(_)));
    }

    #[tokio::test]
    async fn who_was_about_to_ask_is_heard_after_something_else_happened() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let Seat::Ours(mut desk) = take(at, &session()).await.unwrap() else {
            panic!("somebody sits there");
        };
        let mut line = Line::reach(at, &session()).await.unwrap();
        // They are let in, say nothing yet, and the look is dropped.
        while desk.hearing.is_empty() {
            tokio::select! {
                biased;
                _ = desk.next() => panic!("nobody said anything"),
                () = tokio::task::yield_now() => {}
            }
        }
        line.say(&Ask::Interrupt).await.unwrap();
        let (ask, mut asking) = desk.next().await;
        assert_eq!(ask, Ask::Interrupt);
        asking.say(&Tell::Taken).await.unwrap();
        assert_eq!(line.hear().await, Some(Tell::Taken));
        // Nobody is heard by one who leaves, and both know it.
        let mut late = Line::reach(at, &session()).await.unwrap();
        late.say(&Ask::Interrupt).await.unwrap();
        drop(desk);
        assert_eq!(late.hear::<Tell>().await, None);
    }

    #[tokio::test]
    async fn a_socket_that_a_dead_one_left_is_no_seat() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        drop(socket::listen(&at.join("s-1.sock")).unwrap());
        assert!(at.join("s-1.sock").exists());
        assert!(matches!(take(at, &session()).await.unwrap(), Seat::Ours(_)));
    }

    #[tokio::test]
    async fn a_seat_whose_run_was_removed_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let first = Desk::sit(at, &session()).unwrap().unwrap();
        assert!(Desk::sit(at, &session()).unwrap().is_none());
        std::fs::remove_file(at.join("s-1.lock")).unwrap();
        assert!(Desk::sit(at, &session()).unwrap().is_some());
        drop(first);
    }

    #[tokio::test]
    async fn nonsense_is_sent_away_and_the_next_one_heard() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let Seat::Ours(mut desk) = take(at, &session()).await.unwrap() else {
            panic!("nobody sits there");
        };
        let talking = async {
            let mut odd = Line::reach(at, &session()).await.unwrap();
            odd.say(&"hello").await.unwrap();
            let mut good = Line::reach(at, &session()).await.unwrap();
            good.say(&Ask::Interrupt).await.unwrap();
            assert_eq!(odd.hear::<Tell>().await, None);
        };
        let ((ask, _), ()) = tokio::join!(desk.next(), talking);
        assert_eq!(ask, Ask::Interrupt);
    }
}
