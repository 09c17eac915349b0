//! Containers that outlive their controller, and launches that join one: it is known by its recorded id, and nothing that
//! goes wrong takes it away.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use groundcrew_core::{
    CloseOptions, Launcher, Parts, Registration, Registry,
    checkpoint::Checkpoints,
    command::Command,
    executor::Executor as _,
    id::{ExecutorName, SessionId, TaskId},
    identity::Presence,
    process::Lease,
    request::{AgentSpec, LaunchIntent, LaunchRequest, Mode},
    store::StateStore as _,
    workspace::WorkspaceRequest,
};
use groundcrew_executor_docker::{DockerConfig, DockerExecutor};
use groundcrew_preparer::InPlacePreparer;
use groundcrew_state::StateDirectory;
use groundcrew_testkit::faulty::{FaultPlan, Faulty};
use rustix::process::Signal;
use serde_json::json;

use crate::ground::{Engine, Ground, IMAGE, text, until};

const STAYS: &str = "echo begun; exec sleep 600";

#[test]
fn c11_needs_docker_whatever_goes_wrong_beside_a_run_leaves_its_container() {
    let engine = Engine::private();
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--session", "talk", "--lease", "none"];
    let job = engine.run(&ground, &repository, &options, STAYS).spawn();
    job.until_out("begun");
    job.signal(Signal::KILL);
    job.wait();
    let runs = ground.runs(true);
    let id = text(&runs[0]["id"]).to_owned();
    let [container] = &engine.containers(&ground)[..] else {
        panic!("not one container")
    };
    let held = engine.holdings();
    let stays = |when: &str| {
        assert_eq!(engine.containers(&ground), [container.as_str()], "{when}");
        engine.holds(&held, when);
        let running = ["inspect", "-f", "{{.State.Running}}", container.as_str()];
        assert_eq!(engine.docker(&running), "true", "{when}");
    };
    let recovered = engine.recover(&ground);
    assert_eq!(recovered["strays"], json!([]), "{recovered:#}");
    stays("recovery");
    let call = |words: &[&str]| engine.call(&ground, words);
    assert_eq!(
        call(&["exec", &id, "--", "sh", "-c", "exit 7"]).run().code,
        Some(7)
    );
    stays("a command that fails");
    assert_eq!(call(&["exec", &id, "--", "/nope"]).run().code, Some(127));
    stays("a command that is missing");
    let exec = call(&["exec", &id, "--", "sh", "-c", "echo inside; exec sleep 600"]).spawn();
    exec.until_out("inside");
    exec.signal(Signal::KILL);
    exec.wait();
    engine.recover(&ground);
    stays("a controller that died in a command");
    for words in [
        &["resume", id.as_str(), "--", "true"][..],
        &[
            "run",
            "--executor",
            "docker",
            "--image",
            IMAGE,
            "--session",
            "talk",
            "--",
            "true",
        ],
    ] {
        let refused = call(words).directory(repository.path()).run();
        assert_ne!(refused.code, Some(0), "{refused:?}");
        stays("a second launch of the session");
    }
    let attached = call(&["attach", &id]).spawn();
    attached.until_out("begun");
    attached.signal(Signal::KILL);
    attached.wait();
    stays("who watched it died");
    // Another container with its labels is not taken for it, and stays when it goes.
    let labels = engine.docker(&[
        "inspect",
        "-f",
        "{{range $k, $v := .Config.Labels}}--label={{$k}}={{$v}} {{end}}",
        container,
    ]);
    let mut words = vec!["create"];
    words.extend(labels.split_whitespace());
    words.extend([IMAGE, "true"]);
    let forged = engine.docker(&words);
    call(&["rm", "--force", &id]).run().ok();
    assert_eq!(engine.containers(&ground), [forged.as_str()]);
    engine.docker(&["rm", "-v", &forged]);
    ground.until_quiet();
}

/// A state directory and a workspace beside it, on an engine.
struct Place {
    root: tempfile::TempDir,
    state: StateDirectory,
    endpoint: String,
}

impl Place {
    fn new(engine: &Engine) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("work")).unwrap();
        let state = StateDirectory::open(&root.path().join("home")).unwrap();
        Self {
            root,
            state,
            endpoint: format!("unix://{}", engine.socket().display()),
        }
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn executor(&self) -> DockerExecutor {
        let name = ExecutorName::new("docker").unwrap();
        let install = self.state.install().clone();
        let mut config = DockerConfig::new(name, self.state.home(), install);
        config.endpoint.clone_from(&self.endpoint);
        config.supervisor = vec![Ground::told("GROUNDCREW_TEST_SUPERVISOR").into()];
        DockerExecutor::new(config)
    }

    fn controller(&self, checkpoints: Arc<dyn Checkpoints>) -> Launcher {
        let mut registry = Registry::new();
        registry
            .register(Registration::new(
                Arc::new(self.executor()),
                vec![Arc::new(InPlacePreparer::new().unwrap())],
            ))
            .unwrap();
        let (install, state) = (self.state.install().clone(), &self.state);
        let mut parts = Parts::new(install, registry, state.store(), state.locks());
        parts.checkpoints = checkpoints;
        Launcher::new(parts)
    }

    fn request(&self, mode: Mode) -> LaunchRequest {
        let place = WorkspaceRequest::InPlace { path: self.work() };
        let mut options = serde_json::Map::new();
        options.insert("image".to_owned(), json!(IMAGE));
        options.insert("network".to_owned(), json!("none"));
        LaunchRequest {
            session: Some(SessionId::new("session").unwrap()),
            task: Some(TaskId::new("task").unwrap()),
            lease: Lease::Unlimited,
            options,
            ..LaunchRequest::new(ExecutorName::new("docker").unwrap(), place, mode)
        }
    }
}

#[test]
fn k47_c11_needs_docker_no_rollback_of_a_launch_that_joins_takes_the_container_it_joined() {
    let engine = Engine::private();
    let held = engine.holdings();
    let place = Place::new(&engine);
    let work = async {
        let launcher = place.controller(Arc::new(()));
        let workspace = place.request(Mode::Workspace);
        let before = launcher.ensure(workspace).await.unwrap().record;
        let executor = place.executor();
        let instance = before.instance.clone();
        let Presence::Present(recorded) = executor.state(&instance).await.unwrap() else {
            panic!("there is no container")
        };
        let up = engine.holdings();
        let agent = Command::new(["sh", "-c", "echo $$ >agent; exec sleep 600"]).unwrap();
        let joining = || LaunchRequest {
            intent: LaunchIntent::Resume(before.run.clone()),
            ..place.request(Mode::Agent(AgentSpec::new(agent.clone())))
        };
        // A healthy one tells the points; it is ended, and the workspace is up again.
        let points = Arc::new(Faulty::new(FaultPlan::default()));
        let healthy = place.controller(Arc::clone(&points) as _);
        let plan = healthy.plan(joining()).await.unwrap();
        let joined = healthy.launch(plan).wait().await.unwrap().record;
        assert_eq!(joined.instance, before.instance);
        assert_eq!(engine.holdings(), up, "it was made anew");
        launcher
            .stop(&joined.run, Some(Duration::from_secs(1)))
            .await
            .unwrap();
        let workspace = place.request(Mode::Workspace);
        let before = launcher.ensure(workspace).await.unwrap().record;
        let instance = before.instance.clone();
        let Presence::Present(recorded) = executor.state(&instance).await.unwrap() else {
            panic!("there is no container: {recorded}")
        };
        let up = engine.holdings();
        let passed = points.passed();
        assert!(
            passed.iter().any(|point| point == "commit.before"),
            "{passed:?}"
        );
        for point in passed.iter().filter(|point| *point != "commit.after") {
            for way in ["error", "panic"] {
                let fault = format!("{point}={way}");
                let failing = place.controller(Arc::new(Faulty::new(fault.parse().unwrap())));
                let plan = failing.plan(joining()).await.unwrap();
                let error = failing.launch(plan).wait().await.unwrap_err();
                assert!(error.rollback.is_clean(), "{fault}: {:?}", error.rollback);
                assert_eq!(engine.holdings(), up, "{fault}");
                let now = executor.state(&instance).await.unwrap();
                assert_eq!(now, Presence::Present(recorded.clone()), "{fault}");
            }
        }
        let next = place.controller(Arc::new(()));
        next.close(&before.run, CloseOptions::default())
            .await
            .unwrap();
        assert!(place.state.store().attempts().await.unwrap().is_empty());
    };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work);
    until("nothing is left", || engine.holdings() == held);
}
