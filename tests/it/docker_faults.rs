//! The fault matrix with containers: every step goes wrong in every way, and nothing of it is left in the engine or on the host.
//!
//! What is left is asked of the engine itself, around the executor, and all of it: the engine is the test's own.

use std::{collections::BTreeSet, fs, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use crate::ground::{DEADLINE, Engine, Ground, Leaks, Repository, is_whole, until, until_within};

/// Stays for longer than any test.
const STAYS: &str = "exec sleep 600";

/// A file to take along and a script that changes nothing, so that their points are among the others.
const MORE: [&str; 6] = [
    "--format",
    "json",
    "--include",
    "own",
    "--setup",
    "grep -q mine own",
];

/// The first point at which the command may have worked.
const STARTED: &str = "start.after";

/// What goes wrong at a point, but for what never ends and the death of the process.
const WAYS: [&str; 4] = ["error", "panic", "late", "cancel"];

fn pause(milliseconds: u64) {
    until_within(Duration::from_millis(milliseconds), || false);
}

/// An engine and a ground of one test, with what both held before anything went wrong.
struct Scene {
    engine: Engine,
    ground: Ground,
    repository: Repository,
    held: BTreeSet<String>,
}

impl Scene {
    fn new() -> Self {
        Self::with(Engine::private())
    }

    fn with(engine: Engine) -> Self {
        let ground = Ground::new();
        let repository = ground.repository("r");
        repository.write("own", "mine\n");
        let held = engine.holdings();
        Self {
            engine,
            ground,
            repository,
            held,
        }
    }

    /// Returns the points before the command may have worked, as a healthy launch passes them.
    fn points(&self) -> Vec<String> {
        let file = self.ground.path("points");
        let call = self
            .engine
            .run(&self.ground, &self.repository, &MORE, "true");
        call.note_points(&file).run().ok();
        let points = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let points: Vec<_> = points
            .lines()
            .take_while(|point| *point != STARTED)
            .map(str::to_owned)
            .collect();
        assert!(points.len() >= 20, "{points:?}");
        points
    }

    fn nothing_left(&self, leaks: &Leaks<'_>, when: &str) {
        self.engine.holds(&self.held, when);
        leaks.none(when);
    }

    /// Dies at a point; then recovers.
    fn dies(&self, leaks: &Leaks<'_>, point: &str, round: usize) {
        let fault = format!("{point}=kill9");
        let when = format!("{fault}, round {round}");
        let outcome = self
            .engine
            .run(&self.ground, &self.repository, &MORE, STAYS);
        let outcome = outcome.fault(&fault).run();
        assert_eq!(outcome.signal, Some(9), "{when}: {outcome:?}");
        let recovered = self.engine.recover(&self.ground);
        for name in ["stuck", "kept", "strays", "unknown", "busy"] {
            assert_eq!(recovered[name], json!([]), "{when}: {recovered:#}");
        }
        self.nothing_left(leaks, &when);
    }

    /// Goes wrong at a point in one way; a launch that nobody called off has come up, and is ended.
    fn fails(&self, leaks: &Leaks<'_>, point: &str, way: &str) {
        let when = format!("{point}={way}");
        let call = self
            .engine
            .run(&self.ground, &self.repository, &MORE, STAYS);
        let job = match way {
            "late" | "cancel" => {
                let gate = self.ground.path("gate");
                let job = call.hold(point, &gate).spawn();
                until(&when, || gate.with_extension("reached").exists());
                job.signal(Signal::INT);
                // Long after it was called off, or just then.
                pause(if way == "late" { 1500 } else { 100 });
                fs::write(&gate, "").unwrap();
                job
            }
            _ => call.fault(&when).spawn(),
        };
        let outcome = job.wait();
        for file in ["gate", "gate.reached"] {
            drop(fs::remove_file(self.ground.path(file)));
        }
        let error = outcome.error();
        assert_eq!(error["rollback"]["clean"], true, "{when}: {outcome:?}");
        self.nothing_left(leaks, &when);
    }

    /// Never goes on at these points, each in a launch of its own that is called off there: all at once, for each takes its time.
    fn hangs(&self, leaks: &Leaks<'_>, points: &[String]) {
        let begin = |index: usize| {
            let point = &points[index];
            let passed = self.ground.path(format!("passed-{index}"));
            let call = self
                .engine
                .run(&self.ground, &self.repository, &MORE, STAYS);
            let call = call.fault(&format!("{point}=hang"));
            (point, passed.clone(), call.note_points(&passed).spawn())
        };
        let jobs: Vec<_> = (0..points.len()).map(begin).collect();
        for (point, passed, job) in &jobs {
            until(point, || {
                let reached = fs::read_to_string(passed).unwrap_or_default();
                reached.lines().any(|passed| passed == *point)
            });
            job.signal(Signal::INT);
        }
        for (point, passed, job) in jobs {
            let outcome = job.wait_within(DEADLINE * 2);
            let error = outcome.error();
            // What never ends may be under way still: it stays owned until nobody can be at it.
            assert!(
                error["rollback"]["clean"].is_boolean(),
                "{point}: {outcome:?}"
            );
            fs::remove_file(passed).unwrap();
        }
        let recovered = self.engine.recover(&self.ground);
        assert_eq!(recovered["stuck"], json!([]), "{recovered:#}");
        self.nothing_left(leaks, "hang");
    }
}

impl Scene {
    /// Demands that a launch succeeds, and leaves what there was before.
    fn is_as_before(&self) {
        let launch = self
            .engine
            .run(&self.ground, &self.repository, &MORE, "true");
        launch.run().ok();
        self.engine.holds(&self.held, "a launch afterwards");
    }
}

#[test]
fn f127_g01_heavy_needs_docker_kill_9_at_every_point_leaves_nothing_in_the_engine() {
    let scene = Scene::new();
    let points = scene.points();
    let leaks = Leaks::watch(&scene.ground, &[&scene.repository]).except_logs();
    for round in 0..if is_whole() { 5 } else { 1 } {
        for point in &points {
            scene.dies(&leaks, point, round);
        }
    }
    scene.is_as_before();
}

#[test]
fn f139_heavy_needs_docker_whatever_goes_wrong_at_a_point_leaves_nothing_in_the_engine() {
    let scene = Scene::new();
    let points = scene.points();
    let leaks = Leaks::watch(&scene.ground, &[&scene.repository]).except_logs();
    for (index, point) in points.iter().enumerate() {
        for (number, way) in WAYS.iter().enumerate() {
            // Among all tests each point goes wrong in one way, and each way is met at several points.
            if is_whole() || number == index % WAYS.len() {
                scene.fails(&leaks, point, way);
            }
        }
    }
    scene.is_as_before();
}

#[test]
fn heavy_needs_docker_what_never_goes_on_and_is_called_off_leaves_nothing_in_the_engine() {
    let scene = Scene::new();
    let mut points = scene.points();
    let leaks = Leaks::watch(&scene.ground, &[&scene.repository]).except_logs();
    if !is_whole() {
        points.retain(|point| {
            point.rsplit('.').next() == Some("after")
                || point == "create.before"
                || point == "start.before"
        });
    }
    for some in points.chunks(12) {
        scene.hangs(&leaks, some);
    }
}

#[test]
fn heavy_needs_docker_the_oracle_sees_whatever_is_left_in_an_engine() {
    let scene = Scene::with(Engine::private_with(&["--iptables=false"]));
    let seen = |plant: &[&str], uproot: &[&str], what: &str| {
        let planted = scene.engine.docker(plant);
        let now = scene.engine.holdings();
        let more: Vec<_> = now.difference(&scene.held).collect();
        assert!(
            more.iter().any(|thing| thing.starts_with(what)),
            "{what}: {more:?}"
        );
        let mut words = uproot.to_vec();
        words.push(&planted);
        scene.engine.docker(&words);
        scene.engine.holds(&scene.held, what);
    };
    let image = crate::ground::IMAGE;
    seen(&["create", image, "true"], &["rm", "-v"], "container");
    // Removed without the volume that its image brings: that stays, and has no name or label that anybody could know.
    let container = scene.engine.docker(&["create", image, "true"]);
    scene.engine.docker(&["rm", &container]);
    let left = scene.engine.holdings();
    let left: Vec<_> = left.difference(&scene.held).collect();
    assert!(left.len() == 1 && left[0].starts_with("volume"), "{left:?}");
    let volume = left[0].strip_prefix("volume ").unwrap();
    scene.engine.docker(&["volume", "rm", volume]);
    scene.engine.holds(&scene.held, "the volume");
    seen(&["volume", "create"], &["volume", "rm"], "volume");
    let network = ["network", "create", "planted"];
    seen(&network, &["network", "rm"], "network");
    let runs = [
        "run",
        "--detach",
        "--network",
        "none",
        image,
        "sleep",
        "600",
    ];
    seen(&runs, &["rm", "-fv"], "process");
}
