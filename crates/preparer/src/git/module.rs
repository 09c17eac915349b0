//! What a commit says about its submodules. It is another's word: names stay inside, addresses are of a few protocols.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path},
};

use git2::{Oid, Repository};
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
};

use super::{command::Git, repository::git_error, tree};
use crate::text::lossy;

/// The mode of a submodule in a tree.
pub(crate) const MODE: u32 = 0o160_000;

/// A submodule of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// The name of its git directory below `modules`.
    pub(crate) name: OsString,
    /// Its directory in the work tree.
    pub(crate) path: OsString,
    /// Its commit.
    pub(crate) commit: Oid,
    /// Where it comes from, as it is written.
    pub(crate) url: OsString,
}

/// What is said of one.
#[derive(Debug, Default)]
struct Said {
    path: Option<Vec<u8>>,
    url: Option<Vec<u8>>,
}

/// Lists the commits of submodules of a commit, by their directories.
pub(crate) fn commits(
    repository: &Repository,
    commit: Oid,
) -> Result<BTreeMap<Vec<u8>, Oid>, Error> {
    let tree = repository
        .find_commit(commit)
        .and_then(|commit| commit.tree())
        .map_err(|error| git_error("failed to read the submodules of a commit", error))?;
    Ok(tree::files(repository, &tree)?
        .into_iter()
        .filter(|file| file.mode == MODE)
        .map(|file| (file.name, file.id))
        .collect())
}

/// Returns the object of the file that names the submodules.
pub(crate) fn names_of(repository: &Repository, commit: Oid) -> Result<Option<Oid>, Error> {
    let tree = repository
        .find_commit(commit)
        .and_then(|commit| commit.tree())
        .map_err(|error| git_error("failed to read the submodules of a commit", error))?;
    Ok(tree
        .get_name(".gitmodules")
        .filter(|entry| entry.kind() == Some(git2::ObjectType::Blob))
        .map(|entry| entry.id()))
}

/// Joins the commits of submodules with what the file that names them says.
///
/// # Errors
///
/// `InvalidInput` when it does not say enough, or names a place outside.
pub(crate) async fn read(
    git: &Git,
    git_dir: &Path,
    names: Option<Oid>,
    commits: &BTreeMap<Vec<u8>, Oid>,
    cancel: &CancelToken,
) -> Result<Vec<Module>, Error> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let said = match names {
        Some(blob) => settings(git, git_dir, blob, cancel).await?,
        None => Vec::new(),
    };
    let mut by_name: BTreeMap<Vec<u8>, Said> = BTreeMap::new();
    for (key, value) in said {
        let Some(rest) = key.strip_prefix(b"submodule.") else {
            continue;
        };
        let Some(end) = rest.iter().rposition(|byte| *byte == b'.') else {
            continue;
        };
        let (name, what) = rest.split_at(end);
        let entry = by_name.entry(name.to_vec()).or_default();
        match what {
            b".path" => entry.path = Some(value),
            b".url" => entry.url = Some(value),
            _ => {}
        }
    }
    commits
        .iter()
        .map(|(path, commit)| {
            let (name, url) = by_name
                .iter()
                .find(|(_, said)| said.path.as_ref() == Some(path))
                .map(|(name, said)| (name, said.url.clone().unwrap_or_default()))
                .ok_or_else(|| wrong("no name is given to a submodule in .gitmodules", path))?;
            if !is_inside(name) {
                return Err(wrong(
                    "the name of a submodule leads out of its place",
                    path,
                ));
            }
            Ok(Module {
                name: OsString::from_vec(name.clone()),
                path: OsString::from_vec(path.clone()),
                commit: *commit,
                url: OsString::from_vec(url),
            })
        })
        .collect()
}

fn wrong(what: &'static str, path: &[u8]) -> Error {
    Error::new(ErrorKind::InvalidInput, what).with("submodule", lossy(path))
}

/// Tells whether a name makes a path that stays below a directory.
fn is_inside(name: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(name));
    !name.is_empty()
        && !name.starts_with(b"-")
        && !name.contains(&0)
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
        // Another one's git directory would be inside this one's.
        && !path.components().any(|part| {
            ["modules", "objects", "refs", "logs", "hooks", "HEAD", "config"]
                .iter()
                .any(|taken| part.as_os_str() == *taken)
        })
}

/// Reads the settings in an object as git does, without what they include.
async fn settings(
    git: &Git,
    git_dir: &Path,
    blob: Oid,
    cancel: &CancelToken,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
    let blob = format!("--blob={blob}");
    let settings = git
        .configuration(
            git_dir,
            &[
                "--no-includes",
                &blob,
                "-z",
                "--get-regexp",
                "^submodule\\.",
            ],
            "failed to read the names of submodules",
            cancel,
        )
        .await?;
    Ok(settings
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'\n')?;
            let (key, value) = entry.split_at(at);
            Some((key.to_vec(), value.get(1..)?.to_vec()))
        })
        .collect())
}

/// Makes an address that does not depend on another one.
///
/// # Errors
///
/// `InvalidInput` when it leads above the root of the other.
pub(crate) fn resolve(url: &OsStr, parent: &OsStr) -> Result<OsString, Error> {
    let mut rest = url.as_bytes();
    if !rest.starts_with(b"./") && !rest.starts_with(b"../") {
        return Ok(url.to_owned());
    }
    let mut base = parent.as_bytes();
    while let Some(shorter) = base.strip_suffix(b"/") {
        base = shorter;
    }
    loop {
        if let Some(next) = rest.strip_prefix(b"./") {
            rest = next;
        } else if let Some(next) = rest.strip_prefix(b"../") {
            rest = next;
            let cut = base
                .iter()
                .rposition(|byte| *byte == b'/')
                .or_else(|| base.iter().rposition(|byte| *byte == b':').map(|at| at + 1))
                .filter(|at| *at > 0 && !base.get(..*at).unwrap_or_default().ends_with(b"/"));
            base = cut.and_then(|at| base.get(..at)).ok_or_else(|| {
                wrong("the address of a submodule leads above its parent's", rest)
            })?;
        } else {
            break;
        }
    }
    let gap: &[u8] = if base.ends_with(b":") { b"" } else { b"/" };
    Ok(OsString::from_vec([base, gap, rest].concat()))
}

/// Makes sure that an address is of a protocol that executes nothing and reads nothing of this machine.
///
/// # Errors
///
/// `Unsupported` for every other one.
pub(crate) fn check_address(url: &OsStr, path: &OsStr) -> Result<(), Error> {
    let bytes = url.as_bytes();
    let lower = bytes.to_ascii_lowercase();
    let host = |rest: &[u8]| !rest.is_empty() && !rest.starts_with(b"-") && !rest.starts_with(b"/");
    let good = if let Some(rest) = lower
        .strip_prefix(b"https://")
        .or_else(|| lower.strip_prefix(b"ssh://"))
    {
        host(rest)
    } else {
        // `user@host:path`, as ssh is said in short; `word::rest` names a program.
        bytes
            .iter()
            .position(|byte| *byte == b':')
            .is_some_and(|at| {
                let (before, after) = bytes.split_at(at);
                host(before)
                    && !before.contains(&b'/')
                    && !after.starts_with(b"::")
                    && !after.starts_with(b"://")
                    && !after.starts_with(b":-")
            })
    };
    if good && !bytes.iter().any(u8::is_ascii_control) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "a submodule is not in the repository, and only https and ssh may be used to fetch one; \
         fill it in the checkout with `git submodule update --init`, then it is taken from there",
    )
    .with("submodule", path.display())
    .with("url", url.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f092_names_of_submodules_stay_inside() {
        for good in ["lib", "a/b", "third party/x.y"] {
            assert!(is_inside(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "..",
            "../x",
            "a/../b",
            "/a",
            "-x",
            "a\0b",
            "a/modules/b",
            "hooks",
        ] {
            assert!(!is_inside(bad.as_bytes()), "{bad:?}");
        }
    }

    #[test]
    fn f092_addresses_of_submodules_are_of_a_few_protocols() {
        let check = |url: &str| check_address(OsStr::new(url), OsStr::new("lib"));
        for good in [
            "https://example.org/a.git",
            "ssh://git@example.org/a",
            "git@example.org:a/b.git",
            "HTTPS://example.org/a",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/a/b",
            "../b",
            "file:///a",
            "http://example.org/a",
            "git://example.org/a",
            "ext::sh -c x",
            "ssh://-oProxyCommand=x/a",
            "-oProxyCommand=x:a",
            "fd::3",
            "x::https://a",
            "https://",
            "a/b:c",
            "host:-x",
            "https://example.org/\na",
        ] {
            let error = check(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{bad}");
            assert_eq!(error.get("submodule"), Some("lib"));
        }
    }

    #[test]
    fn f092_relative_addresses_begin_at_the_parents() {
        let resolve = |url: &str, parent: &str| {
            resolve(OsStr::new(url), OsStr::new(parent)).map(|url| url.into_string().unwrap())
        };
        for (url, parent, expected) in [
            ("https://a/b", "ssh://c/d", "https://a/b"),
            ("../lib", "https://h/o/app.git", "https://h/o/lib"),
            ("../../x/lib", "https://h/o/app", "https://h/x/lib"),
            ("./lib", "/srv/app/", "/srv/app/lib"),
            ("../lib", "git@h:o/app", "git@h:o/lib"),
            ("../lib", "git@h:app", "git@h:lib"),
        ] {
            assert_eq!(resolve(url, parent).unwrap(), expected, "{url} {parent}");
        }
        assert!(resolve("../../../../x", "https://h/a").is_err());
    }
}
