//! F147: a provider that hangs, fails, panics, or answers with nothing or with too much.

use std::{sync::Arc, time::Duration};

use groundcrew_core::{
    async_trait,
    error::{Error, ErrorKind},
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};
use groundcrew_secrets::{SecretDeadline, VALUE_MAX};

use crate::support::{ask, fails, fixed, hidden, id, shown, told};

#[derive(Debug)]
struct Hangs;

#[async_trait]
impl SecretStore for Hangs {
    async fn reveal(&self, _: &SecretRef, _: &SecretScope) -> Result<Option<SecretValue>, Error> {
        std::future::pending().await
    }
}

fn bounded(store: Arc<dyn SecretStore>) -> SecretDeadline {
    SecretDeadline::new(store, Duration::from_secs(5))
}

#[tokio::test(start_paused = true)]
async fn f147_a_store_that_hangs_is_given_up_after_its_time_and_named() {
    let start = tokio::time::Instant::now();
    let error = ask(&bounded(Arc::new(Hangs)), &id("a/b"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.get("secret"), Some("a/b"));
    assert!(error.is_retryable());
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn f147_nothing_too_much_a_panic_and_a_failure_are_typed_errors_without_the_value() {
    type Answer = fn() -> Result<Option<SecretValue>, Error>;
    let cases: [(Answer, ErrorKind); 4] = [
        (|| Ok(Some(SecretValue::new(""))), ErrorKind::Protocol),
        (
            || {
                Ok(Some(SecretValue::new(
                    b"CANARY-147".repeat(VALUE_MAX / 10 + 1),
                )))
            },
            ErrorKind::TooLarge,
        ),
        (|| panic!("CANARY-147"), ErrorKind::Panicked),
        (
            || Err(Error::new(ErrorKind::PermissionDenied, "no")),
            ErrorKind::PermissionDenied,
        ),
    ];
    for (answer, kind) in cases {
        let error = ask(&bounded(fixed(answer)), &id("k")).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        hidden("CANARY-147", told(&error).as_bytes(), "the error");
    }
}

#[tokio::test]
async fn f147_a_good_answer_passes_through() {
    assert_eq!(
        shown(&bounded(fixed(|| Ok(Some(SecretValue::new("v"))))), "k").await,
        "v"
    );
    assert_eq!(
        ask(&bounded(fixed(|| Ok(None))), &id("k")).await.unwrap(),
        None
    );
    let most = fixed(|| Ok(Some(SecretValue::new(vec![1; VALUE_MAX]))));
    assert_eq!(shown(&bounded(most), "k").await.len(), VALUE_MAX);
    let none = fixed(|| Err(Error::new(ErrorKind::Unavailable, "down")));
    assert_eq!(fails(&bounded(none), "k").await, ErrorKind::Unavailable);
}
