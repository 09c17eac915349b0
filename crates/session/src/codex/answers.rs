//! What Codex asks, and how it is answered.

use serde_json::{Map, Value, json};

use crate::{
    protocol::Asked,
    request::{Choice, Decision, DecisionKind, InputQuestion, OpenRequest, Question, Verdict},
    rpc::Refusal,
    settings::TurnId,
};

const COMMAND: &str = "item/commandExecution/requestApproval";
const FILES: &str = "item/fileChange/requestApproval";
const PERMISSIONS: &str = "item/permissions/requestApproval";
const INPUT: &str = "item/tool/requestUserInput";
const ELICITATION: &str = "mcpServer/elicitation/request";
const OLD_COMMAND: &str = "execCommandApproval";
const OLD_FILES: &str = "applyPatchApproval";

/// What is asked and is nobody's to answer here; it is refused without a word to people.
const NOT_OURS: [&str; 5] = [
    "account/chatgptAuthTokens/refresh",
    "attestation/generate",
    "item/tool/call",
    "currentTime/read",
    "item/tool/requestDynamic",
];

/// Returns what is to be done about a request.
pub(super) fn request(method: &str, params: &Value) -> Asked {
    let known = [
        COMMAND,
        FILES,
        PERMISSIONS,
        INPUT,
        ELICITATION,
        OLD_COMMAND,
        OLD_FILES,
    ];
    if known.contains(&method) && !params.is_object() {
        let refusal = Refusal::new(-32602, "the parameters are no object");
        return Asked::Answer(Err(refusal));
    }
    let question = match method {
        COMMAND | OLD_COMMAND => Question::Command {
            command: match &params["command"] {
                Value::String(command) => command.clone(),
                Value::Array(words) => {
                    let words: Vec<_> = words.iter().filter_map(Value::as_str).collect();
                    words.join(" ")
                }
                _ => String::new(),
            },
            directory: params["cwd"].as_str().map(str::to_owned),
        },
        FILES => Question::FileChange {
            paths: params["grantRoot"]
                .as_str()
                .map(str::to_owned)
                .into_iter()
                .collect(),
        },
        OLD_FILES => Question::FileChange {
            paths: params["fileChanges"]
                .as_object()
                .map(|files| files.keys().cloned().collect())
                .unwrap_or_default(),
        },
        PERMISSIONS => Question::Permissions {
            permissions: params["permissions"].clone(),
        },
        INPUT => {
            let Some(questions) = questions(params) else {
                let refusal = Refusal::new(-32602, "the questions are no list");
                return Asked::Answer(Err(refusal));
            };
            Question::Input { questions }
        }
        ELICITATION => Question::Elicitation {
            server: text(params, "serverName"),
            message: text(params, "message"),
            form: params
                .get("requestedSchema")
                .or_else(|| params.get("url"))
                .cloned()
                .unwrap_or(Value::Null),
        },
        method if NOT_OURS.contains(&method) => {
            return Asked::Answer(Err(Refusal::unknown_method(method)));
        }
        _ => return Asked::Unknown,
    };
    Asked::Person {
        turn: params["turnId"].as_str().map(|id| TurnId(id.to_owned())),
        item: ["itemId", "callId"]
            .iter()
            .find_map(|key| params[key].as_str())
            .map(str::to_owned),
        reason: params["reason"].as_str().map(str::to_owned),
        question,
        choices: choices(params),
    }
}

fn questions(params: &Value) -> Option<Vec<InputQuestion>> {
    let questions = params["questions"].as_array()?;
    let question = |question: &Value| InputQuestion {
        id: text(question, "id"),
        header: text(question, "header"),
        question: text(question, "question"),
        options: question["options"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|option| text(option, "label"))
            .collect(),
        secret: question["isSecret"] == true,
    };
    Some(questions.iter().map(question).collect())
}

/// Lists the answers that are offered; one that is an object is named by its only key.
fn choices(params: &Value) -> Vec<Choice> {
    let offered = params["availableDecisions"]
        .as_array()
        .into_iter()
        .flatten();
    offered
        .filter_map(|offer| {
            let id = choice_name(offer)?;
            Some(Choice {
                decision: match id {
                    "accept" => DecisionKind::Approve,
                    "decline" => DecisionKind::Deny,
                    "cancel" => DecisionKind::Abort,
                    id if id.starts_with("accept") => DecisionKind::ApproveForSession,
                    _ => DecisionKind::Deny,
                },
                title: id.to_owned(),
                id: id.to_owned(),
            })
        })
        .collect()
}

fn choice_name(offer: &Value) -> Option<&str> {
    match offer {
        Value::String(name) => Some(name),
        Value::Object(fields) => fields.keys().next().map(String::as_str),
        _ => None,
    }
}

/// Returns the answer to a request.
pub(super) fn reply(request: &OpenRequest, verdict: &Verdict) -> Result<Value, Refusal> {
    let decision = match verdict {
        Verdict::Decided(decision) => decision,
        Verdict::Cancelled => return Err(Refusal::new(-32000, "the request was cancelled")),
        Verdict::Disconnected => return Err(Refusal::new(-32000, "the client is gone")),
    };
    match request.method.as_str() {
        PERMISSIONS => permissions(request, decision),
        INPUT => input(decision),
        ELICITATION => Ok(elicitation(decision)),
        OLD_COMMAND | OLD_FILES => Ok(json!({"decision": match decision {
            Decision::Approve => "approved",
            Decision::ApproveForSession => "approved_for_session",
            Decision::Abort => "abort",
            Decision::Choose { choice } => match choice.as_str() {
                known @ ("approved" | "approved_for_session" | "abort") => known,
                _ => "denied",
            },
            Decision::Deny { .. } | Decision::Input { .. } => "denied",
        }})),
        _ => Ok(json!({"decision": approval(request, decision)})),
    }
}

fn approval(request: &OpenRequest, decision: &Decision) -> Value {
    match decision {
        Decision::Approve => json!("accept"),
        Decision::ApproveForSession => json!("acceptForSession"),
        Decision::Abort => json!("cancel"),
        Decision::Choose { choice } => {
            let mut offered = request.params["availableDecisions"]
                .as_array()
                .into_iter()
                .flatten();
            let found = offered.find(|offer| choice_name(offer) == Some(choice));
            let known = ["accept", "acceptForSession", "cancel"].contains(&choice.as_str());
            match found {
                Some(offer) => offer.clone(),
                None if known => json!(choice),
                None => json!("decline"),
            }
        }
        Decision::Deny { .. } | Decision::Input { .. } => json!("decline"),
    }
}

fn permissions(request: &OpenRequest, decision: &Decision) -> Result<Value, Refusal> {
    match decision {
        Decision::Approve | Decision::ApproveForSession => Ok(json!({
            "permissions": request.params["permissions"], "scope": "session",
        })),
        _ => Err(Refusal::new(-32000, "the permissions were not granted")),
    }
}

fn input(decision: &Decision) -> Result<Value, Refusal> {
    let Decision::Input { answers } = decision else {
        return Err(Refusal::new(-32000, "the questions were not answered"));
    };
    let answers: Map<String, Value> = answers
        .iter()
        .map(|(id, texts)| (id.clone(), json!({"answers": texts})))
        .collect();
    Ok(json!({"answers": answers}))
}

fn elicitation(decision: &Decision) -> Value {
    match decision {
        Decision::Approve | Decision::ApproveForSession => {
            json!({"action": "accept", "content": {}})
        }
        Decision::Input { answers } => {
            let content: Map<String, Value> = answers
                .iter()
                .map(|(key, texts)| {
                    let value = match texts.as_slice() {
                        [one] => json!(one),
                        several => json!(several),
                    };
                    (key.clone(), value)
                })
                .collect();
            json!({"action": "accept", "content": content})
        }
        Decision::Abort => json!({"action": "cancel", "content": null}),
        Decision::Deny { .. } | Decision::Choose { .. } => {
            json!({"action": "decline", "content": null})
        }
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}
