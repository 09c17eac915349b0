//! F144: known values go through every verb and every failure; no byte of disk, error, debug or list shows them in any form.

use std::fs;

use groundcrew_core::{
    id::AttemptId,
    secret::{RuntimeSecrets, SecretValue},
};
use groundcrew_secrets::{MasterKey, MemorySecrets, SealedSecrets};

use crate::support::{Home, ask, forms, hidden, id, told};

const CANARIES: [&str; 5] = [
    "CANARY-one-6f1c",
    "CANARY-two-83aa",
    "CANARY-three-0d",
    "CANARY-token-99",
    "CANARY-with \"odd\" \u{e4} bytes\n",
];

/// Looks at everything on disk below the home.
fn look(home: &Home, when: &str) {
    for (file, bytes) in home.files() {
        for canary in CANARIES {
            hidden(canary, &bytes, &format!("{file} after {when}"));
        }
    }
}

fn unseen(text: &str, place: &str) {
    for canary in CANARIES {
        hidden(canary, text.as_bytes(), place);
    }
}

async fn fill(home: &Home, store: &SealedSecrets) {
    for (name, canary) in ["a", "a@t", "b/c", "odd"].into_iter().zip([0, 1, 2, 4]) {
        store
            .set(&id(name), SecretValue::new(CANARIES[canary]))
            .await
            .unwrap();
        look(home, "set");
    }
}

#[tokio::test]
async fn f144_no_value_is_on_disk_in_any_form_after_any_verb() {
    let home = Home::new();
    let store = home.store();
    fill(&home, &store).await;
    assert_eq!(ask(&store, &id("odd")).await.unwrap().unwrap(), CANARIES[4]);
    look(&home, "reveal");
    store.rename(&id("a"), &id("moved@u")).await.unwrap();
    look(&home, "mv");
    store.copy(&id("b/c"), &id("b/d")).await.unwrap();
    look(&home, "cp");
    store.remove(&id("a@t")).await.unwrap();
    look(&home, "rm");
    let attempt = AttemptId::generate().unwrap();
    let token = [("token".to_owned(), SecretValue::new(CANARIES[3]))];
    let names = store.keep(attempt, &token).await.unwrap();
    look(&home, "keep");
    let found = RuntimeSecrets::reveal(&store, &names[0])
        .await
        .unwrap()
        .unwrap();
    unseen(&format!("{found:?} {token:?}"), "debug of values");
    store.rotate(&MasterKey::Own).await.unwrap();
    look(&home, "rotate");
    let listed = store.list(None).await.unwrap();
    unseen(&format!("{listed:?} {store:?}"), "list and debug");
    // Names are nobody's business either.
    let file = fs::read(home.file("sealed")).unwrap();
    for name in ["moved", "token", "runtime"] {
        hidden(name, &file, "the file");
    }
    store.forget(attempt).await.unwrap();
    look(&home, "forget");
    let memory = MemorySecrets::new();
    memory
        .set(id("a").name, &id("a").scope, SecretValue::new(CANARIES[0]))
        .unwrap();
    unseen(&format!("{memory:?}"), "debug of memory");
}

#[tokio::test]
async fn f144_no_error_shows_a_value_in_any_form() {
    let home = Home::new();
    let store = home.store();
    fill(&home, &store).await;
    let whole = fs::read(home.file("sealed")).unwrap();
    let mut told_of = 0;
    for at in (0..whole.len()).step_by(7) {
        let mut file = whole.clone();
        file[at] ^= 0x40;
        fs::write(home.file("sealed"), &file).unwrap();
        for name in ["a", "odd"] {
            if let Err(error) = ask(&store, &id(name)).await {
                unseen(&told(&error), "an error");
                told_of += 1;
            }
        }
        let results = [
            store.rename(&id("a"), &id("a@t")).await,
            store
                .set(&id("runtime/x"), SecretValue::new(CANARIES[0]))
                .await
                .map(drop),
        ];
        for error in results.into_iter().filter_map(Result::err) {
            unseen(&told(&error), "an error");
            told_of += 1;
        }
    }
    assert!(told_of > 100, "{told_of}");
}

#[test]
fn the_search_itself_finds_each_form() {
    let value = CANARIES[0];
    assert_eq!(forms(value.as_bytes()).len(), 7);
    for form in forms(value.as_bytes()) {
        let bytes = [b"xx", &form[..], b"yy"].concat();
        assert!(std::panic::catch_unwind(|| hidden(value, &bytes, "")).is_err());
    }
}
