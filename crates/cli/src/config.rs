//! The user's settings: `config.toml` in the configuration directory; read whole, or refused with the line.
//!
//! Nothing here has an effect; a file that is not there says nothing.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    env::{Definition, Key, Tier},
    error::{Error, ErrorKind},
    secret::{SecretId, SecretRef},
};
use serde::Deserialize;

use crate::{paths::absolute, surroundings::Surroundings, toml_file};

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
    /// Where workspaces are made, if not in the state directory.
    pub workspaces: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    environment: BTreeMap<String, Written>,
    caches: BTreeMap<String, String>,
    paths: Paths,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Paths {
    search: Vec<String>,
    workspaces: Option<String>,
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
        let named = |setting: &str, error: Error| {
            error
                .with("file", path.display())
                .with("setting", setting.to_owned())
        };
        let mut environment = Vec::new();
        for (name, written) in file.environment {
            let key = Key::new(name.as_str())
                .map_err(|error| named(&format!("environment.{name}"), error))?;
            environment.push(match written {
                Written::Literal(value) => {
                    if value.contains('\0') {
                        let error = Error::new(
                            ErrorKind::InvalidInput,
                            "the value of a variable holds a NUL byte",
                        );
                        return Err(named(&format!("environment.{name}"), error));
                    }
                    Definition::literal(key, value, Tier::Profile, ORIGIN)
                }
                Written::Secret(found) => {
                    let mut id = SecretId::from(found.secret);
                    id.scope.tenant = found.tenant;
                    Definition::secret(key, id, Tier::Profile, ORIGIN)
                }
            });
        }
        let mut caches = BTreeMap::new();
        for (name, directory) in file.caches {
            let setting = format!("caches.{name}");
            let key = Key::new(name.as_str()).map_err(|error| named(&setting, error))?;
            check_cache_name(&directory).map_err(|error| named(&setting, error))?;
            caches.insert(key, directory);
        }
        let base = path.parent().unwrap_or(Path::new("/"));
        let place = |written: &str, setting: &str| {
            absolute(OsStr::new(written), base, home).map_err(|error| named(setting, error))
        };
        let search = file
            .paths
            .search
            .iter()
            .map(|written| place(written, "paths.search"));
        let search = search.collect::<Result<Vec<_>, _>>()?;
        let workspaces = file.paths.workspaces.as_deref();
        let workspaces = workspaces
            .map(|written| place(written, "paths.workspaces"))
            .transpose()?;
        if let Some(colon) = search
            .iter()
            .find(|path| path.as_os_str().as_bytes().contains(&b':'))
        {
            let error = Error::new(
                ErrorKind::InvalidInput,
                "a directory of PATH cannot have a `:` in its name",
            );
            return Err(named("paths.search", error.with("path", colon.display())));
        }
        Ok(Self {
            environment,
            caches,
            path: search,
            workspaces,
        })
    }

    /// Returns the definition of `PATH` with the user's directories in front of the inherited ones, if there are any.
    pub(crate) fn search_path(
        &self,
        inherited: Option<&OsStr>,
    ) -> Result<Option<Definition>, Error> {
        if self.path.is_empty() {
            return Ok(None);
        }
        let mut path = OsString::new();
        for directory in &self.path {
            path.push(directory);
            path.push(":");
        }
        path.push(inherited.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")));
        Ok(Some(Definition::literal(
            Key::new("PATH")?,
            path,
            Tier::Profile,
            ORIGIN,
        )))
    }
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
            "[environment]\nA = \"x # y\"\nPEM = '''\n-----BEGIN X-----\nab+/=\n'''\nCR = \"tab\\tcr\\r\"\nKEY = { secret = \"a/b\" }\n[caches]\nGOCACHE = \"go-build\"\n[paths]\nsearch = [\"~/bin\", \"tools\", \"/tmp/a~b\"]\nworkspaces = \"~/ws\"\n",
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
        assert_eq!(config.workspaces.as_deref(), Some(Path::new("/h/ws")));
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
                "[paths]\nworkspaces = \"~nobody-here/ws\"",
                "another user's `~`",
            ),
            ("[paths]\nworkspaces = \"\"", "the path is empty"),
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
