//! Engines that freeze, die or are away while launches are under way: nothing is forgotten meanwhile, and nothing is left
//! when they are back.
#![expect(clippy::print_stdout, reason = "the figures are worth knowing")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::ground::{Call, Engine, Ground, Job, Repository, is_whole, text, until, until_within};

/// How long after its return an engine may still hold something.
const AFTERWARDS: Duration = Duration::from_mins(1);

/// Longer than any command takes that waits for an engine which does not answer.
const PATIENT: Duration = Duration::from_mins(4);

const STAYS: &str = "exec sleep 600";

/// How many launches there are, and how long the engine is away: small among all tests, whole under `cargo xtask soak`.
fn size() -> (usize, Duration) {
    if is_whole() {
        (30, Duration::from_secs(30))
    } else {
        (6, Duration::from_secs(4))
    }
}

#[test]
fn f103_needs_docker_a_launch_without_an_engine_fails_whole_and_says_what_to_do() {
    let engine = Engine::shared();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let before = repository.fingerprint();
    for (endpoint, words) in [
        ("unix:///nowhere/docker.sock", "DOCKER_HOST"),
        ("tcp://127.0.0.1:9", "DOCKER_HOST"),
        ("ssh://somewhere", "ssh -L"),
        ("https://somewhere:2376", "TLS"),
    ] {
        let call = engine.run(&ground, &repository, &[], "true");
        let outcome = call.env("DOCKER_HOST", endpoint).run();
        outcome.code(125).says(endpoint).says(words);
        assert!(ground.runs(false).is_empty(), "{endpoint}");
        assert_eq!(repository.refs().len(), 1, "{endpoint}");
    }
    assert!(repository.fingerprint() == before);
    ground.until_quiet();
}

#[test]
fn f103_needs_docker_an_engine_that_this_user_may_not_use_is_told_with_what_to_do() {
    let engine = Engine::shared();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let before = repository.fingerprint();
    let socket = ground.path("guarded.sock");
    let _listening = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o000)).unwrap();
    let endpoint = format!("unix://{}", socket.display());
    // The superuser may use every socket, until this right is taken from them.
    let guarded = |call: Call| {
        call.env("DOCKER_HOST", &endpoint).through(
            "setpriv",
            ["--bounding-set", "-dac_override,-dac_read_search", "--"],
        )
    };
    let launch = guarded(engine.run(&ground, &repository, &[], "true")).run();
    launch.code(125).says("group of the engine's socket");
    assert!(ground.runs(false).is_empty());
    assert_eq!(repository.refs().len(), 1);
    let doctor = guarded(engine.call(&ground, &["doctor"])).run();
    doctor.code(1).says("group of the engine's socket");
    assert!(repository.fingerprint() == before);
    ground.until_quiet();
}

struct Scene {
    engine: Engine,
    ground: Ground,
    repository: Repository,
    held: BTreeSet<String>,
}

impl Scene {
    fn new() -> Self {
        let engine = Engine::private();
        let ground = Ground::new();
        let repository = ground.repository("r");
        // The first launch of an engine takes longer than all others; what is struck are launches as they usually are.
        engine.run(&ground, &repository, &[], "true").run().ok();
        let held = engine.holdings();
        Self {
            engine,
            ground,
            repository,
            held,
        }
    }

    fn launch(&self) -> Job {
        let options = ["--detach", "--format", "json"];
        self.engine
            .run(&self.ground, &self.repository, &options, STAYS)
            .spawn()
    }

    /// Begins launches, and returns once some of them have come to the engine and others have not.
    fn launches(&self, count: usize) -> Vec<Job> {
        let jobs: Vec<_> = (0..count).map(|_| self.launch()).collect();
        until("some came to the engine", || {
            self.engine.containers(&self.ground).len() >= count.div_ceil(3)
        });
        jobs
    }

    /// Returns the ids of all runs that the store shows, whatever the engine says.
    fn rows(&self) -> BTreeSet<String> {
        let listed = self.engine.call(&self.ground, &["--format", "json", "ls"]);
        let listed = listed.within(PATIENT).run().ok().json();
        let runs = listed["runs"].as_array().unwrap().iter();
        runs.map(|run| text(&run["id"]).to_owned()).collect()
    }

    /// Strikes controllers while the engine is away: one third dies, one third is called off, one third waits.
    fn strike(jobs: &[Job]) {
        for (index, job) in jobs.iter().enumerate() {
            match index % 3 {
                0 => job.signal_if_alive(Signal::KILL),
                1 => job.signal_if_alive(Signal::INT),
                _ => {}
            }
        }
    }

    /// Waits for the launches, recovers until nothing is left to be done, removes what came up whole, and demands that
    /// nothing else is left; tells how long it took since the engine was back.
    fn settles(&self, jobs: Vec<Job>, back: Instant) {
        let (mut up, mut failed, mut died) = (0, 0, 0);
        for job in jobs {
            let outcome = job.wait_within(PATIENT);
            match (outcome.code, outcome.signal) {
                (Some(0), _) => up += 1,
                (_, Some(9)) => died += 1,
                // The reason is told, with what became of it.
                _ => {
                    assert!(outcome.error()["rollback"].is_object(), "{outcome:?}");
                    failed += 1;
                }
            }
        }
        let mut recovered = Value::Null;
        let clean = until_within(AFTERWARDS, || {
            let call = self
                .engine
                .call(&self.ground, &["--format", "json", "recover"]);
            recovered = call.within(PATIENT).run().json();
            ["stuck", "unknown", "busy"]
                .iter()
                .all(|name| recovered[*name] == json!([]))
        });
        assert!(clean, "{recovered:#}");
        assert_eq!(recovered["strays"], json!([]), "{recovered:#}");
        let whole = self.rows();
        for id in &whole {
            let removal = self.engine.call(&self.ground, &["rm", "--force", id]);
            removal.within(PATIENT).run().ok();
        }
        let took = back.elapsed();
        assert_eq!(self.engine.containers(&self.ground), [""; 0]);
        assert!(took < AFTERWARDS, "{took:?}");
        self.engine.holds(&self.held, "afterwards");
        assert_eq!(self.rows(), BTreeSet::new());
        for place in ["containers", "worktrees"] {
            let left: Vec<_> = fs::read_dir(self.ground.state().join(place))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
        assert_eq!(self.repository.branches(), ["main"]);
        self.ground.until_quiet();
        // Shown by `cargo xtask soak`.
        println!(
            "{up} came up, {failed} failed, {died} died; {} runs removed; nothing left {:.1} s after the engine was back",
            whole.len(),
            took.as_secs_f64(),
        );
    }
}

#[test]
fn f104_g14_heavy_needs_docker_an_engine_that_freezes_during_launches_keeps_nothing() {
    let mut scene = Scene::new();
    let (count, length) = size();
    let jobs = scene.launches(count);
    scene.engine.freeze();
    let frozen = Instant::now();
    Scene::strike(&jobs);
    until_within(length.saturating_sub(frozen.elapsed()), || false);
    scene.engine.thaw();
    scene.settles(jobs, Instant::now());
}

#[test]
fn f105_f106_g14_heavy_needs_docker_an_engine_that_is_killed_during_launches_keeps_nothing() {
    let mut scene = Scene::new();
    let (count, length) = size();
    let jobs = scene.launches(count);
    scene.engine.kill();
    let killed = Instant::now();
    // What is known of each is kept, whoever asks meanwhile, and however often.
    let known = scene.rows();
    assert!(!known.is_empty());
    Scene::strike(&jobs);
    for _ in 0..2 {
        let call = scene
            .engine
            .call(&scene.ground, &["--format", "json", "recover"]);
        call.within(PATIENT).run();
        let containers = scene.ground.state().join("containers");
        let directories = fs::read_dir(containers).unwrap().count();
        assert!(directories >= count.div_ceil(3), "{directories}");
    }
    until_within(length.saturating_sub(killed.elapsed()), || false);
    scene.engine.start();
    scene.settles(jobs, Instant::now());
}

#[test]
fn f103_g14_heavy_needs_docker_launches_without_an_engine_fail_and_what_was_there_is_kept() {
    let mut scene = Scene::new();
    let (count, length) = size();
    let earlier = scene.launch().wait().ok().json();
    let earlier = text(&earlier["id"]).to_owned();
    scene.engine.kill();
    let killed = Instant::now();
    let jobs: Vec<_> = (0..count).map(|_| scene.launch()).collect();
    for job in jobs {
        let outcome = job.wait_within(PATIENT).code(125);
        let error = outcome.error();
        assert_eq!(error["kind"], "unavailable", "{outcome:?}");
        assert!(outcome.err().contains("DOCKER_HOST"), "{outcome:?}");
    }
    let removal = scene
        .engine
        .call(&scene.ground, &["rm", "--force", &earlier]);
    let removal = removal.within(PATIENT).run();
    assert_ne!(removal.code, Some(0), "{removal:?}");
    assert!(scene.rows().contains(&earlier), "its row was forgotten");
    until_within(length.saturating_sub(killed.elapsed()), || false);
    scene.engine.start();
    scene.settles(Vec::new(), Instant::now());
}
