//! The JSON documents: fields that programs rely on, in every format, errors included.

use serde_json::{Value, json};

use crate::ground::{Ground, path, text};

/// What every document of a run has.
const RUN: [&str; 10] = [
    "id",
    "session",
    "executor",
    "state",
    "workspace",
    "repository",
    "branch",
    "base",
    "commits",
    "exit_code",
];

#[track_caller]
fn is_run(run: &Value) {
    for name in RUN {
        assert!(run.get(name).is_some(), "{name}: {run:#}");
    }
}

#[test]
fn run_show_stop_and_ls_tell_the_same_of_a_run() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo out; echo err >&2; echo x >x; git add x; git commit -qm one; exit 3";
    let outcome = ground
        .run_shell(
            &repository,
            &["--format", "json", "--title", "a title", "--session", "s1"],
            script,
        )
        .run()
        .code(3);
    let run = outcome.json();
    assert_eq!(run["schema_version"], 1);
    is_run(&run);
    // The document stands alone on standard output; what the command said is beside it.
    assert!(
        outcome.err().contains("out\n") && outcome.err().contains("err\n"),
        "{outcome:?}"
    );
    assert_eq!(run["session"], "s1");
    assert_eq!(run["executor"], "worktree");
    assert_eq!(run["state"], "exited");
    assert_eq!(run["exit_code"], 3);
    assert_eq!(path(&run["repository"]), repository.path());
    assert_eq!(run["commits"].as_array().unwrap().len(), 1);
    let show = ground.show(text(&run["id"]));
    let stop = ground
        .call(["--format", "json", "stop", text(&run["id"])])
        .run()
        .ok()
        .json();
    let listed = ground.call(["--format", "json", "ls"]).run().ok().json();
    assert_eq!(listed["schema_version"], 1);
    for same in [&show, &stop, &listed["runs"][0]] {
        is_run(same);
        for name in RUN {
            assert_eq!(same[name], run[name], "{name}");
        }
    }
}

#[test]
fn closing_and_removal_tell_what_they_did() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.ran(&repository, &["--keep"], "true");
    let id = text(&run["id"]);
    for (words, outcome) in [
        (["--format", "json", "close", id], "closed"),
        (["--format", "json", "rm", id], "closed"),
    ] {
        let report = ground.call(words).run().ok().json();
        assert_eq!(report["schema_version"], 1);
        assert_eq!(report["id"], id);
        assert_eq!(report["outcome"], outcome, "{report:#}");
        for (name, empty) in [("kept", json!([])), ("snapshot", Value::Null)] {
            assert_eq!(report[name], empty, "{report:#}");
        }
        assert!(report["removed"].is_array());
    }
    assert_eq!(ground.show(id)["state"], "closed");
}

#[test]
fn jsonl_tells_one_event_a_line_output_included() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo out; echo err >&2; printf '\\377'; exit 2";
    let outcome = ground
        .run_shell(&repository, &["--format", "jsonl"], script)
        .run()
        .code(2);
    let events = outcome.events();
    let of = |name: &str| -> Vec<&Value> {
        events
            .iter()
            .filter(|event| event["event"] == name)
            .collect()
    };
    for event in &events {
        assert_eq!(event["schema_version"], 1, "{event}");
    }
    let mut streams = std::collections::BTreeMap::<&str, Vec<u8>>::new();
    let mut offset = 0;
    for event in of("output") {
        assert_eq!(event["offset"], offset, "{event}");
        let bytes = match (event["text"].as_str(), event["base64"].as_str()) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(base64)) => decoded(base64),
            other => panic!("neither text nor base64: {other:?}"),
        };
        offset += bytes.len();
        streams
            .entry(text(&event["stream"]))
            .or_default()
            .extend(bytes);
    }
    assert_eq!(streams["stdout"], b"out\n\xff");
    assert_eq!(streams["stderr"], b"err\n");
    let result = of("result");
    assert_eq!(result.len(), 1);
    is_run(result[0]);
    assert_eq!(result[0]["exit_code"], 2);
    let last = events.last().unwrap();
    assert_eq!(last["event"], "result", "the result is the last line");
    // Steps are told as they happen, in order.
    let order = outcome.out();
    let at = |words: &str| {
        order
            .find(words)
            .unwrap_or_else(|| panic!("{words}: {order}"))
    };
    assert!(at("\"reserve\"") < at("\"create\""));
    assert!(at("\"create\"") < at("\"output\""));
}

/// Reads RFC 4648.
fn decoded(base64: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("no base64: {other}"),
    };
    let digits = base64.trim_end_matches('=').as_bytes();
    digits
        .chunks(4)
        .flat_map(|group| {
            let bits = group
                .iter()
                .fold(0, |bits, c| bits << 6 | u32::from(digit(*c)));
            let bits = bits << (6 * (4 - group.len()));
            bits.to_be_bytes()[1..group.len()].to_vec()
        })
        .collect()
}

#[test]
fn errors_are_documents_too() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let outcome = ground
        .run_in(&repository, &["--format", "json"], ["no-such-program"])
        .run()
        .code(127);
    let error = outcome.error();
    for name in ["kind", "message", "step", "context", "rollback"] {
        assert!(error.get(name).is_some(), "{name}: {error:#}");
    }
    assert_eq!(error["step"], "start");
    assert_eq!(error["rollback"]["clean"], true);
    let events = ground
        .run_in(&repository, &["--format", "jsonl"], ["no-such-program"])
        .run()
        .code(127)
        .events();
    let last = events.last().unwrap();
    assert_eq!(last["event"], "error");
    assert_eq!(last["error"]["kind"], "program_not_found");
}

#[test]
fn nothing_but_the_commands_output_is_on_standard_output_for_people() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let outcome = ground
        .run_shell(&repository, &["--keep"], "printf exact")
        .run()
        .ok();
    assert_eq!(outcome.stdout, b"exact");
    assert!(!outcome.stderr.is_empty());
    // Elsewhere than on a terminal there are no colours and no moving lines.
    assert!(!outcome.err().contains('\x1b'), "{outcome:?}");
    let detached = ground
        .run_shell(&repository, &["--detach"], "true")
        .run()
        .ok();
    let id = detached.out().trim().to_owned();
    assert_eq!(
        ground.show(&id)["id"],
        id.as_str(),
        "a detached run prints its id"
    );
}

#[test]
fn logs_are_a_document_too() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.ran(&repository, &["--keep"], "echo out; echo err >&2");
    let id = text(&run["id"]);
    let document = ground
        .call(["--format", "json", "logs", id])
        .run()
        .ok()
        .json();
    assert_eq!(document["schema_version"], 1);
    assert_eq!(document["id"], id);
    let shown = document["frames"].to_string();
    assert!(
        shown.contains("out\\n") && shown.contains("err\\n"),
        "{document:#}"
    );
    ground
        .call(["--format", "jsonl", "logs", id])
        .run()
        .ok()
        .events();
}

#[test]
fn a_plan_is_a_document_without_secrets() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let call = ground
        .call(["--format", "json", "plan", "--env", "GIVEN=1", "--", "true"])
        .directory(repository.path())
        .env("MY_API_KEY", "plain-token-123456");
    let outcome = call.run().ok();
    let plan = outcome.json();
    for name in [
        "schema_version",
        "executor",
        "workspace",
        "branch",
        "base",
        "steps",
        "environment",
    ] {
        assert!(plan.get(name).is_some(), "{name}: {plan:#}");
    }
    assert!(!outcome.out().contains("plain-token-123456"));
    let given = plan["environment"]
        .as_array()
        .unwrap()
        .iter()
        .find(|v| v["name"] == "GIVEN");
    assert_eq!(given.unwrap()["value"], "1");
    assert!(given.unwrap()["origin"].is_string());
}

#[test]
fn doctor_finds_nothing_wrong_with_a_sound_installation() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    ground.ran(&repository, &["--keep"], "true");
    let report = ground
        .call(["--format", "json", "doctor"])
        .run()
        .ok()
        .json();
    assert_eq!(report["schema_version"], 1);
    ground.call(["doctor"]).run().ok().says("git");
}
