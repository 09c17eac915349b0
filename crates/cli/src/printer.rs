//! Our standard output and error, written by a thread of its own so that a reader who stands still holds no signal up.
//!
//! * Pieces are written at once and in order, across both streams.
//! * A stream whose reader is gone takes no more, and that is no failure; any other failure is kept and told at the end.

use std::{
    borrow::Cow,
    io::{self, Write as _},
    os::fd::AsFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use bytes::Bytes;
use groundcrew_core::redact::Redactor;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::{mpsc, oneshot};

/// Which of our streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Writes pieces in order.
#[derive(Debug)]
pub(crate) struct Printer {
    sender: mpsc::Sender<(Target, Bytes)>,
    done: oneshot::Receiver<io::Result<()>>,
}

/// How many pieces wait at most; a slow reader makes us wait, not grow.
const WAITING: usize = 16;

impl Printer {
    /// Begins.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, mut receiver) = mpsc::channel::<(Target, Bytes)>(WAITING);
        let (finished, done) = oneshot::channel();
        thread::Builder::new()
            .name("stdout".into())
            .spawn(move || {
                let mut out = Stream::default();
                let mut err = Stream::default();
                while let Some((target, bytes)) = receiver.blocking_recv() {
                    match target {
                        Target::Out => out.write(&io::stdout(), &bytes),
                        Target::Err => err.write(&io::stderr(), &bytes),
                    }
                }
                // Nobody waits any more if we were left at once.
                drop(finished.send(out.failure.or(err.failure).map_or(Ok(()), Err)));
            })?;
        Ok(Self { sender, done })
    }

    /// Hands a piece over; waits while too many wait already.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped has handed over the piece or not.
    pub(crate) async fn print(&self, target: Target, bytes: Bytes) {
        // The thread takes pieces until this sender is dropped.
        drop(self.sender.send((target, bytes)).await);
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// The first failure that was not a reader who is gone.
    pub(crate) async fn finish(self) -> io::Result<()> {
        drop(self.sender);
        self.done.await.unwrap_or(Ok(()))
    }
}

#[derive(Debug, Default)]
struct Stream {
    closed: bool,
    failure: Option<io::Error>,
}

impl Stream {
    fn write(&mut self, target: &impl AsFd, bytes: &[u8]) {
        if self.closed {
            return;
        }
        if let Err(error) = write_all(target, bytes) {
            self.closed = true;
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.failure = Some(error);
            }
        }
    }
}

/// Writes everything, also to a stream that somebody who shares it with us made non-blocking.
///
/// # Errors
///
/// Those of the operating system.
pub(crate) fn write_all(target: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut waiting = [PollFd::new(target, PollFlags::OUT)];
                match poll(&mut waiting, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Lines of ours, written at once by whoever has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Broken>);

#[derive(Debug, Default)]
struct Broken {
    secrets: OnceLock<Redactor>,
    out: AtomicBool,
    failed: AtomicBool,
}

impl Lines {
    /// Writes a line to standard output; a reader who is gone is no failure.
    pub(crate) fn out(&self, line: &str) {
        if self.0.out.load(Ordering::Relaxed) {
            return;
        }
        let line = self.masked(line);
        let written = io::stdout()
            .flush()
            .and_then(|()| write_all(&io::stdout(), with_newline(&line).as_bytes()));
        if let Err(error) = written {
            self.0.out.store(true, Ordering::Relaxed);
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.0.failed.store(true, Ordering::Relaxed);
                self.err(&format!(
                    "groundcrew: standard output cannot be written: {error}"
                ));
            }
        }
    }

    /// Writes a line to standard error; there is nobody to tell if that fails.
    pub(crate) fn err(&self, line: &str) {
        let line = self.masked(line);
        drop(write_all(&io::stderr(), with_newline(&line).as_bytes()));
    }

    /// Hides values in all lines from now on; the first call counts.
    pub(crate) fn hide(&self, secrets: Redactor) {
        drop(self.0.secrets.set(secrets));
    }

    fn masked<'a>(&self, line: &'a str) -> Cow<'a, str> {
        match self.0.secrets.get() {
            Some(secrets) => secrets.redact_str(line),
            None => Cow::Borrowed(line),
        }
    }

    /// Returns whether standard output could not be written though somebody wanted it.
    pub(crate) fn failed(&self) -> bool {
        self.0.failed.load(Ordering::Relaxed)
    }
}

/// One write for each line: lines of several processes do not mix.
fn with_newline(line: &str) -> String {
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_told_from_a_full_disk() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut stream = Stream::default();
        stream.write(&writer, b"x");
        assert!(stream.closed && stream.failure.is_none());
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut stream = Stream::default();
        stream.write(&full, b"x");
        assert!(stream.closed && stream.failure.is_some());
    }

    #[test]
    fn a_stream_that_was_made_non_blocking_gets_everything() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let bytes: Vec<u8> = (0..1_000_000_u32)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let expected = bytes.clone();
        let writing = thread::spawn(move || write_all(&writer, &bytes));
        let mut all = Vec::new();
        io::Read::read_to_end(&mut reader, &mut all).unwrap();
        writing.join().unwrap().unwrap();
        assert!(all == expected);
    }
}
