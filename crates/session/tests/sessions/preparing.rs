//! How launches are readied: hooks, commands, variables, and what is taken back.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use async_trait::async_trait;
use groundcrew_core::{
    command::Command,
    error::{Error, ErrorKind},
};
use groundcrew_session::{
    launch::{CommandResolver, LaunchCleanup, LaunchHook, Preparation, Prepared, Resolved},
    settings::SessionSettings,
    variable::Variable,
};
use tokio::sync::Notify;

use crate::{
    desk::{Desk, key, settings, token},
    script::{Behaviour, Script},
};

/// A hook that does as it is told, and counts.
#[derive(Debug, Default)]
struct Hook {
    seen: Mutex<Vec<Preparation>>,
    fails: bool,
    panics: bool,
    cleanup: Arc<Cleanup>,
}

#[derive(Debug, Default)]
struct Cleanup {
    tries: AtomicU32,
    done: AtomicU32,
    fails: AtomicU32,
    panics: AtomicU32,
    /// Waits for this before it is done.
    gate: Option<Arc<Notify>>,
}

#[derive(Debug)]
struct Shared(Arc<Cleanup>);

#[async_trait]
impl LaunchCleanup for Shared {
    async fn clean(&self) -> Result<(), Error> {
        self.0.tries.fetch_add(1, SeqCst);
        if let Some(gate) = &self.0.gate {
            gate.notified().await;
        }
        let left = |counter: &AtomicU32| {
            counter
                .fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1))
                .is_ok()
        };
        assert!(!left(&self.0.panics), "a cleanup that panics");
        if left(&self.0.fails) {
            return Err(Error::new(ErrorKind::Unexpected, "the file is still there"));
        }
        self.0.done.fetch_add(1, SeqCst);
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("mine")]
struct Mine;

#[async_trait]
impl LaunchHook for Hook {
    async fn prepare(&self, mut preparation: Preparation) -> Result<Prepared, Error> {
        self.seen.lock().unwrap().push(preparation.clone());
        assert!(!self.panics, "a hook that panics");
        if self.fails {
            return Err(Error::new(ErrorKind::PermissionDenied, "no").with_source(Mine));
        }
        // Copies: changing them changes nothing of the engine's.
        preparation.settings.environment.clear();
        preparation.settings.model = Some("other".into());
        let mut environment = preparation.environment;
        environment.push(Variable::new("log_format", "pretty"));
        environment.push(Variable::new("HOOK", "1"));
        Ok(Prepared {
            command: vec!["/opt/other".into(), "serve".into()],
            directory: "/elsewhere".into(),
            environment,
            cleanup: Some(Box::new(Shared(Arc::clone(&self.cleanup)))),
        })
    }
}

fn desk(hook: &Arc<Hook>) -> Desk {
    Desk::changed(|parts| parts.hook = Some(Arc::clone(hook) as _))
}

fn hook_with(cleanup: Cleanup) -> Arc<Hook> {
    Arc::new(Hook {
        cleanup: Arc::new(cleanup),
        ..Hook::default()
    })
}

fn shown(environment: &[Variable]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    environment
        .iter()
        .map(|variable| {
            (
                text(variable.key.as_bytes()),
                text(variable.value.as_bytes()),
            )
        })
        .collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[tokio::test(start_paused = true)]
async fn t01_a_hook_gets_copies_rewrites_the_launch_and_its_cleanup_runs_once_when_the_process_is_gone()
 {
    let hook = Arc::new(Hook::default());
    let desk = desk(&hook);
    let mut wished = settings("s");
    wished.environment = vec![Variable::new("SESSION", "s1")];
    desk.engine.start(wished.clone()).await.unwrap();
    {
        let seen = hook.seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].protocol, "codex");
        assert!(!seen[0].direct_start);
        assert_eq!(seen[0].settings, wished);
    }
    let launches = desk.world.state().launches.clone();
    assert_eq!(launches.len(), 1);
    assert_eq!(launches[0].command, ["/opt/other".into(), "serve".into()]);
    assert_eq!(launches[0].directory, std::path::Path::new("/elsewhere"));
    let environment = shown(&launches[0].environment);
    assert_eq!(
        environment[environment.len() - 4..],
        [
            pair("SESSION", "s1"),
            pair("HOOK", "1"),
            pair("LOG_FORMAT", "json"),
            pair("RUST_LOG", "codex_app_server=info,codex_core=info"),
        ]
    );
    assert_eq!(hook.cleanup.tries.load(SeqCst), 0);
    let thread_start = desk.world.last().called("thread/start", 1).await;
    assert!(
        thread_start["params"].get("model").is_none(),
        "the copy's model is not ours"
    );
    desk.engine.close(&key("s")).await.unwrap();
    desk.engine.close(&key("s")).await.unwrap();
    assert_eq!(hook.cleanup.done.load(SeqCst), 1);
    assert_eq!(hook.cleanup.tries.load(SeqCst), 1);
}

#[derive(Debug)]
struct Resolver(Result<Resolved, ErrorKind>);

#[async_trait]
impl CommandResolver for Resolver {
    async fn resolve(&self, protocol: &str, _: &SessionSettings) -> Result<Resolved, Error> {
        tokio::task::yield_now().await;
        assert_eq!(protocol, "codex");
        self.0
            .clone()
            .map_err(|kind| Error::new(kind, "no command was found"))
    }
}

#[tokio::test(start_paused = true)]
async fn t02_a_resolver_gives_command_and_variables_or_aborts_before_any_process() {
    let found = Resolved {
        command: Some(Command::new(["/opt/codex/bin/codex", "app-server"]).unwrap()),
        environment: vec![
            Variable::new("PATH", "/opt/codex"),
            Variable::new("RUNTIME", "node"),
        ],
    };
    let desk = Desk::changed(|parts| parts.resolver = Some(Arc::new(Resolver(Ok(found)))));
    let mut wished = settings("s");
    wished.environment = vec![Variable::new("SESSION", "s1")];
    desk.engine.start(wished.clone()).await.unwrap();
    let launches = desk.world.state().launches.clone();
    assert_eq!(launches.len(), 1);
    assert_eq!(launches[0].command[0], "/opt/codex/bin/codex".into());
    let environment = shown(&launches[0].environment);
    let order = [
        pair("NO_BROWSER", "1"),
        pair("SESSION", "s1"),
        pair("PATH", "/opt/codex"),
        pair("RUNTIME", "node"),
    ];
    assert_eq!(environment[..4], order);

    let only_variables = Resolved {
        command: None,
        environment: vec![Variable::new("RUNTIME", "node")],
    };
    let desk = Desk::changed(|parts| parts.resolver = Some(Arc::new(Resolver(Ok(only_variables)))));
    desk.engine.start(wished.clone()).await.unwrap();
    let launches = desk.world.state().launches.clone();
    assert_eq!(launches[0].command[0], "codex".into());
    assert!(shown(&launches[0].environment).contains(&pair("RUNTIME", "node")));

    let desk = Desk::changed(|parts| {
        parts.resolver = Some(Arc::new(Resolver(Err(ErrorKind::ProgramNotFound))));
    });
    let error = desk.engine.start(wished).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
    assert_eq!(desk.world.spawned(), 0);
}

#[tokio::test(start_paused = true)]
async fn t03_a_hook_that_fails_or_panics_starts_nothing_and_its_error_is_the_one_returned() {
    let hook = Arc::new(Hook {
        fails: true,
        ..Hook::default()
    });
    let failing = desk(&hook);
    let error = failing.engine.start(settings("s")).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert!(
        source.downcast_ref::<Mine>().is_some(),
        "it is the same error"
    );
    assert_eq!(failing.world.spawned(), 0);
    assert!(!failing.is_live());
    assert_eq!(failing.engine.owned(&key("s")), 0);

    let hook = Arc::new(Hook {
        panics: true,
        ..Hook::default()
    });
    let panicking = desk(&hook);
    let error = panicking.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    let error = panicking.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked, "the lane is free again");
    assert_eq!(panicking.world.spawned(), 0);
}

#[tokio::test(start_paused = true)]
async fn t04_when_the_process_does_not_start_the_cleanup_runs_once_though_the_caller_is_gone() {
    let hook = hook_with(Cleanup::default());
    let failing = desk(&hook);
    failing.world.state().fail_starts = 1;
    let error = failing.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
    assert_eq!(hook.cleanup.done.load(SeqCst), 1);
    assert_eq!(hook.cleanup.tries.load(SeqCst), 1);

    // The caller goes while the process is being started; the cleanup takes its time all the same.
    let gate = Arc::new(Notify::new());
    let hook = hook_with(Cleanup {
        gate: Some(Arc::clone(&gate)),
        ..Cleanup::default()
    });
    let desk = desk(&hook);
    let (go, held) = tokio::sync::watch::channel(false);
    desk.world.state().hold_starts = Some(held);
    desk.world.state().fail_starts = 1;
    let engine = desk.engine.clone();
    let starting = tokio::spawn(async move { engine.start(settings("s")).await });
    crate::desk::settle().await;
    starting.abort();
    starting.await.unwrap_err();
    go.send_replace(true);
    crate::desk::settle().await;
    assert_eq!(hook.cleanup.tries.load(SeqCst), 1);
    assert_eq!(hook.cleanup.done.load(SeqCst), 0);
    gate.notify_one();
    crate::desk::settle().await;
    assert_eq!(hook.cleanup.done.load(SeqCst), 1);
    assert_eq!(hook.cleanup.tries.load(SeqCst), 1);
    assert_eq!(desk.world.spawned(), 0);
}

#[tokio::test(start_paused = true)]
async fn t04_files_stay_for_a_process_that_could_not_be_closed_and_a_cleanup_that_failed_is_tried_again()
 {
    let hook = hook_with(Cleanup {
        fails: AtomicU32::new(1),
        panics: AtomicU32::new(1),
        ..Cleanup::default()
    });
    let desk = desk(&hook);
    let process = desk.start().await;
    desk.world.fail_next_closes(0, 1);
    desk.engine.close(&key("s")).await.unwrap_err();
    assert_eq!(hook.cleanup.tries.load(SeqCst), 0, "the process lives");
    let panicked = desk.engine.close(&key("s")).await.unwrap_err();
    assert_eq!(panicked.kind(), ErrorKind::Panicked);
    desk.engine.close(&key("s")).await.unwrap_err();
    assert_eq!(desk.engine.owned(&key("s")), 1);
    desk.engine.close(&key("s")).await.unwrap();
    assert_eq!(desk.engine.owned(&key("s")), 0);
    assert_eq!(hook.cleanup.tries.load(SeqCst), 3);
    assert_eq!(hook.cleanup.done.load(SeqCst), 1);
    assert_eq!(process.closes(), 2, "what is gone is not closed again");
}

#[tokio::test(start_paused = true)]
async fn t04_the_cleanup_of_a_process_that_did_not_start_is_owned_until_it_succeeded() {
    let hook = hook_with(Cleanup {
        fails: AtomicU32::new(2),
        ..Cleanup::default()
    });
    let desk = desk(&hook);
    desk.world.state().fail_starts = 1;
    desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(desk.engine.owned(&key("s")), 1);
    let pending = desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(pending.get("code"), Some("agent.process_cleanup_pending"));
    assert_eq!(desk.engine.cleanup(1).await.cleaned, 1);
    assert_eq!(hook.cleanup.done.load(SeqCst), 1);
    desk.engine.start(settings("s")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_empty_command_of_a_hook_is_an_error_and_not_the_default() {
    #[derive(Debug)]
    struct Empty;
    #[async_trait]
    impl LaunchHook for Empty {
        async fn prepare(&self, preparation: Preparation) -> Result<Prepared, Error> {
            Ok(Prepared {
                command: Vec::new(),
                directory: preparation.directory,
                environment: preparation.environment,
                cleanup: None,
            })
        }
    }
    let desk = Desk::changed(|parts| parts.hook = Some(Arc::new(Empty)));
    let error = desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(desk.world.spawned(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_runs_behind_a_start_whose_agent_refused() {
    let hook = hook_with(Cleanup::default());
    let desk = desk(&hook);
    desk.world
        .next(Script::default().on("thread/start", Behaviour::Refuse(-32600, "no")));
    desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(hook.cleanup.done.load(SeqCst), 1);
    assert!(desk.world.live().is_empty());
    let without = desk
        .engine
        .resume(settings("s"), token(" "))
        .await
        .unwrap_err();
    assert_eq!(without.get("code"), Some("agent.resume_session_not_local"));
    assert_eq!(
        desk.world.spawned(),
        1,
        "nothing is started without a token"
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_taken_over_after_a_release_in_vain_is_cleaned_up_behind_once() {
    let hook = Arc::new(Hook::default());
    let desk = desk(&hook);
    desk.begin().await.end_turn("completed");
    crate::desk::settle().await;
    desk.world.fail_next_closes(0, 1);
    desk.engine.release(&key("s")).await.unwrap_err();
    assert_eq!(hook.cleanup.tries.load(SeqCst), 0);
    desk.engine.take_over(&key("s")).await.unwrap();
    assert!(desk.is_live());
    assert_eq!(desk.engine.owned(&key("s")), 1, "it has one owner");
    // What is stuck is tried again; this one is not any more.
    assert_eq!(desk.engine.cleanup(9).await.attempted, 0);
    assert!(desk.is_live());
    assert_eq!(desk.world.live(), [0]);
    desk.engine.close(&key("s")).await.unwrap();
    assert!(desk.world.live().is_empty());
    assert_eq!(hook.cleanup.done.load(SeqCst), 1);
    assert_eq!(hook.cleanup.tries.load(SeqCst), 1);
    assert_eq!(desk.engine.owned(&key("s")), 0);
}
