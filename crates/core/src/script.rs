//! Scripts that ready a workspace before the agent starts, and clear up before it is taken away; data, no process.

use std::{
    path::{Component, Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    command::Command,
    error::{Error, ErrorKind},
    executor::Isolation,
    process::{
        DEFAULT_LOG_LIMIT, EnvironmentSource, Milliseconds, ProcessSpec, StdinPolicy, StdioKind,
        StopOrder,
    },
    wire,
    workspace::Workspace,
};

/// How long a setup script may run if nothing is said.
pub const SETUP_LIMIT: Duration = Duration::from_mins(10);
/// How long a teardown script may run if nothing is said.
pub const TEARDOWN_LIMIT: Duration = Duration::from_mins(1);

/// How long what a script started may take to end, when the script is ended.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The most bytes of a script's output that are kept: 16 MiB.
const LOG_LIMIT: u64 = DEFAULT_LOG_LIMIT >> 6;
/// The longest name of a script, in bytes.
const MAX_NAME_LEN: usize = 200;

/// One script: a process of the instance, with the run's own environment and no input.
///
/// * What it leaves running is ended when it ends: what is to serve the agent is started by the agent.
/// * Its output is in the log of its process, which outlives a failed launch as well, as long as logs are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// What people call it; in errors, events and reports.
    pub name: String,
    /// Its exact arguments; a shell runs it only if they say so.
    pub command: Command,
    /// Where it runs: a relative path in the workspace, which is its root if nothing is said.
    #[serde(with = "wire::optional_path", default)]
    pub directory: Option<PathBuf>,
    /// Whether its failure fails the launch; one that is not required is a warning. No meaning for teardown.
    pub required: bool,
    /// Ends it, and everything it started, this long after its start.
    #[serde(with = "wire::millis")]
    pub time_limit: Duration,
}

impl Script {
    /// Makes a required script that runs in the root of the workspace, for as long as a setup script may.
    pub fn new(name: impl Into<String>, command: Command) -> Self {
        Self {
            name: name.into(),
            command,
            directory: None,
            required: true,
            time_limit: SETUP_LIMIT,
        }
    }

    /// Checks what its type does not: its name, its directory and its time limit.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, naming the script.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |why: &'static str| {
            Err(Error::new(ErrorKind::InvalidInput, why).with("script", self.name.escape_debug()))
        };
        if self.name.is_empty() || self.name.len() > MAX_NAME_LEN {
            return wrong("the name of a script is empty or longer than 200 bytes");
        }
        if self.name.chars().any(char::is_control) {
            return wrong("the name of a script holds a control character");
        }
        if self.time_limit.is_zero() {
            return wrong("the time limit of a script is zero");
        }
        let inside = |path: &Path| {
            path.components()
                .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        match &self.directory {
            Some(path) if !inside(path) => {
                wrong("the directory of a script must be a relative path without `..`")
            }
            _ => Ok(()),
        }
    }

    /// Returns how it is started.
    pub(crate) fn process(&self, workspace: &Workspace, isolation: Isolation) -> ProcessSpec {
        let directory = self.directory.as_deref().unwrap_or(Path::new(""));
        ProcessSpec {
            command: self.command.clone(),
            directory: workspace.path.join(directory),
            environment: EnvironmentSource::Run(crate::env::Environment::new()),
            stdio: StdioKind::Pipes,
            stdin: StdinPolicy::Empty,
            idle_limit: None,
            time_limit: Some(Milliseconds(self.time_limit)),
            stop: StopOrder {
                grace: GRACE,
                ..StopOrder::default()
            },
            no_new_privileges: isolation != Isolation::Process,
            main: false,
            log_limit: LOG_LIMIT,
        }
    }
}

/// The scripts of a run, as its record remembers them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scripts {
    /// Those that ready the workspace.
    #[serde(default)]
    pub setup: Vec<Script>,
    /// Whether they have all run: else the workspace is half-built, and a resumption runs them again before anything else.
    #[serde(default)]
    pub set_up: bool,
    /// Those that clear up before the workspace is taken away.
    #[serde(default)]
    pub teardown: Vec<Script>,
}

impl Scripts {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.setup.is_empty() && self.teardown.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(name: &str) -> Script {
        Script::new(name, Command::new(["make"]).unwrap())
    }

    #[test]
    fn c22_what_is_wrong_with_a_script_is_told_with_its_name() {
        let placed = |path: &str| Script {
            directory: Some(path.into()),
            ..script("deps")
        };
        for fine in [script("deps"), placed("web"), placed("./a/b")] {
            fine.check().unwrap();
        }
        let endless = Script {
            time_limit: Duration::ZERO,
            ..script("deps")
        };
        for (wrong, word) in [
            (script(""), "name"),
            (script("a\nb"), "a\\nb"),
            (script(&"x".repeat(201)), "200"),
            (placed("../up"), ".."),
            (placed("a/../../up"), ".."),
            (placed("/etc"), "relative"),
            (endless, "time limit"),
        ] {
            let error = wrong.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn scripts_of_earlier_records_are_none_and_later_ones_come_back() {
        assert!(serde_json::from_str::<Scripts>("{}").unwrap().is_empty());
        let scripts = Scripts {
            setup: vec![script("deps")],
            set_up: true,
            teardown: vec![script("down")],
        };
        let text = serde_json::to_string(&scripts).unwrap();
        assert_eq!(serde_json::from_str::<Scripts>(&text).unwrap(), scripts);
    }
}
