//! The main job in a container, and everything taken back.

use std::{fs, os::unix::fs::MetadataExt as _};

use rustix::process::Signal;

use crate::ground::{Call, Engine, Ground, Repository, path, text, until};

const COMMITS: &str = "echo made >made && git add made && git commit -qm made";

fn image() {
    Engine::shared();
}

fn run(ground: &Ground, repository: &Repository, options: &[&str], script: &str) -> Call {
    Engine::shared().run(ground, repository, options, script)
}

fn call(ground: &Ground, words: &[&str]) -> Call {
    Engine::shared().call(ground, words)
}

fn containers(ground: &Ground) -> Vec<String> {
    Engine::shared().containers(ground)
}

#[test]
fn needs_docker_a_command_commits_in_a_private_clone_and_all_is_taken_back() {
    image();
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.git(["config", "user.name", "The User"]);
    let before = repository.fingerprint();
    let script = format!("{COMMITS}; env; touch $(git rev-parse --git-dir)/hooks-of-mine");
    let outcome = run(&ground, &repository, &["--format", "json"], &script)
        .run()
        .ok();
    assert!(containers(&ground).is_empty(), "it ended, and stays");
    assert!(
        repository.fingerprint() == before,
        "the user's repository was changed"
    );
    let run = outcome.json();
    let workspace = path(&run["workspace"]);
    let made = fs::metadata(workspace.join("made")).unwrap();
    assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
    let id = text(&run["id"]);
    let branch = text(&run["branch"]);
    assert_eq!(repository.git(["log", "--format=%s", branch]), "made\nbase");
    let logs = call(&ground, &["logs", id]).run().ok().out();
    for words in [
        "GIT_AUTHOR_NAME=The User",
        "GROUNDCREW_RUN_ID=",
        "PATH=/usr/local/sbin",
    ] {
        assert!(logs.contains(words), "{words}: {logs}");
    }
    // Nothing of the caller's own environment.
    assert!(
        !logs.contains("TMPDIR") && !logs.contains("GROUNDCREW_HOME"),
        "{logs}"
    );
    call(&ground, &["resume", id, "--", "cat", "made"])
        .run()
        .ok()
        .says("made");
    call(&ground, &["close", id]).run().ok();
    assert_eq!(
        repository.git(["log", "-1", "--format=%an", branch]),
        "The User"
    );
    assert!(!workspace.exists());
    assert!(containers(&ground).is_empty());
    assert_eq!(
        fs::read_dir(ground.state().join("containers"))
            .unwrap()
            .count(),
        0
    );
    ground.until_quiet();
}

#[test]
fn c24_needs_docker_git_works_in_a_bound_worktree_and_what_git_executes_is_read_only() {
    image();
    for name in ["plain", "with space", "colon:comma,"] {
        let ground = Ground::new();
        let repository = ground.repository(name);
        fs::create_dir_all(repository.git_dir().join("hooks")).unwrap();
        let before = repository.fingerprint();
        let script = format!(
            "{COMMITS} && git status --short && c=$(git rev-parse --git-common-dir); \
             touch \"$c/hooks/evil\"; echo evil >>\"$c/config\"; touch \"$c/info/evil\"; echo end"
        );
        let options = ["--workspace", "bind", "--format", "json"];
        let outcome = run(&ground, &repository, &options, &script).run().ok();
        let run = outcome.json();
        let branch = text(&run["branch"]);
        assert_eq!(repository.git(["log", "--format=%s", branch]), "made\nbase");
        assert!(
            repository.fingerprint() == before,
            "{name}: hooks or configuration were changed"
        );
        let workspace = path(&run["workspace"]);
        assert_eq!(repository.git_in(&workspace, ["status", "--short"]), "");
        call(&ground, &["rm", "--force", text(&run["id"])])
            .run()
            .ok();
        assert!(containers(&ground).is_empty());
    }
}

#[test]
fn c11_needs_docker_a_run_survives_its_controller_and_ends_when_told() {
    image();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "trap '' TERM; echo begun; while :; do sleep 1; done";
    let job = run(&ground, &repository, &[], script).spawn();
    job.until_out("begun");
    job.signal(Signal::KILL);
    job.wait();
    let runs = ground.runs(false);
    let id = text(&runs[0]["id"]);
    assert_eq!(runs[0]["state"], "running", "{runs:#?}");
    assert_eq!(containers(&ground).len(), 1);
    assert_eq!(call(&ground, &["logs", id]).run().ok().out(), "begun\n");
    call(&ground, &["stop", "--grace", "1s", id]).run().ok();
    until("the container is gone", || containers(&ground).is_empty());
    // One that is still at work is ended by its removal.
    let detached = run(
        &ground,
        &repository,
        &["--detach", "--format", "json"],
        "exec sleep 600",
    );
    let detached = detached.run().ok().json();
    assert_eq!(containers(&ground).len(), 1);
    call(&ground, &["rm", text(&detached["id"])]).run().ok();
    assert!(containers(&ground).is_empty());
    call(&ground, &["rm", id]).run().ok();
    ground.until_quiet();
}
