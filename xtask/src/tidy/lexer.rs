//! Rust text as tokens and comments: enough of the language to find names and paths, and no more.
//!
//! Literals lose their text, so that nothing written in a string is ever taken for code.

/// A token and the line it starts on, counted from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) line: usize,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Ident(String),
    Punct(char),
    Literal,
    Lifetime,
}

impl Token {
    /// Tells whether this is the identifier or keyword `word`.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    /// Returns the identifier or keyword.
    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Ident(word) => Some(word),
            _ => None,
        }
    }

    /// Tells whether this is the punctuation `sign`.
    pub(crate) fn is(&self, sign: char) -> bool {
        self.kind == TokenKind::Punct(sign)
    }
}

/// The tokens and the comments of one file.
#[derive(Debug, Default)]
pub(crate) struct Lexed {
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<(usize, String)>,
}

/// Reads one file.
pub(crate) fn lex(text: &str) -> Lexed {
    let mut scanner = Scanner {
        chars: text.chars().collect(),
        at: 0,
        line: 1,
        lexed: Lexed::default(),
    };
    if text.starts_with("#!") && !text.starts_with("#![") {
        scanner.skip_line();
    }
    while scanner.at < scanner.chars.len() {
        scanner.step();
    }
    scanner.lexed
}

/// Removes every item under `#[cfg(test)]`: what only tests see is not part of the program.
pub(crate) fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_cfg_test(&tokens[at..]) {
            at = end_of_item(tokens, at);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

fn is_cfg_test(tokens: &[Token]) -> bool {
    let wanted = ["#", "[", "cfg", "(", "test", ")", "]"];
    tokens.len() >= wanted.len()
        && wanted
            .iter()
            .zip(tokens)
            .all(|(wanted, token)| match &token.kind {
                TokenKind::Ident(word) => word == wanted,
                TokenKind::Punct(sign) => wanted.chars().eq([*sign]),
                TokenKind::Literal | TokenKind::Lifetime => false,
            })
}

/// Returns where the item that starts at `at`, attributes included, is over.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    while at + 1 < tokens.len() && tokens[at].is('#') && tokens[at + 1].is('[') {
        at = end_of_group(tokens, at + 1);
    }
    while at < tokens.len() {
        if tokens[at].is(';') {
            return at + 1;
        }
        if tokens[at].is('{') {
            let end = end_of_group(tokens, at);
            // `use a::{b, c};` goes on after its group.
            return match tokens.get(end) {
                Some(next) if next.is(';') => end + 1,
                _ => end,
            };
        }
        at = if tokens[at].is('(') || tokens[at].is('[') {
            end_of_group(tokens, at)
        } else {
            at + 1
        };
    }
    at
}

/// Returns where the bracketed group that opens at `at` is over.
pub(crate) fn end_of_group(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < tokens.len() {
        match tokens[at].kind {
            TokenKind::Punct('(' | '[' | '{') => depth += 1,
            TokenKind::Punct(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    line: usize,
    lexed: Lexed,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn bump(&mut self) -> Option<char> {
        let char = self.peek(0)?;
        self.at += 1;
        if char == '\n' {
            self.line += 1;
        }
        Some(char)
    }

    fn push(&mut self, kind: TokenKind, line: usize) {
        self.lexed.tokens.push(Token { kind, line });
    }

    fn step(&mut self) {
        let line = self.line;
        match (self.peek(0), self.peek(1)) {
            (Some('/'), Some('/')) => {
                let text = self.skip_line();
                self.lexed.comments.push((line, text));
            }
            (Some('/'), Some('*')) => self.block_comment(),
            (Some('"'), _) => self.string(),
            (Some('\''), _) => self.quote(),
            (Some(first), _) if first.is_alphabetic() || first == '_' => self.word(),
            (Some(first), _) if first.is_ascii_digit() => self.number(),
            (Some(first), _) => {
                self.bump();
                if !first.is_whitespace() {
                    self.push(TokenKind::Punct(first), line);
                }
            }
            (None, _) => {}
        }
    }

    fn skip_line(&mut self) -> String {
        let mut text = String::new();
        while let Some(char) = self.peek(0) {
            if char == '\n' {
                break;
            }
            text.push(char);
            self.bump();
        }
        text
    }

    fn block_comment(&mut self) {
        let line = self.line;
        let mut text = String::new();
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.bump();
                    self.bump();
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.bump();
                    self.bump();
                    if depth == 0 {
                        break;
                    }
                }
                (Some(char), _) => {
                    text.push(char);
                    self.bump();
                }
                (None, _) => break,
            }
        }
        for (offset, part) in text.lines().enumerate() {
            self.lexed.comments.push((line + offset, part.to_owned()));
        }
    }

    /// Reads a string literal from its opening quote.
    fn string(&mut self) {
        let line = self.line;
        self.bump();
        while let Some(char) = self.bump() {
            match char {
                '\\' => {
                    self.bump();
                }
                '"' => break,
                _ => {}
            }
        }
        self.push(TokenKind::Literal, line);
    }

    /// Reads a raw string from its hashes or quote; the caller saw that it is one.
    fn raw_string(&mut self) {
        let line = self.line;
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            hashes += 1;
            self.bump();
        }
        self.bump();
        while let Some(char) = self.bump() {
            if char == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                for _ in 0..hashes {
                    self.bump();
                }
                break;
            }
        }
        self.push(TokenKind::Literal, line);
    }

    /// Reads a character literal or a lifetime from its quote.
    fn quote(&mut self) {
        let line = self.line;
        self.bump();
        if self.peek(0) == Some('\\') {
            self.bump();
            self.bump();
            while let Some(char) = self.bump() {
                if char == '\'' {
                    break;
                }
            }
            self.push(TokenKind::Literal, line);
        } else if self.peek(1) == Some('\'') {
            self.bump();
            self.bump();
            self.push(TokenKind::Literal, line);
        } else {
            while self.peek(0).is_some_and(is_word_char) {
                self.bump();
            }
            self.push(TokenKind::Lifetime, line);
        }
    }

    fn word(&mut self) {
        let line = self.line;
        let mut word = String::new();
        while let Some(char) = self.peek(0).filter(|char| is_word_char(*char)) {
            word.push(char);
            self.bump();
        }
        let raw = matches!(word.as_str(), "r" | "br" | "cr");
        let prefix = raw || matches!(word.as_str(), "b" | "c");
        match self.peek(0) {
            Some('"') if raw => self.raw_string(),
            Some('"') if prefix => self.string(),
            Some('\'') if word == "b" => self.quote(),
            Some('#') if raw => {
                let rest = &self.chars[self.at..];
                let hashes = rest.iter().take_while(|char| **char == '#').count();
                if self.peek(hashes) == Some('"') {
                    self.raw_string();
                } else {
                    // `r#type`: the name without its mark.
                    self.bump();
                }
            }
            _ => self.push(TokenKind::Ident(word), line),
        }
    }

    fn number(&mut self) {
        let line = self.line;
        while let Some(char) = self.peek(0) {
            let fraction = char == '.' && self.peek(1).is_some_and(|next| next.is_ascii_digit());
            if !is_word_char(char) && !fraction {
                break;
            }
            self.bump();
        }
        self.push(TokenKind::Literal, line);
    }
}

fn is_word_char(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        lex(text)
            .tokens
            .iter()
            .filter_map(|token| token.word().map(str::to_owned))
            .collect()
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        let text = "a /* b /* c */ d */ \"e \\\" f\" r#\"g \" h\"# b\"i\" 'j' '\\'' k<'l> // m\nn";
        assert_eq!(words(text), ["a", "k", "n"]);
        let comments: Vec<_> = lex(text)
            .comments
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(comments.len(), 2);
        assert_eq!(comments[1], "// m");
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let lexed = lex("\"one\ntwo\"\n/* three\nfour */ five");
        let five = lexed.tokens.last().unwrap();
        assert!(five.is_word("five"));
        assert_eq!(five.line, 4);
    }

    #[test]
    fn a_shebang_is_skipped_and_an_attribute_is_not() {
        assert_eq!(words("#!/usr/bin/env x\nfn"), ["fn"]);
        assert_eq!(words("#![doc] fn"), ["doc", "fn"]);
    }

    #[test]
    fn raw_names_and_numbers() {
        assert_eq!(words("r#type 1..x 2.5e3 0xff"), ["type", "x"]);
    }

    #[test]
    fn test_items_are_removed_with_their_attributes() {
        let text = "use a; #[cfg(test)] #[path = \"x\"] mod t { fn b() {} } fn c() {} #[cfg(test)] mod u; \
                    #[cfg(test)] use d::{e, f}; struct G; #[cfg(not(test))] fn h() {}";
        let kept: Vec<_> = without_tests(&lex(text).tokens)
            .iter()
            .filter_map(|token| token.word().map(str::to_owned))
            .collect();
        assert_eq!(
            kept,
            [
                "use", "a", "fn", "c", "struct", "G", "cfg", "not", "test", "fn", "h"
            ]
        );
    }
}
