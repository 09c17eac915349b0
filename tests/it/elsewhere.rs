//! An engine on another machine, as far as it can tell: over TCP, with nothing of this host's files.

use std::fs;

use rustix::process::Signal;

use crate::ground::{Engine, Ground, path, text, until};

const COMMITS: &str = "echo made >made && git add made && git commit -qm made";

#[test]
fn heavy_needs_docker_the_main_job_is_done_by_an_engine_that_sees_nothing_of_this_host() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let engine = Engine::elsewhere(ground.root());
    // Nothing is said about it: that it does not see our files is found out.
    let job = ["--format", "json"];
    let run = engine.run(&ground, &repository, &job, COMMITS).run();
    let run = run.ok().json();
    let id = text(&run["id"]);
    engine.nothing_left(&ground, "it ended");
    assert_eq!(
        fs::read_to_string(path(&run["workspace"]).join("made")).unwrap(),
        "made\n"
    );
    engine.call(&ground, &["close", id]).run().ok();
    let branch = text(&run["branch"]);
    assert_eq!(repository.git(["log", "--format=%s", branch]), "made\nbase");

    // The controller dies; another one has all that was said, and everything that a socket gives.
    let script = "echo one; echo begun; while [ ! -e go ]; do sleep 0.1; done; echo two; exit 7";
    let job = engine.run(&ground, &repository, &[], script).spawn();
    job.until_out("begun");
    job.signal(Signal::KILL);
    job.wait();
    let runs = ground.runs(false);
    let id = text(&runs[0]["id"]).to_owned();
    assert_eq!(runs[0]["state"], "running");
    let call = |words: &[&str]| engine.call(&ground, words);
    call(&["logs", &id]).run().ok().says("one\nbegun\n");
    call(&["exec", &id, "--", "sh", "-c", "exit 3"])
        .run()
        .code(3);
    let words = ["exec", "-t", &id, "--", "sh", "-c", "stty size; echo $TERM"];
    let terminal = call(&words).in_terminal(33, 101);
    terminal.until_shown("33 101");
    terminal.wait().code(0);
    call(&["exec", "-i", &id, "--", "cat"])
        .input("through stdin")
        .run()
        .ok()
        .says("through stdin");
    let attached = call(&["attach", &id]).spawn();
    attached.until_out("begun");
    call(&["exec", &id, "--", "touch", "go"]).run().ok();
    let attached = attached.wait();
    assert_eq!(attached.out(), "one\nbegun\ntwo\n");
    assert!(attached.err().contains("exit code 7"), "{attached:?}");
    until("its container is gone", || {
        call(&["recover"]).run();
        engine.containers(&ground).is_empty()
    });
    // What it said outlives it.
    call(&["logs", &id]).run().ok().says("two");
    call(&["rm", "--force", &id]).run().ok();

    // A whole tree is ended, also one that does not listen.
    let script = "trap '' TERM; (trap '' TERM; exec sleep 8002) & echo up; exec sleep 8002";
    let words = ["--detach", "--format", "json"];
    let run = engine.run(&ground, &repository, &words, script).run();
    let id = text(&run.ok().json()["id"]).to_owned();
    call(&["stop", "--grace", "500ms", &id]).run().ok();
    engine.nothing_left(&ground, "it was stopped");
    call(&["rm", &id]).run().ok();

    // What it cannot have is said, with what to do.
    for (options, words) in [
        (["--workspace", "bind"], "--workspace volume"),
        (["--control", "socket"], "--control exec"),
        (["--mount", "/usr"], "leave --mount out"),
    ] {
        let refused = engine.run(&ground, &repository, &options, "true").run();
        let refused = refused.code(125);
        assert!(refused.err().contains(words), "{words}: {refused:?}");
        engine.nothing_left(&ground, words);
    }
    // Its own words name the directory.
    drop(engine);
    ground.until_quiet();
}

#[test]
fn f127_heavy_needs_docker_kill_9_of_a_launch_leaves_nothing_in_an_engine_elsewhere() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let engine = Engine::elsewhere(ground.root());
    for point in [
        "create.before",
        "create.after",
        "connect.after",
        "start.before",
    ] {
        let fault = format!("{point}=kill9");
        let call = engine.run(&ground, &repository, &[], "exec sleep 600");
        let outcome = call.fault(&fault).run();
        assert_eq!(outcome.signal, Some(9), "{fault}: {outcome:?}");
        engine.recover(&ground);
        engine.nothing_left(&ground, &fault);
        assert_eq!(repository.branches(), ["main"], "{fault}");
    }
    // In the middle of what the engine is asked for: wherever that is, nothing stays.
    for point in [
        "creating the container",
        "volumes are filled",
        "filling the volumes",
        "starting the container",
    ] {
        let job = engine
            .run(&ground, &repository, &[], "exec sleep 600")
            .spawn();
        job.until_err(point);
        job.signal(Signal::KILL);
        job.wait();
        for run in ground.runs(true) {
            let id = text(&run["id"]);
            engine.call(&ground, &["rm", "--force", id]).run();
        }
        engine.recover(&ground);
        engine.nothing_left(&ground, point);
    }
}
