//! What the agent asks: refused at once, put to a person, or answered by the settings.
//!
//! It never waits for an answer.

use groundcrew_core::process::Offset;
use serde_json::Value;

use super::Dialogue;
use crate::{
    event::EventKind,
    protocol::{self, Happening},
    request::{Decision, InteractiveRequest, OpenRequest, Question, RequestId, RequestPhase},
    rpc::{Peer, Refusal, WireId},
    settings::{Approve, Conversation},
};

impl Dialogue {
    /// Takes a question: refused at once, or put to a person.
    pub(super) async fn asked(
        &self,
        peer: &Peer,
        wire: WireId,
        method: String,
        params: Value,
        behind: Offset,
    ) {
        let refuse = |code, text: &str| peer.reply_now(&wire, &Err(Refusal::new(code, text)));
        let Some(conversation) = self.conversation() else {
            // A question before there is a conversation is none that a person could answer.
            peer.reply_now(&wire, &Err(Refusal::unknown_method(&method)));
            return;
        };
        let (turn, item, reason, question, choices) =
            match self.protocol.request(&conversation, &method, &params) {
                protocol::Asked::Answer(reply) => return peer.reply_now(&wire, &reply),
                protocol::Asked::Unknown => {
                    peer.reply_now(&wire, &Err(Refusal::unknown_method(&method)));
                    let text = format!("the agent asked what nobody here knows: {method}");
                    let about = "request".to_owned();
                    return self.tell(Some(behind), EventKind::Warning { about, text });
                }
                protocol::Asked::Person {
                    turn,
                    item,
                    reason,
                    question,
                    choices,
                } => (turn, item, reason, question, choices),
            };
        let request = {
            let mut talk = self.talk();
            if talk.closed || talk.turns.active.is_none() {
                return refuse(-32000, "no turn is running");
            }
            // One that is known was read by an earlier controller, which stored it and may not have told it.
            if let Some(known) = talk.requests.by_wire(&wire) {
                known.open.request.clone()
            } else {
                let request = InteractiveRequest {
                    id: self.book.update(|state| {
                        state.asked += 1;
                        RequestId(format!("q{}", state.asked))
                    }),
                    turn,
                    item,
                    reason,
                    question,
                    choices,
                };
                talk.requests.add(OpenRequest {
                    request: request.clone(),
                    wire: wire.clone(),
                    method,
                    params,
                    decided: None,
                });
                request
            }
        };
        // Told is stored: whoever hears of it can answer it, also through the next controller.
        self.save_or_warn(peer).await;
        self.put(peer, &conversation, request, Some(behind));
    }

    /// Tells of what cannot be read; a question among it is refused, and never answered as if it were another.
    pub(super) fn unreadable(
        &self,
        peer: &Peer,
        id: Option<&WireId>,
        method: &str,
        why: &str,
        behind: Offset,
    ) -> bool {
        let (about, what) = match id {
            Some(id) => {
                let text = format!("the parameters cannot be read: {why}");
                peer.reply_now(id, &Err(Refusal::new(-32602, text)));
                ("request", "asked")
            }
            None => ("notification", "told"),
        };
        let warning = EventKind::Warning {
            about: about.to_owned(),
            text: format!("the agent {what} what cannot be read: {method}: {why}"),
        };
        self.apply(peer, vec![Happening::Tell(warning)], behind)
    }

    /// Tells a request that waits, and answers it where the settings do.
    pub(super) fn put(
        &self,
        peer: &Peer,
        conversation: &Conversation,
        request: InteractiveRequest,
        offset: Option<Offset>,
    ) {
        {
            let talk = self.talk();
            if talk.closed || talk.requests.phase(&request.id) != Some(RequestPhase::Pending) {
                return;
            }
            let request = request.clone();
            self.tell_in(&talk, offset, EventKind::Asked { request });
        }
        if let Some(decision) = automatic(conversation.approve, &request.question)
            && let Some(me) = self.me.upgrade()
        {
            let peer = peer.clone();
            self.tracker.spawn(async move {
                // It was settled in another way meanwhile, which was told.
                let _settled = me.answer(&peer, &request.id, decision, true).await;
            });
        }
    }
}

/// Returns the answer that the settings give, where they give one.
fn automatic(approve: Approve, question: &Question) -> Option<Decision> {
    match (approve, question) {
        (Approve::Never, _) => Some(Decision::deny()),
        // What asks for words cannot be approved.
        (Approve::Always, Question::Input { .. } | Question::Elicitation { .. })
        | (Approve::Ask, _) => None,
        (Approve::Always, _) => Some(Decision::Approve),
    }
}
