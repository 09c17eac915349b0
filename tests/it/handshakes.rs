//! Agents that speak a protocol: what makes them started, and what is said when they are not.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::ground::{Ground, Leaks, Outcome, Repository, text, until};

/// The time that an agent has for its answer.
const LIMIT: u64 = 2;

/// An answer as the profiles below want it.
const ANSWER: &str = r#"{"id":0,"result":{"version":1}}"#;

/// Writes a profile whose agent is a shell script that must answer.
fn agent(ground: &Ground, name: &str, script: &str) {
    let directory = ground.root().join("home/.config/groundcrew/profiles");
    fs::create_dir_all(&directory).unwrap();
    let program = ground.script(name, &format!("#!/bin/sh\n{script}\n"));
    let profile = format!(
        "name = '{name}'\ncommand = ['{}']\n[stop]\ngrace_seconds = 1\n[handshake]\n\
        request = {{ jsonrpc = '2.0', id = 0, method = 'initialize' }}\n\
        then = {{ jsonrpc = '2.0', method = 'initialized' }}\n\
        expect = {{ '/version' = 1 }}\nseconds = {LIMIT}\n",
        program.display()
    );
    fs::write(directory.join(format!("{name}.toml")), profile).unwrap();
}

fn run(ground: &Ground, repository: &Repository, name: &str) -> crate::ground::Call {
    ground
        .call(["run", "--format", "json", "--agent", name])
        .directory(repository.path())
}

/// Runs an agent that must fail, in its time, and returns what the error says.
fn refused(ground: &Ground, repository: &Repository, name: &str) -> Value {
    let begun = Instant::now();
    let outcome: Outcome = run(ground, repository, name).run().code(125);
    // On a machine that does nothing else it is the limit and two seconds.
    assert!(
        begun.elapsed() < Duration::from_secs(LIMIT + 20),
        "{name}: {:?}",
        begun.elapsed()
    );
    let error = outcome.error();
    assert_eq!(error["step"], "start", "{outcome:?}");
    assert_eq!(error["rollback"]["clean"], true, "{outcome:?}");
    error
}

#[test]
fn c38_f010_f011_an_agent_that_never_answers_fails_its_launch_with_the_cause_and_harms_no_other() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let heard = ground.path("heard");
    agent(
        &ground,
        "good",
        &format!(
            "read -r question; echo '{{\"method\":\"log\"}}'; echo '{ANSWER}'; read -r then; echo \"$then\" >{}; cat >/dev/null",
            heard.display()
        ),
    );
    agent(
        &ground,
        "silent",
        "echo 'cannot open database' >&2; sleep 600 & exec sleep 600",
    );
    agent(&ground, "quits", "echo 'bad flag' >&2; exit 64");
    agent(&ground, "dies", "kill -9 $$");
    agent(
        &ground,
        "confused",
        "echo 'wrong number' >&2; echo '{\"id\":9,\"result\":{\"version\":1}}'; exec sleep 600",
    );
    let good = run(&ground, &repository, "good").spawn();
    until("the good one was told that we are ready", || {
        fs::read_to_string(&heard).is_ok_and(|said| said.contains("initialized"))
    });
    let silent = run(&ground, &repository, "silent").spawn();
    for (name, kind, words) in [
        ("quits", "agent_ended", vec!["bad flag", "64"]),
        ("dies", "agent_ended", vec!["SIGKILL", "9"]),
        (
            "confused",
            "protocol",
            vec!["wrong number", "another question"],
        ),
    ] {
        let error = refused(&ground, &repository, name);
        assert_eq!(error["kind"], kind, "{error}");
        let said = error.to_string();
        assert!(
            words.iter().all(|word| said.contains(word)),
            "{name}: {said}"
        );
    }
    let error = silent.wait().code(125).error();
    assert_eq!(error["kind"], "timed_out", "{error}");
    assert!(
        error.to_string().contains("cannot open database"),
        "{error}"
    );
    // The good one went on all the while, and is there to be asked.
    let listed = ground.runs(false);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["state"], "running");
    let id = text(&listed[0]["id"]);
    ground.call(["stop", id]).run().ok();
    drop(good.wait());
    let removed = ground.call(["rm", "--force", id]).run();
    // A run that changed nothing is closed as soon as it has ended.
    assert!(matches!(removed.code, Some(0 | 3)), "{removed:?}");
    ground.until_quiet();
    // Again without it: nothing is left of them but their logs, which go with their time.
    let leaks = Leaks::watch(&ground, &[&repository]).except_logs();
    for name in ["silent", "quits", "dies", "confused"] {
        refused(&ground, &repository, name);
    }
    leaks.none("agents that never answered");
}

#[test]
fn f012_a_trickle_of_bytes_does_not_stretch_the_time() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    agent(
        &ground,
        "drips",
        "printf '{\"id\":0,\"result\":{\"text\":\"'; while :; do printf x; printf . >&2; sleep 0.1; done",
    );
    let error = refused(&ground, &repository, "drips");
    assert_eq!(error["kind"], "timed_out", "{error}");
    ground.until_quiet();
}

#[test]
fn f013_garbage_in_place_of_an_answer_is_a_typed_error() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    agent(
        &ground,
        "binary",
        "head -c 3000 /dev/urandom | tr '{' x; echo; exec sleep 600",
    );
    agent(&ground, "endless", "exec cat /dev/zero");
    agent(
        &ground,
        "older",
        "echo '{\"id\":0,\"result\":{\"version\":0}}'; exec sleep 600",
    );
    for (name, kind) in [
        ("binary", "protocol"),
        ("endless", "too_large"),
        ("older", "protocol"),
    ] {
        let error = refused(&ground, &repository, name);
        assert_eq!(error["kind"], kind, "{name}: {error}");
    }
    ground.until_quiet();
}

#[test]
fn f014_an_agent_that_dies_behind_its_answer_is_a_run_that_ended_once() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    agent(
        &ground,
        "brief",
        &format!("read -r question; echo '{ANSWER}'; echo done >&2; exit 5"),
    );
    for _ in 0..3 {
        let words = ["run", "--keep", "--format", "jsonl", "--agent", "brief"];
        let outcome = ground
            .call(words)
            .directory(repository.path())
            .run()
            .code(5);
        let events = outcome.events();
        let count = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
        assert_eq!(
            (count("launched"), count("rolled_back")),
            (1, 0),
            "{outcome:?}"
        );
    }
    let runs = ground.runs(true);
    assert_eq!(runs.len(), 3);
    for run in runs {
        let shown = ground.show(text(&run["id"]));
        assert_eq!(shown["state"], "exited", "{shown}");
        assert_eq!(shown["exit_code"], json!(5), "{shown}");
    }
}

#[test]
fn c10_an_agent_that_floods_standard_error_before_it_answers_is_started() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let flood = "head -c 300000 /dev/zero | tr '\\0' e >&2; echo >&2";
    agent(
        &ground,
        "loud",
        &format!("{flood}; read -r question; echo '{ANSWER}'; read -r then; exit 0"),
    );
    let outcome = run(&ground, &repository, "loud").run().ok();
    assert_eq!(outcome.code, Some(0));
}
