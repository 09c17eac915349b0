//! Detached runs: seen by many from the first byte on, and ended with everything they started.

use std::time::{Duration, Instant};

use crate::ground::{DEADLINE, Ground, is_alive, text, until};

/// Prints numbered lines, slowly enough that viewers come in the middle, and waits for a file before the last ones.
const NUMBERS: &str = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line$i; \
                       [ $((i % 50)) = 0 ] && sleep 0.05; done; \
                       while [ ! -e \"$GO\" ]; do sleep 0.02; done; \
                       while [ $i -lt 600 ]; do i=$((i+1)); echo line$i; done";

fn numbers(count: usize) -> String {
    (1..=count).fold(String::new(), |lines, n| lines + &format!("line{n}\n"))
}

#[test]
fn two_viewers_at_once_see_everything_once() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let go = ground.path("go");
    let option = format!("GO={}", go.display());
    let run = ground.detached(&repository, &["--env", &option], NUMBERS);
    let id = text(&run["id"]);
    assert_eq!(run["state"], "running");
    let viewers = [(); 2].map(|()| ground.call(["logs", "-f", id]).spawn());
    for viewer in &viewers {
        viewer.until_out("line300\n");
    }
    // One that comes late starts from the first byte as well.
    let late = ground.call(["logs", "--follow", id]).spawn();
    late.until_out("line300\n");
    let middle = ground.call(["logs", id]).run().ok();
    assert_eq!(middle.out(), numbers(300));
    std::fs::write(&go, "").unwrap();
    for viewer in viewers.into_iter().chain([late]) {
        assert_eq!(viewer.wait().ok().out(), numbers(600));
    }
    let rest = ground.call(["logs", "--from", "6", id]).run().ok();
    assert_eq!(rest.out(), numbers(600)[6..]);
}

#[test]
fn the_log_of_an_ended_run_is_complete() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo out; echo err >&2; printf '\\377\\000'; exit 5";
    let run = ground.ran(&repository, &["--keep"], script);
    let logs = ground.call(["logs", text(&run["id"])]).run().ok();
    assert_eq!(logs.stdout, b"out\n\xff\x00");
    assert_eq!(logs.err(), "err\n");
    let follow = ground.call(["logs", "-f", text(&run["id"])]).run().ok();
    assert_eq!(follow.stdout, logs.stdout);
}

/// A command with every kind of descendant that is hard to end; each writes its process number.
const TREE: &str = "exec 9>/dev/null; cd \"$OUT\"; \
    sleep 7001 & echo $! >p1; \
    sh -c 'trap \"\" TERM INT HUP; echo $$ >p2; while :; do sleep 7002; done' & \
    setsid sh -c 'trap \"\" TERM; echo $$ >p3; while :; do sleep 7003; done' </dev/null >/dev/null 2>&1 & \
    setsid sh -c 'setsid sh -c \"trap \\\"\\\" TERM; echo \\$\\$ >p4; while :; do sleep 7004; done\" & exit' </dev/null >/dev/null 2>&1 & \
    env -i PATH=\"$PATH\" setsid sh -c 'echo $$ >p5; exec sleep 7005' </dev/null >/dev/null 2>&1 & \
    echo $$ >p0; echo UP; wait";

/// Waits until all have written their numbers, and returns these.
fn tree(directory: &std::path::Path) -> Vec<i32> {
    let mut pids = Vec::new();
    until("all descendants are up", || {
        pids = (0..=5)
            .filter_map(|n| std::fs::read_to_string(directory.join(format!("p{n}"))).ok())
            .filter_map(|text| text.trim().parse().ok())
            .collect();
        pids.len() == 6
    });
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    pids
}

#[test]
fn c06_f001_f002_f003_stop_ends_the_whole_tree_within_its_grace() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let out = ground.path("tree");
    std::fs::create_dir(&out).unwrap();
    let option = format!("OUT={}", out.display());
    let run = ground.detached(&repository, &["--env", &option, "--keep"], TREE);
    let id = text(&run["id"]);
    let pids = tree(&out);
    let began = Instant::now();
    ground.call(["stop", "--grace", "2s", id]).run().ok();
    let took = began.elapsed();
    let left: Vec<_> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?} outlive the stop");
    assert!(
        took >= Duration::from_millis(1800),
        "no grace was given: {took:?}"
    );
    assert!(took < Duration::from_secs(4) + slack(), "took {took:?}");
    let run = ground.show(id);
    assert_eq!(run["state"], "stopped");
    ground.until_quiet();
}

/// What a busy machine may add to a bound.
fn slack() -> Duration {
    Duration::from_secs(6)
}

#[test]
fn c06_a_time_limit_ends_the_whole_tree() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let out = ground.path("tree");
    std::fs::create_dir(&out).unwrap();
    let option = format!("OUT={}", out.display());
    let options = ["--env", &option, "--timeout", "3s", "--keep"];
    let run = ground.detached(&repository, &options, TREE);
    let pids = tree(&out);
    until("the tree has ended", || {
        pids.iter().all(|pid| !is_alive(*pid))
    });
    ground.until_state(text(&run["id"]), "timed_out");
    assert_eq!(ground.show(text(&run["id"]))["exit_code"], 124);
    ground.until_quiet();
}

#[test]
fn stopping_is_repeatable_and_keeps_the_work() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &[], "echo work >w; echo UP; exec sleep 600");
    let id = text(&run["id"]);
    let log = ground.call(["logs", "-f", id]).spawn();
    log.until_out("UP");
    ground.call(["stop", id]).run().ok();
    log.wait().ok();
    let again = ground
        .call(["--format", "json", "stop", id])
        .run()
        .ok()
        .json();
    assert_eq!(again["state"], "stopped");
    let workspace = crate::ground::path(&again["workspace"]);
    assert_eq!(
        std::fs::read_to_string(workspace.join("w")).unwrap(),
        "work\n"
    );
}

#[test]
fn an_attached_viewer_sees_the_whole_and_may_leave() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let go = ground.path("go");
    let option = format!("GO={}", go.display());
    let run = ground.detached(&repository, &["--env", &option], NUMBERS);
    let id = text(&run["id"]);
    let viewer = ground.call(["attach", id]).spawn();
    viewer.until_out("line300\n");
    viewer.signal(rustix::process::Signal::INT);
    assert_eq!(viewer.wait().ok().out(), numbers(300));
    assert_eq!(ground.state_of(id), "running");
    let viewer = ground.call(["attach", id]).spawn();
    viewer.until_out("line300\n");
    std::fs::write(&go, "").unwrap();
    assert_eq!(viewer.wait_within(DEADLINE).ok().out(), numbers(600));
}

#[test]
fn input_reaches_a_detached_command_through_attach() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo READY; while read -r line; do echo \"got $line\"; done; echo END";
    let words = [
        "run", "--detach", "-t", "--format", "json", "--", "sh", "-c", script,
    ];
    let run = ground
        .call(words)
        .directory(repository.path())
        .run()
        .ok()
        .json();
    let id = text(&run["id"]);
    let mut viewer = ground.call(["attach", "-i", id]).held_input().spawn();
    viewer.until_out("READY");
    viewer.write(b"hello\n");
    viewer.until_out("got hello");
    viewer.write(b"\x04");
    viewer.until_out("END");
    viewer.close_input();
    viewer.wait().ok();
}
