//! The dialect of Codex: `/v1/responses`.

use serde_json::{Value, json};

use super::{
    dialect::{Dialect, list, text_of},
    question::Question,
};

/// One answer.
#[derive(Debug)]
pub(crate) struct Responses {
    number: usize,
    said: Option<String>,
}

impl Responses {
    pub(crate) const fn new(number: usize) -> Self {
        Self { number, said: None }
    }

    pub(crate) fn read(body: &Value) -> Question {
        let mut question = Question {
            model: text_of(&body["model"]),
            ..Question::default()
        };
        for tool in list(&body["tools"]) {
            let name = tool["name"].as_str().or(tool["type"].as_str());
            question.tools.extend(name.map(str::to_owned));
        }
        for item in list(&body["input"]) {
            match (item["type"].as_str(), item["role"].as_str()) {
                (Some("message"), Some("user")) => question.user_said(&text_of(&item["content"])),
                (Some("message"), _) => question.model_said(&text_of(&item["content"])),
                (Some("function_call_output" | "custom_tool_call_output"), _) => {
                    question.tool_said(text_of(&item["output"]));
                }
                _ => {}
            }
        }
        question
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}_{}", self.number)
    }

    fn message(&self, text: &str) -> Value {
        let content = if text.is_empty() {
            json!([])
        } else {
            json!([{ "type": "output_text", "text": text, "annotations": [] }])
        };
        json!({ "type": "message", "role": "assistant", "id": self.id("msg"), "content": content })
    }
}

fn event(kind: &str, mut data: Value) -> String {
    data["type"] = json!(kind);
    format!("event: {kind}\ndata: {data}\n\n")
}

impl Dialect for Responses {
    fn opening(&mut self) -> String {
        event(
            "response.created",
            json!({ "response": { "id": self.id("resp") } }),
        )
    }

    fn words(&mut self, text: &str) -> String {
        let mut out = String::new();
        if self.said.is_none() {
            let item = json!({ "output_index": 0, "item": self.message("") });
            out += &event("response.output_item.added", item);
        }
        self.said.get_or_insert_default().push_str(text);
        let delta = json!({ "item_id": self.id("msg"), "output_index": 0, "content_index": 0, "delta": text });
        out + &event("response.output_text.delta", delta)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> String {
        let item = json!({
            "type": "function_call", "id": self.id("fc"), "call_id": self.id("call"),
            "name": tool, "arguments": arguments.to_string(),
        });
        event(
            "response.output_item.done",
            json!({ "output_index": 0, "item": item }),
        )
    }

    fn closing(&mut self) -> String {
        let mut out = String::new();
        if let Some(said) = self.said.take() {
            let item = json!({ "output_index": 0, "item": self.message(&said) });
            out += &event("response.output_item.done", item);
        }
        let usage = json!({
            "input_tokens": 11, "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": 7, "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": 18,
        });
        let response = json!({ "response": { "id": self.id("resp"), "usage": usage } });
        out + &event("response.completed", response)
    }
}
