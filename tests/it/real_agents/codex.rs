//! Real Codex, from the command line to the commit on the branch, and back to nothing.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::place::{PATIENCE, Place, of_kind, outcome, program, said, session_events};
use crate::ground::{path, text, until};

/// A command that makes a file and commits it.
const COMMITS: &str = "echo made > made; git add made; git commit -qm made";

#[test]
fn needs_agents_codex_writes_and_commits_a_file_on_the_branch_and_nothing_is_left_running() {
    let place = Place::new();
    let prompt = format!("do: ask {COMMITS}\ndo: say all is done");
    let ran = place
        .run("codex", &["--approve", "always"], &prompt)
        .run()
        .ok();
    let events = ran.events();
    assert_eq!(outcome(&events), "completed");
    assert!(said(&events).contains("all is done"), "{events:#?}");
    let result = events.last().unwrap();
    assert_eq!(result["state"], "exited", "{result}");
    let branch = text(&result["branch"]);
    let on_branch = place.repository.git(["log", "--format=%s", branch]);
    assert_eq!(on_branch.trim(), "made\nbase");
    // Every event has its place, in one order, and the request was answered by nobody's hand.
    let numbers: Vec<_> = session_events(&events)
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let answered = of_kind(&events, "answered");
    assert!(answered.len() == 1 && answered[0]["automatic"] == true);
    let started = of_kind(&events, "session_started");
    assert_eq!(started[0]["conversation"], result["conversation"]);
    place.nothing_runs();
}

#[test]
fn needs_agents_codex_asks_and_another_process_approves_or_declines() {
    let place = Place::new();
    for (decision, made) in [("deny", false), ("approve", true)] {
        let prompt = format!("do: ask {COMMITS}-{decision}");
        let job = place.running("codex", &["--approve", "ask"], &prompt, "\"asked\"");
        let shown = job.until_out_within("\"asked\"", PATIENCE);
        let asked = shown
            .lines()
            .find(|line| line.contains("\"asked\""))
            .unwrap();
        let asked: Value = serde_json::from_str(asked).unwrap();
        let request = text(&asked["request"]["id"]);
        let run = text(&asked["session"]).to_owned();
        let command = text(&asked["request"]["question"]["command"]);
        assert!(command.contains("git commit"), "{asked}");
        place.call(&["answer", &run, request, decision]).run().ok();
        let ended = job.wait_within(PATIENCE).ok();
        let events = ended.events();
        assert_eq!(outcome(&events), "completed");
        let result = events.last().unwrap();
        let workspace = path(&result["workspace"]);
        assert_eq!(workspace.join("made").exists(), made, "{decision}");
        let count = result["commits"].as_array().unwrap().len();
        assert_eq!(count, usize::from(made), "{result}");
        // What came of it is what the model heard.
        let question = place
            .until_asked(|asked| asked.prompt.ends_with(decision) && !asked.outputs.is_empty());
        let rejected = question.outputs[0].contains("rejected");
        assert_eq!(rejected, !made, "{question:#?}");
        // A request that is settled takes no second answer.
        let again = place.call(&["answer", &run, request, decision]).run();
        assert_ne!(again.code, Some(0), "{again:?}");
    }
    place.nothing_runs();
}

#[test]
fn needs_agents_codex_is_interrupted_by_another_process_and_by_a_signal() {
    let place = Place::new();
    let job = place.running("codex", &[], "do: wait never", "waiting at never");
    let run = place.only_run();
    place.call(&["interrupt", &run]).run().ok();
    let ended = job.wait_within(PATIENCE).code(130);
    assert_eq!(outcome(&ended.events()), "interrupted");
    // The conversation is whole: it goes on.
    let more = place.call(&["--format", "jsonl", "prompt", &run, "do: say so be it"]);
    let more = more.run().ok().events();
    assert!(said(&more).contains("so be it"));
    let job = place.call(&["--format", "jsonl", "prompt", &run, "do: wait for ever"]);
    let job = job.spawn();
    job.until_out_within("waiting at for ever", PATIENCE);
    job.signal(Signal::INT);
    let ended = job.wait_within(PATIENCE).code(130);
    assert_eq!(outcome(&ended.events()), "interrupted");
    let none = place.call(&["interrupt", &run]).run().code(3);
    assert!(none.err().contains("not open"), "{none:?}");
    place.nothing_runs();
}

#[test]
fn needs_agents_a_turn_of_codex_that_fails_is_told_and_the_next_one_goes_on() {
    let place = Place::new();
    let ran = place.run("codex", &[], "do: fail 500").run().code(1);
    let events = ran.events();
    assert_eq!(outcome(&events), "failed");
    let end = of_kind(&events, "turn_ended");
    assert!(!text(&end[0]["error"]).is_empty(), "{end:#?}");
    let run = place.only_run();
    let more = place.call(&["--format", "jsonl", "prompt", &run, "do: say better"]);
    let more = more.run().ok().events();
    assert!(said(&more).contains("better"));
    place.nothing_runs();
}

/// Holds a conversation in which a word is said that the next turn can be asked for; returns the run.
fn heard_of_a_heron(place: &Place) -> Value {
    let first = place.run("codex", &[], "do: say the word is heron");
    first.run().ok().events().last().unwrap().clone()
}

#[test]
fn needs_agents_codex_goes_on_with_its_conversation_in_a_new_process() {
    let place = Place::new();
    let first = heard_of_a_heron(&place);
    let (run, conversation) = (text(&first["id"]), &first["conversation"]);
    let more = place.call(&["--format", "jsonl", "prompt", run, "do: say again"]);
    let more = more.run().ok().events();
    let started = of_kind(&more, "session_started");
    assert!(started[0]["resumed"] == true && started[0]["conversation"] == *conversation);
    let question = place.until_asked(|asked| asked.prompt == "do: say again");
    let heard = question
        .said
        .iter()
        .any(|said| said.contains("the word is heron"));
    assert!(heard, "{question:#?}");
    assert_eq!(more.last().unwrap()["id"], *run);
    // A new conversation takes its place only where that is said.
    let fresh = [
        "--format",
        "jsonl",
        "resume",
        "--fresh",
        "--prompt",
        "do: say who",
        run,
    ];
    let fresh = place.call(&fresh).run().ok().events();
    let result = fresh.last().unwrap();
    assert_ne!(result["conversation"], *conversation);
    let question = place.until_asked(|asked| asked.prompt == "do: say who");
    assert!(!question.said.iter().any(|said| said.contains("heron")));
    place.nothing_runs();
}

#[test]
fn needs_agents_a_start_of_codex_that_fails_leaves_the_conversation_as_it_was() {
    let place = Place::new();
    let first = heard_of_a_heron(&place);
    let (run, conversation) = (text(&first["id"]), &first["conversation"]);
    // Its configuration cannot be read: the thread is not opened.
    let config = place.ground.root().join("codex/config.toml");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, "model = [").unwrap();
    let failed = place.call(&["--format", "json", "prompt", run, "do: say again"]);
    let failed = failed.run();
    assert_ne!(failed.code, Some(0), "{failed:?}");
    let shown = place.ground.show(run);
    assert_eq!(shown["conversation"], *conversation, "{shown:#}");
    fs::write(&config, good).unwrap();
    place.nothing_runs();
    let more = place.call(&["--format", "jsonl", "prompt", run, "do: say again"]);
    let more = more.run().ok().events();
    assert_eq!(more.last().unwrap()["conversation"], *conversation);
    // A new run whose conversation cannot be opened leaves nothing.
    fs::write(&config, "model = [").unwrap();
    let failed = place.run("codex", &[], "do: say more").run();
    assert_ne!(failed.code, Some(0), "{failed:?}");
    assert_eq!(place.ground.runs(false).len(), 1);
    let branches = place.repository.branches();
    assert_eq!(branches.len(), 2, "{branches:?}");
    place.nothing_runs();
}

#[test]
fn needs_agents_codex_goes_on_though_its_controller_is_killed_in_the_middle_of_a_turn() {
    let place = Place::new();
    let options = ["--approve", "ask"];
    let prompt = format!("do: ask {COMMITS}\ndo: wait here");
    let job = place.running("codex", &options, &prompt, "\"asked\"");
    let run = place.only_run();
    job.signal(Signal::KILL);
    job.wait_within(PATIENCE);
    // What it asked waits, and is answered by the next controller; what that one hears meanwhile it tells.
    let words = ["--format", "jsonl", "answer", &run, "q1", "approve"];
    let mut heard = place.call(&words).run().ok().events();
    place.until_asked(|asked| asked.outputs.len() == 1);
    let job = place.call(&["--format", "jsonl", "resume", &run]).spawn();
    job.until_out_within("\"taken_over\"", PATIENCE);
    job.signal(Signal::KILL);
    heard.extend(job.wait_within(PATIENCE).events());
    place.model.open("here");
    let ended = place
        .call(&["--format", "jsonl", "resume", &run])
        .run()
        .ok();
    let events = ended.events();
    assert_eq!(outcome(&events), "completed");
    heard.extend(events.iter().cloned());
    let all = said(&heard);
    assert!(
        all.contains("waiting at here") && all.contains("went through here"),
        "{all}"
    );
    let result = events.last().unwrap();
    assert_eq!(result["commits"][0]["subject"], "made", "{result}");
    // One process served all of it, and each controller had a number of its own.
    let all = session_events(&events);
    assert!(
        all.iter()
            .all(|event| event["process"] == 1 && event["epoch"] == 3)
    );
    place.nothing_runs();
}

#[test]
fn needs_agents_stop_leaves_nothing_of_codex_not_even_what_left_its_session() {
    let place = Place::new();
    let servers = place.ground.root().join("mcp.json");
    let server = json!({ "mcpServers": { "hang": { "command": "sleep", "args": ["7000"] } } });
    fs::write(&servers, server.to_string()).unwrap();
    let away = "setsid -f sleep 7001; (trap '' HUP TERM INT; sleep 7002) & echo away";
    let prompt = format!("do: ask {away}\ndo: wait never");
    let mcp = servers.display().to_string();
    let options = ["--approve", "always", "--mcp", &mcp];
    let job = place.running("codex", &options, &prompt, "waiting at never");
    let run = place.only_run();
    let running = |seconds: &str| {
        let all = place.ground.processes();
        all.iter()
            .any(|process| format!("{process:?}").contains(seconds))
    };
    until("what the command left behind runs", || running("7001"));
    place.call(&["stop", &run]).run().ok();
    place.nothing_runs();
    let ended = job.wait_within(PATIENCE);
    assert_eq!(outcome(&ended.events()), "failed");
}

#[test]
fn needs_agents_starts_and_stops_that_race_leave_no_process_of_codex() {
    let place = Place::new();
    place.run("codex", &[], "do: say hello").run().ok();
    let run = place.only_run();
    for _ in 0..25 {
        let start = place.call(&["resume", "--detach", &run]).spawn();
        let stop = place.call(&["stop", &run]).spawn();
        // Either may come too late for the other; nothing may come of it but an end.
        start.wait_within(PATIENCE);
        stop.wait_within(PATIENCE);
        let agents = || {
            let all = place.ground.processes();
            let codex = all
                .iter()
                .filter(|found| format!("{found:?}").contains("app-server"));
            codex.count()
        };
        let expected = usize::from(place.ground.state_of(&run) == "running");
        until("there is one agent at most", || agents() == expected);
    }
    place.call(&["stop", &run]).run().ok();
    place.nothing_runs();
}

#[test]
fn c37_needs_agents_dead_tool_servers_are_warnings_and_the_others_serve() {
    let place = Place::new();
    let good = place.ground.root().join("bin/good-tools");
    program(&good, GOOD_SERVER);
    let limit = 2;
    let with = |mut definition: Value| {
        definition["startup_timeout_sec"] = json!(limit);
        definition
    };
    let servers = json!({ "mcpServers": {
        "good": with(json!({ "command": good })),
        "hang": with(json!({ "command": "sleep", "args": ["7003"] })),
        "typo": with(json!({ "command": "/nonexistent/x" })),
        "dies": with(json!({ "command": "sh", "args": ["-c", "echo why >&2; exit 3"] })),
    }});
    let file = place.ground.root().join("mcp.json");
    fs::write(&file, servers.to_string()).unwrap();
    let mcp = file.display().to_string();
    let job = place
        .run("codex", &["--mcp", &mcp], "do: wait ready")
        .spawn();
    // The turn does not wait for the one that hangs; we do, until its limit.
    job.until_out_within("waiting at ready", PATIENCE);
    let about_hang = "\"server\":\"hang\",\"status\":\"failed\"";
    job.until_out_within(about_hang, PATIENCE);
    place.model.open("ready");
    let events = job.wait_within(PATIENCE).ok().events();
    assert_eq!(outcome(&events), "completed");
    let told = of_kind(&events, "mcp_server");
    let failed = |name: &str| {
        let mut of_it = told.iter().filter(|event| event["server"] == name);
        of_it.any(|event| event["status"] == "failed" && event["error"].is_string())
    };
    for name in ["hang", "typo", "dies"] {
        assert!(failed(name), "{name}: {told:#?}");
    }
    assert!(!failed("good"), "{told:#?}");
    // The model is offered what the good one has.
    let question = place.until_asked(|asked| asked.prompt == "do: wait ready");
    let offered = question.tools.iter().any(|tool| tool.contains("good"));
    assert!(offered, "{:?}", question.tools);
    place.nothing_runs();
}

/// A tool server: it answers what it is asked by the request's id, and has one tool.
const GOOD_SERVER: &str = r#"#!/bin/sh
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"good","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"look","description":"looks","inputSchema":{"type":"object","properties":{}}}]}' ;;
    *) result='{}' ;;
    esac
    [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;
