//! How a supervisor comes up, lives on its own, and ends.

use std::{
    fs::File,
    io::Read as _,
    os::fd::{AsFd as _, AsRawFd as _},
    time::Duration,
};

use futures_util::StreamExt as _;
use groundcrew_core::{
    error::ErrorKind,
    instance::Instance as _,
    process::{EndCause, ExitStatus, Lease, Offset, Role, Signal},
};
use groundcrew_supervisor::StartLock;

use crate::place::{LONG, Place, process, rest, runs, shell, until, written};

fn lock(place: &Place) -> Option<StartLock> {
    StartLock::try_take(File::open(place.root.path()).unwrap()).unwrap()
}

#[tokio::test]
async fn the_lock_on_the_start_file_is_the_sign_of_life() {
    let place = Place::new(Lease::UNTIL_COMMIT, |_| ());
    assert!(lock(&place).is_some());
    let pid = place.spawn().await.unwrap();
    assert!(lock(&place).is_none());
    // A second one on the same file does not come up, neither beside it nor after it.
    let error = place.spawn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    place
        .connect()
        .await
        .unwrap()
        .shutdown(Duration::ZERO)
        .await
        .unwrap();
    until("it ended", || !runs(pid)).await;
    assert!(lock(&place).is_some());
    let error = place.spawn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
}

#[tokio::test]
async fn one_that_finds_its_start_file_taken_waits_for_who_only_looks() {
    let place = Place::new(Lease::UNTIL_COMMIT, |_| ());
    let held = lock(&place).unwrap();
    let release = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(held);
    };
    let (pid, ()) = futures_util::future::join(place.spawn(), release).await;
    assert!(runs(pid.unwrap()));
}

#[tokio::test]
async fn without_a_controller_it_ends_with_its_lease() {
    let place = Place::new(Lease::After(Duration::from_millis(200)), |_| ());
    let pid = place.spawn().await.unwrap();
    until("the lease lapsed", || !runs(pid)).await;
    let error = place.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        place.path("start.json").exists(),
        "only its owner removes an instance"
    );
}

#[tokio::test]
async fn a_controller_that_is_there_keeps_it_alive_and_may_change_the_lease() {
    let (place, instance) = Place::up(Lease::After(Duration::from_secs(1))).await;
    instance
        .set_lease(Lease::After(Duration::ZERO))
        .await
        .unwrap();
    let agent = process("agent");
    instance
        .start(&agent, &shell("cat; sleep 1000"))
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(1), instance.wait(&agent))
        .await
        .unwrap_err();
    drop(instance);
    until("it ended", || lock(&place).is_some()).await;
    let status = groundcrew_supervisor::log::status(&place.path("logs"), &agent).unwrap();
    assert_eq!(status.unwrap().cause, EndCause::LeaseLapsed);
}

#[tokio::test]
async fn it_is_a_session_of_its_own_and_hangups_mean_nothing() {
    let place = Place::new(Lease::UNTIL_COMMIT, |_| ());
    let pid = place.spawn().await.unwrap();
    let instance = place.connect().await.unwrap();
    let number = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    assert_eq!(rustix::process::getsid(Some(number)).unwrap(), number);
    match std::fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(directory) => assert_eq!(directory.to_str(), Some("/")),
        // Nobody but root may look into it, not even its own user.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(name, "groundcrew-sup\n");
    for signal in [
        rustix::process::Signal::HUP,
        rustix::process::Signal::PIPE,
        rustix::process::Signal::QUIT,
    ] {
        rustix::process::kill_process(number, signal).unwrap();
        assert_eq!(instance.processes().await.unwrap(), []);
    }
    let agent = process("agent");
    instance
        .start(&agent, &shell("cat; sleep 1000"))
        .await
        .unwrap();
    // TERM is the polite end, for whoever does not speak the protocol.
    rustix::process::kill_process(number, rustix::process::Signal::TERM).unwrap();
    assert_eq!(
        instance.wait(&agent).await.unwrap().cause,
        EndCause::Stopped
    );
    until("it ended", || !runs(pid)).await;
}

#[tokio::test]
async fn it_holds_no_descriptor_of_its_creator() {
    let place = Place::new(Lease::UNTIL_COMMIT, |_| ());
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    assert!(writer.as_fd().as_raw_fd() > 2);
    let pid = place.spawn().await.unwrap();
    drop(writer);
    let mut reader = File::from(reader);
    let end = tokio::task::spawn_blocking(move || reader.read(&mut [0]));
    let end = tokio::time::timeout(LONG, end)
        .await
        .expect("the pipe never ends")
        .unwrap();
    assert_eq!(end.unwrap(), 0);
    assert!(runs(pid));
}

#[tokio::test]
async fn it_ends_without_readers_that_read_no_more_and_they_lose_nothing() {
    let (place, instance) = Place::up(Lease::Unlimited).await;
    let agent = process("agent");
    let mut spec = shell("head -c 60000000 /dev/zero; read x; exit 5");
    spec.main = true;
    instance.start(&agent, &spec).await.unwrap();
    // Attached, and not read from until the supervisor is gone: more than all buffers hold.
    let stdio = instance
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap();
    written(&instance, 60_000_000).await;
    instance.close_stdin(&agent).await.unwrap();
    instance.wait(&agent).await.unwrap();
    let ended = std::time::Instant::now();
    until("it ended", || lock(&place).is_some()).await;
    assert!(
        ended.elapsed() < Duration::from_secs(4),
        "{:?}",
        ended.elapsed()
    );
    let (bytes, exit) = rest(stdio.output, Offset(0)).await;
    assert_eq!(
        (bytes.len(), exit),
        (60_000_000, Some(ExitStatus::exited(5)))
    );
}

#[tokio::test]
async fn c06_shutdown_does_not_wait_for_readers_that_are_slow_and_they_lose_nothing() {
    let (place, instance) = Place::up(Lease::Unlimited).await;
    let agent = process("agent");
    instance
        .start(
            &agent,
            &shell("head -c 60000000 /dev/zero; exec sleep 1000"),
        )
        .await
        .unwrap();
    written(&instance, 60_000_000).await;
    let viewer = place.connect().await.unwrap();
    let stdio = viewer
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap();
    // One that always takes some more, and would go on for more than five seconds.
    let slow = stdio.output.then(async |frame| {
        tokio::time::sleep(Duration::from_millis(25)).await;
        frame
    });
    let end = async {
        let asked = std::time::Instant::now();
        instance.shutdown(Duration::from_secs(10)).await.unwrap();
        until("it ended", || lock(&place).is_some()).await;
        asked.elapsed()
    };
    let ((bytes, exit), took) =
        futures_util::future::join(rest(std::pin::pin!(slow), Offset(0)), end).await;
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(bytes.len(), 60_000_000);
    assert_eq!(
        exit.map(|exit| (exit.cause, exit.signal)),
        Some((EndCause::Stopped, Some(Signal::TERM)))
    );
}

#[tokio::test]
async fn an_attached_writer_does_not_hold_up_the_end() {
    let (place, instance) = Place::up(Lease::Unlimited).await;
    let agent = process("agent");
    let mut spec = shell("exec sleep 0.3");
    spec.main = true;
    instance.start(&agent, &spec).await.unwrap();
    let stdio = instance
        .attach(&agent, Offset(0), Role::Writer)
        .await
        .unwrap();
    let (_, exit) = rest(stdio.output, Offset(0)).await;
    let ended = std::time::Instant::now();
    until("it ended", || lock(&place).is_some()).await;
    assert_eq!(exit, Some(ExitStatus::exited(0)));
    assert!(
        ended.elapsed() < Duration::from_secs(4),
        "{:?}",
        ended.elapsed()
    );
    drop(stdio.input);
}

#[tokio::test]
async fn shutdown_is_answered_when_nothing_is_left() {
    let (place, instance) = Place::up(Lease::Unlimited).await;
    let agent = process("agent");
    let started = instance
        .start(&agent, &shell("trap '' TERM; cat; sleep 1000"))
        .await
        .unwrap();
    let waiting = instance.wait(&agent);
    let (status, ended) =
        futures_util::future::join(waiting, instance.shutdown(Duration::from_millis(100))).await;
    ended.unwrap();
    assert!(!runs(started.pid));
    assert_eq!(status.unwrap().cause, EndCause::Stopped);
    let error = instance
        .start(&process("late"), &shell("true"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    until("it ended", || lock(&place).is_some()).await;
}

#[tokio::test]
async fn what_comes_too_late_for_an_instance_that_ended_by_itself_is_no_failure() {
    for _ in 0..10 {
        let (place, instance) = Place::up(Lease::Unlimited).await;
        let agent = process("agent");
        let mut spec = shell("read x; exit 3");
        spec.main = true;
        instance.start(&agent, &spec).await.unwrap();
        instance.close_stdin(&agent).await.unwrap();
        // All of them race with the end.
        instance.signal(&agent, Signal::INT).await.unwrap();
        instance.close_stdin(&agent).await.unwrap();
        instance.shutdown(Duration::from_secs(1)).await.unwrap();
        until("it ended", || lock(&place).is_some()).await;
        instance.shutdown(Duration::from_secs(1)).await.unwrap();
        instance.signal(&agent, Signal::INT).await.unwrap();
        instance.close_stdin(&agent).await.unwrap();
        let error = instance.start(&process("late"), &spec).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (ErrorKind::Unavailable, false)
        );
    }
}

#[tokio::test]
async fn a_killed_supervisor_is_no_clean_end() {
    let (place, instance) = Place::up(Lease::Unlimited).await;
    let agent = process("agent");
    instance.start(&agent, &shell("cat")).await.unwrap();
    let hello = place.http("GET /v1", "", "");
    let pid = hello.split("\"pid\":").nth(1).unwrap();
    let pid: i32 = pid.split(',').next().unwrap().parse().unwrap();
    let number = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    until("it was killed", || lock(&place).is_some()).await;
    let error = instance.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = instance.signal(&agent, Signal::INT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
