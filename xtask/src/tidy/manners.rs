//! Manners of the sources that lints cannot see, or that must hold even where a lint is silenced.

use super::code::{Code, Kind};
use super::tree::File;
use super::{Findings, Tree};

/// Macros that stand for work not done.
const STUBS: &[&str] = &["todo", "unimplemented", "dbg"];

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for (_, file, code) in tree.sources() {
        findings.looked_at += 1;
        if !file.text.trim_start().starts_with("//!") && !file.text.trim_start().starts_with("#!") {
            findings.broken(
                &file.path,
                1,
                "begins without `//!`: say in a few lines what this decides and what it does not",
            );
        }
        tokens(file, code, &mut findings);
    }
    for file in tree
        .files
        .iter()
        .filter(|f| f.path.starts_with("scenarios/") && f.path.ends_with(".toml"))
    {
        if file.path.ends_with("Cargo.toml") || file.path.contains("/tests/") {
            continue;
        }
        findings.looked_at += 1;
        if !file.text.starts_with('#') {
            findings.broken(
                &file.path,
                1,
                "begins without a comment that says what the scenario shows",
            );
        }
    }
    findings
}

fn tokens(file: &File, code: &Code, findings: &mut Findings) {
    let tokens = code.tokens();
    for (at, token) in tokens
        .iter()
        .enumerate()
        .filter(|(_, t)| t.kind == Kind::Ident)
    {
        let before = |text: &str| at > 0 && tokens[at - 1].text == text;
        let after = |n: usize, text: &str| tokens.get(at + n).is_some_and(|t| t.text == text);
        match token.text.as_str() {
            "unwrap" if !token.test && before(".") && after(1, "(") && after(2, ")") => {
                findings.broken(&file.path, token.line, "`unwrap()` outside tests: an error, or `expect` with the reason that it cannot fail");
            }
            "expect" if !token.test && before(".") && after(1, "(") && after(2, "\"\"") => {
                findings.broken(&file.path, token.line, "`expect` without a reason");
            }
            "ignore" if before("[") && (after(1, "]") || after(1, "=")) => {
                findings.broken(
                    &file.path,
                    token.line,
                    "an ignored test proves nothing: give it a tier in xtask/src/test/tiers.rs",
                );
            }
            name if STUBS.contains(&name) && after(1, "!") => {
                findings.broken(
                    &file.path,
                    token.line,
                    format!("`{name}!`: do it, or leave it out"),
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_manners_are_found() {
        let rows: &[(&str, bool)] = &[
            (
                "//! A map.\nfn f() { x.expect(\"a digit is a digit\"); }",
                true,
            ),
            (
                "//! A map.\n#[cfg(test)] mod tests { #[test] fn t() { x.unwrap(); } }",
                true,
            ),
            ("//! A map.\nfn f() { x.unwrap_or(1); }", true),
            ("fn f() {}", false),
            ("//! A map.\nfn f() { x.unwrap(); }", false),
            ("//! A map.\nfn f() { assert!(x.unwrap()); }", false),
            ("//! A map.\nfn f() { x.expect(\"\"); }", false),
            ("//! A map.\nfn f() { todo!() }", false),
            (
                "//! A map.\n#[cfg(test)] mod tests { #[test] #[ignore] fn t() {} }",
                false,
            ),
            (
                "//! A map.\n#[cfg(test)] mod tests { #[test] #[ignore = \"slow\"] fn t() {} }",
                false,
            ),
        ];
        for (text, clean) in rows {
            let tree = Tree::of(
                &[("protocol/src/lib.rs", text)],
                &[("protocol", "protocol", &[])],
            );
            assert_eq!(check(&tree).violations.is_empty(), *clean, "{text}");
        }
    }

    #[test]
    fn a_scenario_says_what_it_shows() {
        for (text, clean) in [
            ("# Shows a calm day.\nseed = 1\n", true),
            ("seed = 1\n", false),
        ] {
            let tree = Tree::of(&[("scenarios/steady.toml", text)], &[]);
            assert_eq!(check(&tree).violations.is_empty(), clean, "{text}");
        }
    }
}
