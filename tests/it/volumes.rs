//! Workspaces in volumes of an engine: the main job, everything taken back, nothing lost when somebody dies.

use std::{fs, os::unix::fs::MetadataExt as _};

use serde_json::json;

use crate::ground::{Engine, Ground, Leaks, path, text};

const COMMITS: &str = "echo made >made && git add made && git commit -qm made";

const VOLUME: [&str; 4] = ["--workspace", "volume", "--format", "json"];

#[test]
fn needs_docker_a_command_commits_in_a_volume_and_its_branch_comes_back() {
    let engine = Engine::shared();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let before = repository.fingerprint();
    // What git would execute of a clone is never executed here.
    let script = format!(
        "{COMMITS} && mkdir -p .git/hooks && echo 'touch {0}' >.git/hooks/post-checkout && \
         chmod +x .git/hooks/post-checkout && git config core.fsmonitor 'touch {0}' && echo more >more",
        ground.path("evil").display()
    );
    let run = engine.run(&ground, &repository, &VOLUME, &script).run();
    let run = run.ok().json();
    engine.nothing_left(&ground, "it ended");
    assert!(repository.fingerprint() == before, "the user's repository");
    let (id, workspace) = (text(&run["id"]).to_owned(), path(&run["workspace"]));
    let made = fs::metadata(workspace.join("made")).unwrap();
    assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
    // It goes on where it was, in a volume again.
    let words = ["resume", &id, "--", "cat", "made", "more"];
    engine
        .call(&ground, &words)
        .run()
        .ok()
        .says("made")
        .says("more");
    engine.nothing_left(&ground, "it was resumed");
    // What was not committed keeps it, until it is saved first.
    engine.call(&ground, &["rm", &id]).run().code(4);
    assert!(workspace.join("more").exists());
    engine.call(&ground, &["rm", "--force", &id]).run().ok();
    assert!(!workspace.exists());
    assert!(!ground.path("evil").exists(), "code of the clone was run");
    let kept = repository.git(["for-each-ref", "--format=%(refname)", "refs/groundcrew"]);
    let snapshot = kept
        .lines()
        .find(|name| name.contains("snapshots"))
        .unwrap_or_else(|| panic!("no snapshot: {kept}"));
    let held = repository.git(["ls-tree", "--name-only", snapshot]);
    assert!(held.contains("more") && held.contains("made"), "{held}");
    // One that only committed goes whole, and its branch stays.
    let run = engine.run(&ground, &repository, &VOLUME, COMMITS).run();
    let run = run.ok().json();
    engine
        .call(&ground, &["close", text(&run["id"])])
        .run()
        .ok();
    let branch = text(&run["branch"]);
    assert_eq!(repository.git(["log", "--format=%s", branch]), "made\nbase");
    assert!(!path(&run["workspace"]).exists());
    engine.nothing_left(&ground, "it was closed");
    ground.until_quiet();
}

#[test]
fn c25_needs_docker_a_clone_is_in_a_volume_for_another_user_and_comes_back_as_the_caller_s() {
    let engine = Engine::shared();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--user", "1234:1235", "--format", "json"];
    let script = format!("id -u; id -g; {COMMITS} && echo loose >loose");
    let outcome = engine.run(&ground, &repository, &options, &script).run();
    let run = outcome.ok().json();
    let id = text(&run["id"]);
    let said = engine.call(&ground, &["logs", id]).run().ok().out();
    assert!(said.starts_with("1234\n1235\n"), "{said}");
    engine.nothing_left(&ground, "it ended");
    let branch = text(&run["branch"]);
    assert_eq!(repository.git(["log", "--format=%s", branch]), "made\nbase");
    let workspace = path(&run["workspace"]);
    for name in ["made", "loose", ".git/HEAD", ".git/objects"] {
        let owner = fs::metadata(workspace.join(name)).unwrap().uid();
        assert_eq!(owner, rustix::process::geteuid().as_raw(), "{name}");
    }
    // Asked to be where it is, it is left there, whoever may write it.
    let bound = ["--workspace", "bind", "--user", "1234:1235"];
    let script = "touch made && echo written || echo closed";
    let outcome = engine.run(&ground, &repository, &bound, script).run();
    outcome.ok().says("closed");
}

#[test]
fn f127_needs_docker_kill_9_at_any_point_leaves_no_volume_and_loses_no_work() {
    let engine = Engine::shared();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let file = ground.path("points");
    let options = ["--workspace", "volume"];
    let call = engine.run(&ground, &repository, &options, "true");
    call.note_points(&file).run().ok();
    let points = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let leaks = Leaks::watch(&ground, &[&repository]);
    for point in points
        .lines()
        .take_while(|point| *point != "start.after")
        // Before it there is nothing in the engine, as in a run without a volume.
        .skip_while(|point| !point.starts_with("create"))
    {
        let fault = format!("{point}=kill9");
        let call = engine.run(&ground, &repository, &options, "exec sleep 600");
        let outcome = call.fault(&fault).run();
        assert_eq!(outcome.signal, Some(9), "{fault}: {outcome:?}");
        let recovered = engine.recover(&ground);
        for name in ["stuck", "kept", "strays", "unknown", "busy"] {
            assert_eq!(recovered[name], json!([]), "{fault}: {recovered:#}");
        }
        engine.nothing_left(&ground, &fault);
        leaks.none(&fault);
    }
    // Killed while its agent works: the agent goes on, and what it did comes back with whoever comes next.
    let script = format!("{COMMITS} && echo begun && exec sleep 600");
    let job = engine.run(&ground, &repository, &options, &script).spawn();
    job.until_out("begun");
    job.signal(rustix::process::Signal::KILL);
    job.wait();
    let runs = ground.runs(false);
    let (id, workspace) = (text(&runs[0]["id"]), path(&runs[0]["workspace"]));
    assert!(!workspace.join("made").exists());
    // Somebody else takes the container away; the volume is all that is left of the work.
    for container in engine.containers(&ground) {
        engine.docker(&["rm", "--force", &container]);
    }
    engine.recover(&ground);
    engine.nothing_left(&ground, "recovered");
    assert_eq!(
        fs::read_to_string(workspace.join("made")).unwrap(),
        "made\n"
    );
    engine.call(&ground, &["close", id]).run().ok();
    let branch = text(&runs[0]["branch"]);
    assert_eq!(repository.git(["log", "--format=%s", branch]), "made\nbase");
}

#[test]
fn f105_needs_docker_every_volume_that_an_engine_makes_has_a_name_of_ours() {
    // Alone, so that all it ever made was made for us. Its image wants a volume, and so would whatever is made of that image.
    let engine = Engine::private();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = engine.run(&ground, &repository, &VOLUME, COMMITS).run();
    let id = text(&run.ok().json()["id"]).to_owned();
    engine.call(&ground, &["close", &id]).run().ok();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 1;
    let made = engine.docker(&[
        "events",
        "--since=0",
        &format!("--until={now}"),
        "--filter=type=volume",
        "--filter=event=create",
        "--format={{.Actor.ID}}",
    ]);
    let ours = |name: &str| name.starts_with("groundcrew-");
    assert!(
        made.lines().count() >= 2 && made.lines().all(ours),
        "{made}"
    );
}

#[test]
fn needs_docker_doctor_tells_what_the_engine_can_enforce() {
    let engine = Engine::shared();
    let ground = Ground::new();
    let docker = |call: crate::ground::Call, code| {
        let diagnosis = call.run().code(code).json();
        let checks = diagnosis["checks"].as_array().unwrap();
        let docker = checks
            .iter()
            .find(|check| check["name"] == "executor docker");
        docker.unwrap().clone()
    };
    let words = ["--format", "json", "doctor"];
    let told = docker(engine.call(&ground, &words), 0);
    let fact = |name: &str| {
        let facts = told["facts"].as_array().unwrap();
        let fact = facts.iter().find(|fact| fact["name"] == name);
        text(&fact.unwrap_or_else(|| panic!("no {name}: {told:#}"))["value"]).to_owned()
    };
    assert_eq!(fact("engine"), engine.endpoint());
    assert!(fact("API").starts_with("1."), "{told:#}");
    assert!(["v1", "v2"].contains(&fact("cgroup").as_str()), "{told:#}");
    assert!(fact("limits").contains("memory"), "{told:#}");
    // The engine of these tests has no default network.
    assert!(fact("networks").starts_with("none"), "{told:#}");
    assert!(!fact("networks").contains("default"), "{told:#}");
    assert!(!fact("version").is_empty() && !fact("supervisor").is_empty());
    // An engine that cannot be spoken to yet is told with what to do.
    let guarded = engine
        .call(&ground, &words)
        .env("DOCKER_HOST", "tcp://127.0.0.1:2376")
        .env("DOCKER_TLS_VERIFY", "1");
    let told = docker(guarded, 1);
    assert!(text(&told["error"]["message"]).contains("TLS"), "{told:#}");
}
