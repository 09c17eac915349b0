//! Looks inside submodules that were filled, by us or by others: what is there that its origin does not have.
//!
//! It only reads, and runs nothing. What is not understood counts as work.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use git2::{Oid, Repository};
use groundcrew_core::{
    error::{Chain, Error, ErrorKind},
    workspace::Finding,
};
use rustix::fs::{Mode, OFlags};

use crate::{
    files::beneath,
    git::{
        admin, clone, history,
        ignore::BaseRules,
        inspect::{self, Differences, Subject},
        module,
        repository::git_error,
    },
    text,
};

/// How deep submodules of submodules are looked into.
const MAX_DEPTH: usize = 16;

/// A work tree that may have submodules.
pub(super) struct Outer<'a> {
    /// What has its commits.
    pub(super) repository: &'a Repository,
    /// It, open.
    pub(super) tree: &'a OwnedFd,
    /// Its path.
    pub(super) path: &'a Path,
    /// Where the git directories of its submodules are.
    pub(super) modules: &'a Path,
    /// The commit that it was compared with.
    pub(super) head: Oid,
    /// The commit that it was made from, if it is known: what that names exists elsewhere.
    pub(super) base: Option<Oid>,
    /// How files are written.
    pub(super) config: &'a git2::Config,
    /// Where files of git-lfs are kept.
    pub(super) lfs: &'a [PathBuf],
}

/// What was found in the submodules of a work tree.
#[derive(Default)]
struct Inside {
    losses: Vec<Finding>,
    ignored: Vec<Vec<u8>>,
    /// Git directories that were looked into.
    seen: Vec<PathBuf>,
}

/// Settles what is nested in a work tree: submodules that hold nothing of their own are no loss.
///
/// Returns what would be lost with the others, and with git directories that no submodule is in.
pub(super) fn settle(outer: &Outer<'_>, found: &mut Differences) -> Result<Vec<Finding>, Error> {
    let mut inside = Inside::default();
    look(outer, found, &mut inside, &[], 0)?;
    found.ignored.append(&mut inside.ignored);
    let left = git_directories(outer.modules)?
        .into_iter()
        .any(|path| !inside.seen.contains(&path));
    if left {
        inside.losses.push(text::single(
            "nested_repository",
            "the repositories of filled submodules",
        ));
    }
    Ok(inside.losses)
}

/// Forgets what is nested where submodules are: only we were here.
pub(super) fn forget(outer: &Outer<'_>, found: &mut Differences) -> Result<(), Error> {
    let known = module::commits(outer.repository, outer.head)?;
    found.nested.retain(|name| !known.contains_key(name));
    Ok(())
}

fn look(
    outer: &Outer<'_>,
    found: &mut Differences,
    inside: &mut Inside,
    prefix: &[u8],
    depth: usize,
) -> Result<(), Error> {
    let known = module::commits(outer.repository, outer.head)?;
    let bases = match outer.base {
        Some(base) if outer.repository.find_commit(base).is_ok() => {
            module::commits(outer.repository, base)?
        }
        _ => BTreeMap::new(),
    };
    let mut kept = Vec::new();
    for name in std::mem::take(&mut found.nested) {
        let Some(commit) = known.get(&name) else {
            kept.push(name);
            continue;
        };
        let one = One {
            outer,
            name: &name,
            shown: [prefix, &name].concat(),
            commit: *commit,
            base: bases.get(&name).copied(),
            depth,
        };
        let before = inside.losses.len();
        match one.look(inside) {
            Ok(()) if inside.losses.len() == before => {}
            Ok(()) => kept.push(name),
            Err(error) => {
                let shown = text::lossy(&one.shown);
                let why = Chain(&error).to_string();
                inside
                    .losses
                    .push(text::single("unreadable", format!("{shown}: {why}")));
                kept.push(name);
            }
        }
    }
    found.nested = kept;
    Ok(())
}

/// One submodule.
struct One<'a> {
    outer: &'a Outer<'a>,
    name: &'a [u8],
    /// Its path from the root of the outermost work tree.
    shown: Vec<u8>,
    /// The commit that the work tree around it names.
    commit: Oid,
    /// The commit that the base of that names.
    base: Option<Oid>,
    depth: usize,
}

impl One<'_> {
    fn look(&self, inside: &mut Inside) -> Result<(), Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::new(ErrorKind::Unsupported, "it is too deep"));
        }
        let outer = self.outer;
        let name = OsStr::from_bytes(self.name);
        let path = outer.path.join(name);
        let tree = beneath::open_directory(outer.tree, name)
            .map_err(|errno| Error::io("failed to open it", errno.into()))?;
        let git = self.git_directory(&tree, &path)?;
        no_rules(&git)?;
        let (repository, own) = clone::open_module(&git)?;
        let head = own
            .head
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "its HEAD names no commit"))?;
        let failed = |error| git_error("failed to read its commits", error);
        let tree_of = |id: Oid| {
            let tree = repository.find_commit(id).and_then(|commit| commit.tree());
            tree.map(|tree| tree.id())
        };
        // The rules of what was there before anybody worked here; without one, none.
        let empty = repository
            .treebuilder(None)
            .and_then(|builder| builder.write());
        let rules = match self.base.map(tree_of) {
            Some(Ok(id)) => id,
            _ => empty.map_err(failed)?,
        };
        let rules = repository.find_tree(rules).map_err(failed)?;
        let head_tree = tree_of(head)
            .and_then(|id| repository.find_tree(id))
            .map_err(failed)?;
        let mut found = inspect::differences(&Subject {
            repository: &repository,
            entry: Some(&git),
            tree: &tree,
            path: &path,
            head: &head_tree,
            rules: &BaseRules::read(&git, &rules, outer.config)?,
            config: outer.config,
            lfs: outer.lfs,
        })?;
        let modules = git.join("modules");
        let next = Outer {
            repository: &repository,
            tree: &tree,
            path: &path,
            modules: &modules,
            head,
            base: self.base,
            config: outer.config,
            lfs: outer.lfs,
        };
        let prefix = [&self.shown[..], b"/"].concat();
        look(&next, &mut found, inside, &prefix, self.depth + 1)?;
        let shown = text::lossy(&self.shown);
        for mut finding in found.losses(true) {
            for item in &mut finding.items {
                *item = format!("{shown}/{item}");
            }
            inside.losses.push(finding);
        }
        inside.ignored.extend(
            found
                .ignored
                .iter()
                .map(|name| [&prefix, &name[..]].concat()),
        );
        let origins: Vec<Oid> = history::holders(&repository, None)?
            .into_iter()
            .filter(|(name, _)| name.starts_with(clone::ORIGIN))
            .map(|(_, id)| id)
            .chain(self.base)
            .collect();
        let base = self.base.unwrap_or(Oid::ZERO_SHA1);
        let unheld = history::unheld(&repository, &own.tips, &origins, base)?;
        inside
            .losses
            .extend(text::finding("commits", &unheld, |id| {
                format!("{shown}: {}", history::line(&repository, *id))
            }));
        if head != self.commit {
            inside.losses.push(text::single("modified", shown.clone()));
        }
        inside.losses.extend(text::finding(
            "operation",
            &history::unfinished(&git),
            |what| format!("{shown}: {what}"),
        ));
        inside.seen.push(git);
        Ok(())
    }

    /// Finds its git directory: below that of the work tree around it, or it is another repository.
    fn git_directory(&self, tree: &OwnedFd, path: &Path) -> Result<PathBuf, Error> {
        let another = |why: &'static str| Error::new(ErrorKind::Conflict, why);
        // It must be a file before anything is read by its path.
        let link = beneath::open(
            tree,
            OsStr::new(".git"),
            OFlags::RDONLY | OFlags::NONBLOCK,
            Mode::empty(),
        )
        .map_err(|errno| Error::io("failed to open its .git", errno.into()))?;
        drop(link);
        let text = admin::read_short(&path.join(".git"))?
            .ok_or_else(|| another("it has no git directory"))?;
        let target = text
            .strip_prefix(b"gitdir:")
            .map(<[u8]>::trim_ascii)
            .ok_or_else(|| another("its .git leads nowhere"))?;
        let real = |path: &Path| {
            path.canonicalize()
                .map_err(|error| Error::io("its git directory cannot be found", error))
        };
        let git = real(&path.join(OsStr::from_bytes(target)))?;
        let modules = real(self.outer.modules)?;
        if git == modules || !git.starts_with(&modules) {
            return Err(another(
                "its git directory is not below the work tree's own",
            ));
        }
        Ok(git)
    }
}

/// Makes sure that nothing is ignored by rules that may have been added.
fn no_rules(git: &Path) -> Result<(), Error> {
    let text = admin::read_short(&git.join("info/exclude"))?.unwrap_or_default();
    let rule = text
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .any(|line| !line.is_empty() && !line.starts_with(b"#"));
    if rule {
        return Err(Error::new(
            ErrorKind::Conflict,
            "its info/exclude has ignore rules of its own",
        ));
    }
    Ok(())
}

/// Lists the git directories below a directory, by their real paths; names may have slashes.
fn git_directories(modules: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let Ok(modules) = modules.canonicalize() else {
        return Ok(found);
    };
    let mut open = vec![(modules, 0)];
    while let Some((directory, depth)) = open.pop() {
        let failed = |error| {
            Error::io("failed to list the repositories of submodules", error)
                .with("path", directory.display())
        };
        for entry in std::fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !directory || path.join("HEAD").symlink_metadata().is_ok() || depth > MAX_DEPTH {
                // What is no directory is nothing that git made: it is no clean one either.
                found.push(path.clone());
                if directory && path.join("modules").symlink_metadata().is_ok() {
                    open.push((path.join("modules"), depth + 1));
                }
            } else {
                open.push((path, depth + 1));
            }
        }
    }
    Ok(found)
}
