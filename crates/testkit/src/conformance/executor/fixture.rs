//! What the author of an executor says: the executor, what runs in its instances, what it lacks, and what is around it.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use groundcrew_core::{
    error::Error,
    executor::{Capabilities, Executor},
    wire::OsText,
};

use crate::conformance::{
    fixture::Need,
    programs::{Program, posix},
    trial::PATIENCE,
};

/// What looks around an executor and names what it finds.
pub(super) type Look =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<String>, Error>> + Send + Sync>;

/// An executor and what the suite has to know to judge it.
///
/// What is not said is what a host with a shell has: commands of [`posix`], a plain `PATH`, processes that work in the
/// workspace, and an executor with no options.
#[derive(Clone)]
pub struct ExecutorFixture {
    pub(super) executor: Arc<dyn Executor>,
    pub(super) options: serde_json::Map<String, serde_json::Value>,
    pub(super) command: fn(&Program<'_>) -> Vec<OsText>,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) directory: Option<PathBuf>,
    pub(super) missing: Vec<(Need, &'static str)>,
    pub(super) exceptions: Vec<(&'static str, &'static str)>,
    pub(super) leftovers: Option<Look>,
    pub(super) patience: Duration,
}

impl fmt::Debug for ExecutorFixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorFixture")
            .field("executor", &self.executor)
            .finish_non_exhaustive()
    }
}

impl ExecutorFixture {
    /// Begins with an executor.
    pub fn new(executor: Arc<dyn Executor>) -> Self {
        Self {
            executor,
            options: serde_json::Map::new(),
            command: posix,
            variables: vec![("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned())],
            directory: None,
            missing: Vec::new(),
            exceptions: Vec::new(),
            leftovers: None,
            patience: PATIENCE,
        }
    }

    /// Sets how long one case may take; 100 s without a word. What is slower fails.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets an option that every instance is made with, such as an image.
    #[must_use]
    pub fn with_option(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.options.insert(name.to_owned(), value.into());
        self
    }

    /// Sets how what a process does is written as a command.
    #[must_use]
    pub fn with_commands(mut self, command: fn(&Program<'_>) -> Vec<OsText>) -> Self {
        self.command = command;
        self
    }

    /// Sets the variables without which no command is found.
    #[must_use]
    pub fn with_variables(mut self, variables: Vec<(&'static str, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// Sets a directory inside in which processes work, where that is not the workspace.
    #[must_use]
    pub fn in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Says that instances lack something that no capability tells of, and why; cases that need it are listed as such.
    #[must_use]
    pub fn without(mut self, need: Need, why: &'static str) -> Self {
        self.missing.push((need, why));
        self
    }

    /// Says that a case is known not to hold, and why; it is run nevertheless, and fails once it holds.
    #[must_use]
    pub fn except(mut self, case: &'static str, why: &'static str) -> Self {
        self.exceptions.push((case, why));
        self
    }

    /// Sets what looks around the executor for what its instances left: containers, directories, rows.
    ///
    /// Processes of this machine and directories below the ground are looked for anyway.
    #[must_use]
    pub fn with_leftovers(
        mut self,
        look: impl Fn() -> BoxFuture<'static, Result<Vec<String>, Error>> + Send + Sync + 'static,
    ) -> Self {
        self.leftovers = Some(Arc::new(look));
        self
    }

    pub(super) fn has(&self, capabilities: &Capabilities, need: Need) -> bool {
        capability(capabilities, need)
            .unwrap_or_else(|| !self.missing.iter().any(|(missing, _)| *missing == need))
    }
}

/// Returns what the executor itself says of a need, if that is a capability.
pub(super) fn capability(capabilities: &Capabilities, need: Need) -> Option<bool> {
    match need {
        Need::Terminals => Some(capabilities.terminal),
        Need::Detached => Some(capabilities.detached),
        Need::HostPaths => Some(capabilities.host_paths),
        Need::Limits => Some(capabilities.limits),
        Need::Files | Need::Trees | Need::Damage | Need::Delivery => None,
    }
}
