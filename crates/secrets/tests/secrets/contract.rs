//! What every store answers, and to whom.

use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::{SecretId, SecretStore, SecretValue},
    undo::Undone,
};
use groundcrew_secrets::{MemorySecrets, SecretChain, Stored, VALUE_MAX};

use crate::support::{Home, ask, fails, fixed, id, name, scope, set, shown};

fn memory(text: &str, value: &str) -> MemorySecrets {
    let (store, SecretId { name, scope }) = (MemorySecrets::new(), id(text));
    store.set(name, &scope, SecretValue::new(value)).unwrap();
    store
}

#[tokio::test]
async fn k10_what_was_set_is_revealed() {
    let home = Home::new();
    let store = home.store();
    assert_eq!(
        store
            .set(&id("api/key"), SecretValue::new("v"))
            .await
            .unwrap(),
        Stored::Created
    );
    assert_eq!(shown(&store, "api/key").await, "v");
    assert_eq!(
        store
            .set(&id("api/key"), SecretValue::new("w"))
            .await
            .unwrap(),
        Stored::Replaced
    );
    // Another handle, as another process has.
    assert_eq!(shown(&home.store(), "api/key").await, "w");
    assert_eq!(shown(&memory("a", "m"), "a").await, "m");
}

#[tokio::test]
async fn k11_a_name_that_is_not_known_is_none_and_makes_nothing() {
    let home = Home::new();
    let store = home.store();
    assert_eq!(ask(&store, &id("a")).await.unwrap(), None);
    assert!(store.list(None).await.unwrap().is_empty());
    assert_eq!(store.remove(&id("a")).await.unwrap(), Undone::AlreadyGone);
    assert_eq!(
        store.rename(&id("a"), &id("b")).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(store.check().await.unwrap(), 0);
    assert!(!home.directory().exists());
    set(&store, "b", "v").await;
    let before = home.files();
    assert_eq!(ask(&store, &id("a")).await.unwrap(), None);
    assert_eq!(store.remove(&id("a")).await.unwrap(), Undone::AlreadyGone);
    assert_eq!(home.files(), before);
}

async fn tenants_are_apart(store: &dyn SecretStore) {
    assert_eq!(shown(store, "k").await, "of all");
    assert_eq!(shown(store, "k@a").await, "of a");
    for other in ["k@b", "other", "other@a", "K", "k/k"] {
        assert_eq!(ask(store, &id(other)).await.unwrap(), None, "{other}");
    }
    // Only the installation's; a tenant is never answered with it.
    assert_eq!(shown(store, "only").await, "x");
    assert_eq!(ask(store, &id("only@a")).await.unwrap(), None);
    // Only a tenant's; the installation is never answered with it.
    assert_eq!(shown(store, "own@a").await, "y");
    assert_eq!(ask(store, &id("own")).await.unwrap(), None);
}

#[tokio::test]
async fn w24_a_tenant_sees_only_its_own_secrets_and_never_those_of_all() {
    let home = Home::new();
    let (sealed, memory) = (home.store(), MemorySecrets::new());
    for (text, value) in [
        ("k", "of all"),
        ("k@a", "of a"),
        ("only", "x"),
        ("own@a", "y"),
    ] {
        set(&sealed, text, value).await;
        let SecretId { name, scope } = id(text);
        memory.set(name, &scope, SecretValue::new(value)).unwrap();
    }
    tenants_are_apart(&sealed).await;
    tenants_are_apart(&memory).await;
    tenants_are_apart(&SecretChain::new([Arc::new(sealed) as _])).await;
}

#[tokio::test]
async fn f147_a_broken_store_ends_the_search_and_one_that_does_not_know_does_not() {
    let broken = fixed(|| Err(Error::new(ErrorKind::Corrupt, "the store is damaged")));
    let weaker: Arc<dyn SecretStore> = Arc::new(memory("k", "weaker"));
    let chain = SecretChain::new([broken, Arc::clone(&weaker)]);
    assert_eq!(fails(&chain, "k").await, ErrorKind::Corrupt);
    let chain = SecretChain::new([Arc::new(MemorySecrets::new()) as _, weaker]);
    assert_eq!(shown(&chain, "k").await, "weaker");
    let none = SecretChain::new([]);
    assert_eq!(ask(&none, &id("k")).await.unwrap(), None);
}

#[tokio::test]
async fn values_are_any_bytes_of_any_length_up_to_the_cap() {
    let home = Home::new();
    let store = home.store();
    let every: Vec<u8> = (0..=255).collect();
    let sizes = [1, 2, 15, 16, 17, 63, 64, 65, 4095, 4096, 65_537, VALUE_MAX];
    let of = |size: usize| {
        every
            .iter()
            .copied()
            .cycle()
            .skip(size % 256)
            .take(size)
            .collect::<Vec<_>>()
    };
    for size in sizes {
        let id = id(&format!("s{size}"));
        store.set(&id, SecretValue::new(of(size))).await.unwrap();
    }
    for size in sizes {
        let found = store
            .reveal(&name(&format!("s{size}")), &id("x").scope)
            .await
            .unwrap()
            .unwrap();
        assert!(found.expose() == of(size), "{size}");
    }
    assert_eq!(store.check().await.unwrap(), sizes.len());
}

#[tokio::test]
async fn names_are_listed_by_scope_with_their_times_and_without_values() {
    let home = Home::new();
    let store = home.store();
    for text in ["z", "b/c", "k@t2", "k@t1", "a@t1"] {
        set(&store, text, "hunter2-value").await;
    }
    let names = |entries: &[groundcrew_secrets::SecretEntry]| {
        entries.iter().map(|e| e.id.to_string()).collect::<Vec<_>>()
    };
    let all = store.list(None).await.unwrap();
    assert_eq!(names(&all), ["b/c", "z", "a of t1", "k of t1", "k of t2"]);
    assert!(!format!("{all:?}").contains("hunter2"));
    assert_eq!(
        names(&store.list(Some(&scope("t1"))).await.unwrap()),
        ["a of t1", "k of t1"]
    );
    assert_eq!(
        names(&store.list(Some(&id("x").scope)).await.unwrap()),
        ["b/c", "z"]
    );
    assert!(store.list(Some(&scope("t3"))).await.unwrap().is_empty());
    let before = all.iter().find(|e| e.id == id("z")).unwrap().clone();
    assert!(before.created_ms > 1_700_000_000_000 && before.created_ms == before.changed_ms);
    // A clock with milliseconds has to move on before a change can be told from the making.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    set(&store, "z", "other").await;
    let after = store.list(None).await.unwrap();
    let after = after.iter().find(|e| e.id == id("z")).unwrap();
    assert_eq!(after.created_ms, before.created_ms);
    assert!(after.changed_ms > before.changed_ms);
}

#[tokio::test]
async fn a_move_and_a_copy_go_between_names_and_owners_and_never_over_another() {
    let home = Home::new();
    let store = home.store();
    set(&store, "a", "1").await;
    set(&store, "b", "2").await;
    let made = store.list(None).await.unwrap()[0].created_ms;
    store.rename(&id("a"), &id("a@t")).await.unwrap();
    assert_eq!(ask(&store, &id("a")).await.unwrap(), None);
    assert_eq!(shown(&store, "a@t").await, "1");
    assert_eq!(
        store.list(Some(&scope("t"))).await.unwrap()[0].created_ms,
        made
    );
    store.copy(&id("a@t"), &id("c")).await.unwrap();
    assert_eq!(shown(&store, "a@t").await, "1");
    assert_eq!(shown(&store, "c").await, "1");
    let before = home.files();
    for (from, to) in [("b", "c"), ("b", "b"), ("c", "a@t")] {
        for keep in [true, false] {
            let (from, to) = (id(from), id(to));
            let error = if keep {
                store.copy(&from, &to).await.unwrap_err()
            } else {
                store.rename(&from, &to).await.unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            assert_eq!(error.get("secret"), Some(to.to_string().as_str()));
        }
    }
    assert_eq!(home.files(), before);
    assert_eq!(store.remove(&id("b")).await.unwrap(), Undone::REMOVED);
    assert_eq!(ask(&store, &id("b")).await.unwrap(), None);
    assert_eq!(store.check().await.unwrap(), 2);
}

#[tokio::test]
async fn f146_the_directory_is_0700_its_files_0600_and_nothing_else_is_in_it() {
    let home = Home::new();
    let store = home.store();
    set(&store, "a", "1").await;
    set(&store, "a", "2").await;
    store.remove(&id("a")).await.unwrap();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&home.directory()), 0o700);
    let names: Vec<_> = home.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["master.key", "sealed"]);
    for file in names {
        assert_eq!(mode(&home.file(&file)), 0o600, "{file}");
    }
}
