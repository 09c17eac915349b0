//! What each file of text must have, and must not have: headers, sizes, names, words.

use super::lexer::{self, Token};
use super::repository::{Finding, SourceFile};

/// A file is read in one sitting.
const MOST_LINES: usize = 600;

/// Suffixes that say nothing about the thing named.
const EMPTY_SUFFIXES: [&str; 11] = [
    "Manager", "Handler", "Helper", "Util", "Utils", "Common", "Service", "Data", "Info", "Base",
    "Impl",
];

/// The waiver for a line that needs a path of somebody's home.
const WAIVER: &str = "tidy: place";

/// Checks every file.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sleeping: Vec<(&str, &SourceFile)> = Vec::new();
    for file in files {
        if file.has_extension("rs") {
            let lexed = lexer::lex(&file.text);
            findings.extend(header(file));
            findings.extend(size(file));
            findings.extend(names(file, &lexed.tokens));
            findings.extend(code_words(file, &lexed.tokens));
            for (line, comment) in &lexed.comments {
                findings.extend(open_ends(file, *line, comment));
            }
            findings.extend(places(file));
            findings.extend(sleeps(file, &lexed.tokens, &mut sleeping));
        } else if file.has_extension("md") {
            for (line, text) in super::papers::prose(&file.text) {
                findings.extend(open_ends(file, line, &text));
            }
            findings.extend(places(file));
        }
    }
    findings
}

/// A file begins by saying what it is.
fn header(file: &SourceFile) -> Option<Finding> {
    let mut text = file.text.as_str();
    if text.starts_with("#!") && !text.starts_with("#![") {
        text = text.split_once('\n').map_or("", |(_, rest)| rest);
    }
    let says = |text: &str| text.starts_with("//!") || text.starts_with("#![doc");
    let mut text = text.trim_start();
    while text.starts_with("#![") && !says(text) {
        text = text
            .find(']')
            .map_or("", |end| &text[end + 1..])
            .trim_start();
    }
    let words = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .map(|line| line.trim_start_matches("//!").trim())
        .find(|line| !line.is_empty());
    if text.starts_with("#![doc") || words.is_some() {
        return None;
    }
    Some(Finding::at(
        file,
        1,
        "does not begin with `//!` and what the file is",
    ))
}

fn size(file: &SourceFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    (lines > MOST_LINES).then(|| {
        Finding::new(
            file.path.display(),
            format!("{lines} lines; at most {MOST_LINES}"),
        )
    })
}

/// Types and modules are named for what they are.
fn names(file: &SourceFile, tokens: &[Token]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pair in tokens.windows(2) {
        let [keyword, name] = pair else { continue };
        let (Some(keyword), Some(text)) = (keyword.word(), name.word()) else {
            continue;
        };
        let empty = match keyword {
            "struct" | "enum" | "trait" | "type" | "union" => {
                EMPTY_SUFFIXES.iter().any(|suffix| text.ends_with(suffix))
            }
            "mod" => EMPTY_SUFFIXES.iter().any(|suffix| {
                text.trim_end_matches('s') == suffix.to_lowercase().trim_end_matches('s')
            }),
            _ => false,
        };
        if empty {
            findings.push(Finding::at(
                file,
                name.line,
                format!("`{keyword} {text}`: the name says nothing; name the thing"),
            ));
        }
    }
    findings
}

/// Marks of unfinished or silenced code.
fn code_words(file: &SourceFile, tokens: &[Token]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(word) = token.word() else { continue };
        let next = |ahead: usize, sign: char| tokens.get(at + ahead).is_some_and(|t| t.is(sign));
        let before = |back: usize, sign: char| at >= back && tokens[at - back].is(sign);
        let in_attribute = before(1, '[') && (before(2, '#') || (before(2, '!') && before(3, '#')));
        let said = match word {
            "dbg" | "todo" | "unimplemented" if next(1, '!') => format!("`{word}!`"),
            "ignore" if in_attribute => {
                "`#[ignore]`: a test that does not run proves nothing".into()
            }
            "allow" if in_attribute => "`#[allow]`: write `#[expect(…, reason = …)]`".into(),
            _ => continue,
        };
        findings.push(Finding::at(file, token.line, said));
    }
    findings
}

/// A mark of something left to do names the issue that will do it.
fn open_ends(file: &SourceFile, line: usize, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for mark in ["TODO", "FIXME", "XXX"] {
        let named = |rest: &str| {
            rest.strip_prefix("(#")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let alone = |at: usize, end: usize| {
            let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !word(text[..at].chars().next_back()) && !word(text[end..].chars().next())
        };
        for (at, _) in text.match_indices(mark) {
            let end = at + mark.len();
            if alone(at, end) && !named(&text[end..]) {
                findings.push(Finding::at(
                    file,
                    line,
                    format!("`{mark}` names no issue: write `{mark}(#12)`"),
                ));
            }
        }
    }
    findings
}

/// No path of anybody's home, but on a line that says why with the waiver.
fn places(file: &SourceFile) -> Vec<Finding> {
    let homes = ["/home/", "/Users/"];
    let root = concat!("/", "root", "/");
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let somebody = homes.iter().any(|home| {
            line.match_indices(home)
                .any(|(at, _)| line[at + home.len()..].starts_with(|c: char| c.is_alphanumeric()))
        });
        if (somebody || line.contains(root)) && !line.contains(WAIVER) {
            findings.push(Finding::at(
                file,
                number + 1,
                format!("names a home directory; use a temporary one, or say why with `{WAIVER}`"),
            ));
        }
    }
    findings
}

/// One place of a crate, and one of its tests, may wait between two looks, and says so to clippy; no other place sleeps.
fn sleeps<'a>(
    file: &'a SourceFile,
    tokens: &[Token],
    seen: &mut Vec<(&'a str, &'a SourceFile)>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let path = file.path.to_str().unwrap_or_default();
    let program = program_of(path);
    for window in tokens.windows(4) {
        let [thread, a, b, sleep] = window else {
            continue;
        };
        if !(thread.is_word("thread") && a.is(':') && b.is(':') && sleep.is_word("sleep")) {
            continue;
        }
        let expected = tokens.windows(4).any(|window| {
            window[0].is_word("expect")
                && window[2].is_word("clippy")
                && window[1].is('(')
                && window[3].is(':')
        }) && file.text.contains("clippy::disallowed_methods");
        if let Some((_, other)) = seen.iter().find(|(other, _)| *other == program) {
            findings.push(Finding::at(
                file,
                sleep.line,
                format!(
                    "`thread::sleep` again; call the place in {}",
                    other.path.display()
                ),
            ));
        } else if !expected {
            findings.push(Finding::at(
                file,
                sleep.line,
                "`thread::sleep`: wait for the event",
            ));
        } else {
            seen.push((program, file));
        }
    }
    findings
}

/// Returns the program a file belongs to, by the layout of this repository: a crate's sources, or its tests.
fn program_of(path: &str) -> &str {
    let levels = if path.starts_with("crates/") || path.starts_with("examples/") {
        3
    } else {
        2
    };
    path.match_indices('/')
        .nth(levels - 1)
        .map_or("", |(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::super::repository::{fixture, rendered};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        rendered(&check(&[fixture(path, text)]))
    }

    fn passes(text: &str) {
        assert_eq!(found("src/x.rs", text), [""; 0]);
    }

    fn fails(text: &str, with: &str) {
        let found = found("src/x.rs", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(with), "{found:?}");
    }

    #[test]
    fn a_file_says_what_it_is() {
        passes("//! A thing.\nfn main() {}");
        passes("#!/usr/bin/env x\n//! A thing.");
        passes("#![deny(x)]\n\n//! A thing.");
        passes("#![doc = include_str!(\"../README.md\")]\n");
        fails("fn main() {}", "does not begin");
        fails("//!\nfn main() {}", "does not begin");
        fails("", "does not begin");
        fails("// A comment.\n//! A thing.", "does not begin");
    }

    #[test]
    fn a_file_has_an_end() {
        let lines = |count: usize| format!("//! A thing.\n{}", "//\n".repeat(count - 1));
        passes(&lines(600));
        fails(&lines(601), "601 lines");
    }

    #[test]
    fn empty_names_are_found() {
        passes("//! X.\nstruct Lane; enum Basement {} fn handler() {} // struct AManager");
        fails("//! X.\nstruct RunManager;", "RunManager");
        fails("//! X.\ntrait FooHandler {}", "FooHandler");
        fails("//! X.\ntype LaunchInfo = u8;", "LaunchInfo");
        fails("//! X.\nenum FooImpl {}", "FooImpl");
        fails("//! X.\nmod utils;", "mod utils");
        fails("//! X.\nmod helpers {}", "mod helpers");
        fails("//! X.\nmod common;", "mod common");
    }

    #[test]
    fn unfinished_and_silenced_code_is_found() {
        passes("//! X.\nfn a() { ignore(); allow[1]; let dbg = \"dbg!(x) #[ignore]\"; }");
        fails("//! X.\nfn a() { dbg!(1); }", "dbg!");
        fails("//! X.\nfn a() { unimplemented!() }", "unimplemented!");
        fails("//! X.\n#[ignore = \"slow\"] fn a() {}", "#[ignore]");
        fails("//! X.\n#[allow(x)] fn a() {}", "#[allow]");
        fails("//! X.\n#![allow(x)]", "#[allow]");
    }

    #[test]
    fn open_ends_name_their_issue() {
        let mark = concat!("TO", "DO");
        passes(&format!(
            "//! X.\n// {mark}(#12): later\n// {mark}S A{mark}"
        ));
        fails(&format!("//! X.\n// {mark}: later"), "names no issue");
        fails(&format!("//! X.\n/* {mark}(someone) */"), "names no issue");
        assert_eq!(found("a.md", &format!("Later: {mark}.")).len(), 1);
        assert_eq!(found("a.md", &format!("The word `{mark}`.")), [""; 0]);
    }

    #[test]
    fn homes_are_found_in_code_and_papers() {
        let (home, root) = (concat!("/ho", "me/ann/x"), concat!("/ro", "ot/x"));
        passes("//! X.\n// /home/<name> and /home/$USER");
        fails(&format!("//! X.\n// {home}"), "home directory");
        fails(
            &format!("//! X.\nconst A: &str = \"{root}\";"),
            "home directory",
        );
        passes(&format!(
            "//! X.\n// {home} tidy: place, parsed and never opened"
        ));
        assert_eq!(found("a.md", home).len(), 1);
    }

    #[test]
    fn one_place_of_a_crate_may_wait() {
        let expected = "//! X.\n#[expect(clippy::disallowed_methods, reason = \"r\")]\nfn a() { std::thread::sleep(d); }";
        passes(expected);
        fails("//! X.\nfn a() { thread::sleep(d); }", "wait for the event");
        let twice = [
            fixture("crates/a/src/x.rs", expected),
            fixture("crates/a/src/y.rs", expected),
            fixture("crates/a/tests/x.rs", expected),
            fixture("crates/b/src/x.rs", expected),
        ];
        let found = rendered(&check(&twice));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/y.rs:3: "), "{found:?}");
        assert!(found[0].contains("crates/a/src/x.rs"), "{found:?}");
    }
}
