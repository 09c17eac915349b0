//! A disk that is full or cannot be written: what is stored stays, and can be read.

use std::{fs, path::Path};

use groundcrew_core::{
    error::ErrorKind,
    id::AttemptId,
    secret::{RuntimeSecrets as _, SecretValue},
};
use groundcrew_secrets::{SealedConfig, SealedSecrets};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::support::{id, set, shown};

/// A small file system in memory; gone when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts one; says so and returns nothing where that is not allowed.
    fn mount() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let options = c"size=256k,mode=700";
        match rustix::mount::mount(
            "groundcrew-test",
            at.path(),
            "tmpfs",
            MountFlags::empty(),
            Some(options),
        ) {
            Ok(()) => Some(Self(at)),
            Err(error) => {
                #[expect(clippy::print_stderr, reason = "a skip must be heard")]
                {
                    eprintln!("skipped: needs root to mount a small disk ({error})");
                }
                None
            }
        }
    }

    fn read_only(&self, yes: bool) {
        let flags = if yes {
            MountFlags::RDONLY
        } else {
            MountFlags::empty()
        };
        rustix::mount::mount_remount(self.0.path(), flags, "").unwrap();
    }

    fn store(&self) -> SealedSecrets {
        SealedSecrets::open(SealedConfig::new(self.directory())).unwrap()
    }

    fn directory(&self) -> std::path::PathBuf {
        self.0.path().join("secrets")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn f133_a_full_disk_is_a_typed_error_and_the_old_values_stay() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let store = disk.store();
    set(&store, "a", "kept").await;
    for size in [300 * 1024, 200 * 1024, 130 * 1024] {
        // The last fits once, but not twice: the old file stays until the new one is whole.
        let stored = store.set(&id("big"), SecretValue::new(vec![1; size])).await;
        if let Err(error) = stored {
            assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
            assert!(error.get("path").is_some());
        }
        assert_eq!(shown(&store, "a").await, "kept");
        assert_eq!(names(&disk.directory()), ["master.key", "sealed"]);
    }
    let error = store
        .set(&id("big"), SecretValue::new(vec![2; 130 * 1024]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    let attempt = AttemptId::generate().unwrap();
    let tokens = [
        ("one".to_owned(), SecretValue::new("1")),
        ("two".to_owned(), SecretValue::new(vec![3; 130 * 1024])),
    ];
    assert!(store.keep(attempt, &tokens).await.is_err());
    assert!(store.attempts().await.unwrap().is_empty());
    assert_eq!(shown(&store, "a").await, "kept");
    assert_eq!(names(&disk.directory()), ["master.key", "sealed"]);
}

#[tokio::test]
async fn f133_a_disk_that_is_full_from_the_start_leaves_no_key_without_a_store() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let ballast = disk.0.path().join("ballast");
    drop(fs::write(&ballast, vec![1; 1024 * 1024]));
    let error = disk
        .store()
        .set(&id("a"), SecretValue::new("v"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    fs::remove_file(ballast).unwrap();
    set(&disk.store(), "a", "v").await;
    assert_eq!(shown(&disk.store(), "a").await, "v");
    assert_eq!(names(&disk.directory()), ["master.key", "sealed"]);
}

#[tokio::test]
async fn f133_a_read_only_disk_can_be_read_and_refuses_changes() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    set(&disk.store(), "a", "kept").await;
    disk.read_only(true);
    let store = disk.store();
    assert_eq!(shown(&store, "a").await, "kept");
    assert_eq!(store.list(None).await.unwrap().len(), 1);
    let error = store
        .set(&id("a"), SecretValue::new("v"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    disk.read_only(false);
    assert_eq!(shown(&store, "a").await, "kept");
}
