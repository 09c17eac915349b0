//! The launcher: plans, launches, and everything that is done to a run afterwards.

use std::{sync::Arc, time::Duration};

use crate::{
    activity::{ActivityKind, ActivityReport, TaskLease},
    backpressure::Backpressure,
    bounded::BoundedStore,
    cancel::CancelToken,
    closing::{self, CloseOptions, CloseReport},
    ending::{self, Settled},
    ensuring,
    error::Error,
    flights::{EnsureError, Flights},
    following,
    id::RunId,
    instance::SharedInstance,
    lane::Lanes,
    launch,
    maintenance::{self, MaintenanceLease, MaintenanceOptions},
    observe::{self, RunView},
    pacing::Pacing,
    plan::{Plan, PlanError},
    planning,
    process::{Frame, Offset},
    recovery::{self, RecoveryReport},
    redact::Redactor,
    registry::Registry,
    request::LaunchRequest,
    restoring::{self, Regained},
    shared::{Parts, Shared},
    store::RunRecord,
    ticket::{Launched, Ticket},
    token,
};

/// Brings runs up and takes them away; cheap to clone.
///
/// Many launchers, in many processes, may share one store.
#[derive(Clone, Debug)]
pub struct Launcher(Arc<Shared>);

impl Launcher {
    /// Makes one of its parts.
    pub fn new(mut parts: Parts) -> Self {
        parts.store = Arc::new(BoundedStore::new(parts.store, parts.policy.store));
        let shared = Shared {
            parts,
            lanes: Lanes::default(),
            flights: Flights::default(),
            activity: Arc::default(),
            backpressure: Backpressure::default(),
            pacing: Pacing::default(),
            tasks: tokio_util::task::TaskTracker::new(),
            stopping: CancelToken::new(),
        };
        Self(Arc::new(shared))
    }

    /// Returns what can be launched on.
    pub fn registry(&self) -> &Registry {
        &self.0.parts.registry
    }

    /// Decides everything about a launch; touches nothing.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the request, at once.
    pub async fn plan(&self, request: LaunchRequest) -> Result<Plan, PlanError> {
        planning::plan(&self.0, request).await
    }

    /// Carries a plan out in a task of the launcher's own.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn launch(&self, plan: Plan) -> Ticket {
        let cancel = self.0.stopping.child();
        let (ticket, answer) = Ticket::new(plan.run().clone(), plan.attempt(), cancel.clone());
        let shared = Arc::clone(&self.0);
        drop(self.0.tasks.spawn(async move {
            let result = Box::pin(launch::launch(shared, plan, cancel)).await;
            // Nobody waits any more; the run goes on.
            drop(answer.send(Some(result)));
        }));
        ticket
    }

    /// Makes sure that a session has a run that is up: its own, as it is; or a workspace without an agent, brought up or
    /// brought up again.
    ///
    /// * What is returned is the run of the session that was asked for, never a sibling's under the same share key.
    /// * Requests that are equal and made at the same time share one answer; others wait for the session in turn.
    /// * The mode and the intent of the request are not looked at.
    ///
    /// # Errors
    ///
    /// Those of the plan, of the launch, or of the store.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, as by a deadline of the caller's own: what was begun goes on, for whoever else waits for it.
    pub async fn ensure(&self, request: LaunchRequest) -> Result<Launched, EnsureError> {
        ensuring::ensure(&self.0, request).await
    }

    /// Finds a run by its id or the beginning of it.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Ambiguous` with the ids that begin so.
    pub async fn find(&self, prefix: &str) -> Result<RunRecord, Error> {
        observe::find(&self.0, prefix).await
    }

    /// Returns a run as it really is; writes nothing.
    ///
    /// # Errors
    ///
    /// `NotFound`, or those of the store.
    pub async fn observe(&self, run: &RunId) -> Result<RunView, Error> {
        let record = self.0.record(run).await?;
        Ok(observe::view(&self.0, record).await)
    }

    /// Returns all runs as they really are, oldest first; writes nothing.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn runs(&self) -> Result<Vec<RunView>, Error> {
        let records = self.0.parts.store.runs().await?;
        Ok(futures_util::future::join_all(
            records
                .into_iter()
                .map(|record| observe::view(&self.0, record)),
        )
        .await)
    }

    /// Reaches the instance of a run, to attach to it or to signal it.
    ///
    /// # Errors
    ///
    /// `NotFound` when neither it nor its logs are left.
    pub async fn instance(&self, record: &RunRecord) -> Result<SharedInstance, Error> {
        self.0.instance(record).await
    }

    /// Hands every frame of a run's agent to `each`, from an offset of its log to its end, then settles the run.
    ///
    /// * An error of `each` ends the reading and nothing else: the run goes on, and is read again from any offset.
    ///
    /// # Errors
    ///
    /// Those of `each`, of the instance, and of [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has handed over some frames and settled the run or not; nothing is lost of either.
    pub async fn follow(
        &self,
        record: &RunRecord,
        from: Offset,
        each: impl FnMut(Frame) -> Result<(), Error> + Send,
    ) -> Result<Settled, Error> {
        Box::pin(following::follow(&self.0, record, from, each)).await
    }

    /// Returns what hides a run's secrets, and those that its executor returned, in whatever is shown of it, as far as they
    /// can still be revealed.
    ///
    /// * A secret that was deleted since hides nothing; one that was changed hides what it is now.
    ///
    /// # Errors
    ///
    /// Those of the stores of secrets: nobody knows then what had to be hidden.
    pub async fn redactor(&self, record: &RunRecord) -> Result<Redactor, Error> {
        ensuring::redactor(&self.0, record).await
    }

    /// Writes down with what token the conversation of a run is gone on with; a launch that fails leaves it as it is.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has written the token or not.
    pub async fn remember(&self, run: &RunId, token: &str) -> Result<RunRecord, Error> {
        token::remember(&self.0, run, token).await
    }

    /// Settles a run whose agent ended: records how, removes its instance, and closes it if nothing at all was changed.
    ///
    /// * A run that is up, and one that somebody else settled, is left as it is.
    ///
    /// # Errors
    ///
    /// Those of the store and of the instance; what could not be removed makes the run `stuck` instead.
    ///
    /// # Cancel safety
    ///
    /// What was begun when the future is dropped is found and brought to an end by the next recovery.
    pub async fn settle(&self, run: &RunId) -> Result<Settled, Error> {
        Box::pin(ending::settle(&self.0, run)).await
    }

    /// Stops the processes of a run within `grace`; its workspace stays.
    ///
    /// # Errors
    ///
    /// What could not be ended, by name.
    ///
    /// # Cancel safety
    ///
    /// As for [`settle`](Self::settle).
    pub async fn stop(&self, run: &RunId, grace: Option<Duration>) -> Result<RunView, Error> {
        let record = ending::stop(&self.0, run, grace).await?;
        Ok(observe::view(&self.0, record).await)
    }

    /// Closes a run: ends what runs, and takes away what survives elsewhere.
    ///
    /// # Errors
    ///
    /// Those of the store and of the instance; what would be lost is kept and reported instead.
    ///
    /// # Cancel safety
    ///
    /// As for [`settle`](Self::settle).
    pub async fn close(&self, run: &RunId, options: CloseOptions) -> Result<CloseReport, Error> {
        Box::pin(closing::close(&self.0, run, options)).await
    }

    /// Brings to an end what dead processes left under way; the cheap part of [`recover`](Self::recover), for the start of a
    /// program and for a timer in one that lives long.
    ///
    /// * It looks at what the store says is under way and at nothing else: no executor and no preparer is asked for a list.
    /// * What this launcher could not take away is tried again after a random pause of at most 100 ms, doubled each time up to
    ///   a minute, and without a last time: however often this is called, it does not spin.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, as by a deadline, and called again.
    pub async fn tend(&self) -> Result<RecoveryReport, Error> {
        recovery::tend(&self.0).await
    }

    /// Brings the work of a closed run back, and takes the run up again as a stopped one that owns it.
    ///
    /// * `bring_back` is called while the session is held, and not at all for a run that is at rest: nothing of it was removed.
    /// * What `bring_back` did stays when the rest fails; asking again finishes it.
    ///
    /// # Errors
    ///
    /// * `Conflict` when the run is up, or something of it is still to be taken away.
    /// * `SessionBusy` when its session has another run now.
    /// * Those of `bring_back` and of the store.
    ///
    /// # Cancel safety
    ///
    /// As for [`settle`](Self::settle).
    pub async fn restore<F: Future<Output = Result<Regained, Error>> + Send>(
        &self,
        run: &RunId,
        bring_back: impl FnOnce() -> F + Send,
    ) -> Result<RunView, Error> {
        let record = restoring::restore(&self.0, run, bring_back).await?;
        Ok(observe::view(&self.0, record).await)
    }

    /// Brings to an end what dead processes left, and finds out what became of runs that ended unseen.
    ///
    /// # Errors
    ///
    /// Those of the store; a damaged one is touched no further.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn recover(&self) -> Result<RecoveryReport, Error> {
        recovery::recover(&self.0).await
    }

    /// Lists what carries our mark and nobody remembers, for people; such things are left alone.
    ///
    /// # Errors
    ///
    /// When something could not be listed: then nobody knows all of it.
    pub async fn strays(&self) -> Result<Vec<String>, Error> {
        recovery::strays(&self.0).await
    }

    /// Returns what is at work in this process.
    pub fn activity(&self) -> ActivityReport {
        self.0.activity.report()
    }

    /// Says that something of the embedding program's own is at work, until the lease is dropped; ends a maintenance.
    ///
    /// # Errors
    ///
    /// Those of the locks.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn begin(&self, kind: ActivityKind) -> Result<TaskLease, Error> {
        self.0.lease(kind).await
    }

    /// Takes the maintenance lease, for work that must not meet any other, such as clearing caches.
    ///
    /// # Errors
    ///
    /// `Busy`, with what is at work: another maintenance; and unless it is forced a task in this process or another, a run
    /// that is up, or a quiet period that is not over.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn maintain(&self, options: MaintenanceOptions) -> Result<MaintenanceLease, Error> {
        maintenance::maintain(&self.0, options).await
    }

    /// Cancels all launches under way and waits until each is rolled back.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again; nothing is launched after it was called.
    pub async fn shutdown(&self) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}
