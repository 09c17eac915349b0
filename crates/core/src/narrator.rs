//! Emits the events of one attempt: one order, numbered without gaps.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use crate::{
    event::{Event, EventKind, EventSink, Step},
    executor::Progress,
    id::{AttemptId, RunId},
};

/// Numbers and emits the events of one attempt.
#[derive(Debug)]
pub(crate) struct Narrator {
    sink: Arc<dyn EventSink>,
    run: RunId,
    attempt: AttemptId,
    next: Mutex<u64>,
}

impl Narrator {
    pub(crate) fn new(sink: Arc<dyn EventSink>, run: RunId, attempt: AttemptId) -> Self {
        Self {
            sink,
            run,
            attempt,
            next: Mutex::new(0),
        }
    }

    /// Emits one event; the lock is held while the sink takes it, so that order and number agree.
    pub(crate) fn tell(&self, kind: EventKind) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.sink.emit(Event {
            run: self.run.clone(),
            attempt: self.attempt,
            seq: *next,
            at: SystemTime::now(),
            kind,
        });
        *next += 1;
    }
}

/// Tells the lines of one step.
#[derive(Debug)]
pub(crate) struct StepProgress {
    pub(crate) narrator: Arc<Narrator>,
    pub(crate) step: Step,
}

impl Progress for StepProgress {
    fn line(&self, line: &str) {
        self.narrator
            .tell(EventKind::StepProgress(self.step.clone(), line.to_owned()));
    }
}
