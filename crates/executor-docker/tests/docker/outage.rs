//! Engines that are not there, freeze or die: each has its own, so that nobody else's suffers.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use groundcrew_core::{
    error::ErrorKind, executor::Executor as _, identity::Presence, undo::Undone,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::ground::{Ground, Silent, docker, fresh, images, ran, shell, until};

/// An engine of one test.
struct Private {
    directory: tempfile::TempDir,
    child: Child,
}

impl Private {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = launch(directory.path());
        let engine = Self { directory, child };
        engine.answers().await;
        images(&engine.endpoint());
        engine
    }

    fn endpoint(&self) -> String {
        format!("unix://{}/docker.sock", self.directory.path().display())
    }

    /// The program that gives it a network namespace becomes it.
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    async fn answers(&self) {
        let endpoint = self.endpoint();
        until("the engine answers", || {
            Command::new("timeout")
                .args(["5", "docker", "-H", &endpoint, "info"])
                .output()
                .is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
        })
        .await;
    }

    /// Starts it after an unclean stop; a stale number of a process would keep it from starting its own helper.
    async fn start_again(&mut self) {
        for stale in ["pid", "exec/containerd/containerd.pid"] {
            drop(std::fs::remove_file(self.directory.path().join(stale)));
        }
        self.child = launch(self.directory.path());
        self.answers().await;
    }

    async fn kill_and_start_again(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
        self.start_again().await;
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // Frozen ones would not hear it.
        let pid = Pid::from_child(&self.child);
        let _gone = kill_process(pid, Signal::CONT);
        let _gone = kill_process(pid, Signal::TERM);
        drop(self.child.wait());
        let exec = self.directory.path().join("exec");
        drop(Command::new("umount").arg("-R").arg(&exec).output());
    }
}

fn launch(directory: &std::path::Path) -> Child {
    let at = |name: &str| directory.join(name).display().to_string();
    let log = std::fs::File::create(directory.join("log")).unwrap();
    Command::new("unshare")
        .args([
            "--net",
            "--",
            "dockerd",
            "--bridge=none",
            "--iptables=false",
            "--ip-forward=false",
        ])
        .args([
            "--data-root",
            &at("data"),
            "--exec-root",
            &at("exec"),
            "--pidfile",
            &at("pid"),
        ])
        .args(["-H", &format!("unix://{}", at("docker.sock"))])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(0)
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn f103_needs_docker_without_an_engine_every_verb_says_so() {
    let ground = Ground::at("unix:///nowhere/docker.sock");
    let id = fresh();
    let error = ground.create(&id, json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("DOCKER_HOST"), "{error}");
    let state = ground.executor.state(&id).await.unwrap();
    assert!(matches!(state, Presence::Unknown(_)), "{state:?}");
    assert!(ground.executor.delete(&id, None).await.is_err());
    // Nothing was ever made here, so nothing can be left.
    assert!(ground.executor.list().await.unwrap().is_empty());
    let report = ground.executor.probe().await.unwrap();
    assert!(report.warnings[0].contains("no engine"), "{report:?}");
    let absent = Ground::at("tcp://127.0.0.1:9");
    assert_eq!(
        absent.executor.list().await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    for (endpoint, words) in [
        ("ssh://somewhere", "ssh -L"),
        ("https://somewhere:2376", "TLS"),
        ("npipe://somewhere", "unix://"),
    ] {
        let error = Ground::at(endpoint).executor.list().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f104_heavy_needs_docker_what_a_frozen_engine_makes_late_is_caught() {
    let engine = Private::start().await;
    let ground = Ground::at(&engine.endpoint());
    // It soon gives up; what is meant to succeed has all the time that a busy machine takes.
    let hasty = ground.with_patience(Duration::from_secs(1));
    // Known before, so that only what makes it meets the ice.
    let probe = fresh();
    ground.create(&probe, json!({})).await.unwrap();
    ground.executor.delete(&probe, None).await.unwrap();
    for round in 0..3_u64 {
        let ids: Vec<_> = (0..4).map(|_| fresh()).collect();
        let spec = ground.spec(json!({}));
        let creating = ids.iter().map(|id| hasty.create(id, &spec, &Silent));
        let freezing = async {
            tokio::time::sleep(Duration::from_millis(15 * round)).await;
            engine.signal(Signal::STOP);
        };
        let (made, ()) = tokio::join!(futures_util::future::join_all(creating), freezing);
        for made in &made {
            if let Err(error) = made {
                assert!(
                    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unavailable),
                    "{error}"
                );
            }
        }
        // While it is frozen nothing is known, and nothing forgotten.
        let state = hasty.state(&ids[0]).await.unwrap();
        assert!(matches!(state, Presence::Unknown(_)), "{state:?}");
        assert!(hasty.delete(&ids[0], None).await.is_err());
        assert!(hasty.list().await.is_err());
        engine.signal(Signal::CONT);
        let deletions = ids.iter().map(|id| ground.executor.delete(id, None));
        for undone in futures_util::future::join_all(deletions).await {
            let undone = undone.unwrap();
            assert!(
                matches!(undone, Undone::Removed { .. } | Undone::AlreadyGone),
                "{undone:?}"
            );
        }
        ground.nothing_left();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f105_f106_heavy_needs_docker_an_engine_that_was_killed_is_put_right() {
    let mut engine = Private::start().await;
    let ground = Ground::at(&engine.endpoint());
    let kept = fresh();
    let created = ground.create(&kept, json!({})).await.unwrap();
    let ids: Vec<_> = (0..4).map(|_| fresh()).collect();
    let creating = ids.iter().map(|id| ground.create(id, json!({})));
    let pid = engine.pid();
    let killing = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        kill_process(pid, Signal::STOP).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    };
    let (_, ()) = tokio::join!(futures_util::future::join_all(creating), killing);
    assert!(ground.executor.delete(&kept, None).await.is_err());
    engine.child.wait().unwrap();
    engine.start_again().await;
    let listed = ground.executor.list().await.unwrap();
    assert!(listed.contains(&kept), "{listed:?}");
    for id in listed {
        let identity = (id == kept).then_some(&created.identity);
        ground.executor.delete(&id, identity).await.unwrap();
    }
    ground.nothing_left();
    // It is as good as new.
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    assert_eq!(ran(&*instance, &shell("echo new")).await.0, "new\n");
    ground.executor.delete(&id, None).await.unwrap();
    engine.kill_and_start_again().await;
    assert_eq!(docker(&engine.endpoint(), &["ps", "-aq"]), "");
}
