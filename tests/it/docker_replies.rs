//! Every call to the engine goes wrong: who asks dies around it, the answer is lost, cut, or nonsense. Nothing is left, and
//! nothing is taken for gone.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::ground::{
    Asked, Deed, Engine, Ground, IMAGE, Relay, Repository, answer, is_whole, text,
};

/// Writes and commits, and ends.
const WORK: &str = "echo kept >kept && git add kept && git commit -qm kept";

/// The calls of a healthy run, from its launch until nothing is left in the engine.
fn calls(engine: &Engine, ground: &Ground, repository: &Repository) -> Vec<Asked> {
    let relay = Relay::new(engine, |_| Deed::Pass);
    let call = engine.run(ground, repository, &["--format", "json"], WORK);
    let run = call.env("DOCKER_HOST", relay.endpoint()).run().ok().json();
    engine
        .call(ground, &["rm", "--force", text(&run["id"])])
        .run()
        .ok();
    let calls = relay.seen();
    for expected in [
        "POST /containers/create",
        "POST /containers/ID/start",
        "DELETE /containers/ID",
    ] {
        assert!(
            calls.iter().any(|asked| asked.call == expected),
            "{calls:#?}"
        );
    }
    calls
}

/// Runs with one call spoiled, recovers, and demands that the engine and the host hold nothing more; returns the outcome.
fn spoiled(
    engine: &Engine,
    ground: &Ground,
    repository: &Repository,
    spoilt: &Asked,
    deed: &Deed,
) -> crate::ground::Outcome {
    let when = format!("{} after {} of them: {deed:?}", spoilt.call, spoilt.before);
    let held = engine.holdings();
    let (same, deed) = (spoilt.clone(), deed.clone());
    let relay = Relay::new(engine, move |asked| {
        if (&asked.call, asked.before) == (&same.call, same.before) {
            deed.clone()
        } else {
            Deed::Pass
        }
    });
    let call = engine.run(ground, repository, &["--format", "json"], WORK);
    let outcome = call.env("DOCKER_HOST", relay.endpoint()).run();
    let recovered = engine.recover(ground);
    for name in ["stuck", "strays", "unknown", "busy"] {
        assert_eq!(recovered[name], json!([]), "{when}: {recovered:#}");
    }
    for run in ground.runs(false) {
        engine
            .call(ground, &["rm", "--force", text(&run["id"])])
            .run()
            .ok();
    }
    engine.holds(&held, &when);
    for place in ["containers", "worktrees"] {
        let left: Vec<_> = fs::read_dir(ground.state().join(place))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(left.is_empty(), "{when}: {left:?}");
    }
    assert_eq!(repository.branches(), ["main"], "{when}");
    outcome
}

#[test]
fn f105_f127_heavy_needs_docker_death_around_any_call_to_the_engine_leaves_nothing() {
    let engine = Engine::private();
    let ground = Ground::new();
    let repository = ground.repository("r");
    for asked in calls(&engine, &ground, &repository) {
        for deed in [Deed::KillBefore, Deed::KillAfter] {
            // What it waits for ends by itself; what was not awaited is over.
            if asked.call.ends_with("/wait") && matches!(deed, Deed::KillAfter) {
                continue;
            }
            spoiled(&engine, &ground, &repository, &asked, &deed);
        }
    }
}

#[test]
fn f107_f109_heavy_needs_docker_any_answer_that_is_lost_cut_or_wrong_leaves_nothing() {
    let engine = Engine::private();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let deeds = [
        Deed::Lose,
        Deed::Cut(12),
        Deed::Cut(150),
        Deed::Instead(answer("500 Internal Server Error", r#"{"message":"no"}"#)),
        Deed::Instead("HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>".to_owned()),
        Deed::Answer(answer("500 Internal Server Error", r#"{"message":"no"}"#)),
        Deed::Answer(answer("409 Conflict", r#"{"message":"no"}"#)),
        Deed::Answer(answer("404 Not Found", r#"{"message":"no"}"#)),
    ];
    let mut turn = 0;
    for asked in calls(&engine, &ground, &repository) {
        for (number, deed) in deeds.iter().enumerate() {
            // Among all tests every call is spoiled in two ways, and every way is met.
            turn += 1;
            if is_whole() || turn % 4 == number % 4 {
                let answers = !matches!(deed, Deed::Answer(_));
                if asked.call.ends_with("/wait") && answers {
                    continue;
                }
                spoiled(&engine, &ground, &repository, &asked, deed);
            }
        }
    }
}

#[test]
fn f109_needs_docker_what_is_stopped_or_gone_already_is_success() {
    let engine = Engine::private();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let held = engine.holdings();
    let no = r#"{"message":"in other words"}"#;
    for (call, reply) in [
        (
            "POST /containers/ID/stop",
            "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n".to_owned(),
        ),
        ("POST /containers/ID/stop", answer("404 Not Found", no)),
        ("DELETE /containers/ID", answer("404 Not Found", no)),
        ("DELETE /containers/ID", answer("409 Conflict", no)),
    ] {
        // Whoever has ended before the look is not told to stop: how soon that is, is the machine's to say.
        let was_made = (0..20).any(|_| {
            let options = ["--detach", "--format", "json"];
            let run = engine.run(&ground, &repository, &options, "exec sleep 600");
            let run = run.run().ok().json();
            let answered = reply.clone();
            let relay = Relay::new(&engine, move |asked| {
                if asked.call == call && asked.before == 0 {
                    Deed::Instead(answered.clone())
                } else {
                    Deed::Pass
                }
            });
            let removal = engine.call(&ground, &["rm", text(&run["id"])]);
            removal.env("DOCKER_HOST", relay.endpoint()).run().ok();
            relay.seen().iter().any(|asked| asked.call == call)
        });
        assert!(was_made, "{call}");
        engine.holds(&held, &reply);
    }
}

/// Returns the lines that a command told of its progress, with the step of each.
fn progress(printed: &[Value]) -> Vec<(String, String)> {
    printed
        .iter()
        .filter(|event| event["event"] == "step_progress")
        .map(|event| {
            (
                text(&event["step"]).to_owned(),
                text(&event["message"]).to_owned(),
            )
        })
        .collect()
}

#[test]
fn needs_docker_what_the_engine_does_is_told_while_it_does_it() {
    let engine = Arc::new(Engine::private());
    let ground = Ground::new();
    let repository = ground.repository("r");
    let pieces = [
        r#"{"status":"Pulling from example/pulled","id":"1"}"#,
        r#"{"status":"Downloading","progressDetail":{"current":1,"total":9},"id":"layer-a"}"#,
        r#"{"status":"Downloading","progressDetail":{"current":5,"total":9},"id":"layer-a"}"#,
        r#"{"status":"Pull complete","progressDetail":{},"id":"layer-a"}"#,
    ];
    let (local, tagged) = (Arc::clone(&engine), Arc::new(Mutex::new(false)));
    let relay = Relay::new(&engine, move |asked| {
        if asked.call != "POST /images/create" {
            return Deed::Pass;
        }
        // What a registry would have sent is there.
        local.docker(&["tag", IMAGE, "example/pulled:1"]);
        *tagged.lock().unwrap() = true;
        Deed::Answer(answer("200 OK", &pieces.join("\r\n")))
    });
    let options = [
        "--format",
        "jsonl",
        "--image",
        "example/pulled:1",
        "--pull",
        "missing",
    ];
    let call = ground.run_in(
        &repository,
        &[&["--executor", "docker", "--network", "none"], &options[..]].concat(),
        ["true"],
    );
    let outcome = engine
        .equip(call)
        .env("DOCKER_HOST", relay.endpoint())
        .run()
        .ok();
    let told: Vec<_> = progress(&outcome.events())
        .into_iter()
        .filter(|(step, _)| step == "create")
        .map(|(_, line)| line)
        .collect();
    assert_eq!(
        told,
        [
            "pulling example/pulled:1",
            "1 Pulling from example/pulled",
            "layer-a Downloading",
            "layer-a Pull complete",
            "creating the container",
            "starting the container",
            "waiting for the supervisor",
        ]
    );
    // It gives up in the middle, or is cut off there.
    let gives_up = r#"{"status":"Downloading","id":"layer-a"}{"errorDetail":{"message":"toomanyrequests: slowly"},"error":"toomanyrequests: slowly"}"#;
    for reply in [
        answer("200 OK", gives_up),
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"status\":\"Downloading\",\"id\":\"lay".to_owned(),
        answer("404 Not Found", r#"{"message":"no such image"}"#),
    ] {
        let replied = reply.clone();
        let relay = Relay::new(&engine, move |asked| {
            if asked.call == "POST /images/create" {
                Deed::Answer(replied.clone())
            } else {
                Deed::Pass
            }
        });
        let options = ["--executor", "docker", "--network", "none", "--format", "json", "--image", "example/absent:1", "--pull", "missing"];
        let call = engine.equip(ground.run_in(&repository, &options, ["true"]));
        let outcome = call.env("DOCKER_HOST", relay.endpoint()).run().code(125);
        let error = outcome.error();
        assert!(error.to_string().contains("could not be pulled"), "{reply}: {error:#}");
        assert_eq!(error["rollback"]["clean"], true, "{reply}: {error:#}");
    }
    assert_eq!(engine.containers(&ground), [""; 0]);
}

#[test]
fn f113_needs_docker_an_end_before_the_supervisor_is_up_is_noticed_while_waiting() {
    let engine = Arc::new(Engine::private());
    let ground = Ground::new();
    let repository = ground.repository("r");
    let held = engine.holdings();
    let killer = Arc::clone(&engine);
    let relay = Relay::new(&engine, move |asked| {
        if asked.call == "POST /containers/ID/start" {
            // It is started and ended before anybody knows that it was started.
            killer.docker(&["start", &asked.id]);
            killer.docker(&["kill", &asked.id]);
            return Deed::Answer("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_owned());
        }
        Deed::Pass
    });
    let began = std::time::Instant::now();
    let call = engine.run(&ground, &repository, &["--format", "json"], "true");
    let outcome = call.env("DOCKER_HOST", relay.endpoint()).run().code(125);
    let error = outcome.error();
    let told = error.to_string();
    assert!(
        told.contains("ended before its supervisor was up") && told.contains("137"),
        "{error:#}"
    );
    assert_eq!(error["rollback"]["clean"], true, "{error:#}");
    // Not after the time that a supervisor has to come up.
    assert!(began.elapsed().as_secs() < 25, "{:?}", began.elapsed());
    engine.holds(&held, "an early end");
}
