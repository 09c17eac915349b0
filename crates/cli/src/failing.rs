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
    /// We were asked to leave by a signal; this is the code for it.
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

    /// A launch was cancelled by a signal.
    pub(crate) fn cancelled(error: LaunchError, code: u8) -> Self {
        let failing = Self::from(error);
        Self {
            cause: match failing.cause {
                // It would have failed anyway.
                Cause::Failed(kind) if kind != ErrorKind::Cancelled => failing.cause,
                _ => Cause::Called(code),
            },
            ..failing
        }
    }

    /// Returns whether it has that code in its context.
    pub(crate) fn says(&self, code: &str) -> bool {
        self.failure
            .context
            .get("code")
            .and_then(|found| found.as_str())
            == Some(code)
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
        self.narrate(console);
        self.document(console);
    }

    /// Tells it to people only.
    pub(crate) fn narrate(&self, console: &Console) {
        tell(console, &self.failure);
    }

    /// Returns it as documents show it.
    pub(crate) const fn failure(&self) -> &Failure {
        &self.failure
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

/// Everything that is wrong, found at once.
impl From<Vec<Error>> for Failing {
    fn from(problems: Vec<Error>) -> Self {
        let conflicts = Vec::new();
        PlanError {
            problems,
            conflicts,
        }
        .into()
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

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::event::Step;
    use std::sync::Arc;

    fn launch_error(kind: ErrorKind) -> LaunchError {
        LaunchError {
            step: Step::Create,
            error: Arc::new(Error::new(kind, "no").with("path", "/x")),
            rollback: Arc::default(),
        }
    }

    #[test]
    fn a_cancelled_launch_has_the_code_of_the_signal_and_a_failed_one_its_own() {
        let failing = Failing::cancelled(launch_error(ErrorKind::Cancelled), 130);
        assert_eq!(failing.code(true), 130);
        let failing = Failing::cancelled(launch_error(ErrorKind::ProgramNotFound), 130);
        assert_eq!(failing.code(true), 127);
        assert_eq!(
            Failing::from(launch_error(ErrorKind::TimedOut)).code(true),
            125
        );
    }

    #[test]
    fn leftovers_have_a_code_of_their_own_where_no_code_is_passed_through() {
        let unwound = Unwound {
            unsettled: Some(Arc::new(Error::new(ErrorKind::ResourceExhausted, "full"))),
            ..Unwound::default()
        };
        let error = LaunchError {
            rollback: Arc::new(unwound),
            ..launch_error(ErrorKind::TimedOut)
        };
        let failing = Failing::from(error);
        assert_eq!((failing.code(true), failing.code(false)), (125, 5));
        let rollback = failing.failure.rollback.as_ref().unwrap();
        assert!(!rollback.clean && rollback.items.len() == 1);
    }

    #[test]
    fn several_problems_are_told_at_once() {
        let problem = |text: &'static str| Error::new(ErrorKind::InvalidInput, text);
        let one = PlanError::from(problem("a\x1b[2J"));
        assert_eq!(in_words(&Failing::from(one).failure), "a\\u{1b}[2J");
        let two = PlanError {
            problems: vec![problem("a"), problem("b")],
            conflicts: Vec::new(),
        };
        let failing = Failing::from(two);
        assert_eq!(failing.failure.problems.len(), 2);
        assert_eq!(failing.failure.message, "the request has 2 problems");
    }

    #[test]
    fn a_failure_in_words_names_step_and_context() {
        let failing = Failing::from(launch_error(ErrorKind::TimedOut));
        assert_eq!(in_words(&failing.failure), "create: no [path=/x]");
    }
}
