//! The repositories of a request: which are one, how their directories and branches are named, where they begin; reads only.

use std::{error::Error as _, path::PathBuf};

use groundcrew_core::{
    env::Definition,
    error::{Chain, Error, ErrorKind},
    id::{AttemptId, InstallId, PreparerName, RunId},
    workspace::{CloneObjects, RepositorySpec},
};

use super::shared::Shared;
use crate::{
    git::{
        command::Git,
        remote,
        repository::{Source, discover, git_error},
        settings,
        start::{self, Answer, Beginning},
    },
    naming::{self, Named, Words},
};

/// What is asked for.
pub(super) struct Wanted {
    pub(super) preparer: PreparerName,
    /// One at least.
    pub(super) specs: Vec<RepositorySpec>,
    /// Whether private clones are wanted, and where their objects are.
    pub(super) clones: Option<CloneObjects>,
    pub(super) title: Option<String>,
    pub(super) task: String,
    pub(super) given: Vec<Definition>,
    pub(super) install: InstallId,
    pub(super) run: RunId,
    pub(super) attempt: AttemptId,
}

/// One repository, and what is decided about it.
pub(super) struct Chosen {
    pub(super) spec: RepositorySpec,
    pub(super) source: Source,
    /// The name of its directory in that of the run.
    pub(super) directory: String,
    pub(super) branch: Named,
    pub(super) beginning: Beginning,
}

/// A repository before its names are decided.
struct Candidate<'a> {
    spec: RepositorySpec,
    source: Source,
    answer: Option<&'a Answer>,
    /// What tells it from other branches of the repository.
    slug: Option<String>,
    directory: String,
}

impl Wanted {
    fn words<'a>(&'a self, spec: &'a RepositorySpec) -> Words<'a> {
        Words {
            title: self.title.as_deref(),
            task: &self.task,
            ticket: spec.ticket.as_deref(),
            run: self.run.as_str(),
        }
    }

    /// Names the branch; whether it is free is not looked at.
    fn branch(&self, shared: &Shared, spec: &RepositorySpec) -> Result<Named, Error> {
        if let Some(name) = &spec.branch {
            naming::check_branch(name)?;
            return Ok(Named {
                name: name.clone(),
                unique: false,
            });
        }
        let template = spec
            .template
            .as_deref()
            .or(shared.config.template.as_deref())
            .unwrap_or(naming::DEFAULT_TEMPLATE);
        naming::branch(template, &self.words(spec))
    }
}

/// Asks remotes for the start points that a request wants fetched; in the order of its repositories.
///
/// What is wrong with a repository is told later, with everything else.
pub(super) async fn ask(
    shared: &std::sync::Arc<Shared>,
    specs: &[RepositorySpec],
) -> Vec<Option<Answer>> {
    let mut answers = Vec::new();
    for spec in specs {
        if spec.fetch.is_none() {
            answers.push(None);
            continue;
        }
        let spec = spec.clone();
        let question = shared.blocking(move |shared| question(shared, &spec)).await;
        answers.push(match question {
            Ok(None) => None,
            Ok(Some((git, question))) => Some(remote::ask(&git, &question).await),
            Err(error) => Some(Err(error)),
        });
    }
    answers
}

fn question(
    shared: &Shared,
    spec: &RepositorySpec,
) -> Result<Option<(Git, remote::Question)>, Error> {
    let Some(fetch) = &spec.fetch else {
        return Ok(None);
    };
    let source = discover(&spec.path)?;
    let config = settings::layered(&source.repository, &shared.config.user)
        .map_err(|error| git_error("failed to read the configuration of git", error))?;
    let git =
        Git::find(&shared.config.git)?.transport(&shared.config.transport, &shared.config.user);
    let question = remote::question(
        &source.repository,
        &source.place,
        &config,
        spec.base.as_deref(),
        fetch,
    )?;
    Ok(Some((git, question)))
}

/// Decides about every repository; an error names everything that is wrong.
pub(super) fn choose(
    shared: &Shared,
    wanted: &Wanted,
    answers: &[Option<Answer>],
) -> Result<Vec<Chosen>, Error> {
    let git = Git::find(&shared.config.git);
    let mut candidates = Vec::new();
    let mut problems = Vec::new();
    for (at, spec) in wanted.specs.iter().enumerate() {
        match discover(&spec.path) {
            Ok(source) => candidates.push(Candidate {
                spec: spec.clone(),
                source,
                answer: answers.get(at).and_then(Option::as_ref),
                slug: None,
                directory: String::new(),
            }),
            Err(error) => {
                problems.push(error);
                // Without a repository there is no start point to look for.
                problems.extend(wanted.branch(shared, spec).err());
            }
        }
    }
    if let Err(error) = git {
        problems.insert(0, error);
    }
    name_directories(&mut candidates, wanted.run.as_str());
    let candidates = match merged(candidates) {
        Ok(candidates) => candidates,
        Err(error) => {
            problems.push(error);
            Vec::new()
        }
    };
    let mut chosen: Vec<Chosen> = Vec::new();
    let unnamed = candidates
        .iter()
        .filter(|candidate| candidate.spec.branch.is_none())
        .map(|candidate| candidate.source.common_id)
        .collect::<Vec<_>>();
    for candidate in candidates {
        let alone = unnamed
            .iter()
            .filter(|id| **id == candidate.source.common_id)
            .count()
            < 2;
        let branch = wanted
            .branch(shared, &candidate.spec)
            .and_then(|named| sibling(named, &candidate, alone))
            .and_then(|named| {
                start::check_free(&candidate.source, &named.name)?;
                beside(&chosen, &candidate.source, &named)?;
                Ok(named)
            });
        let beginning = start::begin(
            &candidate.source.repository,
            candidate.spec.base.as_deref(),
            candidate.answer,
        );
        match (beginning, branch) {
            (Ok(beginning), Ok(branch)) => chosen.push(Chosen {
                spec: candidate.spec,
                source: candidate.source,
                directory: candidate.directory,
                branch,
                beginning,
            }),
            (beginning, branch) => {
                problems.extend(beginning.err());
                problems.extend(branch.err());
            }
        }
    }
    match problems
        .into_iter()
        .reduce(|first, other| together(&first, &other))
    {
        Some(error) => Err(error),
        None => Ok(chosen),
    }
}

/// Names the directories: after the repository, and after what tells its branches apart where there are several.
fn name_directories(candidates: &mut [Candidate<'_>], run: &str) {
    let spec_key =
        |spec: &RepositorySpec| (spec.slug.clone(), spec.branch.clone(), spec.base.clone());
    let keys: Vec<_> = candidates
        .iter()
        .map(|candidate| (candidate.source.common_id, spec_key(&candidate.spec)))
        .collect();
    for candidate in candidates {
        let spec = &candidate.spec;
        let siblings = keys
            .iter()
            .any(|(id, key)| *id == candidate.source.common_id && *key != spec_key(spec));
        let words = match &spec.slug {
            Some(slug) => Some(slug),
            None if siblings => spec.branch.as_ref().or(spec.base.as_ref()),
            None => None,
        };
        candidate.slug = words.map(|words| naming::slug(words));
        candidate.directory = naming::tree_directory(
            &repository_name(&candidate.source),
            candidate.slug.as_deref(),
            run,
        );
    }
}

fn repository_name(source: &Source) -> String {
    let named = source
        .place
        .file_name()
        .filter(|name| *name != ".git")
        .or_else(|| source.common.parent().and_then(|path| path.file_name()));
    named.unwrap_or_default().to_string_lossy().into_owned()
}

/// Puts those together that are one, and refuses different ones that would be in one directory.
fn merged(candidates: Vec<Candidate<'_>>) -> Result<Vec<Candidate<'_>>, Error> {
    let mut merged: Vec<Candidate<'_>> = Vec::new();
    for candidate in candidates {
        let Some(first) = merged.iter_mut().find(|first| clash(first, &candidate)) else {
            merged.push(candidate);
            continue;
        };
        if !same(first, &candidate) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "two repositories of the request would be in one directory; give one of them a slug of its own",
            )
            .with("directory", &first.directory)
            .with("first", shown(first))
            .with("second", shown(&candidate)));
        }
        if first.spec.destination.is_none() {
            first.spec.destination = candidate.spec.destination;
        }
    }
    Ok(merged)
}

/// Tells whether two would be in one directory, or are one branch to the caller.
fn clash(first: &Candidate<'_>, other: &Candidate<'_>) -> bool {
    let one_branch = first.source.common_id == other.source.common_id
        && first.spec.identity.is_some()
        && first.spec.identity == other.spec.identity;
    first.directory == other.directory || one_branch
}

fn same(first: &Candidate<'_>, other: &Candidate<'_>) -> bool {
    let plain = |spec: &RepositorySpec| RepositorySpec {
        path: PathBuf::new(),
        destination: None,
        ..spec.clone()
    };
    let destinations = match (&first.spec.destination, &other.spec.destination) {
        (Some(first), Some(other)) => first == other,
        _ => true,
    };
    first.source.common_id == other.source.common_id
        && plain(&first.spec) == plain(&other.spec)
        && destinations
}

fn shown(candidate: &Candidate<'_>) -> String {
    let mut text = candidate.source.place.display().to_string();
    if let Some(branch) = candidate
        .spec
        .branch
        .as_ref()
        .or(candidate.spec.base.as_ref())
    {
        text.push_str(&format_args!(" ({branch})").to_string());
    }
    if let Some(to) = &candidate.spec.destination {
        text.push_str(&format_args!(" for {} ({} {})", to.url, to.host, to.provider).to_string());
    }
    text
}

/// Tells the branches of one repository apart that one template names.
fn sibling(named: Named, candidate: &Candidate<'_>, alone: bool) -> Result<Named, Error> {
    match &candidate.slug {
        Some(slug) if candidate.spec.branch.is_none() && !alone => {
            let name = format!("{}-{slug}", named.name);
            naming::check_branch(&name)?;
            Ok(Named { name, ..named })
        }
        _ => Ok(named),
    }
}

/// Makes sure that a branch can be made beside those that the request has already.
fn beside(chosen: &[Chosen], source: &Source, named: &Named) -> Result<(), Error> {
    let below = |name: &str, above: &str| {
        name.strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let taken = chosen
        .iter()
        .filter(|other| other.source.common_id == source.common_id)
        .map(|other| &other.branch.name)
        .find(|other| below(&named.name, other) || below(other, &named.name));
    match taken {
        None => Ok(()),
        Some(other) => Err(Error::new(
            ErrorKind::AlreadyExists,
            "another branch of the request is in the way; name them apart",
        )
        .with("branch", &named.name)
        .with("in_the_way", other)),
    }
}

/// Makes one error of two, so that a person need not repair one to learn of the other; its kind is the first one's.
pub(super) fn together(first: &Error, other: &Error) -> Error {
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
