//! The tokeniser of flags, prefixes and commands that were written as one string; no shell ever sees them.
//!
//! The words are those of a POSIX shell without expansions: blanks separate; `'…'` is literal; in `"…"` a backslash escapes
//! `$`, `` ` ``, `"`, `\` and a newline; elsewhere it escapes any byte; `''` is an empty word. A comment is refused: in a
//! shell it would drop the rest of a policy without a word.

use std::borrow::Cow;

use crate::error::{Error, ErrorKind};

/// Splits one string into words.
///
/// # Errors
///
/// `InvalidInput` with the byte at which something is left open (`quote` names which one), or an unquoted `#` begins a word.
pub fn split(text: &str) -> Result<Vec<String>, Error> {
    let joined = joined_lines(text)?;
    shlex::split(&joined).ok_or_else(|| {
        // The scan above finds what the library refuses; should they ever differ, refusing is safe.
        Error::new(ErrorKind::InvalidInput, "the text cannot be split in words")
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Blank,
    Word,
    Single(usize),
    Double(usize),
}

/// Checks that nothing is left open, and joins continued lines: of those the library would make an empty word.
fn joined_lines(text: &str) -> Result<Cow<'_, str>, Error> {
    let mut within = Within::Blank;
    let mut escape: Option<usize> = None;
    let mut cuts: Vec<usize> = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        if let Some(begun) = escape.take() {
            if byte == b'\n' {
                cuts.push(begun);
            } else if within == Within::Blank {
                within = Within::Word;
            }
            continue;
        }
        within = match (within, byte) {
            (Within::Single(_), b'\'') | (Within::Double(_), b'"') => Within::Word,
            (Within::Single(_), _) => within,
            (_, b'\\') => {
                escape = Some(at);
                within
            }
            (Within::Double(_), _) => within,
            (_, b'\'') => Within::Single(at),
            (_, b'"') => Within::Double(at),
            (_, b' ' | b'\t' | b'\n') => Within::Blank,
            (Within::Blank, b'#') => {
                return Err(open("an unquoted `#` would begin a comment; quote it", at));
            }
            (Within::Blank | Within::Word, _) => Within::Word,
        };
    }
    if let Some(at) = escape {
        return Err(open(
            "the text ends in a backslash that escapes nothing",
            at,
        ));
    }
    match within {
        Within::Single(at) => Err(open("a single quote is never closed", at).with("quote", "'")),
        Within::Double(at) => Err(open("a double quote is never closed", at).with("quote", "\"")),
        Within::Blank | Within::Word if cuts.is_empty() => Ok(Cow::Borrowed(text)),
        Within::Blank | Within::Word => {
            let mut joined = String::with_capacity(text.len());
            let mut rest = 0;
            for cut in cuts {
                joined.push_str(text.get(rest..cut).unwrap_or_default());
                rest = cut + 2;
            }
            joined.push_str(text.get(rest..).unwrap_or_default());
            Ok(Cow::Owned(joined))
        }
    }
}

fn open(message: &'static str, at: usize) -> Error {
    Error::new(ErrorKind::InvalidInput, message).with("byte", at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell_without_expansions() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            (" \t\n ", &[]),
            ("a b\tc\nd", &["a", "b", "c", "d"]),
            ("'a b' \"c d\"", &["a b", "c d"]),
            ("''", &[""]),
            ("--x ''", &["--x", ""]),
            (r"a\ b \'", &["a b", "'"]),
            (r#""\$ \` \" \\ \n""#, &["$ ` \" \\ \\n"]),
            (r"'\'", &["\\"]),
            (
                "$HOME `x` $(y) * ~ ; | &",
                &["$HOME", "`x`", "$(y)", "*", "~", ";", "|", "&"],
            ),
            ("a#b --c=#d '#' \\#", &["a#b", "--c=#d", "#", "#"]),
            ("bwrap \\\n  --dev /dev \\\n", &["bwrap", "--dev", "/dev"]),
            ("a\\\nb", &["ab"]),
            ("\"a\\\nb\"", &["ab"]),
            ("'a\\\nb'", &["a\\\nb"]),
            ("ä 'ö ü'", &["ä", "ö ü"]),
            ("a\rb", &["a\rb"]),
        ];
        for (text, words) in table {
            assert_eq!(&split(text).unwrap(), words, "{text:?}");
        }
    }

    #[test]
    fn c13_what_is_left_open_is_named_with_its_place() {
        let table = [
            (
                "/my tools/agent --x 'unclosed",
                "single quote",
                "20",
                Some("'"),
            ),
            ("a \"b", "double quote", "2", Some("\"")),
            ("it's", "single quote", "2", Some("'")),
            ("ä 'x", "single quote", "3", Some("'")),
            ("\"a'b", "double quote", "0", Some("\"")),
            ("'a\"b", "single quote", "0", Some("'")),
            ("a\\", "backslash", "1", None),
            ("\"a\\", "backslash", "2", None),
            ("a #b", "comment", "2", None),
            ("#", "comment", "0", None),
            ("a \\\n#b", "comment", "4", None),
        ];
        for (text, word, byte, quote) in table {
            let error = split(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}");
            assert!(error.message().contains(word), "{text:?}: {error}");
            assert_eq!(
                (error.get("byte"), error.get("quote")),
                (Some(byte), quote),
                "{text:?}"
            );
        }
    }
}

#[cfg(test)]
mod properties {
    use super::*;
    use proptest::prelude::*;

    /// Text in which everything that means something is frequent.
    fn shellish() -> impl Strategy<Value = String> {
        let bit = prop_oneof![
            4 => prop::sample::select(vec!["'", "\"", "\\", " ", "\n", "\t", "#", "$", "a", "-", "=", "\\\n", "ä", "\u{0}"])
                .prop_map(str::to_owned),
            1 => any::<char>().prop_map(|c| c.to_string()),
        ];
        prop::collection::vec(bit, 0..24).prop_map(|bits| bits.concat())
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(words in prop::collection::vec(shellish(), 0..6)) {
            // No word of a command holds NUL, and the library quotes none.
            let words: Vec<_> = words.iter().map(|word| word.replace('\0', "0")).collect();
            let text = shlex::try_join(words.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(split(&text).unwrap(), words);
        }

        #[test]
        fn any_text_is_split_or_refused_with_its_place(text in shellish()) {
            match split(&text) {
                // Splitting what was split and quoted again changes nothing.
                Ok(words) if !text.contains('\0') => {
                    let again = shlex::try_join(words.iter().map(String::as_str)).unwrap();
                    prop_assert_eq!(split(&again).unwrap(), words);
                }
                Ok(_) => {}
                Err(error) => {
                    let at: usize = error.get("byte").unwrap().parse().unwrap();
                    prop_assert!(at < text.len());
                    prop_assert!("'\"\\#".contains(char::from(text.as_bytes()[at])));
                }
            }
        }
    }
}
