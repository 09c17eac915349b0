//! Setup scripts run before the agent and fail the launch; teardown scripts run before the end and fail nothing.

use std::time::Duration;

use groundcrew_core::{
    CloseOutcome,
    env::Environment,
    error::ErrorKind,
    event::{EventKind, Step},
    executor::Executor as _,
    id::ProcessId,
    instance::Instance as _,
    process::{EnvironmentSource, StdinPolicy},
    request::LaunchRequest,
    script::Script,
    store::RunState,
};
use groundcrew_testkit::{
    faulty::{Action, FaultPlan},
    memory::MemoryExecutor,
};

use crate::{
    keeping::REMOVE,
    support::{Machine, Process, executor_name, request, resume, runtime, script},
};

fn with_setup(setup: Vec<Script>) -> LaunchRequest {
    LaunchRequest { setup, ..request() }
}

fn optional(script: Script) -> Script {
    Script {
        required: false,
        ..script
    }
}

/// Returns what the step Setup told, line by line.
fn told(process: &Process) -> Vec<String> {
    let told = process.recorder.events().into_iter().filter_map(|event| {
        let EventKind::StepProgress(Step::Setup, line) = event.kind else {
            return None;
        };
        Some(line)
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn c22_setup_scripts_run_in_order_before_the_agent_and_are_told_live() {
    let machine = Machine::new();
    let process = machine.process();
    let placed = Script {
        directory: Some("web".into()),
        ..script(&["warn", "two"])
    };
    let setup = vec![script(&["echo", "one"]), placed, script(&["cat"])];
    let launched = process.ticket(with_setup(setup)).await.wait().await;
    let record = launched.unwrap().record;
    process.lawful();
    assert_eq!(
        told(&process),
        [
            "setup-1: echo one",
            "one",
            "setup-2: warn two",
            "two",
            "setup-3: cat"
        ]
    );
    let instance = machine.world.instance(&record.instance).unwrap();
    let spec = |name: &str| {
        instance
            .process_spec(&ProcessId::new(name).unwrap())
            .unwrap()
    };
    let root = record.workspace.as_ref().unwrap().path.clone();
    assert_eq!(spec("setup-1").directory, root);
    assert_eq!(spec("setup-2").directory, root.join("web"));
    for name in ["setup-1", "setup-2", "setup-3"] {
        let spec = spec(name);
        assert!(
            matches!(spec.environment, EnvironmentSource::Run(overlay) if overlay == Environment::new())
        );
        assert_eq!((spec.stdin, spec.main), (StdinPolicy::Empty, false));
    }
    // All have ended before the agent begins.
    let order: Vec<_> = instance.processes().await.unwrap();
    let order: Vec<_> = order.iter().map(|process| process.id.as_str()).collect();
    assert_eq!(order, ["setup-1", "setup-2", "setup-3", "agent"]);
    assert!(machine.record(&record.run).await.scripts.set_up);
}

#[tokio::test(start_paused = true)]
async fn c22_a_required_script_that_fails_ends_the_launch_and_leaves_nothing() {
    let missing = Script::new("install", script(&["no-such-program"]).command);
    let failing = Script::new("install", script(&["exit", "7"]).command);
    let endless = Script {
        time_limit: Duration::from_secs(5),
        ..Script::new("install", script(&["sleep-until-signal"]).command)
    };
    for (setup, words) in [
        (failing, "exit code 7"),
        (missing, "cannot be started"),
        (endless, "time limit"),
    ] {
        let machine = Machine::new();
        let process = machine.process();
        let ticket = process
            .ticket(with_setup(vec![
                script(&["echo", "first"]),
                setup,
                script(&["echo", "never"]),
            ]))
            .await;
        let error = ticket.wait().await.unwrap_err();
        assert_eq!(error.step, Step::Setup);
        assert_eq!(error.error.kind(), ErrorKind::ScriptFailed);
        assert_eq!(error.error.get("script"), Some("install"));
        assert_eq!(error.error.get("process"), Some("setup-2"));
        assert!(error.error.to_string().contains(words), "{}", error.error);
        assert!(!told(&process).iter().any(|line| line.contains("never")));
        process.rolled_back_once(ticket.attempt());
        machine.is_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c22_an_optional_script_that_fails_is_a_warning() {
    let machine = Machine::new();
    let process = machine.process();
    let setup = vec![
        optional(script(&["exit", "7"])),
        optional(script(&["no-such-program"])),
        script(&["echo", "on"]),
    ];
    process
        .ticket(with_setup(setup))
        .await
        .wait()
        .await
        .unwrap();
    process.lawful();
    let warnings = process.recorder.events().into_iter().filter_map(|event| {
        let EventKind::Warning(text) = event.kind else {
            return None;
        };
        Some(text)
    });
    let warnings: Vec<_> = warnings.collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("exit 7") && warnings[0].contains("exit code 7"));
    assert!(warnings[1].contains("no-such-program"));
    assert_eq!(told(&process).last().unwrap(), "on");
}

#[tokio::test(start_paused = true)]
async fn c22_a_cancelled_script_ends_and_its_launch_is_taken_back() {
    for program in ["sleep-until-signal", "ignore-signals"] {
        let machine = Machine::new();
        let process = machine.process();
        let ticket = process.ticket(with_setup(vec![script(&[program])])).await;
        let lines = async {
            while told(&process).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        lines.await;
        let asked = tokio::time::Instant::now();
        ticket.cancel();
        let error = ticket.wait().await.unwrap_err();
        assert!(asked.elapsed() <= Duration::from_secs(3));
        assert_eq!(error.error.kind(), ErrorKind::Cancelled);
        process.rolled_back_once(ticket.attempt());
        machine.is_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c22_what_a_failed_setup_wrote_is_kept_and_built_before_the_run_goes_on() {
    let machine = Machine::new();
    let process = machine.process();
    let setup = vec![script(&["write", "half"]), script(&["exit", "7"])];
    let ticket = process.ticket(with_setup(setup)).await;
    let error = ticket.wait().await.unwrap_err();
    assert!(error.rollback.is_clean());
    let record = machine.record(ticket.run()).await;
    assert_eq!(record.state, RunState::Interrupted);
    assert_eq!(record.kept[0].items, ["half"]);
    assert_eq!(record.problem.unwrap().kind, ErrorKind::ScriptFailed);
    assert!(!record.scripts.set_up);

    // Nobody starts an agent in a half-built workspace without saying so.
    let again = process.ticket(resume(ticket.run())).await.wait().await;
    assert_eq!(again.unwrap_err().error.kind(), ErrorKind::ScriptFailed);
    // Whoever knows better says so.
    let knowing = LaunchRequest {
        skip_setup: true,
        ..resume(ticket.run())
    };
    assert!(process.plan(knowing).await.setup().is_empty());
    assert_eq!(process.plan(resume(ticket.run())).await.setup().len(), 2);
    let better = LaunchRequest {
        setup: vec![script(&["echo", "better"])],
        ..resume(ticket.run())
    };
    process.ticket(better).await.wait().await.unwrap();
    assert!(machine.record(ticket.run()).await.scripts.set_up);
    // Once it is built, it is not built again.
    process.launcher.stop(ticket.run(), None).await.unwrap();
    let plan = process.plan(resume(ticket.run())).await;
    assert!(plan.setup().is_empty());
}

#[test]
fn f127_a_controller_that_dies_while_a_script_works_leaves_a_kept_and_named_workspace() {
    for point in [
        "setup.setup-1-started",
        "setup.setup-1-ended",
        "setup.after",
    ] {
        let machine = Machine::new();
        let dying = runtime();
        let process = machine.process_with(FaultPlan::at(point, Action::Hang));
        let run = dying.block_on(async {
            let setup = vec![script(&["write", "half"])];
            let ticket = process.ticket(with_setup(setup)).await;
            process.checkpoints.until_struck().await;
            ticket.run().clone()
        });
        drop(dying);
        process.locks.die();
        runtime().block_on(async {
            let report = machine.process().launcher.recover().await.unwrap();
            assert!(report.is_clean(), "{point}: {report:?}");
            assert_eq!(report.settled, [(run.clone(), RunState::Interrupted)]);
            assert_eq!(report.kept[0].1.findings[0].items, ["half"], "{point}");
            assert!(machine.world.instances().is_empty());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_scripts_is_told_by_the_plan_all_at_once() {
    let machine = Machine::new();
    let process = machine.process();
    let outside = Script {
        directory: Some("../up".into()),
        ..script(&["make"])
    };
    let request = LaunchRequest {
        teardown: vec![Script::new("", script(&["make"]).command)],
        ..with_setup(vec![outside])
    };
    let error = process.launcher.plan(request).await.unwrap_err();
    assert_eq!(error.problems.len(), 2, "{error}");
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn teardown_runs_in_the_instance_and_never_hinders_the_end() {
    let machine = Machine::new();
    let process = machine.process();
    let teardown = vec![
        script(&["echo", "down"]),
        script(&["exit", "7"]),
        Script {
            time_limit: Duration::from_secs(5),
            ..script(&["ignore-signals"])
        },
        script(&["no-such-program"]),
        script(&["echo", "still"]),
    ];
    let request = LaunchRequest {
        teardown,
        ..request()
    };
    let run = process
        .ticket(request)
        .await
        .wait()
        .await
        .unwrap()
        .record
        .run;
    let began = tokio::time::Instant::now();
    let report = process.launcher.close(&run, REMOVE).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(report.outcome, CloseOutcome::Closed);
    let told: Vec<_> = report
        .teardown
        .iter()
        .map(|torn| (&*torn.process, torn.problem()))
        .collect();
    assert_eq!(told[0], ("teardown-1", None));
    assert_eq!(told[1], ("teardown-2", Some("exit code 7".to_owned())));
    assert!(told[2].1.as_ref().unwrap().contains("time limit"));
    assert!(told[3].1.as_ref().unwrap().contains("no such program"));
    assert_eq!(told[4], ("teardown-5", None));
    assert!(machine.world.instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn teardown_without_an_instance_is_reported_and_makes_none() {
    let machine = Machine::new();
    let process = machine.process();
    let request = LaunchRequest {
        teardown: vec![script(&["echo", "down"])],
        ..request()
    };
    let run = process
        .ticket(request)
        .await
        .wait()
        .await
        .unwrap()
        .record
        .run;
    process.launcher.stop(&run, None).await.unwrap();
    let created = process.executor.calls("create");
    let report = process.launcher.close(&run, REMOVE).await.unwrap();
    assert_eq!(report.outcome, CloseOutcome::Closed);
    let problem = report.teardown[0].problem().unwrap();
    assert!(problem.contains("was not run"), "{problem}");
    assert_eq!(process.executor.calls("create"), created);
    let executor = MemoryExecutor::new(&machine.world, executor_name());
    assert!(executor.list().await.unwrap().is_empty());
}
