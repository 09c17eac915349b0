//! The life of one process: watched, recorded, asked to end, ended with everything it brought into the world.

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{
        EndCause, ExitStatus, Frame, FrameKind, ProcessPhase, ProcessSpec, ProcessState, Signal,
        Started, StopOrder, TerminalSize,
    },
};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, waitid};
use tokio::{
    io::unix::AsyncFd,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{activity::Activity, input::Input, output::Output, streams};
use crate::{
    log::LogWriter,
    tree::{Pause, Tree},
};

/// How long what a process left behind may take to end when nobody said otherwise.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// How long a killed tree may take to vanish before `stop` names it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a tree that outlives its kill is killed again.
const AGAIN: Duration = Duration::from_millis(250);

/// A process that was started.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: ProcessId,
    pub(super) spec: ProcessSpec,
    pub(super) started: Started,
    pub(super) log: Rc<RefCell<LogWriter>>,
    pub(super) input: Input,
    pub(super) tree: Rc<Tree>,
    pub(super) terminal: RefCell<Option<OwnedFd>>,
    /// How it ended, once the exit frame is written.
    pub(super) exit: watch::Sender<Option<ExitStatus>>,
    /// Whether nothing of its tree is left.
    pub(super) gone: watch::Sender<bool>,
    /// Why it is being ended, once it is; the first reason counts.
    pub(super) cause: Cell<Option<EndCause>>,
    /// When its tree is killed.
    pub(super) deadline: watch::Sender<Option<Instant>>,
    pub(super) activity: Activity,
    /// How often the kernel had ended something for want of memory before it was started.
    pub(super) memory_kills: Option<u64>,
}

/// What only the life of a process needs.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) pidfd: AsyncFd<OwnedFd>,
    pub(super) outputs: Vec<Output>,
}

pub(super) fn native(signal: Signal) -> Result<rustix::process::Signal, Error> {
    rustix::process::Signal::from_named_raw(signal.0).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            "only the named signals of the system can be sent",
        )
        .with("signal", signal.0)
    })
}

pub(super) fn no_terminal(id: &ProcessId) -> Error {
    Error::new(ErrorKind::Unsupported, "the process has no terminal").with("process", id)
}

#[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
impl Process {
    /// Watches it from its start until nothing of it is left.
    pub(super) async fn live(self: Rc<Self>, watched: Watched) {
        let exited = watch::Sender::new(false);
        let mut outputs = JoinSet::new();
        for output in watched.outputs {
            outputs.spawn_local(output.run(exited.subscribe()));
        }
        let limit = self.limited();
        let status = self.leader_ended(&watched.pidfd).await;
        exited.send_replace(true);
        if let Some(limit) = limit
            && !matches!(self.cause.get(), Some(EndCause::TimedOut | EndCause::Idle))
        {
            limit.abort();
        }
        while outputs.join_next().await.is_some() {}
        self.input.close();
        self.terminal.take();
        // A disk that refuses the exit frame changes nothing for whoever asks us.
        let _unwritten = self.log.borrow_mut().finish(status);
        self.exit.send_replace(Some(status));
        self.end_leftovers().await;
        self.gone.send_replace(true);
    }

    /// Ends it when one of its limits of time is reached, whichever is first; none if it has none.
    fn limited(self: &Rc<Self>) -> Option<tokio::task::AbortHandle> {
        let (time, idle) = (self.spec.time_limit, self.spec.idle_limit);
        if time.is_none() && idle.is_none() {
            return None;
        }
        let process = Rc::clone(self);
        let limited = tokio::task::spawn_local(async move {
            let cause = tokio::select! {
                () = sleep(time.map_or(Duration::ZERO, |limit| limit.0)), if time.is_some() => EndCause::TimedOut,
                () = process.activity.idle(idle.map_or(Duration::ZERO, |limit| limit.0)), if idle.is_some() => EndCause::Idle,
            };
            // What does not end is ended by this very life; nobody waits for this answer.
            let _survivors = process.stop(&process.spec.stop, cause).await;
        });
        Some(limited.abort_handle())
    }

    /// Waits for the process itself, and kills the tree when its time is over.
    async fn leader_ended(&self, pidfd: &AsyncFd<OwnedFd>) -> ExitStatus {
        let mut killed = false;
        loop {
            tokio::select! {
                ready = pidfd.readable() => {
                    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                    match waitid(WaitId::PidFd(std::os::fd::AsFd::as_fd(pidfd.get_ref())), options) {
                        Ok(None) | Err(rustix::io::Errno::INTR) => {
                            if let Ok(mut ready) = ready {
                                ready.clear_ready();
                            }
                        }
                        Ok(Some(status)) => {
                            self.tree.leader_reaped();
                            return self.status(Some(&status));
                        }
                        Err(_) => {
                            self.tree.leader_reaped();
                            return self.status(None);
                        }
                    }
                }
                () = self.overdue(killed) => {
                    self.tree.kill();
                    killed = true;
                }
            }
        }
    }

    fn status(&self, status: Option<&WaitIdStatus>) -> ExitStatus {
        ExitStatus {
            code: status.and_then(WaitIdStatus::exit_status),
            signal: status
                .and_then(WaitIdStatus::terminating_signal)
                .map(Signal),
            core_dumped: status.is_some_and(WaitIdStatus::dumped),
            cause: self.cause.get().unwrap_or_else(|| {
                let signal = status.and_then(WaitIdStatus::terminating_signal);
                if signal == Some(Signal::KILL.0) && self.tree.memory_kills() > self.memory_kills {
                    EndCause::OutOfMemory
                } else {
                    EndCause::Itself
                }
            }),
        }
    }

    /// Returns when the tree is to be killed, or killed again.
    async fn overdue(&self, killed: bool) {
        if killed {
            return sleep(AGAIN).await;
        }
        let mut deadline = self.deadline.subscribe();
        loop {
            let at = *deadline.borrow_and_update();
            tokio::select! {
                () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => return,
                // Its sender is ours.
                _ = deadline.changed() => {}
            }
        }
    }

    /// Ends what the process left behind: asked first, killed after a short grace, until nothing is left.
    async fn end_leftovers(&self) {
        if self.tree.is_empty() {
            return;
        }
        if self.deadline.borrow().is_none() {
            self.hasten(self.spec.stop.grace.min(LEFTOVER_GRACE));
            self.ask(rustix::process::Signal::TERM);
        }
        let mut pause = Pause::until(Duration::MAX);
        while self.deadline.borrow().is_none_or(|at| Instant::now() < at) {
            if self.tree.is_empty() {
                return;
            }
            pause.next().await;
        }
        let mut pause = Pause::until(PATIENCE);
        loop {
            self.tree.kill();
            let patient = pause.next().await;
            if self.tree.is_empty() {
                return;
            }
            if !patient {
                // It is still ours, and goes when it can.
                sleep(AGAIN).await;
            }
        }
    }

    /// Moves the time of the kill forward, never back.
    fn hasten(&self, grace: Duration) {
        let at = Instant::now().checked_add(grace);
        self.deadline.send_if_modified(|deadline| {
            let sooner = at.is_some_and(|at| deadline.is_none_or(|now| at < now));
            if sooner {
                *deadline = at;
            }
            sooner
        });
    }

    /// Sends a signal that asks for an end, and wakes what is stopped, so that it hears it.
    fn ask(&self, signal: rustix::process::Signal) {
        // Who cannot be asked is killed, and who cannot be killed is named then.
        let _refused = self.tree.signal(signal);
        let _refused = self.tree.signal(rustix::process::Signal::CONT);
    }

    /// Ends the process and its tree; see [`Processes::stop`](super::Processes::stop).
    pub(super) async fn stop(&self, order: &StopOrder, cause: EndCause) -> Result<(), Error> {
        let mut gone = self.gone.subscribe();
        if *gone.borrow_and_update() {
            return Ok(());
        }
        let signal = native(order.signal)?;
        if self.cause.get().is_none() {
            self.cause.set(Some(cause));
        }
        self.hasten(order.grace);
        if order.close_stdin {
            self.input.close();
        }
        if !order.grace.is_zero() {
            self.ask(signal);
        }
        let wait = gone.wait_for(|gone| *gone);
        let ended = match Instant::now().checked_add(order.grace.saturating_add(PATIENCE)) {
            Some(until) => timeout_at(until, wait).await.is_ok(),
            None => wait.await.is_ok(),
        };
        if ended {
            return Ok(());
        }
        Err(self.tree.kill().error().with("process", &self.id))
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let signal = native(signal)?;
        if *self.gone.borrow() {
            return Ok(());
        }
        self.tree
            .signal(signal)
            .map_err(|e| e.with("process", &self.id))
    }

    pub(super) fn resize(&self, size: TerminalSize) -> Result<(), Error> {
        match (&*self.terminal.borrow(), self.spec.stdio) {
            (Some(terminal), _) => streams::resize(terminal, size).map_err(|e| {
                Error::io("failed to resize the terminal", e).with("process", &self.id)
            }),
            (None, groundcrew_core::process::StdioKind::Terminal(_)) => Ok(()),
            (None, groundcrew_core::process::StdioKind::Pipes) => Err(no_terminal(&self.id)),
        }
    }

    /// Returns when, in milliseconds since 1970, and how it ended, once that is told to readers.
    pub(super) fn ended(&self) -> Option<(u64, ExitStatus)> {
        match &*self.log.borrow().follow().borrow() {
            Some(Frame {
                at_ms,
                kind: FrameKind::Exit(status),
                ..
            }) => Some((*at_ms, *status)),
            _ => None,
        }
    }

    pub(super) fn state(&self) -> ProcessState {
        let log = self.log.borrow();
        ProcessState {
            id: self.id.clone(),
            main: self.spec.main,
            phase: match *self.exit.borrow() {
                Some(status) => ProcessPhase::Ended(status),
                None => ProcessPhase::Running(self.started.clone()),
            },
            log_start: log.start(),
            log_end: log.end(),
        }
    }
}
