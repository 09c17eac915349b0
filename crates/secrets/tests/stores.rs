//! What a store answers, and to whom.
#![expect(
    clippy::unwrap_used,
    reason = "in a test a failed unwrap is a failed test"
)]

use std::sync::Arc;

use groundcrew_core::{
    async_trait,
    error::{Error, ErrorKind},
    id::TenantId,
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};
use groundcrew_secrets::{MemorySecrets, SecretChain};

#[derive(Debug)]
struct Broken;

#[async_trait]
impl SecretStore for Broken {
    async fn reveal(&self, _: &SecretRef, _: &SecretScope) -> Result<Option<SecretValue>, Error> {
        Err(Error::new(ErrorKind::Corrupt, "the store is damaged"))
    }
}

fn store(name: &SecretRef, scope: &SecretScope, value: &str) -> Arc<dyn SecretStore> {
    let store = MemorySecrets::new();
    store.set(name.clone(), scope, SecretValue::new(value));
    Arc::new(store)
}

async fn shown(store: &dyn SecretStore, name: &SecretRef, scope: &SecretScope) -> Option<Vec<u8>> {
    store
        .reveal(name, scope)
        .await
        .unwrap()
        .map(|value| value.expose().to_vec())
}

#[tokio::test]
async fn a_tenant_sees_only_its_own_secrets() {
    let (name, own) = (
        SecretRef::new("api/key").unwrap(),
        SecretScope {
            tenant: Some(TenantId::new("a").unwrap()),
        },
    );
    let store = store(&name, &own, "v");
    assert_eq!(
        shown(&*store, &name, &own).await.as_deref(),
        Some(&b"v"[..])
    );
    assert_eq!(shown(&*store, &name, &SecretScope::default()).await, None);
    let other = SecretScope {
        tenant: Some(TenantId::new("b").unwrap()),
    };
    assert_eq!(shown(&*store, &name, &other).await, None);
}

#[tokio::test]
async fn f147_a_broken_store_ends_the_search() {
    let (name, scope) = (SecretRef::new("k").unwrap(), SecretScope::default());
    let chain = SecretChain::new([
        Arc::new(Broken) as Arc<dyn SecretStore>,
        store(&name, &scope, "weaker"),
    ]);
    assert_eq!(
        chain.reveal(&name, &scope).await.unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    let chain = SecretChain::new([
        Arc::new(MemorySecrets::new()) as Arc<dyn SecretStore>,
        store(&name, &scope, "second"),
    ]);
    assert_eq!(
        shown(&chain, &name, &scope).await.as_deref(),
        Some(&b"second"[..])
    );
}
