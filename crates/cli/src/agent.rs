//! Makes the core's inputs of `--agent` and what goes with it; looks for the agent's program, and touches nothing.

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
    command::MAX_ARGUMENT_LEN,
    error::{Error, ErrorKind},
    id::{ExecutorName, ProfileName},
    profile::{AgentProfile, AgentUse, CommandWishes, ManagedPackage, ProfileUse, PromptRule},
    request::ProfiledAgent,
    secret::SecretId,
    wire::OsText,
};

use crate::{
    args::{Approve, WishArgs},
    bounded,
    failing::Failing,
    paths::absolute,
    profiles::Profiles,
    surroundings::Surroundings,
};

/// The largest prompt that is read; one that becomes an argument has the kernel's smaller limit.
const MAX_PROMPT: u64 = 16 * 1024 * 1024;

/// What was found out about the place before an agent is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    /// The profiles.
    pub profiles: &'a Profiles,
    /// The `PATH` of the command to be, on this machine.
    pub path: Option<OsString>,
    /// Where our cache directories are.
    pub caches: PathBuf,
    /// Which of [`AgentProfile::candidates`] exist.
    pub known_secrets: BTreeSet<SecretId>,
}

/// Makes what `run --agent` and `plan --agent` ask for; `extra` is what stands behind `--`.
///
/// * An agent that can be spoken to, and gets a prompt, holds a conversation, unless its own interface is wanted.
///
/// # Errors
///
/// Everything that is wrong with the profile, at once; whether it can do what is wanted is found out when it is planned.
pub(crate) fn fresh(
    name: &ProfileName,
    args: &WishArgs,
    prompt: Option<OsText>,
    extra: &[OsString],
    own_interface: bool,
    place: &Place<'_>,
) -> Result<ProfiledAgent, Vec<Error>> {
    let speaks = place.profiles.get(name)?.session.is_some();
    let conversation = speaks && prompt.is_some() && !own_interface;
    let wishes = CommandWishes {
        extra: extra.iter().cloned().map(OsText::from).collect(),
        model: args.model.clone(),
        auto_approve: args.approve == Some(Approve::Always) && !conversation,
        version: args.agent_version.clone(),
        program: args.agent_program.clone().map(OsText::from),
        conversation,
        prompt: prompt.filter(|_| !conversation),
        ..CommandWishes::default()
    };
    let profiles = ProfileUse::new(name.clone(), None, None);
    asked(AgentUse { profiles, wishes }, false, place)
}

/// Makes what `resume` asks for, for a run that was one of an agent.
///
/// * With a token that the profile can use, the agent goes on with that conversation.
/// * Else its continue command is run, and where there is none its start command again; neither holds the token.
///
/// # Errors
///
/// As for [`fresh`].
pub(crate) fn resumed(
    used: &AgentUse,
    args: &WishArgs,
    token: Option<&str>,
    prompt: Option<OsText>,
    place: &Place<'_>,
) -> Result<ProfiledAgent, Vec<Error>> {
    let mut used = used.clone();
    let profile = place.profiles.get(&used.profiles.execution)?;
    let token = token.filter(|token| !token.is_empty());
    let wishes = &mut used.wishes;
    // A conversation is gone on with in its protocol; no word of the command says which.
    let token = token.filter(|_| !wishes.conversation);
    let prompt = prompt.filter(|_| !wishes.conversation);
    let resumes = token.is_some_and(|token| profile.resume.takes(token));
    wishes.resume_token = token.map(str::to_owned);
    // The prompt belongs to the command that is going to be run.
    if !resumes && profile.continue_command.is_some() {
        wishes.follow_up = prompt;
    } else {
        wishes.prompt = prompt;
    }
    if let Some(model) = &args.model {
        wishes.model = Some(model.clone());
    }
    if let Some(approve) = args.approve {
        wishes.auto_approve = approve == Approve::Always && !wishes.conversation;
    }
    if let Some(version) = &args.agent_version {
        wishes.version = Some(version.clone());
        wishes.program = None;
    }
    if let Some(program) = &args.agent_program {
        wishes.program = Some(OsText::from(program.clone()));
        wishes.version = None;
    }
    asked(used, true, place)
}

fn asked(used: AgentUse, follow_up: bool, place: &Place<'_>) -> Result<ProfiledAgent, Vec<Error>> {
    let mut profile = place.profiles.get(&used.profiles.execution)?.clone();
    let mut problems = profile.check();
    if used.wishes.conversation {
        profile = profile.spoken().map_err(|error| vec![error])?;
    }
    // A flag that is wrong is left out with a warning; everything else that is wrong stops us here.
    problems.retain(|error| error.get("in") != Some("flags"));
    let prompts = [&used.wishes.prompt, &used.wishes.follow_up];
    let prompts = prompts.into_iter().flatten();
    problems.extend(prompts.filter_map(|prompt| check_prompt(&profile, prompt).err()));
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(ProfiledAgent {
        native: native(&profile, place.path.as_deref()),
        known_secrets: place.known_secrets.clone(),
        caches: Some(place.caches.clone()),
        snapshot: Some(profile),
        follow_up,
        used,
    })
}

/// Decides the executor: the one that the profile demands, else the one that was asked for, if any.
///
/// # Errors
///
/// When another one was asked for than the profile demands.
pub(crate) fn executor(
    agent: &ProfiledAgent,
    asked: Option<&ExecutorName>,
) -> Result<Option<ExecutorName>, Error> {
    match &agent.snapshot {
        Some(profile) => profile
            .executor_for(asked)
            .map(Option::<&ExecutorName>::cloned),
        None => Ok(asked.cloned()),
    }
}

/// Looks for the program of a profile whose package could supply it as well; a wrapper is looked behind.
pub(crate) fn native(profile: &AgentProfile, path: Option<&OsStr>) -> Option<PathBuf> {
    let package = profile.package.as_ref()?;
    let found = search(OsStr::new(&package.program), path?)?;
    Some(behind(package, &found).unwrap_or(found))
}

/// Looks for the program that a wrapper of npm's would start: npm puts it beside the wrapper, or below it.
fn behind(package: &ManagedPackage, wrapper: &Path) -> Option<PathBuf> {
    let modules = OsStr::new("node_modules");
    let wrapper = wrapper.canonicalize().ok()?;
    let installed = wrapper
        .ancestors()
        .any(|at| at.file_name() == Some(modules));
    let places = wrapper.ancestors().skip(1).filter(|_| installed);
    places
        .flat_map(|at| {
            package
                .native
                .iter()
                .map(|name| at.join(modules).join(name))
        })
        .find(|path| is_program(path))
}

/// Looks for a program; places that are no absolute path are passed over, for they depend on where one stands.
fn search(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
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
pub(crate) fn refuse_lone_wishes(args: &WishArgs) -> Result<(), Failing> {
    let lone = [
        ("--model", args.model.is_some()),
        ("--approve", args.approve.is_some()),
        ("--prompt", args.prompt.is_some()),
        ("--mcp", args.mcp.is_some()),
        ("--agent-version", args.agent_version.is_some()),
        ("--agent-program", args.agent_program.is_some()),
        ("--agent-home", args.agent_home.is_some()),
    ];
    match lone.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failing::usage(format!(
            "{flag} is for a run of an agent; see --agent and `groundcrew profile ls`"
        ))),
        None => Ok(()),
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
        return of_source(stdin, "standard input");
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
    of_source(&mut file, &path.display().to_string())
}

fn of_source(from: &mut dyn Read, what: &str) -> Result<OsText, Error> {
    let bytes = bounded::read(from, MAX_PROMPT)
        .map_err(|e| Error::io("failed to read the prompt", e).with("from", what))?;
    let bytes = bytes.ok_or_else(|| {
        let error = Error::new(ErrorKind::TooLarge, "the prompt is too large");
        error.with("from", what).with("limit", MAX_PROMPT)
    })?;
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
