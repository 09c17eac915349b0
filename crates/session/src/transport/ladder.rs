//! How a process of an instance is ended, step by step: agents differ in what they listen to.

use std::time::Duration;

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    instance::Instance,
    process::Signal,
};

/// How long each step of closing a process may take; the next one follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseLadder {
    /// After its input was closed: agents that boot need more than a quarter of a second.
    pub eof: Duration,
    /// After it was asked by its signal.
    pub signal: Duration,
    /// After its whole tree was killed; then it is an error.
    pub kill: Duration,
}

impl Default for CloseLadder {
    fn default() -> Self {
        Self {
            eof: Duration::from_millis(500),
            signal: Duration::from_millis(750),
            kill: Duration::from_secs(2),
        }
    }
}

impl CloseLadder {
    /// Ends a process and all that it started.
    ///
    /// # Errors
    ///
    /// `TimedOut` when it outlived its kill; those of the instance.
    pub(super) async fn climb(
        &self,
        instance: &dyn Instance,
        process: &ProcessId,
        by: Signal,
    ) -> Result<(), Error> {
        let mut trouble = None;
        // What cannot be closed or signalled may be gone already, which only its end tells.
        let mut note = |done: Result<(), Error>| {
            if let Err(error) = done {
                trouble = Some(error);
            }
        };
        note(instance.close_stdin(process).await);
        if ended(instance, process, self.eof).await? {
            return Ok(());
        }
        note(instance.signal(process, by).await);
        if ended(instance, process, self.signal).await? {
            return Ok(());
        }
        note(instance.signal(process, Signal::KILL).await);
        if ended(instance, process, self.kill).await? {
            return Ok(());
        }
        let error = Error::new(ErrorKind::TimedOut, "the agent's process outlived its kill")
            .with("process", process);
        Err(match trouble {
            Some(trouble) => error.with_source(trouble),
            None => error,
        })
    }
}

/// Waits for the end of a process; one that nobody knows has none.
async fn ended(
    instance: &dyn Instance,
    process: &ProcessId,
    limit: Duration,
) -> Result<bool, Error> {
    match tokio::time::timeout(limit, instance.wait(process)).await {
        Err(_) => Ok(false),
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(true),
        Ok(Err(error)) => Err(error),
    }
}
