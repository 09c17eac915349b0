//! What a run is given besides its arguments: payloads, caches, the snapshot, and the secrets that its executor returned.

use std::{path::PathBuf, sync::Arc};

use futures_util::TryStreamExt as _;
use groundcrew_core::{
    CloseOptions, agent_process,
    command::Command,
    env::{Definition, Key, Origin, Tier},
    error::ErrorKind,
    event::Step,
    executor::Capabilities,
    id::ProcessId,
    instance::Instance as _,
    payload::{MAX_INLINE, Payload},
    process::{EnvironmentSource, ProcessSpec},
    request::{LaunchRequest, ManagedCache},
    secret::RuntimeSecrets as _,
    store::RunRecord,
};
use groundcrew_testkit::{
    faulty::{Action, FaultPlan},
    memory::{MemoryExecutor, MemoryInstance},
};

use crate::support::{Machine, Process, agent, executor_name, request};

const CLOSE: CloseOptions = CloseOptions {
    remove: false,
    force: false,
};

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn inherited(name: &str, value: &str) -> Definition {
    Definition::literal(key(name), value, Tier::Inherited, "caller's environment")
}

fn payload(name: &str, size: usize) -> Payload {
    Payload {
        variable: key(name),
        content: vec![b'p'; size].into(),
        origin: Origin("--payload".into()),
    }
}

fn instance(machine: &Machine, record: &RunRecord) -> Arc<MemoryInstance> {
    machine.world.instance(&record.instance).unwrap()
}

/// Returns what lies in an archive that was handed over: name, mode and bytes.
async fn files(instance: &MemoryInstance, at: &str) -> Vec<(String, u32, Vec<u8>)> {
    let archive = instance.get_archive(at.as_ref()).await.unwrap();
    let pieces: Vec<_> = archive.try_collect().await.unwrap();
    let whole = pieces.concat();
    let mut archive = tar::Archive::new(&*whole);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mode = entry.header().mode().unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        (name, mode, content)
    });
    entries.collect()
}

#[tokio::test(start_paused = true)]
async fn k23_a_large_payload_is_a_private_file_and_a_small_one_a_variable() {
    let machine = Machine::new();
    let process = machine.process();
    let record = process
        .ticket(LaunchRequest {
            // What the caller happens to have under that name must not pass for the payload.
            environment: vec![inherited("TASK", "something else")],
            payloads: vec![payload("TASK", MAX_INLINE + 1), payload("NOTE", MAX_INLINE)],
            ..request()
        })
        .await
        .wait()
        .await
        .unwrap()
        .record;
    let instance = instance(&machine, &record);
    let environment = instance.environment().unwrap();
    assert_eq!(environment.get("TASK"), None);
    assert_eq!(environment.get("NOTE").unwrap().len(), MAX_INLINE);
    assert_eq!(environment.get("NOTE_PATH"), None);
    let place = format!("/instances/{}/private", record.instance);
    let path = String::from_utf8(environment.get("TASK_PATH").unwrap().to_vec()).unwrap();
    assert_eq!(path, format!("{place}/TASK"));
    let workspace = record.workspace.unwrap().path;
    assert!(!PathBuf::from(path).starts_with(workspace));
    let content = vec![b'p'; MAX_INLINE + 1];
    assert_eq!(
        files(&instance, &place).await,
        [("TASK".to_owned(), 0o600, content)]
    );
}

#[tokio::test(start_paused = true)]
async fn k23_k24_a_payload_takes_part_in_the_one_pass() {
    let machine = Machine::new();
    let process = machine.process();
    let asked = |name: &str| Definition::literal(key(name), "x", Tier::Request, "--env");
    for (environment, payloads, word) in [
        (vec![asked("TASK")], vec![payload("TASK", 10)], "TASK"),
        (
            vec![asked("TASK")],
            vec![payload("TASK", MAX_INLINE + 1)],
            "TASK",
        ),
        (
            vec![],
            vec![payload("TASK", 3), payload("TASK", 3)],
            "two payloads",
        ),
        (
            vec![],
            vec![payload("a/b", MAX_INLINE + 1)],
            "a large payload",
        ),
    ] {
        let error = process
            .launcher
            .plan(LaunchRequest {
                environment,
                payloads,
                ..request()
            })
            .await
            .unwrap_err();
        assert!(error.to_string().contains(word), "{word}: {error}");
        let kinds = error
            .problems
            .iter()
            .map(groundcrew_core::error::Error::kind);
        assert!(kinds.eq([ErrorKind::InvalidInput]), "{error}");
    }
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn k24_a_payload_of_a_resumed_run_arrives_as_well() {
    let machine = Machine::new();
    let process = machine.process();
    let record = crate::resuming::stopped(&machine, &process).await;
    let resumed = process
        .ticket(LaunchRequest {
            payloads: vec![payload("TASK", MAX_INLINE + 1)],
            ..crate::support::resume(&record.run)
        })
        .await
        .wait()
        .await
        .unwrap()
        .record;
    let place = format!("/instances/{}/private", resumed.instance);
    let files = files(&instance(&machine, &resumed), &place).await;
    assert_eq!(files[0].2.len(), MAX_INLINE + 1);
}

#[tokio::test(start_paused = true)]
async fn k21_k22_the_title_is_in_no_variable_and_the_identity_is() {
    let machine = Machine::new();
    let process = machine.process();
    let title = "a long description ".repeat(500);
    let record = process
        .ticket(LaunchRequest {
            title: Some(title.clone()),
            ..request()
        })
        .await
        .wait()
        .await
        .unwrap()
        .record;
    let environment = instance(&machine, &record).environment().unwrap();
    assert_eq!(
        environment.get("GROUNDCREW_TASK_ID"),
        Some(record.task.as_str().as_bytes())
    );
    for (name, value) in environment.iter() {
        let text = String::from_utf8_lossy(value);
        assert!(!text.contains("a long description"), "{name}");
    }
}

fn cache(path: &str) -> ManagedCache {
    ManagedCache {
        variable: key("GOCACHE"),
        directory: PathBuf::from(path),
    }
}

#[tokio::test(start_paused = true)]
async fn k28_k29_a_managed_cache_is_one_path_for_everything_in_the_instance() {
    let machine = Machine::new();
    let process = machine.process();
    let record = process
        .ticket(LaunchRequest {
            environment: vec![
                inherited("GOCACHE", "/the/callers/own"),
                Definition::literal(key("GOCACHE"), "/asked/for", Tier::Request, "--env"),
            ],
            caches: vec![cache("/state/caches/go")],
            ..request()
        })
        .await
        .wait()
        .await
        .unwrap()
        .record;
    let instance = instance(&machine, &record);
    // The snapshot serves setup scripts, the agent and terminals alike; the agent has nothing of its own beside it.
    let environment = instance.environment().unwrap();
    assert_eq!(environment.get("GOCACHE"), Some(&b"/state/caches/go"[..]));
    let agent = instance.process_spec(&agent_process().unwrap()).unwrap();
    assert!(
        matches!(agent.environment, EnvironmentSource::Run(overlay) if overlay.iter().count() == 0)
    );
    // It was made through the instance.
    assert_eq!(files(&instance, "/state/caches/go").await, []);
}

#[tokio::test(start_paused = true)]
async fn k28_a_cache_has_an_absolute_path_and_outranks_no_secret() {
    let machine = Machine::new();
    let process = machine.process();
    let secret = groundcrew_core::secret::SecretRef::new("known").unwrap();
    let bound = Definition::secret(key("GOCACHE"), secret, Tier::Workspace, "repository app");
    let relative = LaunchRequest {
        caches: vec![cache("caches/go")],
        ..request()
    };
    let bound = LaunchRequest {
        environment: vec![bound],
        caches: vec![cache("/state/caches/go")],
        ..request()
    };
    for (request, word) in [
        (relative, "must be absolute"),
        (bound, "repository app, managed cache"),
    ] {
        let error = process.launcher.plan(request).await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(process.secrets.asked(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f042_a_workspace_sets_no_variable_that_loads_code_and_people_may() {
    let machine = Machine::new();
    let process = machine.process();
    for name in ["LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "GIT_SSH_COMMAND"] {
        let define = |tier| Definition::literal(key(name), "/x.so", tier, "repository app");
        let plan = async |tier| {
            let environment = vec![define(tier)];
            process
                .launcher
                .plan(LaunchRequest {
                    environment,
                    ..request()
                })
                .await
        };
        let error = plan(Tier::Workspace).await.unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("repository app"),
            "{error}"
        );
        for tier in [Tier::Inherited, Tier::Profile, Tier::Request] {
            plan(tier).await.unwrap();
        }
    }
}

/// A process whose executor's instances do not see the paths of the host, or which returns secrets.
fn process_with(
    machine: &Machine,
    plan: FaultPlan,
    change: impl FnOnce(&mut Capabilities),
) -> Process {
    let mut capabilities = Capabilities::host();
    change(&mut capabilities);
    let executor = MemoryExecutor::new(&machine.world, executor_name());
    machine.process_on(
        plan,
        Arc::new(executor.with_capabilities(capabilities)),
        vec![
            Arc::new(machine.workspace_preparer()),
            Arc::new(machine.things_preparer()),
        ],
    )
}

#[tokio::test(start_paused = true)]
async fn k58_returned_secrets_are_kept_by_name_revealed_later_and_gone_with_the_run() {
    let machine = Machine::new();
    let process = process_with(&machine, FaultPlan::default(), |can| {
        can.runtime_secrets = true;
    });
    let record = process.launch().await.unwrap().record;
    let place = machine.world.runtime_secrets();
    let name = &record.runtime_secrets[0];
    assert!(name.is_runtime(), "{name}");
    let value = place.reveal(name).await.unwrap().unwrap();
    assert_eq!(value.expose(), record.instance.as_str().as_bytes());
    // The name is in the row, the value is nowhere in it.
    let stored = machine.record(&record.run).await;
    assert_eq!(stored.runtime_secrets, record.runtime_secrets);
    // Whatever is shown of the run hides it as well.
    let redactor = process.launcher.redactor(&record).await.unwrap();
    let told = format!("token {} of the executor", record.instance);
    assert!(
        !redactor
            .redact_str(&told)
            .contains(record.instance.as_str())
    );
    process.launcher.close(&record.run, CLOSE).await.unwrap();
    assert!(place.reveal(name).await.unwrap().is_none());
    assert_eq!(place.attempts().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn k58_a_launch_that_fails_after_it_kept_secrets_leaves_none() {
    for point in [
        "create.after",
        "register.before",
        "register.after",
        "admit_again.before",
        "start.before",
        "commit.before",
    ] {
        let machine = Machine::new();
        let plan = FaultPlan::at(point, Action::Error(ErrorKind::Unexpected));
        let process = process_with(&machine, plan, |can| can.runtime_secrets = true);
        let error = process.launch().await.unwrap_err();
        assert!(error.rollback.is_clean(), "{point}: {error:?}");
        machine.is_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn k25_k27_the_snapshot_serves_what_is_started_later_and_an_overlay_stays_its_own() {
    let machine = Machine::new();
    let process = machine.process();
    let secret = groundcrew_core::secret::SecretRef::new("known").unwrap();
    let bound = |name| Definition::secret(key(name), secret.clone(), Tier::Profile, "profile");
    let record = process
        .ticket(LaunchRequest {
            environment: vec![bound("TOKEN"), bound("SAME_TOKEN")],
            ..agent(&["sleep-until-signal"])
        })
        .await
        .wait()
        .await
        .unwrap()
        .record;
    // A later controller starts one more process; it reveals nothing, the instance has the snapshot.
    let later = machine.process();
    let instance = instance(&machine, &record);
    let overlay = [(key("TURN"), b"7".to_vec())].into_iter().collect();
    let agent = instance.process_spec(&agent_process().unwrap()).unwrap();
    let spec = ProcessSpec {
        command: Command::new(["sleep-until-signal"]).unwrap(),
        environment: EnvironmentSource::Run(overlay),
        main: false,
        ..agent
    };
    let terminal = ProcessId::new("terminal").unwrap();
    instance.start(&terminal, &spec).await.unwrap();
    assert_eq!(later.secrets.asked(), Vec::<String>::new());
    assert_eq!(process.secrets.asked(), ["known"], "each secret once");
    let snapshot = instance.environment().unwrap();
    for name in ["TOKEN", "SAME_TOKEN"] {
        assert_eq!(snapshot.get(name), Some(&b"hunter2"[..]));
    }
    assert_eq!(snapshot.get("TURN"), None);
}

#[tokio::test(start_paused = true)]
async fn f147_a_launch_with_a_secret_fails_at_reveal_and_nowhere_later() {
    let machine = Machine::new();
    let process = machine.process();
    let secret = groundcrew_core::secret::SecretRef::new("broken").unwrap();
    let bound = Definition::secret(key("TOKEN"), secret, Tier::Profile, "profile");
    let ticket = process
        .ticket(LaunchRequest {
            environment: vec![bound],
            payloads: vec![payload("TASK", MAX_INLINE + 1)],
            ..request()
        })
        .await;
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(error.step, Step::Reveal);
    machine.is_empty().await;
}
