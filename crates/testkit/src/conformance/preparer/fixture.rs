//! What the author of a preparer says: the preparer, a request that concerns it, and what work in its workspace is.

use std::{fmt, sync::Arc};

use groundcrew_core::{
    error::Error, preparer::Preparer, request::LaunchRequest, workspace::Workspace,
};

/// Does in a workspace what an agent would do there.
type Work = Arc<dyn Fn(&Workspace) -> Result<(), Error> + Send + Sync>;

/// Tells of a workspace whether its work is where it is looked for.
type Arrived = Arc<dyn Fn(&Workspace) -> Result<bool, Error> + Send + Sync>;

/// Work that has a place outside of the workspace.
#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) work: Work,
    pub(super) arrived: Arrived,
}

/// Looks around a preparer and names what it finds.
type Look = Arc<dyn Fn() -> Result<Vec<String>, Error> + Send + Sync>;

/// A preparer and what the suite has to know to judge it.
#[derive(Clone)]
pub struct PreparerFixture {
    pub(super) preparer: Arc<dyn Preparer>,
    pub(super) request: LaunchRequest,
    pub(super) work: Option<Work>,
    pub(super) delivery: Option<Delivery>,
    pub(super) leftovers: Option<Look>,
    pub(super) exceptions: Vec<(&'static str, &'static str)>,
}

impl fmt::Debug for PreparerFixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparerFixture")
            .field("preparer", &self.preparer)
            .finish_non_exhaustive()
    }
}

impl PreparerFixture {
    /// Begins with a preparer and a request that concerns it.
    pub fn new(preparer: Arc<dyn Preparer>, request: LaunchRequest) -> Self {
        Self {
            preparer,
            request,
            work: None,
            delivery: None,
            leftovers: None,
            exceptions: Vec::new(),
        }
    }

    /// Sets what leaves work in a workspace that exists nowhere else; cases of lost work need it.
    #[must_use]
    pub fn with_work(
        mut self,
        work: impl Fn(&Workspace) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.work = Some(Arc::new(work));
        self
    }

    /// Sets what does work that has a place outside of the workspace, each time more of it, and what tells whether all of it is
    /// there; the case of work that is delivered needs it.
    #[must_use]
    pub fn with_delivery(
        mut self,
        work: impl Fn(&Workspace) -> Result<(), Error> + Send + Sync + 'static,
        arrived: impl Fn(&Workspace) -> Result<bool, Error> + Send + Sync + 'static,
    ) -> Self {
        self.delivery = Some(Delivery {
            work: Arc::new(work),
            arrived: Arc::new(arrived),
        });
        self
    }

    /// Sets what looks around the preparer for what is left.
    #[must_use]
    pub fn with_leftovers(
        mut self,
        look: impl Fn() -> Result<Vec<String>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.leftovers = Some(Arc::new(look));
        self
    }

    /// Says that a case is known not to hold, and why; it is run nevertheless, and fails once it holds.
    #[must_use]
    pub fn except(mut self, case: &'static str, why: &'static str) -> Self {
        self.exceptions.push((case, why));
        self
    }
}
