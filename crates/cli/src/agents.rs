//! The agent that a command line asks for, if it asks for one: profiles and names of secrets are read, nothing is revealed.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _};

use groundcrew_core::{
    error::Error, request::ProfiledAgent, secret::SecretId, store::RunRecord, wire::OsText,
};

use crate::{
    agent::{self, Place},
    args::{AgentArgs, CommandArgs, ResumeArgs, RunArgs, WishArgs},
    failing::Failing,
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
    one_reader(wishes, &args.command)?;
    let Some(name) = agent else {
        agent::refuse_lone_wishes(wishes)?;
        return Ok(None);
    };
    let prompt = prompt(context, wishes)?;
    let place = place(context).await?;
    let asked = agent::fresh(name, wishes, prompt, &args.argv, &place);
    asked.map(Some).map_err(Failing::from)
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
    one_reader(wishes, &args.command)?;
    let used = match &record.agent {
        Some(used) if args.argv.is_empty() => used,
        _ => {
            agent::refuse_lone_wishes(wishes)?;
            return Ok(None);
        }
    };
    let prompt = prompt(context, wishes)?;
    let place = place(context).await?;
    let token = record.resume_token.as_deref();
    let asked = agent::resumed(used, wishes, token, prompt, &place);
    asked.map(Some).map_err(Failing::from)
}

fn prompt(context: &Context, wishes: &WishArgs) -> Result<Option<OsText>, Error> {
    let read =
        |word: &OsString| agent::prompt(word, &context.surroundings, &mut std::io::stdin().lock());
    wishes.prompt.as_ref().map(read).transpose()
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
