//! Files of variables: one `KEY=VALUE` a line, the value taken as it stands.
//!
//! * A line ends at its newline and nowhere else; quotes, `$`, `#`, `\`, spaces and a carriage return behind the `=` are part of
//!   the value. Nothing is expanded, cut or unescaped.
//! * Empty lines, and lines whose first byte is `#`, say nothing.
//! * A value of several lines stands between `KEY<<WORD` and a line that is `WORD`; the newline before that line is not part
//!   of it, so an empty line before it ends the value with a newline.
//! * Bytes that are not UTF-8 are taken; a NUL byte is refused.

use std::os::unix::ffi::OsStringExt as _;

use groundcrew_core::{
    env::Key,
    error::{Error, ErrorKind},
};

/// The largest file that is read: 16 MiB, far beyond what any process could be given.
pub(crate) const MAX_FILE: u64 = 16 * 1024 * 1024;

/// A variable of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name.
    pub key: Key,
    /// Its value.
    pub value: Vec<u8>,
    /// The line of its name, from 1.
    pub line: usize,
}

/// Reads all variables, in the order of the file.
///
/// # Errors
///
/// `InvalidInput`, with the line, for the first line that says nothing sensible.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    // What follows the last newline is a line only if there is something.
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut lines = text.split(|b| *b == b'\n').enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        let wrong = |why: &str| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("a line of the file of variables {why}"),
            )
            .with("line", number)
        };
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if line.contains(&0) {
            return Err(wrong("holds a NUL byte"));
        }
        let equals = line.iter().position(|b| *b == b'=');
        let here = line.windows(2).position(|two| two == b"<<");
        let (name, value) = match (equals, here) {
            (equals, Some(at)) if equals.is_none_or(|equals| at < equals) => {
                let word = &line[at + 2..];
                if word.is_empty() {
                    return Err(wrong("has no word behind `<<`"));
                }
                let mut value: Vec<&[u8]> = Vec::new();
                loop {
                    match lines.next() {
                        Some((_, line)) if line == word => break,
                        Some((_, line)) if line.contains(&0) => {
                            return Err(wrong("begins a value that holds a NUL byte"));
                        }
                        Some((_, line)) => value.push(line),
                        None => {
                            let word = String::from_utf8_lossy(word);
                            return Err(wrong(&format!(
                                "begins a value that no line `{word}` ends"
                            )));
                        }
                    }
                }
                (&line[..at], value.join(&b'\n'))
            }
            (Some(at), _) => (&line[..at], line[at + 1..].to_vec()),
            (None, _) => return Err(wrong("has no `=`; write KEY=VALUE")),
        };
        if name.iter().any(u8::is_ascii_whitespace) {
            return Err(wrong(
                "has a space in the name; write KEY=VALUE, without `export` and without spaces around `=`",
            ));
        }
        let key = Key::new(std::ffi::OsString::from_vec(name.to_vec()))
            .map_err(|error| wrong(&format!("has no name: {}", error.message())))?;
        entries.push(Entry {
            key,
            value,
            line: number,
        });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        let text_of = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        parse(text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|entry| (entry.key.to_string(), text_of(entry.value)))
            .collect()
    }

    #[test]
    fn c12_values_are_taken_as_they_stand() {
        let text = "# a comment\n\nV2=a=b==c\nV3=\"quoted\" 'single'\nV4=$HOME ${X} `id`\nV5=x # y\nV6=  lead and trail  \nV7=日本 🙂\nV8=tab\tcr\r\nV1<<EOF\n-----BEGIN X-----\nab+/=\n-----END X-----\n\nEOF\nE=\n";
        let expected = [
            ("V2", "a=b==c"),
            ("V3", "\"quoted\" 'single'"),
            ("V4", "$HOME ${X} `id`"),
            ("V5", "x # y"),
            ("V6", "  lead and trail  "),
            ("V7", "日本 🙂"),
            ("V8", "tab\tcr\r"),
            ("V1", "-----BEGIN X-----\nab+/=\n-----END X-----\n"),
            ("E", ""),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        assert_eq!(values(text), expected);
        assert_eq!(values("A=1"), values("A=1\n"));
        assert_eq!(values("A<<E\nE"), [("A".to_owned(), String::new())]);
        assert_eq!(values("A=x<<y"), [("A".to_owned(), "x<<y".to_owned())]);
    }

    #[test]
    fn c12_c36_lines_that_say_nothing_are_named_by_number() {
        let cases: &[(&[u8], &str, &str)] = &[
            (b"A=1\nB", "2", "has no `=`"),
            (b"=x", "1", "has no name"),
            (b"export A=1", "1", "space in the name"),
            (b" A=1", "1", "space in the name"),
            (b"A =1", "1", "space in the name"),
            (b"A\t=1", "1", "space in the name"),
            (b"A=1\n\nB=x\0y", "3", "NUL"),
            (b"A<<", "1", "no word"),
            (b"A<<E\nx\n", "1", "no line `E` ends"),
            (b"A<<E\nE \n", "1", "no line `E` ends"),
            (b"A<<E\n\0\nE\n", "1", "NUL"),
            (b"<<E\nx\nE\n", "1", "has no name"),
            (b"plain words", "1", "has no `=`"),
            (b"\r\nA=1", "1", "has no `=`"),
            (b"; ini", "1", "has no `=`"),
            (b"[section]", "1", "has no `=`"),
            (b"{\"A\": 1}", "1", "has no `=`"),
            (b"A: 1", "1", "has no `=`"),
        ];
        for (text, line, why) in cases {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.get("line"), Some(*line), "{error}");
            assert!(error.message().contains(why), "{error}");
        }
        // A name that is no text is a name all the same.
        assert_eq!(parse(b"N\xff=\xa3").unwrap()[0].value, b"\xa3");
    }
}

#[cfg(test)]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn c12_any_values_come_back(values in proptest::collection::vec("[^\\x00]{0,40}", 0..6)) {
            let entries: Vec<_> = values.iter().enumerate().map(|(index, value)| if value.contains('\n') {
                format!("K{index}<<END-of-{index}\n{value}\nEND-of-{index}\n")
            } else {
                format!("K{index}={value}\n")
            }).collect();
            let text = format!("#\n{}", entries.concat());
            let read: Vec<_> = parse(text.as_bytes()).unwrap().into_iter().map(|e| e.value).collect();
            let written: Vec<_> = values.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(read, written);
        }

        #[test]
        fn any_bytes_are_read_or_refused(text in proptest::collection::vec(prop_oneof![Just(b'='), Just(b'\n'), Just(b'<'), Just(0), any::<u8>()], 0..60)) {
            if let Ok(entries) = parse(&text) {
                prop_assert!(entries.iter().all(|e| !e.value.contains(&0)));
            }
        }
    }
}
