//! An engine with everything a test looks at.

use std::{sync::Arc, time::Duration};

use groundcrew_core::{command::Command, id::SessionId};
use groundcrew_session::{
    Engine,
    codex::Codex,
    engine::{EngineParts, Opening},
    event::{EventKind, SessionEvent},
    settings::{ConversationId, Prompt, SessionSettings},
    state::{MemoryStates, StateStore},
};
use tokio::sync::{Mutex, mpsc};

use crate::{process::FakeProcess, transport::FakeTransport, world::World};

pub(crate) struct Desk {
    pub(crate) world: Arc<World>,
    pub(crate) store: Arc<dyn StateStore>,
    pub(crate) engine: Engine,
    events: Mutex<mpsc::UnboundedReceiver<SessionEvent>>,
}

pub(crate) fn key(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub(crate) fn settings(name: &str) -> SessionSettings {
    let command = Command::new(["codex", "app-server"]).unwrap();
    SessionSettings::new(key(name), command, "/w")
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a resume takes one that may be missing"
)]
pub(crate) fn token(name: &str) -> Option<ConversationId> {
    Some(ConversationId(name.to_owned()))
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::with(Arc::default(), Arc::new(MemoryStates::default()), |_| {})
    }

    /// Makes one with its parts changed.
    pub(crate) fn changed(change: impl FnOnce(&mut EngineParts)) -> Self {
        Self::with(Arc::default(), Arc::new(MemoryStates::default()), change)
    }

    pub(crate) fn with(
        world: Arc<World>,
        store: Arc<dyn StateStore>,
        change: impl FnOnce(&mut EngineParts),
    ) -> Self {
        let (sink, events) = mpsc::unbounded_channel();
        let transport = Arc::new(FakeTransport(Arc::clone(&world)));
        let mut parts = EngineParts::new(Arc::new(Codex::default()), transport);
        parts.store = Arc::clone(&store);
        parts.sink = Arc::new(sink);
        change(&mut parts);
        Self {
            world,
            store,
            engine: Engine::new(parts),
            events: Mutex::new(events),
        }
    }

    /// Makes the controller that comes after this one, in the same world.
    pub(crate) fn successor(&self) -> Self {
        Self::with(Arc::clone(&self.world), Arc::clone(&self.store), |_| {})
    }

    pub(crate) async fn start(&self) -> Arc<FakeProcess> {
        let opening = self.engine.start(settings("s")).await.unwrap();
        assert!(matches!(opening, Opening::Ready { .. }), "{opening:?}");
        self.world.last()
    }

    /// Starts a session, and a turn in it.
    pub(crate) async fn begin(&self) -> Arc<FakeProcess> {
        let process = self.start().await;
        self.engine
            .prompt(&key("s"), Prompt::new("go"))
            .await
            .unwrap();
        process
    }

    pub(crate) fn is_live(&self) -> bool {
        self.engine.is_live(&key("s"))
    }

    /// Returns the next event that is wanted; the others before it are passed over.
    pub(crate) async fn event<T>(
        &self,
        what: &str,
        mut find: impl FnMut(&SessionEvent) -> Option<T>,
    ) -> T {
        let mut events = self.events.lock().await;
        let mut passed = Vec::new();
        let waiting = async {
            loop {
                let event = events.recv().await.unwrap();
                if let Some(found) = find(&event) {
                    return found;
                }
                passed.push(event);
            }
        };
        match tokio::time::timeout(Duration::from_mins(10), waiting).await {
            Ok(found) => found,
            Err(late) => panic!("never {what} ({late}); passed {passed:#?}"),
        }
    }

    /// Returns the name of the request that is asked next.
    pub(crate) async fn asked(&self) -> groundcrew_session::request::InteractiveRequest {
        self.event("asked", |event| match &event.kind {
            EventKind::Asked { request } => Some(request.clone()),
            _ => None,
        })
        .await
    }

    /// Returns what was told and not looked at yet.
    pub(crate) async fn told(&self) -> Vec<SessionEvent> {
        let mut events = self.events.lock().await;
        std::iter::from_fn(|| events.try_recv().ok()).collect()
    }
}

/// Lets everything that can go on do so.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
