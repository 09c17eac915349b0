//! The contract of an executor: a place where instances are made, chosen by name.

use std::{fmt, path::PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    id::{ExecutorName, InstallId, InstanceId, RunId, SessionId},
    identity::{Identity, Presence},
    instance::SharedInstance,
    process::Lease,
    secret::SecretValue,
    undo::Undone,
    wire,
};

/// How strongly an instance is separated from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// A process of the same user.
    Process,
    /// Namespaces on the same kernel.
    Container,
    /// A machine of its own.
    Machine,
}

/// What an executor can do; read once for each plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of its own; none excludes another"
)]
pub struct Capabilities {
    /// How strongly instances are separated from the host.
    pub isolation: Isolation,
    /// Whether host paths are the same inside, so that a workspace on the host is used where it is.
    pub host_paths: bool,
    /// Whether what may be inherited from the caller's environment is the weakest tier; else nothing of the host is.
    pub inherits_environment: bool,
    /// Whether processes can have a terminal.
    pub terminal: bool,
    /// Whether instances outlive the controller.
    pub detached: bool,
    /// Whether instances can be held to [`Limits`]; `check` tells which of them this machine lacks.
    pub limits: bool,
    /// Whether `create` returns secrets that a later controller needs; their removal is armed before.
    pub runtime_secrets: bool,
}

impl Capabilities {
    /// Returns the capabilities of an executor of host processes.
    pub const fn host() -> Self {
        Self {
            isolation: Isolation::Process,
            host_paths: true,
            inherits_environment: true,
            terminal: true,
            detached: true,
            limits: true,
            runtime_secrets: false,
        }
    }
}

/// How much of the machine an instance may use; what is none is not limited.
///
/// An executor that cannot hold an instance to one that is asked for refuses it in `check`; it is never left out silently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory, in bytes, of all its processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processors, in thousandths of one, of all its processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milli_cpus: Option<u64>,
    /// How many processes and threads it may have at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// How many descriptors each of its processes may have open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// How large a file each of its processes may write, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<u64>,
    /// How large a core file each of its processes may leave, in bytes; without a word none, until a process asks for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_size: Option<u64>,
}

impl Limits {
    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that each can be meant.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, naming the one under which no process could live.
    pub fn check(&self) -> Result<(), Error> {
        let least = [
            ("memory", self.memory, 1 << 20),
            ("milli_cpus", self.milli_cpus, 10),
            ("processes", self.processes, 1),
            ("open_files", self.open_files, 8),
        ];
        for (name, asked, least) in least {
            if let Some(asked) = asked.filter(|asked| *asked < least) {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "no process can live under this limit",
                )
                .with("limit", name)
                .with("asked", asked)
                .with("least", least));
            }
        }
        Ok(())
    }
}

/// What an instance may do with a path of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// Only read.
    Read,
    /// Read and write.
    Write,
}

/// A path of the host beside the workspace that the workspace does not work without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPath {
    /// Absolute; seen inside at the same place.
    #[serde(with = "wire::path")]
    pub path: PathBuf,
    /// What may be done there.
    pub access: PathAccess,
}

/// What to make an instance for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// The installation that owns it.
    pub install: InstallId,
    /// The run it is for.
    pub run: RunId,
    /// The session it is for.
    pub session: SessionId,
    /// The workspace on the host, where there is one.
    #[serde(with = "wire::optional_path", default)]
    pub workspace: Option<PathBuf>,
    /// What the workspace needs of the host beside itself, such as the git directory of a worktree; a later one that lies in
    /// an earlier one says what may be done there. An executor of host processes sees all of the host anyway.
    #[serde(default)]
    pub shared: Vec<SharedPath>,
    /// How long it lives without a controller until told otherwise.
    pub lease: Lease,
    /// How much of the machine it may use.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Options that only this executor reads.
    #[serde(default)]
    pub options: serde_json::Map<String, serde_json::Value>,
}

/// What `create` made.
#[derive(Clone, Debug)]
pub struct Created {
    /// Which one.
    pub identity: Identity,
    /// Tokens that a later controller needs, by name; stored by reference, and only if the capability says so.
    pub secrets: Vec<(String, SecretValue)>,
}

/// Whether an executor can be used now, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// What was found, a name and a value each, such as `cgroup` and `v2, cgroup.kill`.
    pub facts: Vec<(String, String)>,
    /// What is missing and what to do about it; works without.
    pub warnings: Vec<String>,
}

/// Where a step tells what it is doing.
pub trait Progress: Send + Sync {
    /// Tells it in one line; must not block.
    fn line(&self, line: &str);
}

/// A place where instances are made.
///
/// * Instance ids are the caller's; each verb may be called again, and undone without its answer.
/// * An executor knows nothing of preparers, sessions or stores.
#[async_trait]
pub trait Executor: fmt::Debug + Send + Sync + 'static {
    /// Returns its own name; the registry may offer it under others.
    fn name(&self) -> &ExecutorName;

    /// Returns what it can do.
    fn capabilities(&self) -> Capabilities;

    /// Checks a specification; touches nothing, refuses unknown options by name, and limits that it cannot hold an instance to.
    fn check(&self, spec: &InstanceSpec) -> Result<(), Error>;

    /// Returns the directory for private files of an instance, absolute, as seen inside it; touches nothing.
    ///
    /// * It is outside of every workspace, and goes with the instance; nobody but the instance's user can look into it.
    /// * It need not exist: what is handed over by `put_archive` makes it.
    fn private_directory(&self, id: &InstanceId) -> PathBuf;

    /// Finds out whether it can be used now.
    async fn probe(&self) -> Result<ProbeReport, Error>;

    /// Makes an instance: its supervisor is up, no process is started.
    ///
    /// * An id that is taken is `AlreadyExists`, and what has it is left alone.
    /// * A failure may leave a part behind, which `delete` takes away.
    async fn create(
        &self,
        id: &InstanceId,
        spec: &InstanceSpec,
        progress: &dyn Progress,
    ) -> Result<Created, Error>;

    /// Reaches an instance, also one that another process made.
    ///
    /// * An instance that has ended is reached as long as its logs are kept; see [`Instance`](crate::instance::Instance).
    /// * One that never was is `NotFound`.
    async fn connect(&self, id: &InstanceId) -> Result<SharedInstance, Error>;

    /// Removes an instance, running or not, with everything that runs in it; logs of its processes are kept for a while.
    ///
    /// * None there is success: `AlreadyGone`.
    /// * One of that name with another identity is left alone: `NotOurs`.
    /// * What cannot be ended is an error that names it.
    async fn delete(&self, id: &InstanceId, identity: Option<&Identity>) -> Result<Undone, Error>;

    /// Tells whether an instance, or a part of one, exists.
    async fn state(&self, id: &InstanceId) -> Result<Presence, Error>;

    /// Lists the instances of this installation; an incomplete list is an error.
    async fn list(&self) -> Result<Vec<InstanceId>, Error>;
}
