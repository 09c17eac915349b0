//! Launches that join an instance which is up: an agent its session's workspace, a session its sibling's instance.

use std::time::Duration;

use groundcrew_core::{
    CloseOutcome, EnsureError, Launched, MaintenanceOptions,
    env::{Definition, Key, Origin, Tier, Value},
    error::{Chain, ErrorKind},
    event::Step,
    id::{ExecutorName, RunId},
    instance::McpServer,
    payload::Payload,
    process::{EnvironmentSource, ProcessSpec},
    profile::{CommandWishes, PromptRule},
    request::{LaunchIntent, LaunchRequest, Mode},
    store::{RunRecord, RunState, StateStore as _},
};
use groundcrew_testkit::faulty::{Action, FaultPlan, Gate, VerbFault};

use crate::{
    agents,
    keeping::REMOVE,
    support::{Machine, Process, request, runtime, script},
};

fn workspace() -> LaunchRequest {
    LaunchRequest {
        mode: Mode::Workspace,
        ..request()
    }
}

fn server(name: &str) -> McpServer {
    McpServer {
        name: name.to_owned(),
        definition: serde_json::json!({ "url": format!("http://{name}.test") }),
    }
}

/// Asks for an agent in the workspace of a run.
fn promotion(run: &RunId) -> LaunchRequest {
    LaunchRequest {
        intent: LaunchIntent::Resume(run.clone()),
        ..request()
    }
}

fn variable(name: &str, value: &str) -> Definition {
    Definition {
        key: Key::new(name).unwrap(),
        value: Value::Literal(value.into()),
        origin: Origin("request".to_owned()),
        tier: Tier::Request,
    }
}

async fn ensured(process: &Process) -> RunRecord {
    process.launcher.ensure(workspace()).await.unwrap().record
}

/// Returns how the agent of a run was started.
fn agent_of(machine: &Machine, record: &RunRecord) -> ProcessSpec {
    let instances = machine.world.instances();
    let instance = instances.iter().find(|i| *i.id() == record.instance);
    let agent = record.agent_process().unwrap();
    instance.unwrap().process_spec(&agent).unwrap()
}

fn exact(spec: &ProcessSpec, name: &str) -> Option<String> {
    let EnvironmentSource::Exact(all) = &spec.environment else {
        panic!("an agent that joins gets its own variables: {spec:?}");
    };
    all.get(name)
        .map(|value| String::from_utf8_lossy(value).into_owned())
}

#[tokio::test(start_paused = true)]
async fn k45_w05_a_workspace_gets_its_agent_and_stays_the_same_run() {
    let machine = Machine::new();
    let process = machine.process();
    let before = ensured(&process).await;
    assert_eq!(
        (before.state, before.command.clone()),
        (RunState::Running, None)
    );
    let things = machine.world.things();
    let with_token = RunRecord {
        resume_token: Some("token-1".to_owned()),
        ..before.clone()
    };
    machine.store.put(&with_token).await.unwrap();
    let plan = process.plan(promotion(&before.run)).await;
    assert!(plan.joins());
    let launched = process.launcher.launch(plan).wait().await.unwrap();
    process.lawful();
    let after = launched.record;
    assert_eq!(
        (&after.run, &after.instance, &after.workspace),
        (&before.run, &before.instance, &before.workspace)
    );
    assert_eq!(after.resume_token.as_deref(), Some("token-1"));
    assert!(after.command.is_some() && after.state == RunState::Running);
    assert_eq!(machine.world.count("create"), 1, "no second instance");
    assert_eq!(machine.world.things(), things, "nothing was prepared again");
    // Its end is the end of the run, instance and all.
    process.launcher.stop(&after.run, None).await.unwrap();
    assert!(machine.world.instances().is_empty());
    let report = process.launcher.close(&after.run, REMOVE).await.unwrap();
    assert_eq!(report.outcome, CloseOutcome::Closed);
    assert!(machine.store.all_attempts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn k46_tool_servers_reach_the_live_instance_before_the_agent() {
    let machine = Machine::new();
    let process = machine.process();
    let before = ensured(&process).await;
    let servers = vec![server("first"), server("second")];
    let request = LaunchRequest {
        mcp_servers: servers.clone(),
        ..promotion(&before.run)
    };
    let launched = process.ticket(request).await.wait().await.unwrap();
    assert_eq!(launched.record.run, before.run);
    assert_eq!(process.executor.calls("instance.set_mcp_servers"), 1);
    assert_eq!(machine.world.instances()[0].mcp_servers(), servers);
    let calls = machine.world.calls();
    let at = |verb: &str| {
        calls
            .iter()
            .position(|call| call.starts_with(verb))
            .unwrap()
    };
    assert!(at("instance.set_mcp_servers") < at("instance.start"));
}

/// Checks that a failed promotion left the run as it was, and that the next one succeeds.
async fn still_a_workspace(machine: &Machine, before: &RunRecord, point: &str) {
    let after = machine.record(&before.run).await;
    let same = RunRecord {
        problem: None,
        revision: before.revision,
        secrets: before.secrets.clone(),
        ..after
    };
    assert_eq!(same, *before, "{point}");
    assert_eq!(machine.world.instances().len(), 1, "{point}");
    assert!(!machine.world.instances()[0].has_ended(), "{point}");
    assert!(machine.locks.held().is_empty(), "{point}");
    let next = machine.process();
    let launched = next.ticket(promotion(&before.run)).await.wait().await;
    assert_eq!(launched.expect(point).record.instance, before.instance);
}

#[tokio::test(start_paused = true)]
async fn k47_a_promotion_whose_tool_servers_are_refused_leaves_a_workspace() {
    let machine = Machine::new();
    let process = machine.process();
    let before = ensured(&process).await;
    process.executor.once(
        "instance.set_mcp_servers",
        VerbFault::Before(ErrorKind::Protocol),
    );
    let request = LaunchRequest {
        mcp_servers: vec![server("first")],
        ..promotion(&before.run)
    };
    let ticket = process.ticket(request).await;
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(
        (&error.step, error.error.kind()),
        (&Step::Equip, ErrorKind::Protocol)
    );
    process.rolled_back_once(ticket.attempt());
    assert_eq!(process.executor.calls("instance.start"), 0);
    assert_eq!(process.executor.calls("delete"), 0, "it was there before");
    still_a_workspace(&machine, &before, "equip").await;
}

fn checkpoints_of_a_promotion() -> Vec<String> {
    runtime().block_on(async {
        let machine = Machine::new();
        let before = ensured(&machine.process()).await;
        let process = machine.process();
        let plan = process.plan(promotion(&before.run)).await;
        let steps: Vec<_> = plan.steps().iter().map(Step::to_string).collect();
        process.launcher.launch(plan).wait().await.unwrap();
        let passed = process.checkpoints.passed();
        let told: Vec<_> = passed
            .iter()
            .filter_map(|point| point.strip_suffix(".before").map(str::to_owned))
            .collect();
        assert_eq!(steps, told);
        passed
    })
}

#[test]
fn k47_i01_w01_a_promotion_that_fails_anywhere_takes_back_its_agent_and_nothing_else() {
    let points = checkpoints_of_a_promotion();
    for point in points.iter().filter(|point| *point != "commit.after") {
        for action in [
            Action::Error(ErrorKind::Protocol),
            Action::Panic,
            Action::Cancel,
        ] {
            runtime().block_on(async {
                let machine = Machine::new();
                let before = ensured(&machine.process()).await;
                let failing = machine.process_with(FaultPlan::at(point, action.clone()));
                let ticket = failing.ticket(promotion(&before.run)).await;
                if let Ok(launched) = ticket.wait().await {
                    // A cancellation that came too late to be heard.
                    assert_eq!(
                        (point.as_str(), &action),
                        ("commit.before", &Action::Cancel)
                    );
                    failing.lawful();
                    assert_eq!(launched.record.instance, before.instance);
                    return;
                }
                failing.rolled_back_once(ticket.attempt());
                assert_eq!(failing.executor.calls("delete"), 0, "{point}");
                still_a_workspace(&machine, &before, point).await;
            });
        }
    }
}

#[test]
fn k47_f127_death_anywhere_in_a_promotion_leaves_a_workspace() {
    let points = checkpoints_of_a_promotion();
    for point in points.iter().filter(|point| *point != "commit.after") {
        let machine = Machine::new();
        let dying = runtime();
        let (before, process) = dying.block_on(async {
            let before = ensured(&machine.process()).await;
            let process = machine.process_with(FaultPlan::at(point, Action::Hang));
            drop(process.ticket(promotion(&before.run)).await);
            process.checkpoints.until_struck().await;
            (before, process)
        });
        drop(dying);
        process.locks.die();
        runtime().block_on(async {
            let next = machine.process();
            let view = next.launcher.observe(&before.run).await.unwrap();
            assert_eq!(
                view.record.state,
                RunState::Running,
                "{point}: it is still up"
            );
            let report = next.launcher.recover().await.unwrap();
            assert!(report.is_clean(), "{point}: {report:?}");
            still_a_workspace(&machine, &before, point).await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn k48_a_session_with_an_agent_is_told_that_it_has_one() {
    let machine = Machine::new();
    let process = machine.process();
    let plan = process.plan(request()).await;
    let run = process.launch().await.unwrap().record.run;
    let error = process.launcher.launch(plan).wait().await.unwrap_err();
    let text = Chain(&*error.error).to_string();
    assert!(text.contains("already has an agent running"), "{text}");
    let error = process
        .ticket(promotion(&run))
        .await
        .wait()
        .await
        .unwrap_err();
    let text = Chain(&*error.error).to_string();
    assert!(text.contains("already has an agent running"), "{text}");
    assert_eq!(machine.record(&run).await.state, RunState::Running);
    assert_eq!(machine.world.count("create"), 1);
}

#[tokio::test(start_paused = true)]
async fn k49_a_leading_launch_s_deadline_cancels_nobody() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let ticket = process.ticket(request()).await;
    gate.until_reached().await;
    let launcher = process.launcher.clone();
    let follower = tokio::spawn(async move { launcher.ensure(workspace()).await });
    let late = tokio::time::timeout(Duration::from_millis(250), ticket.wait()).await;
    assert!(late.is_err(), "the leader's own deadline passed");
    assert!(!follower.is_finished());
    let busy = process
        .launcher
        .maintain(MaintenanceOptions::default())
        .await;
    assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
    gate.open();
    let ensured = follower.await.unwrap().unwrap();
    assert_eq!(ensured.record.run, *ticket.run(), "the session's own run");
    assert!(ticket.wait().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn k50_a_following_launch_s_deadline_cancels_nobody() {
    let machine = Machine::new();
    let process = machine.process();
    let plan = process.plan(request()).await;
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let launcher = process.launcher.clone();
    let leader = tokio::spawn(async move { launcher.ensure(workspace()).await });
    gate.until_reached().await;
    let ticket = process.launcher.launch(plan);
    let late = tokio::time::timeout(Duration::from_millis(100), ticket.wait()).await;
    assert!(late.is_err(), "the follower's own deadline passed");
    let busy = process
        .launcher
        .maintain(MaintenanceOptions::default())
        .await;
    assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
    gate.open();
    let ensured = leader.await.unwrap().unwrap();
    // The follower was planned before there was anything, and is told what there is.
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::SessionBusy);
    assert_eq!(error.error.get("run"), Some(ensured.record.run.as_str()));
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn i02_w02_equal_wishes_share_one_answer_and_a_dropped_caller_takes_it_from_nobody() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let asks = (0..16).map(|_| {
        let launcher = process.launcher.clone();
        tokio::spawn(async move { launcher.ensure(workspace()).await })
    });
    let mut asks: Vec<_> = asks.collect();
    gate.until_reached().await;
    // The one who led is gone before the answer is there.
    asks.remove(0).abort();
    gate.open();
    let mut runs = Vec::new();
    for ask in asks {
        runs.push(ask.await.unwrap().unwrap().record.run);
    }
    runs.dedup();
    assert_eq!(runs.len(), 1);
    assert_eq!(machine.world.count("create"), 1);
    assert_eq!(process.executor.calls("create"), 1, "one launch for all");
    // Whoever follows does not even look for himself.
    let looks = process.store.calls("run_of_session");
    assert!(looks < 8, "{looks} looks for 16 callers");
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn i02_w02_unequal_wishes_queue_and_each_gets_what_it_asked_for() {
    let machine = Machine::new();
    let process = machine.process();
    let gate = Gate::new();
    process
        .executor
        .once("create", VerbFault::Hold(gate.clone()));
    let ask = |request: LaunchRequest| {
        let launcher = process.launcher.clone();
        tokio::spawn(async move { launcher.ensure(request).await })
    };
    let first = ask(workspace());
    gate.until_reached().await;
    let other = ask(LaunchRequest {
        title: Some("another one".to_owned()),
        ..workspace()
    });
    gate.open();
    let run = first.await.unwrap().unwrap().record.run;
    let second: Launched = other.await.unwrap().unwrap();
    assert_eq!(second.record.run, run);
    // A promotion, a stop and an ensure at once: each is done, one after the other.
    let plan = process.plan(promotion(&run)).await;
    let ticket = process.launcher.launch(plan);
    let (launched, view, up) = tokio::join!(
        ticket.wait(),
        process.launcher.stop(&run, None),
        process.launcher.ensure(workspace()),
    );
    assert!(launched.is_ok(), "{launched:?}");
    assert_eq!(view.unwrap().record.state, RunState::Stopped);
    let up = up.unwrap().record;
    assert_eq!((up.run, up.state), (run.clone(), RunState::Running));
    assert_eq!(machine.record(&run).await.state, RunState::Running);
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn an_ensured_workspace_that_ended_unseen_is_brought_up_again() {
    let machine = Machine::new();
    let process = machine.process();
    let before = ensured(&process).await;
    machine.world.instances()[0].lapse();
    // A promotion that was planned with it finds out, and takes nothing along.
    let plan = process.plan(promotion(&before.run)).await;
    let error = process.launcher.launch(plan).wait().await.unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::Conflict);
    assert!(error.error.is_retryable());
    let again = ensured(&process).await;
    assert_eq!(again.run, before.run);
    assert_ne!(again.instance, before.instance);
    assert_eq!(machine.world.instances().len(), 1);
    process.lawful();
}

#[tokio::test(start_paused = true)]
async fn ensuring_without_a_session_is_refused() {
    let process = Machine::new().process();
    let request = LaunchRequest {
        session: None,
        ..workspace()
    };
    let error = process.launcher.ensure(request).await.unwrap_err();
    assert!(matches!(error, EnsureError::Look(_)) && error.kind() == ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn i04_w04_a_promotion_carries_prompt_attachments_and_variables_of_its_own_request() {
    let mut profile = agents::profile();
    profile.prompt = Some(PromptRule::Argument(vec!["--".into(), "{prompt}".into()]));
    let (machine, process) = agents::machine_with(profile);
    let before = ensured(&process).await;
    let old = machine.world.instances()[0].environment().unwrap();
    assert_eq!(old.get("TURN_ID"), None);
    let used = agents::used(CommandWishes {
        prompt: Some("mend it".into()),
        ..CommandWishes::default()
    });
    let request = LaunchRequest {
        environment: vec![variable("TURN_ID", "turn-7")],
        payloads: vec![Payload {
            variable: Key::new("ATTACHMENT").unwrap(),
            content: vec![b'x'; 100_000].into(),
            origin: Origin("request".to_owned()),
        }],
        ..agents::by_profile(promotion(&before.run), used.clone())
    };
    let record = process.ticket(request).await.wait().await.unwrap().record;
    assert_eq!(record.agent, Some(used));
    let spec = agent_of(&machine, &record);
    let words = format!("{:?}", spec.command);
    assert!(words.contains("mend it"), "{words}");
    assert_eq!(exact(&spec, "TURN_ID").as_deref(), Some("turn-7"));
    let path = exact(&spec, "ATTACHMENT_PATH").unwrap();
    assert!(
        path.contains(record.agent_process().unwrap().as_str()),
        "{path}"
    );
    // From here on terminals of the run get the same.
    let new = machine.world.instances()[0].environment().unwrap();
    assert_eq!(new.get("TURN_ID"), Some(b"turn-7".as_slice()));
}

#[tokio::test(start_paused = true)]
async fn what_an_instance_that_is_up_cannot_be_given_any_more_fails_the_plan() {
    let machine = Machine::new();
    let process = machine.process();
    let before = ensured(&process).await;
    let plan = |request: LaunchRequest| process.launcher.plan(request);
    let error = plan(LaunchRequest {
        setup: vec![script(&["echo", "late"])],
        limits: groundcrew_core::executor::Limits {
            processes: Some(7),
            ..Default::default()
        },
        ..promotion(&before.run)
    })
    .await
    .unwrap_err();
    let what: Vec<_> = error
        .problems
        .iter()
        .filter_map(|p| p.get("what"))
        .collect();
    assert_eq!(what, ["limits", "setup scripts"]);
    let error = plan(LaunchRequest {
        executor: ExecutorName::new("other").unwrap(),
        ..promotion(&before.run)
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = plan(LaunchRequest {
        mode: Mode::Workspace,
        ..promotion(&before.run)
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionBusy);
}
