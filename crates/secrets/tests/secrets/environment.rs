//! Secrets in variables that the program hands in.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use groundcrew_core::{error::ErrorKind, secret::SecretStore as _};
use groundcrew_secrets::{EnvironmentSecrets, VALUE_MAX};

use crate::support::{ask, fails, hidden, id, name, shown};

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(k, v)| (k.into(), v.into())).collect()
}

const PREFIX: &str = "CREW_SECRET_";

#[tokio::test]
async fn k10_a_secret_is_the_variable_of_its_name_behind_the_prefix() {
    let store = EnvironmentSecrets::with_prefix(
        PREFIX,
        variables(&[
            ("CREW_SECRET_OPENAI__API_KEY", "value-one"),
            ("CREW_SECRET_X_Y", "v2"),
            ("CREW_SECRET_EMPTY", ""),
            ("PATH", "/bin"),
            ("OPENAI_API_KEY", "not asked for"),
        ]),
    )
    .unwrap();
    assert_eq!(shown(&store, "openai/api-key").await, "value-one");
    assert_eq!(shown(&store, "x.y").await, "v2");
    for unknown in [
        "path",
        "openai-api-key",
        "openai/api-key@t",
        "x_y@t",
        "runtime/x",
    ] {
        assert_eq!(ask(&store, &id(unknown)).await.unwrap(), None, "{unknown}");
    }
    assert_eq!(fails(&store, "empty").await, ErrorKind::SecretUnavailable);
    let shown = format!("{store:?}");
    hidden("value-one", shown.as_bytes(), "debug");
    assert!(
        !shown.contains("PATH") && !shown.contains("/bin"),
        "{shown}"
    );
}

#[tokio::test]
async fn k10_a_table_says_which_variable_is_which_secret() {
    let store = EnvironmentSecrets::with_table(
        [
            (name("openai"), "OPENAI_API_KEY".into()),
            (name("unset"), "NOT_SET".into()),
            (name("huge"), "HUGE".into()),
        ],
        [
            (
                "OPENAI_API_KEY".into(),
                OsString::from_vec(b"\xff\x01".to_vec()),
            ),
            ("HUGE".into(), "x".repeat(VALUE_MAX + 1).into()),
            ("OTHER".into(), "CANARY-ENV".into()),
        ],
    )
    .unwrap();
    let found = store.reveal(&name("openai"), &id("x").scope).await.unwrap();
    assert_eq!(found.unwrap().expose(), b"\xff\x01");
    for unknown in ["unset", "OTHER", "other", "openai@t"] {
        assert_eq!(ask(&store, &id(unknown)).await.unwrap(), None, "{unknown}");
    }
    assert_eq!(fails(&store, "huge").await, ErrorKind::TooLarge);
    hidden("CANARY-ENV", format!("{store:?}").as_bytes(), "debug");
}

#[test]
fn prefixes_and_tables_that_would_say_too_much_are_refused() {
    for prefix in ["", "_X", "x_", "1X", "A=", "A B", "Ä"] {
        let error = EnvironmentSecrets::with_prefix(prefix, []).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{prefix}");
    }
    for variable in ["", "A=B", "A\0"] {
        let error = EnvironmentSecrets::with_table([(name("a"), variable.into())], []).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{variable:?}");
    }
    let twice = [(name("a"), "A".into()), (name("a"), "B".into())];
    assert!(EnvironmentSecrets::with_table(twice, []).is_err());
}
