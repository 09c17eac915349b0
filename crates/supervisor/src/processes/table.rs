//! All processes that were ever started in an instance, by name and in their order.
//!
//! Of one of which nothing is left only that is kept which can still be asked for: an instance may have had thousands, and
//! what was handed to a process need not outlive it.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    path::Path,
    rc::Rc,
};

use groundcrew_core::{
    id::ProcessId,
    process::{
        ExitStatus, Frame, FrameKind, Offset, ProcessPhase, ProcessSpec, ProcessState, Started,
        StdioKind,
    },
};

use super::process::Process;

/// A process that was started.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// Something of it may still be there.
    Present(Rc<Process>),
    /// It is gone, and so is all that it started.
    Past(Rc<Past>),
}

/// What is kept of a process that is gone.
#[derive(Debug)]
pub(super) struct Past {
    id: Rc<ProcessId>,
    main: bool,
    program: Rc<Path>,
    pid: u32,
    /// How it ended.
    pub(super) status: ExitStatus,
    /// When, in milliseconds since 1970.
    at_ms: u64,
    log_start: Offset,
    log_end: Offset,
    /// Whether it had a terminal.
    pub(super) terminal: bool,
    /// What it was started by, as a number that no other spec has.
    spec: u64,
}

impl Past {
    fn started(&self) -> Started {
        Started {
            program: self.program.to_path_buf(),
            pid: self.pid,
        }
    }

    /// Returns the last frame of its output.
    pub(super) fn exit(&self) -> Frame {
        Frame {
            offset: self.log_end,
            at_ms: self.at_ms,
            kind: FrameKind::Exit(self.status),
        }
    }
}

/// All processes that were ever started.
#[derive(Debug, Default)]
pub(super) struct Table {
    order: Vec<Known>,
    places: HashMap<Rc<ProcessId>, usize>,
    /// What was run by processes of the past; most run the same.
    programs: HashSet<Rc<Path>>,
    /// Makes numbers of specs; its keys are this table's own, so that nobody can make two specs that have one number.
    numbers: RandomState,
}

impl Table {
    /// Returns the process of that name.
    pub(super) fn find(&self, id: &ProcessId) -> Option<Known> {
        self.order.get(*self.places.get(id)?).cloned()
    }

    /// Returns how many there were.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns those of which something may still be there.
    pub(super) fn present(&self) -> Vec<Rc<Process>> {
        let present = self.order.iter().filter_map(|known| match known {
            Known::Present(process) => Some(Rc::clone(process)),
            Known::Past(_) => None,
        });
        present.collect()
    }

    /// Tells of all of them, in the order of their start.
    pub(super) fn states(&self) -> Vec<ProcessState> {
        let state = |known: &Known| match known {
            Known::Present(process) => process.state(),
            Known::Past(past) => ProcessState {
                id: (*past.id).clone(),
                main: past.main,
                phase: ProcessPhase::Ended(past.status),
                log_start: past.log_start,
                log_end: past.log_end,
            },
        };
        self.order.iter().map(state).collect()
    }

    /// Returns what was started, if it was started by that very spec.
    pub(super) fn started_by(&self, known: &Known, spec: &ProcessSpec) -> Option<Started> {
        match known {
            Known::Present(process) => (process.spec == *spec).then(|| process.started.clone()),
            Known::Past(past) => (Some(past.spec) == self.number(spec)).then(|| past.started()),
        }
    }

    /// Adds one whose name is new.
    pub(super) fn add(&mut self, process: &Rc<Process>) {
        let id = Rc::new(process.id.clone());
        self.places.insert(id, self.order.len());
        self.order.push(Known::Present(Rc::clone(process)));
    }

    /// Keeps only what can still be asked for of a process of which nothing is left.
    pub(super) fn retire(&mut self, process: &Process) {
        let Some((id, place)) = self.places.get_key_value(&process.id) else {
            return;
        };
        let (id, place) = (Rc::clone(id), *place);
        let Some(spec) = self.number(&process.spec) else {
            return;
        };
        let state = process.state();
        let Some((at_ms, status)) = process.ended() else {
            return;
        };
        let program = self.program(&process.started.program);
        self.order[place] = Known::Past(Rc::new(Past {
            id,
            main: state.main,
            program,
            pid: process.started.pid,
            status,
            at_ms,
            log_start: state.log_start,
            log_end: state.log_end,
            terminal: matches!(process.spec.stdio, StdioKind::Terminal(_)),
            spec,
        }));
    }

    fn program(&mut self, path: &Path) -> Rc<Path> {
        if let Some(known) = self.programs.get(path) {
            return Rc::clone(known);
        }
        let program: Rc<Path> = path.into();
        self.programs.insert(Rc::clone(&program));
        program
    }

    fn number(&self, spec: &ProcessSpec) -> Option<u64> {
        let text = serde_json::to_vec(spec).ok()?;
        Some(self.numbers.hash_one(text))
    }
}
