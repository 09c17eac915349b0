//! Decides the environment of a launch: what was asked for, what preparers add, and what only the engine knows, in one pass.
//!
//! Nothing is revealed here, and nothing is written.

use std::{collections::BTreeSet, ffi::OsString, os::unix::ffi::OsStrExt as _, path::Path};

use crate::{
    env::{Composition, Conflict, Definition, Environment, Key, Tier, Value, compose},
    error::{Error, ErrorKind},
    id::{RunId, SessionId, TaskId},
    payload::Payload,
    planned_agent::Decided,
    registry::Registration,
    request::{LaunchRequest, ManagedCache},
    workspace::Workspace,
};

/// Decides the environment, and adds everything that is wrong with it to `problems`.
///
/// * What is known only now – identity, payloads, caches – joins the same pass as everything else.
pub(crate) fn decide(
    registration: &Registration,
    request: &LaunchRequest,
    contributed: impl Iterator<Item = Definition>,
    directory: &Path,
    identity: Vec<Definition>,
    agent: &Decided,
    problems: &mut Vec<Error>,
) -> (Composition, Vec<Conflict>) {
    let payloads = payload_definitions(&request.payloads, directory).unwrap_or_else(|found| {
        problems.extend(found);
        Vec::new()
    });
    problems.extend(relative_caches(request));
    let contributed: Vec<_> = contributed.collect();
    let foreign = request
        .environment
        .iter()
        .filter(|definition| definition.tier == Tier::Workspace);
    problems.extend(foreign.chain(&contributed).filter_map(loads_code));
    let inherits = registration.executor.capabilities().inherits_environment;
    let requested = request
        .environment
        .iter()
        .filter(|definition| {
            definition.tier != Tier::Inherited || (inherits && !agent.strips(&definition.key))
        })
        .cloned();
    let caches = agent.caches.iter().chain(&request.caches);
    let late = [
        agent.definitions.clone(),
        cache_definitions(registration, caches),
        payloads,
        identity,
    ]
    .concat();
    let mut composition = match compose(requested.chain(contributed).chain(late)) {
        Ok(composition) => composition,
        Err(conflicts) => {
            problems.extend(conflicts.iter().map(conflict_error));
            return (Composition::default(), conflicts);
        }
    };
    // What goes into a file has taken part in the pass, so that nobody else's value stands in its place.
    let in_file = |key: &Key| {
        let mut payloads = request.payloads.iter();
        payloads.any(|payload| payload.variable == *key && payload.needs_file())
    };
    composition
        .variables
        .retain(|variable| !in_file(&variable.definition.key));
    problems.extend(check_sizes(agent, &composition).err());
    problems.extend(agent.missing_credentials(&composition));
    (composition, Vec::new())
}

/// Tells the agent who it is.
pub(crate) fn identity(
    run: &RunId,
    session: &SessionId,
    task: &TaskId,
    workspace: &Workspace,
) -> Vec<Definition> {
    let text = |text: &str| OsString::from(text);
    let mut values = vec![
        ("GROUNDCREW_RUN_ID", text(run.as_str())),
        ("GROUNDCREW_SESSION_ID", text(session.as_str())),
        ("GROUNDCREW_TASK_ID", text(task.as_str())),
        (
            "GROUNDCREW_WORKSPACE",
            workspace.path.clone().into_os_string(),
        ),
    ];
    values.extend(
        workspace
            .branch
            .as_deref()
            .map(|branch| ("GROUNDCREW_BRANCH", text(branch))),
    );
    values
        .into_iter()
        .filter_map(|(name, value)| {
            Some(Definition::literal(
                Key::new(name).ok()?,
                value,
                Tier::Identity,
                "the run itself",
            ))
        })
        .collect()
}

/// Returns what payloads define, their variables empty where they go into files.
fn payload_definitions(
    payloads: &[Payload],
    directory: &Path,
) -> Result<Vec<Definition>, Vec<Error>> {
    let mut names = BTreeSet::new();
    let mut definitions = Vec::new();
    let mut problems = Vec::new();
    for payload in payloads {
        if !names.insert(&payload.variable) {
            problems.push(
                Error::new(ErrorKind::InvalidInput, "two payloads have one name")
                    .with("variable", &payload.variable),
            );
        }
        match payload.definitions(directory) {
            Ok(defined) => definitions.extend(defined),
            Err(error) => problems.push(error),
        }
    }
    if problems.is_empty() {
        Ok(definitions)
    } else {
        Err(problems)
    }
}

/// Variables that make programs load code before anything else: whoever sets one runs what he likes in every process.
const LOADERS: [&str; 18] = [
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "PROMPT_COMMAND",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
    "NODE_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "GIT_EXEC_PATH",
    "GIT_SSH_COMMAND",
];

/// Refuses such a variable from a workspace, which may be anybody's; people, their profiles and their requests may set it.
fn loads_code(definition: &Definition) -> Option<Error> {
    let name = definition.key.as_bytes();
    LOADERS.iter().find(|known| known.as_bytes() == name)?;
    let error = Error::new(
        ErrorKind::InvalidInput,
        "a workspace must not set a variable that makes programs load code; ask for it yourself if it is wanted",
    );
    Some(
        error
            .with("variable", &definition.key)
            .with("origin", &definition.origin),
    )
}

/// What managed cache directories are said to come from.
const CACHE_ORIGIN: &str = "managed cache";

/// Returns what cache directories define: nothing where the paths of the host mean nothing.
fn cache_definitions<'a>(
    registration: &Registration,
    caches: impl Iterator<Item = &'a ManagedCache>,
) -> Vec<Definition> {
    if !registration.executor.capabilities().host_paths {
        return Vec::new();
    }
    let define = |cache: &ManagedCache| {
        let directory = cache.directory.clone().into_os_string();
        Definition::literal(
            cache.variable.clone(),
            directory,
            Tier::Managed,
            CACHE_ORIGIN,
        )
    };
    caches.map(define).collect()
}

fn relative_caches(request: &LaunchRequest) -> Vec<Error> {
    let relative = |cache: &&ManagedCache| !cache.directory.is_absolute();
    let error = |cache: &ManagedCache| {
        Error::new(
            ErrorKind::InvalidInput,
            "the path of a cache directory must be absolute",
        )
        .with("variable", &cache.variable)
        .with("path", cache.directory.display())
    };
    request.caches.iter().filter(relative).map(error).collect()
}

fn conflict_error(conflict: &Conflict) -> Error {
    let origins: Vec<_> = conflict
        .origins
        .iter()
        .map(|origin| origin.0.as_str())
        .collect();
    Error::new(ErrorKind::InvalidInput, conflict.why.clone())
        .with("variable", &conflict.key)
        .with("origins", origins.join(", "))
}

/// Checks what is known of the sizes; revealed secrets are checked again at launch.
fn check_sizes(agent: &Decided, composition: &Composition) -> Result<(), Error> {
    let literals: Environment = composition
        .definitions()
        .filter_map(|definition| match &definition.value {
            Value::Literal(text) => Some((definition.key.clone(), text.0.as_bytes().to_vec())),
            Value::Secret(_) => None,
        })
        .collect();
    let agent = agent.agent.as_ref();
    let arguments = agent.map_or(0, |agent| agent.command.kernel_size());
    literals.check(arguments)
}
