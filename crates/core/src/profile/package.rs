//! A program that npm supplies: pinned, from the cache first, as arguments; nobody goes back to an unpinned install unsaid.

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    wire::OsText,
};

/// What npm calls a package at most.
const MAX_NAME_LEN: usize = 214;

/// An npm package that holds the program of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedPackage {
    /// Its name, such as `@openai/codex`.
    pub name: String,
    /// The exact version; a tag such as `latest` is none.
    pub version: String,
    /// The program in it, as commands of the profile call it; this word becomes the call of npm.
    pub program: String,
    /// Whether the program is used as it is where it was found on this machine.
    #[serde(default)]
    pub prefer_native: bool,
    /// Where its own packages keep the program itself, below a directory `node_modules`: what was found is then a wrapper
    /// that starts it, and that would leave it behind if it were killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub native: Vec<String>,
}

impl ManagedPackage {
    /// Returns the words that stand for the program, with another version in place of its own if one is given.
    pub fn words(&self, version: Option<&str>) -> Vec<OsText> {
        let package = format!("{}@{}", self.name, version.unwrap_or(&self.version));
        ["npx", "--yes", "--prefer-offline", &package]
            .map(OsText::from)
            .into()
    }

    /// Returns what is wrong with it.
    pub(super) fn problems(&self) -> Vec<Error> {
        let mut problems = Vec::new();
        if !is_name(&self.name) {
            problems.push(
                Error::new(
                    ErrorKind::InvalidInput,
                    "the package has no name that npm would take; write `name` or `@scope/name` in lower case",
                )
                .with("package", format!("{:?}", self.name)),
            );
        }
        problems.extend(check_version(&self.version).err());
        problems
    }
}

/// Checks that a version is one, not a range or a tag.
///
/// # Errors
///
/// `InvalidInput` when it is not.
pub(super) fn check_version(version: &str) -> Result<(), Error> {
    let (numbers, rest) = match version.find(['-', '+']) {
        Some(at) => version.split_at(at),
        None => (version, ""),
    };
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let exact = numbers.split('.').count() == 3 && numbers.split('.').all(number);
    let tail = rest.is_empty()
        || (rest.len() > 1
            && rest
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-+.".contains(&b)));
    if exact && tail {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::InvalidInput,
            "a package is pinned to one exact version, such as 1.2.3; a range or a tag is none",
        )
        .with("version", format!("{version:?}")))
    }
}

fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b))
    };
    name.len() <= MAX_NAME_LEN
        && match name.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| part(scope) && part(name)),
            None => part(name),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k02_only_an_exact_version_is_one() {
        for good in ["1.2.3", "0.171.0", "1.0.0-rc.1", "1.2.3+build.5"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "1",
            "1.2",
            "latest",
            "^1.2.3",
            "~1.2.3",
            "1.2.x",
            "1.2.3 ",
            ">=1.0.0",
            "1.2.3-",
            "1..3",
            "1.2.3@x",
            "-1.2.3",
            "1.2.3 || 2.0.0",
            "1.2.3/..",
            "1.2.3.4",
        ] {
            let error = check_version(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
            assert!(error.message().contains("exact version"), "{bad}");
        }
    }

    #[test]
    fn names_of_packages_are_those_of_npm() {
        for good in ["@openai/codex", "opencode-ai", "a.b_c"] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "",
            "-x",
            "--registry=http://x",
            "@openai",
            "@/x",
            "@a/",
            "a/b",
            "../x",
            "./x",
            "Codex",
            "a b",
            "git+ssh://x",
            "@a/b/c",
            "a@1",
            "file:x",
            "@a/-x",
        ] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
