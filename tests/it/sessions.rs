//! Sessions of a program that links the library, on real processes: whatever a call comes to, nothing of the agent's tree is
//! left that nobody owns.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use groundcrew_core::{
    command::Command,
    env::Environment,
    executor::{Executor as _, InstanceSpec, Limits, Progress},
    id::{AttemptId, ExecutorName, InstanceId, RunId, SessionId},
    process::Lease,
};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_session::{
    Engine,
    codex::Codex,
    engine::EngineParts,
    settings::{ConversationId, SessionSettings},
    transport::{CloseLadder, InstanceOptions, InstanceTransport},
};
use groundcrew_state::StateDirectory;
use groundcrew_supervisor::SupervisorSource;

use crate::ground::{Ground, until};

/// An agent that speaks as Codex does, ends neither with its input nor when it is asked to, and whose tools left its group and
/// its session: one with its parent, one without.
const AGENT: &str = r#"#!/bin/sh
trap '' TERM HUP INT
setsid sleep 7101 &
(setsid sleep 7102 &)
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
    case $line in
    *'"thread/start"'* | *'"thread/resume"'*) printf '{"id":%s,"result":{"thread":{"id":"c1"}}}\n' "$id" ;;
    *) [ -z "$id" ] || printf '{"id":%s,"result":{}}\n' "$id" ;;
    esac
done
sleep 7103
sleep 7104
"#;

struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
}

/// An instance with an engine in it.
struct Place {
    ground: Ground,
    executor: LocalExecutor,
    instance: InstanceId,
    engine: Engine,
    agent: Command,
}

impl Place {
    async fn new() -> Self {
        let ground = Ground::new();
        let agent = Command::new([ground.script("stubborn", AGENT).into_os_string()]).unwrap();
        let home = ground.root().join("library");
        let state = StateDirectory::open(&home).unwrap();
        let name = ExecutorName::new("local").unwrap();
        let mut config = LocalConfig::new(name, &home, state.install().clone());
        config.supervisor =
            SupervisorSource::Path(env!("CARGO_BIN_EXE_groundcrew-under-test").into());
        let executor = LocalExecutor::new(config);
        let instance = AttemptId::generate().unwrap().instance();
        let spec = InstanceSpec {
            install: state.install().clone(),
            run: RunId::generate().unwrap(),
            session: SessionId::new("s").unwrap(),
            workspace: Some(ground.root().to_owned()),
            shared: Vec::new(),
            lease: Lease::Unlimited,
            limits: Limits::default(),
            options: serde_json::Map::new(),
        };
        executor.create(&instance, &spec, &Silent).await.unwrap();
        let within = executor.connect(&instance).await.unwrap();
        let variables = ground.environment().into_iter();
        let mut environment = Environment::new();
        for (name, value) in variables.filter(|(name, _)| name == "PATH" || name == "HOME") {
            let key = groundcrew_core::env::Key::new(name).unwrap();
            environment.set(key, value.into_encoded_bytes());
        }
        within.set_environment(&environment).await.unwrap();
        let mut options = InstanceOptions::default();
        options.ladder = CloseLadder {
            eof: Duration::from_millis(50),
            signal: Duration::from_millis(50),
            // On a machine that does much else.
            kill: Duration::from_secs(30),
        };
        let transport = InstanceTransport::new(within, options);
        let parts = EngineParts::new(Arc::new(Codex::default()), Arc::new(transport));
        Self {
            engine: Engine::new(parts),
            ground,
            executor,
            instance,
            agent,
        }
    }

    fn settings(&self, session: &str) -> SessionSettings {
        let session = SessionId::new(session).unwrap();
        SessionSettings::new(session, self.agent.clone(), self.ground.root())
    }

    /// Counts what /proc has of agents and of what they started; the supervisor is neither.
    fn count(&self) -> usize {
        let of_agent = |words: &str| words.contains("stubborn") || words.contains("sleep 710");
        let all = self.ground.processes();
        all.iter().filter(|found| of_agent(&found.words)).count()
    }

    /// Waits until nothing of any agent is there; what is on its way out may take its time.
    fn until_nothing_runs(&self, when: &str) {
        until(&format!("{when}: nothing of it runs"), || self.count() == 0);
    }

    async fn end(self) {
        self.executor.delete(&self.instance, None).await.unwrap();
        self.ground.until_quiet();
    }
}

fn key(session: &str) -> SessionId {
    SessionId::new(session).unwrap()
}

/// Lets a call go on for some polls, each after something happened or a moment passed, then drops it; tells whether it was done.
async fn dropped_after(polls: usize, call: impl Future) -> bool {
    let mut call = pin!(call);
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_end_a_session_ends_the_whole_tree_of_an_agent_that_listens_to_nothing() {
    let place = Place::new().await;
    let engine = &place.engine;
    engine.start(place.settings("closed")).await.unwrap();
    until("the agent and its tools run", || place.count() == 3);
    engine.close(&key("closed")).await.unwrap();
    assert_eq!(place.count(), 0, "close returned before they were gone");
    engine.start(place.settings("released")).await.unwrap();
    engine.release(&key("released")).await.unwrap();
    place.until_nothing_runs("released");
    engine.start(place.settings("gone")).await.unwrap();
    engine.disconnect(&key("gone")).await.unwrap();
    place.until_nothing_runs("disconnected");
    // The one that follows takes the place of the one before, with its tree.
    engine.start(place.settings("twice")).await.unwrap();
    engine.start(place.settings("twice")).await.unwrap();
    let again = ConversationId("c1".to_owned());
    let again = engine.resume(place.settings("twice"), Some(again)).await;
    again.unwrap();
    until("one agent and its tools run", || place.count() == 3);
    engine.shutdown().await;
    place.until_nothing_runs("shut down");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_or_a_resume_that_is_dropped_anywhere_leaves_nothing_in_proc() {
    let place = Place::new().await;
    let engine = &place.engine;
    let session = key("s");
    let mut dropped = 0;
    for polls in 0.. {
        let done = dropped_after(polls, engine.start(place.settings("s"))).await;
        if done {
            break;
        }
        place.until_nothing_runs(&format!("a start dropped after {polls} polls"));
        until("it owns nothing", || engine.owned(&session) == 0);
        dropped += 1;
    }
    assert!(dropped >= 4, "it was dropped at {dropped} places");
    until("the agent and its tools run", || place.count() == 3);
    let mut dropped = 0;
    for polls in 0.. {
        let again = Some(ConversationId("c1".to_owned()));
        let resume = engine.resume(place.settings("s"), again);
        if dropped_after(polls, resume).await {
            break;
        }
        // The one before serves on, or nothing does.
        let serves = || if engine.is_live(&session) { 3 } else { 0 };
        until("what serves is all there is", || place.count() == serves());
        dropped += 1;
    }
    assert!(dropped >= 4, "it was dropped at {dropped} places");
    engine.close(&session).await.unwrap();
    assert_eq!(place.count(), 0);
    place.end().await;
}
