//! What an agent said of itself when it was greeted, as it is kept for the whole conversation.
//!
//! Abilities are told by presence: an empty object means yes, and so does `true`.

use agent_client_protocol_schema::{ProtocolVersion, v1::InitializeResponse};
use groundcrew_core::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::settings::Facts;

/// How many ways to log in are looked at.
const MAX_METHODS: usize = 32;

/// What an agent can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an ability of its own, as the agent tells it"
)]
pub(super) struct Abilities {
    /// It resumes a conversation.
    pub(super) resume: bool,
    /// It loads a conversation, and tells all of it again.
    pub(super) load: bool,
    /// It wants to be told when a conversation is closed.
    pub(super) close: bool,
    /// It reaches tool servers over HTTP.
    pub(super) http: bool,
    /// It reaches tool servers over server-sent events.
    pub(super) sse: bool,
    /// The ways to log in that need no terminal.
    pub(super) logins: Vec<String>,
}

impl Abilities {
    /// Reads the answer to `initialize`.
    ///
    /// # Errors
    ///
    /// `Protocol` when the agent speaks another version, or its answer is none.
    pub(super) fn read(answer: &Value) -> Result<Self, Error> {
        let read: InitializeResponse = serde_json::from_value(answer.clone()).map_err(|why| {
            Error::new(
                ErrorKind::Protocol,
                "the agent's answer to `initialize` is not one of its protocol",
            )
            .with("why", why)
        })?;
        if read.protocol_version != ProtocolVersion::V1 {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the agent speaks another version of its protocol than ours, 1",
            )
            .with("version", &answer["protocolVersion"]));
        }
        let of_sessions = &answer["agentCapabilities"]["sessionCapabilities"];
        let capabilities = read.agent_capabilities;
        Ok(Self {
            resume: is_there(&of_sessions["resume"]),
            load: capabilities.load_session,
            close: is_there(&of_sessions["close"]),
            http: capabilities.mcp_capabilities.http,
            sse: capabilities.mcp_capabilities.sse,
            logins: logins(&answer["authMethods"]),
        })
    }

    /// Returns what is kept.
    pub(super) fn into_facts(self) -> Facts {
        match serde_json::to_value(self) {
            Ok(Value::Object(facts)) => Facts(facts),
            _ => Facts::default(),
        }
    }

    /// Returns what was kept; what is not there is no ability.
    pub(super) fn of(facts: &Facts) -> Self {
        serde_json::from_value(Value::Object(facts.0.clone())).unwrap_or_default()
    }
}

/// Tells an ability by its presence.
fn is_there(ability: &Value) -> bool {
    !matches!(ability, Value::Null | Value::Bool(false))
}

/// Lists the ways to log in; one that wants a terminal is none for us.
fn logins(methods: &Value) -> Vec<String> {
    let methods = methods.as_array().into_iter().flatten().take(MAX_METHODS);
    methods
        .filter(|method| method["type"] != "terminal")
        .filter_map(|method| method["id"].as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ability_is_told_by_its_presence() {
        for (told, is) in [
            (json!({}), true),
            (json!(true), true),
            (json!({ "more": 1 }), true),
            (json!(false), false),
            (Value::Null, false),
        ] {
            let answer = json!({
                "protocolVersion": 1,
                "agentCapabilities": {
                    "loadSession": !is,
                    "sessionCapabilities": { "resume": told, "future": { "x": [] } },
                    "unknown": 7,
                },
            });
            let abilities = Abilities::read(&answer).unwrap();
            assert_eq!((abilities.resume, abilities.load), (is, !is), "{told}");
            assert!(!abilities.close);
            let facts = abilities.clone().into_facts();
            assert_eq!(Abilities::of(&facts), abilities);
        }
    }

    #[test]
    fn another_version_is_no_agent_of_ours() {
        for answer in [
            json!({ "protocolVersion": 2 }),
            json!({ "protocolVersion": 0 }),
            json!({}),
            json!("hello"),
        ] {
            let error = Abilities::read(&answer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{answer}");
        }
    }

    #[test]
    fn ways_to_log_in_that_want_a_terminal_are_left_out_and_many_are_cut() {
        let mut methods = vec![
            json!({ "id": "shown", "type": "terminal", "name": "in a terminal" }),
            json!({ "id": "key", "type": "env_var", "name": "a variable" }),
            json!({ "name": "without a name" }),
            json!({ "id": "plain", "name": "the agent asks" }),
        ];
        methods.extend((0..100).map(|n| json!({ "id": n.to_string(), "name": "one of many" })));
        let answer = json!({ "protocolVersion": 1, "authMethods": methods });
        let abilities = Abilities::read(&answer).unwrap();
        assert_eq!(abilities.logins[..2], ["key", "plain"]);
        assert!(abilities.logins.len() <= MAX_METHODS);
    }
}
