//! What the scripted agent does at each call.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use serde_json::Value;

/// What a try to close a process comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseResult {
    Fails,
    NotFound,
}

/// What it does at one.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// It says nothing; the test answers, or nobody does.
    Hold,
    /// It refuses.
    Refuse(i64, &'static str),
    /// It says this first, and answers after a while.
    After(Vec<Said>, Duration),
    /// It says this and answers at once, in one piece.
    With(Vec<Said>),
    /// It says this and never answers.
    Instead(Vec<Said>),
    /// It ends with that code, with words on standard error.
    Exit(i32, &'static str),
}

/// Something it says unasked.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Note(&'static str, Value),
    Stderr(&'static str),
}

/// What the next process does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) behaviours: HashMap<String, Behaviour>,
    pub(crate) close_results: VecDeque<CloseResult>,
    pub(crate) close_always: Option<CloseResult>,
    /// Whether it tells of a thread that it started behind its answer.
    pub(crate) silent_threads: bool,
    /// Whether it wants a login.
    pub(crate) wants_login: bool,
}

impl Script {
    pub(crate) fn on(mut self, method: &str, behaviour: Behaviour) -> Self {
        self.set(method, behaviour);
        self
    }

    pub(crate) fn set(&mut self, method: &str, behaviour: Behaviour) {
        self.behaviours.insert(method.to_owned(), behaviour);
    }

    pub(crate) fn take(&self, method: &str) -> Option<Behaviour> {
        self.behaviours.get(method).cloned()
    }

    pub(crate) fn closes(mut self, results: impl IntoIterator<Item = CloseResult>) -> Self {
        self.close_results = results.into_iter().collect();
        self
    }
}
