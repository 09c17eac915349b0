//! Makes a launch request of words: which executor, which workspace, which variables; looks, and touches nothing.

use std::{ffi::OsString, path::PathBuf};

use groundcrew_core::{
    command::Command,
    error::{Error, ErrorKind},
    id::{ExecutorName, RunId, TaskId, TenantId},
    process::{Lease, StdinPolicy, StdioKind},
    request::{AgentSpec, LaunchIntent, LaunchRequest, Mode},
    store::RunRecord,
    workspace::{RepositorySpec, WorkspaceRequest},
};

use crate::{
    args::{CommandArgs, Format, PlaceArgs, ResumeArgs, RunArgs},
    config::Config,
    failing::Failing,
    follow::Inward,
    paths::{absolute, repository_of},
    surroundings::Surroundings,
    terminal::{self, Terminals},
    variables::{self, Variables},
};

/// The executor of host processes.
const LOCAL: &str = "local";
/// The executor of host processes in worktrees.
const WORKTREE: &str = "worktree";
/// The tenant of everything that is launched from the command line.
const TENANT: &str = "default";

/// Makes the request of `run` and `plan`.
///
/// # Errors
///
/// What is wrong with the words, or with the place.
pub(crate) fn fresh(
    args: &RunArgs,
    format: Format,
    surroundings: &Surroundings,
) -> Result<LaunchRequest, Failing> {
    let place = place(&args.place, surroundings)?;
    let (mode, variables, lease) = command(&args.command, &args.argv, format, surroundings)?;
    Ok(LaunchRequest {
        session: args.place.session.clone(),
        task: place.task,
        tenant: place.tenant,
        title: args.place.title.clone(),
        environment: variables.environment,
        payloads: variables.payloads,
        caches: variables.caches,
        lease,
        keep: args.place.keep,
        limits: args.command.limits.limits(),
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
    format: Format,
    surroundings: &Surroundings,
) -> Result<LaunchRequest, Failing> {
    let words: Vec<OsString> = if args.argv.is_empty() {
        let before = record.command.iter().flatten();
        before.map(|word| word.0.clone()).collect()
    } else {
        args.argv.clone()
    };
    if words.is_empty() {
        let error = Error::new(
            ErrorKind::InvalidInput,
            "the run had no command; name one behind `--`",
        );
        return Err(error.with("run", &record.run).into());
    }
    let Some(workspace) = &record.workspace else {
        let error = Error::new(
            ErrorKind::Unsupported,
            "the run has no workspace to go on in",
        );
        return Err(error.with("run", &record.run).into());
    };
    let (mode, variables, lease) = command(&args.command, &words, format, surroundings)?;
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
        environment: variables.environment,
        payloads: variables.payloads,
        caches: variables.caches,
        lease,
        keep: record.keep,
        limits: args.command.limits.limits(),
        ..LaunchRequest::new(record.executor.clone(), workspace, mode)
    })
}

/// Where a run works.
#[derive(Debug)]
struct Place {
    executor: ExecutorName,
    workspace: WorkspaceRequest,
    task: Option<TaskId>,
    tenant: Option<TenantId>,
}

fn place(args: &PlaceArgs, surroundings: &Surroundings) -> Result<Place, Failing> {
    let here = &surroundings.directory;
    let named = args
        .repo
        .as_deref()
        .map(|repo| absolute(repo, here, surroundings.home()))
        .transpose()?;
    let found = || repository_of(here).map(|_| here.clone());
    let local = args
        .executor
        .as_ref()
        .is_some_and(|name| name.as_str() == LOCAL);
    let repository: Option<PathBuf> = match named.clone() {
        Some(path) => Some(path),
        None if local => None,
        None => found(),
    };
    let default = if repository.is_some() {
        WORKTREE
    } else {
        LOCAL
    };
    let executor = match &args.executor {
        Some(name) => name.clone(),
        None => ExecutorName::new(default)?,
    };
    if let Some(path) = repository.filter(|_| !local) {
        if named.is_some() {
            readable(&path)?;
        }
        let workspace = WorkspaceRequest::Worktree(RepositorySpec {
            path,
            base: args.base.clone(),
            branch: args.branch.clone(),
        });
        return Ok(Place {
            executor,
            workspace,
            task: None,
            tenant: None,
        });
    }
    for (flag, value) in [("--base", &args.base), ("--branch", &args.branch)] {
        if value.is_some() {
            let why = if local {
                "has no meaning for the executor `local`, which makes no branch; use `worktree`"
            } else {
                "needs a repository; name one with --repo"
            };
            return Err(Failing::usage(format!("{flag} {why}")));
        }
    }
    if let Some(path) = named {
        readable(&path)?;
        let workspace = WorkspaceRequest::InPlace { path };
        return Ok(Place {
            executor,
            workspace,
            task: None,
            tenant: None,
        });
    }
    // A directory of the task's own: it survives the run, and a session finds its own again.
    let task = match &args.session {
        Some(session) => TaskId::new(session.as_str())?,
        None => TaskId::new(RunId::generate()?.as_str())?,
    };
    let tenant = TenantId::new(TENANT)?;
    let workspace = WorkspaceRequest::Scratch {
        tenant: tenant.clone(),
        task: task.clone(),
    };
    Ok(Place {
        executor,
        workspace,
        task: Some(task),
        tenant: Some(tenant),
    })
}

/// Checks that a directory that was named is there.
fn readable(path: &std::path::Path) -> Result<(), Error> {
    let found = std::fs::metadata(path).map_err(|e| {
        Error::io("the directory named by --repo cannot be read", e).with("path", path.display())
    })?;
    if found.is_dir() {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::InvalidInput,
            "--repo names a file, not a directory",
        )
        .with("path", path.display()))
    }
}

type CommandParts = (Mode, Variables, Lease);

fn command(
    args: &CommandArgs,
    words: &[OsString],
    format: Format,
    surroundings: &Surroundings,
) -> Result<CommandParts, Failing> {
    let terminal = wants_terminal(args, format, surroundings.terminals);
    let config = Config::read(surroundings)?;
    let variables = variables::collect(args, terminal, &config, surroundings)?;
    let inward = inward(args, format, surroundings.terminals);
    let open = inward != Inward::Nothing || (terminal && args.detach);
    let agent = AgentSpec {
        program: Command::new(words.iter().cloned())?.into(),
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
fn wants_terminal(args: &CommandArgs, format: Format, terminals: Terminals) -> bool {
    let automatic = terminals.interactive() && format == Format::Human;
    args.terminal || (automatic && !args.no_terminal)
}

/// Returns what goes to the command of an attached run.
pub(crate) fn inward(args: &CommandArgs, format: Format, terminals: Terminals) -> Inward {
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
