//! The dialect of Claude: `/v1/messages`, with and without a stream.

use serde_json::{Value, json};

use super::{
    dialect::{Dialect, kind, list, text_of},
    question::Question,
};

/// One answer; without a stream all its parts are kept until the end.
#[derive(Debug)]
pub(crate) struct Messages {
    number: usize,
    model: String,
    streamed: bool,
    parts: Vec<Value>,
    /// Whether the last part is a text that may go on.
    open: bool,
    called: bool,
}

impl Messages {
    pub(crate) fn new(number: usize, body: &Value) -> Self {
        Self {
            number,
            model: text_of(&body["model"]),
            streamed: body["stream"] == true,
            parts: Vec::new(),
            open: false,
            called: false,
        }
    }

    pub(crate) fn read(body: &Value) -> Question {
        let mut question = Question {
            model: text_of(&body["model"]),
            ..Question::default()
        };
        for tool in list(&body["tools"]) {
            question
                .tools
                .extend(tool["name"].as_str().map(str::to_owned));
        }
        for message in list(&body["messages"]) {
            let said = match message["role"].as_str() {
                Some("user") => Question::user_said,
                _ => Question::model_said,
            };
            let Value::Array(parts) = &message["content"] else {
                said(&mut question, &text_of(&message["content"]));
                continue;
            };
            for part in parts {
                match part["type"].as_str() {
                    Some("text") => said(&mut question, &text_of(&part["text"])),
                    Some("tool_result") => question.tool_said(text_of(&part["content"])),
                    _ => {}
                }
            }
        }
        question
    }

    fn message(&self, content: &Value, reason: Option<&str>) -> Value {
        json!({
            "id": format!("msg_{}", self.number), "type": "message", "role": "assistant",
            "model": self.model, "content": content, "stop_reason": reason, "stop_sequence": null,
            "usage": { "input_tokens": 11, "output_tokens": 7 },
        })
    }

    fn reason(&self) -> &'static str {
        if self.called { "tool_use" } else { "end_turn" }
    }

    fn event(&self, kind: &str, mut data: Value) -> String {
        if !self.streamed {
            return String::new();
        }
        data["type"] = json!(kind);
        format!("event: {kind}\ndata: {data}\n\n")
    }

    fn begin(&mut self, shown: &Value, whole: Value) -> String {
        let out = self.end_part();
        let index = self.parts.len();
        self.parts.push(whole);
        self.open = true;
        let begun = json!({ "index": index, "content_block": shown });
        out + &self.event("content_block_start", begun)
    }

    fn more(&self, delta: &Value) -> String {
        let index = self.parts.len().saturating_sub(1);
        let more = json!({ "index": index, "delta": delta });
        self.event("content_block_delta", more)
    }

    fn end_part(&mut self) -> String {
        if !std::mem::take(&mut self.open) {
            return String::new();
        }
        let index = self.parts.len().saturating_sub(1);
        self.event("content_block_stop", json!({ "index": index }))
    }
}

impl Dialect for Messages {
    fn kind(&self) -> &'static str {
        kind(self.streamed)
    }

    fn opening(&mut self) -> String {
        let message = self.message(&json!([]), None);
        self.event("message_start", json!({ "message": message }))
    }

    fn words(&mut self, text: &str) -> String {
        let mut out = String::new();
        if !self.open {
            let part = json!({ "type": "text", "text": "" });
            out += &self.begin(&part, part.clone());
        }
        if let Some(last) = self.parts.last_mut() {
            last["text"] = json!(text_of(&last["text"]) + text);
        }
        out + &self.more(&json!({ "type": "text_delta", "text": text }))
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> String {
        self.called = true;
        let part = |input: &Value| {
            let id = format!("toolu_{}", self.number);
            json!({ "type": "tool_use", "id": id, "name": tool, "input": input })
        };
        let (shown, whole) = (part(&json!({})), part(arguments));
        let mut out = self.begin(&shown, whole);
        let partial = arguments.to_string();
        out += &self.more(&json!({ "type": "input_json_delta", "partial_json": partial }));
        out + &self.end_part()
    }

    fn closing(&mut self) -> String {
        let mut out = self.end_part();
        if !self.streamed {
            let parts = Value::Array(std::mem::take(&mut self.parts));
            return self.message(&parts, Some(self.reason())).to_string();
        }
        let delta = json!({ "stop_reason": self.reason(), "stop_sequence": null });
        let end = json!({ "delta": delta, "usage": { "output_tokens": 7 } });
        out += &self.event("message_delta", end);
        out + &self.event("message_stop", json!({}))
    }
}
