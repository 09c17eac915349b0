//! Programs that are bad, slow, lying and dying: each gives an error of a kind, in time, and leaves no process.
#![expect(clippy::unwrap_used, reason = "helpers beside the tests")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::{Executor as _, InstanceSpec, Limits, Progress},
    id::{AttemptId, ExecutorName, InstallId, InstanceId, RunId, SessionId},
    identity::Presence,
    process::Lease,
};
use groundcrew_executor_exec::{ExecConfig, ExecExecutor};

const DESCRIBES: &str = r#"*'"describe"'*) echo '{"ok":{"protocol":1,"capabilities":{"isolation":"process"},"private_directory":"/i/{instance}"}}' ;;"#;

/// A program in shell that describes itself well, and then does this for any other verb; `$ask` is the request.
struct Ground {
    directory: tempfile::TempDir,
}

struct Unheard;

impl Progress for Unheard {
    fn line(&self, _: &str) {}
}

impl Ground {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn open(&self, script: &str) -> Result<ExecExecutor, Error> {
        let install = InstallId::generate().unwrap();
        let command = vec![
            "sh".into(),
            "-c".into(),
            script.into(),
            self.directory.path().into(),
        ];
        let name = ExecutorName::new("program").unwrap();
        let mut config = ExecConfig::new(name, command, install, "/nowhere/supervisor");
        config.variables = vec![("PATH".into(), "/usr/bin:/bin".into())];
        config.patience = Duration::from_secs(20);
        config.long_patience = Duration::from_secs(20);
        ExecExecutor::open(config)
    }

    fn program(&self, others: &str) -> ExecExecutor {
        self.open(&format!(
            "read -r ask; case $ask in {DESCRIBES} {others} esac"
        ))
        .unwrap()
    }

    /// Asks for the state of an instance by a program whose every answer is this.
    async fn state(&self, does: &str) -> Error {
        let executor = self.program(&format!("*) {does} ;;"));
        executor.state(&id()).await.unwrap_err()
    }
}

fn id() -> InstanceId {
    AttemptId::generate().unwrap().instance()
}

fn spec() -> InstanceSpec {
    InstanceSpec {
        install: InstallId::generate().unwrap(),
        run: RunId::new("run").unwrap(),
        session: SessionId::new("session").unwrap(),
        workspace: None,
        shared: Vec::new(),
        lease: Lease::Unlimited,
        limits: Limits::default(),
        options: serde_json::Map::new(),
    }
}

fn is_running(mark: &Path) -> bool {
    let mark = mark.as_os_str().as_encoded_bytes();
    std::fs::read_dir("/proc").unwrap().any(|entry| {
        let words = std::fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        words.windows(mark.len()).any(|window| window == mark)
    })
}

#[tokio::test]
async fn nonsense_is_a_protocol_error_that_shows_it() {
    let ground = Ground::new();
    for (does, shown) in [
        ("echo gibberish", "gibberish"),
        ("echo '{\"maybe\":1}'", "maybe"),
        ("printf '\\377\\376\\n'", "line="),
        (
            "echo '{\"ok\":{\"presence\":\"somewhere\"}}'",
            "not what was asked for",
        ),
        (
            "echo '{\"ok\":{\"presence\":\"present\"}}'",
            "not what was asked for",
        ),
        (
            "echo '{\"ok\":{\"presence\":\"absent\"}}'; echo more",
            "behind its answer",
        ),
        ("head -c 3000000 /dev/zero | tr '\\0' x", "too long"),
        ("yes '{\"progress\":\"x\"}'", "without an end"),
    ] {
        let error = ground.state(does).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{does}: {error}");
        assert!(error.to_string().contains(shown), "{does}: {error}");
        assert_eq!(error.get("verb"), Some("state"), "{error}");
    }
}

#[tokio::test]
async fn one_that_dies_is_unavailable_and_says_its_last_words() {
    let ground = Ground::new();
    for (does, told) in [
        (
            "echo the disk is on fire >&2; exit 3",
            "the disk is on fire",
        ),
        ("kill -9 $$", "signal: 9"),
        ("exit 0", "without an answer"),
        (
            "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo last >&2; exit 1",
            "last",
        ),
    ] {
        let error = ground.state(does).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{does}: {error}");
        assert!(error.to_string().contains(told), "{does}: {error}");
        assert!(error.to_string().len() < 4000);
    }
    let gone = ground.open("exit 1").unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn one_that_is_missing_is_unavailable_and_not_tried_again() {
    let name = ExecutorName::new("program").unwrap();
    let install = InstallId::generate().unwrap();
    let command = vec!["/nowhere/at/all".into()];
    let config = ExecConfig::new(name, command, install, "/nowhere/supervisor");
    let error = ExecExecutor::open(config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        !error.is_retryable() && error.to_string().contains("/nowhere/at/all"),
        "{error}"
    );
}

#[tokio::test]
async fn one_that_is_slow_is_timed_out_and_killed() {
    let ground = Ground::new();
    let install = InstallId::generate().unwrap();
    // It waits for a word that never comes.
    let script = format!("read -r ask; case $ask in {DESCRIBES} *) read -r never ;; esac");
    let mark = ground.directory.path().join("slow");
    let command = vec!["sh".into(), "-c".into(), script.into(), mark.clone().into()];
    let name = ExecutorName::new("program").unwrap();
    let config = ExecConfig::new(name, command, install, "/nowhere/supervisor");
    let executor = ExecExecutor::open(config)
        .unwrap()
        .with_patience(Duration::from_millis(300));
    let began = Instant::now();
    let error = executor.state(&id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(began.elapsed() < Duration::from_secs(20));
    while is_running(&mark) {
        assert!(began.elapsed() < Duration::from_secs(20), "it still runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_it_says_it_made_or_removed_is_asked_for() {
    let ground = Ground::new();
    let executor = ground.program(
        r#"*'"check"'*) echo '{"ok":null}' ;;
           *'"create"'*) echo '{"ok":{"identity":"a"}}' ;;
           *'"delete"'*) echo '{"ok":{"undone":"removed"}}' ;;
           *'"state"'*) echo '{"ok":{"presence":"present","identity":"b"}}' ;;
           *'"list"'*) echo '{"ok":["../etc"]}' ;;
           *'"connect"'*) echo '{"ok":{}}' ;;"#,
    );
    let made = executor.create(&id(), &spec(), &Unheard).await.unwrap_err();
    assert!(made.message().contains("does not know it then"), "{made}");
    let deleted = executor.delete(&id(), None).await.unwrap_err();
    assert!(deleted.message().contains("still knows it"), "{deleted}");
    let listed = executor.list().await.unwrap_err();
    let reached = executor.connect(&id()).await.unwrap_err();
    for error in [made, deleted, listed, reached] {
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
    let state = executor.state(&id()).await.unwrap();
    assert!(matches!(state, Presence::Present(_)));
}

#[tokio::test]
async fn its_own_errors_keep_their_kind_and_unknown_kinds_are_told() {
    let ground = Ground::new();
    let own = r#"echo '{"error":{"kind":"permission_denied","message":"ask somebody else","retryable":false}}'"#;
    let error = ground.state(own).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(error.message(), "ask somebody else");
    assert!(!error.is_retryable());
    let odd = r#"echo '{"error":{"kind":"lost_in_space","message":"m"}}'"#;
    let error = ground.state(odd).await;
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("lost_in_space"), "{error}");
}

#[test]
fn another_version_and_a_wrong_directory_are_refused_when_it_is_opened() {
    let ground = Ground::new();
    let describe = |protocol: u32, directory: &str| {
        let text = format!(
            r#"{{"ok":{{"protocol":{protocol},"capabilities":{{"isolation":"process"}},"private_directory":"{directory}"}}}}"#
        );
        ground.open(&format!("read -r ask; echo '{text}'"))
    };
    assert!(describe(1, "/i/{instance}").is_ok());
    for (protocol, directory) in [(2, "/i/{instance}"), (1, "i/{instance}"), (1, "/i")] {
        let error = describe(protocol, directory).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
}

#[tokio::test]
async fn nothing_of_our_environment_reaches_it() {
    let ground = Ground::new();
    let told = r#"env > "$0/env"; echo '{"ok":{"presence":"absent"}}'"#;
    let executor = ground.program(&format!("*) {told} ;;"));
    executor.state(&id()).await.unwrap();
    let found = std::fs::read_to_string(ground.directory.path().join("env")).unwrap();
    let ours: Vec<&str> = found
        .lines()
        .filter(|line| line.contains("CARGO"))
        .collect();
    assert!(
        ours.is_empty() && found.contains("PATH=/usr/bin:/bin"),
        "{found}"
    );
}
