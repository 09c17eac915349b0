//! Why a verb could not do what it was asked for, ready to be told and to become an exit code.

use groundcrew_core::{
    LaunchError, PlanError, Unwound,
    error::{Chain, Error, ErrorKind, ErrorReport},
};

use crate::{
    console::Console,
    documents::{Document, Failed, Failure, Rollback, RollbackItem},
    exit,
    text::printable,
};

/// Why a verb could not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failing {
    failure: Box<Failure>,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The words of the command line are wrong.
    Usage,
    /// Something failed; nothing is left behind.
    Failed(ErrorKind),
    /// A launch failed, and what it left behind is owned.
    Leftovers(ErrorKind),
    /// We were asked to leave at once.
    Called(u8),
}

impl Failing {
    /// The words of the command line are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            failure: Box::new(Failure {
                kind: ErrorKind::InvalidInput.as_str().to_owned(),
                message: message.into(),
                ..Failure::default()
            }),
            cause: Cause::Usage,
        }
    }

    /// We were asked, by a signal, to leave at once.
    pub(crate) fn called(message: impl Into<String>, code: u8) -> Self {
        Self {
            failure: Box::new(Failure {
                kind: ErrorKind::Cancelled.as_str().to_owned(),
                message: message.into(),
                ..Failure::default()
            }),
            cause: Cause::Called(code),
        }
    }

    /// Returns the exit code; `passes` is whether the verb passes its command's code through.
    pub(crate) const fn code(&self, passes: bool) -> u8 {
        match self.cause {
            Cause::Usage => exit::USAGE,
            Cause::Called(code) => code,
            Cause::Failed(kind) | Cause::Leftovers(kind) if passes => exit::of_launch_failure(kind),
            Cause::Failed(kind) => exit::of_failure(kind),
            Cause::Leftovers(_) => exit::LEFTOVERS,
        }
    }

    /// Tells it, in the format that was asked for.
    pub(crate) fn tell(&self, console: &Console) {
        tell(console, &self.failure);
        self.document(console);
    }

    /// Tells it to programs only.
    pub(crate) fn document(&self, console: &Console) {
        console.error(&Document::new(Failed {
            error: Failure::clone(&self.failure),
        }));
    }
}

fn tell(console: &Console, failure: &Failure) {
    let style = console.err_style;
    if failure.problems.len() > 1 {
        console.note(&format!(
            "{} {}",
            style.red("error:"),
            printable(&failure.message)
        ));
        for problem in &failure.problems {
            console.note(&format!("  - {}", in_words(problem)));
        }
    } else {
        console.note(&format!("{} {}", style.red("error:"), in_words(failure)));
    }
    let Some(rollback) = &failure.rollback else {
        return;
    };
    for item in &rollback.items {
        if !matches!(item.outcome.as_str(), "removed" | "already gone") {
            let text = format!("  {}: {}", item.what, item.outcome);
            console.note(&printable(&text));
        }
    }
    if !rollback.clean {
        console.note("what is left stays owned and is tried again; see `groundcrew ls` and `groundcrew recover`");
    }
}

/// Tells a failure in one line: the step, the message, then what it is about.
pub(crate) fn in_words(failure: &Failure) -> String {
    let mut text = String::new();
    if let Some(step) = &failure.step {
        text = format!("{step}: ");
    }
    text.push_str(&failure.message);
    for (key, value) in &failure.context {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), ToOwned::to_owned);
        text = format!("{text} [{key}={value}]");
    }
    printable(&text)
}

impl From<Error> for Failing {
    fn from(error: Error) -> Self {
        Self {
            failure: Box::new(Failure::from(&error)),
            cause: Cause::Failed(error.kind()),
        }
    }
}

impl From<std::io::Error> for Failing {
    fn from(error: std::io::Error) -> Self {
        Self::from(Error::io("the operating system refuses", error))
    }
}

impl From<&ErrorReport> for Failing {
    fn from(report: &ErrorReport) -> Self {
        Self {
            failure: Box::new(Failure::from(report)),
            cause: Cause::Failed(report.kind),
        }
    }
}

impl From<PlanError> for Failing {
    fn from(error: PlanError) -> Self {
        let problems: Vec<_> = error.problems.iter().map(Failure::from).collect();
        let cause = Cause::Failed(error.kind());
        let failure = match <[Failure; 1]>::try_from(problems) {
            Ok([only]) => only,
            Err(problems) => Failure {
                kind: error.kind().as_str().to_owned(),
                message: format!("the request has {} problems", problems.len()),
                problems,
                ..Failure::default()
            },
        };
        Self {
            failure: Box::new(failure),
            cause,
        }
    }
}

impl From<LaunchError> for Failing {
    fn from(error: LaunchError) -> Self {
        let kind = error.error.kind();
        let rollback = Rollback::from(&*error.rollback);
        let cause = if rollback.clean {
            Cause::Failed(kind)
        } else {
            Cause::Leftovers(kind)
        };
        let failure = Failure {
            step: Some(error.step.to_string()),
            rollback: Some(rollback),
            ..Failure::from(&*error.error)
        };
        Self {
            failure: Box::new(failure),
            cause,
        }
    }
}

impl From<&Unwound> for Rollback {
    fn from(unwound: &Unwound) -> Self {
        let items = unwound
            .outcomes
            .iter()
            .map(|(record, outcome)| RollbackItem {
                what: record.label.clone(),
                outcome: outcome.to_string(),
            });
        let unsettled = unwound.unsettled.iter().map(|error| RollbackItem {
            what: "the note of the rollback".to_owned(),
            outcome: Chain(&**error).to_string(),
        });
        Self {
            clean: unwound.is_clean(),
            items: items.chain(unsettled).collect(),
        }
    }
}
