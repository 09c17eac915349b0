//! What real Codex is put through, wherever it runs.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::place::{PATIENCE, Place, of_kind, outcome, said, session_events};
use crate::ground::{path, text, until};

/// A command that makes a file and commits it.
const COMMITS: &str = "echo made > made; git add made; git commit -qm made";

/// It writes and commits a file after it was allowed to: the commit is on the branch, and nothing is left running.
pub(super) fn writes_and_commits(place: &Place) {
    let prompt = format!("{}\ndo: say all is done", place.with_leave(COMMITS));
    let ran = place
        .run("codex", &["--approve", "always"], &prompt)
        .run()
        .ok();
    let events = ran.events();
    assert_eq!(outcome(&events), "completed");
    assert!(said(&events).contains("all is done"), "{events:#?}");
    let result = events.last().unwrap();
    assert_eq!(result["state"], "exited", "{result}");
    // From a container's clone it comes there as soon as the agent has ended.
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
    assert_eq!(answered.len(), place.leaves(), "{answered:#?}");
    assert!(answered.iter().all(|event| event["automatic"] == true));
    let started = of_kind(&events, "session_started");
    assert_eq!(started[0]["conversation"], result["conversation"]);
    place.call(&["close", text(&result["id"])]).run().ok();
    place.nothing_runs();
}

/// Starts and stops of it that race leave one of it at most, and none in the end.
pub(super) fn starts_and_stops_at_once(place: &Place, rounds: usize) {
    place.run("codex", &[], "do: say hello").run().ok();
    let run = place.only_run();
    for _ in 0..rounds {
        let start = place.call(&["resume", "--detach", &run]).spawn();
        let stop = place.call(&["stop", &run]).spawn();
        // Either may come too late for the other; nothing may come of it but an end.
        start.wait_within(PATIENCE);
        stop.wait_within(PATIENCE);
        let expected = usize::from(place.ground.state_of(&run) == "running");
        until("there is one agent at most", || place.agents() == expected);
    }
    place.call(&["stop", &run]).run().ok();
    assert_eq!(place.agents(), 0);
    place.nothing_runs();
}

/// It asks, and another process approves or declines.
pub(super) fn is_approved_or_declined(place: &Place) {
    for (decision, made) in [("deny", false), ("approve", true)] {
        let prompt = place.with_leave(&format!("{COMMITS}-{decision}"));
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

/// It is interrupted by another process, and by a signal.
pub(super) fn is_interrupted(place: &Place) {
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

/// A turn that fails is told, and the next one goes on.
pub(super) fn fails_and_goes_on(place: &Place) {
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

/// It goes on with its conversation in a new process.
pub(super) fn goes_on_in_a_new_process(place: &Place) {
    let first = heard_of_a_heron(place);
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

/// A start that fails leaves the conversation as it was.
pub(super) fn fails_to_start(place: &Place) {
    let first = heard_of_a_heron(place);
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
    let branches = place.repository.branches();
    fs::write(&config, "model = [").unwrap();
    let failed = place.run("codex", &[], "do: say more").run();
    assert_ne!(failed.code, Some(0), "{failed:?}");
    assert_eq!(place.ground.runs(false).len(), 1);
    assert_eq!(place.repository.branches(), branches);
    place.nothing_runs();
}

/// It goes on though its controllers are killed in the middle of a turn.
pub(super) fn outlives_its_controllers(place: &Place) {
    let options = ["--approve", "ask"];
    let prompt = format!("{}\ndo: wait here", place.with_leave(COMMITS));
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

/// A stop leaves nothing of it, not even what left its session.
pub(super) fn is_stopped(place: &Place) {
    let servers = place.ground.root().join("mcp.json");
    let server = json!({ "mcpServers": { "hang": { "command": "sleep", "args": ["7000"] } } });
    fs::write(&servers, server.to_string()).unwrap();
    let away = "setsid -f sleep 7001; (trap '' HUP TERM INT; sleep 7002) & echo away";
    let prompt = format!("{}\ndo: wait never", place.with_leave(away));
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
