//! Several repositories in one workspace: named apart, made together or not at all, kept whole.

use std::{fs, path::PathBuf};

use groundcrew_core::{
    error::{Error, ErrorKind},
    preparer::{Contribution, Preparer as _},
    undo::Undone,
    workspace::{CloneObjects, Destination, RepositorySpec, WorkspaceRequest},
};

use crate::fixture::*;

/// Makes another repository beside that of the fixture.
fn another(fixture: &Fixture, name: &str) -> PathBuf {
    let path = fixture.path().join(name);
    fs::create_dir_all(&path).unwrap();
    git(&path, &["init", "-q"]);
    write(path.join("own"), "other\n");
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "other"]);
    path
}

fn with(spec: RepositorySpec, change: impl FnOnce(&mut RepositorySpec)) -> RepositorySpec {
    let mut spec = spec;
    change(&mut spec);
    spec
}

async fn plan(fixture: &Fixture, specs: Vec<RepositorySpec>) -> Result<Contribution, Error> {
    fixture
        .plan(&request(WorkspaceRequest::Worktree(specs)))
        .await
}

#[tokio::test]
async fn several_repositories_are_siblings_in_a_directory_of_ours() {
    let fixture = Fixture::new();
    let other = another(&fixture, "Lib");
    let before = (fixture.fingerprint(), git(&other, &["show-ref"]));
    let specs = vec![
        fixture.spec(),
        with(fixture.spec(), |spec| {
            spec.branch = Some("topic/x".to_owned());
        }),
        RepositorySpec::new(&other),
    ];
    let request = request(WorkspaceRequest::Worktree(specs));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    let workspace = launch.workspace().clone();
    let names: Vec<_> = workspace
        .repositories
        .iter()
        .map(|part| {
            assert_eq!(part.path.parent(), Some(&*workspace.path));
            let name = part.path.file_name().unwrap().to_str().unwrap();
            name.rsplit_once('-').unwrap().0.to_owned()
        })
        .collect();
    assert_eq!(names, ["app", "app-topic-x", "lib"]);
    assert_eq!(workspace.directory, workspace.path);
    assert_eq!(
        (&workspace.repository, &workspace.branch),
        (
            &Some(fixture.repository.clone()),
            &Some(workspace.repositories[0].branch.clone())
        )
    );
    for part in &workspace.repositories {
        let branch = git(&part.path, &["branch", "--show-current"]);
        assert_eq!(branch, part.branch);
        assert_eq!(git(&part.path, &["status", "--porcelain"]), "");
    }
    assert_eq!(workspace.repositories[1].branch, "topic/x");
    assert!(workspace.repositories[2].path.join("own").is_file());
    let preparer = fixture.preparer();
    reopen(&preparer, &workspace).await.unwrap();
    let report = preparer.report(&workspace).await.unwrap();
    assert_eq!((report.commit_count, report.dirty), (0, false));
    git(
        &workspace.repositories[2].path,
        &["commit", "-q", "--allow-empty", "-m", "work"],
    );
    write(workspace.path.join("notes"), "x\n");
    let report = preparer.report(&workspace).await.unwrap();
    assert_eq!((report.commit_count, report.dirty), (1, true));
    let losses = preparer
        .assess(&launch.record("directory"), CLOSE)
        .await
        .unwrap()
        .losses;
    assert_eq!(losses[0].items, ["notes"]);
    fs::remove_file(workspace.path.join("notes")).unwrap();
    let undone = fixture.undo(&launch, CLOSE).await;
    assert!(undone.values().all(|u| *u == Undone::REMOVED), "{undone:?}");
    assert_eq!(undone.len(), 4);
    let undone = fixture.undo(&launch, REMOVE).await;
    assert!(matches!(undone["branch-3"], Undone::Kept(_)), "{undone:?}");
    assert_eq!(undone["branch-2"], Undone::REMOVED);
    git(
        &other,
        &["branch", "-qD", &workspace.repositories[2].branch],
    );
    fixture.assert_same(&before.0, "repository");
    assert_eq!(git(&other, &["show-ref"]), before.1);
    fixture.assert_home_is_empty();
}

#[tokio::test]
async fn lists_of_files_that_were_taken_along_are_nothing_that_anybody_left() {
    let fixture = Fixture::new();
    write(fixture.repository.join("notes"), "KEY=1\n");
    let other = another(&fixture, "lib");
    let first = with(fixture.spec(), |spec| {
        spec.include = vec!["notes".to_owned()];
    });
    let specs = vec![first, RepositorySpec::new(&other)];
    let request = request(WorkspaceRequest::Worktree(specs));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    let workspace = launch.workspace();
    assert!(workspace.repositories[0].path.join("notes").is_file());
    let preparer = fixture.preparer();
    assert!(!preparer.report(workspace).await.unwrap().dirty);
    // The name of a list says nothing where it is that of no tree.
    write(workspace.path.join(".groundcrew-included.other"), "x\n");
    assert!(preparer.report(workspace).await.unwrap().dirty);
}

#[tokio::test]
async fn f067_several_repositories_that_end_at_any_checkpoint_leave_nothing() {
    let fixture = Fixture::new();
    let other = another(&fixture, "lib");
    let before = (fixture.fingerprint(), git(&other, &["show-ref"]));
    for clones in [false, true] {
        let specs = || {
            vec![
                fixture.spec(),
                with(fixture.spec(), |spec| spec.branch = Some("x".to_owned())),
                RepositorySpec::new(&other),
            ]
        };
        let request = || {
            request(if clones {
                WorkspaceRequest::Clone {
                    repositories: specs(),
                    objects: CloneObjects::Copied,
                }
            } else {
                WorkspaceRequest::Worktree(specs())
            })
        };
        let whole = fixture.launch_with(&request(), Recorder::default()).await;
        whole.result.as_ref().unwrap();
        assert_undone(&fixture, &whole, "whole").await;
        assert!(whole.passed.len() >= 10, "{:?}", whole.passed);
        for at in &whole.passed {
            let at: &'static str = at.clone().leak();
            let recorder = Recorder {
                fail_at: Some(at),
                ..Recorder::default()
            };
            let mut launch = fixture.launch_with(&request(), recorder).await;
            assert!(launch.result.is_err(), "{at}");
            // What was identified may be lost with the machine.
            launch.identities.clear();
            assert_undone(&fixture, &launch, at).await;
            fixture.assert_same(&before.0, at);
            assert_eq!(git(&other, &["show-ref"]), before.1, "{at}");
            assert!(!other.join(".git/worktrees").exists(), "{at}");
            assert!(!other.join(".git/refs/groundcrew").exists(), "{at}");
        }
    }
}

#[tokio::test]
async fn one_failing_repository_takes_the_others_back() {
    let fixture = Fixture::new();
    let other = another(&fixture, "lib");
    let before = fixture.fingerprint();
    // The second repository's branch is taken between plan and making.
    let specs = vec![
        fixture.spec(),
        with(RepositorySpec::new(&other), |spec| {
            spec.branch = Some("wanted".to_owned());
        }),
    ];
    let recorder = Recorder {
        run_at: Some(("worktree-added", other.clone(), |repository| {
            git(repository, &["branch", "wanted"]);
        })),
        ..Recorder::default()
    };
    let request = request(WorkspaceRequest::Worktree(specs));
    let launch = fixture.launch_with(&request, recorder).await;
    let error = launch.result.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let undone = fixture.undo(&launch, FAILURE).await;
    assert!(matches!(undone["branch-2"], Undone::NotOurs(_)));
    fixture.assert_same(&before, "repository");
    fixture.assert_home_is_empty();
    git(&other, &["rev-parse", "--verify", "-q", "wanted"]);
}

#[tokio::test]
async fn work_in_one_repository_keeps_the_workspace_whole() {
    let fixture = Fixture::new();
    let other = another(&fixture, "lib");
    let specs = vec![fixture.spec(), RepositorySpec::new(&other)];
    let request = request(WorkspaceRequest::Worktree(specs));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    let [first, second] = &launch.workspace().repositories[..] else {
        panic!("not two")
    };
    write(first.path.join("work"), "x\n");
    for options in [CLOSE, FAILURE] {
        let undone = fixture.undo(&launch, options).await;
        assert_eq!(kinds(kept(&undone["worktree"])), ["untracked"]);
        assert_eq!(kinds(kept(&undone["worktree-2"])), ["beside"]);
        assert!(first.path.join("work").is_file() && second.path.join("own").is_file());
    }
    let undone = fixture.undo(&launch, FORCE).await;
    assert!(
        matches!(undone["worktree"], Undone::Removed { snapshot: Some(_) }),
        "{undone:?}"
    );
    assert_eq!(undone["worktree-2"], Undone::REMOVED);
    assert_eq!(undone["directory"], Undone::REMOVED);
}

fn destination(provider: &str, host: &str) -> Destination {
    Destination {
        provider: provider.to_owned(),
        host: host.to_owned(),
        path: "a/b".to_owned(),
        url: "https://forge.example/a/b".to_owned(),
    }
}

#[tokio::test]
async fn k9_one_directory_for_two_destinations_is_refused_and_one_target_is_merged() {
    let fixture = Fixture::new();
    let to = |destination| with(fixture.spec(), |spec| spec.destination = Some(destination));
    let error = plan(
        &fixture,
        vec![
            fixture.spec(),
            to(destination("1", "forge.example")),
            to(destination("2", "forge.example")),
        ],
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("one directory"), "{error}");
    assert!(error.get("first").unwrap().contains("forge.example 1"));
    assert!(error.get("second").unwrap().contains("forge.example 2"));
    let planned = plan(
        &fixture,
        vec![
            fixture.spec(),
            to(destination("1", "forge.example")),
            to(destination("1", "FORGE.example")),
        ],
    )
    .await
    .unwrap();
    let repositories = planned.workspace.unwrap().repositories;
    assert_eq!(repositories.len(), 1);
    assert_eq!(
        repositories[0].destination,
        Some(destination("1", "forge.example"))
    );
    // Two repositories of one name are named apart by a slug.
    let other = another(&fixture, "deep/app");
    let other = RepositorySpec::new(other);
    let error = plan(&fixture, vec![fixture.spec(), other.clone()])
        .await
        .unwrap_err();
    let second = error.get("second").unwrap();
    assert!(second.ends_with("deep/app"), "{error:?}");
    let other = with(other, |spec| spec.slug = Some("Deep one".to_owned()));
    let planned = plan(&fixture, vec![fixture.spec(), other]).await.unwrap();
    let repositories = planned.workspace.unwrap().repositories;
    let name = repositories[1].path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("app-deep-one-"), "{name}");
}

#[tokio::test]
async fn k8_the_slug_of_a_path_and_the_identity_of_a_branch_are_two_things() {
    let fixture = Fixture::new();
    git(&fixture.repository, &["branch", "feature/x"]);
    let spec = with(fixture.spec(), |spec| {
        spec.base = Some("feature/x".to_owned());
        spec.slug = Some("feature-x".to_owned());
        spec.identity = Some("feature-x".to_owned());
    });
    let planned = plan(&fixture, vec![spec.clone()]).await.unwrap();
    let [only] = &planned.workspace.unwrap().repositories[..] else {
        panic!("not one")
    };
    assert_eq!(only.identity.as_deref(), Some("feature-x"));
    let name = only.path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("app-feature-x-"), "{name}");
    // The same branch under another path is not taken a second time.
    let again = with(spec.clone(), |spec| spec.slug = Some("other".to_owned()));
    let error = plan(&fixture, vec![spec.clone(), again]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let other = with(spec.clone(), |spec| {
        spec.slug = Some("other".to_owned());
        spec.identity = Some("feature-y".to_owned());
    });
    let planned = plan(&fixture, vec![spec, other]).await.unwrap();
    let repositories = planned.workspace.unwrap().repositories;
    assert_eq!(repositories.len(), 2);
    assert_ne!(repositories[0].branch, repositories[1].branch);
}

#[tokio::test]
async fn c23_a_template_names_the_branch_or_the_plan_says_what_is_wrong_with_it() {
    let fixture = Fixture::new();
    let templated = |template: &str, ticket: Option<&str>| {
        with(fixture.spec(), |spec| {
            spec.template = Some(template.to_owned());
            spec.ticket = ticket.map(str::to_owned);
        })
    };
    let spec = templated("{ticket}/{title}", Some("ABC-1"));
    let mut request = request(WorkspaceRequest::Worktree(vec![spec]));
    request.title = Some("Fix it".to_owned());
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    assert_eq!(launch.branch(), "ABC-1/fix-it");
    // Without the suffix a second one meets the first: an error, never its branch.
    let error = fixture.plan(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.get("checked_out_at"), launch.tree().to_str());
    for (template, ticket) in [("{nope}", None), ("{ticket}", None), ("a..b", None)] {
        let error = fixture
            .plan_spec(templated(template, ticket))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{template}");
        assert_eq!(error.get("template"), Some(&*format!("{template:?}")));
    }
    let undone = fixture.undo(&launch, REMOVE).await;
    assert_eq!(undone["branch"], Undone::REMOVED);
}

#[tokio::test]
async fn two_branches_of_a_request_that_exclude_each_other_are_refused() {
    let fixture = Fixture::new();
    for (one, two) in [("x", "x/y"), ("x/y", "x")] {
        let specs = [one, two]
            .map(|branch| with(fixture.spec(), |spec| spec.branch = Some(branch.to_owned())));
        let error = plan(&fixture, specs.into()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{one} {two}");
        assert_eq!(error.get("in_the_way"), Some(one));
    }
}

#[tokio::test]
async fn k35_without_a_repository_nothing_is_asked_of_this_preparer() {
    let fixture = Fixture::new();
    let request = request(WorkspaceRequest::Worktree(Vec::new()));
    let (attempt, run) = (
        groundcrew_core::id::AttemptId::generate().unwrap(),
        groundcrew_core::id::RunId::generate().unwrap(),
    );
    let planned = fixture
        .preparer()
        .plan(groundcrew_core::preparer::PlanContext {
            request: &request,
            install: &fixture.install,
            run: &run,
            attempt,
        })
        .await
        .unwrap();
    assert!(planned.is_none());
}
