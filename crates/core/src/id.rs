//! Names of things: validated once, then trusted; safe as file names and in the text of a command.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// The longest id, in bytes.
pub const MAX_ID_LEN: usize = 100;

fn check(what: &'static str, text: &str) -> Result<(), Error> {
    let problem = if text.is_empty() {
        "is empty"
    } else if text.len() > MAX_ID_LEN {
        "is longer than 100 bytes"
    } else if !text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    {
        "may hold only ASCII letters, digits, '-', '_' and '.'"
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "must begin with a letter or a digit"
    } else {
        return Ok(());
    };
    Err(
        Error::new(ErrorKind::InvalidInput, format!("{what} {problem}"))
            .with("value", format!("{text:?}")),
    )
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps a name.
            ///
            /// # Errors
            ///
            /// `InvalidInput` when it is empty, too long, begins with anything but a letter or digit, or holds
            /// anything but ASCII letters, digits, `-`, `_` and `.`: so no separator, no NUL, not `.` or `..`.
            pub fn new(text: impl Into<String>) -> Result<Self, Error> {
                let text = text.into();
                check($what, &text)?;
                Ok(Self(text))
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )*};
}

text_ids! {
    /// Names a run, for as long as anybody remembers it; 12 random characters unless given.
    RunId = "run id";
    /// Names an instance; equal to the attempt id that made it, so undo never needs a reply.
    InstanceId = "instance id";
    /// Names a process inside an instance.
    ProcessId = "process id";
    /// Names one conversation with one agent: the caller's key.
    SessionId = "session id";
    /// Names the unit of work that a session belongs to.
    TaskId = "task id";
    /// Names the grouping that owns secrets and directories.
    TenantId = "tenant id";
    /// Names what several sessions of one task share: one instance and its workspace.
    ShareKey = "share key";
    /// Names an executor as requests do, such as `worktree`.
    ExecutorName = "executor name";
    /// Names a preparer.
    PreparerName = "preparer name";
    /// Names a profile of an agent, such as `codex`.
    ProfileName = "profile name";
    /// Names this installation, one for each state directory; the mark on everything that we make.
    InstallId = "install id";
}

const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::new(ErrorKind::Unavailable, "the system gives no random numbers")
            .with_source(e.to_string())
    })?;
    Ok(bytes)
}

fn random_text<const N: usize>() -> Result<String, Error> {
    Ok(random::<N>()?
        .iter()
        .map(|b| char::from(ALPHABET[usize::from(b % 32)]))
        .collect())
}

impl RunId {
    /// Makes a new one: 60 random bits.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the system gives no random numbers.
    pub fn generate() -> Result<Self, Error> {
        random_text::<12>().map(Self)
    }
}

impl InstallId {
    /// Makes a new one: 80 random bits.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the system gives no random numbers.
    pub fn generate() -> Result<Self, Error> {
        random_text::<16>().map(Self)
    }
}

/// Names one attempt to bring up a run: 128 random bits, carried by the name of everything that the attempt makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AttemptId([u8; 16]);

impl AttemptId {
    /// Makes a new one.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the system gives no random numbers.
    pub fn generate() -> Result<Self, Error> {
        random().map(Self)
    }

    /// Returns the instance that this attempt makes.
    pub fn instance(self) -> InstanceId {
        InstanceId(self.to_string())
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttemptId({self})")
    }
}

impl FromStr for AttemptId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                "an attempt id is 32 lower-case hexadecimal digits",
            )
            .with("value", format!("{text:?}"))
        };
        if text.len() != 32
            || !text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        {
            return Err(wrong());
        }
        u128::from_str_radix(text, 16)
            .map(|n| Self(n.to_be_bytes()))
            .map_err(|_| wrong())
    }
}

impl TryFrom<String> for AttemptId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<AttemptId> for String {
    fn from(id: AttemptId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f062_names_that_would_escape_a_directory_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/a",
            "a\0b",
            "-x",
            ".hidden",
            "ä",
            "a b",
            "a\\b",
            &"x".repeat(101),
        ] {
            let error = SessionId::new(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}");
            assert!(error.to_string().starts_with("session id "), "{error}");
        }
        for good in ["a", "0", "A.b-c_d", &"x".repeat(100)] {
            assert!(SessionId::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn an_attempt_id_survives_text() {
        let id = AttemptId::generate().unwrap();
        assert_eq!(id.to_string().parse::<AttemptId>().unwrap(), id);
        assert_eq!(id.instance().as_str(), id.to_string());
        assert!("xyz".parse::<AttemptId>().is_err());
        assert!(
            "+1234567890123456789012345678901"
                .parse::<AttemptId>()
                .is_err()
        );
    }
}
