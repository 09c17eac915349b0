//! Makes the agent of a request: its command, its variables, its caches, all before anything exists; reads only.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    command::Command,
    env::{Composition, Definition, Key, Tier},
    error::{Error, ErrorKind},
    handshake::Handshake,
    process::{StdinPolicy, StdioKind, StopOrder},
    profile::{
        AgentCommand, AgentProfile, AgentUse, BuiltCommand, DefinitionInputs, Host,
        ProfileDirectory,
    },
    registry::Registration,
    request::{AgentProgram, AgentSpec, LaunchRequest, ManagedCache, Mode, ProfiledAgent},
};

/// The agent that a plan starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedAgent {
    /// The exact arguments.
    pub command: Command,
    /// Its standard streams.
    pub stdio: StdioKind,
    /// Whether it gets input.
    pub stdin: StdinPolicy,
    /// Ends it this long after its start.
    pub time_limit: Option<Duration>,
    /// Ends it once it wrote nothing and got no input for that long.
    pub idle_limit: Option<Duration>,
    /// How it is ended.
    pub stop: StopOrder,
    /// Who it is and what was wanted, where a profile says how it is run.
    pub used: Option<AgentUse>,
    /// What it must answer before it counts as started.
    pub handshake: Option<Handshake>,
    /// What goes to its standard input, to the end, when it runs: a prompt, where the profile takes it there.
    pub(crate) prompt: Option<Vec<u8>>,
}

/// The agent and what comes with it.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) agent: Option<PlannedAgent>,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) caches: Vec<ManagedCache>,
    pub(crate) warnings: Vec<String>,
    pub(crate) profile: Option<AgentProfile>,
}

/// Decides the agent of a request.
///
/// # Errors
///
/// All problems at once.
pub(crate) async fn decide(
    profiles: &dyn ProfileDirectory,
    registration: &Registration,
    request: &LaunchRequest,
) -> Result<Decided, Vec<Error>> {
    let Mode::Agent(spec) = &request.mode else {
        return Ok(Decided::default());
    };
    match &spec.program {
        AgentProgram::Command(command) => Ok(Decided {
            agent: Some(PlannedAgent {
                command: command.clone(),
                stdio: spec.stdio,
                stdin: spec.stdin,
                time_limit: spec.time_limit,
                idle_limit: spec.idle_limit,
                stop: spec.stop.clone().unwrap_or_default(),
                used: None,
                handshake: None,
                prompt: None,
            }),
            ..Decided::default()
        }),
        AgentProgram::Profile(wanted) => {
            profiled_agent(profiles, registration, request, spec, wanted).await
        }
    }
}

async fn profiled_agent(
    profiles: &dyn ProfileDirectory,
    registration: &Registration,
    request: &LaunchRequest,
    spec: &AgentSpec,
    wanted: &ProfiledAgent,
) -> Result<Decided, Vec<Error>> {
    let used = &wanted.used;
    let profile = used
        .profiles
        .profile(wanted.snapshot.clone(), profiles)
        .await
        .map_err(|error| vec![error])?;
    let mut problems = Vec::new();
    problems.extend(profile.executor_for(Some(&request.executor)).err());
    let host = if registration.executor.capabilities().host_paths {
        Host::Here {
            native: wanted.native.clone(),
        }
    } else {
        Host::Elsewhere
    };
    let command = AgentCommand {
        profile: &profile,
        wishes: &used.wishes,
        host: &host,
    };
    let built = command.build().map_err(|found| problems.extend(found)).ok();
    let inherited = inherited(registration, request, &profile);
    let inputs = DefinitionInputs {
        wishes: &used.wishes,
        inherited: &inherited,
        known_secrets: &wanted.known_secrets,
    };
    let definitions = profile.definitions(inputs).unwrap_or_else(|found| {
        problems.extend(found);
        Vec::new()
    });
    // Nobody may have looked at a profile that does not come from a file, and nothing else would stop this.
    problems.extend(profile.cache_problems());
    problems.extend(profile.handshake_problems());
    let Some(built) = built else {
        return Err(problems);
    };
    let warnings = built.dropped.iter().map(ToString::to_string).collect();
    let agent = chosen(&profile, spec, wanted, built);
    problems.extend(terminal_problem(&agent));
    if !problems.is_empty() {
        return Err(problems);
    }
    let caches = wanted.caches.iter();
    let caches = caches
        .flat_map(|root| profile.managed_caches(root))
        .collect();
    Ok(Decided {
        agent: Some(agent),
        definitions: [definitions, identity(used)].concat(),
        caches,
        warnings,
        profile: Some(profile),
    })
}

/// Takes the command that is to be started now: that of a follow-up goes on with earlier work where there is one.
fn chosen(
    profile: &AgentProfile,
    spec: &AgentSpec,
    wanted: &ProfiledAgent,
    built: BuiltCommand,
) -> PlannedAgent {
    let (command, prompt) = match &built.continued {
        // A conversation that is gone on with by its token needs no other command.
        Some(continued) if wanted.follow_up && !built.resumes => {
            (continued.clone(), built.continued_stdin)
        }
        _ => (built.start, built.stdin),
    };
    PlannedAgent {
        command,
        stdio: spec.stdio,
        stdin: if prompt.is_some() || profile.handshake.is_some() {
            StdinPolicy::Open
        } else {
            spec.stdin
        },
        time_limit: spec.time_limit,
        idle_limit: spec.idle_limit,
        stop: spec.stop.clone().unwrap_or_else(|| profile.stop.into()),
        used: Some(wanted.used.clone()),
        handshake: profile.handshake.clone(),
        prompt,
    }
}

/// A prompt on standard input needs that input for itself, and an end; a protocol is spoken over pipes.
fn terminal_problem(agent: &PlannedAgent) -> Option<Error> {
    let StdioKind::Terminal(_) = agent.stdio else {
        return None;
    };
    let why = if agent.prompt.is_some() {
        "the profile takes its prompt on standard input, which a terminal cannot end; ask for no terminal"
    } else if agent.handshake.is_some() {
        "the agent speaks a protocol on its standard streams; ask for no terminal"
    } else {
        return None;
    };
    Some(Error::new(ErrorKind::InvalidInput, why))
}

/// Returns the variables that will be inherited.
fn inherited(
    registration: &Registration,
    request: &LaunchRequest,
    profile: &AgentProfile,
) -> BTreeSet<Key> {
    if !registration.executor.capabilities().inherits_environment {
        return BTreeSet::new();
    }
    let inherited = request
        .environment
        .iter()
        .filter(|definition| definition.tier == Tier::Inherited);
    inherited
        .map(|definition| definition.key.clone())
        .filter(|key| !profile.strips(key))
        .collect()
}

/// Says who the agent is; the stable profile stays the same whatever it is run by.
fn identity(used: &AgentUse) -> Vec<Definition> {
    let names = [
        ("GROUNDCREW_AGENT_PROFILE_ID", &used.profiles.agent),
        ("GROUNDCREW_EXECUTION_PROFILE_ID", &used.profiles.execution),
    ];
    let define = |(key, name): (&str, &crate::id::ProfileName)| {
        Some(Definition::literal(
            Key::new(key).ok()?,
            name.as_str(),
            Tier::Identity,
            "the run itself",
        ))
    };
    names.into_iter().filter_map(define).collect()
}

impl Decided {
    /// Returns whether an inherited variable must not reach the agent.
    pub(crate) fn strips(&self, key: &Key) -> bool {
        self.profile
            .as_ref()
            .is_some_and(|profile| profile.strips(key))
    }

    /// Returns an error for each credential that the agent needs and nobody gives.
    pub(crate) fn missing_credentials(&self, composition: &Composition) -> Vec<Error> {
        let defined = |key: &Key| composition.definitions().any(|found| found.key == *key);
        self.profile
            .as_ref()
            .map(|profile| profile.missing_credentials(defined))
            .unwrap_or_default()
    }
}
