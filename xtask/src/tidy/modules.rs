//! What one file of Rust declares, defines, imports and mentions.
//!
//! It knows names and paths only, and expands no macro.

use std::collections::BTreeSet;

use super::lexer::{self, Token};

/// The outline of one file, without what only tests see.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    /// Modules with a file of their own, `#[cfg(test)]` ones included: the inline modules around, and the name.
    pub(crate) declared: Vec<(Vec<String>, String)>,
    /// Those of them that the program has.
    pub(crate) in_program: Vec<(Vec<String>, String)>,
    /// Items defined at the top of the file.
    pub(crate) defined: BTreeSet<String>,
    /// Names brought in by `use` at the top of the file.
    pub(crate) imported: Vec<Import>,
    /// Paths that the code names, those of imports included.
    pub(crate) mentioned: Vec<Mention>,
}

/// One name of a `use`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The name it has here; `*` for a glob.
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
}

/// A path that begins with `crate`, `self`, `super` or any other name, seen from inside some inline modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) within: Vec<String>,
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// Whether it is only handed on: a public `use` of a name that the file itself does not use.
    pub(crate) handed_on: bool,
}

/// Reads the outline of a file.
pub(crate) fn outline(text: &str) -> Outline {
    let tokens = lexer::lex(text).tokens;
    let mut all = Reader::new(&tokens);
    all.read();
    let program = lexer::without_tests(&tokens);
    let mut reader = Reader::new(&program);
    reader.read();
    let mut outline = reader.outline;
    outline.declared = all.outline.declared;
    for (mention, name) in outline.mentioned.iter_mut().zip(&reader.named) {
        mention.handed_on &= !reader.words.contains(name);
    }
    outline
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    /// For each open brace the inline module it opened, if it did.
    braces: Vec<Option<String>>,
    outline: Outline,
    /// The local name of each mention, parallel to it; empty where there is none.
    named: Vec<String>,
    /// Every word outside of imports.
    words: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    fn new(tokens: &'a [Token]) -> Self {
        Self {
            tokens,
            at: 0,
            braces: Vec::new(),
            outline: Outline::default(),
            named: Vec::new(),
            words: BTreeSet::new(),
        }
    }

    fn within(&self) -> Vec<String> {
        self.braces.iter().flatten().cloned().collect()
    }

    fn word(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).and_then(Token::word)
    }

    fn is(&self, ahead: usize, sign: char) -> bool {
        self.tokens
            .get(self.at + ahead)
            .is_some_and(|token| token.is(sign))
    }

    fn is_path_sign(&self, ahead: usize) -> bool {
        self.is(ahead, ':') && self.is(ahead + 1, ':')
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            let Some(word) = self.word(0) else {
                if self.is(0, '{') {
                    self.braces.push(None);
                } else if self.is(0, '}') {
                    self.braces.pop();
                }
                self.at += 1;
                continue;
            };
            match word {
                // `use<'a>` is a bound, not an import.
                "use" if !self.is(1, '<') => self.import(),
                "mod" if self.word(1).is_some() => self.module(),
                _ => {
                    self.definition(word);
                    self.path();
                }
            }
        }
    }

    fn module(&mut self) {
        let name = self.word(1).unwrap_or_default().to_owned();
        if self.is(2, '{') {
            if self.braces.is_empty() {
                self.outline.defined.insert(name.clone());
            }
            self.braces.push(Some(name));
        } else {
            let declared = (self.within(), name);
            self.outline.declared.push(declared.clone());
            self.outline.in_program.push(declared);
        }
        self.at += 3;
    }

    fn definition(&mut self, word: &str) {
        if !self.braces.is_empty() {
            return;
        }
        let name = match word {
            "static" if self.word(1) == Some("mut") => self.word(2),
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" => self.word(1),
            "macro_rules" if self.is(1, '!') => self.word(2),
            _ => None,
        };
        if let Some(name) = name {
            self.outline.defined.insert(name.to_owned());
        }
    }

    /// Reads a word, or the whole path that begins with it.
    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let continued = self.at >= 2
            && self.tokens[self.at - 1].is(':')
            && self.tokens[self.at - 2].is(':')
            && self.at.checked_sub(3).is_some_and(|before| {
                self.tokens[before].word().is_some() || self.tokens[before].is('>')
            });
        let mut path = vec![self.word(0).unwrap_or_default().to_owned()];
        self.at += 1;
        while self.is_path_sign(0) {
            let Some(next) = self.word(2) else { break };
            path.push(next.to_owned());
            self.at += 3;
        }
        self.words.extend(path.iter().cloned());
        if path.len() > 1 && !continued {
            self.outline.mentioned.push(Mention {
                within: self.within(),
                path,
                line,
                handed_on: false,
            });
            self.named.push(String::new());
        }
    }

    fn import(&mut self) {
        let line = self.tokens[self.at].line;
        let public = self.at > 0 && {
            let before = &self.tokens[self.at - 1];
            before.is_word("pub") || before.is(')')
        };
        self.at += 1;
        let mut imports = Vec::new();
        self.tree(&mut Vec::new(), &mut imports);
        if self.is(0, ';') {
            self.at += 1;
        }
        for import in imports {
            self.outline.mentioned.push(Mention {
                within: self.within(),
                path: import.path.clone(),
                line,
                handed_on: public,
            });
            self.named.push(import.name.clone());
            if self.braces.is_empty() {
                self.outline.imported.push(import);
            }
        }
    }

    /// Reads one tree of a `use`, below what was read already.
    fn tree(&mut self, above: &mut Vec<String>, imports: &mut Vec<Import>) {
        let depth = above.len();
        while self.at < self.tokens.len() {
            if self.is_path_sign(0) {
                self.at += 2;
            } else if self.is(0, '{') {
                self.at += 1;
                while self.at < self.tokens.len() && !self.is(0, '}') {
                    self.tree(above, imports);
                    if self.is(0, ',') {
                        self.at += 1;
                    }
                }
                self.at += 1;
                above.truncate(depth);
                return;
            } else if self.is(0, '*') {
                self.at += 1;
                above.push("*".into());
                break;
            } else if self.word(0) == Some("as") {
                let name = self.word(1).unwrap_or_default().to_owned();
                self.at += 2;
                imports.push(Import {
                    name,
                    path: above.clone(),
                });
                above.truncate(depth);
                return;
            } else if let Some(word) = self.word(0) {
                // `a::{self}` is `a`.
                if word != "self" || above.is_empty() {
                    above.push(word.to_owned());
                }
                self.at += 1;
            } else {
                break;
            }
        }
        if let Some(last) = above.last() {
            imports.push(Import {
                name: last.clone(),
                path: above.clone(),
            });
        }
        above.truncate(depth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        outline(text)
            .mentioned
            .iter()
            .map(|mention| mention.path.join("::"))
            .collect()
    }

    #[test]
    fn imports_are_taken_apart() {
        let text = "use a::{self, b::{C, D as E}, f::*}; pub use ::g::H; use super::i;";
        assert_eq!(
            paths(text),
            ["a", "a::b::C", "a::b::D", "a::f::*", "g::H", "super::i"]
        );
        let names: Vec<_> = outline(text)
            .imported
            .into_iter()
            .map(|import| import.name)
            .collect();
        assert_eq!(names, ["a", "C", "E", "*", "H", "i"]);
    }

    #[test]
    fn paths_in_code_are_mentions() {
        let text = "fn a(x: crate::b::C) -> Vec<super::D> { e::f(x.g, Self::H); i::<j::K>::l() }";
        assert_eq!(
            paths(text),
            ["crate::b::C", "super::D", "e::f", "Self::H", "j::K"]
        );
    }

    #[test]
    fn items_and_modules_are_found_at_the_top_only() {
        let outline = outline(
            "mod a; mod b { mod c; fn d() {} } fn e() { fn f() {} } struct G { h: u8 } const fn i() {} \
             static mut J: u8 = 0; macro_rules! k { () => {} } #[cfg(test)] mod tests; const L: u8 = 1;",
        );
        let defined: Vec<_> = outline.defined.iter().map(String::as_str).collect();
        assert_eq!(defined, ["G", "J", "L", "b", "e", "fn", "i", "k"]);
        let declared: Vec<_> = outline
            .declared
            .iter()
            .map(|(within, name)| format!("{}/{name}", within.join("/")))
            .collect();
        assert_eq!(declared, ["/a", "b/c", "/tests"]);
        assert_eq!(outline.in_program.len(), 2);
    }

    #[test]
    fn a_public_import_is_handed_on_unless_it_is_used_here() {
        let handed: Vec<_> = outline("pub use a::B; pub(crate) use a::C; use a::D; fn e(_: C) {}")
            .mentioned
            .iter()
            .map(|mention| mention.handed_on)
            .collect();
        assert_eq!(handed, [true, false, false]);
    }
}
