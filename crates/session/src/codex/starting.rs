//! Start-up: who we are, whether a login is missing, and the thread that is the conversation.

use std::time::Duration;

use groundcrew_core::{
    error::{Error, ErrorKind},
    instance::McpServer,
};
use serde_json::{Map, Value, json};

use crate::{
    failure,
    protocol::Opened,
    rpc::{Fence, Peer},
    settings::{Access, Approve, Conversation, ConversationId, Facts, SessionSettings},
};

/// How long what is nice to know may take.
const BEST_EFFORT: Duration = Duration::from_secs(10);

/// Makes the calls that come before any thread.
pub(super) async fn initialise(
    peer: &Peer,
    greeting: Option<Value>,
    limit: Duration,
) -> Result<Facts, Error> {
    let greeting = if let Some(greeting) = greeting {
        greeting
    } else {
        let params = json!({
            "clientInfo": {
                "name": "groundcrew", "title": "groundcrew", "version": env!("CARGO_PKG_VERSION"),
            },
            "capabilities": {"experimentalApi": true},
        });
        let greeting = peer.call("initialize", params, limit).await?;
        peer.notify("initialized", Value::Null).await?;
        greeting
    };
    let account = json!({"refreshToken": false});
    let account = peer.call("account/read", account, BEST_EFFORT).await;
    let account = tolerated(account)?;
    if account["requiresOpenaiAuth"] == true && account["account"].is_null() {
        return Err(failure::coded(
            ErrorKind::PermissionDenied,
            failure::AUTHENTICATION_REQUIRED,
            "Codex has no login; log in once with: codex login",
        ));
    }
    let modes = peer.call("collaborationMode/list", json!({}), BEST_EFFORT);
    let modes = tolerated(modes.await)?;
    let mut facts = Map::new();
    if let Some(agent) = greeting.get("userAgent") {
        facts.insert("userAgent".to_owned(), agent.clone());
    }
    if !modes.is_null() {
        facts.insert("collaborationModes".to_owned(), modes);
    }
    Ok(Facts(facts))
}

/// Tolerates that a call is refused or takes too long; an agent that is gone is not.
fn tolerated(answer: Result<Value, Error>) -> Result<Value, Error> {
    match answer {
        Err(error) if failure::refusal(&error).is_some() || error.kind() == ErrorKind::TimedOut => {
            Ok(Value::Null)
        }
        answer => answer,
    }
}

/// Opens a new thread.
pub(super) async fn open(
    peer: &Peer,
    settings: &SessionSettings,
    limit: Duration,
) -> Result<Opened, Error> {
    let started = Fence::new(|method, params| started(method, params, None));
    let answer = peer
        .call_or("thread/start", thread(settings), limit, started)
        .await
        .map_err(|error| classified(error, None))?;
    opened(&answer, None)
}

/// Opens an earlier thread.
pub(super) async fn resume(
    peer: &Peer,
    settings: &SessionSettings,
    conversation: &ConversationId,
    limit: Duration,
) -> Result<Opened, Error> {
    let mut params = thread(settings);
    params["threadId"] = json!(conversation);
    let wanted = conversation.clone();
    let started = Fence::new(move |method, params| started(method, params, Some(&wanted)));
    let answer = peer
        .call_or("thread/resume", params, limit, started)
        .await
        .map_err(|error| classified(error, Some(conversation)))?;
    opened(&answer, Some(conversation))
}

/// Puts something into a thread without asking a model: only a thread that holds something is written down.
pub(super) async fn preserve(
    peer: &Peer,
    conversation: &Conversation,
    limit: Duration,
) -> Result<(), Error> {
    let item = json!({
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "(The conversation begins here.)"}],
    });
    let params = json!({"threadId": conversation.id, "items": [item]});
    peer.call("thread/inject_items", params, limit).await?;
    Ok(())
}

/// A thread that is told to be started stands for the answer; for an earlier one it must be that one.
fn started(method: &str, params: &Value, wanted: Option<&ConversationId>) -> Option<Value> {
    let thread = params
        .get("thread")
        .filter(|_| method == "thread/started")?;
    let id = thread["id"].as_str().filter(|id| !id.is_empty())?;
    wanted
        .is_none_or(|wanted| wanted.0 == id)
        .then(|| json!({"thread": thread}))
}

fn opened(answer: &Value, wanted: Option<&ConversationId>) -> Result<Opened, Error> {
    let id = answer["thread"]["id"]
        .as_str()
        .filter(|id| !id.is_empty())
        .map(|id| ConversationId(id.to_owned()))
        .or_else(|| wanted.cloned())
        .ok_or_else(|| {
            failure::coded(
                ErrorKind::Protocol,
                failure::MISSING_IDENTITY,
                "Codex started a thread and did not say which",
            )
        })?;
    Ok(Opened {
        conversation: id,
        model: answer["model"].as_str().map(str::to_owned),
        warnings: Vec::new(),
    })
}

/// Gives an error its code; by its text alone, for Codex has one number for nearly all.
fn classified(error: Error, conversation: Option<&ConversationId>) -> Error {
    let Some(refusal) = failure::refusal(&error) else {
        return error;
    };
    let (kind, code, message) = if refusal.says("no rollout found") {
        (
            ErrorKind::NotFound,
            failure::CONVERSATION_NOT_FOUND,
            "Codex does not know the conversation any more",
        )
    } else if refusal.says("already has an active writer") {
        (
            ErrorKind::Busy,
            failure::ACTIVE_WRITER,
            "another process of Codex has the conversation open",
        )
    } else {
        return error;
    };
    let coded = failure::coded(kind, code, message);
    let coded = match conversation {
        Some(id) => coded.with("conversation", id),
        None => coded,
    };
    coded.with_source(error)
}

fn thread(settings: &SessionSettings) -> Value {
    let sandbox = match settings.access {
        Access::ReadOnly => "read-only",
        Access::Auto => "workspace-write",
        Access::Full => "danger-full-access",
    };
    let policy = match (settings.approve, settings.access) {
        // Without a sandbox it never has to ask to leave one: whoever wants to be asked is asked for every command that is
        // not known to be harmless.
        (Approve::Ask, Access::Full) => "untrusted",
        (Approve::Never, _) | (Approve::Always, Access::Full) => "never",
        (Approve::Ask | Approve::Always, _) => "on-request",
    };
    let mut config = Map::new();
    if let Some(effort) = &settings.effort {
        config.insert("model_reasoning_effort".to_owned(), json!(effort));
    }
    if !settings.mcp_servers.is_empty() {
        let servers: Map<String, Value> = settings.mcp_servers.iter().map(server).collect();
        config.insert("mcp_servers".to_owned(), Value::Object(servers));
    }
    let mut thread = json!({
        "cwd": settings.told().to_string_lossy(),
        "approvalPolicy": policy,
        "sandbox": sandbox,
        "approvalsReviewer": "user",
    });
    if let Some(model) = &settings.model {
        thread["model"] = json!(model);
    }
    if let Some(Value::Object(more)) = settings.options.get("config") {
        config.extend(more.clone());
    }
    if !config.is_empty() {
        thread["config"] = Value::Object(config);
    }
    for (key, value) in &settings.options {
        if key != "config" {
            thread[key] = value.clone();
        }
    }
    thread
}

/// Writes a tool server as Codex's configuration does; lists of names and values become tables.
fn server(server: &McpServer) -> (String, Value) {
    let mut definition = server.definition.clone();
    if let Value::Object(fields) = &mut definition {
        for (from, to) in [("env", "env"), ("headers", "http_headers")] {
            if let Some(list @ Value::Array(_)) = fields.remove(from) {
                fields.insert(to.to_owned(), table(&list));
            } else if let Some(kept) = server.definition.get(from) {
                fields.insert(to.to_owned(), kept.clone());
            }
        }
        fields.remove("type");
        fields.remove("name");
    }
    (server.name.clone(), definition)
}

fn table(list: &Value) -> Value {
    let pairs = list.as_array().into_iter().flatten();
    let table: Map<String, Value> = pairs
        .filter_map(|pair| Some((pair["name"].as_str()?.to_owned(), pair["value"].clone())))
        .collect();
    Value::Object(table)
}

#[cfg(test)]
mod tests {
    use groundcrew_core::{command::Command, id::SessionId};

    use super::*;

    fn settings() -> SessionSettings {
        let command = Command::new(["codex"]).unwrap();
        SessionSettings::new(SessionId::new("s").unwrap(), command, "/w")
    }

    #[test]
    fn the_policies_are_those_of_access_and_approval() {
        for (access, approve, sandbox, policy) in [
            (Access::ReadOnly, Approve::Ask, "read-only", "on-request"),
            (
                Access::Auto,
                Approve::Always,
                "workspace-write",
                "on-request",
            ),
            (Access::Auto, Approve::Never, "workspace-write", "never"),
            (
                Access::Full,
                Approve::Ask,
                "danger-full-access",
                "untrusted",
            ),
            (Access::Full, Approve::Always, "danger-full-access", "never"),
            (Access::Full, Approve::Never, "danger-full-access", "never"),
        ] {
            let mut settings = settings();
            (settings.access, settings.approve) = (access, approve);
            let thread = thread(&settings);
            assert_eq!(thread["sandbox"], sandbox);
            assert_eq!(thread["approvalPolicy"], policy);
        }
    }

    #[test]
    fn tool_servers_reach_its_configuration_in_its_own_words() {
        let mut settings = settings();
        settings.mcp_servers = vec![
            McpServer {
                name: "a".into(),
                definition: json!({
                    "name": "a", "command": "x", "args": ["y"],
                    "env": [{"name": "K", "value": "V"}], "required": true,
                }),
            },
            McpServer {
                name: "b".into(),
                definition: json!({
                    "type": "http", "url": "http://h", "headers": [{"name": "H", "value": "1"}],
                }),
            },
        ];
        settings
            .options
            .insert("config".into(), json!({"web_search": "live"}));
        assert_eq!(
            thread(&settings)["config"],
            json!({
                "mcp_servers": {
                    "a": {"command": "x", "args": ["y"], "env": {"K": "V"}, "required": true},
                    "b": {"url": "http://h", "http_headers": {"H": "1"}},
                },
                "web_search": "live",
            })
        );
    }

    #[test]
    fn t14_a_thread_that_was_started_stands_for_an_answer_only_if_it_is_the_one() {
        let told = json!({"thread": {"id": "t1"}});
        let wanted = ConversationId("t1".into());
        let other = ConversationId("t2".into());
        assert!(started("thread/started", &told, None).is_some());
        assert!(started("thread/started", &told, Some(&wanted)).is_some());
        assert!(started("thread/started", &told, Some(&other)).is_none());
        assert!(started("turn/started", &told, None).is_none());
        assert!(started("thread/started", &json!({"thread": {"id": ""}}), None).is_none());
    }
}
