//! What the server and whoever started it share: questions, gates, the end.

use std::{
    collections::BTreeSet,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::watch;

use super::question::Question;

/// What the server and whoever started it share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) asked: Mutex<Vec<Question>>,
    answers: AtomicUsize,
    /// Rings when something was asked.
    pub(crate) bell: Condvar,
    pub(crate) gates: watch::Sender<BTreeSet<String>>,
    pub(crate) ended: watch::Sender<bool>,
}

impl Shared {
    /// Returns a number that no other answer has.
    pub(crate) fn number(&self) -> usize {
        self.answers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn note(&self, question: Question) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(question);
        self.bell.notify_all();
    }

    /// Waits until a gate is open.
    pub(crate) async fn gate(&self, name: &str) {
        let mut gates = self.gates.subscribe();
        // The sender lives as long as we do.
        drop(gates.wait_for(|open| open.contains(name)).await);
    }

    /// Waits for the end of the server.
    pub(crate) async fn end(&self) {
        let mut ended = self.ended.subscribe();
        drop(ended.wait_for(|ended| *ended).await);
    }
}
