//! Secrets: stored data holds names only; values are revealed late, never shown, and wiped when dropped.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    error::{Error, ErrorKind},
    id::{AttemptId, TenantId},
    undo::Undone,
};

/// The name of a secret, such as `openai/api-key`: parts of letters, digits, `-`, `_` and `.`, joined by `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretRef(String);

impl SecretRef {
    /// Checks and wraps a name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a part is empty or begins with anything but a letter or digit, or the name exceeds 200 bytes.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        let part = |p: &str| {
            p.starts_with(|c: char| c.is_ascii_alphanumeric())
                && p.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if name.len() > 200 || !name.split('/').all(part) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a secret's name is made of letters, digits, '-', '_', '.', with '/' between parts",
            )
            .with("name", format!("{name:?}")));
        }
        Ok(Self(name))
    }
}

impl SecretRef {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether it names a secret that an executor returned.
    pub fn is_runtime(&self) -> bool {
        self.0.split('/').next() == Some(RUNTIME_PREFIX)
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SecretRef {
    type Error = Error;
    fn try_from(name: String) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl From<SecretRef> for String {
    fn from(name: SecretRef) -> Self {
        name.0
    }
}

/// A revealed value; has no `Display`, its `Debug` shows nothing, and it is wiped when dropped.
#[derive(Clone)]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Wraps a value.
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// Gives out the value.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// Whose secrets are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SecretScope {
    /// The tenant that owns them; none is the installation's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

/// Which secret is meant: its name and whose it is; the same name of two owners is two secrets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SecretId {
    /// Its name.
    pub name: SecretRef,
    /// Whose it is.
    #[serde(flatten)]
    pub scope: SecretScope,
}

impl SecretId {
    /// Names a secret of a tenant.
    pub fn of_tenant(name: SecretRef, tenant: TenantId) -> Self {
        Self {
            name,
            scope: SecretScope {
                tenant: Some(tenant),
            },
        }
    }
}

/// A secret of the installation's own.
impl From<SecretRef> for SecretId {
    fn from(name: SecretRef) -> Self {
        Self {
            name,
            scope: SecretScope::default(),
        }
    }
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope.tenant {
            Some(tenant) => write!(f, "{} of {tenant}", self.name),
            None => self.name.fmt(f),
        }
    }
}

/// A place that can reveal secrets.
///
/// * Dropping a future loses nothing and changes nothing.
#[async_trait]
pub trait SecretStore: fmt::Debug + Send + Sync + 'static {
    /// Reveals a value.
    ///
    /// * A name that the store does not know is `None`, and nothing else is.
    /// * A tenant's secret is looked for among that tenant's only, never among the installation's own, and the other way round.
    /// * A damaged key or store is an error; nothing is replaced.
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error>;
}

/// Knows no secret: for programs that have none.
#[async_trait]
impl SecretStore for () {
    async fn reveal(&self, _: &SecretRef, _: &SecretScope) -> Result<Option<SecretValue>, Error> {
        Ok(None)
    }
}

/// The first part of the names of runtime secrets; no secret of a user has such a name.
pub const RUNTIME_PREFIX: &str = "runtime";

/// A place for the tokens that executors return, such as what reaches an instance after a restart of ours.
///
/// * They are named `runtime/<attempt>/<name>`, belong to the installation, and stand in no list that users see.
/// * The engine arms their removal before it keeps them, and stores their names only.
#[async_trait]
pub trait RuntimeSecrets: fmt::Debug + Send + Sync + 'static {
    /// Keeps the secrets of an attempt, all or none, and returns the names under which they are revealed, in the given order.
    ///
    /// * Again with the same names replaces the values.
    async fn keep(
        &self,
        attempt: AttemptId,
        secrets: &[(String, SecretValue)],
    ) -> Result<Vec<SecretRef>, Error>;

    /// Reveals one; `None` when it is not kept (any more).
    async fn reveal(&self, name: &SecretRef) -> Result<Option<SecretValue>, Error>;

    /// Deletes all secrets of an attempt; none there is `AlreadyGone`.
    async fn forget(&self, attempt: AttemptId) -> Result<Undone, Error>;

    /// Lists the attempts of which anything is kept; an incomplete list is an error.
    async fn attempts(&self) -> Result<Vec<AttemptId>, Error>;
}

/// Keeps nothing: for programs whose executors return no secrets.
#[async_trait]
impl RuntimeSecrets for () {
    async fn keep(
        &self,
        _: AttemptId,
        secrets: &[(String, SecretValue)],
    ) -> Result<Vec<SecretRef>, Error> {
        if secrets.is_empty() {
            return Ok(Vec::new());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            "the executor returned secrets and the program has no place for them",
        ))
    }

    async fn reveal(&self, _: &SecretRef) -> Result<Option<SecretValue>, Error> {
        Ok(None)
    }

    async fn forget(&self, _: AttemptId) -> Result<Undone, Error> {
        Ok(Undone::AlreadyGone)
    }

    async fn attempts(&self) -> Result<Vec<AttemptId>, Error> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f144_debug_of_a_value_shows_nothing() {
        assert!(!format!("{:?}", SecretValue::new("hunter2")).contains("hunter2"));
    }

    #[test]
    fn names_are_checked() {
        assert!(SecretRef::new("a/b.c-d").is_ok());
        for bad in ["", "/", "a//b", "../x", "a b"] {
            assert!(SecretRef::new(bad).is_err(), "{bad:?}");
        }
    }
}
