//! Secrets in variables that the program hands in; this crate reads no process environment.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};

use crate::value;

/// Reveals variables of an environment, as the installation's own secrets; it holds none of a tenant.
///
/// * Only the variables that can be asked for are kept.
/// * A variable that is set to nothing is an error, not "no such secret": somebody meant it to be there.
#[derive(Debug)]
pub struct EnvironmentSecrets {
    names: Names,
    values: BTreeMap<OsString, SecretValue>,
}

#[derive(Debug)]
enum Names {
    Prefix(String),
    Table(BTreeMap<SecretRef, OsString>),
}

impl Names {
    fn variable(&self, name: &SecretRef) -> Option<OsString> {
        match self {
            Self::Prefix(prefix) => Some(OsString::from(format!("{prefix}{}", upper(name)))),
            Self::Table(table) => table.get(name).cloned(),
        }
    }
}

/// Writes a name as variables are written.
fn upper(name: &SecretRef) -> String {
    name.as_str()
        .replace('/', "__")
        .replace(['-', '.'], "_")
        .to_ascii_uppercase()
}

impl EnvironmentSecrets {
    /// Reveals the secret `openai/api-key` from the variable that is the prefix and `OPENAI__API_KEY`.
    ///
    /// * Letters become upper case, `/` becomes `__`, and `-` and `.` become `_`: names that differ in nothing else share a
    ///   variable. Where that is too coarse, give a [table](Self::with_table).
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the prefix is not a capital letter followed by capital letters, digits and `_`: without one,
    /// every variable would be a secret.
    pub fn with_prefix(
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Error> {
        let allowed = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        if !prefix.starts_with(|c: char| c.is_ascii_uppercase()) || !prefix.bytes().all(allowed) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the prefix of secret variables is a capital letter, then capital letters, digits and '_'",
            )
            .with("prefix", format!("{prefix:?}")));
        }
        Ok(Self::new(
            Names::Prefix(prefix.to_owned()),
            variables,
            |known| known.as_bytes().starts_with(prefix.as_bytes()),
        ))
    }

    /// Reveals secrets from the variables that a table names.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a secret stands in the table twice, or a variable cannot exist.
    pub fn with_table(
        table: impl IntoIterator<Item = (SecretRef, OsString)>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Error> {
        let mut names = BTreeMap::new();
        for (name, variable) in table {
            let bytes = variable.as_bytes();
            if bytes.is_empty() || bytes.iter().any(|b| matches!(b, b'=' | 0)) {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a variable's name is not empty and holds neither '=' nor NUL",
                )
                .with("secret", &name)
                .with("variable", variable.display()));
            }
            if names.insert(name.clone(), variable).is_some() {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a secret stands in the table of variables twice",
                )
                .with("secret", name));
            }
        }
        let wanted: Vec<_> = names.values().cloned().collect();
        Ok(Self::new(Names::Table(names), variables, |known| {
            wanted.iter().any(|variable| variable == known)
        }))
    }

    fn new(
        names: Names,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        keep: impl Fn(&OsStr) -> bool,
    ) -> Self {
        let values = variables
            .into_iter()
            .filter(|(known, _)| keep(known))
            .map(|(known, text)| (known, SecretValue::new(text.into_encoded_bytes())))
            .collect();
        Self { names, values }
    }
}

#[async_trait]
impl SecretStore for EnvironmentSecrets {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        if scope.tenant.is_some() || name.is_runtime() {
            return Ok(None);
        }
        let Some(variable) = self.names.variable(name) else {
            return Ok(None);
        };
        let Some(found) = self.values.get(&variable) else {
            return Ok(None);
        };
        if found.expose().is_empty() {
            return Err(Error::new(
                ErrorKind::SecretUnavailable,
                "the variable of a secret is set to nothing; unset it or give it a value",
            )
            .with("secret", name)
            .with("variable", variable.display()));
        }
        value::check(found).map_err(|error| error.with("secret", name))?;
        Ok(Some(found.clone()))
    }
}
