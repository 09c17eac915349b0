//! Emits the events of one attempt: one order, numbered without gaps, and no secret in them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use crate::{
    event::{Event, EventKind, EventSink, Step},
    executor::Progress,
    id::{AttemptId, RunId},
    redact::Redactor,
};

/// Numbers and emits the events of one attempt.
#[derive(Debug)]
pub(crate) struct Narrator {
    sink: Arc<dyn EventSink>,
    run: RunId,
    attempt: AttemptId,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    next: u64,
    secrets: Redactor,
}

impl Narrator {
    pub(crate) fn new(sink: Arc<dyn EventSink>, run: RunId, attempt: AttemptId) -> Self {
        Self {
            sink,
            run,
            attempt,
            told: Mutex::default(),
        }
    }

    /// Emits one event; the lock is held while the sink takes it, so that order and number agree.
    pub(crate) fn tell(&self, kind: EventKind) {
        let mut told = self.told();
        self.sink.emit(Event {
            run: self.run.clone(),
            attempt: self.attempt,
            seq: told.next,
            at: SystemTime::now(),
            kind: told.secrets.event(kind),
        });
        told.next += 1;
    }

    /// Hides values in everything that is told from now on.
    pub(crate) fn hide(&self, secrets: Redactor) {
        self.told().secrets = secrets;
    }

    /// Returns what hides the values.
    pub(crate) fn redactor(&self) -> Redactor {
        self.told().secrets.clone()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
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
