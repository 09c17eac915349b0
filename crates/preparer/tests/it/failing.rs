//! Launches that fail, are cancelled, or die: nothing is left.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::fixture::*;
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    id::{AttemptId, RunId},
    identity::Identity,
    preparer::{ApplyContext, Effects, PlanContext, Preparer as _},
    undo::Undone,
    workspace::WorkspaceRequest,
};

const CHECKPOINTS: [&str; 5] = [
    "directory-made",
    "branch-made",
    "worktree-added",
    "files-written",
    "checked-out",
];

#[tokio::test]
async fn f067_a_launch_that_ends_at_any_checkpoint_leaves_nothing() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    for at in CHECKPOINTS {
        let recorder = Recorder {
            fail_at: Some(at),
            ..Recorder::default()
        };
        let launch = fixture.launch_with(&request, recorder).await;
        assert!(launch.result.is_err());
        assert_eq!(launch.passed.last().map(String::as_str), Some(at));
        assert_undone(&fixture, &launch, at).await;
        fixture.assert_same(&before, at);
    }
}

#[tokio::test]
async fn f067_a_launch_that_dies_before_an_identity_is_stored_leaves_nothing() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let recorder = Recorder {
        fail_at: Some("identify"),
        ..Recorder::default()
    };
    let launch = fixture.launch_with(&request, recorder).await;
    assert!(launch.result.is_err() && launch.identities.is_empty());
    assert_undone(&fixture, &launch, "identify").await;
    // The identities of a complete launch may be lost with the machine.
    let mut launch = fixture.launch().await;
    launch.identities.clear();
    assert_undone(&fixture, &launch, "lost").await;
    fixture.assert_same(&before, "repository");
}

#[tokio::test]
async fn a_cancelled_launch_leaves_nothing() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    for at in &CHECKPOINTS[..3] {
        let recorder = Recorder {
            cancel_at: Some((at, CancelToken::new())),
            ..Recorder::default()
        };
        let launch = fixture.launch_with(&request, recorder).await;
        assert_eq!(
            launch.result.as_ref().unwrap_err().kind(),
            ErrorKind::Cancelled,
            "{at}"
        );
        assert_undone(&fixture, &launch, at).await;
        fixture.assert_same(&before, at);
    }
}

#[tokio::test]
async fn f072_f097_cancelling_ends_git_and_all_its_children() {
    let mut fixture = Fixture::new();
    let before = fixture.fingerprint();
    let pids = fixture.path().join("pids");
    let pid = pids.display().to_string();
    wrapper(
        &mut fixture,
        "read-tree",
        &format!("sleep 600 & echo $! >'{pid}.new'; mv '{pid}.new' '{pid}'; wait; exit 1"),
    );
    let token = CancelToken::new();
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let fixture = Arc::new(fixture);
    let canceller = async {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !pids.exists() {
            assert!(Instant::now() < deadline, "the checkout never began");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        token.cancel();
    };
    let recorder = Recorder::default();
    let preparer = fixture.preparer();
    let (launch, ()) = tokio::join!(
        launch(&preparer, &fixture.install, &request, &recorder, &token),
        canceller
    );
    assert_eq!(
        launch.result.as_ref().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert_dead(fs::read_to_string(&pids).unwrap().trim()).await;
    assert_undone(&fixture, &launch, "cancelled").await;
    fixture.assert_same(&before, "repository");
}

#[tokio::test]
async fn f067_an_undo_waits_for_a_git_that_outlived_its_controller() {
    let mut fixture = Fixture::new();
    let before = fixture.fingerprint();
    let (started, go) = (fixture.path().join("started"), fixture.path().join("go"));
    // The shell leaves the process group and holds what git would hold.
    wrapper(
        &mut fixture,
        "add",
        &format!(
            "exec 3<&0; setsid sh -c 'touch \"$1\"; while ! [ -e \"$2\" ]; do sleep 0.01; done; shift 2; exec git \"$@\"' sh '{}' '{}' \"$@\" <&3 >/dev/null 2>&1 &\nexit 1",
            started.display(),
            go.display()
        ),
    );
    // A shell gives background commands another stdin, unless it is named.
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    assert!(launch.result.is_err());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !started.exists() {
        assert!(Instant::now() < deadline, "git never started");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut undo = Box::pin(assert_undone(&fixture, &launch, "outlived"));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut undo).await;
    assert!(early.is_err(), "the undo did not wait");
    fs::write(&go, "").unwrap();
    undo.await;
    fixture.assert_same(&before, "repository");
}

#[tokio::test]
async fn f071_success_without_a_result_is_an_error() {
    for (subcommand, message) in [("add", "there is none"), ("read-tree", "not")] {
        let mut fixture = Fixture::new();
        let before = fixture.fingerprint();
        wrapper(&mut fixture, subcommand, "exit 0");
        let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        let error = launch.result.as_ref().unwrap_err();
        assert!(error.message().contains(message), "{error:?}");
        assert_undone(&fixture, &launch, subcommand).await;
        fixture.assert_same(&before, "repository");
    }
}

#[tokio::test]
async fn f071_an_index_without_files_is_an_error_and_leaves_nothing() {
    let mut fixture = Fixture::new();
    let before = fixture.fingerprint();
    wrapper(
        &mut fixture,
        "read-tree",
        "git \"$@\"; for a in \"$@\"; do case $a in --work-tree=*) rm \"${a#--work-tree=}/f\";; esac; done; exit 0",
    );
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    let error = launch.result.as_ref().unwrap_err();
    assert!(
        groundcrew_core::error::Chain(error)
            .to_string()
            .contains("f is missing")
    );
    assert_undone(&fixture, &launch, "no files").await;
    fixture.assert_same(&before, "repository");
}

/// Kills git at many moments of its work, wherever that is.
#[tokio::test]
async fn f067_git_killed_at_any_moment_leaves_nothing() {
    for subcommand in ["update-ref", "add", "read-tree"] {
        for delay in 0..12 {
            let mut fixture = Fixture::new();
            let before = fixture.fingerprint();
            wrapper(
                &mut fixture,
                subcommand,
                &format!(
                    "exec 3<&0; git \"$@\" <&3 & p=$!; sleep 0.{:04}; kill -9 $p; wait $p; exit 1",
                    delay * 4
                ),
            );
            let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
            let launch = fixture.launch_with(&request, Recorder::default()).await;
            assert!(launch.result.is_err());
            let what = format!("{subcommand} after {delay}");
            fixture.git = sound_git();
            assert_undone(&fixture, &launch, &what).await;
            fixture.assert_same(&before, &what);
        }
    }
}

#[tokio::test]
async fn c22_the_words_of_git_are_in_the_error_and_a_retry_is_free() {
    let mut fixture = Fixture::new();
    wrapper(
        &mut fixture,
        "read-tree",
        "echo 'fatal: no luck' >&2; exit 128",
    );
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    for _ in 0..2 {
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        let error = launch.result.as_ref().unwrap_err();
        let chain = groundcrew_core::error::Chain(error).to_string();
        assert!(chain.contains("fatal: no luck"), "{chain}");
        assert_undone(&fixture, &launch, "failed").await;
    }
}

/// The entry of a worktree in the repository; git names it after the tree.
fn entry(fixture: &Fixture, launch: &Launch) -> PathBuf {
    fixture
        .repository
        .join(".git/worktrees")
        .join(launch.tree().file_name().unwrap())
}

/// What a killed git leaves, as measured: each is undone completely.
#[tokio::test]
async fn f067_f068_f069_what_a_killed_git_leaves_is_undone() {
    type Wreck = fn(&Fixture, &Launch);
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let added: [(&str, Wreck); 11] = [
        ("nothing written yet", |f, launch| {
            for file in fs::read_dir(entry(f, launch)).unwrap() {
                let path = file.unwrap().path();
                if path.is_dir() {
                    fs::remove_dir_all(path).unwrap();
                } else {
                    fs::remove_file(path).unwrap();
                }
            }
        }),
        ("HEAD of nothing", |f, launch| {
            fs::write(entry(f, launch).join("HEAD"), "0".repeat(40)).unwrap();
        }),
        ("no entry, the tree not cleared", |f, launch| {
            fs::remove_dir_all(entry(f, launch)).unwrap();
        }),
        ("locked initializing", |f, launch| {
            fs::write(entry(f, launch).join("locked"), "initializing").unwrap();
        }),
        ("empty commondir", |f, launch| {
            fs::write(entry(f, launch).join("commondir"), "").unwrap();
        }),
        ("empty HEAD", |f, launch| {
            fs::write(entry(f, launch).join("HEAD"), "").unwrap();
        }),
        ("no HEAD", |f, launch| {
            fs::remove_file(entry(f, launch).join("HEAD")).unwrap();
        }),
        ("only a gitdir", |f, launch| {
            for file in ["HEAD", "commondir", "locked"] {
                fs::remove_file(entry(f, launch).join(file)).unwrap();
            }
        }),
        ("locks", |f, launch| {
            for file in ["index.lock", "HEAD.lock"] {
                fs::write(entry(f, launch).join(file), "").unwrap();
            }
        }),
        ("no tree", |_, launch| {
            fs::remove_dir_all(launch.tree()).unwrap();
        }),
        ("half a checkout", |f, launch| {
            fs::write(launch.tree().join("f"), "on").unwrap();
            fs::create_dir_all(launch.tree().join("sub/dir")).unwrap();
            fs::write(entry(f, launch).join("index.lock"), "").unwrap();
        }),
    ];
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    for (what, wreck) in added {
        let recorder = Recorder {
            fail_at: Some("worktree-added"),
            ..Recorder::default()
        };
        let launch = fixture.launch_with(&request, recorder).await;
        assert!(entry(&fixture, &launch).is_dir());
        wreck(&fixture, &launch);
        assert_undone(&fixture, &launch, what).await;
        fixture.assert_same(&before, what);
        git(&fixture.repository, &["worktree", "list"]);
    }
    // A branch that was not finished: its log and lock alone, or a lock beside it.
    for keep in [true, false] {
        let recorder = Recorder {
            fail_at: Some("branch-made"),
            ..Recorder::default()
        };
        let launch = fixture.launch_with(&request, recorder).await;
        let file = fixture
            .repository
            .join(".git/refs/heads")
            .join(launch.branch());
        if !keep {
            fs::remove_file(&file).unwrap();
        }
        fs::write(format!("{}.lock", file.display()), "").unwrap();
        let undone = fixture.try_undo(&launch, FAILURE).await;
        if keep {
            // Whose lock it is cannot be told while the branch is there: it stays owned.
            assert!(undone.is_err() || fixture.fingerprint() == before);
            let _gone = fs::remove_file(format!("{}.lock", file.display()));
        }
        assert_undone(&fixture, &launch, "branch").await;
        fixture.assert_same(&before, "branch");
    }
}

#[tokio::test]
async fn a_file_that_somebody_put_in_a_half_made_tree_is_kept() {
    let fixture = Fixture::new();
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let recorder = Recorder {
        fail_at: Some("worktree-added"),
        ..Recorder::default()
    };
    let launch = fixture.launch_with(&request, recorder).await;
    write(launch.tree().join("notes"), "mine\n");
    let undone = fixture
        .preparer()
        .undo(&launch.record("worktree"), FAILURE)
        .await
        .unwrap();
    assert_eq!(kept(&undone)[0].items, ["notes"]);
}

#[tokio::test]
async fn f061_f085_a_directory_that_is_there_already_is_left_as_it_is() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let planned = fixture.plan(&request).await.unwrap();
    let directory = planned.workspace.unwrap().path.parent().unwrap().to_owned();
    // The name has the run's id in it: only another one can be taken here.
    fs::create_dir_all(&directory).unwrap();
    let launch = fixture.launch_with(&request, recorder).await;
    launch.result.as_ref().unwrap();
    assert_ne!(launch.tree().parent().unwrap(), directory);
    assert!(directory.is_dir());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a launch beside the test")]
async fn f080_nothing_is_made_in_a_repository_while_another_process_holds_its_lock() {
    let fixture = Arc::new(Fixture::new());
    let first = fixture.launch().await;
    first.result.as_ref().unwrap();
    // The files of its lock are there by now; somebody else takes them.
    let locks = fs::read_dir(fixture.home().join("locks/repository")).unwrap();
    let held: Vec<_> = locks
        .map(|entry| fs::File::open(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!held.is_empty());
    for file in &held {
        file.lock().unwrap();
    }
    let before = fixture.fingerprint();
    let other = Arc::clone(&fixture);
    let task = tokio::spawn(async move { other.launch().await });
    let inodes: Vec<_> = held
        .iter()
        .map(|file| {
            format!(
                ":{} ",
                std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap())
            )
        })
        .collect();
    let waits = || {
        let table = fs::read_to_string("/proc/locks").unwrap();
        table
            .lines()
            .any(|line| line.contains("->") && inodes.iter().any(|inode| line.contains(inode)))
    };
    let end = Instant::now() + Duration::from_mins(1);
    while !waits() && !task.is_finished() {
        assert!(Instant::now() < end, "it neither waits nor ends");
        tokio::task::yield_now().await;
    }
    assert!(!task.is_finished(), "it did not wait for the lock");
    fixture.assert_same(&before, "while the lock is another's");
    drop(held);
    task.await.unwrap().result.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c21_f080_sixty_four_launches_at_once_on_one_repository_all_succeed() {
    let fixture = Arc::new(Fixture::new());
    let before = fixture.fingerprint();
    let preparers = [fixture.preparer(), fixture.preparer()];
    let mut set = tokio::task::JoinSet::new();
    for at in 0..64 {
        let (fixture, preparer) = (Arc::clone(&fixture), preparers[at % 2].clone());
        set.spawn(async move {
            let mut request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
            request.title = Some("same".to_owned());
            let recorder = Recorder::default();
            launch(
                &preparer,
                &fixture.install,
                &request,
                &recorder,
                &CancelToken::new(),
            )
            .await
        });
    }
    let launches = set.join_all().await;
    for launch in &launches {
        launch.result.as_ref().unwrap();
    }
    let branches: BTreeSet<_> = launches.iter().map(Launch::branch).collect();
    let trees: BTreeSet<_> = launches.iter().map(Launch::tree).collect();
    assert_eq!((branches.len(), trees.len()), (64, 64));
    let list = git(&fixture.repository, &["worktree", "list"]);
    assert_eq!(list.lines().count(), 65);
    assert_eq!(
        git(&fixture.repository, &["branch", "--list", "groundcrew/*"])
            .lines()
            .count(),
        64
    );
    let mut set = tokio::task::JoinSet::new();
    for launch in launches {
        let fixture = Arc::clone(&fixture);
        set.spawn(async move { fixture.undo(&launch, REMOVE).await });
    }
    for undone in set.join_all().await {
        assert!(
            undone.values().all(|undone| *undone == Undone::REMOVED),
            "{undone:?}"
        );
    }
    fixture.assert_same(&before, "repository");
    fixture.assert_home_is_empty();
}

/// Puts something at a path when the branch is made.
struct Taking<'a> {
    recorder: Recorder,
    take: &'a (dyn Fn() + Sync),
}

#[groundcrew_core::async_trait]
impl Effects for Taking<'_> {
    async fn identify(&self, key: &str, identity: Identity) -> Result<(), Error> {
        self.recorder.identify(key, identity).await
    }

    async fn checkpoint(&self, name: &str) -> Result<(), Error> {
        if name == "branch-made" {
            (self.take)();
        }
        self.recorder.checkpoint(name).await
    }
}

#[tokio::test]
async fn f084_a_path_that_is_taken_behind_the_branch_leaves_no_branch_and_the_path_as_it_is() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let outside = fixture.path().join("outside");
    write(outside.join("mine"), "mine\n");
    for case in [
        "file",
        "directory",
        "full directory",
        "link",
        "dangling link",
    ] {
        let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
        let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
        let plan = PlanContext {
            request: &request,
            install: &fixture.install,
            run: &run,
            attempt,
        };
        let preparer = fixture.preparer();
        let contribution = preparer.plan(plan).await.unwrap().unwrap();
        let tree = contribution.workspace.as_ref().unwrap().path.clone();
        let take = || match case {
            "file" => write(&tree, "mine\n"),
            "directory" => fs::create_dir(&tree).unwrap(),
            "full directory" => write(tree.join("mine"), "mine\n"),
            "link" => std::os::unix::fs::symlink(&outside, &tree).unwrap(),
            _ => std::os::unix::fs::symlink("/no/such/place", &tree).unwrap(),
        };
        let effects = Taking {
            recorder: Recorder::default(),
            take: &take,
        };
        let result = preparer
            .apply(ApplyContext {
                plan,
                contribution: &contribution,
                effects: &effects,
                progress: &effects.recorder,
                cancel: &CancelToken::new(),
            })
            .await;
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{case}: {error:?}");
        assert_eq!(error.get("path"), tree.to_str(), "{case}");
        let identities = effects.recorder.identities.lock().unwrap().clone();
        let launch = Launch {
            contribution,
            attempt,
            run,
            identities,
            result: Err(error),
            passed: Vec::new(),
        };
        let undone = fixture.undo(&launch, FAILURE).await;
        assert_eq!(undone["branch"], Undone::REMOVED, "{case}");
        fixture.assert_same(&before, case);
        // An empty directory in a directory of ours is nobody's; everything else stays.
        match case {
            "file" => assert_eq!(fs::read_to_string(&tree).unwrap(), "mine\n"),
            "directory" => {}
            "full directory" => assert!(tree.join("mine").is_file()),
            _ => assert!(tree.is_symlink()),
        }
        assert_eq!(fs::read_to_string(outside.join("mine")).unwrap(), "mine\n");
    }
}
