//! Hides the secrets of a run in whole texts.
//!
//! It must never fail or change a text that holds no secret.

use std::{
    borrow::{Borrow, Cow},
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    sync::Arc,
};

use super::{
    encodings::Form,
    matcher::{Matcher, Places},
    patterns,
    stream::RedactStream,
};
use crate::{
    error::{Error, ErrorKind},
    secret::SecretValue,
};

/// What stands in a whole text in place of each run of masked bytes.
pub const MASK: &str = "***";

/// The most that all values together may hold, in bytes: more than a process can be given as variables.
const MAX_VALUES: usize = 1 << 20;

/// Hides secrets; cheap to clone.
///
/// * Hides each value, its lines, and their common encodings; places that overlap or touch become one mask.
/// * Masking a masked text changes nothing, unless a secret holds three or more `*` in a row.
/// * Keeps no value; what the automaton keeps of them is freed, but cannot be wiped, when the last clone is dropped.
/// * Without anything to hide, which is the default, it gives back what it is given.
#[derive(Clone, Default)]
pub struct Redactor {
    pub(super) matcher: Option<Arc<Matcher>>,
    unmasked: usize,
}

impl Redactor {
    /// Prepares to hide `values`.
    ///
    /// # Errors
    ///
    /// `TooLarge` when all values together hold more than a mebibyte, or all their forms more than four.
    pub fn new<T: Borrow<SecretValue>>(values: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let mut all = Vec::new();
        let mut unmasked = 0;
        let mut total = 0;
        for value in values {
            let value = value.borrow().expose();
            total += value.len();
            if total > MAX_VALUES {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    "the secrets of this run are too large to be hidden in its output; hand large ones over as files",
                )
                .with("limit_bytes", MAX_VALUES));
            }
            let forms = patterns::of_value(value);
            unmasked += usize::from(forms.is_empty() && !value.is_empty());
            all.extend(forms);
        }
        Self::of_forms(all, unmasked)
    }

    pub(super) fn of_forms(mut forms: Vec<Form>, unmasked: usize) -> Result<Self, Error> {
        forms.sort_unstable_by(|a, b| a.as_slice().cmp(b.as_slice()));
        forms.dedup();
        let matcher = match forms.as_slice() {
            [] => None,
            forms => Some(Arc::new(Matcher::new(forms)?)),
        };
        Ok(Self { matcher, unmasked })
    }

    /// Returns whether `value` is long and unusual enough to be hidden.
    pub fn can_mask(value: &SecretValue) -> bool {
        !patterns::of_value(value.expose()).is_empty()
    }

    /// Returns how many values are not hidden, because they are too short or too ordinary; empty ones do not count.
    pub fn unmasked(&self) -> usize {
        self.unmasked
    }

    /// Returns whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.matcher.is_none()
    }

    /// Hides the secrets in `text`.
    pub fn redact<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let places = self.places(text);
        if places.as_slice().is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = Vec::with_capacity(text.len());
        let mut done = 0;
        for place in places.as_slice() {
            out.extend_from_slice(text.get(done..place.start).unwrap_or_default());
            out.extend_from_slice(MASK.as_bytes());
            done = place.end;
        }
        out.extend_from_slice(text.get(done..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Hides the secrets in `text`; a character that a secret touches is hidden whole.
    pub fn redact_str<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut places = Places::default();
        for place in self.places(text.as_bytes()).as_slice() {
            places.add(text.floor_char_boundary(place.start)..text.ceil_char_boundary(place.end));
        }
        if places.as_slice().is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for place in places.as_slice() {
            out.push_str(text.get(done..place.start).unwrap_or_default());
            out.push_str(MASK);
            done = place.end;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Hides the secrets in a text of the system, such as an argument or a path.
    pub fn redact_os<'a>(&self, text: &'a OsStr) -> Cow<'a, OsStr> {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(masked) => Cow::Owned(OsString::from_vec(masked)),
        }
    }

    /// Begins to hide secrets in output that comes in pieces.
    ///
    /// From `hold_from` bytes on (at least 1) what may become a secret is held back until that is decided:
    /// [`HOLD_FOR_PIPE`](super::HOLD_FOR_PIPE) or [`HOLD_FOR_TERMINAL`](super::HOLD_FOR_TERMINAL).
    pub fn stream(&self, hold_from: usize) -> RedactStream {
        RedactStream::new(self.matcher.clone(), hold_from)
    }

    fn places(&self, text: &[u8]) -> Places {
        let mut places = Places::default();
        if let Some(matcher) = &self.matcher {
            matcher.read(&mut matcher.begin(), text, |end, len| {
                places.add(end.saturating_sub(len)..end);
            });
        }
        places
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("patterns", &self.matcher.as_ref().map_or(0, |m| m.patterns))
            .field("unmasked", &self.unmasked)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hiding(values: &[&str]) -> Redactor {
        Redactor::new(values.iter().map(|value| SecretValue::new(*value))).unwrap()
    }

    #[test]
    fn c14_lines_of_a_secret_are_hidden_and_one_letter_shreds_nothing() {
        let redactor = hiding(&[
            "first-line-abcdef\nsecond-line-ghijkl",
            "e",
            "plain-token-123456",
        ]);
        let text = "first-line-abcdef\nsecond-line-ghijkl\nplain-token-123456\neleven here\nsecond-line-ghijkl\r\n";
        assert_eq!(redactor.redact_str(text), "***\n***\neleven here\n***\r\n");
        assert_eq!(redactor.unmasked(), 1);
    }

    #[test]
    fn c14_a_line_with_a_brace_does_not_make_every_brace_a_secret() {
        let redactor = hiding(&["{\n  \"private_key\": \"s3cr3t-k3y\"\n}\n"]);
        assert_eq!(
            redactor.redact_str("{ ok }\n  \"private_key\": \"s3cr3t-k3y\"\n}"),
            "{ ok }\n  ***\n}"
        );
        assert_eq!(redactor.unmasked(), 0);
    }

    #[test]
    fn c14_secrets_that_overlap_leave_no_tail() {
        let redactor = hiding(&["abcdefgh", "efghijkl", "efghij", "ijklmn"]);
        for text in ["abcdefghijklmn", "efghijklmn", "abcdefghijkl"] {
            assert_eq!(redactor.redact_str(&format!("<{text}>")), "<***>", "{text}");
        }
        assert_eq!(redactor.redact_str("abcdefg efghij"), "abcdefg ***");
        assert_eq!(redactor.redact_str("abcdefghefghij"), "***");
    }

    #[test]
    fn c14_what_a_mask_leaves_never_completes_another_secret() {
        let redactor = hiding(&["*abcdef*", "hunter2-hunter2"]);
        let masked = redactor.redact_str("hunter2-hunter2abcdef").into_owned();
        assert_eq!(masked, "***");
        assert_eq!(redactor.redact_str("*abcdef*"), "*****");
        let mut stream = redactor.stream(1);
        assert_eq!(stream.push(b"hunter2-hunter2abcdef"), [b'*'; 21]);
    }

    #[test]
    fn f148_common_encodings_are_hidden_also_inside_a_longer_text() {
        let redactor = hiding(&["p\u{e4}\"s/w<rd +1>2?\n"]);
        // Written by the base64, urllib.parse and json of Python, and by xxd.
        for (text, masked) in [
            ("cMOkInMvdzxyZCArMT4yPw==", "***"),
            ("cMOkInMvdzxyZCArMT4yPw", "***"),
            ("cMOkInMvdzxyZCArMT4yPwo=", "***"),
            // Characters that also hold bits of a neighbour stay.
            ("dTpww6Qicy93PHJkICsxPjI/Ong=", "dTp***Ong="),
            ("dTpww6Qicy93PHJkICsxPjI_Ong=", "dTp***Ong="),
            ("dXM6cMOkInMvdzxyZCArMT4yPyE=", "dXM6***yE="),
            ("dXNlOnDDpCJzL3c8cmQgKzE+Mj8hIQ==", "dXNlOn***8hIQ=="),
            ("dXNlOnDDpCJzL3c8cmQgKzE-Mj8hIQ==", "dXNlOn***8hIQ=="),
            ("a=p%C3%A4%22s%2Fw%3Crd%20%2B1%3E2%3F&", "a=***&"),
            ("a=p%c3%a4%22s%2fw%3crd%20%2b1%3e2%3f&", "a=***&"),
            ("p%C3%A4%22s/w%3Crd%20%2B1%3E2%3F", "***"),
            ("p%C3%A4%22s%2Fw%3Crd+%2B1%3E2%3F", "***"),
            (r#""p\u00e4\"s/w<rd +1>2?""#, r#""***""#),
            (r#""pä\"s/w<rd +1>2?""#, r#""***""#),
            (r#""\"pä\\\"s/w<rd +1>2?\"""#, r#""\"***\"""#),
            (r#""p\u00e4\"s\/w<rd +1>2?""#, r#""***""#),
            (r#""pä\"s/w\u003crd +1\u003e2?""#, r#""***""#),
            ("70c3a422732f773c7264202b313e323f0a", "***0a"),
            ("70C3A422732F773C7264202B313E323F", "***"),
            // Encodings of other values stay as they are.
            ("cMOkInMvdzxyZCArMT4y", "cMOkInMvdzxyZCArMT4y"),
            (
                "70c3a422732f773c7264202b313e32",
                "70c3a422732f773c7264202b313e32",
            ),
        ] {
            assert_eq!(redactor.redact_str(text), masked);
        }
    }

    #[test]
    fn f148_encodings_in_lines_are_hidden() {
        let value = (0..40)
            .map(|i| format!("{i:02x}Z"))
            .collect::<Vec<_>>()
            .join("-");
        let redactor = hiding(&[&value]);
        let mut forms = Vec::new();
        super::super::encodings::base64_whole(value.as_bytes(), &mut forms);
        let whole = forms.iter().max_by_key(|form| form.len()).unwrap();
        for columns in [64, 76] {
            let lines: Vec<_> = whole.chunks(columns).collect();
            let masked = redactor.redact(&lines.join(&b'\n')).into_owned();
            assert!(
                masked.iter().all(|byte| b"*\n".contains(byte)),
                "{masked:?}"
            );
        }
    }

    #[test]
    fn f144_a_redactor_shows_nothing_of_its_secrets() {
        let redactor = hiding(&["hunter2-hunter2", "e"]);
        let shown = format!("{redactor:?} {:?}", redactor.stream(1));
        assert!(
            !shown.contains("hunter2") && shown.contains("unmasked: 1"),
            "{shown}"
        );
        let huge = SecretValue::new("canary-line\n".repeat(1 << 17));
        let error = Redactor::new([huge]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(!format!("{error:?}").contains("canary"));
    }

    #[test]
    fn texts_of_all_kinds_are_hidden_and_stay_what_they_are() {
        let redactor = hiding(&["hunter2-hunter2"]);
        assert_eq!(
            redactor.redact_os(OsStr::new("--key=hunter2-hunter2")),
            OsStr::new("--key=***")
        );
        assert!(matches!(
            redactor.redact_os(OsStr::new("--key")),
            Cow::Borrowed(_)
        ));
        assert!(matches!(redactor.redact(b"\xff"), Cow::Borrowed(b"\xff")));
        assert!(Redactor::default().is_empty());
        assert!(matches!(
            Redactor::default().redact_str("hunter2"),
            Cow::Borrowed(_)
        ));
        // A value that ends within a character.
        let cut = Redactor::new([SecretValue::new(&b"secret-\xc3"[..])]).unwrap();
        assert_eq!(cut.redact_str("a secret-\u{e4} b"), "a *** b");
        assert!(Redactor::can_mask(&SecretValue::new("abcdef")));
        assert!(!Redactor::can_mask(&SecretValue::new("abcde\n")));
    }
}
