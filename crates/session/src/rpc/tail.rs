//! The end of a stream, for errors: a few bytes, made text.

/// How much is kept of each stream, in bytes.
const KEPT: usize = 8192;

/// Keeps the last bytes of what went by.
#[derive(Debug, Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT)..];
        let over = (self.0.len() + bytes.len()).saturating_sub(KEPT);
        self.0.drain(..over);
        self.0.extend_from_slice(bytes);
    }

    /// Returns it as it is; it may begin within a character.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Makes text of the end of a stream: what the cut left of a character goes.
pub(super) fn text(bytes: &[u8]) -> String {
    let cut = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000)
        .count();
    String::from_utf8_lossy(&bytes[cut..]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_stay_and_are_whole_text() {
        let mut tail = Tail::default();
        for _ in 0..3000 {
            tail.push("äöü".as_bytes());
        }
        tail.push(b"!");
        assert_eq!(tail.bytes().len(), KEPT);
        let text = text(tail.bytes());
        assert!(text.ends_with("äöü!") && !text.contains('\u{fffd}'));
        tail.push(&vec![b'x'; 3 * KEPT]);
        assert_eq!(tail.bytes(), vec![b'x'; KEPT]);
    }
}
