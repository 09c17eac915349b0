//! Splits a process's output into lines, in bounded memory: an agent that never ends its line cannot exhaust us.

use bytes::{Bytes, BytesMut};

use crate::error::{Error, ErrorKind};

/// The longest line that a protocol may send: 32 MiB, for what an agent said in pieces it says once more whole.
pub const MAX_LINE_LEN: usize = 32 * 1024 * 1024;

/// Collects bytes and gives out whole lines, without their line feed and a carriage return before it.
#[derive(Debug)]
pub struct Lines {
    rest: BytesMut,
    /// How much of `rest` is known to hold no line feed.
    searched: usize,
    limit: usize,
}

impl Lines {
    /// Makes one that takes lines of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            rest: BytesMut::new(),
            searched: 0,
            limit,
        }
    }

    /// Takes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// Returns how many bytes are held that no whole line has been made of yet.
    pub fn held(&self) -> usize {
        self.rest.len()
    }

    /// Gives out the next whole line, if there is one.
    ///
    /// # Errors
    ///
    /// `TooLarge`, with the limit, when a line grows beyond it; the stream cannot be gone on with.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, Error> {
        let found = self.rest[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        let end = found.map(|at| at + self.searched);
        if end.unwrap_or(self.rest.len()) > self.limit {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "the agent sent a line that is too long",
            )
            .with("limit", self.limit));
        }
        let Some(end) = end else {
            self.searched = self.rest.len();
            return Ok(None);
        };
        let mut line = self.rest.split_to(end + 1);
        line.truncate(end);
        if line.last() == Some(&b'\r') {
            line.truncate(end - 1);
        }
        self.searched = 0;
        Ok(Some(line.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<Bytes> {
        std::iter::from_fn(|| lines.next_line().unwrap()).collect()
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        let text = b"one\r\n\ntwo\nrest";
        let mut whole = Lines::new(100);
        whole.push(text);
        let expected = all(&mut whole);
        assert_eq!(expected, ["one", "", "two"]);
        let mut pieces = Lines::new(100);
        let mut found = Vec::new();
        for byte in text {
            pieces.push(&[*byte]);
            found.extend(all(&mut pieces));
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn f016_an_endless_line_is_an_error_at_the_limit() {
        let mut lines = Lines::new(10);
        lines.push(b"0123456789");
        assert_eq!(lines.next_line().unwrap(), None);
        lines.push(b"x");
        assert_eq!(lines.next_line().unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
