//! A new master key: everything is sealed anew, and broken off anywhere the store opens.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use groundcrew_core::error::{Error, ErrorKind};
use groundcrew_secrets::{MasterKey, SealedConfig, SealedSecrets, WritePoints};

use crate::support::{Home, chmod, fails, id, set, shown};

/// Fails at the point with that number.
#[derive(Debug)]
struct FailsAt {
    left: AtomicUsize,
}

impl WritePoints for FailsAt {
    fn pass(&self, point: &'static str) -> Result<(), Error> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(Error::new(ErrorKind::ResourceExhausted, point));
        }
        Ok(())
    }
}

fn failing(home: &Home, number: usize) -> SealedSecrets {
    SealedSecrets::open(SealedConfig {
        points: Arc::new(FailsAt {
            left: AtomicUsize::new(number),
        }),
        ..SealedConfig::new(home.directory())
    })
    .unwrap()
}

fn key_file(home: &Home, byte: u8) -> PathBuf {
    let path = home.root().join(format!("key-{byte}"));
    fs::write(
        &path,
        std::array::from_fn::<u8, 32, _>(|n| u8::try_from(n).unwrap() ^ byte),
    )
    .unwrap();
    chmod(&path, 0o600);
    path
}

async fn filled() -> (Home, SealedSecrets) {
    let home = Home::new();
    let store = home.store();
    set(&store, "a", "1").await;
    set(&store, "a@t", "2").await;
    (home, store)
}

async fn is_whole(store: &SealedSecrets) {
    assert_eq!(shown(store, "a").await, "1");
    assert_eq!(shown(store, "a@t").await, "2");
    assert_eq!(store.check().await.unwrap(), 2);
}

#[tokio::test]
async fn w24_a_rotation_replaces_both_keys_and_keeps_every_value_and_time() {
    let (home, store) = filled().await;
    let (key, file) = (
        fs::read(home.file("master.key")).unwrap(),
        fs::read(home.file("sealed")).unwrap(),
    );
    let listed = store.list(None).await.unwrap();
    store.rotate(&MasterKey::Own).await.unwrap();
    is_whole(&store).await;
    assert_eq!(store.list(None).await.unwrap(), listed);
    assert_ne!(fs::read(home.file("master.key")).unwrap(), key);
    // No sealed piece is the old one.
    let new = fs::read(home.file("sealed")).unwrap();
    assert_eq!(new.len(), file.len());
    assert!(
        !file
            .windows(24)
            .any(|piece| new.windows(24).any(|other| piece == other))
    );
    // The old key opens nothing any more, and the old file not with the new key.
    let newer = fs::read(home.file("master.key")).unwrap();
    fs::write(home.file("master.key"), &key).unwrap();
    assert_eq!(fails(&store, "a").await, ErrorKind::SecretUnavailable);
    fs::write(home.file("master.key"), &newer).unwrap();
    fs::write(home.file("sealed"), &file).unwrap();
    assert_eq!(fails(&store, "a").await, ErrorKind::SecretUnavailable);
    assert_eq!(home.files().len(), 2);
}

#[tokio::test]
async fn w24_a_rotation_that_fails_at_any_point_leaves_a_store_that_opens_and_can_be_rotated() {
    let mut points = 0;
    for number in 1.. {
        let (home, _) = filled().await;
        let store = failing(&home, number);
        let rotated = store.rotate(&MasterKey::Own).await;
        is_whole(&store).await;
        let fresh = home.store();
        is_whole(&fresh).await;
        set(&fresh, "b", "3").await;
        fresh.remove(&id("b")).await.unwrap();
        fresh.rotate(&MasterKey::Own).await.unwrap();
        is_whole(&fresh).await;
        assert_eq!(home.files().len(), 2, "point {number}");
        if rotated.is_ok() {
            break;
        }
        points += 1;
    }
    assert_eq!(points, 10);
}

#[tokio::test]
async fn w24_the_key_moves_to_a_named_file_and_back() {
    let (home, store) = filled().await;
    let (one, two) = (key_file(&home, 1), key_file(&home, 2));
    store.rotate(&MasterKey::File(one.clone())).await.unwrap();
    is_whole(&store).await;
    assert!(!home.file("master.key").exists());
    assert_eq!(
        fails(&home.store(), "a").await,
        ErrorKind::SecretUnavailable
    );
    let before = home.files();
    let error = store
        .rotate(&MasterKey::File(one.clone()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = store
        .rotate(&MasterKey::File(home.root().join("none")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SecretUnavailable);
    assert_eq!(home.files(), before);
    store.rotate(&MasterKey::File(two)).await.unwrap();
    is_whole(&store).await;
    store.rotate(&MasterKey::Own).await.unwrap();
    is_whole(&store).await;
    is_whole(&home.store()).await;
}

#[tokio::test]
async fn w24_nothing_is_rotated_when_a_value_is_damaged() {
    let (home, store) = filled().await;
    let mut file = fs::read(home.file("sealed")).unwrap();
    *file.last_mut().unwrap() ^= 1;
    fs::write(home.file("sealed"), &file).unwrap();
    let before = home.files();
    let error = store.rotate(&MasterKey::Own).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.get("secret"), Some("a of t"));
    assert_eq!(home.files(), before);
}

#[tokio::test]
async fn a_rotation_where_nothing_is_stored_only_checks_the_key() {
    let home = Home::new();
    let store = home.store();
    store.rotate(&MasterKey::Own).await.unwrap();
    let none = MasterKey::File(home.root().join("none"));
    assert!(store.rotate(&none).await.is_err());
    assert!(!home.directory().exists());
    store
        .rotate(&MasterKey::File(key_file(&home, 3)))
        .await
        .unwrap();
    set(&store, "a", "1").await;
    assert!(!home.file("master.key").exists());
    assert_eq!(shown(&store, "a").await, "1");
}
