//! A bound on any store: one that hangs, panics, or answers with no value at all or a huge one is an error.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};

use crate::value;

/// Asks a store, and gives up after a while.
///
/// * Needs a runtime with time. A store that blocks its thread instead of waiting cannot be called off.
/// * Giving up drops the store's future, which loses and changes nothing.
/// * An empty answer is `Protocol`, one longer than [`VALUE_MAX`](crate::VALUE_MAX) is `TooLarge`, a panic is `Panicked`.
#[derive(Clone, Debug)]
pub struct SecretDeadline {
    store: Arc<dyn SecretStore>,
    limit: Duration,
}

impl SecretDeadline {
    /// Bounds every question to a store.
    pub fn new(store: Arc<dyn SecretStore>, limit: Duration) -> Self {
        Self { store, limit }
    }
}

#[async_trait]
impl SecretStore for SecretDeadline {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        let mut asking = self.store.reveal(name, scope);
        // Never what it panicked with: that may be the value.
        let guarded = poll_fn(|cx| {
            catch_unwind(AssertUnwindSafe(|| asking.as_mut().poll(cx))).unwrap_or_else(|panic| {
                drop(panic);
                Poll::Ready(Err(Error::new(
                    ErrorKind::Panicked,
                    "a secret store panicked",
                )))
            })
        });
        let found = match tokio::time::timeout(self.limit, guarded).await {
            Ok(answer) => answer?,
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    "a secret store did not answer in time",
                )
                .with("secret", name)
                .with("limit", format!("{:?}", self.limit)));
            }
        };
        match found {
            Some(found) if found.expose().is_empty() => Err(Error::new(
                ErrorKind::Protocol,
                "a secret store answered with an empty value",
            )
            .with("secret", name)),
            Some(found) => {
                value::check(&found).map_err(|error| error.with("secret", name))?;
                Ok(Some(found))
            }
            None => Ok(None),
        }
    }
}
