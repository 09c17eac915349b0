//! What is said between us and the program: one request, any number of remarks, one answer.
//!
//! Whatever the program says is data of a stranger: bounded, checked, and never believed where it can be asked again.

use std::path::PathBuf;

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::{Capabilities, InstanceSpec, Isolation},
    id::{InstallId, InstanceId},
    identity::{Identity, Presence},
    undo::Undone,
};
use groundcrew_supervisor::StartFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// What is asked for, as one line on the program's standard input.
#[derive(Debug, Serialize)]
pub(crate) struct Request<'a> {
    protocol: u32,
    pub(crate) verb: &'static str,
    install: &'a InstallId,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a InstanceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a InstanceSpec>,
    /// What the supervisor is to be started on; the program says where its socket and its logs are.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<&'a StartFile>,
    /// The program of the supervisor on this host; its `argv[0]` must be `groundcrew-supervisor`.
    supervisor: &'a std::path::Path,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        verb: &'static str,
        install: &'a InstallId,
        supervisor: &'a std::path::Path,
    ) -> Self {
        Self {
            protocol: VERSION,
            verb,
            install,
            instance: None,
            identity: None,
            spec: None,
            start: None,
            supervisor,
        }
    }

    pub(crate) fn of(mut self, instance: &'a InstanceId) -> Self {
        self.instance = Some(instance);
        self
    }

    pub(crate) fn known_as(mut self, identity: Option<&'a Identity>) -> Self {
        self.identity = identity;
        self
    }

    pub(crate) fn for_spec(mut self, spec: &'a InstanceSpec) -> Self {
        self.spec = Some(spec);
        self
    }

    pub(crate) fn starting(mut self, start: &'a StartFile) -> Self {
        self.start = Some(start);
        self
    }
}

/// One line of the program's standard output.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// What it is doing, for people.
    Progress(String),
    /// It holds what keeps others from the same instance, and waits for our word.
    Holding(bool),
    /// The answer.
    Ok(Value),
    /// It failed.
    Error(Failure),
}

/// Why the program failed.
#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    kind: Value,
    message: String,
    retryable: Option<bool>,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let named = failure.kind.to_string();
        let kind = serde_json::from_value(failure.kind).ok();
        let mut error = Self::new(kind.unwrap_or(ErrorKind::Unexpected), failure.message);
        if kind.is_none() {
            error = error.with("kind", named);
        }
        match failure.retryable {
            Some(yes) => error.retryable(yes),
            None => error,
        }
    }
}

/// The answer to `describe`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    protocol: u32,
    capabilities: Described,
    /// The directory for private files, as seen inside; `{instance}` stands for the instance.
    pub(crate) private_directory: String,
}

/// What the program can do; what it does not say it cannot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of its own"
)]
struct Described {
    isolation: Isolation,
    #[serde(default)]
    host_paths: bool,
    #[serde(default)]
    inherits_environment: bool,
    #[serde(default)]
    terminal: bool,
    #[serde(default)]
    detached: bool,
    #[serde(default)]
    limits: bool,
}

impl Description {
    /// Checks it.
    ///
    /// # Errors
    ///
    /// `Protocol` when it is of another version, or names no directory.
    pub(crate) fn check(&self) -> Result<Capabilities, Error> {
        if self.protocol != VERSION {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the program speaks another version of the protocol",
            )
            .with("program_speaks", self.protocol)
            .with("we_speak", VERSION));
        }
        if !self.private_directory.starts_with('/')
            || !self.private_directory.contains("{instance}")
        {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the directory for private files must be absolute and hold {instance}",
            )
            .with("private_directory", &self.private_directory));
        }
        let mut capabilities = Capabilities::host();
        let Described {
            isolation,
            host_paths,
            inherits_environment,
            terminal,
            detached,
            limits,
        } = self.capabilities;
        capabilities.isolation = isolation;
        capabilities.host_paths = host_paths;
        capabilities.inherits_environment = inherits_environment;
        capabilities.terminal = terminal;
        capabilities.detached = detached;
        capabilities.limits = limits;
        Ok(capabilities)
    }
}

/// The answer to `create`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made {
    pub(crate) identity: Identity,
}

/// The answer to `state`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "presence", deny_unknown_fields)]
pub(crate) enum Stated {
    Present { identity: Identity },
    Absent,
    Unknown { why: String },
}

impl From<Stated> for Presence {
    fn from(stated: Stated) -> Self {
        match stated {
            Stated::Present { identity } => Self::Present(identity),
            Stated::Absent => Self::Absent,
            Stated::Unknown { why } => Self::Unknown(why),
        }
    }
}

/// The answer to `delete`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "undone", deny_unknown_fields)]
pub(crate) enum Deleted {
    Removed,
    AlreadyGone,
    NotOurs { why: String },
}

impl From<Deleted> for Undone {
    fn from(deleted: Deleted) -> Self {
        match deleted {
            Deleted::Removed => Self::REMOVED,
            Deleted::AlreadyGone => Self::AlreadyGone,
            Deleted::NotOurs { why } => Self::NotOurs(why),
        }
    }
}

/// The answer to `connect`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reached {
    /// A command whose standard streams are a control connection; none if the instance is gone and only its logs are there.
    #[serde(default)]
    pub(crate) command: Option<Vec<String>>,
    /// The file that is executed, if it is not the one that the command names first.
    #[serde(default)]
    pub(crate) program: Option<PathBuf>,
    /// Where the logs of its processes are on this host, if they are.
    #[serde(default)]
    pub(crate) logs: Option<PathBuf>,
    /// The directory of the start file on this host, if it is on this host.
    #[serde(default)]
    pub(crate) directory: Option<PathBuf>,
}
