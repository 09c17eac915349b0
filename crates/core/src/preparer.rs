//! The contract of a preparer: it readies files and variables before and inside an instance.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    cancel::CancelToken,
    env::Definition,
    error::Error,
    executor::{Progress, SharedPath},
    id::{AttemptId, InstallId, PreparerName, RunId},
    identity::{Identity, Presence},
    instance::Instance,
    request::LaunchRequest,
    undo::{Assessment, Component, Due, INSTANCE_KEY, UndoOptions, UndoRecord, Undone},
    workspace::{Finding, Workspace, WorkspaceReport},
};

/// What a preparer plans with.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    /// The request.
    pub request: &'a LaunchRequest,
    /// The installation: the mark on what is made.
    pub install: &'a InstallId,
    /// The run to be; its random id makes names unique.
    pub run: &'a RunId,
    /// The attempt: the mark on what is made.
    pub attempt: AttemptId,
}

/// A resource that a preparer is about to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedResource {
    /// Its name within the contribution, such as `worktree`.
    pub key: String,
    /// The resource in the preparer's own words; what `undo` gets.
    pub resource: String,
    /// What it is, for people.
    pub label: String,
    /// When it is taken away.
    pub due: Due,
    /// Keys of this contribution that must be gone before; every one waits for the instance as well.
    pub depends_on: Vec<String>,
}

impl PlannedResource {
    /// Returns what the attempt is armed with; nothing that an instance may still use goes before the instance.
    pub(crate) fn record(
        &self,
        preparer: &PreparerName,
        attempt: AttemptId,
        identity: Option<Identity>,
    ) -> UndoRecord {
        let mut depends_on = self.depends_on.clone();
        depends_on.push(INSTANCE_KEY.to_owned());
        UndoRecord {
            key: self.key.clone(),
            attempt,
            component: Component::Preparer(preparer.clone()),
            resource: self.resource.clone(),
            label: self.label.clone(),
            due: self.due,
            depends_on,
            identity,
        }
    }
}

/// What a preparer will do; made by reading only.
#[derive(Clone, Debug, Default)]
pub struct Contribution {
    /// The workspace, if it makes or picks the workspace of the run.
    pub workspace: Option<Workspace>,
    /// What the workspace needs of the host beside itself; instances that are separated from the host get nothing else.
    pub shared: Vec<SharedPath>,
    /// Variables.
    pub environment: Vec<Definition>,
    /// Every resource it will make, in the order of making; all are armed in one transaction before any step.
    pub resources: Vec<PlannedResource>,
    /// What a person should know, such as changes that are not taken along.
    pub warnings: Vec<String>,
    /// What `apply` needs, in the preparer's own words.
    pub state: String,
}

/// Where a preparer makes its effects known while it makes them.
#[async_trait]
pub trait Effects: Send + Sync {
    /// Stores which thing a planned resource turned out to be.
    async fn identify(&self, key: &str, identity: Identity) -> Result<(), Error>;

    /// Marks a point between two effects, by name; where tests fail or die.
    async fn checkpoint(&self, name: &str) -> Result<(), Error>;
}

/// What a preparer applies with.
#[derive(Clone, Copy)]
pub struct ApplyContext<'a> {
    /// What was planned with.
    pub plan: PlanContext<'a>,
    /// What was planned.
    pub contribution: &'a Contribution,
    /// Where effects are made known.
    pub effects: &'a dyn Effects,
    /// Where progress is told.
    pub progress: &'a dyn Progress,
    /// Asks for an early end; what is under way is brought to a state that `undo` understands, then `Cancelled` is returned.
    pub cancel: &'a CancelToken,
}

impl fmt::Debug for ApplyContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyContext")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// A resource that carries this installation's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The attempt whose mark it carries, where it can be read.
    pub attempt: Option<AttemptId>,
    /// What it is, for people.
    pub label: String,
}

/// Readies files and variables.
///
/// * `plan` says, `apply` does; what is made was planned, and so armed, before.
/// * `undo` may run in another process, twice, or after a half-made `apply`.
#[async_trait]
pub trait Preparer: fmt::Debug + Send + Sync + 'static {
    /// Returns its name.
    fn name(&self) -> &PreparerName;

    /// Says what it will do; `None` if the request does not concern it.
    ///
    /// * Reads only; the same request gives the same answer while nothing else changes.
    /// * What is wrong with the request is told here: a missing base, a taken branch.
    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error>;

    /// Finds the workspace of an earlier run again; makes nothing.
    ///
    /// * A workspace that is gone, or is not what was made, is an error that says so; no other is taken instead.
    /// * The contribution has variables and warnings, no resources.
    /// * What is gone and can be made again of what is left is no error: the state then says how, and `ensure` does it.
    async fn reopen(
        &self,
        workspace: &Workspace,
        cx: PlanContext<'_>,
    ) -> Result<Contribution, Error>;

    /// Makes the workspace of an earlier run whole again; `owned` are the records that stand for it.
    ///
    /// * Is asked only where `reopen` gave a state; nothing that is there is replaced.
    /// * What is made is what these records name, and so needs no others; `effects` identifies them anew.
    async fn ensure(&self, owned: &[UndoRecord], cx: ApplyContext<'_>) -> Result<(), Error>;

    /// Makes what was planned.
    async fn apply(&self, cx: ApplyContext<'_>) -> Result<(), Error>;

    /// Fills an instance's own storage, through the instance.
    async fn populate(&self, cx: ApplyContext<'_>, instance: &dyn Instance) -> Result<(), Error>;

    /// Brings the work of a resource to where it is looked for, such as a branch to its repository, when the agent of a run
    /// ended and the resource stays.
    ///
    /// * Is asked again at each such end, and after a crash; takes nothing away, and replaces nothing that others made.
    /// * Returns what stands against it: the work then stays where it is, and the run says why.
    ///
    /// What has all work in its place already has nothing to do here.
    async fn deliver(&self, record: &UndoRecord) -> Result<Vec<Finding>, Error> {
        let _in_its_place = record;
        Ok(Vec::new())
    }

    /// Says what removing a resource would mean; reads only.
    async fn assess(&self, record: &UndoRecord, options: UndoOptions) -> Result<Assessment, Error>;

    /// Takes a resource away.
    ///
    /// * Only what carries the attempt's mark and, where known, has the recorded identity; else `NotOurs`.
    /// * Gone already is `AlreadyGone`; work that would be lost is `Kept`, also on failure.
    /// * With `force` the work is saved in a snapshot first; what cannot be saved is `Kept`.
    async fn undo(&self, record: &UndoRecord, options: UndoOptions) -> Result<Undone, Error>;

    /// Tells whether a resource exists.
    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error>;

    /// Lists what carries this installation's mark, whether or not anybody remembers it; an incomplete list is an error.
    async fn list(&self) -> Result<Vec<Found>, Error>;

    /// Tells what a workspace holds; reads only.
    async fn report(&self, workspace: &Workspace) -> Result<WorkspaceReport, Error>;
}
