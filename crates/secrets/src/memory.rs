//! Secrets in memory: values that the program hands in; nothing is written anywhere.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::Error,
    id::TenantId,
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};

type Key = (Option<TenantId>, SecretRef);

/// Holds secrets in memory, each for one tenant or for the installation.
#[derive(Debug, Default)]
pub struct MemorySecrets(Mutex<BTreeMap<Key, SecretValue>>);

impl MemorySecrets {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a value; an earlier one of that name and scope is wiped.
    pub fn set(&self, name: SecretRef, scope: &SecretScope, value: SecretValue) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((scope.tenant.clone(), name), value);
    }
}

#[async_trait]
impl SecretStore for MemorySecrets {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(values.get(&(scope.tenant.clone(), name.clone())).cloned())
    }
}
