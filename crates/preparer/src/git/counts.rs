//! Reads out of what git says how many files it has written.

/// Gets how many files are written, of how many.
pub(crate) type Tell<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Begins what git says about it.
const BEGIN: &[u8] = b"Updating files:";
/// Few files are written before anybody could read how many they are.
const MANY: u64 = 1_000;
/// How many times it is told at most.
const TIMES: u64 = 20;

/// Listens to git.
pub(crate) struct Counts<'a> {
    tell: Tell<'a>,
    line: Vec<u8>,
    /// The last part that was told, of [`TIMES`].
    last: Option<u64>,
}

impl<'a> Counts<'a> {
    pub(crate) fn new(tell: Tell<'a>) -> Self {
        Self {
            tell,
            line: Vec::new(),
            last: None,
        }
    }

    /// Reads a piece; lines may be cut anywhere.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if !matches!(byte, b'\r' | b'\n') {
                // No line about it is as long as that.
                if self.line.len() < 256 {
                    self.line.push(*byte);
                }
                continue;
            }
            if let Some((done, all)) = count(&self.line)
                && all >= MANY
            {
                let part = done.saturating_mul(TIMES) / all;
                if self.last != Some(part) {
                    self.last = Some(part);
                    (self.tell)(done, all);
                }
            }
            self.line.clear();
        }
    }
}

/// Reads `Updating files:  45% (450/1000)`.
fn count(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(line.strip_prefix(BEGIN)?).ok()?;
    let (done, all) = text.split_once('(')?.1.split_once(')')?.0.split_once('/')?;
    Some((done.parse().ok()?, all.parse().ok()?)).filter(|(done, all)| done <= all && *all > 0)
}

/// Takes what git says about it out of its words.
pub(crate) fn without(text: &[u8]) -> Vec<u8> {
    text.split_inclusive(|byte| matches!(byte, b'\r' | b'\n'))
        .filter(|line| !line.starts_with(BEGIN))
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn counts_are_read_from_lines_that_are_cut_anywhere_and_told_a_few_times() {
        let mut text = String::from("warning: x\r\n");
        for done in 0..=5_000 {
            text += &format_args!("Updating files: {:3}% ({done}/5000)\r", done / 50).to_string();
        }
        text += "Updating files: 100% (5000/5000), done.\nfatal: y\n";
        for cut in [1, 7, 4096] {
            let told = Mutex::new(Vec::new());
            let tell = |done, all| told.lock().unwrap().push((done, all));
            let mut counts = Counts::new(&tell);
            for piece in text.as_bytes().chunks(cut) {
                counts.read(piece);
            }
            let told = told.into_inner().unwrap();
            assert_eq!(told.len(), 21, "{told:?}");
            assert_eq!((told[0], told[20]), ((0, 5000), (5000, 5000)));
        }
        assert_eq!(without(text.as_bytes()), b"warning: x\r\nfatal: y\n");
    }

    #[test]
    fn what_is_no_count_is_none() {
        for line in [
            "",
            "Updating files:",
            "Updating files: 1% (a/b)",
            "Updating files: (3/2)",
            "x (1/2)",
        ] {
            assert_eq!(count(line.as_bytes()), None, "{line}");
        }
    }
}
