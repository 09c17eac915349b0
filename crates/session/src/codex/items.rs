//! The items of a turn: messages, thoughts, commands, changes of files, tools.

use serde_json::Value;

use crate::event::{EventKind, FileChange, ItemOutcome, ToolKind};

/// Returns what the beginning of an item is worth telling.
pub(super) fn started(item: &Value) -> Option<EventKind> {
    let id = id(item)?;
    Some(match kind(item) {
        "commandExecution" => tool(id, ToolKind::Command, text(item, "command"), Value::Null),
        "mcpToolCall" => {
            let title = format!("{}/{}", text(item, "server"), text(item, "tool"));
            tool(id, ToolKind::Mcp, title, item["arguments"].clone())
        }
        "webSearch" => tool(id, ToolKind::WebSearch, text(item, "query"), Value::Null),
        "dynamicToolCall" | "collabAgentToolCall" | "collabToolCall" => tool(
            id,
            ToolKind::Other,
            text(item, "tool"),
            item["arguments"].clone(),
        ),
        "fileChange" => changes(id, item),
        _ => return None,
    })
}

/// Returns what the end of an item is worth telling.
pub(super) fn completed(item: &Value) -> Option<EventKind> {
    let id = id(item)?;
    Some(match kind(item) {
        "agentMessage" => EventKind::Text {
            item: id,
            text: text(item, "text"),
        },
        "commandExecution" => EventKind::ToolEnded {
            item: id,
            outcome: outcome(item),
            exit_code: item["exitCode"].as_i64(),
            output: item["aggregatedOutput"].as_str().map(str::to_owned),
        },
        "mcpToolCall" => EventKind::ToolEnded {
            item: id,
            outcome: outcome(item),
            exit_code: None,
            output: Some(&item["error"])
                .filter(|error| !error.is_null())
                .or_else(|| Some(&item["result"]).filter(|result| !result.is_null()))
                .map(shown),
        },
        "webSearch" | "dynamicToolCall" | "collabAgentToolCall" | "collabToolCall" => {
            EventKind::ToolEnded {
                item: id,
                outcome: outcome(item),
                exit_code: None,
                output: None,
            }
        }
        "fileChange" => changes(id, item),
        _ => return None,
    })
}

fn tool(item: String, tool: ToolKind, title: String, input: Value) -> EventKind {
    EventKind::ToolStarted {
        item,
        tool,
        title,
        input,
    }
}

fn changes(item: String, of: &Value) -> EventKind {
    let list = of["changes"].as_array().into_iter().flatten();
    EventKind::FileChanges {
        item,
        outcome: outcome(of),
        changes: list
            .map(|change| FileChange {
                path: text(change, "path"),
                change: change["kind"]["type"]
                    .as_str()
                    .or_else(|| change["kind"].as_str())
                    .unwrap_or("update")
                    .to_owned(),
                diff: change["diff"].as_str().map(str::to_owned),
            })
            .collect(),
    }
}

fn outcome(item: &Value) -> ItemOutcome {
    match item["status"].as_str() {
        Some("inProgress") => ItemOutcome::InProgress,
        Some("failed") => ItemOutcome::Failed,
        Some("declined") => ItemOutcome::Declined,
        _ => ItemOutcome::Completed,
    }
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or_default()
}

fn id(item: &Value) -> Option<String> {
    item["id"].as_str().map(str::to_owned)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn shown(value: &Value) -> String {
    match value["message"].as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}
