//! How a call of the command ended, and what it printed.

use std::{fmt, path::PathBuf};

use serde_json::Value;

/// How a call ended.
#[derive(Clone)]
pub(crate) struct Outcome {
    /// Its words, for messages.
    pub(crate) call: String,
    /// Its exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// What it printed.
    pub(crate) stdout: Vec<u8>,
    /// What it told.
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    /// Demands an exit code.
    #[track_caller]
    pub(crate) fn code(self, wanted: i32) -> Self {
        assert_eq!(self.code, Some(wanted), "{self:?}");
        self
    }

    /// Demands success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.code(0)
    }

    /// Returns standard output as text.
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns standard error as text.
    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Reads the one document on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.stdout) {
            Ok(document) => document,
            Err(error) => panic!("no document: {error}: {self:?}"),
        }
    }

    /// Reads the error document on standard output, without its wrapping.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let document = self.json();
        assert_eq!(document["schema_version"], 1, "{self:?}");
        assert!(document["error"].is_object(), "{self:?}");
        document["error"].clone()
    }

    /// Reads one event a line.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        self.out()
            .lines()
            .map(|line| match serde_json::from_str(line) {
                Ok(event) => event,
                Err(error) => panic!("no event: {error}: {line}: {self:?}"),
            })
            .collect()
    }

    /// Demands that everything it printed and told, taken together, contains some words.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        let all = self.out() + &self.err();
        assert!(all.contains(words), "does not say {words:?}: {self:?}");
        self
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 6000;
        let shown = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let cut: String = text.chars().take(MOST).collect();
            if cut.len() < text.len() {
                format!("{cut}… ({} bytes)", bytes.len())
            } else {
                cut
            }
        };
        write!(
            f,
            "`{}` ended with {:?}, signal {:?}\n--- stdout\n{}\n--- stderr\n{}\n---",
            self.call,
            self.code,
            self.signal,
            shown(&self.stdout),
            shown(&self.stderr)
        )
    }
}

/// Reads a string of a document.
#[track_caller]
pub(crate) fn text(value: &Value) -> &str {
    match value.as_str() {
        Some(text) => text,
        None => panic!("no string: {value}"),
    }
}

/// Reads a path of a document.
#[track_caller]
pub(crate) fn path(value: &Value) -> PathBuf {
    PathBuf::from(text(value))
}
