//! The standard input of a process: bytes go in as fast as it takes them, and never faster.

use std::{cell::RefCell, io, os::fd::OwnedFd, rc::Rc};

use bytes::Bytes;
use groundcrew_core::error::{Error, ErrorKind};
use rustix::termios::{SpecialCodeIndex, tcgetattr};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Mutex, watch},
};

use super::{activity::Activity, spawn};

/// Where the input of a process goes.
///
/// * Nothing is kept here: a write waits until the process has taken it.
/// * Writes are taken one after the other, whole.
#[derive(Debug)]
pub(super) struct Input {
    end: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    terminal: bool,
    turn: Mutex<()>,
    closed: watch::Sender<bool>,
}

pub(super) fn closed() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the standard input of the process is closed",
    )
    .retryable(false)
}

impl Input {
    /// Takes our end, which must not block; none for a process that gets no input.
    pub(super) fn new(end: Option<OwnedFd>, terminal: bool) -> io::Result<Self> {
        let interest = if terminal {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::WRITABLE
        };
        let end = end.map(|fd| spawn::register(fd, interest)).transpose()?;
        Ok(Self {
            closed: watch::Sender::new(end.is_none()),
            end: RefCell::new(end.map(Rc::new)),
            terminal,
            turn: Mutex::new(()),
        })
    }

    /// Writes all of it, waiting where the process does not read.
    ///
    /// # Errors
    ///
    /// `Unavailable`, not retryable, once the input is closed or the process has ended.
    ///
    /// # Cancel safety
    ///
    /// What was taken before stays taken; how much is not told.
    #[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
    pub(super) async fn write(&self, bytes: Bytes, activity: &Activity) -> Result<(), Error> {
        let mut ended = self.closed.subscribe();
        tokio::select! {
            biased;
            _ = ended.wait_for(|closed| *closed) => Err(closed()),
            done = self.write_now(bytes, activity) => done,
        }
    }

    #[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
    async fn write_now(&self, bytes: Bytes, activity: &Activity) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let end = self
            .end
            .borrow()
            .as_ref()
            .map(Rc::clone)
            .ok_or_else(closed)?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let mut ready = end
                .writable()
                .await
                .map_err(|e| Error::io("failed to wait for the process to read", e))?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), rest)?)) {
                Ok(Ok(taken)) => {
                    activity.seen();
                    rest = &rest[taken..];
                }
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(e)) if matches!(e.raw_os_error(), Some(libc::EPIPE | libc::EIO)) => {
                    self.close();
                    return Err(closed());
                }
                Ok(Err(e)) => return Err(Error::io("failed to write to the process", e)),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    /// Closes it; a write that waits fails. A terminal has no end to close: it is sent its end-of-file character instead.
    pub(super) fn close(&self) {
        let Some(end) = self.end.take() else {
            return;
        };
        if self.terminal {
            // Two: the first one only sends off a line that was begun.
            let eof = tcgetattr(end.get_ref())
                .map_or(4, |modes| modes.special_codes[SpecialCodeIndex::VEOF]);
            let _full = rustix::io::write(end.get_ref(), &[eof, eof]);
        }
        self.closed.send_replace(true);
    }
}
