//! Goes on with a conversation that another controller left, while its process lives.

use std::sync::Arc;

use groundcrew_core::{cancel::CancelToken, error::Error, id::SessionId};

use super::{
    handle::{Handle, Way},
    opening::{Opening, Opens},
    parts::Inner,
    tasks::cancelled,
};
use crate::{dialogue::Dialogue, event::EventKind, failure};

impl Inner {
    /// Takes a session over: reads on from what was settled, sends answers that were decided, keeps the turn.
    ///
    /// * Nothing of an earlier controller can be written any more, and no answer to it is taken for one to us.
    /// * A process that ended meanwhile is heard to its end; the session is not live then.
    pub(super) async fn take_over(
        self: Arc<Self>,
        session: SessionId,
        cancel: CancelToken,
    ) -> Result<Opens, Error> {
        let lane = self.lanes.of(&session);
        let Some(_gate) = self.gate(&lane, &cancel).await else {
            return Err(cancelled());
        };
        if let Some(current) = lane.current().filter(|current| current.is_live())
            && let Some(conversation) = current.talk().and_then(|(_, talk)| talk.conversation())
        {
            return Ok(Opens {
                opening: Opening::Ready {
                    conversation: conversation.id.clone(),
                    model: None,
                },
                handle: None,
            });
        }
        let known = self.store.load(&session).await?;
        let Some(live) = known.and_then(|state| state.live) else {
            return Err(failure::not_live().with("session", &session));
        };
        let book = self.book(&lane, &session, Some(&live.process)).await?;
        // What the earlier controller stored last, before it could store no more.
        let Some(live) = book.read(|state| state.live.clone()) else {
            return Err(failure::not_live().with("session", &session));
        };
        let connection = self.transport.attach(&live.process, live.settled).await?;
        // One of ours that could not be closed, or that nobody spoke with: its process has one owner, as before.
        let old = lane.current();
        let cleanup = match &old {
            Some(old) if *old.process() == live.process => old.give_up().await,
            _ => None,
        };
        let parts = self.dialogue_parts(&book, &live.process, live.number);
        let dialogue = Dialogue::restored(parts, &live);
        let peer = self.peer(&book, &connection, &dialogue, live.settled);
        let handle = Handle::new(
            live.process.clone(),
            Arc::clone(&book),
            Way::Connected {
                connection,
                peer: peer.clone(),
                dialogue: Arc::clone(&dialogue),
            },
            cleanup,
        );
        let conversation = live.conversation.id.clone();
        dialogue.tell(
            None,
            EventKind::TakenOver {
                conversation: conversation.clone(),
            },
        );
        {
            let mut slots = lane.slots();
            slots.current = Some(Arc::clone(&handle));
            if let Some(old) = old.filter(|old| *old.process() != live.process) {
                slots.retire(old);
            }
        }
        // The earlier controller may have died in the middle of a line; an agent that is gone shows so by itself.
        let _ended = peer.end_line().await;
        dialogue.go_on_with_requests(&peer).await;
        dialogue.go_on_interrupting(&peer);
        Ok(Opens {
            opening: Opening::Ready {
                conversation,
                model: None,
            },
            handle: None,
        })
    }
}
