//! How byte strings are written in JSON: as text where they are UTF-8, else as `{"base16": "…"}`; nothing is lost either way.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected text, or `{ base16 = \"…\" }` for bytes that are none"
)]
enum Wire {
    Text(String),
    Bytes { base16: String },
}

fn to_wire(bytes: &[u8]) -> Wire {
    match std::str::from_utf8(bytes) {
        Ok(text) => Wire::Text(text.to_owned()),
        Err(_) => Wire::Bytes {
            base16: bytes
                .iter()
                .flat_map(|b| [b >> 4, b & 15])
                .map(|n| char::from(b"0123456789abcdef"[usize::from(n)]))
                .collect(),
        },
    }
}

fn from_wire(wire: Wire) -> Option<Vec<u8>> {
    match wire {
        Wire::Text(text) => Some(text.into_bytes()),
        Wire::Bytes { base16 } => {
            let digits = base16
                .bytes()
                .map(|b| {
                    char::from(b)
                        .to_digit(16)
                        .and_then(|d| u8::try_from(d).ok())
                })
                .collect::<Option<Vec<_>>>()?;
            digits.len().is_multiple_of(2).then(|| {
                digits
                    .chunks(2)
                    .map(|pair| pair[0] << 4 | pair[1])
                    .collect()
            })
        }
    }
}

/// A byte string as an argument, a variable or a path holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OsText(pub OsString);

impl OsText {
    /// Wraps text.
    pub fn new(text: impl Into<OsString>) -> Self {
        Self(text.into())
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Wraps bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(OsString::from_vec(bytes))
    }
}

impl AsRef<OsStr> for OsText {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl From<String> for OsText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for OsText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<OsString> for OsText {
    fn from(text: OsString) -> Self {
        Self(text)
    }
}

impl Serialize for OsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        to_wire(self.as_bytes()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_wire(Wire::deserialize(deserializer)?)
            .map(Self::from_bytes)
            .ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

/// For `#[serde(with = "path")]` on a `PathBuf`.
pub mod path {
    use super::{Deserialize as _, Deserializer, OsText, Serialize as _, Serializer};
    use std::path::{Path, PathBuf};

    /// Writes a path.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        OsText::new(path).serialize(serializer)
    }

    /// Reads a path.
    ///
    /// # Errors
    ///
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        OsText::deserialize(deserializer).map(|text| text.0.into())
    }
}

/// For `#[serde(with = "optional_path", default)]` on an `Option<PathBuf>`.
pub mod optional_path {
    use super::{Deserialize as _, Deserializer, OsText, Serialize as _, Serializer};
    use std::path::PathBuf;

    /// Writes a path, or null.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_ref().map(OsText::new).serialize(serializer)
    }

    /// Reads a path, or null.
    ///
    /// # Errors
    ///
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<OsText>::deserialize(deserializer)?.map(|text| text.0.into()))
    }
}

/// For `#[serde(with = "millis")]` on a `Duration`.
pub mod millis {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use std::time::Duration;

    /// Writes whole milliseconds.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(duration.as_millis())
            .unwrap_or(u64::MAX)
            .serialize(serializer)
    }

    /// Reads whole milliseconds.
    ///
    /// # Errors
    ///
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c36_bytes_that_are_not_text_survive_json() {
        for bytes in [&b"plain"[..], b"", b"\xff\x00\xfe", "\u{fffd}".as_bytes()] {
            let text = OsText::from_bytes(bytes.to_vec());
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(
                serde_json::from_str::<OsText>(&json).unwrap().as_bytes(),
                bytes,
                "{json}"
            );
        }
        assert!(serde_json::from_str::<OsText>(r#"{"base16":"zz"}"#).is_err());
        assert!(serde_json::from_str::<OsText>(r#"{"base16":"abc"}"#).is_err());
    }
}
