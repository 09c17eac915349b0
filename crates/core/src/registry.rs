//! The executors of a program by name, each with the preparers that ready its workspaces.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    error::{Error, ErrorKind},
    executor::Executor,
    id::{ExecutorName, PreparerName},
    preparer::Preparer,
};

/// An executor under the name that requests use.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The name.
    pub name: ExecutorName,
    /// The executor; several registrations may share it.
    pub executor: Arc<dyn Executor>,
    /// The preparers, in the order in which they act.
    pub preparers: Vec<Arc<dyn Preparer>>,
}

impl Registration {
    /// Registers an executor under its own name.
    pub fn new(executor: Arc<dyn Executor>, preparers: Vec<Arc<dyn Preparer>>) -> Self {
        Self {
            name: executor.name().clone(),
            executor,
            preparers,
        }
    }
}

/// Everything that can be launched on; filled at run time, never replaced by something else at launch.
#[derive(Clone, Debug, Default)]
pub struct Registry(BTreeMap<ExecutorName, Registration>);

impl Registry {
    /// Returns an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an executor.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when the name is taken.
    pub fn register(&mut self, registration: Registration) -> Result<(), Error> {
        if self.0.contains_key(&registration.name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "an executor of that name is registered",
            )
            .with("executor", &registration.name));
        }
        self.0.insert(registration.name.clone(), registration);
        Ok(())
    }

    /// Returns the executor of that name; never another one instead.
    ///
    /// # Errors
    ///
    /// `NotFound`, with the known names in the context.
    pub fn get(&self, name: &ExecutorName) -> Result<&Registration, Error> {
        self.0.get(name).ok_or_else(|| {
            let known: Vec<_> = self.0.keys().map(ExecutorName::as_str).collect();
            Error::new(
                ErrorKind::NotFound,
                "no such executor; use one of the known ones",
            )
            .with("executor", name)
            .with("known", known.join(", "))
        })
    }

    /// Returns the preparer of that name.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn preparer(&self, name: &PreparerName) -> Result<&Arc<dyn Preparer>, Error> {
        self.preparers()
            .find(|preparer| preparer.name() == name)
            .ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "no such preparer in this program")
                    .with("preparer", name)
            })
    }

    /// Returns all registrations in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Registration> {
        self.0.values()
    }

    fn preparers(&self) -> impl Iterator<Item = &Arc<dyn Preparer>> {
        self.0
            .values()
            .flat_map(|registration| &registration.preparers)
    }

    /// Returns every preparer once.
    pub fn distinct_preparers(&self) -> Vec<&Arc<dyn Preparer>> {
        let mut seen = BTreeMap::new();
        for preparer in self.preparers() {
            seen.entry(preparer.name().clone()).or_insert(preparer);
        }
        seen.into_values().collect()
    }

    /// Returns every executor once, with one of the names it is registered under.
    pub fn distinct_executors(&self) -> Vec<&Registration> {
        let mut seen = BTreeMap::new();
        for registration in self.0.values() {
            seen.entry(registration.executor.name().clone())
                .or_insert(registration);
        }
        seen.into_values().collect()
    }
}
