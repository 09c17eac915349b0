//! A secret value from standard input: through a pipe, or typed at a terminal that does not show it.
//!
//! * What was read is wiped; it is never printed.

use std::{io, thread};

use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::SecretValue,
};
use groundcrew_secrets::{Ending, ValueBuffer};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    termios::{self, LocalModes, OptionalActions, Termios},
};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::{
    console::Console,
    exit,
    failing::Failing,
    signals::{Call, Signals},
};

/// The longest line that a terminal hands on, in bytes; the rest of a longer one is lost without a word.
const LINE_MAX: usize = 4095;

/// Reads standard input to its end.
///
/// # Errors
///
/// When it cannot be read, is empty, or is too long for a value.
pub(crate) async fn read(ending: Ending) -> Result<SecretValue, Failing> {
    let buffer = gathered(start(Until::End)?).await?;
    Ok(buffer.finish(ending).map_err(explained)?)
}

/// Asks at the terminal, and reads one line that is not shown.
///
/// # Errors
///
/// When the line is empty or as long as the terminal can make it; when a signal asks us to leave.
pub(crate) async fn ask(console: &Console, name: &str) -> Result<SecretValue, Failing> {
    let mut signals = Signals::listen()?;
    let silence = Silence::enter()?;
    console.note(&format!("value of {name}, not shown; Enter ends it:"));
    let mut line = start(Until::Line)?;
    let buffer = loop {
        tokio::select! {
            biased;
            call = signals.next() => match call {
                // A shell has changed the terminal while we were stopped.
                Call::Continued => silence.again()?,
                Call::Resized => {}
                Call::Interrupt | Call::Quit | Call::Terminate | Call::Hangup => {
                    drop(silence);
                    let code = exit::signalled(call.number().0);
                    return Err(Failing::called("nothing was stored", code));
                }
            },
            read = &mut line => break gathered_now(read)?,
        }
    };
    drop(silence);
    Ok(buffer.finish(Ending::DropNewline).map_err(explained)?)
}

/// Says what to do about a value that is none.
fn explained(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidInput => Error::new(
            ErrorKind::InvalidInput,
            "the value is empty; give it on standard input, such as by a pipe",
        ),
        _ => error,
    }
}

/// Where reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// At the end of the input.
    End,
    /// At the end of a line.
    Line,
}

type Reading = oneshot::Receiver<Result<ValueBuffer, Error>>;

/// Reads in a thread of its own, so that a read which never returns holds nobody up.
fn start(until: Until) -> io::Result<Reading> {
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new()
        .name("value".into())
        .spawn(move || drop(sender.send(gather(until))))?;
    Ok(receiver)
}

async fn gathered(reading: Reading) -> Result<ValueBuffer, Error> {
    gathered_now(reading.await)
}

fn gathered_now(
    read: Result<Result<ValueBuffer, Error>, oneshot::error::RecvError>,
) -> Result<ValueBuffer, Error> {
    read.unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::Panicked,
            "reading standard input broke off",
        ))
    })
}

fn gather(until: Until) -> Result<ValueBuffer, Error> {
    let stdin = io::stdin();
    let mut value = ValueBuffer::new();
    let mut piece = Zeroizing::new([0; 8192]);
    let mut length = 0;
    loop {
        match rustix::io::read(&stdin, &mut *piece) {
            Ok(0) => return Ok(value),
            Ok(count) => {
                let new = piece.get(..count).unwrap_or_default();
                value.push(new)?;
                length += count;
                if until == Until::Line && new.ends_with(b"\n") {
                    return if length > LINE_MAX {
                        Err(Error::new(
                            ErrorKind::TooLarge,
                            "the line is as long as a terminal can make it, and its end may be missing; give the value through a pipe",
                        ))
                    } else {
                        Ok(value)
                    };
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // Somebody who shares the stream with us made it non-blocking.
                let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
                match poll(&mut waiting, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(unreadable(errno)),
                }
            }
            Err(errno) => return Err(unreadable(errno)),
        }
    }
}

fn unreadable(errno: Errno) -> Error {
    Error::io("standard input cannot be read", errno.into())
}

/// Keeps standard input's terminal from showing what is typed until dropped; then it is as it was, also after a panic.
#[derive(Debug)]
#[must_use]
struct Silence {
    saved: Termios,
}

impl Silence {
    fn enter() -> io::Result<Self> {
        let silence = Self {
            saved: termios::tcgetattr(io::stdin())?,
        };
        silence.again()?;
        Ok(silence)
    }

    fn again(&self) -> io::Result<()> {
        let mut silent = self.saved.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown, and lines and signals work also if the last program left them off.
        silent
            .local_modes
            .insert(LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
        // What was typed before we asked was typed in the open, and for somebody else.
        termios::tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(())
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.saved);
    }
}
