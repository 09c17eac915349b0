//! What the agent asks for, and how an answer is written.
//!
//! An answer never grants more than was said: what the agent does not offer in that measure is a no.

use agent_client_protocol_schema::v1::{
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionResponse,
    SelectedPermissionOutcome, ToolCallContent, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind as Kind,
};
use serde_json::{Value, json};

use crate::{
    protocol::Asked,
    request::{Choice, Decision, DecisionKind, OpenRequest, Question, Verdict},
    rpc::Refusal,
};

/// How many answers of one request are shown.
const MAX_CHOICES: usize = 64;

/// Reads a request for a permission.
pub(super) fn asked(params: &Value) -> Asked {
    let wrong = |what: &str| Asked::Answer(Err(Refusal::new(-32602, what)));
    let Ok(call) = serde_json::from_value::<ToolCallUpdate>(params["toolCall"].clone()) else {
        return wrong("`toolCall` is missing or is none");
    };
    let Some(options) = params["options"].as_array() else {
        return wrong("`options` is missing or is no list");
    };
    Asked::Person {
        turn: None,
        item: Some(call.tool_call_id.to_string()),
        reason: None,
        question: question(&call.fields),
        choices: options
            .iter()
            .take(MAX_CHOICES)
            .filter_map(choice)
            .collect(),
    }
}

/// Reads one of the offered answers; one of a kind that is not known could mean anything, and is not offered.
fn choice(option: &Value) -> Option<Choice> {
    let kind = serde_json::from_value(option["kind"].clone()).ok()?;
    Some(Choice {
        id: option["optionId"].as_str()?.to_owned(),
        title: option["name"].as_str().unwrap_or_default().to_owned(),
        decision: match kind {
            PermissionOptionKind::AllowOnce => DecisionKind::Approve,
            PermissionOptionKind::AllowAlways => DecisionKind::ApproveForSession,
            PermissionOptionKind::RejectOnce => DecisionKind::Deny,
            PermissionOptionKind::RejectAlways => DecisionKind::DenyForSession,
            _ => return None,
        },
    })
}

fn question(fields: &ToolCallUpdateFields) -> Question {
    let title = fields.title.clone().unwrap_or_default();
    let input = fields.raw_input.clone().unwrap_or_default();
    match fields.kind {
        Some(Kind::Execute) => Question::Command {
            command: command(&input["command"]).unwrap_or(title),
            directory: input["cwd"].as_str().map(str::to_owned),
        },
        Some(Kind::Edit | Kind::Delete | Kind::Move) => Question::FileChange {
            paths: paths(fields),
        },
        _ => Question::Tool { title, input },
    }
}

/// Reads a command, which is a text or a list of words.
fn command(value: &Value) -> Option<String> {
    match value {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => {
            let words: Option<Vec<_>> = words.iter().map(Value::as_str).collect();
            words.map(|words| words.join(" "))
        }
        _ => None,
    }
}

fn paths(fields: &ToolCallUpdateFields) -> Vec<String> {
    let located = fields.locations.iter().flatten().map(|place| &place.path);
    let changed = fields
        .content
        .iter()
        .flatten()
        .filter_map(|content| match content {
            ToolCallContent::Diff(diff) => Some(&diff.path),
            _ => None,
        });
    let mut paths: Vec<_> = located
        .chain(changed)
        .map(|path| path.display().to_string())
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Writes an answer.
pub(super) fn answer(request: &OpenRequest, verdict: &Verdict) -> Value {
    let choices = &request.request.choices;
    let of_kind = |kinds: &[DecisionKind]| {
        kinds
            .iter()
            .find_map(|kind| choices.iter().find(|choice| choice.decision == *kind))
    };
    let denied = || of_kind(&[DecisionKind::Deny, DecisionKind::DenyForSession]);
    let chosen = match verdict {
        Verdict::Decided(Decision::Approve) => of_kind(&[DecisionKind::Approve]).or_else(denied),
        Verdict::Decided(Decision::ApproveForSession) => {
            of_kind(&[DecisionKind::ApproveForSession, DecisionKind::Approve]).or_else(denied)
        }
        Verdict::Decided(Decision::Choose { choice: wanted }) => choices
            .iter()
            .find(|choice| choice.id == *wanted)
            .or_else(denied),
        Verdict::Decided(Decision::Deny { .. } | Decision::Input { .. }) => denied(),
        Verdict::Decided(Decision::Abort) | Verdict::Cancelled | Verdict::Disconnected => None,
    };
    let outcome = match chosen {
        Some(choice) => {
            let selected = SelectedPermissionOutcome::new(choice.id.clone());
            RequestPermissionOutcome::Selected(selected)
        }
        None => RequestPermissionOutcome::Cancelled,
    };
    json!(RequestPermissionResponse::new(outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{InteractiveRequest, RequestId};

    fn params() -> Value {
        json!({
            "sessionId": "s",
            "toolCall": {
                "toolCallId": "c1", "title": "a title", "kind": "execute",
                "rawInput": { "command": ["git", "commit"], "cwd": "/w" }, "new": [1],
            },
            "options": [
                { "optionId": "ever", "name": "Always", "kind": "allow_always" },
                { "optionId": "once", "name": "Once", "kind": "allow_once" },
                { "optionId": "odd", "name": "Odd", "kind": "allow_for_everybody" },
                { "optionId": "no", "name": "No", "kind": "reject_once" },
            ],
        })
    }

    fn open(params: &Value) -> OpenRequest {
        let Asked::Person {
            item,
            question,
            choices,
            ..
        } = asked(params)
        else {
            panic!("a person should be asked");
        };
        OpenRequest {
            request: InteractiveRequest {
                id: RequestId("q1".to_owned()),
                turn: None,
                item,
                reason: None,
                question,
                choices,
            },
            wire: serde_json::from_value(json!("0")).unwrap(),
            method: "session/request_permission".to_owned(),
            params: params.clone(),
            decided: None,
        }
    }

    fn chosen(request: &OpenRequest, decision: Decision) -> Value {
        answer(request, &Verdict::Decided(decision))["outcome"].clone()
    }

    #[test]
    fn a_command_is_asked_for_with_its_words_and_its_choices() {
        let request = open(&params());
        let expected = Question::Command {
            command: "git commit".to_owned(),
            directory: Some("/w".to_owned()),
        };
        assert_eq!(request.request.question, expected);
        let kinds: Vec<_> = request.request.choices.iter().map(|c| c.decision).collect();
        let all = [
            DecisionKind::ApproveForSession,
            DecisionKind::Approve,
            DecisionKind::Deny,
        ];
        assert_eq!(kinds, all);
    }

    #[test]
    fn an_answer_never_grants_more_than_was_said() {
        let request = open(&params());
        let selected = |id: &str| json!({ "outcome": "selected", "optionId": id });
        let choose = |id: &str| Decision::Choose {
            choice: id.to_owned(),
        };
        assert_eq!(chosen(&request, Decision::Approve), selected("once"));
        assert_eq!(
            chosen(&request, Decision::ApproveForSession),
            selected("ever")
        );
        assert_eq!(chosen(&request, Decision::deny()), selected("no"));
        assert_eq!(chosen(&request, choose("ever")), selected("ever"));
        assert_eq!(chosen(&request, choose("odd")), selected("no"));
        assert_eq!(chosen(&request, choose("x")), selected("no"));
        let cancelled = json!({ "outcome": "cancelled" });
        assert_eq!(chosen(&request, Decision::Abort), cancelled);
        for verdict in [Verdict::Cancelled, Verdict::Disconnected] {
            assert_eq!(answer(&request, &verdict)["outcome"], cancelled);
        }
        // Only for ever is offered: once is not that.
        let mut wide = params();
        wide["options"] = json!([wide["options"][0]]);
        assert_eq!(chosen(&open(&wide), Decision::Approve), cancelled);
    }

    #[test]
    fn changes_of_files_name_each_file_once_and_the_rest_is_a_tool() {
        let mut params = params();
        params["toolCall"] = json!({
            "toolCallId": "c2", "title": "edit", "kind": "edit",
            "locations": [{ "path": "/w/b" }, { "path": "/w/a" }],
            "content": [{ "type": "diff", "path": "/w/a", "oldText": "x", "newText": "y" }],
        });
        let expected = Question::FileChange {
            paths: vec!["/w/a".to_owned(), "/w/b".to_owned()],
        };
        assert_eq!(open(&params).request.question, expected);
        params["toolCall"] = json!({ "toolCallId": "c3", "title": "look", "kind": "telepathy" });
        assert!(matches!(
            open(&params).request.question,
            Question::Tool { title, .. } if title == "look"
        ));
        for wrong in [json!({}), json!({ "toolCall": {}, "options": [] })] {
            assert!(matches!(asked(&wrong), Asked::Answer(Err(refusal)) if refusal.code == -32602));
        }
    }
}
