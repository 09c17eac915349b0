//! When something last happened on the streams of a process, for its idle limit.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::time::{Instant, sleep_until};

/// When bytes last went in or out of a process; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Activity(Rc<Cell<Instant>>);

impl Activity {
    pub(super) fn new() -> Self {
        Self(Rc::new(Cell::new(Instant::now())))
    }

    pub(super) fn seen(&self) {
        self.0.set(Instant::now());
    }

    /// Returns when nothing went in or out for that long.
    #[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
    pub(super) async fn idle(&self, limit: Duration) {
        // A moment that no clock reaches never comes.
        while let Some(at) = self.0.get().checked_add(limit) {
            if Instant::now() >= at {
                return;
            }
            sleep_until(at).await;
        }
        std::future::pending::<()>().await;
    }
}
