//! Making worktrees, and taking back those in which nothing was done.

use std::fs;

use crate::fixture::*;
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    id::{AttemptId, RunId},
    preparer::{PlanContext, Preparer as _},
    undo::{Due, Undone},
    workspace::{CloneObjects, WorkspaceRequest},
};

#[tokio::test]
async fn a_worktree_is_made_and_taken_back_without_a_trace() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let launch = fixture.launch().await;
    assert_eq!(
        launch.passed,
        [
            "directory-made",
            "branch-made",
            "worktree-added",
            "files-written",
            "checked-out"
        ]
    );
    let tree = launch.tree();
    assert_eq!(fs::read_to_string(tree.join("f")).unwrap(), "one\n");
    assert_eq!(git(tree, &["branch", "--show-current"]), launch.branch());
    assert_eq!(git(tree, &["status", "--porcelain"]), "");
    assert!(
        git(&fixture.repository, &["worktree", "list", "--porcelain"])
            .contains(&format!("locked groundcrew:testinstall/{}", launch.attempt))
    );
    let report = fixture.preparer().report(launch.workspace()).await.unwrap();
    assert_eq!((report.commit_count, report.dirty), (0, false));
    let reopened = reopen(&fixture.preparer(), launch.workspace())
        .await
        .unwrap();
    assert!(reopened.resources.is_empty() && reopened.workspace.is_none());
    assert_eq!(fixture.preparer().list().await.unwrap().len(), 1);

    let assessment = fixture
        .preparer()
        .assess(&launch.record("worktree"), REMOVE)
        .await
        .unwrap();
    assert!(
        !assessment.changed && assessment.losses.is_empty(),
        "{assessment:?}"
    );
    for (key, undone) in fixture.undo(&launch, REMOVE).await {
        assert_eq!(undone, Undone::REMOVED, "{key}");
    }
    fixture.assert_same(&before, "repository");
    fixture.assert_home_is_empty();
    for (key, undone) in fixture.undo(&launch, REMOVE).await {
        assert_eq!(undone, Undone::AlreadyGone, "{key}");
    }
}

#[tokio::test]
async fn the_callers_subdirectory_is_kept_and_a_new_one_is_told() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec();
    spec.path = fixture.repository.join("sub/dir");
    let contribution = fixture.plan_spec(spec.clone()).await.unwrap();
    let workspace = contribution.workspace.unwrap();
    assert_eq!(workspace.directory, workspace.path.join("sub/dir"));
    assert_eq!(workspace.repository.as_deref(), Some(&*fixture.repository));
    let name = workspace.path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("app-") && name.len() == 10, "{name}");
    fs::create_dir(fixture.repository.join("new")).unwrap();
    spec.path = fixture.repository.join("new");
    let contribution = fixture.plan_spec(spec).await.unwrap();
    let workspace = contribution.workspace.unwrap();
    assert_eq!(workspace.directory, workspace.path);
    assert!(contribution.warnings.iter().any(|w| w.contains("new")));
}

#[tokio::test]
async fn a_plan_has_no_effect_and_repeats_itself() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
    let cx = PlanContext {
        request: &request,
        install: &fixture.install,
        run: &run,
        attempt,
    };
    let preparer = fixture.preparer();
    let one = preparer.plan(cx).await.unwrap().unwrap();
    let two = preparer.plan(cx).await.unwrap().unwrap();
    assert_eq!((&one.resources, &one.state), (&two.resources, &two.state));
    let keys: Vec<_> = one.resources.iter().map(|r| (&*r.key, r.due)).collect();
    assert_eq!(
        keys,
        [
            ("directory", Due::Close),
            ("branch", Due::Remove),
            ("worktree", Due::Close)
        ]
    );
    fixture.assert_same(&before, "repository");
    assert!(!fixture.home().exists());
    let other = request_in_place();
    let none = preparer
        .plan(PlanContext {
            request: &other,
            ..cx
        })
        .await
        .unwrap();
    assert!(none.is_none());
}

fn request_in_place() -> groundcrew_core::request::LaunchRequest {
    request(WorkspaceRequest::InPlace { path: "/".into() })
}

async fn refused(fixture: &Fixture, base: Option<&str>, branch: Option<&str>) -> Error {
    let mut spec = fixture.spec();
    spec.base = base.map(str::to_owned);
    spec.branch = branch.map(str::to_owned);
    let before = fixture.fingerprint();
    let error = fixture.plan_spec(spec).await.unwrap_err();
    fixture.assert_same(&before, "repository");
    assert!(!fixture.home().exists());
    error
}

#[tokio::test]
async fn c26_f086_f087_f088_a_branch_that_cannot_be_made_is_refused_at_plan() {
    let fixture = Fixture::new();
    git(&fixture.repository, &["branch", "topic"]);
    git(&fixture.repository, &["branch", "dir/leaf"]);
    let held = fixture.path().join("held");
    git(
        &fixture.repository,
        &["worktree", "add", "-q", held.to_str().unwrap(), "topic"],
    );
    let error = refused(&fixture, None, Some("topic")).await;
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.get("checked_out_at"), held.to_str());
    let error = refused(&fixture, None, Some("main")).await;
    assert_eq!(error.get("checked_out_at"), fixture.repository.to_str());
    for branch in ["dir", "dir/leaf/x", "topic/x"] {
        let error = refused(&fixture, None, Some(branch)).await;
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{branch}");
    }
    git(&fixture.repository, &["pack-refs", "--all"]);
    for branch in ["dir", "dir/leaf/x", "dir/leaf"] {
        let error = refused(&fixture, None, Some(branch)).await;
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{branch}");
    }
    for branch in ["a..b", "-x", "x.lock", "@", "HEAD", "refs/heads/q", "a b"] {
        let error = refused(&fixture, None, Some(branch)).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{branch}");
    }
}

#[tokio::test]
async fn c26_f088_a_bad_start_point_and_a_bad_branch_are_told_at_once() {
    let fixture = Fixture::new();
    for (branch, words) in [
        ("a..b", "the branch name is not"),
        ("main", "exists already"),
    ] {
        let base = refused(&fixture, Some("no-such"), None).await;
        let alone = refused(&fixture, None, Some(branch)).await;
        let both = refused(&fixture, Some("no-such"), Some(branch)).await;
        assert!(alone.message().contains(words), "{alone}");
        assert_eq!(both.kind(), ErrorKind::NotFound);
        let message = format!("{}; {}", base.message(), alone.message());
        assert_eq!(both.message(), message);
        let context: Vec<_> = base.context().chain(alone.context()).collect();
        assert_eq!(both.context().collect::<Vec<_>>(), context);
    }
    let mut spec = fixture.spec();
    spec.path = fixture.path();
    spec.branch = Some("a..b".to_owned());
    let error = fixture.plan_spec(spec).await.unwrap_err();
    for words in ["git init", "; the branch name is not"] {
        assert!(error.message().contains(words), "{error}");
    }
}

#[tokio::test]
async fn c40_f089_a_repository_without_a_commit_is_refused_with_what_to_do() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec();
    spec.path = fixture.path().join("empty");
    fs::create_dir(&spec.path).unwrap();
    git(&spec.path, &["init", "-q"]);
    let error = fixture.plan_spec(spec.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("first commit"), "{error}");
    git(
        &fixture.repository,
        &["symbolic-ref", "HEAD", "refs/heads/gone"],
    );
    let error = refused(&fixture, None, None).await;
    assert_eq!(error.get("HEAD"), Some("refs/heads/gone"));
    spec.path = fixture.path();
    let error = fixture.plan_spec(spec).await.unwrap_err();
    assert!(error.message().contains("git init"), "{error}");
}

#[tokio::test]
async fn c27_a_start_point_is_resolved_to_a_commit_and_never_checked_out_itself() {
    let fixture = Fixture::new();
    let up = &fixture.repository;
    git(up, &["branch", "develop"]);
    git(up, &["tag", "-a", "-m", "t", "v1"]);
    let clone = fixture.path().join("clone");
    git(
        up,
        &["clone", "-q", up.to_str().unwrap(), clone.to_str().unwrap()],
    );
    let mut spec = fixture.spec();
    spec.path = clone.clone();
    let tip = git(&clone, &["rev-parse", "HEAD"]);
    for base in [
        "develop",
        "origin/develop",
        "main",
        "v1",
        "HEAD",
        &tip[..8],
        "refs/heads/main",
    ] {
        spec.base = Some(base.to_owned());
        let request = request(WorkspaceRequest::Worktree(vec![spec.clone()]));
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        launch.result.as_ref().unwrap();
        assert_eq!(launch.workspace().base.as_deref(), Some(&*tip), "{base}");
        assert_eq!(
            git(launch.tree(), &["branch", "--show-current"]),
            launch.branch()
        );
        fixture.undo(&launch, REMOVE).await;
    }
    assert_eq!(
        git(&clone, &["branch", "--format=%(refname)"]),
        "refs/heads/main"
    );
    assert!(
        !fs::read_to_string(clone.join(".git/config"))
            .unwrap()
            .contains("groundcrew")
    );
    for _ in 0..2 {
        git(up, &["commit", "-q", "--allow-empty", "-m", "ahead"]);
    }
    git(&clone, &["fetch", "-q"]);
    spec.base = Some("main".to_owned());
    let warnings = fixture.plan_spec(spec.clone()).await.unwrap().warnings;
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("2 commits behind origin/main")),
        "{warnings:?}"
    );
    git(&clone, &["remote", "add", "second", up.to_str().unwrap()]);
    git(&clone, &["fetch", "-q", "second"]);
    spec.base = Some("develop".to_owned());
    let error = fixture.plan_spec(spec.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    spec.base = Some("no-such".to_owned());
    let error = fixture.plan_spec(spec).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.get("base")),
        (ErrorKind::NotFound, Some("\"no-such\""))
    );
}

#[tokio::test]
async fn f090_bare_and_linked_repositories_work() {
    let fixture = Fixture::new();
    let bare = fixture.path().join("app.git");
    git(
        &fixture.repository,
        &["clone", "-q", "--bare", ".", bare.to_str().unwrap()],
    );
    let linked = fixture.path().join("linked");
    git(
        &fixture.repository,
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            "side",
            linked.to_str().unwrap(),
        ],
    );
    git(
        &linked,
        &["commit", "-q", "--allow-empty", "-m", "on the side"],
    );
    for (path, subject) in [(bare, "first"), (linked, "on the side")] {
        let mut spec = fixture.spec();
        spec.path = path.clone();
        let request = request(WorkspaceRequest::Worktree(vec![spec]));
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        launch.result.as_ref().unwrap();
        assert_eq!(git(launch.tree(), &["log", "-1", "--format=%s"]), subject);
        assert_eq!(launch.workspace().repository.as_deref(), Some(&*path));
        let report = fixture.preparer().report(launch.workspace()).await.unwrap();
        assert_eq!((report.commit_count, report.dirty), (0, false));
        let undone = fixture.undo(&launch, REMOVE).await;
        assert!(
            undone.values().all(|undone| *undone == Undone::REMOVED),
            "{undone:?}"
        );
    }
    fixture.assert_home_is_empty();
}

#[tokio::test]
async fn a_dirty_checkout_is_a_warning_and_stays_as_it_is() {
    let fixture = Fixture::new();
    write(fixture.repository.join("f"), "mine\n");
    write(fixture.repository.join("u"), "mine\n");
    git(&fixture.repository, &["add", "f"]);
    let before = fixture.fingerprint();
    let launch = fixture.launch().await;
    let warnings = &launch.contribution.warnings;
    assert!(
        warnings.iter().any(|w| w.contains("uncommitted")),
        "{warnings:?}"
    );
    assert_eq!(
        fs::read_to_string(launch.tree().join("f")).unwrap(),
        "one\n"
    );
    fixture.undo(&launch, REMOVE).await;
    fixture.assert_same(&before, "repository");
}

#[tokio::test]
async fn k32_how_many_files_are_written_is_told_while_they_are() {
    let fixture = Fixture::new();
    for number in 0..1_500 {
        write(fixture.repository.join(format!("many/{number}")), "x\n");
    }
    git(&fixture.repository, &["add", "."]);
    git(&fixture.repository, &["commit", "-qm", "many"]);
    for clone in [false, true] {
        let request = request(if clone {
            WorkspaceRequest::Clone {
                repositories: vec![fixture.spec()],
                objects: CloneObjects::Shared,
            }
        } else {
            WorkspaceRequest::Worktree(vec![fixture.spec()])
        });
        let recorder = Recorder::default();
        let cancel = CancelToken::new();
        let preparer = fixture.preparer();
        let launch = launch(&preparer, &fixture.install, &request, &recorder, &cancel).await;
        launch.result.as_ref().unwrap();
        let lines = recorder.lines.lock().unwrap().clone();
        let counts: Vec<u64> = lines
            .iter()
            .filter_map(|line| {
                line.strip_prefix("writing files: ")?
                    .strip_suffix(" of 1504")
            })
            .map(|done| done.parse().unwrap())
            .collect();
        assert!((3..=21).contains(&counts.len()), "{lines:?}");
        assert!(counts.is_sorted(), "{counts:?}");
        assert_eq!(counts.last(), Some(&1504));
    }
}
