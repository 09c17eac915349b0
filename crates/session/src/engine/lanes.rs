//! One lane for each session: what happens to one is serialised, and nothing of one waits for another.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use groundcrew_core::{error::Error, id::SessionId};
use tokio::sync::OnceCell;

use super::handle::Handle;
use crate::book::Book;

/// What a session owns here.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The handle that works, or one whose close failed and that nothing has replaced yet.
    pub(super) current: Option<Arc<Handle>>,
    /// Handles whose close failed and that are not current any more, oldest first; nothing works with them.
    pub(super) retired: Vec<Arc<Handle>>,
}

impl Slots {
    /// Retires a handle; once is enough.
    pub(super) fn retire(&mut self, handle: Arc<Handle>) {
        if !self.retired.iter().any(|old| Arc::ptr_eq(old, &handle)) {
            self.retired.push(handle);
        }
    }

    pub(super) fn is_current(&self, handle: &Arc<Handle>) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, handle))
    }

    /// Forgets a handle that was closed.
    pub(super) fn drop_handle(&mut self, handle: &Arc<Handle>) {
        if self.is_current(handle) {
            self.current = None;
        }
        self.retired.retain(|old| !Arc::ptr_eq(old, handle));
    }

    fn is_empty(&self) -> bool {
        self.current.is_none() && self.retired.is_empty()
    }
}

/// The lane of one session.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Held for the whole of each lifecycle call.
    pub(super) gate: tokio::sync::Mutex<()>,
    /// Held for moments only, never while anything is done.
    slots: Mutex<Slots>,
    book: OnceCell<Arc<Book>>,
}

impl Lane {
    pub(super) fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn current(&self) -> Option<Arc<Handle>> {
        self.slots().current.clone()
    }

    /// Returns whether the book was read.
    pub(super) fn has_book(&self) -> bool {
        self.book.initialized()
    }

    /// Returns the book of the session, read once as long as the lane lives.
    pub(super) async fn book<F>(&self, read: F) -> Result<Arc<Book>, Error>
    where
        F: Future<Output = Result<Book, Error>>,
    {
        let book = self
            .book
            .get_or_try_init(|| async { Ok::<_, Error>(Arc::new(read.await?)) });
        Ok(Arc::clone(book.await?))
    }
}

type Map = Mutex<HashMap<SessionId, Arc<Lane>>>;

/// All lanes that somebody uses, or that own something.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes(Arc<Map>);

/// The use of a lane; with the last one, a lane that owns nothing is forgotten.
#[derive(Debug)]
pub(super) struct LaneUse {
    map: Arc<Map>,
    session: SessionId,
    lane: Arc<Lane>,
}

impl Lanes {
    /// Returns the lane of a session.
    pub(super) fn of(&self, session: &SessionId) -> LaneUse {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = map.entry(session.clone()).or_default();
        LaneUse {
            map: Arc::clone(&self.0),
            session: session.clone(),
            lane: Arc::clone(lane),
        }
    }

    /// Returns all sessions that have a lane.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sessions: Vec<_> = map.keys().cloned().collect();
        sessions.sort();
        sessions
    }

    /// Returns how many handles a session owns.
    pub(super) fn owned(&self, session: &SessionId) -> usize {
        let lane = {
            let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            map.get(session).cloned()
        };
        lane.map_or(0, |lane| {
            let slots = lane.slots();
            slots.retired.len() + usize::from(slots.current.is_some())
        })
    }

    /// Returns the working handle of a session, without making a lane.
    pub(super) fn current(&self, session: &SessionId) -> Option<Arc<Handle>> {
        let lane = {
            let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            map.get(session).cloned()?
        };
        lane.current()
    }
}

impl Deref for LaneUse {
    type Target = Lane;
    fn deref(&self) -> &Lane {
        &self.lane
    }
}

impl Drop for LaneUse {
    fn drop(&mut self) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's own, and this one.
        if Arc::strong_count(&self.lane) == 2 && self.lane.slots().is_empty() {
            map.remove(&self.session);
        }
    }
}
