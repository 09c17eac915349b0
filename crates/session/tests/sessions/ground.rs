//! What all processes stand on: the threads that outlive them, and how long things take.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

#[derive(Debug, Default)]
pub(crate) struct Ground {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Whether a thread has one writer only.
    pub(crate) writer_lock: bool,
    /// How long each thing between us and a process takes.
    pub(crate) pace: Option<Duration>,
    threads: HashMap<String, Thread>,
    turns: u64,
}

#[derive(Debug, Default)]
struct Thread {
    written: bool,
    writers: Vec<usize>,
}

impl Ground {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) async fn pause(&self) {
        let pace = self.state().pace;
        if let Some(pace) = pace {
            tokio::time::sleep(pace).await;
        }
    }

    pub(crate) fn let_go(&self, index: usize) {
        for thread in self.state().threads.values_mut() {
            thread.writers.retain(|writer| *writer != index);
        }
    }

    pub(crate) fn new_thread(&self, writer: usize) -> String {
        let mut state = self.state();
        let id = format!("codex-thread-{}", state.threads.len() + 1);
        let thread = Thread {
            written: false,
            writers: vec![writer],
        };
        state.threads.insert(id.clone(), thread);
        id
    }

    pub(crate) fn write_down(&self, id: &str) {
        if let Some(thread) = self.state().threads.get_mut(id) {
            thread.written = true;
        }
    }

    pub(crate) fn is_written(&self, id: &str) -> bool {
        self.state()
            .threads
            .get(id)
            .is_some_and(|thread| thread.written)
    }

    pub(crate) fn resume_thread(&self, id: &str, writer: usize) -> Result<(), String> {
        let mut state = self.state();
        let lock = state.writer_lock;
        match state.threads.get_mut(id) {
            Some(thread) if !thread.written => Err(format!("no rollout found for thread id {id}")),
            None => Err(format!("no rollout found for thread id {id}")),
            Some(thread) if lock && !thread.writers.is_empty() => {
                Err(format!("thread {id} already has an active writer"))
            }
            Some(thread) => {
                thread.writers.push(writer);
                Ok(())
            }
        }
    }

    pub(crate) fn new_turn(&self) -> String {
        let mut state = self.state();
        state.turns += 1;
        format!("turn-{}", state.turns)
    }
}
