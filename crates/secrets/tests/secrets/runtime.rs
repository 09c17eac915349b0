//! Runtime secrets: kept by reference, all or none, seen by nobody who lists, gone when forgotten.

use groundcrew_core::{
    error::ErrorKind,
    id::AttemptId,
    secret::{RuntimeSecrets, SecretRef, SecretStore, SecretValue},
    undo::Undone,
};
use groundcrew_secrets::{MemorySecrets, SealedSecrets};

use crate::support::{Home, ask, id, name, set, shown};

fn secrets(pairs: &[(&str, &str)]) -> Vec<(String, SecretValue)> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), SecretValue::new(*value));
    pairs.iter().map(pair).collect()
}

async fn kept(store: &dyn RuntimeSecrets, name: &SecretRef) -> Option<Vec<u8>> {
    let found = store.reveal(name).await.unwrap();
    found.map(|value| value.expose().to_vec())
}

async fn keeps_the_contract(store: &dyn RuntimeSecrets, plain: &dyn SecretStore) {
    let (one, two) = (
        AttemptId::generate().unwrap(),
        AttemptId::generate().unwrap(),
    );
    assert!(store.attempts().await.unwrap().is_empty());
    assert_eq!(store.forget(one).await.unwrap(), Undone::AlreadyGone);
    assert!(store.keep(one, &[]).await.unwrap().is_empty());
    assert!(store.attempts().await.unwrap().is_empty());
    let names = store
        .keep(one, &secrets(&[("token", "T1"), ("nonce", "N1")]))
        .await
        .unwrap();
    assert_eq!(
        names,
        [
            name(&format!("runtime/{one}/token")),
            name(&format!("runtime/{one}/nonce"))
        ]
    );
    let of_two = store.keep(two, &secrets(&[("token", "T2")])).await.unwrap();
    assert_eq!(kept(store, &names[0]).await.unwrap(), b"T1");
    assert_eq!(kept(store, &names[1]).await.unwrap(), b"N1");
    assert_eq!(kept(store, &of_two[0]).await.unwrap(), b"T2");
    // Again with the same names replaces.
    store.keep(one, &secrets(&[("token", "T3")])).await.unwrap();
    assert_eq!(kept(store, &names[0]).await.unwrap(), b"T3");
    assert_eq!(kept(store, &names[1]).await.unwrap(), b"N1");
    let mut both = [one, two];
    both.sort();
    assert_eq!(store.attempts().await.unwrap(), both);
    // A reference in somebody's profile does not reach another run's token.
    for each in &names {
        assert_eq!(ask(plain, &each.clone().into()).await.unwrap(), None);
    }
    assert_eq!(kept(store, &name("token")).await, None);
    // All or none.
    for bad in [
        secrets(&[("token", "X"), ("../x", "v")]),
        secrets(&[("token", "X"), ("empty", "")]),
        secrets(&[("token", "X"), ("token", "Y")]),
        secrets(&[("token", "X"), (&"n".repeat(200), "v")]),
    ] {
        let error = store.keep(one, &bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
    let huge = vec![
        ("token".to_owned(), SecretValue::new("X")),
        ("big".to_owned(), SecretValue::new(vec![1; 1024 * 1024 + 1])),
    ];
    assert_eq!(
        store.keep(one, &huge).await.unwrap_err().kind(),
        ErrorKind::TooLarge
    );
    assert_eq!(kept(store, &names[0]).await.unwrap(), b"T3");
    assert_eq!(store.forget(one).await.unwrap(), Undone::REMOVED);
    assert_eq!(store.forget(one).await.unwrap(), Undone::AlreadyGone);
    assert_eq!(kept(store, &names[0]).await, None);
    assert_eq!(kept(store, &names[1]).await, None);
    assert_eq!(kept(store, &of_two[0]).await.unwrap(), b"T2");
    assert_eq!(store.attempts().await.unwrap(), [two]);
}

#[tokio::test]
async fn k58_runtime_secrets_are_revealed_by_reference_and_forgotten_whole() {
    let (home, memory) = (Home::new(), MemorySecrets::new());
    let sealed = home.store();
    keeps_the_contract(&sealed, &sealed).await;
    keeps_the_contract(&memory, &memory).await;
}

#[tokio::test]
async fn k58_a_token_is_revealed_after_a_restart_and_is_nowhere_in_the_open() {
    let home = Home::new();
    let attempt = AttemptId::generate().unwrap();
    let names = home
        .store()
        .keep(attempt, &secrets(&[("token", "CANARY-58")]))
        .await
        .unwrap();
    let store: &dyn RuntimeSecrets = &home.store();
    assert_eq!(kept(store, &names[0]).await.unwrap(), b"CANARY-58");
    for (file, bytes) in home.files() {
        crate::support::hidden("CANARY-58", &bytes, &file);
    }
}

#[tokio::test]
async fn w25_runtime_secrets_stand_in_no_list_and_no_verb_of_a_user_reaches_them() {
    let home = Home::new();
    let store: SealedSecrets = home.store();
    let attempt = AttemptId::generate().unwrap();
    let names = store
        .keep(attempt, &secrets(&[("token", "T")]))
        .await
        .unwrap();
    set(&store, "mine", "M").await;
    let listed = store.list(None).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, id("mine"));
    let token = names[0].clone().into();
    let refused = [
        store.set(&token, SecretValue::new("x")).await.map(drop),
        store.remove(&token).await.map(drop),
        store.rename(&token, &id("stolen")).await,
        store.rename(&id("mine"), &id("runtime/x")).await,
        store.copy(&token, &id("stolen")).await,
        store.copy(&id("mine"), &id("runtime/x@t")).await,
        store
            .set(&id("runtime"), SecretValue::new("x"))
            .await
            .map(drop),
        MemorySecrets::new().set(names[0].clone(), &token.scope, SecretValue::new("x")),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(kept(&store, &names[0]).await.unwrap(), b"T");
    assert_eq!(shown(&store, "mine").await, "M");
    assert_eq!(kept(&store, &name("mine")).await, None);
    // A name that only begins alike is a user's.
    set(&store, "runtimes/x", "v").await;
}

#[tokio::test]
async fn w25_what_a_forgotten_attempt_kept_is_not_on_disk_any_more() {
    let home = Home::new();
    let store = home.store();
    let attempt = AttemptId::generate().unwrap();
    store
        .keep(attempt, &secrets(&[("token", "T")]))
        .await
        .unwrap();
    let with = std::fs::metadata(home.file("sealed")).unwrap().len();
    store.forget(attempt).await.unwrap();
    assert!(std::fs::metadata(home.file("sealed")).unwrap().len() < with);
    assert_eq!(store.check().await.unwrap(), 0);
}
