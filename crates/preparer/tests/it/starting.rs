//! Where a branch starts: what is there, what is on a remote, and what cannot be told.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Chain, ErrorKind},
    undo::Undone,
    workspace::{FetchSpec, RepositorySpec, WorkspaceRequest},
};

use crate::fixture::*;

/// Makes a clone of the fixture's repository, which is its remote `origin` from then on.
fn cloned(fixture: &Fixture) -> PathBuf {
    let clone = fixture.path().join("clone");
    let up = fixture.repository.to_str().unwrap();
    git(
        &fixture.path(),
        &["clone", "-q", up, clone.to_str().unwrap()],
    );
    clone
}

fn fetching(path: &Path, base: Option<&str>) -> RepositorySpec {
    RepositorySpec {
        base: base.map(str::to_owned),
        fetch: Some(FetchSpec {
            remote: None,
            limit: Duration::from_secs(20),
        }),
        ..RepositorySpec::new(path)
    }
}

fn commit(repository: &Path, subject: &str) -> String {
    git(
        repository,
        &["commit", "-q", "--allow-empty", "-m", subject],
    );
    git(repository, &["rev-parse", "HEAD"])
}

#[tokio::test]
async fn a_start_point_that_is_only_on_the_remote_is_fetched_and_nothing_else_changes() {
    let fixture = Fixture::new();
    let clone = cloned(&fixture);
    let up = &fixture.repository;
    git(up, &["checkout", "-qb", "topic"]);
    let topic = commit(up, "on topic");
    git(up, &["tag", "-a", "-m", "t", "v9"]);
    git(up, &["update-ref", "refs/pull/7/head", "HEAD"]);
    git(up, &["update-ref", "refs/merge-requests/3/head", "HEAD"]);
    git(up, &["checkout", "-q", "main"]);
    let main = commit(up, "ahead on main");
    let before = git(&clone, &["show-ref"]);
    let config = fs::read(clone.join(".git/config")).unwrap();
    for (base, wanted) in [
        (Some("topic"), &topic),
        (Some("origin/topic"), &topic),
        (Some("v9"), &topic),
        (Some("pull/7/head"), &topic),
        (Some("refs/pull/7/head"), &topic),
        (Some("merge-requests/3/head"), &topic),
        (Some("refs/merge-requests/3/head"), &topic),
        (Some("main"), &main),
        (None, &main),
    ] {
        let request = request(WorkspaceRequest::Worktree(vec![fetching(&clone, base)]));
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        launch.result.as_ref().unwrap();
        assert_eq!(launch.workspace().base.as_ref(), Some(wanted), "{base:?}");
        assert_eq!(git(launch.tree(), &["rev-parse", "HEAD"]), **wanted);
        assert_eq!(
            git(launch.tree(), &["branch", "--show-current"]),
            launch.branch()
        );
        let undone = fixture.undo(&launch, REMOVE).await;
        assert_eq!(undone["branch"], Undone::REMOVED, "{base:?} {undone:?}");
        assert_eq!(git(&clone, &["show-ref"]), before, "{base:?}");
        assert!(!clone.join(".git/refs/groundcrew").exists());
        assert!(!clone.join(".git/FETCH_HEAD").exists());
        fixture.assert_home_is_empty();
        // Forget what was fetched, so that the next one has to be.
        git(&clone, &["gc", "-q", "--prune=now"]);
    }
    assert_eq!(fs::read(clone.join(".git/config")).unwrap(), config);
    // One that the remote was asked for and does not have is missing.
    for base in ["pull/8/head", "refs/pull/8/head", "merge-requests/8/head"] {
        let error = fixture
            .plan_spec(fetching(&clone, Some(base)))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{base}: {error:?}");
    }
}

#[tokio::test]
async fn f067_a_launch_that_fetches_and_ends_anywhere_leaves_nothing() {
    let fixture = Fixture::new();
    let clone = cloned(&fixture);
    let before = git(&clone, &["show-ref"]);
    let mut passed = Vec::new();
    loop {
        commit(&fixture.repository, "ahead");
        let at = passed.pop();
        let request = request(WorkspaceRequest::Worktree(vec![fetching(&clone, None)]));
        let recorder = Recorder {
            fail_at: at,
            ..Recorder::default()
        };
        let mut launch = fixture.launch_with(&request, recorder).await;
        let Some(at) = at else {
            launch.result.as_ref().unwrap();
            for point in ["fetch-begun", "fetched", "taken-in", "base-held"] {
                assert!(launch.passed.contains(&point.to_owned()));
            }
            passed = launch
                .passed
                .iter()
                .map(|point| -> &'static str { point.clone().leak() })
                .collect();
            assert_undone(&fixture, &launch, "whole").await;
            continue;
        };
        assert!(launch.result.is_err());
        launch.identities.clear();
        assert_undone(&fixture, &launch, at).await;
        assert_eq!(git(&clone, &["show-ref"]), before, "{at}");
        assert!(!clone.join(".git/refs/groundcrew").exists(), "{at}");
        let objects = clone.join(".git/objects");
        for directory in [&objects, &objects.join("pack")] {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                let kept = path.extension().is_some_and(|end| end == "keep");
                assert!(!kept && !name.contains("groundcrew"), "{at}: {name}");
            }
        }
        if passed.is_empty() {
            break;
        }
    }
}

#[tokio::test]
async fn what_is_there_and_newer_is_used_as_it_is() {
    let fixture = Fixture::new();
    let clone = cloned(&fixture);
    let own = commit(&clone, "not pushed");
    let planned = fixture.plan_spec(fetching(&clone, None)).await.unwrap();
    assert_eq!(planned.workspace.unwrap().base, Some(own));
    assert!(planned.resources.iter().all(|r| r.key != "base"));
    // The remote does not know it.
    git(&clone, &["branch", "mine"]);
    let planned = fixture
        .plan_spec(fetching(&clone, Some("mine")))
        .await
        .unwrap();
    let warnings = planned.warnings;
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("the remote has no mine")),
        "{warnings:?}"
    );
    let error = fixture
        .plan_spec(fetching(&clone, Some("nowhere")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn c31_a_remote_that_cannot_be_asked_makes_nothing_missing() {
    let fixture = Fixture::new();
    let clone = cloned(&fixture);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for url in [
        format!("git://127.0.0.1:{port}/x.git"),
        "/nowhere/at/all".to_owned(),
        "ext::sh -c true".to_owned(),
    ] {
        git(&clone, &["remote", "set-url", "origin", &url]);
        let mut spec = fetching(&clone, Some("main"));
        spec.fetch.as_mut().unwrap().limit = Duration::from_millis(700);
        let began = Instant::now();
        let warnings = fixture.plan_spec(spec.clone()).await.unwrap().warnings;
        assert!(
            warnings.iter().any(|w| w.contains("which may be old")),
            "{warnings:?}"
        );
        spec.base = Some("elsewhere".to_owned());
        let error = fixture.plan_spec(spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{url}: {error:?}");
        assert!(error.message().contains("cannot be told"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    drop(silent);
}

#[tokio::test]
async fn c31_a_remote_that_wants_a_password_is_not_answered() {
    let fixture = Fixture::new();
    let clone = cloned(&fixture);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = server.accept().unwrap();
        let mut bytes = [0; 4096];
        let _count = stream.read(&mut bytes).unwrap();
        let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let url = format!("http://127.0.0.1:{port}/x.git");
    git(&clone, &["remote", "set-url", "origin", &url]);
    let began = Instant::now();
    let error = fixture
        .plan_spec(fetching(&clone, Some("elsewhere")))
        .await
        .unwrap_err();
    answering.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let words = Chain(&error).to_string();
    assert!(words.contains("terminal prompts disabled"), "{words}");
}

#[tokio::test]
async fn c31_f075_fetching_executes_nothing_of_the_repository() {
    let fixture = Fixture::new();
    let clone = cloned(&fixture);
    commit(&fixture.repository, "ahead");
    let canary = fixture.path().join("canary");
    let touch = format!("touch '{}'; false", canary.display());
    for hook in ["reference-transaction", "post-checkout", "pre-auto-gc"] {
        for repository in [&clone, &fixture.repository] {
            let path = repository.join(".git/hooks").join(hook);
            write(&path, &format!("#!/bin/sh\n{touch}\n"));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let command = format!("!{touch}");
    for repository in [&clone, &fixture.repository] {
        let file = repository.join(".git/config");
        for (key, value) in [
            ("remote.origin.uploadpack", &touch),
            ("remote.origin.vcs", &touch),
            ("core.sshCommand", &touch),
            ("core.gitProxy", &touch),
            ("core.askPass", &touch),
            ("core.fsmonitor", &touch),
            ("core.alternateRefsCommand", &touch),
            ("uploadpack.packObjectsHook", &touch),
            ("credential.helper", &command),
            ("url.ext::sh -c x.insteadOf", &"/".to_owned()),
            ("protocol.ext.allow", &"always".to_owned()),
            ("alias.fetch", &command),
            ("alias.ls-remote", &command),
        ] {
            let file = file.to_str().unwrap();
            git(&fixture.path(), &["config", "--file", file, key, value]);
        }
    }
    let request = request(WorkspaceRequest::Worktree(vec![fetching(&clone, None)]));
    let launch = fixture.launch_with(&request, Recorder::default()).await;
    launch.result.as_ref().unwrap();
    assert_eq!(git(launch.tree(), &["log", "-1", "--format=%s"]), "ahead");
    fixture.undo(&launch, REMOVE).await;
    assert!(!canary.exists());
    // The traps are live: who follows the configuration falls into one.
    let _either = try_git(&clone, &["fetch", "origin"]);
    assert!(canary.exists());
}

#[tokio::test]
async fn c31_a_fetch_is_cancelled_with_everything_that_it_started() {
    let mut fixture = Fixture::new();
    let clone = cloned(&fixture);
    commit(&fixture.repository, "ahead");
    let pids = fixture.path().join("pids");
    let pid = pids.display().to_string();
    wrapper(
        &mut fixture,
        "fetch",
        &format!("sleep 600 & echo $! >'{pid}.new'; mv '{pid}.new' '{pid}'; wait; exit 1"),
    );
    let token = CancelToken::new();
    let request = request(WorkspaceRequest::Worktree(vec![fetching(&clone, None)]));
    let canceller = async {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !pids.exists() {
            assert!(Instant::now() < deadline, "the fetch never began");
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
    let error = launch.result.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_dead(fs::read_to_string(&pids).unwrap().trim()).await;
    assert_undone(&fixture, &launch, "cancelled").await;
}

#[tokio::test]
async fn which_remote_is_asked_is_never_guessed() {
    let fixture = Fixture::new();
    let clone = cloned(&fixture);
    let up = fixture.repository.to_str().unwrap();
    git(&clone, &["branch", "elsewhere"]);
    git(&clone, &["remote", "rename", "origin", "one"]);
    git(&clone, &["remote", "add", "two", up]);
    let warnings = fixture
        .plan_spec(fetching(&clone, Some("elsewhere")))
        .await
        .unwrap()
        .warnings;
    assert!(
        warnings.iter().any(|w| w.contains("several remotes")),
        "{warnings:?}"
    );
    let mut spec = fetching(&clone, Some("main"));
    spec.fetch.as_mut().unwrap().remote = Some("two".to_owned());
    commit(&fixture.repository, "ahead");
    let planned = fixture.plan_spec(spec).await.unwrap();
    assert!(
        planned.warnings.iter().any(|w| w.contains("on two")),
        "{:?}",
        planned.warnings
    );
    // A repository without any.
    let error = fixture
        .plan_spec(fetching(&fixture.repository, Some("nowhere")))
        .await
        .unwrap_err();
    assert!(Chain(&error).to_string().contains("no remote"), "{error:?}");
}

#[tokio::test]
async fn a_ref_that_cannot_be_read_is_not_missing() {
    let fixture = Fixture::new();
    git(&fixture.repository, &["branch", "topic"]);
    let clone = cloned(&fixture);
    git(&clone, &["branch", "--no-track", "topic"]);
    write(clone.join(".git/refs/heads/topic"), "nonsense\n");
    let mut spec = RepositorySpec::new(&clone);
    spec.base = Some("topic".to_owned());
    // The remote's branch of that name is not taken instead.
    let error = fixture.plan_spec(spec).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains("cannot be told"), "{error}");
}
