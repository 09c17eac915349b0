//! Values of a run on their way into a container: the engine is never told them, whatever it keeps, writes or tells.

use std::fs;

use crate::ground::{Engine, Ground, IMAGE, text, until};

/// A secret from the store.
const SECRET: &str = "canary-secret-5d1c7e";
/// A variable of one run.
const PLAIN: &str = "canary-plain-77ab02";
/// A value that the engine is told on purpose, so that the search is known to find it.
const PLANTED: &str = "canary-planted-e01f93";

/// Everything that the engine keeps, writes and tells, by name.
fn told(engine: &Engine) -> Vec<(String, String)> {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 1;
    let until = now.to_string();
    let mut all = vec![
        ("log".to_owned(), engine.log()),
        (
            "events".to_owned(),
            engine.docker(&[
                "events",
                "--since",
                "0",
                "--until",
                until.as_str(),
                "--format",
                "{{json .}}",
            ]),
        ),
        (
            "list".to_owned(),
            engine.docker(&[
                "ps",
                "--all",
                "--no-trunc",
                "--format",
                "{{json .}} {{.Labels}}",
            ]),
        ),
    ];
    for container in engine.docker(&["ps", "--all", "--quiet"]).lines() {
        for words in [
            &["inspect", "--size", container][..],
            &["logs", container],
            &["diff", container],
        ] {
            all.push((words.join(" "), engine.docker(words)));
        }
        if let Ok(top) = engine.client(&["top", container]).output() {
            all.push((
                format!("top {container}"),
                String::from_utf8_lossy(&top.stdout).into_owned(),
            ));
        }
    }
    for (path, text) in engine.files_of_containers() {
        all.push((path.display().to_string(), text));
    }
    all
}

/// Returns the names of what holds a value.
fn holding(engine: &Engine, value: &str) -> Vec<String> {
    told(engine)
        .into_iter()
        .filter(|(_, text)| text.contains(value))
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn f144_needs_docker_nothing_that_the_engine_keeps_writes_or_tells_holds_a_secret() {
    let options = [
        "--bridge=none",
        "--iptables=false",
        "--ip-forward=false",
        "--debug",
    ];
    let engine = Engine::private_with(&options);
    let ground = Ground::new();
    let repository = ground.repository("r");
    ground
        .call(["secret", "set", "--raw", "key"])
        .input(SECRET)
        .run()
        .ok();
    let plain = format!("PLAIN={PLAIN}");
    let given = ["--secret", "API_KEY=key", "--env", plain.as_str(), "--keep"];
    let script = "echo \"has $API_KEY $PLAIN\" >got; echo \"$API_KEY $PLAIN\"; exec sleep 600";
    let options = [&["--detach", "--format", "json"][..], &given].concat();
    let run = engine
        .run(&ground, &repository, &options, script)
        .run()
        .ok()
        .json();
    let id = text(&run["id"]);
    let workspace = crate::ground::path(&run["workspace"]);
    let has = format!("has {SECRET} {PLAIN}\n");
    let got = || fs::read_to_string(workspace.join("got")).unwrap_or_default();
    until("the command has both", || got() == has);
    let clean = |when: &str| {
        for value in [SECRET, PLAIN] {
            assert_eq!(holding(&engine, value), [""; 0], "{when}");
        }
    };
    clean("while it runs");
    let exec = [
        "exec",
        id,
        "--",
        "sh",
        "-c",
        "test -n \"$API_KEY\" && echo \"$API_KEY\" >>got",
    ];
    engine.call(&ground, &exec).run().ok();
    assert!(got().len() > has.len(), "it has no secret");
    clean("after one more command");
    engine
        .call(&ground, &["stop", "--grace", "1s", id])
        .run()
        .ok();
    clean("after its end");
    fs::remove_file(workspace.join("got")).unwrap();
    let again = [
        &["resume", "--detach"][..],
        &given[..4],
        &[id, "--", "sh", "-c", script],
    ]
    .concat();
    engine.call(&ground, &again).run().ok();
    until("the resumed command has both", || got() == has);
    clean("after it was resumed");
    assert_eq!(engine.containers(&ground).len(), 1);
    // The search finds what is there: in the configuration, a label, the log, what it wrote.
    let variable = format!("VALUE={PLANTED}");
    let label = format!("label={PLANTED}");
    let words = [
        "run",
        "--detach",
        "--network",
        "none",
        "--env",
        &variable,
        "--label",
        &label,
        IMAGE,
    ];
    let script = format!("echo {PLANTED}; sleep 600; true");
    let planted = engine.docker(&[&words[..], &["sh", "-c", &script]].concat());
    until("it wrote", || {
        engine.docker(&["logs", &planted]).contains(PLANTED)
    });
    let found = holding(&engine, PLANTED).join("\n");
    for name in [
        "log",
        "events",
        "list",
        "inspect",
        "logs",
        "top",
        "config.v2.json",
        "-json.log",
    ] {
        assert!(found.contains(name), "{name} is not searched: {found}");
    }
    engine.docker(&["rm", "-fv", &planted]);
    engine.call(&ground, &["rm", "--force", id]).run().ok();
    clean("after its removal");
    assert_eq!(engine.containers(&ground), [""; 0]);
}
