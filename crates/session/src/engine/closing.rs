//! Ends sessions' processes: for good, to be resumed, or because their host is gone; and tries again what could not be ended.

use std::{sync::Arc, time::Duration};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    id::SessionId,
};
use tokio::time::Instant;

use super::{handle::Handle, lanes::Lane, opening::end_talk, parts::Inner};
use crate::{event::EventKind, failure, request::Verdict};

/// How a session's process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// For good: the agent is told.
    Close,
    /// To be resumed; a busy session refuses.
    Release,
    /// Its host is gone: nobody is told.
    Disconnect,
}

/// What a cleanup pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanupReport {
    /// How many handles were tried.
    pub attempted: usize,
    /// How many of them are gone.
    pub cleaned: usize,
    /// How many are still stuck.
    pub failed: usize,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// How many idle sessions were released.
    pub released: usize,
    /// How many could not be.
    pub failed: usize,
    /// How many were left alone behind the first that could not be.
    pub skipped: usize,
    /// The cleanup pass behind it, unless one could not be released.
    pub cleanup: CleanupReport,
}

impl Inner {
    /// Ends a session's process.
    pub(super) async fn end(
        self: Arc<Self>,
        session: SessionId,
        ending: Ending,
        cancel: CancelToken,
    ) -> Result<(), Error> {
        let lane = self.lanes.of(&session);
        let Some(_gate) = self.gate(&lane, &cancel).await else {
            return Err(super::tasks::cancelled());
        };
        let Some(handle) = lane.current() else {
            return Ok(());
        };
        if handle.is_superseded() {
            // It is another controller's.
            lane.slots().drop_handle(&handle);
            return Ok(());
        }
        if ending == Ending::Release {
            self.may_release(&handle).await?;
            // A turn may have begun since it was looked at; from here on none does.
            handle.retire()?;
        }
        if ending == Ending::Close
            && handle.is_live()
            && let Some((peer, dialogue)) = handle.talk()
            && let Some(conversation) = dialogue.conversation()
        {
            end_requests(&handle, &Verdict::Cancelled);
            self.protocol.farewell(peer, &conversation).await;
        }
        let verdict = match ending {
            Ending::Close | Ending::Release => Verdict::Cancelled,
            Ending::Disconnect => Verdict::Disconnected,
        };
        close_current(&lane, &handle, &verdict, "the session was closed").await
    }

    async fn may_release(&self, handle: &Handle) -> Result<(), Error> {
        if handle.is_busy() {
            return Err(failure::busy());
        }
        if let Some((peer, dialogue)) = handle.talk()
            && handle.is_live()
            && let Some(conversation) = dialogue.conversation()
        {
            if !self.protocol.can_resume(&conversation.facts) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the agent cannot resume a conversation; close the session instead",
                ));
            }
            self.preserve(&dialogue.book, peer, &conversation).await;
        }
        Ok(())
    }

    /// Tries once to end one handle that is stuck.
    pub(super) async fn cleanup(
        self: Arc<Self>,
        limit: usize,
        cancel: CancelToken,
    ) -> CleanupReport {
        let mut report = CleanupReport::default();
        if limit == 0 {
            return report;
        }
        for session in self.lanes.sessions() {
            let lane = self.lanes.of(&session);
            if stuck(&lane).is_none() {
                continue;
            }
            let Some(_gate) = self.gate(&lane, &cancel).await else {
                return report;
            };
            // It may have been ended while the lane was waited for.
            let Some(handle) = stuck(&lane) else {
                continue;
            };
            report.attempted += 1;
            match handle.close().await {
                Ok(()) => {
                    lane.slots().drop_handle(&handle);
                    handle.save().await;
                    report.cleaned += 1;
                }
                Err(_) => report.failed += 1,
            }
            return report;
        }
        report
    }

    /// Releases sessions that nobody worked with for that long; the first that cannot be ends it.
    pub(super) async fn sweep(self: Arc<Self>, idle: Duration, cancel: CancelToken) -> SweepReport {
        let mut report = SweepReport::default();
        let now = Instant::now();
        for session in self.lanes.sessions() {
            let idle = self.lanes.current(&session).is_some_and(|handle| {
                handle.is_live()
                    && !handle.is_busy()
                    && now.saturating_duration_since(handle.used()) >= idle
            });
            if !idle {
                continue;
            }
            if report.failed > 0 || cancel.is_cancelled() {
                // Each that is stuck can cost seconds.
                report.skipped += 1;
                continue;
            }
            let end = Arc::clone(&self).end(session, Ending::Release, cancel.clone());
            match end.await {
                Ok(()) => report.released += 1,
                Err(error) if failure::is(&error, failure::BUSY) => {}
                Err(_) => report.failed += 1,
            }
        }
        if report.failed == 0 {
            report.cleanup = Arc::clone(&self).cleanup(1, cancel).await;
        }
        report
    }

    /// Gives a session up without ending its process: the next controller goes on with it.
    pub(super) async fn leave(self: Arc<Self>, session: SessionId) -> Result<(), Error> {
        let lane = self.lanes.of(&session);
        let _gate = lane.gate.lock().await;
        let Some(handle) = lane.current() else {
            return Ok(());
        };
        if let Some((peer, dialogue)) = handle.talk() {
            peer.mute();
            let saved = dialogue.save().await;
            peer.stop();
            lane.slots().drop_handle(&handle);
            return saved;
        }
        Ok(())
    }

    /// Takes back what a call opened whose caller went away before it heard of it.
    pub(super) async fn take_back(self: Arc<Self>, session: SessionId, handle: Arc<Handle>) {
        let lane = self.lanes.of(&session);
        let _gate = lane.gate.lock().await;
        if lane.slots().is_current(&handle) {
            // Where that fails it is owned, and the next call tries again.
            let _closed =
                close_current(&lane, &handle, &Verdict::Cancelled, "nobody waited for it").await;
        }
    }

    /// Closes a process that is of no use any more, if it still serves its session.
    pub(super) async fn discard(
        self: Arc<Self>,
        session: SessionId,
        handle: Arc<Handle>,
        why: &'static str,
    ) {
        let lane = self.lanes.of(&session);
        let _gate = lane.gate.lock().await;
        if lane.slots().is_current(&handle) {
            let _closed = close_current(&lane, &handle, &Verdict::Cancelled, why).await;
        }
    }
}

/// Returns a handle that is stuck: the current one first, then the oldest retired one.
fn stuck(lane: &Lane) -> Option<Arc<Handle>> {
    let slots = lane.slots();
    let current = slots
        .current
        .iter()
        .filter(|handle| handle.is_release_failed());
    current
        .chain(&slots.retired)
        .find(|handle| !handle.is_releasing())
        .cloned()
}

fn end_requests(handle: &Handle, verdict: &Verdict) {
    if let Some((peer, dialogue)) = handle.talk() {
        dialogue.reject_all(peer, verdict);
    }
}

async fn close_current(
    lane: &Lane,
    handle: &Arc<Handle>,
    verdict: &Verdict,
    why: &str,
) -> Result<(), Error> {
    end_talk(handle, verdict, why);
    handle.close().await?;
    lane.slots().drop_handle(handle);
    if let Some((_, dialogue)) = handle.talk() {
        dialogue.book.drop_live(dialogue.number);
        dialogue.tell(None, EventKind::Closed);
    }
    handle.save().await;
    Ok(())
}
