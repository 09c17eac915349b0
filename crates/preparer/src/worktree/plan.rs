//! Decides what a launch will make of repositories; reads only.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    env::{Definition, Tier},
    error::{Error, ErrorKind},
    executor::{PathAccess, SharedPath},
    preparer::{Contribution, PlannedResource},
    undo::Due,
    wire::OsText,
    workspace::{CloneObjects, Submodules, Workspace, WorkspaceRepository},
};

use super::{
    asked::{Chosen, Wanted, choose, together},
    rebuild::Rebuild,
    resource::{Kind, Part, Planned, Resource},
    shared::Shared,
    state::{ModulesState, PartState, State},
};
use crate::{
    files::{beneath, id::FileId},
    git::{
        command::Git,
        identity, lfs,
        repository::{Source, discover, git_error},
        settings,
        start::{self, Answer},
    },
    include, naming,
};

/// Plans a workspace; an error names everything that is wrong with the request.
pub(super) fn plan(
    shared: &Shared,
    wanted: &Wanted,
    answers: &[Option<Answer>],
) -> Result<Contribution, Error> {
    let chosen = choose(shared, wanted, answers);
    let directory = directory(shared, wanted, chosen.as_deref().unwrap_or_default());
    let (chosen, directory) = match (chosen, directory) {
        (Ok(chosen), Ok(directory)) => (chosen, directory),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error),
        (Err(first), Err(other)) => return Err(together(&first, &other)),
    };
    let planned = planned(wanted, directory, &chosen);
    let several = chosen.len() > 1;
    let mut warnings = Vec::new();
    let mut environments = Vec::new();
    let mut told = Vec::new();
    let mut states = Vec::new();
    let mut start = planned.directory.clone();
    for (one, part) in chosen.iter().zip(&planned.parts) {
        let config = settings::layered(&one.source.repository, &shared.config.user)
            .map_err(|error| git_error("failed to read the configuration of git", error))?;
        let mut own = one.beginning.warnings.clone();
        own.extend(start::dirty(&one.source)?);
        let commit = one.source.repository.find_commit(part.base).ok();
        if let Some(commit) = &commit {
            own.extend(left_out(one, commit)?);
        }
        if !several {
            start = command_directory(one, part, commit.as_ref(), &mut own)?;
        }
        warnings.extend(own.into_iter().map(|warning| {
            if several {
                format!("{}: {warning}", one.source.place.display())
            } else {
                warning
            }
        }));
        environments.push(missing(shared, &config, &wanted.given)?);
        if shared.config.separate && told.is_empty() {
            told = identity::configured(&config, &wanted.given)?;
        }
        states.push(state(shared, wanted, (&planned, part), one, &config)?);
    }
    let mut environment = missing_everywhere(environments);
    warnings.extend(identity::warning(&environment));
    environment.extend(told);
    let paths = chosen
        .iter()
        .flat_map(|one| shared_paths(&one.source.common, wanted.clones));
    Ok(Contribution {
        shared: paths.collect(),
        workspace: workspace(wanted, &planned, &chosen, start),
        environment,
        resources: resources(wanted, &planned, &states)?,
        warnings,
        state: to_json(&State {
            clones: wanted.clones,
            parts: states,
        })?,
    })
}

/// Returns what a command in an existing workspace gets: variables, warnings, and which worktrees are made again.
pub(super) fn reopened(
    shared: &Shared,
    workspace: &Workspace,
    given: &[Definition],
    gone: &[PathBuf],
) -> Result<Contribution, Error> {
    let first = workspace.repository.as_ref().unwrap_or(&workspace.path);
    let others = workspace
        .repositories
        .iter()
        .skip(1)
        .map(|part| &part.repository);
    let mut environments = Vec::new();
    let mut told = Vec::new();
    let mut paths = Vec::new();
    for place in std::iter::once(first).chain(others) {
        let source = discover(place)?;
        let config = settings::layered(&source.repository, &shared.config.user)
            .map_err(|error| git_error("failed to read the configuration of git", error))?;
        environments.push(missing(shared, &config, given)?);
        if shared.config.separate && told.is_empty() {
            told = identity::configured(&config, given)?;
        }
        let clones = (workspace.kind == super::report::CLONE).then_some(CloneObjects::Shared);
        paths.extend(shared_paths(&source.common, clones));
    }
    let mut environment = missing_everywhere(environments);
    let mut warnings: Vec<String> = identity::warning(&environment).into_iter().collect();
    environment.extend(told);
    warnings.extend(gone.iter().map(|tree| {
        format!(
            "the worktree {} is gone; it is made again as it was last committed and staged, without other files",
            tree.display()
        )
    }));
    Ok(Contribution {
        warnings,
        shared: paths,
        environment,
        state: if gone.is_empty() {
            String::new()
        } else {
            to_json(&Rebuild::of(gone))?
        },
        ..Contribution::default()
    })
}

/// Returns the variables that a repository cannot do without; what is only inherited does not reach separate commands.
fn missing(
    shared: &Shared,
    config: &git2::Config,
    given: &[Definition],
) -> Result<Vec<Definition>, Error> {
    let reaches: Vec<_> = given
        .iter()
        .filter(|definition| !shared.config.separate || definition.tier != Tier::Inherited)
        .cloned()
        .collect();
    identity::missing(config, &reaches)
}

/// Returns what a workspace needs of its repository, for instances that are separated from the host.
///
/// * A worktree is nothing without the git directory; what would be executed or believed there can only be read.
/// * A clone needs nothing but the objects that it did not copy.
fn shared_paths(common: &Path, clones: Option<CloneObjects>) -> Vec<SharedPath> {
    let share = |path: PathBuf, access| SharedPath { path, access };
    match clones {
        Some(CloneObjects::Copied) => Vec::new(),
        Some(CloneObjects::Shared) => vec![share(common.join("objects"), PathAccess::Read)],
        None => {
            let mut shares = vec![share(common.to_owned(), PathAccess::Write)];
            for name in ["hooks", "config", "info"] {
                shares.push(share(common.join(name), PathAccess::Read));
            }
            let own = common.join("config.worktree");
            if own.exists() {
                shares.push(share(own, PathAccess::Read));
            }
            shares
        }
    }
}

/// Returns the variables that no repository can do without: one would outrank another repository's own identity.
fn missing_everywhere(environments: Vec<Vec<Definition>>) -> Vec<Definition> {
    let mut environments = environments.into_iter();
    let mut missing = environments.next().unwrap_or_default();
    for other in environments {
        missing.retain(|definition| other.iter().any(|d| d.key == definition.key));
    }
    missing
}

fn to_json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| {
        Error::new(ErrorKind::Unexpected, "failed to write a plan down").with_source(error)
    })
}

/// Chooses the directory of the run, and makes sure that it can be made.
fn directory(shared: &Shared, wanted: &Wanted, chosen: &[Chosen]) -> Result<PathBuf, Error> {
    let words = wanted.title.as_deref().unwrap_or_default();
    let directory = shared.config.worktrees.join(format!(
        "{}-{}",
        naming::slug(words),
        naming::on_disk(wanted.run.as_str())
    ));
    if chosen
        .iter()
        .any(|one| directory.starts_with(&one.source.common))
    {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the directory of worktrees is inside the repository's git directory",
        )
        .with("path", directory.display()));
    }
    if FileId::of(&directory)?.is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "the directory of the workspace exists already; it is left as it is",
        )
        .with("path", directory.display()));
    }
    Ok(directory)
}

fn planned(wanted: &Wanted, directory: PathBuf, chosen: &[Chosen]) -> Planned {
    let parts = chosen
        .iter()
        .enumerate()
        .map(|(index, one)| Part {
            index,
            tree: directory.join(&one.directory),
            common: one.source.common.clone(),
            common_id: one.source.common_id,
            branch: one.branch.name.clone(),
            unique_branch: one.branch.unique,
            base: one.beginning.id,
        })
        .collect();
    Planned {
        install: wanted.install.clone(),
        run: wanted.run.clone(),
        attempt: wanted.attempt,
        directory,
        parts,
    }
}

/// Decides where in the only work tree the command is started.
fn command_directory(
    one: &Chosen,
    part: &Part,
    commit: Option<&git2::Commit<'_>>,
    warnings: &mut Vec<String>,
) -> Result<PathBuf, Error> {
    let there = match commit {
        Some(commit) => is_directory(commit, &one.source)?,
        None => one.source.subdirectory.as_os_str().is_empty(),
    };
    if there {
        // Joining nothing would leave a separator at the end.
        return Ok(part
            .tree
            .join(&one.source.subdirectory)
            .components()
            .collect());
    }
    let why = if commit.is_some() {
        "is not in the start point"
    } else {
        "may not be in the start point, which is fetched first"
    };
    warnings.push(format!(
        "{} {why}; the command starts at the root",
        one.source.subdirectory.display()
    ));
    Ok(part.tree.clone())
}

fn state(
    shared: &Shared,
    wanted: &Wanted,
    (planned, part): (&Planned, &Part),
    one: &Chosen,
    config: &git2::Config,
) -> Result<PartState, Error> {
    let mut checkout = settings::checkout(config);
    checkout.extend(settings::workers(config));
    let kind = if wanted.clones.is_some() {
        Kind::Clone
    } else {
        Kind::Worktree
    };
    let configuration = match wanted.clones {
        Some(_) => settings::taken_along(&one.source.repository)?,
        None => Vec::new(),
    };
    Ok(PartState {
        tree: Resource::new(kind, planned, part),
        settings: checkout
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        fetch: one.beginning.fetch.as_ref().map(Into::into),
        configuration: configuration
            .into_iter()
            .map(|(key, value)| (key, OsText(value)))
            .collect(),
        place: one.source.place.clone(),
        include: included(one)?,
        upstream: upstream(one),
        submodules: modules(one, config),
        lfs: if one.spec.lfs {
            let program = lfs::find(&Git::find(&shared.config.git)?)?;
            Some(OsText(program.into_os_string()))
        } else {
            None
        },
    })
}

/// Says which submodules are filled, and from where those come whose address is relative: the remote of the branch, else `origin`.
fn modules(one: &Chosen, config: &git2::Config) -> Option<ModulesState> {
    if one.spec.submodules == Submodules::Empty {
        return None;
    }
    let url = |remote: &str| {
        let value = config.get_bytes(&format!("remote.{remote}.url")).ok()?;
        Some(OsString::from_vec(value.to_vec()))
    };
    let head = one.source.repository.head().ok();
    let own = head
        .as_ref()
        .and_then(|head| head.shorthand().ok())
        .and_then(|branch| config.get_string(&format!("branch.{branch}.remote")).ok());
    Some(ModulesState {
        all: one.spec.submodules == Submodules::All,
        url: OsText(
            own.and_then(|remote| url(&remote))
                .or_else(|| url("origin"))
                .unwrap_or_else(|| one.source.place.clone().into_os_string()),
        ),
    })
}

/// Returns the patterns of the files that are taken along: those of the checkout, then those of the request.
fn included(one: &Chosen) -> Result<Vec<String>, Error> {
    let named = &one.spec.include;
    for line in named {
        include::check(line)?;
    }
    if one.source.repository.workdir().is_none() {
        if named.is_empty() {
            return Ok(Vec::new());
        }
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "a bare repository has no files to take along",
        )
        .with("repository", one.source.place.display()));
    }
    let mut lines = if one.spec.no_include_file {
        Vec::new()
    } else {
        let checkout = beneath::open_root(&one.source.place).map_err(|errno| {
            Error::io("failed to open the checkout", errno.into())
                .with("path", one.source.place.display())
        })?;
        include::of_file(&checkout)?
    };
    lines.extend(named.iter().cloned());
    let patterns = include::Patterns::new(&lines)?;
    Ok(if patterns.is_empty() {
        Vec::new()
    } else {
        lines
    })
}

/// Returns the branch of the source that a clone starts from, if it is one.
fn upstream(one: &Chosen) -> Option<String> {
    let repository = &one.source.repository;
    let name = match one.spec.base.as_deref() {
        None | Some("HEAD") => repository.head().ok()?.shorthand().ok()?.to_owned(),
        Some(name) => name.to_owned(),
    };
    let at = repository.refname_to_id(&format!("refs/heads/{name}")).ok();
    (at == Some(one.beginning.id)).then_some(name)
}

fn workspace(
    wanted: &Wanted,
    planned: &Planned,
    chosen: &[Chosen],
    start: PathBuf,
) -> Option<Workspace> {
    let repositories: Vec<_> = chosen
        .iter()
        .zip(&planned.parts)
        .map(|(one, part)| WorkspaceRepository {
            repository: one.source.place.clone(),
            path: part.tree.clone(),
            branch: part.branch.clone(),
            base: part.base.to_string(),
            identity: one.spec.identity.clone(),
            destination: one.spec.destination.clone(),
        })
        .collect();
    let first = repositories.first()?;
    Some(Workspace {
        kind: match wanted.clones {
            Some(_) => "clone",
            None => "worktree",
        }
        .to_owned(),
        preparer: wanted.preparer.clone(),
        path: if repositories.len() > 1 {
            planned.directory.clone()
        } else {
            first.path.clone()
        },
        directory: start,
        repository: Some(first.repository.clone()),
        branch: Some(first.branch.clone()),
        base: Some(first.base.clone()),
        owned: true,
        repositories,
    })
}

/// What is made, in this order; the work trees go first, then the branches and the directory.
fn resources(
    wanted: &Wanted,
    planned: &Planned,
    states: &[PartState],
) -> Result<Vec<PlannedResource>, Error> {
    let tree = if wanted.clones.is_some() {
        Kind::Clone
    } else {
        Kind::Worktree
    };
    let resource = |kind: Kind, part: &Part, label: String, due: Due, depends_on: Vec<String>| {
        let resource = Resource::new(kind, planned, part);
        Ok::<_, Error>(PlannedResource {
            key: resource.key(),
            resource: to_json(&resource)?,
            label,
            due,
            depends_on,
        })
    };
    let shown = |path: &Path| path.display().to_string();
    let mut found = Vec::new();
    if let Some(first) = planned.parts.first() {
        let trees = planned.parts.iter().map(|part| part.key(tree)).collect();
        let label = format!("directory {}", shown(&planned.directory));
        found.push(resource(Kind::Directory, first, label, Due::Close, trees)?);
    }
    for (part, state) in planned.parts.iter().zip(states) {
        let behind = vec![part.key(tree)];
        if state.fetch.is_some() || tree == Kind::Clone {
            let label = format!("start point of {}", part.branch);
            found.push(resource(
                Kind::Base,
                part,
                label,
                Due::Close,
                behind.clone(),
            )?);
        }
        let label = format!("branch {}", part.branch);
        found.push(resource(Kind::Branch, part, label, Due::Remove, behind)?);
        let what = if tree == Kind::Clone {
            "clone"
        } else {
            "worktree"
        };
        let label = format!("{what} {}", shown(&part.tree));
        found.push(resource(tree, part, label, Due::Close, Vec::new())?);
    }
    Ok(found)
}

/// Says which files will not be as they are elsewhere: those of filters, and of submodules.
fn left_out(one: &Chosen, base: &git2::Commit<'_>) -> Result<Vec<String>, Error> {
    let source = &one.source;
    let mut warnings = Vec::new();
    let mut filters = settings::filters_asked_for(&source.repository, base);
    filters.retain(|name| !(one.spec.lfs && name == "lfs"));
    if !filters.is_empty() {
        warnings.push(format!(
            "content filters are not run ({}); their files are as git stores them",
            filters.join(", ")
        ));
    }
    let tree = base
        .tree()
        .map_err(|error| git_error("failed to read the files of the start point", error))?;
    if tree.get_name(".gitmodules").is_some() && one.spec.submodules == Submodules::Empty {
        let mut paths = Vec::new();
        if let Ok(submodules) = source.repository.submodules() {
            paths.extend(
                submodules
                    .iter()
                    .map(|module| module.path().display().to_string()),
            );
        }
        let which = if paths.is_empty() {
            String::new()
        } else {
            format!(" ({})", paths.join(", "))
        };
        warnings.push(format!(
            "submodules are not filled{which}; --submodules does it, or `git submodule update --init` in the worktree"
        ));
    }
    Ok(warnings)
}

fn is_directory(base: &git2::Commit<'_>, source: &Source) -> Result<bool, Error> {
    if source.subdirectory.as_os_str().is_empty() {
        return Ok(true);
    }
    let tree = base
        .tree()
        .map_err(|error| git_error("failed to read the files of the start point", error))?;
    Ok(tree
        .get_path(&source.subdirectory)
        .is_ok_and(|entry| entry.kind() == Some(git2::ObjectType::Tree)))
}
