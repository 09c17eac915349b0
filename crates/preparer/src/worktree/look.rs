//! Looks at one work tree, a worktree's or a private clone's: what is in it, on it, and inside it, that would be lost.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use git2::{Oid, Repository};
use groundcrew_core::{error::Error, undo::Occasion, workspace::Finding};

use super::{
    inside::{self, Outer},
    resource::{Kind, Resource},
};
use crate::{
    config::UserGitConfig,
    files::occupants,
    git::{
        admin, clone,
        history::{self, OwnCommits},
        ignore::BaseRules,
        inspect::{self, Differences, Subject},
        lfs,
        repository::{git_error, open_common},
        settings,
    },
    include::Manifest,
    text,
};

/// Which work tree.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Whether it is a private clone's.
    pub(super) cloned: bool,
    /// Where processes of the run are looked for.
    pub(super) root: PathBuf,
    /// The common git directory.
    pub(super) common: PathBuf,
    /// The work tree.
    pub(super) tree: PathBuf,
    /// The reason of its lock.
    pub(super) reason: Option<String>,
    /// Its branch.
    pub(super) branch: String,
    /// What the branch started from.
    pub(super) base: Oid,
}

impl Target {
    /// The one of a record.
    pub(super) fn of(resource: &Resource) -> Self {
        Self {
            cloned: resource.kind == Kind::Clone,
            root: resource.root().to_owned(),
            common: resource.part.common.clone(),
            tree: resource.part.tree.clone(),
            reason: Some(resource.reason()),
            branch: resource.part.branch.clone(),
            base: resource.part.base,
        }
    }
}

/// What was seen.
pub(super) struct Look {
    /// The repository that has the commits: the clone itself, or the common directory of a worktree.
    pub(super) repository: Repository,
    /// The git directory of the work tree, if there is one.
    pub(super) entry: Option<PathBuf>,
    /// The commit that the tree was compared with.
    pub(super) head: Oid,
    /// Where the branch is.
    pub(super) tip: Option<Oid>,
    /// What differs, if there is a tree.
    pub(super) found: Option<Differences>,
    /// Commits that nothing holds which survives.
    pub(super) unheld: Vec<Oid>,
    /// What would be lost.
    pub(super) losses: Vec<Finding>,
    /// Whether anything at all differs from what was made.
    pub(super) changed: bool,
}

/// What holds the commits of a work tree.
struct Holding {
    repository: Repository,
    entry: Option<PathBuf>,
    own: OwnCommits,
    losses: Vec<Finding>,
}

/// Looks at a work tree; `ready` tells whether making it was finished, so that others may have worked in it.
pub(super) fn look(
    target: &Target,
    tree: Option<&OwnedFd>,
    ready: bool,
    occasion: Occasion,
    user: &UserGitConfig,
) -> Result<Look, Error> {
    let source = open_common(&target.common)?;
    let Holding {
        repository,
        entry,
        own,
        mut losses,
    } = if target.cloned {
        of_clone(target, tree, ready)?
    } else {
        of_worktree(target, ready)?
    };
    let tip = repository
        .refname_to_id(&format!("refs/heads/{}", target.branch))
        .ok()
        .filter(|_| !target.cloned || entry.is_some());
    let head = own.head.or(tip).unwrap_or(target.base);
    let mut found = match (tree, &entry) {
        (Some(tree), Some(entry)) => {
            if ready && !target.cloned {
                losses.extend(link(target, entry));
            }
            let of = (&repository, &source);
            Some(compare(of, target, Some(entry), tree, head, user)?)
        }
        (Some(tree), None) if !is_empty(tree) => {
            if ready {
                losses.push(text::single(
                    "unreadable",
                    "the git directory of the work tree is gone",
                ));
            }
            let of = (&repository, &source);
            Some(compare(of, target, None, tree, head, user)?)
        }
        _ => None,
    };
    leave_out_included(found.as_mut(), target, tree, ready);
    if let (Some(found), Some(tree), Some(entry)) = (&mut found, tree, &entry) {
        let outer = Outer {
            repository: &repository,
            tree,
            path: &target.tree,
            modules: &entry.join("modules"),
            head,
            base: Some(target.base),
            config: &configuration(&source, user)?,
            lfs: &stores(target),
        };
        if ready {
            losses.extend(inside::settle(&outer, found)?);
        } else {
            inside::forget(&outer, found)?;
        }
    }
    if let Some(found) = &found {
        // Without an index the checkout never ended: what is there was written by it, and others never came.
        let half = !ready && found.index.is_none();
        let mut different = found.losses(ready);
        if half {
            different.retain(|finding| finding.what != "modified");
        }
        losses.extend(different);
    }
    let unheld = unheld(&repository, &source, target, &own, tip, occasion)?;
    losses.extend(history::finding(&repository, &unheld));
    if let Some(entry) = &entry {
        let begun = history::unfinished(entry);
        losses.extend(text::finding("operation", &begun, |name| {
            (*name).to_owned()
        }));
    }
    if ready && tree.is_some() {
        losses.extend(text::finding(
            "process",
            &occupants::inside(&target.root),
            String::clone,
        ));
    }
    let changed = !losses.is_empty()
        || head != target.base
        || tip.is_some_and(|tip| tip != target.base)
        || found
            .as_ref()
            .is_some_and(|found| !found.ignored.is_empty());
    Ok(Look {
        repository,
        entry,
        head,
        tip,
        found,
        unheld,
        losses,
        changed,
    })
}

/// What is as it was taken along from the user's checkout is nobody's work.
fn leave_out_included(
    found: Option<&mut Differences>,
    target: &Target,
    tree: Option<&OwnedFd>,
    ready: bool,
) {
    if let (Some(found), Some(tree)) = (found, tree) {
        let included = Manifest::read(&target.tree);
        for names in [&mut found.untracked, &mut found.ignored] {
            names.retain(|name| !included.holds(tree, name, ready));
        }
    }
}

fn of_worktree(target: &Target, ready: bool) -> Result<Holding, Error> {
    let repository = open_common(&target.common)?;
    let entry = admin::find(&target.common, target.reason.as_deref(), &target.tree)?;
    let mut losses = Vec::new();
    let own = match &entry {
        Some(entry) => match history::own(&repository, entry) {
            Ok(own) => own,
            Err(error) => {
                if ready {
                    losses.push(text::single("unreadable", error.to_string()));
                }
                OwnCommits::default()
            }
        },
        None => OwnCommits::default(),
    };
    Ok(Holding {
        repository,
        entry,
        own,
        losses,
    })
}

/// Looks at a clone's git directory; one that is not finished is compared with its source.
fn of_clone(target: &Target, tree: Option<&OwnedFd>, ready: bool) -> Result<Holding, Error> {
    let unfinished = |entry| {
        Ok(Holding {
            repository: open_common(&target.common)?,
            entry,
            own: OwnCommits::default(),
            losses: Vec::new(),
        })
    };
    let Some(tree) = tree else {
        return unfinished(None);
    };
    let git = target.tree.join(".git");
    if !ready {
        return unfinished(Some(git).filter(|git| git.join("index").symlink_metadata().is_ok()));
    }
    match clone::open(tree, &target.tree, &target.common) {
        Ok((repository, own)) => Ok(Holding {
            repository,
            entry: Some(git),
            own,
            losses: Vec::new(),
        }),
        Err(error) => {
            let mut holding = unfinished(None)?;
            let why = groundcrew_core::error::Chain(&error).to_string();
            holding.losses.push(text::single("unreadable", why));
            Ok(holding)
        }
    }
}

fn compare(
    (repository, source): (&Repository, &Repository),
    target: &Target,
    entry: Option<&Path>,
    tree: &OwnedFd,
    head: Oid,
    user: &UserGitConfig,
) -> Result<Differences, Error> {
    let failed = |error| git_error("failed to read the commit of the worktree", error);
    let tree_of = |of: &Repository, id| {
        let tree = of.find_commit(id).and_then(|commit| commit.tree());
        tree.map(|tree| tree.id())
    };
    // The rules and the settings are those of the source: a clone's own are whatever was written there.
    let config = configuration(source, user)?;
    let base = tree_of(source, target.base)
        .and_then(|id| source.find_tree(id))
        .map_err(failed)?;
    let rules = BaseRules::read(&target.common, &base, &config)?;
    let head = tree_of(repository, head)
        .and_then(|id| repository.find_tree(id))
        .map_err(failed)?;
    inspect::differences(&Subject {
        repository,
        entry,
        tree,
        path: &target.tree,
        head: &head,
        rules: &rules,
        config: &config,
        lfs: &stores(target),
    })
}

/// Where files of git-lfs are kept that a commit only points to; those of a clone are brought to its source before it goes.
fn stores(target: &Target) -> Vec<PathBuf> {
    let own = target.cloned.then(|| target.tree.join(".git"));
    std::iter::once(&target.common)
        .chain(&own)
        .map(|common| lfs::store(common))
        .collect()
}

fn configuration(source: &Repository, user: &UserGitConfig) -> Result<git2::Config, Error> {
    settings::layered(source, user)
        .map_err(|error| git_error("failed to read the configuration of git", error))
}

/// Checks that the tree still names its entry: if not, what is in it was made by a git we did not follow.
fn link(target: &Target, entry: &Path) -> Option<Finding> {
    let expected = [b"gitdir: ", entry.as_os_str().as_encoded_bytes()].concat();
    let found = admin::read_short(&target.tree.join(".git"));
    match found {
        Ok(Some(text)) if text.trim_ascii_end() == expected => None,
        // A link relative to the tree is written where the repository asks for it.
        Ok(Some(text)) if text.starts_with(b"gitdir: ../") && leads_to(target, &text, entry) => {
            None
        }
        Ok(Some(_)) => Some(text::single(
            "unreadable",
            "the file .git of the worktree was rewritten",
        )),
        Ok(None) => Some(text::single(
            "unreadable",
            "the file .git of the worktree is gone",
        )),
        Err(error) => Some(text::single("unreadable", error.to_string())),
    }
}

fn leads_to(target: &Target, text: &[u8], entry: &Path) -> bool {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let relative = OsStr::from_bytes(text.trim_ascii_end().get(8..).unwrap_or_default());
    target
        .tree
        .join(relative)
        .canonicalize()
        .is_ok_and(|path| path == entry)
}

fn is_empty(tree: &OwnedFd) -> bool {
    rustix::fs::Dir::read_from(tree).is_ok_and(|entries| {
        entries
            .flatten()
            .all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    })
}

/// Lists the commits that go with the work tree. Its branch, and the log of that, hold some as long as they stay.
fn unheld(
    repository: &Repository,
    source: &Repository,
    target: &Target,
    own: &OwnCommits,
    tip: Option<Oid>,
    occasion: Occasion,
) -> Result<Vec<Oid>, Error> {
    if own.tips.iter().all(|tip| *tip == target.base) {
        return Ok(Vec::new());
    }
    let branch = format!("refs/heads/{}", target.branch);
    let stays = matches!(occasion, Occasion::Close | Occasion::End);
    let holders = history::holders(source, (!stays).then_some(&branch))?;
    let mut held: Vec<Oid> = holders.iter().map(|(_, id)| *id).collect();
    if stays && target.cloned {
        // It is brought back before the clone goes.
        held.extend(tip);
    } else if stays && holders.iter().any(|(name, _)| *name == branch) {
        held.extend(history::logged(&history::log_of(
            &target.common,
            &target.branch,
        ))?);
    }
    history::unheld(repository, &own.tips, &held, target.base)
}
