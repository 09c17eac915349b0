//! Hides the secrets of a run in what an agent says in pieces; every event keeps its place and the length of its text.
//!
//! * An event whose text may be the beginning of a secret waits for the next piece of the same text, and what can wait
//!   behind it does; whatever a person or a program has to act on holds nothing up.
//! * It must never lose an event: whoever has heard the last one says so.

use std::{
    collections::{HashMap, VecDeque},
    mem,
};

use groundcrew_core::redact::{HOLD_FOR_PIPE, RedactStream, Redactor};
use groundcrew_session::event::{EventKind, SessionEvent};

/// Hides secrets in events.
#[derive(Debug)]
pub(crate) struct Hiding {
    redactor: Redactor,
    lanes: HashMap<Lane, RedactStream>,
    waiting: VecDeque<Waiting>,
}

/// A text that comes in pieces: what it is, and its item.
type Lane = (mem::Discriminant<EventKind>, String);

/// An event, in the order in which it came.
#[derive(Debug)]
struct Waiting {
    event: SessionEvent,
    lane: Option<Lane>,
    /// What is decided of its text.
    text: Vec<u8>,
    /// How much is not.
    missing: usize,
}

impl Hiding {
    /// Makes one.
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            lanes: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes an event, and returns those that are decided.
    pub(crate) fn push(&mut self, event: SessionEvent) -> Vec<SessionEvent> {
        if self.redactor.is_empty() {
            return vec![event];
        }
        if let Some((item, text)) = piece(&event.kind) {
            let lane = (mem::discriminant(&event.kind), item.clone());
            let stream = self.lanes.entry(lane.clone());
            let stream = stream.or_insert_with(|| self.redactor.stream(HOLD_FOR_PIPE));
            let ready = stream.push(text.as_bytes()).to_vec();
            let missing = text.len();
            self.wait(event, Some(lane.clone()), missing);
            self.place(&lane, &ready);
        } else {
            if !can_wait(&event.kind) {
                self.release();
            }
            if ends_texts(&event.kind) {
                self.lanes.clear();
            } else if let Some(item) = ended(&event.kind) {
                self.lanes.retain(|(_, of), _| of != item);
            }
            self.wait(event, None, 0);
        }
        self.decided()
    }

    /// Returns what waits: nothing comes behind it.
    pub(crate) fn finish(&mut self) -> Vec<SessionEvent> {
        self.release();
        self.lanes.clear();
        self.decided()
    }

    fn wait(&mut self, event: SessionEvent, lane: Option<Lane>, missing: usize) {
        self.waiting.push_back(Waiting {
            event,
            lane,
            text: Vec::new(),
            missing,
        });
    }

    /// Decides everything that waits; what turns out to be a secret later is hidden from there on.
    fn release(&mut self) {
        let released: Vec<_> = self
            .lanes
            .iter_mut()
            .map(|(lane, stream)| (lane.clone(), stream.release()))
            .collect();
        for (lane, rest) in released {
            self.place(&lane, &rest);
        }
    }

    /// Gives each byte to the event that it came from.
    fn place(&mut self, lane: &Lane, mut ready: &[u8]) {
        let of_lane = |waiting: &&mut Waiting| waiting.lane.as_ref() == Some(lane);
        for waiting in self.waiting.iter_mut().filter(of_lane) {
            let (mine, rest) = ready.split_at(waiting.missing.min(ready.len()));
            waiting.text.extend_from_slice(mine);
            waiting.missing -= mine.len();
            ready = rest;
        }
    }

    fn decided(&mut self) -> Vec<SessionEvent> {
        let undecided = self.waiting.iter().position(|one| one.missing > 0);
        let count = undecided.unwrap_or(self.waiting.len());
        self.waiting.drain(..count).map(Waiting::told).collect()
    }
}

impl Waiting {
    fn told(mut self) -> SessionEvent {
        if let EventKind::TextDelta { text, .. }
        | EventKind::ThoughtDelta { text, .. }
        | EventKind::ToolOutput { text, .. } = &mut self.event.kind
        {
            // A secret may end within a character.
            *text = String::from_utf8_lossy(&self.text).into_owned();
        }
        self.event
    }
}

/// Returns the piece of a text that an event is, with its item.
fn piece(kind: &EventKind) -> Option<(&String, &String)> {
    match kind {
        EventKind::TextDelta { item, text }
        | EventKind::ThoughtDelta { item, text }
        | EventKind::ToolOutput { item, text } => Some((item, text)),
        _ => None,
    }
}

/// Tells whether nobody acts on an event: it comes between the pieces of a text and is no end of one.
fn can_wait(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Usage { .. }
            | EventKind::Plan { .. }
            | EventKind::McpServer { .. }
            | EventKind::Warning { .. }
    )
}

/// Returns the item that an event ends.
fn ended(kind: &EventKind) -> Option<&String> {
    match kind {
        EventKind::Text { item, .. } | EventKind::ToolEnded { item, .. } => Some(item),
        _ => None,
    }
}

/// Tells whether no text goes on behind an event.
fn ends_texts(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::TurnEnded { .. } | EventKind::Disconnected { .. } | EventKind::Closed
    )
}

#[cfg(test)]
mod tests {
    use groundcrew_core::secret::SecretValue;
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &str = "plain-token-123456";

    fn hiding() -> Hiding {
        Hiding::new(Redactor::new([SecretValue::new(SECRET)]).unwrap())
    }

    fn event(seq: u64, kind: &Value) -> SessionEvent {
        let mut event = json!({ "session": "s", "seq": seq, "epoch": 0, "process": 1 });
        let fields = kind.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(event).unwrap()
    }

    fn delta(seq: u64, item: &str, text: &str) -> SessionEvent {
        let kind = json!({ "type": "text_delta", "item": item, "text": text });
        event(seq, &kind)
    }

    fn output(seq: u64, text: &str) -> SessionEvent {
        let kind = json!({ "type": "tool_output", "item": "t", "text": text });
        event(seq, &kind)
    }

    /// Returns the numbers and the texts of events.
    fn told(events: Vec<SessionEvent>) -> Vec<(u64, String)> {
        let texts = events.into_iter().map(|event| {
            let text = piece(&event.kind).map_or_else(String::new, |(_, text)| text.clone());
            (event.seq, text)
        });
        texts.collect()
    }

    fn said(seq: u64, text: &str) -> (u64, String) {
        (seq, text.to_owned())
    }

    #[test]
    fn c14_a_secret_in_two_pieces_is_hidden_in_both_and_each_event_keeps_its_place() {
        let mut hiding = hiding();
        assert_eq!(told(hiding.push(delta(1, "m", "so "))), [said(1, "so ")]);
        assert_eq!(told(hiding.push(delta(2, "m", "be plain-tok"))), []);
        // What is used meanwhile, and what another item says, waits in its order.
        let usage = json!({ "type": "usage", "usage": {} });
        assert_eq!(told(hiding.push(event(3, &usage))), []);
        assert_eq!(told(hiding.push(output(4, "beside"))), []);
        let all = told(hiding.push(delta(5, "m", "en-123456 it")));
        let expected = [
            said(2, "be *********"),
            said(3, ""),
            said(4, "beside"),
            said(5, "********* it"),
        ];
        assert_eq!(all, expected);
        assert!(hiding.finish().is_empty());
    }

    #[test]
    fn c14_a_secret_in_single_letters_is_hidden() {
        let mut hiding = hiding();
        let mut all = Vec::new();
        for (seq, letter) in (1..).zip(format!("<{SECRET}>").chars()) {
            all.extend(hiding.push(delta(seq, "m", &letter.to_string())));
        }
        let whole: String = told(all).into_iter().map(|(_, text)| text).collect();
        assert_eq!(whole, format!("<{}>", "*".repeat(SECRET.len())));
    }

    #[test]
    fn what_somebody_must_act_on_waits_for_nothing_and_the_rest_of_a_secret_is_still_hidden() {
        let mut hiding = hiding();
        assert_eq!(told(hiding.push(delta(1, "m", "plain-tok"))), []);
        let settled = json!({ "type": "superseded", "request": "q1" });
        let all = told(hiding.push(event(2, &settled)));
        assert_eq!(all, [said(1, "plain-tok"), said(2, "")]);
        let all = told(hiding.push(delta(3, "m", "en-123456 x")));
        assert_eq!(all, [said(3, "********* x")]);
    }

    #[test]
    fn what_did_not_become_a_secret_comes_with_the_end_of_its_text() {
        let mut hiding = hiding();
        assert_eq!(told(hiding.push(delta(1, "m", "plain-tok"))), []);
        let whole = json!({ "type": "text", "item": "m", "text": "plain-tok" });
        let all = told(hiding.push(event(2, &whole)));
        assert_eq!(all, [said(1, "plain-tok"), said(2, "")]);
        // Another text begins anew.
        assert_eq!(
            told(hiding.push(delta(3, "m", "en-123456"))),
            [said(3, "en-123456")]
        );
        assert_eq!(told(hiding.push(delta(4, "n", "plain"))), []);
        assert_eq!(told(hiding.finish()), [said(4, "plain")]);
    }

    #[test]
    fn without_secrets_events_pass_as_they_are() {
        let mut hiding = Hiding::new(Redactor::default());
        let one = delta(1, "m", SECRET);
        assert_eq!(hiding.push(one.clone()), [one]);
    }
}
