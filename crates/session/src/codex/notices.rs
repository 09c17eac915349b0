//! What notifications mean.

use serde_json::Value;

use super::items;
use crate::{
    event::{EventKind, PlanStep, TurnOutcome, Usage},
    protocol::Happening,
    rpc::Refusal,
    settings::{ConversationId, TurnId},
};

/// Returns what a notification means; one of another thread means nothing.
pub(super) fn notice(thread: &ConversationId, method: &str, params: &Value) -> Vec<Happening> {
    if params["threadId"].as_str().is_some_and(|id| id != thread.0) {
        return Vec::new();
    }
    let delta = |tell: fn(String, String) -> EventKind| {
        let (item, text) = (params["itemId"].as_str(), params["delta"].as_str());
        of_turn(
            params,
            Some(tell(
                item.unwrap_or_default().to_owned(),
                text.unwrap_or_default().to_owned(),
            )),
        )
    };
    match method {
        "turn/started" => turn_id(&params["turn"])
            .map(Happening::TurnRuns)
            .into_iter()
            .collect(),
        "turn/completed" => vec![ended(&params["turn"])],
        "item/started" => of_turn(params, items::started(&params["item"])),
        "item/completed" => of_turn(params, items::completed(&params["item"])),
        "item/agentMessage/delta" => delta(|item, text| EventKind::TextDelta { item, text }),
        "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
            delta(|item, text| EventKind::ThoughtDelta { item, text })
        }
        "item/commandExecution/outputDelta" | "item/fileChange/outputDelta" => {
            delta(|item, text| EventKind::ToolOutput { item, text })
        }
        "turn/plan/updated" => of_turn(params, Some(plan(params))),
        "error" => of_turn(params, Some(trouble(params))),
        "serverRequest/resolved" => vec![Happening::RequestSettled(params["requestId"].clone())],
        _ => early(method, params),
    }
}

/// Returns what a notification means that may come at any time.
pub(super) fn early(method: &str, params: &Value) -> Vec<Happening> {
    match method {
        "thread/tokenUsage/updated" => vec![Happening::Tell(EventKind::Usage {
            usage: usage(&params["tokenUsage"]),
        })],
        "mcpServer/startupStatus/updated" => server(params),
        "configWarning" | "deprecationNotice" | "warning" => {
            let said = ["summary", "message", "details"];
            let said: Vec<_> = said.iter().filter_map(|key| params[key].as_str()).collect();
            vec![warning("agent", said.join(": "))]
        }
        _ => Vec::new(),
    }
}

/// Returns what the answer to `turn/start` means.
pub(super) fn turn_answered(answer: &Result<Value, Refusal>) -> Vec<Happening> {
    let Ok(answer) = answer else {
        return Vec::new();
    };
    let turn = &answer["turn"];
    let named = turn_id(turn).map(Happening::TurnNamed);
    let over = matches!(
        turn["status"].as_str(),
        Some("completed" | "interrupted" | "failed")
    );
    named.into_iter().chain(over.then(|| ended(turn))).collect()
}

/// Returns what a line of standard error is worth telling: that a tool server wants a login. It decides nothing.
pub(super) fn stderr(line: &str) -> Option<EventKind> {
    let lower = line.to_ascii_lowercase();
    let login = [
        "not logged in",
        "unauthori",
        "auth required",
        "authentication",
        "oauth",
        "401",
    ];
    let said = lower.contains("mcp")
        && (lower.contains("error") || lower.contains("fail") || lower.contains("warn"))
        && login.iter().any(|word| lower.contains(word));
    said.then(|| EventKind::Warning {
        about: "mcp".to_owned(),
        text: line.to_owned(),
    })
}

fn of_turn(params: &Value, kind: Option<EventKind>) -> Vec<Happening> {
    let Some(kind) = kind else {
        return Vec::new();
    };
    vec![match params["turnId"].as_str() {
        Some(turn) => Happening::TellOf(TurnId(turn.to_owned()), kind),
        None => Happening::Tell(kind),
    }]
}

fn turn_id(turn: &Value) -> Option<TurnId> {
    let id = turn["id"].as_str().filter(|id| !id.is_empty())?;
    Some(TurnId(id.to_owned()))
}

fn ended(turn: &Value) -> Happening {
    let error = turn["error"]["message"].as_str();
    Happening::TurnEnded {
        turn: turn_id(turn),
        outcome: match turn["status"].as_str() {
            Some("interrupted") => TurnOutcome::Interrupted,
            Some("failed") => TurnOutcome::Failed,
            _ => TurnOutcome::Completed,
        },
        error: error.map(str::to_owned),
        reason: turn["status"].as_str().map(str::to_owned),
    }
}

fn plan(params: &Value) -> EventKind {
    let steps = params["plan"].as_array().into_iter().flatten();
    EventKind::Plan {
        steps: steps
            .map(|step| PlanStep {
                step: step["step"].as_str().unwrap_or_default().to_owned(),
                status: step["status"].as_str().unwrap_or_default().to_owned(),
            })
            .collect(),
    }
}

fn trouble(params: &Value) -> EventKind {
    let text = params["error"]["message"]
        .as_str()
        .unwrap_or("an error without words");
    let again = match params["willRetry"].as_bool() {
        Some(true) => " (it tries again)",
        _ => "",
    };
    EventKind::Warning {
        about: "agent".to_owned(),
        text: format!("{text}{again}"),
    }
}

fn usage(usage: &Value) -> Usage {
    let total = &usage["total"];
    Usage {
        input: total["inputTokens"].as_u64(),
        cached_input: total["cachedInputTokens"].as_u64(),
        output: total["outputTokens"].as_u64(),
        reasoning: total["reasoningOutputTokens"].as_u64(),
        total: total["totalTokens"].as_u64(),
        window: usage["modelContextWindow"].as_u64(),
    }
}

/// The state of a tool server is told; one that failed is a warning as well, which names it and says why.
fn server(params: &Value) -> Vec<Happening> {
    let name = params["name"].as_str().unwrap_or("(no name)").to_owned();
    let status = params["status"].as_str().unwrap_or("unknown").to_owned();
    let error = params["error"]
        .as_str()
        .or_else(|| params["error"]["message"].as_str())
        .or_else(|| params["failureReason"].as_str())
        .map(str::to_owned);
    let failed = status == "failed";
    let text = format!(
        "the tool server `{name}` is not usable: {}",
        error.as_deref().unwrap_or("it did not say why")
    );
    let told = Happening::Tell(EventKind::McpServer {
        server: name,
        status,
        error,
    });
    std::iter::once(told)
        .chain(failed.then(|| warning("mcp", text)))
        .collect()
}

fn warning(about: &str, text: String) -> Happening {
    Happening::Tell(EventKind::Warning {
        about: about.to_owned(),
        text,
    })
}
