//! A handle: who owns one process of a session until it was surely closed, and what was made for it was taken back.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use groundcrew_core::{error::Error, id::ProcessId};
use tokio::time::Instant;

use super::tasks::guarded;
use crate::{
    book::Book,
    dialogue::Dialogue,
    failure,
    launch::LaunchCleanup,
    rpc::Peer,
    transport::{Connection, Transport},
};

/// How a process is reached.
#[derive(Debug)]
pub(super) enum Way {
    /// It is spoken with.
    Connected {
        connection: Arc<dyn Connection>,
        peer: Peer,
        dialogue: Arc<Dialogue>,
    },
    /// It is known by name only: another controller started it, or nobody knows whether it was started.
    Named(Arc<dyn Transport>),
    /// There is none any more; what was made for it is still there.
    Gone,
}

/// Owns one process.
#[derive(Debug)]
pub(super) struct Handle {
    process: ProcessId,
    book: Arc<Book>,
    way: Way,
    physical: tokio::sync::Mutex<Physical>,
    releasing: AtomicBool,
    release_failed: AtomicBool,
    used: Mutex<Instant>,
}

#[derive(Debug)]
struct Physical {
    gone: bool,
    cleanup: Option<Arc<dyn LaunchCleanup>>,
}

impl Handle {
    pub(super) fn new(
        process: ProcessId,
        book: Arc<Book>,
        way: Way,
        cleanup: Option<Arc<dyn LaunchCleanup>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            process,
            book,
            physical: tokio::sync::Mutex::new(Physical {
                gone: matches!(way, Way::Gone),
                cleanup,
            }),
            way,
            releasing: AtomicBool::new(false),
            release_failed: AtomicBool::new(false),
            used: Mutex::new(Instant::now()),
        })
    }

    /// Returns the dialogue and the peer of a process that is spoken with.
    pub(super) fn talk(&self) -> Option<(&Peer, &Arc<Dialogue>)> {
        match &self.way {
            Way::Connected { peer, dialogue, .. } => Some((peer, dialogue)),
            Way::Named(_) | Way::Gone => None,
        }
    }

    /// Returns whether turns can be begun with it.
    pub(super) fn is_live(&self) -> bool {
        !self.is_releasing()
            && !self.is_release_failed()
            && !self.book.is_superseded()
            && self.talk().is_some_and(|(peer, dialogue)| {
                peer.ended().is_none() && dialogue.conversation().is_some()
            })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_live() && self.talk().is_some_and(|(_, dialogue)| dialogue.is_busy())
    }

    pub(super) fn is_releasing(&self) -> bool {
        self.releasing.load(Ordering::Acquire)
    }

    pub(super) fn is_release_failed(&self) -> bool {
        self.release_failed.load(Ordering::Acquire)
    }

    /// Returns whether another controller goes on with its session.
    pub(super) fn is_superseded(&self) -> bool {
        self.book.is_superseded()
    }

    /// Stores what changed; what could not be stored is so with the next call.
    pub(super) async fn save(&self) {
        let _stored = self.book.save().await;
    }

    /// Notes that somebody works with it.
    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns since when nobody worked with it, and it worked for nobody.
    pub(super) fn used(&self) -> Instant {
        let called = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = self.talk().and_then(|(_, dialogue)| dialogue.rested());
        rested.map_or(called, |rested| rested.max(called))
    }

    /// Lets nobody begin anything with it any more, because it is about to be closed.
    ///
    /// # Errors
    ///
    /// With the code `agent.busy` while it works; all is as before then.
    pub(super) fn retire(&self) -> Result<(), Error> {
        match self.talk() {
            Some((_, dialogue)) if self.is_live() && !dialogue.retire() => Err(failure::busy()),
            _ => Ok(()),
        }
    }

    /// Gives up a process that another handle owns from now on; returns what is still to be taken back with it.
    ///
    /// # Cancel safety
    ///
    /// May be dropped until it returns; it is its owner then as before.
    pub(super) async fn give_up(&self) -> Option<Arc<dyn LaunchCleanup>> {
        let mut physical = self.physical.lock().await;
        physical.gone = true;
        if let Some((peer, _)) = self.talk() {
            peer.mute();
            peer.stop();
        }
        physical.cleanup.take()
    }

    /// Returns the process.
    pub(super) fn process(&self) -> &ProcessId {
        &self.process
    }

    /// Closes the process, and takes back what was made for it.
    ///
    /// * While it goes on nothing of the process is heard.
    /// * After success it does nothing; after an error it is really tried again.
    ///
    /// # Errors
    ///
    /// Those of the connection and of the cleanup; the handle is still owned then.
    ///
    /// # Cancel safety
    ///
    /// None; lifecycle calls run in tasks of their own.
    pub(super) async fn close(&self) -> Result<(), Error> {
        self.releasing.store(true, Ordering::Release);
        if let Some((peer, _)) = self.talk() {
            peer.mute();
        }
        let closed = self.close_physically().await;
        self.release_failed
            .store(closed.is_err(), Ordering::Release);
        self.releasing.store(closed.is_ok(), Ordering::Release);
        closed
    }

    async fn close_physically(&self) -> Result<(), Error> {
        let mut physical = self.physical.lock().await;
        if !physical.gone {
            let closed = match &self.way {
                Way::Connected { connection, .. } => connection.close().await,
                Way::Named(transport) => transport.end(&self.process).await,
                Way::Gone => Ok(()),
            };
            match closed {
                Err(error) if !failure::is_gone(&error) => return Err(error),
                _ => physical.gone = true,
            }
            self.book.disown(&self.process);
        }
        if let Some((peer, _)) = self.talk() {
            peer.stop();
        }
        if let Some(cleanup) = physical.cleanup.clone() {
            clean(cleanup).await?;
            physical.cleanup = None;
        }
        Ok(())
    }
}

/// Takes back what a launch hook made; a panic is an error, and it is tried again as after any other.
pub(super) async fn clean(cleanup: Arc<dyn LaunchCleanup>) -> Result<(), Error> {
    guarded(
        "the cleanup of a launch",
        async move { cleanup.clean().await },
    )
    .await?
}
