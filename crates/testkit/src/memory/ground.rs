//! What lies around in a memory world: things with marks, and the list of verbs that were called.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::AttemptId,
    identity::Identity,
};

/// Something that a preparer made, such as a directory or a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thing {
    /// The attempt whose mark it carries; none is somebody else's.
    pub attempt: Option<AttemptId>,
    /// Which one it is.
    pub identity: Identity,
    /// The workspace that it is, or belongs to.
    pub workspace: PathBuf,
    /// What was written into it since it was made; only a workspace's tree is written into.
    pub written: Vec<String>,
}

/// The shared ground of executors, instances and preparers.
#[derive(Clone, Debug, Default)]
pub(super) struct Ground(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    things: BTreeMap<String, Thing>,
    calls: Vec<String>,
    unknown: Option<String>,
    identities: u64,
}

impl Ground {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a verb was called.
    pub(super) fn call(&self, call: String) {
        self.state().calls.push(call);
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    pub(super) fn set_unknown(&self, reason: Option<String>) {
        self.state().unknown = reason;
    }

    /// Returns why nothing can be told now, if so.
    pub(super) fn unknown(&self) -> Option<String> {
        self.state().unknown.clone()
    }

    /// Fails while nothing can be told.
    pub(super) fn known(&self) -> Result<(), Error> {
        match self.unknown() {
            Some(reason) => Err(Error::new(ErrorKind::Unavailable, reason)),
            None => Ok(()),
        }
    }

    /// Makes an identity that nothing had before.
    pub(super) fn identity(&self) -> Identity {
        let mut state = self.state();
        state.identities += 1;
        Identity(format!("memory:{}", state.identities))
    }

    pub(super) fn things(&self) -> BTreeMap<String, Thing> {
        self.state().things.clone()
    }

    pub(super) fn thing(&self, name: &str) -> Option<Thing> {
        self.state().things.get(name).cloned()
    }

    /// Places a thing where none is.
    pub(super) fn place(&self, name: &str, thing: Thing) -> Result<(), Error> {
        let mut state = self.state();
        if state.things.contains_key(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, "the thing exists").with("name", name));
        }
        state.things.insert(name.to_owned(), thing);
        Ok(())
    }

    pub(super) fn take(&self, name: &str) -> Option<Thing> {
        self.state().things.remove(name)
    }

    /// Writes into the tree that is the workspace of a directory; returns whether there is one.
    pub(super) fn write(&self, directory: &Path, item: &str) -> bool {
        let mut state = self.state();
        let tree = state
            .things
            .iter_mut()
            .filter(|(name, _)| name.ends_with("/tree"))
            .map(|(_, thing)| thing)
            .find(|thing| directory.starts_with(&thing.workspace));
        match tree {
            Some(thing) => {
                thing.written.push(item.to_owned());
                true
            }
            None => false,
        }
    }
}
