//! The user's settings: `config.toml` in the configuration directory; read whole, or refused with the line.
//!
//! Nothing here has an effect; a file that is not there says nothing.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_core::{
    env::{Definition, Key, Tier},
    error::{Error, ErrorKind},
    secret::{SecretId, SecretRef},
};
use serde::Deserialize;

use crate::{
    paths::absolute,
    scripts::{self, Configured},
    surroundings::Surroundings,
    toml_file,
};

/// How long a helper may take if nothing is said.
const HELPER_SECONDS: u32 = 30;

/// What the variables of the file are said to come from.
const ORIGIN: &str = "config.toml";

/// The user's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    /// Variables for every command; weaker than what a command line says.
    pub environment: Vec<Definition>,
    /// Cache directories: the variable, and the directory's name below the state directory's caches.
    pub caches: BTreeMap<Key, String>,
    /// Directories that come first in `PATH`, in order.
    pub path: Vec<PathBuf>,
    /// Variables of ours that hold secrets, by the secret's name.
    pub secret_variables: BTreeMap<SecretRef, OsString>,
    /// Scripts that ready a workspace.
    pub setup: Vec<Configured>,
    /// Scripts that clear it up.
    pub teardown: Vec<Configured>,
    /// The program that is asked for secrets which nothing else knows.
    pub secret_helper: Option<HelperCommand>,
}

/// A program that reveals secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HelperCommand {
    /// Its arguments, the program's absolute path first.
    pub argv: Vec<OsString>,
    /// How long it may take.
    pub limit: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    environment: BTreeMap<String, Written>,
    caches: BTreeMap<String, String>,
    paths: Paths,
    secrets: Secrets,
    setup: Vec<scripts::Written>,
    teardown: Vec<scripts::Written>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Secrets {
    variables: BTreeMap<SecretRef, String>,
    helper: Option<WrittenCommand>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCommand {
    command: Vec<String>,
    #[serde(default)]
    seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Paths {
    search: Vec<String>,
}

/// A value: text, or the name of a secret.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a value is a string, or a table such as { secret = \"name\" }"
)]
enum Written {
    Literal(String),
    Secret(SecretValueName),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretValueName {
    secret: SecretRef,
    #[serde(default)]
    tenant: Option<groundcrew_core::id::TenantId>,
}

impl Config {
    /// Reads the settings of the user.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with file, line and reason; what reading the file ran into.
    pub(crate) fn read(surroundings: &Surroundings) -> Result<Self, Error> {
        let Some(directory) = surroundings.config_directory()? else {
            return Ok(Self::default());
        };
        let path = directory.join("config.toml");
        match toml_file::read(&path)? {
            Some(text) => Self::parse(&text, &path, surroundings.home()),
            None => Ok(Self::default()),
        }
    }

    fn parse(text: &str, path: &Path, home: Option<&Path>) -> Result<Self, Error> {
        let file: File = toml_file::parse(text, path)?;
        let base = path.parent().unwrap_or(Path::new("/"));
        let read = || {
            Ok(Self {
                environment: environment(file.environment)?,
                caches: caches(file.caches)?,
                path: search(&file.paths.search, base, home)?,
                secret_variables: secret_variables(file.secrets.variables)?,
                setup: scripts::configured("setup", file.setup, base, home)?,
                teardown: scripts::configured("teardown", file.teardown, base, home)?,
                secret_helper: file
                    .secrets
                    .helper
                    .map(|helper| secret_helper(helper, base, home))
                    .transpose()?,
            })
        };
        read().map_err(|error: Error| error.with("file", path.display()))
    }

    /// Returns the `PATH` with the user's directories in front of the inherited ones.
    pub(crate) fn path_before(&self, inherited: Option<&OsStr>) -> Option<OsString> {
        if self.path.is_empty() {
            return inherited.map(OsStr::to_owned);
        }
        let mut path = OsString::new();
        for directory in &self.path {
            path.push(directory);
            path.push(":");
        }
        path.push(inherited.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")));
        Some(path)
    }

    /// Returns the definition of that `PATH`, if the user names directories.
    pub(crate) fn search_path(
        &self,
        inherited: Option<&OsStr>,
    ) -> Result<Option<Definition>, Error> {
        let path = self
            .path_before(inherited)
            .filter(|_| !self.path.is_empty());
        let define = |path| {
            Ok(Definition::literal(
                Key::new("PATH")?,
                path,
                Tier::Profile,
                ORIGIN,
            ))
        };
        path.map(define).transpose()
    }
}

fn environment(written: BTreeMap<String, Written>) -> Result<Vec<Definition>, Error> {
    let define = |(name, written): (String, Written)| {
        let named = |error: Error| error.with("setting", format!("environment.{name}"));
        let key = Key::new(name.as_str()).map_err(named)?;
        match written {
            Written::Literal(value) if value.contains('\0') => Err(named(Error::new(
                ErrorKind::InvalidInput,
                "the value of a variable holds a NUL byte",
            ))),
            Written::Literal(value) => Ok(Definition::literal(key, value, Tier::Profile, ORIGIN)),
            Written::Secret(found) => {
                let mut id = SecretId::from(found.secret);
                id.scope.tenant = found.tenant;
                Ok(Definition::secret(key, id, Tier::Profile, ORIGIN))
            }
        }
    };
    written.into_iter().map(define).collect()
}

fn caches(written: BTreeMap<String, String>) -> Result<BTreeMap<Key, String>, Error> {
    let read = |(name, directory): (String, String)| {
        let named = |error: Error| error.with("setting", format!("caches.{name}"));
        let key = Key::new(name.as_str()).map_err(named)?;
        check_cache_name(&directory).map_err(named)?;
        Ok((key, directory))
    };
    written.into_iter().map(read).collect()
}

fn search(written: &[String], base: &Path, home: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    let named = |error: Error| error.with("setting", "paths.search");
    let place = |written: &String| {
        let path = absolute(OsStr::new(written), base, home).map_err(named)?;
        if path.as_os_str().as_bytes().contains(&b':') {
            let error = Error::new(
                ErrorKind::InvalidInput,
                "a directory of PATH cannot have a `:` in its name",
            );
            return Err(named(error.with("path", path.display())));
        }
        Ok(path)
    };
    written.iter().map(place).collect()
}

fn secret_variables(
    written: BTreeMap<SecretRef, String>,
) -> Result<BTreeMap<SecretRef, OsString>, Error> {
    let read = |(name, variable): (SecretRef, String)| {
        Key::new(variable.as_str())
            .map_err(|error| error.with("setting", format!("secrets.variables.{name}")))?;
        Ok((name, variable.into()))
    };
    written.into_iter().map(read).collect()
}

fn secret_helper(
    written: WrittenCommand,
    base: &Path,
    home: Option<&Path>,
) -> Result<HelperCommand, Error> {
    let mut words = written.command.into_iter();
    let program = words.next().unwrap_or_default();
    // What a helper is, is checked where it is made; its program may be written as every path here.
    let program = absolute(OsStr::new(&program), base, home)
        .map_err(|error| error.with("setting", "secrets.helper.command"))?;
    Ok(HelperCommand {
        argv: [program.into_os_string()]
            .into_iter()
            .chain(words.map(OsString::from))
            .collect(),
        limit: Duration::from_secs(written.seconds.unwrap_or(HELPER_SECONDS).into()),
    })
}

/// Checks the name of a cache's directory: one part of a path, of letters, digits, `-`, `_` and `.`.
///
/// # Errors
///
/// `InvalidInput`.
pub(crate) fn check_cache_name(name: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.len() <= 100
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(plain)
    {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        "the name of a cache is made of at most 100 letters, digits, '-', '_' and '.', a letter or digit first",
    )
    .with("name", format!("{name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::env::Value;

    fn parse(text: &str) -> Result<Config, Error> {
        Config::parse(text, Path::new("/c/config.toml"), Some(Path::new("/h")))
    }

    #[test]
    fn c12_c17_settings_are_read_as_written() {
        let config = parse(
            "[environment]\nA = \"x # y\"\nPEM = '''\n-----BEGIN X-----\nab+/=\n'''\nCR = \"tab\\tcr\\r\"\nKEY = { secret = \"a/b\" }\n[caches]\nGOCACHE = \"go-build\"\n[paths]\nsearch = [\"~/bin\", \"tools\", \"/tmp/a~b\"]\n[secrets]\nvariables = { \"a/b\" = \"OUR_KEY\" }\nhelper = { command = [\"~/bin/pass\", \"show\", \"{name}\"], seconds = 5 }\n",
        )
        .unwrap();
        let literal = |name: &str| {
            config.environment.iter().find_map(|d| match &d.value {
                Value::Literal(text) if d.key.to_string() == name => Some(text.as_bytes().to_vec()),
                _ => None,
            })
        };
        assert_eq!(literal("A").unwrap(), b"x # y");
        assert_eq!(literal("PEM").unwrap(), b"-----BEGIN X-----\nab+/=\n");
        assert_eq!(literal("CR").unwrap(), b"tab\tcr\r");
        assert_eq!(literal("KEY"), None);
        let helper = config.secret_helper.as_ref().unwrap();
        assert_eq!(helper.argv, ["/h/bin/pass", "show", "{name}"]);
        assert_eq!(helper.limit, Duration::from_secs(5));
        assert_eq!(config.secret_variables.values().next().unwrap(), "OUR_KEY");
        let path = config
            .search_path(Some(OsStr::new("/bin")))
            .unwrap()
            .unwrap();
        assert_eq!(
            path.value,
            Value::Literal("/h/bin:/c/tools:/tmp/a~b:/bin".into())
        );
    }

    #[test]
    fn c22_scripts_are_read_as_written() {
        let config = parse(
            "[[setup]]\nname = \"deps\"\ncommand = [\"npm\", \"ci\"]\ndirectory = \"web\"\nrepository = \"~/src\"\noptional = true\nseconds = 5\n[[teardown]]\nrun = \"make down\"\n",
        )
        .unwrap();
        let setup = &config.setup[0];
        assert_eq!(setup.repository.as_deref(), Some(Path::new("/h/src")));
        assert_eq!(setup.script.command.to_string(), "npm ci");
        assert_eq!(setup.script.directory.as_deref(), Some(Path::new("web")));
        assert_eq!(setup.script.time_limit, Duration::from_secs(5));
        assert!(!setup.script.required && setup.script.name == "deps");
        let down = &config.teardown[0].script;
        assert_eq!(down.command.to_string(), "sh -c 'make down'");
        assert_eq!(
            (&*down.name, down.time_limit),
            ("make down", Duration::from_mins(1))
        );
        for (text, word) in [
            ("[[setup]]\n", "setup[0]"),
            ("[[setup]]\nrun = \"a\"\ncommand = [\"a\"]", "either `run`"),
            (
                "[[setup]]\nrun = \"a\"\ndirectory = \"../x\"",
                "without `..`",
            ),
            ("[[teardown]]\nrun = \"\"", "teardown[0]"),
            ("[[setup]]\nrun = \"a\"\nseconds = 0", "time limit"),
            ("[[setup]]\nrum = \"a\"", "unknown field `rum`"),
            ("[setup]\nrun = \"a\"", "line"),
        ] {
            let error = parse(text).unwrap_err();
            let whole = groundcrew_core::error::Chain(&error).to_string();
            assert!(whole.contains(word), "{text}: {whole}");
        }
    }

    #[test]
    fn c17_what_is_wrong_is_told_with_file_and_place() {
        for (text, word) in [
            ("[environment]\n\"A=B\" = \"x\"", "environment.A=B"),
            ("[environment]\n\"\" = \"x\"", "environment."),
            ("[environment]\nA = 1", "a value is a string"),
            ("[environment]\nA = \"x\\u0000y\"", "NUL"),
            ("[environment]\nA = { secret = \"../x\" }", "line"),
            (
                "[environment]\nA = { secret = \"x\", scope = \"y\" }",
                "line",
            ),
            ("[environment]\nA = \"x\"\nA = \"y\"", "duplicate"),
            ("[caches]\nGOCACHE = \"../up\"", "caches.GOCACHE"),
            ("[caches]\nGOCACHE = \"a/b\"", "caches.GOCACHE"),
            ("[caches]\nGOCACHE = \"\"", "caches.GOCACHE"),
            (
                "[paths]\nsearch = [\"~nobody-here/bin\"]",
                "another user's `~`",
            ),
            ("[paths]\nsearch = [\"\"]", "the path is empty"),
            ("[secrets]\nhelper = { command = [] }", "the path is empty"),
            ("[secrets]\nhelper = {}", "missing field `command`"),
            (
                "[secrets]\nhelper = { command = [\"/x\"], seconds = -1 }",
                "line",
            ),
            ("[secrets]\nvariables = { \"../x\" = \"A\" }", "line"),
            (
                "[secrets]\nvariables = { x = \"A=B\" }",
                "secrets.variables.x",
            ),
            ("[paths]\nsearch = [\"a:b\"]", "cannot have a `:`"),
            ("[paths]\nserach = []", "unknown field `serach`"),
            ("[path]\n", "unknown field `path`"),
            ("environment = 3", "line"),
            ("[environment", "line"),
            ("\u{feff}x", "line"),
        ] {
            let error = parse(text).unwrap_err();
            let whole = groundcrew_core::error::Chain(&error).to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{whole}");
            assert!(
                whole.contains(word) && whole.contains("/c/config.toml"),
                "{text}: {whole}"
            );
        }
    }
}
