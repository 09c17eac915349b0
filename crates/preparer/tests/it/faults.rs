//! Git that is killed, or meets an error, at its system calls: nothing is left, wherever that is.

use std::{fs, path::Path};

use groundcrew_core::workspace::{CloneObjects, FetchSpec, RepositorySpec, WorkspaceRequest};

use crate::fixture::*;

/// Every how many system calls git is killed where one worktree is made: every one.
const EVERY: usize = 1;
/// Every how many it is killed elsewhere.
const KILL_STEP: usize = 3;
/// Every how many system calls git meets an error; 1 tries every one.
const ERROR_STEP: usize = 16;

/// Ends or fails git at the n-th of its system calls that change something, for every n until it comes through.
async fn sweep(program: &str, subcommand: &str, fault: &str, step: usize) {
    for point in (1..400).step_by(step) {
        let mut fixture = Fixture::new();
        let before = fixture.fingerprint();
        wrapper(
            &mut fixture,
            subcommand,
            &format!(
                "exec strace -f -o /dev/null -e trace=write,rename,mkdir,link,unlink,rmdir,openat -e inject={fault}:when={point} {program} \"$@\""
            ),
        );
        let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        if launch.result.is_ok() {
            assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "");
        }
        let what = format!("{program} {subcommand} {fault} {point}");
        fixture.git = sound_git();
        assert_undone(&fixture, &launch, &what).await;
        fixture.assert_same(&before, &what);
        if launch.result.is_ok() && fault.contains("SIGKILL") {
            assert!(point > 2, "{what}: nothing was injected");
            return;
        }
        if point > 60 && !fault.contains("SIGKILL") {
            return;
        }
    }
    assert!(
        !fault.contains("SIGKILL"),
        "{program} {subcommand}: git never came through"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a tool of the machine that injects faults"
)]
fn can_trace() -> bool {
    let able = std::process::Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !able {
        eprintln!("skipped: this machine has no strace, or may not use it");
    }
    able
}

fn programs() -> Vec<&'static str> {
    ["/usr/local/bin/git", "/usr/bin/git"]
        .into_iter()
        .filter(|program| Path::new(program).exists())
        .collect()
}

#[tokio::test]
async fn f067_needs_strace_git_killed_at_any_system_call_leaves_nothing() {
    if !can_trace() {
        return;
    }
    // What an open has made is seen at the call behind it.
    let fault = "write,rename,mkdir,link,unlink,rmdir:signal=SIGKILL";
    for program in programs() {
        for subcommand in ["update-ref", "add", "read-tree"] {
            sweep(program, subcommand, fault, EVERY).await;
        }
    }
}

#[tokio::test]
async fn f046_f048_f070_needs_strace_git_that_meets_an_error_anywhere_leaves_nothing() {
    if !can_trace() {
        return;
    }
    for program in programs() {
        for subcommand in ["update-ref", "add", "read-tree"] {
            sweep(program, subcommand, "write:error=ENOSPC", ERROR_STEP).await;
            sweep(program, subcommand, "openat:error=EMFILE", ERROR_STEP).await;
            sweep(
                program,
                subcommand,
                "rename,mkdir,link,unlink,rmdir:error=EROFS",
                ERROR_STEP,
            )
            .await;
        }
    }
}

/// Ends or fails git while it fetches a start point, or while it writes the files of a clone, at every few system calls.
async fn sweep_beside(subcommand: &str, fault: &str, step: usize) {
    for point in (1..400).step_by(step) {
        let mut fixture = Fixture::new();
        let clone = fixture.path().join("clone");
        let up = fixture.repository.to_str().unwrap();
        git(
            &fixture.path(),
            &["clone", "-q", up, clone.to_str().unwrap()],
        );
        git(
            &fixture.repository,
            &["commit", "-q", "--allow-empty", "-m", "ahead"],
        );
        let before = git(&clone, &["show-ref"]);
        wrapper(
            &mut fixture,
            subcommand,
            &format!(
                "exec strace -f -o /dev/null -e trace=write,rename,mkdir,link,unlink,rmdir,openat -e inject={fault}:when={point} git \"$@\""
            ),
        );
        let spec = RepositorySpec {
            fetch: Some(FetchSpec::default()),
            ..RepositorySpec::new(&clone)
        };
        let request = request(WorkspaceRequest::Clone {
            repositories: vec![spec],
            objects: CloneObjects::Shared,
        });
        let mut launch = fixture.launch_with(&request, Recorder::default()).await;
        let what = format!("{subcommand} {fault} {point}");
        if launch.result.is_ok() {
            assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "", "{what}");
            git(launch.tree(), &["fsck", "--full"]);
        }
        launch.identities.clear();
        fixture.git = sound_git();
        assert_undone(&fixture, &launch, &what).await;
        assert_eq!(git(&clone, &["show-ref"]), before, "{what}");
        assert!(!clone.join(".git/refs/groundcrew").exists(), "{what}");
        git(&clone, &["fsck", "--full"]);
        if launch.result.is_ok() && fault.contains("SIGKILL") {
            assert!(point > 10, "{what}: nothing was injected");
            return;
        }
        if point > 60 {
            return;
        }
    }
}

#[tokio::test]
async fn f067_f070_needs_strace_a_fetch_or_a_clone_that_git_breaks_off_leaves_nothing() {
    if !can_trace() {
        return;
    }
    let kill = "write,rename,mkdir,link,unlink,rmdir,openat:signal=SIGKILL";
    for subcommand in ["fetch", "read-tree"] {
        sweep_beside(subcommand, kill, 2 * KILL_STEP).await;
        sweep_beside(subcommand, "write:error=ENOSPC", ERROR_STEP).await;
        sweep_beside(subcommand, "openat:error=EMFILE", ERROR_STEP).await;
    }
}

/// Ends or fails git at some of its system calls while it makes two worktrees of two repositories.
async fn sweep_several(program: &str, subcommand: &str, fault: &str, step: usize, most: usize) {
    for point in (1..most).step_by(step) {
        let mut fixture = Fixture::new();
        let second = fixture.path().join("second");
        let first = fixture.repository.to_str().unwrap();
        git(
            &fixture.path(),
            &["clone", "-q", first, second.to_str().unwrap()],
        );
        let before = fixture.fingerprint();
        let state = || {
            let refs = git(&second, &["for-each-ref"]);
            (refs, git(&second, &["worktree", "list", "--porcelain"]))
        };
        let before_second = state();
        wrapper(
            &mut fixture,
            subcommand,
            &format!(
                "exec strace -f -o /dev/null -e trace=read,write,rename,mkdir,link,unlink,rmdir,openat -e inject={fault}:when={point} {program} \"$@\""
            ),
        );
        let request = request(WorkspaceRequest::Worktree(vec![
            fixture.spec(),
            RepositorySpec::new(&second),
        ]));
        let mut launch = fixture.launch_with(&request, Recorder::default()).await;
        let what = format!("several: {program} {subcommand} {fault} {point}");
        if launch.result.is_ok() {
            for part in &launch.workspace().repositories {
                assert_eq!(git(&part.path, &["status", "--porcelain"]), "", "{what}");
            }
        }
        // As after a crash that lost what was noted last.
        if point % 2 == 0 {
            launch.identities.clear();
        }
        fixture.git = sound_git();
        assert_undone(&fixture, &launch, &what).await;
        fixture.assert_same(&before, &what);
        assert_eq!(state(), before_second, "{what}");
        if launch.result.is_ok() && fault.contains("SIGKILL") {
            assert!(point > 10, "{what}: nothing was injected");
            return;
        }
    }
}

#[tokio::test]
async fn f067_needs_strace_git_killed_between_two_repositories_leaves_nothing_in_either() {
    if !can_trace() {
        return;
    }
    let kill = "write,rename,mkdir,link,unlink,rmdir,openat:signal=SIGKILL";
    for subcommand in ["update-ref", "add", "read-tree"] {
        sweep_several("git", subcommand, kill, 3 * KILL_STEP, 400).await;
    }
}

#[tokio::test]
async fn f049_f070_needs_strace_git_that_meets_eio_or_eacces_leaves_nothing_in_either_repository() {
    if !can_trace() {
        return;
    }
    for program in programs() {
        for subcommand in ["update-ref", "add", "read-tree"] {
            for fault in [
                "read:error=EIO",
                "write:error=EIO",
                "openat:error=EACCES",
                "rename,mkdir,link,unlink,rmdir:error=EACCES",
            ] {
                sweep_several(program, subcommand, fault, ERROR_STEP, 50).await;
            }
        }
    }
}

/// Ends or fails git at some of its system calls while it deletes the refs of a launch; then a sound one goes on.
async fn sweep_deletion(fault: &str, step: usize, most: usize) {
    for point in (1..most).step_by(step) {
        let mut fixture = Fixture::new();
        let refs = |fixture: &Fixture| git(&fixture.repository, &["for-each-ref"]);
        let before = refs(&fixture);
        let request = request(WorkspaceRequest::Clone {
            repositories: vec![fixture.spec()],
            objects: CloneObjects::Copied,
        });
        let cloned = fixture.launch_with(&request, Recorder::default()).await;
        let launches = [fixture.launch().await, cloned];
        for launch in &launches {
            launch.result.as_ref().unwrap();
        }
        // They are in the file of all packed refs, or each in its own.
        if point % 2 == 0 {
            git(&fixture.repository, &["pack-refs", "--all"]);
        }
        let sound = fixture.git.clone();
        wrapper(
            &mut fixture,
            "update-ref",
            &format!(
                "exec strace -f -o /dev/null -e trace=read,write,rename,mkdir,link,unlink,rmdir,openat -e inject={fault}:when={point} git \"$@\""
            ),
        );
        let what = format!("deletion: {fault} {point}");
        let mut whole = true;
        for launch in &launches {
            whole &= fixture.try_undo(launch, FAILURE).await.is_ok();
        }
        fixture.git = sound;
        // It is in the way of every git, ours included; who kills one with SIGKILL removes it, as git itself says.
        let lock = fixture.repository.join(".git/packed-refs.lock");
        if fault.contains("SIGKILL") && lock.exists() {
            assert!(!whole, "{what}");
            fs::remove_file(lock).unwrap();
        }
        for launch in &launches {
            assert_gone(&fixture.undo(launch, FAILURE).await, &what);
        }
        fixture.assert_home_is_empty();
        assert_eq!(refs(&fixture), before, "{what}");
        let git_dir = fixture.repository.join(".git");
        for left in [
            "packed-refs.lock",
            "refs/groundcrew",
            "refs/heads/groundcrew",
        ] {
            assert!(!git_dir.join(left).exists(), "{what}: {left}");
        }
        if whole && fault.contains("SIGKILL") {
            assert!(point > 10, "{what}: nothing was injected");
            return;
        }
    }
}

#[tokio::test]
async fn f067_f070_needs_strace_git_that_breaks_off_a_deletion_leaves_nothing_once_it_is_sound() {
    if !can_trace() {
        return;
    }
    let kill = "write,rename,mkdir,link,unlink,rmdir,openat:signal=SIGKILL";
    sweep_deletion(kill, KILL_STEP, 400).await;
    for fault in [
        "read:error=EIO",
        "write:error=ENOSPC",
        "openat:error=EMFILE",
        "rename,mkdir,link,unlink,rmdir:error=EROFS",
    ] {
        sweep_deletion(fault, ERROR_STEP, 50).await;
    }
}
