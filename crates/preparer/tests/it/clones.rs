//! Private clones: nothing of the source comes along that runs, nothing of the clone runs when its work is brought back.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use groundcrew_core::{
    preparer::Preparer as _,
    undo::Undone,
    workspace::{CloneObjects, RepositorySpec, WorkspaceRequest},
};

use crate::fixture::*;

pub(crate) const BOTH: [CloneObjects; 2] = [CloneObjects::Copied, CloneObjects::Shared];

fn cloning(spec: RepositorySpec, objects: CloneObjects) -> WorkspaceRequest {
    WorkspaceRequest::Clone {
        repositories: vec![spec],
        objects,
    }
}

pub(crate) async fn clone(fixture: &Fixture, objects: CloneObjects) -> Launch {
    let request = request(cloning(fixture.spec(), objects));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    launch
}

pub(crate) fn commit(tree: &Path, name: &str) -> String {
    write(tree.join(name), "work\n");
    git(tree, &["add", name]);
    git(tree, &["commit", "-qm", name]);
    git(tree, &["rev-parse", "HEAD"])
}

/// Runs git where it may fail without an end of the test.
pub(crate) fn has(repository: &Path, name: &str) -> bool {
    try_git(repository, &["rev-parse", "--verify", "-q", name]).0
}

#[tokio::test]
async fn a_clone_is_made_and_taken_back_without_a_trace() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    for objects in BOTH {
        let launch = clone(&fixture, objects).await;
        assert_eq!(
            launch.passed,
            [
                "directory-made",
                "base-held",
                "clone-made",
                "files-written",
                "checked-out"
            ]
        );
        let tree = launch.tree();
        assert!(tree.join(".git").is_dir());
        assert_eq!(git(tree, &["branch", "--show-current"]), launch.branch());
        assert_eq!(git(tree, &["status", "--porcelain"]), "");
        git(tree, &["fsck", "--full", "--strict"]);
        assert_eq!(
            git(tree, &["remote", "get-url", "origin"]),
            fixture.repository.to_str().unwrap()
        );
        git(tree, &["fetch", "-q", "origin"]);
        let held = format!("refs/groundcrew/base/{}", launch.run);
        assert!(has(&fixture.repository, &held));
        assert!(!has(&fixture.repository, launch.branch()));
        assert_eq!(launch.workspace().kind, "clone");
        let preparer = fixture.preparer();
        let report = preparer.report(launch.workspace()).await.unwrap();
        assert_eq!((report.commit_count, report.dirty), (0, false));
        reopen(&preparer, launch.workspace()).await.unwrap();
        assert_eq!(preparer.list().await.unwrap().len(), 1);
        let assessment = preparer
            .assess(&launch.record("clone"), REMOVE)
            .await
            .unwrap();
        assert!(!assessment.changed, "{assessment:?}");
        let undone = fixture.undo(&launch, REMOVE).await;
        assert_eq!(undone["branch"], Undone::AlreadyGone);
        for key in ["clone", "base", "directory"] {
            assert_eq!(undone[key], Undone::REMOVED, "{key}");
        }
        fixture.assert_same(&before, "repository");
        fixture.assert_home_is_empty();
        assert!(reopen(&preparer, launch.workspace()).await.is_err());
        let undone = fixture.undo(&launch, REMOVE).await;
        assert!(undone.values().all(|u| *u == Undone::AlreadyGone));
    }
}

#[tokio::test]
async fn closing_brings_the_branch_back_and_removing_keeps_what_is_only_there() {
    let fixture = Fixture::new();
    let before = git(&fixture.repository, &["show-ref"]);
    for objects in BOTH {
        let launch = clone(&fixture, objects).await;
        commit(launch.tree(), "one");
        let tip = commit(launch.tree(), "two");
        let report = fixture.preparer().report(launch.workspace()).await.unwrap();
        assert_eq!((report.commit_count, report.dirty), (2, false));
        for options in [REMOVE, FAILURE] {
            let losses = fixture
                .preparer()
                .assess(&launch.record("clone"), options)
                .await
                .unwrap()
                .losses;
            assert_eq!(kinds(&losses), ["commits"]);
            let undone = fixture.undo(&launch, options).await;
            assert_eq!(kept(&undone["clone"]), losses);
            assert!(launch.tree().join("two").is_file());
        }
        // The ref of ours went, and is not needed by what is copied; what is shared is made safe by the branch.
        let undone = fixture.undo(&launch, CLOSE).await;
        assert_eq!(undone["clone"], Undone::REMOVED, "{undone:?}");
        assert_eq!(undone["directory"], Undone::REMOVED);
        let branch = launch.branch();
        assert_eq!(git(&fixture.repository, &["rev-parse", branch]), tip);
        git(&fixture.repository, &["fsck", "--full", "--strict"]);
        let show = format!("{branch}:two");
        assert_eq!(git(&fixture.repository, &["show", &show]), "work");
        let undone = fixture.undo(&launch, REMOVE).await;
        assert_eq!(kinds(kept(&undone["branch"])), ["commits"]);
        let undone = fixture.undo(&launch, FORCE).await;
        assert!(
            matches!(undone["branch"], Undone::Removed { snapshot: Some(_) }),
            "{undone:?}"
        );
        let name = format!("refs/groundcrew/snapshots/{}", launch.run);
        git(
            &fixture.repository,
            &["merge-base", "--is-ancestor", &tip, &name],
        );
        git(&fixture.repository, &["update-ref", "-d", &name]);
        assert_eq!(git(&fixture.repository, &["show-ref"]), before);
        fixture.assert_home_is_empty();
    }
}

#[tokio::test]
async fn c02_work_that_the_branch_does_not_hold_keeps_the_clone_and_force_saves_it() {
    type Work = fn(&Path) -> String;
    let works: [(&str, Work); 5] = [
        ("commits", |tree| {
            git(tree, &["checkout", "-q", "--detach"]);
            commit(tree, "detached")
        }),
        ("commits", |tree| {
            git(tree, &["checkout", "-qb", "other"]);
            let tip = commit(tree, "other");
            git(tree, &["checkout", "-q", "-"]);
            tip
        }),
        ("commits", |tree| {
            write(tree.join("f"), "stashed\n");
            git(tree, &["stash", "-q"]);
            git(tree, &["rev-parse", "stash"])
        }),
        ("commits", |tree| {
            let tip = commit(tree, "thrown away");
            git(tree, &["reset", "-q", "--hard", "HEAD~1"]);
            tip
        }),
        ("staged", |tree| {
            write(tree.join("f"), "in the index\n");
            git(tree, &["add", "f"]);
            let id = git(tree, &["rev-parse", ":f"]);
            git(tree, &["checkout", "-q", "HEAD", "--", "run.sh"]);
            id
        }),
    ];
    for (at, (what, work)) in works.into_iter().enumerate() {
        let fixture = Fixture::new();
        let launch = clone(&fixture, BOTH[at % 2]).await;
        let id = work(launch.tree());
        for options in [CLOSE, REMOVE, FAILURE] {
            let undone = fixture.undo(&launch, options).await;
            let found = kinds(kept(&undone["clone"]));
            assert!(found.contains(&what), "{at}: {found:?}");
            assert!(launch.tree().is_dir());
        }
        let undone = fixture.undo(&launch, FORCE).await;
        let Undone::Removed {
            snapshot: Some(name),
        } = &undone["clone"]
        else {
            panic!("{at}: {undone:?}");
        };
        // Everything is held by the snapshot in the source, also when what nothing holds is thrown away.
        git(&fixture.repository, &["gc", "-q", "--prune=now"]);
        git(&fixture.repository, &["cat-file", "-e", &id]);
        git(&fixture.repository, &["fsck", "--full", "--strict"]);
        assert!(has(&fixture.repository, name));
    }
}

#[tokio::test]
async fn c01_changed_files_keep_a_clone() {
    let fixture = Fixture::new();
    let launch = clone(&fixture, CloneObjects::Copied).await;
    write(launch.tree().join("f"), "x\n");
    write(launch.tree().join("new/.gitignore"), "*\n");
    git(launch.tree(), &["update-index", "--assume-unchanged", "f"]);
    write(launch.tree().join(".git/info/exclude"), "*\n");
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(kinds(kept(&undone["clone"])), ["modified", "untracked"]);
    git(
        launch.tree(),
        &["update-index", "--no-assume-unchanged", "f"],
    );
    git(launch.tree(), &["checkout", "-q", "f"]);
    fs::remove_dir_all(launch.tree().join("new")).unwrap();
    // Ignored files go to the trash with the clone.
    write(launch.tree().join("target/a"), "x\n");
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(undone["clone"], Undone::REMOVED, "{undone:?}");
    let trashed = fixture
        .home()
        .join("trash")
        .join(format!("{}-clone-kept", launch.attempt));
    assert!(trashed.join("target/a").is_file());
}

#[tokio::test]
async fn c26_a_branch_that_is_anothers_is_left_and_the_clone_kept() {
    let fixture = Fixture::new();
    let launch = clone(&fixture, CloneObjects::Copied).await;
    let tip = commit(launch.tree(), "one");
    let branch = launch.branch().to_owned();
    git(&fixture.repository, &["branch", &branch]);
    let theirs = git(&fixture.repository, &["rev-parse", &branch]);
    let undone = fixture.undo(&launch, CLOSE).await;
    let findings = kept(&undone["clone"]);
    assert!(
        findings[0].items[0].contains("is another's"),
        "{findings:?}"
    );
    assert_eq!(git(&fixture.repository, &["rev-parse", &branch]), theirs);
    assert!(launch.tree().join("one").is_file());
    git(&fixture.repository, &["branch", "-qD", &branch]);
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(undone["clone"], Undone::REMOVED);
    assert_eq!(git(&fixture.repository, &["rev-parse", &branch]), tip);
}

#[tokio::test]
async fn f099_an_undo_that_stops_after_the_branch_came_back_goes_on_from_there() {
    let fixture = Fixture::new();
    let launch = clone(&fixture, CloneObjects::Shared).await;
    commit(launch.tree(), "one");
    // A trash that is a link is refused, once everything else is done.
    let trash = fixture.home().join("trash");
    symlink(fixture.path(), &trash).unwrap();
    assert!(fixture.try_undo(&launch, CLOSE).await.is_err());
    assert!(launch.tree().join("one").is_file());
    assert!(has(&fixture.repository, launch.branch()));
    // More was done in it meanwhile.
    let tip = commit(launch.tree(), "two");
    fs::remove_file(&trash).unwrap();
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(undone["clone"], Undone::REMOVED, "{undone:?}");
    assert_eq!(
        git(&fixture.repository, &["rev-parse", launch.branch()]),
        tip
    );
    // One that went elsewhere in the repository meanwhile is not moved.
    let launch = clone(&fixture, CloneObjects::Shared).await;
    commit(launch.tree(), "three");
    fs::remove_dir_all(&trash).unwrap();
    symlink(fixture.path(), &trash).unwrap();
    assert!(fixture.try_undo(&launch, CLOSE).await.is_err());
    let full = format!("refs/heads/{}", launch.branch());
    let tree = git(&fixture.repository, &["rev-parse", "HEAD^{tree}"]);
    let words = ["commit-tree", "-p", &full, "-m", "theirs", &tree];
    let theirs = git(&fixture.repository, &words);
    git(&fixture.repository, &["update-ref", &full, &theirs]);
    commit(launch.tree(), "four");
    fs::remove_file(&trash).unwrap();
    let undone = fixture.undo(&launch, CLOSE).await;
    let findings = kept(&undone["clone"]);
    assert!(
        findings[0].items[0].contains("other commits"),
        "{findings:?}"
    );
    assert_eq!(git(&fixture.repository, &["rev-parse", &full]), theirs);
}

#[tokio::test]
async fn f075_f077_f078_nothing_comes_along_and_nothing_of_the_clone_runs() {
    let fixture = Fixture::new();
    let canary = fixture.path().join("canary");
    let touch = format!("touch '{}'; false", canary.display());
    let plant = |git_dir: &Path| {
        for hook in [
            "post-checkout",
            "reference-transaction",
            "pre-auto-gc",
            "post-index-change",
            "update",
            "post-receive",
        ] {
            let path = git_dir.join("hooks").join(hook);
            write(&path, &format!("#!/bin/sh\n{touch}\n"));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let file = git_dir.join("config");
        let file = file.to_str().unwrap();
        for (key, value) in [
            ("filter.evil.clean", &touch),
            ("filter.evil.smudge", &touch),
            ("core.fsmonitor", &touch),
            ("core.sshCommand", &touch),
            ("diff.external", &touch),
            ("diff.evil.textconv", &touch),
            ("alias.read-tree", &format!("!{touch}")),
            ("uploadpack.packObjectsHook", &touch),
            ("core.alternateRefsCommand", &touch),
            ("user.name", &"somebody".to_owned()),
            ("core.autocrlf", &"false".to_owned()),
        ] {
            git(&fixture.path(), &["config", "--file", file, key, value]);
        }
    };
    write(
        fixture.repository.join(".gitattributes"),
        "* filter=evil diff=evil\n",
    );
    git(&fixture.repository, &["add", "."]);
    git(&fixture.repository, &["commit", "-qm", "attributes"]);
    plant(&fixture.repository.join(".git"));
    let launch = clone(&fixture, CloneObjects::Copied).await;
    assert!(!canary.exists());
    let git_dir = launch.tree().join(".git");
    for hook in fs::read_dir(git_dir.join("hooks")).into_iter().flatten() {
        let name = hook.unwrap().file_name().into_string().unwrap();
        assert!(name.ends_with(".sample"), "{name}");
    }
    let config = fs::read_to_string(git_dir.join("config")).unwrap();
    assert!(!config.contains("touch"), "{config}");
    assert_eq!(git(launch.tree(), &["config", "user.name"]), "somebody");
    let tip = commit(launch.tree(), "work");
    plant(&git_dir);
    fixture.preparer().report(launch.workspace()).await.unwrap();
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(undone["clone"], Undone::REMOVED, "{undone:?}");
    assert!(!canary.exists());
    let branch = fixture
        .repository
        .join(".git/refs/heads")
        .join(launch.branch());
    assert_eq!(fs::read_to_string(branch).unwrap().trim(), tip);
    // The traps are live: who follows the configuration falls into one.
    let _either = try_git(&fixture.repository, &["status"]);
    assert!(canary.exists());
}

#[tokio::test]
async fn f077_a_clone_that_points_elsewhere_is_kept() {
    type Change = fn(&Fixture, &Path);
    let changes: [Change; 4] = [
        |fixture, git_dir| {
            let other = fixture.path().join("other/objects");
            fs::create_dir_all(&other).unwrap();
            write(
                git_dir.join("objects/info/alternates"),
                &format!("{}\n", other.display()),
            );
        },
        |fixture, git_dir| {
            let other = fixture.repository.join(".git");
            write(git_dir.join("commondir"), other.to_str().unwrap());
        },
        |fixture, git_dir| {
            let away = fixture.path().join("away");
            fs::rename(git_dir, &away).unwrap();
            symlink(&away, git_dir).unwrap();
        },
        |_, git_dir| fs::remove_dir_all(git_dir.join("objects")).unwrap(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let fixture = Fixture::new();
        let launch = clone(&fixture, BOTH[at % 2]).await;
        commit(launch.tree(), "work");
        change(&fixture, &launch.tree().join(".git"));
        for options in [CLOSE, REMOVE, FAILURE] {
            let undone = fixture.undo(&launch, options).await;
            let found = kinds(kept(&undone["clone"]));
            assert!(found.contains(&"unreadable"), "{at}: {found:?}");
            assert!(launch.tree().join("work").is_file());
        }
    }
}

#[tokio::test]
async fn commits_that_reached_the_source_are_no_loss() {
    let fixture = Fixture::new();
    let launch = clone(&fixture, CloneObjects::Copied).await;
    commit(launch.tree(), "work");
    git(launch.tree(), &["push", "-q", "origin", "HEAD:elsewhere"]);
    let undone = fixture.undo(&launch, REMOVE).await;
    assert_eq!(undone["clone"], Undone::REMOVED, "{undone:?}");
    assert!(has(&fixture.repository, "elsewhere"));
    assert!(!has(&fixture.repository, launch.branch()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn f096_clones_survive_a_clean_up_of_their_source_at_any_moment() {
    let fixture = Arc::new(Fixture::new());
    for number in 0..20 {
        commit(&fixture.repository, &format!("file-{number}"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let gc = std::thread::spawn({
        let (fixture, stop) = (Arc::clone(&fixture), Arc::clone(&stop));
        move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                git(&fixture.repository, &["gc", "-q", "--prune=now"]);
                // Loose objects again, which become a pack again.
                number += 1;
                commit(&fixture.repository, &format!("more-{number}"));
            }
        }
    });
    let mut launches = Vec::new();
    for number in 0..8 {
        let launch = clone(&fixture, BOTH[number % 2]).await;
        launches.push(launch);
    }
    // What they started from is on no branch any more.
    stop.store(true, Ordering::Relaxed);
    gc.join().unwrap();
    git(&fixture.repository, &["checkout", "-q", "--orphan", "new"]);
    git(&fixture.repository, &["commit", "-qm", "new"]);
    git(&fixture.repository, &["branch", "-qD", "main"]);
    git(
        &fixture.repository,
        &["reflog", "expire", "--expire=now", "--all"],
    );
    git(&fixture.repository, &["gc", "-q", "--prune=now"]);
    for launch in &launches {
        git(launch.tree(), &["fsck", "--full"]);
        let tip = commit(launch.tree(), "work");
        let undone = fixture.undo(launch, CLOSE).await;
        assert_eq!(undone["clone"], Undone::REMOVED, "{undone:?}");
        assert_eq!(undone["base"], Undone::REMOVED);
        let at = git(&fixture.repository, &["rev-parse", launch.branch()]);
        assert_eq!(at, tip);
    }
    git(&fixture.repository, &["gc", "-q", "--prune=now"]);
    git(&fixture.repository, &["fsck", "--full"]);
    fixture.assert_home_is_empty();
}

#[tokio::test]
async fn a_clone_of_a_clone_that_shares_depends_on_nothing() {
    let fixture = Fixture::new();
    let shared = clone(&fixture, CloneObjects::Shared).await;
    let spec = RepositorySpec::new(shared.tree());
    let request = request(cloning(spec, CloneObjects::Copied));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    fs::rename(&fixture.repository, fixture.path().join("moved")).unwrap();
    git(launch.tree(), &["fsck", "--full"]);
    assert!(!try_git(shared.tree(), &["fsck", "--full"]).0);
}

/// Cleans up a repository again and again until it is dropped.
struct CleanUps {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl CleanUps {
    fn of(fixture: &Arc<Fixture>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (fixture, stop) = (Arc::clone(fixture), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    // It may meet a lock of ours, or an entry that is half made: then it tries again, as a person would.
                    let _either = try_git(&fixture.repository, &["gc", "-q", "--prune=now"]);
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for CleanUps {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f080_f096_sixty_four_worktrees_and_clones_at_once_beside_a_clean_up_all_succeed() {
    let fixture = Arc::new(Fixture::new());
    let clean_ups = CleanUps::of(&fixture);
    let mut set = tokio::task::JoinSet::new();
    for at in 0..64 {
        let fixture = Arc::clone(&fixture);
        set.spawn(async move {
            let spec = fixture.spec();
            let workspace = match at % 4 {
                0 => cloning(spec, CloneObjects::Copied),
                1 => cloning(spec, CloneObjects::Shared),
                _ => WorkspaceRequest::Worktree(vec![spec]),
            };
            let request = request(workspace);
            fixture.launch_with(&request, Recorder::default()).await
        });
    }
    let launches = set.join_all().await;
    // In the repository itself such a clean-up takes what a commit of the user's has just written.
    drop(clean_ups);
    for launch in &launches {
        launch.result.as_ref().unwrap();
        assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "");
        commit(launch.tree(), "work");
    }
    let clean_ups = CleanUps::of(&fixture);
    let mut set = tokio::task::JoinSet::new();
    for launch in launches {
        let fixture = Arc::clone(&fixture);
        set.spawn(async move {
            let undone = fixture.undo(&launch, CLOSE).await;
            (launch.branch().to_owned(), undone)
        });
    }
    let closed = set.join_all().await;
    drop(clean_ups);
    for (branch, undone) in closed {
        assert!(undone.values().all(|u| *u == Undone::REMOVED), "{undone:?}");
        let show = format!("{branch}:work");
        assert_eq!(git(&fixture.repository, &["show", &show]), "work");
    }
    git(&fixture.repository, &["fsck", "--full", "--strict"]);
    fixture.assert_home_is_empty();
}
