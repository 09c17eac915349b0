//! A durable state whose verbs go wrong as told.

use std::sync::Arc;

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    identity::Identity,
    store::{AttemptRow, Reservation, RunRecord, StateStore},
    undo::{UndoOptions, UndoRecord},
};

use super::verbs::VerbFaults;

/// Wraps a durable state; a lie is a write that was lost, or a read that finds nothing.
#[derive(Clone, Debug)]
pub struct FaultyStore {
    inner: Arc<dyn StateStore>,
    faults: VerbFaults,
}

impl FaultyStore {
    /// Wraps a durable state.
    pub fn new(inner: Arc<dyn StateStore>, faults: &VerbFaults) -> Self {
        Self {
            inner,
            faults: faults.clone(),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl StateStore for FaultyStore {
    async fn reserve(&self, reservation: Reservation) -> Result<RunRecord, Error> {
        let lie = reservation.record.clone();
        let work = self.inner.reserve(reservation);
        self.faults.around("reserve", Some(lie), work).await
    }

    async fn arm(&self, record: &UndoRecord) -> Result<(), Error> {
        let work = self.inner.arm(record);
        self.faults.around("arm", Some(()), work).await
    }

    async fn identify(
        &self,
        attempt: AttemptId,
        key: &str,
        identity: &Identity,
    ) -> Result<(), Error> {
        let work = self.inner.identify(attempt, key, identity);
        self.faults.around("identify", Some(()), work).await
    }

    async fn commit(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        let work = self.inner.commit(record);
        let lie = record.clone();
        self.faults.around("commit", Some(lie), work).await
    }

    async fn begin_unwind(&self, attempt: AttemptId, options: UndoOptions) -> Result<(), Error> {
        let work = self.inner.begin_unwind(attempt, options);
        self.faults.around("begin_unwind", Some(()), work).await
    }

    async fn rest(&self, attempt: AttemptId) -> Result<(), Error> {
        let work = self.inner.rest(attempt);
        self.faults.around("rest", Some(()), work).await
    }

    async fn hand_over(
        &self,
        attempt: AttemptId,
        run: &RunId,
        session: &SessionId,
    ) -> Result<(), Error> {
        let work = self.inner.hand_over(attempt, run, session);
        self.faults.around("hand_over", Some(()), work).await
    }

    async fn retire(&self, attempt: AttemptId, key: &str) -> Result<(), Error> {
        let work = self.inner.retire(attempt, key);
        self.faults.around("retire", Some(()), work).await
    }

    async fn note_failure(
        &self,
        attempt: AttemptId,
        key: &str,
        error: &ErrorReport,
    ) -> Result<(), Error> {
        let work = self.inner.note_failure(attempt, key, error);
        self.faults.around("note_failure", Some(()), work).await
    }

    async fn forget(&self, attempt: AttemptId) -> Result<(), Error> {
        let work = self.inner.forget(attempt);
        self.faults.around("forget", Some(()), work).await
    }

    async fn attempts(&self) -> Result<Vec<AttemptRow>, Error> {
        let work = self.inner.attempts();
        self.faults.around("attempts", Some(Vec::new()), work).await
    }

    async fn attempts_of(&self, run: &RunId) -> Result<Vec<AttemptRow>, Error> {
        let work = self.inner.attempts_of(run);
        self.faults
            .around("attempts_of", Some(Vec::new()), work)
            .await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>, Error> {
        let work = self.inner.run(run);
        self.faults.around("run", Some(None), work).await
    }

    async fn runs(&self) -> Result<Vec<RunRecord>, Error> {
        let work = self.inner.runs();
        self.faults.around("runs", Some(Vec::new()), work).await
    }

    async fn run_of_session(&self, session: &SessionId) -> Result<Option<RunRecord>, Error> {
        let work = self.inner.run_of_session(session);
        self.faults.around("run_of_session", Some(None), work).await
    }

    async fn put(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        let work = self.inner.put(record);
        let lie = record.clone();
        self.faults.around("put", Some(lie), work).await
    }

    async fn delete(&self, run: &RunId, attempt: AttemptId) -> Result<(), Error> {
        let work = self.inner.delete(run, attempt);
        self.faults.around("delete", Some(()), work).await
    }

    async fn check(&self) -> Result<(), Error> {
        let work = self.inner.check();
        self.faults.around("check", Some(()), work).await
    }
}
