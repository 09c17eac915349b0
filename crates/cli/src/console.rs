//! What we say, in the format that was asked for: documents and results on standard output, words for people on standard error.

use groundcrew_core::redact::Redactor;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::Format, documents::SCHEMA_VERSION, printer::Lines, style::Style, terminal::Terminals,
};

/// The name that our own words begin with.
const NAME: &str = "groundcrew";

/// Where everything that is not a command's own output is said.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    /// The format.
    pub format: Format,
    /// Which streams are terminals.
    pub terminals: Terminals,
    /// Colours on standard output.
    pub out_style: Style,
    /// Colours on standard error.
    pub err_style: Style,
    lines: Lines,
}

impl Console {
    /// Makes one; `colour` is whether colours are wanted where they can be shown.
    pub(crate) fn new(format: Format, terminals: Terminals, colour: bool) -> Self {
        Self {
            format,
            terminals,
            out_style: Style::new(colour && terminals.output),
            err_style: Style::new(colour && terminals.error),
            lines: Lines::default(),
        }
    }

    /// Says a result to people on standard output, if the format is theirs.
    pub(crate) fn result(&self, line: &str) {
        if self.format == Format::Human {
            self.lines.out(line);
        }
    }

    /// Says something to people on standard error.
    pub(crate) fn note(&self, text: &str) {
        let name = self.err_style.faint(NAME);
        self.lines.err(&format!("{name}: {text}"));
    }

    /// Says something to people on standard error, as it is.
    pub(crate) fn plain(&self, text: &str) {
        self.lines.err(text);
    }

    /// Warns people on standard error.
    pub(crate) fn warn(&self, text: &str) {
        self.note(&format!("{} {text}", self.err_style.yellow("warning:")));
    }

    /// Tells the one result of a verb, unless the format is for people.
    pub(crate) fn document<T: Serialize>(&self, document: &T) {
        match self.format {
            Format::Human => {}
            Format::Json => self.lines.out(&pretty(document)),
            Format::Jsonl => self.lines.out(&event("result", document)),
        }
    }

    /// Tells a failure, unless the format is for people.
    pub(crate) fn error<T: Serialize>(&self, document: &T) {
        match self.format {
            Format::Human => {}
            Format::Json => self.lines.out(&pretty(document)),
            Format::Jsonl => self.lines.out(&event("error", document)),
        }
    }

    /// Tells an event, if the format is one of events.
    pub(crate) fn event<T: Serialize>(&self, name: &str, fields: &T) {
        if self.format == Format::Jsonl {
            self.lines.out(&event(name, fields));
        }
    }

    /// Writes a piece of a document to standard output, as it is.
    pub(crate) fn raw(&self, line: &str) {
        self.lines.out(line);
    }

    /// Hides a run's secrets in everything that is said from now on.
    pub(crate) fn hide(&self, secrets: Redactor) {
        self.lines.hide(secrets);
    }

    /// Returns whether standard output could not be written though somebody wanted it.
    pub(crate) fn failed(&self) -> bool {
        self.lines.failed()
    }
}

fn pretty<T: Serialize>(document: &T) -> String {
    serde_json::to_string_pretty(document).unwrap_or_else(|error| unwritable(&error))
}

/// Writes one event as one line: the version and the event's name come first.
pub(crate) fn event<T: Serialize>(name: &str, fields: &T) -> String {
    #[derive(Serialize)]
    struct Line<'a, T> {
        schema_version: u32,
        event: &'a str,
        #[serde(flatten)]
        fields: &'a T,
    }
    let fields = match serde_json::to_value(fields) {
        Ok(Value::Object(mut fields)) => {
            fields.remove("schema_version");
            fields
        }
        Ok(_) => serde_json::Map::new(),
        Err(error) => return unwritable(&error),
    };
    let line = Line {
        schema_version: SCHEMA_VERSION,
        event: name,
        fields: &fields,
    };
    serde_json::to_string(&line).unwrap_or_else(|error| unwritable(&error))
}

/// What stands in place of a document that cannot be written, which those of this program can.
fn unwritable(error: &serde_json::Error) -> String {
    json!({"schema_version": SCHEMA_VERSION, "error": {"kind": "unexpected", "message": error.to_string()}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_its_version_first_and_once() {
        let line = event("result", &json!({"schema_version": 1, "id": "a\nb"}));
        assert_eq!(line, r#"{"schema_version":1,"event":"result","id":"a\nb"}"#);
    }
}
