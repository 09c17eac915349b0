//! What the agent's notifications mean, and the end of a turn.

use agent_client_protocol_schema::v1::{
    ContentBlock, Plan, SessionUpdate, StopReason, ToolCall, ToolCallContent, ToolCallStatus,
    ToolCallUpdate, ToolKind as Kind,
};
use serde_json::Value;

use super::opening::is_login;
use crate::{
    event::{EventKind, FileChange, ItemOutcome, PlanStep, ToolKind, TurnOutcome, Usage},
    protocol::Happening,
    rpc::Refusal,
};

/// The name of messages and thoughts to which the agent gives none.
const UNNAMED: &str = "message";

/// Returns what an update means; one that is not known means nothing.
pub(super) fn meaning(update: &Value) -> Vec<Happening> {
    let Ok(update) = serde_json::from_value(update.clone()) else {
        return Vec::new();
    };
    let events = match update {
        SessionUpdate::AgentMessageChunk(chunk) => {
            let item = item(chunk.message_id.map(|id| id.to_string()));
            words(&chunk.content)
                .map(|text| EventKind::TextDelta { item, text })
                .into_iter()
                .collect()
        }
        SessionUpdate::AgentThoughtChunk(chunk) => {
            let item = item(chunk.message_id.map(|id| id.to_string()));
            words(&chunk.content)
                .map(|text| EventKind::ThoughtDelta { item, text })
                .into_iter()
                .collect()
        }
        SessionUpdate::ToolCall(call) => called(call),
        SessionUpdate::ToolCallUpdate(update) => updated(update),
        SessionUpdate::Plan(plan) => vec![planned(&plan)],
        SessionUpdate::UsageUpdate(usage) => vec![EventKind::Usage {
            usage: Usage {
                total: Some(usage.used),
                window: Some(usage.size),
                ..Usage::default()
            },
        }],
        // The user's own words, modes, commands: nothing that a turn is told by.
        _ => Vec::new(),
    };
    events.into_iter().map(Happening::Tell).collect()
}

/// Returns what the answer to a prompt means: the turn has ended.
pub(super) fn ended(answer: &Result<Value, Refusal>) -> Vec<Happening> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => {
            let mut happenings = Vec::new();
            if is_login(refusal) {
                let message = refusal.message.clone();
                happenings.push(Happening::Tell(EventKind::AuthenticationRequired {
                    message,
                }));
            }
            happenings.push(end(TurnOutcome::Failed, Some(refusal.to_string()), None));
            return happenings;
        }
    };
    let mut happenings = Vec::new();
    if let Some(usage) = used(&answer["usage"]) {
        happenings.push(Happening::Tell(EventKind::Usage { usage }));
    }
    let reason = answer["stopReason"].as_str().map(str::to_owned);
    let known = serde_json::from_value(answer["stopReason"].clone()).ok();
    let (outcome, error) = match known {
        Some(StopReason::Cancelled) => (TurnOutcome::Interrupted, None),
        Some(StopReason::Refusal) => (
            TurnOutcome::Failed,
            Some("the model refused to go on".to_owned()),
        ),
        // What stopped it stands beside it: it said what it could.
        _ => (TurnOutcome::Completed, None),
    };
    happenings.push(end(outcome, error, reason));
    happenings
}

fn end(outcome: TurnOutcome, error: Option<String>, reason: Option<String>) -> Happening {
    Happening::TurnEnded {
        turn: None,
        outcome,
        error,
        reason,
    }
}

fn used(usage: &Value) -> Option<Usage> {
    let of = |key: &str| usage[key].as_u64();
    usage.is_object().then(|| Usage {
        input: of("inputTokens"),
        cached_input: of("cachedReadTokens"),
        output: of("outputTokens"),
        reasoning: of("thoughtTokens"),
        total: of("totalTokens"),
        window: None,
    })
}

fn item(name: Option<String>) -> String {
    name.unwrap_or_else(|| UNNAMED.to_owned())
}

/// Returns the text of a piece of content.
fn words(content: &ContentBlock) -> Option<String> {
    match content {
        ContentBlock::Text(text) => Some(text.text.clone()),
        ContentBlock::ResourceLink(link) => Some(link.uri.clone()),
        _ => None,
    }
}

fn called(call: ToolCall) -> Vec<EventKind> {
    let id = call.tool_call_id.to_string();
    let mut events = vec![EventKind::ToolStarted {
        item: id.clone(),
        tool: kind(call.kind),
        title: call.title,
        input: call.raw_input.unwrap_or_default(),
    }];
    events.extend(progress(
        id,
        Some(call.status),
        &call.content,
        call.raw_output.as_ref(),
    ));
    events
}

fn updated(update: ToolCallUpdate) -> Vec<EventKind> {
    let id = update.tool_call_id.to_string();
    let fields = update.fields;
    let ends = matches!(
        fields.status,
        Some(ToolCallStatus::Completed | ToolCallStatus::Failed)
    );
    let mut events = Vec::new();
    if !ends && (fields.title.is_some() || fields.raw_input.is_some()) {
        events.push(EventKind::ToolUpdated {
            item: id.clone(),
            title: fields.title,
            input: fields.raw_input.unwrap_or_default(),
        });
    }
    let content = fields.content.unwrap_or_default();
    events.extend(progress(
        id,
        fields.status,
        &content,
        fields.raw_output.as_ref(),
    ));
    events
}

/// Returns what is told of the content and of the end of a tool call.
fn progress(
    item: String,
    status: Option<ToolCallStatus>,
    content: &[ToolCallContent],
    raw_output: Option<&Value>,
) -> Vec<EventKind> {
    let outcome = match status {
        Some(ToolCallStatus::Completed) => ItemOutcome::Completed,
        Some(ToolCallStatus::Failed) => ItemOutcome::Failed,
        _ => ItemOutcome::InProgress,
    };
    let mut events = Vec::new();
    let changes: Vec<_> = content.iter().filter_map(change).collect();
    if !changes.is_empty() {
        events.push(EventKind::FileChanges {
            item: item.clone(),
            outcome,
            changes,
        });
    }
    // Content replaces what was told before, so it is told once: when it is whole.
    if outcome != ItemOutcome::InProgress {
        let texts: Vec<_> = content
            .iter()
            .filter_map(|content| match content {
                ToolCallContent::Content(content) => words(&content.content),
                _ => None,
            })
            .collect();
        events.push(EventKind::ToolEnded {
            item,
            outcome,
            exit_code: raw_output.and_then(exit_code),
            output: (!texts.is_empty()).then(|| texts.concat()),
        });
    }
    events
}

/// Looks for the exit code of a command where agents put it.
fn exit_code(raw: &Value) -> Option<i64> {
    ["/exit_code", "/exitCode", "/metadata/exit"]
        .into_iter()
        .find_map(|at| raw.pointer(at)?.as_i64())
}

fn change(content: &ToolCallContent) -> Option<FileChange> {
    let ToolCallContent::Diff(diff) = content else {
        return None;
    };
    let change = if diff.old_text.is_some() {
        "update"
    } else {
        "add"
    };
    Some(FileChange {
        path: diff.path.display().to_string(),
        change: change.to_owned(),
        diff: None,
    })
}

fn planned(plan: &Plan) -> EventKind {
    let steps = plan.entries.iter().map(|entry| PlanStep {
        step: entry.content.clone(),
        status: serde_json::to_value(&entry.status)
            .ok()
            .and_then(|status| status.as_str().map(str::to_owned))
            .unwrap_or_default(),
    });
    EventKind::Plan {
        steps: steps.collect(),
    }
}

fn kind(kind: Kind) -> ToolKind {
    match kind {
        Kind::Execute => ToolKind::Command,
        Kind::Edit | Kind::Delete | Kind::Move => ToolKind::FileChange,
        Kind::Fetch => ToolKind::WebSearch,
        _ => ToolKind::Other,
    }
}
