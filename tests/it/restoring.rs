//! `restore`, `trash`, `gc` and `ls --workspaces`: what was removed comes back, what is old goes, what nobody knows stays.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use serde_json::Value;

use crate::ground::{Ground, Repository, path, text, tree, until};

struct Removed {
    id: String,
    workspace: PathBuf,
    branch: String,
}

/// A run with work of every sort, removed by force.
fn removed(ground: &Ground, repository: &Repository) -> Removed {
    let script =
        "echo c >c; git add c; git commit -qm work; echo s >s; git add s; echo u >u; echo x >>f";
    let run = ground.ran(repository, &["--keep"], script);
    let id = text(&run["id"]).to_owned();
    let report = json(ground, &["rm", "--force", &id]);
    assert_eq!(report["outcome"], "closed", "{report:#}");
    let removed = Removed {
        id,
        workspace: path(&run["workspace"]),
        branch: text(&run["branch"]).to_owned(),
    };
    assert!(!removed.workspace.exists());
    removed
}

fn json(ground: &Ground, words: &[&str]) -> Value {
    let all = ["--format", "json"].iter().chain(words);
    ground.call(all).run().ok().json()
}

fn assert_back(repository: &Repository, removed: &Removed) {
    let status = repository.git_in(&removed.workspace, ["status", "--porcelain"]);
    assert_eq!(status, " M f\nA  s\n?? u");
    let subject = repository.git(["log", "-1", "--format=%s", &removed.branch]);
    assert_eq!(subject, "work");
}

#[test]
fn c01_a_run_that_was_removed_by_force_is_a_stopped_one_again() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = removed(&ground, &repository);
    let report = json(&ground, &["restore", &run.id[..6]]);
    assert_eq!(
        (&report["restored"], &report["state"]),
        (&Value::from(true), &Value::from("stopped")),
        "{report:#}"
    );
    assert_eq!(path(&report["places"][0]), run.workspace);
    assert_eq!(report["branches"][0], run.branch);
    assert_back(&repository, &run);
    assert_eq!(ground.state_of(&run.id), "stopped");
    // Asked again, nothing is done.
    let again = json(&ground, &["restore", &run.id]);
    assert_eq!(again["restored"], false, "{again:#}");
    assert_eq!(
        json(&ground, &["trash", "ls"])["trash"],
        Value::Array(vec![])
    );
    // It is owned as before: recovery leaves it, removal refuses, it can be resumed, and goes by force.
    ground.recover();
    assert_back(&repository, &run);
    ground.call(["rm", &run.id]).run().code(4);
    let words = [
        "resume",
        &run.id,
        "--",
        "sh",
        "-c",
        "cat u; git log -1 --format=%s",
    ];
    assert_eq!(ground.call(words).run().ok().out(), "u\nwork\n");
    json(&ground, &["rm", "--force", &run.id]);
    assert_eq!(repository.branches(), ["main"]);
    json(&ground, &["restore", &run.id]);
    assert_back(&repository, &run);
}

#[test]
fn c02_restore_refuses_what_is_in_the_way_and_says_how_to_go_on() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    ground.call(["restore", "nothing"]).run().code(3);
    let run = removed(&ground, &repository);
    fs::create_dir_all(&run.workspace).unwrap();
    fs::write(run.workspace.join("mine"), "x").unwrap();
    let outcome = ground
        .call(["--format", "json", "restore", &run.id])
        .run()
        .code(1);
    let error = outcome.error();
    assert_eq!(error["kind"], "already_exists", "{error:#}");
    assert!(error.to_string().contains(run.workspace.to_str().unwrap()));
    assert_eq!(ground.state_of(&run.id), "closed");
    assert!(run.workspace.join("mine").is_file());
    // Elsewhere it may come back as a plain worktree.
    let to = ground.path("mine");
    let report = json(&ground, &["restore", "--to", to.to_str().unwrap(), &run.id]);
    assert_eq!(path(&report["places"][0]), to);
    assert_eq!(report["state"], Value::Null);
    assert_eq!(
        repository.git_in(&to, ["status", "--porcelain", "u"]),
        "?? u"
    );
    assert_eq!(ground.state_of(&run.id), "closed");
    ground.call(["restore", &run.id]).run().code(3);
}

#[test]
fn c02_a_session_that_has_another_run_keeps_it() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--keep", "--session", "one"];
    let first = ground.ran(&repository, &options, "echo u >u");
    let id = text(&first["id"]);
    json(&ground, &["rm", "--force", id]);
    let second = ground.ran(&repository, &options, "echo v >v");
    let outcome = ground
        .call(["--format", "json", "restore", id])
        .run()
        .code(6);
    let error = outcome.error();
    assert_eq!(error["kind"], "session_busy", "{error:#}");
    assert!(error.to_string().contains(text(&second["id"])));
    assert!(!path(&first["workspace"]).exists());
    assert_eq!(ground.state_of(text(&second["id"])), "exited");
}

#[test]
fn c01_the_trash_is_listed_and_emptied_by_age_and_snapshots_stay() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = removed(&ground, &repository);
    let listed = json(&ground, &["trash", "ls"]);
    let one = &listed["trash"][0];
    assert_eq!(one["run"], run.id.as_str(), "{listed:#}");
    assert_eq!(path(&one["path"]), run.workspace);
    for (words, kept) in [
        (&["trash", "empty", "--older-than", "1h"][..], true),
        (&["trash", "empty", "--dry-run"], true),
        (&["trash", "empty"], false),
    ] {
        let report = json(&ground, words);
        let count = report["removed"].as_array().unwrap().len();
        assert_eq!(
            count,
            usize::from(!words.contains(&"--older-than")),
            "{report:#}"
        );
        assert_eq!(path(&one["place"]).exists(), kept, "{words:?}");
    }
    ground.call(["trash", "ls"]).run().ok().says(&run.id);
    let report = json(&ground, &["restore", &run.id]);
    assert!(text(&report["notes"][0]).contains("snapshot"), "{report:#}");
    assert_back(&repository, &run);
}

/// Makes everything below a directory older.
fn age(directory: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_hours(24 * days);
    for path in tree(directory, &|_| true).into_keys() {
        let file = fs::File::open(directory.join(path)).unwrap();
        file.set_modified(then).unwrap();
    }
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
        }
        fs::File::open(&directory)
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
}

fn gone(report: &Value, what: &str) -> usize {
    let removed = report["removed"].as_array().unwrap();
    removed.iter().filter(|gone| gone["what"] == what).count()
}

#[test]
fn c04_gc_removes_what_is_old_and_proven_and_names_what_it_keeps() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = removed(&ground, &repository);
    let live = ground.ran(&repository, &["--keep"], "echo u >u");
    let logs = ground.state().join("logs");
    let stray = ground.state().join("worktrees/stray");
    fs::create_dir(&stray).unwrap();
    let marker = path(&live["workspace"]).with_file_name(".groundcrew-workspace.json");
    let attempt = "0".repeat(32);
    let forged = fs::read_to_string(marker).unwrap();
    let known = forged.split("\"attempt\": \"").nth(1).unwrap()[..32].to_owned();
    fs::write(
        stray.join(".groundcrew-workspace.json"),
        forged.replace(&known, &attempt),
    )
    .unwrap();
    fs::create_dir_all(ground.state().join("tasks/nobody")).unwrap();
    fs::write(ground.state().join("locks/attempt").join(&attempt), "").unwrap();
    // Nothing is old yet.
    let report = json(&ground, &["gc", "--dry-run"]);
    assert_eq!((gone(&report, "trash"), gone(&report, "logs")), (0, 0));
    assert!(report.to_string().contains("stray"), "{report:#}");
    age(&logs, 8);
    let would = json(&ground, &["gc", "--dry-run", "--older-than", "0"]);
    assert_eq!(fs::read_dir(&logs).unwrap().count(), 2);
    assert_eq!(
        json(&ground, &["trash", "ls"])["trash"][0]["run"],
        run.id.as_str()
    );
    let did = json(&ground, &["gc", "--older-than", "0"]);
    for list in ["removed", "kept", "strays", "failed"] {
        assert_eq!(would[list], did[list], "{list}");
    }
    for (what, count) in [("trash", 1), ("logs", 1), ("lock", 1), ("directory", 1)] {
        assert!(gone(&did, what) >= count, "{what}: {did:#}");
    }
    assert_eq!(gone(&did, "snapshot"), 0);
    assert_eq!(fs::read_dir(&logs).unwrap().count(), 1);
    assert!(!ground.state().join("tasks/nobody").exists());
    // The logs of the run that is kept, its workspace and the stray are there.
    ground.call(["logs", text(&live["id"])]).run().ok();
    assert!(path(&live["workspace"]).join("u").is_file());
    assert!(stray.exists());
    assert!(
        did["kept"].to_string().contains(text(&live["id"])),
        "{did:#}"
    );
    // Snapshots go only when somebody says so.
    let refs = || repository.git(["for-each-ref", "refs/groundcrew/snapshots"]);
    assert_ne!(refs(), "");
    let report = json(&ground, &["gc", "--snapshots-older-than", "1h"]);
    assert_eq!(gone(&report, "snapshot"), 0, "{report:#}");
    let report = json(&ground, &["gc", "--snapshots-older-than", "0"]);
    // One of the tree, one of the branch.
    assert_eq!(gone(&report, "snapshot"), 2, "{report:#}");
    assert_eq!(refs(), "");
    assert_eq!(
        json(&ground, &["trash", "ls"])["trash"],
        Value::Array(vec![])
    );
}

#[test]
fn c04_an_incomplete_inventory_removes_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = removed(&ground, &repository);
    let locks = ground.state().join("locks/repository");
    fs::remove_dir_all(&locks).unwrap();
    fs::write(&locks, "").unwrap();
    ground.call(["gc", "--older-than", "0"]).run().code(1);
    assert_eq!(
        json(&ground, &["trash", "ls"])["trash"][0]["run"],
        run.id.as_str()
    );
    fs::remove_file(&locks).unwrap();
    let report = json(&ground, &["gc", "--older-than", "0"]);
    assert_eq!(gone(&report, "trash"), 1);
}

#[test]
fn gc_takes_caches_only_when_asked_and_no_run_is_at_work() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--keep", "--cache", "MY_CACHE"];
    ground.ran(&repository, &options, "echo x >\"$MY_CACHE/x\"");
    let caches = ground.state().join("caches");
    let count = || fs::read_dir(&caches).unwrap().count();
    assert_eq!(count(), 1);
    assert_eq!(gone(&json(&ground, &["gc"]), "cache"), 0);
    let run = ground.detached(&repository, &[], "exec sleep 1000");
    let report = json(&ground, &["gc", "--caches"]);
    assert_eq!((gone(&report, "cache"), count()), (0, 1), "{report:#}");
    assert!(report["kept"].to_string().contains(text(&run["id"])));
    ground.call(["stop", text(&run["id"])]).run().ok();
    let report = json(&ground, &["gc", "--caches", "--dry-run"]);
    assert_eq!((gone(&report, "cache"), count()), (1, 1), "{report:#}");
    let report = json(&ground, &["gc", "--caches"]);
    assert_eq!((gone(&report, "cache"), count()), (1, 0), "{report:#}");
}

#[test]
fn c04_f059_workspaces_are_listed_with_whose_they_are_and_what_proves_it() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let dirty = ground.ran(
        &repository,
        &["--keep"],
        "echo u >u; git commit -q --allow-empty -m w",
    );
    let clean = ground.ran(&repository, &["--keep"], "true");
    let stray = ground.state().join("worktrees/stray");
    fs::create_dir(&stray).unwrap();
    // A forged marker proves nothing: the directory is another one than the row's.
    let copied = ground.state().join("worktrees/copied");
    fs::create_dir(&copied).unwrap();
    let marker = ".groundcrew-workspace.json";
    let of_clean = path(&clean["workspace"]).with_file_name(marker);
    fs::copy(of_clean, copied.join(marker)).unwrap();
    let listed = json(&ground, &["ls", "--workspaces"]);
    let all = listed["workspaces"].as_array().unwrap();
    let find = |wanted: &Path| {
        let mut found = all.iter().filter(|one| path(&one["path"]) == wanted);
        found.next().unwrap_or_else(|| panic!("{listed:#}"))
    };
    for (run, dirty, commits) in [(&dirty, true, 1), (&clean, false, 0)] {
        let workspace = path(&run["workspace"]);
        let one = find(workspace.parent().unwrap());
        assert_eq!(
            (&one["owner"], &one["proof"]),
            (&"run".into(), &"row".into())
        );
        assert_eq!(one["run"], run["id"]);
        assert_eq!(one["branch"], run["branch"]);
        assert_eq!(one["dirty"], dirty);
        assert_eq!(one["commit_count"], commits);
    }
    let one = find(&stray);
    assert_eq!(
        (&one["owner"], &one["proof"]),
        (&"stray".into(), &"none".into())
    );
    assert_ne!(find(&copied)["proof"], "row", "{listed:#}");
    assert_eq!(all.len(), 4);
    json(&ground, &["gc", "--older-than", "0"]);
    ground.recover();
    assert!(copied.join(marker).is_file() && stray.exists());
    ground.call(["ls", "--workspaces"]).run().ok().says("stray");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "`cp` needs neither directory nor environment"
)]
fn c04_needs_strace_a_collection_that_a_launch_ends_tells_what_it_removed() {
    const LOGS: usize = 60;
    let ground = Ground::new();
    let repository = ground.repository("r");
    removed(&ground, &repository);
    let logs = ground.state().join("logs");
    let first = fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path();
    for number in 1..LOGS {
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&first)
            .arg(logs.join(format!("{number:032x}")))
            .status();
        assert!(copied.unwrap().success());
    }
    age(&logs, 8);
    let left = || fs::read_dir(&logs).unwrap().count();
    // Slowly, so that there is something between two removals.
    let words = ["--format", "json", "gc", "--older-than", "1h"];
    let slow = "-f -qq -o /dev/null -e trace=unlinkat -e inject=unlinkat:delay_enter=100000";
    let collecting = ground
        .call(words)
        .through("strace", slow.split(' '))
        .spawn();
    until("the first logs are gone", || left() < LOGS);
    ground
        .run_shell(&repository, &["--keep"], "true")
        .run()
        .ok();
    let outcome = collecting.wait().code(6);
    let report = outcome.json();
    assert_eq!(report["unfinished"]["kind"], "busy", "{report:#}");
    let gone = gone(&report, "logs");
    // Those of the launch that ended it have come.
    assert_eq!(gone, LOGS + 1 - left(), "{report:#}");
    assert!((1..LOGS).contains(&gone), "{report:#}");
    let rest = json(&ground, &["gc", "--older-than", "1h"]);
    assert_eq!((left(), &rest["unfinished"]), (1, &Value::Null));
}

/// Every how many system calls something goes wrong in a removal, and in a restore, which makes fewer; 1 tries every one.
/// They are counted in each thread by itself, so how far the points reach differs from call to call.
const STEP: usize = 9;
const RESTORE_STEP: usize = 4;
/// What is counted: calls that change something.
const CALLS: &str =
    "rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir,write,fsync,fdatasync,pwrite64";

/// Calls the command, and has one of its system calls, or its life, go wrong.
fn under(ground: &Ground, words: &[&str], calls: &str, fault: &str, point: usize) -> Option<i32> {
    let strace = ["strace", "-f", "-o", "/dev/null", "-e"];
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:{fault}:when={point}");
    let before = strace.into_iter().chain([&*trace, "-e", &*inject]);
    let outcome = ground.call(words).through("/usr/bin/env", before).run();
    assert_ne!(outcome.code, Some(101), "{outcome:?}");
    assert!(!outcome.err().contains("panicked"), "{outcome:?}");
    outcome.code
}

#[test]
fn c01_needs_strace_a_restore_that_is_killed_anywhere_is_finished_by_the_next() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let mut killed = 0;
    for point in (1..400).step_by(RESTORE_STEP) {
        let run = removed(&ground, &repository);
        let words = ["restore", &run.id];
        let whole = under(&ground, &words, CALLS, "signal=SIGKILL", point) == Some(0);
        killed += usize::from(!whole);
        // Whatever it came to: recovery loses nothing, and asking again finishes it.
        if point % 2 == 0 {
            ground.call(["recover"]).run();
        }
        ground.call(words).run().ok();
        assert_back(&repository, &run);
        ground.call(["rm", &run.id]).run().code(4);
        json(&ground, &["rm", "--force", &run.id]);
        if whole {
            assert!(killed > 3, "nothing was injected");
            return;
        }
    }
}

/// Leaves work, and has its removal by force go wrong; whatever it came to, the work is there or comes back.
fn removal_survives(calls: &str, fault: &str, most: usize) {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let mut failed = 0;
    for point in (1..most).step_by(STEP) {
        let script = "echo c >c; git add c; git commit -qm work; echo s >s; git add s; echo u >u; echo x >>f";
        let run = ground.ran(&repository, &["--keep"], script);
        let run = Removed {
            id: text(&run["id"]).to_owned(),
            workspace: path(&run["workspace"]),
            branch: text(&run["branch"]).to_owned(),
        };
        let words = ["rm", "--force", &run.id];
        let whole = under(&ground, &words, calls, fault, point) == Some(0);
        failed += usize::from(!whole);
        ground.call(["recover"]).run();
        if ground.state_of(&run.id) != "closed" {
            json(&ground, &words);
        }
        assert_eq!(ground.state_of(&run.id), "closed", "{fault} {point}");
        assert!(!run.workspace.exists(), "{fault} {point}");
        assert_eq!(repository.branches(), ["main"], "{fault} {point}");
        json(&ground, &["restore", &run.id]);
        assert_back(&repository, &run);
        json(&ground, &["rm", "--force", &run.id]);
        if whole && fault.contains("SIGKILL") {
            break;
        }
    }
    assert_ne!(failed, 0, "nothing was injected");
}

#[test]
fn c01_f067_needs_strace_a_removal_that_is_killed_anywhere_loses_nothing() {
    removal_survives(CALLS, "signal=SIGKILL", 400);
}

#[test]
fn c01_f046_f048_f049_f070_needs_strace_a_removal_that_meets_an_error_loses_nothing() {
    // Not `write`: the runtime wakes itself up by it.
    let most = 3 * STEP;
    removal_survives("pwrite64,fsync,fdatasync", "error=ENOSPC", most);
    removal_survives("renameat2,rename,mkdir,mkdirat", "error=EROFS", most);
    removal_survives("openat2", "error=EMFILE", most);
    removal_survives("unlinkat,unlink,rmdir", "error=EACCES", most);
    removal_survives("pread64,getdents64", "error=EIO", most);
}
