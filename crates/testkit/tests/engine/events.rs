//! What a launch tells: one ordered story with exactly one end, told when it is true.

use std::sync::Arc;

use groundcrew_core::{
    env::{Definition, Key, Tier},
    error::ErrorKind,
    event::{EventKind, Step},
    id::SessionId,
    request::{LaunchRequest, Mode},
    secret::SecretRef,
};
use groundcrew_testkit::{
    faulty::{FaultPlan, Gate, VerbFault},
    memory::MemoryPreparer,
};

use crate::support::{Machine, agent, preparer_name, request};

fn with_secret(key: &str, name: &str) -> Definition {
    let key = Key::new(key).unwrap();
    Definition::secret(key, SecretRef::new(name).unwrap(), Tier::Request, "--env")
}

#[tokio::test(start_paused = true)]
async fn k32_the_end_is_told_only_after_the_instance_is_up() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    // The connection is held: the preparer and the executor have told what they did.
    process
        .executor
        .once("connect", VerbFault::Hold(gate.clone()));
    let ticket = process.ticket(request()).await;
    gate.until_reached().await;
    assert!(
        process.recorder.closings(ticket.attempt()).is_empty(),
        "it is not over"
    );
    let so_far = process.recorder.transcript();
    assert!(
        so_far.contains("prepare:workspace: making tree of workspace"),
        "{so_far}"
    );
    assert!(
        so_far.contains("create: the instance is being made"),
        "{so_far}"
    );
    gate.open();
    ticket.wait().await.unwrap();
    let closings = process.recorder.closings(ticket.attempt());
    assert!(matches!(closings.as_slice(), [EventKind::Launched]));
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn k33_k34_the_preparer_acts_first_and_its_path_reaches_executor_and_agent() {
    let machine = Machine::new();
    let process = machine.process();
    let record = process.launch().await.unwrap().record;
    let workspace = record.workspace.unwrap();
    let instance = machine.world.instance(&record.instance).unwrap();
    assert_eq!(instance.spec().workspace.as_ref(), Some(&workspace.path));
    let agent = groundcrew_core::agent_process().unwrap();
    let spec = instance.process_spec(&agent).unwrap();
    assert_eq!(spec.directory, workspace.directory);
    assert!(spec.main);
    let environment = instance.environment().unwrap();
    let path = workspace.path.to_str().unwrap().as_bytes();
    assert_eq!(environment.get("GROUNDCREW_WORKSPACE"), Some(path));
    assert_eq!(
        environment.get("GROUNDCREW_RUN_ID"),
        Some(record.run.as_str().as_bytes())
    );
    let calls = machine.world.calls();
    let position = |verb: &str| {
        calls
            .iter()
            .position(|call| call.starts_with(verb))
            .unwrap()
    };
    assert!(position("workspace.apply") < position("create "));
}

#[tokio::test(start_paused = true)]
async fn k35_a_preparer_that_is_not_concerned_is_skipped() {
    let machine = Machine::new();
    let unconcerned = MemoryPreparer::new(&machine.world, preparer_name("things")).unconcerned();
    let preparers: Vec<Arc<dyn groundcrew_core::preparer::Preparer>> = vec![
        Arc::new(machine.workspace_preparer()),
        Arc::new(unconcerned),
    ];
    let process = machine.process_of(FaultPlan::default(), preparers);
    process.launch().await.unwrap();
    assert_eq!(machine.world.count("things.apply"), 0);
    assert!(!process.recorder.transcript().contains("things"));
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn k20_a_failure_before_anything_exists_is_told_exactly_once() {
    for (secret, kind) in [
        ("unknown", ErrorKind::SecretUnavailable),
        ("broken", ErrorKind::Corrupt),
    ] {
        let machine = Machine::new();
        let process = machine.process();
        let environment = vec![with_secret("GOOD", "known"), with_secret("TOKEN", secret)];
        let ticket = process
            .ticket(LaunchRequest {
                environment,
                ..request()
            })
            .await;
        let error = ticket.wait().await.unwrap_err();
        assert_eq!((&error.step, error.error.kind()), (&Step::Reveal, kind));
        process.rolled_back_once(ticket.attempt());
        assert_eq!(
            machine.world.count("create"),
            0,
            "no runtime was needed to find it"
        );
        assert!(!format!("{error:?}{}", process.recorder.transcript()).contains("hunter2"));
        machine.is_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f144_a_revealed_secret_reaches_the_instance_and_nothing_else() {
    let machine = Machine::new();
    let process = machine.process();
    let environment = vec![with_secret("TOKEN", "known")];
    let ticket = process
        .ticket(LaunchRequest {
            environment,
            ..request()
        })
        .await;
    let record = ticket.wait().await.unwrap().record;
    let instance = machine.world.instance(&record.instance).unwrap();
    assert_eq!(
        instance.environment().unwrap().get("TOKEN"),
        Some(&b"hunter2"[..])
    );
    assert_eq!(process.secrets.asked(), ["known"], "it is revealed once");
    let told = format!(
        "{:?}{record:?}{:?}",
        process.recorder.events(),
        machine.world
    );
    let stored = format!("{:?}", machine.store);
    assert!(!told.contains("hunter2") && !stored.contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn f029_a_failed_start_names_its_kind_and_leaves_nothing() {
    for kind in [
        ErrorKind::ProgramNotFound,
        ErrorKind::InterpreterNotFound,
        ErrorKind::DirectoryNotFound,
        ErrorKind::NotExecutable,
    ] {
        let machine = Machine::new();
        let process = machine.process();
        let ticket = process
            .ticket(agent(&["fail-to-start", kind.as_str()]))
            .await;
        let error = ticket.wait().await.unwrap_err();
        assert_eq!((&error.step, error.error.kind()), (&Step::Start, kind));
        process.rolled_back_once(ticket.attempt());
        machine.is_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn warnings_come_first_and_a_workspace_without_an_agent_has_no_start() {
    let machine = Machine::new();
    let preparer = machine
        .workspace_preparer()
        .with_warning("changes are not taken along");
    let process = machine.process_of(FaultPlan::default(), vec![Arc::new(preparer)]);
    let session = Some(SessionId::new("session").unwrap());
    let ticket = process
        .ticket(LaunchRequest {
            mode: Mode::Workspace,
            session,
            ..request()
        })
        .await;
    let launched = ticket.wait().await.unwrap();
    assert!(launched.started.is_none() && launched.record.command.is_none());
    let events = process.recorder.of(ticket.attempt());
    assert!(
        matches!(&events[0], EventKind::Warning(text) if text == "changes are not taken along")
    );
    let starts = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::StepStarted(Step::Start) | EventKind::AgentStarted(_)
        )
    };
    assert!(!events.iter().any(starts));
    process.lawful();
}
