//! All processes of a test.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use groundcrew_core::id::ProcessId;
use groundcrew_session::launch::LaunchDescription;

use crate::{
    ground::Ground,
    process::FakeProcess,
    script::{CloseResult, Script},
};

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) ground: Arc<Ground>,
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
    /// Holds starts until it is told.
    pub(crate) hold_starts: Option<tokio::sync::watch::Receiver<bool>>,
    /// How many processes there were at most that nobody had closed.
    pub(crate) most_live: usize,
    pub(crate) names_ended: Vec<ProcessId>,
}

impl World {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
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
