//! Damaged files: a typed error that names the secret, or the right value; never another value, never something made anew.

use std::fs;

use groundcrew_core::{
    error::ErrorKind,
    secret::{SecretId, SecretValue},
    undo::Undone,
};
use groundcrew_secrets::SealedSecrets;

use crate::support::{Home, ask, hidden, id, set, shown, told};

const VALUES: [(&str, &str); 3] = [
    ("a", "CANARY-of-all"),
    ("a@t", "CANARY-of-one"),
    ("b", "CANARY-another"),
];

async fn filled() -> (Home, SealedSecrets, Vec<u8>) {
    let home = Home::new();
    let store = home.store();
    for (text, value) in VALUES {
        set(&store, text, value).await;
    }
    let file = fs::read(home.file("sealed")).unwrap();
    (home, store, file)
}

/// Asks for everything; returns how many were refused.
async fn looked_through(store: &SealedSecrets, what: &str) -> usize {
    let mut refused = 0;
    for (text, value) in VALUES {
        match ask(store, &id(text)).await {
            Ok(found) => assert_eq!(found.as_deref(), Some(value), "{what}: {text}"),
            Err(error) => {
                let kind = error.kind();
                let known = matches!(kind, ErrorKind::Corrupt | ErrorKind::SecretUnavailable);
                assert!(known, "{what}: {text}: {error}");
                hidden(value, told(&error).as_bytes(), what);
                refused += 1;
            }
        }
    }
    refused
}

#[tokio::test]
async fn w24_every_flipped_byte_and_every_length_of_the_file_is_an_error_or_the_right_value() {
    let (home, store, file) = filled().await;
    let path = home.file("sealed");
    let (mut refused, mut noticed) = (0, 0);
    // A third of the bytes, and all of the last ones, where the values are; each byte is tried where the format is tested.
    let places = (0..file.len()).filter(|at| at % 3 == 0 || at + 160 > file.len());
    for at in places {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        for (bytes, what) in [
            (&damaged[..], format!("byte {at}")),
            (&file[..at], format!("length {at}")),
        ] {
            fs::write(&path, bytes).unwrap();
            let here = looked_through(&store, &what).await;
            let checked = store.check().await;
            assert!(checked.is_err(), "{what} was not noticed");
            (refused, noticed) = (refused + here, noticed + 1);
            assert_eq!(fs::read(&path).unwrap(), bytes, "{what}");
        }
    }
    assert!(noticed > 400 && refused > noticed, "{noticed} {refused}");
    fs::write(&path, &file).unwrap();
    assert_eq!(looked_through(&store, "whole again").await, 0);
}

#[tokio::test]
async fn w24_one_damaged_value_is_named_hurts_no_other_and_heals_by_being_set_or_removed() {
    for heal in ["set", "remove"] {
        let (home, store, mut file) = filled().await;
        *file.last_mut().unwrap() ^= 1;
        fs::write(home.file("sealed"), &file).unwrap();
        // By name the last one is `b`.
        let error = ask(&store, &id("b")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(error.get("secret"), Some("b"));
        assert_eq!(shown(&store, "a").await, VALUES[0].1);
        assert_eq!(store.list(None).await.unwrap().len(), 3);
        set(&store, "c", "new").await;
        assert_eq!(shown(&store, "a@t").await, VALUES[1].1);
        for result in [
            store.rename(&id("b"), &id("d")).await,
            store.copy(&id("b"), &id("d")).await,
            store.check().await.map(drop),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(error.get("secret"), Some("b"));
        }
        if heal == "set" {
            set(&store, "b", "again").await;
            assert_eq!(shown(&store, "b").await, "again");
        } else {
            assert_eq!(store.remove(&id("b")).await.unwrap(), Undone::REMOVED);
        }
        store.check().await.unwrap();
    }
}

#[tokio::test]
async fn w24_a_file_that_is_cut_off_or_too_long_is_not_written_over() {
    let (home, store, file) = filled().await;
    let longer = [&file[..], b"x"].concat();
    for bytes in [&file[..file.len() - 1], &file[..file.len() - 80], &longer] {
        fs::write(home.file("sealed"), bytes).unwrap();
        let results: [(&str, Result<(), groundcrew_core::error::Error>); 3] = [
            (
                "set",
                store.set(&id("z"), SecretValue::new("v")).await.map(drop),
            ),
            ("remove", store.remove(&id("a")).await.map(drop)),
            ("rename", store.rename(&id("a"), &id("z")).await),
        ];
        for (verb, result) in results {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Corrupt, "{verb}");
        }
        assert_eq!(fs::read(home.file("sealed")).unwrap(), bytes);
        assert_eq!(shown(&store, "a").await, VALUES[0].1);
    }
}

#[tokio::test]
async fn w24_a_store_of_another_installation_or_of_nonsense_is_an_error_and_stays_as_it_is() {
    let (_other_home, _, other) = filled().await;
    let (home, store, file) = filled().await;
    let mut newer = file.clone();
    newer[8] = 2;
    let big = vec![0; 65 * 1024 * 1024];
    for (bytes, kind) in [
        (&other[..], ErrorKind::SecretUnavailable),
        (b"", ErrorKind::Corrupt),
        (b"GCSECRET", ErrorKind::Corrupt),
        (b"{\"a\":\"plain text\"}", ErrorKind::Corrupt),
        (&newer, ErrorKind::Corrupt),
        (&[0; 4096], ErrorKind::Corrupt),
        (&big, ErrorKind::Corrupt),
    ] {
        fs::write(home.file("sealed"), bytes).unwrap();
        for result in [
            ask(&store, &id("a")).await.map(drop),
            ask(&store, &id("unknown")).await.map(drop),
            store.set(&id("a"), SecretValue::new("v")).await.map(drop),
            store.list(None).await.map(drop),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.get("path"), home.file("sealed").to_str());
        }
        assert!(fs::read(home.file("sealed")).unwrap() == bytes);
    }
    for what in ["directory", "link"] {
        let (home, store, _) = filled().await;
        let path = home.file("sealed");
        fs::rename(&path, home.root().join("moved")).unwrap();
        if what == "link" {
            std::os::unix::fs::symlink(home.root().join("moved"), &path).unwrap();
        } else {
            fs::create_dir(&path).unwrap();
        }
        assert!(ask(&store, &id("a")).await.is_err(), "{what}");
        assert!(
            store.set(&id("a"), SecretValue::new("v")).await.is_err(),
            "{what}"
        );
    }
}

/// The exchanges that an attacker with the file, but without the key, can make: pieces of it traded, or brought back.
#[tokio::test]
async fn w24_values_that_trade_places_in_the_file_or_come_from_an_older_one_are_refused() {
    let home = Home::new();
    let store = home.store();
    let ids: Vec<SecretId> = ["a", "b", "c@t"].into_iter().map(id).collect();
    for (id, value) in ids.iter().zip(["aaaa", "bbbb", "cccc"]) {
        store.set(id, SecretValue::new(value)).await.unwrap();
    }
    let file = fs::read(home.file("sealed")).unwrap();
    // Values of four bytes, sealed: 44 each, at the end of the file, in the order of names.
    let piece = |n: usize| file.len() - 44 * (3 - n)..file.len() - 44 * (2 - n);
    for (one, other) in [(0, 1), (1, 2), (0, 2)] {
        let mut traded = file.clone();
        traded[piece(one)].copy_from_slice(&file[piece(other)]);
        traded[piece(other)].copy_from_slice(&file[piece(one)]);
        fs::write(home.file("sealed"), &traded).unwrap();
        for (n, id) in ids.iter().enumerate() {
            let answer = ask(&store, id).await;
            assert_eq!(answer.is_ok(), n != one && n != other);
        }
    }
    fs::write(home.file("sealed"), &file).unwrap();
    set(&store, "a", "AAAA").await;
    let mut mixed = fs::read(home.file("sealed")).unwrap();
    assert_eq!(mixed.len(), file.len());
    mixed[piece(0)].copy_from_slice(&file[piece(0)]);
    fs::write(home.file("sealed"), &mixed).unwrap();
    let error = ask(&store, &id("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.get("secret"), Some("a"));
}
