//! Undo records: what may have to be taken away, as plain data that outlives the process.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{id::AttemptId, identity::Identity, workspace::Finding};

/// The key of the undo record of the secrets that an executor returns.
pub const RUNTIME_SECRETS_KEY: &str = "runtime-secrets";

/// The key of the undo record of an attempt's instance.
pub const INSTANCE_KEY: &str = "instance";

/// Why things are being taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// The agent ended or was stopped.
    End,
    /// The run is closed; its branch stays.
    Close,
    /// The run is removed, with its branch.
    Remove,
    /// The launch failed.
    Failure,
}

/// On which occasions a record is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// When the launch fails, the agent ends, or later.
    End,
    /// When the launch fails, the run is closed, or removed.
    Close,
    /// When the launch fails, or the run is removed.
    Remove,
    /// Only when the launch fails.
    Failure,
}

impl Due {
    /// Returns whether a record with this due is taken away on `occasion`.
    pub const fn on(self, occasion: Occasion) -> bool {
        match occasion {
            Occasion::Failure => true,
            Occasion::Remove => matches!(self, Self::End | Self::Close | Self::Remove),
            Occasion::Close => matches!(self, Self::End | Self::Close),
            Occasion::End => matches!(self, Self::End),
        }
    }
}

/// Who can take a resource away.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "name")]
#[non_exhaustive]
pub enum Component {
    /// The executor registered under that name.
    Executor(crate::id::ExecutorName),
    /// An instance of the executor registered under that name; the resource is `INSTANCE/PROCESS`, a process in it.
    Process(crate::id::ExecutorName),
    /// The preparer registered under that name.
    Preparer(crate::id::PreparerName),
    /// The place of secrets that executors return; the resource is the attempt.
    RuntimeSecrets,
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executor(name) => write!(f, "executor {name}"),
            Self::Process(name) => write!(f, "process of executor {name}"),
            Self::Preparer(name) => write!(f, "preparer {name}"),
            Self::RuntimeSecrets => f.write_str("runtime secrets"),
        }
    }
}

/// One resource that an attempt is about to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoRecord {
    /// Its name within the attempt, such as `worktree`.
    pub key: String,
    /// The attempt; its mark is on the resource.
    pub attempt: AttemptId,
    /// Who can take it away.
    pub component: Component,
    /// The resource, in that component's own words, such as JSON; read by nobody else.
    pub resource: String,
    /// What it is, for people, such as `worktree /a/b`.
    pub label: String,
    /// When it is taken away.
    pub due: Due,
    /// The keys of records that must be gone before; a stuck one holds this one.
    pub depends_on: Vec<String>,
    /// Which one it is, once known.
    pub identity: Option<Identity>,
}

impl fmt::Display for UndoRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// What taking a resource away came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Undone {
    /// It was there and is not any more.
    Removed {
        /// The ref that keeps what it held, if it was removed by force.
        snapshot: Option<String>,
    },
    /// There was none.
    AlreadyGone,
    /// It was kept on purpose: removing it would lose these.
    Kept(Vec<Finding>),
    /// What has its name is another's, for this reason; it is left alone.
    NotOurs(String),
}

impl Undone {
    /// Removed, with nothing to remember.
    pub const REMOVED: Self = Self::Removed { snapshot: None };
}

/// How a resource is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoOptions {
    /// Why.
    pub occasion: Occasion,
    /// Whether work that would be lost is first saved in a snapshot and then removed, instead of kept.
    pub force: bool,
}

/// What removing a resource would mean; found by reading only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Whether anything was changed since it was made.
    pub changed: bool,
    /// What would be lost; empty if it can be removed.
    pub losses: Vec<Finding>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_list_serves_failure_end_close_and_removal() {
        let due = |occasion| {
            [Due::End, Due::Close, Due::Remove, Due::Failure].map(|due| due.on(occasion))
        };
        assert_eq!(due(Occasion::End), [true, false, false, false]);
        assert_eq!(due(Occasion::Close), [true, true, false, false]);
        assert_eq!(due(Occasion::Remove), [true, true, true, false]);
        assert_eq!(due(Occasion::Failure), [true, true, true, true]);
    }
}
