//! Every step of a plan goes wrong, before and after its effects and between them; the process dies at each of these points.
//!
//! Before the command is started nothing may be left. From then on, where the command may have worked, its work survives
//! and nothing else. The points are those that a real launch passes, so that a new one cannot be forgotten.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use crate::ground::{Ground, Leaks, Repository, is_whole, path, text, until};

/// Commits, leaves an untracked file, and stays.
const WORK: &str =
    "echo kept >kept && git add kept && git commit -qm kept && echo loose >loose && exec sleep 600";

/// A file to take along and a script that changes nothing, so that their points are among the others.
const MORE: [&str; 4] = ["--include", "own", "--setup", "grep -q mine own"];
/// The same, for documents.
const MORE_JSON: [&str; 6] = ["--format", "json", MORE[0], MORE[1], MORE[2], MORE[3]];

/// The first point at which the command may have worked.
const STARTED: &str = "start.after";

fn fresh() -> (Ground, Repository) {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write("own", "mine\n");
    (ground, repository)
}

/// Returns the points that a launch passes, in order.
fn points(ground: &Ground, repository: &Repository) -> Vec<String> {
    points_with(ground, repository, &MORE)
}

/// The same for a launch with other options.
fn points_with(ground: &Ground, repository: &Repository, options: &[&str]) -> Vec<String> {
    let file = ground.path("points");
    let call = ground.run_shell(repository, options, "true");
    call.note_points(&file).run().ok();
    let points: Vec<_> = fs::read_to_string(&file)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    fs::remove_file(&file).unwrap();
    points
}

/// Returns the points before the command may have worked, and those behind.
fn parted(ground: &Ground, repository: &Repository) -> (Vec<String>, Vec<String>) {
    let mut before = points(ground, repository);
    let started = before.iter().position(|point| point == STARTED).unwrap();
    let behind = before.split_off(started);
    (before, behind)
}

#[test]
fn every_step_of_the_plan_has_points_before_and_after_it() {
    let (ground, repository) = fresh();
    let words = ["--format", "json", "plan", "--", "true"];
    let plan = ground
        .call(words)
        .directory(repository.path())
        .run()
        .ok()
        .json();
    let steps: Vec<_> = plan["steps"].as_array().unwrap().iter().map(text).collect();
    let points = points(&ground, &repository);
    let mut passed: Vec<&str> = points
        .iter()
        .map(|point| point.rsplit_once('.').unwrap().0)
        .collect();
    passed.dedup();
    assert_eq!(passed, steps);
    for step in steps {
        for place in ["before", "after"] {
            assert!(
                points.contains(&format!("{step}.{place}")),
                "{step}.{place}: {points:?}"
            );
        }
    }
    let distinct: BTreeSet<_> = points.iter().collect();
    assert_eq!(
        distinct.len(),
        points.len(),
        "a point is passed twice: {points:?}"
    );
    // Making a work tree has effects that only points between them can tell apart.
    let inside = points
        .iter()
        .filter(|point| point.starts_with("prepare:worktree."));
    assert!(inside.count() >= 5, "{points:?}");
}

/// Fails at each point, and demands that nothing is left.
fn fails(what: &str) {
    let (ground, repository) = fresh();
    let (before, _) = parted(&ground, &repository);
    let leaks = Leaks::watch(&ground, &[&repository]).except_logs();
    for point in before {
        let fault = format!("{point}={what}");
        let call = ground.run_shell(&repository, &MORE_JSON, WORK);
        let outcome = call.fault(&fault).run().code(125);
        let error = outcome.error();
        let step = point.rsplit_once('.').unwrap().0;
        assert_eq!(error["step"], step, "{fault}: {outcome:?}");
        assert_eq!(error["rollback"]["clean"], true, "{fault}: {outcome:?}");
        leaks.none(&fault);
    }
    // The ground is as good as new.
    ground.ran(&repository, &[], "true");
}

#[test]
fn an_error_at_any_point_before_the_start_leaves_nothing() {
    fails("error");
}

#[test]
fn f139_a_panic_at_any_point_before_the_start_leaves_nothing() {
    fails("panic");
}

#[test]
fn f127_kill_9_at_any_point_before_the_start_and_recovery_leave_nothing() {
    let (ground, repository) = fresh();
    let (before, _) = parted(&ground, &repository);
    let leaks = Leaks::watch(&ground, &[&repository]).except_logs();
    for point in before {
        let fault = format!("{point}=kill9");
        let outcome = ground
            .run_shell(&repository, &MORE, WORK)
            .fault(&fault)
            .run();
        assert_eq!(outcome.signal, Some(9), "{fault}: {outcome:?}");
        let recovered = ground.recover();
        for name in ["stuck", "kept", "strays", "unknown", "busy"] {
            assert_eq!(recovered[name], json!([]), "{fault}: {recovered:#}");
        }
        leaks.none(&fault);
    }
    assert_eq!(ground.recover()["rolled_back"], json!([]));
    ground.ran(&repository, &[], "true");
}

/// Returns how often each point is died at: once among all tests, often under `cargo xtask soak`.
fn rounds() -> usize {
    if is_whole() { 20 } else { 1 }
}

#[test]
fn f127_g01_kill_9_at_every_point_and_again_in_the_recovery_leaves_nothing_on_both_executors() {
    const LOCAL: [&str; 6] = [
        "--executor",
        "local",
        "--workspace",
        "in-place",
        "--setup",
        "true",
    ];
    for (executor, options) in [("local", &LOCAL[..]), ("worktree", &MORE[..])] {
        let (ground, repository) = fresh();
        let mut points = points_with(&ground, &repository, options);
        let started = points.iter().position(|point| point == STARTED).unwrap();
        points.truncate(started);
        assert!(points.len() >= 20, "{points:?}");
        let leaks = Leaks::watch(&ground, &[&repository]).except_logs();
        for round in 0..rounds() {
            for point in &points {
                let fault = format!("{point}=kill9");
                let outcome = ground.run_shell(&repository, options, WORK);
                let outcome = outcome.fault(&fault).run();
                assert_eq!(outcome.signal, Some(9), "{executor} {fault}: {outcome:?}");
                let recovered = ground.recover();
                for name in ["stuck", "kept", "strays", "unknown", "busy"] {
                    assert_eq!(
                        recovered[name],
                        json!([]),
                        "{executor} {fault} {round}: {recovered:#}"
                    );
                }
                leaks.none(&format!("{executor} {fault} {round}"));
            }
        }
        let again = ground.run_shell(&repository, options, "true").run();
        assert_eq!(again.code, Some(0), "{executor}: {again:?}");
    }
}

#[test]
fn f127_a_session_whose_launch_died_is_free_after_recovery() {
    let (ground, repository) = fresh();
    for point in [
        "reserve.after",
        "prepare:worktree.branch-made",
        "create.after",
        "admit_again.after",
    ] {
        let fault = format!("{point}=kill9");
        let options = ["--session", "same"];
        let died = ground
            .run_shell(&repository, &options, "true")
            .fault(&fault)
            .run();
        assert_eq!(died.signal, Some(9), "{died:?}");
        ground.recover();
        let again = ground.run_shell(&repository, &options, "echo again").run();
        again.ok().says("again");
    }
}

/// Strikes a launch at a point behind the start, once the command has worked.
fn strikes(point: &str, what: &str) {
    let (ground, repository) = fresh();
    let before = repository.fingerprint();
    let fault = format!("{point}={what}");
    let held = ground.path("held");
    let job = ground
        .run_shell(&repository, &MORE_JSON, WORK)
        .fault(&fault)
        .hold(STARTED, &held)
        .spawn();
    until("the command is started", || {
        held.with_extension("reached").exists()
    });
    let workspace = path(&ground.runs(false)[0]["workspace"]);
    until("the command has worked", || {
        workspace.join("loose").exists()
    });
    fs::write(&held, "").unwrap();
    let outcome = job.wait();
    if what == "kill9" {
        assert_eq!(outcome.signal, Some(9), "{fault}: {outcome:?}");
    } else {
        assert_eq!(outcome.code, Some(125), "{fault}: {outcome:?}");
        let error = outcome.error();
        assert_eq!(error["rollback"]["clean"], true, "{fault}: {outcome:?}");
    }
    // A launch is taken back at once. A run that was committed lives on, within its lease, which nobody disturbs by asking.
    ground.recover();
    ground.until_quiet();
    ground.recover();
    assert!(repository.fingerprint() == before, "{fault}");
    survives(&ground, &repository, &fault);
}

/// Demands that the work of the command is there, and nothing else that was made for it.
fn survives(ground: &Ground, repository: &Repository, when: &str) {
    let runs = ground.runs(false);
    assert_eq!(runs.len(), 1, "{when}: {runs:#?}");
    let run: &Value = &runs[0];
    assert_eq!(run["state"], "interrupted", "{when}: {run:#}");
    let branch = text(&run["branch"]);
    let subject = repository.git(["log", "-1", "--format=%s", branch]);
    assert_eq!(subject, "kept", "{when}");
    let workspace = path(&run["workspace"]);
    for name in ["kept", "loose"] {
        let content = fs::read_to_string(workspace.join(name)).unwrap();
        assert_eq!(content, format!("{name}\n"), "{when}");
    }
    ground.until_quiet();
    let sockets = crate::ground::tree(&ground.state().join("instances"), &|_| true);
    let left: Vec<_> = sockets
        .keys()
        .filter(|path| path.ends_with("start.json"))
        .collect();
    assert!(left.is_empty(), "{when}: {left:?}");
    assert_eq!(repository.worktree_entries().len(), 1, "{when}");
    assert!(repository.locks().is_empty(), "{when}");
    assert_eq!(repository.branches().len(), 2, "{when}");
    // It can be gone on with, and removed.
    let id = text(&run["id"]);
    let resumed = ground.call(["resume", id, "--", "cat", "loose"]).run();
    resumed.ok().says("loose");
    ground.call(["rm", id]).run().code(4).says("loose");
    ground.call(["rm", "--force", id]).run().ok();
    assert_eq!(repository.branches(), ["main"], "{when}");
    assert_eq!(repository.worktree_entries().len(), 0, "{when}");
}

#[test]
fn the_work_of_a_command_survives_an_error_at_any_point_behind_the_start() {
    let (ground, repository) = fresh();
    let (_, behind) = parted(&ground, &repository);
    for point in behind {
        strikes(&point, "error");
    }
}

#[test]
fn f127_the_work_of_a_command_survives_kill_9_at_any_point_behind_the_start() {
    let (ground, repository) = fresh();
    let (_, behind) = parted(&ground, &repository);
    for point in behind {
        strikes(&point, "kill9");
    }
}

#[test]
fn a_failure_in_a_resumed_launch_leaves_the_run_as_it_was() {
    let (ground, repository) = fresh();
    let run = ground.ran(&repository, &[], "echo loose >loose");
    let id = text(&run["id"]);
    let (before, _) = parted(&ground, &repository);
    let leaks = Leaks::watch(&ground, &[&repository]).except_logs();
    for point in before.iter().filter(|point| {
        // What was made and set up already is not made again.
        let again = ["prepare", "populate", "setup.setup-"];
        !again.iter().any(|name| point.starts_with(name))
    }) {
        for what in ["error", "kill9"] {
            let fault = format!("{point}={what}");
            let resumed = ground
                .call(["resume", id, "--", "true"])
                .fault(&fault)
                .run();
            assert_ne!(resumed.code, Some(0), "{fault}: {resumed:?}");
            ground.recover();
            leaks.none(&fault);
            let after = ground.show(id);
            assert_eq!(after["state"], "exited", "{fault}: {after:#}");
        }
    }
    ground
        .call(["resume", id, "--", "cat", "loose"])
        .run()
        .ok()
        .says("loose");
}

#[test]
fn f082_a_rollback_that_cannot_finish_is_finished_by_recovery() {
    let (ground, repository) = fresh();
    let leaks = Leaks::watch(&ground, &[&repository]);
    // The rollback of the failed launch cannot finish: the repository's refs are locked by somebody else.
    let lock = repository.git_dir().join("packed-refs.lock");
    fs::write(&lock, "").unwrap();
    let outcome = ground
        .run_shell(&repository, &["--format", "json"], "true")
        .fault("create.before=error")
        .run();
    assert_eq!(outcome.code, Some(125), "{outcome:?}");
    fs::remove_file(&lock).unwrap();
    ground.recover();
    leaks.none("after the lock is gone");
}
