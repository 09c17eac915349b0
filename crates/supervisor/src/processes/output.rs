//! Moves what a process writes into its log, at once and whoever reads it: the process never waits for a reader.

use std::{
    cell::RefCell,
    io,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use rustix::pipe::fcntl_setpipe_size;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::watch,
};

use super::{activity::Activity, spawn};
use crate::log::{Channel, HEADER, LogWriter, MAX_PAYLOAD};

/// How long output is still taken after the process has exited, where others go on writing.
const DRAIN: Duration = Duration::from_millis(500);

/// A read of this size came from a full pipe of the default size.
const BUSY: usize = 64 * 1024;

/// The pipe of a process that writes much.
const LARGE_PIPE: usize = 1024 * 1024;

/// After this many frames others get their turn.
const TURN: u32 = 4;

/// The one buffer through which all output goes: it is only held between a read and a write, on one thread.
#[derive(Clone, Debug)]
pub(super) struct Buffer(Rc<RefCell<Vec<u8>>>);

impl Buffer {
    pub(super) fn new() -> Self {
        Self(Rc::default())
    }
}

enum Step {
    Moved(usize),
    Empty,
    End,
}

/// One stream of a process on its way to the log.
#[derive(Debug)]
pub(super) struct Output {
    from: AsyncFd<OwnedFd>,
    channel: Channel,
    pipe: bool,
    log: Rc<RefCell<LogWriter>>,
    buffer: Buffer,
    activity: Activity,
}

impl Output {
    /// Takes our end, which must not block.
    pub(super) fn new(
        from: OwnedFd,
        channel: Channel,
        pipe: bool,
        log: &Rc<RefCell<LogWriter>>,
        buffer: &Buffer,
        activity: &Activity,
    ) -> io::Result<Self> {
        Ok(Self {
            from: spawn::register(from, Interest::READABLE)?,
            channel,
            pipe,
            log: Rc::clone(log),
            buffer: buffer.clone(),
            activity: activity.clone(),
        })
    }

    /// Moves one piece; never waits.
    fn step(&self) -> io::Result<Step> {
        let mut log = self.log.borrow_mut();
        let mut buffer = self.buffer.0.borrow_mut();
        if buffer.is_empty() {
            *buffer = vec![0; HEADER + MAX_PAYLOAD];
        }
        let room = HEADER + log.max_payload();
        loop {
            return match rustix::io::read(self.from.get_ref(), &mut buffer[HEADER..room]) {
                // A terminal says so when nobody holds its other end any more.
                Ok(0) | Err(rustix::io::Errno::IO) => Ok(Step::End),
                Ok(count) => {
                    self.activity.seen();
                    log.append(self.channel, &mut buffer[..HEADER + count]);
                    Ok(Step::Moved(count))
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => Ok(Step::Empty),
                Err(e) => Err(e.into()),
            };
        }
    }

    /// Moves everything until the stream ends or, after the process has exited, nothing more is there.
    ///
    /// * A stream that others hold open does not keep it; one that they go on filling does for half a second.
    #[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
    pub(super) async fn run(mut self, mut exited: watch::Receiver<bool>) {
        let mut turn = 0;
        loop {
            let ready = tokio::select! {
                ready = self.from.readable() => ready,
                _ = exited.wait_for(|exited| *exited) => break,
            };
            let Ok(mut ready) = ready else {
                return;
            };
            match self.step() {
                Ok(Step::Moved(count)) => {
                    turn += 1;
                    if self.pipe && count >= BUSY {
                        // Only where it pays: all pipes of a user share one allowance.
                        self.pipe = false;
                        let _refused = fcntl_setpipe_size(self.from.get_ref(), LARGE_PIPE);
                    }
                    if turn % TURN == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                Ok(Step::Empty) => ready.clear_ready(),
                Ok(Step::End) | Err(_) => return,
            }
        }
        let until = Instant::now() + DRAIN;
        while Instant::now() < until {
            match self.step() {
                Ok(Step::Moved(_)) => tokio::task::yield_now().await,
                Ok(Step::Empty | Step::End) | Err(_) => return,
            }
        }
    }
}
