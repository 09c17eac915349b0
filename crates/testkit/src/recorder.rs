//! A sink that keeps every event, and checks the laws that a launch's events obey.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use groundcrew_core::{
    event::{Event, EventKind, EventSink, Step},
    id::AttemptId,
};
use tokio::sync::watch;

/// Keeps events; clones share them.
#[derive(Clone, Debug)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
    count: Arc<watch::Sender<usize>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Makes one without events.
    pub fn new() -> Self {
        Self {
            events: Arc::default(),
            count: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Returns all events so far, in the order of their arrival.
    pub fn events(&self) -> Vec<Event> {
        self.locked().clone()
    }

    /// Returns what happened to one attempt.
    pub fn of(&self, attempt: AttemptId) -> Vec<EventKind> {
        let events = self.events();
        let ours = events.into_iter().filter(|e| e.attempt == attempt);
        ours.map(|event| event.kind).collect()
    }

    /// Returns the events that close an attempt: exactly one, once its launch is over.
    pub fn closings(&self, attempt: AttemptId) -> Vec<EventKind> {
        let mut kinds = self.of(attempt);
        kinds.retain(closes);
        kinds
    }

    /// Returns one line for each event, without times: the same for the same story.
    pub fn transcript(&self) -> String {
        let events = self.events();
        let lines: Vec<_> = events.iter().map(|event| line(&event.kind)).collect();
        lines.join("\n")
    }

    /// Waits until an event of that kind has arrived.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn until(&self, wanted: impl Fn(&EventKind) -> bool + Send + Sync) {
        let mut count = self.count.subscribe();
        let arrived = |_: &usize| self.locked().iter().any(|event| wanted(&event.kind));
        drop(count.wait_for(arrived).await);
    }

    /// Checks the laws on everything that came; returns each violation in words.
    ///
    /// * The numbers of an attempt's events count from 0 without a gap.
    /// * A step that started finishes or fails exactly once, before the next one starts; nothing else does.
    /// * `Undo` comes between `RollbackStarted` and `RolledBack`; `RollbackStarted` follows the failure of the step it names.
    /// * Exactly one of `Launched` and `RolledBack` closes an attempt, and nothing comes behind it.
    pub fn violations(&self) -> Vec<String> {
        let mut attempts: BTreeMap<AttemptId, Vec<Event>> = BTreeMap::new();
        for event in self.events() {
            attempts.entry(event.attempt).or_default().push(event);
        }
        let mut found = Vec::new();
        for (attempt, events) in attempts {
            let mut laws = Laws::default();
            for (expected, event) in (0..).zip(&events) {
                if event.seq != expected {
                    laws.broken(format!("event {} where {expected} was due", event.seq));
                }
                laws.take(&event.kind);
            }
            laws.end();
            found.extend(
                laws.broken
                    .into_iter()
                    .map(|law| format!("{attempt}: {law}")),
            );
        }
        found
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Recorder {
    fn emit(&self, event: Event) {
        self.locked().push(event);
        self.count.send_modify(|count| *count += 1);
    }
}

fn closes(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Launched | EventKind::RolledBack { .. })
}

#[derive(Default)]
struct Laws {
    open: Option<Step>,
    failed: Option<Step>,
    seen: Vec<Step>,
    rolling_back: bool,
    closed: bool,
    broken: Vec<String>,
}

impl Laws {
    fn broken(&mut self, law: String) {
        self.broken.push(law);
    }

    fn close(&mut self, step: &Step) {
        if self.open.as_ref() == Some(step) {
            self.open = None;
        } else {
            self.broken(format!("{step} ended without having started"));
        }
    }

    fn take(&mut self, kind: &EventKind) {
        if self.closed {
            self.broken(format!("behind the closing event: {}", line(kind)));
        }
        match kind {
            EventKind::StepStarted(step) => {
                if let Some(open) = self.open.take() {
                    self.broken(format!("{step} started while {open} was under way"));
                }
                if self.seen.contains(step) {
                    self.broken(format!("{step} started twice"));
                }
                if self.rolling_back {
                    self.broken(format!("{step} started during rollback"));
                }
                self.seen.push(step.clone());
                self.open = Some(step.clone());
            }
            EventKind::StepProgress(step, _) if self.open.as_ref() != Some(step) => {
                self.broken(format!("progress of {step} while it was not under way"));
            }
            EventKind::StepFinished(step, _) => self.close(step),
            EventKind::StepFailed(step, _) => {
                self.close(step);
                self.failed = Some(step.clone());
            }
            EventKind::RollbackStarted(step) => {
                if self.failed.as_ref() != Some(step) {
                    self.broken(format!("rollback because of {step}, which did not fail"));
                }
                self.rolling_back = true;
            }
            EventKind::Undo(label, _) if !self.rolling_back => {
                self.broken(format!("{label} was undone outside of a rollback"));
            }
            EventKind::RolledBack { .. } => {
                if !self.rolling_back {
                    self.broken("rolled back without a rollback".to_owned());
                }
                self.closed = true;
            }
            EventKind::Launched => {
                if self.rolling_back || self.failed.is_some() {
                    self.broken("launched although a step failed".to_owned());
                }
                self.closed = true;
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        if let Some(open) = self.open.take() {
            self.broken(format!("{open} neither finished nor failed"));
        }
        if !self.closed {
            self.broken("no closing event".to_owned());
        }
    }
}

fn line(kind: &EventKind) -> String {
    match kind {
        EventKind::Warning(text) => format!("warning: {text}"),
        EventKind::StepStarted(step) => format!("{step} started"),
        EventKind::StepProgress(step, text) => format!("{step}: {text}"),
        EventKind::StepFinished(step, _) => format!("{step} finished"),
        EventKind::StepFailed(step, kind) => format!("{step} failed: {kind}"),
        EventKind::RollbackStarted(step) => format!("rollback of {step} started"),
        EventKind::Undo(label, outcome) => format!("undo of {label}: {outcome}"),
        EventKind::AgentStarted(started) => format!("agent {} started", started.program.display()),
        EventKind::Launched => "launched".to_owned(),
        EventKind::RolledBack { clean } => format!("rolled back, clean: {clean}"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use groundcrew_core::{Outcome, error::ErrorKind, id::RunId, undo::Undone};

    use super::*;

    fn check(kinds: &[EventKind], gap: bool) -> Vec<String> {
        let recorder = Recorder::new();
        let (run, attempt) = (RunId::generate().unwrap(), AttemptId::generate().unwrap());
        for (seq, kind) in (0..).zip(kinds) {
            recorder.emit(Event {
                run: run.clone(),
                attempt,
                seq: seq + u64::from(gap && seq > 0),
                at: SystemTime::UNIX_EPOCH,
                kind: kind.clone(),
            });
        }
        recorder.violations()
    }

    fn started(step: Step) -> EventKind {
        EventKind::StepStarted(step)
    }

    fn finished(step: Step) -> EventKind {
        EventKind::StepFinished(step, Duration::ZERO)
    }

    fn failed(step: Step) -> EventKind {
        EventKind::StepFailed(step, ErrorKind::Unexpected)
    }

    #[test]
    fn a_good_story_breaks_no_law() {
        let good = [
            started(Step::Create),
            finished(Step::Create),
            EventKind::Launched,
        ];
        assert_eq!(check(&good, false), Vec::<String>::new());
        let bad = [
            started(Step::Create),
            failed(Step::Create),
            EventKind::RollbackStarted(Step::Create),
            EventKind::Undo("instance".into(), Outcome::Done(Undone::REMOVED)),
            EventKind::RolledBack { clean: false },
        ];
        assert_eq!(check(&bad, false), Vec::<String>::new());
    }

    #[test]
    fn each_law_is_seen_broken() {
        let create = || [started(Step::Create), finished(Step::Create)];
        let story = |tail: &[EventKind]| [create().as_slice(), tail].concat();
        let clean = EventKind::RolledBack { clean: true };
        for (kinds, gap, law) in [
            (story(&[EventKind::Launched]), true, "where 1 was due"),
            (story(&[]), false, "no closing event"),
            (
                story(&[EventKind::Launched, EventKind::Launched]),
                false,
                "behind the closing event",
            ),
            (
                story(&[started(Step::Start), EventKind::Launched]),
                false,
                "neither finished nor failed",
            ),
            (
                story(&[finished(Step::Create), EventKind::Launched]),
                false,
                "without having started",
            ),
            (
                story(&[started(Step::Create), finished(Step::Create)]),
                false,
                "started twice",
            ),
            (
                vec![started(Step::Create), started(Step::Start)],
                false,
                "while create was under way",
            ),
            (
                story(&[EventKind::StepProgress(Step::Create, String::new())]),
                false,
                "not under way",
            ),
            (
                story(&[EventKind::RollbackStarted(Step::Create)]),
                false,
                "did not fail",
            ),
            (
                story(&[EventKind::Undo("x".into(), Outcome::Done(Undone::REMOVED))]),
                false,
                "outside of a rollback",
            ),
            (story(&[clean]), false, "without a rollback"),
            (
                vec![
                    started(Step::Create),
                    failed(Step::Create),
                    EventKind::Launched,
                ],
                false,
                "although a step failed",
            ),
        ] {
            let found = check(&kinds, gap);
            assert!(found.iter().any(|v| v.contains(law)), "{law}: {found:?}");
        }
    }
}
