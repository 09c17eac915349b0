//! Makes a launch request of words: which executor, which workspace, which variables; looks, and touches nothing.

use std::path::PathBuf;

use groundcrew_core::{
    command::Command,
    error::{Error, ErrorKind},
    id::{ExecutorName, RunId, TaskId, TenantId},
    instance::McpServer,
    process::{Lease, StdinPolicy, StdioKind},
    request::{AgentProgram, AgentSpec, LaunchIntent, LaunchRequest, Mode, ProfiledAgent},
    store::RunRecord,
    workspace::{CloneObjects, FetchSpec, RepositorySpec, WorkspaceRequest},
};

use serde_json::json;

use crate::{
    agent,
    args::{CommandArgs, Format, Kind, PlaceArgs, ResumeArgs, RunArgs, StreamArgs},
    config::Config,
    failing::Failing,
    follow::Inward,
    paths::{absolute, readable, repository_of},
    scripts,
    surroundings::Surroundings,
    terminal::{self, Terminals},
    variables::{self, Variables},
};

/// The executor of host processes.
const LOCAL: &str = "local";
/// The executor of host processes in worktrees.
const WORKTREE: &str = "worktree";
/// The executor of containers.
const DOCKER: &str = "docker";
/// The tenant of everything that is launched from the command line.
const TENANT: &str = "default";

/// Makes the request of `run` and `plan`.
///
/// # Errors
///
/// What is wrong with the words, or with the place.
pub(crate) fn fresh(
    args: &RunArgs,
    agent: Option<ProfiledAgent>,
    servers: Vec<McpServer>,
    format: Format,
    config: &Config,
    surroundings: &Surroundings,
) -> Result<LaunchRequest, Failing> {
    let mut wished = args.place.clone();
    if let Some(agent) = &agent {
        wished.executor = agent::executor(agent, wished.executor.as_ref())?;
    }
    let place = place(&wished, surroundings)?;
    if let (DOCKER, Some(agent)) = (place.executor.as_str(), &agent) {
        // What it keeps outlives the container only outside of it.
        let home = agent.used.wishes.home.iter();
        let homes = home.map(|home| json!({"source": home.0.to_string_lossy()}));
        wished.container.mount.extend(homes);
    }
    let program = match agent {
        Some(agent) => AgentProgram::Profile(Box::new(agent)),
        None => Command::new(args.argv.iter().cloned())?.into(),
    };
    // A conversation is work: it is gone on with in its workspace.
    let keep = args.place.keep || converses(&program);
    let (mode, variables, lease) = command(&args.command, program, format, config, surroundings)?;
    let (setup, teardown) = scripts::of_run(
        &args.scripts,
        config.setup.clone(),
        config.teardown.clone(),
        &place.workspace,
    )?;
    Ok(LaunchRequest {
        setup,
        teardown,
        session: args.place.session.clone(),
        task: place.task,
        tenant: place.tenant,
        title: args.place.title.clone(),
        environment: variables.environment,
        payloads: variables.payloads,
        caches: variables.caches,
        lease,
        keep,
        mcp_servers: servers,
        limits: args.command.limits.limits(),
        options: wished.container.options(place.storage),
        ..LaunchRequest::new(place.executor, place.workspace, mode)
    })
}

/// Makes the request of `resume`.
///
/// # Errors
///
/// What is wrong with the words, or with the run.
pub(crate) fn resumed(
    args: &ResumeArgs,
    record: &RunRecord,
    agent: Option<ProfiledAgent>,
    servers: Vec<McpServer>,
    format: Format,
    config: &Config,
    surroundings: &Surroundings,
) -> Result<LaunchRequest, Failing> {
    let program = match agent {
        Some(agent) => AgentProgram::Profile(Box::new(agent)),
        None => words_of(args, record)?.into(),
    };
    let Some(workspace) = &record.workspace else {
        let error = Error::new(
            ErrorKind::Unsupported,
            "the run has no workspace to go on in",
        );
        return Err(error.with("run", &record.run).into());
    };
    let (mode, variables, lease) = command(&args.command, program, format, config, surroundings)?;
    // A resumption takes the workspace of its record and no other.
    let workspace = WorkspaceRequest::InPlace {
        path: workspace.path.clone(),
    };
    Ok(LaunchRequest {
        session: Some(record.session.clone()),
        task: Some(record.task.clone()),
        tenant: record.tenant.clone(),
        title: record.title.clone(),
        intent: LaunchIntent::Resume(record.run.clone()),
        skip_setup: args.no_setup,
        environment: variables.environment,
        payloads: variables.payloads,
        caches: variables.caches,
        lease,
        keep: record.keep,
        mcp_servers: servers,
        limits: args.command.limits.limits(),
        options: record.options.clone(),
        ..LaunchRequest::new(record.executor.clone(), workspace, mode)
    })
}

/// Returns whether a program is an agent that is spoken to in its protocol.
fn converses(program: &AgentProgram) -> bool {
    matches!(program, AgentProgram::Profile(agent) if agent.used.wishes.conversation)
}

/// Returns the command of the words, or the one that the run had.
fn words_of(args: &ResumeArgs, record: &RunRecord) -> Result<Command, Error> {
    if !args.argv.is_empty() {
        return Command::new(args.argv.iter().cloned());
    }
    let Some(words) = record.command.as_ref().filter(|words| !words.is_empty()) else {
        let error = Error::new(
            ErrorKind::InvalidInput,
            "the run had no command; name one behind `--`",
        );
        return Err(error.with("run", &record.run));
    };
    Command::new(words.iter().cloned())
}

/// Where a run works.
#[derive(Debug)]
struct Place {
    executor: ExecutorName,
    /// Where the files are while a container lives, in the executor's own word.
    storage: Option<&'static str>,
    workspace: WorkspaceRequest,
    task: Option<TaskId>,
    tenant: Option<TenantId>,
}

fn place(args: &PlaceArgs, surroundings: &Surroundings) -> Result<Place, Failing> {
    let here = &surroundings.directory;
    let mut named = Vec::new();
    for repo in &args.repo {
        named.push(absolute(repo, here, surroundings.home())?);
    }
    let local = args
        .executor
        .as_ref()
        .is_some_and(|name| name.as_str() == LOCAL);
    let docker = args
        .executor
        .as_ref()
        .is_some_and(|name| name.as_str() == DOCKER);
    let inside = repository_of(here).is_some();
    let kind = args.workspace.unwrap_or(match (local, &named[..]) {
        (true, []) => Kind::Scratch,
        (true, _) => Kind::InPlace,
        (false, []) if !inside => Kind::Scratch,
        // What runs in a container has no way into the repository, unless one is asked for.
        (false, _) if docker => Kind::Clone,
        (false, _) => Kind::Worktree,
    });
    let (kind, storage) = stored(kind, docker)?;
    let of_git = matches!(kind, Kind::Worktree | Kind::Clone);
    let repositories: Vec<PathBuf> = match (kind, named) {
        (Kind::Scratch | Kind::Ephemeral, named) if !named.is_empty() => {
            return Err(Failing::usage(
                "--repo has no meaning for a directory of the task's or the session's own",
            ));
        }
        (Kind::InPlace, named) if named.len() > 1 => {
            return Err(Failing::usage(
                "a workspace in place is one directory; several take `worktree` or `clone`",
            ));
        }
        (_, named) if !named.is_empty() => {
            for path in &named {
                readable("--repo", path)?;
            }
            named
        }
        (Kind::InPlace, _) => vec![here.clone()],
        _ if of_git && inside => vec![here.clone()],
        _ => Vec::new(),
    };
    if !of_git || repositories.is_empty() {
        meaningless(args, kind, local)?;
    }
    let default = if of_git { WORKTREE } else { LOCAL };
    let executor = match &args.executor {
        Some(name) => name.clone(),
        None => ExecutorName::new(default)?,
    };
    let workspace = match (kind, repositories) {
        (Kind::InPlace, paths) => WorkspaceRequest::InPlace {
            path: paths.into_iter().next().unwrap_or_else(|| here.clone()),
        },
        (Kind::Ephemeral, _) => WorkspaceRequest::Ephemeral,
        (Kind::Worktree | Kind::Clone, paths) if !paths.is_empty() => {
            let specs = paths.into_iter().map(|path| spec(args, path)).collect();
            if kind == Kind::Worktree {
                WorkspaceRequest::Worktree(specs)
            } else {
                WorkspaceRequest::Clone {
                    repositories: specs,
                    objects: if args.share_objects {
                        CloneObjects::Shared
                    } else {
                        CloneObjects::Copied
                    },
                }
            }
        }
        // Without a repository a worktree or a clone is a directory of the task's own as well.
        _ => {
            // It survives the run, and a session finds its own again.
            let task = match &args.session {
                Some(session) => TaskId::new(session.as_str())?,
                None => TaskId::new(RunId::generate()?.as_str())?,
            };
            let tenant = TenantId::new(TENANT)?;
            return Ok(Place {
                executor,
                storage,
                workspace: WorkspaceRequest::Scratch {
                    tenant: tenant.clone(),
                    task: task.clone(),
                },
                task: Some(task),
                tenant: Some(tenant),
            });
        }
    };
    Ok(Place {
        executor,
        storage,
        workspace,
        task: None,
        tenant: None,
    })
}

/// Says where a workspace is while a container lives, and what it is apart from that.
fn stored(kind: Kind, docker: bool) -> Result<(Kind, Option<&'static str>), Failing> {
    if kind == Kind::Volume && !docker {
        return Err(Failing::usage(
            "a volume is part of a container; use it with --executor docker",
        ));
    }
    // What was made for the run can be in a volume as well; what is the user's own stays where it is.
    let storage = match kind {
        _ if !docker => None,
        Kind::Volume => Some("volume"),
        Kind::Clone | Kind::Scratch | Kind::Ephemeral => Some("auto"),
        Kind::Worktree | Kind::InPlace => None,
    };
    let kind = match kind {
        Kind::Volume => Kind::Clone,
        kind => kind,
    };
    Ok((kind, storage))
}

/// Makes what is asked of one repository.
fn spec(args: &PlaceArgs, path: PathBuf) -> RepositorySpec {
    RepositorySpec {
        base: args.base.clone(),
        branch: args.branch.clone(),
        template: args.branch_template.clone(),
        ticket: args.ticket.clone(),
        fetch: args.fetch.then(FetchSpec::default),
        include: args.files.include.clone(),
        no_include_file: args.files.no_include_file,
        submodules: args.files.submodules.map(Into::into).unwrap_or_default(),
        lfs: args.files.lfs,
        ..RepositorySpec::new(path)
    }
}

/// Refuses flags about branches where none is made.
fn meaningless(args: &PlaceArgs, kind: Kind, local: bool) -> Result<(), Failing> {
    for (flag, said) in [
        ("--base", args.base.is_some()),
        ("--branch", args.branch.is_some()),
        ("--branch-template", args.branch_template.is_some()),
        ("--ticket", args.ticket.is_some()),
        ("--fetch", args.fetch),
        ("--share-objects", args.share_objects),
        ("--include", !args.files.include.is_empty()),
        ("--no-include-file", args.files.no_include_file),
        ("--submodules", args.files.submodules.is_some()),
        ("--lfs", args.files.lfs),
    ] {
        if !said {
            continue;
        }
        let why = if args.workspace.is_some() && !matches!(kind, Kind::Worktree | Kind::Clone) {
            "has no meaning for a workspace without a branch; use `worktree` or `clone`"
        } else if local {
            "has no meaning for the executor `local`, which makes no branch; use `worktree`"
        } else {
            "needs a repository; name one with --repo"
        };
        return Err(Failing::usage(format!("{flag} {why}")));
    }
    Ok(())
}

type CommandParts = (Mode, Variables, Lease);

fn command(
    args: &CommandArgs,
    program: AgentProgram,
    format: Format,
    config: &Config,
    surroundings: &Surroundings,
) -> Result<CommandParts, Failing> {
    let converses = converses(&program);
    let terminal = !converses && wants_terminal(&args.streams, format, surroundings.terminals);
    let variables = variables::collect(args, terminal, config, surroundings)?;
    let inward = inward(&args.streams, format, surroundings.terminals);
    let open = converses || inward != Inward::Nothing || (terminal && args.detach);
    let agent = AgentSpec {
        program,
        stdio: if terminal {
            StdioKind::Terminal(terminal::size())
        } else {
            StdioKind::Pipes
        },
        stdin: if open {
            StdinPolicy::Open
        } else {
            StdinPolicy::Empty
        },
        time_limit: args.timeout,
        idle_limit: args.idle_timeout,
        stop: None,
    };
    let lease = args.lease.unwrap_or(if args.detach {
        Lease::Unlimited
    } else {
        Lease::ATTACHED
    });
    Ok((Mode::Agent(agent), variables, lease))
}

/// Returns whether the command gets a terminal.
pub(crate) fn wants_terminal(args: &StreamArgs, format: Format, terminals: Terminals) -> bool {
    let automatic = terminals.interactive() && format == Format::Human;
    args.terminal || (automatic && !args.no_terminal)
}

/// Returns what goes to the command of an attached run.
pub(crate) fn inward(args: &StreamArgs, format: Format, terminals: Terminals) -> Inward {
    if wants_terminal(args, format, terminals) && terminals.input {
        Inward::Terminal
    } else if args.interactive {
        Inward::Pipe
    } else {
        Inward::Nothing
    }
}

#[cfg(test)]
mod tests;
