//! All processes of a test, and the threads that outlive them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use groundcrew_core::id::ProcessId;
use groundcrew_session::launch::LaunchDescription;

use crate::{
    process::{CloseResult, FakeProcess},
    script::Script,
};

#[derive(Debug, Default)]
pub(crate) struct World {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) launches: Vec<LaunchDescription>,
    pub(crate) processes: Vec<Arc<FakeProcess>>,
    /// How many starts fail from now on.
    pub(crate) fail_starts: u32,
    /// What the next processes do, in order; then they do as Codex does.
    pub(crate) scripts: VecDeque<Script>,
    /// Whether a thread has one writer only.
    pub(crate) writer_lock: bool,
    threads: HashMap<String, Thread>,
    turns: u64,
    /// Holds starts until it is told.
    pub(crate) hold_starts: Option<tokio::sync::watch::Receiver<bool>>,
    /// How long each thing between us and a process takes.
    pub(crate) pace: Option<std::time::Duration>,
    pub(crate) names_ended: Vec<ProcessId>,
}

#[derive(Debug, Default)]
struct Thread {
    written: bool,
    writers: Vec<usize>,
}

impl World {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) async fn pause(&self) {
        let pace = self.state().pace;
        if let Some(pace) = pace {
            tokio::time::sleep(pace).await;
        }
    }

    pub(crate) fn process(&self, index: usize) -> Arc<FakeProcess> {
        Arc::clone(&self.state().processes[index])
    }

    pub(crate) fn named(&self, id: &ProcessId) -> Option<Arc<FakeProcess>> {
        self.state()
            .processes
            .iter()
            .find(|process| process.id == *id)
            .cloned()
    }

    pub(crate) fn last(&self) -> Arc<FakeProcess> {
        Arc::clone(self.state().processes.last().unwrap())
    }

    /// Returns how many starts succeeded.
    pub(crate) fn spawned(&self) -> usize {
        self.state().processes.len()
    }

    /// Returns the processes whose close never succeeded.
    pub(crate) fn live(&self) -> Vec<usize> {
        let processes = self.state().processes.clone();
        let live = processes.iter().filter(|process| !process.state().closed);
        live.map(|process| process.index).collect()
    }

    pub(crate) fn next(&self, script: Script) {
        self.state().scripts.push_back(script);
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

    /// Makes every process close from now on as it should.
    pub(crate) fn heal(&self) {
        for process in self.state().processes.clone() {
            let mut state = process.state();
            state.close_results.clear();
            state.close_always = None;
        }
    }

    pub(crate) fn fail_next_closes(&self, index: usize, count: usize) {
        let process = self.process(index);
        process.state().close_results = vec![CloseResult::Fails; count].into();
    }
}
