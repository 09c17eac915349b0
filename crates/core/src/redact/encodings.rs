//! How programs write a value when they do not write it as it is: base64, percent, JSON and hex.
//!
//! Each function gives every form once or more; who collects them removes doubles.
//! Percent, JSON and hex are own code: their forms are needed in every dialect at once, of bytes that are no text as well.

use base64::{
    Engine as _,
    engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use zeroize::Zeroizing;

/// A form of a secret; wiped when dropped.
pub(super) type Form = Zeroizing<Vec<u8>>;

/// Both alphabets; padding is added where it belongs.
const ALPHABETS: [GeneralPurpose; 2] = [STANDARD_NO_PAD, URL_SAFE_NO_PAD];
const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// The line lengths of `base64` and of PEM.
const BASE64_COLUMNS: [usize; 2] = [76, 64];
/// The line length of `xxd -p`.
const HEX_COLUMNS: usize = 60;

/// Gives the base64 forms of a text that is just `value`: both alphabets, with and without padding, in lines or in one.
pub(super) fn base64_whole(value: &[u8], forms: &mut Vec<Form>) {
    for alphabet in ALPHABETS {
        let bare = Form::new(alphabet.encode(value).into_bytes());
        let mut padded = Form::new(Vec::with_capacity(bare.len() + 2));
        padded.extend_from_slice(&bare);
        padded.extend(std::iter::repeat_n(b'=', (4 - bare.len() % 4) % 4));
        for columns in BASE64_COLUMNS {
            in_lines(&padded, columns, forms);
        }
        forms.extend([bare, padded]);
    }
}

/// Gives what every base64 text has in it that encodes `value` somewhere in its middle.
///
/// Three bytes become four characters, so there are three ways to lie. Characters that also encode bits of a neighbour are left out:
/// up to four bits at each end stay readable.
pub(super) fn base64_inner(value: &[u8], forms: &mut Vec<Form>) {
    for before in 0..3 {
        let mut text = Form::new(Vec::with_capacity(before + value.len()));
        text.resize(before, 0);
        text.extend_from_slice(value);
        let first = (before * 8).div_ceil(6);
        let end = text.len() * 8 / 6;
        for alphabet in ALPHABETS {
            let whole = Form::new(alphabet.encode(&*text).into_bytes());
            if let Some(inner) = whole.get(first..end) {
                forms.push(Form::new(inner.to_vec()));
            }
        }
    }
}

/// Gives the hexadecimal forms of `value`, in lines or in one.
pub(super) fn hex(value: &[u8], forms: &mut Vec<Form>) {
    for digits in [LOWER, UPPER] {
        let mut out = Form::new(Vec::with_capacity(value.len() * 2));
        for byte in value {
            out.extend(nibbles(u32::from(*byte), 2, digits));
        }
        in_lines(&out, HEX_COLUMNS, forms);
        forms.push(out);
    }
}

/// Gives each line of a text that a program breaks after so many characters; nothing if it fits in one.
fn in_lines(text: &[u8], columns: usize, forms: &mut Vec<Form>) {
    if text.len() > columns {
        forms.extend(text.chunks(columns).map(|line| Form::new(line.to_vec())));
    }
}

/// Gives the percent-encoded forms of `value`, in both cases of the digits.
pub(super) fn percent(value: &[u8], forms: &mut Vec<Form>) {
    // What stays as it is, besides letters and digits, and what a space becomes.
    const DIALECTS: [(&[u8], &[u8]); 4] = [
        // RFC 3986: everything but the unreserved.
        (b"-._~", b"%20"),
        // application/x-www-form-urlencoded.
        (b"*-._", b"+"),
        // encodeURIComponent of JavaScript.
        (b"-._~!*'()", b"%20"),
        // urllib.parse.quote of Python, for paths.
        (b"-._~/", b"%20"),
    ];
    for (kept, space) in DIALECTS {
        for digits in [LOWER, UPPER] {
            let mut out = Form::new(Vec::with_capacity(value.len() * 3));
            for byte in value {
                if *byte == b' ' {
                    out.extend_from_slice(space);
                } else if byte.is_ascii_alphanumeric() || kept.contains(byte) {
                    out.push(*byte);
                } else {
                    out.push(b'%');
                    out.extend(nibbles(u32::from(*byte), 2, digits));
                }
            }
            forms.push(out);
        }
    }
}

/// Gives the inner text of JSON strings that hold `value`, as different writers escape it, and such a string inside another one.
///
/// Rust's `Debug` and most log formats with quotes write the same for ordinary values.
pub(super) fn json(value: &[u8], forms: &mut Vec<Form>) {
    // A choice that makes no difference to this value is not made.
    let choices = |matters: bool| {
        if matters {
            &[false, true][..]
        } else {
            &[false]
        }
    };
    let has = |wanted: fn(&u8) -> bool| value.iter().any(wanted);
    for slash in choices(has(|byte| *byte == b'/')) {
        for html in choices(has(|byte| is_html(*byte))) {
            for ascii in choices(!value.is_ascii()) {
                for digits in [LOWER, UPPER] {
                    let dialect = Dialect {
                        slash: *slash,
                        html: *html,
                        ascii: *ascii,
                        digits,
                    };
                    forms.push(json_string(value, &dialect));
                }
            }
        }
    }
    let plain = Dialect {
        slash: false,
        html: false,
        ascii: false,
        digits: LOWER,
    };
    forms.push(json_string(&json_string(value, &plain), &plain));
}

fn is_html(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'&')
}

/// What a writer of JSON escapes beyond what it must.
struct Dialect {
    /// `/`, as PHP does.
    slash: bool,
    /// `<`, `>`, `&`, as Go does.
    html: bool,
    /// Everything that is not ASCII, as Python does.
    ascii: bool,
    /// The digits of `\u00e9`.
    digits: &'static [u8; 16],
}

fn json_string(value: &[u8], dialect: &Dialect) -> Form {
    // A byte becomes six characters at most: room for all keeps half-written copies out of freed memory.
    let mut out = Form::new(Vec::with_capacity(value.len() * 6));
    let escaped = |out: &mut Form, unit: u32| {
        out.extend_from_slice(b"\\u");
        out.extend(nibbles(unit, 4, dialect.digits));
    };
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            let short = match c {
                '"' => Some(b'"'),
                '\\' => Some(b'\\'),
                '\n' => Some(b'n'),
                '\r' => Some(b'r'),
                '\t' => Some(b't'),
                '\u{8}' => Some(b'b'),
                '\u{c}' => Some(b'f'),
                '/' if dialect.slash => Some(b'/'),
                _ => None,
            };
            if let Some(letter) = short {
                out.extend([b'\\', letter]);
            } else if c < ' ' || (dialect.html && u8::try_from(c).is_ok_and(is_html)) {
                escaped(&mut out, u32::from(c));
            } else if dialect.ascii && !c.is_ascii() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    escaped(&mut out, u32::from(*unit));
                }
            } else {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

fn nibbles(number: u32, count: usize, digits: &'static [u8; 16]) -> impl Iterator<Item = u8> {
    (0..count)
        .rev()
        .filter_map(move |i| digits.get((number >> (4 * i)) as usize & 15).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(value: &[u8], give: fn(&[u8], &mut Vec<Form>)) -> Vec<String> {
        let mut forms = Vec::new();
        give(value, &mut forms);
        forms
            .iter()
            .map(|form| String::from_utf8_lossy(form).into_owned())
            .collect()
    }

    fn has(value: &[u8], give: fn(&[u8], &mut Vec<Form>), form: &str) {
        let forms = all(value, give);
        assert!(forms.iter().any(|f| f == form), "{form} in {forms:?}");
    }

    #[test]
    fn f148_base64_agrees_with_the_vectors_of_its_rfc() {
        for (value, form) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("f", "Zg"),
            ("fooba", "Zm9vYmE"),
        ] {
            has(value.as_bytes(), base64_whole, form);
        }
        has(&[0xfb, 0xff, 0xbf], base64_whole, "+/+/");
        has(&[0xfb, 0xff, 0xbf], base64_whole, "-_-_");
    }

    #[test]
    fn f148_base64_inside_a_longer_text_is_known_in_all_three_places() {
        // base64("u:SECRET!x"), ("us:SECRET!x"), ("use:SECRET!x"), of the coreutils.
        for whole in ["dTpTRUNSRVQheA", "dXM6U0VDUkVUIXg", "dXNlOlNFQ1JFVCF4"] {
            let forms = all(b"SECRET", base64_inner);
            assert!(
                forms.iter().any(|f| whole.contains(f.as_str())),
                "{whole} {forms:?}"
            );
        }
    }

    #[test]
    fn f148_percent_has_the_common_dialects() {
        has(b"a b/c~d", percent, "a%20b%2Fc~d");
        has(b"a b/c~d", percent, "a%20b%2fc~d");
        has(b"a b/c~d", percent, "a+b%2Fc%7Ed");
        has(b"a b/c!d", percent, "a%20b%2Fc!d");
        has(b"a b/c=d", percent, "a%20b/c%3Dd");
    }

    #[test]
    fn f148_json_has_the_common_dialects() {
        has(b"a\"b\\c\nd\x01", json, r#"a\"b\\c\nd\u0001"#);
        has(b"a/b\x1f", json, r"a\/b\u001F");
        has(
            "a<\u{e9}\u{1f600}".as_bytes(),
            json,
            r"a\u003c\u00e9\ud83d\ude00",
        );
        has(b"a\nb", json, r"a\\nb");
        has(b"a\xff\n", json, "a\u{fffd}\\n");
    }

    #[test]
    fn f148_hex_has_both_cases() {
        has(b"\x00\xab", hex, "00ab");
        has(b"\x00\xab", hex, "00AB");
    }
}
