//! What the control connections of one supervisor share: its processes, its lease, who may write, and how it ends.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use groundcrew_core::{env::Environment, id::ProcessId, instance::McpServer};
use tokio::sync::{Notify, oneshot};

use super::lease::LeaseClock;
use crate::{processes::Processes, start::StartFile};

/// The shared state of a supervisor; all on one thread.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) start: StartFile,
    pub(super) processes: Processes,
    pub(super) lease: Rc<LeaseClock>,
    pub(super) mcp_servers: RefCell<Vec<McpServer>>,
    pub(super) ended: Notify,
    /// Counts pieces that readers took, so that the last ones can be told from those who read no more.
    pub(super) progress: Cell<u64>,
    base: Environment,
    writers: RefCell<BTreeMap<ProcessId, oneshot::Sender<()>>>,
}

impl Control {
    /// `base` holds the weakest variables.
    pub(super) fn new(start: StartFile, processes: Processes, base: Environment) -> Self {
        processes.set_environment(base.clone());
        Self {
            base,
            lease: Rc::new(LeaseClock::start(start.lease)),
            start,
            processes,
            mcp_servers: RefCell::default(),
            ended: Notify::new(),
            progress: Cell::new(0),
            writers: RefCell::default(),
        }
    }

    /// Makes the caller the one writer of a process, until what it gets back is resolved.
    pub(super) fn take_over(&self, id: &ProcessId) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        // Dropping the earlier sender tells the earlier writer.
        drop(self.writers.borrow_mut().insert(id.clone(), sender));
        receiver
    }

    /// Takes the run's variables, in place of earlier ones.
    pub(super) fn set_environment(&self, environment: &Environment) {
        self.processes
            .set_environment(self.base.overlaid(environment));
    }

    /// Forgets the run's variables.
    pub(super) fn wipe(&self) {
        self.processes.set_environment(Environment::new());
    }

    pub(super) fn moved(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }
}
