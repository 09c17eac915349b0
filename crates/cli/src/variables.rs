//! The variables, payloads and caches that a command line asks for, each with where it stands; looks, and touches nothing.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::{
    env::{Definition, Key, Origin, Tier},
    error::{Error, ErrorKind},
    id::TenantId,
    payload::{MAX_PAYLOAD, Payload},
    request::ManagedCache,
    secret::{SecretId, SecretRef},
};

use crate::{
    args::CommandArgs,
    bounded,
    config::{Config, check_cache_name},
    env_file,
    failing::Failing,
    inherit,
    paths::absolute,
    surroundings::Surroundings,
};

/// What a terminal is called if the caller has none of its own.
pub(crate) const TERM: &str = "xterm-256color";

/// What a command gets besides its arguments and streams.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    pub environment: Vec<Definition>,
    pub payloads: Vec<Payload>,
    pub caches: Vec<ManagedCache>,
}

/// Collects everything that was said of variables, weakest first.
///
/// # Errors
///
/// What is wrong with the words, or with a file that they name.
pub(crate) fn collect(
    args: &CommandArgs,
    terminal: bool,
    config: &Config,
    surroundings: &Surroundings,
) -> Result<Variables, Failing> {
    let mut environment: Vec<_> = inherit::inherited(&surroundings.environment).collect();
    if terminal && surroundings.variable("TERM").is_none() {
        environment.push(Definition::literal(
            Key::new("TERM")?,
            TERM,
            Tier::Fallback,
            "a terminal was asked for",
        ));
    }
    environment.extend(config.environment.iter().cloned());
    environment.extend(config.search_path(surroundings.variable("PATH"))?);
    for file in &args.env_file {
        environment.extend(of_file(file, surroundings)?);
    }
    for word in &args.env {
        environment.push(of_word(word, surroundings)?);
    }
    for word in &args.secret {
        environment.push(of_secret(word)?);
    }
    let payloads = args.payload.iter().map(|word| payload(word, surroundings));
    Ok(Variables {
        environment,
        payloads: payloads.collect::<Result<_, _>>()?,
        caches: caches(&args.cache, config, surroundings)?,
    })
}

fn usage(flag: &str, word: &OsStr, why: impl std::fmt::Display) -> Failing {
    Failing::usage(format!("{flag} {}: {why}", word.display()))
}

/// Splits `KEY=REST`.
fn split<'a>(flag: &str, word: &'a OsStr, form: &str) -> Result<(Key, &'a OsStr), Failing> {
    let bytes = word.as_bytes();
    let Some(at) = bytes.iter().position(|b| *b == b'=') else {
        return Err(usage(flag, word, format_args!("has no `=`; write {form}")));
    };
    let key = key(flag, word, &bytes[..at])?;
    Ok((key, OsStr::from_bytes(&bytes[at + 1..])))
}

fn key(flag: &str, word: &OsStr, name: &[u8]) -> Result<Key, Failing> {
    Key::new(OsString::from_vec(name.to_vec())).map_err(|error| usage(flag, word, error.message()))
}

/// Reads `KEY=VALUE`, or `KEY` for the caller's own value.
fn of_word(word: &OsStr, surroundings: &Surroundings) -> Result<Definition, Failing> {
    const FLAG: &str = "--env";
    let bytes = word.as_bytes();
    let define = |key: Key, value: OsString| Definition::literal(key, value, Tier::Request, FLAG);
    if bytes.is_empty() {
        return Err(Failing::usage(
            "--env needs KEY=VALUE, or KEY for the value that it has here",
        ));
    }
    if bytes.contains(&b'=') {
        let (key, value) = split(FLAG, word, "--env KEY=VALUE")?;
        return Ok(define(key, value.to_owned()));
    }
    let key = key(FLAG, word, bytes)?;
    let found = surroundings
        .environment
        .iter()
        .find(|(name, _)| name == word);
    match found {
        Some((_, value)) => Ok(define(key, value.clone())),
        None => Err(usage(
            FLAG,
            word,
            "is not set here; write KEY=VALUE to give it a value",
        )),
    }
}

/// Reads `KEY=NAME` or `KEY=TENANT:NAME`.
fn of_secret(word: &str) -> Result<Definition, Failing> {
    const FLAG: &str = "--secret";
    let word = OsStr::new(word);
    let (key, named) = split(FLAG, word, "--secret KEY=NAME")?;
    let named = named.to_str().unwrap_or_default();
    let wrong = |error: Error| usage(FLAG, word, error.message());
    let id = match named.split_once(':') {
        Some((tenant, name)) => SecretId::of_tenant(
            SecretRef::new(name).map_err(wrong)?,
            TenantId::new(tenant).map_err(wrong)?,
        ),
        None => SecretId::from(SecretRef::new(named).map_err(wrong)?),
    };
    if id.name.is_runtime() {
        return Err(usage(
            FLAG,
            word,
            "names a secret that only groundcrew uses",
        ));
    }
    Ok(Definition::secret(key, id, Tier::Request, FLAG))
}

fn of_file(file: &OsStr, surroundings: &Surroundings) -> Result<Vec<Definition>, Failing> {
    let path = absolute(file, &surroundings.directory, surroundings.home())?;
    let text = of_place(
        &path,
        env_file::MAX_FILE,
        "failed to read the file of variables",
    )?;
    let entries = env_file::parse(&text).map_err(|error| error.with("file", path.display()))?;
    let define = |entry: env_file::Entry| {
        let origin = format!("{}, line {}", path.display(), entry.line);
        Definition::literal(
            entry.key,
            OsString::from_vec(entry.value),
            Tier::Request,
            origin,
        )
    };
    Ok(entries.into_iter().map(define).collect())
}

/// Reads `KEY=FILE`, or `KEY=-` for standard input.
fn payload(word: &OsStr, surroundings: &Surroundings) -> Result<Payload, Failing> {
    const FLAG: &str = "--payload";
    let (variable, file) = split(FLAG, word, "--payload KEY=FILE")?;
    let limit = MAX_PAYLOAD as u64;
    let content = if file == "-" {
        let content = bounded::read(std::io::stdin().lock(), limit)
            .map_err(|e| Error::io("failed to read a payload from standard input", e))?;
        content.ok_or_else(|| too_large(limit).with("from", "standard input"))?
    } else {
        let path = absolute(file, &surroundings.directory, surroundings.home())?;
        of_place(&path, limit, "failed to read a payload")?
    };
    Ok(Payload {
        variable,
        content: content.into(),
        origin: Origin(FLAG.into()),
    })
}

fn of_place(path: &Path, limit: u64, failed: &'static str) -> Result<Vec<u8>, Error> {
    let failed = |e| Error::io(failed, e).with("file", path.display());
    let content = std::fs::File::open(path).and_then(|file| bounded::read(file, limit));
    let content = content.map_err(failed)?;
    content.ok_or_else(|| too_large(limit).with("file", path.display()))
}

fn too_large(limit: u64) -> Error {
    Error::new(ErrorKind::TooLarge, "a file is too large to be read").with("limit", limit)
}

/// Returns the cache directories: those of the settings, and those of the words, `KEY` or `KEY=NAME`.
fn caches(
    words: &[String],
    config: &Config,
    surroundings: &Surroundings,
) -> Result<Vec<ManagedCache>, Failing> {
    const FLAG: &str = "--cache";
    let mut named = config.caches.clone();
    for word in words {
        let (name, directory) = match word.split_once('=') {
            Some((name, directory)) => (name, directory.to_owned()),
            None => (word.as_str(), word.to_ascii_lowercase()),
        };
        let shown = OsStr::new(word);
        check_cache_name(&directory).map_err(|error| usage(FLAG, shown, error.message()))?;
        named.insert(key(FLAG, shown, name.as_bytes())?, directory);
    }
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let root = caches_directory(surroundings)?;
    let cache = |(variable, directory): (Key, String)| ManagedCache {
        variable,
        directory: root.join(directory),
    };
    Ok(named.into_iter().map(cache).collect())
}

/// Returns where managed caches are.
///
/// # Errors
///
/// Those of the state directory.
pub(crate) fn caches_directory(surroundings: &Surroundings) -> Result<PathBuf, Error> {
    Ok(surroundings.state_directory()?.join("caches"))
}

#[cfg(test)]
mod tests;
