//! The step Setup: runs the setup scripts of a launch, one after the other, as processes of its instance.
//!
//! No lock but the session's own is held meanwhile.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;

use crate::{
    attempt::{Attempt, Failure, cancelled},
    cancel::CancelToken,
    checkpoint::{Checkpoint, Place},
    error::{Error, ErrorKind},
    event::{EventKind, Step},
    executor::Progress as _,
    id::ProcessId,
    instance::{Instance, SharedInstance},
    narrator::StepProgress,
    process::{ExitStatus, Frame, FrameKind, Offset, ProcessSpec, Role, Signal},
    redact::Redactor,
    script::{GRACE, Script},
    script_output::ScriptOutput,
    undo::INSTANCE_KEY,
};

/// How long the answers around a script may take, beside its own time limit.
const AROUND: Duration = Duration::from_secs(30);

/// How a script ended, and the end of what it said.
struct Ran {
    status: ExitStatus,
    tail: String,
}

/// Returns the name of a script's process: `setup-1` is the first one.
pub(crate) fn process_name(what: &str, index: usize) -> Result<ProcessId, Error> {
    ProcessId::new(format!("{what}-{}", index + 1))
}

impl Attempt {
    /// Runs every setup script; one that is required and fails is the end.
    pub(crate) async fn set_up(&self, instance: &SharedInstance) -> Result<(), Failure> {
        let plan = Arc::clone(&self.plan);
        let (shared, narrator) = (Arc::clone(&self.shared), Arc::clone(&self.narrator));
        let (instance, cancel) = (Arc::clone(instance), self.cancel.clone());
        let limits = plan.setup.iter().map(|script| script.time_limit + AROUND);
        let limit = limits.fold(self.shared.parts.policy.step, Duration::saturating_add);
        let work = async move {
            let isolation = plan.registration.executor.capabilities().isolation;
            let progress = StepProgress {
                narrator: Arc::clone(&narrator),
                step: Step::Setup,
            };
            let redactor = narrator.redactor();
            let point = |process: &ProcessId, what: &str| Checkpoint {
                step: Step::Setup,
                place: Place::Inside(format!("{process}-{what}")),
            };
            for (index, script) in plan.setup.iter().enumerate() {
                if cancel.is_cancelled() {
                    return Err(cancelled());
                }
                let process = process_name("setup", index)?;
                progress.line(&format!("{process}: {}", script.name));
                let running = Running {
                    instance: &*instance,
                    process: &process,
                    spec: script.process(&plan.workspace, isolation),
                    cancel: &cancel,
                };
                let started = running.start().await;
                if started.is_ok() {
                    let point = point(&process, "started");
                    shared.parts.checkpoints.pass(&point).await?;
                }
                let ran = match started {
                    Ok(()) => running.follow(&redactor, &progress).await,
                    Err(error) => Err(error),
                };
                if let Some(error) = failure(script, &process, ran)? {
                    if script.required {
                        return Err(error);
                    }
                    let warning = redactor.error(error).to_string();
                    narrator.tell(EventKind::Warning(warning));
                }
                let point = point(&process, "ended");
                shared.parts.checkpoints.pass(&point).await?;
            }
            Ok(())
        };
        self.step_within(Step::Setup, &[INSTANCE_KEY], limit, work)
            .await
    }
}

/// Tells how a script failed, if it did; what is no failure of the script is an error of its own.
fn failure(
    script: &Script,
    process: &ProcessId,
    ran: Result<Ran, Error>,
) -> Result<Option<Error>, Error> {
    let named = |error: Error| error.with("script", &script.name).with("process", process);
    let ran = match ran {
        Ok(ran) if ran.status == ExitStatus::exited(0) => return Ok(None),
        Ok(ran) => ran,
        Err(error) => {
            return match error.kind() {
                ErrorKind::ProgramNotFound
                | ErrorKind::InterpreterNotFound
                | ErrorKind::DirectoryNotFound
                | ErrorKind::NotExecutable
                | ErrorKind::PermissionDenied
                | ErrorKind::TooLarge => {
                    let failed =
                        Error::new(ErrorKind::ScriptFailed, "a setup script cannot be started");
                    Ok(Some(named(failed).with_source(error)))
                }
                ErrorKind::Cancelled => Err(error),
                _ => Err(named(error)),
            };
        }
    };
    let mut failed = Error::new(ErrorKind::ScriptFailed, "a setup script failed");
    failed = named(failed).with("exit", ran.status);
    if !ran.tail.is_empty() {
        failed = failed.with("output", ran.tail);
    }
    Ok(Some(failed))
}

/// A script as a process.
struct Running<'a> {
    instance: &'a dyn Instance,
    process: &'a ProcessId,
    spec: ProcessSpec,
    cancel: &'a CancelToken,
}

impl Running<'_> {
    async fn start(&self) -> Result<(), Error> {
        self.instance
            .start(self.process, &self.spec)
            .await
            .map(drop)
    }

    /// Tells what it says until it ends; a cancellation ends it.
    async fn follow(&self, redactor: &Redactor, progress: &StepProgress) -> Result<Ran, Error> {
        let attached = self
            .instance
            .attach(self.process, Offset(0), Role::Viewer)
            .await;
        let mut frames = attached?.output;
        let mut output = ScriptOutput::new(redactor, progress);
        let mut ended = self.instance.wait(self.process);
        let status = loop {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => {
                    self.end().await;
                    return Err(cancelled());
                }
                next = frames.next() => match next {
                    Some(frame) => match frame? {
                        Frame { kind: FrameKind::Exit(status), .. } => break status,
                        frame => output.take(&frame),
                    },
                    None => break ended.await?,
                },
                status = &mut ended => {
                    let status = status?;
                    // What it said is all recorded by now.
                    let rest = async {
                        while let Some(Ok(frame)) = frames.next().await
                            && !matches!(frame.kind, FrameKind::Exit(_))
                        {
                            output.take(&frame);
                        }
                    };
                    drop(tokio::time::timeout(GRACE, rest).await);
                    break status;
                }
            }
        };
        let tail = output.finish();
        Ok(Ran { status, tail })
    }

    /// Asks it to end and lets it for a moment; what is left then goes with the instance.
    async fn end(&self) {
        let ended = async {
            self.instance.signal(self.process, Signal::TERM).await?;
            self.instance.wait(self.process).await
        };
        if !matches!(tokio::time::timeout(GRACE, ended).await, Ok(Ok(_))) {
            drop(self.instance.signal(self.process, Signal::KILL).await);
        }
    }
}
