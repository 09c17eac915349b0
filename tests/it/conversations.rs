//! Conversations with an agent that is a script: what a person at the terminal does, what is hidden, what is left.

use std::fs;

use serde_json::Value;

use crate::ground::{Call, Ground, Repository, text};

/// An agent of the Agent Client Protocol. It is told what to do: `ask` for leave to use a tool, or `tell` its token, in
/// pieces that have no end of line.
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
    *'"session/load"'*) answer '{}' ;;
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
