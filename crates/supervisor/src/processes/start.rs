//! Starting a process: resolved, recorded, spawned and taken on, or nothing of it.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    rc::Rc,
    time::Duration,
};

use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{EnvironmentSource, ProcessSpec, Started},
};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::{
    io::Interest,
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Processes,
    activity::Activity,
    input::Input,
    output::Output,
    process::{Process, Watched},
    refusal, resolve,
    spawn::{self, Spawned},
    streams::Streams,
};
use crate::{
    log::{self, Channel, LogWriter, Record},
    tree::{Seat, Tree},
};

/// How long a program that is being written is waited for.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Removes the log of a process that did not start.
struct Unstarted<'a>(Option<&'a Path>);

impl Drop for Unstarted<'_> {
    fn drop(&mut self) {
        if let Some(directory) = self.0 {
            let _kept = log::clear(directory);
        }
    }
}

#[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
impl Processes {
    /// Starts a process; returns once its program really runs.
    ///
    /// * The same id with the same spec again returns the first answer; with another spec it is `AlreadyExists`.
    /// * A process that did not start leaves nothing.
    ///
    /// # Errors
    ///
    /// * `DirectoryNotFound`, `ProgramNotFound`, `InterpreterNotFound`, `NotExecutable`, naming what is missing and where it was looked for.
    /// * `TooLarge`, with sizes; `ResourceExhausted`; `Unavailable` for a program that is being written, and once everything is being stopped.
    ///
    /// # Cancel safety
    ///
    /// The process is either started and listed, or was never there.
    pub async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error> {
        let _turn = self.0.starting.lock().await;
        if let Some(known) = self.0.table.borrow().find(id) {
            if let Some(started) = self.0.table.borrow().started_by(&known, spec) {
                return Ok(started);
            }
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "a process of this name was started with another spec",
            )
            .with("process", id));
        }
        let environment = match &spec.environment {
            EnvironmentSource::Run(overlay) => self.0.environment.borrow().overlaid(overlay),
            EnvironmentSource::Exact(exact) => exact.clone(),
        };
        environment.check(spec.command.kernel_size())?;
        resolve::directory(&spec.directory)?;
        let program = resolve::program(spec.command.program(), &spec.directory, &environment)?;
        let directory = self.0.log_directory.join(id.as_str());
        let exit = log::prepare(&directory)?;
        let mut unstarted = Unstarted(Some(&directory));
        let (spawned, seat) = self.spawn(id, &program, spec, &environment).await?;
        // No await from here on: whoever gives up this call finds the process listed.
        let tree = self.0.grove.tree(spawned.pid, seat);
        let started = Started {
            program,
            pid: spawned.pid.as_raw_nonzero().get().unsigned_abs(),
        };
        let log = LogWriter::new(directory.clone(), spec.log_limit, exit);
        let record = Record::new(id, self.0.table.borrow().len() as u64, spec.main, &started);
        let pid = spawned.pid;
        let (process, watched) = record
            .store(&directory)
            .and_then(|()| self.adopt(id, spec, started.clone(), log, &tree, spawned))
            .inspect_err(|_| {
                tree.kill();
                let _reaped = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                tree.leader_reaped();
                tree.kill();
            })?;
        unstarted.0 = None;
        self.0.table.borrow_mut().add(&process);
        let shared = Rc::downgrade(&self.0);
        tokio::task::spawn_local(async move {
            let main = process.spec.main;
            let exit = process.exit.subscribe();
            Rc::clone(&process).live(watched).await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            shared.table.borrow_mut().retire(&process);
            if main {
                shared.main_gone.send_if_modified(|first| {
                    let news = first.is_none();
                    if news {
                        *first = *exit.borrow();
                    }
                    news
                });
            }
        });
        Ok(started)
    }

    async fn spawn(
        &self,
        id: &ProcessId,
        program: &Path,
        spec: &ProcessSpec,
        environment: &Environment,
    ) -> Result<(Spawned, Option<Seat>), Error> {
        let until = Instant::now() + BUSY_PATIENCE;
        loop {
            if self.0.closing.get() {
                return Err(Error::new(ErrorKind::Unavailable, "the instance is ending")
                    .with("process", id)
                    .retryable(false));
            }
            let seat = self.0.grove.seat(id);
            match spawn::spawn(program, spec, environment, &self.0.limits, seat.as_ref()) {
                Ok(spawned) => return Ok((spawned, seat)),
                Err(e) => match e.raw_os_error() {
                    Some(libc::ETXTBSY) if Instant::now() < until => {
                        sleep(Duration::from_millis(20)).await;
                    }
                    // It may be the cgroup that refused: a hierarchy we may write to, and yet not move into.
                    Some(
                        libc::EACCES
                        | libc::EPERM
                        | libc::EBUSY
                        | libc::EOPNOTSUPP
                        | libc::EINVAL
                        | libc::ENODEV
                        | libc::ENOENT,
                    ) if seat.is_some()
                        && self.0.table.borrow().len() == 0
                        && self.0.grove.may_do_without() =>
                    {
                        drop(seat);
                        let spawned =
                            spawn::spawn(program, spec, environment, &self.0.limits, None)
                                .map_err(|e| refusal::explain(e, program, spec, environment))?;
                        self.0.grove.give_up_cgroup();
                        return Ok((spawned, None));
                    }
                    _ => return Err(refusal::explain(e, program, spec, environment)),
                },
            }
        }
    }

    fn adopt(
        &self,
        id: &ProcessId,
        spec: &ProcessSpec,
        started: Started,
        log: LogWriter,
        tree: &Rc<Tree>,
        spawned: Spawned,
    ) -> Result<(Rc<Process>, Watched), Error> {
        let failed = |e| Error::io("failed to watch the process", e).with("process", id);
        let memory_kills = tree.memory_kills();
        let log = Rc::new(RefCell::new(log));
        let activity = Activity::new();
        let output = |fd, channel, pipe| {
            Output::new(fd, channel, pipe, &log, &self.0.buffer, &activity).map_err(failed)
        };
        let (input, terminal, outputs) = match spawned.streams {
            Streams::Pipes {
                stdin,
                stdout,
                stderr,
            } => {
                let outputs = vec![
                    output(stdout, Channel::Stdout, true)?,
                    output(stderr, Channel::Stderr, true)?,
                ];
                (Input::new(stdin, false).map_err(failed)?, None, outputs)
            }
            Streams::Terminal {
                output: from,
                input,
                control,
            } => (
                Input::new(input, true).map_err(failed)?,
                Some(control),
                vec![output(from, Channel::Stdout, false)?],
            ),
        };
        let pidfd = spawn::register(spawned.pidfd, Interest::READABLE).map_err(failed)?;
        let process = Rc::new(Process {
            id: id.clone(),
            spec: spec.clone(),
            started,
            log,
            input,
            tree: Rc::clone(tree),
            terminal: RefCell::new(terminal),
            exit: watch::Sender::new(None),
            gone: watch::Sender::new(false),
            cause: Cell::new(None),
            deadline: watch::Sender::new(None),
            activity: activity.clone(),
            memory_kills,
        });
        Ok((process, Watched { pidfd, outputs }))
    }
}
