//! Whose a thing is: what was swapped, moved, deleted or made by others.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    time::Duration,
};

use groundcrew_core::{preparer::Preparer as _, undo::Undone, workspace::WorkspaceRequest};

use crate::fixture::*;

#[tokio::test]
async fn two_removals_at_once_lose_nothing() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    write(launch.tree().join("target/a"), "x\n");
    let (one, two) = (fixture.preparer(), fixture.preparer());
    let record = launch.record("worktree");
    let (a, b) = tokio::join!(one.undo(&record, REMOVE), two.undo(&record, REMOVE));
    let mut answers = [a.unwrap(), b.unwrap()];
    answers.sort_by_key(|undone| *undone == Undone::AlreadyGone);
    assert_eq!(answers, [Undone::REMOVED, Undone::AlreadyGone]);
    let trashed = fixture
        .home()
        .join("trash")
        .join(format!("{}-worktree-kept", launch.attempt));
    assert!(trashed.join("target/a").is_file());
}

#[tokio::test]
async fn f102_without_its_repository_a_tree_is_kept_unless_forced() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    fs::rename(&fixture.repository, fixture.path().join("moved")).unwrap();
    let undone = fixture.undo(&launch, REMOVE).await;
    assert_eq!(kinds(kept(&undone["worktree"])), ["unreadable"]);
    assert!(matches!(undone["branch"], Undone::Kept(_)));
    let undone = fixture.undo(&launch, FORCE).await;
    assert_eq!(undone["worktree"], Undone::REMOVED);
    assert_eq!(undone["directory"], Undone::REMOVED);
}

#[tokio::test]
async fn c20_f100_a_tree_deleted_by_hand_is_gone_and_only_our_entry_goes() {
    let fixture = Fixture::new();
    let usb = fixture.path().join("usb");
    git(
        &fixture.repository,
        &["worktree", "add", "-q", "-b", "usb", usb.to_str().unwrap()],
    );
    fs::rename(&usb, fixture.path().join("usb.away")).unwrap();
    let launch = fixture.launch().await;
    fs::remove_dir_all(launch.tree()).unwrap();
    let undone = fixture.undo(&launch, REMOVE).await;
    assert!(
        undone.values().all(|undone| *undone == Undone::REMOVED),
        "{undone:?}"
    );
    let list = git(&fixture.repository, &["worktree", "list"]);
    assert!(list.contains("usb") && list.lines().count() == 2, "{list}");
}

#[tokio::test]
async fn f051_f058_a_tree_that_was_swapped_is_not_ours() {
    let fixture = Fixture::new();
    let victim = fixture.path().join("victim");
    write(victim.join("data"), "keep\n");
    let launch = fixture.launch().await;
    fs::copy(launch.tree().join(".git"), victim.join(".git")).unwrap();
    let away = fixture.path().join("away");
    fs::rename(launch.tree(), &away).unwrap();
    symlink(&victim, launch.tree()).unwrap();
    let record = launch.record("worktree");
    for options in [REMOVE, FORCE, FAILURE] {
        let undone = fixture.preparer().undo(&record, options).await.unwrap();
        assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    }
    assert!(victim.join("data").is_file() && away.join("f").is_file());
    // Another directory at its place.
    let launch = fixture.launch().await;
    fs::rename(launch.tree(), fixture.path().join("away2")).unwrap();
    write(launch.tree().join("notes"), "mine\n");
    let undone = fixture
        .preparer()
        .undo(&launch.record("worktree"), FORCE)
        .await
        .unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    assert!(launch.tree().join("notes").is_file());
}

#[tokio::test]
async fn f052_a_directory_whose_parent_became_a_link_is_left() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    let directory = launch.tree().parent().unwrap().to_owned();
    let away = fixture.path().join("away");
    fs::rename(&directory, &away).unwrap();
    symlink(&away, &directory).unwrap();
    let undone = fixture
        .preparer()
        .undo(&launch.record("directory"), FORCE)
        .await
        .unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    let undone = fixture
        .preparer()
        .undo(&launch.record("worktree"), FORCE)
        .await
        .unwrap();
    assert!(
        away.join(launch.tree().file_name().unwrap())
            .join("f")
            .is_file(),
        "{undone:?}"
    );
}

#[tokio::test]
async fn f060_c18_without_marker_and_registration_force_still_removes_and_follows_no_link() {
    let fixture = Fixture::new();
    write(fixture.repository.join("deps/k"), "keep\n");
    write(fixture.repository.join(".git/info/exclude"), "deps\n");
    for registered in [true, false] {
        let launch = fixture.launch().await;
        symlink(fixture.repository.join("deps"), launch.tree().join("deps")).unwrap();
        symlink("/", launch.tree().join("rootlink")).unwrap();
        fs::remove_file(launch.tree().join("../.groundcrew-workspace.json")).unwrap();
        if !registered {
            fs::remove_dir_all(fixture.repository.join(".git/worktrees")).unwrap();
        }
        let undone = fixture.undo(&launch, FORCE).await;
        assert!(
            matches!(undone["worktree"], Undone::Removed { snapshot: Some(_) }),
            "{undone:?}"
        );
        assert!(!launch.tree().exists());
        assert_eq!(
            fixture
                .preparer()
                .expire_trash(Duration::ZERO)
                .await
                .unwrap(),
            1
        );
        assert!(fixture.repository.join("deps/k").is_file());
    }
}

#[tokio::test]
async fn c30_a_filled_submodule_is_kept() {
    let fixture = Fixture::new();
    let sub = fixture.path().join("sub");
    fs::create_dir(&sub).unwrap();
    git(&sub, &["init", "-q"]);
    git(&sub, &["commit", "-q", "--allow-empty", "-m", "sub"]);
    git(
        &fixture.repository,
        &["submodule", "--quiet", "add", sub.to_str().unwrap(), "lib"],
    );
    git(&fixture.repository, &["commit", "-qm", "sub"]);
    let launch = fixture.launch().await;
    assert!(
        launch
            .contribution
            .warnings
            .iter()
            .any(|warning| warning.contains("lib"))
    );
    assert!(fixture.losses(&launch, REMOVE).await.is_empty());
    git(launch.tree(), &["submodule", "--quiet", "update", "--init"]);
    write(launch.tree().join("lib/new"), "x\n");
    let losses = fixture.losses(&launch, REMOVE).await;
    assert!(
        losses
            .iter()
            .any(|f| f.what == "nested_repository" && f.items == ["lib"]),
        "{losses:?}"
    );
    // A start inside the submodule works on the submodule.
    let mut spec = fixture.spec();
    spec.path = fixture.repository.join("lib");
    let launch = fixture
        .launch_with(
            &request(WorkspaceRequest::Worktree(vec![spec])),
            Recorder::default(),
        )
        .await;
    launch.result.as_ref().unwrap();
    assert_eq!(git(launch.tree(), &["log", "-1", "--format=%s"]), "sub");
    let undone = fixture.undo(&launch, REMOVE).await;
    assert!(
        undone.values().all(|undone| *undone == Undone::REMOVED),
        "{undone:?}"
    );
}

#[tokio::test]
async fn f057_names_are_bytes_everywhere() {
    let mut fixture = Fixture::new();
    let place = fixture.path().join(OsStr::from_bytes(b"re po\xff"));
    fs::rename(&fixture.repository, &place).unwrap();
    fixture.repository = place;
    let odd = OsStr::from_bytes(b"d\xff\nx/-f \xfe");
    write(fixture.repository.join(odd), "tracked\n");
    git(&fixture.repository, &["add", "."]);
    git(&fixture.repository, &["commit", "-qm", "odd"]);
    let launch = fixture.launch().await;
    assert!(fixture.losses(&launch, REMOVE).await.is_empty());
    write(launch.tree().join(odd), "changed\n");
    let new = OsStr::from_bytes(b"d\xff\nx/new\xfe");
    write(launch.tree().join(new), "untracked\n");
    assert_eq!(
        kinds(&fixture.losses(&launch, REMOVE).await),
        ["modified", "untracked"]
    );
    let undone = fixture.undo(&launch, FORCE).await;
    let Undone::Removed {
        snapshot: Some(name),
    } = &undone["worktree"]
    else {
        panic!("{undone:?}");
    };
    let mut object = OsString::from(format!("{name}:"));
    object.push(new);
    let text = git(&fixture.repository, &[OsStr::new("show"), &object]);
    assert_eq!(text, "untracked");
}
