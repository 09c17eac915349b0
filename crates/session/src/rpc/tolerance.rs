//! What an agent may say on standard output beside messages: a little, for some tools print there what they should not.

use groundcrew_core::error::{Error, ErrorKind};

/// How many lines in a row may be nonsense; the last of them ends the connection.
const MOST: u32 = 5;

/// How much of a line is quoted, in characters.
const EXCERPT: usize = 200;

/// What lines of logs begin with, in lower case.
const LOG_STARTS: [&str; 13] = [
    "warn",
    "info",
    "debug",
    "trace",
    "[warn",
    "[info",
    "[debug",
    "[trace",
    "npm warn",
    "(node:",
    "codex ",
    "claude ",
    "deprecated",
];

/// Counts lines that are no messages.
#[derive(Debug, Default)]
pub(super) struct Tolerance(u32);

impl Tolerance {
    /// A message came: all is well.
    pub(super) fn message(&mut self) {
        self.0 = 0;
    }

    /// Takes a line that is no message.
    ///
    /// # Errors
    ///
    /// `Protocol`, with the line, at the fifth in a row.
    pub(super) fn nonsense(&mut self, line: &[u8]) -> Result<(), Error> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        if is_log(text) {
            self.0 = 0;
            return Ok(());
        }
        self.0 += 1;
        if self.0 < MOST {
            return Ok(());
        }
        let shown: String = text.chars().take(EXCERPT).collect();
        Err(Error::new(
            ErrorKind::Protocol,
            "the agent says what is no message of its protocol",
        )
        .with("lines", MOST)
        .with("said", shown.escape_debug()))
    }
}

fn is_log(text: &str) -> bool {
    let start: String = text.chars().take(EXCERPT).collect();
    let start = start.to_ascii_lowercase();
    LOG_STARTS.iter().any(|log| start.starts_with(log)) || start.contains("deprecated")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_lines_of_nonsense_in_a_row_are_too_many() {
        let mut tolerance = Tolerance::default();
        for _ in 0..4 {
            tolerance.nonsense(b"what").unwrap();
            tolerance.nonsense(b"  ").unwrap();
        }
        let error = tolerance.nonsense(b"now \x1b this").unwrap_err();
        assert_eq!(error.get("said"), Some("now \\u{1b} this"));
    }

    #[test]
    fn messages_and_logs_begin_the_count_again() {
        let mut tolerance = Tolerance::default();
        for line in [
            "WARN x",
            "npm warn y",
            "(node:7) z",
            "codex is old",
            "this is DEPRECATED",
            "[INFO] a",
        ] {
            for _ in 0..4 {
                tolerance.nonsense(b"[1,2]").unwrap();
            }
            tolerance.nonsense(line.as_bytes()).unwrap();
        }
        for _ in 0..4 {
            tolerance.nonsense(b"{}").unwrap();
        }
        tolerance.message();
        tolerance.nonsense(b"{}").unwrap();
    }
}
