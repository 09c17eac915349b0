//! Decides what a worktree launch will make; reads only.

use std::{error::Error as _, path::PathBuf};

use groundcrew_core::{
    env::Definition,
    error::{Chain, Error, ErrorKind},
    id::{AttemptId, InstallId, PreparerName, RunId},
    preparer::{Contribution, PlannedResource},
    undo::Due,
    workspace::{RepositorySpec, Workspace},
};

use super::{
    resource::{Kind, Planned, Resource, State},
    shared::Shared,
};
use crate::{
    files::id::FileId,
    git::{
        command::Git,
        identity,
        repository::{Source, discover, git_error},
        settings, start,
    },
    naming,
};

/// What is asked for.
pub(super) struct Wanted {
    pub(super) preparer: PreparerName,
    pub(super) spec: RepositorySpec,
    pub(super) title: Option<String>,
    pub(super) given: Vec<Definition>,
    pub(super) install: InstallId,
    pub(super) run: RunId,
    pub(super) attempt: AttemptId,
}

/// Plans a worktree; an error names everything that is wrong with the request.
pub(super) fn plan(shared: &Shared, wanted: &Wanted) -> Result<Contribution, Error> {
    let named = branch_name(wanted);
    let source = match both(Git::find(&shared.config.git), discover(&wanted.spec.path)) {
        Ok((_, source)) => source,
        // Without a repository there is no start point to look for.
        Err(error) => {
            return Err(match named {
                Ok(_) => error,
                Err(other) => together(&error, &other),
            });
        }
    };
    let free = named.and_then(|branch| {
        start::check_free(&source, &branch)?;
        Ok(branch)
    });
    let start = start::resolve(&source.repository, wanted.spec.base.as_deref());
    let directory = directory(shared, wanted, &source);
    let ((start, branch), directory) = both(both(start, free), directory)?;
    let planned = planned(wanted, &source, directory, branch, start.commit.id());

    let config = settings::layered(&source.repository, &shared.config.user)
        .map_err(|error| git_error("failed to read the configuration of git", error))?;
    let mut warnings = start.warnings;
    warnings.extend(start::dirty(&source)?);
    warnings.extend(left_out(&source, &start.commit)?);
    let environment = identity::missing(&config, &wanted.given)?;
    warnings.extend(identity::warning(&environment));
    let directory = if is_directory(&start.commit, &source)? {
        // Joining nothing would leave a separator at the end.
        planned
            .tree
            .join(&source.subdirectory)
            .components()
            .collect()
    } else {
        warnings.push(format!(
            "{} is not in the start point; the command starts at the root",
            source.subdirectory.display()
        ));
        planned.tree.clone()
    };
    let mut settings = settings::checkout(&config);
    settings.extend(settings::workers(&config));
    let state = State {
        worktree: Resource::new(Kind::Worktree, &planned),
        settings: settings
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
    };
    Ok(Contribution {
        workspace: Some(Workspace {
            kind: "worktree".to_owned(),
            preparer: wanted.preparer.clone(),
            path: planned.tree.clone(),
            directory,
            repository: Some(source.place.clone()),
            branch: Some(planned.branch.clone()),
            base: Some(planned.base.to_string()),
            owned: true,
        }),
        environment,
        resources: resources(&planned)?,
        warnings,
        state: to_json(&state)?,
    })
}

/// Returns what a command in an existing worktree gets: variables and warnings, nothing to make.
pub(super) fn variables_of(
    shared: &Shared,
    workspace: &Workspace,
    given: &[Definition],
) -> Result<Contribution, Error> {
    let place = workspace.repository.as_ref().unwrap_or(&workspace.path);
    let config = settings::layered(&discover(place)?.repository, &shared.config.user)
        .map_err(|error| git_error("failed to read the configuration of git", error))?;
    let environment = identity::missing(&config, given)?;
    Ok(Contribution {
        warnings: identity::warning(&environment).into_iter().collect(),
        environment,
        ..Contribution::default()
    })
}

fn to_json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| {
        Error::new(ErrorKind::Unexpected, "failed to write a plan down").with_source(error)
    })
}

/// Returns both values, or everything that is wrong.
fn both<A, B>(first: Result<A, Error>, other: Result<B, Error>) -> Result<(A, B), Error> {
    match (first, other) {
        (Ok(first), Ok(other)) => Ok((first, other)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(first), Err(other)) => Err(together(&first, &other)),
    }
}

/// Makes one error of two, so that a person need not repair one to learn of the other; its kind is the first one's.
fn together(first: &Error, other: &Error) -> Error {
    let message = format!("{}; {}", first.message(), other.message());
    let mut error =
        Error::new(first.kind(), message).retryable(first.is_retryable() && other.is_retryable());
    for (key, value) in first.context().chain(other.context()) {
        error = error.with(key.to_owned(), value);
    }
    let causes: Vec<_> = [first.source(), other.source()]
        .into_iter()
        .flatten()
        .map(|cause| Chain(cause).to_string())
        .collect();
    if causes.is_empty() {
        error
    } else {
        error.with_source(causes.join("; "))
    }
}

/// Names the branch; whether it is free is not looked at.
fn branch_name(wanted: &Wanted) -> Result<String, Error> {
    match &wanted.spec.branch {
        Some(name) => naming::check_branch(name).map(|()| name.clone()),
        None => Ok(naming::default_branch(
            wanted.title.as_deref(),
            wanted.run.as_str(),
        )),
    }
}

/// Chooses the directory of the run, and makes sure that it can be made.
fn directory(shared: &Shared, wanted: &Wanted, source: &Source) -> Result<PathBuf, Error> {
    let words = wanted.title.as_deref().unwrap_or_default();
    let directory = shared
        .config
        .worktrees
        .join(format!("{}-{}", naming::slug(words), wanted.run));
    if directory.starts_with(&source.common) {
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

fn planned(
    wanted: &Wanted,
    source: &Source,
    directory: PathBuf,
    branch: String,
    base: git2::Oid,
) -> Planned {
    let named = source
        .place
        .file_name()
        .filter(|name| *name != ".git")
        .or_else(|| source.common.parent().and_then(|path| path.file_name()));
    let name = naming::tree_directory(
        &named.unwrap_or_default().to_string_lossy(),
        wanted.run.as_str(),
    );
    Planned {
        install: wanted.install.clone(),
        run: wanted.run.clone(),
        attempt: wanted.attempt,
        tree: directory.join(name),
        directory,
        common: source.common.clone(),
        common_id: source.common_id,
        branch,
        unique_branch: wanted.spec.branch.is_none(),
        base,
    }
}

/// What is made, in this order; the work tree goes first, then the branch and the directory.
fn resources(planned: &Planned) -> Result<Vec<PlannedResource>, Error> {
    let tree = Kind::Worktree.key().to_owned();
    [
        (
            Kind::Directory,
            format!("directory {}", planned.directory.display()),
            Due::Close,
            vec![tree.clone()],
        ),
        (
            Kind::Branch,
            format!("branch {}", planned.branch),
            Due::Remove,
            vec![tree],
        ),
        (
            Kind::Worktree,
            format!("worktree {}", planned.tree.display()),
            Due::Close,
            Vec::new(),
        ),
    ]
    .into_iter()
    .map(|(kind, label, due, depends_on)| {
        Ok(PlannedResource {
            key: kind.key().to_owned(),
            resource: to_json(&Resource::new(kind, planned))?,
            label,
            due,
            depends_on,
        })
    })
    .collect()
}

/// Says which files will not be as they are elsewhere: those of filters, and of submodules.
fn left_out(source: &Source, base: &git2::Commit<'_>) -> Result<Vec<String>, Error> {
    let mut warnings = Vec::new();
    let filters = settings::filters_asked_for(&source.repository, base);
    if !filters.is_empty() {
        warnings.push(format!(
            "content filters are not run ({}); their files are as git stores them",
            filters.join(", ")
        ));
    }
    let tree = base
        .tree()
        .map_err(|error| git_error("failed to read the files of the start point", error))?;
    if tree.get_name(".gitmodules").is_some() {
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
            "submodules are not filled{which}; `git submodule update --init` in the worktree does it"
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
