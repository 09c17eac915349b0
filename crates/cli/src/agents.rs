//! The agent that a command line asks for, if it asks for one: profiles and names of secrets are read, nothing is revealed.

use std::{collections::BTreeSet, os::unix::ffi::OsStrExt as _};

use groundcrew_core::{
    PlanError, error::Error, request::ProfiledAgent, secret::SecretId, store::RunRecord,
    wire::OsText,
};

use crate::{
    agent::{self, Place},
    args::{AgentArgs, CommandArgs, ResumeArgs, RunArgs, WishArgs},
    config::Config,
    failing::Failing,
    profiles::Profiles,
    program::Context,
    variables::caches_directory,
};

/// Returns the agent of `run` and `plan`; none where the words name a command.
///
/// # Errors
///
/// What is wrong with the words, or with the profile.
pub(crate) async fn of_run(
    context: &Context,
    args: &RunArgs,
) -> Result<Option<ProfiledAgent>, Failing> {
    let AgentArgs { agent, wishes } = &args.agent;
    let Some(name) = agent else {
        agent::refuse_lone_wishes(wishes)?;
        return Ok(None);
    };
    let prompt = prompt(context, wishes, &args.command)?;
    let machine = Machine::read(context).await?;
    let asked = agent::fresh(name, wishes, prompt, &args.argv, machine.place());
    asked.map(Some).map_err(all)
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
) -> Result<Option<ProfiledAgent>, Failing> {
    let wishes = &args.wishes;
    let used = match &record.agent {
        Some(used) if args.argv.is_empty() => used,
        _ => {
            agent::refuse_lone_wishes(wishes)?;
            return Ok(None);
        }
    };
    let prompt = prompt(context, wishes, &args.command)?;
    let machine = Machine::read(context).await?;
    let token = record.resume_token.as_deref();
    let asked = agent::resumed(used, wishes, token, prompt, machine.place());
    asked.map(Some).map_err(all)
}

fn prompt(
    context: &Context,
    wishes: &WishArgs,
    command: &CommandArgs,
) -> Result<Option<OsText>, Failing> {
    let payload = |word: &std::ffi::OsString| word.as_bytes().ends_with(b"=-");
    let takers = [
        wishes.prompt.as_ref().is_some_and(|word| word == "-"),
        command.interactive,
        command.payload.iter().any(payload),
    ];
    if takers.iter().filter(|takes| **takes).count() > 1 {
        return Err(Failing::usage(
            "standard input can be given once only: to --prompt -, to --payload KEY=-, or by -i",
        ));
    }
    let read = |word: &std::ffi::OsString| {
        agent::prompt(word, &context.surroundings, &mut std::io::stdin().lock())
    };
    Ok(wishes.prompt.as_ref().map(read).transpose()?)
}

fn all(problems: Vec<Error>) -> Failing {
    let conflicts = Vec::new();
    PlanError {
        problems,
        conflicts,
    }
    .into()
}

/// What an agent depends on that this machine has.
#[derive(Debug)]
struct Machine {
    profiles: Profiles,
    path: Option<std::ffi::OsString>,
    caches: std::path::PathBuf,
    known_secrets: BTreeSet<SecretId>,
}

impl Machine {
    async fn read(context: &Context) -> Result<Self, Failing> {
        let surroundings = &context.surroundings;
        let config = Config::read(surroundings)?;
        let secrets = context.secrets(&surroundings.state_directory()?.join("secrets"))?;
        let entries = secrets.list(None).await?;
        Ok(Self {
            profiles: Profiles::read(surroundings)?,
            path: config.path_before(surroundings.variable("PATH")),
            caches: caches_directory(surroundings)?,
            known_secrets: entries.into_iter().map(|entry| entry.id).collect(),
        })
    }

    fn place(&self) -> Place<'_> {
        Place {
            profiles: &self.profiles,
            path: self.path.as_deref(),
            caches: &self.caches,
            known_secrets: &self.known_secrets,
        }
    }
}
