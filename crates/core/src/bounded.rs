//! The store as the engine calls it: a verb that panics or never returns is an error, so that rollback always comes to its end.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::FutureExt as _;

use crate::{
    error::{Error, ErrorKind, ErrorReport},
    id::{AttemptId, RunId, SessionId},
    identity::Identity,
    store::{AttemptRow, Reservation, RunRecord, StateStore},
    undo::{UndoOptions, UndoRecord},
};

/// A store each of whose verbs ends within a time.
#[derive(Debug)]
pub(crate) struct BoundedStore {
    inner: Arc<dyn StateStore>,
    limit: Duration,
}

impl BoundedStore {
    pub(crate) fn new(inner: Arc<dyn StateStore>, limit: Duration) -> Self {
        Self { inner, limit }
    }

    async fn within<T>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let caught = AssertUnwindSafe(work).catch_unwind();
        match tokio::time::timeout(self.limit, caught).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(Error::new(ErrorKind::Panicked, "the store panicked").with("verb", verb))
            }
            Err(_) => {
                Err(Error::new(ErrorKind::TimedOut, "the store does not answer").with("verb", verb))
            }
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl StateStore for BoundedStore {
    async fn reserve(&self, reservation: Reservation) -> Result<RunRecord, Error> {
        self.within("reserve", self.inner.reserve(reservation))
            .await
    }

    async fn arm(&self, record: &UndoRecord) -> Result<(), Error> {
        self.within("arm", self.inner.arm(record)).await
    }

    async fn identify(
        &self,
        attempt: AttemptId,
        key: &str,
        identity: &Identity,
    ) -> Result<(), Error> {
        let work = self.inner.identify(attempt, key, identity);
        self.within("identify", work).await
    }

    async fn commit(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        self.within("commit", self.inner.commit(record)).await
    }

    async fn begin_unwind(&self, attempt: AttemptId, options: UndoOptions) -> Result<(), Error> {
        let work = self.inner.begin_unwind(attempt, options);
        self.within("begin_unwind", work).await
    }

    async fn rest(&self, attempt: AttemptId) -> Result<(), Error> {
        self.within("rest", self.inner.rest(attempt)).await
    }

    async fn retire(&self, attempt: AttemptId, key: &str) -> Result<(), Error> {
        self.within("retire", self.inner.retire(attempt, key)).await
    }

    async fn hand_over(
        &self,
        attempt: AttemptId,
        run: &RunId,
        session: &SessionId,
    ) -> Result<(), Error> {
        let work = self.inner.hand_over(attempt, run, session);
        self.within("hand_over", work).await
    }

    async fn note_failure(
        &self,
        attempt: AttemptId,
        key: &str,
        error: &ErrorReport,
    ) -> Result<(), Error> {
        let work = self.inner.note_failure(attempt, key, error);
        self.within("note_failure", work).await
    }

    async fn forget(&self, attempt: AttemptId) -> Result<(), Error> {
        self.within("forget", self.inner.forget(attempt)).await
    }

    async fn attempts(&self) -> Result<Vec<AttemptRow>, Error> {
        self.within("attempts", self.inner.attempts()).await
    }

    async fn attempts_of(&self, run: &RunId) -> Result<Vec<AttemptRow>, Error> {
        self.within("attempts_of", self.inner.attempts_of(run))
            .await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>, Error> {
        self.within("run", self.inner.run(run)).await
    }

    async fn runs(&self) -> Result<Vec<RunRecord>, Error> {
        self.within("runs", self.inner.runs()).await
    }

    async fn run_of_session(&self, session: &SessionId) -> Result<Option<RunRecord>, Error> {
        let work = self.inner.run_of_session(session);
        self.within("run_of_session", work).await
    }

    async fn put(&self, record: &RunRecord) -> Result<RunRecord, Error> {
        self.within("put", self.inner.put(record)).await
    }

    async fn delete(&self, run: &RunId, attempt: AttemptId) -> Result<(), Error> {
        self.within("delete", self.inner.delete(run, attempt)).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.within("check", self.inner.check()).await
    }
}
