//! The engine of agent sessions: for each session at most one process works, and every process is owned until it is gone.
//!
//! * Calls of one session are serialised; those of different sessions never wait for each other.
//! * A call that its caller gives up takes back what it made; what cannot be taken back yet is owned, and retried.
//! * It acts on processes; it never launches a run.

mod closing;
mod handle;
mod lanes;
mod opening;
mod parts;
mod spawn;
mod takeover;
mod tasks;

use std::{sync::Arc, time::Duration};

use groundcrew_core::{cancel::CancelToken, error::Error, id::SessionId, process::Offset};
use tokio::sync::watch;

use crate::{
    dialogue::{Accepted, Dialogue, Progress, TurnEnd},
    failure,
    request::{Decision, InteractiveRequest, RequestId, RequestPhase},
    rpc::Peer,
    settings::{ConversationId, Prompt, SessionSettings},
};
use closing::Ending;
pub use closing::{CleanupReport, SweepReport};
use handle::Handle;
pub use opening::Opening;
use opening::{Opens, Wish};
use parts::Inner;
pub use parts::{EngineParts, Limits};
pub use spawn::Adopted;

/// An engine for one protocol; a handle that can be cloned.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

/// A turn that takes a prompt.
#[derive(Debug)]
pub struct TurnTicket {
    turn: u64,
    steered: bool,
    progress: watch::Receiver<Progress>,
}

impl TurnTicket {
    /// Returns its number in the session, as in events.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns whether the prompt went into a turn that ran already.
    pub fn steered(&self) -> bool {
        self.steered
    }

    /// Waits for its end.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn ended(&mut self) -> TurnEnd {
        end_of(&mut self.progress).await
    }
}

async fn end_of(progress: &mut watch::Receiver<Progress>) -> TurnEnd {
    let ended = progress.wait_for(|progress| progress.end.is_some()).await;
    ended
        .ok()
        .and_then(|progress| progress.end.clone())
        .unwrap_or_else(|| TurnEnd::failed("the session was given up"))
}

/// What was opened, taken back unless the caller gets to hear of it.
struct Unclaimed {
    inner: Arc<Inner>,
    session: SessionId,
    handle: Option<Arc<Handle>>,
    runtime: tokio::runtime::Handle,
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let taking_back = Arc::clone(&self.inner).take_back(self.session.clone(), handle);
            self.inner.tracker.spawn_on(taking_back, &self.runtime);
        }
    }
}

impl Engine {
    /// Makes an engine.
    pub fn new(parts: EngineParts) -> Self {
        Self(Arc::new(Inner::new(parts)))
    }

    /// Opens a new conversation in a new process; a process that serves the session is closed first.
    ///
    /// # Errors
    ///
    /// * With the code `agent.process_cleanup_pending`, retryable, when an earlier process could not be closed.
    /// * Those of hook, resolver and transport as they are; those of the agent with the end of its standard error.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it takes back what it made; nothing of it is left once the engine's work is done.
    pub async fn start(&self, settings: SessionSettings) -> Result<Opening, Error> {
        self.open(settings, None, Wish::New).await
    }

    /// As [`start`](Self::start), in a process that somebody started for it.
    pub async fn start_in(
        &self,
        settings: SessionSettings,
        adopted: Adopted,
    ) -> Result<Opening, Error> {
        self.open(settings, Some(adopted), Wish::New).await
    }

    /// Opens an earlier conversation in a new process; one that serves the session does so until that has succeeded.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and with the codes `agent.resume_session_not_local` without a token,
    /// `agent.provider_session_not_found` where the agent does not know it, and `agent.busy` where its present process would
    /// have to give it up and works.
    ///
    /// # Cancel safety
    ///
    /// As [`start`](Self::start).
    pub async fn resume(
        &self,
        settings: SessionSettings,
        token: Option<ConversationId>,
    ) -> Result<Opening, Error> {
        let token = usable(token)?;
        self.open(settings, None, Wish::Earlier(token)).await
    }

    /// As [`resume`](Self::resume), in a process that somebody started for it.
    pub async fn resume_in(
        &self,
        settings: SessionSettings,
        token: Option<ConversationId>,
        adopted: Adopted,
    ) -> Result<Opening, Error> {
        let token = usable(token)?;
        self.open(settings, Some(adopted), Wish::Earlier(token))
            .await
    }

    async fn open(
        &self,
        settings: SessionSettings,
        adopted: Option<Adopted>,
        wish: Wish,
    ) -> Result<Opening, Error> {
        let session = settings.session.clone();
        self.claimed(session, |inner, cancel| {
            inner.open(settings, adopted, wish, cancel)
        })
        .await
    }

    /// Goes on with a conversation that an earlier controller left, while its process lives.
    ///
    /// # Errors
    ///
    /// With the code `agent.session_not_found` when no process of the session is known; those of store and transport.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the process to the next one who takes over.
    pub async fn take_over(&self, session: &SessionId) -> Result<Opening, Error> {
        let session = session.clone();
        self.claimed(session.clone(), |inner, cancel| {
            inner.take_over(session, cancel)
        })
        .await
    }

    async fn claimed<F>(
        &self,
        session: SessionId,
        work: impl FnOnce(Arc<Inner>, CancelToken) -> F,
    ) -> Result<Opening, Error>
    where
        F: Future<Output = Result<Opens, Error>> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        let opening = tasks::detached(&self.0.tracker, |cancel| {
            let work = work(Arc::clone(&inner), cancel.clone());
            async move {
                let Opens { opening, handle } = work.await?;
                let unclaimed = Unclaimed {
                    inner,
                    session,
                    handle,
                    runtime: tokio::runtime::Handle::current(),
                };
                if cancel.is_cancelled() {
                    return Err(tasks::cancelled());
                }
                Ok((opening, unclaimed))
            }
        });
        let (opening, mut unclaimed): (Opening, Unclaimed) = opening.await??;
        unclaimed.handle = None;
        Ok(opening)
    }

    /// Returns whether a session takes prompts.
    pub fn is_live(&self, session: &SessionId) -> bool {
        self.live(session).is_ok()
    }

    fn live(&self, session: &SessionId) -> Result<Arc<Handle>, Error> {
        let current = self.0.lanes.current(session);
        current
            .filter(|handle| handle.is_live())
            .ok_or_else(|| failure::not_live().with("session", session))
    }

    /// Works with a live session in a task of its own, so that a caller who goes away breaks nothing off.
    async fn work<T, F>(
        &self,
        session: &SessionId,
        work: impl FnOnce(Arc<Handle>, Peer, Arc<Dialogue>) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let handle = self.live(session)?;
        handle.touch();
        let Some((peer, dialogue)) = handle.talk() else {
            return Err(failure::not_live());
        };
        let working = work(Arc::clone(&handle), peer.clone(), Arc::clone(dialogue));
        tasks::detached(&self.0.tracker, |_| working).await?
    }

    /// Says something: begins a turn, or guides the one that runs.
    ///
    /// * It returns when the agent has taken it; [`TurnTicket::ended`] waits for the end.
    ///
    /// # Errors
    ///
    /// * With the code `agent.session_not_found` when the session is not live.
    /// * With the code `agent.guidance_unsupported` when a turn runs and the agent takes nothing meanwhile.
    /// * `TimedOut`, `Unavailable` when the agent does not take it: its process is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it goes on: the prompt is said or not, and the session is whole.
    pub async fn prompt(&self, session: &SessionId, prompt: Prompt) -> Result<TurnTicket, Error> {
        let (inner, key) = (Arc::clone(&self.0), session.clone());
        self.work(session, |handle, peer, dialogue| async move {
            let prompted = dialogue.prompt(&peer, &prompt).await;
            handle.touch();
            match prompted {
                Ok(Accepted {
                    turn,
                    steered,
                    progress,
                }) => Ok(TurnTicket {
                    turn,
                    steered,
                    progress,
                }),
                Err(not) => {
                    if not.unhealthy {
                        let why = "the agent did not take a prompt";
                        inner.discard(key, handle, why).await;
                    }
                    Err(not.error)
                }
            }
        })
        .await
    }

    /// Asks the turn that runs to end, waits for its end, and closes the process if it does not end in time.
    ///
    /// # Errors
    ///
    /// With the codes `agent.session_not_found` and `agent.no_active_turn`.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the turn is asked to end all the same.
    pub async fn interrupt(&self, session: &SessionId) -> Result<TurnEnd, Error> {
        let (inner, key) = (Arc::clone(&self.0), session.clone());
        self.work(session, |handle, peer, dialogue| async move {
            let mut progress = dialogue.interrupt(&peer)?;
            let ending = end_of(&mut progress);
            if let Ok(end) = tokio::time::timeout(inner.limits.interrupt, ending).await {
                return Ok(end);
            }
            dialogue.force();
            inner
                .discard(key, handle, "the turn did not end when it was asked to")
                .await;
            Ok(end_of(&mut progress).await)
        })
        .await
    }

    /// Returns what waits for an answer.
    pub fn requests(&self, session: &SessionId) -> Vec<InteractiveRequest> {
        let live = self.live(session).ok();
        live.and_then(|handle| handle.talk().map(|(_, dialogue)| dialogue.requests()))
            .unwrap_or_default()
    }

    /// Returns where a request is; none if nobody remembers it.
    pub fn request_phase(&self, session: &SessionId, request: &RequestId) -> Option<RequestPhase> {
        let current = self.0.lanes.current(session)?;
        let (_, dialogue) = current.talk()?;
        dialogue.phase(request)
    }

    /// Waits for the end of the turn that runs; none if none does.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn turn_ended(&self, session: &SessionId) -> Option<TurnEnd> {
        let handle = self.live(session).ok()?;
        let mut progress = handle.talk()?.1.turn()?;
        Some(end_of(&mut progress).await)
    }

    /// Waits until everything that the agent wrote before that offset was heard; at once where the session is not live.
    ///
    /// * Behind a takeover it tells when what the agent asked meanwhile is known.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn heard_to(&self, session: &SessionId, offset: Offset) {
        let Ok(handle) = self.live(session) else {
            return;
        };
        if let Some((peer, _)) = handle.talk() {
            peer.heard_to(offset).await;
        }
    }

    /// Answers a request.
    ///
    /// # Errors
    ///
    /// With the codes `agent.session_not_found`, `agent.request_not_live` and `agent.request_already_answered`; those of the
    /// store, and then nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it was awaited, the request waits on; afterwards the answer is sent.
    pub async fn answer(
        &self,
        session: &SessionId,
        request: &RequestId,
        decision: Decision,
    ) -> Result<(), Error> {
        let request = request.clone();
        self.work(session, |_, peer, dialogue| async move {
            dialogue.answer(&peer, &request, decision, false).await
        })
        .await
    }

    /// Ends a session's process for good, whatever it does; the agent is told where it has words for it.
    ///
    /// # Errors
    ///
    /// Those of closing it; the process is then still owned, and closed with the next call.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it goes on once it has begun.
    pub async fn close(&self, session: &SessionId) -> Result<(), Error> {
        self.end(session, Ending::Close).await
    }

    /// Ends an idle session's process; the conversation can be resumed.
    ///
    /// # Errors
    ///
    /// With the code `agent.busy`; `Unsupported` when the agent resumes nothing; as [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// As [`close`](Self::close).
    pub async fn release(&self, session: &SessionId) -> Result<(), Error> {
        self.end(session, Ending::Release).await
    }

    /// Ends a session's process because whoever hosted it is gone, whatever it does.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// As [`close`](Self::close).
    pub async fn disconnect(&self, session: &SessionId) -> Result<(), Error> {
        self.end(session, Ending::Disconnect).await
    }

    async fn end(&self, session: &SessionId, ending: Ending) -> Result<(), Error> {
        let (inner, session) = (Arc::clone(&self.0), session.clone());
        tasks::detached(&self.0.tracker, |cancel| inner.end(session, ending, cancel)).await?
    }

    /// Gives a session up without ending its process, so that the next controller can go on with it.
    ///
    /// # Errors
    ///
    /// Those of the store; the next controller then reads some of the output again.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it goes on.
    pub async fn leave(&self, session: &SessionId) -> Result<(), Error> {
        let (inner, session) = (Arc::clone(&self.0), session.clone());
        tasks::detached(&self.0.tracker, |_| inner.leave(session)).await?
    }

    /// Tries once to end one process that could not be closed, of whatever session; nothing with a limit of 0.
    ///
    /// # Cancel safety
    ///
    /// Dropped, an attempt that has begun goes on.
    pub async fn cleanup(&self, limit: usize) -> CleanupReport {
        let inner = Arc::clone(&self.0);
        tasks::detached(&self.0.tracker, |cancel| inner.cleanup(limit, cancel))
            .await
            .unwrap_or_default()
    }

    /// Releases sessions that nobody worked with for that long, and tries one cleanup.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it ends behind the session it is at.
    pub async fn sweep(&self, idle: Duration) -> SweepReport {
        let inner = Arc::clone(&self.0);
        tasks::detached(&self.0.tracker, |cancel| inner.sweep(idle, cancel))
            .await
            .unwrap_or_default()
    }

    /// Ends the processes of all sessions, whatever they do, within the limit; their states stay.
    ///
    /// * Returns the sessions that still own a process.
    ///
    /// # Cancel safety
    ///
    /// Dropped, what has begun goes on.
    pub async fn shutdown(&self) -> Vec<SessionId> {
        let sessions = self.0.lanes.sessions();
        let all = sessions.iter().map(|session| self.disconnect(session));
        let all = futures_util::future::join_all(all);
        // What did not end in time is owned, as what failed is.
        let _ended = tokio::time::timeout(self.0.limits.shutdown, all).await;
        let _report = self.cleanup(1).await;
        self.0.lanes.sessions()
    }

    /// Returns how many processes a session owns: at most one that works and one that is stuck.
    pub fn owned(&self, session: &SessionId) -> usize {
        self.0.lanes.owned(session)
    }
}

fn usable(token: Option<ConversationId>) -> Result<ConversationId, Error> {
    token
        .filter(|token| !token.0.trim().is_empty())
        .ok_or_else(opening::no_token)
}
