//! The Agent Client Protocol, version 1, in the words of its own crate over our own connection.
//!
//! It offers the agent no file system and no terminal of ours: whoever isolates the agent must not work for it outside.

mod facts;
mod opening;
mod permissions;
mod servers;
#[cfg(test)]
mod tests;
mod updates;

use std::time::Duration;

use agent_client_protocol_schema::{
    ProtocolVersion,
    v1::{
        AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, CancelNotification, CloseSessionRequest,
        ContentBlock, Implementation, InitializeRequest, PromptRequest, TextContent,
    },
};
use async_trait::async_trait;
use groundcrew_core::error::Error;
use serde_json::{Value, json};

use self::facts::Abilities;
use crate::{
    event::EventKind,
    protocol::{
        Asked, Call, EnvironmentRule, Happening, InterruptCall, InterruptRefused, Opened, Protocol,
        TurnCall,
    },
    request::{OpenRequest, Verdict},
    rpc::{Envelope, Peer, Refusal},
    settings::{Conversation, ConversationId, Facts, Prompt, SessionSettings, TurnId},
    variable::Variable,
};

/// How long the greeting may take; some agents are slow to boot.
const GREETING: Duration = Duration::from_secs(30);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_millis(750);

/// The protocol; all that it knows comes with each call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acp;

#[async_trait]
impl Protocol for Acp {
    fn name(&self) -> &'static str {
        "acp"
    }

    fn envelope(&self) -> Envelope {
        Envelope::Versioned
    }

    fn environment(&self, _: &SessionSettings) -> EnvironmentRule {
        EnvironmentRule {
            // Nobody is there to be asked for a password, or to look at a browser.
            first: vec![
                Variable::new("GIT_TERMINAL_PROMPT", "0"),
                Variable::new("GIT_OPTIONAL_LOCKS", "0"),
                Variable::new("NO_BROWSER", "1"),
            ],
            last: Vec::new(),
        }
    }

    async fn initialise(
        &self,
        peer: &Peer,
        _: &SessionSettings,
        greeting: Option<Value>,
    ) -> Result<Facts, Error> {
        let answer = if let Some(answer) = greeting {
            answer
        } else {
            let us = Implementation::new("groundcrew", env!("CARGO_PKG_VERSION"));
            let request = InitializeRequest::new(ProtocolVersion::V1).client_info(us);
            let method = AGENT_METHOD_NAMES.initialize;
            peer.call(method, json!(request), GREETING).await?
        };
        Ok(Abilities::read(&answer)?.into_facts())
    }

    async fn open(
        &self,
        peer: &Peer,
        settings: &SessionSettings,
        facts: &Facts,
    ) -> Result<Opened, Error> {
        opening::open(peer, settings, facts).await
    }

    async fn resume(
        &self,
        peer: &Peer,
        settings: &SessionSettings,
        facts: &Facts,
        conversation: &ConversationId,
    ) -> Result<Opened, Error> {
        opening::resume(peer, settings, facts, conversation).await
    }

    fn can_resume(&self, facts: &Facts) -> bool {
        let abilities = Abilities::of(facts);
        abilities.resume || abilities.load
    }

    /// Does nothing: an agent stores a conversation as it likes, and there are no words for it.
    async fn preserve(&self, _: &Peer, _: &Conversation) -> Result<(), Error> {
        Ok(())
    }

    async fn farewell(&self, peer: &Peer, conversation: &Conversation) {
        if Abilities::of(&conversation.facts).close {
            let request = json!(CloseSessionRequest::new(conversation.id.0.clone()));
            let said = peer.call(AGENT_METHOD_NAMES.session_close, request, FAREWELL);
            // A courtesy: its process is ended in any case.
            drop(said.await);
        }
    }

    fn prompt(&self, conversation: &Conversation, prompt: &Prompt) -> TurnCall {
        let text = ContentBlock::Text(TextContent::new(prompt.text.clone()));
        let request = PromptRequest::new(conversation.id.0.clone(), vec![text]);
        TurnCall::Ends(Call::new(AGENT_METHOD_NAMES.session_prompt, json!(request)))
    }

    fn turn_answered(&self, _: &Conversation, answer: &Result<Value, Refusal>) -> Vec<Happening> {
        updates::ended(answer)
    }

    fn steer(&self, _: &Conversation, _: &TurnId, _: &Prompt) -> Option<Call> {
        None
    }

    fn interrupt(&self, conversation: &Conversation, _: Option<&TurnId>) -> Option<InterruptCall> {
        let cancel = json!(CancelNotification::new(conversation.id.0.clone()));
        let call = Call::new(AGENT_METHOD_NAMES.session_cancel, cancel);
        Some(InterruptCall::Notification(call))
    }

    fn interrupt_refused(&self, _: &Refusal) -> InterruptRefused {
        InterruptRefused::No
    }

    fn notice(&self, conversation: &Conversation, method: &str, params: &Value) -> Vec<Happening> {
        let ours = params["sessionId"] == conversation.id.0.as_str();
        if method == CLIENT_METHOD_NAMES.session_update && ours {
            updates::meaning(&params["update"])
        } else {
            Vec::new()
        }
    }

    /// Says nothing: what is told before a conversation is open is the past of one that is loaded.
    fn early_notice(&self, _: &str, _: &Value) -> Vec<Happening> {
        Vec::new()
    }

    fn stderr(&self, _: &str) -> Option<EventKind> {
        None
    }

    fn request(&self, conversation: &Conversation, method: &str, params: &Value) -> Asked {
        let ours = params["sessionId"] == conversation.id.0.as_str();
        if method == CLIENT_METHOD_NAMES.session_request_permission {
            return if ours {
                permissions::asked(params)
            } else {
                Asked::Answer(Err(Refusal::new(-32602, "there is no such conversation")))
            };
        }
        // We said that we have neither; who asks nevertheless is told again.
        if method.starts_with("fs/") || method.starts_with("terminal/") || method.starts_with('_') {
            return Asked::Answer(Err(Refusal::unknown_method(method)));
        }
        Asked::Unknown
    }

    fn reply(&self, request: &OpenRequest, verdict: &Verdict) -> Result<Value, Refusal> {
        Ok(permissions::answer(request, verdict))
    }
}
