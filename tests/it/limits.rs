//! Limits of time and of the machine, asked for on the command line.

use std::time::{Duration, Instant};

use crate::ground::{Ground, Leaks, text};

#[test]
fn an_idle_command_is_timed_out_and_the_limit_is_told() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--keep", "--idle-timeout", "700ms"];
    let begun = Instant::now();
    let outcome = ground
        .run_shell(&repository, &options, "echo begun; exec sleep 600")
        .run()
        .code(124);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(
        outcome.err().contains("idle limit reached"),
        "{}",
        outcome.err()
    );
    let run = &ground.runs(false)[0];
    assert_eq!(
        (&run["state"], &run["exit_code"]),
        (&"timed_out".into(), &124.into())
    );
    let shown = ground.call(["show", text(&run["id"])]).run().ok();
    assert!(
        shown.out().contains("idle limit reached"),
        "{}",
        shown.out()
    );
}

#[test]
fn a_command_that_prints_is_not_idle() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--idle-timeout", "2s"];
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 0.5; echo $i; done; exit 3";
    ground
        .run_shell(&repository, &options, script)
        .run()
        .code(3);
}

#[test]
fn limits_of_each_process_hold_for_the_command_and_for_exec() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--nofile", "99", "--fsize", "4K"];
    let script = "ulimit -n; ulimit -f; ulimit -c; while ! [ -e go ]; do sleep 0.05; done";
    let run = ground.detached(&repository, &options, script);
    let id = text(&run["id"]);
    let follow = ground.call(["logs", "-f", id]).spawn();
    follow.until_out("99\n8\n0\n");
    let exec = ground
        .call(["exec", id, "--", "sh", "-c", "ulimit -n; ulimit -f"])
        .run()
        .ok();
    assert_eq!(exec.out(), "99\n8\n");
    ground.call(["exec", id, "--", "touch", "go"]).run().ok();
    follow.wait().ok();
    ground.until_quiet();
}

#[test]
fn f007_a_limit_that_this_machine_has_no_means_for_fails_the_plan_and_names_them() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let leaks = Leaks::watch(&ground, &[&repository]);
    let controllers =
        std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    for (option, value, controller) in [
        ("--memory", "1G", "memory"),
        ("--cpus", "1.5", "cpu"),
        ("--pids", "100", "pids"),
    ] {
        let outcome = ground
            .run_shell(&repository, &[option, value], "echo ran")
            .run();
        if outcome.code == Some(0) {
            // Only where the hierarchy has it at all.
            assert!(
                controllers
                    .split_whitespace()
                    .any(|word| word == controller),
                "{option} was left out silently"
            );
            continue;
        }
        let outcome = outcome.code(125);
        assert!(
            outcome.err().contains(&format!("`{controller}`")),
            "{}",
            outcome.err()
        );
        assert!(!outcome.out().contains("ran"));
        leaks.none(option);
    }
    for bad in [
        ["--memory", "lots"],
        ["--cpus", "0.0001"],
        ["--fsize", "-1"],
    ] {
        ground.run_shell(&repository, &bad, "true").run().code(2);
    }
    let outcome = ground
        .run_shell(&repository, &["--nofile", "0"], "true")
        .run()
        .code(125);
    assert!(outcome.err().contains("open_files"), "{}", outcome.err());
}
