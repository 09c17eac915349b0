//! How a call can go wrong.

use std::time::Duration;

use groundcrew_core::error::{Error, ErrorKind, ErrorReport};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How much of the data of an error is shown, in characters.
const MAX_DATA: usize = 1200;

/// The answer of a peer that refuses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its number; agents use the same ones for different things.
    #[serde(default)]
    pub code: i64,
    /// What it says.
    #[serde(default)]
    pub message: String,
    /// What it adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl Refusal {
    /// Makes one.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The answer to a method that is not known.
    pub fn unknown_method(method: &str) -> Self {
        Self::new(-32601, format!("method not found: {method}"))
    }

    /// Returns whether its text, or its data, holds these words.
    pub fn says(&self, words: &str) -> bool {
        self.message.contains(words)
            || self
                .data
                .as_ref()
                .is_some_and(|data| data.to_string().contains(words))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        if let Some(data) = &self.data {
            let data = data.to_string();
            let shown: String = data.chars().take(MAX_DATA).collect();
            write!(f, ": {shown}")?;
        }
        Ok(())
    }
}

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The peer answered with an error.
    #[error("the agent refused `{method}`: {refusal}")]
    Refused {
        /// The method.
        method: String,
        /// The answer.
        refusal: Refusal,
    },
    /// The time limit of the call passed: a deadline was exceeded.
    #[error("the agent did not answer `{method}` within {limit:?}: deadline exceeded")]
    TimedOut {
        /// The method.
        method: String,
        /// The limit.
        limit: Duration,
    },
    /// Somebody gave the call up.
    #[error("the call of `{method}` was cancelled")]
    Cancelled {
        /// The method.
        method: String,
    },
    /// The connection ended first.
    #[error("the agent was gone before it answered `{method}`")]
    Disconnected {
        /// The method.
        method: String,
        /// How the connection ended.
        why: ErrorReport,
    },
}

impl CallError {
    /// Returns the answer of a peer that refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

impl From<CallError> for Error {
    fn from(call: CallError) -> Self {
        let error = match &call {
            CallError::Refused { method, refusal } => {
                Self::new(ErrorKind::Protocol, "the agent refused a call")
                    .with("method", method)
                    .with("rpc_code", refusal.code)
                    .with("answer", &refusal.message)
            }
            CallError::TimedOut { method, limit } => {
                Self::new(ErrorKind::TimedOut, "the agent did not answer in time")
                    .with("method", method)
                    .with("limit", format!("{limit:?}"))
            }
            CallError::Cancelled { method } => {
                Self::new(ErrorKind::Cancelled, "the call was cancelled").with("method", method)
            }
            CallError::Disconnected { method, why } => {
                let mut error = Self::new(why.kind, why.message.clone())
                    .retryable(why.retryable)
                    .with("method", method);
                for (key, value) in &why.context {
                    error = error.with(key.clone(), value);
                }
                error
            }
        };
        error.with_source(call)
    }
}
