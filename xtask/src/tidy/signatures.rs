//! Public signatures of the libraries name types of the standard library, our own, and a few that everybody speaks.
//!
//! Whatever else stands there, each of its releases that breaks would break ours. `pub` is taken at its word: what is not
//! reachable is not `pub` here. Derives and implementations of foreign traits are no signatures.

use std::collections::BTreeMap;
use std::path::Path;

use crate::metadata::{Kind, Metadata, Package};

use super::lexer::{self, Token};
use super::modules;
use super::repository::{Finding, SourceFile};

/// What may stand in a signature beside the standard library and ourselves.
const SPOKEN: [&[&str]; 8] = [
    &["tokio", "io"],
    &["serde"],
    &["bytes", "Bytes"],
    &["serde_json", "Value"],
    &["serde_json", "Map"],
    &["futures_util", "stream", "BoxStream"],
    &["futures_util", "future", "BoxFuture"],
    &["async_trait", "async_trait"],
];

/// Checks every library that others depend on.
pub(crate) fn check(root: &Path, metadata: &Metadata, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in metadata.published().filter(|package| package.is_library()) {
        let foreign = foreign(package, metadata);
        let sources = package.directory().join("src");
        for file in files.iter().filter(|file| file.has_extension("rs")) {
            if root.join(&file.path).starts_with(&sources) {
                findings.extend(shown(file, &foreign));
            }
        }
    }
    findings
}

/// Lists the crates of others that a package uses, as they are named in Rust.
fn foreign(package: &Package, metadata: &Metadata) -> Vec<String> {
    let ours = |name: &str| metadata.members().any(|member| member.name == name);
    let used = package.dependencies.iter();
    used.filter(|dependency| matches!(dependency.kind, None | Some(Kind::Normal)))
        .filter(|dependency| !ours(&dependency.name))
        .map(|dependency| dependency.name.replace('-', "_"))
        .collect()
}

/// Finds the foreign names in the public signatures of a file.
fn shown(file: &SourceFile, foreign: &[String]) -> Vec<Finding> {
    let outline = modules::outline(&file.text);
    let imported: BTreeMap<&str, &[String]> = outline
        .imported
        .iter()
        .map(|import| (import.name.as_str(), import.path.as_slice()))
        .collect();
    let tokens = lexer::without_tests(&lexer::lex(&file.text).tokens);
    let ours = private(&tokens);
    let seen = |at: &usize| tokens[*at].is_word("pub") && !ours.iter().any(|own| own.contains(at));
    let mut findings = Vec::new();
    for at in (0..tokens.len()).filter(seen) {
        for (line, path) in paths(&tokens[signature(&tokens, at)]) {
            let whole = match imported.get(path[0].as_str()) {
                Some(import) => [import, &path[1..]].concat(),
                // The name of a parameter or a field, which a crate may have as well.
                None if path.len() == 1 => continue,
                None => path,
            };
            let spoken = |allowed: &&[&str]| {
                whole.len() >= allowed.len() && whole.iter().zip(*allowed).all(|(a, b)| a == b)
            };
            if foreign.contains(&whole[0]) && !SPOKEN.iter().any(spoken) {
                let said = format!("a public signature shows `{}`", whole.join("::"));
                findings.push(Finding::at(file, line, said));
            }
        }
    }
    findings.dedup_by(|a, b| a.to_string() == b.to_string());
    findings
}

/// Lists where types are described that only we see, `pub` as their fields may be.
fn private(tokens: &[Token]) -> Vec<std::ops::Range<usize>> {
    let is_own = |at: &usize| {
        let types = ["struct", "enum", "union", "trait"];
        let is_type = types.iter().any(|word| tokens[*at].is_word(word));
        is_type && !(*at > 0 && tokens[at - 1].is_word("pub"))
    };
    let own = (0..tokens.len()).filter(is_own).map(|at| {
        let opens = |token: &&Token| token.is('{') || token.is('(') || token.is(';');
        let body = tokens[at..]
            .iter()
            .take_while(|token| !opens(token))
            .count();
        at..lexer::end_of_group(tokens, at + body)
    });
    own.collect()
}

/// Returns where the signature is that begins with this `pub`; nothing where only we see it.
fn signature(tokens: &[Token], at: usize) -> std::ops::Range<usize> {
    let nothing = at..at;
    let is = |at: usize, sign: char| tokens.get(at).is_some_and(|token| token.is(sign));
    if is(at + 1, '(') {
        return nothing;
    }
    let modifiers = ["async", "unsafe", "extern"];
    let mut kind = at + 1;
    while tokens
        .get(kind)
        .and_then(Token::word)
        .is_some_and(|word| modifiers.contains(&word))
    {
        kind += 1;
    }
    let ends: &[char] = match tokens.get(kind).and_then(Token::word) {
        Some("const") if tokens.get(kind + 1).is_some_and(|next| next.is_word("fn")) => &['{'],
        Some("const" | "static") => &['='],
        Some("fn") => &['{', ';'],
        // Its fields have a `pub` of their own.
        Some("struct") => &['{', '(', ';'],
        Some("type" | "use") => &[';'],
        Some("enum" | "trait" | "union") => &[],
        Some("mod") | None => return nothing,
        Some(_) => &[',', '}', ')'],
    };
    let (mut end, mut angles) = (kind, 0_usize);
    while end < tokens.len() {
        if ends.is_empty() && is(end, '{') {
            return kind..lexer::end_of_group(tokens, end);
        }
        let stop = |sign: &char| is(end, *sign) && (*sign != ',' || angles == 0);
        if end > kind && ends.iter().any(stop) {
            break;
        }
        if is(end, '<') {
            angles += 1;
        } else if is(end, '>') && !is(end - 1, '-') {
            angles = angles.saturating_sub(1);
        }
        end = if is(end, '(') || is(end, '[') {
            lexer::end_of_group(tokens, end)
        } else {
            end + 1
        };
    }
    kind..end
}

/// Lists the paths that are named, single words included, each with its line.
fn paths(tokens: &[Token]) -> Vec<(usize, Vec<String>)> {
    let is_sign = |at: usize| {
        let is = |at: usize| tokens.get(at).is_some_and(|token| token.is(':'));
        is(at) && is(at + 1)
    };
    let (mut all, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        // The name of what is declared is none that is used.
        if tokens[at].is_word("fn") {
            at += 2;
            continue;
        }
        if tokens[at].is('#') {
            at = lexer::end_of_group(tokens, at + 1);
            continue;
        }
        let Some(word) = tokens[at].word() else {
            at += 1;
            continue;
        };
        let (line, mut path) = (tokens[at].line, vec![word.to_owned()]);
        at += 1;
        // The name of a variant, a parameter or a field.
        let next = |sign: char| tokens.get(at).is_some_and(|token| token.is(sign));
        if next('(') || next('{') || (next(':') && !is_sign(at)) {
            continue;
        }
        while is_sign(at) {
            let Some(next) = tokens.get(at + 2).and_then(Token::word) else {
                break;
            };
            path.push(next.to_owned());
            at += 3;
        }
        all.push((line, path));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let file = SourceFile {
            path: "crates/a/src/lib.rs".into(),
            text: text.to_owned(),
        };
        let foreign = ["rustix", "tokio", "bytes", "serde_json", "futures_util"];
        let found = shown(&file, &foreign.map(str::to_owned));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_foreign_type_is_found_wherever_it_is_public() {
        for text in [
            "pub fn a(x: rustix::fs::Stat) {}",
            "use rustix::fs::Stat; impl A { pub async fn a() -> Result<u8, Stat>; }",
            "use rustix::fs; pub struct A { pub a: Vec<fs::Stat>, b: u8 }",
            "use rustix::fs::Stat; pub struct A(pub Stat);",
            "use rustix::fs::Stat; pub enum A { B { c: Stat } }",
            "use rustix::fs::Stat; pub trait A { fn b(&self, c: &[Stat]); }",
            "pub type A = rustix::fs::Stat;",
            "pub use rustix::fs::Stat;",
            "use tokio::sync::mpsc; pub fn a(x: mpsc::Sender<u8>) {}",
        ] {
            assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn what_nobody_sees_and_what_everybody_speaks_is_not() {
        for text in [
            "use rustix::fs::Stat; pub(crate) fn a(x: Stat) {} fn b(x: Stat) {}",
            "use rustix::fs::Stat; pub fn a(x: u8) { let y: Stat = b(x); }",
            "use rustix::fs::Stat; pub(crate) struct A { pub a: Stat } struct B(pub Stat);",
            "use rustix::fs::Stat; pub enum A { Stat(u8) } pub fn b(Stat: u8) {}",
            "use rustix::fs::Stat; pub struct A { a: Stat } pub const B: u8 = Stat::B;",
            "use tokio::io::AsyncRead; pub fn a(x: impl AsyncRead) -> bytes::Bytes {}",
            "use futures_util::stream::BoxStream; pub type A = BoxStream<'static, u8>;",
            "pub fn a(x: &serde_json::Map<String, serde_json::Value>) {}",
            "use tokio::signal; pub fn signal(bytes: u8) {}",
            "pub enum A { #[serde(tag = \"rustix\")] B }",
            "#[cfg(test)] mod t { use rustix::fs::Stat; pub fn a(x: Stat) {} }",
        ] {
            assert!(found(text).is_empty(), "{text}: {:?}", found(text));
        }
    }
}
