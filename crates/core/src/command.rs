//! A command is an argument vector; it is never joined to a string and split again.

use std::{ffi::OsStr, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    wire::OsText,
};

/// The longest single argument or variable that the kernel takes, with its final NUL: 128 KiB.
pub const MAX_ARGUMENT_LEN: usize = 128 * 1024;

/// The exact arguments of a process, program first; never empty, no NUL byte, each short enough for the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<OsText>", into = "Vec<OsText>")]
pub struct Command(Vec<OsText>);

impl Command {
    /// Checks and wraps an argument vector.
    ///
    /// # Errors
    ///
    /// * `InvalidInput` when there is no argument, the program is empty, or one holds a NUL byte.
    /// * `TooLarge`, with index, size and limit, when one is longer than the kernel takes.
    pub fn new<T: Into<OsText>>(arguments: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let arguments: Vec<OsText> = arguments.into_iter().map(Into::into).collect();
        if arguments
            .first()
            .is_none_or(|program| program.as_bytes().is_empty())
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the command names no program",
            ));
        }
        for (index, argument) in arguments.iter().enumerate() {
            let size = argument.as_bytes().len();
            if argument.as_bytes().contains(&0) {
                return Err(
                    Error::new(ErrorKind::InvalidInput, "an argument holds a NUL byte")
                        .with("index", index),
                );
            }
            if size >= MAX_ARGUMENT_LEN {
                return Err(Error::new(ErrorKind::TooLarge, "an argument is longer than the kernel takes; pass it in a file or on standard input")
                    .with("index", index)
                    .with("bytes", size)
                    .with("limit", MAX_ARGUMENT_LEN - 1));
            }
        }
        Ok(Self(arguments))
    }

    /// Returns the program as it was asked for.
    pub fn program(&self) -> &OsStr {
        self.0[0].as_ref()
    }

    /// Returns all arguments, program first.
    pub fn arguments(&self) -> &[OsText] {
        &self.0
    }

    /// Returns how many bytes the arguments take in the kernel, with their NULs and pointers.
    pub fn kernel_size(&self) -> usize {
        self.0
            .iter()
            .map(|a| a.as_bytes().len() + 1 + size_of::<usize>())
            .sum()
    }
}

impl TryFrom<Vec<OsText>> for Command {
    type Error = Error;
    fn try_from(arguments: Vec<OsText>) -> Result<Self, Error> {
        Self::new(arguments)
    }
}

impl From<Command> for Vec<OsText> {
    fn from(command: Command) -> Self {
        command.0
    }
}

/// Quoted for people; never to be parsed.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, argument) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            let text = String::from_utf8_lossy(argument.as_bytes());
            let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
            if !text.is_empty() && text.chars().all(plain) {
                f.write_str(&text)?;
            } else {
                f.write_str("'")?;
                for c in text.chars() {
                    match c {
                        '\'' => f.write_str("'\\''")?,
                        c if c.is_control() => write!(f, "{}", c.escape_default())?,
                        c => write!(f, "{c}")?,
                    }
                }
                f.write_str("'")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f041_an_argument_with_nul_is_refused() {
        assert_eq!(
            Command::new(["a", "b\0c"]).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            Command::new(Vec::<&str>::new()).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            Command::new([""]).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }

    #[test]
    fn f032_an_argument_beyond_the_kernel_is_refused_with_sizes() {
        assert!(Command::new(["a", &"x".repeat(131_071)]).is_ok());
        let error = Command::new(["a", &"x".repeat(131_072)]).unwrap_err();
        assert_eq!(
            (error.kind(), error.get("bytes"), error.get("index")),
            (ErrorKind::TooLarge, Some("131072"), Some("1"))
        );
    }

    #[test]
    fn display_is_for_people() {
        assert_eq!(
            Command::new(["sh", "-c", "echo 'a b'\n"])
                .unwrap()
                .to_string(),
            r"sh -c 'echo '\''a b'\''\n'"
        );
    }
}
