//! What a caller holds while a launch goes on, and what it gets in the end.

use std::{error::Error as StdError, fmt, sync::Arc};

use tokio::sync::watch;

use crate::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    event::Step,
    handshake::Greeting,
    id::{AttemptId, RunId},
    process::Started,
    redact::Redactor,
    store::RunRecord,
    unwind::Unwound,
};

/// A launch that succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Launched {
    /// The run's record as committed.
    pub record: RunRecord,
    /// What was really started, if an agent was asked for.
    pub started: Option<Started>,
    /// What the agent answered, where its profile has a handshake.
    pub greeting: Option<Greeting>,
    /// What hides the run's secrets in whatever is shown of it.
    pub redactor: Redactor,
}

/// Why a launch failed, and what became of what it had made.
#[derive(Clone, Debug)]
pub struct LaunchError {
    /// Where.
    pub step: Step,
    /// Why.
    pub error: Arc<Error>,
    /// What rollback came to; never replaces the error.
    pub rollback: Arc<Unwound>,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the launch failed at step {}", self.step)?;
        if !self.rollback.is_clean() {
            f.write_str("; rollback is not complete")?;
        }
        Ok(())
    }
}

impl StdError for LaunchError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.error)
    }
}

type Answer = Option<Result<Launched, LaunchError>>;

/// A launch under way; may be shared. Dropping it neither cancels nor waits.
#[derive(Clone, Debug)]
pub struct Ticket {
    run: RunId,
    attempt: AttemptId,
    cancel: CancelToken,
    answer: watch::Receiver<Answer>,
}

impl Ticket {
    pub(crate) fn new(
        run: RunId,
        attempt: AttemptId,
        cancel: CancelToken,
    ) -> (Self, watch::Sender<Answer>) {
        let (sender, answer) = watch::channel(None);
        (
            Self {
                run,
                attempt,
                cancel,
                answer,
            },
            sender,
        )
    }

    /// Returns the run to be.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the attempt.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Asks the launch to end; what it made is rolled back.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for the end of the launch, rollback included; every caller with its own deadline.
    ///
    /// # Errors
    ///
    /// The step, the reason, and what rollback came to.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again; the launch goes on.
    pub async fn wait(&self) -> Result<Launched, LaunchError> {
        let mut answer = self.answer.clone();
        let ended = answer
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|answer| answer.clone());
        ended.unwrap_or_else(|| {
            Err(LaunchError {
                step: Step::Reserve,
                error: Arc::new(Error::new(
                    ErrorKind::Panicked,
                    "the launch broke off; recovery takes back what it made",
                )),
                rollback: Arc::default(),
            })
        })
    }
}
