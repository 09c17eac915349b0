//! Opens conversations: starts and resumes, and what becomes of the process that served before.

use std::{sync::Arc, time::Duration};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    id::{ProcessId, SessionId},
};

use super::{
    handle::{Handle, Way},
    lanes::{Lane, LaneUse},
    parts::Inner,
    spawn::{Adopted, Failed, Spawned, explained},
    tasks::cancelled,
};
use crate::{
    book::Book,
    dialogue::TurnEnd,
    event::{EventKind, TurnOutcome},
    failure,
    protocol::Opened,
    request::Verdict,
    settings::{Conversation, ConversationId, SessionSettings},
    state::SessionState,
};

/// How long a conversation may take to be made one that can be resumed.
const PRESERVE_LIMIT: Duration = Duration::from_secs(10);

/// How often an agent is asked again for a conversation that its other process just gave up, and the pause between.
const HANDOVER_TRIES: u32 = 5;
const HANDOVER_PAUSE: Duration = Duration::from_millis(100);

/// What became of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Opening {
    /// A conversation is open and takes prompts.
    Ready {
        /// The conversation.
        conversation: ConversationId,
        /// The model, where the agent told it.
        model: Option<String>,
    },
    /// The agent wants a login first; no process is left.
    AuthenticationRequired {
        /// What a person can do.
        message: String,
    },
}

/// What a call opened, until its caller has it.
#[derive(Debug)]
pub(super) struct Opens {
    pub(super) opening: Opening,
    pub(super) handle: Option<Arc<Handle>>,
}

/// Which conversation a process is started for.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    New,
    Earlier(ConversationId),
}

impl Inner {
    /// Opens a conversation in a new process.
    pub(super) async fn open(
        self: Arc<Self>,
        settings: SessionSettings,
        adopted: Option<Adopted>,
        wish: Wish,
        cancel: CancelToken,
    ) -> Result<Opens, Error> {
        let lane = self.lanes.of(&settings.session);
        let Some(_gate) = self.gate(&lane, &cancel).await else {
            return Err(cancelled());
        };
        let book = self.book(&lane, &settings.session, None).await?;
        self.admit(&lane).await?;
        let task = Task {
            inner: &self,
            lane: &lane,
            book: &book,
            settings: &settings,
            cancel: &cancel,
        };
        let opened = match &wish {
            Wish::New => task.start(adopted.as_ref()).await,
            Wish::Earlier(token) => task.resume(adopted.as_ref(), token).await,
        };
        match opened {
            Ok(opens) => Ok(opens),
            Err(failed) => {
                if let Some(leftover) = failed.leftover {
                    lane.slots().retire(leftover);
                }
                // What is owned no more is forgotten; what could not be stored is so with the next call.
                let _stored = book.save().await;
                Err(failed.error)
            }
        }
    }

    /// Takes a lane's gate, unless the call is given up first.
    pub(super) async fn gate<'a>(
        &self,
        lane: &'a Lane,
        cancel: &CancelToken,
    ) -> Option<tokio::sync::MutexGuard<'a, ()>> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            gate = lane.gate.lock() => Some(gate),
        }
    }

    /// Lets a session have a new process only if at most one earlier one is stuck: one try to close it.
    async fn admit(&self, lane: &Lane) -> Result<(), Error> {
        let handle = {
            let slots = lane.slots();
            let Some(oldest) = slots.retired.first() else {
                return Ok(());
            };
            match &slots.current {
                Some(current) if current.is_release_failed() => Arc::clone(current),
                _ => Arc::clone(oldest),
            }
        };
        handle.close().await.map_err(failure::cleanup_pending)?;
        let left = {
            let mut slots = lane.slots();
            slots.drop_handle(&handle);
            slots.retired.len()
        };
        match left {
            0 => Ok(()),
            left => Err(failure::several_pending(left)),
        }
    }

    /// Returns the book of a session; one that is not known gets one.
    ///
    /// * Whoever reads it first is the session's controller from then on: processes that earlier ones left are ended, but for
    ///   the one to keep; those that cannot be are owned as stuck.
    pub(super) async fn book(
        &self,
        lane: &LaneUse,
        session: &SessionId,
        keep: Option<&ProcessId>,
    ) -> Result<Arc<Book>, Error> {
        let fresh = !lane.has_book();
        let (store, sink) = (Arc::clone(&self.store), Arc::clone(&self.sink));
        let reading = async {
            let state = match store.claim(session).await? {
                Some(state) => state,
                None => SessionState::new(session.clone()),
            };
            Ok(Book::new(state, Arc::clone(&store), sink))
        };
        let book = lane.book(reading).await?;
        if book.is_superseded() {
            // Its processes are the other controller's.
            let mut slots = lane.slots();
            slots.current = None;
            slots.retired.clear();
            return Err(crate::state::superseded(session));
        }
        if fresh {
            for process in book.read(|state| state.owned.clone()) {
                if Some(&process) == keep {
                    continue;
                }
                let way = Way::Named(Arc::clone(&self.transport));
                let handle = Handle::new(process, Arc::clone(&book), way, None);
                if handle.close().await.is_err() {
                    lane.slots().retire(handle);
                }
            }
        }
        Ok(book)
    }
}

struct Task<'a> {
    inner: &'a Arc<Inner>,
    lane: &'a LaneUse,
    book: &'a Arc<Book>,
    settings: &'a SessionSettings,
    cancel: &'a CancelToken,
}

impl Task<'_> {
    async fn start(&self, adopted: Option<&Adopted>) -> Result<Opens, Failed> {
        if let Some(old) = self.lane.current() {
            // Where it cannot be closed it stays in its place, marked, until the new one takes that.
            let _closed = self
                .retire_talk(&old, "a new conversation was started")
                .await;
        }
        let spawned = self
            .inner
            .spawn(self.book, self.settings, adopted, self.cancel)
            .await;
        let spawned = match spawned {
            Ok(spawned) => spawned,
            Err(failed) => return self.or_login(failed),
        };
        let opening = self
            .inner
            .protocol
            .open(&spawned.peer, self.settings, &spawned.facts);
        match self.inner.cancellable(self.cancel, opening).await {
            Ok(opened) => self.install(spawned, opened, false).await,
            Err(error) => {
                let error = explained(error, &spawned.peer);
                let failed = Inner::give_back(error, spawned.handle).await;
                self.or_login(failed)
            }
        }
    }

    /// A login that is missing fails no start: whoever asked can offer one.
    fn or_login(&self, failed: Failed) -> Result<Opens, Failed> {
        if failed.leftover.is_some()
            || !failure::is(&failed.error, failure::AUTHENTICATION_REQUIRED)
        {
            return Err(failed);
        }
        let message = failed.error.message().to_owned();
        let kind = EventKind::AuthenticationRequired {
            message: message.clone(),
        };
        let number = self.book.read(|state| state.processes);
        self.book.tell(number, None, None, kind);
        Ok(Opens {
            opening: Opening::AuthenticationRequired { message },
            handle: None,
        })
    }

    async fn resume(
        &self,
        adopted: Option<&Adopted>,
        token: &ConversationId,
    ) -> Result<Opens, Failed> {
        let old = self.lane.current();
        if let Some(old) = old.as_ref().filter(|old| old.is_live()) {
            self.preserve(old, token).await;
        }
        let spawned = self
            .inner
            .spawn(self.book, self.settings, adopted, self.cancel)
            .await?;
        let mut opened = self.try_resume(&spawned, token).await;
        if let (Err(error), Some(old)) = (&opened, &old)
            && failure::is(error, failure::ACTIVE_WRITER)
        {
            opened = self.hand_over(&spawned, old, token).await;
        }
        match opened {
            Ok(opened) => self.install(spawned, opened, true).await,
            Err(error) => {
                let error = explained(error, &spawned.peer);
                Err(Inner::give_back(error, spawned.handle).await)
            }
        }
    }

    async fn try_resume(&self, spawned: &Spawned, token: &ConversationId) -> Result<Opened, Error> {
        let (protocol, peer) = (&self.inner.protocol, &spawned.peer);
        let resuming = protocol.resume(peer, self.settings, &spawned.facts, token);
        self.inner.cancellable(self.cancel, resuming).await
    }

    /// The earlier process holds the conversation: it is closed, now that its successor is up, and not before.
    ///
    /// * One that nobody speaks with any more, or that could not be closed before, may hold it as well.
    async fn hand_over(
        &self,
        spawned: &Spawned,
        old: &Arc<Handle>,
        token: &ConversationId,
    ) -> Result<Opened, Error> {
        old.retire()?;
        self.retire_talk(old, "another process goes on with the conversation")
            .await?;
        let mut tries = 1;
        loop {
            match self.try_resume(spawned, token).await {
                Err(error)
                    if failure::is(&error, failure::ACTIVE_WRITER) && tries < HANDOVER_TRIES =>
                {
                    tries += 1;
                    tokio::time::sleep(HANDOVER_PAUSE).await;
                }
                resumed => return resumed,
            }
        }
    }

    /// Makes a conversation in which nothing was said one that its next process finds.
    async fn preserve(&self, old: &Handle, token: &ConversationId) {
        let Some((peer, dialogue)) = old.talk() else {
            return;
        };
        if let Some(conversation) = dialogue.conversation()
            && conversation.id == *token
        {
            self.inner.preserve(self.book, peer, &conversation).await;
        }
    }

    /// Closes a process that served; it stays where it is if that fails.
    async fn retire_talk(&self, old: &Arc<Handle>, why: &str) -> Result<(), Error> {
        end_talk(old, &Verdict::Cancelled, why);
        old.close().await?;
        self.lane.slots().drop_handle(old);
        Ok(())
    }

    /// Puts a process into its place; what stood there is closed, or owned as stuck.
    async fn install(
        &self,
        spawned: Spawned,
        opened: Opened,
        resumed: bool,
    ) -> Result<Opens, Failed> {
        let Spawned {
            handle,
            dialogue,
            facts,
            ..
        } = spawned;
        let conversation = Conversation::new(opened.conversation.clone(), self.settings, facts);
        let before = self.book.update(|state| {
            let before = (state.token.take(), state.content, state.live.take());
            state.content = resumed;
            state.token = Some(opened.conversation.clone());
            before
        });
        dialogue.opened(conversation);
        if let Err(error) = self.book.save().await {
            // A conversation that the next controller would not find is none that was started.
            self.book.update(|state| {
                (state.token, state.content, state.live) = before;
            });
            return Err(Inner::give_back(error, handle).await);
        }
        let old = self.lane.slots().current.replace(Arc::clone(&handle));
        dialogue.tell(
            None,
            EventKind::SessionStarted {
                conversation: opened.conversation.clone(),
                resumed,
                model: opened.model.clone(),
            },
        );
        for warning in opened.warnings {
            dialogue.tell(None, warning);
        }
        if let Some(old) = old {
            end_talk(&old, &Verdict::Cancelled, "another process took its place");
            if old.close().await.is_err() {
                self.lane.slots().retire(old);
            }
            // What is owned no more is forgotten, now or with the next save.
            let _stored = self.book.save().await;
        }
        Ok(Opens {
            opening: Opening::Ready {
                conversation: opened.conversation,
                model: opened.model,
            },
            handle: Some(handle),
        })
    }
}

impl Inner {
    /// Makes a conversation in which nothing was said one that can be resumed; where that fails it is as it was.
    pub(super) async fn preserve(
        &self,
        book: &Book,
        peer: &crate::rpc::Peer,
        conversation: &Conversation,
    ) {
        if book.read(|state| state.content) {
            return;
        }
        let preserving = self.protocol.preserve(peer, conversation);
        if let Ok(Ok(())) = tokio::time::timeout(PRESERVE_LIMIT, preserving).await {
            book.update(|state| state.content = true);
        }
    }
}

/// Ends what is open with a process that is about to be closed.
pub(super) fn end_talk(handle: &Handle, verdict: &Verdict, why: &str) {
    if let Some((peer, dialogue)) = handle.talk() {
        let end = TurnEnd {
            reason: Some(why.to_owned()),
            ..TurnEnd::new(TurnOutcome::Cancelled)
        };
        dialogue.close(peer, verdict, end);
    }
}

/// The error of a resume without a token.
pub(super) fn no_token() -> Error {
    failure::coded(
        ErrorKind::InvalidInput,
        failure::RESUME_NOT_LOCAL,
        "there is no token of a conversation to resume; start a new one",
    )
}
