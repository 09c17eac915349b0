//! Conversations with an agent that is a script: what a person at the terminal does, what is hidden, what is left.

use std::{fs, path::PathBuf};

use groundcrew_core::{id::RunId, store::StateStore as _};
use groundcrew_state::StateDirectory;
use rustix::process::Signal;
use serde_json::Value;

use crate::ground::{Call, Ground, Job, Outcome, Repository, text};

/// An agent of the Agent Client Protocol. It is told what to do: `ask` for leave to use a tool, `wait` until somebody opens
/// the pipe `$GO`, or `tell` its token, in pieces that have no end of line.
const AGENT: &str = r#"#!/bin/sh
say() {
    printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"c1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}\n' "$1"
}
answer() {
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"
}
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
    case $line in
    *'"initialize"'*) answer '{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}' ;;
    *'"session/new"'*) answer '{"sessionId":"c1"}' ;;
    *'"session/load"'*)
            echo loaded >>~/loaded
            answer '{}'
            ;;
    *'"session/prompt"'*)
        case $line in
        *ask*)
            printf '{"jsonrpc":"2.0","id":"p1","method":"session/request_permission","params":{"sessionId":"c1","toolCall":{"toolCallId":"t1","title":"touch it"},"options":[{"optionId":"go","name":"Go","kind":"allow_once"},{"optionId":"stay","name":"Stay","kind":"reject_once"}]}}\n'
            read -r reply
            case $reply in
            *'"go"'*) say 'it was allowed' ;;
            *'"stay"'*) say 'it was refused' ;;
            *) say 'it was lost' ;;
            esac
            ;;
        *wait*)
            say 'waiting, '
            : <"$GO"
            say 'and it went on'
            ;;
        *)
            end=${TOKEN#??????}
            say 'here: '
            say "${TOKEN%"$end"}"
            say "$end"
            say ', that is all'
            ;;
        esac
        answer '{"stopReason":"end_turn"}'
        ;;
    *) [ -z "$id" ] || answer '{}' ;;
    esac
done
"#;

fn ground() -> (Ground, Repository) {
    let ground = Ground::new();
    let program = ground.script("talker", AGENT);
    let directory = ground.root().join("home/.config/groundcrew/profiles");
    fs::create_dir_all(&directory).unwrap();
    let profile = format!(
        "name = 'talker'\ncommand = []\n[session]\nprotocol = 'acp'\ncommand = ['{}']\n",
        program.display()
    );
    fs::write(directory.join("talker.toml"), profile).unwrap();
    let repository = ground.repository("r");
    (ground, repository)
}

fn run(ground: &Ground, repository: &Repository, options: &[&str], prompt: &str) -> Call {
    let words = [
        &["run", "--agent", "talker", "--prompt", prompt][..],
        options,
    ];
    let words = words.concat();
    ground.call(words).directory(repository.path())
}

#[test]
fn a_person_at_the_terminal_approves_and_declines() {
    let (ground, repository) = ground();
    for (line, outcome) in [("y\n", "it was allowed"), ("n\n", "it was refused")] {
        let mut terminal = run(&ground, &repository, &[], "ask").in_terminal(30, 100);
        let shown = terminal.until_shown("y approves");
        assert!(shown.contains("touch it"), "{shown}");
        // What is no answer is none, and is explained.
        terminal.keys("perhaps\n");
        terminal.until_shown("perhaps");
        terminal.keys(line);
        terminal.until_shown(outcome);
        let ended = terminal.wait().ok();
        let shown = ended.out();
        assert!(shown.matches("y approves").count() >= 2, "{shown}");
        assert!(!shown.contains("it was lost"), "{shown}");
    }
    ground.until_quiet();
}

#[test]
fn without_a_terminal_nobody_is_asked_and_it_is_declined() {
    let (ground, repository) = ground();
    let ran = run(&ground, &repository, &[], "ask").run().ok();
    assert!(ran.out().contains("it was refused"), "{ran:?}");
}

#[test]
fn c14_a_secret_that_an_agent_says_in_pieces_is_hidden_in_every_format() {
    const SECRET: &str = "plain-token-123456";
    let (ground, repository) = ground();
    ground
        .call(["secret", "set", "talkers"])
        .input(SECRET)
        .run()
        .ok();
    let given = ["--secret", "TOKEN=talkers"];
    let said = |format: &str| {
        let options = [&given[..], &["--format", format]].concat();
        let ran = run(&ground, &repository, &options, "tell").run().ok();
        let (out, err) = (ran.out(), ran.err());
        for part in ["plain-", "token-123456", SECRET] {
            assert!(
                !out.contains(part) && !err.contains(part),
                "{format}: {ran:?}"
            );
        }
        out
    };
    for format in ["human", "json"] {
        let out = said(format);
        assert!(
            out.contains("here: *") && out.contains(", that is all"),
            "{out}"
        );
    }
    let lines = said("jsonl");
    let events = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let deltas: Vec<_> = events
        .filter(|event| event["type"] == "text_delta")
        .collect();
    let whole: String = deltas.iter().map(|event| text(&event["text"])).collect();
    let expected = format!("here: {}, that is all", "*".repeat(SECRET.len()));
    assert_eq!(whole, expected);
    assert_eq!(deltas.len(), 4, "an event was lost or made: {deltas:#?}");
    // Somebody else who follows a turn, and whoever goes on, hides it as well.
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    let more = ["--format", "jsonl", "prompt", &id, "tell"];
    let more = ground.call(more).run().ok();
    assert!(more.out().contains(", that is all"), "{more:?}");
    assert!(!more.out().contains("token-123456"), "{more:?}");
}

/// Returns the names of what is kept of conversations.
fn kept(ground: &Ground) -> Vec<String> {
    let entries = fs::read_dir(ground.state().join("conversations")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn gc_takes_what_is_left_of_conversations_whose_runs_are_gone_and_of_no_other() {
    let (ground, repository) = ground();
    let started = run(&ground, &repository, &["--format", "json"], "tell");
    let id = text(&started.run().ok().json()["id"]).to_owned();
    let living = kept(&ground);
    assert!(!living.is_empty());
    // A controller died between the end of its run and that of the conversation's files; another while it wrote.
    let directory = ground.state().join("conversations");
    for name in ["gone.json", "gone.lock", "half.part"] {
        fs::write(directory.join(name), "{}").unwrap();
    }
    let gc = |words: &[&str]| {
        let words = [&["--format", "json", "gc"], words].concat();
        let document = ground.call(words).run().ok().json();
        let removed = document["removed"].as_array().unwrap().clone();
        let of_conversations = removed.iter().filter(|gone| gone["what"] == "conversation");
        let mut names: Vec<_> = of_conversations
            .map(|gone| text(&gone["name"]).to_owned())
            .collect();
        names.sort();
        names
    };
    let before = kept(&ground);
    assert_eq!(gc(&["--dry-run"]), ["gone", "half"]);
    assert_eq!(kept(&ground), before);
    assert_eq!(gc(&[]), ["gone", "half"]);
    assert_eq!(kept(&ground), living);
    // The one that stayed goes on.
    let more = ground.call(["prompt", &id, "tell"]).run().ok();
    assert!(more.out().contains("that is all"), "{more:?}");
    ground.call(["rm", &id]).run().ok();
    assert_eq!(kept(&ground), [""; 0]);
    assert_eq!(gc(&[]), [""; 0]);
}

/// Makes the pipe that the agent waits for.
fn pipe(ground: &Ground) -> (PathBuf, String) {
    let pipe = ground.path("go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let given = format!("GO={}", pipe.display());
    (pipe, given)
}

/// Begins a turn that waits, in a run that nobody follows, and returns its id.
fn detached(ground: &Ground, repository: &Repository, options: &[&str], prompt: &str) -> String {
    let options = [&["--detach", "--format", "json"], options].concat();
    let began = run(ground, repository, &options, prompt).run().ok();
    text(&began.json()["id"]).to_owned()
}

/// Waits for the end of the turn that runs, if one does; the conversation stays open.
fn calm(ground: &Ground, id: &str) {
    ground.call(["resume", "--detach", id]).run().ok();
}

fn state(ground: &Ground, id: &str) -> String {
    let shown = ground.call(["--format", "json", "show", id]).run().ok();
    text(&shown.json()["state"]).to_owned()
}

#[test]
fn a_prompt_that_is_refused_ends_nothing_that_runs() {
    let (ground, repository) = ground();
    let (pipe, given) = pipe(&ground);
    let id = detached(&ground, &repository, &["--env", &given], "wait");
    for verb in [
        &["prompt", &id, "tell"][..],
        &["resume", &id, "--prompt", "tell"],
    ] {
        let refused = ground.call(verb).run();
        refused.code(125).says("interrupt");
        assert_eq!(state(&ground, &id), "running", "{verb:?}");
    }
    let following = ground.call(["resume", &id]).spawn();
    following.until_err("took the conversation");
    fs::write(&pipe, "").unwrap();
    let followed = following.wait().ok();
    assert!(followed.out().contains("and it went on"), "{followed:?}");
    assert_ne!(state(&ground, &id), "running");
    ground.until_quiet();
}

#[test]
fn who_speaks_while_the_last_one_leaves_is_heard() {
    let (ground, repository) = ground();
    let mut first = run(&ground, &repository, &["--format", "jsonl"], "tell").spawn();
    for round in 0..12 {
        first.until_out("\"type\":\"turn_ended\"");
        let id = text(&ground.runs(false)[0]["id"]).to_owned();
        // In the moment in which the one at the desk gets up.
        let others = [(); 2].map(|()| ground.call(["prompt", &id, "tell"]).spawn());
        first.wait().ok();
        let others = others.map(Job::wait);
        let heard = |other: &Outcome| other.code == Some(0);
        assert!(others.iter().any(heard), "{round}: {others:?}");
        for other in others {
            // The agent takes one prompt at a time, and says so.
            let refused = other.err().contains("interrupt");
            assert!(refused || heard(&other), "{round}: {other:?}");
        }
        first = ground
            .call(["--format", "jsonl", "prompt", &id, "tell"])
            .spawn();
    }
    first.wait().ok();
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    ground.call(["stop", &id]).run();
    ground.until_quiet();
}

#[test]
fn who_waits_for_one_that_is_stopped_can_leave() {
    let (ground, repository) = ground();
    let options = ["--approve", "ask", "--format", "jsonl"];
    let controller = run(&ground, &repository, &options, "ask").spawn();
    controller.until_out("\"type\":\"asked\"");
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    controller.signal(Signal::STOP);
    for words in [
        &["answer", &id, "q1", "approve"][..],
        &["interrupt", &id],
        &["prompt", &id, "more"],
    ] {
        let waiting = ground.call(words).spawn();
        waiting.until_it_catches(Signal::INT);
        waiting.signal(Signal::INT);
        waiting.wait().code(130);
    }
    controller.signal(Signal::CONT);
    ground.call(["answer", &id, "q1", "approve"]).run();
    let ended = controller.wait();
    assert!(!ended.out().contains("it was lost"), "{ended:?}");
    ground.call(["stop", &id]).run();
    ground.until_quiet();
}

#[test]
fn a_prompt_that_never_ends_can_be_left() {
    let (ground, repository) = ground();
    let id = detached(&ground, &repository, &[], "tell");
    let fresh = [&["run", "--agent", "talker", "--prompt", "-"][..], &[]].concat();
    for words in [&["prompt", &id, "-"][..], &fresh] {
        let call = ground.call(words).directory(repository.path());
        let mut reading = call.held_input().spawn();
        reading.write(b"never ");
        reading.until_it_catches(Signal::INT);
        reading.signal(Signal::INT);
        reading.wait().code(130).says("nothing was said");
    }
    assert_eq!(ground.runs(false).len(), 1);
    assert_eq!(state(&ground, &id), "running");
    ground.call(["stop", &id]).run().ok();
    ground.until_quiet();
}

#[test]
fn who_decides_is_said_when_a_conversation_is_opened_and_never_ignored() {
    let (ground, repository) = ground();
    let id = detached(&ground, &repository, &["--approve", "always"], "tell");
    calm(&ground, &id);
    let other = ground
        .call(["prompt", &id, "--approve", "never", "ask"])
        .run();
    other
        .code(2)
        .says("--approve always")
        .says("groundcrew stop");
    let same = ground
        .call(["prompt", &id, "--approve", "always", "ask"])
        .run();
    assert!(same.ok().out().contains("it was allowed"));
    let silent = ground.call(["prompt", &id, "ask"]).run().ok();
    assert!(silent.out().contains("it was allowed"), "{silent:?}");
    ground.call(["stop", &id]).run().ok();
    // A new agent is opened anew.
    let anew = ground
        .call(["prompt", &id, "--approve", "never", "ask"])
        .run();
    assert!(anew.ok().out().contains("it was refused"));
    ground.call(["stop", &id]).run();
    ground.until_quiet();
}

#[test]
fn a_name_that_nobody_wrote_down_is_written_down_by_the_next_one() {
    let (ground, repository) = ground();
    let loaded = ground.root().join("home/loaded");
    let id = detached(&ground, &repository, &[], "tell");
    calm(&ground, &id);
    // As a controller leaves it that dies behind the opening: the name stands in the conversation's own state alone.
    forget_token(&ground, &id);
    ground.call(["prompt", &id, "tell"]).run().ok();
    ground.call(["stop", &id]).run().ok();
    assert!(!loaded.exists());
    ground.call(["prompt", &id, "tell"]).run().ok();
    assert_eq!(fs::read_to_string(&loaded).unwrap(), "loaded\n");
    // Nobody came between, and the agent ended.
    ground.call(["stop", &id]).run().ok();
    forget_token(&ground, &id);
    ground.call(["prompt", &id, "tell"]).run().ok();
    assert_eq!(fs::read_to_string(&loaded).unwrap(), "loaded\nloaded\n");
    ground.call(["stop", &id]).run().ok();
    ground.until_quiet();
}

/// Takes the name of the conversation out of the record of its run.
fn forget_token(ground: &Ground, id: &str) {
    let state = StateDirectory::open(ground.state()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let store = state.store();
        let run = RunId::new(id).unwrap();
        let mut record = store.run(&run).await.unwrap().unwrap();
        assert_eq!(record.resume_token.take().as_deref(), Some("c1"));
        store.put(&record).await.unwrap();
    });
}
