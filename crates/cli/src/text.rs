//! Bytes in documents, and text of others on a terminal.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;

/// Bytes as a document holds them: a string where they are UTF-8, else `{"base64": "…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Text {
    /// They are text.
    Plain(String),
    /// They are not.
    Bytes {
        /// RFC 4648, with padding.
        base64: String,
    },
}

impl Text {
    /// Wraps bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Plain(text.to_owned()),
            Err(_) => Self::Bytes {
                base64: base64(bytes),
            },
        }
    }

    /// Wraps a path, an argument or a value.
    pub(crate) fn os(text: impl AsRef<OsStr>) -> Self {
        Self::new(text.as_ref().as_bytes())
    }
}

/// For people: text made harmless, and what is none as `base64:…`.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(text) => f.write_str(&printable(text)),
            Self::Bytes { base64 } => write!(f, "base64:{base64}"),
        }
    }
}

/// Writes bytes in base64, RFC 4648, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Makes text of others harmless on a terminal: control characters are shown as escapes.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // Marks that turn the direction of writing can make a name look like another.
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Makes a path, an argument or a value harmless on a terminal.
pub(crate) fn printable_os(text: impl AsRef<OsStr>) -> String {
    printable(&text.as_ref().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in known {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn c36_bytes_that_are_not_text_are_flagged() {
        let json = |bytes: &[u8]| serde_json::to_string(&Text::new(bytes)).unwrap();
        assert_eq!(json("ä".as_bytes()), "\"ä\"");
        assert_eq!(json(b"\xff"), r#"{"base64":"/w=="}"#);
    }

    #[test]
    fn f144_escape_sequences_of_others_do_not_reach_the_terminal() {
        assert_eq!(
            printable("a\x1b[2Jb\r\n\u{202e}c ä"),
            "a\\u{1b}[2Jb\\r\\n\\u{202e}c ä"
        );
    }
}
