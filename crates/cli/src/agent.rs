//! Makes the core's inputs of `--agent` and what goes with it; looks for the agent's program, and touches nothing.

#![cfg_attr(
    not(test),
    expect(dead_code, reason = "`run`, `plan` and `resume` are to call it")
)]

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io::Read,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

use groundcrew_core::{
    command::{Command, MAX_ARGUMENT_LEN},
    env::{Definition, Key},
    error::{Error, ErrorKind},
    id::{ExecutorName, ProfileName},
    process::StopOrder,
    profile::{
        AgentCommand, AgentProfile, AgentUse, CommandWishes, DefinitionInputs, DroppedFlag, Host,
        ProfileUse, PromptRule,
    },
    request::ManagedCache,
    secret::SecretId,
    wire::OsText,
};

use crate::{
    args::{AgentArgs, Approve},
    failing::Failing,
    paths::absolute,
    profiles::Profiles,
    surroundings::Surroundings,
};

/// The largest prompt that is read; one that becomes an argument has the kernel's smaller limit.
const MAX_PROMPT: u64 = 16 * 1024 * 1024;

/// What was found out about the place before an agent's command is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The profiles.
    pub profiles: &'a Profiles,
    /// The `PATH` of the command to be, on this machine; none where the executor runs elsewhere.
    pub path: Option<&'a OsStr>,
    /// Whether the executor runs on this machine.
    pub here: bool,
    /// The executor that was asked for.
    pub executor: Option<&'a ExecutorName>,
    /// Where our cache directories are.
    pub caches: &'a Path,
    /// The variables that the command inherits.
    pub inherited: &'a BTreeSet<Key>,
    /// Which of [`AgentProfile::candidates`] exist.
    pub known_secrets: &'a BTreeSet<SecretId>,
}

/// What a launch of an agent is made of.
#[derive(Clone, Debug)]
pub(crate) struct AgentLaunch {
    /// What is stored with the run.
    pub used: AgentUse,
    /// The profile: what it strips, and which credentials it needs.
    pub profile: AgentProfile,
    /// The command.
    pub command: Command,
    /// What goes to its standard input, to the end.
    pub stdin: Option<Vec<u8>>,
    /// Flags that are left out; each is a warning.
    pub dropped: Vec<DroppedFlag>,
    /// Variables, to be composed with those of the request.
    pub environment: Vec<Definition>,
    /// Cache directories.
    pub caches: Vec<ManagedCache>,
    /// How it is ended.
    pub stop: StopOrder,
    /// The executor, if the profile or the request names one.
    pub executor: Option<ExecutorName>,
}

/// Makes the launch of `run --agent` and `plan --agent`; `extra` is what stands behind `--`.
///
/// # Errors
///
/// Everything that is wrong with the profile and the wishes, at once.
pub(crate) fn fresh(
    name: &ProfileName,
    args: &AgentArgs,
    prompt: Option<OsText>,
    extra: &[OsString],
    place: Place<'_>,
) -> Result<AgentLaunch, Vec<Error>> {
    let wishes = CommandWishes {
        extra: extra.iter().cloned().map(OsText::from).collect(),
        model: args.model.clone(),
        auto_approve: args.approve == Some(Approve::Always),
        version: args.agent_version.clone(),
        prompt,
        ..CommandWishes::default()
    };
    let profiles = ProfileUse::new(name.clone(), None, None);
    launch(AgentUse { profiles, wishes }, Going::Start, place)
}

/// Makes the launch of `resume` for a run that was one of an agent.
///
/// * With a token that the profile can use, the agent goes on with that conversation.
/// * Else its continue command is run, and where there is none its start command again; neither holds the token.
///
/// # Errors
///
/// As for [`fresh`].
pub(crate) fn resumed(
    used: &AgentUse,
    args: &AgentArgs,
    token: Option<&str>,
    prompt: Option<OsText>,
    place: Place<'_>,
) -> Result<AgentLaunch, Vec<Error>> {
    let mut used = used.clone();
    let profile = place.profiles.get(&used.profiles.execution)?;
    let token = token.filter(|token| !token.is_empty());
    let resumes = token.is_some()
        && profile.resume.supported != Some(false)
        && !profile.resume.arguments.is_empty();
    let going = if !resumes && profile.continue_command.is_some() {
        Going::Continue
    } else {
        Going::Start
    };
    let wishes = &mut used.wishes;
    wishes.resume_token = token.map(str::to_owned);
    match going {
        Going::Start => wishes.prompt = prompt,
        Going::Continue => wishes.follow_up = prompt,
    }
    if let Some(model) = &args.model {
        wishes.model = Some(model.clone());
    }
    if let Some(approve) = args.approve {
        wishes.auto_approve = approve == Approve::Always;
    }
    if let Some(version) = &args.agent_version {
        wishes.version = Some(version.clone());
    }
    launch(used, going, place)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    Start,
    Continue,
}

fn launch(used: AgentUse, going: Going, place: Place<'_>) -> Result<AgentLaunch, Vec<Error>> {
    let profile = place.profiles.get(&used.profiles.execution)?.clone();
    let mut problems = profile.check();
    // A flag that is wrong is left out with a warning; everything else that is wrong stops us here.
    problems.retain(|error| error.get("in") != Some("flags"));
    let prompts = [&used.wishes.prompt, &used.wishes.follow_up];
    let prompts = prompts.into_iter().flatten();
    problems.extend(prompts.filter_map(|prompt| check_prompt(&profile, prompt).err()));
    if !problems.is_empty() {
        return Err(problems);
    }
    let executor = profile
        .executor_for(place.executor)
        .map(Option::<&ExecutorName>::cloned);
    let executor = executor.unwrap_or_else(|error| {
        problems.push(error);
        None
    });
    let host = if place.here {
        here(&profile, place.path)
    } else {
        Host::Elsewhere
    };
    let wishes = &used.wishes;
    let command = AgentCommand {
        profile: &profile,
        wishes,
        host: &host,
    };
    let built = command.build().map_err(|more| problems.extend(more)).ok();
    let inputs = DefinitionInputs {
        wishes,
        inherited: place.inherited,
        known_secrets: place.known_secrets,
    };
    let environment = profile
        .definitions(inputs)
        .map_err(|more| problems.extend(more))
        .ok();
    let (Some(built), Some(environment), true) = (built, environment, problems.is_empty()) else {
        return Err(problems);
    };
    let (command, stdin) = match (going, built.continued) {
        (Going::Continue, Some(continued)) => (continued, built.continued_stdin),
        (Going::Continue | Going::Start, _) => (built.start, built.stdin),
    };
    Ok(AgentLaunch {
        command,
        stdin,
        dropped: built.dropped,
        environment,
        caches: profile.managed_caches(place.caches),
        stop: profile.stop.into(),
        executor,
        profile,
        used,
    })
}

/// Returns this machine as the command of a profile sees it: its program in `PATH`, where a package could supply it as well.
pub(crate) fn here(profile: &AgentProfile, path: Option<&OsStr>) -> Host {
    let program = profile
        .package
        .as_ref()
        .map(|package| OsStr::new(&package.program));
    Host::Here {
        native: program.and_then(|program| native(program, path?)),
    }
}

/// Looks for a program; places that are no absolute path are passed over, for they depend on where one stands.
fn native(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| is_program(path));
    }
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Refuses what needs `--agent` and stands without it.
///
/// # Errors
///
/// When a wish stands alone.
pub(crate) fn refuse_lone_wishes(args: &AgentArgs) -> Result<(), Failing> {
    let lone = [
        ("--model", args.model.is_some()),
        ("--approve", args.approve.is_some()),
        ("--prompt", args.prompt.is_some()),
        ("--agent-version", args.agent_version.is_some()),
    ];
    match lone.iter().find(|(_, given)| *given) {
        Some((flag, _)) if args.agent.is_none() => Err(Failing::usage(format!(
            "{flag} needs --agent; see `groundcrew profile ls`"
        ))),
        _ => Ok(()),
    }
}

/// Reads a prompt: text, `@FILE`, or standard input for `-`; it is taken as it is, to the last byte.
///
/// # Errors
///
/// When it cannot be read or is too large.
pub(crate) fn prompt(
    word: &OsStr,
    surroundings: &Surroundings,
    stdin: &mut dyn Read,
) -> Result<OsText, Error> {
    let bytes = word.as_bytes();
    if bytes == b"-" {
        return bounded(stdin, "standard input");
    }
    let Some(file) = bytes.strip_prefix(b"@") else {
        return Ok(OsText::new(word));
    };
    let path = absolute(
        OsStr::from_bytes(file),
        &surroundings.directory,
        surroundings.home(),
    )?;
    let failed =
        |e| Error::io("failed to read the file of the prompt", e).with("path", path.display());
    let mut file = std::fs::File::open(&path).map_err(failed)?;
    bounded(&mut file, &path.display().to_string())
}

fn bounded(from: &mut dyn Read, what: &str) -> Result<OsText, Error> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_PROMPT + 1).read_to_end(&mut bytes);
    read.map_err(|e| Error::io("failed to read the prompt", e).with("from", what))?;
    if bytes.len() as u64 > MAX_PROMPT {
        let error = Error::new(ErrorKind::TooLarge, "the prompt is too large");
        return Err(error.with("from", what).with("limit", MAX_PROMPT));
    }
    Ok(OsText(OsString::from_vec(bytes)))
}

/// Says, for a prompt that is too large for an argument, what to do instead.
fn check_prompt(profile: &AgentProfile, prompt: &OsText) -> Result<(), Error> {
    let size = prompt.as_bytes().len();
    if matches!(profile.prompt, Some(PromptRule::Argument(_))) && size >= MAX_ARGUMENT_LEN {
        return Err(Error::new(
            ErrorKind::TooLarge,
            "the prompt is longer than an argument can be; put it in a file of the workspace and name the file in the prompt",
        )
        .with("profile", &profile.name)
        .with("bytes", size)
        .with("limit", MAX_ARGUMENT_LEN - 1));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
