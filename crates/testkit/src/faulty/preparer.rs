//! A preparer whose verbs go wrong as told.

use std::sync::Arc;

use async_trait::async_trait;
use groundcrew_core::{
    error::Error,
    id::PreparerName,
    identity::Presence,
    instance::Instance,
    preparer::{ApplyContext, Contribution, Found, PlanContext, Preparer},
    undo::{Assessment, UndoOptions, UndoRecord, Undone},
    workspace::{Finding, Workspace, WorkspaceReport},
};

use super::verbs::VerbFaults;

/// Wraps a preparer; a late `undo` outlives its caller, a late `apply` does not, because it borrows from it.
#[derive(Clone, Debug)]
pub struct FaultyPreparer {
    inner: Arc<dyn Preparer>,
    faults: VerbFaults,
}

impl FaultyPreparer {
    /// Wraps a preparer.
    pub fn new(inner: Arc<dyn Preparer>, faults: &VerbFaults) -> Self {
        Self {
            inner,
            faults: faults.clone(),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Preparer for FaultyPreparer {
    fn name(&self) -> &PreparerName {
        self.inner.name()
    }

    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        let work = self.inner.plan(cx);
        self.faults.around("plan", Some(None), work).await
    }

    async fn reopen(
        &self,
        workspace: &Workspace,
        cx: PlanContext<'_>,
    ) -> Result<Contribution, Error> {
        let work = self.inner.reopen(workspace, cx);
        let lie = Contribution::default();
        self.faults.around("reopen", Some(lie), work).await
    }

    async fn ensure(&self, owned: &[UndoRecord], cx: ApplyContext<'_>) -> Result<(), Error> {
        let work = self.inner.ensure(owned, cx);
        self.faults.around("ensure", Some(()), work).await
    }

    async fn apply(&self, cx: ApplyContext<'_>) -> Result<(), Error> {
        let work = self.inner.apply(cx);
        self.faults.around("apply", Some(()), work).await
    }

    async fn populate(&self, cx: ApplyContext<'_>, instance: &dyn Instance) -> Result<(), Error> {
        let work = self.inner.populate(cx, instance);
        self.faults.around("populate", Some(()), work).await
    }

    async fn deliver(&self, record: &UndoRecord) -> Result<Vec<Finding>, Error> {
        let (inner, record) = (Arc::clone(&self.inner), record.clone());
        let work = async move { inner.deliver(&record).await };
        self.faults
            .around_owned("deliver", Some(Vec::new()), work)
            .await
    }

    async fn assess(&self, record: &UndoRecord, options: UndoOptions) -> Result<Assessment, Error> {
        let work = self.inner.assess(record, options);
        let lie = Assessment::default();
        self.faults.around("assess", Some(lie), work).await
    }

    async fn undo(&self, record: &UndoRecord, options: UndoOptions) -> Result<Undone, Error> {
        let (inner, record) = (Arc::clone(&self.inner), record.clone());
        let work = async move { inner.undo(&record, options).await };
        self.faults
            .around_owned("undo", Some(Undone::REMOVED), work)
            .await
    }

    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error> {
        let work = self.inner.state(record);
        self.faults
            .around("state", Some(Presence::Absent), work)
            .await
    }

    async fn list(&self) -> Result<Vec<Found>, Error> {
        let work = self.inner.list();
        self.faults.around("list", Some(Vec::new()), work).await
    }

    async fn report(&self, workspace: &Workspace) -> Result<WorkspaceReport, Error> {
        let work = self.inner.report(workspace);
        let lie = WorkspaceReport::default();
        self.faults.around("report", Some(lie), work).await
    }
}
