//! Names, owners and values that are none: refused before anything is touched.

use groundcrew_core::{
    error::ErrorKind,
    id::{AttemptId, TenantId},
    secret::{RuntimeSecrets as _, SecretRef, SecretValue},
};
use groundcrew_secrets::{MemorySecrets, SealedConfig, SealedSecrets, VALUE_MAX};

use crate::support::{Home, id};

#[test]
fn f062_names_that_are_none_are_refused() {
    let long = "n".repeat(201);
    let deep = "a/".repeat(100) + "b";
    let bad = [
        "",
        "/",
        "//",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a/./b",
        ".a",
        "a/.b",
        "-a",
        "--help",
        "a/-b",
        "_a",
        "a/_b",
        " a",
        "a ",
        "a b",
        "a\tb",
        "a\n",
        "\na",
        "a\0",
        "\0",
        "a\rb",
        "ä",
        "a/é",
        "a\u{202e}b",
        "a\\b",
        "a:b",
        "a@b",
        "a=b",
        "a,b",
        "a;b",
        "a|b",
        "a&b",
        "a$b",
        "$(a)",
        "`a`",
        "a*",
        "a?",
        "{name}",
        "a'b",
        "a\"b",
        "<a>",
        "a%2fb",
        "~a",
        "a~",
        "#a",
        "!a",
        "a+b",
        &long,
        &deep,
    ];
    assert!(bad.len() >= 55);
    for name in bad {
        let error = SecretRef::new(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name:?}");
        // What is told of it is harmless on a terminal.
        let told = error.to_string();
        assert!(!told.chars().any(char::is_control), "{told:?}");
    }
    let most = "n".repeat(200);
    let good = [
        "a",
        "A",
        "0",
        "a-b_c.d",
        "a/b/c",
        "0/1",
        "a..b",
        "a.",
        "a-",
        "aws/EU-1/key.pem",
        &most,
    ];
    for name in good {
        assert_eq!(SecretRef::new(name).unwrap().as_str(), name);
    }
}

#[test]
fn f062_tenants_that_are_none_are_refused() {
    let long = "t".repeat(101);
    for tenant in [
        "", ".", "..", "a/b", "/a", "-a", ".a", "_a", "a b", "a\0", "ä", "a\n", "*", "a:b", &long,
    ] {
        let error = TenantId::new(tenant).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{tenant:?}");
    }
}

#[tokio::test]
async fn values_that_are_none_are_refused_and_leave_no_trace() {
    let home = Home::new();
    let store = home.store();
    let memory = MemorySecrets::new();
    let attempt = AttemptId::generate().unwrap();
    for (value, kind) in [
        (Vec::new(), ErrorKind::InvalidInput),
        (vec![1; VALUE_MAX + 1], ErrorKind::TooLarge),
        (vec![1; 4 * VALUE_MAX], ErrorKind::TooLarge),
    ] {
        let value = || SecretValue::new(value.clone());
        let error = store.set(&id("a/b@t"), value()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(error.get("secret"), Some("a/b of t"));
        let error = memory
            .set(id("a").name, &id("a").scope, value())
            .unwrap_err();
        assert_eq!(error.kind(), kind);
        let error = store
            .keep(attempt, &[("t".to_owned(), value())])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    assert!(!home.directory().exists());
}

#[tokio::test]
async fn more_than_a_store_holds_is_refused_and_what_is_there_stays() {
    let home = Home::new();
    let store = SealedSecrets::open(SealedConfig {
        most: 64 * 1024,
        ..SealedConfig::new(home.directory())
    })
    .unwrap();
    let (attempt, kilobytes) = (AttemptId::generate().unwrap(), |n: usize| {
        vec![7_u8; n * 1024]
    });
    let many: Vec<_> = (0..6)
        .map(|n| (format!("n{n}"), SecretValue::new(kilobytes(10))))
        .collect();
    store.keep(attempt, &many).await.unwrap();
    let before = home.files();
    let big = || SecretValue::new(kilobytes(10));
    let error = store.set(&id("a"), big()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(home.files(), before);
    assert_eq!(store.check().await.unwrap(), 6);
    store
        .set(&id("a"), SecretValue::new("small"))
        .await
        .unwrap();
    store.forget(attempt).await.unwrap();
    store.set(&id("b"), big()).await.unwrap();
    assert_eq!(store.check().await.unwrap(), 2);
}
