//! What a message carries, read into a value: also where an agent cut a text in the middle of a character.
//!
//! It never takes what cannot be read for nothing.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// What stands for half of a character.
const REPLACEMENT: &str = "\\ufffd";

/// How long an escape of four digits is.
const ESCAPE: usize = 6;

/// Reads parameters, a result or an error.
///
/// * Programs in JavaScript cut texts between the two halves of a character; such a half becomes U+FFFD.
///
/// # Errors
///
/// Why it cannot be read: it is nested too deep, or a number in it is too large.
pub(super) fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<T, serde_json::Error> {
    let text = raw.get();
    serde_json::from_str(text).or_else(|error| match whole(text) {
        Cow::Owned(whole) => serde_json::from_str(&whole),
        Cow::Borrowed(_) => Err(error),
    })
}

/// Replaces escapes of surrogates that are no pair; all else stays byte for byte.
fn whole(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        let lone = match unit(text, at) {
            Some(0xd800..=0xdbff) => {
                let paired = matches!(unit(text, at + ESCAPE), Some(0xdc00..=0xdfff));
                if paired {
                    at += ESCAPE;
                }
                !paired
            }
            Some(0xdc00..=0xdfff) => true,
            Some(_) => false,
            None => {
                // Another escape, such as that of a backslash, which begins none itself: two ASCII characters.
                at += 2;
                continue;
            }
        };
        if lone {
            out.push_str(&text[done..at]);
            out.push_str(REPLACEMENT);
            done = at + ESCAPE;
        }
        at += ESCAPE;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Returns the unit of UTF-16 whose escape stands there, if one does.
fn unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(text: &str) -> Option<Value> {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        read(&raw).ok()
    }

    #[test]
    fn half_a_character_is_replaced_and_whatever_is_whole_stays() {
        for (text, expected) in [
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\uDE00b""#, "\u{fffd}b"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\u0041\ud83d\n""#, "\u{fffd}A\u{fffd}\n"),
            // A backslash that is escaped begins no escape; one behind it does.
            (r#""\\ud83d\ud83d""#, "\\ud83d\u{fffd}"),
            (r#""\\\ud83dx\\""#, "\\\u{fffd}x\\"),
            (r#""\"\ud83d€""#, "\"\u{fffd}€"),
            (r#""\ud83d€""#, "\u{fffd}€"),
        ] {
            assert_eq!(value(text), Some(json!(expected)), "{text}");
        }
        let key = value(r#"{"a\ud83d": ["\udc00", 1]}"#);
        assert_eq!(key, Some(json!({"a\u{fffd}": ["\u{fffd}", 1]})));
    }

    #[test]
    fn what_is_whole_is_not_copied() {
        for text in [r#""\ud83d\ude00 \\ud83d \n""#, "{}", "7", r#""\\""#] {
            assert!(matches!(whole(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn what_no_value_can_hold_is_an_error_and_not_null() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for text in ["1e400", "{\"a\": [\"\\ud83d\", -1e999]}", &deep] {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value("null"), Some(Value::Null));
    }
}
