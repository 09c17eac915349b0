//! Asks a turn to end.

use std::{sync::Arc, time::Duration};

use groundcrew_core::error::Error;
use tokio::sync::watch;

use super::{Dialogue, Progress};
use crate::{
    failure,
    protocol::{InterruptCall, InterruptRefused},
    request::Verdict,
    rpc::Peer,
    settings::TurnId,
};

/// How long the agent may take to answer that it was asked.
const CALL_LIMIT: Duration = Duration::from_secs(10);

impl Dialogue {
    /// Refuses what waits for an answer, and asks the turn that runs to end, in the background.
    ///
    /// # Errors
    ///
    /// With the code `agent.no_active_turn`.
    pub(crate) fn interrupt(
        self: &Arc<Self>,
        peer: &Peer,
    ) -> Result<watch::Receiver<Progress>, Error> {
        let progress = {
            let mut talk = self.talk();
            let Some(turn) = &mut talk.turns.active else {
                return Err(failure::no_turn());
            };
            turn.interrupting = true;
            let progress = turn.progress.subscribe();
            // A part of the agent may be parked on one of them.
            self.reject(&mut talk, peer, None, &Verdict::Cancelled);
            progress
        };
        let (me, peer, asking) = (Arc::clone(self), peer.clone(), progress.clone());
        self.tracker.spawn(async move {
            me.save_or_warn(&peer).await;
            me.ask_to_end(&peer, asking).await;
        });
        Ok(progress)
    }

    /// Goes on with an end that another controller asked for.
    pub(crate) fn go_on_interrupting(self: &Arc<Self>, peer: &Peer) {
        let interrupting = {
            let talk = self.talk();
            talk.turns
                .active
                .as_ref()
                .is_some_and(|turn| turn.interrupting)
        };
        if interrupting {
            // It ended meanwhile.
            let _ended = self.interrupt(peer);
        }
    }

    /// The turn did not end when it was asked to: its process will be closed, and it counts as cancelled.
    pub(crate) fn force(&self) {
        if let Some(turn) = &mut self.talk().turns.active {
            turn.forced = true;
        }
    }

    async fn ask_to_end(&self, peer: &Peer, mut progress: watch::Receiver<Progress>) {
        let Some(conversation) = self.conversation() else {
            return;
        };
        let mut target: Option<TurnId> = None;
        loop {
            let (named, confirmed) = {
                let now = progress.borrow_and_update();
                if now.end.is_some() {
                    return;
                }
                (now.id.clone(), now.confirmed)
            };
            let retargeted = target.is_some();
            let turn = target.take().or(named);
            let refused = match self.protocol.interrupt(&conversation, turn.as_ref()) {
                // It has no name yet.
                None => InterruptRefused::NotYet,
                Some(InterruptCall::Notification(call)) => {
                    // An agent that is gone ends its turn in another way.
                    let _told = peer.notify(&call.method, call.params).await;
                    return;
                }
                Some(InterruptCall::Request(call)) => {
                    let answer = peer.ask(&call.method, call.params, CALL_LIMIT, None).await;
                    match answer.as_ref().err().and_then(|error| error.refusal()) {
                        None => return,
                        Some(refusal) => self.protocol.interrupt_refused(refusal),
                    }
                }
            };
            match refused {
                InterruptRefused::Other(other) if !retargeted => target = Some(other),
                // Between its acknowledgement and its first word a turn cannot be interrupted.
                InterruptRefused::NotYet if !confirmed => {
                    if progress.changed().await.is_err() {
                        return;
                    }
                }
                InterruptRefused::Other(_) | InterruptRefused::NotYet | InterruptRefused::No => {
                    return;
                }
            }
        }
    }
}
