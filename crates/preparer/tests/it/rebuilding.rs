//! A run that is gone on with: its worktree is there, or is made again of what is left, or it is not gone on with.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    id::AttemptId,
    preparer::{ApplyContext, Contribution, PlanContext, Preparer as _},
    undo::Undone,
    workspace::{CloneObjects, WorkspaceRequest},
};
use groundcrew_preparer::GitProgram;

use crate::fixture::*;

/// Opens the workspace again and makes it whole, as the engine does; what it turned out to be is noted.
async fn resume(
    fixture: &Fixture,
    launch: &mut Launch,
    recorder: &Recorder,
) -> Result<Contribution, Error> {
    let preparer = fixture.preparer();
    let contribution = reopen(&preparer, launch.workspace()).await?;
    if contribution.state.is_empty() {
        return Ok(contribution);
    }
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let records: Vec<_> = launch
        .contribution
        .resources
        .iter()
        .map(|resource| launch.record(&resource.key))
        .collect();
    let cancel = CancelToken::new();
    let result = preparer
        .ensure(
            &records,
            ApplyContext {
                plan: PlanContext {
                    request: &request,
                    install: &fixture.install,
                    run: &launch.run,
                    attempt: AttemptId::generate().unwrap(),
                },
                contribution: &contribution,
                effects: recorder,
                progress: recorder,
                cancel: &cancel,
            },
        )
        .await;
    let found = recorder.identities.lock().unwrap().clone();
    launch.identities.extend(found);
    result.map(|()| contribution)
}

fn commit(tree: &Path) {
    write(tree.join("w"), "work\n");
    git(tree, &["add", "."]);
    git(tree, &["commit", "-qm", "work"]);
}

#[tokio::test]
async fn c15_w09_a_worktree_that_is_gone_is_made_again_as_it_was_committed_and_staged() {
    let fixture = Fixture::new();
    for case in ["tree", "directory", "entry", "entry without index"] {
        let mut launch = fixture.launch().await;
        let tree = launch.tree().to_owned();
        commit(&tree);
        write(tree.join("staged"), "staged\n");
        git(&tree, &["add", "staged"]);
        let entry = git(&tree, &["rev-parse", "--absolute-git-dir"]);
        match case {
            "directory" => fs::remove_dir_all(tree.parent().unwrap()).unwrap(),
            "entry" => {
                git(
                    &fixture.repository,
                    &["worktree", "unlock", tree.to_str().unwrap()],
                );
                fs::remove_dir_all(&tree).unwrap();
                git(&fixture.repository, &["worktree", "prune"]);
            }
            _ => fs::remove_dir_all(&tree).unwrap(),
        }
        if case == "entry without index" {
            fs::remove_file(Path::new(&entry).join("index")).unwrap();
        }
        let recorder = Recorder::default();
        let contribution = resume(&fixture, &mut launch, &recorder).await.unwrap();
        let warned = contribution
            .warnings
            .iter()
            .any(|w| w.contains("is gone") && w.contains(tree.to_str().unwrap()));
        assert!(warned, "{case}: {:?}", contribution.warnings);
        assert_eq!(
            git(&tree, &["branch", "--show-current"]),
            launch.branch(),
            "{case}"
        );
        assert_eq!(git(&tree, &["log", "-1", "--format=%s"]), "work", "{case}");
        for (name, text) in [("w", "work\n"), ("f", "one\n"), ("sub/dir/g", "two\n")] {
            assert_eq!(fs::read_to_string(tree.join(name)).unwrap(), text, "{case}");
        }
        let mode = tree.join("run.sh").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{case}");
        let status = git(&tree, &["status", "--porcelain"]);
        let kept_index = matches!(case, "tree" | "directory");
        assert_eq!(status, if kept_index { "A  staged" } else { "" }, "{case}");
        assert_eq!(tree.join("staged").exists(), kept_index, "{case}");
        // It is the run's as the first one was: what is in it keeps it, and it goes without.
        if kept_index {
            let undone = fixture.undo(&launch, CLOSE).await;
            assert_eq!(kinds(kept(&undone["worktree"])), ["staged"], "{case}");
            git(&tree, &["reset", "-q", "--hard"]);
        }
        let again = resume(&fixture, &mut launch, &recorder).await.unwrap();
        assert_eq!(again.state, "", "{case}");
        let undone = fixture.undo(&launch, CLOSE).await;
        assert_gone(&undone, case);
        fixture.assert_home_is_empty();
        assert_eq!(
            git(&fixture.repository, &["worktree", "list"])
                .lines()
                .count(),
            1
        );
    }
}

#[tokio::test]
async fn c15_f127_making_it_again_can_stop_anywhere_and_is_finished_or_undone() {
    let fixture = Fixture::new();
    let points = [
        "identify",
        "rebuild-begun",
        "rebuild-identified",
        "rebuild-placed",
        "rebuild-added",
        "rebuild-written",
        "rebuilt",
    ];
    for point in points {
        for gone in ["tree", "directory", "entry"] {
            for goes_on in [true, false] {
                let what = format!("{point} {gone} {goes_on}");
                let mut launch = fixture.launch().await;
                let tree = launch.tree().to_owned();
                commit(&tree);
                if gone == "entry" {
                    git(
                        &fixture.repository,
                        &["worktree", "unlock", tree.to_str().unwrap()],
                    );
                }
                let removed = if gone == "directory" {
                    tree.parent().unwrap()
                } else {
                    &tree
                };
                fs::remove_dir_all(removed).unwrap();
                if gone == "entry" {
                    git(&fixture.repository, &["worktree", "prune"]);
                }
                let recorder = Recorder {
                    fail_at: Some(point),
                    ..Recorder::default()
                };
                let stopped = resume(&fixture, &mut launch, &recorder).await.is_err();
                assert!(stopped || point == "rebuild-added", "{what}");
                if goes_on {
                    let recorder = Recorder::default();
                    resume(&fixture, &mut launch, &recorder).await.unwrap();
                    assert_eq!(git(&tree, &["status", "--porcelain"]), "", "{what}");
                    assert_eq!(git(&tree, &["log", "-1", "--format=%s"]), "work", "{what}");
                }
                let undone = fixture.undo(&launch, CLOSE).await;
                assert_gone(&undone, &what);
                fixture.assert_home_is_empty();
                assert_eq!(
                    git(&fixture.repository, &["worktree", "list"])
                        .lines()
                        .count(),
                    1,
                    "{what}"
                );
                git(
                    &fixture.repository,
                    &["rev-parse", "--verify", launch.branch()],
                );
            }
        }
    }
}

#[tokio::test]
async fn c15_w17_what_is_in_its_place_is_left_as_it_is_and_named() {
    type Change = fn(&Fixture, &Launch);
    let fixture = Fixture::new();
    let cases: [(&str, Change); 6] = [
        ("empty", |_, launch| fs::create_dir(launch.tree()).unwrap()),
        ("foreign", |_, launch| {
            write(launch.tree().join("mine"), "x\n");
        }),
        ("link", |fixture, launch| {
            std::os::unix::fs::symlink(&fixture.repository, launch.tree()).unwrap();
        }),
        ("file", |_, launch| write(launch.tree(), "x\n")),
        ("no branch", |fixture, launch| {
            let name = format!("refs/heads/{}", launch.branch());
            git(&fixture.repository, &["update-ref", "-d", &name]);
        }),
        ("taken", |fixture, launch| {
            let other = fixture.path().join("other");
            let args = ["worktree", "unlock", launch.tree().to_str().unwrap()];
            git(&fixture.repository, &args);
            git(&fixture.repository, &["worktree", "prune"]);
            let args = [
                "worktree",
                "add",
                "-q",
                other.to_str().unwrap(),
                launch.branch(),
            ];
            git(&fixture.repository, &args);
        }),
    ];
    for (case, change) in cases {
        let mut launch = fixture.launch().await;
        let tree = launch.tree().to_owned();
        commit(&tree);
        fs::remove_dir_all(&tree).unwrap();
        change(&fixture, &launch);
        let before = fixture.fingerprint();
        let recorder = Recorder::default();
        let error = resume(&fixture, &mut launch, &recorder).await.unwrap_err();
        assert_eq!(error.get("path"), tree.to_str(), "{case}: {error:?}");
        assert!(
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists),
            "{case}: {error:?}"
        );
        fixture.assert_same(&before, case);
        match case {
            "empty" => assert_eq!(fs::read_dir(&tree).unwrap().count(), 0),
            "foreign" => assert!(tree.join("mine").is_file()),
            "link" => assert!(tree.is_symlink()),
            "file" => assert!(tree.is_file()),
            _ => assert!(!tree.exists(), "{case}"),
        }
    }
    // A clone has its commits in itself: nothing is left to make it of.
    let mut launch = fixture
        .launch_with(
            &request(WorkspaceRequest::Clone {
                repositories: vec![fixture.spec()],
                objects: CloneObjects::Copied,
            }),
            Recorder::default(),
        )
        .await;
    fs::remove_dir_all(launch.tree()).unwrap();
    let recorder = Recorder::default();
    let error = resume(&fixture, &mut launch, &recorder).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn w17_a_half_made_worktree_with_something_else_in_it_is_left_as_it_is() {
    let fixture = Fixture::new();
    let mut launch = fixture.launch().await;
    let tree = launch.tree().to_owned();
    fs::remove_dir_all(&tree).unwrap();
    let recorder = Recorder {
        fail_at: Some("rebuild-written"),
        ..Recorder::default()
    };
    resume(&fixture, &mut launch, &recorder).await.unwrap_err();
    write(tree.join("mine"), "x\n");
    let recorder = Recorder::default();
    let error = resume(&fixture, &mut launch, &recorder).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert!(error.get("found").unwrap().contains("mine"), "{error:?}");
    assert!(tree.join("mine").is_file());
    fs::remove_file(tree.join("mine")).unwrap();
    resume(&fixture, &mut launch, &recorder).await.unwrap();
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn c15_of_several_worktrees_the_one_that_is_gone_is_made_again() {
    let fixture = Fixture::new();
    let mut specs = vec![fixture.spec(), fixture.spec()];
    specs[0].branch = Some("one".to_owned());
    specs[1].branch = Some("two".to_owned());
    let request = request(WorkspaceRequest::Worktree(specs));
    let mut launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    let trees: Vec<_> = launch
        .workspace()
        .repositories
        .iter()
        .map(|part| part.path.clone())
        .collect();
    commit(&trees[1]);
    write(trees[0].join("kept"), "x\n");
    fs::remove_dir_all(&trees[1]).unwrap();
    let recorder = Recorder::default();
    resume(&fixture, &mut launch, &recorder).await.unwrap();
    assert_eq!(git(&trees[1], &["branch", "--show-current"]), "two");
    assert_eq!(git(&trees[1], &["status", "--porcelain"]), "");
    assert_eq!(git(&trees[0], &["status", "--porcelain"]), "?? kept");
    fs::remove_file(trees[0].join("kept")).unwrap();
    assert_gone(&fixture.undo(&launch, CLOSE).await, "close");
}

#[tokio::test]
async fn w09_going_on_with_what_is_whole_runs_no_git_and_writes_nothing() {
    let mut fixture = Fixture::new();
    let mut launch = fixture.launch().await;
    let script = fixture.path().join("bin/git");
    let log = fixture.path().join("called");
    write(
        &script,
        &format!("#!/bin/sh\necho \"$@\" >>'{}'\nexit 1\n", log.display()),
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.git = GitProgram::Path(script);
    let before = fixture.fingerprint();
    let recorder = Recorder::default();
    let contribution = resume(&fixture, &mut launch, &recorder).await.unwrap();
    assert_eq!(
        (&*contribution.state, contribution.resources.len()),
        ("", 0)
    );
    assert!(!log.exists(), "{}", fs::read_to_string(&log).unwrap());
    fixture.assert_same(&before, "reopened");
    assert!(matches!(
        fixture.undo(&launch, CLOSE).await["worktree"],
        Undone::REMOVED
    ));
}
