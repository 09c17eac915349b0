//! How a conversation is opened: a new one, an earlier one, and the login that may stand before both.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AuthenticateRequest, ErrorCode, LoadSessionRequest, NewSessionRequest,
    ResumeSessionRequest,
};
use groundcrew_core::error::{Error, ErrorKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{facts::Abilities, servers};
use crate::{
    event::EventKind,
    failure,
    protocol::Opened,
    rpc::{Peer, Refusal},
    settings::{ConversationId, Facts, SessionSettings},
};

/// How long opening a conversation may take; agents start their tool servers in it.
const OPENING: Duration = Duration::from_secs(90);
/// How long resuming one may take.
const RESUMING: Duration = Duration::from_secs(30);
/// How long a login without a person may take.
const LOGIN: Duration = Duration::from_mins(1);
/// How long a change of the model may take.
const SETTING: Duration = Duration::from_secs(10);

/// The option that names the ways to log in, best first; it is ours and not told the agent.
const LOGIN_OPTION: &str = "authenticate";

/// Opens a new conversation.
pub(super) async fn open(
    peer: &Peer,
    settings: &SessionSettings,
    facts: &Facts,
) -> Result<Opened, Error> {
    let abilities = Abilities::of(facts);
    let (servers, warnings) = servers::told(&settings.mcp_servers, &abilities);
    let request = NewSessionRequest::new(settings.told()).mcp_servers(servers);
    let params = with_options(&request, settings)?;
    let method = AGENT_METHOD_NAMES.session_new;
    let answer = logged_in(peer, settings, &abilities, method, &params, OPENING).await?;
    let conversation = answer["sessionId"].as_str().filter(|id| !id.is_empty());
    let conversation = conversation.ok_or_else(|| {
        failure::coded(
            ErrorKind::Protocol,
            failure::MISSING_IDENTITY,
            "the agent opened a conversation and did not name it",
        )
    })?;
    let conversation = ConversationId(conversation.to_owned());
    opened(peer, settings, conversation, &answer, warnings).await
}

/// Opens an earlier conversation: resumes it where the agent can, else loads it.
pub(super) async fn resume(
    peer: &Peer,
    settings: &SessionSettings,
    facts: &Facts,
    conversation: &ConversationId,
) -> Result<Opened, Error> {
    let abilities = Abilities::of(facts);
    let (servers, warnings) = servers::told(&settings.mcp_servers, &abilities);
    let (id, directory) = (conversation.0.clone(), settings.told());
    let mut answer = None;
    if abilities.resume {
        let request = ResumeSessionRequest::new(id.clone(), directory).mcp_servers(servers.clone());
        let params = with_options(&request, settings)?;
        let method = AGENT_METHOD_NAMES.session_resume;
        let asked = logged_in(peer, settings, &abilities, method, &params, RESUMING).await;
        answer = match asked {
            // It said that it could, and does not know the word: the second choice is left.
            Err(error) if abilities.load && is_unknown_method(&error) => None,
            asked => Some(asked),
        };
    }
    if answer.is_none() && abilities.load {
        let request = LoadSessionRequest::new(id, directory).mcp_servers(servers);
        let params = with_options(&request, settings)?;
        let method = AGENT_METHOD_NAMES.session_load;
        answer = Some(logged_in(peer, settings, &abilities, method, &params, OPENING).await);
    }
    let answer = answer.unwrap_or_else(|| {
        Err(failure::coded(
            ErrorKind::Unsupported,
            failure::RESUME_NOT_LOCAL,
            "the agent can neither resume nor load a conversation; start a new one",
        ))
    });
    let answer = answer.map_err(|error| match failure::refusal(&error) {
        Some(refusal) if is_unknown_conversation(refusal) => failure::coded(
            ErrorKind::NotFound,
            failure::CONVERSATION_NOT_FOUND,
            "the agent does not know the conversation any more",
        )
        .with("conversation", conversation)
        .with_source(error),
        _ => error,
    })?;
    opened(peer, settings, conversation.clone(), &answer, warnings).await
}

/// Calls, logs in where the agent wants that and a way is known, and calls again.
async fn logged_in(
    peer: &Peer,
    settings: &SessionSettings,
    abilities: &Abilities,
    method: &str,
    params: &Value,
    limit: Duration,
) -> Result<Value, Error> {
    let error = match peer.call(method, params.clone(), limit).await {
        Err(error) if wants_login(&error) => error,
        answered => return answered,
    };
    let Some(way) = way_to_log_in(settings, abilities) else {
        return Err(login_missing(error, abilities));
    };
    let request = json!(AuthenticateRequest::new(way.clone()));
    peer.call(AGENT_METHOD_NAMES.authenticate, request, LOGIN)
        .await
        .map_err(|error| login_missing(error.with("login", &way), abilities))?;
    match peer.call(method, params.clone(), limit).await {
        Err(error) if wants_login(&error) => Err(login_missing(error, abilities)),
        answered => answered,
    }
}

/// Returns the first of the wished ways to log in that the agent has.
fn way_to_log_in(settings: &SessionSettings, abilities: &Abilities) -> Option<String> {
    let wished = match settings.options.get(LOGIN_OPTION) {
        Some(Value::String(way)) => std::slice::from_ref(way).to_vec(),
        Some(Value::Array(ways)) => ways
            .iter()
            .filter_map(|way| way.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    };
    wished
        .into_iter()
        .find(|way| abilities.logins.contains(way))
}

fn login_missing(cause: Error, abilities: &Abilities) -> Error {
    failure::coded(
        ErrorKind::PermissionDenied,
        failure::AUTHENTICATION_REQUIRED,
        "the agent wants a login; log in with its own command, or give it its credentials",
    )
    .with("ways", abilities.logins.join(", "))
    .with_source(cause)
}

/// Returns whether the agent refused for want of a login.
pub(super) fn is_login(refusal: &Refusal) -> bool {
    refusal.code == i64::from(i32::from(ErrorCode::AuthRequired))
}

fn wants_login(error: &Error) -> bool {
    failure::refusal(error).is_some_and(is_login)
}

fn is_unknown_method(error: &Error) -> bool {
    let code = i64::from(i32::from(ErrorCode::MethodNotFound));
    failure::refusal(error).is_some_and(|refusal| refusal.code == code)
}

/// Returns whether a refusal says that there is no such conversation: by its code, or as an inner error by its words.
fn is_unknown_conversation(refusal: &Refusal) -> bool {
    let of = |code: ErrorCode| i64::from(i32::from(code));
    let words = ["not found", "NotFound", "No previous sessions", "no such"];
    refusal.code == of(ErrorCode::ResourceNotFound)
        || (refusal.code == of(ErrorCode::InternalError)
            && words.iter().any(|words| refusal.says(words)))
}

/// Lays the options of the settings over a request.
fn with_options(request: &impl Serialize, settings: &SessionSettings) -> Result<Value, Error> {
    let mut params = serde_json::to_value(request).map_err(|why| {
        Error::new(
            ErrorKind::InvalidInput,
            "the working directory cannot be told to the agent, for it is no text",
        )
        .with_source(why)
    })?;
    if let Some(params) = params.as_object_mut() {
        let options: Map<_, _> = settings.options.clone();
        params.extend(options.into_iter().filter(|(key, _)| key != LOGIN_OPTION));
    }
    Ok(params)
}

/// Chooses the model where one is wished, and tells what came of opening.
async fn opened(
    peer: &Peer,
    settings: &SessionSettings,
    conversation: ConversationId,
    answer: &Value,
    warnings: Vec<EventKind>,
) -> Result<Opened, Error> {
    let option = answer["configOptions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|option| option["category"] == "model" || option["id"] == "model");
    let told = option.map_or(
        &answer["models"]["currentModelId"],
        |option| &option["currentValue"],
    );
    let mut model = told.as_str().map(str::to_owned);
    if let Some(wished) = &settings.model
        && model.as_ref() != Some(wished)
    {
        let (method, params) = match option {
            Some(option) => (
                AGENT_METHOD_NAMES.session_set_config_option,
                json!({ "sessionId": conversation, "configId": option["id"], "value": wished }),
            ),
            None => (
                "session/set_model",
                json!({ "sessionId": conversation, "modelId": wished }),
            ),
        };
        // Another model than the one that was asked for is never used in silence.
        let chosen = peer.call(method, params, SETTING).await;
        chosen.map_err(|error| error.with("model", wished))?;
        model = Some(wished.clone());
    }
    Ok(Opened {
        conversation,
        model,
        warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agents_way_to_say_that_it_does_not_know_a_conversation() {
        let refusal = |code, message: &str, data: Option<Value>| Refusal {
            data,
            ..Refusal::new(code, message)
        };
        for it in [
            refusal(-32002, "Resource not found", None),
            refusal(
                -32603,
                "Internal error",
                Some(json!({ "details": "Session not found: x" })),
            ),
            refusal(
                -32603,
                "Internal error",
                Some(json!({ "details": "No previous sessions found for this project" })),
            ),
        ] {
            assert!(is_unknown_conversation(&it), "{it}");
        }
        for it in [
            refusal(-32603, "Internal error", None),
            refusal(-32000, "Authentication required: key not found", None),
            refusal(-32601, "Method not found", None),
        ] {
            assert!(!is_unknown_conversation(&it), "{it}");
        }
        assert!(is_login(&refusal(-32000, "Authentication required", None)));
    }
}
