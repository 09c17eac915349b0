//! Decides what a worktree launch will make; reads only.

use groundcrew_core::{
    env::Definition,
    error::{Error, ErrorKind},
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

/// Plans a worktree.
pub(super) fn plan(shared: &Shared, wanted: &Wanted) -> Result<Contribution, Error> {
    Git::find(&shared.config.git)?;
    let source = discover(&wanted.spec.path)?;
    let start = start::resolve(&source.repository, wanted.spec.base.as_deref())?;
    let branch = match &wanted.spec.branch {
        Some(name) => {
            naming::check_branch(name)?;
            name.clone()
        }
        None => naming::default_branch(wanted.title.as_deref(), wanted.run.as_str()),
    };
    start::check_free(&source, &branch)?;
    let planned = planned(shared, wanted, &source, branch, start.commit.id())?;
    if FileId::of(&planned.directory)?.is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "the directory of the workspace exists already; it is left as it is",
        )
        .with("path", planned.directory.display()));
    }

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

fn planned(
    shared: &Shared,
    wanted: &Wanted,
    source: &Source,
    branch: String,
    base: git2::Oid,
) -> Result<Planned, Error> {
    let words = wanted.title.as_deref().unwrap_or_default();
    let directory = shared
        .config
        .worktrees
        .join(format!("{}-{}", naming::slug(words), wanted.run));
    let named = source
        .place
        .file_name()
        .filter(|name| *name != ".git")
        .or_else(|| source.common.parent().and_then(|path| path.file_name()));
    let name = naming::tree_directory(
        &named.unwrap_or_default().to_string_lossy(),
        wanted.run.as_str(),
    );
    if directory.starts_with(&source.common) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the directory of worktrees is inside the repository's git directory",
        )
        .with("path", directory.display()));
    }
    Ok(Planned {
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
    })
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
