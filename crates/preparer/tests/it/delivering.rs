//! What is committed in a private clone comes to its repository while the clone stays.

use std::{ffi::OsStr, fs};

use groundcrew_core::{preparer::Preparer as _, undo::Undone, workspace::CloneObjects};

use crate::{
    clones::{BOTH, clone, commit, has},
    fixture::*,
};

#[tokio::test]
async fn what_is_committed_in_a_clone_is_delivered_as_often_as_asked_and_the_clone_stays() {
    let fixture = Fixture::new();
    let before = git(&fixture.repository, &["show-ref"]);
    for objects in BOTH {
        let launch = clone(&fixture, objects).await;
        let preparer = fixture.preparer();
        let deliver = async || preparer.deliver(&launch.record("clone")).await.unwrap();
        let branch = launch.branch();
        assert_eq!(deliver().await, []);
        assert!(!has(&fixture.repository, branch), "nothing was committed");
        for name in ["one", "two"] {
            let tip = commit(launch.tree(), name);
            write(launch.tree().join("loose"), "not committed");
            for _ in 0..2 {
                assert_eq!(deliver().await, []);
                assert_eq!(git(&fixture.repository, &["rev-parse", branch]), tip);
            }
            let show = format!("{branch}:{name}");
            assert_eq!(git(&fixture.repository, &["show", &show]), "work");
            assert!(launch.tree().join("loose").is_file());
        }
        // The other records have nothing to deliver.
        for key in ["branch", "directory"] {
            assert_eq!(preparer.deliver(&launch.record(key)).await.unwrap(), []);
        }
        // What is delivered is as the clone's own: removal keeps it, closing leaves it.
        let undone = fixture.undo(&launch, REMOVE).await;
        assert!(kinds(kept(&undone["clone"])).contains(&"commits"));
        fs::remove_file(launch.tree().join("loose")).unwrap();
        let undone = fixture.undo(&launch, CLOSE).await;
        assert_eq!(undone["clone"], Undone::REMOVED, "{undone:?}");
        fixture.undo(&launch, FORCE).await;
        let name = format!("refs/groundcrew/snapshots/{}", launch.run);
        git(&fixture.repository, &["update-ref", "-d", &name]);
        assert_eq!(git(&fixture.repository, &["show-ref"]), before);
        fixture.assert_home_is_empty();
    }
}

#[tokio::test]
async fn c26_nothing_of_others_is_moved_by_a_delivery() {
    let fixture = Fixture::new();
    let launch = clone(&fixture, CloneObjects::Copied).await;
    let preparer = fixture.preparer();
    let branch = launch.branch();
    let refused = async |words: &str| {
        let theirs = git(&fixture.repository, &["rev-parse", branch]);
        let found = preparer.deliver(&launch.record("clone")).await.unwrap();
        assert!(found[0].items[0].contains(words), "{found:?}");
        assert_eq!(git(&fixture.repository, &["rev-parse", branch]), theirs);
    };
    commit(launch.tree(), "one");
    git(&fixture.repository, &["branch", branch]);
    refused("is another's").await;
    git(&fixture.repository, &["branch", "-qD", branch]);
    assert_eq!(preparer.deliver(&launch.record("clone")).await.unwrap(), []);
    // Somebody works on it in the repository.
    commit(launch.tree(), "two");
    git(&fixture.repository, &["checkout", "-q", branch]);
    refused(fixture.repository.to_str().unwrap()).await;
    git(
        &fixture.repository,
        &["commit", "-q", "--allow-empty", "-m", "theirs"],
    );
    git(&fixture.repository, &["checkout", "-q", "-"]);
    refused("has other commits").await;
    assert!(launch.tree().join("two").is_file());
    // A directory that is not the one that was made is not looked into.
    let other = launch.tree().with_file_name("other");
    fs::rename(launch.tree(), &other).unwrap();
    let words = ["clone", "-q", "."].map(OsStr::new);
    git(
        &fixture.repository,
        &[&words[..], &[launch.tree().as_os_str()]].concat(),
    );
    assert_eq!(preparer.deliver(&launch.record("clone")).await.unwrap(), []);
}
