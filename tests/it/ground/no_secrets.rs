//! A store of secrets that has none, for launchers that a test puts together.

use groundcrew_core::{
    error::Error,
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};

/// Knows nothing.
#[derive(Debug)]
pub(crate) struct NoSecrets;

#[groundcrew_core::async_trait]
impl SecretStore for NoSecrets {
    async fn reveal(&self, _: &SecretRef, _: &SecretScope) -> Result<Option<SecretValue>, Error> {
        Ok(None)
    }
}
