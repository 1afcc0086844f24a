//! Rust source as tokens with lines: what a rule about code looks at.
//!
//! Comments are gone and string contents are opaque here, so neither can fool a rule. Rules about comments and
//! documents read the text instead. This knows where test code is and which paths are spelled; it decides nothing.

use std::ops::RangeInclusive;
use std::str::FromStr;

use proc_macro2::{Delimiter, Punct, Spacing, TokenStream, TokenTree};

/// One file of Rust, read.
#[derive(Debug, Default)]
pub(crate) struct Code {
    tokens: Vec<Token>,
    test_lines: Vec<RangeInclusive<usize>>,
}

/// One token outside documentation comments. Groups are flattened into their brackets.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) kind: Kind,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Whether it stands in test code.
    pub(crate) test: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ident,
    Literal,
    Punct,
    Bracket,
}

/// A path as spelled, `use` trees expanded: `use std::{fs, time::Instant}` gives `std::fs` and `std::time::Instant`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spelled {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    pub(crate) test: bool,
}

impl Spelled {
    /// Whether `part` (`std::fs`, `Instant::now`) stands in the path, whole segments only.
    pub(crate) fn has(&self, part: &str) -> bool {
        let part: Vec<&str> = part.split("::").collect();
        self.segments
            .windows(part.len())
            .any(|w| w.iter().eq(part.iter()))
    }
}

impl Code {
    /// Reads a file. `all_test` says that the whole file is test code.
    ///
    /// # Errors
    /// What the tokenizer did not understand, as a sentence.
    pub(crate) fn read(text: &str, all_test: bool) -> Result<Self, String> {
        let stream = TokenStream::from_str(text).map_err(|e| e.to_string())?;
        let mut code = Self::default();
        if all_test {
            code.test_lines.push(1..=usize::MAX);
        }
        code.flatten(stream, all_test);
        Ok(code)
    }

    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Whether a line belongs to test code, comments included.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// Every path of two or more segments, and every single name imported by `use`.
    pub(crate) fn paths(&self) -> Vec<Spelled> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            if self.is(at, Kind::Ident, "use") && !self.is_before(at, "::") {
                at = self.use_tree(at + 1, &mut Vec::new(), &mut found);
            } else if self.tokens[at].kind == Kind::Ident {
                let (path, next) = self.path(at);
                if path.segments.len() > 1 {
                    found.push(path);
                }
                at = next;
            } else {
                at += 1;
            }
        }
        found
    }

    /// Reads `a::b::c` from `at` on; generics end it, which is enough for rules about names.
    fn path(&self, at: usize) -> (Spelled, usize) {
        let first = &self.tokens[at];
        let mut path = Spelled {
            segments: vec![first.text.clone()],
            line: first.line,
            test: first.test,
        };
        let mut next = at + 1;
        while self.is(next, Kind::Punct, "::") && self.kind(next + 1) == Some(Kind::Ident) {
            path.segments.push(self.tokens[next + 1].text.clone());
            next += 2;
        }
        (path, next)
    }

    /// Reads one `use` tree below `prefix`; returns where it ends.
    fn use_tree(&self, mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<Spelled>) -> usize {
        let depth = prefix.len();
        while let Some(token) = self.tokens.get(at) {
            match (token.kind, token.text.as_str()) {
                (Kind::Ident, "as") => {
                    at += 2; // the new name is nobody's rule
                    continue;
                }
                (Kind::Ident, name) => {
                    prefix.push(name.to_owned());
                    if !self.is(at + 1, Kind::Punct, "::") {
                        found.push(Spelled {
                            segments: prefix.clone(),
                            line: token.line,
                            test: token.test,
                        });
                    }
                }
                (Kind::Punct, "*") => {
                    prefix.push("*".to_owned());
                    found.push(Spelled {
                        segments: prefix.clone(),
                        line: token.line,
                        test: token.test,
                    });
                }
                (Kind::Punct, ",") => prefix.truncate(depth),
                (Kind::Bracket, "{") => {
                    at = self.use_tree(at + 1, prefix, found);
                    continue;
                }
                (Kind::Bracket, _) | (Kind::Punct, ";") => {
                    prefix.truncate(depth);
                    return at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        at
    }

    fn flatten(&mut self, stream: TokenStream, test: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        let mut test_item = None;
        while at < trees.len() {
            if let Some((inner, body, width)) = attribute(&trees[at..]) {
                let line = trees[at].span().start().line;
                if marks_test(&body) {
                    if inner {
                        // `#![cfg(test)]`: everything that follows in this scope.
                        self.test_lines.push(line..=usize::MAX);
                        return self.flatten(trees[at + width..].iter().cloned().collect(), true);
                    }
                    test_item.get_or_insert(line);
                }
                if !is_doc(&body) {
                    let in_test = test || test_item.is_some();
                    let line = trees[at].span().start().line;
                    self.push("[", Kind::Bracket, line, in_test);
                    self.flatten(body, in_test);
                    self.push("]", Kind::Bracket, line, in_test);
                }
                at += width;
                continue;
            }
            let tree = &trees[at];
            let in_test = test || test_item.is_some();
            let mut ends_item = false;
            let line = tree.span().start().line;
            let end = tree.span().end().line;
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = brackets(group.delimiter());
                    self.push(open, Kind::Bracket, line, in_test);
                    self.flatten(group.stream(), in_test);
                    self.push(close, Kind::Bracket, end, in_test);
                    ends_item = group.delimiter() == Delimiter::Brace;
                }
                TokenTree::Punct(punct)
                    if is_colon(punct) && trees.get(at + 1).is_some_and(is_second_colon) =>
                {
                    self.push("::", Kind::Punct, line, in_test);
                    at += 1; // the second colon
                }
                TokenTree::Punct(punct) => {
                    self.push(&punct.as_char().to_string(), Kind::Punct, line, in_test);
                    ends_item = punct.as_char() == ';';
                }
                TokenTree::Ident(ident) => {
                    self.push(&ident.to_string(), Kind::Ident, line, in_test);
                }
                TokenTree::Literal(literal) => {
                    self.push(&literal.to_string(), Kind::Literal, line, in_test);
                }
            }
            if let Some(start) = test_item.filter(|_| ends_item) {
                self.test_lines.push(start..=end);
                test_item = None;
            }
            at += 1;
        }
    }

    fn push(&mut self, text: &str, kind: Kind, line: usize, test: bool) {
        self.tokens.push(Token {
            text: text.to_owned(),
            kind,
            line,
            test,
        });
    }

    fn kind(&self, at: usize) -> Option<Kind> {
        self.tokens.get(at).map(|t| t.kind)
    }

    fn is(&self, at: usize, kind: Kind, text: &str) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|t| t.kind == kind && t.text == text)
    }

    fn is_before(&self, at: usize, text: &str) -> bool {
        at > 0 && self.tokens[at - 1].text == text
    }
}

/// `#[…]` or `#![…]` at the front: whether it is inner, its body, and how many trees it takes.
fn attribute(trees: &[TokenTree]) -> Option<(bool, TokenStream, usize)> {
    let hash = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == '#');
    let bang = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == '!');
    let body = |t: &TokenTree| match t {
        TokenTree::Group(g) if g.delimiter() == Delimiter::Bracket => Some(g.stream()),
        _ => None,
    };
    match trees {
        [a, b, c, ..] if hash(a) && bang(b) => body(c).map(|s| (true, s, 3)),
        [a, b, ..] if hash(a) => body(b).map(|s| (false, s, 2)),
        _ => None,
    }
}

/// `cfg(test)`, `cfg(any(test, …))`, `test`, `tokio::test`: what follows is test code. `cfg(not(test))` is not.
fn marks_test(body: &TokenStream) -> bool {
    let words = words(body.clone());
    let last = words.iter().position(|w| w == "(").unwrap_or(words.len());
    let named = words[..last].last().is_some_and(|w| w == "test");
    let cfg = words.first().is_some_and(|w| w == "cfg");
    named || cfg && words.iter().any(|w| w == "test") && !words.iter().any(|w| w == "not")
}

/// The first half of `::`.
fn is_colon(punct: &Punct) -> bool {
    punct.as_char() == ':' && punct.spacing() == Spacing::Joint
}

fn is_second_colon(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(p) if p.as_char() == ':')
}

fn is_doc(body: &TokenStream) -> bool {
    words(body.clone()).first().is_some_and(|w| w == "doc")
}

/// Identifiers, with `(` where a group begins.
fn words(stream: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for tree in stream {
        match tree {
            TokenTree::Ident(ident) => found.push(ident.to_string()),
            TokenTree::Group(group) => {
                found.push("(".to_owned());
                found.extend(words(group.stream()));
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &str) -> Vec<String> {
        let code = Code::read(text, false).unwrap();
        code.paths().iter().map(|p| p.segments.join("::")).collect()
    }

    #[test]
    fn paths_are_read_as_rust_reads_them() {
        let rows: &[(&str, &[&str])] = &[
            ("fn f() { std::fs::read(p) }", &["std::fs::read"]),
            (
                "use std::{fs, time::{Duration, Instant as I}};",
                &["std::fs", "std::time::Duration", "std::time::Instant"],
            ),
            (
                "use std::collections::*; use axum;",
                &["std::collections::*", "axum"],
            ),
            (
                "use a::{b::{c, d}, e}; fn f() { x::y() }",
                &["a::b::c", "a::b::d", "a::e", "x::y"],
            ),
            ("// std::fs\n/// std::fs\nconst T: &str = \"std::fs\";", &[]),
            ("#[tokio::main] fn f() {}", &["tokio::main"]),
            ("fn f(a:&A, b: ::std::fs::File) {}", &["std::fs::File"]),
            ("fn f() { assert!(Instant::now() > t) }", &["Instant::now"]),
        ];
        for (text, paths) in rows {
            assert_eq!(spelled(text), *paths, "{text}");
        }
    }

    #[test]
    fn a_path_is_found_by_whole_segments() {
        let path = Spelled {
            segments: vec!["std".into(), "fs".into(), "read".into()],
            line: 1,
            test: false,
        };
        assert!(path.has("std::fs") && path.has("fs::read") && path.has("std"));
        assert!(!path.has("std::f") && !path.has("std::read"));
    }

    #[test]
    fn test_code_is_told_from_the_rest() {
        let text = "fn real() { a::b() }\n\
                    #[cfg(test)]\n\
                    mod tests {\n\
                      // rule SIGN-3\n\
                      #[test]\n\
                      fn t() { a::b() }\n\
                    }\n\
                    #[cfg(not(test))]\n\
                    fn also_real() { a::b() }\n\
                    #[tokio::test(start_paused = true)]\n\
                    async fn t() { a::b() }\n\
                    fn last() { a::b() }\n";
        let code = Code::read(text, false).unwrap();
        let tests: Vec<(usize, bool)> = code
            .paths()
            .iter()
            .filter(|p| p.has("a::b"))
            .map(|p| (p.line, p.test))
            .collect();
        assert_eq!(
            tests,
            [(1, false), (6, true), (9, false), (11, true), (12, false)]
        );
        assert!(code.is_test_line(4) && !code.is_test_line(1) && !code.is_test_line(12));
    }

    #[test]
    fn an_inner_attribute_makes_the_rest_test_code() {
        let code = Code::read("#![cfg(test)]\nfn helper() { a::b() }", false).unwrap();
        assert!(code.paths()[0].test && code.is_test_line(2));
    }
}
