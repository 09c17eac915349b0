//! A call of the command under way: its output so far, signals to it, its end.

use std::{
    io::{Read, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, ChildStdin, ExitStatus},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};

use super::{
    outcome::Outcome,
    waiting::{DEADLINE, until},
};

/// What is known of a child, filled by threads that read and wait.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// How many of its streams are still open.
    pub(super) open: usize,
    pub(super) status: Option<ExitStatus>,
}

/// What is known of a child, and a bell that rings when more is.
#[derive(Debug, Default)]
pub(super) struct Board {
    seen: Mutex<Seen>,
    bell: Condvar,
}

impl Board {
    pub(super) fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }

    /// Waits until something holds; returns what it made of it, or `None` after the limit.
    pub(super) fn until<T>(
        &self,
        limit: Duration,
        mut holds: impl FnMut(&Seen) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + limit;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = holds(&seen) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            let (next, _) = self
                .bell
                .wait_timeout(seen, left)
                .unwrap_or_else(PoisonError::into_inner);
            seen = next;
        }
    }

    /// Reads a stream to its end in a thread of its own.
    pub(super) fn read(
        self: &Arc<Self>,
        mut stream: impl Read + Send + 'static,
        put: fn(&mut Seen) -> &mut Vec<u8>,
    ) {
        self.change(|seen| seen.open += 1);
        let board = Arc::clone(self);
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            // A terminal whose other side is gone reads as an error; that is its end.
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                board.change(|seen| put(seen).extend_from_slice(&buffer[..count]));
            }
            board.change(|seen| seen.open -= 1);
        });
    }

    /// Waits for the end of a child in a thread of its own.
    pub(super) fn wait(self: &Arc<Self>, mut child: Child) {
        let board = Arc::clone(self);
        thread::spawn(move || {
            let status = child.wait().unwrap();
            board.change(|seen| seen.status = Some(status));
        });
    }
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Job {
    board: Arc<Board>,
    pid: Pid,
    call: String,
    stdin: Option<ChildStdin>,
}

impl Job {
    pub(super) fn watch(mut child: Child, call: String, input: Option<Vec<u8>>) -> Self {
        let board = Arc::new(Board::default());
        board.read(child.stdout.take().unwrap(), |seen| &mut seen.stdout);
        board.read(child.stderr.take().unwrap(), |seen| &mut seen.stderr);
        let mut stdin = child.stdin.take();
        if let Some(bytes) = input {
            let mut pipe = stdin.take().unwrap();
            thread::spawn(move || {
                // A command that does not read all is no failure of the test.
                drop(pipe.write_all(&bytes));
            });
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        board.wait(child);
        Self {
            board,
            pid,
            call,
            stdin,
        }
    }

    /// Writes to its standard input.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Closes its standard input.
    pub(crate) fn close_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Sends a signal to it alone.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid, signal).unwrap();
    }

    /// Sends a signal to it, unless it has ended.
    pub(crate) fn signal_if_alive(&self, signal: Signal) {
        if !self.has_ended() {
            _ = rustix::process::kill_process(self.pid, signal);
        }
    }

    /// Waits until it catches a signal, which would end it otherwise.
    #[track_caller]
    pub(crate) fn until_it_catches(&self, signal: Signal) {
        let bit = 1_u64 << (signal.as_raw() - 1);
        until("the signal is caught", || {
            let status = format!("/proc/{}/status", self.pid.as_raw_nonzero());
            let status = std::fs::read_to_string(status).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
            caught.is_some_and(|mask| mask & bit != 0)
        });
    }

    /// Waits until standard output contains some words, and returns it.
    #[track_caller]
    pub(crate) fn until_out(&self, words: &str) -> String {
        self.until_shown(words, |seen| &seen.stdout)
    }

    /// Waits until standard error contains some words, and returns it.
    #[track_caller]
    pub(crate) fn until_err(&self, words: &str) -> String {
        self.until_shown(words, |seen| &seen.stderr)
    }

    /// As [`until_out`](Self::until_out), within another limit.
    #[track_caller]
    pub(crate) fn until_out_within(&self, words: &str, limit: Duration) -> String {
        self.until_shown_within(words, limit, |seen| &seen.stdout)
    }

    #[track_caller]
    fn until_shown(&self, words: &str, of: fn(&Seen) -> &Vec<u8>) -> String {
        self.until_shown_within(words, DEADLINE, of)
    }

    #[track_caller]
    fn until_shown_within(
        &self,
        words: &str,
        limit: Duration,
        of: fn(&Seen) -> &Vec<u8>,
    ) -> String {
        let shown = self.board.until(limit, |seen| {
            let text = String::from_utf8_lossy(of(seen)).into_owned();
            let ended = seen.status.is_some() && seen.open == 0;
            (ended || text.contains(words)).then_some(text)
        });
        match shown {
            Some(text) if text.contains(words) => text,
            _ => panic!("did not show {words:?}: {:?}", self.outcome()),
        }
    }

    /// Tells whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.board
            .until(Duration::ZERO, |seen| seen.status)
            .is_some()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(self) -> Outcome {
        self.wait_within(DEADLINE)
    }

    /// Waits for its end; one that takes too long is killed and fails the test.
    #[track_caller]
    pub(crate) fn wait_within(self, limit: Duration) -> Outcome {
        let ended = self.board.until(limit, |seen| seen.status).is_some();
        if !ended {
            self.kill();
            panic!("took longer than {limit:?}: {:?}", self.outcome());
        }
        let closed = self
            .board
            .until(DEADLINE, |seen| (seen.open == 0).then_some(()));
        assert!(
            closed.is_some(),
            "something outlives it and holds its output: {:?}",
            self.outcome()
        );
        self.outcome()
    }

    /// Waits for its end; `None`, and it is killed, when it takes too long.
    pub(crate) fn try_wait_within(self, limit: Duration) -> Option<Outcome> {
        let ended = self
            .board
            .until(limit, |seen| seen.status.filter(|_| seen.open == 0));
        if ended.is_none() {
            self.kill();
            return None;
        }
        Some(self.outcome())
    }

    fn kill(&self) {
        if !self.has_ended() {
            _ = rustix::process::kill_process(self.pid, Signal::KILL);
        }
    }

    fn outcome(&self) -> Outcome {
        let outcome = self.board.until(Duration::ZERO, |seen| {
            Some(Outcome {
                call: self.call.clone(),
                code: seen.status.and_then(|status| status.code()),
                signal: seen.status.and_then(|status| status.signal()),
                stdout: seen.stdout.clone(),
                stderr: seen.stderr.clone(),
            })
        });
        outcome.unwrap()
    }
}
