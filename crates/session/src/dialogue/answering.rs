//! Answers to what the agent asks.

use groundcrew_core::error::{Error, ErrorKind};

use super::{Dialogue, requests::NoAnswer};
use crate::{
    event::EventKind,
    failure,
    request::{Decision, RequestId, RequestPhase, Verdict},
    rpc::Peer,
    settings::Prompt,
};

impl Dialogue {
    /// Answers a request: noted, stored, sent, told, in that order.
    ///
    /// # Errors
    ///
    /// With the codes `agent.request_already_answered` and `agent.request_not_live`; those of the store and of the peer.
    ///
    /// # Cancel safety
    ///
    /// None; the engine runs it in a task.
    pub(crate) async fn answer(
        &self,
        peer: &Peer,
        request: &RequestId,
        decision: Decision,
        automatic: bool,
    ) -> Result<(), Error> {
        self.talk()
            .requests
            .decide(request, &decision)
            .map_err(|why| no_answer(why, request))?;
        // Stored before it is sent: whoever takes over sends it again, and the agent takes the first.
        if let Err(error) = self.save().await {
            self.talk().requests.undecide(request);
            return Err(error);
        }
        self.send_answer(peer, request, automatic).await
    }

    /// Sends an answer that was decided.
    ///
    /// # Errors
    ///
    /// As [`answer`](Self::answer).
    pub(crate) async fn send_answer(
        &self,
        peer: &Peer,
        request: &RequestId,
        automatic: bool,
    ) -> Result<(), Error> {
        let open = self.talk().requests.send(request);
        let Some(open) = open else {
            return Err(no_answer(NoAnswer::Gone, request));
        };
        let Some(decision) = open.decided.clone() else {
            return Err(no_answer(NoAnswer::Gone, request));
        };
        let reply = self
            .protocol
            .reply(&open, &Verdict::Decided(decision.clone()));
        let sent = peer.reply(&open.wire, &reply).await;
        {
            let mut talk = self.talk();
            let phase = match sent {
                Ok(()) => RequestPhase::Answered,
                Err(_) => RequestPhase::Interrupted,
            };
            if talk.requests.settle(request, phase).is_some() {
                let request = request.clone();
                let kind = match sent {
                    Ok(()) => EventKind::Answered {
                        request,
                        answer: decision.clone(),
                        automatic,
                    },
                    Err(_) => EventKind::Interrupted { request },
                };
                self.tell_in(&talk, None, kind);
            }
        }
        sent?;
        self.save_or_warn(peer).await;
        self.explain(peer, &decision).await;
        Ok(())
    }

    /// Tells the agent why not; one that takes nothing while it works does not hear it.
    async fn explain(&self, peer: &Peer, decision: &Decision) {
        let Decision::Deny {
            because: Some(because),
        } = decision
        else {
            return;
        };
        let progress = {
            let talk = self.talk();
            let Some(turn) = &talk.turns.active else {
                return;
            };
            turn.progress.subscribe()
        };
        if let Err(error) = self.steer(peer, progress, &Prompt::new(because)).await {
            let about = "answer".to_owned();
            let text = format!("the agent was not told why: {error}");
            self.tell(None, EventKind::Warning { about, text });
        }
    }

    /// Goes on with the requests that another controller left: decided ones are sent again, all others told again.
    pub(crate) async fn go_on_with_requests(&self, peer: &Peer) {
        let Some(conversation) = self.conversation() else {
            return;
        };
        let left: Vec<_> = {
            let talk = self.talk();
            let open = talk.requests.open().iter();
            open.map(|asked| asked.open.clone()).collect()
        };
        for open in left {
            if open.decided.is_some() {
                // It was settled meanwhile, or the agent is gone, which is told.
                let _sent = self.send_answer(peer, &open.request.id, false).await;
            } else {
                self.put(peer, &conversation, open.request, None);
            }
        }
    }
}

fn no_answer(why: NoAnswer, request: &RequestId) -> Error {
    match why {
        NoAnswer::AlreadyAnswered => failure::coded(
            ErrorKind::Conflict,
            failure::ALREADY_ANSWERED,
            "the request was answered already",
        ),
        NoAnswer::Gone => failure::coded(
            ErrorKind::NotFound,
            failure::REQUEST_GONE,
            "there is no such request that waits for an answer",
        ),
    }
    .with("request", request)
}
