//! Secrets in memory: values that the program hands in; nothing is written anywhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::Error,
    id::AttemptId,
    secret::{RuntimeSecrets, SecretId, SecretRef, SecretScope, SecretStore, SecretValue},
    undo::Undone,
};

use crate::{runtime, value};

/// Holds secrets in memory, each for one tenant or for the installation, and the runtime secrets of attempts.
#[derive(Debug, Default)]
pub struct MemorySecrets(Mutex<BTreeMap<SecretId, SecretValue>>);

impl MemorySecrets {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a value; an earlier one of that name and scope is wiped.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the value is empty or the name is one of runtime secrets, `TooLarge` when the value is.
    pub fn set(
        &self,
        name: SecretRef,
        scope: &SecretScope,
        value: SecretValue,
    ) -> Result<(), Error> {
        runtime::refuse(&name)?;
        value::check(&value).map_err(|error| error.with("secret", &name))?;
        let scope = scope.clone();
        self.values().insert(SecretId { name, scope }, value);
        Ok(())
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<SecretId, SecretValue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl SecretStore for MemorySecrets {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        if name.is_runtime() {
            return Ok(None);
        }
        let id = SecretId {
            name: name.clone(),
            scope: scope.clone(),
        };
        Ok(self.values().get(&id).cloned())
    }
}

#[async_trait]
impl RuntimeSecrets for MemorySecrets {
    async fn keep(
        &self,
        attempt: AttemptId,
        secrets: &[(String, SecretValue)],
    ) -> Result<Vec<SecretRef>, Error> {
        let names = runtime::names(attempt, secrets)?;
        let kept = names.iter().zip(secrets);
        self.values()
            .extend(kept.map(|(name, (_, value))| (name.clone().into(), value.clone())));
        Ok(names)
    }

    async fn reveal(&self, name: &SecretRef) -> Result<Option<SecretValue>, Error> {
        if !name.is_runtime() {
            return Ok(None);
        }
        Ok(self.values().get(&name.clone().into()).cloned())
    }

    async fn forget(&self, attempt: AttemptId) -> Result<Undone, Error> {
        let mut values = self.values();
        let before = values.len();
        values.retain(|id, _| runtime::attempt_of(&id.name) != Some(attempt));
        Ok(if values.len() < before {
            Undone::REMOVED
        } else {
            Undone::AlreadyGone
        })
    }

    async fn attempts(&self) -> Result<Vec<AttemptId>, Error> {
        let attempts: BTreeSet<_> = self
            .values()
            .keys()
            .filter_map(|id| runtime::attempt_of(&id.name))
            .collect();
        Ok(attempts.into_iter().collect())
    }
}
