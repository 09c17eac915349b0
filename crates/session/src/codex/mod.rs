//! The protocol of the Codex app-server: JSON-RPC without a version field, a thread for each conversation.
//!
//! Facts are those of 0.142 to 0.171; what is not known is tolerated.

mod answers;
mod items;
mod notices;
mod starting;

use std::time::Duration;

use async_trait::async_trait;
use groundcrew_core::error::Error;
use serde_json::{Value, json};

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

/// How long Codex may take for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodexLimits {
    /// For each start-up call, for a resume, and to take a turn.
    pub call: Duration,
    /// To open a new conversation.
    pub thread_start: Duration,
}

impl Default for CodexLimits {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(30),
            thread_start: Duration::from_secs(90),
        }
    }
}

/// The Codex app-server.
#[derive(Clone, Debug, Default)]
pub struct Codex {
    limits: CodexLimits,
}

impl Codex {
    /// Makes one that waits that long.
    pub fn new(limits: CodexLimits) -> Self {
        Self { limits }
    }
}

#[async_trait]
impl Protocol for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn envelope(&self) -> Envelope {
        Envelope::Plain
    }

    fn environment(&self, _: &SessionSettings) -> EnvironmentRule {
        EnvironmentRule {
            first: vec![Variable::new("NO_BROWSER", "1")],
            // On a pipe it writes colours otherwise.
            last: vec![
                Variable::new("LOG_FORMAT", "json"),
                Variable::new("RUST_LOG", "codex_app_server=info,codex_core=info"),
            ],
        }
    }

    async fn initialise(
        &self,
        peer: &Peer,
        _: &SessionSettings,
        greeting: Option<Value>,
    ) -> Result<Facts, Error> {
        starting::initialise(peer, greeting, self.limits.call).await
    }

    async fn open(
        &self,
        peer: &Peer,
        settings: &SessionSettings,
        _: &Facts,
    ) -> Result<Opened, Error> {
        starting::open(peer, settings, self.limits.thread_start).await
    }

    async fn resume(
        &self,
        peer: &Peer,
        settings: &SessionSettings,
        _: &Facts,
        conversation: &ConversationId,
    ) -> Result<Opened, Error> {
        starting::resume(peer, settings, conversation, self.limits.call).await
    }

    fn can_resume(&self, _: &Facts) -> bool {
        true
    }

    async fn preserve(&self, peer: &Peer, conversation: &Conversation) -> Result<(), Error> {
        starting::preserve(peer, conversation, self.limits.call).await
    }

    /// One process serves one conversation, whose end is told by that of its input.
    async fn farewell(&self, _: &Peer, _: &Conversation) {}

    fn prompt(&self, conversation: &Conversation, prompt: &Prompt) -> TurnCall {
        let params = json!({"threadId": conversation.id, "input": input(prompt)});
        TurnCall::Acknowledged(Call::new("turn/start", params), self.limits.call)
    }

    fn turn_answered(&self, _: &Conversation, answer: &Result<Value, Refusal>) -> Vec<Happening> {
        notices::turn_answered(answer)
    }

    fn steer(&self, conversation: &Conversation, turn: &TurnId, prompt: &Prompt) -> Option<Call> {
        let params = json!({
            "threadId": conversation.id, "expectedTurnId": turn, "input": input(prompt),
        });
        Some(Call::new("turn/steer", params))
    }

    fn interrupt(
        &self,
        conversation: &Conversation,
        turn: Option<&TurnId>,
    ) -> Option<InterruptCall> {
        let params = json!({"threadId": conversation.id, "turnId": turn?});
        Some(InterruptCall::Request(Call::new("turn/interrupt", params)))
    }

    fn interrupt_refused(&self, refusal: &Refusal) -> InterruptRefused {
        if refusal.says("no active turn to interrupt") {
            return InterruptRefused::NotYet;
        }
        // "expected active turn id `X` but found `Y`", with whatever quotes.
        refusal
            .message
            .split_once("but found")
            .map(|(_, rest)| rest.trim_matches(|c: char| !c.is_ascii_alphanumeric()))
            .filter(|id| !id.is_empty())
            .map_or(InterruptRefused::No, |id| {
                InterruptRefused::Other(TurnId(id.to_owned()))
            })
    }

    fn notice(&self, conversation: &Conversation, method: &str, params: &Value) -> Vec<Happening> {
        notices::notice(&conversation.id, method, params)
    }

    fn early_notice(&self, method: &str, params: &Value) -> Vec<Happening> {
        notices::early(method, params)
    }

    fn stderr(&self, line: &str) -> Option<EventKind> {
        notices::stderr(line)
    }

    fn request(&self, _: &Conversation, method: &str, params: &Value) -> Asked {
        answers::request(method, params)
    }

    fn reply(&self, request: &OpenRequest, verdict: &Verdict) -> Result<Value, Refusal> {
        answers::reply(request, verdict)
    }
}

fn input(prompt: &Prompt) -> Value {
    json!([{"type": "text", "text": prompt.text, "text_elements": []}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_interrupt_tells_what_runs() {
        let codex = Codex::default();
        let refused = |text: &str| codex.interrupt_refused(&Refusal::new(-32600, text));
        assert_eq!(
            refused("expected active turn id `wrong` but found `019a-b2`"),
            InterruptRefused::Other(TurnId("019a-b2".to_owned()))
        );
        assert_eq!(
            refused("expected active turn id a but found ``"),
            InterruptRefused::No
        );
        assert_eq!(
            refused("no active turn to interrupt"),
            InterruptRefused::NotYet
        );
        assert_eq!(refused("thread not found"), InterruptRefused::No);
    }
}
