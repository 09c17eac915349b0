//! Lanes: everything that happens to one session of this process happens one after the other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::OwnedMutexGuard;

use crate::id::SessionId;

type Lane = tokio::sync::Mutex<()>;

/// The lanes of a process; one that nobody uses takes no memory.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<HashMap<SessionId, Weak<Lane>>>);

impl Lanes {
    /// Waits for the lane of a session; first come, first served.
    pub(crate) async fn enter(&self, session: &SessionId) -> OwnedMutexGuard<()> {
        self.lane(session).lock_owned().await
    }

    /// Takes the lane of a session if nobody is in it.
    pub(crate) fn try_enter(&self, session: &SessionId) -> Option<OwnedMutexGuard<()>> {
        self.lane(session).try_lock_owned().ok()
    }

    fn lane(&self, session: &SessionId) -> Arc<Lane> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(session).and_then(Weak::upgrade) {
            return lane;
        }
        lanes.retain(|_, lane| lane.strong_count() > 0);
        let lane = Arc::default();
        lanes.insert(session.clone(), Arc::downgrade(&lane));
        lane
    }
}
