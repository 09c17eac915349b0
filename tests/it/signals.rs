//! Signals to the command, in each phase of a run, and what they leave.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use serde_json::json;

use crate::ground::{Ground, Job, Leaks, path, text, until};

/// Returns the file that tells that a launch waits.
fn reached(held: &Path) -> PathBuf {
    held.with_extension("reached")
}

/// Holds a launch at a point, and sends a signal there.
fn struck_at(ground: &Ground, call: crate::ground::Call, point: &str, signal: Signal) -> Job {
    let held = ground.path(format!(
        "held-{}-{}",
        signal.as_raw(),
        point.replace([':', '.'], "-")
    ));
    let job = call.hold(point, &held).spawn();
    until("the launch has come there", || reached(&held).exists());
    job.signal(signal);
    job.until_err("cancel");
    fs::write(&held, "").unwrap();
    job
}

#[test]
fn interrupts_before_the_commit_cancel_and_leave_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let leaks = Leaks::watch(&ground, &[&repository]);
    for point in [
        "reserve.before",
        "prepare:worktree.branch-made",
        "prepare:worktree.after",
        "create.before",
        "create.after",
        "setup.before",
        "register.after",
    ] {
        for signal in [Signal::INT, Signal::TERM] {
            let call = ground.run_shell(&repository, &["--format", "json"], "touch ran");
            let job = struck_at(&ground, call, point, signal);
            let outcome = job.wait().code(128 + signal.as_raw());
            let error = outcome.error();
            assert_eq!(error["kind"], "cancelled", "{point}: {outcome:?}");
            assert_eq!(error["rollback"]["clean"], true, "{point}: {outcome:?}");
            leaks.none(point);
        }
    }
}

#[test]
fn a_second_interrupt_leaves_at_once_and_recovery_takes_the_rest_back() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let leaks = Leaks::watch(&ground, &[&repository]);
    let held = ground.path("held");
    let job = ground
        .run_shell(&repository, &[], "touch ran")
        .hold("create.before", &held)
        .spawn();
    until("the launch has come there", || reached(&held).exists());
    job.signal(Signal::INT);
    job.until_err("cancel");
    job.signal(Signal::INT);
    // The step never goes on: only leaving at once ends this.
    job.wait().code(130).says("recover");
    let recovered = ground.recover();
    assert_eq!(recovered["stuck"], json!([]));
    leaks.none("after a second interrupt");
}

/// Says what it catches, and ends only by the third measure.
const STUBBORN: &str =
    "trap 'echo INT' INT; trap 'echo TERM' TERM; echo READY $$; while :; do sleep 0.1; done";

#[test]
fn the_first_interrupt_is_the_commands() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "trap 'echo CAUGHT; exit 33' INT; echo READY; while :; do sleep 0.1; done";
    let job = ground.run_shell(&repository, &["--keep"], script).spawn();
    job.until_out("READY");
    job.signal(Signal::INT);
    let outcome = job.wait().code(33);
    assert_eq!(outcome.out(), "READY\nCAUGHT\n");
    assert_eq!(ground.runs(false)[0]["state"], "exited");
}

#[test]
fn the_second_interrupt_stops_and_the_third_kills() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let job = ground.run_shell(&repository, &["--keep"], STUBBORN).spawn();
    job.until_out("READY");
    job.signal(Signal::INT);
    job.until_out("INT");
    job.signal(Signal::INT);
    job.until_out("TERM");
    assert!(!job.has_ended());
    job.signal(Signal::INT);
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(137), "{outcome:?}");
    ground.until_quiet();
    assert_eq!(ground.runs(false)[0]["state"], "stopped");
}

#[test]
fn a_termination_reaches_the_command() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "trap 'echo CAUGHT; exit 34' TERM INT; echo READY; while :; do sleep 0.1; done";
    let job = ground.run_shell(&repository, &["--keep"], script).spawn();
    job.until_out("READY");
    job.signal(Signal::TERM);
    let outcome = job.wait();
    assert!(outcome.out().contains("CAUGHT"), "{outcome:?}");
    ground.until_quiet();
}

#[test]
fn a_hangup_detaches_under_the_lease() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let go = ground.path("go");
    let script = format!(
        "echo READY; while [ ! -e '{}' ]; do sleep 0.05; done; echo DONE; exit 3",
        go.display()
    );
    let job = ground.run_shell(&repository, &["--keep"], &script).spawn();
    job.until_out("READY");
    job.signal(Signal::HUP);
    let outcome = job.wait();
    assert!(outcome.err().contains("attach"), "{outcome:?}");
    let run = &ground.runs(false)[0];
    assert_eq!(run["state"], "running");
    let id = text(&run["id"]);
    fs::write(&go, "").unwrap();
    let seen = ground.call(["attach", id]).run().ok();
    assert_eq!(seen.out(), "READY\nDONE\n");
    assert_eq!(ground.show(id)["exit_code"], 3);
}

#[test]
fn a_time_limit_has_its_own_code_and_keeps_the_work() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--timeout", "1s"];
    let outcome = ground
        .run_shell(
            &repository,
            &options,
            "echo w >w; echo READY; exec sleep 600",
        )
        .run()
        .code(124);
    assert_eq!(outcome.out(), "READY\n");
    let run = &ground.runs(false)[0];
    assert_eq!(
        (&run["state"], &run["exit_code"]),
        (&json!("timed_out"), &json!(124))
    );
    assert!(path(&run["workspace"]).join("w").exists());
    ground.until_quiet();
}

#[test]
fn an_interrupt_only_ends_the_watching_of_logs() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &[], "echo READY; exec sleep 600");
    let id = text(&run["id"]);
    for signal in [Signal::INT, Signal::TERM] {
        let viewer = ground.call(["logs", "-f", id]).spawn();
        viewer.until_out("READY");
        viewer.signal(signal);
        viewer.wait().ok();
        assert_eq!(ground.state_of(id), "running");
    }
    ground.call(["stop", "--grace", "0s", id]).run().ok();
}

#[test]
fn f004_a_stopped_command_can_be_ended() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &["--keep"], "echo $$; exec sleep 600");
    let id = text(&run["id"]);
    let viewer = ground.call(["logs", "-f", id]).spawn();
    let pid: i32 = viewer.until_out("\n").trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    ground.call(["stop", "--grace", "1s", id]).run().ok();
    viewer.wait().ok();
    assert_eq!(ground.state_of(id), "stopped");
    ground.until_quiet();
}
