//! `exec`: one more process in a run, which ends alone and is told like any other.

use serde_json::Value;

use crate::ground::{Call, Ground, Repository, is_alive, text, until};

/// Stays until a file says that it may end.
const STAYS: &str = "echo $$ >agent; while ! [ -e go ]; do sleep 0.05; done; exit 4";

struct Up {
    ground: Ground,
    _repository: Repository,
    id: String,
    workspace: std::path::PathBuf,
}

fn up(options: &[&str]) -> Up {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, options, STAYS);
    let id = text(&run["id"]).to_owned();
    let workspace = crate::ground::path(&run["workspace"]);
    until("the command is up", || workspace.join("agent").exists());
    Up {
        ground,
        _repository: repository,
        id,
        workspace,
    }
}

impl Up {
    fn exec(&self, options: &[&str], script: &str) -> Call {
        let words = ["exec"].iter().chain(options).copied();
        let words = words.chain([self.id.as_str(), "--", "sh", "-c", script]);
        self.ground.call(words)
    }

    fn end(&self) {
        std::fs::write(self.workspace.join("go"), "").unwrap();
        self.ground.until_quiet();
    }

    fn processes(&self) -> Vec<Value> {
        self.ground.show(&self.id)["processes"]
            .as_array()
            .unwrap()
            .clone()
    }
}

#[test]
fn exec_has_the_runs_environment_workspace_and_streams() {
    let up = up(&["--keep", "--env", "ONLY_HERE=of the run"]);
    let outcome = up
        .exec(
            &[],
            "pwd; echo $ONLY_HERE; echo $GROUNDCREW_RUN_ID; echo oops >&2; cat; exit 7",
        )
        .env("ONLY_HERE", "of the caller")
        .run()
        .code(7);
    let workspace = up.workspace.display();
    assert_eq!(
        outcome.out(),
        format!("{workspace}\nof the run\n{}\n", up.id)
    );
    assert!(outcome.err().contains("oops\n"));
    // The run goes on, with what was done in its workspace.
    up.exec(&[], "echo made >by-exec").run().ok();
    assert_eq!(up.ground.state_of(&up.id), "running");
    up.end();
    assert_eq!(up.ground.show(&up.id)["exit_code"], 4);
    assert!(up.workspace.join("by-exec").exists());
}

#[test]
fn c19_exec_forwards_input_only_when_asked() {
    let up = up(&[]);
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let outcome = up.exec(&["-i"], "cat").input(bytes.clone()).run().ok();
    assert!(outcome.stdout == bytes, "{} bytes", outcome.stdout.len());
    let held = up.exec(&[], "cat; echo END").held_input().spawn();
    assert_eq!(held.wait().ok().out(), "END\n");
    up.end();
}

#[test]
fn exec_is_told_as_a_document_and_as_events() {
    let up = up(&[]);
    let outcome = up
        .exec(&["--format", "json"], "echo out; kill -9 $$")
        .run()
        .code(137);
    let document = outcome.json();
    assert_eq!(document["id"], up.id.as_str());
    assert_eq!(
        (&document["exit_code"], &document["signal"]),
        (&Value::from(137), &Value::from("SIGKILL"))
    );
    assert!(outcome.err().contains("out\n"));
    let events = up
        .exec(&["--format", "jsonl"], "printf x")
        .run()
        .ok()
        .events();
    let names: Vec<_> = events
        .iter()
        .map(|event| text(&event["event"]).to_owned())
        .collect();
    assert_eq!(names, ["output", "exit", "result"]);
    assert_eq!(events[0]["text"], "x");
    // Its output is kept, and its process is listed beside the command.
    let name = text(&document["process"]);
    let logs = up
        .ground
        .call(["logs", "--process", name, &up.id])
        .run()
        .ok();
    assert_eq!(logs.out(), "out\n");
    let states: Vec<_> = up
        .processes()
        .iter()
        .map(|p| (text(&p["name"]).to_owned(), p["main"].clone()))
        .collect();
    assert_eq!(states[0], ("agent".to_owned(), Value::from(true)));
    assert_eq!(states[1], (name.to_owned(), Value::from(false)));
    assert_eq!(states.len(), 3);
    let error = up
        .ground
        .call(["logs", "--process", "nobody", &up.id])
        .run()
        .code(3);
    assert!(
        error.err().contains(name),
        "it lists those it has: {}",
        error.err()
    );
    up.end();
}

#[test]
fn c06_what_exec_leaves_behind_ends_with_it_and_the_run_goes_on() {
    let up = up(&[]);
    let script = "setsid sh -c 'trap \"\" TERM; echo $$ >daemon; while :; do sleep 1000; done' </dev/null >/dev/null 2>&1 & \
                  while ! [ -s daemon ]; do sleep 0.02; done; cat daemon";
    let outcome = up.exec(&[], script).run().ok();
    let daemon: i32 = outcome.out().trim().parse().unwrap();
    until("the daemon has ended", || !is_alive(daemon));
    let agent = std::fs::read_to_string(up.workspace.join("agent")).unwrap();
    assert!(is_alive(agent.trim().parse().unwrap()));
    assert_eq!(up.ground.state_of(&up.id), "running");
    up.end();
}

#[test]
fn several_at_once_are_apart_and_signals_are_for_them_alone() {
    let up = up(&[]);
    let jobs: Vec<_> = (0..4)
        .map(|n| up.exec(&[], &format!("trap 'echo CAUGHT {n}; exit 1{n}' INT; echo UP{n}; while :; do sleep 0.05; done")).spawn())
        .collect();
    for (n, job) in jobs.iter().enumerate() {
        job.until_out(&format!("UP{n}\n"));
    }
    let running = up
        .processes()
        .iter()
        .filter(|p| p["state"] == "running")
        .count();
    assert_eq!(running, 5);
    for (n, job) in jobs.into_iter().enumerate() {
        job.signal(rustix::process::Signal::INT);
        let outcome = job.wait().code(10 + i32::try_from(n).unwrap());
        assert_eq!(outcome.out(), format!("UP{n}\nCAUGHT {n}\n"));
    }
    // The second one stops, the third kills: one process, not the run.
    let job = up
        .exec(
            &[],
            "trap 'echo INT' INT; trap '' TERM; echo UP; while :; do sleep 0.05; done",
        )
        .spawn();
    job.until_out("UP\n");
    job.signal(rustix::process::Signal::INT);
    // Two signals that wait together come in any order: the first one has arrived before the next is sent.
    job.until_out("INT\n");
    job.signal(rustix::process::Signal::TERM);
    job.until_err("stopping");
    job.signal(rustix::process::Signal::INT);
    job.wait().code(137);
    assert_eq!(up.ground.state_of(&up.id), "running");
    up.end();
}

#[test]
fn exec_ends_with_the_run_and_says_so() {
    let up = up(&["--keep"]);
    let job = up.exec(&[], "echo UP; exec sleep 1000").spawn();
    job.until_out("UP\n");
    up.end();
    job.wait().code(143);
    // Nothing can be started in a run that is over.
    let refused = up.exec(&[], "true").run().code(125);
    assert!(
        refused.err().contains("groundcrew resume"),
        "{}",
        refused.err()
    );
}

#[test]
fn exec_tells_failures_as_run_does() {
    let up = up(&[]);
    let call = |argv: &[&str]| {
        let words = ["exec", up.id.as_str(), "--"]
            .into_iter()
            .chain(argv.iter().copied());
        up.ground.call(words).run()
    };
    call(&["no-such-program"]).code(127);
    std::fs::write(up.workspace.join("plain"), "text").unwrap();
    call(&["./plain"]).code(126);
    let late = up
        .exec(&["--timeout", "300ms"], "sleep 1000")
        .run()
        .code(124);
    assert!(!late.err().contains("panicked"));
    up.ground
        .call(["exec", "nothing-like-it", "--", "true"])
        .run()
        .code(125);
    up.end();
}

#[test]
fn a_terminal_of_exec_has_keys_a_size_and_a_key_that_leaves() {
    let up = up(&[]);
    let script = "echo READY $(stty size) $TERM; while :; do read -r line || continue; echo \"GOT <$line>\"; [ \"$line\" = bye ] && exit 6; done";
    let options = ["--detach-keys", "ctrl-p,ctrl-q"];
    let call = up.exec(&options, script).env("TERM", "vt220");
    let mut terminal = call.in_terminal(33, 101);
    terminal.until_shown("READY 33 101 vt220");
    terminal.until_raw();
    // The first key alone goes through, and so does the usual one.
    terminal.keys("\x1d\x10x\r");
    terminal.until_shown("GOT <");
    terminal.keys("\x10\x11");
    terminal.wait().ok();
    assert!(!terminal.is_raw());
    let running = up.processes();
    let process = running.iter().find(|p| p["main"] == false).unwrap();
    assert_eq!(process["state"], "running");
    let words = ["attach", "--process", text(&process["name"]), &up.id];
    let mut again = up.ground.call(words).in_terminal(33, 101);
    again.until_raw();
    again.keys("bye\r");
    again.wait().ok();
    let ended = &up.processes()[1];
    assert_eq!(
        (&ended["state"], &ended["exit_code"]),
        (&Value::from("ended"), &Value::from(6))
    );
    up.end();
}
