//! Secrets: stored data holds names only; values are revealed late, never shown, and wiped when dropped.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    error::{Error, ErrorKind},
    id::TenantId,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretScope {
    /// The tenant that owns them; none is the installation's own.
    pub tenant: Option<TenantId>,
}

/// A place that can reveal secrets.
#[async_trait]
pub trait SecretStore: fmt::Debug + Send + Sync + 'static {
    /// Reveals a value.
    ///
    /// * A name that the store does not know is `None`, and nothing else is.
    /// * A damaged key or store is an error; nothing is replaced.
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error>;
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
