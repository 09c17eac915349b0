//! Where a start point is on a remote: asked without a question to anybody, within a time, and without the repository's own
//! configuration, which could name programs.
//!
//! Asking writes nothing. Fetching goes into a repository of ours first: one that is broken off leaves nothing in the user's.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use git2::{Config, Oid, Repository, RepositoryInitOptions};
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    workspace::FetchSpec,
};

use super::{
    command::{Call, Git, Output, failure},
    history, pack,
    repository::{git_error, open_exact},
};
use crate::text;

/// What a remote is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The name of the remote.
    pub(crate) remote: String,
    /// Its address.
    pub(crate) url: OsString,
    /// The names that the start point may have there, the likeliest first.
    pub(crate) refs: Vec<String>,
    /// How long it may take.
    pub(crate) limit: Duration,
}

/// Where a start point is on a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// The name of the remote.
    pub(crate) remote: String,
    /// Its address.
    pub(crate) url: OsString,
    /// The name there.
    pub(crate) name: String,
    /// The commit, or the tag of one.
    pub(crate) id: Oid,
    /// How long fetching it may take.
    pub(crate) limit: Duration,
}

/// Finds out what to ask of which remote; reads only.
///
/// # Errors
///
/// * `NotFound` when there is no such remote, or none at all; `Ambiguous` when it is not clear which.
pub(crate) fn question(
    repository: &Repository,
    place: &Path,
    config: &Config,
    base: Option<&str>,
    fetch: &FetchSpec,
) -> Result<Question, Error> {
    let remotes = names(config)?;
    let (mut remote, refs) = wanted(repository, config, &remotes, base)?;
    if fetch.remote.is_some() {
        remote.clone_from(&fetch.remote);
    }
    let remote = match (remote, &remotes[..]) {
        (Some(remote), _) => remote,
        (None, [only]) => only.clone(),
        (None, []) => {
            return Err(Error::new(
                ErrorKind::NotFound,
                "the repository has no remote to fetch from",
            ));
        }
        (None, many) if many.iter().any(|name| name == "origin") => "origin".to_owned(),
        (None, many) => {
            return Err(Error::new(
                ErrorKind::Ambiguous,
                "the repository has several remotes; name the one to fetch from",
            )
            .with("remotes", many.join(", ")));
        }
    };
    let url = config
        .get_bytes(&format!("remote.{remote}.url"))
        .map_err(|error| {
            git_error("the remote has no address", error).with("remote", remote.clone())
        })?;
    Ok(Question {
        url: address(url, place),
        remote,
        refs,
        limit: fetch.limit,
    })
}

/// Lists the remotes that have an address.
fn names(config: &Config) -> Result<Vec<String>, Error> {
    let failed = |error| git_error("failed to list the remotes", error);
    let mut names = Vec::new();
    config
        .entries(Some("^remote\\..*\\.url$"))
        .map_err(failed)?
        .for_each(|entry| {
            let name = entry.name().ok().and_then(|name| {
                name.strip_prefix("remote.")?
                    .strip_suffix(".url")
                    .map(str::to_owned)
            });
            names.extend(name);
        })
        .map_err(failed)?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

type Wanted = (Option<String>, Vec<String>);

/// Returns the remote that a start point names, if it does, and the refs that it may be there.
fn wanted(
    repository: &Repository,
    config: &Config,
    remotes: &[String],
    base: Option<&str>,
) -> Result<Wanted, Error> {
    let Some(base) = base.filter(|base| *base != "HEAD") else {
        let head = repository.find_reference("HEAD").ok();
        let target = head
            .as_ref()
            .and_then(|head| head.symbolic_target().ok().flatten());
        let Some(branch) = target.and_then(|target| target.strip_prefix("refs/heads/")) else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "HEAD is on no branch that could be fetched; name a start point with --base",
            ));
        };
        let of = |part: &str| {
            let value = config.get_bytes(&format!("branch.{branch}.{part}")).ok()?;
            String::from_utf8(value.to_vec()).ok()
        };
        // `.` is the repository itself.
        let upstream = of("remote")
            .filter(|remote| remotes.contains(remote))
            .zip(of("merge"));
        return Ok(match upstream {
            Some((remote, merge)) => (Some(remote), vec![merge]),
            None => (None, vec![format!("refs/heads/{branch}")]),
        });
    };
    for remote in remotes {
        let below = [format!("refs/remotes/{remote}/"), format!("{remote}/")]
            .iter()
            .find_map(|prefix| base.strip_prefix(&**prefix).map(str::to_owned));
        if let Some(branch) = below {
            return Ok((Some(remote.clone()), vec![format!("refs/heads/{branch}")]));
        }
    }
    if base.starts_with("refs/") || is_commit_id(base) {
        return Ok((None, vec![base.to_owned()]));
    }
    let mut refs = vec![format!("refs/heads/{base}"), format!("refs/tags/{base}")];
    if base.starts_with("pull/") || base.starts_with("merge-requests/") {
        refs.insert(0, format!("refs/{base}"));
    }
    Ok((None, refs))
}

/// Tells whether a start point is the whole id of a commit: then there is nothing to ask.
fn is_commit_id(base: &str) -> bool {
    base.len() == 40 && Oid::from_str(base).is_ok()
}

/// Makes an address that does not depend on where git is started.
fn address(url: &[u8], place: &Path) -> OsString {
    let relative = !url.starts_with(b"/") && !url.contains(&b':') && !url.is_empty();
    if relative {
        place.join(OsStr::from_bytes(url)).into_os_string()
    } else {
        OsString::from_vec(url.to_vec())
    }
}

/// Asks a remote; `None` if it has none of the names.
///
/// # Errors
///
/// `TimedOut` and `Unavailable` with git's words: then nobody can tell whether it has one.
pub(crate) async fn ask(git: &Git, question: &Question) -> Result<Option<Located>, Error> {
    if let [name] = &question.refs[..]
        && is_commit_id(name)
        && let Ok(id) = Oid::from_str(name)
    {
        return Ok(Some(located(question, name, id)));
    }
    let mut args = vec![
        OsStr::new("ls-remote"),
        OsStr::new("--upload-pack=git-upload-pack"),
        OsStr::new("--"),
        &question.url,
    ];
    let peeled: Vec<String> = question
        .refs
        .iter()
        .map(|name| format!("{name}^{{}}"))
        .collect();
    args.extend(question.refs.iter().chain(&peeled).map(OsStr::new));
    let call = Call {
        // There is none: the repository's own configuration has no say in this.
        git_dir: Path::new("/dev/null"),
        work_tree: None,
        settings: &[],
        args: &args,
        holds: None,
    };
    let never = CancelToken::new();
    let output = within(question.limit, Box::pin(git.run(&call, &never))).await;
    let output = output
        .and_then(|output| {
            if output.status.success() {
                Ok(output)
            } else {
                Err(unavailable(&failure("failed to ask the remote", &output)))
            }
        })
        .map_err(|error| error.with("remote", &question.remote))?;
    let found: Vec<(String, Oid)> = text::lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(id, name)| Some((name.to_owned(), Oid::from_str(id).ok()?)))
        .collect();
    Ok(question.refs.iter().find_map(|wanted| {
        let (name, id) = found.iter().find(|(name, _)| name == wanted)?;
        // What a tag leads to is told beside it.
        let id = found
            .iter()
            .find(|(name, _)| name.strip_suffix("^{}") == Some(wanted))
            .map_or(*id, |(_, id)| *id);
        Some(located(question, name, id))
    }))
}

fn located(question: &Question, name: &str, id: Oid) -> Located {
    Located {
        remote: question.remote.clone(),
        url: question.url.clone(),
        name: name.to_owned(),
        id,
        limit: question.limit,
    }
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.map_err(|_| {
        Error::new(ErrorKind::TimedOut, "the remote did not answer in time")
            .with("seconds", limit.as_secs_f32())
    })?
}

/// Returns git's words about a remote as the error that it is.
pub(crate) fn unavailable(error: &Error) -> Error {
    let message = error.message().to_owned();
    Error::new(ErrorKind::Unavailable, message)
        .with_source(groundcrew_core::error::Chain(error).to_string())
}

/// Makes a repository of ours that reads the objects of another, and knows its refs, so that only what is new is fetched.
pub(crate) fn intermediate(source: &Repository, at: &Path) -> Result<(), Error> {
    let failed = |error| git_error("failed to make a repository to fetch into", error);
    let io = |error| {
        Error::io("failed to make a repository to fetch into", error).with("path", at.display())
    };
    let mut options = RepositoryInitOptions::new();
    options.bare(true).external_template(false).no_reinit(true);
    Repository::init_opts(at, &options).map_err(failed)?;
    let objects = source.commondir().join("objects");
    fs::write(
        at.join("objects/info/alternates"),
        pack::alternate(&objects)?,
    )
    .map_err(io)?;
    let shallow = source.commondir().join("shallow");
    if shallow.is_file() {
        fs::copy(shallow, at.join("shallow")).map_err(io)?;
    }
    let mut lines = String::from("# pack-refs with: sorted \n");
    let mut known: Vec<_> = history::holders(source, None)?;
    known.sort();
    for (at, (_, id)) in known.iter().enumerate() {
        lines.push_str(&format_line(*id, at));
    }
    fs::write(at.join("packed-refs"), lines).map_err(io)
}

fn format_line(id: Oid, at: usize) -> String {
    format!("{id} refs/known/{at:08}\n")
}

/// Runs git for one refspec of an address, and for nothing that it would do besides; the caller bounds it.
pub(crate) async fn run_fetch(
    git: &Git,
    into: &Path,
    (url, spec): (&OsStr, &str),
    held: &OwnedFd,
    cancel: &CancelToken,
) -> Result<Output, Error> {
    let args = [
        OsStr::new("fetch"),
        OsStr::new("--quiet"),
        OsStr::new("--no-tags"),
        OsStr::new("--no-write-fetch-head"),
        OsStr::new("--no-auto-gc"),
        OsStr::new("--no-recurse-submodules"),
        OsStr::new("--upload-pack=git-upload-pack"),
        OsStr::new("--"),
        url,
        OsStr::new(spec),
    ];
    let call = Call {
        git_dir: into,
        work_tree: None,
        settings: &[],
        args: &args,
        holds: Some(held),
    };
    git.run(&call, cancel).await
}

/// Fetches a commit into the repository of ours at `into`.
///
/// # Errors
///
/// Git's words as `Unavailable`; `TimedOut`, `Cancelled`.
pub(crate) async fn fetch(
    git: &Git,
    into: &Path,
    located: &Located,
    held: &OwnedFd,
    cancel: &CancelToken,
) -> Result<(), Error> {
    let spec = format!("+{}:refs/fetched", located.name);
    let fetching = run_fetch(git, into, (&located.url, &spec), held, cancel);
    let output = within(located.limit, Box::pin(fetching))
        .await
        .map_err(|error| error.with("remote", &located.remote))?;
    if output.status.success() {
        return Ok(());
    }
    Err(
        unavailable(&failure("failed to fetch the start point", &output))
            .with("remote", &located.remote)
            .with("ref", &located.name),
    )
}

/// Takes what was fetched into the user's repository, without a ref; it is kept from a clean-up until `pack::sweep`.
///
/// # Errors
///
/// `Conflict` when the remote has another history than it had when it was asked.
pub(crate) fn take_in(
    source: &Repository,
    from: &Path,
    base: Oid,
    mark: &str,
) -> Result<(), Error> {
    let from = open_exact(from)?;
    if from.find_commit(base).is_err() {
        return Err(Error::new(
            ErrorKind::Conflict,
            "the remote was changed while the start point was fetched; try again",
        )
        .with("commit", base)
        .retryable(true));
    }
    let held: Vec<Oid> = history::holders(source, None)?
        .into_iter()
        .map(|(_, id)| id)
        .collect();
    pack::copy_commits(&from, source, &[base], &held, mark)
}

/// The directory of the repository to fetch into, in the directory of the run.
pub(crate) fn intermediate_path(directory: &Path, key: &str) -> PathBuf {
    directory.join(format!("{INTERMEDIATE}{key}"))
}

/// Begins the name of a repository to fetch into.
pub(crate) const INTERMEDIATE: &str = ".groundcrew-fetch-";
