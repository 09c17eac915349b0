//! The controller dies; the run does not, within its lease, and a new controller finds everything.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::ground::{Ground, is_alive, path, text, until};

/// Prints a line, waits for a file, prints another, waits for the next.
const STEPS: &str = "echo $$ >\"$OUT/pid\"; echo one; \
                     while [ ! -e \"$OUT/go\" ]; do sleep 0.02; done; \
                     echo two; echo three >&2; exit 7";

#[test]
fn c07_an_attached_run_survives_its_controller() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let out = ground.path("o");
    fs::create_dir(&out).unwrap();
    let option = format!("OUT={}", out.display());
    let options = ["--env", &option, "--keep"];
    let controller = ground.run_shell(&repository, &options, STEPS).spawn();
    controller.until_out("one\n");
    controller.signal(Signal::KILL);
    assert_eq!(controller.wait().signal, Some(9));

    let began = Instant::now();
    let runs = ground.runs(false);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["state"], "running");
    let id = text(&runs[0]["id"]);
    // Recovery leaves a run alone that is up.
    let recovered = ground.recover();
    assert_eq!(recovered["settled"], serde_json::json!([]), "{recovered:#}");
    assert_eq!(recovered["rolled_back"], serde_json::json!([]));

    let viewer = ground.call(["attach", id]).spawn();
    viewer.until_out("one\n");
    fs::write(out.join("go"), "").unwrap();
    let seen = viewer.wait().ok();
    assert_eq!(seen.out(), "one\ntwo\n");
    assert!(seen.err().contains("three\n"), "{seen:?}");
    let run = ground.show(id);
    assert_eq!(
        (&run["state"], &run["exit_code"]),
        (&"exited".into(), &7.into())
    );
    ground.until_quiet();
}

#[test]
fn c07_a_run_whose_controller_died_can_be_stopped() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo work >w; echo $$; exec sleep 600";
    let controller = ground.run_shell(&repository, &[], script).spawn();
    let pid: i32 = controller.until_out("\n").trim().parse().unwrap();
    controller.signal(Signal::KILL);
    controller.wait();
    assert!(is_alive(pid));
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    ground.call(["stop", &id]).run().ok();
    assert!(!is_alive(pid));
    assert_eq!(ground.state_of(&id), "stopped");
    ground.until_quiet();
    // At once there can be another in the same workspace.
    let again = ["--format", "json", "resume", &id, "--", "cat", "w"];
    let outcome = ground.call(again).run().ok();
    assert_eq!(outcome.json()["state"], "exited");
    assert!(outcome.err().contains("work\n"), "{outcome:?}");
}

#[test]
fn c07_a_command_that_died_with_its_controller_is_interrupted_or_ended() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo work >w; echo $$; exec sleep 600";
    let controller = ground.run_shell(&repository, &[], script).spawn();
    controller.until_out("\n");
    controller.signal(Signal::KILL);
    controller.wait();
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    // Everything of it is killed: the command, and the supervisor that would tell how it ended.
    for process in ground.processes() {
        let pid = rustix::process::Pid::from_raw(process.pid).unwrap();
        // One may have ended with another.
        _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    ground.until_quiet();
    let began = Instant::now();
    assert_eq!(ground.state_of(&id), "interrupted");
    assert!(began.elapsed() < Duration::from_secs(5));
    ground.recover();
    let run = ground.show(&id);
    assert_eq!(run["state"], "interrupted");
    let work = path(&run["workspace"]).join("w");
    assert_eq!(fs::read_to_string(work).unwrap(), "work\n");
    ground
        .call(["resume", &id, "--", "cat", "w"])
        .run()
        .ok()
        .says("work");
}

#[test]
fn a_lapsed_lease_ends_the_processes_and_the_changed_workspace_stays() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "git config user.name a; git config user.email a@b; echo c >c; git add c; git commit -qm c; \
                  echo left >untracked; echo $$; exec sleep 600";
    let options = ["--lease", "1s"];
    let controller = ground.run_shell(&repository, &options, script).spawn();
    let pid: i32 = controller.until_out("\n").trim().parse().unwrap();
    controller.signal(Signal::KILL);
    controller.wait();
    until("the lease has lapsed", || !is_alive(pid));
    let recovered = ground.recover();
    ground.until_quiet();
    let runs = ground.runs(false);
    assert_eq!(runs.len(), 1, "{runs:#?}");
    let run = &runs[0];
    assert_eq!(run["state"], "interrupted", "{run:#}");
    let workspace = path(&run["workspace"]);
    assert_eq!(
        fs::read_to_string(workspace.join("untracked")).unwrap(),
        "left\n"
    );
    assert_eq!(run["commits"][0]["subject"], "c");
    let named = recovered.to_string();
    assert!(named.contains(text(&run["id"])), "{recovered:#}");
    assert!(
        recovered["stuck"].as_array().unwrap().is_empty(),
        "{recovered:#}"
    );
}

#[test]
fn a_lapsed_lease_and_an_unchanged_workspace_leave_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let controller = ground
        .run_shell(&repository, &["--lease", "1s"], "echo $$; exec sleep 600")
        .spawn();
    let pid: i32 = controller.until_out("\n").trim().parse().unwrap();
    controller.signal(Signal::KILL);
    controller.wait();
    until("the lease has lapsed", || !is_alive(pid));
    ground.recover();
    assert_eq!(ground.runs(false), [""; 0]);
    assert_eq!(repository.branches(), ["main"]);
    assert_eq!(repository.worktree_entries(), [""; 0]);
    ground.until_quiet();
}

#[test]
fn a_detached_run_has_no_lease_that_could_lapse() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &[], "echo UP; exec sleep 600");
    assert_eq!(run["lease_seconds"], serde_json::Value::Null);
    ground.call(["logs", text(&run["id"])]).run().ok();
    assert_eq!(ground.state_of(text(&run["id"])), "running");
    ground.call(["rm", text(&run["id"])]).run().ok();
    ground.until_quiet();
}

#[test]
fn a_suspended_controller_keeps_its_run() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let out = ground.path("o");
    fs::create_dir(&out).unwrap();
    let option = format!("OUT={}", out.display());
    let options = ["--env", &option, "--lease", "500ms"];
    let controller = ground.run_shell(&repository, &options, STEPS).spawn();
    controller.until_out("one\n");
    controller.signal(Signal::STOP);
    let began = Instant::now();
    let pid: i32 = fs::read_to_string(out.join("pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // Three leases long nobody answers, but the connection stands.
    until("three leases have passed", || {
        began.elapsed() > Duration::from_millis(1500)
    });
    assert!(is_alive(pid));
    controller.signal(Signal::CONT);
    fs::write(out.join("go"), "").unwrap();
    assert_eq!(controller.wait().code(7).out(), "one\ntwo\n");
}

#[test]
fn c04_recovery_leaves_what_is_not_ours_and_what_lives() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let live = ground.detached(&repository, &[], "echo hi >work; echo UP; exec sleep 600");
    let id = text(&live["id"]).to_owned();
    ground.call(["logs", "-f", &id]).spawn().until_out("UP");
    let rooms = ground.state().join("worktrees");
    fs::create_dir_all(rooms.join("my-notes")).unwrap();
    fs::write(rooms.join("my-notes/n"), "keep\n").unwrap();
    let mine = rooms.join("mine");
    repository.git([
        "worktree",
        "add",
        "-q",
        "-b",
        "mine",
        mine.to_str().unwrap(),
    ]);
    fs::write(mine.join("uncommitted"), "mine\n").unwrap();
    let workspace = path(&live["workspace"]);

    ground.recover();
    // Another installation knows nothing of any of these, even when it is called from inside.
    let other = ground.root().join("other");
    ground
        .call(["recover"])
        .env("GROUNDCREW_HOME", &other)
        .directory(&workspace)
        .run()
        .ok();

    assert_eq!(fs::read_to_string(workspace.join("work")).unwrap(), "hi\n");
    assert_eq!(
        fs::read_to_string(rooms.join("my-notes/n")).unwrap(),
        "keep\n"
    );
    assert_eq!(
        fs::read_to_string(mine.join("uncommitted")).unwrap(),
        "mine\n"
    );
    assert!(repository.branches().contains(&"mine".to_owned()));
    assert_eq!(ground.state_of(&id), "running");
    ground.call(["rm", "--force", &id]).run().ok();
    assert_eq!(
        fs::read_to_string(rooms.join("my-notes/n")).unwrap(),
        "keep\n"
    );
    assert_eq!(
        fs::read_to_string(mine.join("uncommitted")).unwrap(),
        "mine\n"
    );
}

#[test]
fn c04_a_process_in_a_workspace_is_ended_before_the_workspace_goes() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "setsid sleep 600 </dev/null >/dev/null 2>&1 & echo done";
    let run = ground.ran(&repository, &[], script);
    assert_eq!(run["state"], "closed");
    ground.until_quiet();
    let rooms = fs::read_dir(ground.state().join("worktrees")).unwrap();
    assert_eq!(rooms.count(), 0);
}
