//! Kinds of workspaces beside one worktree: what they come to, and that nothing is left wherever making one goes wrong.

use std::fs;

use serde_json::json;

use crate::ground::{Ground, Leaks, Repository, path, text, until};

/// Commits, leaves an untracked file, and stays.
const WORK: &str =
    "echo kept >kept && git add kept && git commit -qm kept && echo loose >loose && exec sleep 600";

/// Returns the points that preparing a workspace passes.
fn points(ground: &Ground, repository: &Repository, options: &[&str]) -> Vec<String> {
    let file = ground.path("points");
    let call = ground.run_shell(repository, options, "true");
    call.note_points(&file).run().ok();
    let points = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let prepare = points
        .lines()
        .filter(|point| point.starts_with("prepare:"))
        .map(str::to_owned);
    prepare.chain(["create.after".to_owned()]).collect()
}

/// Fails, panics and dies at each point of preparing, and demands that nothing is left.
fn nothing_is_left(kind: &[&str]) {
    let ground = Ground::new();
    let (repository, other) = (ground.repository("r"), ground.repository("other"));
    let several = [repository.path(), other.path()].map(|path| path.to_str().unwrap().to_owned());
    let mut options: Vec<&str> = vec!["--format", "json"];
    for word in kind {
        if *word == "SEVERAL" {
            options.extend(["--repo", &several[0], "--repo", &several[1]]);
        } else {
            options.push(word);
        }
    }
    let points = points(&ground, &repository, &options);
    assert!(points.len() >= 5, "{points:?}");
    let leaks = Leaks::watch(&ground, &[&repository, &other]);
    for point in points {
        for what in ["error", "panic", "kill9"] {
            let fault = format!("{point}={what}");
            let call = ground.run_shell(&repository, &options, "true");
            let outcome = call.fault(&fault).run();
            if what == "kill9" {
                assert_eq!(outcome.signal, Some(9), "{fault}: {outcome:?}");
                let recovered = ground.recover();
                for name in ["stuck", "kept", "strays", "unknown", "busy"] {
                    assert_eq!(recovered[name], json!([]), "{fault}: {recovered:#}");
                }
            } else {
                let error = outcome.code(125).error();
                assert_eq!(error["rollback"]["clean"], true, "{fault}: {error:#}");
            }
            leaks.none(&fault);
        }
    }
    ground.run_shell(&repository, &options, "true").run().ok();
}

#[test]
fn f127_f139_several_repositories_that_fail_at_any_point_leave_nothing() {
    nothing_is_left(&["SEVERAL"]);
}

#[test]
fn f127_f139_a_clone_that_fails_at_any_point_leaves_nothing() {
    nothing_is_left(&["--workspace", "clone"]);
}

#[test]
fn f127_f139_clones_of_several_that_share_and_fail_at_any_point_leave_nothing() {
    nothing_is_left(&["SEVERAL", "--workspace", "clone", "--share-objects"]);
}

#[test]
fn f127_f139_a_directory_of_a_session_that_fails_at_any_point_leaves_nothing() {
    nothing_is_left(&["--workspace", "ephemeral"]);
}

#[test]
fn k36_a_directory_of_a_session_goes_when_it_is_closed_and_its_work_to_the_trash() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--workspace", "ephemeral", "--session", "talk"];
    let run = ground.ran(&repository, &options, "test -z \"$(ls)\"");
    assert_eq!(run["state"], "closed", "{run:#}");
    let run = ground.ran(&repository, &options, "pwd; echo x >notes");
    assert_eq!(run["state"], "exited", "{run:#}");
    let workspace = path(&run["workspace"]);
    assert_eq!(workspace, ground.state().join("quick-chat/talk"));
    ground.call(["close", text(&run["id"])]).run().ok();
    assert!(!workspace.exists());
    let trashed = fs::read_dir(ground.state().join("trash")).unwrap();
    let notes: Vec<_> = trashed
        .map(|entry| entry.unwrap().path().join("notes"))
        // Beside each tree is the record of where it came from.
        .filter(|notes| notes.exists())
        .collect();
    assert_eq!(notes.len(), 1);
    assert_eq!(fs::read_to_string(&notes[0]).unwrap(), "x\n");
}

#[test]
fn the_work_of_a_clone_comes_back_as_a_branch_when_its_agent_ends() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let before = repository.fingerprint();
    let options = ["--workspace", "clone", "--title", "x"];
    let run = ground.ran(&repository, &options, "true");
    assert_eq!(run["state"], "closed", "{run:#}");
    assert_eq!(repository.refs().len(), 1);
    let script = "echo kept >kept && git add kept && git commit -qm kept";
    let run = ground.ran(&repository, &options, script);
    assert_eq!(
        (&run["state"], &run["kind"]),
        (&json!("exited"), &json!("clone"))
    );
    let id = text(&run["id"]);
    let branch = text(&run["branch"]);
    let subject = || repository.git(["log", "-1", "--format=%s", branch]);
    assert_eq!(subject(), "kept");
    ground.call(["rm", id]).run().code(4).says("kept");
    // It goes on in the clone, and the branch with it; one that was taken away there comes back.
    let more = ["sh", "-c", "git commit -q --allow-empty -m more"];
    repository.git(["branch", "-qD", branch]);
    let words = ["resume", id, "--"].into_iter().chain(more);
    ground.call(words).run().ok();
    assert_eq!(subject(), "more");
    assert!(repository.fingerprint() == before);
    // What stands against it is told, and the work stays.
    repository.git(["checkout", "-q", branch]);
    let words = ["resume", id, "--"].into_iter().chain(more);
    ground.call(words).run().ok();
    ground.call(["show", id]).run().ok().says("checked out");
    repository.git(["checkout", "-q", "main"]);
    ground.call(["close", id]).run().ok();
    assert_eq!(repository.git(["rev-list", "--count", branch]), "4");
    assert!(!path(&run["workspace"]).exists());
    let ours: Vec<_> = repository
        .refs()
        .into_iter()
        .filter(|name| name.starts_with("refs/groundcrew"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn f127_the_work_in_a_clone_survives_kill_9_behind_the_start() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let before = repository.fingerprint();
    let held = ground.path("held");
    let job = ground
        .run_shell(&repository, &["--workspace", "clone"], WORK)
        .fault("commit.before=kill9")
        .hold("start.after", &held)
        .spawn();
    until("the command is started", || {
        held.with_extension("reached").exists()
    });
    let workspace = path(&ground.runs(false)[0]["workspace"]);
    until("the command has worked", || {
        workspace.join("loose").exists()
    });
    fs::write(&held, "").unwrap();
    assert_eq!(job.wait().signal, Some(9));
    ground.recover();
    ground.until_quiet();
    ground.recover();
    let run = &ground.runs(false)[0];
    assert_eq!(run["state"], "interrupted", "{run:#}");
    assert!(workspace.join("kept").is_file() && workspace.join("loose").is_file());
    let id = text(&run["id"]);
    ground.call(["rm", id]).run().code(4).says("loose");
    ground.call(["resume", id, "--", "rm", "loose"]).run().ok();
    ground.call(["close", id]).run().ok();
    let branch = text(&run["branch"]);
    assert_eq!(repository.git(["show", &format!("{branch}:kept")]), "kept");
    assert!(repository.fingerprint() == before);
}

#[test]
fn several_repositories_are_worked_on_in_one_run() {
    let ground = Ground::new();
    let (repository, other) = (ground.repository("r"), ground.repository("other"));
    let [one, two] = [&repository, &other].map(|r| r.path().to_str().unwrap());
    let options = [
        "--repo",
        one,
        "--repo",
        two,
        "--branch-template",
        "w/{suffix}",
    ];
    let script = "set -- */f; test $# = 2 && cd other-* && git commit -q --allow-empty -m there";
    let run = ground.ran(&repository, &options, script);
    assert_eq!(run["state"], "exited", "{run:#}");
    assert_eq!(run["exit_code"], 0, "{run:#}");
    let id = text(&run["id"]);
    ground.call(["close", id]).run().ok();
    assert!(!path(&run["workspace"]).exists());
    let branch = text(&run["branch"]);
    assert!(branch.starts_with("w/"));
    let subject = other.git(["log", "-1", "--format=%s", branch]);
    assert_eq!(subject, "there");
    assert!(repository.worktree_entries().is_empty() && other.worktree_entries().is_empty());
}

#[test]
fn c30_files_of_one_s_own_are_taken_along_and_keep_nothing_until_they_are_changed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write(".worktreeinclude", ".env\n");
    repository.write(".env", "KEY=1\n");
    repository.write("deps/lib", "code\n");
    repository.write("deps/.gitignore", "*\n");
    let words = ["--include", "deps:symlink", "--include", "notes"];
    let outcome = ground
        .run_shell(
            &repository,
            &words,
            "cat .env deps/lib; ls -d notes || true",
        )
        .run()
        .ok();
    assert_eq!(outcome.out(), "KEY=1\ncode\n");
    assert!(outcome.err().contains("nothing is kept"), "{outcome:?}");
    assert_eq!(ground.runs(false).len(), 0);

    let run = ground.ran(&repository, &["--include", "deps"], "echo KEY=2 >.env");
    let id = text(&run["id"]);
    ground.call(["rm", id]).run().code(4).says(".env");
    ground.call(["rm", "--force", id]).run().ok();
    assert_eq!(
        repository
            .git(["worktree", "list", "--porcelain"])
            .matches("worktree ")
            .count(),
        1
    );
    let kept = fs::read_to_string(repository.path().join(".env")).unwrap();
    assert_eq!(kept, "KEY=1\n");
    for (option, word) in [("../x", "stay inside"), (".git", "git directory")] {
        let refused = ground
            .run_shell(&repository, &["--include", option], "true")
            .run();
        assert_ne!(refused.code, Some(0));
        assert!(refused.err().contains(word), "{refused:?}");
    }
}
