//! Secrets that executors return, in a memory world.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::Error,
    id::AttemptId,
    secret::{RUNTIME_PREFIX, RuntimeSecrets, SecretRef, SecretValue},
    undo::Undone,
};

type Kept = BTreeMap<AttemptId, BTreeMap<SecretRef, SecretValue>>;

/// Keeps runtime secrets in memory; clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct MemoryRuntimeSecrets(Arc<Mutex<Kept>>);

impl MemoryRuntimeSecrets {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of everything that is kept.
    pub fn names(&self) -> Vec<SecretRef> {
        let kept = self.kept();
        kept.values().flat_map(BTreeMap::keys).cloned().collect()
    }
}

#[async_trait]
impl RuntimeSecrets for MemoryRuntimeSecrets {
    async fn keep(
        &self,
        attempt: AttemptId,
        secrets: &[(String, SecretValue)],
    ) -> Result<Vec<SecretRef>, Error> {
        let named = secrets
            .iter()
            .map(|(name, value)| {
                let name = SecretRef::new(format!("{RUNTIME_PREFIX}/{attempt}/{name}"))?;
                Ok((name, value.clone()))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let list = named.iter().map(|(name, _)| name.clone()).collect();
        self.kept().entry(attempt).or_default().extend(named);
        Ok(list)
    }

    async fn reveal(&self, name: &SecretRef) -> Result<Option<SecretValue>, Error> {
        Ok(self
            .kept()
            .values()
            .find_map(|secrets| secrets.get(name).cloned()))
    }

    async fn forget(&self, attempt: AttemptId) -> Result<Undone, Error> {
        Ok(match self.kept().remove(&attempt) {
            Some(_) => Undone::REMOVED,
            None => Undone::AlreadyGone,
        })
    }

    async fn attempts(&self) -> Result<Vec<AttemptId>, Error> {
        Ok(self.kept().keys().copied().collect())
    }
}
