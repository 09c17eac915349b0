//! What an engine is made of.

use std::{sync::Arc, time::Duration};

use groundcrew_core::redact::Redactor;
use tokio_util::task::TaskTracker;

use super::lanes::Lanes;
use crate::{
    event::SessionSink,
    launch::{CommandResolver, LaunchHook},
    protocol::Protocol,
    state::{MemoryStates, StateStore},
    transport::Transport,
};

/// How long an engine waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// For a turn that was asked to end, before its process is closed.
    pub interrupt: Duration,
    /// For all sessions together to be closed by `shutdown`.
    pub shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            interrupt: Duration::from_secs(3),
            shutdown: Duration::from_secs(15),
        }
    }
}

/// What an engine is made of; all but the protocol and the transport has a default.
#[derive(Debug)]
#[non_exhaustive]
pub struct EngineParts {
    /// How the agent is spoken to.
    pub protocol: Arc<dyn Protocol>,
    /// Where its processes are.
    pub transport: Arc<dyn Transport>,
    /// Where states are kept; in memory by default.
    pub store: Arc<dyn StateStore>,
    /// Who hears events; nobody by default.
    pub sink: Arc<dyn SessionSink>,
    /// Readies launches.
    pub hook: Option<Arc<dyn LaunchHook>>,
    /// Finds commands.
    pub resolver: Option<Arc<dyn CommandResolver>>,
    /// Hides secrets in errors.
    pub redactor: Arc<Redactor>,
    /// How long it waits.
    pub limits: Limits,
}

impl EngineParts {
    /// Makes parts with defaults.
    pub fn new(protocol: Arc<dyn Protocol>, transport: Arc<dyn Transport>) -> Self {
        Self {
            protocol,
            transport,
            store: Arc::new(MemoryStates::default()),
            sink: Arc::new(()),
            hook: None,
            resolver: None,
            redactor: Arc::new(Redactor::default()),
            limits: Limits::default(),
        }
    }
}

/// The engine itself, behind its handles.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) protocol: Arc<dyn Protocol>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) store: Arc<dyn StateStore>,
    pub(super) sink: Arc<dyn SessionSink>,
    pub(super) hook: Option<Arc<dyn LaunchHook>>,
    pub(super) resolver: Option<Arc<dyn CommandResolver>>,
    pub(super) redactor: Arc<Redactor>,
    pub(super) limits: Limits,
    pub(super) tracker: TaskTracker,
    pub(super) lanes: Lanes,
}

impl Inner {
    pub(super) fn new(parts: EngineParts) -> Self {
        Self {
            protocol: parts.protocol,
            transport: parts.transport,
            store: parts.store,
            sink: parts.sink,
            hook: parts.hook,
            resolver: parts.resolver,
            redactor: parts.redactor,
            limits: parts.limits,
            tracker: TaskTracker::new(),
            lanes: Lanes::default(),
        }
    }
}
