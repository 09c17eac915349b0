//! The steps of a launch while they happen: a live list on a terminal, plain lines elsewhere, one event a line for programs.

use std::{collections::HashMap, time::Duration};

use groundcrew_core::{
    Outcome,
    event::{Event, EventKind, Step},
    undo::Undone,
};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    args::Format,
    console::Console,
    documents,
    text::{Text, printable},
};

/// Shows the steps of one launch.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    console: &'a Console,
    list: Option<List>,
}

/// The live list.
#[derive(Debug)]
struct List {
    all: MultiProgress,
    steps: HashMap<Step, ProgressBar>,
}

impl<'a> Progress<'a> {
    /// Begins to show; live if standard error is a terminal.
    pub(crate) fn new(console: &'a Console) -> Self {
        let live = console.terminals.error && console.format != Format::Jsonl;
        let list = live.then(|| List {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            steps: HashMap::new(),
        });
        Self { console, list }
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, event: &Event) {
        if self.console.format == Format::Jsonl {
            let (name, fields) = told(event);
            self.console.event(name, &fields);
        } else if let Some(list) = &mut self.list {
            list.show(&event.kind, self.console);
        } else if let Some(line) = plain(&event.kind) {
            match event.kind {
                EventKind::Warning(_) => self.console.warn(&line),
                _ => self.console.note(&line),
            }
        }
    }

    /// Says something while the list is shown.
    pub(crate) fn note(&self, text: &str) {
        match &self.list {
            Some(list) => list.all.suspend(|| self.console.note(text)),
            None => self.console.note(text),
        }
    }

    /// Takes the list away.
    pub(crate) fn finish(self) {
        // Dropped without a live list there is nothing to take away.
        drop(self);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(list) = &self.list {
            // A terminal that is gone needs nothing.
            drop(list.all.clear());
        }
    }
}

impl List {
    fn show(&mut self, kind: &EventKind, console: &Console) {
        match kind {
            EventKind::StepStarted(step) => {
                let bar = self.all.add(ProgressBar::new_spinner().with_style(style()));
                bar.set_message(step.to_string());
                bar.enable_steady_tick(Duration::from_millis(100));
                self.steps.insert(step.clone(), bar);
            }
            EventKind::StepProgress(step, line) => {
                if let Some(bar) = self.steps.get(step) {
                    bar.set_message(format!("{step}: {}", printable(line)));
                }
            }
            EventKind::StepFinished(step, after) => {
                if let Some(bar) = self.steps.get(step) {
                    let mark = console.err_style.green("✓");
                    bar.set_style(finished());
                    bar.finish_with_message(format!("{mark} {step} {}", short(*after)));
                }
            }
            EventKind::StepFailed(step, kind) => {
                if let Some(bar) = self.steps.get(step) {
                    let mark = console.err_style.red("✗");
                    bar.set_style(finished());
                    bar.finish_with_message(format!("{mark} {step}: {kind}"));
                }
            }
            EventKind::Warning(text) => {
                let text = printable(text);
                self.all.suspend(|| console.warn(&text));
            }
            _ => {}
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn finished() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn short(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

/// Tells an event in a line for people; what only programs want is left out.
fn plain(kind: &EventKind) -> Option<String> {
    let line = match kind {
        EventKind::Warning(text) => text.clone(),
        EventKind::StepProgress(step, line) => format!("{step}: {line}"),
        // Gates that passed at once are no news.
        EventKind::StepFinished(_, after) if *after < Duration::from_millis(1) => return None,
        EventKind::StepFinished(step, after) => format!("{step} ({})", short(*after)),
        EventKind::StepFailed(step, kind) => format!("{step} failed ({kind})"),
        EventKind::RollbackStarted(_) => "rolling back".to_owned(),
        EventKind::Undo(label, outcome) => format!("{label}: {outcome}"),
        _ => return None,
    };
    Some(printable(&line))
}

const fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(Undone::Removed { .. }) => "removed",
        Outcome::Done(Undone::AlreadyGone) => "already_gone",
        Outcome::Done(Undone::Kept(_)) => "kept",
        Outcome::Done(Undone::NotOurs(_)) => "not_ours",
        Outcome::HeldByKept(_) | Outcome::HeldByStuck(_) => "waits",
        Outcome::Stuck(_) => "stuck",
        Outcome::Done(_) => "done",
    }
}

#[derive(Serialize)]
struct Told {
    id: String,
    attempt: String,
    seq: u64,
    at: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// Tells an event to programs: its name and its fields.
fn told(event: &Event) -> (&'static str, impl Serialize + use<>) {
    let (name, fields) = match &event.kind {
        EventKind::Warning(message) => ("warning", json!({"message": message})),
        EventKind::StepStarted(step) => ("step_started", json!({"step": step.to_string()})),
        EventKind::StepProgress(step, line) => (
            "step_progress",
            json!({"step": step.to_string(), "message": line}),
        ),
        EventKind::StepFinished(step, after) => (
            "step_finished",
            json!({"step": step.to_string(), "seconds": after.as_secs_f64()}),
        ),
        EventKind::StepFailed(step, kind) => (
            "step_failed",
            json!({"step": step.to_string(), "kind": kind.as_str()}),
        ),
        EventKind::RollbackStarted(step) => ("rollback_started", json!({"step": step.to_string()})),
        EventKind::Undo(label, outcome) => (
            "undo",
            json!({"what": label, "outcome": outcome_word(outcome), "message": outcome.to_string()}),
        ),
        EventKind::AgentStarted(started) => (
            "agent_started",
            json!({"program": Text::os(&started.program), "pid": started.pid}),
        ),
        EventKind::Launched => ("launched", json!({})),
        EventKind::RolledBack { clean } => ("rolled_back", json!({"clean": clean})),
        other => ("other", json!({"message": format!("{other:?}")})),
    };
    let fields = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let told = Told {
        id: event.run.to_string(),
        attempt: event.attempt.to_string(),
        seq: event.seq,
        at: documents::written(event.at),
        fields,
    };
    (name, told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console;
    use groundcrew_core::{
        error::ErrorKind,
        id::{AttemptId, RunId},
    };
    use std::time::UNIX_EPOCH;

    #[test]
    fn an_event_has_its_name_and_its_place_in_the_order() {
        let event = Event {
            run: RunId::new("r").unwrap(),
            attempt: "0123456789abcdef0123456789abcdef"
                .parse::<AttemptId>()
                .unwrap(),
            seq: 3,
            at: UNIX_EPOCH,
            kind: EventKind::StepFailed(Step::Create, ErrorKind::TimedOut),
        };
        let (name, fields) = told(&event);
        assert_eq!(
            console::event(name, &fields),
            r#"{"schema_version":1,"event":"step_failed","id":"r","attempt":"0123456789abcdef0123456789abcdef","seq":3,"at":"1970-01-01T00:00:00.000Z","step":"create","kind":"timed_out"}"#
        );
    }

    #[test]
    fn a_step_that_took_time_is_a_plain_line() {
        let gate = EventKind::StepFinished(Step::Admit, Duration::from_micros(20));
        assert_eq!(plain(&gate), None);
        let kind = EventKind::StepFinished(Step::Start, Duration::from_millis(12));
        assert_eq!(plain(&kind).unwrap(), "start (12 ms)");
        assert_eq!(plain(&EventKind::Launched), None);
    }
}
