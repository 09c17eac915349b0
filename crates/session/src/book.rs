//! What is kept of a session over its processes: its durable state, and the one order of its events.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use groundcrew_core::{
    error::Error,
    id::{ProcessId, SessionId},
    process::Offset,
};

use crate::{
    event::{EventKind, SessionEvent, SessionSink},
    failure,
    state::{LiveState, SessionState, StateStore},
};

/// How many events may be told before the state is stored again.
const AHEAD: u64 = 4096;

/// The book of one session.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) session: SessionId,
    store: Arc<dyn StateStore>,
    sink: Arc<dyn SessionSink>,
    state: Mutex<SessionState>,
    /// The number of the next event; held while one is told, so that they are told in their order.
    next: Mutex<u64>,
    /// One save at a time, so that the last one that began is the one that stays.
    saving: tokio::sync::Mutex<()>,
    /// Whether another controller goes on with the session.
    superseded: AtomicBool,
}

impl Book {
    pub(crate) fn new(
        state: SessionState,
        store: Arc<dyn StateStore>,
        sink: Arc<dyn SessionSink>,
    ) -> Self {
        Self {
            session: state.session.clone(),
            store,
            sink,
            next: Mutex::new(state.next_seq),
            state: Mutex::new(state),
            saving: tokio::sync::Mutex::new(()),
            superseded: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the state.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&SessionState) -> T) -> T {
        look(&self.state())
    }

    /// Changes the state in memory; [`save`](Self::save) makes it last.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut SessionState) -> T) -> T {
        change(&mut self.state())
    }

    /// Sets the live part, if it is of the process that serves the session.
    pub(crate) fn put_live(&self, live: LiveState) {
        let mut state = self.state();
        if state
            .live
            .as_ref()
            .is_some_and(|stored| stored.number == live.number)
        {
            state.live = Some(live);
        }
    }

    /// Drops the live part, if it is of that process.
    pub(crate) fn drop_live(&self, number: u64) {
        let mut state = self.state();
        if state
            .live
            .as_ref()
            .is_some_and(|stored| stored.number == number)
        {
            state.live = None;
        }
    }

    /// Forgets a process that was surely ended.
    pub(crate) fn disown(&self, process: &ProcessId) {
        self.update(|state| state.owned.retain(|owned| owned != process));
    }

    /// Returns whether another controller goes on with the session.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    /// Stores the state as it is now.
    ///
    /// # Errors
    ///
    /// Those of the store; once another controller took over, always that.
    pub(crate) async fn save(&self) -> Result<(), Error> {
        let _one = self.saving.lock().await;
        let state = {
            let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = self.state();
            state.next_seq = next + AHEAD;
            state.clone()
        };
        let saved = self.store.save(&state).await;
        if let Err(error) = &saved
            && failure::is(error, failure::SUPERSEDED)
        {
            self.superseded.store(true, Ordering::Release);
        }
        saved
    }

    /// Returns whether so many events were told that the state has to be stored before more are.
    pub(crate) fn wants_save(&self) -> bool {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next + AHEAD / 4 > self.state().next_seq
    }

    /// Tells an event; nobody hears from a controller that was superseded.
    pub(crate) fn tell(
        &self,
        process: u64,
        turn: Option<u64>,
        offset: Option<Offset>,
        kind: EventKind,
    ) {
        if self.is_superseded() {
            return;
        }
        let epoch = self.read(|state| state.epoch);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = *next;
        *next += 1;
        self.sink.emit(SessionEvent {
            session: self.session.clone(),
            seq,
            epoch,
            process,
            offset,
            turn,
            kind,
        });
    }
}
