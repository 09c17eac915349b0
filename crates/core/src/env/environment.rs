//! A finished environment: keys and values as bytes, in key order, wiped when dropped.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use crate::{
    command::MAX_ARGUMENT_LEN,
    error::{Error, ErrorKind},
    wire::OsText,
};

/// What an environment and the arguments may take together: 2 MiB, what every Linux allows with its default stack limit.
pub const MAX_ENVIRONMENT_SIZE: usize = 2 * 1024 * 1024;

/// The name of a variable: not empty, no `=`, no NUL byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "OsText", into = "OsText")]
pub struct Key(OsText);

impl Key {
    /// Checks and wraps a name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when it is empty or holds `=` or a NUL byte.
    pub fn new(name: impl Into<OsText>) -> Result<Self, Error> {
        let name = name.into();
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a variable's name must not be empty nor hold '=' or a NUL byte",
            )
            .with("name", name.0.display()));
        }
        Ok(Self(name))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl TryFrom<OsText> for Key {
    type Error = Error;
    fn try_from(name: OsText) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl From<Key> for OsText {
    fn from(key: Key) -> Self {
        key.0
    }
}

/// The variables of a process; `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Key, OsText)>", into = "Vec<(Key, OsText)>")]
pub struct Environment(BTreeMap<Key, Vec<u8>>);

impl Environment {
    /// Returns one without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable.
    pub fn set(&mut self, key: Key, value: impl Into<Vec<u8>>) {
        if let Some(mut old) = self.0.insert(key, value.into()) {
            old.zeroize();
        }
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(key, _)| key.as_bytes() == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// Returns names and values in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &[u8])> {
        self.0.iter().map(|(key, value)| (key, value.as_slice()))
    }

    /// Returns this environment with another laid over it.
    #[must_use]
    pub fn overlaid(&self, overlay: &Self) -> Self {
        let mut all = self.clone();
        for (key, value) in overlay.iter() {
            all.set(key.clone(), value);
        }
        all
    }

    /// Checks that the kernel takes it together with arguments of `arguments` bytes.
    ///
    /// # Errors
    ///
    /// `TooLarge`, with the name, the size and the limit; `InvalidInput` when a value holds a NUL byte.
    pub fn check(&self, arguments: usize) -> Result<(), Error> {
        let mut total = arguments;
        for (key, value) in self.iter() {
            let size = key.as_bytes().len() + 1 + value.len() + 1;
            if value.contains(&0) {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "the value of a variable holds a NUL byte",
                )
                .with("name", key));
            }
            if size > MAX_ARGUMENT_LEN {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    "a variable is longer than the kernel takes; pass it in a file",
                )
                .with("name", key)
                .with("bytes", size - 1)
                .with("limit", MAX_ARGUMENT_LEN - 1));
            }
            total += size + size_of::<usize>();
        }
        if total > MAX_ENVIRONMENT_SIZE {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "arguments and environment together are larger than the kernel takes",
            )
            .with("bytes", total)
            .with("limit", MAX_ENVIRONMENT_SIZE));
        }
        Ok(())
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.0.values_mut().for_each(zeroize::Zeroize::zeroize);
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.keys().map(Key::to_string))
            .finish()
    }
}

impl FromIterator<(Key, Vec<u8>)> for Environment {
    fn from_iter<T: IntoIterator<Item = (Key, Vec<u8>)>>(pairs: T) -> Self {
        let mut all = Self::new();
        pairs
            .into_iter()
            .for_each(|(key, value)| all.set(key, value));
        all
    }
}

impl From<Vec<(Key, OsText)>> for Environment {
    fn from(pairs: Vec<(Key, OsText)>) -> Self {
        pairs
            .into_iter()
            .map(|(key, value)| (key, value.as_bytes().to_vec()))
            .collect()
    }
}

impl From<Environment> for Vec<(Key, OsText)> {
    fn from(environment: Environment) -> Self {
        environment
            .iter()
            .map(|(key, value)| (key.clone(), OsText::from_bytes(value.to_vec())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f039_f040_f041_impossible_names_and_values_are_refused() {
        for bad in ["", "A=B", "A\0"] {
            assert_eq!(
                Key::new(bad).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{bad:?}"
            );
        }
        let environment = Environment::from_iter([(Key::new("A").unwrap(), b"x\0y".to_vec())]);
        assert_eq!(
            environment.check(0).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }

    #[test]
    fn c35_values_beyond_the_kernel_are_refused_with_sizes() {
        let with =
            |len: usize| Environment::from_iter([(Key::new("BIG").unwrap(), vec![b'x'; len])]);
        assert!(with(131_072 - 5).check(0).is_ok());
        let error = with(131_072 - 4).check(0).unwrap_err();
        assert_eq!(
            (error.kind(), error.get("name")),
            (ErrorKind::TooLarge, Some("BIG"))
        );
        let many: Environment = (0..40)
            .map(|n| {
                (
                    Key::new(format!("K{n}").as_str()).unwrap(),
                    vec![b'x'; 100_000],
                )
            })
            .collect();
        assert_eq!(many.check(0).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn f144_debug_shows_names_only() {
        let environment =
            Environment::from_iter([(Key::new("TOKEN").unwrap(), b"hunter2".to_vec())]);
        let text = format!("{environment:?}");
        assert!(
            text.contains("TOKEN") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
