//! Tells what happens in a conversation: text to standard output, everything else beside it; or each event as one line.

use groundcrew_core::{
    error::{Chain, Error},
    redact::Redactor,
};
use groundcrew_session::{
    event::{EventKind, ItemOutcome, SessionEvent, TurnOutcome, Usage},
    request::{DecisionKind, InteractiveRequest, Question},
};
use serde::Serialize;

use super::hiding::Hiding;
use crate::{args::Format, console::Console, text::printable};

/// How much of a title is shown on one line, in characters.
const SHOWN: usize = 200;
/// How many characters are shown of what somebody decides about.
const DECIDED: usize = 4000;

/// What a turn came to, for a document.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TurnReport {
    /// Its number in the conversation.
    pub turn: u64,
    /// How it ended.
    pub outcome: Option<TurnOutcome>,
    /// What the agent said; in a stream of events it stands in those.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it stopped, in the agent's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was used, as far as the agent tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Tells events as they come.
#[derive(Debug)]
pub(crate) struct Teller {
    console: Console,
    hiding: Hiding,
    /// Text that has no end of line yet.
    line: String,
    /// The message that it belongs to.
    item: Option<String>,
    report: TurnReport,
}

impl Teller {
    /// Makes one that talks there, and shows no secret of the run's, however it is cut.
    pub(crate) fn new(console: &Console, secrets: Redactor) -> Self {
        Self {
            console: console.clone(),
            hiding: Hiding::new(secrets),
            line: String::new(),
            item: None,
            report: TurnReport::default(),
        }
    }

    /// Returns what was told of the last turn.
    pub(crate) fn report(&self) -> &TurnReport {
        &self.report
    }

    /// Takes one event, and tells what is decided.
    pub(crate) fn tell(&mut self, event: &SessionEvent) {
        self.note(event);
        if self.console.format == Format::Json {
            return;
        }
        for event in self.hiding.push(event.clone()) {
            self.say_event(&event);
        }
    }

    /// Tells what waits for more, when no more is heard.
    pub(crate) fn finish(&mut self) {
        for event in self.hiding.finish() {
            self.say_event(&event);
        }
        self.end_line();
    }

    fn say_event(&mut self, event: &SessionEvent) {
        match self.console.format {
            Format::Human => self.in_words(&event.kind),
            Format::Json => {}
            Format::Jsonl => self.console.event("session", event),
        }
    }

    /// Notes what stands in the document of the turn.
    fn note(&mut self, event: &SessionEvent) {
        match &event.kind {
            EventKind::TurnStarted { .. } => {
                self.report = TurnReport {
                    turn: event.turn.unwrap_or_default(),
                    ..TurnReport::default()
                };
            }
            // In a stream of events the text stands in the events.
            EventKind::TextDelta { text, .. } if self.console.format == Format::Json => {
                self.report.text.push_str(text);
            }
            EventKind::Usage { usage } => self.report.usage = Some(*usage),
            EventKind::TurnEnded {
                outcome,
                error,
                reason,
            } => {
                self.report.turn = event.turn.unwrap_or(self.report.turn);
                self.report.outcome = Some(*outcome);
                self.report.error.clone_from(error);
                self.report.reason.clone_from(reason);
            }
            _ => {}
        }
    }

    fn in_words(&mut self, kind: &EventKind) {
        if let EventKind::TextDelta { item, text } = kind {
            if self.item.as_ref() != Some(item) {
                self.end_line();
                self.item = Some(item.clone());
            }
            return self.text(text);
        }
        let words = words(kind);
        if words.is_some() || matches!(kind, EventKind::TurnEnded { .. }) {
            self.end_line();
        }
        match words {
            Some((false, text)) => self.console.note(&text),
            Some((true, text)) => self.console.warn(&text),
            None => {}
        }
    }

    /// Writes whole lines; what has no end yet waits for it.
    fn text(&mut self, text: &str) {
        self.line.push_str(text);
        let Some(end) = self.line.rfind('\n') else {
            return;
        };
        let rest = self.line.split_off(end + 1);
        let whole = std::mem::replace(&mut self.line, rest);
        for line in whole.lines() {
            self.say(line);
        }
    }

    fn end_line(&mut self) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.say(&line);
        }
    }

    /// Writes one line; what a model says has no way to our terminal but words and tabs.
    fn say(&self, line: &str) {
        let words: Vec<_> = line.split('\t').map(printable).collect();
        self.console.result(&words.join("\t"));
    }
}

/// Returns what is said of an event, and whether it is a warning; nothing of those that say nothing to a person.
fn words(kind: &EventKind) -> Option<(bool, String)> {
    let said = |text: String| Some((false, printable(&text)));
    let warned = |text: String| Some((true, printable(&text)));
    match kind {
        EventKind::SessionStarted {
            conversation,
            resumed: true,
            ..
        } => said(format!("the conversation {conversation} goes on")),
        EventKind::TakenOver { conversation } => {
            said(format!("took the conversation {conversation} over"))
        }
        EventKind::AuthenticationRequired { message } => warned(message.clone()),
        EventKind::ToolStarted { title, .. }
        | EventKind::ToolUpdated {
            title: Some(title), ..
        } => said(format!("· {}", shown(title))),
        EventKind::ToolEnded {
            outcome: ItemOutcome::Failed,
            exit_code,
            ..
        } => said(match exit_code {
            Some(code) => format!("  failed with exit code {code}"),
            None => "  failed".to_owned(),
        }),
        EventKind::ToolEnded {
            outcome: ItemOutcome::Declined,
            ..
        } => said("  declined".to_owned()),
        EventKind::FileChanges {
            outcome: ItemOutcome::Completed,
            changes,
            ..
        } => {
            let files = changes
                .iter()
                .map(|change| format!("{} {}", change.change, change.path));
            said(format!("  {}", files.collect::<Vec<_>>().join(", ")))
        }
        EventKind::Asked { request } => said(format!("{}: {}", request.id, asked(request))),
        EventKind::Superseded { request } => said(format!("{request} was settled by the agent")),
        EventKind::McpServer {
            server,
            status,
            error: Some(error),
        } => warned(format!("the tool server {server} {status}: {error}")),
        EventKind::McpServer {
            server,
            status,
            error: None,
        } if status == "failed" => warned(format!("the tool server {server} failed")),
        EventKind::Warning { text, .. } => warned(text.clone()),
        EventKind::TurnEnded {
            outcome,
            error,
            reason,
        } => match outcome {
            TurnOutcome::Completed => None,
            TurnOutcome::Interrupted => said("the turn was interrupted".to_owned()),
            outcome => {
                let why = error.as_ref().or(reason.as_ref());
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let how = match outcome {
                    TurnOutcome::Cancelled => "did not end when asked and was cut off",
                    _ => "failed",
                };
                warned(format!("the turn {how}{why}"))
            }
        },
        EventKind::Disconnected { error } => warned(Chain(&Error::from(error.clone())).to_string()),
        _ => None,
    }
}

/// Says what is asked, and how it is answered.
pub(crate) fn asked(request: &InteractiveRequest) -> String {
    let mut text = match &request.question {
        Question::Command { command, .. } => format!("the agent asks to run: {}", whole(command)),
        Question::FileChange { paths } if paths.is_empty() => {
            "the agent asks to change files".to_owned()
        }
        Question::FileChange { paths } => {
            format!("the agent asks to change {}", whole(&paths.join(", ")))
        }
        Question::Permissions { permissions } => {
            format!("the agent asks for {}", whole(&permissions.to_string()))
        }
        Question::Tool { title, .. } => format!("the agent asks to use a tool: {}", whole(title)),
        Question::Input { questions } => {
            let questions = questions
                .iter()
                .map(|question| format!("[{}] {}", question.id, question.question));
            questions.collect::<Vec<_>>().join("; ")
        }
        Question::Elicitation {
            server, message, ..
        } => format!("the tool server {server} asks: {}", shown(message)),
        _ => "the agent asks for something".to_owned(),
    };
    if let Some(reason) = &request.reason {
        text = format!("{text} ({})", shown(reason));
    }
    let ever = request
        .choices
        .iter()
        .any(|choice| choice.decision == DecisionKind::ApproveForSession);
    if ever {
        text += "; it may also be approved for the whole session";
    }
    text
}

/// Returns what somebody decides about: all of it, and how much is left out where it is beyond reading.
fn whole(text: &str) -> String {
    let text = text.trim_end();
    let mut shown: String = text.chars().take(DECIDED).collect();
    let more = text[shown.len()..].chars().count();
    if more == 0 {
        return shown;
    }
    shown.push('…');
    format!("{shown} and {more} characters more, not shown")
}

fn shown(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let mut short: String = first.chars().take(SHOWN).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use groundcrew_session::request::RequestId;
    use serde_json::json;

    use super::*;

    fn event(kind: &serde_json::Value) -> SessionEvent {
        let mut event = json!({ "session": "s", "seq": 1, "epoch": 0, "process": 1, "turn": 4 });
        event
            .as_object_mut()
            .unwrap()
            .extend(kind.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    fn said(kind: &serde_json::Value) -> Option<(bool, String)> {
        words(&event(kind).kind)
    }

    #[test]
    fn what_a_person_should_know_is_said_in_a_line() {
        let long = format!("{}\nmore", "x".repeat(500));
        let (_, title) = said(&json!({
            "type": "tool_started", "item": "t", "tool": "command", "title": long,
        }))
        .unwrap();
        assert!(
            title.chars().count() < 210 && title.ends_with('…'),
            "{title}"
        );
        let (warning, text) = said(&json!({
            "type": "turn_ended", "outcome": "failed", "error": "out\u{1b}[31m of order",
        }))
        .unwrap();
        assert!(warning && text.contains("of order") && !text.contains('\u{1b}'));
        assert_eq!(
            said(&json!({ "type": "turn_ended", "outcome": "completed" })),
            None
        );
        assert_eq!(said(&json!({ "type": "closed" })), None);
        let (warning, _) = said(&json!({
            "type": "mcp_server", "server": "x", "status": "failed", "error": "gone",
        }))
        .unwrap();
        assert!(warning);
    }

    #[test]
    fn the_report_of_a_turn_is_that_of_the_last_one() {
        let terminals = crate::terminal::Terminals {
            input: false,
            output: false,
            error: false,
        };
        let mut teller = Teller::new(
            &Console::new(Format::Json, terminals, false),
            Redactor::default(),
        );
        for kind in [
            json!({ "type": "turn_started" }),
            json!({ "type": "text_delta", "item": "m", "text": "old" }),
            json!({ "type": "turn_ended", "outcome": "failed", "error": "e" }),
            json!({ "type": "turn_started" }),
            json!({ "type": "text_delta", "item": "m", "text": "so " }),
            json!({ "type": "text_delta", "item": "m", "text": "be it" }),
            json!({ "type": "turn_ended", "outcome": "completed" }),
        ] {
            teller.tell(&event(&kind));
        }
        let report = teller.report();
        assert_eq!((report.turn, report.text.as_str()), (4, "so be it"));
        assert_eq!(report.outcome, Some(TurnOutcome::Completed));
        assert_eq!(report.error, None);
    }

    #[test]
    fn a_question_says_what_it_is_about() {
        let request = |question: serde_json::Value, reason: Option<&str>| {
            let request: InteractiveRequest = serde_json::from_value(json!({
                "id": "q1", "question": question, "reason": reason,
                "choices": [{ "id": "ever", "title": "Ever", "decision": "approve_for_session" }],
            }))
            .unwrap();
            assert_eq!(request.id, RequestId("q1".to_owned()));
            asked(&request)
        };
        let text = request(json!({ "kind": "command", "command": "rm x" }), Some("why"));
        assert!(text.contains("rm x") && text.contains("(why)") && text.contains("whole session"));
        let command = format!("echo hello\n{}rm -rf x", " ".repeat(300));
        let text = request(json!({ "kind": "command", "command": command }), None);
        assert!(text.contains("rm -rf x"), "{text}");
        let long = "é".repeat(DECIDED + 7);
        let text = request(json!({ "kind": "tool", "title": long }), None);
        assert!(text.contains("and 7 characters more"), "{text}");
        let text = request(json!({ "kind": "file_change", "paths": ["a", "b"] }), None);
        assert!(text.contains("a, b"));
    }
}
