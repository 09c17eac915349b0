//! The agent that a command line asks for, if it asks for one: profiles and names of secrets are read, nothing is revealed.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, thread};

use groundcrew_core::{
    error::{Error, ErrorKind},
    instance::McpServer,
    profile::SessionRule,
    request::ProfiledAgent,
    secret::SecretId,
    store::RunRecord,
    wire::OsText,
};
use tokio::sync::oneshot;

use crate::{
    agent::{self, Place},
    args::{AgentArgs, Approve, CommandArgs, ResumeArgs, RunArgs, WishArgs},
    exit,
    failing::Failing,
    paths::{absolute, readable},
    program::Context,
    signals::{Signals, leaves, unless_called},
    tool_servers,
    variables::caches_directory,
};

/// What a command line asks of an agent.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The agent; none where the words name a command.
    pub(crate) agent: Option<ProfiledAgent>,
    /// What is said to it, where it holds a conversation.
    pub(crate) conversation: Option<Conversing>,
}

/// How a conversation with an agent is held.
#[derive(Clone, Debug)]
pub(crate) struct Conversing {
    /// How it is spoken to.
    pub(crate) rule: SessionRule,
    /// The model, where the protocol has to say it.
    pub(crate) model: Option<String>,
    /// Who decides what it asks for.
    pub(crate) approve: Approve,
    /// What is said first.
    pub(crate) prompt: Option<String>,
    /// Tool servers that it opens with.
    pub(crate) servers: Vec<McpServer>,
}

/// Returns the agent of `run` and `plan`; none where the words name a command.
///
/// # Errors
///
/// What is wrong with the words, or with the profile.
pub(crate) async fn of_run(
    context: &Context,
    args: &RunArgs,
    signals: &mut Signals,
) -> Result<Asked, Failing> {
    let AgentArgs { agent, wishes } = &args.agent;
    one_reader(wishes, &args.command)?;
    let Some(name) = agent else {
        agent::refuse_lone_wishes(wishes)?;
        return Ok(Asked::default());
    };
    let prompt = prompt(context, wishes, signals).await?;
    let place = place(context).await?;
    let streams = &args.command.streams;
    let own_interface = streams.terminal || streams.interactive;
    let mut agent = agent::fresh(
        name,
        wishes,
        prompt.clone(),
        &args.argv,
        own_interface,
        &place,
    )?;
    agent.used.wishes.home = home(context, wishes)?;
    asked(context, wishes, agent, prompt)
}

/// Returns the agent of `resume`; none where the run had a command, or the words name one.
///
/// # Errors
///
/// As for [`of_run`].
pub(crate) async fn of_resume(
    context: &Context,
    args: &ResumeArgs,
    record: &RunRecord,
    signals: &mut Signals,
) -> Result<Asked, Failing> {
    let wishes = &args.wishes;
    one_reader(wishes, &args.command)?;
    let used = match &record.agent {
        Some(used) if args.argv.is_empty() => used,
        _ => {
            agent::refuse_lone_wishes(wishes)?;
            return Ok(Asked::default());
        }
    };
    let prompt = prompt(context, wishes, signals).await?;
    let place = place(context).await?;
    let token = record.resume_token.as_deref();
    let agent = agent::resumed(used, wishes, token, prompt.clone(), &place)?;
    asked(context, wishes, agent, prompt)
}

/// Adds what is said to an agent that holds a conversation.
fn asked(
    context: &Context,
    wishes: &WishArgs,
    agent: ProfiledAgent,
    prompt: Option<OsText>,
) -> Result<Asked, Failing> {
    let profile = agent.snapshot.as_ref();
    let rule = profile.and_then(|profile| profile.session.clone());
    let rule = rule.filter(|_| agent.used.wishes.conversation);
    let Some(rule) = rule else {
        if wishes.mcp.is_some() {
            return Err(Failing::usage(
                "--mcp is for a conversation with an agent; its own interface reads its own configuration",
            ));
        }
        return Ok(Asked {
            agent: Some(agent),
            conversation: None,
        });
    };
    let text = |prompt: OsText| {
        prompt.0.into_string().map_err(|_| {
            Error::new(
                ErrorKind::InvalidInput,
                "a prompt is text, in UTF-8, and this one is not",
            )
        })
    };
    let default = profile.and_then(|profile| profile.model.default.clone());
    let model = agent.used.wishes.model.clone().or(default);
    let conversation = Conversing {
        model: model.filter(|_| rule.model.is_empty()),
        rule,
        approve: approve(context, wishes),
        prompt: prompt.map(text).transpose()?,
        servers: tool_servers::read(wishes.mcp.as_deref(), &context.surroundings)?,
    };
    Ok(Asked {
        agent: Some(agent),
        conversation: Some(conversation),
    })
}

/// Decides who is asked: a person only where one sits.
fn approve(context: &Context, wishes: &WishArgs) -> Approve {
    wishes.approve.unwrap_or(if context.has_person() {
        Approve::Ask
    } else {
        Approve::Never
    })
}

/// Returns the directory for what the agent keeps, which must be there.
fn home(context: &Context, wishes: &WishArgs) -> Result<Option<OsText>, Error> {
    let Some(word) = &wishes.agent_home else {
        return Ok(None);
    };
    let surroundings = &context.surroundings;
    let path = absolute(word, &surroundings.directory, surroundings.home())?;
    readable("--agent-home", &path)?;
    Ok(Some(OsText::new(path)))
}

/// Returns what is said first, in a thread of its own: standard input, or a pipe, may never end.
async fn prompt(
    context: &Context,
    wishes: &WishArgs,
    signals: &mut Signals,
) -> Result<Option<OsText>, Failing> {
    let Some(word) = wishes.prompt.clone() else {
        return Ok(None);
    };
    let surroundings = context.surroundings.clone();
    let (sender, read) = oneshot::channel();
    thread::Builder::new()
        .name("prompt".into())
        .spawn(move || {
            let stdin = &mut std::io::stdin().lock();
            drop(sender.send(agent::prompt(&word, &surroundings, stdin)));
        })?;
    match unless_called(signals, leaves, read).await {
        Ok(Ok(read)) => Ok(Some(read?)),
        Ok(Err(_)) => Err(Error::new(ErrorKind::Panicked, "reading the prompt broke off").into()),
        Err(call) => Err(Failing::called(
            "the prompt was not read to its end; nothing was said",
            exit::signalled(call.number().0),
        )),
    }
}

/// Refuses words that give standard input to two.
fn one_reader(wishes: &WishArgs, command: &CommandArgs) -> Result<(), Failing> {
    let payloads = command.payload.iter();
    let payloads = payloads
        .filter(|word| word.as_bytes().ends_with(b"=-"))
        .count();
    let prompt = wishes.prompt.as_ref().is_some_and(|word| word == "-");
    if payloads + usize::from(prompt) + usize::from(command.streams.interactive) > 1 {
        return Err(Failing::usage(
            "standard input can be given once only: to --prompt -, to --payload KEY=-, or by -i",
        ));
    }
    Ok(())
}

/// Finds out what an agent depends on that this machine has.
async fn place(context: &Context) -> Result<Place<'_>, Failing> {
    let surroundings = &context.surroundings;
    let secrets = context.secrets()?;
    let entries = secrets.list(None).await?;
    let config = context.settings.config()?;
    let variables = config.secret_variables.iter();
    // Whether a helper has one is only known by asking it for the value, which is too early here.
    let set = |wanted: &OsString| {
        surroundings
            .environment
            .iter()
            .any(|(name, _)| name == wanted)
    };
    let variables = variables.filter(|(_, variable)| set(variable));
    let variables = variables.map(|(name, _)| SecretId::from(name.clone()));
    Ok(Place {
        profiles: context.settings.profiles()?,
        path: config.path_before(surroundings.variable("PATH")),
        caches: caches_directory(surroundings)?,
        known_secrets: entries
            .into_iter()
            .map(|entry| entry.id)
            .chain(variables)
            .collect(),
    })
}
