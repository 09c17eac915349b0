//! Arguments with one placeholder, such as `--model={model}`; a value never becomes more or fewer arguments.

use crate::wire::OsText;

/// Returns whether a word holds a placeholder.
pub(super) fn holds(word: &OsText, placeholder: &str) -> bool {
    find(word.as_bytes(), placeholder.as_bytes()).is_some()
}

/// Puts a value in place of each placeholder; what the value holds is not looked at again.
pub(super) fn fill(words: &[OsText], placeholder: &str, value: &[u8]) -> Vec<OsText> {
    words
        .iter()
        .map(|word| {
            let mut rest = word.as_bytes();
            let mut filled = Vec::with_capacity(rest.len() + value.len());
            while let Some(at) = find(rest, placeholder.as_bytes()) {
                let (before, after) = rest.split_at(at);
                filled.extend_from_slice(before);
                filled.extend_from_slice(value);
                rest = after.get(placeholder.len()..).unwrap_or_default();
            }
            filled.extend_from_slice(rest);
            OsText::from_bytes(filled)
        })
        .collect()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_put_in_once_and_not_looked_at_again() {
        let words = ["--model={m}".into(), "x".into(), "{m}{m}".into()];
        let filled = fill(&words, "{m}", b"a {m} b");
        assert_eq!(
            filled,
            [
                "--model=a {m} b".into(),
                "x".into(),
                "a {m} ba {m} b".into()
            ]
        );
        assert!(holds(&words[0], "{m}") && !holds(&words[1], "{m}"));
    }
}
