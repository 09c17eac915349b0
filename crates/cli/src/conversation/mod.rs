//! Conversations with agents: a run whose agent is spoken to in its protocol.
//!
//! * The agent is the run's own process, launched as every agent; here it is only spoken to.
//! * The conversation's name is the run's resume token: it is written down as soon as the agent gives it, and nothing but a
//!   new conversation replaces it.

pub(crate) mod desk;
mod hiding;
mod person;
pub(crate) mod states;
mod talk;
mod teller;

use std::sync::Arc;

use groundcrew_core::{
    command::Command,
    error::{Error, ErrorKind},
    executor::Isolation,
    handshake::Greeting,
    process::Offset,
    redact::Redactor,
    store::RunRecord,
};
use groundcrew_session::{
    acp::Acp,
    codex::Codex,
    engine::{Adopted, Engine, EngineParts},
    event::SessionEvent,
    protocol::Protocol,
    settings::{Access, Approve, SessionSettings},
    transport::{InstanceOptions, InstanceTransport},
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::{
    agents::Conversing,
    args::Approve as Wished,
    program::{Context, Crew},
};

pub(crate) use talk::{Ending, Talk, carry_out, read_decision};
pub(crate) use teller::{Teller, TurnReport};

/// The protocols that there are, by the names that profiles use.
const PROTOCOLS: [&str; 2] = ["acp", "codex"];

/// Finds a protocol.
///
/// # Errors
///
/// `Unsupported`, with those that there are.
pub(crate) fn protocol(name: &str) -> Result<Arc<dyn Protocol>, Error> {
    match name {
        "acp" => Ok(Arc::new(Acp)),
        "codex" => Ok(Arc::new(Codex::default())),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            "the profile's agent speaks a protocol that this program does not",
        )
        .with("protocol", name)
        .with("known", PROTOCOLS.join(", "))),
    }
}

/// Returns whether a run is one of a conversation.
pub(crate) fn is_conversation(record: &RunRecord) -> bool {
    let used = record.agent.as_ref();
    used.is_some_and(|used| used.wishes.conversation)
}

/// Refuses a run that is none of a conversation.
///
/// # Errors
///
/// `Unsupported`, with the run.
pub(crate) fn check(record: &RunRecord) -> Result<(), Error> {
    if is_conversation(record) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "the run holds no conversation: its agent is not spoken to in a protocol; see `run --agent … --prompt …`",
    )
    .with("run", &record.run))
}

/// What an engine says, in order.
pub(crate) type Events = UnboundedReceiver<SessionEvent>;

/// Makes an engine for the agent of a run that is up.
///
/// # Errors
///
/// When its protocol is not known, or its instance cannot be reached.
pub(crate) async fn engine(
    crew: &Crew,
    record: &RunRecord,
    held: &Conversing,
    redactor: &Redactor,
) -> Result<(Engine, Events), Error> {
    let protocol = protocol(&held.rule.protocol)?;
    let instance = crew.launcher.instance(record).await?;
    let mut options = InstanceOptions::default();
    if let Some(stop) = held.rule.stop {
        options.stop = stop.into();
    }
    let (sink, events) = unbounded_channel();
    let mut parts = EngineParts::new(
        protocol,
        Arc::new(InstanceTransport::new(instance, options)),
    );
    parts.store = Arc::new(states::FileStates::new(states::directory(&crew.home)?));
    parts.sink = Arc::new(sink);
    parts.redactor = Arc::new(redactor.clone());
    Ok((Engine::new(parts), events))
}

/// Says how the agent of a run is spoken to.
///
/// # Errors
///
/// When the run has no command or no workspace, which one of an agent has.
pub(crate) fn settings(
    crew: &Crew,
    record: &RunRecord,
    held: &Conversing,
) -> Result<SessionSettings, Error> {
    let lacks = |what| Error::new(ErrorKind::Unexpected, what).with("run", &record.run);
    let words = record.command.clone();
    let words = words.ok_or_else(|| lacks("the run of a conversation has no command"))?;
    let workspace = record.workspace.as_ref();
    let workspace = workspace.ok_or_else(|| lacks("the run of a conversation has no workspace"))?;
    let command = Command::new(words)?;
    let mut settings = SessionSettings::new(record.session.clone(), command, &workspace.directory);
    settings.model.clone_from(&held.model);
    settings.approve = match held.approve {
        Wished::Never => Approve::Never,
        Wished::Ask => Approve::Ask,
        Wished::Always => Approve::Always,
    };
    let executor = &crew.launcher.registry().get(&record.executor)?.executor;
    // Where the instance is the isolation, the agent's own sandbox has nothing to add, and often cannot be had.
    settings.access = match executor.capabilities().isolation {
        Isolation::Process => Access::Auto,
        _ => Access::Full,
    };
    settings.mcp_servers.clone_from(&held.servers);
    if !held.rule.login.is_empty() {
        let ways = json!(held.rule.login);
        settings.options.insert("authenticate".to_owned(), ways);
    }
    Ok(settings)
}

/// Says in the words of the command who decides.
pub(crate) const fn wished(approve: Approve) -> Wished {
    match approve {
        Approve::Ask => Wished::Ask,
        Approve::Always => Wished::Always,
        // What is new to us decides nothing.
        _ => Wished::Never,
    }
}

/// Says which process of the run is the agent, and what it answered already.
///
/// # Errors
///
/// None that can occur.
pub(crate) fn adopted(record: &RunRecord, greeting: Option<Greeting>) -> Result<Adopted, Error> {
    let process = record.agent_process()?;
    let (greeting, behind) = match greeting {
        Some(Greeting { result, behind, .. }) => (Some(result), behind),
        None => (None::<Value>, Offset::default()),
    };
    Ok(Adopted {
        process,
        greeting,
        behind,
    })
}

/// Returns what hides the secrets of a run that is up.
///
/// # Errors
///
/// When the store of secrets cannot tell.
pub(crate) async fn hidden(
    context: &Context,
    crew: &Crew,
    record: &RunRecord,
) -> Result<Redactor, Error> {
    let redactor = crew.launcher.redactor(record).await?;
    context.console.hide(redactor.clone());
    Ok(redactor)
}
