//! Several stores, asked in order: "not mine" moves on, a failure stops.

use std::sync::Arc;

use async_trait::async_trait;
use groundcrew_core::{
    error::Error,
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};

/// Asks stores in order.
///
/// * The first store that knows a name answers.
/// * A store that fails ends the search: a broken store must not let a weaker one answer in its place.
#[derive(Clone, Debug, Default)]
pub struct SecretChain(Vec<Arc<dyn SecretStore>>);

impl SecretChain {
    /// Makes one of stores in the order in which they are asked; without any, no secret is known.
    pub fn new(stores: impl IntoIterator<Item = Arc<dyn SecretStore>>) -> Self {
        Self(stores.into_iter().collect())
    }
}

#[async_trait]
impl SecretStore for SecretChain {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        for store in &self.0 {
            if let Some(value) = store.reveal(name, scope).await? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}
