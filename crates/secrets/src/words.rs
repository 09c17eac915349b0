//! What a foreign program said, made fit for an error: short, harmless on a terminal, and without what looks like a secret.
//!
//! Nobody can tell every secret from a word. What is certain to hold one must not come here at all.

/// The longest text, in characters.
const MOST: usize = 400;
/// What stands in place of what may be a secret.
const MASK: &str = "[hidden]";
/// Parts of the names of settings whose values are secrets.
const TELLING: [&str; 8] = [
    "token",
    "secret",
    "passw",
    "key",
    "auth",
    "bearer",
    "credential",
    "cookie",
];

/// What the words so far say about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing.
    Plain,
    /// It is a value if a sign of assignment comes first.
    Assigned,
    /// It is the value of a secret.
    Value,
}

/// Makes words of a program fit for an error.
pub(crate) fn fit(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let mut fit = String::new();
    let mut next = Next::Plain;
    for word in text.split_whitespace() {
        if !fit.is_empty() {
            fit.push(' ');
        }
        let shown;
        (shown, next) = mask(word, next);
        fit.extend(shown.chars().map(|c| {
            // Not only control characters: marks that turn the direction of writing hide things as well.
            let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if turns || c.is_control() { '?' } else { c }
        }));
        if fit.chars().count() > MOST {
            let mut cut: String = fit.chars().take(MOST).collect();
            cut.push('…');
            return cut;
        }
    }
    fit
}

/// Returns whether the name of a setting says that its value is a secret.
pub(crate) fn tells(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TELLING.iter().any(|part| name.contains(part))
}

/// Masks a word, and returns what it says about the next one.
fn mask(word: &str, before: Next) -> (String, Next) {
    let sign = matches!(word, "=" | ":");
    match before {
        Next::Assigned | Next::Value if sign => return (word.to_owned(), Next::Value),
        // `Authorization: Bearer x` has its value one word later.
        Next::Value if tells(word) => return (word.to_owned(), Next::Value),
        Next::Value => return (MASK.to_owned(), Next::Plain),
        Next::Plain | Next::Assigned => {}
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.rsplit_once('@')
    {
        return (format!("{scheme}://{MASK}@{host}"), Next::Plain);
    }
    if let Some((name, value)) = word.split_once(['=', ':'])
        && tells(name)
    {
        return if value.is_empty() {
            (word.to_owned(), Next::Value)
        } else {
            let kept = &word[..=name.len()];
            (format!("{kept}{MASK}"), Next::Plain)
        };
    }
    let next = if word.eq_ignore_ascii_case("bearer") {
        Next::Value
    } else if tells(word) {
        Next::Assigned
    } else {
        Next::Plain
    };
    (random_parts(word), next)
}

/// Masks runs of letters and digits that are too long and too mixed to be words.
fn random_parts(word: &str) -> String {
    const LONG: usize = 20;
    let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '=' | '_' | '-');
    let mut shown = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        let mixed =
            run.bytes().any(|b| b.is_ascii_digit()) && run.bytes().any(|b| b.is_ascii_alphabetic());
        shown.push_str(if run.len() >= LONG && mixed {
            MASK
        } else {
            run
        });
        let mut chars = behind.chars();
        shown.extend(chars.next());
        rest = chars.as_str();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f144_what_looks_like_a_secret_is_hidden_and_the_rest_is_told() {
        for (said, wanted) in [
            ("no such entry: a/b", "no such entry: a/b"),
            (
                "cannot open /usr/lib/x86_64-linux-gnu/libfoo.so.1",
                "cannot open /usr/lib/x86_64-linux-gnu/libfoo.so.1",
            ),
            ("API_TOKEN=abc failed", "API_TOKEN=[hidden] failed"),
            ("password: hunter2 is wrong", "password: [hidden] is wrong"),
            ("password = hunter2", "password = [hidden]"),
            (
                "Authorization: Bearer abc",
                "Authorization: Bearer [hidden]",
            ),
            ("sent bearer abc", "sent bearer [hidden]"),
            (
                "GET https://me:pw@host/x?y",
                "GET https://[hidden]@host/x?y",
            ),
            ("got sk-proj-0123456789abcdef0123 back", "got [hidden] back"),
            ("two\nlines\x1b[2J", "two lines?[2J"),
            ("", ""),
        ] {
            assert_eq!(fit(said.as_bytes()), wanted);
        }
    }

    #[test]
    fn long_words_are_cut_and_bytes_that_are_no_text_do_no_harm() {
        assert_eq!(fit(&b"a ".repeat(100_000)).chars().count(), MOST + 1);
        assert_eq!(fit(&[0xff, b'a', 0]), "\u{fffd}a?");
    }
}
