//! What only a program that links the libraries can ask for: an agent for a workspace that is up, and sessions that share
//! one instance; with real processes, a real database and real locks.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use groundcrew_core::{
    CloseOptions, CloseOutcome, Launcher, MaintenanceOptions, Parts, Registration, Registry,
    checkpoint::Checkpoints,
    command::Command,
    env::{Definition, Key, Tier},
    error::ErrorKind,
    id::{ExecutorName, SessionId, ShareKey, TaskId},
    process::Lease,
    request::{AgentSpec, LaunchIntent, LaunchRequest, Mode},
    store::{RunRecord, RunState, StateStore as _},
    workspace::WorkspaceRequest,
};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_preparer::InPlacePreparer;
use groundcrew_state::StateDirectory;
use groundcrew_supervisor::SupervisorSource;
use groundcrew_testkit::faulty::{FaultPlan, Faulty};

use crate::ground::until;

/// A state directory and a workspace beside it.
struct Place {
    root: tempfile::TempDir,
    state: StateDirectory,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("work")).unwrap();
        let state = StateDirectory::open(&root.path().join("home")).unwrap();
        Self { root, state }
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    /// Another controller on the same state.
    fn controller(&self, checkpoints: Arc<dyn Checkpoints>) -> Launcher {
        let name = ExecutorName::new("local").unwrap();
        let mut config = LocalConfig::new(name, self.state.home(), self.state.install().clone());
        config.supervisor =
            SupervisorSource::Path(env!("CARGO_BIN_EXE_groundcrew-under-test").into());
        let executor = LocalExecutor::new(config);
        let mut registry = Registry::new();
        registry
            .register(Registration::new(
                Arc::new(executor),
                vec![Arc::new(InPlacePreparer::new().unwrap())],
            ))
            .unwrap();
        let (install, state) = (self.state.install().clone(), &self.state);
        let mut parts = Parts::new(install, registry, state.store(), state.locks());
        parts.checkpoints = checkpoints;
        parts.policy.after_cancel = Duration::from_millis(100);
        Launcher::new(parts)
    }

    fn healthy(&self) -> Launcher {
        self.controller(Arc::new(()))
    }

    fn request(&self, session: &str, mode: Mode) -> LaunchRequest {
        let place = WorkspaceRequest::InPlace { path: self.work() };
        let path = Key::new("PATH").unwrap();
        LaunchRequest {
            session: Some(SessionId::new(session).unwrap()),
            task: Some(TaskId::new("task").unwrap()),
            environment: vec![Definition::literal(
                path,
                "/usr/bin:/bin",
                Tier::Inherited,
                "test",
            )],
            lease: Lease::Unlimited,
            ..LaunchRequest::new(ExecutorName::new("local").unwrap(), place, mode)
        }
    }

    fn instances(&self) -> usize {
        fs::read_dir(self.state.instances()).unwrap().count()
    }
}

/// An agent that says who it is, then stays.
fn agent(script: &str) -> Mode {
    let script = format!("{script}; exec sleep 1000");
    Mode::Agent(AgentSpec::new(Command::new(["sh", "-c", &script]).unwrap()))
}

async fn launched(launcher: &Launcher, request: LaunchRequest) -> RunRecord {
    let plan = launcher.plan(request).await.unwrap();
    launcher.launch(plan).wait().await.unwrap().record
}

async fn close(launcher: &Launcher, record: &RunRecord) {
    let report = launcher.close(&record.run, CloseOptions::default()).await;
    assert_eq!(report.unwrap().outcome, CloseOutcome::Closed);
}

/// Returns whether a process of that number runs.
fn runs(pid: &str) -> bool {
    let pid = pid.trim();
    assert!(!pid.is_empty(), "it never said who it is");
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "another controller asks at the same time"
)]
fn k45_k47_k31_a_live_workspace_gets_its_agent_or_stays_as_it_was() {
    block_on(async {
        let place = Place::new();
        let launcher = place.healthy();
        let workspace = place.request("session", Mode::Workspace);
        let before = launcher.ensure(workspace.clone()).await.unwrap().record;
        assert_eq!((before.state, place.instances()), (RunState::Running, 1));
        let promotion = |script: &str| LaunchRequest {
            intent: LaunchIntent::Resume(before.run.clone()),
            ..place.request("session", agent(script))
        };
        // It fails when the agent is up already: that one goes, and nothing else.
        let plan: FaultPlan = "commit.before=hang".parse().unwrap();
        let points = Arc::new(Faulty::new(plan));
        let failing = place.controller(Arc::clone(&points) as _);
        let planned = failing.plan(promotion("echo $$ >first")).await.unwrap();
        let ticket = failing.launch(planned);
        points.until_struck().await;
        until("the agent said who it is", || {
            !place.file("first").is_empty()
        });
        assert!(runs(&place.file("first")));
        ticket.cancel();
        let cancelled = tokio::time::timeout(Duration::from_mins(1), ticket.wait()).await;
        let error = cancelled.unwrap().unwrap_err();
        assert_eq!(error.error.kind(), ErrorKind::Cancelled);
        assert!(error.rollback.is_clean(), "{:?}", error.rollback);
        assert!(!runs(&place.file("first")));
        let view = launcher.observe(&before.run).await.unwrap();
        assert_eq!(
            (view.record.state, view.record.command),
            (RunState::Running, None)
        );
        // The next one joins, with variables of its own.
        let turn = Key::new("TURN_ID").unwrap();
        let mut request = promotion("echo $$ >second; echo $TURN_ID >turn");
        request
            .environment
            .push(Definition::literal(turn, "turn-7", Tier::Request, "test"));
        let after = launched(&place.healthy(), request).await;
        assert_eq!(
            (&after.run, &after.instance),
            (&before.run, &before.instance)
        );
        until("the agent said its turn", || {
            place.file("turn") == "turn-7\n"
        });
        assert_eq!(place.instances(), 1);
        // While it runs nothing is cleared, whoever asks.
        let busy = place
            .healthy()
            .maintain(MaintenanceOptions::default())
            .await;
        assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
        let grace = Some(Duration::from_millis(200));
        let stopped = place.healthy().stop(&after.run, grace).await.unwrap();
        assert_eq!(stopped.record.state, RunState::Stopped);
        assert!(!runs(&place.file("second")));
        assert_eq!(place.instances(), 0);
        let lease = launcher
            .maintain(MaintenanceOptions::default())
            .await
            .unwrap();
        // A launch of another controller ends it, and waits for that.
        let other = place.healthy();
        let asked = tokio::spawn(async move { other.ensure(workspace).await });
        lease.pre_empted().await;
        assert!(!asked.is_finished());
        drop(lease);
        let again = asked.await.unwrap().unwrap().record;
        assert_eq!(again.run, before.run);
        close(&launcher, &again).await;
        assert_eq!(place.instances(), 0);
        assert!(place.state.store().attempts().await.unwrap().is_empty());
    });
}

#[test]
fn i14_w10_sessions_share_an_instance_of_real_processes_until_the_last_one_leaves() {
    block_on(async {
        let place = Place::new();
        let sharing = |session: &str| LaunchRequest {
            share_key: Some(ShareKey::new("shared").unwrap()),
            ..place.request(session, agent(&format!("echo $$ >{session}")))
        };
        let first = launched(&place.healthy(), sharing("first")).await;
        let second = launched(&place.healthy(), sharing("second")).await;
        assert_eq!((&second.instance, place.instances()), (&first.instance, 1));
        until("both said who they are", || {
            !place.file("first").is_empty() && !place.file("second").is_empty()
        });
        let next = place.healthy();
        close(&next, &first).await;
        assert!(!runs(&place.file("first")) && runs(&place.file("second")));
        let report = next.recover().await.unwrap();
        assert!(report.is_clean() && report.strays.is_empty(), "{report:?}");
        assert_eq!(place.instances(), 1);
        close(&next, &second).await;
        assert!(!runs(&place.file("second")));
        assert_eq!(place.instances(), 0);
        assert!(place.state.store().attempts().await.unwrap().is_empty());
    });
}
