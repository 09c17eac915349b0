//! A call of the command in a terminal: keys, size, modes, what is on the screen.

use std::{
    fs::File,
    io::{self, Read, Write as _},
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pty_process::{Size, blocking::Pty};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal},
    termios::{LocalModes, Termios, tcgetattr},
};

use super::{
    job::{Board, Seen},
    outcome::Outcome,
    waiting::{self, DEADLINE},
};

/// A call in a terminal.
pub(crate) struct Terminal {
    board: Arc<Board>,
    pty: Pty,
    pid: Pid,
    call: String,
    gone: Arc<AtomicBool>,
}

/// The master's side, read until the terminal is taken away.
struct Screen {
    file: File,
    gone: Arc<AtomicBool>,
}

impl Read for Screen {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const LOOK: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        while !self.gone.load(Ordering::Relaxed) {
            if poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK))? > 0 {
                return self.file.read(buffer);
            }
        }
        Ok(0)
    }
}

/// The window is closed: the last one who holds the master's side lets go of it.
impl Drop for Terminal {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

impl Terminal {
    pub(super) fn watch(pty: Pty, child: Child, call: String) -> Self {
        let board = Arc::new(Board::default());
        let gone = Arc::new(AtomicBool::new(false));
        let screen = Screen {
            file: File::from(pty.as_fd().try_clone_to_owned().unwrap()),
            gone: Arc::clone(&gone),
        };
        board.read(screen, |seen| &mut seen.stdout);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        board.wait(child);
        Self {
            board,
            pty,
            pid,
            call,
            gone,
        }
    }

    /// Returns the process number of the command.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Types.
    pub(crate) fn keys(&mut self, bytes: impl AsRef<[u8]>) {
        self.pty.write_all(bytes.as_ref()).unwrap();
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// Sends a signal to the command.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid, signal).unwrap();
    }

    /// Returns the modes of the terminal.
    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.pty).unwrap()
    }

    /// Tells whether keys are handed on one by one and unseen.
    pub(crate) fn is_raw(&self) -> bool {
        !self
            .modes()
            .local_modes
            .intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Waits until the terminal is raw.
    #[track_caller]
    pub(crate) fn until_raw(&self) {
        waiting::until("the terminal is raw", || self.is_raw());
    }

    /// Waits until the screen has shown some words, and returns everything it has shown.
    #[track_caller]
    pub(crate) fn until_shown(&self, words: &str) -> String {
        let text = |seen: &Seen| String::from_utf8_lossy(&seen.stdout).into_owned();
        let shown = self.board.until(DEADLINE, |seen| {
            let text = text(seen);
            (seen.status.is_some() && seen.open == 0 || text.contains(words)).then_some(text)
        });
        match shown {
            Some(text) if text.contains(words) => text,
            _ => panic!("the screen did not show {words:?}: {:?}", self.outcome()),
        }
    }

    /// Waits for the end of the command; the terminal stays.
    #[track_caller]
    pub(crate) fn wait(&self) -> Outcome {
        let ended = self.board.until(DEADLINE, |seen| seen.status).is_some();
        if !ended {
            _ = rustix::process::kill_process(self.pid, Signal::KILL);
            panic!("took longer than {DEADLINE:?}: {:?}", self.outcome());
        }
        // Everything that was written is there once the last writer is gone.
        _ = self
            .board
            .until(DEADLINE, |seen| (seen.open == 0).then_some(()));
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        let outcome = self.board.until(Duration::ZERO, |seen| {
            Some(Outcome {
                call: self.call.clone(),
                code: seen.status.and_then(|status| status.code()),
                signal: seen.status.and_then(|status| status.signal()),
                stdout: seen.stdout.clone(),
                stderr: Vec::new(),
            })
        });
        outcome.unwrap()
    }
}
