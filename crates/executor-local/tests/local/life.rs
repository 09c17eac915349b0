//! Making, finding and removing instances.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use groundcrew_core::{
    error::ErrorKind,
    executor::{Capabilities, Executor as _},
    identity::{Identity, Presence},
    process::{EndCause, ExitStatus, Lease, Offset, ProcessPhase, Role, Signal},
    undo::Undone,
};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_supervisor::SupervisorSource;

use crate::place::{
    Place, Silent, executor, fresh, id, instance_spec, kill, process, read, runs, shell, until,
};

crate::runner::tests![
    an_instance_from_create_to_delete,
    c07_an_ended_instance_is_read_from_its_logs,
    a_silent_instance_leaves_nothing,
    a_taken_id_is_refused_and_left_alone,
    c04_what_is_not_ours_is_kept,
    f136_after_a_reboot_no_number_of_a_process_means_anything,
    unknown_is_not_absent,
    a_part_of_an_instance_is_found_and_removed,
    unknown_options_are_refused_by_name,
    a_supervisor_that_does_not_come_up_says_why,
    long_paths_are_no_obstacle,
    twenty_instances_at_once,
    two_removals_at_once_both_succeed,
    a_damaged_start_file_is_kept_and_listed,
    the_probe_tells_what_the_machine_gives,
    f144_no_secret_reaches_a_file_or_an_argument,
];

async fn an_instance_from_create_to_delete() {
    let (place, id) = (Place::new(), fresh());
    assert_eq!(place.executor.capabilities(), Capabilities::host());
    assert_eq!(place.executor.state(&id).await.unwrap(), Presence::Absent);
    let identity = place.create(&id, Lease::UNTIL_COMMIT).await;
    assert_eq!(
        place.executor.state(&id).await.unwrap(),
        Presence::Present(identity.clone())
    );
    assert_eq!(
        place.executor.list().await.unwrap(),
        std::slice::from_ref(&id)
    );
    let mode = |name: &str| {
        let path = place.directory(&id).join(name);
        std::fs::symlink_metadata(path)
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        [
            mode(""),
            mode("start.json"),
            mode("control.sock"),
            mode("supervisor.log")
        ],
        [0o700, 0o600, 0o600, 0o600]
    );

    let instance = place.executor.connect(&id).await.unwrap();
    let agent = process("agent");
    instance
        .set_environment(&crate::place::environment(&[("GREETING", "hello")]))
        .await
        .unwrap();
    let spec = shell("printf '%s out' \"$GREETING\"; printf err >&2; exit 7");
    let started = instance.start(&agent, &spec).await.unwrap();
    assert!(started.program.is_absolute(), "{started:?}");
    let seen = read(instance.as_ref(), &agent, Offset(0)).await.unwrap();
    assert_eq!(
        (seen.stdout.as_slice(), seen.stderr.as_slice(), seen.exit),
        (&b"hello out"[..], &b"err"[..], Some(ExitStatus::exited(7)))
    );
    assert_eq!(instance.wait(&agent).await.unwrap(), ExitStatus::exited(7));

    let removed = place.executor.delete(&id, Some(&identity)).await.unwrap();
    assert_eq!(removed, Undone::REMOVED);
    assert_eq!(place.executor.state(&id).await.unwrap(), Presence::Absent);
    assert_eq!(place.executor.list().await.unwrap(), []);
    let again = place.executor.delete(&id, Some(&identity)).await.unwrap();
    assert_eq!(again, Undone::AlreadyGone);
    assert!(place.supervisor_pid(&id).is_none());
    // What the process said outlives its instance, also for the controller that was connected.
    for instance in [instance, place.executor.connect(&id).await.unwrap()] {
        let seen = read(instance.as_ref(), &agent, Offset(6)).await.unwrap();
        assert_eq!(
            (seen.stdout.len() + seen.stderr.len(), seen.exit.is_some()),
            (6, true)
        );
    }
}

async fn c07_an_ended_instance_is_read_from_its_logs() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let agent = process("agent");
    instance
        .start(&agent, &shell("echo bye; exit 3"))
        .await
        .unwrap();
    drop(instance);
    // It ends by itself when its main process has ended; the directory stays until it is deleted.
    until("the supervisor ended", || {
        place.supervisor_pid(&id).is_none()
    })
    .await;
    assert!(matches!(
        place.executor.state(&id).await.unwrap(),
        Presence::Present(_)
    ));
    let instance = place.executor.connect(&id).await.unwrap();
    let seen = read(instance.as_ref(), &agent, Offset(0)).await.unwrap();
    assert_eq!(
        (seen.stdout.as_slice(), seen.exit),
        (&b"bye\n"[..], Some(ExitStatus::exited(3)))
    );
    assert_eq!(instance.wait(&agent).await.unwrap(), ExitStatus::exited(3));
    let states = instance.processes().await.unwrap();
    assert_eq!(states.len(), 1);
    assert_eq!(states[0].phase, ProcessPhase::Ended(ExitStatus::exited(3)));
    for error in [
        instance
            .start(&process("more"), &shell("true"))
            .await
            .unwrap_err(),
        instance
            .attach(&agent, Offset(0), Role::Writer)
            .await
            .unwrap_err(),
        instance.signal(&agent, Signal::TERM).await.unwrap_err(),
        instance.shutdown(Duration::ZERO).await.unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (ErrorKind::Unavailable, false)
        );
    }
    let error = instance.wait(&process("never")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(
        place.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    assert!(place.logs(&id).exists());
}

async fn a_silent_instance_leaves_nothing() {
    let (place, id) = (Place::new(), fresh());
    place.create(&id, Lease::Unlimited).await;
    assert_eq!(
        place.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    assert!(!place.logs(&id).exists());
    let left: Vec<_> = std::fs::read_dir(place.root.path().join("instances"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let error = place.executor.connect(&id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn a_taken_id_is_refused_and_left_alone() {
    let (place, id) = (Place::new(), fresh());
    let identity = place.create(&id, Lease::Unlimited).await;
    let error = place
        .executor
        .create(&id, &instance_spec(Lease::Unlimited), &Silent)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(
        place.executor.state(&id).await.unwrap(),
        Presence::Present(identity)
    );
    place.executor.connect(&id).await.unwrap();
}

async fn c04_what_is_not_ours_is_kept() {
    let (place, theirs, mine) = (Place::new(), fresh(), fresh());
    // A directory that somebody made, one of another installation, one with another identity, and a link.
    let directory = place.directory(&theirs);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("work"), "precious").unwrap();
    let identity = place.create(&mine, Lease::Unlimited).await;
    let (name, install) = ("local".parse().unwrap(), "another-install".parse().unwrap());
    let other = LocalExecutor::new(LocalConfig::new(name, place.root.path(), install));
    let link = fresh();
    std::os::unix::fs::symlink(&directory, place.directory(&link)).unwrap();
    let not_ours = |undone: Undone| match undone {
        Undone::NotOurs(why) => why,
        other => panic!("{other:?}"),
    };
    let why = not_ours(place.executor.delete(&theirs, None).await.unwrap());
    assert!(why.contains("work"), "{why}");
    not_ours(
        place
            .executor
            .delete(&theirs, Some(&identity))
            .await
            .unwrap(),
    );
    not_ours(other.delete(&mine, Some(&identity)).await.unwrap());
    not_ours(
        place
            .executor
            .delete(&mine, Some(&Identity("1:2@x".into())))
            .await
            .unwrap(),
    );
    not_ours(place.executor.delete(&link, None).await.unwrap());
    assert_eq!(std::fs::read(directory.join("work")).unwrap(), b"precious");
    assert!(place.directory(&link).is_symlink());
    assert_eq!(
        place.executor.list().await.unwrap(),
        std::slice::from_ref(&mine)
    );
    assert_eq!(other.list().await.unwrap(), []);
    place.executor.connect(&mine).await.unwrap();
    assert_eq!(
        other.connect(&mine).await.unwrap_err().kind(),
        ErrorKind::Conflict
    );
}

async fn f136_after_a_reboot_no_number_of_a_process_means_anything() {
    const OTHER_BOOT: &str = "00000000-0000-4000-8000-000000000000";
    let (place, id) = (Place::new(), fresh());
    let before = place.create(&id, Lease::Unlimited).await;
    let instance = place.executor.connect(&id).await.unwrap();
    let agent = process("agent");
    let started = instance.start(&agent, &shell("sleep 1000")).await.unwrap();
    drop(instance);
    kill(place.supervisor_pid(&id).unwrap()).await;
    until("the agent ended with it", || !runs(started.pid)).await;
    // The machine was started anew, and the agent's number now is a stranger's.
    let stranger = Stranger::new();
    let boot = groundcrew_supervisor::boot_id().unwrap();
    let mut rewritten = 0;
    for (path, number) in [
        (place.directory(&id).join("start.json"), false),
        (place.logs(&id).join("agent").join("state.json"), true),
    ] {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut new = text.replace(&boot, OTHER_BOOT);
        if number {
            let old = format!("\"pid\":{}", started.pid);
            assert!(new.contains(&old), "{new}");
            new = new.replace(&old, &format!("\"pid\":{}", stranger.0.id()));
        }
        assert_ne!(new, text);
        std::fs::write(&path, new).unwrap();
        rewritten += 1;
    }
    assert_eq!(rewritten, 2);
    let instance = place.executor.connect(&id).await.unwrap();
    let states = instance.processes().await.unwrap();
    assert_eq!(states[0].phase, ProcessPhase::Lost);
    let error = instance.signal(&agent, Signal::KILL).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let Presence::Present(after) = place.executor.state(&id).await.unwrap() else {
        panic!("it is there");
    };
    assert_ne!(after, before, "the boot is part of what it is");
    let undone = place.executor.delete(&id, Some(&before)).await.unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    let undone = place.executor.delete(&id, Some(&after)).await.unwrap();
    assert_eq!(undone, Undone::REMOVED);
    assert!(runs(stranger.0.id()), "the stranger got no signal");
    assert_eq!(place.executor.list().await.unwrap(), []);
}

/// A process that is none of ours; it ends with the test.
struct Stranger(std::process::Child);

impl Stranger {
    #[expect(clippy::disallowed_methods, reason = "somebody else's process")]
    fn new() -> Self {
        Self(
            std::process::Command::new("sleep")
                .arg("1000")
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn unknown_is_not_absent() {
    let place = Place::new();
    let away = executor(&place.root.path().join("not-mounted"));
    assert!(matches!(
        away.state(&id("x")).await.unwrap(),
        Presence::Unknown(_)
    ));
    assert!(away.list().await.is_err());
    assert!(away.delete(&id("x"), None).await.is_err());
    // The parent is there and holds no instances: nothing was ever made.
    assert_eq!(
        place.executor.state(&id("x")).await.unwrap(),
        Presence::Absent
    );
    assert_eq!(
        place.executor.delete(&id("x"), None).await.unwrap(),
        Undone::AlreadyGone
    );
    std::fs::write(place.root.path().join("instances"), "a file").unwrap();
    assert!(matches!(
        place.executor.state(&id("x")).await.unwrap(),
        Presence::Unknown(_)
    ));
}

async fn a_part_of_an_instance_is_found_and_removed() {
    let place = Place::new();
    // As far as `create` may have come, and as far as `delete` may have come, when they were killed.
    let (begun, drafted, trashed) = (fresh(), fresh(), fresh());
    std::fs::create_dir_all(place.directory(&begun)).unwrap();
    std::fs::create_dir_all(place.directory(&drafted)).unwrap();
    std::fs::write(place.directory(&drafted).join("start.json.new"), "{").unwrap();
    let identity = place.create(&trashed, Lease::Unlimited).await;
    let instance = place.executor.connect(&trashed).await.unwrap();
    instance.shutdown(Duration::ZERO).await.unwrap();
    until("the supervisor ended", || {
        place.supervisor_pid(&trashed).is_none()
    })
    .await;
    let trash = place
        .directory(&id(&format!("x{trashed}")))
        .with_file_name(format!(".trash-{trashed}"));
    std::fs::rename(place.directory(&trashed), &trash).unwrap();
    std::fs::remove_file(trash.join("start.json")).unwrap();
    for id in [&begun, &drafted, &trashed] {
        assert!(matches!(
            place.executor.state(id).await.unwrap(),
            Presence::Present(_)
        ));
        let error = place
            .executor
            .create(id, &instance_spec(Lease::Unlimited), &Silent)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    }
    assert_eq!(place.executor.list().await.unwrap().len(), 3);
    assert_eq!(
        place.executor.delete(&begun, None).await.unwrap(),
        Undone::REMOVED
    );
    assert_eq!(
        place.executor.delete(&drafted, None).await.unwrap(),
        Undone::REMOVED
    );
    assert_eq!(
        place
            .executor
            .delete(&trashed, Some(&identity))
            .await
            .unwrap(),
        Undone::REMOVED
    );
    assert_eq!(place.executor.list().await.unwrap(), []);
}

async fn unknown_options_are_refused_by_name() {
    let place = Place::new();
    let mut spec = instance_spec(Lease::Unlimited);
    place.executor.check(&spec).unwrap();
    spec.options.insert("gpu".into(), true.into());
    let error = place.executor.check(&spec).unwrap_err();
    assert_eq!(
        (error.kind(), error.get("unknown")),
        (ErrorKind::InvalidInput, Some("gpu"))
    );
    place
        .executor
        .create(&id("x"), &spec, &Silent)
        .await
        .unwrap_err();
    assert!(!place.root.path().join("instances").exists());
}

async fn a_supervisor_that_does_not_come_up_says_why() {
    let place = Place::new();
    let with = |program: &str| {
        let (name, install) = (
            "local".parse().unwrap(),
            "install-of-the-test".parse().unwrap(),
        );
        let mut config = LocalConfig::new(name, place.root.path(), install);
        config.supervisor = SupervisorSource::Path(program.into());
        LocalExecutor::new(config)
    };
    let script = place.root.path().join("program");
    std::fs::write(&script, "#!/bin/sh\necho 'no such luck' >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let create = async |program: &str, name: &str| {
        with(program)
            .create(&id(name), &instance_spec(Lease::Unlimited), &Silent)
            .await
            .unwrap_err()
    };
    let error = create(script.to_str().unwrap(), "x").await;
    assert_eq!(error.get("supervisor_log"), Some("no such luck"), "{error}");
    assert_eq!(error.get("status"), Some("exit status: 3"), "{error}");
    let error = create("/no/such/program", "y").await;
    assert_eq!(error.get("program"), Some("/no/such/program"), "{error}");
    assert_eq!(
        with("/no/such/program").probe().await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    for name in ["x", "y"] {
        assert_eq!(
            place.executor.delete(&id(name), None).await.unwrap(),
            Undone::REMOVED
        );
    }
}

async fn long_paths_are_no_obstacle() {
    let place = Place::new();
    let deep = place
        .root
        .path()
        .join("d".repeat(120))
        .join("e".repeat(120));
    std::fs::create_dir_all(&deep).unwrap();
    let (executor, id) = (executor(&deep), fresh());
    executor
        .create(&id, &instance_spec(Lease::UNTIL_COMMIT), &Silent)
        .await
        .unwrap();
    let instance = executor.connect(&id).await.unwrap();
    instance
        .set_environment(&crate::place::environment(&[]))
        .await
        .unwrap();
    let agent = process("agent");
    instance.start(&agent, &shell("echo deep")).await.unwrap();
    let seen = read(instance.as_ref(), &agent, Offset(0)).await.unwrap();
    assert_eq!(seen.stdout, b"deep\n");
    assert_eq!(executor.delete(&id, None).await.unwrap(), Undone::REMOVED);
}

async fn twenty_instances_at_once() {
    let place = Place::new();
    let one = async |n: usize| {
        let (id, agent) = (fresh(), process("agent"));
        let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
        instance
            .start(&agent, &shell(&format!("echo {n}; cat")))
            .await
            .unwrap();
        assert_eq!(
            place.executor.delete(&id, None).await.unwrap(),
            Undone::REMOVED
        );
        let seen = read(instance.as_ref(), &agent, Offset(0)).await.unwrap();
        assert_eq!(seen.exit.unwrap().cause, EndCause::Stopped);
        assert!(place.supervisor_pid(&id).is_none());
    };
    futures_util::future::join_all((0..20).map(one)).await;
    assert_eq!(place.executor.list().await.unwrap(), []);
}

async fn two_removals_at_once_both_succeed() {
    let place = Place::new();
    for _ in 0..5 {
        let id = fresh();
        let instance = place.instance(&id, Lease::Unlimited).await;
        instance
            .start(&process("agent"), &shell("cat; sleep 1000"))
            .await
            .unwrap();
        let identity = place.executor.state(&id).await.unwrap();
        let Presence::Present(identity) = identity else {
            panic!("{identity:?}")
        };
        let other = executor(place.root.path());
        let removals = futures_util::future::join_all([
            place.executor.delete(&id, Some(&identity)),
            other.delete(&id, Some(&identity)),
            place.executor.delete(&id, None),
        ]);
        for removal in removals.await {
            assert!(
                matches!(removal, Ok(Undone::Removed { .. } | Undone::AlreadyGone)),
                "{removal:?}"
            );
        }
        assert_eq!(place.executor.state(&id).await.unwrap(), Presence::Absent);
    }
}

async fn a_damaged_start_file_is_kept_and_listed() {
    let (place, damaged, empty) = (Place::new(), fresh(), fresh());
    for (id, text) in [(&damaged, "{\"version\":"), (&empty, "")] {
        std::fs::create_dir_all(place.directory(id)).unwrap();
        std::fs::write(place.directory(id).join("start.json"), text).unwrap();
    }
    assert_eq!(place.executor.list().await.unwrap().len(), 2);
    let state = place.executor.state(&damaged).await.unwrap();
    assert!(matches!(state, Presence::Unknown(_)), "{state:?}");
    let error = place.executor.delete(&damaged, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(place.directory(&damaged).exists());
    // A machine that crashed may leave the name without the bytes; then nothing can run on it.
    assert_eq!(
        place.executor.delete(&empty, None).await.unwrap(),
        Undone::REMOVED
    );
}

async fn the_probe_tells_what_the_machine_gives() {
    let place = Place::new();
    let report = place.executor.probe().await.unwrap();
    let names: Vec<&str> = report.facts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "supervisor",
            "instances",
            "kernel",
            "open files",
            "ending trees",
            "limits"
        ]
    );
    assert!(
        !place.root.path().join("instances").exists(),
        "it only looks"
    );
}

async fn f144_no_secret_reaches_a_file_or_an_argument() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let secret = "hunter2-is-the-secret";
    instance
        .set_environment(&crate::place::environment(&[("TOKEN", secret)]))
        .await
        .unwrap();
    instance
        .start(&process("agent"), &shell("cat"))
        .await
        .unwrap();
    let pid = place.supervisor_pid(&id).unwrap();
    let mut texts = vec![std::fs::read(format!("/proc/{pid}/cmdline")).unwrap()];
    match std::fs::read(format!("/proc/{pid}/environ")) {
        Ok(environ) => assert!(environ.is_empty(), "the supervisor has an environment"),
        // Nobody but root may look into it, not even its own user.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    let mut todo = vec![place.root.path().to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                texts.push(std::fs::read(entry.path()).unwrap());
            }
        }
    }
    assert!(texts.len() > 4);
    let found = |text: &Vec<u8>| text.windows(secret.len()).any(|w| w == secret.as_bytes());
    assert!(!texts.iter().any(found));
}
