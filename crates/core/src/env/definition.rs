//! Who defines a variable, how strongly, and with what.

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Serialize};

use crate::{env::environment::Key, secret::SecretId, wire::OsText};

/// How strong a definition is; a stronger one overrides a weaker one, equals with different values conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tier {
    /// What the program was started with and hands on.
    Inherited,
    /// What is supplied where nobody says anything.
    Fallback,
    /// What a profile of an agent or executor says.
    Profile,
    /// What a preparer contributes.
    Workspace,
    /// What the request says.
    Request,
    /// What is decided for the run as a whole: cache directories, credentials, variables of model and approval, where a payload
    /// lies.
    Managed,
    /// Who the run is; cannot be shadowed.
    Identity,
}

/// Who defines a variable: the words shown to people, such as `--env` or `caller's environment`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Origin(pub String);

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The value of a definition; `Debug` hides literals.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// The value itself.
    Literal(OsText),
    /// Which value is revealed at launch.
    Secret(SecretId),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => write!(f, "Literal({} bytes)", text.as_bytes().len()),
            Self::Secret(name) => write!(f, "Secret({name})"),
        }
    }
}

/// One definition of one variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The variable.
    pub key: Key,
    /// Its value.
    pub value: Value,
    /// Who says so.
    pub origin: Origin,
    /// How strongly.
    pub tier: Tier,
}

impl Definition {
    /// Defines a variable by its value.
    pub fn literal(
        key: Key,
        value: impl Into<OsText>,
        tier: Tier,
        origin: impl Into<String>,
    ) -> Self {
        Self {
            key,
            value: Value::Literal(value.into()),
            origin: Origin(origin.into()),
            tier,
        }
    }

    /// Defines a variable by a secret's name.
    pub fn secret(
        key: Key,
        secret: impl Into<SecretId>,
        tier: Tier,
        origin: impl Into<String>,
    ) -> Self {
        Self {
            key,
            value: Value::Secret(secret.into()),
            origin: Origin(origin.into()),
            tier,
        }
    }

    /// Orders by key, then strength, then origin, then value: the order of input plays no part.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let value = |d: &Self| match &d.value {
            Value::Literal(text) => (0, text.as_bytes().to_vec()),
            Value::Secret(name) => (1, name.to_string().into_bytes()),
        };
        self.key
            .cmp(&other.key)
            .then(self.tier.cmp(&other.tier))
            .then_with(|| self.origin.cmp(&other.origin))
            .then_with(|| value(self).cmp(&value(other)))
    }
}
