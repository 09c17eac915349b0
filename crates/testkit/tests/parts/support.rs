//! What the tests of this binary share.

use std::path::PathBuf;

use groundcrew_core::{
    command::Command,
    env::Environment,
    executor::{InstanceSpec, Limits},
    id::{AttemptId, ExecutorName, InstanceId, PreparerName, ProcessId, RunId, SessionId, TaskId},
    process::{EnvironmentSource, Lease, ProcessSpec, StdinPolicy, StdioKind, StopOrder},
    store::{Reservation, RunRecord, RunState},
    undo::{Component, Due, UndoRecord},
};
use groundcrew_testkit::memory::MemoryWorld;

pub(crate) fn record(run: &str, session: &str) -> RunRecord {
    let attempt = AttemptId::generate().unwrap();
    RunRecord {
        run: RunId::new(run).unwrap(),
        session: SessionId::new(session).unwrap(),
        task: TaskId::new("task").unwrap(),
        tenant: None,
        attempt,
        revision: 0,
        executor: ExecutorName::new("memory").unwrap(),
        instance: attempt.instance(),
        process: None,
        share_key: None,
        limits: Limits::default(),
        options: serde_json::Map::new(),
        state: RunState::Preparing,
        title: None,
        command: None,
        workspace: None,
        lease: Lease::Unlimited,
        created_ms: 0,
        ended_ms: None,
        exit: None,
        agent: None,
        secrets: Vec::new(),
        runtime_secrets: Vec::new(),
        scripts: groundcrew_core::script::Scripts::default(),
        resume_token: None,
        keep: false,
        kept: Vec::new(),
        problem: None,
        before: None,
    }
}

pub(crate) fn undo(attempt: AttemptId, key: &str, due: Due) -> UndoRecord {
    UndoRecord {
        key: key.to_owned(),
        attempt,
        component: Component::Preparer(PreparerName::new("things").unwrap()),
        resource: format!("things/{key}"),
        label: key.to_owned(),
        due,
        depends_on: Vec::new(),
        identity: None,
    }
}

pub(crate) fn fresh(record: &RunRecord, keys: &[(&str, Due)]) -> Reservation {
    Reservation {
        record: record.clone(),
        resumes: false,
        armed: keys
            .iter()
            .map(|(key, due)| undo(record.attempt, key, *due))
            .collect(),
    }
}

pub(crate) fn instance_spec(world: &MemoryWorld) -> InstanceSpec {
    InstanceSpec {
        install: world.install().clone(),
        run: RunId::new("run").unwrap(),
        session: SessionId::new("session").unwrap(),
        workspace: Some(PathBuf::from("/memory")),
        shared: Vec::new(),
        lease: Lease::UNTIL_COMMIT,
        limits: Limits::default(),
        options: serde_json::Map::new(),
    }
}

pub(crate) fn id(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

pub(crate) fn pid(name: &str) -> ProcessId {
    ProcessId::new(name).unwrap()
}

pub(crate) fn process(argv: &[&str]) -> ProcessSpec {
    ProcessSpec {
        command: Command::new(argv.iter().copied()).unwrap(),
        directory: PathBuf::from("/memory"),
        environment: EnvironmentSource::Run(Environment::new()),
        stdio: StdioKind::Pipes,
        stdin: StdinPolicy::Open,
        time_limit: None,
        idle_limit: None,
        stop: StopOrder::default(),
        no_new_privileges: false,
        main: false,
        log_limit: 1 << 20,
    }
}
