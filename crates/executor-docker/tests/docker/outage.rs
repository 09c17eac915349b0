//! Engines that are not there, freeze or die: each has its own, so that nobody else's suffers.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use groundcrew_core::{
    error::ErrorKind,
    executor::Executor as _,
    identity::{Identity, Presence},
    undo::Undone,
};
use serde_json::json;

use crate::ground::{Ground, Silent, docker, fresh, images, ran, shell, told, until};

/// An engine of one test, with its keeper: whatever becomes of the test, nothing of either stays.
struct Private {
    /// Removed by the keeper, and here if that fails.
    directory: tempfile::TempDir,
    keeper: Child,
    line: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
}

impl Private {
    async fn start() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gc-private")
            .tempdir()
            .unwrap();
        let mut keeper = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--", "sh"])
            .arg(told("GROUNDCREW_TEST_ENGINE_KEEPER"))
            .arg(directory.path())
            .args(["--bridge=none", "--iptables=false", "--ip-forward=false"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(keeper.stdout.take().unwrap());
        let line = keeper.stdin.take().map(|lifeline| (lifeline, answers));
        let engine = Self {
            directory,
            keeper,
            line: Mutex::new(line),
        };
        engine.start_again().await;
        images(&engine.endpoint());
        engine
    }

    fn endpoint(&self) -> String {
        format!("unix://{}/docker.sock", self.directory.path().display())
    }

    /// Has the keeper do something: `freeze`, `thaw`, `kill` or `start`.
    fn tell(&self, word: &str) {
        let mut line = self.line.lock().unwrap();
        let (lifeline, answers) = line.as_mut().unwrap();
        writeln!(lifeline, "{word}").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), word);
    }

    /// Starts it, also after an unclean stop.
    async fn start_again(&self) {
        self.tell("start");
        let endpoint = self.endpoint();
        until("the engine answers", || {
            Command::new("timeout")
                .args(["5", "docker", "-H", &endpoint, "info"])
                .output()
                .is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
        })
        .await;
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The end of its line is the end of everything.
        drop(self.line.get_mut().map(Option::take));
        drop(self.keeper.wait());
    }
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
    // Nothing was ever made here, so nothing can be left; of what was, nobody can tell.
    let undone = ground.executor.delete(&id, None).await.unwrap();
    assert_eq!(undone, Undone::AlreadyGone);
    let known = Identity("0123456789ab".to_owned());
    assert!(ground.executor.delete(&id, Some(&known)).await.is_err());
    fs::create_dir_all(ground.root.path().join("containers").join(id.as_str())).unwrap();
    assert!(ground.executor.delete(&id, None).await.is_err());
    fs::remove_dir_all(ground.root.path().join("containers")).unwrap();
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
        let ground = Ground::at(endpoint);
        let error = ground.executor.check(&ground.spec(json!({}))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
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
            engine.tell("freeze");
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
        engine.tell("thaw");
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
    let engine = Private::start().await;
    let ground = Ground::at(&engine.endpoint());
    let kept = fresh();
    let created = ground.create(&kept, json!({})).await.unwrap();
    let ids: Vec<_> = (0..4).map(|_| fresh()).collect();
    let creating = ids.iter().map(|id| ground.create(id, json!({})));
    let killing = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        engine.tell("freeze");
        engine.tell("kill");
    };
    let (_, ()) = tokio::join!(futures_util::future::join_all(creating), killing);
    assert!(ground.executor.delete(&kept, None).await.is_err());
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
    engine.tell("kill");
    engine.start_again().await;
    assert_eq!(docker(&engine.endpoint(), &["ps", "-aq"]), "");
}
