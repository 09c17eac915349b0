//! The dialect of Gemini CLI: `/v1beta/models/MODEL:streamGenerateContent`, and the same without a stream.

use serde_json::{Value, json};

use super::{
    dialect::{Dialect, kind, list, text_of},
    question::Question,
};

/// One answer; without a stream all its parts are kept until the end.
#[derive(Debug)]
pub(crate) struct Gemini {
    streamed: bool,
    parts: Vec<Value>,
}

impl Gemini {
    pub(crate) const fn new(streamed: bool) -> Self {
        Self {
            streamed,
            parts: Vec::new(),
        }
    }

    pub(crate) fn read(body: &Value) -> Question {
        let mut question = Question::default();
        let declared = list(&body["tools"])
            .iter()
            .flat_map(|tool| list(&tool["functionDeclarations"]));
        for tool in declared {
            question
                .tools
                .extend(tool["name"].as_str().map(str::to_owned));
        }
        for content in list(&body["contents"]) {
            let user = content["role"] == "user";
            for part in list(&content["parts"]) {
                if let Some(text) = part["text"].as_str() {
                    if user {
                        question.user_said(text);
                    } else {
                        question.model_said(text);
                    }
                } else if let Some(answer) = part.get("functionResponse") {
                    question.tool_said(text_of(&answer["response"]));
                }
            }
        }
        question
    }

    fn part(&mut self, part: Value) -> String {
        if self.streamed {
            return message(&json!([part]), None);
        }
        self.parts.push(part);
        String::new()
    }
}

fn document(parts: &Value, reason: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
    if let Some(reason) = reason {
        candidate["finishReason"] = json!(reason);
    }
    let usage = json!({ "promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18 });
    json!({ "candidates": [candidate], "usageMetadata": usage })
}

fn message(parts: &Value, reason: Option<&str>) -> String {
    format!("data: {}\r\n\r\n", document(parts, reason))
}

impl Dialect for Gemini {
    fn kind(&self) -> &'static str {
        kind(self.streamed)
    }

    fn opening(&mut self) -> String {
        String::new()
    }

    fn words(&mut self, text: &str) -> String {
        self.part(json!({ "text": text }))
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> String {
        self.part(json!({ "functionCall": { "name": tool, "args": arguments } }))
    }

    fn closing(&mut self) -> String {
        if self.streamed {
            message(&json!([{ "text": "" }]), Some("STOP"))
        } else {
            document(&Value::Array(std::mem::take(&mut self.parts)), Some("STOP")).to_string()
        }
    }
}
