//! What a value may be, and how one is gathered from a stream without leaving copies of it behind.

use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::SecretValue,
};
use zeroize::Zeroizing;

/// The longest value, in bytes: 1 MiB.
pub const VALUE_MAX: usize = 1024 * 1024;

/// Checks that a value has 1 byte to [`VALUE_MAX`].
pub(crate) fn check(value: &SecretValue) -> Result<(), Error> {
    match value.expose().len() {
        0 => Err(Error::new(
            ErrorKind::InvalidInput,
            "the value of a secret is empty",
        )),
        1..=VALUE_MAX => Ok(()),
        size => Err(too_large().with("bytes", size)),
    }
}

pub(crate) fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "the value of a secret is too long").with("most", VALUE_MAX)
}

/// What becomes of a newline at the end of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It belongs to the value.
    Keep,
    /// One newline (`\n`) at the end belongs to the stream, not to the value; a second one belongs to the value.
    DropNewline,
}

/// Gathers a value piece by piece; every buffer that it outgrew is wiped.
#[derive(Default)]
pub struct ValueBuffer(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for ValueBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ValueBuffer(…)")
    }
}

impl ValueBuffer {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a piece.
    ///
    /// # Errors
    ///
    /// `TooLarge` as soon as it cannot become a value any more.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), Error> {
        let size = self.0.len() + piece.len();
        // One more than a value, for the newline that may be dropped.
        if size > VALUE_MAX + 1 {
            return Err(too_large());
        }
        if size > self.0.capacity() {
            // A vector that grows by itself leaves its old bytes in memory.
            let room = size.max(2 * self.0.capacity()).max(4096);
            let mut larger = Zeroizing::new(Vec::with_capacity(room));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(piece);
        Ok(())
    }

    /// Returns whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the value.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when it is empty, `TooLarge` when it exceeds [`VALUE_MAX`].
    pub fn finish(mut self, ending: Ending) -> Result<SecretValue, Error> {
        if ending == Ending::DropNewline && self.0.last() == Some(&b'\n') {
            self.0.pop();
        }
        let value = SecretValue::new(std::mem::take(&mut *self.0));
        check(&value)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(pieces: &[&[u8]], ending: Ending) -> Result<Vec<u8>, ErrorKind> {
        let mut buffer = ValueBuffer::new();
        for piece in pieces {
            buffer.push(piece).map_err(|error| error.kind())?;
        }
        let value = buffer.finish(ending).map_err(|error| error.kind())?;
        Ok(value.expose().to_vec())
    }

    #[test]
    fn one_newline_at_the_end_is_dropped_and_no_more() {
        use Ending::{DropNewline, Keep};
        for (text, ending, wanted) in [
            (&b"a"[..], DropNewline, &b"a"[..]),
            (b"a\n", DropNewline, b"a"),
            (b"a\n\n", DropNewline, b"a\n"),
            (b"\na", DropNewline, b"\na"),
            (b"a\r\n", DropNewline, b"a\r"),
            (b"a\n", Keep, b"a\n"),
            (b"\n", Keep, b"\n"),
            (b"\0\xff\n", DropNewline, b"\0\xff"),
        ] {
            assert_eq!(gather(&[text], ending).unwrap(), wanted, "{text:?}");
        }
        assert_eq!(gather(&[b"\n"], DropNewline), Err(ErrorKind::InvalidInput));
        assert_eq!(gather(&[], Keep), Err(ErrorKind::InvalidInput));
    }

    #[test]
    fn f147_a_value_of_the_longest_length_passes_and_one_more_byte_does_not() {
        let most = vec![7; VALUE_MAX];
        assert_eq!(gather(&[&most], Ending::Keep).unwrap(), most);
        assert_eq!(gather(&[&most, b"\n"], Ending::DropNewline).unwrap(), most);
        assert_eq!(
            gather(&[&most, b"\n"], Ending::Keep),
            Err(ErrorKind::TooLarge)
        );
        assert_eq!(
            gather(&[&most, b"x\n"], Ending::DropNewline),
            Err(ErrorKind::TooLarge)
        );
    }

    #[test]
    fn f144_what_is_being_gathered_is_not_shown() {
        let mut buffer = ValueBuffer::new();
        buffer.push(b"hunter2").unwrap();
        assert!(!format!("{buffer:?}").contains("hunter2"));
    }
}
