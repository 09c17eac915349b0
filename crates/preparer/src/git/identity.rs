//! Who commits: the user, as git is configured; groundcrew itself where nobody is named.

use std::ffi::OsString;

use git2::Config;
use groundcrew_core::{
    env::{Definition, Key, Tier},
    error::Error,
};

/// The name of whoever acts where the user has none.
pub(crate) const NAME: &str = "groundcrew";
/// Its address.
pub(crate) const EMAIL: &str = "groundcrew@localhost";

/// Returns definitions of an identity for those parts that neither configuration nor environment give.
pub(crate) fn missing(config: &Config, given: &[Definition]) -> Result<Vec<Definition>, Error> {
    let configured = |key: &str| config.get_bytes(key).is_ok_and(|value| !value.is_empty());
    let mut definitions = Vec::new();
    for who in ["author", "committer"] {
        for (part, value) in [("name", NAME), ("email", EMAIL)] {
            let key = Key::new(OsString::from(format!("GIT_{who}_{part}").to_uppercase()))?;
            let known = configured(&format!("user.{part}"))
                || configured(&format!("{who}.{part}"))
                || given.iter().any(|definition| definition.key == key)
                || part == "email" && given.iter().any(|d| d.key.as_bytes() == b"EMAIL");
            if !known {
                definitions.push(Definition::literal(
                    key,
                    value,
                    Tier::Fallback,
                    "git identity",
                ));
            }
        }
    }
    Ok(definitions)
}

/// Returns definitions of the identity that the configuration gives, for commands that do not see it.
///
/// What is only inherited does not reach them either.
pub(crate) fn configured(config: &Config, given: &[Definition]) -> Result<Vec<Definition>, Error> {
    let mut definitions = Vec::new();
    for who in ["author", "committer"] {
        for part in ["name", "email"] {
            let key = Key::new(OsString::from(format!("GIT_{who}_{part}").to_uppercase()))?;
            let said = given
                .iter()
                .any(|definition| definition.key == key && definition.tier != Tier::Inherited);
            let value = [format!("{who}.{part}"), format!("user.{part}")]
                .into_iter()
                .find_map(|key| {
                    config
                        .get_string(&key)
                        .ok()
                        .filter(|value| !value.is_empty())
                });
            if let (Some(value), false) = (value, said) {
                definitions.push(Definition::literal(
                    key,
                    value,
                    Tier::Fallback,
                    "git configuration",
                ));
            }
        }
    }
    Ok(definitions)
}

/// Returns what to tell a person about an identity that was filled in, if one was.
pub(crate) fn warning(filled_in: &[Definition]) -> Option<String> {
    let told = || format!("git has no identity here; commits are made as {NAME} <{EMAIL}>");
    (!filled_in.is_empty()).then(told)
}
