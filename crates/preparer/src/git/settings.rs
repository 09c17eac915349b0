//! What the configuration of a repository and of the user says about writing files, and about filters.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

use git2::{Config, ConfigLevel, Repository};
use groundcrew_core::{cancel::CancelToken, env::Definition, error::Error};

use super::{command::Git, identity, repository::git_error};
use crate::config::UserGitConfig;

/// Settings that tell how files are written; the user's own count, or the user's shell would see changes.
const CHECKOUT: [&str; 8] = [
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.symlinks",
    "core.filemode",
    "core.checkStat",
    "core.trustctime",
    "core.precomposeUnicode",
];

/// Puts the repository's and the user's configuration together, without asking the environment where the latter is.
pub(crate) fn layered(
    repository: &Repository,
    user: &UserGitConfig,
) -> Result<Config, git2::Error> {
    let mut config = Config::new()?;
    add_user(&mut config, user)?;
    let local = repository.commondir().join("config");
    if local.is_file() {
        config.add_file(&local, ConfigLevel::Local, false)?;
    }
    let own = repository.path().join("config.worktree");
    if own.is_file()
        && config
            .get_bool("extensions.worktreeConfig")
            .unwrap_or(false)
    {
        config.add_file(&own, ConfigLevel::Worktree, false)?;
    }
    config.snapshot()
}

/// Puts the user's configuration together, for where there is no repository yet.
pub(crate) fn of_user(user: &UserGitConfig) -> Result<Config, git2::Error> {
    let mut config = Config::new()?;
    add_user(&mut config, user)?;
    config.snapshot()
}

/// Returns definitions of an identity for git in a place without a repository, where only the user's own configuration counts.
pub(crate) fn missing_identity(
    user: &UserGitConfig,
    given: &[Definition],
) -> Result<Vec<Definition>, Error> {
    let config = of_user(user)
        .map_err(|error| git_error("failed to read the configuration of git", error))?;
    identity::missing(&config, given)
}

fn add_user(config: &mut Config, user: &UserGitConfig) -> Result<(), git2::Error> {
    let files = [
        (&user.system, ConfigLevel::System),
        (&user.xdg, ConfigLevel::XDG),
        (&user.global, ConfigLevel::Global),
    ];
    for (file, level) in files {
        if let Some(file) = file
            && file.is_file()
        {
            config.add_file(file, level, false)?;
        }
    }
    Ok(())
}

/// Returns the user's settings for writing files; the repository's own are read by git itself.
pub(crate) fn checkout(config: &Config) -> Vec<(OsString, OsString)> {
    CHECKOUT
        .iter()
        .filter_map(|key| {
            config
                .get_bytes(key)
                .ok()
                .map(|value| (OsString::from(key), OsString::from_vec(value.to_vec())))
        })
        .collect()
}

/// Returns what a private clone takes along of its source's own configuration: who commits, and how files are written.
///
/// Nothing of it names a program, a file or another repository.
pub(crate) fn taken_along(repository: &Repository) -> Result<Vec<(String, OsString)>, Error> {
    let failed = |error| git_error("failed to read the configuration of the repository", error);
    let mut config = Config::new().map_err(failed)?;
    let local = repository.commondir().join("config");
    if local.is_file() {
        config
            .add_file(&local, ConfigLevel::Local, false)
            .map_err(failed)?;
    }
    let config = config.snapshot().map_err(failed)?;
    Ok(["user.name", "user.email"]
        .iter()
        .chain(&CHECKOUT)
        .filter_map(|key| {
            let value = config.get_bytes(key).ok()?;
            Some(((*key).to_owned(), OsString::from_vec(value.to_vec())))
        })
        .collect())
}

/// Returns the number of checkout workers that the user chose, if any.
pub(crate) fn workers(config: &Config) -> Option<(OsString, OsString)> {
    let value = config.get_bytes("checkout.workers").ok()?;
    Some((
        "checkout.workers".into(),
        OsString::from_vec(value.to_vec()),
    ))
}

/// Tells whether the configuration of a repository may define content filters.
fn may_define_filters(common: &Path) -> Result<bool, Error> {
    for name in ["config", "config.worktree"] {
        let path = common.join(name);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes.to_ascii_lowercase(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(
                    Error::io("failed to read the configuration of the repository", error)
                        .with("path", path.display()),
                );
            }
        };
        let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
        if has(b"filter") || has(b"include") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Settings that turn every content filter of a repository off.
#[derive(Debug, Default)]
pub(crate) struct FiltersOff {
    /// The settings.
    pub(crate) settings: Vec<(OsString, OsString)>,
    /// Whether git must fail where one of the filters does.
    pub(crate) required: bool,
}

/// Turns every content filter of a repository off, as git itself would find them; those of the user's configuration as well
/// where git reads that.
pub(crate) async fn without_filters(
    git: &Git,
    common: &Path,
    cancel: &CancelToken,
) -> Result<FiltersOff, Error> {
    if !git.reads_users() && !may_define_filters(common)? {
        return Ok(FiltersOff::default());
    }
    let names = git
        .configuration(
            common,
            &[
                "--includes",
                "-z",
                "--name-only",
                "--get-regexp",
                "^filter\\.",
            ],
            "failed to read the filters that the repository defines",
            cancel,
        )
        .await?;
    let mut off = FiltersOff::default();
    let mut drivers = BTreeSet::new();
    for key in names.split(|byte| *byte == 0) {
        if let Some(end) = key.iter().rposition(|byte| *byte == b'.') {
            drivers.extend(key.get(b"filter.".len()..end));
            off.required |= key.ends_with(b".required");
        }
    }
    for driver in drivers {
        for (name, value) in [
            ("smudge", ""),
            ("clean", ""),
            ("process", ""),
            ("required", "false"),
        ] {
            let key = [b"filter.", driver, b".", name.as_bytes()].concat();
            off.settings
                .push((OsStr::from_bytes(&key).to_owned(), value.into()));
        }
    }
    Ok(off)
}

/// Returns the names of the filters that the attributes at the root of a tree, or of the repository, ask for.
pub(crate) fn filters_asked_for(repository: &Repository, base: &git2::Commit<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    if let Ok(blob) = base
        .tree()
        .and_then(|tree| {
            tree.get_name(".gitattributes")
                .map(|entry| entry.id())
                .ok_or_else(|| git2::Error::from_str("none"))
        })
        .and_then(|id| repository.find_blob(id))
    {
        texts.push(blob.content().to_vec());
    }
    if let Ok(bytes) = std::fs::read(repository.commondir().join("info/attributes")) {
        texts.push(bytes);
    }
    let names: BTreeSet<String> = texts
        .iter()
        .flat_map(|text| text.split(|byte| *byte == b'\n'))
        .filter(|line| !line.trim_ascii_start().starts_with(b"#"))
        .flat_map(|line| line.split(u8::is_ascii_whitespace).skip(1))
        .filter_map(|attribute| attribute.strip_prefix(b"filter="))
        .map(crate::text::lossy)
        .collect();
    names.into_iter().collect()
}
