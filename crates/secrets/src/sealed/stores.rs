//! The encrypted file behind the two contracts of the core.

use std::collections::BTreeSet;

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::AttemptId,
    secret::{RuntimeSecrets, SecretId, SecretRef, SecretScope, SecretStore, SecretValue},
    undo::Undone,
};

use super::SealedSecrets;
use crate::runtime;

#[async_trait]
impl SecretStore for SealedSecrets {
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
        self.off_thread(move |inner| inner.reveal(&id)).await
    }
}

#[async_trait]
impl RuntimeSecrets for SealedSecrets {
    async fn keep(
        &self,
        attempt: AttemptId,
        secrets: &[(String, SecretValue)],
    ) -> Result<Vec<SecretRef>, Error> {
        let names = runtime::names(attempt, secrets)?;
        if names.is_empty() {
            return Ok(names);
        }
        let values = secrets.iter().map(|(_, value)| value.clone());
        let ids = names.iter().map(|name| SecretId::from(name.clone()));
        let kept: Vec<_> = ids.zip(values).collect();
        self.off_thread(move |inner| inner.keep(&kept)).await?;
        Ok(names)
    }

    async fn reveal(&self, name: &SecretRef) -> Result<Option<SecretValue>, Error> {
        if !name.is_runtime() {
            return Ok(None);
        }
        let id = SecretId::from(name.clone());
        self.off_thread(move |inner| inner.reveal(&id)).await
    }

    async fn forget(&self, attempt: AttemptId) -> Result<Undone, Error> {
        self.off_thread(move |inner| inner.forget(attempt)).await
    }

    async fn attempts(&self) -> Result<Vec<AttemptId>, Error> {
        self.off_thread(|inner| {
            let Some(contents) = inner.read()? else {
                return Ok(Vec::new());
            };
            let ours = contents.records.keys().filter(|id| id.name.is_runtime());
            let attempts = ours.map(|id| {
                runtime::attempt_of(&id.name).ok_or_else(|| {
                    Error::new(ErrorKind::Corrupt, "a runtime secret is of no attempt")
                        .with("secret", id)
                })
            });
            let attempts = attempts.collect::<Result<BTreeSet<_>, Error>>()?;
            Ok(attempts.into_iter().collect())
        })
        .await
    }
}
