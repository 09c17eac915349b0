//! Which byte strings are looked for to hide one secret value.
//!
//! It must never give a piece that stands in ordinary text: a mask that shreds the log hides more than the secret.
//!
//! For each value:
//! * the value without white space and `*` at its ends (a mask around it loses nothing), and with its line ends as `\n` and `\r\n`;
//! * each of its lines, trimmed likewise;
//! * the JSON forms of both; the percent, hex and base64 forms of the value.
//!
//! What is not useful is left out (see [`useful`]), and a value of which nothing is left is counted ([`Redactor::unmasked`](super::Redactor::unmasked)).

use super::encodings::{Form, base64_inner, base64_whole, hex, json, percent};

/// The shortest piece that is hidden, in bytes.
///
/// Six: five letters and fewer are words and numbers that every log has, and whoever uses so short a secret has none.
/// From six on, passwords that people chose themselves begin to appear.
pub const MIN_LEN: usize = 6;

/// Longer forms are looked for in pieces of this length, in bytes: so no more than this is ever held back.
pub(super) const MAX_LEN: usize = 1024;

/// Encodings are known of values up to this length, in bytes; longer ones are hidden as they are, as JSON and by line.
const MAX_ENCODED: usize = 8 * 1024;

/// Digits alone are a date, a port or a size when they are fewer.
const MIN_DIGITS: usize = 8;

/// Fewer different bytes are a rule or filling: `------`, `0x0x0x`.
const MIN_DIFFERENT: usize = 3;

/// A line of a value with several must have so many letters and digits, else it is mere structure: `"}, {"`.
const MIN_LETTERS_IN_LINE: usize = 4;

/// Words that programs say by themselves, in any case; a secret that is one of them is none.
const ORDINARY: [&str; 18] = [
    "localhost",
    "default",
    "disabled",
    "enabled",
    "undefined",
    "unknown",
    "production",
    "development",
    "staging",
    "testing",
    "example",
    "changeme",
    "password",
    "secret",
    "nothing",
    "object",
    "string",
    "127.0.0.1",
];

/// Gives what is looked for to hide `value`, without doubles; empty if nothing of it can be hidden.
pub(super) fn of_value(value: &[u8]) -> Vec<Form> {
    let core = trim(value);
    let mut forms = Vec::new();
    if useful(core) {
        let unix = with_line_ends(core, b"\n");
        forms.push(with_line_ends(core, b"\r\n"));
        json(core, &mut forms);
        json(&unix, &mut forms);
        if core.len() <= MAX_ENCODED {
            percent(core, &mut forms);
            hex(core, &mut forms);
            base64_inner(core, &mut forms);
            // What `printf` and `echo` would hand to an encoder: its last characters depend on what stands at the end.
            base64_whole(core, &mut forms);
            base64_whole(&Form::new([core, b"\n"].concat()), &mut forms);
            if value.len() <= MAX_ENCODED {
                base64_whole(value, &mut forms);
            }
        }
        forms.push(unix);
        forms.push(Form::new(core.to_vec()));
    }
    let lines: Vec<_> = core.split(|byte| *byte == b'\n').map(trim).collect();
    if lines.len() > 1 {
        for line in lines.into_iter().filter(|line| useful_line(line)) {
            forms.push(Form::new(line.to_vec()));
            json(line, &mut forms);
        }
    }
    let mut pieces: Vec<Form> = Vec::new();
    for form in forms.into_iter().filter(|form| form.len() >= MIN_LEN) {
        in_pieces(form, &mut pieces);
    }
    pieces.sort_unstable_by(|a, b| a.as_slice().cmp(b.as_slice()));
    pieces.dedup();
    pieces
}

/// Cuts what is too long to be held back into pieces that cover all of it; the last one overlaps, so that none is short.
fn in_pieces(form: Form, pieces: &mut Vec<Form>) {
    if form.len() <= MAX_LEN {
        return pieces.push(form);
    }
    pieces.extend(
        form.chunks_exact(MAX_LEN)
            .map(|piece| Form::new(piece.to_vec())),
    );
    if let Some(last) = form.last_chunk::<MAX_LEN>() {
        pieces.push(Form::new(last.to_vec()));
    }
}

/// Returns whether `piece` is a secret rather than a part of ordinary text.
fn useful(piece: &[u8]) -> bool {
    let mut seen = [false; 256];
    for byte in piece {
        if let Some(seen) = seen.get_mut(usize::from(*byte)) {
            *seen = true;
        }
    }
    piece.len() >= MIN_LEN
        && seen.iter().filter(|seen| **seen).count() >= MIN_DIFFERENT
        && (piece.len() >= MIN_DIGITS || !piece.iter().all(u8::is_ascii_digit))
        && !ORDINARY
            .iter()
            .any(|word| word.as_bytes().eq_ignore_ascii_case(piece))
}

fn useful_line(line: &[u8]) -> bool {
    let letters = line
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())
        .count();
    // The first and last line of a PEM file say what it is, and stand in every public one.
    let frame = line.starts_with(b"-----BEGIN ") || line.starts_with(b"-----END ");
    useful(line) && letters >= MIN_LETTERS_IN_LINE && !frame
}

/// Removes white space, NUL and `*` at both ends.
///
/// Without the stars, what a mask leaves behind can never complete another secret.
fn trim(mut piece: &[u8]) -> &[u8] {
    let idle = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0 | b'*');
    while let [first, rest @ ..] = piece
        && idle(first)
    {
        piece = rest;
    }
    while let [rest @ .., last] = piece
        && idle(last)
    {
        piece = rest;
    }
    piece
}

/// Returns `text` with that at the end of each line; a terminal turns `\n` into `\r\n`.
fn with_line_ends(text: &[u8], end: &[u8]) -> Form {
    let mut out = Form::new(Vec::with_capacity(text.len() * 2));
    for (i, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if i > 0 {
            out.extend_from_slice(end);
        }
        out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: &str) -> Vec<String> {
        of_value(value.as_bytes())
            .iter()
            .map(|form| String::from_utf8_lossy(form).into_owned())
            .collect()
    }

    #[test]
    fn c14_what_stands_in_every_text_is_no_secret() {
        for value in [
            "",
            "e",
            "true",
            "false",
            "12345",
            "1234567",
            "localhost",
            "LocalHost",
            "------",
            "ababab",
            "{\n}\n",
            " \n\n ",
            "******",
            "{\n  [\n  ]\n}",
            "  abc  \n",
        ] {
            let forms = plain(value);
            // A value with several short lines may be hidden as a whole, never by its lines.
            assert!(
                forms
                    .iter()
                    .all(|form| form.contains(['\n', '\\', '%']) || form.len() > 8),
                "{value:?}: {forms:?}"
            );
            assert!(
                !value.contains('\n')
                    || forms
                        .iter()
                        .all(|form| !matches!(form.trim(), "{" | "}" | "[" | "]"))
            );
        }
        assert!(
            plain("e").is_empty() && plain("1234567").is_empty() && plain("LocalHost").is_empty()
        );
    }

    #[test]
    fn c14_each_line_of_useful_length_is_one() {
        let forms = plain(
            "{\r\n  \"key\": \"abcdef\",\r\n  }, {\r\n-----BEGIN KEY-----\r\nsecond-line\r\nabc\r\n}",
        );
        for line in [
            "\"key\": \"abcdef\",",
            "second-line",
            "\\\"key\\\": \\\"abcdef\\\",",
        ] {
            assert!(forms.iter().any(|form| form == line), "{line}");
        }
        for line in ["}, {", "-----BEGIN KEY-----", "abc"] {
            assert!(!forms.iter().any(|form| form == line), "{line}");
        }
    }

    #[test]
    fn c14_the_ends_of_lines_may_change_on_the_way() {
        for value in ["ab1\ncd2\nef3\n", "ab1\r\ncd2\r\nef3\r\n"] {
            let forms = plain(value);
            for whole in ["ab1\ncd2\nef3", "ab1\r\ncd2\r\nef3", "ab1\\ncd2\\nef3"] {
                assert!(forms.iter().any(|form| form == whole), "{whole:?}");
            }
        }
    }

    #[test]
    fn a_long_value_is_covered_by_pieces_without_a_gap() {
        let value: Vec<u8> = (0..2500_u32).flat_map(u32::to_be_bytes).skip(3).collect();
        let pieces = of_value(&value);
        let mut covered = vec![false; value.len()];
        for piece in pieces.iter().filter(|piece| piece.len() == MAX_LEN) {
            for at in 0..=value.len() - piece.len() {
                if value[at..].starts_with(piece) {
                    covered[at..at + piece.len()].fill(true);
                }
            }
        }
        let first = value.iter().position(|byte| *byte != 0).unwrap();
        assert!(covered[first..].iter().all(|covered| *covered));
        assert!(
            pieces
                .iter()
                .all(|piece| (MIN_LEN..=MAX_LEN).contains(&piece.len()))
        );
    }
}
