//! The dialect of most others: `/v1/chat/completions`.

use serde_json::{Value, json};

use super::{
    dialect::{Dialect, list, text_of},
    question::Question,
};

/// One answer.
#[derive(Debug)]
pub(crate) struct Chat {
    number: usize,
    model: String,
    called: bool,
}

impl Chat {
    pub(crate) fn new(number: usize, body: &Value) -> Self {
        Self {
            number,
            model: text_of(&body["model"]),
            called: false,
        }
    }

    pub(crate) fn read(body: &Value) -> Question {
        let mut question = Question {
            model: text_of(&body["model"]),
            ..Question::default()
        };
        for tool in list(&body["tools"]) {
            let name = tool["function"]["name"].as_str();
            question.tools.extend(name.map(str::to_owned));
        }
        for message in list(&body["messages"]) {
            let text = text_of(&message["content"]);
            match message["role"].as_str() {
                Some("user") => question.user_said(&text),
                Some("tool") => question.tool_said(text),
                _ => question.model_said(&text),
            }
        }
        question
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> String {
        let mut chunk = json!({
            "id": format!("chat_{}", self.number), "object": "chat.completion.chunk", "created": 1,
            "model": self.model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        });
        if finish.is_some() {
            chunk["usage"] =
                json!({ "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 });
        }
        format!("data: {chunk}\n\n")
    }
}

impl Dialect for Chat {
    fn opening(&mut self) -> String {
        self.chunk(&json!({ "role": "assistant", "content": "" }), None)
    }

    fn words(&mut self, text: &str) -> String {
        self.chunk(&json!({ "content": text }), None)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> String {
        self.called = true;
        let function = json!({ "name": tool, "arguments": arguments.to_string() });
        let call = json!({
            "index": 0, "id": format!("call_{}", self.number), "type": "function",
            "function": function,
        });
        self.chunk(&json!({ "tool_calls": [call] }), None)
    }

    fn closing(&mut self) -> String {
        let reason = if self.called { "tool_calls" } else { "stop" };
        self.chunk(&json!({}), Some(reason)) + "data: [DONE]\n\n"
    }
}
