//! Files that are taken along: which ones, how, and that they are nobody's work until somebody changes them.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use crate::fixture::*;
use groundcrew_core::{
    cancel::CancelToken,
    error::ErrorKind,
    preparer::Preparer as _,
    undo::Undone,
    workspace::{CloneObjects, RepositorySpec, WorkspaceRequest},
};

/// A repository with many kinds of files that git does not track.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let at = |name: &str| fixture.repository.join(name);
    write(at(".env"), "KEY=1\n");
    write(at("sub/.env.local"), "KEY=2\n");
    write(at("noise"), "stays\n");
    write(at("target/deep/er/built"), "binary\n");
    fs::set_permissions(
        at("target/deep/er/built"),
        fs::Permissions::from_mode(0o750),
    )
    .unwrap();
    symlink("deep/er/built", at("target/link")).unwrap();
    fixture
}

fn with(fixture: &Fixture, include: &[&str]) -> RepositorySpec {
    RepositorySpec {
        include: include.iter().map(|&line| line.to_owned()).collect(),
        ..fixture.spec()
    }
}

async fn launched(fixture: &Fixture, include: &[&str]) -> Launch {
    let request = request(WorkspaceRequest::Worktree(vec![with(fixture, include)]));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    launch
}

fn exists(launch: &Launch, name: &str) -> bool {
    launch.tree().join(name).symlink_metadata().is_ok()
}

#[tokio::test]
async fn c30_what_the_checkout_and_the_request_name_is_taken_along_as_it_is() {
    let fixture = fixture();
    write(
        fixture.repository.join(".worktreeinclude"),
        "# secrets of one's own\n.env*\n",
    );
    let launch = launched(&fixture, &["/target"]).await;
    for name in [".env", "sub/.env.local"] {
        assert_eq!(
            fs::read(launch.tree().join(name)).unwrap(),
            fs::read(fixture.repository.join(name)).unwrap()
        );
    }
    assert!(!exists(&launch, "noise"), "nobody named it");
    assert!(
        !exists(&launch, ".worktreeinclude"),
        "it names others, not itself"
    );
    let built = launch.tree().join("target/deep/er/built");
    let (made, source) = (
        built.metadata().unwrap(),
        fixture
            .repository
            .join("target/deep/er/built")
            .metadata()
            .unwrap(),
    );
    assert_eq!(made.mode(), source.mode());
    assert_eq!(made.modified().unwrap(), source.modified().unwrap());
    assert_ne!(made.ino(), source.ino());
    let link = launch.tree().join("target/link");
    assert_eq!(fs::read_link(link).unwrap(), Path::new("deep/er/built"));

    // As long as they are as they were, they are nobody's work, and go without a trace.
    let record = launch.record("worktree");
    let assessment = fixture.preparer().assess(&record, REMOVE).await.unwrap();
    assert!(!assessment.changed, "{assessment:?}");
    let report = fixture.preparer().report(launch.workspace()).await.unwrap();
    assert!(!report.dirty);
    for (key, undone) in fixture.undo(&launch, REMOVE).await {
        assert_eq!(undone, Undone::REMOVED, "{key}");
    }
    fixture.assert_home_is_empty();
    assert!(fixture.repository.join("target/deep/er/built").exists());
}

#[tokio::test]
async fn f058_a_copy_that_was_changed_keeps_the_workspace_and_is_named() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 4] = [
        (|tree| write(tree.join("notes"), "KEY=2\n"), "notes"),
        (
            |tree| {
                let more = fs::Permissions::from_mode(0o755);
                fs::set_permissions(tree.join("notes"), more).unwrap();
            },
            "notes",
        ),
        (
            |tree| {
                fs::remove_file(tree.join("notes")).unwrap();
                symlink("f", tree.join("notes")).unwrap();
            },
            "notes",
        ),
        (|tree| write(tree.join("more"), "new\n"), "more"),
    ];
    for (change, named) in changes {
        let fixture = fixture();
        write(fixture.repository.join("notes"), "KEY=1\n");
        let launch = launched(&fixture, &["notes"]).await;
        assert!(fixture.losses(&launch, REMOVE).await.is_empty());
        change(launch.tree());
        let losses = fixture.losses(&launch, REMOVE).await;
        assert_eq!(kinds(&losses), ["untracked"], "{named}");
        assert_eq!(losses[0].items, [named]);
        let undone = fixture.undo(&launch, REMOVE).await;
        assert!(matches!(undone["worktree"], Undone::Kept(_)), "{undone:?}");
        assert!(exists(&launch, "notes"));
    }
}

#[tokio::test]
async fn f058_what_was_built_beside_copies_that_are_ignored_is_work_as_ever() {
    let fixture = fixture();
    let launch = launched(&fixture, &["/target"]).await;
    let record = launch.record("worktree");
    let changed = async || {
        let assessment = fixture.preparer().assess(&record, REMOVE).await;
        assessment.unwrap().changed
    };
    assert!(!changed().await);
    write(launch.tree().join("target/new"), "built\n");
    assert!(changed().await);
    // Ignored files are no loss, yet they rest in the trash for a while.
    let undone = fixture.undo(&launch, REMOVE).await;
    assert_eq!(undone["worktree"], Undone::REMOVED);
    let trash = fs::read_dir(fixture.home().join("trash")).unwrap();
    assert!(trash.count() > 0);
}

#[tokio::test]
async fn f061_w21_nothing_that_is_there_is_replaced_and_no_link_is_followed() {
    let fixture = fixture();
    let outside = fixture.path().join("outside");
    write(outside.join("victim"), "whole\n");
    // The start point has a file and a link where the checkout has files to take along.
    let at = |name: &str| fixture.repository.join(name);
    write(at("taken"), "of the start point\n");
    symlink(&outside, at("way")).unwrap();
    git(&fixture.repository, &["add", "taken", "way"]);
    git(&fixture.repository, &["commit", "-qm", "more"]);
    git(
        &fixture.repository,
        &["rm", "-q", "--cached", "taken", "way"],
    );
    fs::remove_file(at("way")).unwrap();
    write(at("taken"), "of the checkout\n");
    write(at("way/victim"), "hit\n");
    // And links that lead out stay where they are.
    symlink("/etc/passwd", at("absolute")).unwrap();
    symlink("../outside/victim", at("upwards")).unwrap();
    symlink(&outside, at("directory")).unwrap();
    let spec = with(
        &fixture,
        &["taken", "way", "absolute", "upwards", "directory"],
    );
    let request = request(WorkspaceRequest::Worktree(vec![spec]));
    let recorder = Recorder::default();
    let launch = launch(
        &fixture.preparer(),
        &fixture.install,
        &request,
        &recorder,
        &CancelToken::new(),
    )
    .await;
    launch.result.as_ref().unwrap();
    let tree = launch.tree();
    assert_eq!(
        fs::read_to_string(tree.join("taken")).unwrap(),
        "of the start point\n"
    );
    assert_eq!(
        fs::read_to_string(outside.join("victim")).unwrap(),
        "whole\n"
    );
    for name in ["absolute", "upwards", "directory"] {
        assert!(!exists(&launch, name), "{name}");
    }
    let lines = recorder.lines.lock().unwrap().join("\n");
    for word in [
        "taken is there already",
        "leads out of the repository",
        "in its way",
    ] {
        assert!(lines.contains(word), "{word}: {lines}");
    }
    assert!(fixture.losses(&launch, REMOVE).await.is_empty());
}

#[tokio::test]
async fn c18_a_linked_directory_is_a_link_and_survives_the_removal() {
    let fixture = fixture();
    let launch = launched(&fixture, &["/target:symlink", ".env:symlink"]).await;
    let link = launch.tree().join("target");
    assert_eq!(
        fs::read_link(&link).unwrap(),
        fixture.repository.join("target")
    );
    assert_eq!(
        fs::read_link(launch.tree().join(".env")).unwrap(),
        fixture.repository.join(".env")
    );
    for (key, undone) in fixture.undo(&launch, REMOVE).await {
        assert_eq!(undone, Undone::REMOVED, "{key}");
    }
    assert!(fixture.repository.join("target/deep/er/built").exists());
    assert!(fixture.repository.join(".env").exists());
}

#[tokio::test]
async fn f062_wrong_patterns_fail_the_plan_by_name() {
    let fixture = fixture();
    for wrong in ["../x", ".git/config", ":symlink"] {
        let error = fixture
            .plan_spec(with(&fixture, &[wrong]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(wrong), "{error}");
    }
    write(fixture.repository.join(".worktreeinclude"), "fine\n../up\n");
    let error = fixture.plan_spec(fixture.spec()).await.unwrap_err();
    assert!(error.to_string().contains(".worktreeinclude"), "{error}");
    let spec = RepositorySpec {
        no_include_file: true,
        ..fixture.spec()
    };
    fixture.plan_spec(spec).await.unwrap();
    fs::remove_file(fixture.repository.join(".worktreeinclude")).unwrap();
    symlink("/etc/passwd", fixture.repository.join(".worktreeinclude")).unwrap();
    let error = fixture.plan_spec(fixture.spec()).await.unwrap_err();
    assert!(error.to_string().contains("is a link"), "{error}");
}

#[tokio::test]
async fn f053_repositories_pipes_and_the_git_directory_stay() {
    let fixture = fixture();
    let at = |name: &str| fixture.repository.join(name);
    git(&fixture.repository, &["init", "-q", "all/inner"]);
    write(at("all/inner/file"), "x\n");
    write(at("all/fine"), "x\n");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("all/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let launch = launched(&fixture, &["/all", "*"]).await;
    assert!(exists(&launch, "all/fine"));
    assert!(!exists(&launch, "all/pipe") && !exists(&launch, "all/inner"));
    assert!(exists(&launch, "noise"));
    assert!(launch.tree().join(".git").is_file(), "the worktree's own");
    assert_eq!(
        git(launch.tree(), &["branch", "--show-current"]),
        launch.branch()
    );
}

#[tokio::test]
async fn f127_a_launch_that_fails_while_files_are_taken_along_leaves_nothing() {
    for clones in [false, true] {
        for point in ["include-begun", "files-taken", "included", "checked-out"] {
            let fixture = fixture();
            let before = fixture.fingerprint();
            let specs = vec![with(&fixture, &["noise", "/target", ".env*"])];
            let workspace = if clones {
                WorkspaceRequest::Clone {
                    repositories: specs,
                    objects: CloneObjects::Copied,
                }
            } else {
                WorkspaceRequest::Worktree(specs)
            };
            let recorder = Recorder {
                fail_at: Some(point),
                ..Recorder::default()
            };
            let launch = fixture.launch_with(&request(workspace), recorder).await;
            launch.result.as_ref().unwrap_err();
            for (key, undone) in fixture.undo(&launch, FAILURE).await {
                assert!(
                    !matches!(undone, Undone::Kept(_)),
                    "{point} {key}: {undone:?}"
                );
            }
            fixture.assert_same(&before, point);
            fixture.assert_home_is_empty();
        }
    }
}

#[tokio::test]
async fn f056_more_than_is_ever_taken_along_is_an_error_that_says_the_limits() {
    let fixture = fixture();
    let huge = fs::File::create(fixture.repository.join("huge")).unwrap();
    // It has no blocks: only its length counts here.
    huge.set_len(5 << 30).unwrap();
    let spec = with(&fixture, &["huge", ".env"]);
    let request = request(WorkspaceRequest::Worktree(vec![spec]));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    let error = launch.result.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(error.get("most_files"), Some("50000"));
    assert_eq!(error.get("most_bytes"), Some("4294967296"));
    assert!(error.to_string().contains(":symlink"), "{error}");
    for (key, undone) in fixture.undo(&launch, FAILURE).await {
        assert!(!matches!(undone, Undone::Kept(_)), "{key}: {undone:?}");
    }
    fixture.assert_home_is_empty();
}

#[tokio::test]
async fn f138_a_cancellation_while_files_are_taken_along_leaves_nothing() {
    let fixture = fixture();
    let before = fixture.fingerprint();
    let request = request(WorkspaceRequest::Worktree(vec![with(&fixture, &["*"])]));
    let recorder = Recorder {
        cancel_at: Some(("include-begun", CancelToken::new())),
        ..Recorder::default()
    };
    let launch = fixture.launch_with(&request, recorder).await;
    assert_eq!(
        launch.result.as_ref().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    for (key, undone) in fixture.undo(&launch, FAILURE).await {
        assert!(!matches!(undone, Undone::Kept(_)), "{key}: {undone:?}");
    }
    fixture.assert_same(&before, "repository");
    fixture.assert_home_is_empty();
}
