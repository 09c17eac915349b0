//! Prompts: a turn that begins, or guidance for the one that runs.

use std::time::Duration;

use groundcrew_core::error::{Error, ErrorKind};
use tokio::sync::watch;

use super::{Dialogue, Progress, Turn, TurnEnd};
use crate::{
    event::EventKind,
    failure,
    protocol::TurnCall,
    rpc::{CallError, Peer},
    settings::{Prompt, TurnId},
};

/// How long guidance may take to be taken.
const STEER_LIMIT: Duration = Duration::from_secs(10);
/// How long a turn may take to get a name before it can be guided.
const NAME_LIMIT: Duration = Duration::from_secs(30);

/// What became of a prompt.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) turn: u64,
    pub(crate) steered: bool,
    pub(crate) progress: watch::Receiver<Progress>,
}

/// A prompt that was not taken, and whether the process is of no use any more.
#[derive(Debug)]
pub(crate) struct NotAccepted {
    pub(crate) error: Error,
    pub(crate) unhealthy: bool,
}

impl NotAccepted {
    fn healthy(error: Error) -> Self {
        Self {
            error,
            unhealthy: false,
        }
    }
}

enum Place {
    Begun(Turn),
    Runs(u64, watch::Receiver<Progress>),
}

impl Dialogue {
    /// Begins a turn, or guides the one that runs.
    ///
    /// # Cancel safety
    ///
    /// None; the engine runs it in a task.
    pub(crate) async fn prompt(
        &self,
        peer: &Peer,
        prompt: &Prompt,
    ) -> Result<Accepted, NotAccepted> {
        loop {
            let (turn, progress) = match self.place(peer).map_err(NotAccepted::healthy)? {
                Place::Begun(turn) => return self.begin(peer, turn, prompt).await,
                Place::Runs(turn, progress) => (turn, progress),
            };
            let steered = self.steer(peer, progress.clone(), prompt).await;
            match steered {
                Ok(()) => {
                    self.tell(None, EventKind::TurnSteered);
                    return Ok(Accepted {
                        turn,
                        steered: true,
                        progress,
                    });
                }
                // It ended while it was to be guided: the prompt begins the next one.
                Err(error)
                    if progress.borrow().end.is_some() && failure::refusal(&error).is_some() => {}
                Err(error) => return Err(NotAccepted::healthy(error)),
            }
        }
    }

    /// Reserves the one place for a turn, or finds who has it.
    fn place(&self, peer: &Peer) -> Result<Place, Error> {
        let mut talk = self.talk();
        if talk.closed || talk.conversation.is_none() {
            return Err(failure::not_live());
        }
        if let Some(turn) = &talk.turns.active {
            return Ok(Place::Runs(turn.number, turn.progress.subscribe()));
        }
        let number = self.book.update(|state| {
            state.turns += 1;
            state.turns
        });
        let turn = Turn::new(number, peer.next_id());
        let begun = Turn {
            progress: turn.progress.clone(),
            ..Turn::new(number, turn.call)
        };
        talk.turns.active = Some(turn);
        Ok(Place::Begun(begun))
    }

    async fn begin(
        &self,
        peer: &Peer,
        turn: Turn,
        prompt: &Prompt,
    ) -> Result<Accepted, NotAccepted> {
        let Some(conversation) = self.conversation() else {
            return Err(NotAccepted::healthy(failure::not_live()));
        };
        // Stored before it is sent: its answer may come to the next controller.
        if let Err(error) = self.save().await {
            self.talk().turns.active = None;
            return Err(NotAccepted::healthy(error));
        }
        let mut progress = turn.progress.subscribe();
        self.tell(None, EventKind::TurnStarted { id: None });
        let (call, limit) = match self.protocol.prompt(&conversation, prompt) {
            TurnCall::Acknowledged(call, limit) => (call, Some(limit)),
            TurnCall::Ends(call) => (call, None),
        };
        if let Err(error) = peer.post(turn.call, &call.method, &call.params).await {
            return Err(self.not_begun(peer, error));
        }
        self.book.update(|state| state.content = true);
        if let Some(limit) = limit {
            let answered = progress.wait_for(|progress| progress.acknowledged);
            let in_time = tokio::time::timeout(limit, answered).await.is_ok();
            if !in_time {
                let method = call.method;
                return Err(self.not_begun(peer, CallError::TimedOut { method, limit }.into()));
            }
            if let Some(end) = progress.borrow().end.clone()
                && let Some(report) = peer.ended()
            {
                let error = Error::from(report).with("turn", turn.number);
                return Err(NotAccepted {
                    error: match end.error {
                        Some(text) => error.with("ended", text),
                        None => error,
                    },
                    unhealthy: true,
                });
            }
        }
        Ok(Accepted {
            turn: turn.number,
            steered: false,
            progress,
        })
    }

    fn not_begun(&self, peer: &Peer, error: Error) -> NotAccepted {
        let end = TurnEnd::failed(error.to_string());
        self.end_turn(&mut self.talk(), peer, None, None, end);
        NotAccepted {
            error,
            unhealthy: true,
        }
    }

    /// Puts a prompt into a turn that runs, once it has a name.
    ///
    /// # Errors
    ///
    /// With the code `agent.guidance_unsupported` where the agent takes none; those of the peer.
    pub(super) async fn steer(
        &self,
        peer: &Peer,
        mut progress: watch::Receiver<Progress>,
        prompt: &Prompt,
    ) -> Result<(), Error> {
        let Some(conversation) = self.conversation() else {
            return Err(failure::not_live());
        };
        let cannot = || {
            failure::coded(
                ErrorKind::Busy,
                failure::CANNOT_STEER,
                "a turn runs, and this agent takes no prompt while it does; wait for its end, or interrupt it",
            )
        };
        let nameless = TurnId(String::new());
        if self
            .protocol
            .steer(&conversation, &nameless, prompt)
            .is_none()
        {
            // Whatever its name: nobody waits for one.
            return Err(cannot());
        }
        let id = {
            let named =
                progress.wait_for(|progress| progress.id.is_some() || progress.end.is_some());
            let named = tokio::time::timeout(NAME_LIMIT, named).await;
            named
                .ok()
                .and_then(Result::ok)
                .and_then(|now| now.id.clone())
        };
        let id = id.unwrap_or(nameless);
        let Some(call) = self.protocol.steer(&conversation, &id, prompt) else {
            return Err(cannot());
        };
        peer.call(&call.method, call.params, STEER_LIMIT).await?;
        Ok(())
    }
}
