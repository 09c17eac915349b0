//! The other agents: the same turn on each, and an end for each, whatever it ignores.

use super::place::{Place, of_kind, outcome, said};
use crate::ground::{path, text};

/// Has an agent commit a file after it was asked for that, and say so.
fn smoke(agent: &str, options: &[&str]) {
    smoke_in(&Place::new(), agent, options);
}

fn smoke_in(place: &Place, agent: &str, options: &[&str]) {
    let mut all = vec!["--approve", "always"];
    all.extend(options);
    let prompt = "do: ask echo made > made; git add made; git commit -qm made\ndo: say all is done";
    let ran = place.run(agent, &all, prompt).run().ok();
    let events = ran.events();
    assert_eq!(outcome(&events), "completed", "{agent}");
    assert!(said(&events).contains("all is done"), "{events:#?}");
    assert!(!of_kind(&events, "asked").is_empty(), "{events:#?}");
    let result = events.last().unwrap();
    assert_eq!(result["commits"][0]["subject"], "made", "{result}");
    assert!(path(&result["workspace"]).join("made").exists());
    assert!(!text(&result["conversation"]).is_empty());
    // It ends by our measures, whatever it makes of them.
    place.nothing_runs();
}

#[test]
fn needs_agents_opencode_writes_and_commits_and_ends() {
    smoke("opencode", &[]);
}

#[test]
fn needs_agents_the_bridge_that_ignores_the_end_of_its_input_writes_and_commits_and_ends() {
    smoke("codex-acp", &[]);
}

#[test]
fn needs_agents_needs_claude_the_bridge_of_claude_writes_and_commits_and_ends() {
    smoke_in(&Place::new().with_claude(), "claude", &[]);
}

#[test]
fn needs_agents_gemini_writes_and_commits_and_ends() {
    smoke("gemini", &["--model", "gemini-2.5-flash"]);
}

#[test]
fn needs_agents_gemini_that_starts_itself_again_and_ignores_the_signal_ends_all_the_same() {
    let place = Place::new();
    // The profile forbids it; what a user says is stronger.
    let options = [
        "--model",
        "gemini-2.5-flash",
        "--env",
        "GEMINI_CLI_NO_RELAUNCH=false",
    ];
    let ran = place.run("gemini", &options, "do: say here").run().ok();
    assert!(said(&ran.events()).contains("here"));
    place.nothing_runs();
}

#[test]
fn needs_agents_opencode_goes_on_with_its_conversation_in_a_new_process_and_is_interrupted() {
    let place = Place::new();
    let first = place
        .run("opencode", &[], "do: say the word is heron")
        .run()
        .ok();
    let first = first.events();
    let run = text(&first.last().unwrap()["id"]).to_owned();
    let words = ["--format", "jsonl", "prompt", &run, "do: wait never"];
    let job = place.call(&words).spawn();
    job.until_out_within("waiting at never", super::place::PATIENCE);
    let question = place.until_asked(|asked| asked.prompt == "do: wait never");
    let heard = question
        .said
        .iter()
        .any(|said| said.contains("the word is heron"));
    assert!(heard, "{question:#?}");
    place.call(&["interrupt", &run]).run().ok();
    let ended = job.wait_within(super::place::PATIENCE).code(130);
    assert_eq!(outcome(&ended.events()), "interrupted");
    place.nothing_runs();
}
