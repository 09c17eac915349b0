//! Setup scripts before the command, teardown scripts before the end: what they do, and what becomes of it when they fail.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::ground::{Ground, Leaks, is_alive, path, text, until};

#[test]
fn c22_w19_setup_failures_leave_nothing_and_the_next_run_takes_the_new_base() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.git(["checkout", "-q", "-b", "other"]);
    repository.write("f", "other\n");
    repository.commit_all("other");
    repository.git(["checkout", "-q", "main"]);
    let leaks = Leaks::watch(&ground, &[&repository]).except_logs();
    let run = |more: &[&str]| {
        let mut options = vec!["--format", "json", "--title", "same", "--base"];
        options.extend(more);
        ground.run_shell(&repository, &options, "echo RAN; cat f")
    };

    let began = Instant::now();
    let failing = ["main", "--setup", "echo before; echo why >&2; exit 7"];
    let failed = run(&failing).run().code(125);
    assert!(began.elapsed() < Duration::from_secs(10));
    let error = failed.error();
    assert_eq!(
        (&error["step"], &error["kind"]),
        (&json!("setup"), &json!("script_failed"))
    );
    assert_eq!(error["rollback"]["clean"], true);
    let words = error.to_string();
    for word in ["exit code 7", "echo before", "before | why", "setup-1"] {
        assert!(words.contains(word), "{word}: {words}");
    }
    assert!(!failed.out().contains("RAN"), "{failed:?}");
    leaks.none("a script that fails");

    let cancelled = run(&["main", "--setup", "echo up; exec sleep 600"]).spawn();
    cancelled.until_err("up");
    let asked = Instant::now();
    cancelled.signal(Signal::INT);
    let outcome = cancelled.wait();
    assert!(asked.elapsed() < Duration::from_secs(3), "{outcome:?}");
    assert_ne!(outcome.code, Some(0));
    leaks.none("a script that is cancelled");

    run(&["main", "--setup", "sleep 600", "--setup-timeout", "1s"])
        .run()
        .code(125)
        .says("time limit");
    leaks.none("a script that takes too long");

    run(&["main", "--setup", "no-such-program-here"])
        .run()
        .code(125)
        .says("exit code 127");
    run(&["no-such-ref", "--setup", "true"])
        .run()
        .code(125)
        .says("no-such-ref");
    leaks.none("a base that is none");

    let again = run(&["other", "--setup", "grep -q other f"]).run().ok();
    assert!(again.err().contains("other\n"), "{again:?}");
}

#[test]
fn w18_a_second_run_comes_up_while_the_script_of_the_first_one_waits() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let pipe = ground.path("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let waits = format!("echo waiting; read line <'{}'; echo $line", pipe.display());
    let first = ground
        .run_shell(
            &repository,
            &["--setup", &waits, "--title", "first"],
            "echo FIRST",
        )
        .spawn();
    first.until_err("waiting");
    let second = ground
        .run_shell(
            &repository,
            &["--setup", "true", "--title", "second"],
            "echo SECOND",
        )
        .within(Duration::from_secs(30))
        .run();
    second.ok().says("SECOND");
    fs::write(&pipe, "let go\n").unwrap();
    let outcome = first.wait().ok();
    assert_eq!(outcome.out(), "FIRST\n");
    assert!(outcome.err().contains("let go"), "{outcome:?}");
}

#[test]
fn f127_kill_9_of_the_controller_in_the_middle_of_a_script_keeps_what_it_wrote_and_nothing_else() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo half >built; echo pid=$$; exec sleep 600";
    let controller = ground
        .run_shell(&repository, &["--setup", script], "echo never")
        .spawn();
    controller.until_err("pid=");
    until("the script has written", || {
        ground
            .runs(false)
            .first()
            .is_some_and(|run| path(&run["workspace"]).join("built").exists())
    });
    controller.signal(Signal::KILL);
    assert_eq!(controller.wait().signal, Some(9));
    let recovered = ground.recover();
    let kept = recovered["kept"].to_string();
    assert!(kept.contains("built"), "{recovered:#}");
    for name in ["stuck", "strays", "unknown", "busy"] {
        assert_eq!(recovered[name], json!([]), "{recovered:#}");
    }
    ground.until_quiet();
    let runs = ground.runs(false);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["state"], "interrupted");
    let id = text(&runs[0]["id"]);
    assert!(path(&runs[0]["workspace"]).join("built").exists());
    // It is half-built: going on with it builds it first.
    let resumed = ground.call(["resume", id, "--", "echo", "never"]).spawn();
    resumed.until_err("pid=");
    resumed.signal(Signal::INT);
    assert_ne!(resumed.wait().code, Some(0));
    assert_eq!(ground.state_of(id), "interrupted");
    ground
        .call(["resume", "--no-setup", id, "--", "cat", "built"])
        .run()
        .ok()
        .says("half");
    ground.call(["rm", id]).run().code(4).says("built");
    ground.call(["rm", "--force", id]).run().ok();
    assert_eq!(repository.branches(), ["main"]);
    ground.until_quiet();
}

#[test]
fn c22_scripts_have_the_run_s_variables_and_their_secrets_are_hidden() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    ground
        .call(["secret", "set", "token"])
        .input("s3cret-of-the-run")
        .run()
        .ok();
    let script =
        "echo \"$A $TOKEN $GROUNDCREW_RUN_ID\"; test \"$TOKEN\" = s3cret-of-the-run && exit 9";
    let options = [
        "--env",
        "A=plain",
        "--secret",
        "TOKEN=token",
        "--setup",
        script,
    ];
    let outcome = ground
        .run_shell(&repository, &options, "true")
        .run()
        .code(125);
    let all = outcome.err() + &outcome.out();
    assert!(all.contains("plain ***"), "{all}");
    assert!(all.contains("exit code 9"), "{all}");
    // The script's own words have it, for they are the caller's; what it printed has not.
    let printed = all.replace(script, "");
    assert!(!printed.contains("plain s3cret"), "{all}");
}

#[test]
fn c22_what_a_script_leaves_running_ends_with_it() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let pid = ground.path("pid");
    let daemon = format!(
        "setsid sleep 600 >/dev/null 2>&1 & echo $! >'{}'",
        pid.display()
    );
    let number = || fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    for (script, code) in [(daemon.clone(), 0), (format!("{daemon}; exit 7"), 125)] {
        let outcome = ground.run_shell(&repository, &["--setup", &script], "true");
        outcome.run().code(code);
        assert!(!is_alive(number()));
    }
    ground.until_quiet();
}

#[test]
fn c22_settings_name_scripts_and_only_for_the_repositories_that_they_say() {
    let ground = Ground::new();
    let (repository, other) = (ground.repository("r"), ground.repository("o"));
    // What a repository says of itself is not asked.
    repository.write(".groundcrew.toml", "[[setup]]\nrun = \"touch foreign\"\n");
    repository.commit_all("foreign");
    let home = ground.root().join("home/.config/groundcrew");
    fs::create_dir_all(&home).unwrap();
    let settings = format!(
        "[[setup]]\nname = \"everywhere\"\nrun = \"echo all\"\n[[setup]]\nname = \"broken\"\ncommand = [\"sh\", \"-c\", \"exit 3\"]\noptional = true\nrepository = \"{}\"\n",
        repository.path().display()
    );
    fs::write(home.join("config.toml"), settings).unwrap();
    let setup = |at: &crate::ground::Repository, words: &[&str]| {
        let all = ["--format", "json", "plan"]
            .iter()
            .chain(words)
            .chain(&["--", "true"]);
        let plan = ground.call(all).directory(at.path()).run().ok().json();
        plan["setup"].clone()
    };
    assert_eq!(setup(&repository, &[]), json!(["everywhere", "broken"]));
    assert_eq!(setup(&other, &[]), json!(["everywhere"]));
    assert_eq!(setup(&repository, &["--no-scripts"]), json!([]));
    let outcome = ground.run_shell(&repository, &[], "ls").run().ok();
    assert!(
        outcome.err().contains("broken") && outcome.err().contains("exit code 3"),
        "{outcome:?}"
    );
    assert!(!outcome.out().contains("foreign"), "{outcome:?}");
}

#[test]
fn teardown_runs_before_the_workspace_goes_and_hinders_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let seen = ground.path("seen");
    let look = format!("cat f >'{}'; exit 5", seen.display());
    let options = ["--teardown", &look, "--teardown", "true"];
    let run = ground.detached(&repository, &options, "exec sleep 600");
    let id = text(&run["id"]);
    let report = ground
        .call(["--format", "json", "rm", id])
        .run()
        .ok()
        .json();
    assert_eq!(report["outcome"], "closed", "{report:#}");
    assert_eq!(fs::read_to_string(&seen).unwrap(), "base\n");
    let torn: Vec<&Value> = report["teardown"].as_array().unwrap().iter().collect();
    assert_eq!(torn[0]["problem"], "exit code 5");
    assert_eq!(torn[1]["problem"], Value::Null);
    assert!(!path(&run["workspace"]).exists());
    assert_eq!(repository.branches(), ["main"]);
    ground.until_quiet();

    // An instance that has ended is not made again for it.
    fs::remove_file(&seen).unwrap();
    let run = ground.ran(&repository, &["--keep", "--teardown", &look], "true");
    ground
        .call(["close", text(&run["id"])])
        .run()
        .ok()
        .says("was not run");
    assert!(!seen.exists());
}
