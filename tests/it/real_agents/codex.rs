//! Real Codex, from the command line to the commit on the branch, and back to nothing.

use std::fs;

use serde_json::{Value, json};

use super::{
    jobs,
    place::{PATIENCE, Place, of_kind, outcome, program},
};

#[test]
fn needs_agents_codex_writes_and_commits_a_file_on_the_branch_and_nothing_is_left_running() {
    jobs::writes_and_commits(&Place::new());
}

#[test]
fn needs_agents_codex_asks_and_another_process_approves_or_declines() {
    jobs::is_approved_or_declined(&Place::new());
}

#[test]
fn needs_agents_codex_is_interrupted_by_another_process_and_by_a_signal() {
    jobs::is_interrupted(&Place::new());
}

#[test]
fn needs_agents_a_turn_of_codex_that_fails_is_told_and_the_next_one_goes_on() {
    jobs::fails_and_goes_on(&Place::new());
}

#[test]
fn needs_agents_codex_goes_on_with_its_conversation_in_a_new_process() {
    jobs::goes_on_in_a_new_process(&Place::new());
}

#[test]
fn needs_agents_a_start_of_codex_that_fails_leaves_the_conversation_as_it_was() {
    jobs::fails_to_start(&Place::new());
}

#[test]
fn needs_agents_codex_goes_on_though_its_controller_is_killed_in_the_middle_of_a_turn() {
    jobs::outlives_its_controllers(&Place::new());
}

#[test]
fn needs_agents_stop_leaves_nothing_of_codex_not_even_what_left_its_session() {
    jobs::is_stopped(&Place::new());
}

#[test]
fn needs_agents_starts_and_stops_that_race_leave_no_process_of_codex() {
    jobs::starts_and_stops_at_once(&Place::new(), 25);
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
