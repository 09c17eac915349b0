//! Controllers and supervisors that are killed.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{ExitCode, Stdio},
    time::Duration,
};

use groundcrew_core::{
    error::ErrorKind,
    executor::Executor as _,
    id::InstanceId,
    identity::Presence,
    process::{EndCause, ExitStatus, Lease, Offset, ProcessPhase, Role},
    undo::Undone,
};

use crate::place::{
    LONG, Place, collect, environment, executor, fresh, instance_spec, kill, process, read, runs,
    shell, until,
};

crate::runner::tests![
    c07_a_run_survives_its_killed_controller,
    c07_the_lease_of_a_killed_controller_ends_the_run,
    c07_a_killed_supervisor_leaves_its_process_lost_and_its_tree_is_swept,
    f044_a_killed_supervisor_leaves_no_lock_behind,
    a_supervisor_that_does_not_answer_is_ended_by_force,
    a_supervisor_whose_start_file_is_gone_does_not_come_up,
    f005_what_cannot_be_ended_stays_owned,
];

const CONTROLLER: &str = "controller-of-the-test";

/// Runs as a controller that makes an instance, starts its process and then holds its connection until it is killed.
pub(crate) fn run_if_controller() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(CONTROLLER) {
        return None;
    }
    let (root, id, lease_ms, script) = (
        arguments.next().unwrap(),
        InstanceId::new(arguments.next().unwrap()).unwrap(),
        arguments.next().unwrap().parse().unwrap(),
        arguments.next().unwrap(),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let executor = executor(Path::new(&root));
        let lease = Lease::After(Duration::from_millis(lease_ms));
        executor
            .create(&id, &instance_spec(lease), &crate::place::Silent)
            .await
            .unwrap();
        let instance = executor.connect(&id).await.unwrap();
        instance.set_environment(&environment(&[])).await.unwrap();
        instance
            .start(&process("agent"), &shell(&script))
            .await
            .unwrap();
        let stdio = instance
            .attach(&process("agent"), Offset(0), Role::Writer)
            .await
            .unwrap();
        crate::runner::say(format_args!("attached"));
        collect(stdio.output, Offset(0), |_| false).await.unwrap();
    });
    Some(ExitCode::SUCCESS)
}

/// Starts a controller, waits until it is attached, and kills it.
fn killed_controller(place: &Place, id: &InstanceId, lease: Duration, script: &str) {
    #[expect(
        clippy::disallowed_methods,
        reason = "this test program, in the part of a controller"
    )]
    let mut controller = std::process::Command::new("/proc/self/exe")
        .args([CONTROLLER, place.root.path().to_str().unwrap(), id.as_str()])
        .args([&lease.as_millis().to_string(), script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(controller.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "attached\n");
    controller.kill().unwrap();
    controller.wait().unwrap();
}

async fn c07_a_run_survives_its_killed_controller() {
    let (place, id) = (Place::new(), fresh());
    let go = place.root.path().join("go");
    let script = format!(
        "echo before; while [ ! -e '{}' ]; do sleep 0.02; done; echo after; read x; exit 9",
        go.display()
    );
    killed_controller(&place, &id, LONG, &script);
    let instance = place.executor.connect(&id).await.unwrap();
    std::fs::write(go, "").unwrap();
    let mut stdio = instance
        .attach(&process("agent"), Offset(0), Role::Writer)
        .await
        .unwrap();
    // The killed one did not close the input with its connection.
    let mut input = stdio.input.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut input, b"\n")
        .await
        .unwrap();
    let seen = collect(stdio.output, Offset(0), |_| false).await.unwrap();
    assert_eq!(
        (seen.stdout.as_slice(), seen.exit),
        (&b"before\nafter\n"[..], Some(ExitStatus::exited(9)))
    );
}

async fn c07_the_lease_of_a_killed_controller_ends_the_run() {
    let (place, id) = (Place::new(), fresh());
    killed_controller(&place, &id, Duration::from_millis(200), "cat; sleep 1000");
    until("the supervisor ended", || {
        place.supervisor_pid(&id).is_none()
    })
    .await;
    let instance = place.executor.connect(&id).await.unwrap();
    let status = instance.wait(&process("agent")).await.unwrap();
    assert_eq!(status.cause, EndCause::LeaseLapsed);
}

async fn c07_a_killed_supervisor_leaves_its_process_lost_and_its_tree_is_swept() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let agent = process("agent");
    let script = "setsid sleep 1000 & echo $$ $!; wait";
    instance.start(&agent, &shell(script)).await.unwrap();
    let stdio = instance
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap();
    let seen = collect(stdio.output, Offset(0), |seen| seen.stdout.ends_with(b"\n"))
        .await
        .unwrap();
    let text = String::from_utf8(seen.stdout).unwrap();
    let pids: Vec<u32> = text
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    let [leader, daemon] = pids.as_slice() else {
        panic!("{text:?}")
    };
    let Presence::Present(identity) = place.executor.state(&id).await.unwrap() else {
        panic!()
    };
    let cgroup = std::fs::read_to_string(place.directory(&id).join("cgroup"));
    let has_cgroup = groundcrew_supervisor::tree::probe().unwrap().is_some();
    kill(place.supervisor_pid(&id).unwrap()).await;
    // The direct child dies with it; the instance is still there, and what is known is told.
    until("the direct child ended", || !runs(*leader)).await;
    assert_eq!(
        place.executor.state(&id).await.unwrap(),
        Presence::Present(identity.clone())
    );
    for instance in [instance, place.executor.connect(&id).await.unwrap()] {
        assert_eq!(
            instance.processes().await.unwrap()[0].phase,
            ProcessPhase::Lost
        );
        let error = instance.wait(&agent).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.get("phase")),
            (ErrorKind::Unexpected, Some("lost"))
        );
        let error = instance
            .start(&process("more"), &shell("true"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let error = read(instance.as_ref(), &agent, Offset(0))
            .await
            .unwrap_err();
        assert_eq!(error.get("phase"), Some("lost"));
    }
    assert_eq!(
        place.executor.delete(&id, Some(&identity)).await.unwrap(),
        Undone::REMOVED
    );
    if has_cgroup {
        assert!(!runs(*daemon), "the daemon outlived its instance");
        assert!(!Path::new(&cgroup.unwrap()).exists());
    } else {
        // As the README says: without a cgroup it cannot be found any more, so this test ends it.
        kill(*daemon).await;
    }
}

async fn f044_a_killed_supervisor_leaves_no_lock_behind() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let mut spec = shell("setsid sleep 1000 & echo $!; wait");
    spec.main = false;
    let agent = process("agent");
    instance.start(&agent, &spec).await.unwrap();
    let stdio = instance
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap();
    let seen = collect(stdio.output, Offset(0), |seen| seen.stdout.ends_with(b"\n"))
        .await
        .unwrap();
    let daemon = String::from_utf8(seen.stdout).unwrap();
    let daemon = daemon.trim().parse().unwrap();
    kill(place.supervisor_pid(&id).unwrap()).await;
    // What it started lives on and did not inherit the lock, which is the sign of its life.
    assert!(runs(daemon));
    let directory = std::fs::File::open(place.directory(&id)).unwrap();
    assert!(
        groundcrew_supervisor::StartLock::try_take(&directory)
            .unwrap()
            .is_some()
    );
    assert_eq!(
        place.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    if runs(daemon) {
        kill(daemon).await;
    }
}

async fn a_supervisor_that_does_not_answer_is_ended_by_force() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let mut spec = shell("trap '' TERM; echo $$; cat; sleep 1000");
    spec.main = false;
    instance.start(&process("agent"), &spec).await.unwrap();
    let pid = place.supervisor_pid(&id).unwrap();
    // Nobody reaches it any more, and it lives.
    std::fs::remove_file(place.directory(&id).join("control.sock")).unwrap();
    assert!(runs(pid));
    assert_eq!(
        place.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    assert!(!runs(pid));
    let instance = place.executor.connect(&id).await.unwrap();
    // It was asked with TERM, so it could end its process in good order.
    assert_eq!(
        instance.wait(&process("agent")).await.unwrap().cause,
        EndCause::Stopped
    );
}

async fn a_supervisor_whose_start_file_is_gone_does_not_come_up() {
    let (place, id) = (Place::new(), fresh());
    place.create(&id, Lease::Unlimited).await;
    let start_file = place.directory(&id).join("start.json");
    assert_eq!(
        place.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    let log = tempfile::tempfile().unwrap();
    let source = groundcrew_supervisor::SupervisorSource::SelfExec;
    let error = groundcrew_supervisor::spawn(&source, &start_file, log, LONG)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

async fn f005_what_cannot_be_ended_stays_owned() {
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    if !freezer.join("cgroup.procs").exists() || !rustix::process::geteuid().is_root() {
        crate::runner::say(format_args!(
            "SKIPPED f005_what_cannot_be_ended_stays_owned: it needs root and a freezer of cgroup v1"
        ));
        return;
    }
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let started = instance
        .start(&process("agent"), &shell("sleep 1000"))
        .await
        .unwrap();
    let frozen = freezer.join(format!("groundcrew-{id}"));
    std::fs::create_dir(&frozen).unwrap();
    std::fs::write(frozen.join("cgroup.procs"), started.pid.to_string()).unwrap();
    std::fs::write(frozen.join("freezer.state"), "FROZEN").unwrap();
    let outcome = instance.shutdown(Duration::from_millis(100)).await;
    let still = place.executor.state(&id).await.unwrap();
    let supervisor = place.supervisor_pid(&id);
    std::fs::write(frozen.join("freezer.state"), "THAWED").unwrap();
    until("thawed and dead", || !runs(started.pid)).await;
    std::fs::remove_dir(&frozen).unwrap();
    let error = outcome.unwrap_err();
    assert!(
        error
            .get("survivors")
            .unwrap()
            .contains(&started.pid.to_string()),
        "{error}"
    );
    assert!(matches!(still, Presence::Present(_)) && supervisor.is_some());
    assert_eq!(
        place.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
}
