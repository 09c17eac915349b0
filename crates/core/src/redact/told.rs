//! Hides secrets in what a launch tells: errors and events.
//!
//! It must never pass on the source of an error as it is: its `Debug` may show more than its text.

use std::{path::PathBuf, sync::Arc};

use super::redactor::Redactor;
use crate::{
    error::{Error, ErrorReport},
    event::EventKind,
    process::Started,
    undo::Undone,
    unwind::Outcome,
    workspace::Finding,
};

impl Redactor {
    /// Hides the secrets in an error; kind and whether to try again stay, sources become one text.
    ///
    /// Without anything to hide the error stays as it is.
    #[must_use]
    pub fn error(&self, error: Error) -> Error {
        if self.is_empty() {
            return error;
        }
        Error::from(self.report(ErrorReport::from(&error)))
    }

    /// Hides the secrets in an error that was made ready to be stored or sent.
    #[must_use]
    pub fn report(&self, report: ErrorReport) -> ErrorReport {
        ErrorReport {
            kind: report.kind,
            message: self.text(report.message),
            context: report
                .context
                .into_iter()
                .map(|(key, value)| (self.text(key), self.text(value)))
                .collect(),
            retryable: report.retryable,
            sources: self.texts(report.sources),
        }
    }

    /// Hides the secrets in an event: in every text that is not a checked name.
    #[must_use]
    pub fn event(&self, kind: EventKind) -> EventKind {
        if self.is_empty() {
            return kind;
        }
        match kind {
            EventKind::Warning(text) => EventKind::Warning(self.text(text)),
            EventKind::StepProgress(step, line) => EventKind::StepProgress(step, self.text(line)),
            EventKind::Undo(label, outcome) => {
                EventKind::Undo(self.text(label), self.outcome(outcome))
            }
            EventKind::AgentStarted(Started { program, pid }) => EventKind::AgentStarted(Started {
                program: PathBuf::from(self.redact_os(program.as_os_str()).into_owned()),
                pid,
            }),
            // Names, kinds and numbers. A new event has to be put here or above: there is no rest.
            kind @ (EventKind::StepStarted(_)
            | EventKind::StepFinished(..)
            | EventKind::StepFailed(..)
            | EventKind::RollbackStarted(_)
            | EventKind::Launched
            | EventKind::RolledBack { .. }) => kind,
        }
    }

    /// Hides the secrets in what became of a record.
    #[must_use]
    pub fn outcome(&self, outcome: Outcome) -> Outcome {
        if self.is_empty() {
            return outcome;
        }
        match outcome {
            Outcome::Done(undone) => Outcome::Done(match undone {
                Undone::Removed { snapshot } => Undone::Removed {
                    snapshot: snapshot.map(|text| self.text(text)),
                },
                Undone::AlreadyGone => Undone::AlreadyGone,
                Undone::Kept(findings) => {
                    Undone::Kept(findings.into_iter().map(|f| self.finding(f)).collect())
                }
                Undone::NotOurs(why) => Undone::NotOurs(self.text(why)),
            }),
            Outcome::HeldByKept(key) => Outcome::HeldByKept(self.text(key)),
            Outcome::HeldByStuck(key) => Outcome::HeldByStuck(self.text(key)),
            Outcome::Stuck(error) => Outcome::Stuck(Arc::new(Error::from(
                self.report(ErrorReport::from(&*error)),
            ))),
        }
    }

    /// Hides the secrets in a reason to keep something, such as the name of a file.
    #[must_use]
    pub fn finding(&self, finding: Finding) -> Finding {
        Finding {
            what: self.text(finding.what),
            items: self.texts(finding.items),
            count: finding.count,
        }
    }

    fn text(&self, text: String) -> String {
        match self.redact_str(&text) {
            std::borrow::Cow::Borrowed(_) => text,
            std::borrow::Cow::Owned(masked) => masked,
        }
    }

    fn texts(&self, texts: Vec<String>) -> Vec<String> {
        texts.into_iter().map(|text| self.text(text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;
    use crate::{error::ErrorKind, event::Step, secret::SecretValue};

    const CANARY: &str = "canary-7f3a9";

    fn hiding() -> Redactor {
        Redactor::new([SecretValue::new(CANARY)]).unwrap()
    }

    fn error() -> Error {
        let source = Error::new(ErrorKind::NotFound, "inner")
            .with("url", format_args!("https://u:{CANARY}@h"))
            .with_source(io::Error::other(format!("no {CANARY} there")));
        Error::new(ErrorKind::Unavailable, format!("refused {CANARY}"))
            .with("argument", CANARY)
            .with("path", "/x")
            .with_source(source)
            .retryable(false)
    }

    fn assert_hidden(shown: &impl fmt::Debug) {
        let shown = format!("{shown:?}");
        assert!(
            !shown.contains("canary") && shown.contains("***"),
            "{shown}"
        );
    }

    #[test]
    fn f144_an_error_keeps_its_kind_and_loses_its_secrets() {
        let masked = hiding().error(error());
        assert_hidden(&masked);
        assert_eq!(masked.kind(), ErrorKind::Unavailable);
        assert!(!masked.is_retryable());
        assert_eq!(masked.get("path"), Some("/x"));
        assert_eq!(
            crate::error::Chain(&masked).to_string(),
            "refused *** [argument=***] [path=/x]: inner [url=https://u:***@h]: no *** there"
        );
    }

    #[test]
    fn f144_the_source_of_an_error_is_never_passed_on() {
        /// Shows more to a developer than to a person.
        #[derive(Debug)]
        struct Talkative(#[expect(dead_code, reason = "only its Debug reads it")] &'static str);
        impl fmt::Display for Talkative {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no")
            }
        }
        impl std::error::Error for Talkative {}
        let error = Error::new(ErrorKind::Unexpected, "failed").with_source(Talkative(CANARY));
        assert!(format!("{error:?}").contains(CANARY));
        assert!(!format!("{:?}", hiding().error(error)).contains(CANARY));
    }

    #[test]
    fn f144_every_text_of_an_event_is_hidden() {
        let label = || format!("worktree /a/{CANARY}");
        let undo = |outcome| EventKind::Undo("x".to_owned(), outcome);
        let finding = Finding {
            what: "untracked".to_owned(),
            items: vec![label()],
            count: 1,
        };
        for event in [
            EventKind::Warning(label()),
            EventKind::StepProgress(Step::Setup, label()),
            EventKind::Undo(label(), Outcome::Done(Undone::AlreadyGone)),
            EventKind::AgentStarted(Started {
                program: label().into(),
                pid: 1,
            }),
            undo(Outcome::Done(Undone::Removed {
                snapshot: Some(label()),
            })),
            undo(Outcome::Done(Undone::Kept(vec![finding]))),
            undo(Outcome::Done(Undone::NotOurs(label()))),
            undo(Outcome::HeldByKept(label())),
            undo(Outcome::HeldByStuck(label())),
            undo(Outcome::Stuck(Arc::new(error()))),
        ] {
            assert_hidden(&hiding().event(event));
        }
        let quiet = EventKind::StepFailed(Step::Setup, ErrorKind::TimedOut);
        assert!(matches!(
            hiding().event(quiet),
            EventKind::StepFailed(Step::Setup, ErrorKind::TimedOut)
        ));
    }
}
