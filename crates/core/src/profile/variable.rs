//! The value of a variable as a profile writes it: text, a secret's name, or a path; `Debug` hides text.

use std::{fmt, path::PathBuf};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    env::{Definition, Key, Tier},
    error::{Error, ErrorKind},
    id::TenantId,
    secret::{SecretId, SecretRef, SecretScope},
    wire::OsText,
};

/// The value of a variable as a profile writes it.
#[derive(Clone, PartialEq, Eq)]
pub enum Variable {
    /// The value itself.
    Literal(OsText),
    /// Which secret holds it; revealed at launch.
    Secret(SecretId),
    /// A path; whoever reads the profile makes it absolute.
    Path(PathBuf),
}

impl Variable {
    /// Defines a variable by it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when it is a path that is not absolute.
    pub(super) fn define(
        &self,
        key: &Key,
        tier: Tier,
        origin: String,
    ) -> Result<Definition, Error> {
        Ok(match self {
            Self::Literal(text) => Definition::literal(key.clone(), text.clone(), tier, origin),
            Self::Secret(secret) => Definition::secret(key.clone(), secret.clone(), tier, origin),
            Self::Path(path) if path.is_absolute() => {
                Definition::literal(key.clone(), path.clone().into_os_string(), tier, origin)
            }
            Self::Path(path) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "the path of a variable is not absolute; a profile in a file may write `~/…` or a path from the file's directory",
                )
                .with("variable", key)
                .with("path", path.display()));
            }
        })
    }
}

impl From<&str> for Variable {
    fn from(text: &str) -> Self {
        Self::Literal(text.into())
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => write!(f, "Literal({} bytes)", text.as_bytes().len()),
            Self::Secret(secret) => write!(f, "Secret({secret})"),
            Self::Path(path) => write!(f, "Path({})", path.display()),
        }
    }
}

/// The table forms.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<SecretRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<OsText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base16: Option<String>,
}

impl Serialize for Variable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let table = match self {
            Self::Literal(text) => return text.serialize(serializer),
            Self::Secret(secret) => Table {
                secret: Some(secret.name.clone()),
                tenant: secret.scope.tenant.clone(),
                path: None,
                base16: None,
            },
            Self::Path(path) => Table {
                secret: None,
                tenant: None,
                path: Some(OsText::new(path)),
                base16: None,
            },
        };
        table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Variable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, { secret = \"name\" } or { path = \"…\" }")
            }

            fn visit_str<E>(self, text: &str) -> Result<Variable, E> {
                Ok(text.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Variable, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                match table {
                    Table {
                        secret: Some(name),
                        tenant,
                        path: None,
                        base16: None,
                    } => Ok(Variable::Secret(SecretId {
                        name,
                        scope: SecretScope { tenant },
                    })),
                    Table {
                        secret: None,
                        tenant: None,
                        path: Some(path),
                        base16: None,
                    } => Ok(Variable::Path(path.0.into())),
                    Table {
                        secret: None,
                        tenant: None,
                        path: None,
                        base16: Some(digits),
                    } => {
                        let table = serde_json::json!({ "base16": digits });
                        OsText::deserialize(table)
                            .map(Variable::Literal)
                            .map_err(A::Error::custom)
                    }
                    _ => Err(A::Error::custom(
                        "the table of a variable holds either `secret`, with or without `tenant`, or `path`",
                    )),
                }
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}
