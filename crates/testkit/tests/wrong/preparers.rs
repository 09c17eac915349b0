//! Preparers that are wrong on purpose.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use groundcrew_core::{
    async_trait,
    error::{Error, ErrorKind},
    id::{ExecutorName, PreparerName},
    identity::Presence,
    instance::Instance,
    preparer::{ApplyContext, Contribution, Found, PlanContext, Preparer},
    request::{LaunchRequest, Mode},
    undo::{Assessment, UndoOptions, UndoRecord, Undone},
    workspace::{Finding, Workspace, WorkspaceReport, WorkspaceRequest},
};
use groundcrew_testkit::{
    conformance::{self, Ground, PreparerFixture, Report},
    memory::{MemoryPreparer, MemoryWorld},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    PlansAnew,
    GivesOneKeyTwice,
    ListsNothing,
    OpensAnything,
    IgnoresCancellation,
    FailsOnWhatIsGone,
    IgnoresTheIdentity,
    IgnoresTheMark,
    RemovesInAnAssessment,
    RemovesInADelivery,
    DeliversWhatIsGone,
    DeliversOnce,
    LosesWork,
    SavesNothing,
}

#[derive(Debug)]
struct Wrong {
    inner: MemoryPreparer,
    world: MemoryWorld,
    fault: Fault,
    plans: AtomicUsize,
    /// How much work was done, and how much of it has arrived.
    work: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Wrong {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}

#[async_trait]
impl Preparer for Wrong {
    fn name(&self) -> &PreparerName {
        self.inner.name()
    }

    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        let mut planned = self.inner.plan(cx).await?;
        if let Some(planned) = &mut planned {
            match self.fault {
                Fault::PlansAnew => {
                    let count = self.plans.fetch_add(1, Ordering::SeqCst);
                    planned.resources[0].label.push_str(&count.to_string());
                }
                Fault::GivesOneKeyTwice => {
                    let first = planned.resources[0].clone();
                    planned.resources.push(first);
                }
                _ => {}
            }
        }
        Ok(planned)
    }

    async fn reopen(
        &self,
        workspace: &Workspace,
        cx: PlanContext<'_>,
    ) -> Result<Contribution, Error> {
        match self.inner.reopen(workspace, cx).await {
            Err(_) if self.is(Fault::OpensAnything) => Ok(Contribution::default()),
            other => other,
        }
    }

    async fn ensure(&self, owned: &[UndoRecord], cx: ApplyContext<'_>) -> Result<(), Error> {
        self.inner.ensure(owned, cx).await
    }

    async fn apply(&self, cx: ApplyContext<'_>) -> Result<(), Error> {
        let never = groundcrew_core::cancel::CancelToken::new();
        let cancel = if self.is(Fault::IgnoresCancellation) {
            &never
        } else {
            cx.cancel
        };
        self.inner.apply(ApplyContext { cancel, ..cx }).await
    }

    async fn populate(&self, cx: ApplyContext<'_>, instance: &dyn Instance) -> Result<(), Error> {
        self.inner.populate(cx, instance).await
    }

    async fn deliver(&self, record: &UndoRecord) -> Result<Vec<Finding>, Error> {
        let (done, arrived) = &*self.work;
        if !self.is(Fault::DeliversOnce) || arrived.load(Ordering::SeqCst) == 0 {
            arrived.store(done.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        if self.is(Fault::RemovesInADelivery) {
            drop(self.world.remove(&record.resource));
        }
        let gone = !self.world.things().contains_key(&record.resource);
        if self.is(Fault::DeliversWhatIsGone) && gone {
            return Err(Error::new(ErrorKind::NotFound, "wrong on purpose"));
        }
        self.inner.deliver(record).await
    }

    async fn assess(&self, record: &UndoRecord, options: UndoOptions) -> Result<Assessment, Error> {
        let assessment = self.inner.assess(record, options).await?;
        if self.is(Fault::RemovesInAnAssessment) {
            drop(self.world.remove(&record.resource));
        }
        Ok(assessment)
    }

    async fn undo(&self, record: &UndoRecord, mut options: UndoOptions) -> Result<Undone, Error> {
        let mut record = record.clone();
        match self.fault {
            Fault::IgnoresTheIdentity => record.identity = None,
            Fault::IgnoresTheMark => {
                if let Some(thing) = self.world.things().get(&record.resource)
                    && let Some(attempt) = thing.attempt
                {
                    record.attempt = attempt;
                }
            }
            Fault::LosesWork => options.force = true,
            _ => {}
        }
        match self.inner.undo(&record, options).await? {
            Undone::AlreadyGone
                if self.is(Fault::FailsOnWhatIsGone) && record.identity.is_some() =>
            {
                Err(Error::new(ErrorKind::NotFound, "wrong on purpose"))
            }
            Undone::Removed { .. } if self.is(Fault::SavesNothing) => Ok(Undone::REMOVED),
            other => Ok(other),
        }
    }

    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error> {
        self.inner.state(record).await
    }

    async fn list(&self) -> Result<Vec<Found>, Error> {
        if self.is(Fault::ListsNothing) {
            return Ok(Vec::new());
        }
        self.inner.list().await
    }

    async fn report(&self, workspace: &Workspace) -> Result<WorkspaceReport, Error> {
        self.inner.report(workspace).await
    }
}

#[derive(Default)]
struct Worlds(Mutex<BTreeMap<PathBuf, MemoryWorld>>);

impl Worlds {
    fn open(&self, ground: &Ground, fault: Fault) -> Result<PreparerFixture, Error> {
        let mut worlds = self.0.lock().unwrap();
        let world = worlds
            .entry(ground.directory().to_owned())
            .or_insert_with(|| MemoryWorld::of(ground.install().clone()))
            .clone();
        let inner = MemoryPreparer::workspace(&world, PreparerName::new("memory")?);
        let request = LaunchRequest::new(
            ExecutorName::new("memory")?,
            WorkspaceRequest::Ephemeral,
            Mode::Workspace,
        );
        let (worked, left) = (world.clone(), world.clone());
        let work: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
        let (doing, looking) = (Arc::clone(&work), Arc::clone(&work));
        Ok(PreparerFixture::new(
            Arc::new(Wrong {
                inner,
                world,
                fault,
                plans: AtomicUsize::new(0),
                work,
            }),
            request,
        )
        .with_work(move |workspace| {
            assert!(worked.write(&workspace.directory, "notes"));
            Ok(())
        })
        .with_delivery(
            move |_| {
                doing.0.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
            move |_| {
                let (done, arrived) = &*looking;
                Ok(done.load(Ordering::SeqCst) == arrived.load(Ordering::SeqCst))
            },
        )
        .with_leftovers(move || Ok(left.leftovers())))
    }
}

async fn report(fault: Fault) -> Report {
    let worlds = Worlds::default();
    conformance::preparer(move |ground| worlds.open(ground, fault))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_right_preparer_passes_and_each_wrong_one_fails_its_case() {
    let right = report(Fault::Nothing).await;
    assert!(right.certifies() && right.skipped().is_empty(), "{right}");
    for (fault, case) in [
        (
            Fault::PlansAnew,
            "making::a_plan_reads_only_and_says_the_same_again",
        ),
        (Fault::ListsNothing, "making::what_was_made_is_listed"),
        (
            Fault::OpensAnything,
            "making::a_workspace_that_is_gone_is_not_opened",
        ),
        (
            Fault::IgnoresCancellation,
            "making::a_cancelled_preparation_says_so_and_is_taken_back",
        ),
        (
            Fault::FailsOnWhatIsGone,
            "removing::what_is_gone_already_is_success",
        ),
        (
            Fault::IgnoresTheIdentity,
            "removing::another_identity_is_left_alone",
        ),
        (
            Fault::IgnoresTheMark,
            "removing::another_attempt_is_left_alone",
        ),
        (
            Fault::RemovesInAnAssessment,
            "removing::an_assessment_reads_only",
        ),
        (
            Fault::RemovesInADelivery,
            "delivering::a_delivery_takes_nothing_away",
        ),
        (
            Fault::DeliversWhatIsGone,
            "delivering::what_is_gone_delivers_nothing",
        ),
        (
            Fault::DeliversOnce,
            "delivering::work_arrives_where_it_is_looked_for",
        ),
        (Fault::LosesWork, "removing::work_is_kept"),
        (
            Fault::SavesNothing,
            "removing::work_is_saved_before_it_goes",
        ),
    ] {
        let report = report(fault).await;
        assert_eq!(report.failed(), [case], "{fault:?}: {report}");
    }
    let twice = report(Fault::GivesOneKeyTwice).await;
    let case = "making::what_is_planned_can_be_taken_back_in_order";
    assert!(twice.failed().contains(&case), "{twice}");
}
