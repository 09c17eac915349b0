//! Where a new branch starts, and whether its name is free.

use std::path::PathBuf;

use git2::{BranchType, Commit, ErrorCode, Oid, Repository, StatusOptions, StatusShow};
use groundcrew_core::error::{Chain, Error, ErrorKind};

use super::{
    admin,
    remote::Located,
    repository::{Source, git_error},
};

/// A start point: a commit, and what a person should know about it.
#[derive(Debug)]
pub(crate) struct Start<'repo> {
    /// The commit.
    pub(crate) commit: Commit<'repo>,
    /// Such as that its branch is behind its upstream.
    pub(crate) warnings: Vec<String>,
}

/// What a remote said: where the start point is there, that it is not there, or nothing that can be understood.
pub(crate) type Answer = Result<Option<Located>, Error>;

/// Where a branch will begin.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// The commit.
    pub(crate) id: Oid,
    /// From where it must be fetched, if it is not there yet.
    pub(crate) fetch: Option<Located>,
    /// What a person should know.
    pub(crate) warnings: Vec<String>,
}

/// Decides where a branch begins: at what is there, or at what the remote has if it was asked.
///
/// * What is there and holds what the remote has is used as it is.
/// * A remote that cannot be asked does not make a start point missing: what is there is used, with a warning.
///
/// # Errors
///
/// Those of [`resolve`]; `Unavailable` when nothing is there and the remote could not be asked.
pub(crate) fn begin(
    repository: &Repository,
    base: Option<&str>,
    answer: Option<&Answer>,
) -> Result<Beginning, Error> {
    let local = resolve(repository, base).map(|start| Beginning {
        id: start.commit.id(),
        fetch: None,
        warnings: start.warnings,
    });
    let shown = base.unwrap_or("HEAD");
    match (answer, local) {
        (None, local) => local,
        (Some(Ok(Some(located))), local) => {
            let there = repository
                .find_commit(located.id)
                .is_ok_and(|commit| commit.tree().is_ok());
            if let Ok(local) = local
                && there
                && (local.id == located.id
                    || repository
                        .graph_descendant_of(local.id, located.id)
                        .unwrap_or(false))
            {
                return Ok(local);
            }
            let short = located.id.to_string();
            let short = short.get(..7).unwrap_or(&short);
            Ok(Beginning {
                id: located.id,
                fetch: (!there).then(|| located.clone()),
                warnings: vec![format!(
                    "{shown} is at {short} on {}; the branch starts there",
                    located.remote
                )],
            })
        }
        (Some(Ok(None)), Ok(mut local)) => {
            local
                .warnings
                .push(format!("the remote has no {shown}; the local one is used"));
            Ok(local)
        }
        (Some(Err(why)), Ok(mut local)) => {
            local.warnings.push(format!(
                "{shown} could not be looked for on a remote; the local one is used, which may be old: {}",
                Chain(why)
            ));
            Ok(local)
        }
        (Some(Err(why)), Err(error)) if error.kind() == ErrorKind::NotFound => Err(Error::new(
            ErrorKind::Unavailable,
            "the start point is not here, and it cannot be told whether the remote has it",
        )
        .with("base", format!("{shown:?}"))
        .with_source(Chain(why).to_string())),
        (Some(_), Err(error)) => Err(error),
    }
}

/// Resolves the start point: `HEAD`, or a local branch, a remote branch, a tag, a name on exactly one remote, a commit; in this order.
///
/// # Errors
///
/// * `InvalidInput` when `HEAD` names no commit.
/// * `NotFound` when nothing has that name, `Ambiguous` when several remotes have it.
pub(crate) fn resolve<'repo>(
    repository: &'repo Repository,
    base: Option<&str>,
) -> Result<Start<'repo>, Error> {
    let mut warnings = Vec::new();
    let commit = match base {
        None | Some("HEAD") => {
            let head = repository
                .head()
                .map_err(|error| unborn(repository, error))?;
            if head.is_branch() {
                warnings.extend(behind(repository, head.shorthand().unwrap_or_default()));
            }
            head.peel_to_commit()
                .map_err(|error| git_error("HEAD names no commit", error))?
        }
        Some(name) => {
            let (commit, branch) = named(repository, name)?;
            if branch {
                warnings.extend(behind(repository, name));
            }
            commit
        }
    };
    if commit.tree().is_err() {
        return Err(Error::new(
            ErrorKind::NotFound,
            "the files of the start point are not in the repository; it may be shallow or partial",
        )
        .with("commit", commit.id()));
    }
    Ok(Start { commit, warnings })
}

fn unborn(repository: &Repository, error: git2::Error) -> Error {
    if !matches!(error.code(), ErrorCode::UnbornBranch | ErrorCode::NotFound) {
        return git_error("failed to read HEAD", error);
    }
    let target = repository
        .find_reference("HEAD")
        .ok()
        .and_then(|head| head.symbolic_target().ok().flatten().map(str::to_owned))
        .unwrap_or_default();
    Error::new(
        ErrorKind::InvalidInput,
        "HEAD names no commit; make a first commit, or name a start point with --base",
    )
    .with("HEAD", target)
}

fn named<'repo>(repository: &'repo Repository, name: &str) -> Result<(Commit<'repo>, bool), Error> {
    let missing = || {
        Error::new(
            ErrorKind::NotFound,
            "the start point names no branch, tag or commit of the repository",
        )
        .with("base", format!("{name:?}"))
    };
    if name.is_empty() || name.starts_with('-') || name.contains('\0') {
        return Err(missing());
    }
    let places = [
        format!("refs/heads/{name}"),
        format!("refs/remotes/{name}"),
        format!("refs/tags/{name}"),
    ];
    for (at, place) in places.iter().enumerate() {
        if let Some(reference) = look_up(repository, place)? {
            let commit = reference.peel_to_commit().map_err(|error| {
                git_error("the start point leads to no commit", error).with("base", name)
            })?;
            return Ok((commit, at == 0));
        }
    }
    let remotes = repository
        .remotes()
        .map_err(|error| git_error("failed to list the remotes", error))?;
    let mut found = Vec::new();
    for remote in remotes.iter().flatten().flatten() {
        let place = format!("refs/remotes/{remote}/{name}");
        if let Some(reference) = look_up(repository, &place)? {
            let commit = reference.peel_to_commit().map_err(|error| {
                git_error("the start point leads to no commit", error).with("base", name)
            })?;
            found.push((format!("{remote}/{name}"), commit));
        }
    }
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Error::new(
            ErrorKind::Ambiguous,
            "several remotes have the start point; name one of them",
        )
        .with("base", name)
        .with("found", names.join(", ")));
    }
    if let Some((_, commit)) = found.pop() {
        return Ok((commit, false));
    }
    if let Some(pull) = pull(name)
        && let Some(reference) = look_up(repository, &pull)?
    {
        return reference
            .peel_to_commit()
            .map(|commit| (commit, false))
            .map_err(|error| {
                git_error("the start point leads to no commit", error).with("base", name)
            });
    }
    match repository.revparse_single(name) {
        Ok(object) => object
            .peel_to_commit()
            .map(|commit| (commit, false))
            .map_err(|error| git_error("the start point is no commit", error).with("base", name)),
        Err(error) if error.code() == ErrorCode::Ambiguous => {
            Err(git_error("the start point is ambiguous", error).with("base", name))
        }
        Err(error) if matches!(error.code(), ErrorCode::NotFound | ErrorCode::InvalidSpec) => {
            Err(missing().with_source(error))
        }
        // What cannot be read is not missing.
        Err(error) => Err(unknown(error).with("base", name)),
    }
}

/// Finds a ref; that it cannot be read does not mean that there is none.
fn look_up<'repo>(
    repository: &'repo Repository,
    name: &str,
) -> Result<Option<git2::Reference<'repo>>, Error> {
    match repository.find_reference(name) {
        Ok(reference) => Ok(Some(reference)),
        Err(error) if matches!(error.code(), ErrorCode::NotFound | ErrorCode::InvalidSpec) => {
            Ok(None)
        }
        Err(error) => Err(unknown(error).with("ref", name)),
    }
}

fn unknown(error: git2::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "it cannot be told whether the start point exists: the repository cannot be read",
    )
    .with_source(error)
}

/// Returns the ref of a pull request that was fetched, for a name such as `pull/7/head`.
fn pull(name: &str) -> Option<String> {
    let number = name
        .strip_prefix("pull/")
        .or_else(|| name.strip_prefix("merge-requests/"))?
        .strip_suffix("/head")?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        .then(|| format!("refs/{name}"))
}

/// Says so when a local branch lacks commits of its upstream.
fn behind(repository: &Repository, branch: &str) -> Option<String> {
    let local = repository.find_branch(branch, BranchType::Local).ok()?;
    let upstream = local.upstream().ok()?;
    let (own, theirs) = (local.get().target()?, upstream.get().target()?);
    let (_, behind) = repository.graph_ahead_behind(own, theirs).ok()?;
    let name = upstream.name().ok().flatten().unwrap_or_default();
    let own = own.to_string();
    let own = own.get(..7).unwrap_or(&own);
    (behind > 0).then(|| {
        let commits = if behind == 1 { "commit" } else { "commits" };
        format!("{branch} at {own} is {behind} {commits} behind {name}, which was not fetched now")
    })
}

/// Makes sure that a branch can be made.
///
/// # Errors
///
/// `AlreadyExists` when it exists, with the place where it is checked out, or when another branch's name is in its way.
pub(crate) fn check_free(source: &Source, branch: &str) -> Result<(), Error> {
    let repository = &source.repository;
    let name = format!("refs/heads/{branch}");
    if repository.find_reference(&name).is_ok() {
        let mut error = Error::new(
            ErrorKind::AlreadyExists,
            "the branch exists already; choose another name with --branch, and start from it with --base",
        )
        .with("branch", branch);
        if let Some(place) = checked_out(source, &name)? {
            error = error.with("checked_out_at", place.display());
        }
        return Err(error);
    }
    let taken = |other: &str| {
        Error::new(
            ErrorKind::AlreadyExists,
            "a branch of another name is in the way: one cannot be the directory of the other",
        )
        .with("branch", branch)
        .with("in_the_way", other)
    };
    let mut parent = branch;
    while let Some((above, _)) = parent.rsplit_once('/') {
        if repository
            .find_reference(&format!("refs/heads/{above}"))
            .is_ok()
        {
            return Err(taken(above));
        }
        parent = above;
    }
    let below = repository
        .references_glob(&format!("{name}/*"))
        .map_err(|error| git_error("failed to list branches", error))?
        .names()
        .flatten()
        .next()
        .map(str::to_owned);
    match below {
        Some(below) => Err(taken(below.strip_prefix("refs/heads/").unwrap_or(&below))),
        None => Ok(()),
    }
}

/// Tells where a branch is checked out.
pub(crate) fn checked_out(source: &Source, name: &str) -> Result<Option<PathBuf>, Error> {
    admin::holder(&source.common, name)
}

/// Tells that the checkout has changes, which a new worktree does not get.
pub(crate) fn dirty(source: &Source) -> Result<Option<String>, Error> {
    if source.repository.workdir().is_none() {
        return Ok(None);
    }
    let mut options = StatusOptions::new();
    options
        .show(StatusShow::IndexAndWorkdir)
        .include_untracked(true)
        .recurse_untracked_dirs(false)
        .include_ignored(false)
        .exclude_submodules(true)
        .update_index(false)
        .no_refresh(true);
    let statuses = source
        .repository
        .statuses(Some(&mut options))
        .map_err(|error| git_error("failed to look for changes in the checkout", error))?;
    let count = statuses.len();
    if count == 0 {
        return Ok(None);
    }
    let paths = if count == 1 { "path" } else { "paths" };
    Ok(Some(format!(
        "the checkout has uncommitted changes ({count} {paths}); they are not taken along"
    )))
}
