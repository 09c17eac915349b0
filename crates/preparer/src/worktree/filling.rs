//! Fills submodules: git directories of ours below that of the work tree, and files; nothing of theirs is executed.
//!
//! Nothing is written in the repository, and no hook, filter, setting or template of it or of them has a say. Everything goes
//! with the work tree, or with its entry, wherever making it stops.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use git2::{Oid, Repository, RepositoryInitOptions};
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
};

use super::{
    cloning::{copy_all, quoted},
    maker::Maker,
    resource::Kind,
};
use crate::{
    files::beneath,
    git::{
        command::{Call, failure},
        module::{self, Module},
        remote,
        repository::{git_error, open_common},
    },
    text::lossy,
};

/// How deep submodules of submodules may be.
const MAX_DEPTH: usize = 8;
/// How long fetching one may take.
const LIMIT: Duration = Duration::from_mins(10);

/// A work tree whose submodules are filled.
struct Level {
    /// The git directory that has its commit.
    git_dir: PathBuf,
    /// Its work tree.
    tree: PathBuf,
    /// Its commit.
    commit: Oid,
    /// Where the git directories of its submodules are.
    modules: PathBuf,
    /// Where those of the user's own repository are, if it has any.
    known: PathBuf,
    /// Its address.
    url: OsString,
    depth: usize,
}

/// Fills what is asked for; `entry` is the git directory of the work tree.
pub(super) async fn fill(
    maker: &Maker<'_>,
    held: &Arc<OwnedFd>,
    entry: &Path,
) -> Result<(), Error> {
    let Some(wanted) = &maker.part.submodules else {
        return Ok(());
    };
    let part = &maker.resource.part;
    let git_dir = if maker.resource.kind == Kind::Clone {
        entry
    } else {
        &part.common
    };
    let mut open = vec![Level {
        git_dir: git_dir.to_owned(),
        tree: part.tree.clone(),
        commit: part.base,
        modules: entry.join("modules"),
        known: part.common.join("modules"),
        url: wanted.url.0.clone(),
        depth: 0,
    }];
    while let Some(level) = open.pop() {
        if level.depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "submodules are too deep in each other",
            )
            .with("path", level.tree.display()));
        }
        let (directory, commit) = (level.git_dir.clone(), level.commit);
        let (names, commits) = maker
            .shared
            .blocking(move |_| {
                let repository = open_common(&directory)?;
                let commits = module::commits(&repository, commit)?;
                Ok((module::names_of(&repository, commit)?, commits))
            })
            .await?;
        let found =
            module::read(maker.git, &level.git_dir, names, &commits, maker.cx.cancel).await?;
        for module in found {
            maker.go_on()?;
            let shown = module.path.display();
            maker
                .cx
                .progress
                .line(&format!("filling the submodule {shown}"));
            let next = one(maker, held, &level, &module)
                .await
                .map_err(|error| error.with("submodule", shown))?;
            maker.checkpoint("submodule-filled").await?;
            if wanted.all {
                open.push(next);
            }
        }
    }
    Ok(())
}

/// Fills one submodule.
async fn one(
    maker: &Maker<'_>,
    held: &Arc<OwnedFd>,
    level: &Level,
    module: &Module,
) -> Result<Level, Error> {
    let next = Level {
        git_dir: level.modules.join(&module.name),
        tree: level.tree.join(&module.path),
        commit: module.commit,
        modules: level.modules.join(&module.name).join("modules"),
        known: level.known.join(&module.name).join("modules"),
        url: address(maker, level, module).await?,
        depth: level.depth + 1,
    };
    let known = level.known.join(&module.name);
    let (git_dir, tree, url) = (next.git_dir.clone(), next.tree.clone(), next.url.clone());
    let (root, path) = (level.tree.clone(), module.path.clone());
    let (commit, cancel) = (module.commit, maker.cx.cancel.clone());
    let there = maker
        .shared
        .blocking(move |_| {
            is_empty(&root, &path)?;
            begin(&git_dir, &tree, &url)?;
            take(&known, &git_dir, commit, &cancel)
        })
        .await?;
    if !there {
        fetch(maker, held, &next, &module.path).await?;
    }
    let (git_dir, tree, commit) = (next.git_dir.clone(), next.tree.clone(), next.commit);
    maker
        .shared
        .blocking(move |_| attach(&git_dir, &tree, commit))
        .await?;
    let id = next.commit.to_string();
    let args = ["read-tree", "-m", "-u", "--no-recurse-submodules", &id].map(OsStr::new);
    let call = Call {
        git_dir: &next.git_dir,
        work_tree: Some(&next.tree),
        settings: &maker.part.settings(),
        args: &args,
        holds: Some(held),
    };
    maker
        .git
        .succeed(
            &call,
            "failed to write the files of a submodule",
            maker.cx.cancel,
        )
        .await?;
    let (git_dir, commit) = (next.git_dir.clone(), next.commit);
    maker
        .shared
        .blocking(move |_| verify(&git_dir, commit))
        .await?;
    Ok(next)
}

/// Decides where a submodule comes from: what the user's repository says, else what its commit says.
async fn address(maker: &Maker<'_>, level: &Level, module: &Module) -> Result<OsString, Error> {
    let mut said = None;
    if level.depth == 0 {
        let common = maker.resource.part.common.clone();
        let name = module.name.clone();
        said = maker
            .shared
            .blocking(move |_| {
                use std::os::unix::ffi::OsStringExt as _;
                let Some(name) = name.to_str() else {
                    return Ok(None);
                };
                let config = open_common(&common)?
                    .config()
                    .and_then(|mut config| config.snapshot())
                    .map_err(|error| git_error("failed to read the configuration of git", error))?;
                let value = config.get_bytes(&format!("submodule.{name}.url")).ok();
                Ok(value.map(|value| OsString::from_vec(value.to_vec())))
            })
            .await?;
    }
    match said {
        Some(url) => Ok(url),
        None => module::resolve(&module.url, &level.url),
    }
}

fn failed(error: git2::Error) -> Error {
    git_error("failed to fill a submodule", error)
}

fn io_failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::io("failed to fill a submodule", error).with("path", path.display())
}

/// Makes sure that there is an empty directory, which no link leads to.
fn is_empty(root: &Path, path: &OsStr) -> Result<(), Error> {
    let at = root.join(path);
    let opened = beneath::open_root(root)
        .and_then(|root| beneath::open_directory(&root, path))
        .map_err(|errno| io_failed(&at)(errno.into()))?;
    drop(opened);
    if fs::read_dir(&at).map_err(io_failed(&at))?.next().is_none() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        "the directory of a submodule holds something already",
    )
    .with("path", at.display()))
}

/// Makes the git directory.
fn begin(git_dir: &Path, tree: &Path, url: &OsStr) -> Result<(), Error> {
    let mut options = RepositoryInitOptions::new();
    options
        .bare(true)
        .external_template(false)
        .no_reinit(true)
        .mkpath(true);
    Repository::init_opts(git_dir, &options).map_err(failed)?;
    let mut text =
        b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = true\n\tworktree = "
            .to_vec();
    text.extend(quoted(tree.as_os_str()));
    text.extend_from_slice(b"\n[remote \"origin\"]\n\turl = ");
    text.extend(quoted(url));
    text.extend_from_slice(b"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n");
    let path = git_dir.join("config");
    fs::write(&path, text).map_err(io_failed(&path))
}

/// Takes the commit, and the branches of its origin, from the user's own repository; `false` if it is not there.
fn take(known: &Path, git_dir: &Path, commit: Oid, cancel: &CancelToken) -> Result<bool, Error> {
    if !known.join("HEAD").is_file() {
        return Ok(false);
    }
    let from = open_common(known)?;
    if from.find_commit(commit).is_err() {
        return Ok(false);
    }
    let mut branches = Vec::new();
    for reference in from
        .references_glob("refs/remotes/origin/*")
        .map_err(failed)?
    {
        let reference = reference.map_err(failed)?;
        if let (Ok(name), Some(id)) = (reference.name(), reference.target())
            && from.find_commit(id).is_ok()
        {
            branches.push((name.to_owned(), id));
        }
    }
    // The history of one that was fetched in part ends where that did.
    let shallow = known.join("shallow");
    if shallow.is_file() {
        let target = git_dir.join("shallow");
        fs::copy(&shallow, &target).map_err(io_failed(&target))?;
    }
    copy_all(&known.join("objects"), &git_dir.join("objects"), cancel)?;
    let into = open_common(git_dir)?;
    let mut walk = into.revwalk().map_err(failed)?;
    for id in branches.iter().map(|(_, id)| *id).chain([commit]) {
        walk.push(id).map_err(failed)?;
    }
    for id in walk {
        id.map_err(failed)?;
    }
    for (name, id) in branches {
        into.reference(&name, id, true, "taken along")
            .map_err(failed)?;
    }
    Ok(true)
}

/// Fetches the branches of the origin, and the commit if none of them has it.
async fn fetch(
    maker: &Maker<'_>,
    held: &Arc<OwnedFd>,
    level: &Level,
    path: &OsStr,
) -> Result<(), Error> {
    module::check_address(&level.url, path)?;
    let config = &maker.shared.config;
    let git = maker.git.transport(&config.transport, &config.user);
    let id = level.commit.to_string();
    for spec in ["+refs/heads/*:refs/remotes/origin/*", &id] {
        let (directory, commit) = (level.git_dir.clone(), level.commit);
        let there = maker
            .shared
            .blocking(move |_| Ok(open_common(&directory)?.find_commit(commit).is_ok()));
        if there.await? {
            return Ok(());
        }
        let address = (level.url.as_os_str(), spec);
        let fetching = remote::run_fetch(&git, &level.git_dir, address, held, maker.cx.cancel);
        let output = tokio::time::timeout(LIMIT, Box::pin(fetching))
            .await
            .map_err(|_| {
                Error::new(ErrorKind::TimedOut, "a submodule did not arrive in time")
                    .with("seconds", LIMIT.as_secs())
            })??;
        if !output.status.success() {
            let error = failure("failed to fetch a submodule", &output);
            return Err(remote::unavailable(&error).with("url", level.url.display()));
        }
    }
    Ok(())
}

/// Puts `HEAD` on the commit, and joins the directory with its git directory.
fn attach(git_dir: &Path, tree: &Path, commit: Oid) -> Result<(), Error> {
    let repository = open_common(git_dir)?;
    repository
        .find_commit(commit)
        .and_then(|commit| commit.tree())
        .map_err(failed)?;
    let head = git_dir.join("HEAD");
    fs::write(&head, format!("{commit}\n")).map_err(io_failed(&head))?;
    let link = tree.join(".git");
    let text = [b"gitdir: ", git_dir.as_os_str().as_bytes(), b"\n"].concat();
    let mut file = fs::File::create_new(&link).map_err(io_failed(&link))?;
    std::io::Write::write_all(&mut file, &text).map_err(io_failed(&link))
}

/// Makes sure that what git said it did is so.
fn verify(git_dir: &Path, commit: Oid) -> Result<(), Error> {
    let wrong = |what: String| {
        Error::new(
            ErrorKind::Unexpected,
            "git said that the submodule is complete, but it is not",
        )
        .with("path", git_dir.display())
        .with_source(what)
    };
    let index = git2::Index::open(&git_dir.join("index"))
        .map_err(|error| wrong(format!("the index cannot be read: {error}")))?;
    let repository = open_common(git_dir)?;
    let tree = repository
        .find_commit(commit)
        .and_then(|commit| commit.tree())
        .map_err(failed)?;
    let there: HashSet<Vec<u8>> = index
        .iter()
        .filter_map(|entry| {
            entry
                .path
                .split(|byte| *byte == b'/')
                .next()
                .map(<[u8]>::to_vec)
        })
        .collect();
    let missing = tree.iter().find(|top| !there.contains(top.name_bytes()));
    match missing {
        None => Ok(()),
        Some(top) => Err(wrong(format!("{} is missing", lossy(top.name_bytes())))),
    }
}
