//! The reading side: frames to lines, lines to messages, in order and in bounded memory.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::FutureExt as _;
use groundcrew_core::{
    error::{Error, ErrorKind},
    lines::{Lines, MAX_LINE_LEN},
    process::{ExitStatus, Frame, FrameKind, Offset},
};
use tokio::sync::{Notify, watch};

use super::{
    incoming::Incoming, message::Message, stderr::StderrLines, tail::Tail, tolerance::Tolerance,
    waiters::Waiters,
};
use crate::{failure, transport::Connection};

/// What was heard of a peer, for errors.
#[derive(Debug, Default)]
pub(super) struct Heard {
    state: Mutex<State>,
    failing: Notify,
    /// Behind the last frame of which everything was handed on.
    reached: watch::Sender<Offset>,
}

#[derive(Debug, Default)]
struct State {
    stdout: Tail,
    stderr: Tail,
    strays: u64,
    failure: Option<Error>,
}

impl Heard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the end of standard output.
    pub(super) fn stdout<T>(&self, show: impl FnOnce(&[u8]) -> T) -> T {
        show(self.state().stdout.bytes())
    }

    /// Shows the end of standard error.
    pub(super) fn stderr<T>(&self, show: impl FnOnce(&[u8]) -> T) -> T {
        show(self.state().stderr.bytes())
    }

    /// Returns how many answers came to questions that nobody asked.
    pub(super) fn strays(&self) -> u64 {
        self.state().strays
    }

    pub(super) fn stray(&self) {
        self.state().strays += 1;
    }

    /// Waits until everything before that offset was handed on.
    pub(super) async fn reached(&self, offset: Offset) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as we do.
        let _seen = reached.wait_for(|reached| *reached >= offset).await;
    }

    /// Ends the connection, from beside the reader.
    pub(super) fn fail(&self, error: Error) {
        self.state().failure.get_or_insert(error);
        self.failing.notify_one();
    }

    /// Waits until something beside the reader failed.
    pub(super) async fn failed(&self) -> Error {
        loop {
            if let Some(error) = self.state().failure.take() {
                return error;
            }
            self.failing.notified().await;
        }
    }
}

/// Reads a connection.
#[derive(Debug)]
pub(super) struct Reader {
    connection: Arc<dyn Connection>,
    waiters: Arc<Waiters>,
    heard: Arc<Heard>,
    lines: Lines,
    stderr: StderrLines,
    tolerance: Tolerance,
    ready: VecDeque<(Incoming, Offset)>,
    /// The offset behind the last frame of standard output; what `lines` holds ends there.
    stdout_end: Offset,
    /// The offset behind everything that was handed on.
    behind: Offset,
    /// The offset behind the last frame of either stream.
    end: Offset,
    /// Whether the line that comes next lost its beginning.
    headless: bool,
}

impl Reader {
    pub(super) fn new(
        connection: Arc<dyn Connection>,
        waiters: Arc<Waiters>,
        heard: Arc<Heard>,
        from: Offset,
    ) -> Self {
        Self {
            connection,
            waiters,
            heard,
            lines: Lines::new(MAX_LINE_LEN),
            stderr: StderrLines::default(),
            tolerance: Tolerance::default(),
            ready: VecDeque::new(),
            stdout_end: from,
            behind: from,
            end: from,
            headless: false,
        }
    }

    /// Returns the offset behind what was handed on last.
    pub(super) fn behind(&self) -> Offset {
        self.behind
    }

    /// Returns the next thing that comes in, with the offset behind it; answers go to who waits for them.
    ///
    /// # Errors
    ///
    /// How the connection ended: `AgentEnded` with its exit, `Protocol` and `TooLarge` when it cannot be gone on with, those
    /// of the connection.
    pub(super) async fn next(&mut self) -> Result<(Incoming, Offset), Error> {
        loop {
            if let Some((incoming, behind)) = self.ready.pop_front() {
                self.behind = behind;
                return Ok((incoming, behind));
            }
            if let Some(line) = self.lines.next_line()? {
                self.line(&line)?;
                continue;
            }
            self.heard.reached.send_replace(self.end);
            let frame = if let Some(frame) = self.connection.receive().now_or_never() {
                frame
            } else {
                // All that was on its way is here: what stands for an answer that is not may do so now.
                self.waiters.settle();
                self.connection.receive().await
            };
            match frame? {
                Some(frame) => self.frame(frame)?,
                None => return Err(broken_off()),
            }
        }
    }

    fn frame(&mut self, frame: Frame) -> Result<(), Error> {
        match frame.kind {
            FrameKind::Stdout(bytes) => {
                self.heard.state().stdout.push(&bytes);
                self.stdout_end = Offset(frame.offset.0 + bytes.len() as u64);
                self.end = self.stdout_end;
                self.lines.push(&bytes);
            }
            FrameKind::Stderr(bytes) => {
                self.heard.state().stderr.push(&bytes);
                self.end = Offset(frame.offset.0 + bytes.len() as u64);
                for line in self.stderr.push(&bytes) {
                    // It may stand between two halves of a message, which is not to be lost with it.
                    self.ready.push_back((Incoming::Stderr(line), self.behind));
                }
            }
            FrameKind::Truncated(bytes) => {
                self.lines = Lines::new(MAX_LINE_LEN);
                self.headless = true;
                let behind = Offset(frame.offset.0 + bytes);
                self.end = behind;
                self.ready.push_back((Incoming::Gap(bytes), behind));
            }
            FrameKind::Exit(status) => return Err(ended(status)),
            _ => {}
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        let behind = Offset(self.stdout_end.0 - self.lines.held() as u64);
        if std::mem::take(&mut self.headless) {
            return Ok(());
        }
        let Some(message) = Message::read(line) else {
            return self.tolerance.nonsense(line);
        };
        self.tolerance.message();
        let incoming = match message {
            Message::Request { id, method, params } => Incoming::Request { id, method, params },
            Message::Notification { method, params } => {
                self.waiters.notified(&method, &params);
                Incoming::Notification { method, params }
            }
            Message::Unreadable { id, method, why } => Incoming::Unreadable { id, method, why },
            Message::Reply { id, result } => {
                let Some(id) = id else {
                    self.heard.stray();
                    return Ok(());
                };
                match self.waiters.answer(id, result) {
                    None => return Ok(()),
                    Some(result) => Incoming::Reply { id, result },
                }
            }
        };
        self.ready.push_back((incoming, behind));
        Ok(())
    }
}

fn broken_off() -> Error {
    failure::coded(
        ErrorKind::Unavailable,
        failure::DISCONNECTED,
        "the agent's output broke off",
    )
}

fn ended(status: ExitStatus) -> Error {
    let error = failure::coded(
        ErrorKind::AgentEnded,
        failure::DISCONNECTED,
        "the agent ended",
    )
    .with("exit", status);
    match (status.code, status.signal) {
        (Some(code), _) => error.with("exit_code", code),
        (None, Some(signal)) => error.with("signal", signal.0),
        (None, None) => error,
    }
}
