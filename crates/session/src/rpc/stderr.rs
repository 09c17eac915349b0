//! Standard error in lines, in bounded memory: a line that does not end keeps its last part only.

/// How much of an unfinished line is kept, in bytes.
const KEPT: usize = 64 << 10;

/// Collects lines.
#[derive(Debug, Default)]
pub(super) struct StderrLines(Vec<u8>);

impl StderrLines {
    /// Takes bytes, and gives out the lines that ended.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.0);
                lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
            } else if self.0.len() > KEPT {
                let over = self.0.len() - KEPT;
                self.0.drain(..over);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_an_endless_one_is_cut() {
        let mut lines = StderrLines::default();
        assert!(lines.push(b"one\ntw").contains(&"one".to_owned()));
        assert_eq!(lines.push(b"o\r\n\n"), ["two", ""]);
        for _ in 0..100 {
            lines.push(&[b'x'; 4096]);
        }
        assert!(lines.0.len() <= KEPT);
        assert_eq!(lines.push(b"\n")[0].len(), KEPT);
    }
}
