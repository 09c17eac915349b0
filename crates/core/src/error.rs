//! The one error that crosses a plug-in boundary: a kind for the program, a message for the person, a source for the chain.
//!
//! It never holds a secret: context values are names, paths and numbers.

use std::{borrow::Cow, error::Error as StdError, fmt};

use serde::{Deserialize, Serialize};

/// What a program can decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself is wrong.
    InvalidInput,
    /// The component lacks a capability that the request needs.
    Unsupported,
    /// The named thing does not exist.
    NotFound,
    /// More than one thing has that name.
    Ambiguous,
    /// The name is taken.
    AlreadyExists,
    /// The session has a run, or is being worked on, already.
    SessionBusy,
    /// Something is at work that must not be disturbed.
    Busy,
    /// The operating system or a policy refuses.
    PermissionDenied,
    /// The component cannot be reached or used now.
    Unavailable,
    /// Too many undos of this class are pending; no new launch of it is admitted.
    Backpressure,
    /// A deadline passed.
    TimedOut,
    /// Somebody asked for an end.
    Cancelled,
    /// A secret could not be revealed.
    SecretUnavailable,
    /// The program to be started does not exist.
    ProgramNotFound,
    /// The program exists, the interpreter that its first line names does not.
    InterpreterNotFound,
    /// The working directory of the process does not exist.
    DirectoryNotFound,
    /// The program exists and cannot be executed.
    NotExecutable,
    /// A limit of the kernel or of the request is exceeded.
    TooLarge,
    /// Memory, processes, descriptors or disk space ran out.
    ResourceExhausted,
    /// The other side speaks another version or nonsense.
    Protocol,
    /// Removing it would lose work.
    WouldLoseWork,
    /// The session, the task or its directory ended meanwhile.
    SessionEnded,
    /// The row was changed by somebody else meanwhile.
    Conflict,
    /// A script that was required ended with an error, by its time limit, or could not be started.
    ScriptFailed,
    /// The agent ended before it was ready.
    AgentEnded,
    /// What is stored is damaged or of an unknown version.
    Corrupt,
    /// The component panicked.
    Panicked,
    /// Anything else.
    Unexpected,
}

impl ErrorKind {
    /// Returns the name that documents use, such as `invalid_input`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::Unsupported => "unsupported",
            Self::NotFound => "not_found",
            Self::Ambiguous => "ambiguous",
            Self::AlreadyExists => "already_exists",
            Self::SessionBusy => "session_busy",
            Self::Busy => "busy",
            Self::PermissionDenied => "permission_denied",
            Self::Unavailable => "unavailable",
            Self::Backpressure => "backpressure",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::SecretUnavailable => "secret_unavailable",
            Self::ProgramNotFound => "program_not_found",
            Self::InterpreterNotFound => "interpreter_not_found",
            Self::DirectoryNotFound => "directory_not_found",
            Self::NotExecutable => "not_executable",
            Self::TooLarge => "too_large",
            Self::ResourceExhausted => "resource_exhausted",
            Self::Protocol => "protocol",
            Self::WouldLoseWork => "would_lose_work",
            Self::SessionEnded => "session_ended",
            Self::Conflict => "conflict",
            Self::ScriptFailed => "script_failed",
            Self::AgentEnded => "agent_ended",
            Self::Corrupt => "corrupt",
            Self::Panicked => "panicked",
            Self::Unexpected => "unexpected",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

type Source = Box<dyn StdError + Send + Sync>;

/// An error of an executor, a preparer, a store, or of the engine itself.
///
/// * `Display` is one line: the message, then `[key=value]` for each piece of context; never the source.
/// * [`Chain`] prints the sources as well.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    context: Vec<(Cow<'static, str>, String)>,
    retryable: bool,
    source: Option<Source>,
}

impl Error {
    /// Creates an error; `message` is a lower-case fragment without a period that names the thing.
    ///
    /// `Unavailable`, `TimedOut` and `ResourceExhausted` start out as retryable.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let retryable = matches!(
            kind,
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::ResourceExhausted
        );
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            context: Vec::new(),
            retryable,
            source: None,
        }))
    }

    /// Creates an error of an operation of the operating system, with the kind that its code suggests.
    pub fn io(message: impl Into<Cow<'static, str>>, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match source.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::PermissionDenied,
            Io::AlreadyExists => ErrorKind::AlreadyExists,
            Io::StorageFull | Io::QuotaExceeded | Io::OutOfMemory => ErrorKind::ResourceExhausted,
            // Too many open files, here or on the whole machine; the standard library has no kind for them.
            _ if matches!(source.raw_os_error(), Some(23 | 24)) => ErrorKind::ResourceExhausted,
            Io::TimedOut => ErrorKind::TimedOut,
            Io::ConnectionRefused | Io::ConnectionReset | Io::BrokenPipe | Io::NotConnected => {
                ErrorKind::Unavailable
            }
            _ => ErrorKind::Unexpected,
        };
        Self::new(kind, message).with_source(source)
    }

    /// Adds a key and a value; never a secret.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, value: impl fmt::Display) -> Self {
        self.0.context.push((key.into(), value.to_string()));
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Overrides whether trying again can help.
    #[must_use]
    pub fn retryable(mut self, yes: bool) -> Self {
        self.0.retryable = yes;
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message without context and source.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the context in the order it was added.
    pub fn context(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .context
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_str()))
    }

    /// Returns the value of one piece of context.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.context()
            .find(|(k, _)| *k == key)
            .map(|(_, value)| value)
    }

    /// Returns whether trying again can help.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (key, value) in &self.0.context {
            write!(f, " [{key}={value}]")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("context", &self.0.context)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Shows an error and its sources, joined by `": "`.
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn StdError + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(source) = next {
            write!(f, ": {source}")?;
            next = source.source();
        }
        Ok(())
    }
}

/// An error in a form that can be stored and sent; sources are flattened into text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// The kind.
    pub kind: ErrorKind,
    /// The message, without context.
    pub message: String,
    /// Context, in order.
    #[serde(default)]
    pub context: Vec<(String, String)>,
    /// Whether trying again can help.
    #[serde(default)]
    pub retryable: bool,
    /// The sources, outermost first.
    #[serde(default)]
    pub sources: Vec<String>,
}

impl From<&Error> for ErrorReport {
    fn from(error: &Error) -> Self {
        let mut sources = Vec::new();
        let mut next = error.source();
        while let Some(source) = next {
            sources.push(source.to_string());
            next = source.source();
        }
        Self {
            kind: error.kind(),
            message: error.message().to_owned(),
            context: error
                .context()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
            retryable: error.is_retryable(),
            sources,
        }
    }
}

impl From<ErrorReport> for Error {
    fn from(report: ErrorReport) -> Self {
        let mut error = Self::new(report.kind, report.message).retryable(report.retryable);
        for (key, value) in report.context {
            error = error.with(key, value);
        }
        if report.sources.is_empty() {
            error
        } else {
            error.with_source(report.sources.join(": "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_wire() {
        let error = Error::io(
            "failed to open the log",
            std::io::Error::from(std::io::ErrorKind::StorageFull),
        )
        .with("path", "/x");
        let report = ErrorReport::from(&error);
        let text = serde_json::to_string(&report).unwrap();
        let back = Error::from(serde_json::from_str::<ErrorReport>(&text).unwrap());
        assert_eq!(back.kind(), ErrorKind::ResourceExhausted);
        assert_eq!(back.get("path"), Some("/x"));
        assert!(back.is_retryable());
        assert!(
            Chain(&back)
                .to_string()
                .starts_with("failed to open the log [path=/x]: ")
        );
    }

    #[test]
    fn every_kind_has_the_name_that_serde_gives_it() {
        for kind in [
            ErrorKind::InvalidInput,
            ErrorKind::WouldLoseWork,
            ErrorKind::SessionBusy,
            ErrorKind::Busy,
            ErrorKind::TimedOut,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
