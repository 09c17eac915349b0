//! What a dialect is: how each part of an answer is written; and what all of them need.

use serde_json::{Value, json};

/// One answer in one dialect; every method returns the text that goes out next.
pub(crate) trait Dialect: std::fmt::Debug + Send {
    /// Returns the media type of its text.
    fn kind(&self) -> &'static str {
        kind(true)
    }
    /// Begins it.
    fn opening(&mut self) -> String;
    /// Says some words more.
    fn words(&mut self, text: &str) -> String;
    /// Has a tool called.
    fn call(&mut self, tool: &str, arguments: &Value) -> String;
    /// Ends it.
    fn closing(&mut self) -> String;
}

/// Returns the tool that runs a shell command, and its arguments for this one.
pub(crate) fn shell(tools: &[String], command: &str, more: bool) -> Option<(String, Value)> {
    let known = [
        "exec_command",
        "shell_command",
        "shell",
        "bash",
        "Bash",
        "run_shell_command",
    ];
    let tool = known
        .into_iter()
        .find(|known| tools.iter().any(|tool| tool == known))?;
    let mut arguments = match tool {
        "exec_command" => json!({ "cmd": command }),
        "shell_command" => json!({ "command": command }),
        "shell" => json!({ "command": ["sh", "-c", command] }),
        _ => json!({ "command": command, "description": "runs it" }),
    };
    if more && matches!(tool, "exec_command" | "shell_command" | "shell") {
        arguments["sandbox_permissions"] = json!("require_escalated");
        arguments["justification"] = json!("the test wants it");
    }
    Some((tool.to_owned(), arguments))
}

/// Returns the text of what may be a text, or a list of parts with texts.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        other => other.to_string(),
    }
}

/// Returns the members of a list, and nothing where there is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the type of an answer, in a stream or whole.
pub(super) fn kind(streamed: bool) -> &'static str {
    if streamed {
        "text/event-stream"
    } else {
        "application/json"
    }
}
