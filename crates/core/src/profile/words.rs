//! Arguments as people write them: a list, or one string that is split once, when it is read or built, and never again.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use crate::{
    error::{Chain, Error},
    profile::tokens::split,
    wire::OsText,
};

/// Reads a list, or one string that is split here.
pub(super) fn list_or_line<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<OsText>, D::Error> {
    match Prefix::deserialize(deserializer)? {
        Prefix::List(words) => Ok(words),
        Prefix::Line(line) => {
            let words = split(&line).map_err(|error| D::Error::custom(Chain(&error)))?;
            Ok(words.iter().map(|word| word.as_str().into()).collect())
        }
    }
}

/// What an agent is wrapped in: a list of words, or one line that is split when a command is built.
///
/// A line that cannot be split is kept as it is: who builds a command of it is told, and gets none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Prefix {
    /// The words.
    List(Vec<OsText>),
    /// One line.
    Line(String),
}

impl Prefix {
    /// Returns the words.
    ///
    /// # Errors
    ///
    /// Those of [`split`].
    pub fn words(&self) -> Result<Vec<OsText>, Error> {
        match self {
            Self::List(words) => Ok(words.clone()),
            Self::Line(line) => Ok(split(line)?
                .iter()
                .map(|word| word.as_str().into())
                .collect()),
        }
    }

    /// Returns whether nothing was written.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::List(words) => words.is_empty(),
            Self::Line(line) => line.is_empty(),
        }
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrLine;

        impl<'de> Visitor<'de> for ListOrLine {
            type Value = Prefix;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of arguments, or one string of them")
            }

            fn visit_str<E>(self, line: &str) -> Result<Prefix, E> {
                Ok(Prefix::Line(line.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<Prefix, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(words)).map(Prefix::List)
            }
        }

        deserializer.deserialize_any(ListOrLine)
    }
}
