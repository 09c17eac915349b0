//! One case that is ready to be judged, whatever it is a case of.

use std::{
    any::Any,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    broken::Broken,
    fixture::Need,
    report::{Judged, Outcome, Report},
};

/// How long a case may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(100);

/// Whether a case is due.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    Due,
    /// What is judged says that it lacks this.
    Lacking(Need),
    /// It is declared not to hold, for that reason.
    Excepted(&'static str),
}

/// One case.
pub(super) struct Trial {
    pub(super) name: String,
    pub(super) sentence: &'static str,
    pub(super) standing: Standing,
    pub(super) run: Box<dyn Fn() -> BoxFuture<'static, Outcome> + Send + Sync>,
}

/// The cases of one suite for one subject, and the report that they fill.
pub(super) struct Suite {
    pub(super) trials: Vec<Trial>,
    pub(super) report: Mutex<Report>,
}

impl Suite {
    pub(super) fn note(&self, judged: Judged) {
        self.with_report(|report| report.cases.push(judged));
    }

    pub(super) fn with_report<T>(&self, work: impl FnOnce(&mut Report) -> T) -> T {
        work(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Judges every case, one after the other.
    pub(super) async fn judge_all(self) -> Report {
        for trial in &self.trials {
            let outcome = trial.judge().await;
            self.note(trial.judged(outcome));
        }
        self.report
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trial {
    pub(super) fn judged(&self, outcome: Outcome) -> Judged {
        Judged {
            name: self.name.clone(),
            sentence: self.sentence,
            outcome,
        }
    }

    /// Runs the case, if it is due; a declared exception is run as well, and must not hold.
    pub(super) async fn judge(&self) -> Outcome {
        match self.standing {
            Standing::Due => (self.run)().await,
            Standing::Lacking(need) => Outcome::Skipped(need),
            Standing::Excepted(why) => match (self.run)().await {
                Outcome::Failed(_) => Outcome::Excepted(why.to_owned()),
                _ => Outcome::Failed(
                    "it is declared as an exception and holds; take the declaration away"
                        .to_owned(),
                ),
            },
        }
    }
}

/// Runs a case within bounds; a panic in it stays there.
pub(super) async fn outcome(work: impl Future<Output = Result<(), Broken>>) -> Outcome {
    outcome_within(PATIENCE, work).await
}

/// The same with other bounds.
pub(super) async fn outcome_within(
    patience: Duration,
    work: impl Future<Output = Result<(), Broken>>,
) -> Outcome {
    let work = std::panic::AssertUnwindSafe(work).catch_unwind();
    match tokio::time::timeout(patience, work).await {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(Broken(why)))) => Outcome::Failed(why),
        Ok(Err(panic)) => Outcome::Failed(format!("a panic: {}", words(&*panic))),
        Err(_) => Outcome::Failed(format!("nothing happened within {patience:?}")),
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}
