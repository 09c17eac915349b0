//! How the process of a session is started: the description that a transport gets, and what a host may change in it.

use std::{fmt, path::PathBuf};

use async_trait::async_trait;
use groundcrew_core::{
    command::Command,
    error::Error,
    id::{ProcessId, SessionId},
};

use crate::{settings::SessionSettings, variable::Variable};

/// A process that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchDescription {
    /// The session that it is for.
    pub session: SessionId,
    /// The name that it gets, which no other process has.
    pub process: ProcessId,
    /// The name of the protocol.
    pub protocol: &'static str,
    /// The exact arguments.
    pub command: Vec<groundcrew_core::wire::OsText>,
    /// The working directory, absolute.
    pub directory: PathBuf,
    /// Variables, in order; a later one wins.
    pub environment: Vec<Variable>,
}

/// What a launch hook gets: copies, which change nothing of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// The name of the protocol, such as `codex`.
    pub protocol: &'static str,
    /// Whether the process is started without a protocol's start-up calls.
    pub direct_start: bool,
    /// The session.
    pub settings: SessionSettings,
    /// The arguments so far.
    pub command: Vec<groundcrew_core::wire::OsText>,
    /// The working directory so far.
    pub directory: PathBuf,
    /// The variables so far, in order.
    pub environment: Vec<Variable>,
}

/// What a launch hook gives back: it replaces what there was, wholly.
#[derive(Debug)]
pub struct Prepared {
    /// The arguments; none is none, and no process can be started.
    pub command: Vec<groundcrew_core::wire::OsText>,
    /// The working directory.
    pub directory: PathBuf,
    /// The variables, in order.
    pub environment: Vec<Variable>,
    /// Takes back what the hook made, once the process is gone.
    pub cleanup: Option<Box<dyn LaunchCleanup>>,
}

/// Readies one launch: writes a configuration, chooses credentials.
#[async_trait]
pub trait LaunchHook: fmt::Debug + Send + Sync + 'static {
    /// Readies it; an error aborts the start and is returned as it is.
    ///
    /// * It is awaited to its end also when the start was given up meanwhile, so that what it made is known and taken back.
    /// * A panic is an error of the start.
    async fn prepare(&self, preparation: Preparation) -> Result<Prepared, Error>;
}

/// Takes back what a launch hook made.
///
/// * It runs when the process is gone, or was never started, and is never cancelled.
/// * After an error it is run again with the next close; after success never.
#[async_trait]
pub trait LaunchCleanup: fmt::Debug + Send + Sync + 'static {
    /// Takes it back.
    async fn clean(&self) -> Result<(), Error>;
}

/// A command that was found for an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The command; none keeps that of the settings.
    pub command: Option<Command>,
    /// Variables that it needs, laid behind those of the session.
    pub environment: Vec<Variable>,
}

/// Finds the command of an agent, such as a program that has to be installed first.
#[async_trait]
pub trait CommandResolver: fmt::Debug + Send + Sync + 'static {
    /// Finds it; an error aborts the start before any process.
    async fn resolve(&self, protocol: &str, settings: &SessionSettings) -> Result<Resolved, Error>;
}
